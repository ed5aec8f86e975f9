//! Policies that a directory and the API server both accept.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn policies() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies")
}

pub(crate) fn shipped(name: &str) -> Result<Value> {
    Ok(serde_yaml::from_str(&std::fs::read_to_string(
        policies().join(name).join("policy.yaml"),
    )?)?)
}

/// Policies that write conditions of ManagedClusters, verdicts on requests for certificates, and fields of objects that
/// others made.
pub(crate) fn of_status() -> Result<[Value; 3]> {
    let grant = |types: &str| json!([{"target": "primary", "verbs": ["patch"], "fields": ["status.conditions"], "conditions": [types]}]);
    let mut conditions = shipped("cluster-acceptance")?;
    conditions["metadata"]["name"] = json!("conditions");
    conditions["spec"]["grant"]["write"] = grant("Ours");
    let mut verdicts = conditions.clone();
    verdicts["metadata"]["name"] = json!("verdicts");
    verdicts["spec"]["primary"] =
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"});
    verdicts["spec"]["grant"]["write"] = grant("Approved");
    verdicts["spec"]["grant"]["write"][0]["signers"] = json!(["a/b"]);
    let mut others = conditions.clone();
    others["metadata"]["name"] = json!("others");
    let of_others = json!({"apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterAddOn",
        "namespace": "{primary.name}", "name": "*", "verbs": ["patch"], "conditions": ["Available"],
        "fields": ["status.conditions", "metadata.labels[\"a.b/c-*\"]"]});
    others["spec"]["grant"]["write"] = json!([of_others]);
    Ok([conditions, verdicts, others])
}

/// A policy that fills Secrets with everything that can go there.
pub(crate) fn filled() -> Result<Value> {
    let mut filled = shipped("cluster-acceptance")?;
    filled["metadata"]["name"] = json!("filled");
    let read =
        json!({"role": "admin", "kind": "Secret", "namespace": "a", "name": "b", "keys": ["c"]});
    let text = json!({"bytes": ["admin"], "kubeconfig": ["admin"],
        "manifests": [{"kind": "Secret"}, {"apiVersion": "apps/v1", "kind": "Deployment"},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "values": {
                "metadata.name": ["agent"], "metadata.namespace": ["{primary.name}"], "rules": [
                {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["{primary.name}"], "verbs": ["get"]}]}}]});
    let secret = json!({"kind": "Secret", "namespace": "a", "name": "{primary.name}", "verbs": ["create", "update"],
        "holes": {"data.a": {"kubeconfig": ["admin"]}, "data.b": {"bytes": ["admin"]}, r#"data["c.yaml"]"#: text},
        "kubeconfig": {"server": ["source"], "ca": ["admin"]}});
    filled["spec"]["grant"] = json!({"read": [read], "write": [secret]});
    Ok(filled)
}

/// A policy with a selector of labels that says nothing.
fn selecting_all() -> Result<Value> {
    let mut all = shipped("cluster-acceptance")?;
    all["metadata"]["name"] = json!("selects-all");
    all["spec"]["primary"]["labels"] = json!({"matchLabels": {}, "matchExpressions": []});
    Ok(all)
}

/// Policies that only observe.
fn observing() -> Result<[Value; 3]> {
    let mut empty = shipped("cluster-acceptance")?;
    empty["metadata"]["name"] = json!("observes");
    empty["spec"]["grant"]["write"] = json!([]);
    let mut absent = empty.clone();
    absent["metadata"]["name"] = json!("observes-1");
    absent["spec"]["grant"] = json!({});
    let mut none = empty.clone();
    none["metadata"]["name"] = json!("observes-2");
    if let Some(spec) = none["spec"].as_object_mut() {
        spec.remove("grant");
    }
    Ok([empty, absent, none])
}

/// The bundled policies, with the settings of each of their cases.
pub(crate) fn accepted() -> Result<Vec<Value>> {
    let mut worn = shipped("external-managed-kubeconfig")?;
    worn["metadata"]["name"] = json!("worn");
    worn["spec"]["own"]["labels"] =
        json!({"team": "blue", "example.com/tier_1.a": "", "x-transom.dev/a": "1"});
    worn["spec"]["own"]["annotations"] = json!({"example.com/note": "a b: ä"});
    let mut valued = shipped("cluster-sets-by-rule")?;
    valued["metadata"]["name"] = json!("valued");
    let write = &mut valued["spec"]["grant"]["write"][0];
    write["fields"] = json!(["metadata.labels", "spec.clients"]);
    write["values"] = json!({
        r#"metadata.labels["a.b/c"]"#: ["team-*", null],
        "spec.clients": [{"url": "https://*", "ca": ["x"]}, 7, true],
    });
    valued["spec"]["guests"]["decide"]["settings"]["rules"] =
        json!([{"set": null}, {"set": "a", "claims": {"b": ["*"]}}]);
    let mut all = vec![worn, valued];
    for name in [
        "external-managed-kubeconfig",
        "built-in-taints",
        "addon-health",
        "auto-import",
        "availability",
        "cleanup",
        "client-certificates",
        "cluster-acceptance",
        "cluster-access",
        "cluster-leftovers",
        "cluster-set-bindings",
        "cluster-set-members",
        "cluster-sets-by-rule",
        "detach",
        "default-cluster-set-selectors",
        "default-cluster-sets",
        "managed-namespaces",
        "taint-times",
        "hub-copies",
    ] {
        all.push(shipped(name)?);
        for case in std::fs::read_dir(policies().join(name).join("cases"))? {
            let given = std::fs::read_to_string(case?.path().join("given.yaml"))?;
            let settings = given
                .split("\n---")
                .find(|document| document.contains("kind: Case"));
            let settings: Value = settings
                .map(serde_yaml::from_str)
                .transpose()?
                .unwrap_or_default();
            let names = settings.pointer("/spec/names").cloned();
            let Some(settings) = settings
                .pointer("/spec/settings")
                .and_then(Value::as_object)
            else {
                continue;
            };
            let mut policy = shipped(name)?;
            if let Some(names) = names {
                policy["spec"]["grant"]["names"] = names;
            }
            for (role, settings) in settings {
                policy["spec"]["guests"][role]["settings"] = settings.clone();
            }
            policy["metadata"]["name"] = json!(format!("case-{}", all.len()));
            let keys = json!([{"name": "release", "configMap": "transom-trust/keys/release.pub"},
                {"name": "second-1", "file": "../keys/second.pub"}]);
            policy["spec"]["verify"] = json!({"mode": "All", "keys": keys});
            all.push(policy);
        }
    }
    all.extend(of_status()?);
    all.push(filled()?);
    all.push(selecting_all()?);
    all.extend(observing()?);
    ensure!(all.len() > 20, "hardly any policy: {}", all.len());
    Ok(all)
}
