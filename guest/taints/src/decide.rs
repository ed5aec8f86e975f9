//! From the condition `ManagedClusterConditionAvailable` to taints, as a pure function.
//! Never looks at acceptance, leases or other conditions: Open Cluster Management does not either.

use crate::settings::{Settings, TaintSettings};
use transom_guest::Reason;
use transom_guest::taints::{Answer, Decision, ManagedCluster, Status, Wanted};

/// Reason for a subject that is being deleted.
pub(crate) const SUBJECT_DELETING: Reason = Reason {
    word: "SubjectDeleting",
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
    (settings.unavailable.key_or(UNAVAILABLE), settings.unreachable.key_or(UNREACHABLE))
}

/// Which of the two taints the cluster should carry.
pub(crate) fn compute(settings: &Settings, now: i64, cluster: &ManagedCluster) -> Answer {
    if cluster.deleting {
        let problem = SUBJECT_DELETING.problem("the managed cluster is being deleted");
        return Answer { decision: Decision::Hold(problem), ask_again_at: None };
    }
    let (unavailable, unreachable) = keys(settings);
    let unavailable = Due { key: unavailable, taint: &settings.unavailable };
    let unreachable = Due { key: unreachable, taint: &settings.unreachable };
    match cluster.conditions.iter().find(|condition| condition.kind == CONDITION) {
        Some(condition) => match condition.status {
            Status::Yes => own(None),
            Status::No => after_grace(&unavailable, &unreachable, condition.changed_seconds, now, cluster),
            Status::Unknown => after_grace(&unreachable, &unavailable, condition.changed_seconds, now, cluster),
        },
        None => after_grace(&unreachable, &unavailable, cluster.created_seconds, now, cluster),
    }
}

/// A taint with the key that it goes by.
struct Due<'a> {
    key: &'a str,
    taint: &'a TaintSettings,
}

impl Due<'_> {
    fn is_on(&self, cluster: &ManagedCluster) -> bool {
        cluster.taints.iter().any(|taint| taint.key == self.key)
    }
}

/// `due` once its condition has held for the grace period. Until then a cluster that carries one of the two
/// goes on carrying one: a grace period puts off a first taint, it never frees a cluster that is tainted already.
/// A condition without a time counts as old.
fn after_grace(due: &Due<'_>, other: &Due<'_>, since: Option<i64>, now: i64, cluster: &ManagedCluster) -> Answer {
    let grace = i64::from(due.taint.grace_period_seconds);
    let ends = since.map_or(i64::MIN, |since| since.saturating_add(grace));
    if grace == 0 || now >= ends || due.is_on(cluster) {
        return own(Some(due));
    }
    Answer { ask_again_at: Some(ends), ..own(other.is_on(cluster).then_some(other)) }
}

fn own(taint: Option<&Due<'_>>) -> Answer {
    let wanted = taint.map(|Due { key, taint }| Wanted {
        key: (*key).to_owned(),
        value: String::new(),
        effect: taint.effect.into(),
    });
    Answer { decision: Decision::Own(wanted.into_iter().collect()), ask_again_at: None }
}
