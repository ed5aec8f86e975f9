//! Decides which secrets of a HostedCluster are copied, and under which names. Pure functions.

use crate::reasons;
use crate::settings::Settings;
use serde::Deserialize;
use transom_guest::kinds::HOSTED_CLUSTER;
use transom_guest::naming::{
    ANNOTATION_PATH, OWN_NAME_PATH, annotated_name, hosting_cluster, is_subdomain,
};
use transom_guest::objects::{Absence, Answer, Input, Need, Requirement, found};
use transom_guest::{Context, Failure, ObjectRef, Primary, Problem, Read, make, object};

/// Role of the namespace on the hub.
pub(crate) const NAMESPACE: &str = "namespace";
/// The admin kubeconfig.
pub(crate) const KUBECONFIG: Kind = Kind {
    role: "kubeconfig",
    suffix: "admin-kubeconfig",
    key: "kubeconfig",
};
/// The password of kubeadmin.
pub(crate) const PASSWORD: Kind = Kind {
    role: "password",
    suffix: "kubeadmin-password",
    key: "password",
};
/// What is read of the HostedCluster.
pub(crate) const READ: Read =
    HOSTED_CLUSTER.read(&[ANNOTATION_PATH, "status.kubeadminPassword.name"]);

/// A kind of secret that HyperShift makes for each HostedCluster, with one key.
pub(crate) struct Kind {
    /// The role of the secret.
    pub(crate) role: &'static str,
    /// What its name ends with, after a dash; that of the copy as well.
    suffix: &'static str,
    /// The key of its data.
    key: &'static str,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Hosted {
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    kubeadmin_password: Password,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Password {
    name: String,
}

/// One secret to copy.
struct Copy {
    kind: Kind,
    source: ObjectRef,
    copy: ObjectRef,
}

/// All copies of a HostedCluster.
struct Copies {
    namespace: ObjectRef,
    /// The name of the managed cluster.
    name: String,
    /// Those that are wanted now.
    wanted: Vec<Copy>,
}

impl Copies {
    fn of(context: &Context<Settings>, primary: &Primary) -> Result<Self, Problem> {
        let settings = &context.settings;
        let hosted: Hosted = primary.read()?;
        let (name, field) = named(primary)?;
        let hub = settings.hub.as_deref();
        let hub = hub.unwrap_or(&primary.reference.cluster);
        let hosting = hosting_cluster(&context.agent, context.settings.hosting_cluster.as_deref())?;
        let secret = |cluster: &str, namespace: &str, name: String| {
            ObjectRef::new(cluster, "v1", "Secret", name).in_namespace(namespace)
        };
        let of_kind = |kind: Kind| {
            let reference = &primary.reference;
            let namespace = reference.namespace.as_deref().unwrap_or_default();
            let source = [&reference.name, "-", kind.suffix].concat();
            let copy = [&name, "-", kind.suffix].concat();
            Copy {
                source: secret(&reference.cluster, namespace, source),
                copy: secret(hub, hosting, copy),
                kind,
            }
        };
        let mut copies = Self {
            namespace: ObjectRef::new(hub, "v1", "Namespace", hosting),
            wanted: Vec::new(),
            name: name.clone(),
        };
        let has_password = !hosted.status.kubeadmin_password.name.is_empty();
        for (kind, wanted) in [
            (KUBECONFIG, settings.admin_kubeconfig),
            (PASSWORD, settings.kubeadmin_password && has_password),
        ] {
            copies.wanted.extend(wanted.then(|| of_kind(kind)));
        }
        if copies.wanted.iter().any(|one| one.source == one.copy) {
            let message = "the copies would be the secrets that they are copied from";
            return Err(reasons::INVALID_COPY_NAME.problem(message).at(field));
        }
        Ok(copies)
    }
}

/// The name with which those of the copies begin, and the field that gives it.
fn named(primary: &Primary) -> Result<(String, &'static str), Problem> {
    // The discovery name is not used: whoever looks for a copy knows the HostedCluster.
    let (name, field) = match annotated_name(primary)? {
        Some(name) => (name, ANNOTATION_PATH),
        None => (primary.reference.name.clone(), OWN_NAME_PATH),
    };
    let own = &primary.reference.name;
    if own.len() > 63 {
        let message = "longer than 63 characters: no label of a copy can hold it";
        return Err(reasons::INVALID_COPY_NAME
            .problem(message)
            .at(OWN_NAME_PATH));
    }
    // The grant fills in the name only if it is a DNS name by itself.
    if !is_subdomain(&name) || !is_subdomain(&[&name, "-", PASSWORD.suffix].concat()) {
        let message = "no Secret can have the name of a copy, which begins with this one";
        return Err(reasons::INVALID_COPY_NAME.problem(message).at(field));
    }
    Ok((name, field))
}

/// The namespace, and each secret to copy. While one of them is missing, everything stays as it is.
pub(crate) fn require(
    context: &Context<Settings>,
    primary: &Primary,
) -> Result<Requirement, Problem> {
    let Copies {
        namespace, wanted, ..
    } = Copies::of(context, primary)?;
    let missing = Absence::Wait(reasons::HUB_NAMESPACE_MISSING.name.into());
    let mut needs = vec![Need::presence(NAMESPACE, namespace).or(missing)];
    let mut targets = Vec::new();
    for Copy { kind, source, copy } in wanted {
        let missing = Absence::Wait(reasons::SECRET_MISSING.name.into());
        needs.push(Need::secret(kind.role, source, &[kind.key]).or(missing));
        targets.push(copy);
    }
    Ok(Requirement { targets, needs })
}

/// The copies, with the labels by which others find them.
pub(crate) fn reconcile(
    context: &Context<Settings>,
    primary: &Primary,
    inputs: &[Input],
) -> Result<Answer, Failure> {
    let Copies { name, wanted, .. } = Copies::of(context, primary).map_err(Failure::Invalid)?;
    let one = |Copy { kind, source, copy }: Copy| {
        let bytes = found(inputs, kind.role).bytes(kind.key);
        let bytes = bytes.ok_or_else(|| {
            let message = format!("the Secret {} has no key `{}`", source.name, kind.key);
            Failure::Missing(reasons::SECRET_KEY_MISSING.problem(message))
        })?;
        let copy = content(primary, &name, &copy);
        Ok(copy.whole().filled(kind.key, bytes))
    };
    wanted.into_iter().map(one).collect()
}

/// What a copy says beside its data.
fn content(primary: &Primary, name: &str, copy: &ObjectRef) -> make::Object {
    let reference = &primary.reference;
    object!(copy, {
        "metadata": {
            "labels": {
                "synced-from-spoke": "true",
                "hypershiftdeployments.cluster.open-cluster-management.io/cluster-name": reference.name,
                "hypershiftdeployments.cluster.open-cluster-management.io/hosting-namespace": reference.namespace,
            },
            "annotations": {"cluster.open-cluster-management.io/managedcluster-name": name},
        },
    })
}
