//! Grants to remove objects that others made, and to take finalizers off those that are being deleted.

use super::granted::finalizers;
use super::{Checked, Granted, patterns, unwritable};
use crate::policy::check::wrong;
use crate::policy::selector::Selector;
use crate::policy::{Target, WriteRule};
use transom_api::policy::WriteVerb;

/// Checks a grant to remove objects that others made.
pub(super) fn check(granted: &Granted<'_>) -> Checked<WriteRule> {
    let Granted { field, grant, .. } = *granted;
    if !grant.verbs.iter().all(WriteVerb::is_of_others) {
        let why = "has `remove` or `release` beside other verbs; use a grant for each";
        return wrong(format!("{field}.verbs"), why);
    }
    if grant.verbs.contains(&WriteVerb::Release) == grant.finalizers.is_empty() {
        let why = "must name finalizers exactly where `release` is granted";
        return wrong(format!("{field}.finalizers"), why);
    }
    for (name, is_empty) in [
        ("fields", grant.fields.is_empty()),
        ("values", grant.values.is_empty()),
        ("conditions", grant.conditions.is_empty()),
        ("signers", grant.signers.is_empty()),
        ("holes", grant.holes.is_empty()),
    ] {
        if !is_empty {
            let why = "must be absent with `remove` and `release`";
            return wrong(format!("{field}.{name}"), why);
        }
    }
    let (namespace, name) = patterns(granted)?;
    let kind = grant.kind.clone().unwrap_or_default();
    let labels = Selector::parse(&format!("{field}.labels"), &grant.labels)?;
    let target = Target::Others {
        namespace,
        name,
        labels,
        finalizers: finalizers(granted)?,
    };
    if let Some(why) = unwritable(&target, &grant.api_version, &kind, false) {
        return wrong(format!("{field}.kind"), why);
    }
    Ok(granted.rule(target))
}

#[cfg(test)]
mod tests {
    use crate::policy::{Policy, check, manifest};
    use crate::reference::ObjectRef;
    use crate::sample::{kubeconfig_manifest, object, objects_manifest, policy, stamp, with};
    use crate::stamp::Stamp;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;
    use transom_api::policy::WriteVerb;

    /// A policy that removes works.
    fn removes() -> Value {
        let grants = json!([{"apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
            "namespace": "{primary.name}", "name": "*", "verbs": ["remove"]}]);
        with(objects_manifest(), &[("/spec/grant/write", grants)])
    }

    fn checked(manifest: &Value) -> Result<Policy, String> {
        let checked = check::policy(manifest::parse(manifest).unwrap());
        checked.map_err(|error| error.field.replace("spec.grant.write[0]", ""))
    }

    #[test]
    fn refuses_grants_that_say_more_than_what_is_removed() {
        assert!(checked(&removes()).is_ok());
        let release = json!(["release"]);
        let finalizers = json!(["example.com/hold"]);
        for (changes, field) in [
            (vec![("/verbs", json!(["remove", "delete"]))], ".verbs"),
            (vec![("/verbs", json!(["create", "release"]))], ".verbs"),
            (vec![("/fields", json!(["spec.a"]))], ".fields"),
            (vec![("/conditions", json!(["A"]))], ".conditions"),
            (vec![("/signers", json!(["a/b"]))], ".signers"),
            (vec![("/values", json!({"spec.a": [1]}))], ".values"),
            (vec![("/name", Value::Null)], ".name"),
            (vec![("/kind", json!("work"))], ".kind"),
            (
                vec![("/apiVersion", json!("v1")), ("/kind", json!("Secret"))],
                ".kind",
            ),
            (
                vec![("/labels", json!({"matchLabels": {"a b": ""}}))],
                ".labels.matchLabels",
            ),
            (vec![("/finalizers", finalizers.clone())], ".finalizers"),
            (vec![("/verbs", release.clone())], ".finalizers"),
            (
                vec![("/verbs", release.clone()), ("/finalizers", json!(["a b"]))],
                ".finalizers[0]",
            ),
            (
                vec![
                    ("/apiVersion", json!("transom.dev/v1alpha1")),
                    ("/kind", json!("FleetPolicy")),
                ],
                ".kind",
            ),
        ] {
            let manifest = changes
                .iter()
                .fold(removes(), |manifest, (pointer, value)| {
                    let pointer = format!("/spec/grant/write/0{pointer}");
                    with(manifest, &[(&pointer, value.clone())])
                });
            assert_eq!(
                checked(&manifest).err().as_deref(),
                Some(field),
                "{changes:?}"
            );
        }
        for (field, value) in [
            ("labels", json!({"matchLabels": {"a": "b"}})),
            ("finalizers", finalizers),
        ] {
            let pointer = format!("/spec/grant/write/0/{field}");
            let manifest = with(objects_manifest(), &[(&pointer, value)]);
            assert_eq!(checked(&manifest).err(), Some(format!(".{field}")));
        }
    }

    #[test]
    fn what_a_policy_makes_bears_only_finalizers_that_it_can_take_off() {
        let makes = |verbs: Value, finalizer: &str| {
            let grants = json!([{"kind": "ConfigMap", "namespace": "a", "name": "b", "verbs": verbs,
                "fields": ["data.x"], "finalizers": [finalizer]}]);
            let manifest = with(objects_manifest(), &[("/spec/grant/write", grants)]);
            checked(&manifest).map(|policy| policy.writes[0].finalizers().map(BTreeSet::len))
        };
        let all = json!(["create", "update", "delete"]);
        assert_eq!(makes(all.clone(), "example.com/hold"), Ok(Some(1)));
        assert_eq!(makes(all, "a b"), Err(".finalizers[0]".to_owned()));
        for verbs in [
            json!(["create"]),
            json!(["create", "update"]),
            json!(["patch"]),
        ] {
            let refused = Err(".finalizers".to_owned());
            assert_eq!(makes(verbs, "example.com/hold"), refused);
        }
        let pointer = "/spec/grant/write/0/finalizers";
        let unused = with(kubeconfig_manifest(), &[(pointer, json!(["a.b/c"]))]);
        assert_eq!(checked(&unused).err(), Some(".finalizers".to_owned()));
    }

    #[test]
    fn a_finalizer_is_for_guests_that_make_objects() {
        let named = |manifest: Value, name: &str| {
            let manifest = with(manifest, &[("/spec/grant/finalizer", json!(name))]);
            checked(&manifest).map(|policy| policy.finalizer)
        };
        let name = "example.com/hold".to_owned();
        assert_eq!(named(removes(), &name), Ok(Some(name.clone())));
        let field = Err("spec.grant.finalizer".to_owned());
        for wrong in ["", "hold", "a/b/c", "a b/c", "/c"] {
            assert_eq!(named(removes(), wrong), field, "{wrong}");
        }
        assert_eq!(named(kubeconfig_manifest(), &name), field);
    }

    #[test]
    fn what_a_policy_made_is_removed_only_where_the_grant_selects_it() {
        let labels = "/spec/grant/write/0/labels";
        let selects = with(
            removes(),
            &[(labels, json!({"matchLabels": {"transom.dev/policy": "p"}}))],
        );
        let excludes = with(
            removes(),
            &[(
                labels,
                json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
            )],
        );
        let labelled = |labels: Value| json!({"labels": labels});
        let stamped = |policy: &str| {
            let mut body = json!({});
            let made = Stamp {
                policy: policy.to_owned(),
                ..stamp("a", "uid")
            };
            made.put(&mut body);
            body["metadata"].take()
        };
        for (manifest, there, lets) in [
            (removes(), json!({}), true),
            (removes(), labelled(json!({"a": "b"})), true),
            (removes(), stamped("p"), false),
            // Whoever writes the object can put that label on it.
            (
                removes(),
                labelled(json!({"transom.dev/policy": "p"})),
                true,
            ),
            (selects.clone(), stamped("p"), true),
            (selects.clone(), stamped("q"), false),
            (selects, json!({}), false),
            (excludes.clone(), json!({}), true),
            (excludes, labelled(json!({"a": ""})), false),
        ] {
            let reference = ObjectRef::local(
                "work.open-cluster-management.io/v1",
                "ManifestWork",
                Some("c1"),
                "w",
            );
            let work = object(reference, json!({"metadata": there}));
            let policy = policy(&manifest);
            let rule = &policy.writes[0];
            assert_eq!(rule.lets(WriteVerb::Remove, &work), lets, "{there}");
            assert!(!rule.lets(WriteVerb::Release, &work));
        }
    }
}
