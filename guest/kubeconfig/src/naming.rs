//! How the managed cluster of a HostedCluster is named, and with it the namespace of the target.
//! Never looks at the managed cluster itself.

use crate::reasons;
use crate::settings::{Naming, Precedence, is_label};
use serde::Deserialize;
use transom_guest::{Agent, Problem, Subject};

/// The path of the annotation that names the managed cluster.
pub(crate) const ANNOTATION_PATH: &str =
    r#"metadata.annotations["cluster.open-cluster-management.io/managedcluster-name"]"#;

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostedCluster {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "cluster.open-cluster-management.io/managedcluster-name")]
    name: Option<String>,
}

/// The namespace `klusterlet-<managed cluster>`.
///
/// The name is that of the annotation, the discovery name, or that of the HostedCluster. Without a setting the
/// annotation wins, because a person wrote it.
pub(crate) fn target_namespace(naming: &Naming, agent: &Agent, subject: &Subject) -> Result<String, Problem> {
    let annotated = annotated_name(subject)?;
    let discovers = naming.discovery && !agent.self_managed;
    let (name, field) = match annotated {
        Some(name) if !discovers || naming.precedence == Precedence::Annotation => (name, ANNOTATION_PATH),
        _ if discovers => (discovery_name(naming, agent, subject), "metadata.name"),
        _ => (subject.reference.name.clone(), "metadata.name"),
    };
    let namespace = ["klusterlet-", &name].concat();
    if is_label(&namespace) {
        return Ok(namespace);
    }
    let message = if namespace.len() > 63 {
        "a namespace `klusterlet-<name>` would be longer than 63 characters"
    } else {
        "only lower-case letters, digits and dashes can stand in a namespace `klusterlet-<name>`"
    };
    Err(reasons::INVALID_TARGET_NAME.problem(message).at(field))
}

/// What the annotation says; an empty one counts as none.
fn annotated_name(subject: &Subject) -> Result<Option<String>, Problem> {
    if subject.fields == "{}" {
        return Ok(None);
    }
    let cluster: HostedCluster = subject.read()?;
    Ok(cluster.metadata.annotations.name.filter(|name| !name.is_empty()))
}

fn discovery_name(naming: &Naming, agent: &Agent, subject: &Subject) -> String {
    let name = &subject.reference.name;
    match naming.prefix.as_deref().unwrap_or(&agent.cluster_name) {
        "" => name.clone(),
        prefix => [prefix, "-", name].concat(),
    }
}
