//! Rows of `transom status` for people. Of a Secret that would be written they show names and paths, no values.

use super::{Row, Standing};
use crate::controller::account::Read;
use crate::output::{Screen, columns};
use transom_core::plan::Step;

/// Prints everything about one primary.
pub(super) fn tell(row: &Row, screen: &Screen) {
    let line = |label: &str, text: &str| screen.line(format_args!("  {label:<10} {text}"));
    screen.line(format_args!("{} under {}", row.key.primary, row.key.policy));
    let since = row
        .since()
        .map(|since| format!(" since {since}"))
        .unwrap_or_default();
    line(
        "state",
        &format!("{} {}{since}", row.standing.as_str(), row.reason),
    );
    if let Some(told) = row.reported.as_ref().filter(|_| row.since().is_none()) {
        line(
            "reported",
            &format!(
                "{} {} since {}: {}",
                told.state.as_str(),
                told.reason,
                told.since,
                told.message
            ),
        );
    }
    for (label, text) in [
        ("message", &row.message),
        ("means", &row.meaning),
        ("to do", &row.remedy),
    ] {
        if !text.is_empty() {
            line(label, text);
        }
    }
    let read: Vec<Vec<String>> = row.account.inputs.iter().map(input).collect();
    for (at, text) in columns(&read).iter().enumerate() {
        line(if at == 0 { "inputs" } else { "" }, text);
    }
    let decision = row.account.decision.as_ref();
    line(
        "decision",
        &decision.map_or_else(
            || "none: the reconcile did not get that far".to_owned(),
            ToString::to_string,
        ),
    );
    let nothing = match row.standing {
        Standing::Applied => "nothing to do",
        _ => "nothing, as long as this state lasts",
    };
    let planned: Vec<String> = row.account.steps.iter().map(planned).collect();
    line("plan", planned.first().map_or(nothing, String::as_str));
    planned.iter().skip(1).for_each(|text| line("", text));
}

fn input(read: &Read) -> Vec<String> {
    let state = match (&read.version, read.deleting) {
        (None, _) => "absent".to_owned(),
        (Some(version), true) => format!("being deleted, version {version}"),
        (Some(version), false) => format!("present, version {version}"),
    };
    vec![read.role.clone(), read.object.to_string(), state]
}

fn planned(step: &Step) -> String {
    match step {
        Step::Create { desired } => format!("create {}", desired.reference),
        Step::Update { desired, changed } => {
            format!("update {}: {}", desired.reference, changed.join(", "))
        }
        Step::Patch {
            reference, fields, ..
        } => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(path, value)| format!("{path} = {value}"))
                .collect();
            format!("patch {reference}: {}", fields.join(", "))
        }
        Step::Delete { reference, why, .. } => format!("delete {reference}: {why}"),
    }
}

/// One primary as cells of a table.
pub(super) fn cells(row: &Row) -> Vec<String> {
    let planned: Vec<String> = row.account.steps.iter().map(planned).collect();
    let message = if row.standing == Standing::WouldApply {
        planned.join("; ")
    } else {
        row.message.clone()
    };
    let since = row.since().unwrap_or("-").to_owned();
    let (state, primary) = (
        row.standing.as_str().to_owned(),
        row.key.primary.to_string(),
    );
    vec![
        state,
        row.reason.clone(),
        since,
        primary,
        row.key.policy.to_string(),
        message,
    ]
}
