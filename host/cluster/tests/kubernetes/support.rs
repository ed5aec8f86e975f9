//! A cluster, an agent's connection to it with its own user, and waits for observations.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::time::Duration;
use transom_cluster::kubernetes::{Kubernetes, KubernetesOptions, Observations};
use transom_core::observation::Observation;
use transom_core::reference::ObjectRef;
use transom_core::watches::{Keep, Scope, Watches};
use transom_test_cluster::{Cluster, Options, User};

/// The deadline for what takes seconds, on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// May read Secrets, ConfigMaps and Things.
pub(crate) const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules:
- {apiGroups: [''], resources: [secrets, configmaps], verbs: [get, list, watch]}
- {apiGroups: [example.org], resources: [things], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: agent}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: agent}]
";

/// A kind that takes any field.
pub(crate) const THINGS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// A cluster with the agent's permissions.
pub(crate) async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start(&Options::default()).await?;
    cluster.objects().apply_manifest(RIGHTS).await?;
    Ok(cluster)
}

/// The agent's user.
pub(crate) fn agent(cluster: &Cluster) -> Result<User> {
    cluster.user("agent", &[])
}

/// The agent's connection, direct or through another address.
pub(crate) async fn connect(cluster: &Cluster, server: &str) -> Result<Kubernetes> {
    let path = cluster.folder().join("agent.kubeconfig");
    std::fs::write(&path, cluster.kubeconfig_at(&agent(cluster)?, server)?)
        .context("failed to write a kubeconfig")?;
    let options = KubernetesOptions {
        name: "local".to_owned(),
        kubeconfig: Some(path),
        ..KubernetesOptions::default()
    };
    Ok(Kubernetes::connect(options).await?)
}

/// All objects of a kind.
pub(crate) fn all(api_version: &str, kind: &str) -> Scope {
    Scope {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: None,
        name: None,
        fields: None,
        labels: None,
    }
}

/// Watches these scopes with all fields of their objects, and waits for them.
pub(crate) async fn watch(
    agent: &Kubernetes,
    scopes: impl IntoIterator<Item = Scope>,
) -> Result<()> {
    watch_keeping(
        agent,
        scopes
            .into_iter()
            .map(|scope| (scope, Keep::default()))
            .collect(),
    )
    .await
}

/// Watches, and waits until the existing objects are known.
pub(crate) async fn watch_keeping(agent: &Kubernetes, wanted: Watches) -> Result<()> {
    agent.watch(wanted);
    tokio::time::timeout(DEADLINE, agent.synced())
        .await
        .context("the watches were not listed in time")
}

/// Waits for the first observation for which the function returns a value.
pub(crate) async fn told<T>(
    changes: &mut Observations,
    what: &str,
    mut look: impl FnMut(&Observation) -> Option<T>,
) -> Result<T> {
    let next = async {
        loop {
            if let Some(found) = look(&changes.next().await) {
                return found;
            }
        }
    };
    tokio::time::timeout(DEADLINE, next)
        .await
        .with_context(|| format!("was not told in time: {what}"))
}

/// Waits until a reference is reported as gone.
pub(crate) async fn gone(changes: &mut Observations, reference: &ObjectRef) -> Result<()> {
    told(changes, &format!("{reference} gone"), |told| {
        (*told == Observation::Gone(reference.clone())).then_some(())
    })
    .await
}

/// Waits until something unreadable is reported, with its reason and place.
pub(crate) async fn unreadable(
    changes: &mut Observations,
    word: transom_api::KnownReason,
) -> Result<String> {
    told(changes, word.as_str(), |told| match told {
        Observation::Unreadable(unreadable) if unreadable.reason == word => {
            Some(unreadable.place.clone())
        }
        _ => None,
    })
    .await
}

/// Waits until a place is reported as readable again.
pub(crate) async fn readable(changes: &mut Observations, place: &str) -> Result<()> {
    told(changes, "readable", |told| {
        (*told == Observation::Readable(place.to_owned())).then_some(())
    })
    .await
}

/// A ConfigMap in `default`.
pub(crate) fn map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"text": text}})
}

/// Its reference.
pub(crate) fn map_ref(name: &str) -> ObjectRef {
    ObjectRef::local("v1", "ConfigMap", Some("default"), name)
}

/// Deletes an object as the admin.
pub(crate) async fn delete(cluster: &Cluster, reference: &ObjectRef) -> Result<()> {
    let ObjectRef {
        api_version,
        kind,
        namespace,
        name,
        ..
    } = reference;
    let api = cluster
        .objects()
        .api(api_version, kind, namespace.as_deref())
        .await?;
    api.delete(name, &kube::api::DeleteParams::default())
        .await?;
    Ok(())
}
