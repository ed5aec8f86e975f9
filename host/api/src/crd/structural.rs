//! Converts a JSON schema of `schemars` to a structural schema of Kubernetes. It never loosens the schema: what it
//! cannot convert stays, and the tests find it.

use serde_json::{Map, Value, json};

/// The structural form of a schema.
pub(super) fn from(schema: Value) -> Value {
    let Value::Object(map) = schema else {
        return json!({"x-kubernetes-preserve-unknown-fields": true});
    };
    let mut map = known(optional(map));
    if let Some(text) = map.get("description").and_then(Value::as_str) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        map.insert("description".to_owned(), json!(text));
    }
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    if let Some(items) = map.remove("items") {
        map.insert("items".to_owned(), from(items));
    }
    if let Some(Value::Object(properties)) = map.remove("properties") {
        let properties: Map<_, _> = properties
            .into_iter()
            .map(|(name, property)| (name, from(property)))
            .collect();
        map.insert("properties".to_owned(), properties.into());
    }
    Value::Object(map)
}

/// Makes a nullable type optional: the API server drops nulls.
fn optional(mut map: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(kinds)) = map.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            map.insert("type".to_owned(), kind);
        }
    }
    let Some(Value::Array(choices)) = map.get("anyOf") else {
        return map;
    };
    let mut others = choices.iter().filter(|choice| choice["type"] != "null");
    if let (Some(Value::Object(only)), None) = (others.next(), others.next()) {
        let mut only = only.clone();
        map.remove("anyOf");
        only.extend(map);
        return optional(only);
    }
    map
}

/// Converts a list of described constants to one enum, and removes keywords that Kubernetes does not know.
fn known(mut map: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(choices)) = map.get("oneOf")
        && choices.iter().all(|choice| choice["const"].is_string())
    {
        let word = |choice: &Value| choice["const"].as_str().unwrap_or_default().to_owned();
        let told = choices.iter().map(|choice| {
            let about = choice["description"].as_str().unwrap_or_default();
            format!("`{}`: {about}", word(choice))
        });
        let about = map
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let about = std::iter::once(about.to_owned())
            .chain(told)
            .collect::<Vec<_>>()
            .join(" ");
        let words: Vec<_> = choices.iter().map(word).collect();
        map.remove("oneOf");
        map.insert("description".to_owned(), json!(about));
        map.insert("enum".to_owned(), json!(words));
        map.insert("type".to_owned(), json!("string"));
    }
    if map.get("format").is_some_and(|format| format == "uint32") {
        map.insert("format".to_owned(), json!("int64"));
        map.insert("maximum".to_owned(), json!(u32::MAX));
    }
    map.remove("$schema");
    map.remove("title");
    // `additionalProperties: false` is not needed: the API server drops undeclared keys.
    if !map
        .get("additionalProperties")
        .is_some_and(Value::is_object)
    {
        map.remove("additionalProperties");
    }
    map
}
