//! The policies among the `FleetPolicy` objects of an API server. Sends no request.

use super::Written;
use serde_json::{Map, Value, json};
use transom_api::labels;
use transom_api::status::PolicyStatus;
use transom_artifacts::Base;
use transom_core::object::Object;

/// Every policy that is not being deleted, in order of name. Its place is the object's name; component files lie at
/// `base`. Only the fields that define a policy are taken, and an approval, so that a new status does not make it a new
/// policy.
pub(crate) fn written(objects: &[Object], base: &Base) -> Vec<Written> {
    let there = objects.iter().filter(|object| !object.deleting());
    let mut all: Vec<_> = there.map(|object| one(object, base)).collect();
    all.sort_by(|one, other| one.place.cmp(&other.place));
    all
}

fn one(object: &Object, base: &Base) -> Written {
    let Object {
        reference, body, ..
    } = object;
    let field = |name: &str| body.get(name).cloned().unwrap_or_default();
    let of = |field: &str| {
        body.pointer(&format!("/metadata/{field}"))
            .cloned()
            .unwrap_or_default()
    };
    let (generation, created, uid) = (of("generation"), of("creationTimestamp"), of("uid"));
    let annotations = of("annotations");
    let approval =
        labels::APPROVAL.map(|label| Some((label.to_owned(), annotations.get(label)?.clone())));
    let annotations: Map<String, Value> = approval.into_iter().flatten().collect();
    let mut value = json!({
        "apiVersion": reference.api_version, "kind": reference.kind,
        "metadata": {"name": reference.name, "generation": generation, "creationTimestamp": created, "uid": uid},
        "spec": field("spec"),
    });
    if !annotations.is_empty() {
        value["metadata"]["annotations"] = annotations.into();
    }
    Written {
        place: format!("FleetPolicy {}", reference.name),
        document: None,
        base: base.clone(),
        value,
    }
}

/// The status that an object has, if an agent wrote one.
pub(crate) fn status(object: &Object) -> Option<PolicyStatus> {
    let status = object
        .body
        .get("status")
        .filter(|status| !status.is_null())?;
    serde_json::from_value(Value::clone(status)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::reference::ObjectRef;

    fn object(name: &str, extra: &Value) -> Object {
        let mut body = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy",
            "metadata": {"name": name, "generation": 2, "uid": "u", "resourceVersion": "7"}, "spec": {"suspend": true}});
        for (pointer, value) in extra.as_object().into_iter().flatten() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            body.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        let reference = ObjectRef::local("transom.dev/v1alpha1", "FleetPolicy", None, name);
        Object {
            reference,
            version: "7".to_owned(),
            body,
        }
    }

    #[test]
    fn lists_policies_in_order_without_those_being_deleted() {
        let objects = [
            object("b", &json!({})),
            object(
                "gone",
                &json!({"/metadata/deletionTimestamp": "2026-11-21T08:00:00Z"}),
            ),
            object("a", &json!({})),
        ];
        let written = written(&objects, &Base::Components("components".into()));
        let places: Vec<_> = written.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, ["FleetPolicy a", "FleetPolicy b"]);
        assert_eq!(written[0].base, Base::Components("components".into()));
        assert_eq!(written[0].uid(), Some("u"));
        assert_eq!(
            written[0].value.pointer("/metadata/generation"),
            Some(&json!(2))
        );
    }

    #[test]
    fn a_status_change_is_no_new_policy() {
        let status = json!({"/status": {"conditions": []}, "/metadata/resourceVersion": "8", "/metadata/labels": {"a": "b"}});
        let (before, after) = (object("a", &json!({})), object("a", &status));
        let said = |object: &Object| written(std::slice::from_ref(object), &Base::Nowhere);
        assert_eq!(said(&before), said(&after));
        assert_eq!(
            (super::status(&before), super::status(&after)),
            (None, Some(PolicyStatus::default()))
        );
        let annotations = json!({"transom.dev/approved": "sha256:1", "other": "x"});
        let approved = object("a", &json!({"/metadata/annotations": annotations}));
        let (before, approved) = (said(&before), said(&approved));
        assert!(before[0].defines_same(&approved[0]) && before != approved);
        assert_eq!(
            approved[0].value["metadata"]["annotations"],
            json!({"transom.dev/approved": "sha256:1"})
        );
        let edited = object("a", &json!({"/metadata/generation": 3}));
        assert!(!before[0].defines_same(&said(&edited)[0]));
    }
}
