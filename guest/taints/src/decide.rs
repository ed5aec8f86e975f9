//! Derives taints from the condition `ManagedClusterConditionAvailable`. Pure function.
//! Like Open Cluster Management, it ignores acceptance, leases and other conditions.

use crate::settings::{Settings, TaintSettings};
use transom_guest::Reason;
use transom_guest::taints::{Answer, Decision, ManagedCluster, Status, Wanted};

/// Reason for a primary that is being deleted.
pub(crate) const PRIMARY_DELETING: Reason = Reason {
    name: "PrimaryDeleting",
    meaning: "The managed cluster is being deleted; its taints stay as they are.",
    remedy: "Nothing: the object goes away when its finalizers are done.",
};
/// Built-in key for a cluster that is not available.
pub(crate) const UNAVAILABLE: &str = "cluster.open-cluster-management.io/unavailable";
/// Built-in key for a cluster that does not report.
pub(crate) const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";

const CONDITION: &str = "ManagedClusterConditionAvailable";

/// The keys of the two taints: unavailable, unreachable.
pub(crate) fn keys(settings: &Settings) -> (&str, &str) {
    (
        settings.unavailable.key_or(UNAVAILABLE),
        settings.unreachable.key_or(UNREACHABLE),
    )
}

/// Which of the two taints the cluster should carry.
pub(crate) fn compute(settings: &Settings, now: i64, cluster: &ManagedCluster) -> Answer {
    if cluster.deleting {
        let problem = PRIMARY_DELETING.problem("the managed cluster is being deleted");
        return Answer {
            decision: Decision::Hold(problem),
            ask_again_at: None,
        };
    }
    let (unavailable, unreachable) = keys(settings);
    let unavailable = Due {
        key: unavailable,
        taint: &settings.unavailable,
    };
    let unreachable = Due {
        key: unreachable,
        taint: &settings.unreachable,
    };
    match cluster
        .conditions
        .iter()
        .find(|condition| condition.kind == CONDITION)
    {
        Some(condition) => match condition.status {
            Status::Yes => own(None),
            Status::No => after_grace(
                &unavailable,
                &unreachable,
                condition.changed_seconds,
                now,
                cluster,
            ),
            Status::Unknown => after_grace(
                &unreachable,
                &unavailable,
                condition.changed_seconds,
                now,
                cluster,
            ),
        },
        None => after_grace(
            &unreachable,
            &unavailable,
            cluster.created_seconds,
            now,
            cluster,
        ),
    }
}

/// A taint with its effective key.
struct Due<'a> {
    key: &'a str,
    taint: &'a TaintSettings,
}

impl Due<'_> {
    fn is_on(&self, cluster: &ManagedCluster) -> bool {
        cluster.taints.iter().any(|taint| taint.key == self.key)
    }
}

/// `due` once its condition has held for the grace period. Until then a cluster that carries one of the two taints
/// keeps one: a grace period delays a first taint, but does not remove an existing one. A condition without a time
/// counts as old.
fn after_grace(
    due: &Due<'_>,
    other: &Due<'_>,
    since: Option<i64>,
    now: i64,
    cluster: &ManagedCluster,
) -> Answer {
    let grace = i64::from(due.taint.grace_period_seconds);
    let ends = since.map_or(i64::MIN, |since| since.saturating_add(grace));
    if grace == 0 || now >= ends || due.is_on(cluster) {
        return own(Some(due));
    }
    Answer {
        ask_again_at: Some(ends),
        ..own(other.is_on(cluster).then_some(other))
    }
}

fn own(taint: Option<&Due<'_>>) -> Answer {
    let wanted = taint.map(|Due { key, taint }| Wanted {
        key: (*key).to_owned(),
        value: String::new(),
        effect: taint.effect.into(),
    });
    Answer {
        decision: Decision::Own(wanted.into_iter().collect()),
        ask_again_at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use transom_guest::taints::{Condition, Taint};

    fn cluster() -> impl Strategy<Value = ManagedCluster> {
        let status = prop_oneof![Just(Status::Yes), Just(Status::No), Just(Status::Unknown)];
        let time = || prop::option::of(prop_oneof![-500..500_i64, Just(i64::MIN), Just(i64::MAX)]);
        let condition = prop::option::of((status, time()));
        let key = prop_oneof![Just(UNAVAILABLE), Just(UNREACHABLE), Just("other")];
        (
            any::<bool>(),
            time(),
            condition,
            prop::collection::vec(key, 0..4),
        )
            .prop_map(
                |(deleting, created_seconds, condition, keys)| ManagedCluster {
                    deleting,
                    created_seconds,
                    conditions: condition
                        .map(|(status, changed_seconds)| Condition {
                            kind: CONDITION.into(),
                            status,
                            changed_seconds,
                            ..Condition::default()
                        })
                        .into_iter()
                        .collect(),
                    taints: keys
                        .into_iter()
                        .map(|key| Taint {
                            key: key.into(),
                            ..Taint::default()
                        })
                        .collect(),
                    ..ManagedCluster::default()
                },
            )
    }

    fn settings() -> impl Strategy<Value = Settings> {
        let grace = || prop_oneof![Just(0), 1..300_u32, Just(u32::MAX)];
        (grace(), grace()).prop_map(|(unavailable, unreachable)| {
            let mut settings = Settings::default();
            settings.unavailable.grace_period_seconds = unavailable;
            settings.unreachable.grace_period_seconds = unreachable;
            settings
        })
    }

    fn owned(answer: &Answer) -> Vec<&str> {
        match &answer.decision {
            Decision::Own(wanted) => wanted.iter().map(|wanted| wanted.key.as_str()).collect(),
            Decision::Hold(_) => Vec::new(),
        }
    }

    fn status(cluster: &ManagedCluster) -> Option<Status> {
        cluster.conditions.first().map(|condition| condition.status)
    }

    proptest! {
        /// Without grace periods the answer matches the table of Open Cluster Management, for all times and taints.
        #[test]
        fn without_grace_the_condition_alone_decides(cluster in cluster(), now: i64) {
            let answer = compute(&Settings::default(), now, &cluster);
            prop_assert_eq!(answer.ask_again_at, None);
            prop_assert_eq!(matches!(answer.decision, Decision::Hold(_)), cluster.deleting);
            let expected: &[&str] = match status(&cluster) {
                _ if cluster.deleting => &[],
                Some(Status::Yes) => &[],
                Some(Status::No) => &[UNAVAILABLE],
                Some(Status::Unknown) | None => &[UNREACHABLE],
            };
            prop_assert_eq!(owned(&answer), expected);
        }

        /// A cluster that is not available and has one of the two taints always keeps one.
        #[test]
        fn a_grace_period_never_removes_a_taint(settings in settings(), cluster in cluster(), now in -1000..1000_i64) {
            let tainted = cluster.taints.iter().any(|taint| taint.key == UNAVAILABLE || taint.key == UNREACHABLE);
            if tainted && !cluster.deleting && status(&cluster) != Some(Status::Yes) {
                prop_assert_eq!(owned(&compute(&settings, now, &cluster)).len(), 1);
            }
        }

        /// Asked again at the time that it named, the guest gives the final answer; a second before, the same as now.
        #[test]
        fn the_reported_time_is_the_time_of_change(settings in settings(), cluster in cluster(), now in -1000..1000_i64) {
            let first = compute(&settings, now, &cluster);
            if let Some(then) = first.ask_again_at {
                prop_assert!(then > now);
                prop_assert_eq!(&compute(&settings, then - 1, &cluster), &first);
                let last = compute(&settings, then, &cluster);
                prop_assert_eq!(last.ask_again_at, None);
                prop_assert_ne!(owned(&last), owned(&first));
            }
        }

        /// Writing the answer does not change it: a second reconcile finds nothing to do.
        #[test]
        fn the_answer_is_stable(settings in settings(), cluster in cluster(), now in -1000..1000_i64) {
            let first = compute(&settings, now, &cluster);
            if let Decision::Own(wanted) = &first.decision {
                let mut written = cluster;
                written.taints = wanted
                    .iter()
                    .map(|wanted| Taint { key: wanted.key.clone(), effect: wanted.effect, ..Taint::default() })
                    .collect();
                prop_assert_eq!(compute(&settings, now, &written), first);
            }
        }
    }
}
