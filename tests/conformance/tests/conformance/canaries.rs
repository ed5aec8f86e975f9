//! No byte of a credential ever reaches a guest's memory: the test owns that memory and searches all of it after the
//! call, and a guest searches its own. Both searches also find a text that does reach the guest, which proves that they
//! work.

use crate::support::{identity, unlimited};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, json};
use transom_conformance::arguments::{context, hosted_cluster};
use transom_conformance::canary::{Canaries, MARK, document, inputs};
use transom_conformance::fixture::{built, hostile};
use transom_core::catalogue::guest::GuestFacts as Described;
use transom_core::contract::credentials::{AuthoritySource, SourceView};
use transom_core::contract::decide::{Input, InputValue};
use transom_core::contract::description::Role;
use transom_core::contract::secrets::{CertificateContent, CertificateKeys, PrivateKey};
use transom_core::contract::{GuestRefusal, Primary, Problem};
use transom_core::inputs::secrets::certificate;
use transom_core::kubeconfig::{KubeconfigLimits, SourceKubeconfig};
use transom_core::object::Object;
use transom_core::reference::ObjectRef;
use transom_core::world::{KUBECONFIG, OBJECTS};
use transom_engine::{
    Capabilities, Engine, EngineOptions, Guest, MemoryRecorder, Question, Ticker,
};
use transom_support::identity::Identity;

/// With these settings the guest answers instead of refusing, so that all of its code runs.
const SETTINGS: &str =
    r#"{"proxy": "Keep", "exec": "Allow", "authProvider": "Allow", "file": "Allow"}"#;

fn view(identity: &Identity) -> SourceView {
    let document = document(&identity.ca, &identity.certificate, &identity.key).to_string();
    SourceKubeconfig::parse(document.as_bytes(), &KubeconfigLimits::default())
        .unwrap()
        .view()
}

fn recorded() -> (Engine, MemoryRecorder) {
    let recorder = MemoryRecorder::default();
    let options = EngineOptions {
        ticker: Ticker::Manual,
        ..EngineOptions::default()
    };
    (
        Engine::recorded(options, recorder.clone()).unwrap(),
        recorder,
    )
}

fn load(engine: &Engine, bytes: &[u8]) -> Guest {
    engine
        .load(bytes, Role::Decide(KUBECONFIG), &Capabilities::default())
        .unwrap()
}

#[test]
fn the_memory_of_the_kubeconfig_guest_holds_no_credential() {
    let identity = identity();
    let mut canaries = Canaries::new();
    canaries.plant_pem("the key", &identity.key);
    canaries.plant_pem("the certificate", &identity.certificate);
    canaries.plant_pem("the authority", &identity.ca);
    assert!(canaries.count() > 500, "{}", canaries.count());

    let (engine, recorder) = recorded();
    let guest = load(&engine, &built("kubeconfig").unwrap());
    recorder.take();
    let (context, primary) = (context(SETTINGS), hosted_cluster());
    let source = view(&identity);
    let inputs = inputs(source.clone());
    guest
        .require(&unlimited(), &context, &primary, &[])
        .result
        .unwrap()
        .unwrap();
    guest
        .require(&unlimited(), &context, &primary, &inputs)
        .result
        .unwrap()
        .unwrap();
    let answer = guest
        .transform(&unlimited(), &context, &primary, &inputs)
        .result
        .unwrap();
    assert_eq!(answer.unwrap().answer.users.len(), 3);

    let memories = recorder.take();
    assert_eq!(memories.len(), 3);
    for memory in &memories {
        assert!(memory.len() >= 64 << 10);
        assert_eq!(canaries.found_in(memory), Vec::<&str>::new());
    }
    // The fingerprint of the CA does reach the guest: this proves that the right memory was searched.
    let AuthoritySource::Data(authority) = &source.clusters[0].authority else {
        panic!("the source has a CA")
    };
    let fingerprint = authority.fingerprints[0].as_bytes();
    assert!(
        memories[2]
            .windows(fingerprint.len())
            .any(|window| window == fingerprint)
    );
}

/// The same for a guest of the objects world that is told of a certificate in a Secret, with the key beside it.
#[test]
fn the_memory_of_a_guest_that_is_told_of_a_certificate_holds_no_byte_of_its_key() {
    let identity = identity();
    let mut canaries = Canaries::new();
    canaries.plant_pem("the key", &identity.key);
    let data = json!({"tls.crt": STANDARD.encode(&identity.certificate), "tls.key": STANDARD.encode(&identity.key)});
    let secret = Object {
        reference: ObjectRef::local("v1", "Secret", Some("default"), "pair"),
        version: "1".to_owned(),
        body: json!({"data": data}),
    };
    let keys = CertificateKeys {
        certificate: "tls.crt".to_owned(),
        private_key: Some("tls.key".to_owned()),
    };
    let content = certificate(&secret, &keys).unwrap();
    let CertificateContent::Readable(told) = &content else {
        panic!("it is a certificate")
    };
    assert_eq!(told.private_key, PrivateKey::Belongs);
    let fingerprint = told.fingerprint.clone();
    let inputs = [Input {
        role: "secret".to_owned(),
        value: InputValue::Certificate(content),
    }];

    let (engine, recorder) = recorded();
    let bytes = built("fixture-asks").unwrap();
    let (role, capabilities) = (Role::Decide(OBJECTS), Capabilities::default());
    let guest = engine.load(&bytes, role, &capabilities).unwrap();
    let described = guest.description().clone();
    let described = Described::load(guest.digest(), described, &Map::new()).unwrap();
    let primary = Primary::default();
    let object = Object {
        reference: primary.reference.clone(),
        ..secret
    };
    let question = Question {
        context: &context("{}"),
        object: &object,
        primary: &primary,
        described: &described,
        inputs: &inputs,
    };
    recorder.take();
    guest
        .decide(&unlimited(), &question)
        .unwrap()
        .result
        .unwrap()
        .unwrap();
    let memories = recorder.take();
    assert!(!memories.is_empty());
    for memory in &memories {
        assert_eq!(canaries.found_in(memory), Vec::<&str>::new());
    }
    let told = |memory: &Vec<u8>| {
        let mut windows = memory.windows(fingerprint.len());
        windows.any(|window| window == fingerprint.as_bytes())
    };
    assert!(memories.iter().any(told), "no memory was searched");
}

#[test]
fn the_search_finds_what_reaches_the_guest() {
    let canaries = Canaries::new();
    let (engine, recorder) = recorded();
    let guest = load(&engine, &built("kubeconfig").unwrap());
    for planted in [
        MARK.to_owned(),
        in_base64(""),
        in_base64("x"),
        in_base64("xy"),
    ] {
        let mut primary = hosted_cluster();
        primary.fields = json!({"metadata": {"annotations": {"planted": planted}}});
        recorder.take();
        let _ = guest.require(&unlimited(), &context("{}"), &primary, &[]);
        let memories = recorder.take();
        assert!(
            memories
                .iter()
                .any(|memory| !canaries.found_in(memory).is_empty()),
            "{planted} is not found"
        );
    }
}

#[test]
fn a_guest_that_searches_its_own_memory_finds_nothing() {
    let identity = identity();
    let engine = Engine::new(EngineOptions {
        ticker: Ticker::Manual,
        ..EngineOptions::default()
    })
    .unwrap();
    let guest = load(&engine, &hostile("searches-itself").unwrap());
    let inputs = inputs(view(&identity));
    let found = guest
        .transform(&unlimited(), &context("{}"), &hosted_cluster(), &inputs)
        .result
        .unwrap();
    assert!(found.is_ok(), "{found:?}");
    for planted in [
        MARK.to_owned(),
        in_base64(""),
        in_base64("x"),
        in_base64("xy"),
    ] {
        let found = guest
            .transform(&unlimited(), &context(&planted), &hosted_cluster(), &inputs)
            .result
            .unwrap();
        let Err(GuestRefusal::Invalid(Problem { reason, .. })) = found else {
            panic!("{planted} is not found")
        };
        assert_eq!(reason, "Seen");
    }
}

/// The mark in base64, at the alignment that the preceding text gives.
fn in_base64(before: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(format!("{before}{MARK}"))
}
