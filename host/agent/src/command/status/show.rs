//! Prints rows of `transom status`, for people or as data. Objects that would be created or updated are redacted as
//! data, and only named for people.

use super::{PrimaryState, Row};
use crate::args::OutputFormat;
use crate::command::render::marks;
use crate::controller::account::ReadObject;
use crate::output::{Screen, columns};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_api::status::UsageStatus;
use transom_core::document::emit::to_yaml_in_order;
use transom_core::plan::Step;
use transom_core::redact::{Marks, redact};

/// Prints all rows; `one`: those of one primary, with everything about it.
pub(super) fn print(rows: &[Row], one: bool, form: OutputFormat, screen: &Screen) {
    let marks = marks();
    let data = rows.iter().map(|row| data(row, &marks));
    match form {
        OutputFormat::Table if one => rows.iter().for_each(|row| details(row, screen)),
        OutputFormat::Table => {
            let heading = ["STATE", "REASON", "SINCE", "PRIMARY", "POLICY", "MESSAGE"];
            screen.table(heading, rows.iter().map(cells));
            let signed = |row: &Row| Some((Arc::clone(&row.key.policy), row.verified.clone()?));
            let signed: BTreeMap<_, _> = rows.iter().filter_map(signed).collect();
            for (policy, verified) in signed {
                screen.line(format_args!("verified {policy}: {verified}"));
            }
            let each = |row: &Row| Some((Arc::clone(&row.key.policy), used(row)?));
            let each: BTreeMap<_, _> = rows.iter().filter_map(each).collect();
            for (policy, used) in each {
                screen.line(format_args!("used of the budget {policy}: {used}"));
            }
        }
        OutputFormat::Json => screen.json(&data.collect::<Value>()),
        OutputFormat::Yaml => {
            let order = ["policy", "primary", "state", "reason", "message"];
            let documents: Vec<_> = data.map(|row| to_yaml_in_order(&row, &order)).collect();
            screen.text(&documents.join("---\n"));
        }
    }
}

/// Prints everything about one primary.
fn details(row: &Row, screen: &Screen) {
    let line = |label: &str, text: &str| screen.line(format_args!("  {label:<10} {text}"));
    let (state, reason) = (row.standing.as_str(), &row.reason);
    screen.line(format_args!("{} under {}", row.key.primary, row.key.policy));
    match (row.since(), &row.reported) {
        (Some(since), _) => line("state", &format!("{state} {reason} since {since}")),
        (None, None) => line("state", &format!("{state} {reason}")),
        (None, Some(last)) => {
            line("state", &format!("{state} {reason}"));
            let (state, since) = (last.state.as_str(), &last.since);
            let text = format!("{state} {} since {since}: {}", last.reason, last.message);
            line("reported", &text);
        }
    }
    for (label, text) in [
        ("message", &row.message),
        ("means", &row.meaning),
        ("to do", &row.remedy),
        ("verified", row.verified.as_ref().unwrap_or(&String::new())),
        ("budget", &used(row).unwrap_or_default()),
    ] {
        if !text.is_empty() {
            line(label, text);
        }
    }
    let lines = |label, texts: Vec<String>| {
        let labels = [label].into_iter().chain(std::iter::repeat(""));
        labels
            .zip(texts)
            .for_each(|(label, text)| line(label, &text));
    };
    let inputs: Vec<_> = row.account.inputs.iter().map(input).collect();
    lines("inputs", columns(&inputs));
    let decision = row.account.decision.as_ref().map(Value::to_string);
    let none = "none: the reconcile did not get that far";
    line("decision", decision.as_deref().unwrap_or(none));
    match (planned(row), row.standing) {
        (steps, _) if !steps.is_empty() => lines("plan", steps),
        (_, PrimaryState::Applied) => line("plan", "nothing to do"),
        _ => line("plan", "nothing, as long as this state lasts"),
    }
}

/// `timeMilliseconds 1/2/5 %, memoryBytes 10/10/10 %`: what half of the calls, 99 of 100, and all used at most.
fn used(row: &Row) -> Option<String> {
    let one = |one: &UsageStatus| {
        let UsageStatus {
            budget,
            p50,
            p99,
            max,
        } = one;
        format!("{} {p50}/{p99}/{max} %", budget.as_str())
    };
    let each: Vec<_> = row.used.iter().map(one).collect();
    (!each.is_empty()).then(|| each.join(", "))
}

fn input(read: &ReadObject) -> [String; 3] {
    let state = match (&read.version, read.deleting) {
        (None, _) => "absent".to_owned(),
        (Some(version), true) => format!("being deleted, version {version}"),
        (Some(version), false) => format!("present, version {version}"),
    };
    [read.role.clone(), read.object.to_string(), state]
}

/// The steps of the plan for people: names and paths, and values only of patches.
fn planned(row: &Row) -> Vec<String> {
    let step = |step: &Step| match step {
        Step::Create { desired } => format!("create {}", desired.reference),
        Step::Update { desired, changed } => {
            format!("update {}: {}", desired.reference, changed.join(", "))
        }
        Step::Patch {
            reference, fields, ..
        } => {
            let fields = fields.iter();
            let fields: Vec<_> = fields
                .map(|(path, value)| format!("{path} = {value}"))
                .collect();
            format!("patch {reference}: {}", fields.join(", "))
        }
        Step::Delete { reference, why, .. } => format!("delete {reference}: {why}"),
    };
    row.account.steps.iter().map(step).collect()
}

/// One primary as cells of a table.
fn cells(row: &Row) -> [String; 6] {
    [
        row.standing.as_str().to_owned(),
        row.reason.clone(),
        row.since().unwrap_or("-").to_owned(),
        row.key.primary.to_string(),
        row.key.policy.to_string(),
        match row.standing {
            PrimaryState::WouldApply => {
                let then = (!row.message.is_empty()).then(|| row.message.clone());
                let all: Vec<_> = planned(row).into_iter().chain(then).collect();
                all.join("; ")
            }
            _ => row.message.clone(),
        },
    ]
}

/// One primary as data.
fn data(row: &Row, marks: &Marks) -> Value {
    let inputs = row.account.inputs.iter().map(|read| {
        json!({"role": read.role, "object": read.object, "present": read.version.is_some(), "version": read.version, "deleting": read.deleting})
    });
    let steps = row.account.steps.iter().map(|step| step_data(step, marks));
    let mut value = json!({
        "policy": *row.key.policy,
        "primary": *row.key.primary,
        "state": row.standing.as_str(),
        "reason": row.reason,
        "message": row.message,
        "meaning": row.meaning,
        "remedy": row.remedy,
        "inputs": inputs.collect::<Vec<_>>(),
        "plan": steps.collect::<Vec<_>>(),
    });
    if let Some(since) = row.since() {
        value["since"] = since.into();
    }
    if let Some(verified) = &row.verified {
        value["verified"] = verified.as_str().into();
    }
    if !row.used.is_empty() {
        value["usage"] = json!(row.used);
    }
    if let Some(decision) = &row.account.decision {
        value["decision"] = decision.clone();
    }
    if let Some(last) = &row.reported {
        value["reported"] = json!({"state": last.state, "reason": last.reason, "message": last.message, "since": last.since});
    }
    value
}

fn step_data(step: &Step, marks: &Marks) -> Value {
    match step {
        Step::Create { desired } => {
            json!({"action": "create", "object": desired.reference, "manifest": redact(desired.body.clone(), marks)})
        }
        Step::Update { desired, changed } => {
            json!({"action": "update", "object": desired.reference, "changed": changed, "manifest": redact(desired.body.clone(), marks)})
        }
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
