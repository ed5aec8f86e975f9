//! The objects of a cluster, and what they say.

use crate::decide::Decided;
use crate::known::Known;
use crate::rules;
use transom_guest::kinds::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, NAMESPACE, ROLE_BINDING};
use transom_guest::make::{ClusterRole, ClusterRoleBinding, Object, RoleBinding, kind::Binds};
use transom_guest::naming::is_label;
use transom_guest::objects::Desired;
use transom_guest::{ObjectRef, Primary};

/// What the names of all roles and bindings begin with.
pub(crate) const PREFIX: &str = "open-cluster-management:managedcluster:";
/// The label that names the cluster of an object.
pub(crate) const LABEL: &str = "open-cluster-management.io/cluster-name";

/// An object that is made for a cluster, or for all of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// The shared role of the registration agents.
    RegistrationRole,
    /// The shared role of the work agents.
    WorkRole,
    /// The role of the cluster.
    Role,
    /// Its binding.
    ClusterBinding,
    RegistrationBinding,
    WorkBinding,
}

/// The objects of a cluster.
pub(crate) struct Objects<'a> {
    /// The cluster.
    pub(crate) primary: &'a Primary,
}

impl Objects<'_> {
    /// The name of the cluster.
    pub(crate) fn name(&self) -> &str {
        &self.primary.reference.name
    }

    fn rbac(&self, kind: Kind, name: &str) -> ObjectRef {
        kind.beside(self.primary, [PREFIX, name].concat())
    }

    /// The binding of a shared role in the namespace of the cluster.
    pub(crate) fn binding(&self, what: &str) -> ObjectRef {
        let binding = self.rbac(ROLE_BINDING, &[self.name(), ":", what].concat());
        binding.in_namespace(self.name())
    }

    /// What the agents of the cluster may do on the whole hub.
    pub(crate) fn role(&self) -> ObjectRef {
        self.rbac(CLUSTER_ROLE, self.name())
    }

    /// The namespace of the cluster.
    pub(crate) fn namespace(&self) -> ObjectRef {
        NAMESPACE.beside(self.primary, self.name())
    }

    /// Those that are made beside the namespace, in order. Of a cluster that is being deleted only the work agent keeps
    /// its rights, until it has cleaned up. What it lost, only acceptance gives it again.
    pub(crate) fn made(decided: Decided, known: &Known) -> Vec<Made> {
        let keeps = known.works && known.binding.is_some();
        match decided {
            Decided::Accepted => vec![
                Made::RegistrationRole,
                Made::WorkRole,
                Made::Role,
                Made::ClusterBinding,
                Made::RegistrationBinding,
                Made::WorkBinding,
            ],
            // A shared role that cannot be written must not keep a denied cluster its rights.
            Decided::Denied if keeps => vec![
                Made::Role,
                Made::ClusterBinding,
                Made::WorkRole,
                Made::WorkBinding,
            ],
            Decided::Denied => vec![Made::Role, Made::ClusterBinding],
            Decided::Leaving if keeps => vec![Made::WorkRole, Made::WorkBinding],
            Decided::Leaving | Decided::Nothing | Decided::Impossible => Vec::new(),
        }
    }

    /// Which object that is.
    pub(crate) fn reference(&self, made: Made) -> ObjectRef {
        match made {
            Made::RegistrationRole => self.rbac(CLUSTER_ROLE, "registration"),
            Made::WorkRole => self.rbac(CLUSTER_ROLE, "work"),
            Made::Role => self.role(),
            Made::ClusterBinding => self.rbac(CLUSTER_ROLE_BINDING, self.name()),
            Made::RegistrationBinding => self.binding("registration"),
            Made::WorkBinding => self.binding("work"),
        }
    }

    /// What it says.
    pub(crate) fn desired(&self, made: Made, decided: Decided, may_renew: bool) -> Desired {
        let (object, name) = (self.reference(made), self.name());
        let role = |rules| ClusterRole::of(&object).rules(rules);
        match made {
            Made::RegistrationRole => role(rules::of_registration()).whole(),
            Made::WorkRole => role(rules::of_work()).whole(),
            Made::Role => {
                let rules = match decided {
                    Decided::Accepted => rules::of_accepted(name),
                    _ => rules::of_denied(name, may_renew),
                };
                self.labelled(role(rules)).whole()
            }
            Made::ClusterBinding => self.bound(ClusterRoleBinding::of(&object), name),
            Made::RegistrationBinding => self.bound(RoleBinding::of(&object), "registration"),
            Made::WorkBinding => self.bound(RoleBinding::of(&object), "work"),
        }
    }

    /// The cluster's own objects that are not wanted, in the order in which they are removed, including objects that
    /// were there before this policy. Under a name that no namespace has, none is in one.
    pub(crate) fn left_out(&self, decided: Decided, works: bool) -> Vec<ObjectRef> {
        let (name, mut all) = (self.name(), Vec::new());
        if decided == Decided::Leaving {
            all.push(self.rbac(CLUSTER_ROLE_BINDING, name));
            all.push(self.role());
        }
        if matches!(decided, Decided::Denied | Decided::Leaving) && is_label(name) {
            all.push(self.binding("registration"));
            all.extend((!works).then(|| self.binding("work")));
        }
        all
    }

    /// An object with the name of the cluster as a label.
    pub(crate) fn labelled<K>(&self, object: Object<K>) -> Object<K> {
        object.label(LABEL, self.name())
    }

    /// The groups of the agents of the cluster.
    pub(crate) fn groups(&self) -> [String; 2] {
        let prefixes = [
            "system:open-cluster-management:",
            "open-cluster-management:",
        ];
        prefixes.map(|prefix| [prefix, self.name()].concat())
    }

    /// A binding of a role: the agents of the cluster get it.
    fn bound<K: Binds>(&self, binding: Object<K>, role: &str) -> Desired {
        let binding = binding.to_cluster_role(&[PREFIX, role].concat());
        let [certified, other] = self.groups();
        self.labelled(binding)
            .group(&certified)
            .group(&other)
            .whole()
    }
}
