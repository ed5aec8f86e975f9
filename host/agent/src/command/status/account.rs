//! Rows of `transom status` as data. Objects that would be created or updated are redacted.

use super::Row;
use crate::command::render::marks;
use crate::controller::account::Read;
use serde_json::{Map, Value, json};
use transom_core::plan::Step;
use transom_core::redact::{Marks, redact};

/// All rows.
pub(super) fn list(rows: &[Row]) -> Value {
    let marks = marks();
    rows.iter().map(|row| one(row, &marks)).collect()
}

fn one(row: &Row, marks: &Marks) -> Value {
    let mut value = json!({
        "policy": *row.key.policy,
        "primary": *row.key.primary,
        "state": row.standing.as_str(),
        "reason": row.reason,
        "message": row.message,
        "meaning": row.meaning,
        "remedy": row.remedy,
        "inputs": row.account.inputs.iter().map(input).collect::<Vec<_>>(),
        "plan": row.account.steps.iter().map(|step| planned(step, marks)).collect::<Vec<_>>(),
    });
    if let Some(map) = value.as_object_mut() {
        insert(map, "since", row.since().map(Value::from));
        insert(map, "decision", row.account.decision.clone());
        insert(
            map,
            "reported",
            row.reported.as_ref().map(|told| {
                json!({
                    "state": told.state, "reason": told.reason, "message": told.message, "since": told.since,
                })
            }),
        );
    }
    value
}

fn insert(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value);
    }
}

fn input(read: &Read) -> Value {
    json!({"role": read.role, "object": read.object, "present": read.version.is_some(), "version": read.version, "deleting": read.deleting})
}

fn planned(step: &Step, marks: &Marks) -> Value {
    match step {
        Step::Create { desired } => {
            json!({"action": "create", "object": desired.reference, "manifest": redact(&desired.body, marks)})
        }
        Step::Update { desired, changed } => json!({
            "action": "update", "object": desired.reference, "changed": changed, "manifest": redact(&desired.body, marks),
        }),
        Step::Patch {
            reference, fields, ..
        } => {
            let fields: Map<String, Value> = fields.iter().cloned().collect();
            json!({"action": "patch", "object": reference, "fields": fields})
        }
        Step::Delete { reference, why, .. } => {
            json!({"action": "delete", "object": reference, "why": why})
        }
    }
}
