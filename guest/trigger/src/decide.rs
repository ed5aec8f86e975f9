//! From a HostedCluster to ready or not, from a change of one to run or ignore, as pure functions.
//! Never looks at values of annotations: that one differs is all that crosses.

use crate::reasons;
use crate::settings::Settings;
use serde::Deserialize;
use transom_guest::trigger::{Change, ReadyAnswer, Verdict};
use transom_guest::{Problem, Reason, Subject};

const ANNOTATIONS: &str = "metadata.annotations";
const KUBECONFIG: &str = "status.kubeconfig";
const KUBEADMIN_PASSWORD: &str = "status.kubeadminPassword";
const VERSION_HISTORY: &str = "status.version.history";

/// Paths of which a change is enough to know.
pub(crate) const CHANGES: [&str; 4] = [ANNOTATIONS, KUBECONFIG, KUBEADMIN_PASSWORD, VERSION_HISTORY];

/// Whether the subject may be evaluated.
pub(crate) fn ready(settings: &Settings, subject: &Subject) -> ReadyAnswer {
    if subject.deleting {
        return ReadyAnswer::not_ready(reasons::SUBJECT_DELETING.problem("the hosted cluster is being deleted"));
    }
    match Available::of(subject) {
        Ok(available) => match available.shortfall(settings) {
            None => ReadyAnswer::ready(),
            Some(message) => ReadyAnswer::not_ready(reasons::NOT_AVAILABLE.problem(message)),
        },
        Err(problem) => ReadyAnswer::not_ready(problem),
    }
}

/// Whether a change calls for an evaluation.
pub(crate) fn evaluate(settings: &Settings, change: &Change) -> Verdict {
    let on = &settings.on;
    let mut found: Vec<String> = Vec::new();
    let mut add = |reason: &Reason| found.push(reason.word.to_owned());
    if on.deletion && change.after.deleting && !change.before.deleting {
        add(&reasons::DELETION_STARTED);
    }
    if on.availability {
        match (is_available(settings, &change.before), is_available(settings, &change.after)) {
            (Ok(false), Ok(true)) => add(&reasons::BECAME_AVAILABLE),
            (Ok(true), Ok(false)) => add(&reasons::NO_LONGER_AVAILABLE),
            (Ok(_), Ok(_)) => {}
            // `ready` says what is wrong where a person sees it.
            (Err(problem), _) | (_, Err(problem)) => found.push(problem.reason),
        }
    }
    let watched = [
        (on.annotations, ANNOTATIONS, reasons::ANNOTATIONS_CHANGED),
        (on.kubeconfig, KUBECONFIG, reasons::KUBECONFIG_CHANGED),
        (on.kubeadmin_password, KUBEADMIN_PASSWORD, reasons::KUBEADMIN_PASSWORD_CHANGED),
        (on.version_history, VERSION_HISTORY, reasons::VERSION_HISTORY_CHANGED),
    ];
    for (_, watched, reason) in watched.iter().filter(|(on, ..)| *on) {
        if change.changed.iter().any(|path| is_under(path, watched)) {
            found.push(reason.word.to_owned());
        }
    }
    if found.is_empty() { Verdict::Ignore } else { Verdict::Run(found) }
}

fn is_available(settings: &Settings, subject: &Subject) -> Result<bool, Problem> {
    Ok(Available::of(subject)?.shortfall(settings).is_none())
}

/// Whether `path` is `watched`, or a field, key or element of it.
fn is_under(path: &str, watched: &str) -> bool {
    path.strip_prefix(watched).is_some_and(|rest| matches!(rest.as_bytes().first(), None | Some(b'.' | b'[')))
}

/// The condition Available of a HostedCluster, as far as it is there.
#[derive(Default)]
struct Available(Option<Condition>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostedCluster {
    status: HostedClusterStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostedClusterStatus {
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: Option<String>,
    reason: Option<String>,
}

impl Available {
    fn of(subject: &Subject) -> Result<Self, Problem> {
        let cluster: HostedCluster = subject.read()?;
        Ok(Self(cluster.status.conditions.into_iter().find(|condition| condition.r#type == "Available")))
    }

    /// What is missing to be ready.
    fn shortfall(&self, settings: &Settings) -> Option<String> {
        let Some(condition) = &self.0 else {
            return Some("there is no condition Available".to_owned());
        };
        let status = condition.status.as_deref().unwrap_or_default();
        let reason = condition.reason.as_deref().unwrap_or_default();
        if status != "True" {
            return Some(format!("condition Available is `{status}`, reason `{reason}`"));
        }
        let wanted = settings.available_reason.as_deref().filter(|wanted| *wanted != reason)?;
        Some(format!("condition Available is `True` for reason `{reason}`, not `{wanted}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_under_itself_and_its_fields_only() {
        for path in [KUBECONFIG, "status.kubeconfig.name", "status.kubeconfig[\"name\"]", "status.kubeconfig[0]"] {
            assert!(is_under(path, KUBECONFIG), "{path}");
        }
        for path in ["status.kubeconfigs", "status", "spec.status.kubeconfig", ""] {
            assert!(!is_under(path, KUBECONFIG), "{path}");
        }
    }
}
