//! What was found for the needs of a guest, as it crosses.

use crate::contract::Reference;
use crate::contract::credentials::SourceView;
use crate::contract::secrets::{CertificateContent, SecretBytes};
use crate::reference::ObjectRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One input as the guest sees it.
#[derive(Clone, Debug, PartialEq, Deserialize, Default)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Input {
    /// The role of the need that asked for it.
    pub role: String,
    /// What was found.
    pub value: InputValue,
}

/// What was found for a need.
#[derive(Clone, Debug, PartialEq, Serialize, Default, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case"))]
pub enum InputValue {
    /// Nothing.
    #[default]
    Absent,
    /// It is there.
    Present,
    /// Its declared fields.
    Object(Value),
    /// A Service.
    Service(Service),
    /// A kubeconfig by reference.
    Kubeconfig(SourceView),
    /// An age that is below its limit, and until when.
    Fresh(i64),
    /// An age that is at its limit or above, and since when.
    Stale(i64),
    /// A time that lies further in the future than its limit, and until when.
    Ahead(i64),
    /// A heartbeat that comes with a time further in the past than the limit, and until when it is not stale.
    Behind(i64),
    /// A heartbeat that did not come yet since the agent looks, and until when it is not stale.
    Unsure(i64),
    /// All objects of a kind.
    Every(Vec<Member>),
    /// How the last reconcile ended.
    Outcome(LastOutcome),
    /// The write that failed.
    FailedWrite(FailedWrite),
    /// What a request asks for.
    CertificateRequest(CertificateRequest),
    /// The bytes under keys of a Secret.
    Secret(Vec<SecretBytes>),
    /// What a certificate says.
    Certificate(CertificateContent),
    /// They may.
    Allowed,
    /// They may not, with what the API server says.
    Denied(String),
    /// How many objects there are.
    Count(u32),
}

/// What a CertificateSigningRequest asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CertificateRequest {
    /// Who is to sign it.
    pub signer: String,
    /// Name of the user who made it.
    pub requester: String,
    /// Groups of that user.
    pub groups: Vec<String>,
    /// What the certificate is for.
    pub usages: Vec<String>,
    /// How long it is to be valid.
    pub seconds: Option<u32>,
    /// The request itself.
    pub content: RequestContent,
}

/// A request, or why it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case"))]
pub enum RequestContent {
    /// What it says.
    Readable(Requested),
    /// Why it cannot be read.
    Malformed(String),
}

impl Default for RequestContent {
    fn default() -> Self {
        Self::Readable(Requested::default())
    }
}

/// What a request says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Requested {
    /// The common name.
    pub common_name: Option<String>,
    /// The organisations, in order.
    pub organisations: Vec<String>,
    /// What else the subject has, by identifier: `2.5.4.11=unit`.
    pub other_subject: Vec<String>,
    /// Alternative names: `DNS:…`, `IP:…`, `URI:…`, `email:…`, or `other`.
    pub names: Vec<String>,
    /// `RSA`, `ECDSA`, `Ed25519`, or the identifier of another kind.
    pub key: String,
    /// The size of the key; 0 if it is not known.
    pub key_bits: u32,
}

/// How the last reconcile of a primary ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LastOutcome {
    /// `Applied`, `Held`, `Waiting` or `Failed`.
    pub state: String,
    /// Why.
    pub reason: String,
    /// Since when it is so, in seconds since 1970.
    pub since_seconds: i64,
    /// How many reconciles in a row failed.
    pub failures: u32,
}

/// A write that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FailedWrite {
    /// What could not be written.
    #[serde(with = "Reference")]
    pub object: ObjectRef,
    /// Why, in one word.
    pub reason: String,
}

/// One object of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Member {
    /// Its namespace, if it has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its declared fields; empty when only names cross.
    pub fields: Value,
}

/// A Service, with the fields that a decision may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct Service {
    /// Which Service.
    #[serde(deserialize_with = "Reference::deserialize")]
    pub reference: ObjectRef,
    /// ClusterIP, NodePort, LoadBalancer or ExternalName.
    pub service_type: String,
    /// Its addresses in the cluster.
    pub cluster_ips: Vec<String>,
    /// The name that an ExternalName points to.
    pub external_name: Option<String>,
    /// Host names and addresses of its load balancer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<String>,
    /// Its ports, in order.
    pub ports: Vec<ServicePort>,
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct ServicePort {
    /// Its name; a single port may have none.
    pub name: Option<String>,
    /// The port that clients use.
    pub port: u16,
    /// Number or name on the pods.
    pub target_port: Option<String>,
    /// The port on every node.
    pub node_port: Option<u16>,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// As in the object: `https`, `kubernetes.io/h2c`, ...
    pub app_protocol: Option<String>,
}

/// Transport of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case"))]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}
