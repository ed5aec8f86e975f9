//! The list of everything that the agent measures, and the rule for what counts as an attempt to copy a kubeconfig.
//! No label holds the name of an object.

mod list;

pub use list::*;

use crate::outcome::WriteKind;
use crate::policy::Policy;
use crate::report::Report;
use transom_api::State;

/// One metric as it is exposed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Its name, exactly.
    pub name: &'static str,
    /// How its values change.
    pub kind: Kind,
    /// The unit of its values: `seconds`, `bytes`, or what is counted.
    pub unit: &'static str,
    /// Its labels, in order; each has only a few values.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

/// How the values of a metric change.
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
    /// The name of the type in Prometheus.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Metric {
    /// Whether it is exposed only when the hypershift-addon agent's names are requested.
    pub fn is_compatibility(&self) -> bool {
        [
            COMPATIBILITY_COPY_TOTAL.name,
            COMPATIBILITY_COPY_FAILURES.name,
        ]
        .contains(&self.name)
    }

    /// Whether it has no value while nothing goes wrong, no guest logs, or no API server is connected.
    pub fn is_rare(&self) -> bool {
        let rare = [
            OVERDUE,
            REPAIRED,
            CALL_FAILURES,
            CALL_LOG_LINES,
            REQUESTS,
            WATCH_RESTARTS,
            WATCH_OBJECTS,
        ];
        rare.iter().any(|rare| rare.name == self.name)
    }
}

/// One attempt to copy a kubeconfig to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The target is as it should be, written now or right already.
    Succeeded,
    /// The target is not as it should be.
    Failed,
}

/// The last counted attempt of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How it ended.
    pub attempt: Attempt,
    /// When, in seconds since 1970.
    pub at_seconds: i64,
}

/// The same result for the same primary counts once in this many seconds, so that an object which changes every
/// second does not outweigh the fleet.
const SAME_SECONDS: i64 = 60;

/// The attempt that a reconcile counts as: one that decided a kubeconfig, whether it had to write or not. These are
/// no attempts: waiting, holding, a first conflict (it is retried at once), and reconciles of a primary that is gone
/// or could not be read (`primary_read` is false). A reconcile that time alone started (`timed`: a retry, or a time
/// that a guest asked for) does not count again with the result of `before`.
pub fn attempt(
    policy: &Policy,
    primary_read: bool,
    timed: bool,
    before: Option<Counted>,
    report: &Report,
) -> Option<Counted> {
    if !copies(policy) || !primary_read {
        return None;
    }
    let wrote = report
        .writes
        .iter()
        .any(|(kind, _)| matches!(kind, WriteKind::Create | WriteKind::Update));
    let first_conflict = report.is_first_conflict();
    let attempt = match report.state {
        State::Failed => (!first_conflict).then_some(Attempt::Failed),
        State::Applied => Some(Attempt::Succeeded),
        State::Held | State::Waiting => wrote.then_some(Attempt::Succeeded),
    }?;
    let now = Counted {
        attempt,
        at_seconds: report.at_seconds,
    };
    (wrote || is_news(before, now, timed)).then_some(now)
}

/// Whether a policy copies kubeconfigs.
pub fn copies(policy: &Policy) -> bool {
    policy.writes.iter().any(|rule| rule.kubeconfig.is_some())
}

/// Whether a result counts in addition to the one that counted before.
pub fn is_news(before: Option<Counted>, now: Counted, timed: bool) -> bool {
    let same = before.filter(|before| before.attempt == now.attempt);
    // After a clock was set back, counting starts anew.
    let just_counted = |before: Counted| {
        (0..SAME_SECONDS).contains(&now.at_seconds.saturating_sub(before.at_seconds))
    };
    same.is_none_or(|before| !timed && !just_counted(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::outcome::Outcome;
    use crate::report::Success;
    use crate::sample::{self, kubeconfig_manifest, policy, taints_manifest, target};
    use transom_api::KnownReason;

    fn report(state: State, word: KnownReason, writes: &[WriteKind], failures: u32) -> Report {
        let result = match state {
            State::Applied => Ok(Success {
                gone: false,
                outcome: Outcome::default(),
                kept: None,
                ask_again_at: None,
            }),
            _ => Err(Failure::known(word, "")),
        };
        let report = sample::report(result);
        assert_eq!(
            (report.state, report.reason.as_str()),
            (state, word.as_str())
        );
        Report {
            writes: writes.iter().map(|kind| (*kind, target("demo"))).collect(),
            failures,
            ..report
        }
    }

    #[test]
    fn counts_an_attempt_that_decided_a_kubeconfig() {
        let copies = policy(&kubeconfig_manifest());
        use Attempt::{Failed, Succeeded};
        for (state, word, kinds, failures, expected) in [
            (
                State::Applied,
                KnownReason::InSync,
                &[][..],
                0,
                Some(Succeeded),
            ),
            (
                State::Applied,
                KnownReason::InSync,
                &[WriteKind::Create][..],
                0,
                Some(Succeeded),
            ),
            (
                State::Applied,
                KnownReason::InSync,
                &[WriteKind::Update][..],
                0,
                Some(Succeeded),
            ),
            (
                State::Waiting,
                KnownReason::OwnedByAnother,
                &[][..],
                0,
                None,
            ),
            (
                State::Waiting,
                KnownReason::StillNeeded,
                &[WriteKind::Create, WriteKind::Delete][..],
                0,
                Some(Succeeded),
            ),
            (
                State::Waiting,
                KnownReason::StillNeeded,
                &[WriteKind::Delete][..],
                0,
                None,
            ),
            (State::Held, KnownReason::Suspended, &[][..], 0, None),
            (
                State::Failed,
                KnownReason::KubeconfigEmpty,
                &[][..],
                0,
                Some(Failed),
            ),
            (
                State::Failed,
                KnownReason::WriteFailed,
                &[][..],
                1,
                Some(Failed),
            ),
            (State::Failed, KnownReason::WriteConflict, &[][..], 1, None),
            (
                State::Failed,
                KnownReason::WriteConflict,
                &[][..],
                2,
                Some(Failed),
            ),
        ] {
            let report = report(state, word, kinds, failures);
            let counted = |policy, read| {
                attempt(policy, read, false, None, &report).map(|counted| counted.attempt)
            };
            assert_eq!(
                counted(&copies, true),
                expected,
                "{word:?} {kinds:?} {failures}"
            );
            assert_eq!(counted(&copies, false), None, "nothing was read: {word:?}");
            let taints = policy(&taints_manifest());
            assert_eq!(counted(&taints, true), None, "no kubeconfig: {word:?}");
        }
    }

    /// How many attempts, and how many failures, a primary counts for. Each row is the time, whether time alone
    /// started the reconcile, and its result.
    fn counts(rows: &[(i64, bool, Report)]) -> (usize, usize) {
        let copies = policy(&kubeconfig_manifest());
        let mut before = None;
        let counted: Vec<_> = rows
            .iter()
            .filter_map(|(at_seconds, timed, report)| {
                let report = Report {
                    at_seconds: *at_seconds,
                    ..report.clone()
                };
                let counted = attempt(&copies, true, *timed, before, &report)?;
                before = Some(counted);
                Some(counted.attempt)
            })
            .collect();
        (
            counted.len(),
            counted
                .iter()
                .filter(|attempt| **attempt == Attempt::Failed)
                .count(),
        )
    }

    #[test]
    fn counts_a_trigger_once_despite_retries() {
        let (right, wrote) = (
            report(State::Applied, KnownReason::InSync, &[], 0),
            report(State::Applied, KnownReason::InSync, &[WriteKind::Update], 0),
        );
        let missing = |failures| report(State::Failed, KnownReason::ReadFailed, &[], failures);
        let away = |failures| report(State::Failed, KnownReason::ServerUnavailable, &[], failures);
        let conflict = |failures| report(State::Failed, KnownReason::WriteConflict, &[], failures);
        // Right at the start and at two resyncs: three successful attempts.
        assert_eq!(
            counts(&[
                (0, false, right.clone()),
                (1_800, false, right.clone()),
                (3_600, false, right.clone())
            ]),
            (3, 0)
        );
        // A failure is retried a thousand times, also with another reason: one attempt.
        let mut tries: Vec<_> = (0..1_000)
            .map(|n| (n * 300, n > 0, missing(u32::try_from(n).unwrap() + 1)))
            .collect();
        tries.push((400_000, true, away(1_001)));
        assert_eq!(counts(&tries), (1, 1));
        // The retry that succeeds counts, written or not; a resync of a failure is an attempt of its own.
        tries.push((400_300, true, right.clone()));
        assert_eq!(counts(&tries), (2, 1));
        assert_eq!(
            counts(&[
                (0, false, missing(1)),
                (1_800, false, missing(9)),
                (2_000, true, wrote.clone())
            ]),
            (3, 2)
        );
        // A time that a guest asks for each second makes no new attempts, unless something is written.
        let mut asked: Vec<_> = (0..100).map(|n| (n, n > 0, right.clone())).collect();
        asked.push((100, true, wrote.clone()));
        assert_eq!(counts(&asked), (2, 0));
        // The first conflict is no attempt; a repeated one is.
        let conflicts: Vec<_> = (1..9).map(|n| (i64::from(n), n > 1, conflict(n))).collect();
        assert_eq!(counts(&conflicts), (1, 1));
    }

    #[test]
    fn an_ever_changing_object_does_not_outweigh_the_fleet() {
        let failed = report(State::Failed, KnownReason::KubeconfigEmpty, &[], 0);
        let right = report(State::Applied, KnownReason::InSync, &[], 0);
        for one in [failed.clone(), right.clone()] {
            let hour: Vec<_> = (0..3_600)
                .map(|second| (second, false, one.clone()))
                .collect();
            assert_eq!(counts(&hour).0, 60, "{:?}", one.state);
        }
        // A changed result counts at once, and a clock that was set back does not suppress it.
        assert_eq!(
            counts(&[
                (0, false, right.clone()),
                (1, false, failed.clone()),
                (2, false, right.clone())
            ]),
            (3, 1)
        );
        assert_eq!(
            counts(&[(9_000, false, right.clone()), (5, false, right)]),
            (2, 0)
        );
    }

    #[test]
    fn names_and_labels_are_valid_for_prometheus() {
        let plain = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        let mut names: Vec<_> = ALL.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(
                plain(metric.name) && metric.labels.iter().all(|label| plain(label)),
                "{}",
                metric.name
            );
            assert!(
                metric.help.ends_with('.') && !metric.unit.is_empty(),
                "{}",
                metric.name
            );
            if let Kind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted() && bounds.len() <= 16, "{}", metric.name);
            }
        }
    }

    #[test]
    fn the_two_metric_names_of_the_existing_agent_are_exact() {
        assert_eq!(
            COPY_TOTAL.name,
            "hypershift_addon_agent_kubeconfig_secret_copy_total"
        );
        assert_eq!(
            COPY_FAILURES.name,
            "hypershift_addon_agent_kubeconfig_secret_copy_failures"
        );
        assert_eq!(
            ALL.iter()
                .filter(|metric| metric.is_compatibility())
                .count(),
            2
        );
    }
}
