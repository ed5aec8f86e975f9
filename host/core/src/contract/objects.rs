//! What an objects guest answers: what it wants objects to say, and what it waits for.

use super::credentials::Proposal;
use super::{Problem, Reference, references, waiting};
use crate::reference::ObjectRef;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// The most objects of one answer.
pub const MAX_OBJECTS: usize = 64;
/// The most bytes of the paths of one content's fields, and of those of all fields of one answer whose objects the
/// policy does not make.
pub const MAX_PATHS: usize = 256 << 10;
/// The most bytes of one text of objects, and of the bytes that the host fills in one object of it.
pub const MAX_TEXT: usize = 1 << 20;

/// What an objects guest wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ObjectsAnswer {
    /// What is wanted, in order.
    pub apply: Vec<Apply>,
    /// Objects of others that are to go.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "references")]
    pub remove: Vec<ObjectRef>,
    /// Whether the policy's finalizer stays on the primary.
    #[serde(skip_serializing_if = "super::is_false")]
    pub keep_finalizer: bool,
    /// Why the answer is not complete, and the objects that it waits for.
    #[serde(serialize_with = "wait")]
    pub wait: Option<(Problem, Vec<ObjectRef>)>,
}

/// Whether the policy makes an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectOwnership {
    /// It does: the object is created, kept as it is wanted, and pruned.
    Whole,
    /// Others do: only the named fields are written.
    Fields,
}

/// What is wanted of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Apply {
    /// Which object.
    #[serde(with = "Reference")]
    pub object: ObjectRef,
    /// Whether the policy makes it.
    pub ownership: ObjectOwnership,
    /// Its fields, as JSON in a text.
    #[serde(serialize_with = "json")]
    pub content: String,
    /// Its fields that the host fills.
    pub holes: Vec<Filled>,
}

/// A field that the host fills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Filled {
    /// Its path.
    pub path: String,
    /// What it is filled with.
    pub hole: Hole,
}

/// What a field is filled with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hole {
    /// Objects as one text.
    Manifests(Vec<ObjectManifest>),
    /// Something that may hold a credential.
    #[serde(untagged)]
    Credential(CredentialRef),
}

/// Something that may hold a credential, by reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CredentialRef {
    /// The bytes with this reference.
    Bytes(u32),
    /// The text of a kubeconfig.
    Kubeconfig(MadeKubeconfig),
}

/// A kubeconfig that is made of one that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct MadeKubeconfig {
    /// The role of the input that it is made of.
    pub source: String,
    /// What it is to say.
    pub proposal: Proposal,
}

/// One object of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ObjectManifest {
    /// The whole object, as JSON in a text.
    #[serde(serialize_with = "json")]
    pub content: String,
    /// Its fields that the host fills.
    pub holes: Vec<FilledWithin>,
}

/// A field of an object of a text that the host fills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FilledWithin {
    /// Its path.
    pub path: String,
    /// What it is filled with.
    pub hole: CredentialRef,
}

impl Apply {
    /// The fields; `None` when the text is not one JSON object.
    pub fn fields(&self) -> Option<Map<String, Value>> {
        serde_json::from_str(&self.content).ok()
    }
}

fn wait<S: Serializer>(
    wait: &Option<(Problem, Vec<ObjectRef>)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match wait {
        Some((problem, objects)) => waiting(problem, objects, serializer),
        None => serializer.serialize_none(),
    }
}

/// The JSON in a text; a text that is none, as it is.
fn json<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => value.serialize(serializer),
        Err(_) => serializer.serialize_str(text),
    }
}
