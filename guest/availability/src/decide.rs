//! Decides what the heartbeats of a managed cluster say about it. Pure functions.

use crate::reasons::{CLOCK_OUT_OF_SYNC, CLOCK_SYNCED, STOPPED};
use crate::settings::Settings;
use serde::Deserialize;
use serde_json::json;
use transom_guest::objects::{
    Absence, Answer, Condition, Desired, Input, Need, Requirement, Value, found,
};
use transom_guest::time::{format_rfc3339, parse_rfc3339};
use transom_guest::{Context, ObjectRef, Primary, Problem, Waiting};

/// Role of the last heartbeat.
pub(crate) const BEAT: &str = "beat";
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
/// The longest lease duration that counts, in seconds.
const DAY: i64 = 86_400;

/// What is read of a ManagedCluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Cluster {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "registration.open-cluster-management.io/skip-clock-sync-check")]
    skip_clock: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    lease_duration_seconds: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Has>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Has {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: String,
}

impl Cluster {
    fn condition(&self, kind: &str) -> Option<&Has> {
        self.status.conditions.iter().find(|one| one.kind == kind)
    }

    fn says(&self, kind: &str, status: &str) -> bool {
        let condition = self.condition(kind);
        condition.is_some_and(|one| one.status == status)
    }

    /// After how many seconds without a heartbeat the cluster is `Unknown`.
    fn limit(&self, settings: &Settings) -> u32 {
        let duration = match self.spec.lease_duration_seconds {
            ..=0 => 60,
            duration => duration.min(DAY),
        };
        let duration = u32::try_from(duration).unwrap_or_default();
        (settings.missed_beats * duration).saturating_add(settings.delay_seconds)
    }
}

fn lease(primary: &Primary) -> ObjectRef {
    let name = &primary.reference.name;
    ObjectRef {
        namespace: Some(name.clone()),
        ..object(primary, "coordination.k8s.io/v1", "Lease", LEASE_NAME)
    }
}

fn object(primary: &Primary, api_version: &str, kind: &str, name: &str) -> ObjectRef {
    ObjectRef::new(
        &primary.reference.cluster,
        api_version,
        kind,
        name.to_owned(),
    )
}

/// First the lease; without one whether it can be made.
pub(crate) fn require(
    context: &Context<Settings>,
    primary: &Primary,
    inputs: &[Input],
) -> Result<Requirement, Problem> {
    let cluster: Cluster = primary.read()?;
    if cluster.condition(ACCEPTED).is_none() {
        return Ok(Requirement::default());
    }
    let limit = cluster.limit(&context.settings);
    let mut required = Requirement {
        needs: vec![
            Need::age(BEAT, lease(primary), "spec.renewTime", limit),
            Need::presence(LEASE, lease(primary)),
        ],
        ..Requirement::default()
    };
    if !inputs.is_empty() && is_to_be_made(primary, inputs) {
        let name = &primary.reference.name;
        let namespace = Need::presence(NAMESPACE, object(primary, "v1", "Namespace", name));
        let absence = Absence::Wait(NAMESPACE_MISSING.to_owned());
        required.needs.push(namespace.or(absence));
        required.targets.push(lease(primary));
    }
    Ok(required)
}

fn is_to_be_made(primary: &Primary, inputs: &[Input]) -> bool {
    *found(inputs, LEASE) == Value::Absent && !primary.deleting
}

/// What the heartbeats say. Conditions that say so already are left out, so that the texts of others stay.
pub(crate) fn reconcile(
    context: &Context<Settings>,
    primary: &Primary,
    inputs: &[Input],
) -> Result<Answer, Problem> {
    let cluster: Cluster = primary.read()?;
    let mut answer = Answer::default();
    if cluster.condition(ACCEPTED).is_none() {
        return Ok(answer);
    }
    let mut conditions = Vec::new();
    match found(inputs, BEAT) {
        Value::Fresh(_) => conditions.push(SYNCED),
        Value::Ahead(_) => conditions.push(OUT_OF_SYNC),
        Value::Absent if is_to_be_made(primary, inputs) => {
            answer.apply.push(made(context, primary));
            let limit = cluster.limit(&context.settings);
            answer.ask_again_at = Some(context.now_seconds + i64::from(limit));
        }
        _ => match settles(context, &cluster) {
            Some(until) => answer.ask_again_at = Some(until),
            None => {
                conditions.push(UNKNOWN);
                answer.wait = Some(Waiting {
                    problem: STOPPED.problem(UNKNOWN.message),
                    objects: Vec::new(),
                });
            }
        },
    }
    let skips = cluster.metadata.annotations.skip_clock == "true";
    if skips {
        conditions.retain(|one| one.kind != CLOCK);
        conditions.push(SYNCED);
    }
    conditions.retain(|one| one.kind != CLOCK || context.settings.clock);
    conditions.retain(|one| !cluster.says(one.kind, one.status));
    if !conditions.is_empty() {
        answer.apply.push(Desired::conditions(primary, &conditions));
    }
    Ok(answer)
}

const UNKNOWN: Condition<'_> = Condition {
    kind: AVAILABLE,
    status: "Unknown",
    reason: STOPPED.name,
    message: "Registration agent stopped updating its lease.",
};

const SYNCED: Condition<'_> = Condition {
    kind: CLOCK,
    status: "True",
    reason: CLOCK_SYNCED.name,
    message: "The clock of the managed cluster is synced with the hub.",
};

const OUT_OF_SYNC: Condition<'_> = Condition {
    kind: CLOCK,
    status: "False",
    reason: CLOCK_OUT_OF_SYNC.name,
    message: "The clock of the managed cluster is ahead of that of the hub.",
};

/// Until when a cluster stays available because it became so a short time ago.
fn settles(context: &Context<Settings>, cluster: &Cluster) -> Option<i64> {
    let available = cluster.condition(AVAILABLE)?;
    let since = parse_rfc3339(&available.last_transition_time)?;
    let until = since + i64::from(context.settings.settle_seconds);
    (available.status == "True" && context.now_seconds < until).then_some(until)
}

/// A new lease: the time begins to run.
fn made(context: &Context<Settings>, primary: &Primary) -> Desired {
    let now = format_rfc3339(context.now_seconds).replace('Z', ".000000Z");
    let content = json!({
        "metadata": {"labels": {"open-cluster-management.io/cluster-name": primary.reference.name}},
        "spec": {"holderIdentity": LEASE_NAME, "renewTime": now},
    });
    Desired::whole(&lease(primary), &content)
}
