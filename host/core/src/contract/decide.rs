//! What guests need, and what a kubeconfig guest answers.

use super::credentials::{Proposal, SourceView};
use super::secrets::{CertificateContent, CertificateKeys, SecretBytes};
use super::{Reference, references};
use crate::reference::ObjectRef;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
pub use transom_api::policy::LabelOperator;

/// In which form an input crosses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Only that it is there.
    Presence,
    /// The declared fields of its kind.
    Object,
    /// A Service's record.
    Service,
    /// The kubeconfig under this key of a Secret's data.
    Kubeconfig(String),
    /// How old a time in a field is.
    Age(Age),
    /// How long ago the agent saw a field change.
    Observed(Age),
    /// All objects of the kind, in the namespace if there is one.
    Every(Query),
    /// How the last reconcile of the primary ended.
    Outcome,
    /// The write that failed in the last reconcile of the primary.
    FailedWrite,
    /// What a CertificateSigningRequest asks for.
    CertificateRequest,
    /// The bytes under these keys of a Secret, by reference.
    Secret(Vec<String>),
    /// What a certificate in a Secret says.
    Certificate(CertificateKeys),
    /// What the API server says about who may do something.
    Access(Review),
    /// How many objects of the kind have such labels, in the namespace if there is one.
    Count(Vec<LabelTerm>),
}

/// A question to the API server: whether somebody may do something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Review {
    /// Who.
    pub who: Who,
    /// What: `renew`.
    pub verb: String,
    /// With resources of this group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// A part of it.
    pub subresource: Option<String>,
    /// In this namespace; absent for all, or for cluster-scoped ones.
    pub namespace: Option<String>,
    /// With the one of this name; absent for any.
    pub name: Option<String>,
}

/// About whom the API server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Who made the primary, a CertificateSigningRequest.
    Requester,
    /// The agent itself.
    Agent,
}

/// A field that a heartbeat moves, and the limit of its age.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Age {
    /// Path of the field.
    pub field: String,
    /// The limit.
    pub seconds: u32,
}

/// Which objects of a kind, and what of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Query {
    /// What their labels must fulfil.
    pub labels: Vec<LabelTerm>,
    /// Whether only names cross, and no fields.
    pub names_only: bool,
    /// Whether those that are being deleted cross as well.
    #[serde(skip_serializing_if = "super::is_false")]
    pub terminating: bool,
}

/// What the label of one key must fulfil.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LabelTerm {
    /// Key of the label.
    pub key: String,
    /// How its value is compared.
    #[serde(serialize_with = "operator")]
    pub operator: LabelOperator,
    /// The values of `In` and `NotIn`.
    pub values: Vec<String>,
}

fn operator<S: Serializer>(operator: &LabelOperator, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match operator {
        LabelOperator::In => "in",
        LabelOperator::NotIn => "not-in",
        LabelOperator::Exists => "exists",
        LabelOperator::DoesNotExist => "does-not-exist",
    })
}

/// Which change of an input calls for another reconcile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wake {
    /// Every change; of an age, only that it gets to another side of its limit.
    #[default]
    Change,
    /// That it appears or goes.
    Presence,
    /// None.
    Never,
}

/// What it means when an object is missing; the word is the reason to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Absence {
    /// Wait for it.
    Wait(String),
    /// Fail.
    Fail(String),
    /// Go on without.
    Fine,
}

/// One object that a guest asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Need {
    /// The name by which the grant and the guest speak of it.
    pub role: String,
    /// Which object.
    #[serde(with = "Reference")]
    pub reference: ObjectRef,
    /// In which form.
    pub form: Form,
    /// What its absence means.
    pub absence: Absence,
    /// Which change of it calls for another reconcile. A world whose guests do not say has the default.
    #[serde(skip)]
    pub wake: Wake,
}

/// Where the result goes and what must be read for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Requirement {
    /// The object to write; `None` in a world whose guests name it in their answer.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "target")]
    pub target: Option<ObjectRef>,
    /// The objects that the answer may make or remove, in a world where they may be several.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "references")]
    pub targets: Vec<ObjectRef>,
    /// What to read.
    pub needs: Vec<Need>,
}

impl Requirement {
    /// Every object that the answer may make or remove.
    pub fn targets(&self) -> impl Iterator<Item = &ObjectRef> {
        self.target.iter().chain(&self.targets)
    }
}

fn target<S: Serializer>(target: &Option<ObjectRef>, serializer: S) -> Result<S::Ok, S::Error> {
    match target {
        Some(target) => Reference::serialize(target, serializer),
        None => serializer.serialize_none(),
    }
}

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
    Outcome(Outcome),
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
pub struct Outcome {
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

/// What `transform` answers.
pub type KubeconfigAnswer = super::Timed<Proposal>;
