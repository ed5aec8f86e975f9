//! Names one object on one connection.

pub mod dns;

use crate::redact::visible::visible;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The connection of a reference that names none.
pub const LOCAL: &str = "local";

/// Names one object. Ordered by cluster, kind, namespace and name, so that lists of them are stable.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Name of the connection.
    pub cluster: String,
    /// Group and version, `v1` for the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Absent for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// A reference on the local cluster.
    pub fn local(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            cluster: LOCAL.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// The group without the version, empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }
}

/// `Secret klusterlet-demo/external-managed-kubeconfig`, with the cluster in front unless it is `local`. For people:
/// invisible letters are escaped.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cluster != LOCAL {
            write!(f, "{}: ", visible(&self.cluster))?;
        }
        write!(f, "{} ", visible(&self.kind))?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{}/", visible(namespace))?;
        }
        f.write_str(&visible(&self.name))
    }
}
