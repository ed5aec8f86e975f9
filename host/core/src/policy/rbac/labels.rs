//! The labels of objects that give rights: by its labels a ClusterRole is selected, and its rules are added to others.

use super::{GROUP, gives_rights, text};
use crate::policy::WriteRule;
use crate::policy::check::{Checked, wrong};
use crate::projection::path::Path;
use std::collections::BTreeMap;
use transom_api::policy::WriteGrantSpec;

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

/// Checks that a grant of a ClusterRole lists each label with its values: any label may select it for another one.
pub(super) fn are_listed(field: &str, grant: &WriteGrantSpec, fields: &[Path]) -> Checked<()> {
    for (index, path) in fields.iter().enumerate() {
        let keys = path.keys().unwrap_or_default();
        let ["metadata", "labels", key] = keys.as_slice() else {
            continue;
        };
        if key.contains('*') {
            let why = "stands for many labels: by any of them the rules of a ClusterRole may be added to another one, so \
                       they are named one by one";
            return wrong(format!("{field}.fields[{index}]"), why);
        }
        let mut values = grant.values.iter();
        let listed = values.find(|(part, _)| Path::parse(part).as_ref() == Ok(path));
        let Some((part, listed)) = listed else {
            let why = "is missing: by this label the rules of a ClusterRole may be added to another one, so its values \
                       are listed";
            return wrong(format!("{field}.values[\"{path}\"]"), why);
        };
        for (at, value) in listed.iter().enumerate() {
            text(&format!("{field}.values[\"{part}\"][{at}]"), value)?;
        }
    }
    Ok(())
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
    fn each_label_of_a_cluster_role_is_listed_with_its_values() {
        let of = |key: &str, values: Value| refused(&makes("ClusterRole", key, &values));
        let part = |rest: &str| Some(format!("spec.grant.write[0].{rest}"));
        assert_eq!(of("a.b/c", json!(["d", "{primary.name}"])), None);
        assert_eq!(of("a.b/c", json!([])), None, "no value at all");
        assert_eq!(
            of("a.b/c", Value::Null),
            part(r#"values["metadata.labels["a.b/c"]"]"#)
        );
        for any in [json!("*"), json!("d-*"), Value::Null] {
            assert_eq!(
                of("a.b/c", json!(["d", any])),
                part(r#"values["metadata.labels["a.b/c"]"][1]"#)
            );
        }
        assert_eq!(of("a.b/c-*", json!(["d"])), part("fields[1]"));
        assert_eq!(of(AGGREGATES, json!(["true"])), part("fields[1]"));
        // No other role has the rules of a Role.
        assert_eq!(refused(&makes("Role", "a.b/c", &Value::Null)), None);
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
