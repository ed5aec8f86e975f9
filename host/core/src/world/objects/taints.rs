//! Taints of the primary that a policy of this world owns by key: `spec.taints[key=example.com/a]` among the granted
//! fields. They are merged as those of the taints world are.

use super::Checked;
use crate::contract::objects::Apply;
use crate::contract::taints::{TaintEffect, WantedTaint};
use crate::failure::Failure;
use crate::managed_cluster::TAINTS_FIELD;
use crate::plan::desired::Field;
use crate::policy::check::wrong;
use crate::policy::{Target, WriteRule};
use crate::projection::path::Path;
use crate::reference::dns;
use crate::world::{Granted, taints};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use transom_api::KnownReason;

/// The key of the taints that a granted field names.
fn key(field: &str) -> Option<&str> {
    let rest = field.strip_prefix(TAINTS_FIELD)?;
    rest.strip_prefix("[key=")?.strip_suffix(']')
}

/// Fields of a grant, each with its place in the list.
type Named<'a> = Vec<(usize, &'a String)>;

/// The keys that a grant names, and its other fields.
pub(super) fn split<'a>(
    granted: &'a Granted<'_>,
    target: &Target,
) -> Checked<(BTreeSet<String>, Named<'a>)> {
    let at = format!("{}.fields", granted.field);
    let fields = granted.grant.fields.iter().enumerate();
    let (named, others): (Named<'_>, Named<'_>) =
        fields.partition(|(_, field)| key(field).is_some());
    let Some((first, _)) = named.first() else {
        return Ok((BTreeSet::new(), others));
    };
    let at_first = format!("{at}[{first}]");
    if *target != Target::Primary {
        return wrong(at_first, "names taints by key, which only a primary has");
    }
    taints::primary_only(granted)?;
    let all = taints::path(&at)?;
    let overlaps = |field: &str| {
        let path = Path::parse(field);
        path.is_ok_and(|path| path.grants(&all) || all.covers(&path))
    };
    if let Some((index, _)) = others.iter().find(|(_, field)| overlaps(field)) {
        let why = "leads to taints of any key, beside taints that are named by key";
        return wrong(format!("{at}[{index}]"), why);
    }
    let mut keys = Vec::new();
    for (index, field) in &named {
        let key = key(field).unwrap_or_default();
        if !dns::is_qualified_name(key) {
            return wrong(format!("{at}[{index}]"), "does not name the key of a taint");
        }
        keys.push(key.to_owned());
    }
    Ok((taints::keys(&at, &keys)?, others))
}

/// What the content says of the taints that the policy owns by key; `None` for any other field.
pub(super) fn elements(
    apply: &Apply,
    rule: &WriteRule,
    (path, value): (&Path, &Value),
) -> Result<Option<Field>, Failure> {
    let keys = path.keys().unwrap_or_default();
    let ["spec", "taints", below @ ..] = keys.as_slice() else {
        return Ok(None);
    };
    if rule.taint_keys.is_empty() {
        return Ok(None);
    }
    let wanted = match value {
        Value::Null if below.is_empty() => Some(Vec::new()),
        Value::Array(all) if below.is_empty() => all.iter().map(wanted).collect(),
        _ => None,
    };
    let wanted = wanted.ok_or_else(|| {
        let object = &apply.object;
        let message = format!(
            "`spec.taints` in the content for {object} is not a list of taints with `key`, `effect` and perhaps `value`: the agent keeps their times"
        );
        Failure::known(KnownReason::ContractBroken, message)
    })?;
    taints::owned_elements(rule, &wanted).map(Some)
}

/// One taint; `None` if it has another form.
fn wanted(taint: &Value) -> Option<WantedTaint> {
    let map = taint.as_object()?;
    let known = |key: &String| ["key", "value", "effect"].contains(&&**key);
    if !map.keys().all(known) {
        return None;
    }
    Some(WantedTaint {
        key: text(map, "key")?.to_owned(),
        value: match map.get("value") {
            None | Some(Value::Null) => String::new(),
            Some(value) => value.as_str()?.to_owned(),
        },
        effect: TaintEffect::parse(text(map, "effect")?)?,
    })
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key)?.as_str()
}

#[cfg(test)]
mod tests {
    use crate::contract::objects::{Apply, ObjectOwnership, ObjectsAnswer};
    use crate::contract::taints::{Decision, TaintEffect, WantedTaint};
    use crate::failure::Failure;
    use crate::object::Object;
    use crate::plan::contention::Contentions;
    use crate::plan::{Plan, TimeAdded};
    use crate::policy::manifest::PolicyError;
    use crate::policy::{Policy, check, manifest};
    use crate::reference::ObjectRef;
    use crate::sample::{object, objects_manifest, planned, policy, taints_manifest, with};
    use crate::world::OBJECTS;
    use serde_json::{Value, json};

    fn granted(fields: Value) -> Result<Policy, PolicyError> {
        let grant = json!([{"target": "primary", "verbs": ["patch"], "fields": fields}]);
        let manifest = with(objects_manifest(), &[("/spec/grant/write", grant)]);
        check::policy(manifest::parse(&manifest).unwrap())
    }

    fn cluster(taints: &Value) -> Object {
        let (api_version, kind) = crate::contract::taints::MANAGED_CLUSTER;
        let reference = ObjectRef::local(api_version, kind, None, "c1");
        object(
            reference,
            json!({"metadata": {"name": "c1"}, "spec": {"taints": taints}}),
        )
    }

    fn plan(policy: &Policy, content: &Value, primary: &Object) -> Result<Plan, Failure> {
        let answer = ObjectsAnswer {
            apply: vec![Apply {
                object: primary.reference.clone(),
                ownership: ObjectOwnership::Fields,
                content: content.to_string(),
                holes: Vec::new(),
            }],
            ..ObjectsAnswer::default()
        };
        let added = TimeAdded::SetByUs(0);
        planned(
            policy,
            primary,
            &answer,
            added,
            (&Contentions::default(), 0),
        )
    }

    #[test]
    fn taints_by_key_are_planned_as_those_of_the_taints_world() {
        let of_taints = policy(&taints_manifest());
        let by_key = granted(json!(["spec.taints[key=a/one]", "spec.taints[key=a/two]"])).unwrap();
        assert_eq!(by_key.world, OBJECTS);
        assert_eq!(by_key.taint_keys().collect::<Vec<_>>(), ["a/one", "a/two"]);
        let one = json!({"key": "a/one", "effect": "NoSelect"});
        let valued = json!({"key": "a/one", "effect": "NoSelect", "value": "x"});
        let timed = json!({"key": "a/two", "effect": "PreferNoSelect", "timeAdded": "2026-01-01T00:00:00Z"});
        let other = json!({"key": "b", "effect": "NoSelect"});
        let want = |key: &str, value: &str, effect| WantedTaint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect,
        };
        let answers = [
            (json!(null), Vec::new()),
            (json!([one]), vec![want("a/one", "", TaintEffect::NoSelect)]),
            (
                json!([{"key": "a/two", "effect": "PreferNoSelect", "value": null}, valued]),
                vec![
                    want("a/two", "", TaintEffect::PreferNoSelect),
                    want("a/one", "x", TaintEffect::NoSelect),
                ],
            ),
        ];
        for there in [
            json!(null),
            json!([other, one]),
            json!([valued, other, timed]),
            json!([one, other, valued, one]),
        ] {
            let primary = cluster(&there);
            for (content, wanted) in &answers {
                let content = json!({"spec": {"taints": content}});
                let ours = plan(&by_key, &content, &primary).unwrap();
                let theirs = planned(
                    &of_taints,
                    &primary,
                    &Decision::Own(wanted.clone()),
                    TimeAdded::SetByUs(0),
                    (&Contentions::default(), 0),
                );
                assert_eq!(ours.steps, theirs.unwrap().steps, "{there} {content}");
            }
        }
    }

    #[test]
    fn refuses_what_is_no_list_of_taints() {
        let by_key = granted(json!(["spec.taints[key=a/one]"])).unwrap();
        let primary = cluster(&json!([]));
        let taint = |more: Value| {
            let mut taint = json!({"key": "a/one", "effect": "NoSelect"});
            for (key, value) in more.as_object().into_iter().flatten() {
                taint[key] = value.clone();
            }
            json!([taint])
        };
        for (taints, reason) in [
            (json!("x"), "ContractBroken"),
            (json!({"a/one": "NoSelect"}), "ContractBroken"),
            (json!({"a/one": null}), "ContractBroken"),
            (json!([null]), "ContractBroken"),
            (json!([{"key": "a/one"}]), "ContractBroken"),
            (taint(json!({"effect": "Evict"})), "ContractBroken"),
            (taint(json!({"value": 1})), "ContractBroken"),
            (taint(json!({"timeAdded": null})), "ContractBroken"),
            (taint(json!({"value": "x".repeat(1025)})), "ContractBroken"),
            (taint(json!({"key": "b"})), "TaintKeyNotGranted"),
        ] {
            let failure = plan(&by_key, &json!({"spec": {"taints": taints}}), &primary);
            assert_eq!(failure.unwrap_err().reason.to_string(), reason, "{taints}");
        }
        let whole = plan(&by_key, &json!({"spec": null}), &primary);
        assert_eq!(whole.unwrap_err().reason.to_string(), "WriteNotGranted");
    }

    #[test]
    fn a_grant_names_taints_of_a_primary_that_has_some() {
        let long = format!("spec.taints[key={}]", "x".repeat(400));
        for (fields, at) in [
            (
                json!(["spec.taints[key=]"]),
                "spec.grant.write[0].fields[0]",
            ),
            (json!([long]), "spec.grant.write[0].fields[0]"),
            (
                json!(["spec.taints[key=a]", "spec.taints[key=\"a\"]"]),
                "spec.grant.write[0].fields[1]",
            ),
            (
                json!(["spec.taints[key=a]b]"]),
                "spec.grant.write[0].fields[0]",
            ),
            (
                json!(["spec.taints[key=a/b/c]"]),
                "spec.grant.write[0].fields[0]",
            ),
            (
                json!(["spec.taints[key=a]", "spec.taints"]),
                "spec.grant.write[0].fields[1]",
            ),
            (
                json!(["spec.taints[key=a]", "spec"]),
                "spec.grant.write[0].fields[1]",
            ),
            (
                json!(["spec[\"taints\"]", "spec.taints[key=a]"]),
                "spec.grant.write[0].fields[0]",
            ),
            (
                json!(["spec.taints.x", "spec.taints[key=a]"]),
                "spec.grant.write[0].fields[0]",
            ),
            (
                json!(["spec.taints[a/one]"]),
                "spec.grant.write[0].fields[0]",
            ),
            (
                json!(["spec.x", "spec.clients[key=a]"]),
                "spec.grant.write[0].fields[1]",
            ),
        ] {
            assert_eq!(granted(fields.clone()).unwrap_err().field, at, "{fields}");
        }
        let grant =
            json!([{"target": "primary", "verbs": ["patch"], "fields": ["spec.taints[key=a]"]}]);
        let changes = [
            ("/spec/grant/write", grant),
            (
                "/spec/primary",
                json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
            ),
        ];
        let refused = check::policy(manifest::parse(&with(objects_manifest(), &changes)).unwrap());
        assert_eq!(refused.unwrap_err().field, "spec.grant.write[0].target");
    }
}
