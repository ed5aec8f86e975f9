//! Decides what becomes of add-ons and works whose ManagedCluster is not there any more. The primary is the namespace
//! of that cluster. Pure functions.

use crate::decide::{Fields, Remaining};
use crate::reasons::CLUSTER_GONE;
use crate::settings::Settings;
use transom_guest::kinds::{MANAGED_CLUSTER, NAMESPACE};
use transom_guest::objects::{Answer, Input, Need, Requirement, Value, found};
use transom_guest::{Context, Failure, Primary, Problem};

/// Role of the ManagedCluster.
pub(crate) const CLUSTER: &str = "cluster";
/// Role of how the last reconcile ended.
const LAST: &str = "last";
/// Role of the removal that was refused.
const REFUSED: &str = "refused";
/// Why a removal that was tried did not come to pass: another writer was quicker, or a limit withheld it.
const TRIED: [&str; 3] = ["WriteConflict", "LimitReached", "WriteBudgetExceeded"];
/// The label of the namespace of a cluster, with the name of the cluster.
const LABEL: &str = "open-cluster-management.io/cluster-name";

/// Whether the primary is a namespace instead of a cluster.
pub(crate) fn is_about(primary: &Primary) -> bool {
    primary.reference.kind == NAMESPACE.kind
}

/// Whether the namespace belongs to the cluster of its name, and what is in it is not going anyway.
fn is_of_cluster(primary: &Primary) -> Result<bool, Problem> {
    let namespace: Fields = primary.read()?;
    let of = namespace.metadata.labels.get(LABEL);
    Ok(of == Some(&primary.reference.name) && !primary.deleting)
}

/// Whether it is known that the cluster is not there.
fn is_gone(inputs: &[Input]) -> bool {
    let asked = inputs.iter().any(|input| input.role == CLUSTER);
    asked && matches!(found(inputs, CLUSTER), Value::Absent)
}

/// First whether the cluster is there; without it everything that is left, and as targets what goes next.
pub(crate) fn require(
    settings: &Settings,
    primary: &Primary,
    inputs: &[Input],
) -> Result<Requirement, Failure> {
    if !is_of_cluster(primary)? {
        return Ok(Requirement::default());
    }
    let cluster = MANAGED_CLUSTER.beside(primary, primary.reference.name.as_str());
    let mut needs = vec![Need::object(CLUSTER, cluster)];
    let mut targets = Vec::new();
    if is_gone(inputs) {
        needs.push(Need::outcome(LAST, primary));
        needs.push(Need::failed_write(REFUSED, primary));
        needs.extend(settings.all_of(primary));
        let remaining = Remaining::of(settings, primary, inputs)?;
        targets = remaining.map(|left| left.next()).unwrap_or_default();
    }
    Ok(Requirement { targets, needs })
}

/// Removes what goes next, once the cluster has been gone for the time that the settings say.
pub(crate) fn reconcile(
    context: &Context<Settings>,
    primary: &Primary,
    inputs: &[Input],
) -> Result<Answer, Failure> {
    let settings = &context.settings;
    if !is_of_cluster(primary)? || !is_gone(inputs) {
        return Ok(Answer::default());
    }
    let Some(remaining) = Remaining::of(settings, primary, inputs)? else {
        return Ok(Answer::default());
    };
    let begins = begins(context, inputs);
    let waits = begins > context.now_seconds;
    Ok(Answer {
        remove: if waits { Vec::new() } else { remaining.next() },
        wait: Some(remaining.wait(&CLUSTER_GONE)),
        ask_again_at: waits.then_some(begins),
        ..Answer::default()
    })
}

/// When the removal begins: `graceSeconds` after the namespace began to wait for the cluster. It begins at once if the
/// last reconcile already tried to remove something, because the grace period was over then.
fn begins(context: &Context<Settings>, inputs: &[Input]) -> i64 {
    let refused = matches!(found(inputs, REFUSED), Value::FailedWrite(_));
    let since = match found(inputs, LAST) {
        _ if refused => return context.now_seconds,
        Value::Outcome(last) if TRIED.contains(&last.reason.as_str()) => {
            return context.now_seconds;
        }
        Value::Outcome(last) if last.reason == CLUSTER_GONE.name => last.since_seconds,
        _ => context.now_seconds,
    };
    since.saturating_add(i64::from(context.settings.grace_seconds))
}
