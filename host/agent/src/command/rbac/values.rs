//! `transom rbac --output values`: own policies with their rights as values of the chart. Helm cannot derive rights, so
//! the chart takes both together, and refuses policies that were changed after their rights were printed.

use super::{BoundRole, rule_of};
use crate::args::{RbacArgs, SecretReadsArg};
use serde_json::{Map, Value, json};
use transom_api::labels::APPROVAL;
use transom_core::digest::Digest;
use transom_core::document::emit::to_yaml_in_order;

/// What kubectl keeps on an object; the manifest says the same.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The largest number up to which a fraction of 64 bits holds each whole one.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// The values, as YAML.
pub(super) fn yaml(args: &RbacArgs, manifests: Vec<Value>, roles: &[BoundRole<'_>]) -> String {
    let manifests: Vec<_> = manifests.into_iter().map(manifest).collect();
    let reads = match args.secret_reads {
        SecretReadsArg::Watch => "watch",
        SecretReadsArg::Strict => "strict",
    };
    let roles = roles.iter().map(|role| {
        let rules: Vec<_> = role.rules.iter().map(|rule| rule_of(*rule)).collect();
        let namespace = role.namespace.map(|name| json!({"namespace": name}));
        let mut role = namespace.unwrap_or_else(|| json!({}));
        role["rules"] = rules.into();
        role
    });
    let own = json!({
        "digest": digest(reads, args.read_only, &manifests),
        "roles": roles.collect::<Vec<_>>(),
    });
    let values = json!({
        "secretReads": reads,
        "readOnly": args.read_only,
        "ownPolicies": manifests,
        "rbac": {"own": own},
    });
    let order = ["secretReads", "readOnly", "ownPolicies", "rbac"];
    format!(
        "# Values of the chart: own policies with the rights that follow from them. Print them again with\n\
         # `transom rbac --output values` when a policy changes, and with the new version before an upgrade.\n{}",
        to_yaml_in_order(&values, &order)
    )
}

/// A manifest as it was written, without what a server or the agent adds to it.
fn manifest(mut written: Value) -> Value {
    whole_numbers(&mut written);
    let mut part = |name: &str| written.get_mut(name).map(Value::take).unwrap_or_default();
    let (version, kind, spec, mut from) = (
        part("apiVersion"),
        part("kind"),
        part("spec"),
        part("metadata"),
    );
    let mut metadata = Map::new();
    for name in ["name", "labels", "annotations"] {
        let value = from.get_mut(name).map(Value::take);
        metadata.extend(value.map(|value| (name.to_owned(), value)));
    }
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|name, _| name != LAST_APPLIED && !APPROVAL.contains(&name.as_str()));
    }
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
}

/// What the chart computes in the same way: the JSON of Go with sorted keys, in which whole numbers have no fraction
/// and the two line separators of Unicode are escaped. Another version of the agent may need other rights.
fn digest(reads: &str, read_only: bool, manifests: &[Value]) -> String {
    let json = Value::from(manifests.to_vec()).to_string();
    let json = json.replace('\u{2028}', "\\u2028");
    let json = json.replace('\u{2029}', "\\u2029");
    let version = env!("CARGO_PKG_VERSION");
    Digest::of_bytes(format!("{version} {reads} {read_only} {json}").as_bytes()).to_string()
}

/// Writes whole numbers without a fraction.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let fraction = number.as_f64().filter(|_| number.is_f64());
            let whole = fraction.filter(|one| one.fract() == 0.0 && one.abs() < WHOLE);
            if let Some(whole) = whole {
                // Exact, as it is below the bound.
                #[expect(clippy::cast_possible_truncation, reason = "it has no fraction")]
                let whole = whole as i64;
                *number = whole.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
