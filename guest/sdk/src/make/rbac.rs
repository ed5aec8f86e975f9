//! What roles and bindings say.

use super::kind::{Binds, Grants};
use super::{Object, RoleBinding};
use serde_json::{Value as Json, json};

/// The group of roles and bindings.
pub const RBAC: &str = "rbac.authorization.k8s.io";

/// One rule of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule(Json);

impl Rule {
    /// What may be done with resources of these groups.
    pub fn new(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Self {
        Self(json!({"apiGroups": groups, "resources": resources, "verbs": verbs}))
    }

    /// The same with objects of these names alone.
    #[must_use]
    pub fn named(mut self, names: &[&str]) -> Self {
        self.0["resourceNames"] = json!(names);
        self
    }
}

impl<K: Grants> Object<K> {
    /// With these rules, and no others.
    #[must_use]
    pub fn rules(self, rules: impl IntoIterator<Item = Rule>) -> Self {
        let rules = rules.into_iter().map(|rule| rule.0);
        self.field(&["rules"], rules.collect())
    }
}

impl<K: Binds> Object<K> {
    /// Of a role of the whole cluster.
    #[must_use]
    pub fn to_cluster_role(self, name: &str) -> Self {
        self.to("ClusterRole", name)
    }

    /// With this group among the subjects.
    #[must_use]
    pub fn group(self, name: &str) -> Self {
        self.subject(json!({"apiGroup": RBAC, "kind": "Group", "name": name}))
    }

    /// With this user among the subjects.
    #[must_use]
    pub fn user(self, name: &str) -> Self {
        self.subject(json!({"apiGroup": RBAC, "kind": "User", "name": name}))
    }

    /// With this service account among the subjects.
    #[must_use]
    pub fn service_account(self, namespace: &str, name: &str) -> Self {
        self.subject(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}))
    }

    fn to(self, kind: &str, name: &str) -> Self {
        let role = json!({"apiGroup": RBAC, "kind": kind, "name": name});
        self.field(&["roleRef"], role)
    }

    fn subject(mut self, subject: Json) -> Self {
        match &mut self.content["subjects"] {
            Json::Array(subjects) => subjects.push(subject),
            none => *none = json!([subject]),
        }
        self
    }
}

impl RoleBinding {
    /// Of a role in the same namespace.
    #[must_use]
    pub fn to_role(self, name: &str) -> Self {
        self.to("Role", name)
    }
}
