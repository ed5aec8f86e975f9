//! Narrows the last good revision when a newer manifest allows less but cannot take over yet: the result allows only
//! what both allow.

use super::{EveryRule, Policy, PrimaryRule, ReadRule, Target, WriteRule, check};
use crate::managed_cluster::TAINTS_FIELD;
use crate::pattern::Pattern;
use crate::projection::path::Path;
use std::sync::Arc;
use transom_api::policy::{
    AdoptSpec, CarryGrant, InsecureGrant, KubeconfigGrant, ModeSpec, PolicySpec, PruneSpec,
};

/// The earlier policy, limited to what the newest allows. Guests, settings and times stay those of the earlier one.
/// When anything is narrowed, prune is off: without the newest guests it is unknown which objects the newest revision
/// keeps.
pub fn bounded(earlier: &Policy, newest: &Policy) -> Policy {
    let mut bounded = Policy {
        // `suspend` is no part of a revision: the newest value counts.
        suspend: newest.suspend,
        primary: primary(&earlier.primary, &newest.primary),
        reads: reads(&earlier.reads, &newest.reads),
        asks: {
            let both = earlier.asks.iter().filter(|ask| newest.asks.contains(ask));
            both.cloned().collect()
        },
        writes: writes(&earlier.writes, &newest.writes),
        finalizer: earlier
            .finalizer
            .clone()
            .filter(|_| earlier.finalizer == newest.finalizer),
        limits: earlier.limits.and(&newest.limits),
        on_failure: earlier.on_failure.and(&newest.on_failure),
        ..earlier.clone()
    };
    let narrowed = (&bounded.primary, &bounded.reads, &bounded.writes)
        != (&earlier.primary, &earlier.reads, &earlier.writes)
        || earlier.own.keep_until_absent != newest.own.keep_until_absent;
    if narrowed || newest.own.prune == PruneSpec::Never {
        bounded.own.prune = PruneSpec::Never;
    }
    if newest.own.adopt == AdoptSpec::Never {
        bounded.own.adopt = AdoptSpec::Never;
    }
    match check::watched(&bounded) {
        Ok(()) => bounded,
        Err(_) => at_rest(bounded),
    }
}

/// A policy that reads and writes nothing, and holds its primaries. Rules of two grants that overlap have a part in
/// common for each pair of them, which may need far more watches than each of the grants.
fn at_rest(policy: Policy) -> Policy {
    Policy {
        suspend: true,
        reads: Vec::new(),
        asks: Vec::new(),
        writes: Vec::new(),
        ..policy
    }
}

/// A policy in the mode `Shadow`, whatever its own manifest says: it writes nothing and prunes nothing.
pub fn shadowed(policy: &Policy) -> Policy {
    let mut spec = PolicySpec::clone(&policy.spec);
    spec.rollout.mode = ModeSpec::Shadow;
    Policy {
        suspend: true,
        spec: Arc::new(spec),
        ..policy.clone()
    }
}

/// The narrower of two patterns; `None` when neither covers the other, even if they overlap.
fn pattern(one: &Pattern, other: &Pattern) -> Option<Pattern> {
    match (other.covers(one), one.covers(other)) {
        (true, _) => Some(one.clone()),
        (_, true) => Some(other.clone()),
        _ => None,
    }
}

fn primary(earlier: &PrimaryRule, newest: &PrimaryRule) -> PrimaryRule {
    let same = (&earlier.cluster, &earlier.api_version, &earlier.kind)
        == (&newest.cluster, &newest.api_version, &newest.kind);
    let within = |one: &Pattern| match newest.namespaces.iter().any(|other| other.covers(one)) {
        true => vec![one.clone()],
        false => {
            let narrower = newest
                .namespaces
                .iter()
                .filter_map(|other| pattern(one, other));
            narrower.collect()
        }
    };
    let mut bounded = PrimaryRule {
        namespaces: earlier.namespaces.iter().flat_map(within).collect(),
        labels: earlier.labels.and(&newest.labels),
        ..earlier.clone()
    };
    // The kind alone admits objects without a namespace, so another kind must be emptied, not only its patterns.
    if !same {
        bounded.namespaces.clear();
        bounded.kind.clear();
    }
    bounded
}

fn reads(earlier: &[ReadRule], newest: &[ReadRule]) -> Vec<ReadRule> {
    let one = |rule: &ReadRule| {
        let other = newest.iter().find(|other| other.role == rule.role)?;
        let same = (&rule.cluster, &rule.api_version, &rule.kind)
            == (&other.cluster, &other.api_version, &other.kind);
        let namespace = match (&rule.namespace, &other.namespace) {
            (None, None) => None,
            (Some(one), Some(other)) => Some(pattern(one, other)?),
            _ => return None,
        };
        let keys = rule.keys.intersection(&other.keys).cloned().collect();
        same.then_some(ReadRule {
            namespace,
            name: pattern(&rule.name, &other.name)?,
            keys,
            every: rule.every.zip(other.every).map(|(one, other)| EveryRule {
                objects: one.objects.min(other.objects),
                bytes: one.bytes.min(other.bytes),
            }),
            ..rule.clone()
        })
    };
    earlier.iter().filter_map(one).collect()
}

fn writes(earlier: &[WriteRule], newest: &[WriteRule]) -> Vec<WriteRule> {
    let within = |one: &WriteRule| match one.place() {
        // What it has in common with others is a part of it.
        Some(_) if newest.contains(one) => vec![one.clone()],
        Some(_) => newest
            .iter()
            .filter_map(|other| beside(one, other))
            .collect(),
        None => vec![fields(one, newest)],
    };
    earlier.iter().flat_map(within).collect()
}

/// The objects that both rules let the policy make, write fields of, or remove.
fn beside(one: &WriteRule, other: &WriteRule) -> Option<WriteRule> {
    let same = (&one.cluster, &one.api_version, &one.kind)
        == (&other.cluster, &other.api_version, &other.kind)
        && (&one.fields, &one.values, &one.holes) == (&other.fields, &other.values, &other.holes);
    let ((namespace, name), (others_namespace, others_name)) = (one.place()?, other.place()?);
    let namespace = match (namespace, others_namespace) {
        (None, None) => None,
        (Some(one), Some(other)) => Some(pattern(one, other)?),
        _ => return None,
    };
    let name = pattern(name, others_name)?;
    let target = target((&one.target, &other.target), namespace, name)?;
    same.then_some(WriteRule {
        target,
        conditions: one
            .conditions
            .intersection(&other.conditions)
            .cloned()
            .collect(),
        verbs: one.verbs.intersection(&other.verbs).copied().collect(),
        kubeconfig: match (&one.kubeconfig, &other.kubeconfig) {
            (Some(one), Some(other)) => Some(kubeconfig(one, other)),
            _ => None,
        },
        ..one.clone()
    })
}

/// What both targets are, at a place.
fn target(both: (&Target, &Target), namespace: Option<Pattern>, name: Pattern) -> Option<Target> {
    Some(match both {
        (
            Target::Named { finalizers, .. },
            Target::Named {
                finalizers: theirs, ..
            },
        ) => Target::Named {
            namespace,
            name,
            finalizers: finalizers.intersection(theirs).cloned().collect(),
        },
        (
            Target::Others {
                labels, finalizers, ..
            },
            Target::Others {
                labels: others,
                finalizers: theirs,
                ..
            },
        ) => Target::Others {
            namespace,
            name,
            labels: labels.and(others),
            finalizers: finalizers.intersection(theirs).cloned().collect(),
        },
        _ => return None,
    })
}

/// The fields of the primary that both grants let the policy write.
fn fields(one: &WriteRule, newest: &[WriteRule]) -> WriteRule {
    let mut narrowed = one.clone();
    let others = newest
        .iter()
        .filter(|other| other.target == Target::Primary);
    let others: Vec<_> = others.collect();
    let fields = |path: &Path| others.iter().any(|other| other.fields.contains(path));
    let taint_keys = |key: &String| others.iter().any(|other| other.taint_keys.contains(key));
    narrowed.fields.retain(fields);
    // It is not decided which of two lists of values is narrower: if they differ, no field may be written.
    if others.iter().any(|other| other.values != one.values) {
        narrowed.fields.clear();
    }
    narrowed.taint_keys.retain(taint_keys);
    // A grant of the whole list and a grant by taint keys have nothing in common: then the list is not granted.
    let by_key = |rule: &WriteRule| !rule.taint_keys.is_empty();
    let both = others.iter().any(|other| by_key(other) == by_key(one));
    if !both || by_key(one) != by_key(&narrowed) {
        narrowed
            .fields
            .retain(|path| path.to_string() != TAINTS_FIELD);
    }
    let conditions = |one: &String| others.iter().any(|other| other.conditions.contains(one));
    narrowed.conditions.retain(conditions);
    let signers = |one: &String| others.iter().any(|other| other.signers.contains(one));
    narrowed.signers.retain(signers);
    narrowed
}

fn kubeconfig(one: &KubeconfigGrant, other: &KubeconfigGrant) -> KubeconfigGrant {
    // Names every field, so that a new one cannot be forgotten here.
    let KubeconfigGrant {
        mut server,
        mut addresses,
        mut ca,
        mut credentials,
        insecure,
        proxy,
        tls_server_name,
        cluster_domain,
    } = one.clone();
    // With another cluster domain the same role is another destination.
    let same_domain = cluster_domain == other.cluster_domain;
    let stays = |server: &String| same_domain || server == "source" || server.contains("://");
    server.retain(|server| other.server.contains(server) && stays(server));
    addresses.retain(|address| other.addresses.contains(address));
    ca.retain(|role| other.ca.contains(role));
    credentials.retain(|kind| other.credentials.contains(kind));
    let carried = |one, other| if one == other { one } else { CarryGrant::Drop };
    let same_insecure = insecure == other.insecure;
    KubeconfigGrant {
        server,
        addresses,
        ca,
        credentials,
        insecure: if same_insecure {
            insecure
        } else {
            InsecureGrant::Never
        },
        proxy: carried(proxy, other.proxy),
        tls_server_name: carried(tls_server_name, other.tls_server_name),
        cluster_domain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{check, manifest};
    use crate::sample::{self, kubeconfig_manifest, policy, taints_manifest};
    use serde_json::{Value, json};
    use transom_api::KnownReason;

    fn with(manifest: &Value, pointer: &str, value: Value) -> Policy {
        policy(&sample::with(manifest.clone(), &[(pointer, value)]))
    }

    /// Changes of a manifest that allow less, one at a time.
    fn narrower() -> Vec<(&'static str, Value)> {
        vec![
            ("/spec/primary/namespaces", json!(["clusters"])),
            (
                "/spec/grant/read/1/namespace",
                json!("{primary.namespace}-a*"),
            ),
            (
                "/spec/grant/read/0/name",
                json!("{primary.name}-admin-kubeconfig"),
            ),
            ("/spec/grant/write/0/namespace", json!("klusterlet-a*")),
            ("/spec/grant/write/0/verbs", json!(["create"])),
            (
                "/spec/grant/write/0/kubeconfig/credentials",
                json!(["Token"]),
            ),
        ]
    }

    #[test]
    fn the_same_policy_narrows_no_shipped_policy() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path().join("policy.yaml");
            let Ok(text) = std::fs::read_to_string(&file) else {
                continue;
            };
            let whole: Value = serde_yaml::from_str(&text).unwrap();
            let policy = check::policy(manifest::parse(&whole).unwrap()).unwrap();
            assert_eq!(bounded(&policy, &policy), policy, "{}", file.display());
            seen += 1;
        }
        assert!(seen > 15, "{seen}");
    }

    #[test]
    fn the_stricter_of_both_grants_applies() {
        let wide = kubeconfig_manifest();
        for (pointer, value) in narrower() {
            let (wide, narrow) = (policy(&wide), with(&wide, pointer, value));
            let bounded = bounded(&wide, &narrow);
            assert_eq!(
                (&bounded.primary, &bounded.reads, &bounded.writes),
                (&narrow.primary, &narrow.reads, &narrow.writes),
                "{pointer}"
            );
            assert_eq!(bounded.own.prune, PruneSpec::Never, "{pointer}");
            // A wider newest manifest widens nothing, and what is equal stays.
            assert_eq!(super::bounded(&narrow, &wide), narrow, "{pointer}");
            assert_eq!(super::bounded(&wide, &wide), wide);
        }
    }

    #[test]
    fn grants_whose_product_needs_too_many_watches_leave_nothing() {
        // Each has one pattern that covers what the other names one by one.
        let of = |pattern: &str, exact: &str, number: usize| {
            let exact = (1..number).map(|number| json!(format!("{exact}{number}")));
            let kinds = (0..64).map(|kind| {
                json!({"role": format!("r{kind}"), "kind": format!("Kind{kind}"), "namespace": "{primary.namespace}",
                    "name": "x"})
            });
            policy(&sample::with(
                sample::objects_manifest(),
                &[
                    (
                        "/spec/primary",
                        json!({"apiVersion": "v1", "kind": "ConfigMap",
                        "namespaces": exact.chain([json!(pattern)]).collect::<Vec<_>>()}),
                    ),
                    ("/spec/grant/read", kinds.collect()),
                ],
            ))
        };
        let bound = |number: usize| bounded(&of("a*", "b", number), &of("b*", "a", number));
        let few = bound(4);
        assert_eq!((few.suspend, few.reads.len()), (false, 64));
        let many = bound(64);
        assert_eq!(check::watched(&many), Ok(()));
        assert!(many.suspend && many.own.prune == PruneSpec::Never);
        assert!(many.reads.is_empty() && many.asks.is_empty() && many.writes.is_empty());
        assert_eq!(many.primary.namespaces.len(), 126);
    }

    #[test]
    fn drops_patterns_that_overlap_only_partly() {
        let wide = kubeconfig_manifest();
        let bound = |pointer, value| bounded(&policy(&wide), &with(&wide, pointer, value));
        assert_eq!(
            bound("/spec/grant/write/0/namespace", json!("*-demo")).writes,
            []
        );
        assert_eq!(bound("/spec/grant/write/0/name", json!("other")).writes, []);
        assert!(
            bound("/spec/grant/read/3/kind", json!("Other"))
                .reads
                .iter()
                .all(|rule| rule.role != "klusterlet")
        );
        // A fixed name instead of a template may be another primary's.
        let other = bound("/spec/grant/read/0/namespace", json!("clusters"));
        assert!(other.reads.iter().all(|rule| rule.role != "source"));
        let elsewhere = bound("/spec/primary/kind", json!("NodePool")).primary;
        assert!(elsewhere.namespaces.is_empty() && elsewhere.kind.is_empty());
    }

    #[test]
    fn a_policy_in_shadow_holds_every_primary_and_says_so() {
        let primary = sample::object(sample::hosted("c"), json!({}));
        let held = |policy: &Policy| policy.held(&primary).err().map(|why| why.reason);
        let before = policy(&taints_manifest());
        assert_eq!(held(&before), None);
        let shadowed = shadowed(&before);
        assert_eq!(held(&shadowed), Some(KnownReason::Shadowing.into()));
        assert_eq!(shadowed.identity, before.identity);
        // A trial asks what it would do.
        let suspend = false;
        assert_eq!(
            held(&Policy {
                suspend,
                ..shadowed
            }),
            None
        );
        let suspended = with(&taints_manifest(), "/spec/suspend", json!(true));
        let suspended = super::shadowed(&suspended);
        assert_eq!(held(&suspended), Some(KnownReason::Suspended.into()));
    }

    #[test]
    fn the_newest_suspends_and_resumes_and_taints_intersect_by_key() {
        let suspended = with(&taints_manifest(), "/spec/suspend", json!(true));
        let before = policy(&taints_manifest());
        assert!(bounded(&before, &suspended).suspend && !bounded(&suspended, &before).suspend);
        let expected = Policy {
            spec: before.spec.clone(),
            ..suspended
        };
        let bound = bounded(&before, &expected);
        assert_eq!(bound, expected, "nothing else is touched");
        let other = with(
            &taints_manifest(),
            "/spec/grant/write/0/taintKeys",
            json!(["other"]),
        );
        assert_eq!(bounded(&before, &other).taint_keys().count(), 0);
        assert_eq!(
            bounded(&before, &policy(&kubeconfig_manifest()))
                .taint_keys()
                .count(),
            0
        );
    }

    #[test]
    fn some_taints_are_not_all_of_them() {
        let granting = |fields: Value| {
            let form = json!([{"key": "*", "effect": "*"}]);
            let grant = json!([{"target": "primary", "verbs": ["patch"], "fields": fields, "values": {"spec.taints": form}}]);
            policy(&sample::with(
                sample::objects_manifest(),
                &[("/spec/grant/write", grant)],
            ))
        };
        let all = granting(json!(["spec.taints", "metadata.labels.x"]));
        let (one, two) = ("spec.taints[key=a/one]", "spec.taints[key=a/two]");
        let some = granting(json!([one, two, "metadata.labels.x"]));
        let other = granting(json!(["spec.taints[key=a/three]", "metadata.labels.x"]));
        let narrow = granting(json!([one, "metadata.labels.x"]));
        for (active, newest) in [(&all, &some), (&some, &all), (&some, &other)] {
            let bound = bounded(active, newest);
            let fields: Vec<_> = bound.primary_fields().iter().map(Path::to_string).collect();
            assert_eq!(fields, ["metadata.labels.x"], "neither");
        }
        let bound = bounded(&some, &narrow);
        assert_eq!(bound.taint_keys().collect::<Vec<_>>(), ["a/one"]);
        assert_eq!(bound.primary_fields().len(), 2);
    }

    #[test]
    fn of_objects_of_others_both_grants_name_objects_and_conditions() {
        let wide = sample::with(
            sample::objects_manifest(),
            &[(
                "/spec/grant/write/0",
                json!({"kind": "ConfigMap", "namespace": "a-*", "name": "*", "verbs": ["patch"],
                    "fields": ["data.x", "status.conditions"], "conditions": ["One", "Two"]}),
            )],
        );
        let bound = |pointer: &str, value| {
            let pointer = format!("/spec/grant/write/0/{pointer}");
            let narrow = with(&wide, &pointer, value);
            (bounded(&policy(&wide), &narrow).writes, narrow.writes)
        };
        for (pointer, value) in [
            ("namespace", json!("a-b")),
            ("name", json!("x*")),
            ("conditions", json!(["Two"])),
        ] {
            let (bound, narrow) = bound(pointer, value);
            assert_eq!(bound, narrow, "{pointer}");
        }
        let (bound, _) = bound("fields", json!(["data.y", "status.conditions"]));
        assert_eq!(bound, [], "other fields");
        // What others made before is nothing that the policy may make now.
        let makes = json!({"kind": "ConfigMap", "namespace": "a-*", "name": "*", "verbs": ["create", "update"],
            "fields": ["data.x"]});
        let made = with(&wide, "/spec/grant/write/0", makes);
        assert_eq!(bounded(&policy(&wide), &made).writes, []);
        assert_eq!(bounded(&made, &policy(&wide)).writes, []);
    }

    #[test]
    fn a_kubeconfig_goes_only_where_both_grants_allow() {
        let wide = kubeconfig_manifest();
        for (field, value) in [
            ("clusterDomain", json!("other.domain")),
            ("credentials", json!(["Token"])),
            ("tlsServerName", json!("Drop")),
        ] {
            let narrow = with(
                &wide,
                &format!("/spec/grant/write/0/kubeconfig/{field}"),
                value,
            );
            let bound = bounded(&policy(&wide), &narrow);
            let grant = |policy: &Policy| policy.writes[0].kubeconfig.clone().unwrap();
            let (bound, narrow) = (grant(&bound), grant(&narrow));
            assert!(
                bound
                    .credentials
                    .iter()
                    .all(|kind| narrow.credentials.contains(kind))
            );
            assert!(bound.tls_server_name == narrow.tls_server_name);
            assert_eq!(
                bound.server.iter().any(|server| server == "service"),
                field != "clusterDomain",
                "{field}"
            );
        }
    }
}
