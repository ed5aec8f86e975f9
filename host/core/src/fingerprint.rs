//! A digest of everything in an object that a reconcile can depend on: a change that keeps the fingerprint starts no
//! reconcile. It covers credential bytes, so it must not leave the process.

use crate::digest::Digest;
use crate::managed_keys;
use crate::object::Object;
use crate::projection;
use crate::projection::path::Path;
use crate::reference::is_secret;
use transom_api::labels;

/// Metadata fields that servers write and no decision uses.
const BOOKKEEPING: [&str; 3] = ["resourceVersion", "managedFields", "generation"];

/// The fingerprint of an object. Of a Secret only its data, its owner, our stamp and the keys that a policy put beside
/// it count: HyperShift copies a cluster's labels onto its secrets, and no decision uses those.
pub fn of(object: &Object) -> Digest {
    without_annotations(object, &[])
}

/// The fingerprint without the primary that the object was made for: it does not matter which primary keeps a shared
/// object.
pub fn of_shared(object: &Object) -> Digest {
    without_annotations(object, &[labels::SOURCE, labels::INPUTS, labels::COMPONENT])
}

fn without_annotations(object: &Object, without: &[&str]) -> Digest {
    let is_secret = is_secret(&object.reference.api_version, &object.reference.kind);
    let Some(fields) = object.fields() else {
        return Digest::of(&object.body);
    };
    if !is_secret {
        return Digest::of_fields(fields, &BOOKKEEPING, without);
    }
    let of_metadata = |field: &str| fields.get("metadata")?.get(field);
    let managed = managed_keys::view(object);
    Digest::of_all([
        fields.get("data"),
        fields.get("type"),
        of_metadata("uid"),
        of_metadata("deletionTimestamp"),
        of_metadata("ownerReferences"),
        of_metadata("finalizers"),
        of_metadata("labels").and_then(|labels| labels.get(labels::MANAGED_BY)),
        of_metadata("labels").and_then(|labels| labels.get(labels::POLICY)),
        of_metadata("annotations")
            .and_then(|annotations| annotations.get(labels::SOURCE))
            .filter(|_| !without.contains(&labels::SOURCE)),
        Some(&managed),
    ])
}

/// The fingerprint of some fields, of the uid (another one when the object is recreated), and of whether it is being
/// deleted.
pub fn of_fields(fields: &[Path], object: &Object) -> Digest {
    let fields = projection::fingerprints(fields, object);
    Digest::of_named(object.uid(), object.deleting(), &fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;
    use serde_json::{Value, json};

    fn object(kind: &str, body: Value) -> Digest {
        let reference = ObjectRef::local("v1", kind, Some("n"), "x");
        of(&Object {
            reference,
            version: String::new(),
            body,
        })
    }

    #[test]
    fn the_fingerprint_of_a_secret_covers_data_and_no_labels() {
        let secret = |label: &str, data: &str| {
            object(
                "Secret",
                json!({"metadata": {"labels": {"a": label}}, "data": {"k": data}}),
            )
        };
        assert_eq!(secret("1", "x"), secret("2", "x"));
        assert_ne!(secret("1", "x"), secret("1", "y"));
    }

    #[test]
    fn the_fingerprint_of_other_kinds_covers_all_but_bookkeeping() {
        let service = |version: &str, port: u16| {
            object(
                "Service",
                json!({"metadata": {"resourceVersion": version}, "spec": {"port": port}}),
            )
        };
        assert_eq!(service("1", 443), service("2", 443));
        assert_ne!(service("1", 443), service("1", 6443));
    }
}
