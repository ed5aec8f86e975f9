//! What a policy may write. The write grants choose the world of the guest that decides, and that world checks them;
//! labels and annotations for what the policy makes must be valid for Kubernetes, and not reserved for the agent.

use super::super::manifest::PolicyError;
use super::super::{ReadRule, Target, WriteRule, rbac};
use super::{Checked, at_most, connection, unique, within, wrong};
use crate::pattern::template::TemplateNames;
use crate::reference::dns;
use crate::world::{self, Granted, World};
use std::collections::{BTreeMap, BTreeSet};
use transom_api::labels;
use transom_api::policy::bounds::{ANNOTATION, FEW};
use transom_api::policy::{GrantSpec, OwnSpec, PolicySpec, WriteGrantSpec, WriteVerb};

/// Checks the write grants of a policy; returns its world and the rules.
pub(super) fn writes(
    spec: &PolicySpec,
    reads: &[ReadRule],
    names: &TemplateNames,
) -> Checked<(&'static dyn World, Vec<WriteRule>)> {
    let grants = &spec.grant.write;
    at_most("spec.grant.write", grants, FEW)?;
    if grants.is_empty() {
        return Ok((world::OBSERVING, Vec::new()));
    }
    let world = world::ALL.iter().find(|world| world.takes(grants));
    let mut rules = Vec::new();
    for (index, grant) in grants.iter().enumerate() {
        let field = format!("spec.grant.write[{index}]");
        connection(&field, &grant.cluster)?;
        let verbs = grant.verbs.iter().map(|verb| format!("{verb:?}"));
        unique(&format!("{field}.verbs"), verbs)?;
        let Some(world) = world.filter(|world| world.takes(std::slice::from_ref(grant))) else {
            return Err(unusable(&field, grant));
        };
        let rule = world.rule(&Granted {
            field: &field,
            grant,
            grants,
            primary: &spec.primary,
            reads,
            names,
        })?;
        if rule.values.len() != grant.values.len() {
            let why = "is for guests that write any fields";
            return wrong(format!("{field}.values"), why);
        }
        if !grant.labels.is_empty() && !grant.verbs.iter().any(WriteVerb::is_of_others) {
            let why = "is for objects of others, with `remove` or `release`";
            return wrong(format!("{field}.labels"), why);
        }
        if rule.finalizers().is_none_or(BTreeSet::is_empty) && !grant.finalizers.is_empty() {
            let why = "is for objects that guests of the world `objects-guest` make or release";
            return wrong(format!("{field}.finalizers"), why);
        }
        if rule.holes.len() != grant.holes.len() {
            let why = "is for guests of the world `objects-guest` that make Secrets";
            return wrong(format!("{field}.holes"), why);
        }
        rules.push(rule);
    }
    rbac::check_count(&rules)?;
    let primaries = rules.iter().filter(|rule| rule.target == Target::Primary);
    if primaries.count() > 1 {
        let why = "grants fields of the primary twice; use one grant";
        return Err(PolicyError::new("spec.grant.write", why));
    }
    Ok((world.copied().unwrap_or(world::OBSERVING), rules))
}

fn unusable(field: &str, grant: &WriteGrantSpec) -> PolicyError {
    if grant.kubeconfig.is_some() && grant.target.is_some() {
        let why = "cannot be used with `target: primary`";
        return PolicyError::new(format!("{field}.kubeconfig"), why);
    }
    if grant.kubeconfig.is_some() || grant.target.is_some() {
        let why = "grants writes for guests of different worlds; use a policy for each";
        return PolicyError::new("spec.grant.write", why);
    }
    PolicyError::new(
        field,
        "has neither `kubeconfig` nor `target: primary`, so no guest could use it",
    )
}

/// Checks the finalizer: the guest says when it is released.
pub(super) fn finalizer(grant: &GrantSpec, world: &'static dyn World) -> Checked<()> {
    let field = "spec.grant.finalizer";
    match &grant.finalizer {
        Some(name) if !name.contains('/') || !dns::is_qualified_name(name) => {
            wrong(field, "is not a DNS subdomain, a slash and a name")
        }
        Some(_) if !world.finalizes() => wrong(field, "is for guests that make objects"),
        _ => Ok(()),
    }
}

/// Checks the labels and annotations of `spec.own`.
pub(super) fn managed_keys(own: &OwnSpec, writes: &[WriteRule]) -> Checked<()> {
    for (name, map) in [("labels", &own.labels), ("annotations", &own.annotations)] {
        let field = format!("spec.own.{name}");
        if !map.is_empty() && writes.iter().all(|rule| rule.named().is_none()) {
            let why = "needs a policy that creates objects, and this one creates none";
            return wrong(field, why);
        }
        within(&field, map.len(), FEW)?;
        keys(&field, map)?;
        rbac::labels::of_own(&field, map, writes)?;
    }
    let fits = |value: &str| value.is_empty() || dns::is_label_value(value);
    if let Some((key, _)) = own.labels.iter().find(|(_, value)| !fits(value)) {
        return wrong(
            format!("spec.own.labels[\"{key}\"]"),
            "is not a valid label value",
        );
    }
    let long = |value: &str| value.chars().count() > ANNOTATION;
    if let Some((key, _)) = own.annotations.iter().find(|(_, value)| long(value)) {
        let field = format!("spec.own.annotations[\"{key}\"]");
        return wrong(field, "is longer than 1024 characters");
    }
    Ok(())
}

fn keys(field: &str, map: &BTreeMap<String, String>) -> Checked<()> {
    for key in map.keys() {
        if !dns::is_qualified_name(key) {
            let why = "has a key that is not a name of at most 63 bytes, or a DNS subdomain, a slash and a name";
            return wrong(field, why);
        }
        if labels::is_reserved(key) {
            return wrong(format!("{field}[\"{key}\"]"), "is reserved for the agent");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::policy::{check, manifest};
    use crate::sample::{kubeconfig_manifest, taints_manifest};
    use crate::world::OBJECTS;
    use serde_json::{Value, json};

    fn refused(mut manifest: Value, field: &str, map: Value) -> Option<String> {
        manifest["spec"]["own"] = json!({field: map});
        check::policy(manifest::parse(&manifest).unwrap())
            .err()
            .map(|error| error.field)
    }

    #[test]
    fn a_policy_without_a_write_is_for_an_objects_guest() {
        let observes = |grant: Value| {
            let mut manifest = taints_manifest();
            manifest["spec"]["grant"] = grant;
            check::policy(manifest::parse(&manifest).unwrap())
        };
        for grant in [
            json!({}),
            json!({"write": []}),
            json!({"finalizer": "example.com/x"}),
        ] {
            let policy = observes(grant).unwrap();
            assert_eq!((policy.world, policy.writes.len()), (OBJECTS, 0));
        }
        let mut none = taints_manifest();
        none["spec"].as_object_mut().unwrap().remove("grant");
        assert!(check::policy(manifest::parse(&none).unwrap()).is_ok());
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
