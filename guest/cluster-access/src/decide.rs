//! Decides what the agents of a managed cluster may do on the hub. Pure functions.

use crate::ClusterAccess;
use crate::grant::MANIFEST_WORK;
use crate::reasons::{ACCEPTED, DENIED, NAME_RESERVED, WORKS_REMAIN};
use crate::rules;
use crate::settings::Settings;
use serde_json::{Value as Json, json};
use transom_guest::kinds::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, ManagedCluster, NAMESPACE, ROLE_BINDING,
};
use transom_guest::objects::{
    Answer, Condition, Desired, Form, Input, Need, Objects as World, Query, Requirement, Value,
    found,
};
use transom_guest::{Context, Failure, ObjectRef, Primary, Reason};

/// Role of the ManifestWorks of the cluster.
pub(crate) const WORKS: &str = "works";
/// The condition that tells what was decided about the cluster.
pub(crate) const HUB_ACCEPTED: &str = "HubAcceptedManagedCluster";
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
}

fn decided(cluster: &ManagedCluster) -> Decided {
    let accepts = cluster.spec.hub_accepts_client == Some(true);
    match (accepts, cluster.status.conditions.as_slice()) {
        (true, _) => Decided::Accepted,
        (false, []) => Decided::Nothing,
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

    /// Those that are made, in order, each with what it says.
    fn made(&self, decided: Decided, works: bool, may_renew: bool) -> Vec<(ObjectRef, Json)> {
        let name = self.name();
        let (accepted, rules) = match decided {
            Decided::Nothing => return Vec::new(),
            Decided::Accepted => (true, rules::of_accepted(name)),
            Decided::Denied => (false, rules::of_denied(name, may_renew)),
        };
        let mut all = Vec::new();
        if accepted && !self.primary.deleting {
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
        let own = self.rbac(CLUSTER_ROLE, name);
        all.push((own, self.labelled(json!({"rules": rules}))));
        all.push((self.rbac(CLUSTER_ROLE_BINDING, name), self.bound(name)));
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
        let decided = decided(&cluster);
        let needs = match decided {
            Decided::Denied => vec![Need {
                form: Form::Every(Query {
                    names_only: true,
                    ..Query::default()
                }),
                ..Need::object(WORKS, works(&objects))
            }],
            _ => Vec::new(),
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
        let (decided, works) = (decided(&cluster), !is_clean(&inputs));
        let (status, reason, message) = match decided {
            Decided::Nothing => return Ok(Answer::default()),
            Decided::Accepted => ("True", ACCEPTED, "Accepted by hub cluster admin"),
            Decided::Denied => ("False", DENIED, "Denied by hub cluster admin"),
        };
        let made = objects.made(decided, works, context.settings.denied_may_renew);
        let desired = made
            .iter()
            .map(|(object, content)| Desired::whole(object, content));
        let mut apply: Vec<_> = desired.collect();
        let mut said = cluster.status.conditions.iter();
        if !said.any(|said| said.status == status) {
            apply.push(decision(primary, status, &reason, message));
        }
        let wait = (decided == Decided::Denied && works).then(|| {
            let problem = WORKS_REMAIN.problem("The cluster still has ManifestWorks.");
            problem.waiting(Vec::new())
        });
        Ok(Answer {
            apply,
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

fn decision(primary: &Primary, status: &str, reason: &Reason, message: &str) -> Desired {
    let condition = Condition {
        kind: HUB_ACCEPTED,
        status,
        reason: reason.name,
        message,
    };
    Desired::conditions(primary, &[condition])
}
