//! The trusted keys of a policy: checks the specification, and says where each key lies.

use super::check::{Checked, unique, within, wrong};
use super::component::ComponentSource;
use crate::reference::dns;
use transom_api::policy::bounds::{FEW, PLACE};
use transom_api::policy::{KeySpec, VerifySpec};

/// Where a key lies; `None` when the specification is not valid.
pub fn source(key: &KeySpec) -> Option<ComponentSource> {
    match (&key.config_map, &key.file) {
        (Some(place), None) => match ComponentSource::config_map(place).ok()? {
            ComponentSource::ConfigMap(parts) if parts.len() == 1 => {
                Some(ComponentSource::ConfigMap(parts))
            }
            _ => None,
        },
        (None, Some(path)) if !path.is_empty() => match ComponentSource::parse(path).ok()? {
            ComponentSource::File(path) => Some(ComponentSource::File(path)),
            _ => None,
        },
        _ => None,
    }
}

/// The field of a key.
pub fn field(index: usize) -> String {
    format!("spec.verify.keys[{index}]")
}

/// Checks what a policy demands.
///
/// # Errors
/// Names the field that is wrong.
pub fn check(spec: &VerifySpec) -> Checked<()> {
    if spec.keys.is_empty() {
        return wrong("spec.verify.keys", "must name at least one key");
    }
    within("spec.verify.keys", spec.keys.len(), FEW)?;
    for (index, key) in spec.keys.iter().enumerate() {
        let field = field(index);
        if !dns::is_label(&key.name) {
            let why = "is not a DNS label: lower-case letters, digits and dashes";
            return wrong(format!("{field}.name"), why);
        }
        let texts = [("configMap", &key.config_map), ("file", &key.file)];
        let mut texts = texts
            .iter()
            .filter_map(|(name, text)| Some((name, text.as_ref()?)));
        let (Some((name, text)), None) = (texts.next(), texts.next()) else {
            return wrong(field, "must have exactly one of `configMap` and `file`");
        };
        if text.chars().count() > PLACE {
            return wrong(format!("{field}.{name}"), "is longer than 1024 characters");
        }
        if source(key).is_none() {
            let why = match *name {
                "configMap" => "is not `NAMESPACE/NAME/KEY`",
                _ => "is not the path of a file",
            };
            return wrong(format!("{field}.{name}"), why);
        }
    }
    let names = spec.keys.iter().map(|key| &key.name);
    unique("spec.verify.keys", names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn checked(keys: &Value) -> Result<(), String> {
        let spec = serde_json::from_value(json!({"keys": keys})).unwrap();
        check(&spec).map_err(|error| error.field)
    }

    #[test]
    fn each_key_has_a_name_and_one_place() {
        let key = |name: &str| json!({"name": name, "file": "release.pub"});
        let many: Value = (0..=FEW).map(|at| key(&format!("k{at}"))).collect();
        let at = |key: Value| json!([key]);
        for (keys, wrong) in [
            (
                json!([key("a"), {"name": "b", "configMap": "transom/trust/b.pub"}]),
                None,
            ),
            (json!([]), Some("spec.verify.keys")),
            (many, Some("spec.verify.keys")),
            (json!([key("a"), key("a")]), Some("spec.verify.keys")),
            (at(key("A")), Some("spec.verify.keys[0].name")),
            (at(json!({"name": "a"})), Some("spec.verify.keys[0]")),
            (
                at(json!({"name": "a", "file": "f", "configMap": "a/b/c"})),
                Some("spec.verify.keys[0]"),
            ),
            (
                at(json!({"name": "a", "file": "oci:r.example/a:v1"})),
                Some("spec.verify.keys[0].file"),
            ),
            (
                at(json!({"name": "a", "file": ""})),
                Some("spec.verify.keys[0].file"),
            ),
            (
                at(json!({"name": "a", "configMap": "a/b"})),
                Some("spec.verify.keys[0].configMap"),
            ),
            (
                at(json!({"name": "a", "configMap": "a/b/c+d/e"})),
                Some("spec.verify.keys[0].configMap"),
            ),
        ] {
            assert_eq!(checked(&keys).err().as_deref(), wrong, "{keys}");
        }
    }
}
