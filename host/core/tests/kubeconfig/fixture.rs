//! A kubeconfig in HyperShift's form, and an honest guest's answer to it.

use crate::unchanged::unchanged;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use transom_api::policy::{CarryGrant, CredentialGrant, InsecureGrant, KubeconfigGrant};
use transom_core::contract::credentials::{Proposal, SourceView, Url};
use transom_core::contract::decide::{Input, InputValue, Protocol, Service, ServicePort};
use transom_core::kubeconfig::{
    Assembled, KubeconfigError, KubeconfigLimits, SourceKubeconfig, Terms,
};
use transom_core::reference::ObjectRef;

pub(crate) const CA: &str = include_str!("given/ca.pem");
pub(crate) const OTHER_CA: &str = include_str!("given/other-ca.pem");
pub(crate) const RSA: &str = include_str!("given/rsa.pem");
pub(crate) const RSA_KEY: &str = include_str!("given/rsa-pkcs1.key");
pub(crate) const LIMITS: KubeconfigLimits = KubeconfigLimits { bytes: 1 << 20 };
/// 2026-06-01.
pub(crate) const NOW: i64 = 1_780_272_000;

pub(crate) fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// One cluster, one user, one context.
pub(crate) fn admin() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "admin", "preferences": {},
        "clusters": [{"name": "cluster", "cluster": {
            "server": "https://api.demo.example.com:6443", "certificate-authority-data": base64(CA)}}],
        "contexts": [{"name": "admin", "context": {"cluster": "cluster", "user": "admin", "namespace": "default"}}],
        "users": [{"name": "admin", "user": {
            "client-certificate-data": base64(RSA), "client-key-data": base64(RSA_KEY)}}],
    })
}

/// Two of everything: the second cluster has a proxy, another CA and skips verification; the second user a token.
pub(crate) fn two() -> Value {
    let mut value = admin();
    let more = [
        (
            "clusters",
            json!({"name": "other", "cluster": {
            "server": "https://other.example.com", "certificate-authority-data": base64(OTHER_CA),
            "proxy-url": "http://user:pass@proxy.example.com:3128", "tls-server-name": "other"}}),
        ),
        (
            "users",
            json!({"name": "viewer", "user": {"token": "opaque", "as": "somebody"}}),
        ),
        (
            "contexts",
            json!({"name": "view", "context": {"cluster": "other", "user": "viewer"}}),
        ),
    ];
    for (list, entry) in more {
        if let Some(items) = value[list].as_array_mut() {
            items.push(entry);
        }
    }
    value
}

/// With one field set, by JSON pointer; null removes it.
pub(crate) fn with(mut value: Value, pointer: &str, field: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
    match (value.pointer_mut(parent), field) {
        (Some(Value::Object(map)), Value::Null) => drop(map.remove(name)),
        (Some(Value::Object(map)), field) => drop(map.insert(name.to_owned(), field)),
        (Some(Value::Array(items)), field) => items.extend([field]),
        _ => {}
    }
    value
}

pub(crate) fn parse(value: &Value) -> Result<SourceKubeconfig, KubeconfigError> {
    SourceKubeconfig::parse(value.to_string().as_bytes(), &LIMITS)
}

pub(crate) fn service_url() -> Url {
    Url {
        scheme: "https".to_owned(),
        host: "kube-apiserver.clusters-demo.svc.cluster.local".to_owned(),
        port: Some(6443),
        path: String::new(),
    }
}

/// The kubeconfig guest's answer: the first cluster gets the Service's address.
pub(crate) fn rewired(view: &SourceView) -> Proposal {
    let mut answer = unchanged(view);
    if let Some(first) = answer.clusters.first_mut() {
        first.server = service_url();
    }
    answer
}

pub(crate) fn service() -> Service {
    let port = |number, protocol| ServicePort {
        name: None,
        port: number,
        target_port: None,
        node_port: None,
        protocol,
        app_protocol: None,
    };
    Service {
        reference: ObjectRef {
            cluster: "local".into(),
            api_version: "v1".into(),
            kind: "Service".into(),
            namespace: Some("clusters-demo".into()),
            name: "kube-apiserver".into(),
        },
        service_type: "ClusterIP".to_owned(),
        cluster_ips: Vec::new(),
        external_name: None,
        ingress: Vec::new(),
        ports: vec![
            port(6443, Protocol::Tcp),
            port(443, Protocol::Tcp),
            port(53, Protocol::Udp),
        ],
    }
}

/// The grant of the bundled policy, with every kind of credential.
pub(crate) fn grant() -> KubeconfigGrant {
    KubeconfigGrant {
        credentials: vec![
            CredentialGrant::ClientCertificate,
            CredentialGrant::Token,
            CredentialGrant::Basic,
            CredentialGrant::Exec,
            CredentialGrant::AuthProvider,
            CredentialGrant::File,
        ],
        server: vec!["service".to_owned()],
        addresses: Vec::new(),
        ca: vec!["source".to_owned()],
        insecure: InsecureGrant::Never,
        proxy: CarryGrant::Drop,
        tls_server_name: CarryGrant::AsSource,
        cluster_domain: "cluster.local".to_owned(),
    }
}

pub(crate) fn assemble(
    source: &SourceKubeconfig,
    answer: &Proposal,
) -> Result<Assembled, KubeconfigError> {
    assemble_under(&grant(), source, answer)
}

pub(crate) fn assemble_under(
    grant: &KubeconfigGrant,
    source: &SourceKubeconfig,
    answer: &Proposal,
) -> Result<Assembled, KubeconfigError> {
    let inputs = [Input {
        role: "service".to_owned(),
        value: InputValue::Service(service()),
    }];
    assemble_from(grant, source, answer, &inputs, &json!({}))
}

pub(crate) fn assemble_from(
    grant: &KubeconfigGrant,
    source: &SourceKubeconfig,
    answer: &Proposal,
    inputs: &[Input],
    primary: &Value,
) -> Result<Assembled, KubeconfigError> {
    let terms = Terms {
        grant,
        source_role: "source",
        inputs,
        primary,
        now_seconds: NOW,
        limits: LIMITS,
    };
    source.assemble(answer, &terms)
}
