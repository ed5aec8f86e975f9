//! Checks the labels and annotations for what a policy makes: valid for Kubernetes, and none reserved for the agent.

use super::super::WriteRule;
use super::super::manifest::PolicyError;
use super::Checked;
use crate::reference::dns;
use std::collections::BTreeMap;
use transom_api::labels;
use transom_api::policy::OwnSpec;
use transom_api::policy::bounds::{ANNOTATION, FEW};

/// Checks both maps of `spec.own`.
pub(super) fn check(own: &OwnSpec, writes: &[WriteRule]) -> Checked<()> {
    for (name, map) in [("labels", &own.labels), ("annotations", &own.annotations)] {
        let field = format!("spec.own.{name}");
        if !map.is_empty() && writes.iter().all(|rule| rule.named().is_none()) {
            return Err(PolicyError::new(
                field,
                "needs a policy that creates objects, and this one creates none",
            ));
        }
        if map.len() > FEW {
            return Err(PolicyError::new(
                field,
                format!("has {} entries, more than {FEW}", map.len()),
            ));
        }
        keys(&field, map)?;
    }
    let wrong = own
        .labels
        .iter()
        .find(|(_, value)| !value.is_empty() && !dns::is_label_value(value));
    if let Some((key, _)) = wrong {
        return Err(PolicyError::new(
            format!("spec.own.labels[\"{key}\"]"),
            "is not a valid label value",
        ));
    }
    match own
        .annotations
        .iter()
        .find(|(_, value)| value.chars().count() > ANNOTATION)
    {
        Some((key, _)) => Err(PolicyError::new(
            format!("spec.own.annotations[\"{key}\"]"),
            "is longer than 1024 characters",
        )),
        None => Ok(()),
    }
}

fn keys(field: &str, map: &BTreeMap<String, String>) -> Checked<()> {
    for key in map.keys() {
        if !dns::is_qualified_name(key) {
            return Err(PolicyError::new(
                field,
                "has a key that is not a name of at most 63 bytes, or a DNS subdomain, a slash and a name",
            ));
        }
        if labels::is_reserved(key) {
            return Err(PolicyError::new(
                format!("{field}[\"{key}\"]"),
                "is reserved for the agent",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::policy::{check, manifest};
    use crate::sample::{kubeconfig_manifest, taints_manifest};
    use serde_json::{Value, json};

    fn refused(mut manifest: Value, field: &str, map: Value) -> Option<String> {
        manifest["spec"]["own"] = json!({field: map});
        check::policy(manifest::parse(&manifest).unwrap())
            .err()
            .map(|error| error.field)
    }

    #[test]
    fn allows_valid_kubernetes_keys_except_our_own() {
        let long = "a".repeat(64);
        for (map, label, annotation) in [
            (json!({}), true, true),
            (
                json!({"team": "blue", "a.b/C_d.e-f": "", "x-transom.dev/a": "1", "transom.dev": "1"}),
                true,
                true,
            ),
            (json!({"team": "a b"}), false, true),
            (json!({"team": long}), false, true),
            (json!({"team": "a".repeat(1025)}), false, false),
            (json!({long.clone(): "a"}), false, false),
            (json!({"": "a"}), false, false),
            (json!({"a/": "a"}), false, false),
            (json!({"/a": "a"}), false, false),
            (json!({"A/a": "a"}), false, false),
            (json!({"a/b/c": "a"}), false, false),
            (json!({"-a": "a"}), false, false),
            (json!({"app.kubernetes.io/managed-by": "a"}), false, false),
            (json!({"transom.dev/a": "a"}), false, false),
            (json!({"x.transom.dev/a": "a"}), false, false),
        ] {
            let taken = |field| refused(kubeconfig_manifest(), field, map.clone()).is_none();
            assert_eq!(
                (taken("labels"), taken("annotations")),
                (label, annotation),
                "{map}"
            );
        }
        let many: Value = (0..17)
            .map(|number| (format!("k{number}"), json!("v")))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert_eq!(
            refused(kubeconfig_manifest(), "labels", many).as_deref(),
            Some("spec.own.labels")
        );
        assert_eq!(
            refused(
                kubeconfig_manifest(),
                "annotations",
                json!({"transom.dev/a": "a"})
            )
            .as_deref(),
            Some(r#"spec.own.annotations["transom.dev/a"]"#)
        );
        assert_eq!(
            refused(taints_manifest(), "labels", json!({"a": "b"})).as_deref(),
            Some("spec.own.labels")
        );
        assert_eq!(refused(taints_manifest(), "labels", json!({})), None);
    }
}
