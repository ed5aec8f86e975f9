//! One API server for all tests that leave it as it is, a namespace for each test, connections with the permissions of
//! an agent, and waits for what they observe.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;
use tokio::time::timeout;
use transom_api::{KnownReason, labels};
use transom_cluster::kubernetes::{Kubernetes, KubernetesOptions, ServerObservations};
use transom_core::object::Object;
use transom_core::observation::{Observation, Unwatched};
use transom_core::plan::{Step, WriteFailure};
use transom_core::reference::ObjectRef;
use transom_core::watches::{Keep, Scope, Watches};
use transom_test_cluster::{Cluster, Objects, Options, Shared, User, wait};

/// The deadline for what takes seconds, on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);
/// A value that no message may contain.
pub(crate) const CANARY: &str = "c4n4ry-of-a-value";
/// Every step of these tests is one of this policy.
pub(crate) const POLICY: &str = "external";

/// The permissions of an agent in every namespace, as printed by `transom rbac`, also for kinds that tests install.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules:
- {apiGroups: [''], resources: [secrets], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [''], resources: [configmaps], verbs: [get, list, watch]}
- {apiGroups: ['*'], resources: [things], verbs: [get, list, watch]}
- {apiGroups: [cluster.open-cluster-management.io], resources: [managedclusters], verbs: [patch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [transom.dev], resources: [fleetpolicies], verbs: [list, watch]}
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
        .apply_manifest(include_str!("../../../deploy/base/crd.yaml"))
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

/// A cluster of one test, for a test that harms it; with the agent's permissions.
pub(crate) async fn own_cluster() -> Result<Cluster> {
    let cluster = Cluster::start(&Options::default()).await?;
    cluster.objects().apply_manifest(RIGHTS).await?;
    Ok(cluster)
}

/// A namespace of one test, and an agent.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) objects: Objects,
    pub(crate) namespace: String,
    pub(crate) agent: Kubernetes,
}

impl Scene<'static> {
    /// With a new namespace on the cluster of this binary.
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        let cluster = cluster();
        Scene::at(cluster, &cluster.server(), namespace).await
    }
}

impl<'a> Scene<'a> {
    /// On another cluster, whose agent connects to this address.
    pub(crate) async fn at(cluster: &'a Cluster, server: &str, namespace: &str) -> Result<Self> {
        let objects = Objects::new(cluster.client(cluster.admin()).await?);
        objects.namespace(namespace).await?;
        let agent = cluster.user("agent", &[])?;
        Ok(Self {
            cluster,
            objects,
            namespace: namespace.to_owned(),
            agent: Kubernetes::connect(options(cluster, &agent, server)?).await?,
        })
    }

    /// All objects of a kind in the namespace.
    pub(crate) fn all(&self, api_version: &str, kind: &str) -> Scope {
        Scope {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: Some(self.namespace.clone()),
            name: None,
            fields: None,
            labels: None,
        }
    }

    /// Watches these scopes with all fields of their objects, and waits for them.
    pub(crate) async fn watch(&self, scopes: impl IntoIterator<Item = Scope>) -> Result<()> {
        let whole = |scope| (scope, Keep::default());
        self.watch_keeping(scopes.into_iter().map(whole).collect())
            .await
    }

    /// Watches, and waits until the existing objects are known.
    pub(crate) async fn watch_keeping(&self, wanted: Watches) -> Result<()> {
        self.agent.watch(wanted);
        timeout(DEADLINE, self.agent.synced())
            .await
            .context("the watches were not listed in time")
    }

    /// A ConfigMap.
    pub(crate) fn map(&self, name: &str, text: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.namespace}, "data": {"text": text}})
    }

    /// Its reference.
    pub(crate) fn map_ref(&self, name: &str) -> ObjectRef {
        ObjectRef::local("v1", "ConfigMap", Some(&self.namespace), name)
    }

    /// An `apiVersion` of kinds that only this test installs.
    pub(crate) fn group(&self) -> String {
        format!("{}.example.org/v1", self.namespace)
    }

    /// The kind `Thing` of that group in a version; it takes any field.
    pub(crate) fn things(&self, version: &str) -> Value {
        let group = format!("{}.example.org", self.namespace);
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        })
    }

    /// A Thing.
    pub(crate) fn thing(&self, name: &str) -> Value {
        json!({"apiVersion": self.group(), "kind": "Thing", "metadata": {"name": name, "namespace": self.namespace}})
    }

    /// Its reference.
    pub(crate) fn thing_ref(&self, name: &str) -> ObjectRef {
        ObjectRef::local(&self.group(), "Thing", Some(&self.namespace), name)
    }

    /// Installs the kind; waits until an object of it can be created.
    pub(crate) async fn install_things(&self, first: &str) -> Result<()> {
        self.objects.create(self.things("v1")).await?;
        wait::until("a Thing", DEADLINE, async || {
            Ok(self.objects.create(self.thing(first)).await.ok().map(drop))
        })
        .await
    }

    /// Deletes the kind.
    pub(crate) async fn uninstall_things(&self) -> Result<()> {
        let (api_version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let name = format!("things.{}.example.org", self.namespace);
        self.remove(&ObjectRef::local(api_version, kind, None, &name))
            .await
    }

    /// Deletes an object as the admin.
    pub(crate) async fn remove(&self, reference: &ObjectRef) -> Result<()> {
        let ObjectRef {
            api_version, kind, ..
        } = reference;
        let namespace = reference.namespace.as_deref();
        let api = self.objects.api(api_version, kind, namespace).await?;
        api.delete(&reference.name, &DeleteParams::default())
            .await?;
        Ok(())
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
        .map(|key| transom_core::projection::path::of(&["data", key]));
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

/// Waits for the first observation for which the function returns a value.
pub(crate) async fn told<T>(
    changes: &mut ServerObservations,
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
    timeout(DEADLINE, next)
        .await
        .with_context(|| format!("was not told in time: {what}"))
}

/// Waits until a reference is reported as gone.
pub(crate) async fn gone(changes: &mut ServerObservations, reference: &ObjectRef) -> Result<()> {
    told(changes, &format!("{reference} gone"), |told| {
        (*told == Observation::Gone(reference.clone())).then_some(())
    })
    .await
}

/// Waits until something unreadable is reported, with its reason and place.
pub(crate) async fn unreadable(
    changes: &mut ServerObservations,
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

/// Waits until something is reported as readable again.
pub(crate) async fn readable(changes: &mut ServerObservations, again: Observation) -> Result<()> {
    told(changes, "readable", |told| (*told == again).then_some(())).await
}

/// That a watch can be followed again.
pub(crate) fn followed(place: &str, scope: &Scope) -> Observation {
    let unwatched = Unwatched::Kind {
        cluster: "local".to_owned(),
        api_version: scope.api_version.clone(),
        kind: scope.kind.clone(),
    };
    Observation::Readable(place.to_owned(), unwatched)
}
