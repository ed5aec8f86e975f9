//! Answers of a real component of the objects world: those within the grant become a plan, all others are refused, each
//! with its reason.

use crate::planned::planned;
use crate::support::{desired, unlimited};
use serde_json::{Value, json};
use std::fs;
use transom_conformance::arguments::context;
use transom_conformance::fixture::root;
use transom_core::catalogue::guest::GuestFacts as Described;
use transom_core::contract::{AgentFacts, Primary};
use transom_core::failure::Failure;
use transom_core::inputs::kubeconfigs::Kubeconfigs;
use transom_core::inputs::secrets::Secrets;
use transom_core::kubeconfig::KubeconfigLimits;
use transom_core::object::Object;
use transom_core::pattern::TemplateData;
use transom_core::plan::contention::Contentions;
use transom_core::plan::{Plan, Step, TimeAdded};
use transom_core::policy::{Policy, check, manifest};
use transom_core::reference::ObjectRef;
use transom_core::world::{Answer, Lowering};
use transom_engine::{CallFailure, CallLimits, Guest, Question};

/// The bundled policy, which may put clusters into the set `eu`, or into none.
fn policy() -> Policy {
    let file = root().join("policies/cluster-sets-by-rule/policy.yaml");
    let mut value: Value = serde_yaml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let path = r#"metadata.labels["cluster.open-cluster-management.io/clusterset"]"#;
    value["spec"]["grant"]["write"][0]["values"] = json!({ path: ["eu", null] });
    check::policy(manifest::parse(&value).unwrap()).unwrap()
}

fn cluster() -> Object {
    let reference = ObjectRef::local(
        "cluster.open-cluster-management.io/v1",
        "ManagedCluster",
        None,
        "c1",
    );
    Object {
        reference,
        version: "1".to_owned(),
        body: json!({"metadata": {"name": "c1", "labels": {"mine": "stays"}}}),
    }
}

/// The answer of the component with these settings.
fn answer(
    guest: &Guest,
    limits: &CallLimits,
    settings: &Value,
) -> Result<Box<dyn Answer>, CallFailure> {
    let settings = settings.to_string();
    let map = serde_json::Map::new();
    let described = Described::load(guest.digest(), guest.description().clone(), &map).unwrap();
    let object = cluster();
    let primary = Primary {
        reference: object.reference.clone(),
        ..Primary::default()
    };
    let question = Question {
        context: &context(&settings),
        object: &object,
        primary: &primary,
        described: &described,
        inputs: &[],
    };
    let asked = guest.decide(limits, &question).unwrap();
    Ok(asked.result?.unwrap().answer)
}

fn plan(guest: &Guest, settings: &Value) -> Result<Plan, Failure> {
    let answer = answer(guest, &unlimited(), settings).unwrap();
    let planning = (&Contentions::default(), 0);
    planned(
        &policy(),
        &cluster(),
        &*answer,
        TimeAdded::SetByCluster,
        planning,
    )
}

fn labels(labels: &Value) -> Value {
    json!({"content": json!({"metadata": {"labels": labels}}).to_string()})
}

const SET: &str = "cluster.open-cluster-management.io/clusterset";

#[test]
fn writes_the_granted_field_and_nothing_that_is_right() {
    let guest = desired();
    let plan = |settings| plan(guest, &settings).unwrap().steps;
    let steps = plan(labels(&json!({SET: "eu"})));
    let [
        Step::Patch {
            fields, version, ..
        },
    ] = steps.as_slice()
    else {
        panic!("{steps:?}")
    };
    let path = format!("metadata.labels[\"{SET}\"]");
    assert_eq!(
        (fields, version.as_str()),
        (&vec![(path, json!("eu"))], "1")
    );
    // The label is not there, so there is nothing to remove.
    assert_eq!(plan(labels(&json!({SET: null}))), []);
    assert_eq!(plan(json!({"content": "{}"})), []);
}

#[test]
fn refuses_answers_beyond_the_grant() {
    let guest = desired();
    let content = |content: Value| json!({"content": content.to_string()});
    for (settings, reason) in [
        (labels(&json!({SET: "us"})), "ValueNotGranted"),
        (labels(&json!({SET: 1})), "ValueNotGranted"),
        (labels(&json!({SET: "eu", "mine": "x"})), "WriteNotGranted"),
        (labels(&json!(null)), "WriteNotGranted"),
        (
            content(json!({"spec": {"hubAcceptsClient": true}})),
            "WriteNotGranted",
        ),
        (
            content(json!({"status": {"conditions": []}})),
            "WriteNotGranted",
        ),
        (
            content(json!({"metadata": {"finalizers": ["x"]}})),
            "WriteNotGranted",
        ),
        (
            content(json!({"metadata": {"annotations": {"kubeconfig": "x"}}})),
            "WriteNotGranted",
        ),
        (content(json!({"kind": "Secret"})), "ContractBroken"),
        (
            content(json!({"metadata": {"name": "c2"}})),
            "ContractBroken",
        ),
        (content(json!([])), "ContractBroken"),
        (json!({"content": "{"}), "ContractBroken"),
        (json!({"name": "c2", "content": "{}"}), "WriteNotGranted"),
        (json!({"more": 1, "content": "{}"}), "WriteNotGranted"),
        (json!({"more": 10_000, "content": "{}"}), "ContractBroken"),
    ] {
        let failure = plan(guest, &settings).unwrap_err();
        assert_eq!(failure.reason.as_str(), reason, "{settings}: {failure}");
    }
}

#[test]
fn an_answer_of_many_objects_ends_at_the_limit_of_the_call() {
    let limits = CallLimits::default();
    let settings = json!({"more": 1_000_000, "content": "{}"});
    assert!(answer(desired(), &limits, &settings).is_err());
}

#[test]
fn waits_only_for_what_the_policy_may_read() {
    let guest = desired();
    let settings = json!({"content": "{}", "waitsFor": ["home"]});
    let answer = answer(guest, &unlimited(), &settings).unwrap();
    let map = serde_json::Map::new();
    let described = Described::load(guest.digest(), guest.description().clone(), &map).unwrap();
    let (mut policy, object) = (policy(), cluster());
    let agent = AgentFacts::new("local-cluster", None);
    let waits = |policy: &Policy| {
        let primary = Primary::default();
        answer.waits(&Lowering {
            policy,
            guest: &described,
            data: TemplateData {
                object: &object,
                agent: &agent,
            },
            primary: &primary,
            target: &object.reference,
            inputs: &[],
            kubeconfigs: &Kubeconfigs::new(KubeconfigLimits::default()),
            secrets: &Secrets::default(),
            now_seconds: 0,
        })
    };
    assert_eq!(
        waits(&policy).unwrap_err().reason.as_str(),
        "ReadNotGranted"
    );
    let mut granted = (*policy.spec).clone();
    granted.grant.read =
        serde_json::from_value(json!([{"role": "home", "kind": "Namespace", "name": "home"}]))
            .unwrap();
    policy = check::policy(manifest::PolicyManifest {
        name: policy.name.to_string(),
        spec: granted,
    })
    .unwrap();
    let failure = waits(&policy).unwrap().unwrap();
    assert_eq!(
        (failure.reason.as_str(), failure.objects.len()),
        ("Waits", 1)
    );
}
