//! Decides what the agents of a managed cluster may do on the hub. Pure functions.

use crate::ClusterAccess;
use crate::grant::MANIFEST_WORK;
use crate::reasons::{ACCEPTED, DENIED, ERROR, NAME_RESERVED, WORKS_REMAIN};
use crate::rules;
use crate::settings::Settings;
use serde_json::{Value as Json, json};
use transom_guest::kinds::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, ManagedCluster, NAMESPACE, ROLE_BINDING,
};
use transom_guest::objects::{
    Answer, Condition, Desired, FailedWrite, Form, Input, Need, Objects as World, Query,
    Requirement, Value, found,
};
use transom_guest::{Context, Failure, ObjectRef, Primary, Reason};

/// Role of the ManifestWorks of the cluster.
pub(crate) const WORKS: &str = "works";
/// The condition that tells what was decided about the cluster.
pub(crate) const HUB_ACCEPTED: &str = "HubAcceptedManagedCluster";
/// Role of the write that failed last.
pub(crate) const FAILED: &str = "failed";
/// What the names of all roles and bindings begin with.
const PREFIX: &str = "open-cluster-management:managedcluster:";
const RBAC: &str = "rbac.authorization.k8s.io";

/// What was decided about a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decided {
    /// Nothing yet.
    Nothing,
    Accepted,
    /// It was accepted before.
    Denied,
    /// It is being deleted, and was accepted or denied before.
    Leaving,
}

fn decided(cluster: &ManagedCluster, primary: &Primary) -> Decided {
    let accepts = cluster.spec.hub_accepts_client == Some(true);
    match (accepts, cluster.status.conditions.as_slice()) {
        (false, []) => Decided::Nothing,
        _ if primary.deleting => Decided::Leaving,
        (true, _) => Decided::Accepted,
        (false, _) => Decided::Denied,
    }
}

/// The objects of a cluster.
struct Objects<'a> {
    primary: &'a Primary,
}

impl Objects<'_> {
    fn name(&self) -> &str {
        &self.primary.reference.name
    }

    fn rbac(&self, kind: Kind, name: &str) -> ObjectRef {
        kind.beside(self.primary, [PREFIX, name].concat())
    }

    /// The binding of a shared role in the namespace of the cluster.
    fn binding(&self, what: &str) -> ObjectRef {
        let binding = self.rbac(ROLE_BINDING, &[self.name(), ":", what].concat());
        binding.in_namespace(self.name())
    }

    /// Those that are made, in order, each with what it says. Of a cluster that is being deleted only the work agent keeps
    /// its rights, until it has cleaned up.
    fn made(&self, decided: Decided, works: bool, may_renew: bool) -> Vec<(ObjectRef, Json)> {
        let name = self.name();
        let (accepted, rules) = match decided {
            Decided::Nothing => return Vec::new(),
            Decided::Leaving => (false, None),
            Decided::Accepted => (true, Some(rules::of_accepted(name))),
            Decided::Denied => (false, Some(rules::of_denied(name, may_renew))),
        };
        let mut all = Vec::new();
        if accepted {
            let namespace = NAMESPACE.beside(self.primary, name);
            all.push((namespace, self.labelled(json!({}))));
        }
        if accepted {
            let shared = self.rbac(CLUSTER_ROLE, "registration");
            all.push((shared, json!({"rules": rules::of_registration()})));
        }
        if accepted || works {
            let shared = self.rbac(CLUSTER_ROLE, "work");
            all.push((shared, json!({"rules": rules::of_work()})));
        }
        if let Some(rules) = rules {
            let own = self.rbac(CLUSTER_ROLE, name);
            all.push((own, self.labelled(json!({"rules": rules}))));
            all.push((self.rbac(CLUSTER_ROLE_BINDING, name), self.bound(name)));
        }
        if accepted {
            all.push((self.binding("registration"), self.bound("registration")));
        }
        if accepted || works {
            all.push((self.binding("work"), self.bound("work")));
        }
        all
    }

    /// A content with the name of the cluster as a label.
    fn labelled(&self, mut content: Json) -> Json {
        content["metadata"] =
            json!({"labels": {"open-cluster-management.io/cluster-name": self.name()}});
        content
    }

    /// What a binding of a role says: the agents of the cluster get it.
    fn bound(&self, role: &str) -> Json {
        let group = |prefix: &str| {
            let name = [prefix, self.name()].concat();
            json!({"apiGroup": RBAC, "kind": "Group", "name": name})
        };
        let role = [PREFIX, role].concat();
        self.labelled(json!({
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [group("system:open-cluster-management:"), group("open-cluster-management:")],
        }))
    }
}

impl World for ClusterAccess {
    /// The objects that are made; of a denied cluster first whether it has works.
    fn require(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: &[Input],
    ) -> Result<Requirement, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        if ["registration", "work"].contains(&&*primary.reference.name) {
            let why = "The name of the cluster is that of a shared role.";
            return Err(NAME_RESERVED.problem(why).into());
        }
        let objects = Objects { primary };
        let decided = decided(&cluster, primary);
        let needs = match decided {
            Decided::Accepted => vec![Need::failed_write(FAILED, primary)],
            // Also works that are being deleted: the work agent has to clean up what they made.
            Decided::Denied | Decided::Leaving => vec![Need {
                form: Form::Every(Query {
                    names_only: true,
                    terminating: true,
                    ..Query::default()
                }),
                ..Need::object(WORKS, works(&objects))
            }],
            Decided::Nothing => Vec::new(),
        };
        let may_renew = context.settings.denied_may_renew;
        let made = objects.made(decided, !is_clean(inputs), may_renew);
        let targets = made.into_iter().map(|(object, _)| object).collect();
        Ok(Requirement { targets, needs })
    }

    /// What the agents of the cluster may do, and what was decided.
    fn reconcile(
        context: &Context<Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let cluster: ManagedCluster = primary.read()?;
        let objects = Objects { primary };
        let (decided, works) = (decided(&cluster, primary), !is_clean(&inputs));
        let said = match decided {
            Decided::Nothing => return Ok(Answer::default()),
            Decided::Leaving => None,
            Decided::Accepted => Some(("True", ACCEPTED, "Accepted by hub cluster admin")),
            Decided::Denied => Some(("False", DENIED, "Denied by hub cluster admin")),
        };
        let made = objects.made(decided, works, context.settings.denied_may_renew);
        let desired = made
            .iter()
            .map(|(object, content)| Desired::whole(object, content));
        let mut apply: Vec<_> = desired.collect();
        match (incomplete(&cluster, &inputs), said) {
            // Before the write that may fail again. Said once: after that the cluster is accepted as soon as all is written.
            (Some(why), _) => apply.insert(0, decision(primary, "False", &ERROR, &why)),
            (None, Some((status, reason, message))) if !says(&cluster, status) => {
                apply.push(decision(primary, status, &reason, message));
            }
            (None, _) => {}
        }
        let wait = (decided != Decided::Accepted && works).then(|| {
            let problem = WORKS_REMAIN.problem("The cluster still has ManifestWorks.");
            problem.waiting(Vec::new())
        });
        Ok(Answer {
            apply,
            // Without it the binding of the work agent would go with the cluster, before the agent has cleaned up.
            keep_finalizer: decided == Decided::Accepted || works,
            wait,
            ..Answer::default()
        })
    }
}

/// The place of the works.
fn works(objects: &Objects<'_>) -> ObjectRef {
    let works = MANIFEST_WORK.all(objects.primary);
    works.in_namespace(objects.name())
}

/// Whether it is known that there are no works.
fn is_clean(inputs: &[Input]) -> bool {
    matches!(found(inputs, WORKS), Value::Every(works) if works.is_empty())
}

/// Whether the decision is told already. What tells that a write failed is no decision.
fn says(cluster: &ManagedCluster, status: &str) -> bool {
    let mut conditions = cluster.status.conditions.iter();
    conditions.any(|one| one.status == status && one.reason != ERROR.name)
}

/// That a role or a binding of an accepted cluster could not be written, unless the cluster says it already.
fn incomplete(cluster: &ManagedCluster, inputs: &[Input]) -> Option<String> {
    let Value::FailedWrite(FailedWrite { object, reason }) = found(inputs, FAILED) else {
        return None;
    };
    if !object.api_version.starts_with(RBAC) {
        return None;
    }
    let place = object
        .namespace
        .iter()
        .map(|namespace| [namespace, "/"].concat());
    let name: String = place.chain([object.name.clone()]).collect();
    let message = format!("{} {name} could not be written: {reason}", object.kind);
    let mut conditions = cluster.status.conditions.iter();
    let told = conditions.any(|one| one.reason == ERROR.name && one.message == message);
    (!told).then_some(message)
}

fn decision(primary: &Primary, status: &str, reason: &Reason, message: &str) -> Desired {
    let condition = Condition {
        kind: HUB_ACCEPTED,
        status,
        reason: reason.name,
        message,
    };
    Desired::conditions(primary, &[condition])
}
