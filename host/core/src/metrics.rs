//! The one list of what the agent measures, and what counts as an attempt to copy a kubeconfig.
//! Never counts anything itself; no label ever holds the name of an object.

mod list;

pub use list::*;

use crate::outcome::WriteKind;
use crate::policy::Writes;
use crate::report::Report;
use transom_api::{State, Word};

/// One metric as it is exposed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Its name, exactly.
    pub name: &'static str,
    /// How its values behave.
    pub kind: Kind,
    /// What its values are: `seconds`, `bytes`, or what is counted.
    pub unit: &'static str,
    /// Its labels, in order; each has few values.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

/// How the values of a metric behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows while the process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values up to these bounds.
    Histogram(&'static [f64]),
}

impl Kind {
    /// As Prometheus calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Metric {
    /// Whether it is exposed only where names of the hypershift-addon agent are asked for.
    pub fn is_compatibility(&self) -> bool {
        [COMPATIBILITY_COPY_TOTAL.name, COMPATIBILITY_COPY_FAILURES.name].contains(&self.name)
    }
}

/// One try to bring a kubeconfig to where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It was written.
    Succeeded,
    /// It was not.
    Failed,
}

/// What an evaluation counts as. Waiting, holding and finding everything right is no attempt; nor is a conflict that is
/// tried again at once, nor what became of a subject that is gone or could not be read (`subject_read` is false).
pub fn attempt(writes: &Writes, subject_read: bool, report: &Report) -> Option<Attempt> {
    if !matches!(writes, Writes::Kubeconfig(_)) || !subject_read {
        return None;
    }
    let first_conflict = report.reason == Word::WriteConflict.into() && report.failures <= 1;
    match report.state {
        State::Failed if first_conflict => None,
        State::Failed => Some(Attempt::Failed),
        State::Applied | State::Held | State::Waiting => {
            let copied = |(kind, _): &(WriteKind, _)| matches!(kind, WriteKind::Create | WriteKind::Update);
            report.writes.iter().any(copied).then_some(Attempt::Succeeded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::TaintsRule;
    use crate::sample::{hosted, kubeconfig_manifest, policy, target};
    use std::collections::BTreeSet;

    fn report(state: State, word: Word, writes: &[WriteKind], failures: u32) -> Report {
        Report {
            policy: "external".to_owned(),
            subject: hosted("demo"),
            state,
            reason: word.into(),
            message: String::new(),
            target: None,
            writes: writes.iter().map(|kind| (*kind, target("demo"))).collect(),
            inputs: None,
            observed_generation: None,
            at_seconds: 0,
            again_after_ms: None,
            failures,
        }
    }

    #[test]
    fn an_attempt_wrote_or_failed() {
        let writes = policy(&kubeconfig_manifest()).writes;
        use Attempt::{Failed, Succeeded};
        for (state, word, kinds, failures, expected) in [
            (State::Applied, Word::AsDesired, &[][..], 0, None),
            (State::Applied, Word::AsDesired, &[WriteKind::Create][..], 0, Some(Succeeded)),
            (State::Applied, Word::AsDesired, &[WriteKind::Update][..], 0, Some(Succeeded)),
            (State::Waiting, Word::TargetClaimed, &[][..], 0, None),
            (State::Waiting, Word::StillNeeded, &[WriteKind::Create, WriteKind::Delete][..], 0, Some(Succeeded)),
            (State::Waiting, Word::StillNeeded, &[WriteKind::Delete][..], 0, None),
            (State::Held, Word::Suspended, &[][..], 0, None),
            (State::Failed, Word::KubeconfigEmpty, &[][..], 0, Some(Failed)),
            (State::Failed, Word::WriteFailed, &[][..], 1, Some(Failed)),
            (State::Failed, Word::WriteConflict, &[][..], 1, None),
            (State::Failed, Word::WriteConflict, &[][..], 2, Some(Failed)),
        ] {
            let report = report(state, word, kinds, failures);
            assert_eq!(attempt(&writes, true, &report), expected, "{word:?} {kinds:?} {failures}");
            assert_eq!(attempt(&writes, false, &report), None, "nothing was read: {word:?}");
            let taints = Writes::Taints(TaintsRule { keys: BTreeSet::new() });
            assert_eq!(attempt(&taints, true, &report), None, "no kubeconfig: {word:?}");
        }
    }

    #[test]
    fn names_and_labels_are_those_of_prometheus() {
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let mut names: Vec<_> = ALL.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(plain(metric.name) && metric.labels.iter().all(|label| plain(label)), "{}", metric.name);
            assert!(metric.help.ends_with('.') && !metric.unit.is_empty(), "{}", metric.name);
            if let Kind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted() && bounds.len() <= 16, "{}", metric.name);
            }
        }
    }

    #[test]
    fn the_two_names_of_the_existing_agent_are_exact() {
        assert_eq!(COPY_TOTAL.name, "hypershift_addon_agent_kubeconfig_secret_copy_total");
        assert_eq!(COPY_FAILURES.name, "hypershift_addon_agent_kubeconfig_secret_copy_failures");
        assert_eq!(ALL.iter().filter(|metric| metric.is_compatibility()).count(), 2);
    }
}
