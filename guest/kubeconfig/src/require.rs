//! The needs for the kubeconfig of a HostedCluster, and its target: a namespace that is named after the managed cluster.

use crate::reasons;
use crate::settings::{Naming, Precedence, Settings, is_label};
use serde::Deserialize;
use transom_guest::kubeconfig::{Absence, Form, Need, Requirement};
use transom_guest::{Agent, Context, ObjectRef, Primary, Problem};

/// The path of the annotation that names the managed cluster.
pub(crate) const ANNOTATION_PATH: &str =
    r#"metadata.annotations["cluster.open-cluster-management.io/managedcluster-name"]"#;
/// Role of the admin kubeconfig.
pub(crate) const SOURCE: &str = "source";
/// Role of the Service in front of the API server.
pub(crate) const SERVICE: &str = "service";
/// Role of the namespace of the target.
pub(crate) const HOME: &str = "home";

/// Target and needs. They depend only on the primary, so one round is enough.
pub(crate) fn require(
    context: &Context<Settings>,
    primary: &Primary,
) -> Result<Requirement, Problem> {
    let hosted = &primary.reference;
    let Some(namespace) = hosted.namespace.as_deref() else {
        return Err(reasons::PRIMARY_WITHOUT_NAMESPACE
            .problem("the hosted cluster names no namespace")
            .at("metadata.namespace"));
    };
    let home = target_namespace(&context.settings.naming, &context.agent, primary)?;
    let core = |kind, name: String| ObjectRef::new(&hosted.cluster, "v1", kind, name);
    // HyperShift's own rule for the namespace of a control plane.
    let control_plane = [namespace, "-", &hosted.name.replace('.', "-")].concat();
    let needs = vec![
        // First, so that a target without its namespace waits and does not fail, even if other inputs are missing.
        Need {
            role: HOME.into(),
            reference: core("Namespace", home.clone()),
            form: Form::Presence,
            absence: Absence::Wait(reasons::NAMESPACE_MISSING.name.into()),
        },
        Need {
            role: SOURCE.into(),
            reference: core("Secret", [&hosted.name, "-admin-kubeconfig"].concat())
                .in_namespace(namespace),
            form: Form::Kubeconfig("kubeconfig".into()),
            absence: Absence::Fail(reasons::SOURCE_MISSING.name.into()),
        },
        Need {
            role: SERVICE.into(),
            reference: core("Service", "kube-apiserver".into()).in_namespace(control_plane),
            form: Form::Service,
            absence: Absence::Fail(reasons::SERVICE_MISSING.name.into()),
        },
    ];
    Ok(Requirement {
        target: core("Secret", "external-managed-kubeconfig".into()).in_namespace(home),
        needs,
    })
}

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
/// The name is that of the annotation, the discovery name, or that of the HostedCluster. By default the annotation
/// takes precedence, because a person wrote it.
fn target_namespace(naming: &Naming, agent: &Agent, primary: &Primary) -> Result<String, Problem> {
    let annotated = annotated_name(primary)?;
    let discovers = naming.discovery && !agent.self_managed;
    let (name, field) = match annotated {
        Some(name) if !discovers || naming.precedence == Precedence::Annotation => {
            (name, ANNOTATION_PATH)
        }
        _ if discovers => (discovery_name(naming, agent, primary), "metadata.name"),
        _ => (primary.reference.name.clone(), "metadata.name"),
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

/// The value of the annotation; an empty one counts as absent.
fn annotated_name(primary: &Primary) -> Result<Option<String>, Problem> {
    if primary.fields == "{}" {
        return Ok(None);
    }
    let cluster: HostedCluster = primary.read()?;
    Ok(cluster
        .metadata
        .annotations
        .name
        .filter(|name| !name.is_empty()))
}

fn discovery_name(naming: &Naming, agent: &Agent, primary: &Primary) -> String {
    let name = &primary.reference.name;
    match naming.prefix.as_deref().unwrap_or(&agent.cluster_name) {
        "" => name.clone(),
        prefix => [prefix, "-", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// For all names: a target is in a namespace `klusterlet-…` that can exist, or the guest refuses it and names a
        /// field.
        #[test]
        fn the_namespace_of_a_target_has_a_valid_name(
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
            match target_namespace(&naming, &agent, &primary) {
                Ok(namespace) => {
                    prop_assert!(is_label(&namespace));
                    let managed = namespace.strip_prefix("klusterlet-").unwrap_or_default();
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
