//! How the managed cluster of a HostedCluster is called: one rule for every guest that needs the name.

use crate::kinds::Metadata;
use crate::{Agent, Primary, Problem, Reason};
use serde::Deserialize;

/// The path of the annotation that names the managed cluster; a guest that calls [`Naming::name`] declares it.
pub const ANNOTATION_PATH: &str =
    r#"metadata.annotations["cluster.open-cluster-management.io/managedcluster-name"]"#;

/// The path of the HostedCluster's own name.
pub const OWN_NAME_PATH: &str = "metadata.name";

/// The annotation of a HostedCluster that the guest `auto-import` imported: the name of its ManagedCluster.
pub const IMPORTED: &str = "import.open-cluster-management.io/auto-imported-as";

/// Its path.
pub const IMPORTED_PATH: &str =
    r#"metadata.annotations["import.open-cluster-management.io/auto-imported-as"]"#;

/// No managed cluster can have the name; a guest that calls [`Naming::name`] lists it.
pub const INVALID_TARGET_NAME: Reason = Reason {
    name: "InvalidTargetName",
    meaning: "No namespace `klusterlet-<managed cluster>` can have the name that follows from the hosted cluster.",
    remedy: "Name the managed cluster by the annotation cluster.open-cluster-management.io/managedcluster-name: at most 52 lower-case letters, digits and dashes.",
};

/// The hosting cluster has no name; a guest that calls [`hosting_cluster`] lists it.
pub const HOSTING_CLUSTER_UNKNOWN: Reason = Reason {
    name: "HostingClusterUnknown",
    meaning: "The agent does not know under which name the hub manages the cluster that hosts the control planes.",
    remedy: "Start the agent with --cluster-name, or set hostingCluster of the guest.",
};

/// Under which name the hub manages the cluster that hosts the control planes: that of the setting, else the agent's
/// own.
///
/// # Errors
/// [`HOSTING_CLUSTER_UNKNOWN`] if there is neither.
pub fn hosting_cluster<'a>(agent: &'a Agent, setting: Option<&'a str>) -> Result<&'a str, Problem> {
    let name = setting.unwrap_or(&agent.cluster_name);
    if name.is_empty() {
        let message = "neither the agent nor the settings name the hosting cluster";
        return Err(HOSTING_CLUSTER_UNKNOWN.problem(message));
    }
    Ok(name)
}

/// The name of the managed cluster; a setting.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Naming {
    /// Which name takes precedence if there are an annotation and a discovery name.
    pub precedence: Precedence,
    /// Whether an agent that does not work for the hub's own cluster uses the discovery name.
    pub discovery: bool,
    /// Prefix of the hosted cluster's name in a discovery name. The name of the agent's cluster when absent; no prefix
    /// when empty.
    pub prefix: Option<String>,
}

impl Default for Naming {
    fn default() -> Self {
        Self {
            precedence: Precedence::default(),
            discovery: true,
            prefix: None,
        }
    }
}

/// Which name takes precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Precedence {
    /// The annotation.
    #[default]
    Annotation,
    /// The discovery name, as in the existing agent.
    Discovery,
}

impl Naming {
    /// The name of the managed cluster.
    ///
    /// # Errors
    /// [`INVALID_TARGET_NAME`] if no namespace `klusterlet-<name>` can exist, with the field that the name comes from;
    /// or annotations of an unexpected type.
    pub fn name(&self, agent: &Agent, primary: &Primary) -> Result<String, Problem> {
        let (name, field) = self.unchecked(agent, primary)?;
        let namespace = ["klusterlet-", &name].concat();
        if is_label(&name) && is_label(&namespace) {
            return Ok(name);
        }
        let message = if namespace.len() > 63 {
            "a namespace `klusterlet-<name>` would be longer than 63 characters"
        } else {
            "not of lower-case letters, digits and dashes, with none of the dashes at an end"
        };
        Err(INVALID_TARGET_NAME.problem(message).at(field))
    }

    /// That of the annotation, the discovery name, or that of the HostedCluster, whether a managed cluster can have it
    /// or not; and the field that it comes from: [`ANNOTATION_PATH`] or [`OWN_NAME_PATH`]. By default the annotation
    /// takes precedence, because a person wrote it.
    ///
    /// # Errors
    /// Annotations of an unexpected type.
    pub fn unchecked(
        &self,
        agent: &Agent,
        primary: &Primary,
    ) -> Result<(String, &'static str), Problem> {
        let discovers = self.discovery && !agent.self_managed;
        Ok(match annotated_name(primary)? {
            Some(name) if !discovers || self.precedence == Precedence::Annotation => {
                (name, ANNOTATION_PATH)
            }
            _ if discovers => (self.discovery_name(agent, primary), OWN_NAME_PATH),
            _ => (primary.reference.name.clone(), OWN_NAME_PATH),
        })
    }

    /// Refuses a prefix that cannot be part of a name; `field` is the place of these settings.
    pub fn check(&self, field: &str) -> Option<Problem> {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        let refused = prefix.starts_with('-') || !prefix.bytes().all(is_label_byte);
        refused.then(|| {
            let field = [field, ".prefix"].concat();
            let why = "not of lower-case letters, digits and dashes, the first no dash";
            Problem::in_settings(&field, why)
        })
    }

    fn discovery_name(&self, agent: &Agent, primary: &Primary) -> String {
        let name = &primary.reference.name;
        match self.prefix.as_deref().unwrap_or(&agent.cluster_name) {
            "" => name.clone(),
            prefix => [prefix, "-", name].concat(),
        }
    }
}

/// Whether a text is a DNS name: up to 253 characters, parts with dots between them. A part may be longer than a label
/// here, as it may for Kubernetes.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Whether a text is one label of a DNS name: 1 to 63 of `[a-z0-9-]`, no dash at the ends.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

fn is_part(text: &str) -> bool {
    let is_dashed = text.starts_with('-') || text.ends_with('-');
    !text.is_empty() && !is_dashed && text.bytes().all(is_label_byte)
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// What is read of the HostedCluster.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Read {
    metadata: Metadata,
}

/// The annotation that names the managed cluster.
const ANNOTATION: &str = "cluster.open-cluster-management.io/managedcluster-name";

/// The name in the annotation; an empty one counts as absent.
///
/// # Errors
/// Annotations of an unexpected type.
pub fn annotated_name(primary: &Primary) -> Result<Option<String>, Problem> {
    if primary.fields == "{}" {
        return Ok(None);
    }
    let mut cluster: Read = primary.read()?;
    let name = cluster.metadata.annotations.remove(ANNOTATION);
    Ok(name.filter(|name| !name.is_empty()))
}

/// Checks the settings `hub`, a connection, and `hostingCluster`, a ManagedCluster.
pub fn check_places(hub: Option<&str>, hosting_cluster: Option<&str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if hub == Some("") {
        let why = "empty; leave it out for the connection of the HostedCluster";
        problems.push(Problem::in_settings("hub", why));
    }
    if hosting_cluster.is_some_and(|name| !is_label(name)) {
        let why = "not the name of a ManagedCluster: lower-case letters, digits and dashes";
        problems.push(Problem::in_settings("hostingCluster", why));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_label_has_at_most_63_characters() {
        assert!(is_label(&"a".repeat(63)));
        assert!(!is_label(&"a".repeat(64)));
        assert!(!is_label(""));
    }

    #[test]
    fn a_part_of_a_subdomain_may_be_longer_than_a_label() {
        assert!(is_subdomain(&"a".repeat(253)));
        assert!(is_subdomain(&["a", &"b".repeat(64)].join(".")));
        for refused in [&"a".repeat(254), "", "a..b", "-a.b", "a-.b", "A"] {
            assert!(!is_subdomain(refused), "{refused}");
        }
    }

    proptest! {
        /// For all names: a managed cluster has a name with which a namespace `klusterlet-…` can exist, or the name is
        /// refused with a field.
        #[test]
        fn a_managed_cluster_has_a_usable_name(
            name in "[a-z0-9.-]{1,60}|\\PC{0,20}",
            annotation in prop::option::of("[a-z0-9-]{0,60}|\\PC{0,20}"),
            prefix in prop::option::of("[a-z0-9-]{0,20}"),
            self_managed: bool,
            discovery: bool,
        ) {
            let naming = Naming { prefix, discovery, ..Naming::default() };
            let agent = Agent { cluster_name: "spoke".into(), self_managed };
            let mut primary = Primary { fields: "{}".into(), ..Primary::default() };
            if let Some(annotation) = &annotation {
                let text = annotation.replace('\\', r"\\").replace('"', r#"\""#);
                let key = "cluster.open-cluster-management.io/managedcluster-name";
                primary.fields = format!(r#"{{"metadata":{{"annotations":{{"{key}":"{text}"}}}}}}"#);
            }
            primary.reference.name.clone_from(&name);
            match naming.name(&agent, &primary) {
                Ok(managed) => {
                    prop_assert!(is_label(&managed) && is_label(&["klusterlet-", &managed].concat()));
                    match annotation.as_deref() {
                        None | Some("") => prop_assert!(managed.ends_with(&name)),
                        Some(annotation) => prop_assert_eq!(managed, annotation),
                    }
                }
                Err(problem) => {
                    prop_assert_eq!(problem.reason, "InvalidTargetName");
                    prop_assert!(problem.field.is_some());
                }
            }
        }
    }
}
