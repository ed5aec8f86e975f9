//! What is known of the works of a cluster, of its namespace, and of what gives its work agent its rights.

use crate::decide::{BINDING, Decided, NAMESPACED, ROLE, WORKS};
use crate::objects::LABEL;
use serde::Deserialize;
use transom_guest::Problem;
use transom_guest::kinds::Metadata;
use transom_guest::objects::{Input, Value, found};

/// What was found.
pub(crate) struct Known {
    /// Whether there may be works: also while that is not known.
    pub(crate) works: bool,
    /// The namespace, if it is there.
    pub(crate) namespace: Option<ExistingObject>,
    /// The binding of the work agent, if it is there.
    pub(crate) binding: Option<ExistingObject>,
    /// Whether the cluster has a role of its own: somebody accepted it once.
    pub(crate) role: bool,
}

/// An object that is there.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ExistingObject {
    metadata: Metadata,
}

/// What keeps the binding of a work agent until the agent has cleaned up.
const CLEANUP: &str = "cluster.open-cluster-management.io/manifest-work-cleanup";
/// The label that says who makes an object, and who makes what is made here.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "transom");

impl ExistingObject {
    /// Whether it is being deleted.
    pub(crate) fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether the cluster waits for the end of this binding: it has the finalizer of the work agent, or Transom made
    /// it, so it does go. A binding of others is not waited for, because it might stay for ever.
    fn ends(&self) -> bool {
        let metadata = &self.metadata;
        let (label, us) = MANAGED_BY;
        let made = metadata.labels.get(label).is_some_and(|by| by == us);
        made || metadata.finalizers.iter().any(|one| one == CLEANUP)
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
            role: !matches!(found(inputs, ROLE), Value::Absent),
        })
    }

    /// Whether the binding of the work agent is being deleted.
    pub(crate) fn binding_leaves(&self) -> bool {
        self.binding.as_ref().is_some_and(ExistingObject::leaves)
    }

    /// Whether a cluster that is being deleted stays until the binding of the work agent is gone.
    pub(crate) fn binding_ends(&self) -> bool {
        self.binding.as_ref().is_some_and(ExistingObject::ends)
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
