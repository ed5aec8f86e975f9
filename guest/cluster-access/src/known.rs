//! What is known of the works of a cluster, of its namespace, and of what gives its work agent its rights.

use crate::decide::{BINDING, Decided, NAMESPACED, REGISTERED, ROLE, WORKS};
use crate::objects::{LABEL, Objects, PREFIX};
use serde::Deserialize;
use transom_guest::Problem;
use transom_guest::kinds::{CLUSTER_ROLE, Metadata};
use transom_guest::objects::{Input, Value, found};

/// What was found.
pub(crate) struct Known {
    /// Whether there may be works: also while that is not known.
    pub(crate) works: bool,
    /// The namespace, if it is there.
    pub(crate) namespace: Option<ExistingObject>,
    /// The binding of the work agent, if it is there.
    pub(crate) binding: Option<ExistingObject>,
    /// The binding of the registration agent, if it is there and was asked for.
    registration: Option<ExistingObject>,
    /// Whether the cluster has a role of its own: somebody accepted it once.
    pub(crate) role: bool,
}

/// An object that is there.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ExistingObject {
    metadata: Metadata,
    /// What it gives, if it is a binding.
    role_ref: Named,
    /// To whom.
    subjects: Vec<Named>,
}

/// What is read of a role or a subject in a binding.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    kind: String,
    name: String,
}

/// What keeps the binding of a work agent until the agent has cleaned up.
const CLEANUP: &str = "cluster.open-cluster-management.io/manifest-work-cleanup";
impl ExistingObject {
    /// Whether it is being deleted.
    pub(crate) fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether the cluster waits for the end of this binding: Transom made it, or it is that of Open Cluster Management
    /// with the finalizer of the work agent, so it does go. One of others is not waited for: it might stay for ever.
    fn ends(&self, objects: &Objects<'_>) -> bool {
        let mut finalizers = self.metadata.finalizers.iter();
        let holds = finalizers.any(|one| one == CLEANUP) && self.gives("work", objects);
        holds || self.metadata.is_stamped()
    }

    /// Whether it gives this shared role to the agents of the cluster and to nobody else, and bears its name. What says
    /// anything else is of others, and the host never removes it.
    fn gives(&self, role: &str, objects: &Objects<'_>) -> bool {
        let groups = objects.groups();
        let is_agent = |one: &Named| one.kind == "Group" && groups.contains(&one.name);
        self.role_ref.kind == CLUSTER_ROLE.kind
            && self.role_ref.name == [PREFIX, role].concat()
            && !self.subjects.is_empty()
            && self.subjects.iter().all(is_agent)
            && self.names(objects.name())
    }

    /// Whether it bears the name of this cluster.
    pub(crate) fn names(&self, cluster: &str) -> bool {
        let name = self.metadata.labels.get(LABEL);
        name.is_some_and(|name| name == cluster)
    }
}

impl Known {
    pub(crate) fn of(inputs: &[Input]) -> Result<Self, Problem> {
        Ok(Self {
            // Works that are being deleted count as well: the work agent has to clean up what they made.
            works: !matches!(found(inputs, WORKS), Value::Count(0)),
            namespace: found(inputs, NAMESPACED).read()?,
            binding: found(inputs, BINDING).read()?,
            registration: found(inputs, REGISTERED).read()?,
            role: !matches!(found(inputs, ROLE), Value::Absent),
        })
    }

    /// Whether the binding of the work agent is being deleted.
    pub(crate) fn binding_leaves(&self) -> bool {
        self.binding.as_ref().is_some_and(ExistingObject::leaves)
    }

    /// Whether a cluster that is being deleted stays until the binding of the work agent is gone.
    pub(crate) fn binding_ends(&self, objects: &Objects<'_>) -> bool {
        let binding = self.binding.as_ref();
        binding.is_some_and(|binding| binding.ends(objects))
    }

    /// Whether a binding is of others, so that the host does not remove it: the agents of a denied cluster keep what it
    /// gives.
    pub(crate) fn any_stays(&self, objects: &Objects<'_>) -> bool {
        let stays = |(there, role): (&Option<ExistingObject>, &str)| {
            let there = there.as_ref();
            there.is_some_and(|there| !there.metadata.is_stamped() && !there.gives(role, objects))
        };
        let bindings = [
            (&self.registration, "registration"),
            (&self.binding, "work"),
        ];
        bindings.into_iter().any(stays)
    }

    /// Whether the binding is being deleted together with its namespace, in which it cannot be recreated. Then it stays
    /// as long as there are works.
    pub(crate) fn leaves_with_namespace(&self) -> bool {
        self.binding_leaves() && self.namespace.as_ref().is_some_and(ExistingObject::leaves)
    }

    /// Whether the binding is being deleted and nobody needs it: it is released, and recreated where it is wanted.
    pub(crate) fn may_go(&self, decided: Decided) -> bool {
        let needed = match decided {
            Decided::Accepted => self.leaves_with_namespace() && self.works,
            _ => self.works,
        };
        self.binding_leaves() && !needed
    }
}
