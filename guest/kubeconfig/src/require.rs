//! The needs for the kubeconfig of a HostedCluster, and its target: a namespace that is named after the managed
//! cluster.

use crate::reasons;
use crate::settings::Settings;
use transom_guest::kubeconfig::{Absence, Form, Need, Requirement};
use transom_guest::{Context, ObjectRef, Primary, Problem};

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
    let managed = context.settings.naming.name(&context.agent, primary)?;
    let home = ["klusterlet-", &managed].concat();
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
