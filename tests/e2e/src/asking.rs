//! A policy whose guest asks for what its settings say: the fixture `asks` writes in a label of each ManagedCluster in
//! which form its inputs came.

use crate::fixture;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

/// The label.
pub const SEEN: &str = "example.com/seen";
/// The primaries: ManagedClusters, or requests for certificates.
const CLUSTERS: (&str, &str) = ("cluster.open-cluster-management.io/v1", "ManagedCluster");
const REQUESTS: (&str, &str) = ("certificates.k8s.io/v1", "CertificateSigningRequest");
/// The name of the policy.
pub const POLICY: &str = "asks";

/// A lease of the primary's name in the namespace `default`, as the grant and the guest name it.
pub fn lease() -> Value {
    json!({"api-version": "coordination.k8s.io/v1", "kind": "Lease", "cluster": "local", "namespace": "default", "name": "NAME"})
}

/// The ConfigMaps of the namespace `default`.
pub fn maps() -> Value {
    json!({"api-version": "v1", "kind": "ConfigMap", "cluster": "local", "namespace": "default", "name": ""})
}

/// A need in the names of `wit/`; without a word about its absence and with the wake `change`.
pub fn need(role: &str, reference: &Value, form: &Value) -> Value {
    json!({"role": role, "reference": reference, "form": form, "absence": "fine", "wake": "change"})
}

/// The form of an age of the lease.
pub fn age(seconds: u32) -> Value {
    json!({"age": {"field": "spec.renewTime", "seconds": seconds}})
}

/// The form of a heartbeat as the agent sees it come.
pub fn observed(seconds: u32) -> Value {
    json!({"observed": {"field": "spec.renewTime", "seconds": seconds}})
}

/// The form of a set with the label `of`, which has one of these values.
pub fn every(values: &[&str]) -> Value {
    let labels = json!([{"key": "of", "operator": "in", "values": values}]);
    json!({"every": {"labels": labels, "names-only": false}})
}

/// The request for a certificate that is the primary.
pub fn request() -> Value {
    json!({"api-version": REQUESTS.0, "kind": REQUESTS.1, "cluster": "local", "namespace": null, "name": "NAME"})
}

/// The form of the question whether whoever made the request may renew certificates of clusters.
pub fn may_renew() -> Value {
    json!({"access": {
        "who": "requester", "verb": "renew", "group": "register.open-cluster-management.io",
        "resource": "managedclusters", "subresource": "clientcertificates", "namespace": null, "name": null,
    }})
}

/// Puts the policy and its component into a folder; a set may have three objects.
///
/// # Errors
/// When the component is not built, or the folder cannot be written.
pub fn put_policy(folder: &Path, needs: &[Value]) -> Result<()> {
    put(folder, needs, CLUSTERS, (&json!([]), None))
}

/// The same with the right to read the certificate of a Secret of the primary's name.
///
/// # Errors
/// As for [`put_policy`].
pub fn put_policy_of_certificates(folder: &Path, needs: &[Value]) -> Result<()> {
    let secret = json!({"role": "secret", "kind": "Secret", "namespace": "default", "name": "{primary.name}",
        "keys": ["tls.crt", "tls.key"]});
    put(folder, needs, CLUSTERS, (&json!([]), Some(secret)))
}

/// The same for requests for certificates, with the right to ask whether whoever made one may renew certificates.
///
/// # Errors
/// As for [`put_policy`].
pub fn put_policy_of_requests(folder: &Path, needs: &[Value]) -> Result<()> {
    let resource = "managedclusters/clientcertificates";
    let group = "register.open-cluster-management.io";
    let review = json!({"verb": "renew", "group": group, "resource": resource, "as": "Requester"});
    let asks = json!([{"accessReview": review}]);
    put(folder, needs, REQUESTS, (&asks, None))
}

/// The form of the question whether the agent itself may list the objects of a kind of the core group.
pub fn agent_may_list(resource: &str) -> Value {
    json!({"access": {
        "who": "agent", "verb": "list", "group": "", "resource": resource, "subresource": null, "namespace": null, "name": null,
    }})
}

/// A Secret of the primary's name in the namespace `default`, as the guest names it.
pub fn secret() -> Value {
    json!({"api-version": "v1", "kind": "Secret", "cluster": "local", "namespace": "default", "name": "NAME"})
}

/// The form of its certificate, with the key beside it.
pub fn certificate() -> Value {
    json!({"certificate": {"certificate": "tls.crt", "private-key": "tls.key"}})
}

/// The policy about ManagedClusters, with the right to ask whether the agent may list the objects of a kind.
///
/// # Errors
/// As for [`put_policy`].
pub fn put_policy_of_agent(folder: &Path, needs: &[Value], resource: &str) -> Result<()> {
    let review = json!({"verb": "list", "group": "", "resource": resource, "as": "Agent"});
    let asks = json!([{"accessReview": review}]);
    put(folder, needs, CLUSTERS, (&asks, None))
}

fn put(
    folder: &Path,
    needs: &[Value],
    primary: (&str, &str),
    (ask, more): (&Value, Option<Value>),
) -> Result<()> {
    let mut spec = json!({
        "primary": {"apiVersion": primary.0, "kind": primary.1},
        "grant": {
            "read": [
                {"role": "lease", "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "namespace": "default", "name": "{primary.name}"},
                {"role": "request", "apiVersion": REQUESTS.0, "kind": REQUESTS.1, "name": "{primary.name}"},
                {"role": "maps", "kind": "ConfigMap", "namespace": "default", "name": "*", "every": {"objects": 3}},
            ],
            "ask": ask,
            "write": [{"target": "primary", "verbs": ["patch"], "fields": [format!("metadata.labels[\"{SEEN}\"]")]}],
        },
    });
    let read = spec["grant"]["read"].as_array_mut();
    read.into_iter().for_each(|read| read.extend(more.clone()));
    let settings = json!({"needs": needs});
    fixture::put_policy(folder, POLICY, "fixture-asks", &settings, spec).map(drop)
}
