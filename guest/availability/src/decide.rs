//! Decides what the heartbeats of a managed cluster say about it. Pure functions.

use crate::Availability;
use crate::reasons::{CLOCK_OUT_OF_SYNC, CLOCK_SYNCED, STOPPED};
use crate::settings::Settings;
use serde::Deserialize;
use transom_guest::kinds::{self, ManagedCluster, Metadata, NAMESPACE as NAMESPACES};
use transom_guest::naming::is_label;
use transom_guest::objects::{
    Absence, Answer, Condition, Desired, Input, Need, Objects, Requirement, Value, Wake, found,
};
use transom_guest::time::{format_rfc3339, parse_rfc3339};
use transom_guest::{Context, Failure, ObjectRef, Primary, Problem, Waiting, object};

/// Role of the last heartbeat.
pub(crate) const BEAT: &str = "beat";
/// Role of the same by when it came, for the clock.
pub(crate) const ARRIVAL: &str = "arrival";
/// The field with the time of a heartbeat.
const RENEWED: &str = "spec.renewTime";
/// Role of the lease itself.
pub(crate) const LEASE: &str = "lease";
/// Role of the namespace of the cluster.
pub(crate) const NAMESPACE: &str = "namespace";
/// Reason while the namespace is not there.
pub(crate) const NAMESPACE_MISSING: &str = "ClusterNamespaceMissing";
/// Name of the lease, and its first holder.
pub(crate) const LEASE_NAME: &str = "managed-cluster-lease";
/// The condition that tells whether the cluster is available.
pub(crate) const AVAILABLE: &str = "ManagedClusterConditionAvailable";
/// The condition that tells whether its clock is right.
pub(crate) const CLOCK: &str = "ManagedClusterConditionClockSynced";
/// The condition that tells that somebody decided about the cluster.
const ACCEPTED: &str = "HubAcceptedManagedCluster";
/// The condition with which the agent of a cluster says that it joined.
const JOINED: &str = "ManagedClusterJoined";
/// The longest lease duration of which several count, in seconds.
const DAY: i64 = 86_400;

/// The annotation of a cluster whose clock counts as right.
const SKIP_CLOCK: &str = "registration.open-cluster-management.io/skip-clock-sync-check";

/// What is read of a lease beside the age.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Lease {
    metadata: Metadata,
}

fn says(cluster: &ManagedCluster, kind: &str, status: &str) -> bool {
    let condition = cluster.condition(kind);
    condition.is_some_and(|one| one.status == status)
}

/// Whether the agent of the cluster said anything yet. The first time in the lease is that of the hub, and says nothing
/// about the clock of the cluster.
fn is_heard_of(cluster: &ManagedCluster) -> bool {
    let available = cluster.condition(AVAILABLE);
    let said = available.is_some_and(|one| one.status != "Unknown");
    said || [JOINED, CLOCK].map(|kind| cluster.condition(kind)) != [None, None]
}

/// After how many seconds without a heartbeat the cluster is `Unknown`. An agent beats up to a quarter of a duration
/// late, so less than one and a half durations would be too few, whatever the settings say.
fn limit(cluster: &ManagedCluster, settings: &Settings) -> u32 {
    let duration = match cluster.spec.lease_duration_seconds {
        None | Some(..=0) => 60,
        Some(duration) => duration,
    };
    let missed = i64::from(settings.missed_beats) * duration.min(DAY);
    let limit = missed + i64::from(settings.delay_seconds);
    let least = duration.saturating_add(duration / 2);
    u32::try_from(limit.max(least)).unwrap_or(u32::MAX)
}

fn lease(primary: &Primary) -> ObjectRef {
    let lease = kinds::LEASE.beside(primary, LEASE_NAME);
    lease.in_namespace(&primary.reference.name)
}

impl Objects for Availability {
    /// First the lease; without one whether it can be made.
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: &[Input],
    ) -> Result<Requirement, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        if cluster.condition(ACCEPTED).is_none() {
            return Ok(Requirement::default());
        }
        let limit = limit(&cluster, &context.settings);
        let settings = &context.settings;
        let beat = match settings.observed {
            true => Need::observed,
            false => Need::age,
        };
        let mut required = Requirement {
            needs: vec![
                beat(BEAT, lease(primary), RENEWED, limit),
                // As an object, because one that is being deleted is not present.
                Need::object(LEASE, lease(primary)).waking(Wake::Presence),
            ],
            ..Requirement::default()
        };
        if settings.clock && !settings.observed {
            // A time that is too old wakes by itself, so this need not.
            let arrival = Need::observed(ARRIVAL, lease(primary), RENEWED, limit);
            required.needs.push(arrival.waking(Wake::Never));
        }
        if !inputs.is_empty() && is_to_be_made(primary, inputs) {
            let namespace = NAMESPACES.beside(primary, &primary.reference.name);
            let absence = Absence::Wait(NAMESPACE_MISSING.to_owned());
            let namespace = Need::presence(NAMESPACE, namespace).or(absence);
            required.needs.push(namespace);
            required.targets.push(lease(primary));
        }
        Ok(required)
    }

    /// What the heartbeats say. Conditions that say so already are left out, so that the texts of others stay.
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        let mut answer = Answer::default();
        if cluster.condition(ACCEPTED).is_none() {
            return Ok(answer);
        }
        let mut conditions = Vec::new();
        match found(&inputs, BEAT) {
            Value::Fresh(_) => conditions.extend(is_heard_of(&cluster).then_some(SYNCED)),
            Value::Ahead(_) => conditions.push(AHEAD),
            Value::Behind(_) => conditions.push(BEHIND),
            // The agent has only begun to look: what was said before stays.
            Value::Unsure(_) => answer.wait = says(&cluster, AVAILABLE, "Unknown").then(stopped),
            Value::Absent if is_to_be_made(primary, &inputs) => {
                answer.apply.push(made(context, primary));
                let limit = limit(&cluster, &context.settings);
                answer.ask_again_at = Some(context.now_seconds + i64::from(limit));
            }
            _ => {
                // Only a gap between heartbeats settles: what has none says nothing of a bad link.
                let is_old = matches!(found(&inputs, BEAT), Value::Stale(_));
                match settles(context, &cluster).filter(|_| is_old) {
                    Some(until) => answer.ask_again_at = Some(until),
                    None => {
                        conditions.push(UNKNOWN);
                        answer.wait = Some(stopped());
                        // A lease without a time does not wake when it is gone.
                        let goes = is_going(&inputs)? && !is_old;
                        let limit = i64::from(limit(&cluster, &context.settings));
                        answer.ask_again_at = goes.then_some(context.now_seconds + limit);
                    }
                }
                // It came with an old time: an agent that learns so does not report the cluster as available.
                let is_behind = matches!(found(&inputs, ARRIVAL), Value::Behind(_));
                conditions.extend(is_behind.then_some(BEHIND));
            }
        }
        let skips = cluster.metadata.annotations.get(SKIP_CLOCK);
        if skips.is_some_and(|value| value == "true") && is_heard_of(&cluster) {
            conditions.retain(|one| one.kind != CLOCK);
            conditions.push(SYNCED);
        }
        conditions.retain(|one| one.kind != CLOCK || context.settings.clock);
        conditions.retain(|one| !says(&cluster, one.kind, one.status));
        if !conditions.is_empty() {
            answer.apply.push(Desired::conditions(primary, &conditions));
        }
        Ok(answer)
    }
}

/// Whether the lease is made: not under a name that no namespace can have.
fn is_to_be_made(primary: &Primary, inputs: &[Input]) -> bool {
    let is_possible = is_label(&primary.reference.name) && !primary.deleting;
    is_possible && *found(inputs, LEASE) == Value::Absent
}

/// Whether the lease is there and being deleted.
fn is_going(inputs: &[Input]) -> Result<bool, Problem> {
    let lease: Option<Lease> = found(inputs, LEASE).read()?;
    Ok(lease.is_some_and(|lease| lease.metadata.deletion_timestamp.is_some()))
}

fn stopped() -> Waiting {
    STOPPED.problem(UNKNOWN.message).waiting(Vec::new())
}

const UNKNOWN: Condition<'_> = Condition::unknown(
    AVAILABLE,
    &STOPPED,
    "Registration agent stopped updating its lease.",
);

const SYNCED: Condition<'_> = Condition::true_(
    CLOCK,
    &CLOCK_SYNCED,
    "The clock of the managed cluster is synced with the hub.",
);

const AHEAD: Condition<'_> = Condition::false_(
    CLOCK,
    &CLOCK_OUT_OF_SYNC,
    "The clock of the managed cluster is ahead of that of the hub.",
);

const BEHIND: Condition<'_> = Condition {
    message: "The clock of the managed cluster is behind that of the hub.",
    ..AHEAD
};

/// Until when a cluster stays available because it became so a short time ago. A time in the future, of a cluster whose
/// clock was ahead, is no such time.
fn settles(context: &Context<Settings>, cluster: &ManagedCluster) -> Option<i64> {
    let available = cluster.condition(AVAILABLE)?;
    let since = parse_rfc3339(&available.last_transition_time)?;
    let until = since.saturating_add(i64::from(context.settings.settle_seconds));
    let settles = (since..until).contains(&context.now_seconds);
    (available.status == "True" && settles).then_some(until)
}

/// A new lease: the time begins to run.
fn made(context: &Context<Settings>, primary: &Primary) -> Desired {
    let now = format_rfc3339(context.now_seconds).replace('Z', ".000000Z");
    let lease = object!(&lease(primary), {
        "metadata": {"labels": {"open-cluster-management.io/cluster-name": primary.reference.name}},
        "spec": {"holderIdentity": LEASE_NAME, "renewTime": now},
    });
    lease.whole()
}
