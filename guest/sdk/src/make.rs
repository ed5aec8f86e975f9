//! What a guest makes: builders for the kinds that policies make most, and [`object!`](crate::object) for any other.
//! One value names an object and says what is in it; it ends as a [`Desired`] of an answer.
//!
//! ```
//! use transom_guest::make::{ClusterRole, ClusterRoleBinding, Namespace, Rule};
//! use transom_guest::objects::Answer;
//! # let primary = &transom_guest::Primary::default();
//!
//! let namespace = Namespace::beside(primary, "c1").label("example.com/cluster", "c1");
//! let reads = Rule::new(&["example.com"], &["cards"], &["get", "list"]);
//! let role = ClusterRole::beside(primary, "cards").rules([reads]);
//! let binding = ClusterRoleBinding::beside(primary, "c1:cards")
//!     .to_cluster_role("cards")
//!     .group("agents:c1");
//! let answer = Answer::from_iter([namespace.whole(), role.whole(), binding.whole()]);
//! assert_eq!(answer.apply[0].content, r#"{"metadata":{"labels":{"example.com/cluster":"c1"}}}"#);
//! ```

pub mod kind;
mod rbac;

pub use rbac::{RBAC, Rule};
#[doc(hidden)]
pub use serde_json::json;

use crate::objects::Desired;
use crate::{ObjectRef, Primary};
use kind::Typed;
use serde_json::{Map, Value as Json};
use std::marker::PhantomData;

/// A namespace.
pub type Namespace = Object<kind::Namespace>;
/// A role of the whole cluster.
pub type ClusterRole = Object<kind::ClusterRole>;
/// A role in a namespace.
pub type Role = Object<kind::Role>;
/// A binding of a role in the whole cluster.
pub type ClusterRoleBinding = Object<kind::ClusterRoleBinding>;
/// A binding of a role in a namespace.
pub type RoleBinding = Object<kind::RoleBinding>;
/// A managed cluster of a hub.
pub type ManagedCluster = Object<kind::ManagedCluster>;

/// An object of a kind as a guest wants it: [`whole`](Self::whole), or only [these fields](Self::fields) of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<K = kind::Any> {
    reference: ObjectRef,
    content: Json,
    kind: PhantomData<K>,
}

impl<K: Typed> Object<K> {
    /// One in the cluster in which the primary is.
    pub fn beside(primary: &Primary, name: impl Into<String>) -> Self {
        Self::of(&K::KIND.beside(primary, name))
    }

    /// One in a cluster, by the name of its connection.
    pub fn at(cluster: &str, name: impl Into<String>) -> Self {
        Self::of(&K::KIND.at(cluster, name))
    }
}

impl<K> Object<K> {
    /// This object, which says nothing yet.
    pub fn of(reference: &ObjectRef) -> Self {
        Self::with(reference, Json::Object(Map::new()))
    }

    /// This object with a content; [`object!`](crate::object) writes both.
    pub fn with(reference: &ObjectRef, content: Json) -> Self {
        Self {
            reference: reference.clone(),
            content,
            kind: PhantomData,
        }
    }

    /// The same in a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.reference = self.reference.in_namespace(namespace);
        self
    }

    /// With a label.
    #[must_use]
    pub fn label(self, key: &str, value: impl Into<String>) -> Self {
        self.field(&["metadata", "labels", key], Json::String(value.into()))
    }

    /// With all of these labels.
    #[must_use]
    pub fn labels<T: AsRef<str>, V: Into<String>>(
        self,
        labels: impl IntoIterator<Item = (T, V)>,
    ) -> Self {
        let labels = labels.into_iter();
        labels.fold(self, |object, (key, value)| {
            object.label(key.as_ref(), value)
        })
    }

    /// With an annotation.
    #[must_use]
    pub fn annotation(self, key: &str, value: impl Into<String>) -> Self {
        let value = Json::String(value.into());
        self.field(&["metadata", "annotations", key], value)
    }

    /// With a value at a place; what is above it becomes a map.
    fn field(mut self, path: &[&str], value: Json) -> Self {
        put(&mut self.content, path, value);
        self
    }

    /// Which object it is: a target of `require`.
    pub fn reference(&self) -> &ObjectRef {
        &self.reference
    }

    /// As a whole object that the policy makes.
    pub fn whole(self) -> Desired {
        Desired::whole(&self.reference, &self.content)
    }

    /// As fields of the primary, or of an object that others made; what it does not say stays.
    pub fn fields(self) -> Desired {
        Desired::fields(&self.reference, &self.content)
    }
}

impl ManagedCluster {
    /// Whether the hub accepts it; `None` leaves that out.
    #[must_use]
    pub fn accepts(self, accepts: impl Into<Option<bool>>) -> Self {
        self.of_spec("hubAcceptsClient", accepts.into())
    }

    /// How often its agent beats, in seconds; `None` leaves that out.
    #[must_use]
    pub fn lease_seconds(self, seconds: impl Into<Option<i64>>) -> Self {
        self.of_spec("leaseDurationSeconds", seconds.into())
    }

    fn of_spec(self, key: &str, value: Option<impl Into<Json>>) -> Self {
        match value {
            Some(value) => self.field(&["spec", key], value.into()),
            None => self,
        }
    }
}

fn put(content: &mut Json, path: &[&str], value: Json) {
    let mut place = content;
    for key in path {
        if !place.is_object() {
            *place = Json::Object(Map::new());
        }
        place = &mut place[*key];
    }
    *place = value;
}

/// An object of any kind: its reference, and what it says as JSON.
///
/// ```
/// use transom_guest::kinds::Kind;
/// use transom_guest::object;
/// # let primary = &transom_guest::Primary::default();
///
/// const CONFIG_MAP: Kind = Kind::new("v1", "ConfigMap");
/// let reference = CONFIG_MAP.beside(primary, "card").in_namespace("c1");
/// let card = object!(&reference, {"data": {"cluster": "c1"}}).label("example.com/card", "c1");
/// assert_eq!(
///     card.whole().content,
///     r#"{"data":{"cluster":"c1"},"metadata":{"labels":{"example.com/card":"c1"}}}"#
/// );
/// ```
#[macro_export]
macro_rules! object {
    ($reference:expr, { $($content:tt)* }) => {
        $crate::make::Object::<$crate::make::kind::Any>::with(
            $reference,
            $crate::make::json!({ $($content)* }),
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Ownership;

    fn content(desired: &Desired) -> Json {
        serde_json::from_str(&desired.content).unwrap()
    }

    #[test]
    fn an_object_says_what_it_was_given_and_nothing_else() {
        let cluster = ManagedCluster::at("hub", "c1");
        assert_eq!(cluster.reference().cluster, "hub");
        let empty = cluster.clone().accepts(None).whole();
        assert_eq!((empty.ownership, &*empty.content), (Ownership::Whole, "{}"));
        let labels = std::collections::BTreeMap::from([("b", "2"), ("a", "1")]);
        let fields = cluster
            .labels(labels)
            .annotation("d/e", "x")
            .accepts(true)
            .lease_seconds(Some(60))
            .fields();
        assert_eq!(fields.ownership, Ownership::Fields);
        assert_eq!(
            content(&fields),
            json!({
                "metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"d/e": "x"}},
                "spec": {"hubAcceptsClient": true, "leaseDurationSeconds": 60},
            })
        );
    }

    #[test]
    fn roles_and_bindings_say_what_the_api_server_keeps() {
        let primary = Primary::default();
        let rule = Rule::new(&["", "apps"], &["pods"], &["get"]).named(&["p"]);
        let role = Role::beside(&primary, "r").in_namespace("n").rules([rule]);
        assert_eq!(role.reference().namespace.as_deref(), Some("n"));
        let rules = json!([{"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["p"]}]);
        assert_eq!(content(&role.whole()), json!({"rules": rules}));
        assert_eq!(
            content(&ClusterRole::beside(&primary, "r").rules([]).whole()),
            json!({"rules": []})
        );
        let binding = RoleBinding::beside(&primary, "b").to_role("r");
        let binding = binding.group("g").user("u").service_account("n", "s");
        assert_eq!(
            content(&binding.whole()),
            json!({
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"},
                "subjects": [
                    {"apiGroup": RBAC, "kind": "Group", "name": "g"},
                    {"apiGroup": RBAC, "kind": "User", "name": "u"},
                    {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
                ],
            })
        );
    }

    #[test]
    fn a_label_takes_the_place_of_what_is_no_map() {
        let reference = ObjectRef::new("local", "v1", "ConfigMap", "c");
        let object = object!(&reference, {"metadata": null}).label("a", "b");
        assert_eq!(
            content(&object.fields()),
            json!({"metadata": {"labels": {"a": "b"}}})
        );
    }
}
