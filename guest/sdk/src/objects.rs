//! Guests that make objects, and decide what fields of the primary and of objects that others made say. Objects cross
//! as JSON; the policy grants fields and values.

mod holes;
mod need;

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::{Context, Failure, Guest, ObjectRef, Primary, Problem, Reason, settings};
use bindings::exports::transom::policy::objects as wit;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

pub use crate::bindings::guest::transom::policy::types::{LabelTerm, Operator, Review, Who};
pub use crate::kubeconfig::{Proposal, Service, Source};
pub use bindings::transom::policy::forms::{
    Absence, Age, CertificateRequest, Member, Outcome, Query, RequestContent, Requested, Wake,
};
pub use bindings::transom::policy::inputs::{FailedWrite, Form, Input, Need, Value};
pub use bindings::transom::policy::secrets::{
    Certificate, CertificateContent, CertificateKeys, PrivateKey, SecretBytes,
};
pub use wit::{
    Answer, Desired, Filled, FilledWithin, Hole, HoleWithin, MadeKubeconfig, Manifest, Ownership,
    Requirement,
};

#[doc(hidden)]
pub use Objects as World;

/// What wit-bindgen makes of this world.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world objects { export transom:policy/objects@0.2.0; }",
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::transom_guest::objects::bindings",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/inputs@0.2.0/form": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/forms@0.2.0/absence": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/forms@0.2.0/age": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/forms@0.2.0/query": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/forms@0.2.0/wake": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/forms@0.2.0/member": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/forms@0.2.0/outcome": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/forms@0.2.0/certificate-request": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/forms@0.2.0/request-content": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/forms@0.2.0/requested": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/secrets@0.2.0/secret-bytes": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/secrets@0.2.0/certificate-keys": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/secrets@0.2.0/certificate-content": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/secrets@0.2.0/certificate": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/secrets@0.2.0/private-key": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/inputs@0.2.0/need": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/inputs@0.2.0/value": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/inputs@0.2.0/failed-write": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/inputs@0.2.0/input": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/objects@0.2.0/requirement": [#[derive(Default)] #[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.2.0/desired": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.2.0/filled": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.2.0/hole": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.2.0/made-kubeconfig": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.2.0/manifest": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.2.0/filled-within": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.2.0/hole-within": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/objects@0.2.0/answer": [#[derive(Default)] #[serde(rename_all = "kebab-case")]],
        },
        with: {
            "transom:policy/types@0.2.0": ::transom_guest::bindings::guest::transom::policy::types,
            "transom:policy/credentials@0.2.0": ::transom_guest::kubeconfig::bindings::transom::policy::credentials,
            "transom:policy/proposals@0.2.0": ::transom_guest::kubeconfig::bindings::transom::policy::proposals,
            "transom:policy/services@0.2.0": ::transom_guest::kubeconfig::bindings::transom::policy::services,
            "transom:policy/forms@0.2.0": generate,
            "transom:policy/inputs@0.2.0": generate,
            "transom:policy/secrets@0.2.0": generate,
        },
    });
}

/// A guest that makes objects, and decides what fields of the primary say.
pub trait Objects: Guest {
    /// The objects that the answer may write beside the primary, and those to read. The host calls this again with what
    /// it found until there are no new needs: at most three rounds. A guest that needs only the primary does not write
    /// this function.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn require(
        _context: &Context<Self::Settings>,
        _primary: &Primary,
        _found: &[Input],
    ) -> Result<Requirement, Failure> {
        Ok(Requirement::default())
    }

    /// What objects are to say, made of the primary and the inputs by role.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn reconcile(
        context: &Context<Self::Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure>;
}

impl<T: Objects> wit::Guest for T {
    fn require(
        context: RawContext,
        primary: Primary,
        found: Vec<Input>,
    ) -> Result<Requirement, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::require(&context, &primary, &found)
    }

    fn reconcile(
        context: RawContext,
        primary: Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::reconcile(&context, &primary, inputs)
    }
}

/// A condition of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Condition<'a> {
    /// Its type, such as `Available`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// The name of a declared reason.
    pub reason: &'a str,
    /// One sentence for people.
    pub message: &'a str,
}

impl<'a> Condition<'a> {
    /// One with a declared reason: `Condition::new("Available", "Unknown", &SILENT, "No heartbeat.")`.
    pub const fn new(kind: &'a str, status: &'a str, reason: &Reason, message: &'a str) -> Self {
        Self {
            kind,
            status,
            reason: reason.name,
            message,
        }
    }

    /// One that holds.
    pub const fn true_(kind: &'a str, reason: &Reason, message: &'a str) -> Self {
        Self::new(kind, "True", reason, message)
    }

    /// One that does not hold.
    pub const fn false_(kind: &'a str, reason: &Reason, message: &'a str) -> Self {
        Self::new(kind, "False", reason, message)
    }

    /// One of which nobody knows whether it holds.
    pub const fn unknown(kind: &'a str, reason: &Reason, message: &'a str) -> Self {
        Self::new(kind, "Unknown", reason, message)
    }
}

/// An answer that wants these, in this order, and nothing else.
impl FromIterator<Desired> for Answer {
    fn from_iter<T: IntoIterator<Item = Desired>>(apply: T) -> Self {
        Self {
            apply: apply.into_iter().collect(),
            ..Self::default()
        }
    }
}

impl From<Desired> for Answer {
    fn from(desired: Desired) -> Self {
        Self::from_iter([desired])
    }
}

/// A requirement without targets.
impl FromIterator<Need> for Requirement {
    fn from_iter<T: IntoIterator<Item = Need>>(needs: T) -> Self {
        Self {
            needs: needs.into_iter().collect(),
            ..Self::default()
        }
    }
}

impl Desired {
    /// Fields of the primary, or of an object that others made and that `require` named as a target:
    /// `json!({"metadata": {"labels": {"a": "b"}}})`. Null removes a field; one that is left out keeps its value.
    pub fn fields(object: &ObjectRef, content: &Json) -> Self {
        Self {
            object: object.clone(),
            ownership: Ownership::Fields,
            content: content.to_string(),
            holes: Vec::new(),
        }
    }

    /// Conditions of the primary. Those of other types stay, and the host keeps the times.
    pub fn conditions(primary: &Primary, conditions: &[Condition<'_>]) -> Self {
        Self::conditions_of(&primary.reference, conditions)
    }

    /// The same of an object that others made.
    pub fn conditions_of(object: &ObjectRef, conditions: &[Condition<'_>]) -> Self {
        Self::fields(object, &json!({"status": {"conditions": conditions}}))
    }

    /// A whole object that the policy makes: `json!({"data": {"a": "b"}})`, with labels and annotations if there are
    /// any. A field that an earlier answer had and this one leaves out goes. `require` has to name the object as a
    /// target.
    pub fn whole(object: &ObjectRef, content: &Json) -> Self {
        Self {
            object: object.clone(),
            ownership: Ownership::Whole,
            content: content.to_string(),
            holes: Vec::new(),
        }
    }
}

/// What was found for a role; absent when nothing was.
pub fn found<'a>(inputs: &'a [Input], role: &str) -> &'a Value {
    let input = inputs.iter().find(|input| input.role == role);
    input.map_or(&Value::Absent, |input| &input.value)
}

impl Value {
    /// Reads the declared fields of an object; none if there is no object. The text leaves out fields that the object
    /// does not have, so give the type `#[serde(default)]`.
    ///
    /// # Errors
    /// A problem with reason `UnreadableFields` if a field has another type than the guest expects.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<Option<T>, Problem> {
        match self {
            Self::Object(text) => settings::fields(text).map(Some),
            _ => Ok(None),
        }
    }
}

impl Member {
    /// Reads its declared fields. The text leaves out fields that the object does not have, so give the type
    /// `#[serde(default)]`.
    ///
    /// # Errors
    /// A problem with reason `UnreadableFields` if a field has another type than the guest expects.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        settings::fields(&self.fields)
    }
}

impl Default for PrivateKey {
    fn default() -> Self {
        Self::NotAsked
    }
}

impl Default for RequestContent {
    fn default() -> Self {
        Self::Readable(Requested::default())
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::Absent
    }
}
