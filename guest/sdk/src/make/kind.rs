//! The kinds that have builders, as types, so that the compiler refuses rules on a namespace.

use crate::kinds::{self, Kind};

/// A kind whose name is known.
pub trait Typed {
    /// Its name.
    const KIND: Kind;
}

/// A kind whose objects have rules.
pub trait Grants {}

/// A kind whose objects give a role to subjects.
pub trait Binds {}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $kind:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {}

        impl Typed for $name {
            const KIND: Kind = kinds::$kind;
        }
    )*};
}

kinds! {
    /// Namespaces.
    Namespace: NAMESPACE;
    /// Roles of the whole cluster.
    ClusterRole: CLUSTER_ROLE;
    /// Roles in a namespace.
    Role: ROLE;
    /// Bindings of roles in the whole cluster.
    ClusterRoleBinding: CLUSTER_ROLE_BINDING;
    /// Bindings of roles in a namespace.
    RoleBinding: ROLE_BINDING;
    /// Managed clusters of a hub.
    ManagedCluster: MANAGED_CLUSTER;
}

impl Grants for ClusterRole {}
impl Grants for Role {}
impl Binds for ClusterRoleBinding {}
impl Binds for RoleBinding {}

/// Any other kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Any {}
