//! The kinds that policies use most: how a guest names their objects, what it reads of them, and what it makes of them.
//! [`Kind`] names any other kind.

mod clusters;
mod selector;

pub use clusters::{
    Claim, ClusterSelector, ClusterSet, ClusterSetSpec, ManagedCluster, ManagedClusterSpec,
    ManagedClusterStatus, ManagedNamespace, Members, SET_LABEL,
};
pub use selector::{Expression, LabelSelector, is_label_key, is_label_value};

use crate::{ObjectPattern, ObjectRef, Primary, Read};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A kind, with its group and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Group and version: `apps/v1`.
    pub api_version: &'static str,
    /// Kind: `Deployment`.
    pub kind: &'static str,
}

/// Namespaces.
pub const NAMESPACE: Kind = Kind::new("v1", "Namespace");
/// Leases.
pub const LEASE: Kind = Kind::new("coordination.k8s.io/v1", "Lease");
/// Requests for certificates.
pub const CERTIFICATE_REQUEST: Kind =
    Kind::new("certificates.k8s.io/v1", "CertificateSigningRequest");
/// Roles of the whole cluster.
pub const CLUSTER_ROLE: Kind = Kind::new("rbac.authorization.k8s.io/v1", "ClusterRole");
/// Roles in a namespace.
pub const ROLE: Kind = Kind::new("rbac.authorization.k8s.io/v1", "Role");
/// Bindings of roles in the whole cluster.
pub const CLUSTER_ROLE_BINDING: Kind =
    Kind::new("rbac.authorization.k8s.io/v1", "ClusterRoleBinding");
/// Bindings of roles in a namespace.
pub const ROLE_BINDING: Kind = Kind::new("rbac.authorization.k8s.io/v1", "RoleBinding");
/// Secrets.
pub const SECRET: Kind = Kind::new("v1", "Secret");
/// Clusters whose control planes are hosted.
pub const HOSTED_CLUSTER: Kind = Kind::new("hypershift.openshift.io/v1beta1", "HostedCluster");
/// Managed clusters of a hub.
pub const MANAGED_CLUSTER: Kind =
    Kind::new("cluster.open-cluster-management.io/v1", "ManagedCluster");
/// Add-ons of a managed cluster.
pub const ADD_ON: Kind = Kind::new(
    "addon.open-cluster-management.io/v1alpha1",
    "ManagedClusterAddOn",
);
/// What a work agent applies to its managed cluster.
pub const MANIFEST_WORK: Kind = Kind::new("work.open-cluster-management.io/v1", "ManifestWork");
/// Sets of managed clusters.
pub const CLUSTER_SET: Kind = Kind::new(
    "cluster.open-cluster-management.io/v1beta2",
    "ManagedClusterSet",
);
/// Namespaces that may use a set.
pub const CLUSTER_SET_BINDING: Kind = Kind::new(
    "cluster.open-cluster-management.io/v1beta2",
    "ManagedClusterSetBinding",
);

impl Kind {
    /// A kind.
    pub const fn new(api_version: &'static str, kind: &'static str) -> Self {
        Self { api_version, kind }
    }

    /// An object of the cluster in which the primary is.
    pub fn beside(self, primary: &Primary, name: impl Into<String>) -> ObjectRef {
        self.at(&primary.reference.cluster, name)
    }

    /// An object of a cluster, by the name of its connection.
    pub fn at(self, cluster: &str, name: impl Into<String>) -> ObjectRef {
        ObjectRef::new(cluster, self.api_version, self.kind, name)
    }

    /// All of them in that cluster, for [`Need::every`](crate::objects::Need::every) and
    /// [`Need::count`](crate::objects::Need::count).
    pub fn all(self, primary: &Primary) -> ObjectRef {
        self.beside(primary, "")
    }

    /// Whether an object is of this kind.
    pub fn is_of(self, object: &ObjectRef) -> bool {
        (object.api_version.as_str(), object.kind.as_str()) == (self.api_version, self.kind)
    }

    /// The fields that a guest reads of it.
    pub const fn read(self, fields: &'static [&'static str]) -> Read {
        Read {
            api_version: self.api_version,
            kind: self.kind,
            fields,
            changes: &[],
        }
    }

    /// Objects that are cluster-scoped, for a grant.
    pub const fn named(self, name: &'static str) -> ObjectPattern {
        ObjectPattern {
            api_version: self.api_version,
            kind: self.kind,
            namespace: None,
            name,
        }
    }

    /// Objects in namespaces, for a grant.
    pub const fn within(self, namespace: &'static str, name: &'static str) -> ObjectPattern {
        ObjectPattern {
            namespace: Some(namespace),
            ..self.named(name)
        }
    }
}

/// What a guest reads of the metadata of an object; what it does not declare is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Since when it is being deleted.
    pub deletion_timestamp: Option<String>,
    /// What keeps it while it is being deleted.
    pub finalizers: Vec<String>,
}

/// The annotation of an object that a policy made: the primary that it was made for.
pub const SOURCE: &str = "transom.dev/source";
/// Its path.
pub const SOURCE_PATH: &str = r#"metadata.annotations["transom.dev/source"]"#;

/// What labels an object that a policy made bears beside that annotation.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "transom");
const POLICY: &str = "transom.dev/policy";
/// The paths of these marks, for [`Metadata::is_stamped`].
pub const STAMP_PATHS: [&str; 3] = [
    r#"metadata.labels["app.kubernetes.io/managed-by"]"#,
    r#"metadata.labels["transom.dev/policy"]"#,
    SOURCE_PATH,
];

/// The primary in that annotation.
#[derive(Deserialize)]
struct Source {
    kind: String,
    #[serde(default)]
    namespace: String,
    name: String,
    #[serde(default)]
    uid: String,
}

impl Metadata {
    /// Whether a policy made the object for a primary; `None` if none made it for one of its kind. A guest that asks
    /// declares [`SOURCE_PATH`].
    pub fn is_made_for(&self, primary: &Primary) -> Option<bool> {
        let source: Source = serde_json::from_str(self.annotations.get(SOURCE)?).ok()?;
        let ObjectRef {
            kind,
            namespace,
            name,
            ..
        } = &primary.reference;
        let named = (Some(&source.namespace), &source.name) == (namespace.as_ref(), name);
        let same = named || !source.uid.is_empty() && source.uid == primary.uid;
        (source.kind == *kind).then_some(same)
    }

    /// Whether it bears all marks of an object that a policy made. Whoever may write the object may have forged them.
    /// The agent removes such an object only where the grant selects its policy. A guest that asks declares
    /// [`STAMP_PATHS`].
    pub fn is_stamped(&self) -> bool {
        let (label, us) = MANAGED_BY;
        let is_managed = self.labels.get(label).is_some_and(|by| by == us);
        is_managed && self.labels.contains_key(POLICY) && self.annotations.contains_key(SOURCE)
    }
}

/// What a guest reads of a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObservedCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// Since when.
    pub last_transition_time: String,
}

impl ObservedCondition {
    /// The condition of a type.
    pub fn find<'a>(conditions: &'a [Self], kind: &str) -> Option<&'a Self> {
        conditions.iter().find(|one| one.kind == kind)
    }
}
