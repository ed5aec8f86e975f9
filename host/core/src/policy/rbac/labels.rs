//! The labels of objects that give rights: by its labels a ClusterRole is selected, and its rules are added to others.

use super::{GROUP, gives_rights};
use crate::policy::WriteRule;
use crate::policy::check::{Checked, wrong};
use std::collections::BTreeMap;

/// Whether a label, by its key, may add the rules of a role to those that Kubernetes itself makes.
pub(crate) fn add_rights(key: &str) -> bool {
    key.contains(GROUP)
}

/// Checks the labels or annotations of `spec.own`, which every object of a policy bears, also one that gives rights.
pub(crate) fn of_own(
    field: &str,
    map: &BTreeMap<String, String>,
    writes: &[WriteRule],
) -> Checked<()> {
    let gives = |rule: &WriteRule| rule.named().is_some() && gives_rights(&rule.api_version);
    match map.keys().find(|key| add_rights(key)) {
        Some(key) if writes.iter().any(gives) => {
            let why = "is not for a policy that makes roles or bindings: it may add the rules of a role to another one";
            wrong(format!("{field}[\"{key}\"]"), why)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{check, manifest};
    use crate::sample::{kubeconfig_manifest, objects_manifest, with};
    use serde_json::{Value, json};

    const AGGREGATES: &str = "rbac.authorization.k8s.io/aggregate-to-admin";

    /// The field at fault of a manifest.
    fn refused(manifest: &Value) -> Option<String> {
        let checked = check::policy(manifest::parse(manifest).unwrap());
        checked.err().map(|error| error.field)
    }

    /// A policy that makes a role with this label, which may have these values.
    fn makes(kind: &str, key: &str, values: &Value) -> Value {
        let label = format!("metadata.labels[\"{key}\"]");
        let mut listed =
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
        if !values.is_null() {
            listed[&label] = values.clone();
        }
        let mut role = json!({"apiVersion": super::super::API_VERSION, "kind": kind, "name": "a",
            "verbs": ["create", "update"], "fields": ["rules", label], "values": listed});
        if kind == "Role" {
            role["namespace"] = json!("n");
        }
        with(objects_manifest(), &[("/spec/grant/write", json!([role]))])
    }

    #[test]
    fn what_every_object_of_a_policy_bears_adds_no_rights() {
        let own = |manifest: Value, field: &str, key: &str| {
            let field = format!("/spec/own/{field}");
            let own = ("/spec/own", json!({}));
            refused(&with(manifest, &[own, (&field, json!({key: "true"}))]))
        };
        for field in ["labels", "annotations"] {
            for kind in ["ClusterRole", "Role"] {
                let makes = || makes(kind, "a", &json!(["b"]));
                let at = format!("spec.own.{field}[\"{AGGREGATES}\"]");
                assert_eq!(own(makes(), field, AGGREGATES), Some(at));
                assert_eq!(own(makes(), field, "a.b/c"), None);
            }
            assert_eq!(own(kubeconfig_manifest(), field, AGGREGATES), None);
        }
    }
}
