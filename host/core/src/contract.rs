//! The types of `wit/` as Rust values: what goes to a guest and what comes back. Holds no credential bytes and no
//! object as the cluster sent it.

pub mod credentials;
pub mod decide;
pub mod description;
pub mod objects;
pub mod secrets;
pub mod taints;

use crate::own_records::OwnRecords;
use crate::reference::ObjectRef;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What a call gets beside its arguments; `now` is never part of a digest.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Context {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub now_seconds: i64,
    /// The policy's settings for this guest, one JSON object as text, already validated.
    #[serde(deserialize_with = "json")]
    pub settings: Arc<str>,
    /// Facts about the agent that calls.
    pub agent: AgentFacts,
}

/// Facts about the agent.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentFacts {
    /// Name of the cluster that the agent works for.
    pub cluster_name: String,
    /// Whether that cluster is the hub's own.
    pub self_managed: bool,
    /// The records that it keeps; no guest is told of them.
    #[serde(skip)]
    pub records: OwnRecords,
}

impl AgentFacts {
    /// An agent is self-managed unless it knows the hub's own cluster and has another name (ignoring ASCII case).
    pub fn new(cluster_name: &str, self_managed_cluster: Option<&str>) -> Self {
        Self {
            cluster_name: cluster_name.to_owned(),
            self_managed: self_managed_cluster
                .is_none_or(|own| own.eq_ignore_ascii_case(cluster_name)),
            records: OwnRecords::default(),
        }
    }

    /// An agent that keeps these records.
    #[must_use]
    pub fn keeping(self, records: OwnRecords) -> Self {
        Self { records, ..self }
    }
}

/// The primary object of a reconcile, with the fields that the guest declared.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Primary {
    /// Which object.
    #[serde(with = "Reference")]
    pub reference: ObjectRef,
    /// `metadata.uid`, empty when the object has none.
    pub uid: String,
    /// `metadata.creationTimestamp` in seconds since 1970.
    pub created_seconds: Option<i64>,
    /// Whether it carries a deletion timestamp.
    pub deleting: bool,
    /// The declared fields only.
    pub fields: Value,
}

/// A guest's reason, with a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Problem {
    /// CamelCase, declared in the guest's description.
    pub reason: String,
    /// What is wrong with what.
    pub message: String,
    /// Path of the field at fault.
    pub field: Option<String>,
}

/// Why a guest gives no answer; one variant for each reaction of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestRefusal {
    /// Not a failure: asked again when one of the objects appears or changes.
    #[serde(serialize_with = "waiting")]
    Waiting(Problem, Vec<ObjectRef>),
    /// A failure: tried again with back-off, and when an input changes.
    Missing(Problem),
    /// A failure: tried again only when an input changes.
    Invalid(Problem),
}

/// Whether a primary may be reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Readiness {
    /// Go on.
    Ready,
    /// State `Held` with this reason: no write, no prune.
    NotReady(Problem),
}

/// An answer that time alone may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed<T> {
    /// The answer.
    pub answer: T,
    /// Seconds since 1970.
    pub ask_again_at: Option<i64>,
}

/// A change of a primary, from the state that a policy saw last to the state now.
#[derive(Clone, Debug, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Change {
    /// The state that was seen last.
    pub before: Primary,
    /// The state now.
    pub after: Primary,
    /// Declared paths whose values differ.
    pub changed: Vec<String>,
}

/// A trigger guest's verdict on a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TriggerVerdict {
    /// Reconcile, for these reasons.
    Run(Vec<String>),
    /// Not now.
    Ignore,
}

// How cases of guests write these types: in the names of `wit/`; a field that is left out has its default. What is
// serialized for digests keeps the names that it has always had.

/// An [`ObjectRef`] in the names of `wit/`.
#[derive(Deserialize, Serialize)]
#[serde(remote = "ObjectRef", deny_unknown_fields, rename_all = "kebab-case")]
struct Reference {
    #[serde(default)]
    cluster: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: String,
}

/// JSON as text, which a case writes as YAML.
fn json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(if value.is_null() {
        "{}".into()
    } else {
        value.to_string().into()
    })
}

/// Entries of a map, each with `key` and `value`.
fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Pair {
        key: String,
        value: String,
    }
    let pairs = Vec::<Pair>::deserialize(deserializer)?;
    Ok(pairs
        .into_iter()
        .map(|pair| (pair.key, pair.value))
        .collect())
}

/// What a guest waits for: why, and the objects.
fn waiting<S: Serializer>(
    problem: &Problem,
    objects: &[ObjectRef],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Waiting<'a> {
        problem: &'a Problem,
        #[serde(serialize_with = "references")]
        objects: &'a [ObjectRef],
    }
    Waiting { problem, objects }.serialize(serializer)
}

/// A flag that is left out where it is not set.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Objects by their references.
fn references<S: Serializer>(objects: &[ObjectRef], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Object<'a>(#[serde(with = "Reference")] &'a ObjectRef);
    serializer.collect_seq(objects.iter().map(Object))
}

/// 1970, no settings, and an agent that works for the hub's own cluster.
impl Default for Context {
    fn default() -> Self {
        Self {
            now_seconds: 0,
            settings: "{}".into(),
            agent: AgentFacts::new("local-cluster", None),
        }
    }
}

impl Default for Primary {
    fn default() -> Self {
        Self {
            reference: ObjectRef::default(),
            uid: String::new(),
            created_seconds: None,
            deleting: false,
            fields: Value::Object(Map::new()),
        }
    }
}
