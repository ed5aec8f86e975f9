//! The webhook of Open Cluster Management for ManagedClusters, as far as it handles taints, reproduced as measured
//! (`ocm-measured.md`).

use crate::webhook::Say;
use serde_json::{Value, json};

/// The time that it sets.
pub const TAINTED_AT: &str = "2026-11-21T09:00:00Z";

/// Its response to a request: it refuses a time that the client sets and a missing time in an unchanged taint, compares
/// with the first old taint of the same key, sets the other times, and drops empty values.
pub fn set_taint_times(request: &Value) -> Say {
    let list = |object: &str| {
        request[object]["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let (old, mut new) = (list("oldObject"), list("object"));
    let mut refused = Vec::new();
    for taint in &mut new {
        let before = old.iter().find(|old| old["key"] == taint["key"]);
        let text =
            |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let same = before.filter(|old| {
            ["value", "effect"]
                .iter()
                .all(|field| text(old, field) == text(taint, field))
        });
        let set = !taint["timeAdded"].is_null();
        match same {
            Some(old) if old["timeAdded"] != taint["timeAdded"] => refused.push(text(taint, "key")),
            Some(_) => {}
            None if set && request["operation"] == "UPDATE" => refused.push(text(taint, "key")),
            None => taint["timeAdded"] = json!(TAINTED_AT),
        }
        if taint["value"] == "" {
            taint
                .as_object_mut()
                .and_then(|taint| taint.remove("value"));
        }
    }
    match refused.is_empty() {
        false => Say::Deny(
            400,
            format!(
                "It is not allowed to set TimeAdded of Taint {}.",
                refused.join(", ")
            ),
        ),
        true if new.is_empty() => Say::Patch(Vec::new()),
        true => Say::Patch(vec![
            json!({"op": "replace", "path": "/spec/taints", "value": new}),
        ]),
    }
}
