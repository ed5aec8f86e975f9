//! One API server for all tests of this binary, a namespace for each test, and writers with the permissions of an
//! agent.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;
use transom_api::{KnownReason, labels};
use transom_cluster::kubernetes::{Kubernetes, KubernetesOptions};
use transom_core::object::Object;
use transom_core::outcome::WriteFailure;
use transom_core::plan::Step;
use transom_core::reference::ObjectRef;
use transom_test_cluster::{Cluster, Objects, Shared, User, wait};

/// The deadline for what takes seconds, on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);
/// A value that no message may contain.
pub(crate) const CANARY: &str = "c4n4ry-of-a-value";
/// Every step of these tests is one of this policy.
pub(crate) const POLICY: &str = "external";

/// The permissions of an agent in every namespace, as printed by `transom rbac`, and one for a second writer.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules:
- {apiGroups: [''], resources: [secrets], verbs: [create, patch, delete]}
- {apiGroups: [cluster.open-cluster-management.io], resources: [managedclusters], verbs: [patch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [transom.dev], resources: [fleetpolicies/status], verbs: [patch]}
- {apiGroups: [admissionregistration.k8s.io], resources: [mutatingwebhookconfigurations], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: agent}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: agent}]
";
/// The kinds that these tests write beside the built-in ones.
const KINDS: [&str; 1] = ["managedclusters.cluster.open-cluster-management.io"];

/// The cluster of this binary.
pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: Shared = Shared::new();
    CLUSTER.cluster(prepare).unwrap()
}

async fn prepare(cluster: &Cluster) -> Result<()> {
    cluster.install_crds(&KINDS).await?;
    cluster
        .objects()
        .apply_manifest(include_str!("../../../deploy/crd.yaml"))
        .await?;
    cluster.wait_for_crd("fleetpolicies.transom.dev").await?;
    cluster.objects().apply_manifest(RIGHTS).await?;
    let agent = connect(cluster, &cluster.user("agent", &[])?).await?;
    let probe = create(&secret_ref("default", "probe"), "probe");
    wait::until("the agent's rights", DEADLINE, async || {
        Ok(agent
            .writer()
            .perform(POLICY, &probe)
            .await
            .is_ok()
            .then_some(()))
    })
    .await
}

/// A namespace of one test, and its writers.
pub(crate) struct Scene {
    pub(crate) cluster: &'static Cluster,
    pub(crate) objects: Objects,
    pub(crate) namespace: String,
    pub(crate) agent: Kubernetes,
}

impl Scene {
    /// With a new namespace.
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        let cluster = cluster();
        let objects = Objects::new(cluster.client(cluster.admin()).await?);
        objects.namespace(namespace).await?;
        let agent = connect(cluster, &cluster.user("agent", &[])?).await?;
        Ok(Self {
            cluster,
            objects,
            namespace: namespace.to_owned(),
            agent,
        })
    }

    /// The Secret of a name in the namespace.
    pub(crate) fn secret(&self, name: &str) -> ObjectRef {
        secret_ref(&self.namespace, name)
    }

    /// Creates an object as another client.
    pub(crate) async fn foreign(&self, object: Value) -> Result<Object> {
        self.objects.create(object.clone()).await?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let reference = ObjectRef {
            namespace: text(&object["metadata"]["namespace"]),
            ..ObjectRef::local(
                &text(&object["apiVersion"]).unwrap(),
                &text(&object["kind"]).unwrap(),
                None,
                &text(&object["metadata"]["name"]).unwrap(),
            )
        };
        self.read(&reference)
            .await?
            .context("what was made is not there")
    }

    /// An object as on the server, including managed fields.
    pub(crate) async fn read(&self, reference: &ObjectRef) -> Result<Option<Object>> {
        let api = self
            .objects
            .api(
                &reference.api_version,
                &reference.kind,
                reference.namespace.as_deref(),
            )
            .await?;
        let found = api.get_opt(&reference.name).await?;
        Ok(found.map(|found| Object {
            reference: reference.clone(),
            version: found.metadata.resource_version.clone().unwrap_or_default(),
            body: serde_json::to_value(found).unwrap(),
        }))
    }

    /// An object that must exist.
    pub(crate) async fn there(&self, reference: &ObjectRef) -> Result<Object> {
        self.read(reference)
            .await?
            .with_context(|| format!("{reference} is gone"))
    }

    /// Performs a step and returns the object, which must exist then.
    pub(crate) async fn done(&self, step: &Step) -> Result<Object> {
        let object = self
            .agent
            .writer()
            .perform(POLICY, step)
            .await
            .map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
        object.context("nothing is there after the write")
    }

    /// Performs a step that must be refused with this reason.
    pub(crate) async fn refused(&self, step: &Step, word: KnownReason) -> WriteFailure {
        let failure = self
            .agent
            .writer()
            .perform(POLICY, step)
            .await
            .expect_err("the write was not refused");
        assert_eq!(failure.reason, word, "{}", failure.message);
        assert!(!failure.message.contains(CANARY), "{}", failure.message);
        assert!(
            !failure.message.contains(&STANDARD.encode(CANARY)),
            "{}",
            failure.message
        );
        failure
    }
}

/// How a user connects.
pub(crate) fn options(cluster: &Cluster, user: &User, server: &str) -> Result<KubernetesOptions> {
    // Tests may write the kubeconfig of the same user concurrently.
    let name = format!(
        "{}-{:?}.kubeconfig",
        user.name().replace(':', "-"),
        thread::current().id()
    );
    let path = cluster.folder().join(name.replace(['(', ')'], "-"));
    std::fs::write(&path, cluster.kubeconfig_at(user, server)?)
        .context("failed to write a kubeconfig")?;
    Ok(KubernetesOptions {
        name: "local".to_owned(),
        kubeconfig: Some(path),
        context: None,
        ..KubernetesOptions::default()
    })
}

/// A connection as a user.
pub(crate) async fn connect(cluster: &Cluster, user: &User) -> Result<Kubernetes> {
    Ok(Kubernetes::connect(options(cluster, user, &cluster.server())?).await?)
}

pub(crate) fn secret_ref(namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::local("v1", "Secret", Some(namespace), name)
}

/// A Secret with ownership labels and this content under `kubeconfig`.
pub(crate) fn secret(reference: &ObjectRef, content: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": reference.name, "namespace": reference.namespace,
            "labels": {labels::MANAGED_BY: labels::MANAGER, labels::POLICY: POLICY},
            "annotations": {labels::SOURCE: "{}", labels::INPUTS: "sha256:i", labels::COMPONENT: "sha256:c"},
        },
        "data": {"kubeconfig": STANDARD.encode(content)},
    })
}

/// The step that creates such a Secret.
pub(crate) fn create(reference: &ObjectRef, content: &str) -> Step {
    let body = secret(reference, content);
    Step::Create {
        desired: Object {
            reference: reference.clone(),
            version: String::new(),
            body,
        },
    }
}

/// The step that sets this content of a Secret, and removes other keys.
pub(crate) fn update(existing: &Object, content: &str) -> Step {
    let mut desired = existing.clone();
    desired.body["data"] = json!({"kubeconfig": STANDARD.encode(content)});
    let data = existing.body["data"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let strays = data
        .keys()
        .filter(|key| *key != "kubeconfig")
        .map(|key| format!("data.{key}"));
    let changed = std::iter::once("data.kubeconfig".to_owned())
        .chain(strays)
        .collect();
    Step::Update { desired, changed }
}

/// The step that removes an object.
pub(crate) fn delete(existing: &Object) -> Step {
    Step::Delete {
        reference: existing.reference.clone(),
        version: existing.version.clone(),
        uid: existing.uid().to_owned(),
        why: "its source was deleted".to_owned(),
    }
}

/// The step that sets the taints of an object.
pub(crate) fn taint(existing: &Object, taints: Value) -> Step {
    Step::Patch {
        reference: existing.reference.clone(),
        version: existing.version.clone(),
        fields: vec![("spec.taints".to_owned(), taints)],
    }
}

/// The managed fields by owner: manager and operation.
pub(crate) fn managers(object: &Object) -> BTreeMap<(String, String), Value> {
    let entries = object.body["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries
        .into_iter()
        .map(|entry| {
            (
                (text(&entry["manager"]), text(&entry["operation"])),
                entry["fieldsV1"].clone(),
            )
        })
        .collect()
}
