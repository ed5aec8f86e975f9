//! Which declared paths fill the record of a ManagedCluster; and a record cut to what is declared, for cases of
//! guests. `guest/sdk` has the same list for native tests; `tests/conformance` compares the two.

use super::view;
use crate::contract::description::Read;
use crate::contract::taints::{ClusterCondition, MANAGED_CLUSTER, ManagedCluster, Status, Taint};
use crate::failure::InvalidField;
use crate::object::Object;
use crate::projection::Declared;
use crate::projection::path::{Path, Segment};
use crate::time::format_rfc3339;
use serde_json::{Map, Value, json};

/// What may be declared below a place that fills a field.
#[derive(Clone, Copy)]
enum Below {
    /// Nothing: the value crosses whole.
    Nothing,
    /// One key of a map.
    Key,
    /// One condition by its type, and then one of its fields.
    Condition,
}

/// Every place that fills a field of the record.
const PLACES: [(&[&str], Below); 12] = [
    (&["metadata", "name"], Below::Nothing),
    (&["metadata", "uid"], Below::Nothing),
    (&["metadata", "creationTimestamp"], Below::Nothing),
    (&["metadata", "deletionTimestamp"], Below::Nothing),
    (&["metadata", "labels"], Below::Key),
    (&["metadata", "annotations"], Below::Key),
    (&["spec", "hubAcceptsClient"], Below::Nothing),
    (&["spec", "leaseDurationSeconds"], Below::Nothing),
    (&["spec", "taints"], Below::Nothing),
    (&["status", "version", "kubernetes"], Below::Nothing),
    (&["status", "clusterClaims"], Below::Nothing),
    (&["status", "conditions"], Below::Condition),
];
/// The fields of a condition.
const OF_CONDITION: [&str; 4] = ["type", "status", "reason", "lastTransitionTime"];

/// What is wrong with the declared reads of a taints guest: another kind than the ManagedCluster that it gets, a path
/// that fills no field of the record, or a condition without its status. `None` when all paths are good.
pub fn fault(read: &Read) -> Option<String> {
    let (version, kind) = MANAGED_CLUSTER;
    if (read.api_version.as_str(), read.kind.as_str()) != MANAGED_CLUSTER {
        return Some(format!(
            "it reads {} {}, but a taints guest is only given a {kind} of {version}",
            read.api_version, read.kind
        ));
    }
    let paths: Vec<Path> = read
        .fields
        .iter()
        .filter_map(|text| Path::parse(text).ok())
        .collect();
    if let Some(path) = paths.iter().find(|path| !fills(path)) {
        return Some(format!(
            "`{path}` does not fill any field of the record of a {kind}; the nearest path that does is `{}`",
            nearest(path)
        ));
    }
    let halved = paths.iter().find_map(|path| without_status(path, &paths))?;
    Some(format!(
        "`{halved}` is declared without its `status`, which every condition of the record must have"
    ))
}

/// Whether a path leads to a field of the record, or to a parent of one.
fn fills(path: &Path) -> bool {
    PLACES.iter().any(|(place, below)| {
        let mut segments = path.segments().iter();
        for field in *place {
            match segments.next() {
                None => return true,
                Some(Segment::Field(key)) if **key == **field => {}
                Some(_) => return false,
            }
        }
        match (below, segments.as_slice()) {
            (_, [])
            | (Below::Key, [Segment::Field(_)])
            | (Below::Condition, [Segment::Element(_)]) => true,
            (Below::Condition, [Segment::Element(_), Segment::Field(field)]) => {
                OF_CONDITION.contains(&&**field)
            }
            _ => false,
        }
    })
}

/// The condition that a path takes one field of, when no path declares its status.
fn without_status(path: &Path, all: &[Path]) -> Option<String> {
    let [
        Segment::Field(status),
        Segment::Field(list),
        Segment::Element(kind),
        Segment::Field(_),
    ] = path.segments()
    else {
        return None;
    };
    let condition = format!("{status}.{list}[{kind}]");
    let brings = |other: &Path| {
        let text = other.to_string();
        [
            &condition,
            &format!("{condition}.status"),
            "status",
            "status.conditions",
        ]
        .contains(&&*text)
    };
    (!all.iter().any(brings)).then_some(condition)
}

/// The place whose path is most similar.
fn nearest(path: &Path) -> String {
    let fields = path.segments().iter().filter_map(|segment| match segment {
        Segment::Field(key) => Some(&**key),
        Segment::Element(_) => None,
    });
    let wanted = fields.collect::<Vec<_>>().join(".").to_lowercase();
    let likeness = |text: &String| strsim::sorensen_dice(&wanted, &text.to_lowercase());
    let places = PLACES.iter().map(|(place, _)| place.join("."));
    places
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)))
        .unwrap_or_default()
}

/// Cuts a record to what its guest would get: undeclared fields are empty, as if the object did not have them.
///
/// # Errors
/// As [`view`], for a record that no object could give.
pub fn cut(cluster: &ManagedCluster, declared: &Declared) -> Result<ManagedCluster, InvalidField> {
    let object = Object {
        reference: cluster.reference.clone(),
        version: String::new(),
        body: body(cluster),
    };
    Ok(ManagedCluster {
        uid: cluster.uid.clone(),
        created_seconds: cluster.created_seconds,
        deleting: cluster.deleting,
        ..view(&object, declared)?
    })
}

/// The object that would give this record.
fn body(cluster: &ManagedCluster) -> Value {
    let map = |pairs: &[(String, String)]| -> Map<String, Value> {
        pairs
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().into()))
            .collect()
    };
    let claims: Vec<_> = cluster
        .claims
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    json!({
        "metadata": {"labels": map(&cluster.labels), "annotations": map(&cluster.annotations)},
        "spec": {
            "hubAcceptsClient": cluster.accepted,
            "leaseDurationSeconds": cluster.lease_duration_seconds,
            "taints": cluster.taints.iter().map(taint).collect::<Vec<_>>(),
        },
        "status": {
            "version": {"kubernetes": cluster.kubernetes_version},
            "clusterClaims": claims,
            "conditions": cluster.conditions.iter().map(condition).collect::<Vec<_>>(),
        },
    })
}

fn condition(condition: &ClusterCondition) -> Value {
    let status = match condition.status {
        Status::Yes => "True",
        Status::No => "False",
        Status::Unknown => "Unknown",
    };
    let changed = condition.changed_seconds.map(format_rfc3339);
    json!({"type": condition.kind, "status": status, "reason": condition.reason, "lastTransitionTime": changed})
}

fn taint(taint: &Taint) -> Value {
    let added = taint.added_seconds.map(format_rfc3339);
    json!({"key": taint.key, "value": taint.value, "effect": taint.effect.as_str(), "timeAdded": added})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::taints::TaintEffect;
    use crate::reference::ObjectRef;

    fn read(fields: &[&str]) -> Read {
        Read {
            api_version: MANAGED_CLUSTER.0.to_owned(),
            kind: MANAGED_CLUSTER.1.to_owned(),
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
            changes: vec![],
        }
    }

    #[test]
    fn valid_paths_pass() {
        for path in [
            "metadata",
            "metadata.labels",
            "metadata.labels.a",
            "metadata.annotations[\"a.b/c\"]",
            "metadata.deletionTimestamp",
            "spec",
            "spec.taints",
            "status",
            "status.version",
            "status.version.kubernetes",
            "status.clusterClaims",
            "status.conditions",
            "status.conditions[Available]",
            "status.conditions[Available].status",
        ] {
            assert_eq!(fault(&read(&[path])), None, "{path}");
        }
        let halves = [
            "status.conditions[A].reason",
            "status.conditions[A].status",
            "status.conditions[A].type",
        ];
        assert_eq!(fault(&read(&halves)), None);
        assert_eq!(
            fault(&read(&["status.conditions[A].reason", "status.conditions"])),
            None
        );
    }

    #[test]
    fn suggests_the_nearest_path_for_an_invalid_one() {
        for (path, nearest) in [
            ("status.clusterClaim", "status.clusterClaims"),
            ("status.claims[kubeversion]", "status.clusterClaims"),
            ("status.clusterClaims[kubeversion]", "status.clusterClaims"),
            ("status.clusterClaims.kubeversion", "status.clusterClaims"),
            ("metadata.label.a", "metadata.labels"),
            ("metadata.labels.a.b", "metadata.labels"),
            ("metadata.labels[a]", "metadata.labels"),
            ("spec.taint", "spec.taints"),
            ("spec.taints.key", "spec.taints"),
            ("spec.taints[a]", "spec.taints"),
            ("spec.accepted", "spec.hubAcceptsClient"),
            ("status.condition[Available]", "status.conditions"),
            ("status.conditions[Available].message", "status.conditions"),
            ("status.conditions.Available", "status.conditions"),
            ("status.version.kubernetes.x", "status.version.kubernetes"),
            ("kubernetes.version", "status.version.kubernetes"),
        ] {
            let fault = fault(&read(&["spec.taints", path])).unwrap_or_default();
            assert!(
                fault.contains(&format!("`{path}`")) && fault.ends_with(&format!("`{nearest}`")),
                "{path}: {fault}"
            );
        }
    }

    #[test]
    fn rejects_another_kind_and_an_incomplete_condition() {
        for (version, kind) in [
            (MANAGED_CLUSTER.0, "ManagedClusters"),
            (
                "cluster.open-cluster-management.io/v1beta1",
                MANAGED_CLUSTER.1,
            ),
        ] {
            let other = Read {
                api_version: version.to_owned(),
                kind: kind.to_owned(),
                ..read(&[])
            };
            assert!(
                fault(&other).is_some_and(|fault| fault.contains("given a ManagedCluster")),
                "{kind}"
            );
        }
        for half in ["reason", "type", "lastTransitionTime"] {
            let fault = fault(&read(&[
                &format!("status.conditions[A].{half}"),
                "status.conditions[B].status",
            ]));
            assert!(
                fault.is_some_and(|fault| fault.contains("`status.conditions[A]`")),
                "{half}"
            );
        }
    }

    #[test]
    fn reduces_a_record_to_the_declared_fields() {
        let pair = |key: &str| (key.to_owned(), "v".to_owned());
        let condition = |kind: &str| ClusterCondition {
            kind: kind.to_owned(),
            status: Status::No,
            reason: "R".to_owned(),
            changed_seconds: Some(7),
        };
        let all = ManagedCluster {
            reference: ObjectRef::local(MANAGED_CLUSTER.0, MANAGED_CLUSTER.1, None, "c1"),
            uid: "u".to_owned(),
            created_seconds: Some(5),
            deleting: true,
            accepted: true,
            lease_duration_seconds: 99,
            kubernetes_version: Some("v1".to_owned()),
            labels: vec![pair("a"), pair("b")],
            annotations: vec![pair("c")],
            claims: vec![pair("d")],
            conditions: vec![condition("A"), condition("B")],
            taints: vec![Taint {
                key: "k".to_owned(),
                value: String::new(),
                effect: TaintEffect::NoSelect,
                added_seconds: None,
            }],
        };
        let cut = |fields: &[&str]| cut(&all, &Declared::compile(&read(fields)).unwrap()).unwrap();
        assert_eq!(cut(&["metadata", "spec", "status"]), all);
        let nothing = cut(&[]);
        assert_eq!(
            (&*nothing.uid, nothing.created_seconds, nothing.deleting),
            ("u", Some(5), true)
        );
        assert_eq!(
            (nothing.accepted, nothing.lease_duration_seconds),
            (false, 60)
        );
        assert!(
            nothing.labels.is_empty() && nothing.claims.is_empty() && nothing.conditions.is_empty()
        );
        let some = cut(&[
            "metadata.labels.b",
            "status.conditions[B].status",
            "status.clusterClaims",
        ]);
        assert_eq!(
            (some.labels, some.claims),
            (vec![pair("b")], vec![pair("d")])
        );
        assert_eq!(
            some.conditions,
            [ClusterCondition {
                reason: String::new(),
                changed_seconds: None,
                ..condition("B")
            }]
        );
    }
}
