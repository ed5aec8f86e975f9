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
}

impl Cluster {
    fn decided(&self) -> Decided {
        match (
            self.spec.hub_accepts_client,
            self.status.conditions.as_slice(),
        ) {
            (true, _) => Decided::Accepted,
            (false, []) => Decided::Nothing,
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

    fn namespace(&self) -> ObjectRef {
        self.object("v1", "Namespace", self.name().to_owned())
    }

    /// One of the two shared roles.
    fn shared(&self, what: &str) -> ObjectRef {
        self.rbac("ClusterRole", what)
    }

    /// The binding of a shared role in the namespace of the cluster.
    fn binding(&self, what: &str) -> ObjectRef {
        ObjectRef {
            namespace: Some(self.name().to_owned()),
            ..self.rbac("RoleBinding", &[self.name(), ":", what].concat())
        }
    }

    /// Those that are made, in order.
    fn made(&self, decided: Decided, works: bool) -> Vec<ObjectRef> {
        let (mut all, accepted) = (Vec::new(), decided == Decided::Accepted);
        if decided == Decided::Nothing {
            return all;
        }
        if accepted && !self.primary.deleting {
            all.push(self.namespace());
        }
        if accepted {
            all.push(self.shared("registration"));
        }
        if accepted || works {
            all.push(self.shared("work"));
        }
        all.push(self.rbac("ClusterRole", self.name()));
        all.push(self.rbac("ClusterRoleBinding", self.name()));
        if accepted {
            all.push(self.binding("registration"));
        }
        if accepted || works {
            all.push(self.binding("work"));
        }
        all
    }

    /// What one of them says. Those of one cluster have its name as a label.
    fn content(&self, object: &ObjectRef, rules: &[Json]) -> Json {
        if *object == self.shared("registration") {
            return json!({"rules": rules::of_registration()});
        }
        if *object == self.shared("work") {
            return json!({"rules": rules::of_work()});
        }
        let bound = |role: String| {
            let group = |prefix: &str| {
                let name = [prefix, self.name()].concat();
                json!({"apiGroup": RBAC, "kind": "Group", "name": name})
            };
            json!({
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [group("system:open-cluster-management:"), group("open-cluster-management:")],
            })
        };
        let mut content = match object.kind.as_str() {
            "Namespace" => json!({}),
            "ClusterRole" => json!({"rules": rules}),
            "ClusterRoleBinding" => bound(object.name.clone()),
            _ => {
                let what = object.name.rsplit(':').next().unwrap_or_default();
                bound([PREFIX, what].concat())
            }
        };
        content["metadata"] =
            json!({"labels": {"open-cluster-management.io/cluster-name": self.name()}});
        content
    }
}

/// The objects that are made; of a denied cluster first whether it has works.
pub(crate) fn require(primary: &Primary, inputs: &[Input]) -> Result<Requirement, Problem> {
    let cluster: Cluster = primary.read()?;
    if ["registration", "work"].contains(&&*primary.reference.name) {
        return Err(NAME_RESERVED.problem("The name of the cluster is that of a shared role."));
    }
    let objects = Objects { primary };
    let decided = cluster.decided();
    let needs = match decided {
        Decided::Denied => vec![Need {
            form: Form::Every(Query {
                labels: Vec::new(),
                names_only: true,
            }),
            ..Need::every(WORKS, works(&objects), Vec::new())
        }],
        _ => Vec::new(),
    };
    Ok(Requirement {
        targets: objects.made(decided, !is_clean(inputs)),
        needs,
    })
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
    let (decided, works) = (cluster.decided(), !is_clean(inputs));
    let (status, reason, message, rules) = match decided {
        Decided::Nothing => return Ok(Answer::default()),
        Decided::Accepted => {
            let rules = rules::of_accepted(objects.name());
            ("True", ACCEPTED, "Accepted by hub cluster admin", rules)
        }
        Decided::Denied => {
            let rules = rules::of_denied(objects.name(), context.settings.denied_may_renew);
            ("False", DENIED, "Denied by hub cluster admin", rules)
        }
    };
    let made = objects.made(decided, works).into_iter();
    let desired = made.map(|object| Desired::whole(&object, &objects.content(&object, &rules)));
    let mut apply: Vec<_> = desired.collect();
    let mut said = cluster.status.conditions.iter();
    if !said.any(|said| said.status == status) {
        apply.push(decision(primary, status, &reason, message));
    }
    let wait = (decided == Decided::Denied && works).then(|| Waiting {
        problem: WORKS_REMAIN.problem("The cluster still has ManifestWorks."),
        objects: Vec::new(),
    });
    Ok(Answer {
        apply,
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
