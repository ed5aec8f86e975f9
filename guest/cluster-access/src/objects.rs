//! The objects of a cluster, and what they say.

use crate::decide::Decided;
use crate::rules;
use serde_json::{Value as Json, json};
use transom_guest::kinds::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind, NAMESPACE, ROLE_BINDING};
use transom_guest::{ObjectRef, Primary};

/// What the names of all roles and bindings begin with.
const PREFIX: &str = "open-cluster-management:managedcluster:";
/// The group of roles and bindings.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";
/// The label that names the cluster of an object.
pub(crate) const LABEL: &str = "open-cluster-management.io/cluster-name";

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

    /// The namespace of the cluster.
    pub(crate) fn namespace(&self) -> ObjectRef {
        NAMESPACE.beside(self.primary, self.name())
    }

    /// Those that are made beside the namespace, in order, each with what it says. Of a cluster that is being deleted only the
    /// work agent keeps its rights, until it has cleaned up.
    pub(crate) fn made(
        &self,
        decided: Decided,
        works: bool,
        may_renew: bool,
    ) -> Vec<(ObjectRef, Json)> {
        let name = self.name();
        let (accepted, rules) = match decided {
            Decided::Nothing => return Vec::new(),
            Decided::Leaving => (false, None),
            Decided::Accepted => (true, Some(rules::of_accepted(name))),
            Decided::Denied => (false, Some(rules::of_denied(name, may_renew))),
        };
        let mut all = Vec::new();
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

    /// Those of the cluster alone that are not made, in the order in which they go: also those that were there before this
    /// policy.
    pub(crate) fn left_out(&self, decided: Decided, works: bool) -> Vec<ObjectRef> {
        let (name, mut all) = (self.name(), Vec::new());
        if decided == Decided::Leaving {
            all.push(self.rbac(CLUSTER_ROLE_BINDING, name));
            all.push(self.rbac(CLUSTER_ROLE, name));
        }
        if matches!(decided, Decided::Denied | Decided::Leaving) {
            all.push(self.binding("registration"));
            all.extend((!works).then(|| self.binding("work")));
        }
        all
    }

    /// A content with the name of the cluster as a label.
    pub(crate) fn labelled(&self, mut content: Json) -> Json {
        content["metadata"] = json!({"labels": {LABEL: self.name()}});
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
