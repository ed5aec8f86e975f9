//! Policies, guests and objects for unit tests.

mod planned;

pub(crate) use planned::planned;

use crate::catalogue::guest::GuestFacts;
use crate::contract::AgentFacts;
use crate::contract::description::{DeclaredReason, Description, Read, SuggestedGrant};
use crate::failure::Failure;
use crate::object::Object;
use crate::policy::{Policy, check, manifest};
use crate::reference::ObjectRef;
use crate::report::{self, Reconcile, Report, Schedule, Success};
use crate::stamp::{SourceRef, Stamp};
use crate::work::Key;
use serde_json::{Value, json};

pub(crate) const HOSTED: (&str, &str) = ("hypershift.openshift.io/v1beta1", "HostedCluster");

/// The manifest of a policy that writes kubeconfigs.
pub(crate) fn kubeconfig_manifest() -> Value {
    json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "external"},
        "spec": {
            "primary": {"apiVersion": HOSTED.0, "kind": HOSTED.1},
            "guests": {"trigger": {"component": "builtin:trigger"}, "decide": {"component": "builtin:kubeconfig"}},
            "grant": {
                "read": [
                    {"role": "source", "kind": "Secret", "namespace": "{primary.namespace}", "name": "*-admin-kubeconfig", "keys": ["kubeconfig"]},
                    {"role": "service", "kind": "Service", "namespace": "{primary.namespace}-*", "name": "kube-apiserver"},
                    {"role": "home", "kind": "Namespace", "name": "klusterlet-*"},
                    {"role": "klusterlet", "apiVersion": "operator.open-cluster-management.io/v1", "kind": "Klusterlet", "name": "klusterlet-*"},
                ],
                "write": [{
                    "kind": "Secret", "namespace": "klusterlet-*", "name": "external-managed-kubeconfig",
                    "verbs": ["create", "update", "delete"], "fields": ["data.kubeconfig"],
                    "kubeconfig": {"server": ["service"], "ca": ["source"]},
                }],
            },
            "own": {"keepUntilAbsent": ["klusterlet"]},
        },
    })
}

/// The manifest of a policy that writes taints.
pub(crate) fn taints_manifest() -> Value {
    json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "taints"},
        "spec": {
            "primary": {"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster"},
            "guests": {"decide": {"component": "builtin:taints"}},
            "grant": {"write": [{"target": "primary", "verbs": ["patch"], "fields": ["spec.taints"], "taintKeys": ["a/one", "a/two"]}]},
        },
    })
}

/// The manifest of a policy that writes labels and a field of the spec, with any value for some of them.
pub(crate) fn objects_manifest() -> Value {
    json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "sets"},
        "spec": {
            "primary": {"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster"},
            "guests": {"decide": {"component": "builtin:cluster-sets"}},
            "grant": {"write": [{
                "target": "primary", "verbs": ["patch"],
                "fields": ["metadata.labels", "spec.hubAcceptsClient", "spec.clients"],
                "values": {
                    r#"metadata.labels["a.b/set"]"#: ["prod", "{primary.name}-*", null],
                    "spec.hubAcceptsClient": [true],
                    "spec.clients": [{"url": "https://*", "ca": ["x"]}],
                },
            }]},
        },
    })
}

/// A manifest with values set at some pointers.
pub(crate) fn with(mut manifest: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match manifest.pointer_mut(parent).unwrap() {
            Value::Array(list) => list[name.parse::<usize>().unwrap()] = value.clone(),
            parent => parent[name] = value.clone(),
        }
    }
    manifest
}

pub(crate) fn policy(manifest: &Value) -> Policy {
    check::policy(manifest::parse(manifest).unwrap()).unwrap()
}

/// The HostedCluster `clusters/<name>`.
pub(crate) fn hosted(name: &str) -> ObjectRef {
    ObjectRef::local(HOSTED.0, HOSTED.1, Some("clusters"), name)
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(&"external".into(), &hosted(name))
}

/// The Secret that is written for a managed cluster.
pub(crate) fn target(cluster: &str) -> ObjectRef {
    let namespace = format!("klusterlet-{cluster}");
    ObjectRef::local(
        "v1",
        "Secret",
        Some(&namespace),
        "external-managed-kubeconfig",
    )
}

/// The stamp of an object that was made for `clusters/<name>` with a uid.
pub(crate) fn stamp(name: &str, uid: &str) -> Stamp {
    let source = SourceRef {
        reference: hosted(name),
        uid: uid.to_owned(),
        cluster_uid: String::new(),
    };
    Stamp {
        policy: "external".to_owned(),
        source,
        inputs: "sha256:0".to_owned(),
        component: "sha256:1".to_owned(),
    }
}

/// The report of a reconcile of `clusters/demo` with this result.
pub(crate) fn report(result: Result<Success, Failure>) -> Report {
    let reconcile = Reconcile::new(key("demo"));
    report::of(
        reconcile,
        result,
        Schedule {
            now_seconds: 0,
            resync_seconds: 0,
            failures: 0,
            waited: false,
            seed: 7,
        },
    )
}

pub(crate) fn object(reference: ObjectRef, body: Value) -> Object {
    Object {
        reference,
        version: "7".to_owned(),
        body,
    }
}

/// An agent whose cluster is the hub's own, or another one.
pub(crate) fn agent(cluster_name: &str, self_managed: bool) -> AgentFacts {
    AgentFacts {
        cluster_name: cluster_name.to_owned(),
        self_managed,
        ..AgentFacts::default()
    }
}

/// A guest that reads these paths of HostedClusters and Namespaces, and may answer with `Told` and `NoClusters`.
pub(crate) fn guest(fields: &[&str], changes: &[&str]) -> GuestFacts {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let read = |api_version: &str, kind: &str| Read {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        fields: texts(fields),
        changes: texts(changes),
    };
    let reason = |word: &str| DeclaredReason {
        name: word.to_owned(),
        meaning: "m".to_owned(),
        remedy: "r".to_owned(),
    };
    let description = Description {
        name: "sample".to_owned(),
        version: "1".to_owned(),
        reads: vec![read(HOSTED.0, HOSTED.1), read("v1", "Namespace")],
        reasons: vec![reason("Told"), reason("NoClusters")],
        settings_schema: "{}".to_owned(),
        grant: SuggestedGrant::default(),
    };
    GuestFacts::load("sha256:1", description, &serde_json::Map::new()).unwrap()
}
