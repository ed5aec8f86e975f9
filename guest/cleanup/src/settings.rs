//! The settings of the guest `cleanup`: what is removed, and in which order.

use serde::Deserialize;
use transom_guest::Problem;

/// The most kinds.
const MOST: usize = 8;

/// The settings. By default add-ons go before works, as Open Cluster Management does it.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// The kinds, in their order.
    pub kinds: Vec<Kind>,
    /// With namespaces as primaries: for how long the ManagedCluster has to be gone before anything is removed.
    pub grace_seconds: u32,
}

/// Objects of one kind in the namespace of a cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Kind {
    /// Plural name of the kind; also the role under which the policy grants reading it.
    pub resource: String,
    /// Group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

impl Kind {
    fn new(resource: &str, api_version: &str, kind: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        let addons = "addon.open-cluster-management.io/v1alpha1";
        let works = "work.open-cluster-management.io/v1";
        Self {
            kinds: vec![
                Kind::new("managedclusteraddons", addons, "ManagedClusterAddOn"),
                Kind::new("manifestworks", works, "ManifestWork"),
            ],
            grace_seconds: 300,
        }
    }
}

impl Settings {
    /// Refuses a list that is empty, too long, or names a kind twice.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let wrong = |why: &str| vec![Problem::in_settings("kinds", why)];
        if self.kinds.is_empty() || self.kinds.len() > MOST {
            return wrong("does not name 1 to 8 kinds");
        }
        let twice = self.kinds.iter().enumerate().any(|(at, one)| {
            let others = self.kinds.iter().skip(at + 1);
            others
                .into_iter()
                .any(|other| other.resource == one.resource)
        });
        match twice {
            true => wrong("names a resource twice"),
            false => Vec::new(),
        }
    }
}
