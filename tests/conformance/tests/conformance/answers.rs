//! Well-formed answers of real components that the host's plan refuses, each for a different reason; the honest answer
//! of the same component passes the same checks.

use crate::planned::planned;
use crate::support::{answers, compute, engine, identity, load, unlimited};
use serde_json::{Value, json};
use std::fs;
use transom_api::policy::{CredentialGrant, KubeconfigGrant};
use transom_api::{KnownReason, Reason};
use transom_conformance::arguments::{context, hosted_cluster, managed_cluster};
use transom_conformance::canary::inputs;
use transom_conformance::fixture::{holding_for, root};
use transom_core::catalogue::guest::GuestFacts as Described;
use transom_core::contract::decide::{Input, InputValue};
use transom_core::contract::description::Role;
use transom_core::contract::taints::Decision;
use transom_core::failure::{Class, Failure};
use transom_core::kubeconfig::{KubeconfigError, KubeconfigLimits, SourceKubeconfig, Terms};
use transom_core::object::Object;
use transom_core::pattern::TemplateData;
use transom_core::plan::contention::Contentions;
use transom_core::plan::{Plan, TimeAdded};
use transom_core::policy::{Policy, check, manifest};
use transom_core::requirements::{NextRound, Rounds};
use transom_core::world::{Answer, TAINTS};
use transom_engine::{Allocate, Capabilities, Guest, Question};

fn settings(ask: &str) -> String {
    json!({ "ask": ask }).to_string()
}

/// A bundled policy.
fn policy(name: &str) -> Policy {
    let text = fs::read_to_string(root().join("policies").join(name).join("policy.yaml")).unwrap();
    let value: Value = serde_yaml::from_str(&text).unwrap();
    check::policy(manifest::parse(&value).unwrap()).unwrap()
}

fn source() -> SourceKubeconfig {
    let identity = identity();
    let mut document =
        transom_conformance::canary::document(&identity.ca, &identity.certificate, &identity.key);
    // Clients refuse these beside a token.
    let user = document["users"][0]["user"].as_object_mut().unwrap();
    user.retain(|field, _| !["username", "password"].contains(&field.as_str()));
    SourceKubeconfig::parse(
        document.to_string().as_bytes(),
        &KubeconfigLimits::default(),
    )
    .unwrap()
}

/// The host's result for the answer under a grant, up to the kubeconfig to write.
fn assemble(
    guest: &Guest,
    ask: &str,
    source: &SourceKubeconfig,
    grant: &KubeconfigGrant,
) -> Result<String, KubeconfigError> {
    let inputs = &inputs(source.view());
    let answer = guest.transform(
        &unlimited(),
        &context(&settings(ask)),
        &hosted_cluster(),
        inputs,
    );
    let proposal = answer.result.unwrap().unwrap().answer;
    let terms = Terms {
        grant,
        source_role: "source",
        inputs,
        primary: &Value::Null,
        now_seconds: 1_795_000_000,
        limits: KubeconfigLimits::default(),
    };
    source
        .assemble(&proposal, &terms)
        .map(|assembled| assembled.to_yaml().to_owned())
}

/// The grant of the default policy.
fn grant() -> KubeconfigGrant {
    let rule = policy("external-managed-kubeconfig").writes.remove(0);
    rule.kubeconfig.unwrap()
}

#[test]
fn refuses_kubeconfigs_beyond_the_grant() {
    let (guest, source, mut grant) = (answers(), source(), grant());
    let error = assemble(guest, "Honest", &source, &grant).unwrap_err();
    assert_eq!(
        error.reason,
        KnownReason::CredentialNotGranted,
        "the source has a program to run: {error}"
    );
    grant.credentials.extend([
        CredentialGrant::Exec,
        CredentialGrant::AuthProvider,
        CredentialGrant::File,
    ]);
    let honest = assemble(guest, "Honest", &source, &grant).unwrap();
    assert!(honest.contains("https://kube-apiserver.clusters-demo.svc:6443"));
    for (ask, word) in [
        ("ForeignServer", KnownReason::ServerNotGranted),
        ("ForeignAuthority", KnownReason::UnknownReference),
        ("Insecure", KnownReason::InsecureNotGranted),
        ("Proxy", KnownReason::ProxyNotGranted),
        ("ServerName", KnownReason::ServerNameNotGranted),
        ("UnknownCredential", KnownReason::UnknownReference),
        ("UnknownEntry", KnownReason::UnknownReference),
    ] {
        let Err(error) = assemble(guest, ask, &source, &grant) else {
            panic!("{ask} is not refused")
        };
        assert_eq!(error.reason, word, "{ask}: {error}");
    }
}

/// The host's result for the requirements, round after round, without any object found, for a primary with an
/// annotation that names its managed cluster.
fn requirements(settings: &str, annotation: &Value) -> Result<usize, KnownReason> {
    let (guest, policy, primary) = (
        answers(),
        policy("external-managed-kubeconfig"),
        hosted_cluster(),
    );
    let body = json!({"metadata": {"annotations": {"cluster.open-cluster-management.io/managedcluster-name": annotation}}});
    let object = Object {
        reference: primary.reference.clone(),
        version: String::new(),
        body,
    };
    let context = context(settings);
    let data = TemplateData {
        object: &object,
        agent: &context.agent,
    };
    let mut rounds = Rounds::default();
    let mut found: Vec<Input> = Vec::new();
    for asked in 1..10 {
        let answer = guest.require(&unlimited(), &context, &primary, &found);
        let answer = answer.result.unwrap().unwrap();
        match rounds.answer(&policy, &data, answer) {
            Ok(NextRound::Complete(_)) => return Ok(asked),
            Ok(NextRound::Read(needs)) => {
                let absent = |role: String| Input {
                    role,
                    value: InputValue::Absent,
                };
                found = needs.into_iter().map(|need| absent(need.role)).collect();
            }
            Err(failure) => {
                return Err(KnownReason::ALL
                    .iter()
                    .copied()
                    .find(|word| failure.reason == (*word).into())
                    .unwrap());
            }
        }
    }
    panic!("{settings} never ends")
}

#[test]
fn refuses_requirements_beyond_the_grant() {
    let requirements = |ask| requirements(&settings(ask), &Value::Null);
    assert_eq!(requirements("Honest"), Ok(2));
    assert_eq!(
        requirements("ForeignTarget"),
        Err(KnownReason::WriteNotGranted)
    );
    assert_eq!(
        requirements("ForeignRead"),
        Err(KnownReason::ReadNotGranted)
    );
    assert_eq!(requirements("Endless"), Err(KnownReason::TooManyRounds));
}

/// A guest that proposes the namespace of another cluster for a kubeconfig, with or without the help of an annotation.
#[test]
fn refuses_the_namespace_of_another_cluster_for_any_annotation() {
    let long = "a".repeat(300);
    for annotation in [
        json!(null),
        json!(""),
        json!("c1"),
        json!("*"),
        json!("../x"),
        json!("a/b"),
        json!(long),
        json!(7),
    ] {
        let own = match annotation.as_str() {
            Some("c1") => "klusterlet-c1",
            None if annotation.is_number() => "nothing",
            None | Some("") => "klusterlet-demo",
            Some(_) => "nothing",
        };
        let text = annotation.as_str().unwrap_or_default();
        let asked = [
            "klusterlet-demo",
            "klusterlet-c1",
            "klusterlet-other",
            "klusterlet-x",
            "kube-system",
            "klusterlet-",
        ];
        for namespace in asked
            .into_iter()
            .map(str::to_owned)
            .chain([format!("klusterlet-{text}"), text.to_owned()])
        {
            let end = requirements(&json!({ "namespace": namespace }).to_string(), &annotation);
            let possible = transom_core::reference::dns::is_label(&namespace);
            let expected = match namespace == own {
                true => Ok(2),
                false if possible => Err(KnownReason::WriteNotGranted),
                false => Err(KnownReason::InvalidTargetName),
            };
            assert_eq!(end, expected, "{annotation}: {namespace}");
        }
    }
}

#[test]
fn refuses_agent_reasons_from_a_guest_and_own_reasons_change_nothing() {
    let engine = engine(Allocate::PoolIfPossible);
    let say = |word: &str| {
        engine.load(
            &holding_for(word).unwrap(),
            Role::Decide(TAINTS),
            &Capabilities::default(),
        )
    };
    for word in KnownReason::ALL {
        let refused = say(word.as_str()).map(drop);
        let refused = refused.map_err(|error| error.reason());
        let expected = match word.is_shared() {
            true => Ok(()),
            false => Err(KnownReason::DescriptionInvalid.as_str()),
        };
        assert_eq!(refused, expected, "{word:?}");
    }
    for word in ["NoClusters", "NotLeadingAnyMore"] {
        let guest = say(word).unwrap();
        let declared = Described::load(
            guest.digest(),
            guest.description().clone(),
            &serde_json::Map::new(),
        );
        let Decision::Hold(problem) = compute(&guest, &unlimited())
            .result
            .unwrap()
            .unwrap()
            .answer
        else {
            panic!("it holds")
        };
        let failure = declared.unwrap().failure(Class::Held, &problem);
        assert_eq!(
            (failure.class, failure.reason),
            (Class::Held, Reason::Declared(word.into()))
        );
    }
}

/// The host's plan for an answer about a managed cluster.
fn plan(answer: &dyn Answer, policy: &Policy) -> Result<Plan, Failure> {
    let planning = (&Contentions::default(), 0);
    planned(
        policy,
        &bare_cluster(),
        answer,
        TimeAdded::SetByCluster,
        planning,
    )
}

/// A managed cluster without any field.
fn bare_cluster() -> Object {
    Object {
        reference: managed_cluster().reference,
        version: "1".to_owned(),
        body: json!({}),
    }
}

/// A guest as decisions know it.
fn described(guest: &Guest) -> Described {
    let settings = serde_json::Map::new();
    Described::load(guest.digest(), guest.description().clone(), &settings).unwrap()
}

#[test]
fn refuses_a_taint_key_beyond_the_grant() {
    let guest = load(&engine(Allocate::PoolIfPossible), "foreign-taint");
    let described = described(&guest);
    let question = Question {
        context: &context("{}"),
        object: &bare_cluster(),
        primary: &hosted_cluster(),
        described: &described,
        inputs: &[],
    };
    assert_eq!(guest.decides_by(), "compute");
    let call = guest.decide(&unlimited(), &question).unwrap();
    let answer = call.result.unwrap().unwrap().answer;
    let mut policy = policy("built-in-taints");
    assert_eq!(
        plan(&*answer, &policy).unwrap_err().reason,
        KnownReason::TaintKeyNotGranted.into()
    );
    policy.writes[0].taint_keys.insert("Seen".to_owned());
    assert_eq!(plan(&*answer, &policy).unwrap().steps.len(), 1);
}
