//! Reads a ManagedCluster into its record, filled only with what the guest declared. A declared field of the wrong
//! type is an error that names it.

pub mod declared;

use crate::contract::taints::{ClusterCondition, ManagedCluster, Status, Taint, TaintEffect};
use crate::failure::InvalidField;
use crate::object::Object;
use crate::object::field::FieldPlace;
use crate::projection::Declared;

/// Where its taints are.
pub const TAINTS_FIELD: &str = "spec.taints";
/// `spec.leaseDurationSeconds` of a cluster that sets none.
pub const DEFAULT_LEASE_SECONDS: u32 = 60;

/// Reads a ManagedCluster. Undeclared fields are empty, and their shape is not checked.
///
/// # Errors
/// The first declared field of the wrong type or with an impossible value.
pub fn view(object: &Object, declared: &Declared) -> Result<ManagedCluster, InvalidField> {
    if let Some(path) = declared.misfit(object) {
        return Err(InvalidField {
            path,
            expected: "a mapping or a list as a ManagedCluster requires",
        });
    }
    let fields = declared.fields.project(&object.body);
    let top = FieldPlace::top(&fields);
    let (metadata, spec, status) = (top.map("metadata")?, top.map("spec")?, top.map("status")?);
    Ok(ManagedCluster {
        reference: object.reference.clone(),
        uid: object.uid().to_owned(),
        created_seconds: object.created_seconds(),
        deleting: object.deleting(),
        accepted: spec.get("hubAcceptsClient").truth()?,
        lease_duration_seconds: lease_duration(&spec.get("leaseDurationSeconds"))?,
        kubernetes_version: status.map("version")?.get("kubernetes").text()?,
        labels: pairs(&metadata.get("labels"))?,
        annotations: pairs(&metadata.get("annotations"))?,
        claims: status.get("clusterClaims").each(claim)?,
        conditions: status.get("conditions").each(condition)?,
        taints: spec.get("taints").each(taint)?,
    })
}

fn lease_duration(place: &FieldPlace<'_>) -> Result<u32, InvalidField> {
    let Some(value) = place.value() else {
        return Ok(DEFAULT_LEASE_SECONDS);
    };
    value
        .as_u64()
        .and_then(|seconds| u32::try_from(seconds).ok())
        .ok_or_else(|| place.not("a number of seconds"))
}

/// The entries of a map of strings, sorted by key.
fn pairs(place: &FieldPlace<'_>) -> Result<Vec<(String, String)>, InvalidField> {
    let mut pairs = Vec::new();
    for key in place.entries()?.into_iter().flat_map(serde_json::Map::keys) {
        pairs.push((key.clone(), place.get(key).text()?.unwrap_or_default()));
    }
    pairs.sort();
    Ok(pairs)
}

fn claim(place: &FieldPlace<'_>) -> Result<(String, String), InvalidField> {
    Ok((
        place.get("name").required_text()?,
        place.get("value").text()?.unwrap_or_default(),
    ))
}

fn condition(place: &FieldPlace<'_>) -> Result<ClusterCondition, InvalidField> {
    let status = place.get("status");
    Ok(ClusterCondition {
        kind: place.get("type").required_text()?,
        status: match status.required_text()?.as_str() {
            "True" => Status::Yes,
            "False" => Status::No,
            "Unknown" => Status::Unknown,
            _ => return Err(status.not("True, False or Unknown")),
        },
        reason: place.get("reason").text()?.unwrap_or_default(),
        changed_seconds: place.get("lastTransitionTime").time()?,
    })
}

fn taint(place: &FieldPlace<'_>) -> Result<Taint, InvalidField> {
    let effect = place.get("effect");
    Ok(Taint {
        key: place.get("key").required_text()?,
        value: place.get("value").text()?.unwrap_or_default(),
        effect: TaintEffect::parse(&effect.required_text()?)
            .ok_or_else(|| effect.not("NoSelect, PreferNoSelect or NoSelectIfNew"))?,
        added_seconds: place.get("timeAdded").time()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::description::Read;
    use crate::contract::taints::MANAGED_CLUSTER;
    use crate::reference::ObjectRef;
    use crate::sample::object;
    use serde_json::{Value, json};

    fn read(body: Value, fields: &[&str]) -> Result<ManagedCluster, InvalidField> {
        let read = Read {
            api_version: MANAGED_CLUSTER.0.to_owned(),
            kind: MANAGED_CLUSTER.1.to_owned(),
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
            changes: vec![],
        };
        let reference = ObjectRef::local(MANAGED_CLUSTER.0, MANAGED_CLUSTER.1, None, "c1");
        view(&object(reference, body), &Declared::compile(&read).unwrap())
    }

    fn cluster() -> Value {
        json!({
            "metadata": {"uid": "u", "creationTimestamp": "1970-01-01T00:01:00Z", "labels": {"b": "2", "a": "1"}, "annotations": {"x/y": "z"}},
            "spec": {"hubAcceptsClient": true, "leaseDurationSeconds": 120, "taints": [{"key": "k", "effect": "NoSelect", "timeAdded": "1970-01-01T00:00:05Z"}]},
            "status": {
                "version": {"kubernetes": "v1.34.4"},
                "clusterClaims": [{"name": "id", "value": "7"}],
                "conditions": [
                    {"type": "ManagedClusterConditionAvailable", "status": "Unknown", "reason": "R", "lastTransitionTime": "1970-01-01T00:00:07Z"},
                    {"type": "Joined", "status": "True"},
                ],
            },
        })
    }

    #[test]
    fn fills_every_declared_field() {
        let all = ["metadata.labels", "metadata.annotations", "spec", "status"];
        let cluster = read(cluster(), &all).unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!((&*cluster.uid, cluster.deleting), ("u", false));
        assert_eq!(cluster.created_seconds, Some(60));
        assert!(cluster.accepted);
        assert_eq!(cluster.lease_duration_seconds, 120);
        assert_eq!(cluster.kubernetes_version.as_deref(), Some("v1.34.4"));
        assert_eq!(cluster.labels, [pair("a", "1"), pair("b", "2")]);
        assert_eq!(cluster.annotations, [pair("x/y", "z")]);
        assert_eq!(cluster.claims, [pair("id", "7")]);
        let [available, joined] = &cluster.conditions[..] else {
            panic!("{:?}", cluster.conditions)
        };
        assert_eq!(
            (available.status, &*available.reason),
            (Status::Unknown, "R")
        );
        assert_eq!(available.changed_seconds, Some(7));
        assert_eq!((&*joined.kind, joined.status), ("Joined", Status::Yes));
        assert_eq!(joined.changed_seconds, None);
        let taint = Taint {
            key: "k".to_owned(),
            value: String::new(),
            effect: TaintEffect::NoSelect,
            added_seconds: Some(5),
        };
        assert_eq!(cluster.taints, [taint]);
    }

    #[test]
    fn undeclared_fields_are_empty_and_never_validated() {
        let mut body = cluster();
        body["spec"]["taints"] = json!("odd");
        let cluster = read(body, &["status.conditions[Joined]", "metadata.labels.a"]).unwrap();
        assert_eq!(cluster.conditions.len(), 1);
        assert_eq!(cluster.labels, [("a".to_owned(), "1".to_owned())]);
        assert!(!cluster.accepted && cluster.taints.is_empty() && cluster.claims.is_empty());
        assert_eq!(cluster.lease_duration_seconds, DEFAULT_LEASE_SECONDS);
    }

    #[test]
    fn wrong_types_are_named() {
        for (path, value, below) in [
            ("status", json!("x"), ""),
            ("status.version", json!("x"), ""),
            ("status.version.kubernetes", json!(1), ""),
            ("status.conditions", json!({}), ""),
            ("status.conditions[1].type", json!(1), ""),
            ("status.clusterClaims[0]", json!({"value": "x"}), ".name"),
            ("spec.hubAcceptsClient", json!("yes"), ""),
            ("spec.leaseDurationSeconds", json!(-1), ""),
            ("spec.taints[0].effect", json!("NoExecute"), ""),
            // Their `type` is any text of a user.
            ("spec.taints[0]", json!({"type": "text"}), ".key"),
            (
                "status.conditions[1]",
                json!({"type": "any text", "status": true}),
                ".status",
            ),
            ("metadata.labels", json!([]), ""),
            ("metadata.labels.a", json!(1), ""),
        ] {
            let mut body = cluster();
            let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
            *body.pointer_mut(&pointer).unwrap() = value;
            let fields = [
                "metadata.labels",
                "spec",
                "status.version.kubernetes",
                "status.conditions",
                "status.clusterClaims",
            ];
            let invalid = read(body, &fields).unwrap_err();
            assert_eq!(invalid.path, format!("{path}{below}"));
        }
    }

    #[test]
    fn a_condition_is_named_by_its_type() {
        for (index, field, value, path) in [
            (
                1,
                "status",
                json!("Maybe"),
                "status.conditions[Joined].status",
            ),
            (1, "status", json!(true), "status.conditions[Joined].status"),
            (
                0,
                "lastTransitionTime",
                json!("now"),
                "status.conditions[ManagedClusterConditionAvailable].lastTransitionTime",
            ),
        ] {
            let mut body = cluster();
            body["status"]["conditions"][index][field] = value;
            // Also where it is the only one that is declared, and the first of what is left.
            for fields in ["status.conditions", path.rsplit_once('.').unwrap().0] {
                let invalid = read(body.clone(), &[fields]).unwrap_err();
                assert_eq!(invalid.path, path, "{fields}");
            }
        }
    }
}
