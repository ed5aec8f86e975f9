//! Decides what the agents of a managed cluster may do on the hub. Pure functions.

use crate::reasons::{ACCEPTED, DENIED, NAME_RESERVED, WORKS_REMAIN};
use crate::rules;
use crate::settings::Settings;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use transom_guest::objects::{
    Answer, Condition, Desired, Form, Input, Need, Query, Requirement, Value, found,
};
use transom_guest::{Context, ObjectRef, Primary, Problem, Reason, Waiting};

/// Role of the ManifestWorks of the cluster.
pub(crate) const WORKS: &str = "works";
/// The condition that tells what was decided about the cluster.
pub(crate) const HUB_ACCEPTED: &str = "HubAcceptedManagedCluster";
/// What the names of all roles and bindings begin with.
const PREFIX: &str = "open-cluster-management:managedcluster:";
const RBAC: &str = "rbac.authorization.k8s.io";

/// What is read of a ManagedCluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Cluster {
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    hub_accepts_client: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Has>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Has {
    status: String,
}

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

impl Cluster {
    fn decided(&self, primary: &Primary) -> Decided {
        match (
            self.spec.hub_accepts_client,
            self.status.conditions.as_slice(),
        ) {
            (false, []) => Decided::Nothing,
            _ if primary.deleting => Decided::Leaving,
            (true, _) => Decided::Accepted,
            (false, _) => Decided::Denied,
        }
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

    fn object(&self, api_version: &str, kind: &str, name: String) -> ObjectRef {
        ObjectRef::new(&self.primary.reference.cluster, api_version, kind, name)
    }

    fn rbac(&self, kind: &str, name: &str) -> ObjectRef {
        let api_version = [RBAC, "/v1"].concat();
        self.object(&api_version, kind, [PREFIX, name].concat())
    }

    /// The binding of a shared role in the namespace of the cluster.
    fn binding(&self, what: &str) -> ObjectRef {
        ObjectRef {
            namespace: Some(self.name().to_owned()),
            ..self.rbac("RoleBinding", &[self.name(), ":", what].concat())
        }
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
            let namespace = self.object("v1", "Namespace", name.to_owned());
            all.push((namespace, self.labelled(json!({}))));
        }
        if accepted {
            let shared = self.rbac("ClusterRole", "registration");
            all.push((shared, json!({"rules": rules::of_registration()})));
        }
        if accepted || works {
            let shared = self.rbac("ClusterRole", "work");
            all.push((shared, json!({"rules": rules::of_work()})));
        }
        if let Some(rules) = rules {
            let own = self.rbac("ClusterRole", name);
            all.push((own, self.labelled(json!({"rules": rules}))));
            all.push((self.rbac("ClusterRoleBinding", name), self.bound(name)));
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

/// The objects that are made; of a denied cluster first whether it has works.
pub(crate) fn require(
    context: &Context<Settings>,
    primary: &Primary,
    inputs: &[Input],
) -> Result<Requirement, Problem> {
    let cluster: Cluster = primary.read()?;
    if ["registration", "work"].contains(&&*primary.reference.name) {
        return Err(NAME_RESERVED.problem("The name of the cluster is that of a shared role."));
    }
    let objects = Objects { primary };
    let decided = cluster.decided(primary);
    let needs = match decided {
        // Also works that are being deleted: the work agent has to clean up what they made.
        Decided::Denied | Decided::Leaving => vec![Need {
            form: Form::Every(Query {
                names_only: true,
                terminating: true,
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

/// The place of the works.
fn works(objects: &Objects<'_>) -> ObjectRef {
    let api_version = "work.open-cluster-management.io/v1";
    ObjectRef {
        namespace: Some(objects.name().to_owned()),
        ..objects.object(api_version, "ManifestWork", String::new())
    }
}

/// Whether it is known that there are no works.
fn is_clean(inputs: &[Input]) -> bool {
    matches!(found(inputs, WORKS), Value::Every(works) if works.is_empty())
}

/// What the agents of the cluster may do, and what was decided.
pub(crate) fn reconcile(
    context: &Context<Settings>,
    primary: &Primary,
    inputs: &[Input],
) -> Result<Answer, Problem> {
    let cluster: Cluster = primary.read()?;
    let objects = Objects { primary };
    let (decided, works) = (cluster.decided(primary), !is_clean(inputs));
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
    if let Some((status, reason, message)) = said {
        let mut conditions = cluster.status.conditions.iter();
        if !conditions.any(|condition| condition.status == status) {
            apply.push(decision(primary, status, &reason, message));
        }
    }
    let waits = decided != Decided::Accepted && works;
    let wait = waits.then(|| Waiting {
        problem: WORKS_REMAIN.problem("The cluster still has ManifestWorks."),
        objects: Vec::new(),
    });
    Ok(Answer {
        apply,
        // Without it the binding of the work agent would go with the cluster, before the agent has cleaned up.
        keep_finalizer: decided == Decided::Accepted || works,
        wait,
        ..Answer::default()
    })
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
