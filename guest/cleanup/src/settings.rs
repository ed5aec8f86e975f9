//! The settings of the guest `cleanup`: what is removed, and in which order.

use serde::Deserialize;
use transom_guest::Problem;
use transom_guest::kinds::{is_label_key, is_label_value};

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
    /// Refuses a list that is empty, too long, or names a kind twice, and texts that name no kind.
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
        if twice {
            return wrong("names a resource twice");
        }
        let texts = self.kinds.iter().enumerate().flat_map(|(at, kind)| {
            [
                (at, "resource", is_lower_name(&kind.resource)),
                (at, "apiVersion", is_api_version(&kind.api_version)),
                (at, "kind", is_name(&kind.kind)),
            ]
        });
        let wrong = texts.filter(|(_, _, fits)| !fits);
        let problem = |(at, field, _): (usize, &str, bool)| {
            let field = ["kinds[", &at.to_string(), "].", field].concat();
            Problem::in_settings(&field, "is not one that a kind can have")
        };
        wrong.map(problem).collect()
    }
}

/// Whether a text can be the name of a kind: letters, digits and dashes, a letter first.
fn is_name(text: &str) -> bool {
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphabetic());
    starts && is_label_value(text) && !text.contains(['_', '.'])
}

/// The same without capitals, for the plural name and for a version.
fn is_lower_name(text: &str) -> bool {
    is_name(text) && !text.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Whether a text is a version, or a group, a slash and a version. The key of a label has the same form.
fn is_api_version(text: &str) -> bool {
    let version = text.split_once('/').map_or(text, |(_, version)| version);
    is_label_key(text) && is_lower_name(version)
}
