//! What guests need, and what a kubeconfig guest answers.

mod input;

use super::credentials::Proposal;
use super::secrets::CertificateKeys;
use super::{Reference, references};
use crate::reference::ObjectRef;
pub use input::{
    CertificateRequest, FailedWrite, Input, InputValue, LastOutcome, Member, Protocol,
    RequestContent, Requested, Service, ServicePort,
};
use serde::{Serialize, Serializer};
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
    #[serde(serialize_with = "references")]
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

/// What `transform` answers.
pub type KubeconfigAnswer = super::Timed<Proposal>;
