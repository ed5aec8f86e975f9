//! The subset of JSON Schema (2020-12) in which guests describe their settings. A schema that uses more is refused,
//! so that no keyword goes unchecked. Errors show no value of the settings.

use regex_lite::{Regex, RegexBuilder};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Display;

/// The most bytes of a compiled pattern.
const MAX_PATTERN: usize = 64 * 1024;
/// The most schemas in one chain of `$ref`s, the first one included.
const MAX_REFS: usize = 8;
/// How a `$ref` starts.
const DEFS: &str = "#/$defs/";

/// A schema of settings.
#[derive(Debug)]
pub struct Schema {
    root: Node,
}

/// One schema; keywords that only describe are ignored.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Node {
    #[serde(rename = "$schema")]
    _schema: IgnoredAny,
    #[serde(rename = "$comment")]
    _comment: IgnoredAny,
    #[serde(rename = "title")]
    _title: IgnoredAny,
    #[serde(rename = "description")]
    _description: IgnoredAny,
    #[serde(rename = "default")]
    _default: IgnoredAny,
    #[serde(rename = "examples")]
    _examples: IgnoredAny,
    #[serde(rename = "$defs")]
    defs: BTreeMap<String, Node>,
    #[serde(rename = "$ref")]
    reference: Option<String>,
    #[serde(rename = "type")]
    kinds: Kinds,
    #[serde(rename = "enum")]
    words: Option<Vec<Value>>,
    properties: BTreeMap<String, Node>,
    required: Vec<String>,
    additional_properties: Others,
    items: Option<Box<Node>>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    #[serde(deserialize_with = "pattern")]
    pattern: Option<Regex>,
    minimum: Option<f64>,
    maximum: Option<f64>,
}

/// The types that a value may have; any when none is named.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(untagged)]
enum Kinds {
    #[default]
    Any,
    One(Kind),
    Some(Vec<Kind>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

/// Which fields are allowed beside the named ones.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum Others {
    Whether(bool),
    Like(Box<Node>),
}

impl Default for Others {
    fn default() -> Self {
        Self::Whether(true)
    }
}

/// What is wrong with settings, and at which path from their top.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("settings{path}: {why}")]
pub struct SchemaFault {
    /// Path of the field, such as `.port.name`; empty for the settings as a whole.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// When it is no schema, uses more than the supported subset, or has a `$ref` that leads nowhere.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text)
            .map_err(|_| "settings-schema is not exactly one JSON value".to_owned())?;
        if !mappings(&value) {
            return Err("settings-schema: a schema must be a mapping".to_owned());
        }
        let root: Node = serde_path_to_error::deserialize(value).map_err(|error| {
            format!("settings-schema: at `{}`: {}", error.path(), error.inner())
        })?;
        let schema = Self { root };
        schema.sound(&schema.root)?;
        Ok(schema)
    }

    /// Checks settings.
    ///
    /// # Errors
    /// At the first field that breaks the schema.
    pub fn check(&self, settings: &Value) -> Result<(), SchemaFault> {
        self.judge("", &self.root, settings)
    }

    /// Checks that every `$ref` leads to a definition at the top, and that definitions stand nowhere else.
    fn sound(&self, node: &Node) -> Result<(), String> {
        if !std::ptr::eq(node, &self.root) && !node.defs.is_empty() {
            return Err("settings-schema: $defs is allowed at the top level only".to_owned());
        }
        if self.resolved(node).is_none() {
            return Err(
                "settings-schema: a $ref does not lead to a definition, or is circular".to_owned(),
            );
        }
        let others = match &node.additional_properties {
            Others::Like(like) => Some(&**like),
            Others::Whether(_) => None,
        };
        let mut inner = node
            .defs
            .values()
            .chain(node.properties.values())
            .chain(node.items.as_deref())
            .chain(others);
        inner.try_for_each(|node| self.sound(node))
    }

    /// A node and the chain of nodes that it refers to; `None` when a `$ref` is broken or the chain too long.
    fn resolved<'a>(&'a self, node: &'a Node) -> Option<Vec<&'a Node>> {
        let mut chain = vec![node];
        while let Some(reference) = chain.last().and_then(|node| node.reference.as_ref()) {
            let name = reference.strip_prefix(DEFS)?;
            chain.push(self.root.defs.get(name)?);
            if chain.len() > MAX_REFS {
                return None;
            }
        }
        Some(chain)
    }

    fn judge(&self, path: &str, node: &Node, value: &Value) -> Result<(), SchemaFault> {
        let fault = |why: String| {
            Err(SchemaFault {
                path: path.to_owned(),
                why,
            })
        };
        for node in self.resolved(node).unwrap_or_default() {
            if let Some(why) = node.wrong(value) {
                return fault(why);
            }
            match value {
                Value::Object(map) => {
                    if let Some(missing) =
                        node.required.iter().find(|name| !map.contains_key(*name))
                    {
                        return fault(format!("`{missing}` is missing"));
                    }
                    for (name, field) in map {
                        let path = format!("{path}.{name}");
                        match (node.properties.get(name), &node.additional_properties) {
                            (Some(known), _) => self.judge(&path, known, field)?,
                            (None, Others::Like(like)) => self.judge(&path, like, field)?,
                            (None, Others::Whether(true)) => {}
                            (None, Others::Whether(false)) => {
                                return Err(SchemaFault {
                                    path,
                                    why: "unknown field".to_owned(),
                                });
                            }
                        }
                    }
                }
                Value::Array(items) => {
                    for (at, item) in items.iter().enumerate() {
                        node.items.as_ref().map_or(Ok(()), |node| {
                            self.judge(&format!("{path}[{at}]"), node, item)
                        })?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Node {
    /// What is wrong with the value itself; the caller checks its fields and items.
    fn wrong(&self, value: &Value) -> Option<String> {
        let kinds: &[Kind] = match &self.kinds {
            Kinds::Any => &[],
            Kinds::One(kind) => std::slice::from_ref(kind),
            Kinds::Some(kinds) => kinds,
        };
        if !kinds.is_empty() && !kinds.iter().any(|kind| kind.admits(value)) {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            return Some(format!("is not {}", names.join(" or ")));
        }
        if let Some(words) = self.words.as_ref().filter(|words| !words.contains(value)) {
            let names: Vec<_> = words.iter().map(ToString::to_string).collect();
            return Some(format!("is not one of {}", names.join(", ")));
        }
        let outside = |count: usize, least: Option<usize>, most: Option<usize>| {
            least.is_some_and(|least| count < least) || most.is_some_and(|most| count > most)
        };
        match value {
            Value::String(text)
                if outside(text.chars().count(), self.min_length, self.max_length) =>
            {
                Some(format!(
                    "is too short or too long: expected {} characters",
                    range(self.min_length, self.max_length)
                ))
            }
            Value::String(text)
                if self
                    .pattern
                    .as_ref()
                    .is_some_and(|pattern| !pattern.is_match(text)) =>
            {
                Some(format!(
                    "does not match {}",
                    self.pattern.as_ref().map_or("", Regex::as_str)
                ))
            }
            Value::Array(items) if outside(items.len(), self.min_items, self.max_items) => {
                Some(format!(
                    "has too few or too many entries: expected {}",
                    range(self.min_items, self.max_items)
                ))
            }
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                let low = self.minimum.is_some_and(|least| number < least);
                let high = self.maximum.is_some_and(|most| number > most);
                (low || high).then(|| {
                    format!(
                        "is too small or too large: expected {}",
                        range(self.minimum, self.maximum)
                    )
                })
            }
            _ => None,
        }
    }
}

/// Shows bounds in an error.
fn range<T: Display>(least: Option<T>, most: Option<T>) -> String {
    match (least, most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("{least} or more"),
        (None, Some(most)) => format!("{most} or less"),
        (None, None) => "any".to_owned(),
    }
}

impl Kind {
    fn admits(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "true or false",
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "a list",
            Self::Object => "a mapping",
        }
    }
}

/// Whether every nested schema is a mapping: serde would read a list as one, field by field.
fn mappings(node: &Value) -> bool {
    let named = ["properties", "$defs"]
        .into_iter()
        .filter_map(|name| node.get(name));
    let others = node
        .get("additionalProperties")
        .filter(|others| !others.is_boolean());
    node.is_object()
        && named
            .flat_map(|nodes| nodes.as_object().into_iter().flat_map(Map::values))
            .all(mappings)
        && node.get("items").into_iter().chain(others).all(mappings)
}

fn pattern<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Regex>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let compiled = RegexBuilder::new(&text).size_limit(MAX_PATTERN).build();
    compiled
        .map(Some)
        .map_err(|_| D::Error::custom("not a supported pattern"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(schema: Value, settings: Value) -> Option<String> {
        Schema::parse(&schema.to_string())
            .unwrap()
            .check(&settings)
            .err()
            .map(|fault| fault.to_string())
    }

    #[test]
    fn reads_the_schemas_of_our_guests() {
        for text in [
            include_str!("../../../../guest/kubeconfig/settings.schema.json"),
            include_str!("../../../../guest/taints/settings.schema.json"),
            include_str!("../../../../guest/trigger/settings.schema.json"),
        ] {
            assert_eq!(Schema::parse(text).unwrap().check(&json!({})), Ok(()));
        }
    }

    #[test]
    fn names_the_fields_that_break_a_schema() {
        let schema = Schema::parse(include_str!(
            "../../../../guest/kubeconfig/settings.schema.json"
        ))
        .unwrap();
        for (settings, expected) in [
            (
                json!({"clusterDomain": null, "port": {"name": "https"}, "entry": "Cluster"}),
                "",
            ),
            (json!([]), "settings: is not a mapping"),
            (
                json!({"port": ["https"]}),
                "settings.port: is not a mapping",
            ),
            (
                json!({"port": {"name": ""}}),
                "settings.port.name: is too short or too long: expected 1 or more characters",
            ),
            (
                json!({"port": {"nmae": "x"}}),
                "settings.port.nmae: unknown field",
            ),
            (
                json!({"entry": "Other"}),
                "settings.entry: is not one of \"CurrentContext\", \"Cluster\"",
            ),
            (
                json!({"naming": {"prefix": "a b"}}),
                "settings.naming.prefix: does not match ^[a-z0-9-]*$",
            ),
            (
                json!({"naming": {"discovery": "yes"}}),
                "settings.naming.discovery: is not true or false",
            ),
            (
                json!({"clusterDomain": 7}),
                "settings.clusterDomain: is not a string or null",
            ),
        ] {
            let found = schema
                .check(&settings)
                .err()
                .map(|fault| fault.to_string())
                .unwrap_or_default();
            assert_eq!(found, expected, "{settings}");
        }
        let taints = Schema::parse(include_str!(
            "../../../../guest/taints/settings.schema.json"
        ))
        .unwrap();
        let grace = |seconds: Value| {
            taints
                .check(&json!({"unreachable": {"gracePeriodSeconds": seconds}}))
                .is_ok()
        };
        assert_eq!(
            [json!(5), json!(5.0), json!(5.5), json!(-1), json!("5")].map(grace),
            [true, true, false, false, false]
        );
    }

    #[test]
    fn checks_lists_numbers_and_additional_fields() {
        let list = json!({"type": "object", "required": ["a"], "properties": {"a": {"items": {"type": "number", "maximum": 3}, "maxItems": 2}}, "additionalProperties": {"type": "array"}});
        for (settings, expected) in [
            (json!({"a": [1, 2.5], "b": []}), None),
            (json!({}), Some("settings: `a` is missing")),
            (
                json!({"a": [1, 4]}),
                Some("settings.a[1]: is too small or too large: expected 3 or less"),
            ),
            (
                json!({"a": [1, 2, 3]}),
                Some("settings.a: has too few or too many entries: expected 2 or less"),
            ),
            (json!({"a": [], "b": {}}), Some("settings.b: is not a list")),
        ] {
            assert_eq!(
                judged(list.clone(), settings.clone()).as_deref(),
                expected,
                "{settings}"
            );
        }
    }

    #[test]
    fn refuses_a_schema_with_unsupported_keywords() {
        for schema in [
            json!([]),
            json!({"oneOf": []}),
            json!({"properties": {"a": {"if": {}}}}),
            json!({"properties": {"a": []}}),
            json!({"items": [], "additionalProperties": []}),
            json!({"type": "text"}),
            json!({"pattern": "("}),
            json!({"pattern": "(a{1000}){1000}"}),
            json!({"$ref": "#/$defs/none"}),
            json!({"$ref": "https://example.com"}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            json!({"properties": {"a": {"$defs": {"b": {}}}}}),
        ] {
            assert!(Schema::parse(&schema.to_string()).is_err(), "{schema}");
        }
        assert!(Schema::parse("{} {}").is_err());
    }
}
