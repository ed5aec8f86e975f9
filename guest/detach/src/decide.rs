//! Decides what is left of a hosted cluster on its hub. Pure functions.

use crate::Detach;
use crate::grant::{CREATED_VIA, DEPLOY_MODE, HOSTED_BY, KLUSTERLETS};
use crate::reasons;
use crate::settings::Settings;
use serde::Deserialize;
use transom_guest::kinds::{HOSTED_CLUSTER, MANAGED_CLUSTER, Metadata};
use transom_guest::naming::{IMPORTED, IMPORTED_PATH, OWN_NAME_PATH, hosting_cluster, is_label};
use transom_guest::objects::{Answer, Input, Member, Need, Requirement, Value, found};
use transom_guest::{Context, Failure, ObjectRef, Primary, Problem, Reason, Waiting, time};

/// Role of the ManagedCluster.
pub(crate) const CLUSTER: &str = "cluster";
/// Role of the Klusterlet.
pub(crate) const KLUSTERLET: &str = "klusterlet";
/// Role of the HostedClusters that stay.
pub(crate) const OTHERS: &str = "hosted";

/// What is read of a ManagedCluster, of a Klusterlet and of a HostedCluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ExistingObject {
    metadata: Metadata,
}

impl ExistingObject {
    /// Whether a ManagedCluster has its control plane on this hosting cluster. One that Hive made is Hive's to remove.
    fn is_hosted_by(&self, hosting_cluster: &str) -> bool {
        let annotation = |key: &str| self.metadata.annotations.get(key).map(String::as_str);
        annotation(DEPLOY_MODE) == Some("Hosted")
            && annotation(HOSTED_BY) == Some(hosting_cluster)
            && annotation(CREATED_VIA) != Some("hive")
    }

    /// Since when it is being deleted, in seconds since 1970.
    fn deleted_at(&self) -> Option<i64> {
        let at = self.metadata.deletion_timestamp.as_deref()?;
        // A time that cannot be read counts as now: nothing is taken by force for it.
        Some(time::parse_rfc3339(at).unwrap_or(i64::MAX))
    }
}

/// The objects of one hosted cluster.
struct Objects {
    cluster: ObjectRef,
    klusterlet: ObjectRef,
}

impl Objects {
    /// `None` if there are none: no ManagedCluster can have the name that follows from the HostedCluster's own.
    fn of(context: &Context<Settings>, primary: &Primary) -> Result<Option<Self>, Problem> {
        let settings = &context.settings;
        let Some(name) = name(context, primary)? else {
            return Ok(None);
        };
        let here = &primary.reference.cluster;
        let hub = settings.hub.as_deref().unwrap_or(here);
        let klusterlet = ["klusterlet-", &name].concat();
        Ok(Some(Self {
            cluster: MANAGED_CLUSTER.at(hub, name),
            klusterlet: KLUSTERLETS.at(here, klusterlet),
        }))
    }
}

/// The name of the managed cluster: the one under which it was imported, whatever the HostedCluster says now. `None` if
/// no ManagedCluster can have the name that follows from the HostedCluster's own.
///
/// # Errors
/// [`reasons::CLUSTER_UNKNOWN`] if an annotation has a name that none can have: it is not known which one is meant.
fn name(context: &Context<Settings>, primary: &Primary) -> Result<Option<String>, Problem> {
    let (name, field) = match noted(primary)? {
        Some(name) => (name, IMPORTED_PATH),
        None => {
            let naming = &context.settings.naming;
            naming.unchecked(&context.agent, primary)?
        }
    };
    if is_label(&name) {
        return Ok(Some(name));
    }
    if field == OWN_NAME_PATH {
        return Ok(None);
    }
    let message = "not of 1 to 63 lower-case letters, digits and dashes, none of them at an end";
    Err(reasons::CLUSTER_UNKNOWN.problem(message).at(field))
}

/// The note of the import from here, if there is one.
fn noted(primary: &Primary) -> Result<Option<String>, Problem> {
    let mut read: ExistingObject = primary.read()?;
    let noted = read.metadata.annotations.remove(IMPORTED);
    Ok(noted.filter(|name| !name.is_empty()))
}

/// Whether all HostedClusters were read that stay.
fn are_read(inputs: &[Input]) -> bool {
    matches!(found(inputs, OTHERS), Value::Every(_))
}

/// Whether a HostedCluster that stays has the same ManagedCluster.
fn is_shared(
    context: &Context<Settings>,
    primary: &Primary,
    members: &[Member],
) -> Result<bool, Problem> {
    let ours = name(context, primary)?;
    let has_it = |member: &Member| {
        let other = Primary {
            reference: ObjectRef {
                namespace: member.namespace.clone(),
                name: member.name.clone(),
                ..primary.reference.clone()
            },
            fields: member.fields.clone(),
            ..Primary::default()
        };
        // One without a usable name has no ManagedCluster.
        other.reference != primary.reference
            && name(context, &other).is_ok_and(|theirs| theirs == ours)
    };
    Ok(members.iter().any(has_it))
}

/// What is to be done, beside the wait for the rest.
enum Next {
    /// The HostedCluster has no ManagedCluster here, or none any more.
    Detached,
    /// It has one, and nothing is deleted.
    Attached,
    /// It is being deleted, and the ManagedCluster is there.
    Cluster,
    /// The Klusterlet is being deleted; until this time it is given, in seconds since 1970.
    Klusterlet { until: i64 },
}

fn next(context: &Context<Settings>, primary: &Primary, inputs: &[Input]) -> Result<Next, Problem> {
    let cluster: Option<ExistingObject> = found(inputs, CLUSTER).read()?;
    let klusterlet: Option<ExistingObject> = found(inputs, KLUSTERLET).read()?;
    let hosting_cluster =
        hosting_cluster(&context.agent, context.settings.hosting_cluster.as_deref())?;
    let is_here = cluster.as_ref().is_some_and(|cluster| {
        cluster.is_hosted_by(hosting_cluster)
            && cluster.metadata.is_made_for(primary) != Some(false)
    });
    if !primary.deleting {
        return Ok(match is_here {
            true => Next::Attached,
            false => Next::Detached,
        });
    }
    // Whoever names the ManagedCluster of another HostedCluster must not remove it.
    let made_for = |cluster: &ExistingObject| cluster.metadata.is_made_for(primary);
    let is_ours = cluster.as_ref().and_then(made_for) == Some(true);
    if let Value::Every(members) = found(inputs, OTHERS)
        && !is_ours
        && is_shared(context, primary, members)?
    {
        return Ok(Next::Detached);
    }
    let stuck = i64::from(context.settings.stuck_after_seconds);
    let goes = klusterlet.as_ref().and_then(ExistingObject::deleted_at);
    match goes.map(|at| at.saturating_add(stuck)) {
        // Of a ManagedCluster of others the Klusterlet is theirs, too.
        Some(until) if is_here || cluster.is_none() => Ok(Next::Klusterlet { until }),
        _ if is_here => Ok(Next::Cluster),
        _ => Ok(Next::Detached),
    }
}

impl transom_guest::Objects for Detach {
    /// Reads both objects; those to remove are targets. Before a removal it also reads all HostedClusters, to see
    /// whether another one has the same ManagedCluster.
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: &[Input],
    ) -> Result<Requirement, Failure> {
        let Some(objects) = Objects::of(context, primary)? else {
            return Ok(Requirement::default());
        };
        let answer = answer(context, primary, inputs)?;
        let mut needs = vec![
            Need::object(CLUSTER, objects.cluster),
            Need::object(KLUSTERLET, objects.klusterlet),
        ];
        if answer.wait.is_some() || are_read(inputs) {
            needs.push(Need::every(OTHERS, HOSTED_CLUSTER.all(primary), Vec::new()));
        }
        Ok(Requirement {
            targets: answer.remove,
            needs,
        })
    }

    /// Removes the ManagedCluster of a HostedCluster that is being deleted, and waits until nothing of it is left.
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        Ok(answer(context, primary, &inputs)?)
    }
}

/// Removes the ManagedCluster of a HostedCluster that is being deleted, and waits until nothing of it is left.
fn answer(
    context: &Context<Settings>,
    primary: &Primary,
    inputs: &[Input],
) -> Result<Answer, Problem> {
    let settings = &context.settings;
    let Some(objects) = Objects::of(context, primary)? else {
        return Ok(Answer::default());
    };
    let Objects {
        cluster,
        klusterlet,
    } = objects;
    let keeps = Answer {
        keep_finalizer: settings.finalizer,
        ..Answer::default()
    };
    // Nothing goes before it is known whether another HostedCluster has it.
    let is_known = are_read(inputs);
    let until = match next(context, primary, inputs)? {
        Next::Detached => return Ok(Answer::default()),
        Next::Attached => return Ok(keeps),
        Next::Cluster => {
            let wait = waits(&reasons::CLUSTER_REMAINS, &cluster);
            return Ok(Answer {
                remove: is_known.then_some(cluster).into_iter().collect(),
                wait: Some(wait),
                ..keeps
            });
        }
        Next::Klusterlet { until } => until,
    };
    let is_stuck = context.now_seconds >= until;
    let reason = match is_stuck {
        true => reasons::KLUSTERLET_STUCK,
        false => reasons::KLUSTERLET_REMAINS,
    };
    let wait = waits(&reason, &klusterlet);
    let there = found(inputs, CLUSTER)
        .read::<ExistingObject>()?
        .map(|_| cluster);
    // Without a ManagedCluster only the note tells that the Klusterlet is not that of another hub.
    let is_known_ours = there.is_some() || noted(primary)?.is_some();
    let taken = is_stuck && settings.take_finalizers && is_known_ours;
    let taken = taken.then_some(klusterlet);
    Ok(Answer {
        remove: there
            .into_iter()
            .chain(taken)
            .filter(|_| is_known)
            .collect(),
        wait: Some(wait),
        ask_again_at: (!is_stuck).then_some(until),
        ..keeps
    })
}

fn waits(reason: &Reason, object: &ObjectRef) -> Waiting {
    let ObjectRef { kind, name, .. } = object;
    Waiting {
        problem: reason.problem(format!("waits until {kind} {name} is gone")),
        objects: vec![object.clone()],
    }
}
