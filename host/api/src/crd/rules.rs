//! Bounds and patterns, and beside them CEL rules, that the types do not express, so that the API server rejects what
//! the agent would reject. Never stricter than `core::policy::check`, which also checks what a schema cannot express.

mod cel;
mod fields;

use crate::policy::bounds::{
    ANNOTATION, API_VERSION, DATA_KEY, FEW, LABEL, MANY, PATTERN, PLACE, TAINT_KEY, TEMPLATE,
};
use crate::policy::rollout::{HISTORY, RollbackSpec};
use crate::policy::{Budgeted, EverySpec, Limited, LimitsSpec, OnFailureSpec};
use crate::status::{MAX_LISTED, MAX_TOP_FAILURES, MAX_WITHHELD};
use cel::RULES;
use fields::*;
use serde_json::{Map, Value, json};

const CONNECTION: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const ROLE: &str = "^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$";
const KIND: &str = "^[A-Z][A-Za-z0-9]*$";
const VERSION: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const DOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// What may be between two `*`: text, a template, or the name of one.
const BETWEEN: &str = r"[^*{}]|\{(primary\.(namespace|name)|[A-Za-z0-9]+|TEMPLATE)\}";
/// A template: alternatives separated by `|`; see `core::pattern::template`.
const TEMPLATE_TEXT: &str = r#" *TERM( *TERM)* *(\| *TERM( *TERM)* *)*"#;
const TERM: &str = r#"("[-.a-z0-9]+"|FIELD|dashed\(FIELD\))"#;
const TERM_FIELD: &str = r#"(primary\.(namespace|name|(labels|annotations)\["[-_./A-Za-z0-9]+"\])|agent\.remoteCluster)"#;
const NAMESPACES: &str = r"^[^*{}]*(\*([^*{}]+(\*[^*{}]*)?)?)?$";
/// The name of a finalizer, with its domain.
const FINALIZER: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$";
const HOST: &str = r"^(\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*|[0-9A-Fa-f:.]+)$";
const KEY: &str = "^[-_.A-Za-z0-9]+$";
/// A key of a ConfigMap: `NAMESPACE/NAME/KEY`.
const KEY_PLACE: &str = "^[-a-z0-9]+/[-.a-z0-9]+/[-_.A-Za-z0-9]+$";
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?$";
const SERVER: &str = r##"^([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?|[Hh][Tt][Tt][Pp][Ss]?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[!$-;=A-\[\]-~]*)?)$"##;

/// The pattern of a template.
fn template() -> String {
    TEMPLATE_TEXT
        .replace("TERM", TERM)
        .replace("FIELD", TERM_FIELD)
}

/// At most two `*`, not next to each other, with text or templates between them.
fn names() -> String {
    let between = BETWEEN.replace("TEMPLATE", &template());
    format!(r"^({between})*(\*(({between})+(\*({between})*)?)?)?$")
}

/// Adds the bounds and rules to the schema of the whole object.
pub(super) fn add(schema: &mut Value) {
    for (place, bound) in bounds() {
        if let (Some(at), Value::Object(bound)) = (find(schema, &place), bound) {
            at.extend(bound);
        }
    }
    for (place, rule, message) in RULES {
        if let Some(at) = find(schema, place) {
            let rules = at
                .entry("x-kubernetes-validations")
                .or_insert_with(|| json!([]));
            if let Value::Array(rules) = rules {
                rules.push(json!({"rule": rule, "message": message}));
            }
        }
    }
}

/// The schema at a place such as `spec.grant.read[].keys`; `{}` leads to the values of a map.
fn find<'a>(schema: &'a mut Value, place: &str) -> Option<&'a mut Map<String, Value>> {
    let mut at = schema;
    for name in place.split('.').filter(|name| !name.is_empty()) {
        let plain = name.trim_end_matches("[]").trim_end_matches("{}");
        at = at.get_mut("properties")?.get_mut(plain)?;
        at = match name.strip_prefix(plain) {
            Some("{}") => at.get_mut("additionalProperties")?,
            Some("[]") => at.get_mut("items")?,
            _ => at,
        };
    }
    at.as_object_mut()
}

/// Lengths, patterns and kinds of lists, by the place of each field.
fn bounds() -> Vec<(String, Value)> {
    let names = names();
    let label = json!({"type": "string", "maxLength": LABEL, "pattern": LABEL_VALUE});
    let places = [
        ("spec.primary", of_primary()),
        ("spec.primary.labels", of_labels(&label)),
        (
            "spec.primary.labels.matchExpressions[]",
            of_expression(&label),
        ),
        ("spec.guests.decide", of_guest()),
        ("spec.guests.trigger", of_guest()),
        ("spec.grant", of_grant(&format!("^{}$", template()))),
        ("spec.grant.read[]", of_read(&names)),
        ("spec.grant.ask[].accessReview", of_review(&names)),
        ("spec.grant.write[]", of_write(&names)),
        ("spec.grant.write[].labels", of_labels(&label)),
        (
            "spec.grant.write[].labels.matchExpressions[]",
            of_expression(&label),
        ),
        ("spec.grant.write[].kubeconfig", of_kubeconfig()),
        ("spec.verify", of_verify()),
        ("spec.verify.keys[]", of_key()),
        ("spec.own", of_own(label)),
        ("spec.limits", of_limits()),
        ("spec.onFailure", of_on_failure()),
        ("spec.budget", of_budget()),
        ("spec.rollout", of_rollout()),
        ("spec", of_replaced()),
    ];
    let of_place = |(place, fields): (&str, Vec<(&str, Value)>)| -> Vec<_> {
        let fields = fields.into_iter();
        fields
            .map(|(field, bound)| (format!("{place}.{field}"), bound))
            .collect()
    };
    let all = places.into_iter().chain(of_status());
    all.flat_map(of_place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_and_rule_matches_a_field() {
        let mut schema = super::super::schema();
        let bounds = bounds().into_iter().map(|(place, _)| place);
        for place in bounds.chain(RULES.map(|(place, ..)| place.to_owned())) {
            assert!(find(&mut schema, &place).is_some(), "{place} not found");
        }
    }
}
