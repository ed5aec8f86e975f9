//! Answers of a real component that has bytes filled in which it never sees: where they may not go, they do not,
//! whatever number it names.

use crate::support::{desired, engine, unlimited};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use transom_conformance::arguments::context;
use transom_conformance::fixture::built;
use transom_core::catalogue::guest::GuestFacts as Described;
use transom_core::contract::credentials::{ClusterView, SourceView, Url};
use transom_core::contract::decide::{Form, Input, InputValue, Service, ServicePort};
use transom_core::contract::description::Role;
use transom_core::contract::secrets::{
    Certificate, CertificateContent, CertificateKeys, PrivateKey, SecretBytes,
};
use transom_core::contract::{AgentFacts, Primary};
use transom_core::inputs::kubeconfigs::Kubeconfigs;
use transom_core::inputs::secrets::Secrets;
use transom_core::kubeconfig::KubeconfigLimits;
use transom_core::object::Object;
use transom_core::pattern::TemplateData;
use transom_core::plan::desired::{Desired, KeyContent};
use transom_core::policy::{Policy, check, manifest};
use transom_core::reference::ObjectRef;
use transom_core::world::{Lowering, OBJECTS};
use transom_engine::{Allocate, Capabilities, Guest, Question};

const CANARIES: [&str; 2] = ["canary of one", "canary of two"];

/// May copy the Secret `one` of each ManagedCluster, and reads the Secret `two` as well.
fn policy() -> Policy {
    let read = |role: &str| json!({"role": role, "kind": "Secret", "namespace": "{primary.name}", "name": role, "keys": ["a"]});
    let verbs = json!(["create", "update", "delete"]);
    let policy = json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "copies"},
        "spec": {
            "primary": {"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster"},
            "guests": {"decide": {"component": "desired.wasm"}},
            "grant": {"read": [read("one"), read("two")], "write": [
                {"kind": "Secret", "namespace": "copies", "name": "{primary.name}", "verbs": verbs,
                    "fields": ["metadata.annotations.x"], "holes": {"data.a": {"bytes": ["one"]}}},
                {"kind": "ConfigMap", "namespace": "copies", "name": "{primary.name}", "verbs": verbs,
                    "fields": ["data", "metadata.annotations.x"]},
            ]},
        },
    });
    check::policy(manifest::parse(&policy).unwrap()).unwrap()
}

fn secrets() -> (Secrets, Vec<Input>) {
    let mut secrets = Secrets::default();
    let input = |(role, canary): (&str, &str)| {
        let reference = ObjectRef::local("v1", "Secret", Some("c1"), role);
        let body = json!({"data": {"a": STANDARD.encode(canary)}});
        let object = Object {
            reference,
            version: "1".to_owned(),
            body,
        };
        let seen: Vec<SecretBytes> = secrets.hold(role, &object, &["a".to_owned()]).unwrap();
        Input {
            role: role.to_owned(),
            value: InputValue::Secret(seen),
        }
    };
    let inputs = ["one", "two"]
        .into_iter()
        .zip(CANARIES)
        .map(input)
        .collect();
    (secrets, inputs)
}

/// The bytes that the object of an answer gets, or why it is refused.
fn filled(guest: &Guest, kind: &str, content: &Value, holes: &Value) -> Result<Vec<u8>, String> {
    let made = json!({"apiVersion": "v1", "kind": kind, "namespace": "copies", "name": "{name}",
        "content": content.to_string(), "holes": holes});
    let settings = json!({"makes": [made]}).to_string();
    let described = Described::load(
        guest.digest(),
        guest.description().clone(),
        &serde_json::Map::new(),
    );
    let described = described.unwrap();
    let object = Object {
        reference: ObjectRef::local(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            None,
            "c1",
        ),
        version: "1".to_owned(),
        body: json!({}),
    };
    let primary = Primary {
        reference: object.reference.clone(),
        ..Primary::default()
    };
    let (secrets, inputs) = secrets();
    let question = Question {
        context: &context(&settings),
        object: &object,
        primary: &primary,
        described: &described,
        inputs: &inputs,
    };
    let asked = guest.decide(&unlimited(), &question).unwrap();
    let answer = asked.result.unwrap().unwrap().answer;
    let agent = AgentFacts::new("local-cluster", None);
    let (policy, kubeconfigs) = (policy(), Kubeconfigs::new(KubeconfigLimits::default()));
    let lowered = answer.lower(&Lowering {
        policy: &policy,
        guest: &described,
        data: TemplateData {
            object: &object,
            agent: &agent,
        },
        primary: &primary,
        target: &object.reference,
        inputs: &inputs,
        kubeconfigs: &kubeconfigs,
        secrets: &secrets,
        now_seconds: 0,
    });
    let shown = format!("{answer:?} {:?} {lowered:?}", answer.shown());
    assert!(!shown.contains("canary"), "{shown}");
    match lowered
        .map_err(|failure| failure.reason.to_string())?
        .as_slice()
    {
        [Desired::Whole(whole)] => match &whole.data["a"] {
            KeyContent::Hole(hole) => Ok(hole.bytes().to_vec()),
            KeyContent::Text(text) => panic!("{text}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn fills_a_hole_only_with_granted_bytes_and_only_in_a_granted_secret() {
    let guest = desired();
    let hole = |path: &str, role: &str| json!([{"path": path, "role": role, "key": "a"}]);
    let forged = |reference: u32| json!([{"path": "data.a", "reference": reference}]);
    let none = json!({});
    let copied = filled(guest, "Secret", &none, &hole("data.a", "one"));
    assert_eq!(copied.unwrap(), CANARIES[0].as_bytes());
    let annotation = hole("metadata.annotations.x", "one");
    for (kind, content, holes, reason) in [
        ("Secret", &none, forged(1), "CredentialNotGranted"),
        (
            "Secret",
            &none,
            hole("data.a", "two"),
            "CredentialNotGranted",
        ),
        ("Secret", &none, forged(2), "UnknownReference"),
        ("Secret", &none, forged(u32::MAX), "UnknownReference"),
        (
            "Secret",
            &none,
            hole("data.b", "one"),
            "CredentialNotGranted",
        ),
        ("Secret", &none, annotation.clone(), "CredentialNotGranted"),
        ("Secret", &none, json!([]), "ContractBroken"),
        (
            "Secret",
            &json!({"data": {"a": "eA=="}}),
            json!([]),
            "WriteNotGranted",
        ),
        (
            "ConfigMap",
            &none,
            hole("data.a", "one"),
            "CredentialNotGranted",
        ),
        ("ConfigMap", &none, annotation, "CredentialNotGranted"),
    ] {
        let refused = filled(guest, kind, content, &holes);
        assert_eq!(
            refused.err().as_deref(),
            Some(reason),
            "{kind} {content} {holes}"
        );
    }
}

#[test]
fn what_crosses_of_secrets_and_services_is_what_the_contract_says() {
    let bytes = built("fixture-asks").unwrap();
    let engine = engine(Allocate::PoolIfPossible);
    let (role, capabilities) = (Role::Decide(OBJECTS), Capabilities::default());
    let guest = engine.load(&bytes, role, &capabilities).unwrap();
    let reference = json!({"cluster": "local", "api-version": "v1", "kind": "Secret", "namespace": "n", "name": "s"});
    let need = |form: Value| json!({"role": "a", "reference": reference, "form": form, "absence": "fine", "wake": "change"});
    let keys = json!({"certificate": "tls.crt", "private-key": "tls.key"});
    let forms = [
        json!({"secret": ["a", "b"]}),
        json!({"certificate": keys}),
        json!("service"),
        json!({"kubeconfig": "k"}),
    ];
    let settings = json!({"needs": forms.map(need)});
    let settings = settings.to_string();
    let primary = Primary::default();
    let asked = guest.require(&unlimited(), &context(&settings), &primary, &[]);
    let needs = asked.result.unwrap().unwrap().needs;
    let forms: Vec<_> = needs.into_iter().map(|need| need.form).collect();
    let keys = CertificateKeys {
        certificate: "tls.crt".to_owned(),
        private_key: Some("tls.key".to_owned()),
    };
    let both = vec!["a".to_owned(), "b".to_owned()];
    let asked = [
        Form::Secret(both),
        Form::Certificate(keys),
        Form::Service,
        Form::Kubeconfig("k".to_owned()),
    ];
    assert_eq!(forms, asked);
    let certificate = Certificate {
        subject: "CN=agent,O=org".to_owned(),
        fingerprint: "0123456789".to_owned(),
        private_key: PrivateKey::Other,
        ..Certificate::default()
    };
    let (_, mut inputs) = secrets();
    for content in [
        CertificateContent::Readable(certificate),
        CertificateContent::Malformed("it is not PEM".to_owned()),
    ] {
        inputs.push(Input {
            role: "c".to_owned(),
            value: InputValue::Certificate(content),
        });
    }
    let service = Service {
        service_type: "NodePort".to_owned(),
        ports: vec![ServicePort {
            port: 443,
            ..ServicePort::default()
        }],
        ..Service::default()
    };
    let server = Url {
        host: "api.example.com".to_owned(),
        ..Url::default()
    };
    let cluster = ClusterView {
        server,
        ..ClusterView::default()
    };
    let source = SourceView {
        clusters: vec![cluster],
        ..SourceView::default()
    };
    for value in [InputValue::Service(service), InputValue::Kubeconfig(source)] {
        inputs.push(Input {
            role: "d".to_owned(),
            value,
        });
    }
    let described = guest.description().clone();
    let described = Described::load(guest.digest(), described, &serde_json::Map::new()).unwrap();
    let object = Object {
        reference: primary.reference.clone(),
        version: "1".to_owned(),
        body: json!({}),
    };
    let question = Question {
        context: &context(&settings),
        object: &object,
        primary: &primary,
        described: &described,
        inputs: &inputs,
    };
    let asked = guest.decide(&unlimited(), &question).unwrap();
    let shown = asked.result.unwrap().unwrap().answer.shown().unwrap();
    let seen = &shown[0]["content"]["metadata"]["labels"]["example.com/seen"];
    assert_eq!(
        seen,
        "secret-13_secret-13_CN.agent.O.org.01234567.Other_malformed_service-NodePort-443_kubeconfig-api.example.com"
    );
}
