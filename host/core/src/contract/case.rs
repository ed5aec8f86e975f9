//! How cases of guests write the types of `wit/`: in its own names. A field that is left out has its default. What is
//! serialized for digests keeps the names that it has always had.

use super::taints::ManagedCluster;
use super::{AgentFacts, Context, Primary, Problem};
use crate::managed_cluster::DEFAULT_LEASE_SECONDS;
use crate::reference::ObjectRef;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::sync::Arc;

/// An [`ObjectRef`] in the names of `wit/`.
#[derive(Deserialize, Serialize)]
#[serde(remote = "ObjectRef", deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Reference {
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
pub(super) fn json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(if value.is_null() {
        "{}".into()
    } else {
        value.to_string().into()
    })
}

/// Entries of a map, each with `key` and `value`.
pub(super) fn pairs<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(String, String)>, D::Error> {
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
pub(super) fn waiting<S: Serializer>(
    problem: &Problem,
    objects: &[ObjectRef],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Waiting<'a> {
        problem: &'a Problem,
        objects: Vec<Object<'a>>,
    }
    #[derive(Serialize)]
    struct Object<'a>(#[serde(with = "Reference")] &'a ObjectRef);
    let objects = objects.iter().map(Object).collect();
    Waiting { problem, objects }.serialize(serializer)
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

impl Default for ManagedCluster {
    fn default() -> Self {
        Self {
            reference: ObjectRef::default(),
            uid: String::new(),
            created_seconds: None,
            deleting: false,
            accepted: false,
            lease_duration_seconds: DEFAULT_LEASE_SECONDS,
            kubernetes_version: None,
            labels: Vec::new(),
            annotations: Vec::new(),
            claims: Vec::new(),
            conditions: Vec::new(),
            taints: Vec::new(),
        }
    }
}
