//! A guest's self-description, read when it is loaded. It proves nothing.

use super::decide::{LabelTerm, Review};
use crate::world::World;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
pub use transom_api::policy::{EverySpec, WriteVerb};

/// The most kinds that a guest may read, and the most paths of one kind.
pub const MAX_READS: usize = 64;
/// The most reasons that a guest may declare.
pub const MAX_REASONS: usize = 128;
/// The most grants for writing that a guest may ask for, and the most fields, keys and roles of one grant.
pub const MAX_GRANTS: usize = 16;
/// The most bytes of a pattern, a path, a key and a role of a grant.
pub const MAX_PATTERN: usize = 512;
/// The most bytes of a value of a grant, as JSON.
pub const MAX_VALUE: usize = 4096;
/// The most bytes of a reason, of the name and of the version.
pub const MAX_WORD: usize = 64;

/// What a component is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It decides when: `trigger-guest`.
    Trigger,
    /// It decides what, in this world.
    Decide(&'static dyn World),
}

impl Role {
    /// The name of its world in `wit/`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trigger => "trigger-guest",
            Self::Decide(world) => world.name(),
        }
    }
}

/// What a guest reads of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Read {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Paths whose values cross.
    pub fields: Vec<String>,
    /// Paths whose values stay in the host; only the fact of a change crosses.
    pub changes: Vec<String>,
}

/// A reason that a guest may answer with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeclaredReason {
    /// CamelCase.
    pub name: String,
    /// What it means.
    pub meaning: String,
    /// What to do about it.
    pub remedy: String,
}

/// Objects, as a grant of a policy names them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPattern {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Pattern of the namespace; absent for a kind that is cluster-scoped.
    pub namespace: Option<String>,
    /// Pattern of the name.
    pub name: String,
}

/// Objects that a guest asks for under a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadGrant {
    /// The role.
    pub role: String,
    /// Which objects.
    pub object: ObjectPattern,
    /// Keys of a Secret's data.
    pub keys: Vec<String>,
    /// How large a set of them may be.
    pub every: Option<EverySpec>,
    /// What it needs them for.
    pub why: String,
}

/// A question that a guest asks the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AskGrant {
    /// The question, with patterns of namespace and name.
    pub review: Review,
    /// What it needs the answer for.
    pub why: String,
}

/// A field of a Secret that the host fills, and with what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HoleGrant {
    /// Its path.
    #[serde(skip)]
    pub path: String,
    /// The roles of Secrets whose bytes may go there.
    pub bytes: Vec<String>,
    /// The roles of kubeconfigs that may.
    #[serde(rename = "kubeconfig")]
    pub kubeconfigs: Vec<String>,
    /// The kinds of the objects of a text, by group and version.
    #[serde(serialize_with = "kinds")]
    pub manifests: Vec<(String, String)>,
}

/// What a guest writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteGrant {
    /// Which objects; absent for the primary itself.
    pub object: Option<ObjectPattern>,
    /// What it does with them.
    pub verbs: Vec<WriteVerb>,
    /// Paths of the fields.
    pub fields: Vec<String>,
    /// Which values fields may get: path, and each value as JSON.
    #[serde(serialize_with = "by_name")]
    pub values: Vec<(String, Vec<String>)>,
    /// Which labels objects of others have.
    pub labels: Vec<LabelTerm>,
    /// The finalizers that it takes off.
    pub finalizers: Vec<String>,
    /// Keys of taints.
    pub taint_keys: Vec<String>,
    /// Types of conditions.
    pub conditions: Vec<String>,
    /// The signers of the requests that it approves or denies.
    pub signers: Vec<String>,
    /// Roles of which the server of a kubeconfig may come, or URLs.
    pub servers: Vec<String>,
    /// Roles of which its certificate authorities may come.
    pub authorities: Vec<String>,
    /// Fields of a Secret that the host fills.
    #[serde(serialize_with = "by_path")]
    pub holes: Vec<HoleGrant>,
    /// What it writes.
    pub why: String,
}

/// What a guest asks a policy to grant, by default. It grants nothing by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SuggestedGrant {
    /// Which labels the primaries have.
    pub primary_labels: Vec<LabelTerm>,
    /// Templates that patterns use: name and text.
    #[serde(serialize_with = "by_name")]
    pub names: Vec<(String, String)>,
    /// What it reads.
    pub read: Vec<ReadGrant>,
    /// What it asks the API server.
    pub ask: Vec<AskGrant>,
    /// What it writes.
    pub write: Vec<WriteGrant>,
    /// The finalizer that it keeps on the primary.
    pub finalizer: Option<String>,
}

/// A guest's self-description. `transom inspect` prints its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it reads; the kind of the primary first.
    pub reads: Vec<Read>,
    /// Which reasons it may answer with.
    pub reasons: Vec<DeclaredReason>,
    /// JSON Schema of its settings, for people.
    #[serde(serialize_with = "schema")]
    pub settings_schema: String,
    /// What it asks a policy to grant.
    pub grant: SuggestedGrant,
}

impl Description {
    /// What it reads of a kind, if anything.
    pub fn read(&self, api_version: &str, kind: &str) -> Option<&Read> {
        self.reads
            .iter()
            .find(|read| read.api_version == api_version && read.kind == kind)
    }
}

fn by_name<V: Serialize, S: Serializer>(
    pairs: &[(String, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

fn by_path<S: Serializer>(holes: &[HoleGrant], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(holes.iter().map(|hole| (&hole.path, hole)))
}

fn kinds<S: Serializer>(kinds: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let kind = |(version, kind): &(_, _)| json!({"apiVersion": version, "kind": kind});
    serializer.collect_seq(kinds.iter().map(kind))
}

/// The schema itself; null where it is no JSON.
fn schema<S: Serializer>(schema: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let read: Value = serde_json::from_str(schema).unwrap_or_default();
    read.serialize(serializer)
}
