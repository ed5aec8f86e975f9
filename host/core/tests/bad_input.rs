//! For any input from a cluster, a user or a guest, decisions end with a value or a named error. Other tests check that
//! they are correct.

#![cfg(test)]

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::path::Path as File;
use transom_core::contract::AgentFacts;
use transom_core::contract::description::Read;
use transom_core::contract::taints::MANAGED_CLUSTER;
use transom_core::inputs;
use transom_core::managed_cluster;
use transom_core::object::Object;
use transom_core::pattern::template::TemplateNames;
use transom_core::pattern::{Pattern, TemplateData};
use transom_core::plan::contention::Contentions;
use transom_core::plan::desired::{Desired, Elements, Field, Fields};
use transom_core::plan::{PlanInput, Step, TimeAdded, plan};
use transom_core::policy::{check, manifest};
use transom_core::projection::Declared;
use transom_core::projection::path::Path;
use transom_core::reference::{ObjectRef, dns};
use transom_core::stamp::{SourceRef, Stamp};
use transom_core::trigger::{self, Evaluator, LastSeen, Predicate};
use transom_core::work::Key;

/// A text that no error may repeat: it represents content that users put into objects. No type of a condition has a
/// space; those are shown.
const CANARY: &str = "canary 7f3a";

/// JSON of any shape, with the field names that decisions read.
fn json_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just(CANARY.to_owned()),
        Just("True".to_owned()),
        Just("NoSelect".to_owned()),
        "\\PC{0,12}"
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let name = prop_oneof![
        Just("type"),
        Just("status"),
        Just("key"),
        Just("effect"),
        Just("value"),
        Just("name"),
        Just("port"),
        Just("ports"),
        Just("taints"),
        Just("conditions"),
        Just("labels"),
        Just("annotations"),
        Just("version"),
        Just("timeAdded"),
        Just("spec"),
        Just("metadata"),
        Just("transom.dev/source"),
        Just("uid"),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            proptest::collection::vec((name.clone(), inner), 0..6).prop_map(|entries| entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

/// An object: a body of its usual shape with an arbitrary value at one path.
fn object() -> impl Strategy<Value = Object> {
    let body = (any::<prop::sample::Index>(), json_value(), json_value()).prop_map(|(index, odd, whole)| {
        let mut body = json!({
            "metadata": {"name": "c", "uid": "u", "labels": {"a": "b"}, "annotations": {"transom.dev/source": "{}"}, "creationTimestamp": "2026-11-21T08:15:30Z"},
            "spec": {"taints": [{"key": "k", "effect": "NoSelect"}], "leaseDurationSeconds": 60, "ports": [{"port": 1}], "type": "ClusterIP"},
            "status": {"conditions": [{"type": "Available", "status": "True"}], "version": {"kubernetes": "v1"}, "clusterClaims": [{"name": "n"}]},
        });
        let pointers = pointers(&body);
        match body.pointer_mut(index.get::<String>(&pointers)) {
            Some(place) => *place = odd,
            None => body = whole,
        }
        body
    });
    body.prop_map(|body| {
        let reference = ObjectRef::local(MANAGED_CLUSTER.0, MANAGED_CLUSTER.1, None, "c");
        Object {
            reference,
            version: "7".to_owned(),
            body,
        }
    })
}

/// A pointer to every path of a value, including the root, and one that matches nothing.
fn pointers(value: &Value) -> Vec<String> {
    fn below(value: &Value, at: &str, all: &mut Vec<String>) {
        all.push(at.to_owned());
        match value {
            Value::Object(map) => {
                for (key, item) in map {
                    below(item, &format!("{at}/{}", key.replace('/', "~1")), all);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    below(item, &format!("{at}/{index}"), all);
                }
            }
            _ => {}
        }
    }
    let mut all = vec!["/nowhere".to_owned()];
    below(value, "", &mut all);
    all
}

fn everything() -> Declared {
    let texts = [
        "metadata.labels",
        "metadata.annotations",
        "spec",
        "status.conditions[Available]",
        "status.version.kubernetes",
        "status.clusterClaims",
    ];
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let read = Read {
        api_version: String::new(),
        kind: String::new(),
        fields: texts.clone(),
        changes: texts,
    };
    Declared::compile(&read).unwrap()
}

proptest! {
    #[test]
    fn reads_records_or_names_the_field(object in object()) {
        for error in [inputs::service(&object).err(), managed_cluster::view(&object, &everything()).err()].into_iter().flatten() {
            prop_assert!(!error.to_string().contains(CANARY), "{error}");
        }
        let _ = Stamp::read(&object);
    }

    #[test]
    fn decides_about_every_observation(before in object(), after in object()) {
        let declared = everything();
        let written = [Path::parse("spec.taints").unwrap()];
        for evaluator in [Evaluator::Guest, Evaluator::AnyChange] {
            let predicate = Predicate { evaluator, declared: &declared, written: &written, finalizer: None };
            let last_seen = LastSeen::of(&before, predicate);
            let _ = trigger::observe(predicate, Some(&last_seen), &after);
            prop_assert_eq!(trigger::observe(predicate, Some(&last_seen), &before), trigger::PredicateResult::Ignore);
        }
    }

    #[test]
    fn plans_taints_or_names_the_field(object in object(), key in "[a-c]", value in "\\PC{0,8}") {
        let path = File::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/built-in-taints/policy.yaml");
        let whole: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let policy = check::policy(manifest::parse(&whole).unwrap()).unwrap();
        let wanted = Map::from_iter([("key".to_owned(), key.into()), ("value".to_owned(), value.into())]);
        let elements = Elements::of_taints(["a".to_owned(), "k".to_owned()].into(), vec![wanted]);
        let fields = vec![(Path::parse("spec.taints").unwrap(), Field::Elements(elements))];
        let desired = Desired::Fields(Fields { object: object.reference.clone(), fields });
        let (of, agent) = (Key::new(&policy.name, &object.reference), AgentFacts::new("local-cluster", None));
        let wanting = PlanInput {
            policy: &policy,
            key: &of,
            data: TemplateData { object: &object, agent: &agent },
            primary: &object,
            targets: &[],
            others: &[],
            stamp: &Stamp::of(&of, SourceRef::of(&object, ""), "", ""),
            time_added: TimeAdded::SetByCluster,
            now_seconds: 0,
        };
        match plan(&wanting, &[desired], &Contentions::default()) {
            Err(failure) => prop_assert!(!failure.message.contains(CANARY)),
            Ok(plan) => {
                let single = |step: &Step| matches!(step, Step::Patch { fields, .. } if fields.len() == 1);
                prop_assert!(plan.plan.steps.iter().all(single));
            }
        }
    }

    #[test]
    fn refuses_a_damaged_policy_by_field_or_accepts_it_as_valid(index in any::<prop::sample::Index>(), odd in json_value(), which in 0..2usize) {
        let names = ["external-managed-kubeconfig", "built-in-taints"];
        let path = File::new(env!("CARGO_MANIFEST_DIR")).join("../../policies").join(names[which]).join("policy.yaml");
        let mut whole: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let pointers = pointers(&whole);
        if let Some(place) = whole.pointer_mut(index.get::<String>(&pointers)) {
            *place = odd;
        }
        if let Err(error) = manifest::parse(&whole).and_then(check::policy) {
            prop_assert!(!error.field.is_empty() && !error.why.is_empty());
        }
    }

    /// A template gives one DNS name or nothing, for any values of the primary.
    #[test]
    fn a_template_expands_to_dns_names_only(
        text in r#"(primary\.(name|labels\["l"\]|annotations\["a"\]|namespace)|dashed\(primary\.name\)|agent\.remoteCluster|"-"|"x"| \| | ){1,9}"#,
        values in prop::collection::vec(prop_oneof![Just("a-b".to_owned()), Just("a.b".to_owned()), Just("*".to_owned()), "\\PC{0,9}"], 4),
    ) {
        let body = json!({"metadata": {"labels": {"l": values[0]}, "annotations": {"a": values[1]}}});
        let reference = ObjectRef::local("v1", "X", Some("ns"), &values[2]);
        let object = Object { reference, version: String::new(), body };
        let agent = AgentFacts::new(&values[3], Some("hub"));
        let data = TemplateData { object: &object, agent: &agent };
        if let Ok(pattern) = Pattern::parse(&format!("k-{{{text}}}"), &TemplateNames::new()) {
            let shown = pattern.shown(&data);
            let name = shown.strip_prefix("k-").unwrap_or_default();
            prop_assert_eq!(pattern.matches(&shown, &data), dns::is_subdomain(name) || name == values[2] && text.trim() == "primary.name");
            prop_assert!(!pattern.matches("k-other", &data) || name == "other");
        }
    }

    #[test]
    fn patterns_accept_any_text_without_panic(text in "[a*{}.primarynm]{0,20}", name in "[a-z.-]{0,20}") {
        let primary = ObjectRef::local("v1", "X", Some("ns"), "demo");
        if let Ok(pattern) = Pattern::parse(&text, &TemplateNames::new()) {
            prop_assert_eq!(pattern.to_string(), text);
            if let Some(stars) = pattern.captures(&name, &primary) {
                prop_assert_eq!(pattern.fill(&stars, &primary), Some(name));
            }
        }
    }
}
