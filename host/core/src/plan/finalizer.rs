//! The finalizer of a policy on its primaries: added before the policy makes an object, and removed last. And the
//! finalizers on objects that a policy makes: they hold an object that others delete until the policy no longer wants
//! it.

use super::{PlanInput, Step, field_manager};
use crate::managed_keys::finalizers_left;
use crate::object::Object;
use crate::policy::{Policy, WriteRule};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The field with the finalizers of an object.
pub(crate) const FIELD: &str = "metadata.finalizers";

/// The step to the finalizer; none when it is there. An object that is being deleted takes no new one.
pub(super) fn keep(wanting: &PlanInput<'_>) -> Option<Step> {
    let name = wanting.policy.finalizer.as_deref()?;
    let mut names = names(wanting.primary);
    if wanting.primary.deleting() || names.contains(&name) {
        return None;
    }
    names.push(name);
    Some(patch(wanting.primary, &names))
}

/// Moves the step to the finalizer of the primary behind the others, unless one of them makes an object: a writer that
/// keeps removing the finalizer must not block the removal of rights.
pub(super) fn defer(steps: &mut [Step], primary: &Object) {
    let is_own = |step: &Step| step.is_of_finalizers() && *step.target() == primary.reference;
    let makes = |step: &Step| matches!(step, Step::Create { .. });
    if let Some(at) = steps.iter().position(is_own)
        && !steps.iter().any(makes)
    {
        steps[at..].rotate_left(1);
    }
}

/// The step that releases the primary, if the finalizer of the policy is on it. All other finalizers stay.
pub fn release(policy: &Policy, primary: &Object) -> Option<Step> {
    let name = policy.finalizer.clone()?;
    take(primary, &BTreeSet::from([name]))
}

/// Whether an object that is no primary bears the finalizer that the policy put on it. What others put there stays:
/// another controller may use the same finalizer for objects that the policy does not select.
pub fn is_left_on(policy: &Policy, object: &Object) -> bool {
    let Some(name) = &policy.finalizer else {
        return false;
    };
    is_on(object, name) && !policy.is_about(object) && puts(&policy.name, object, name)
}

/// Whether the API server names a policy as one that put a finalizer on an object.
fn puts(policy: &str, object: &Object, name: &str) -> bool {
    let manager = field_manager(policy);
    let entries = object.body.pointer("/metadata/managedFields");
    let mut entries = entries.and_then(Value::as_array).into_iter().flatten();
    let item = format!("v:{}", Value::from(name));
    entries.any(|entry| {
        let fields = entry.pointer("/fieldsV1/f:metadata/f:finalizers");
        entry.get("manager").and_then(Value::as_str) == Some(manager.as_str())
            && fields.is_some_and(|fields| fields.get(&item).is_some())
    })
}

/// The step that takes finalizers off an object; none if none of them is on it.
pub(super) fn take(object: &Object, finalizers: &BTreeSet<String>) -> Option<Step> {
    let mut names = names(object);
    let before = names.len();
    names.retain(|there| !finalizers.contains(*there));
    (names.len() < before).then(|| patch(object, &names))
}

/// The field of an object that the policy makes, if it lacks one of the finalizers of its grant, or bears one that the
/// policy put there when its grant still named it. One that is being deleted gets no finalizer any more.
pub(super) fn wrong(rule: &WriteRule, object: &Object) -> Option<String> {
    let mut wanted = rule.finalizers().into_iter().flatten();
    let lacks = !object.deleting() && wanted.any(|name| !is_on(object, name));
    (lacks || !finalizers_left(rule, object).is_empty()).then(|| FIELD.to_owned())
}

/// The step that removes the finalizers of an object that the policy put on it or its grant names.
pub(super) fn take_all(rule: &WriteRule, object: &Object) -> Option<Step> {
    let mut all = finalizers_left(rule, object);
    all.extend(rule.finalizers().into_iter().flatten().cloned());
    take(object, &all)
}

/// Takes the finalizers that the policy put on an object, and that its grant names no longer, off the body as it will
/// be.
pub(super) fn drop_left(rule: &WriteRule, existing: &Object, body: &mut Value) {
    let left = finalizers_left(rule, existing);
    let names = body.pointer_mut("/metadata/finalizers");
    if let Some(names) = names.and_then(Value::as_array_mut) {
        names.retain(|name| !name.as_str().is_some_and(|name| left.contains(name)));
    }
}

/// Puts the finalizers of a grant on the body of an object that the policy makes, beside those of others.
pub(super) fn put(rule: &WriteRule, body: &mut Value) {
    let metadata = body.get_mut("metadata").and_then(Value::as_object_mut);
    let stays = |metadata: &&mut Map<String, Value>| !metadata.contains_key("deletionTimestamp");
    let Some(metadata) = metadata.filter(stays) else {
        return;
    };
    for name in rule.finalizers().into_iter().flatten() {
        let names = metadata.entry("finalizers").or_insert_with(|| json!([]));
        let name = Value::from(name.as_str());
        if let Some(names) = names.as_array_mut().filter(|names| !names.contains(&name)) {
            names.push(name);
        }
    }
}

impl Step {
    /// Whether it changes nothing but the finalizers of an object.
    pub fn is_of_finalizers(&self) -> bool {
        match self {
            Self::Patch { fields, .. } => fields.iter().all(|(path, _)| path == FIELD),
            _ => false,
        }
    }
}

/// Whether a finalizer is on an object.
pub(crate) fn is_on(object: &Object, name: &str) -> bool {
    names(object).contains(&name)
}

/// Whether any finalizer is on an object.
pub(crate) fn bears_any(object: &Object) -> bool {
    !names(object).is_empty()
}

fn names(object: &Object) -> Vec<&str> {
    let metadata = object.body.get("metadata");
    let there = metadata.and_then(|metadata| metadata.get("finalizers")?.as_array());
    let there = there.into_iter().flatten();
    there.filter_map(Value::as_str).collect()
}

fn patch(object: &Object, names: &[&str]) -> Step {
    let value = match names.is_empty() {
        true => Value::Null,
        false => names.into(),
    };
    Step::Patch {
        reference: object.reference.clone(),
        version: object.version.clone(),
        fields: vec![(FIELD.to_owned(), value)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;
    use crate::sample::{object, objects_manifest, policy, with};

    #[test]
    fn the_finalizer_of_the_primary_comes_first_only_where_an_object_is_made() {
        let there = |name: &str| {
            let place = ObjectRef::local("v1", "ConfigMap", Some("n"), name);
            object(place, json!({"metadata": {}}))
        };
        let primary = there("p");
        let keep = patch(&primary, &["f"]);
        let (changed, made) = (patch(&there("a"), &["g"]), there("b"));
        let made = Step::Create { desired: made };
        let deferred = |steps: &[&Step]| {
            let mut steps: Vec<Step> = steps.iter().map(|step| (*step).clone()).collect();
            defer(&mut steps, &primary);
            steps
        };
        let last = [changed.clone(), keep.clone()];
        assert_eq!(deferred(&[&keep, &changed]), last);
        let first = [keep.clone(), changed.clone(), made.clone()];
        assert_eq!(deferred(&[&keep, &changed, &made]), first);
    }

    #[test]
    fn only_a_finalizer_that_the_policy_put_there_is_left_on_what_it_does_not_select() {
        let name = "example.com/leaving";
        let labels = json!({"matchLabels": {"a": "b"}});
        let policy = policy(&with(
            objects_manifest(),
            &[
                ("/spec/grant/finalizer", json!(name)),
                ("/spec/primary/labels", labels),
            ],
        ));
        let of = &policy.primary;
        let reference = ObjectRef::local(&of.api_version, &of.kind, None, "c");
        let left = |manager: &str, item: &str, labels: Value, there: Value| {
            let fields = json!({"f:metadata": {"f:finalizers": {".": {}, item: {}}}});
            let managed = json!([{"manager": "kubectl"}, {"manager": manager, "fieldsV1": fields}]);
            let metadata = json!({"labels": labels, "finalizers": there, "managedFields": managed});
            is_left_on(
                &policy,
                &object(reference.clone(), json!({"metadata": metadata})),
            )
        };
        let (ours, item) = ("transom-sets", r#"v:"example.com/leaving""#);
        assert!(left(ours, item, json!({}), json!(["other", name])));
        assert!(!left("other", item, json!({}), json!([name])));
        assert!(!left(ours, r#"v:"other""#, json!({}), json!([name])));
        assert!(
            !left(ours, item, json!({"a": "b"}), json!([name])),
            "it is a primary"
        );
        assert!(
            !left(ours, item, json!({}), json!(["other"])),
            "it is not on it"
        );
    }
}
