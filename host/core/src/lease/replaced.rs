//! Whether a controller that a policy replaces still runs: somebody holds its Lease and renews it. The agent only
//! reports it; the policy works as before (ADR 0072).

use crate::object::Object;
use crate::projection::Paths;
use crate::time::parse_rfc3339;
use crate::watches::{Keep, Scope};
use serde_json::Value;

/// The kind by which controllers elect their leader.
pub const LEASE: (&str, &str) = ("coordination.k8s.io/v1", "Lease");
/// What is read of a Lease.
const FIELDS: [&str; 3] = [
    "spec.holderIdentity",
    "spec.leaseDurationSeconds",
    "spec.renewTime",
];
/// Where it is told what to do.
const PAGE: &str = "host/docs/policies.md#a-hub-on-these-policies";

/// The watch of the Leases of a name, in all namespaces: the namespace of a controller need not exist, and its name
/// differs from hub to hub.
pub(crate) fn watch(name: &str) -> (Scope, Keep) {
    let scope = Scope {
        name: Some(name.to_owned()),
        ..Scope::all(LEASE.0, LEASE.1)
    };
    let keep = Keep {
        fields: Paths::parse(&FIELDS).ok(),
        ..Keep::default()
    };
    (scope, keep)
}

/// The message while a Lease is held and renewed; `None` when its controller ended.
pub fn held(lease: &Object, now_seconds: i64) -> Option<String> {
    let spec = lease.body.get("spec")?;
    let text = |key: &str| spec.get(key).and_then(Value::as_str);
    let holder = text("holderIdentity").filter(|holder| !holder.is_empty())?;
    let seconds = spec.get("leaseDurationSeconds").and_then(Value::as_i64)?;
    let renewed = parse_rfc3339(text("renewTime")?)?;
    let ends = renewed.saturating_add(seconds);
    (now_seconds <= ends).then(|| {
        let reference = &lease.reference;
        let namespace = reference.namespace.as_deref().unwrap_or_default();
        format!(
            "{holder} holds the Lease {namespace}/{}: the controller that this policy replaces still runs; see {PAGE}",
            reference.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;
    use serde_json::json;

    fn lease(spec: Value) -> Object {
        Object {
            reference: ObjectRef::local(LEASE.0, LEASE.1, Some("hub"), "controller-lock"),
            version: "1".to_owned(),
            body: json!({ "spec": spec }),
        }
    }

    #[test]
    fn a_controller_runs_while_its_lease_is_held_and_renewed() {
        let spec = |holder: &str, seconds: i64| json!({"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": "1970-01-01T00:01:40.5Z"});
        let running = lease(spec("pod_1", 60));
        let told = held(&running, 160).unwrap();
        assert!(
            told.contains("pod_1") && told.contains("hub/controller-lock"),
            "{told}"
        );
        assert!(told.contains(PAGE));
        assert_eq!(held(&running, 161), None);
        // Given back at its end, as client-go does.
        assert_eq!(held(&lease(spec("", 1)), 100), None);
        for incomplete in [
            json!({}),
            json!({"holderIdentity": "a"}),
            json!({"holderIdentity": "a", "renewTime": "x", "leaseDurationSeconds": 1}),
        ] {
            assert_eq!(held(&lease(incomplete), 0), None);
        }
    }
}
