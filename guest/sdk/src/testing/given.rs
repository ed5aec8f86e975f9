//! Reads `given.yaml` into the arguments of a call. A field that the call does not take is an error, so that a misspelt
//! one is found.

use super::declared::{Declared, LEASE_SECONDS};
use crate::bindings::guest::transom::policy::types::{Agent, Context};
use crate::taints::ManagedCluster;
use crate::trigger::Change;
use crate::{About, Failure, ObjectRef, Primary};
use crate::{kubeconfig, objects};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// How many rounds the host asks for needs.
const ROUNDS: usize = 3;

/// `given.yaml`, taken apart field by field.
pub(super) struct Given(Map<String, Value>);

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct GivenContext {
    now_seconds: i64,
    settings: Value,
    agent: Agent,
}

impl Default for GivenContext {
    fn default() -> Self {
        let agent = Agent {
            cluster_name: "local-cluster".into(),
            self_managed: true,
        };
        Self {
            now_seconds: 0,
            settings: Value::Null,
            agent,
        }
    }
}

impl Given {
    pub(super) fn new(value: Value) -> Result<Self, String> {
        match value {
            Value::Object(map) => Ok(Self(map)),
            _ => Err("`given.yaml` is not a map".into()),
        }
    }

    /// Takes one field of the file.
    pub(super) fn take<T: DeserializeOwned>(&mut self, word: &str) -> Result<Option<T>, String> {
        let Some(value) = self.0.remove(word) else {
            return Ok(None);
        };
        serde_json::from_value(value)
            .map(Some)
            .map_err(|error| format!("failed to read `{word}`: {error}"))
    }

    pub(super) fn context(&mut self) -> Result<Context, String> {
        let context: GivenContext = self.take("context")?.unwrap_or_default();
        Ok(Context {
            now_seconds: context.now_seconds,
            settings: if context.settings.is_null() {
                "{}".into()
            } else {
                context.settings.to_string()
            },
            agent: context.agent,
        })
    }

    pub(super) fn primary(&mut self) -> Result<Option<Primary>, String> {
        as_text(self.0.get_mut("primary"), "fields", true);
        self.take("primary")
    }

    pub(super) fn change(&mut self) -> Result<Option<Change>, String> {
        if let Some(Value::Object(change)) = self.0.get_mut("change") {
            as_text(change.get_mut("before"), "fields", true);
            as_text(change.get_mut("after"), "fields", true);
        }
        self.take("change")
    }

    /// The managed cluster; without a lease duration it has the default of an object.
    pub(super) fn cluster(&mut self) -> Result<Option<ManagedCluster>, String> {
        if let Some(Value::Object(cluster)) = self.0.get_mut("cluster") {
            cluster
                .entry("lease-duration-seconds")
                .or_insert_with(|| LEASE_SECONDS.into());
        }
        self.take("cluster")
    }

    pub(super) fn inputs<I: Found>(&mut self, word: &str) -> Result<Option<Vec<I>>, String> {
        if let Some(Value::Array(inputs)) = self.0.get_mut(word) {
            for input in inputs {
                as_text(input.get_mut("value"), "object", false);
                let every = input.pointer_mut("/value/every");
                for member in every.and_then(Value::as_array_mut).into_iter().flatten() {
                    as_text(Some(member), "fields", true);
                }
            }
        }
        self.take(word)
    }

    /// The settings to validate, as text.
    pub(super) fn validate(&mut self) -> Result<Option<String>, String> {
        Ok(self
            .take::<Value>("validate")?
            .map(|settings| settings.to_string()))
    }

    /// Refuses fields that no call took.
    pub(super) fn done(self) -> Result<(), String> {
        match self.0.keys().next() {
            Some(word) => Err(format!(
                "`given.yaml` has a word that this call does not take: `{word}`"
            )),
            None => Ok(()),
        }
    }
}

/// Replaces the value under `word` by its JSON as text, as the host passes it.
fn as_text(value: Option<&mut Value>, word: &str, always: bool) {
    let Some(Value::Object(map)) = value else {
        return;
    };
    match map.get_mut(word) {
        Some(value) => *value = Value::String(value.to_string()),
        None if always => {
            map.insert(word.into(), "{}".into());
        }
        None => {}
    }
}

/// An input of a case, in any world that has inputs.
pub(super) trait Found: Clone + DeserializeOwned {
    /// The role under which it was asked for.
    fn role(&self) -> &str;
    /// The JSON of its objects; none for another form.
    fn objects(&mut self) -> Vec<&mut String>;

    /// Whether these are the objects of a set.
    fn is_set(&self) -> bool {
        false
    }
}

impl Found for kubeconfig::Input {
    fn role(&self) -> &str {
        &self.role
    }

    fn objects(&mut self) -> Vec<&mut String> {
        match &mut self.value {
            kubeconfig::Value::Object(text) => vec![text],
            _ => Vec::new(),
        }
    }
}

impl Found for objects::Input {
    fn role(&self) -> &str {
        &self.role
    }

    fn objects(&mut self) -> Vec<&mut String> {
        match &mut self.value {
            objects::Value::Object(text) => vec![text],
            objects::Value::Every(members) => members
                .iter_mut()
                .map(|member| &mut member.fields)
                .collect(),
            _ => Vec::new(),
        }
    }

    fn is_set(&self) -> bool {
        matches!(self.value, objects::Value::Every(_))
    }
}

/// The inputs of a case, with only declared fields in their objects; inputs of other forms stay whole. Asks the guest
/// for its needs, as the host does, to learn the kind of each role's object.
///
/// # Errors
/// When no need names the role of an object.
pub(super) fn cut_inputs<I: Found>(
    about: &About,
    mut given: Vec<I>,
    needs: impl Fn(Vec<I>) -> Result<BTreeMap<String, ObjectRef>, Failure>,
) -> Result<Vec<I>, String> {
    if given.iter_mut().all(|input| input.objects().is_empty()) {
        return Ok(given);
    }
    let mut kinds = BTreeMap::new();
    let mut found = Vec::new();
    for _ in 0..ROUNDS {
        let Ok(needed) = needs(found) else { break };
        kinds.extend(needed);
        let asked = given
            .iter()
            .filter(|input| kinds.contains_key(input.role()));
        found = asked
            .map(|input| cut_input(about, input, &kinds))
            .collect::<Result<_, _>>()?;
    }
    given
        .iter()
        .map(|input| cut_input(about, input, &kinds))
        .collect()
}

fn cut_input<I: Found>(
    about: &About,
    input: &I,
    kinds: &BTreeMap<String, ObjectRef>,
) -> Result<I, String> {
    let (mut input, role) = (input.clone(), input.role().to_owned());
    if input.objects().is_empty() {
        return Ok(input);
    }
    let kind = kinds
        .get(&role)
        .ok_or_else(|| format!("no need of the guest names the role `{role}` of an object"))?;
    let declared = Declared::of(about, (&kind.api_version, &kind.kind))?;
    let is_set = input.is_set();
    for text in input.objects() {
        let value = serde_json::from_str(text)
            .map_err(|error| format!("failed to read the object `{role}`: {error}"))?;
        let value = declared.project(&value);
        *text = if is_set { short(&value) } else { value }.to_string();
    }
    Ok(input)
}

/// The most bytes that cross of a text or a key of one object of a set.
const TEXT: usize = 4_096;

/// A copy of a value in which no text is longer, and no key of a map.
fn short(value: &Value) -> Value {
    let beginning = |text: &str| text[..text.floor_char_boundary(TEXT)].to_owned();
    match value {
        Value::String(text) => beginning(text).into(),
        Value::Array(items) => items.iter().map(short).collect(),
        Value::Object(map) => {
            let entries = map.iter();
            let entries = entries.map(|(key, value)| (beginning(key), short(value)));
            Value::Object(entries.collect())
        }
        other => other.clone(),
    }
}
