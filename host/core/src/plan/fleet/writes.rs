//! What the reconcile of one primary would write, reduced to effects and a digest: small enough to be kept for every
//! primary of a fleet, and without any value of an object.

use crate::digest::Digest;
use crate::failure::one_line;
use crate::kubeconfig::difference::{self, Parts};
use crate::managed_keys;
use crate::object::Object;
use crate::plan::Step;
use crate::plan::desired::Open;
use crate::plan::effect::{self, Effect, KEYS, TIMES};
use crate::projection::path;
use crate::time::parse_rfc3339;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of changes of one primary that are kept by name, and of fields of one change.
const CHANGES: usize = 64;
/// Maximum length of a name in a plan, in bytes.
pub(super) const NAME: usize = 317;

/// One effect, with the fields of a whole object that differ. Holds no value of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedChange {
    /// The effect.
    #[serde(flatten)]
    pub effect: Effect,
    /// The fields of an updated object that differ: paths, and below a kubeconfig its parts, such as
    /// `data.kubeconfig.server`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// What the reconcile of one primary would write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Sorted, each once; only the first ones, when there are many.
    pub changes: Vec<PlannedChange>,
    /// How many more there are.
    pub more: usize,
    /// Digest of all of them with what is written, but for credentials, times, uids and versions; `None` when nothing
    /// would be written.
    pub digest: Option<Digest>,
}

impl Writes {
    /// Adds steps, each with its object as it was read; `None` when that does not exist. `open` is what is known of
    /// documents in the objects that they make; others are read.
    pub fn add<'a>(
        &mut self,
        steps: impl IntoIterator<Item = (&'a Step, Option<&'a Object>)>,
        open: &Open,
    ) {
        for (step, before) in steps {
            let effects = effect::of(step, before);
            let content = content((step, before), &effects, open);
            let changes: BTreeSet<PlannedChange> = effects
                .into_iter()
                .map(|effect| change(step, before, effect))
                .collect();
            let all = json!([step.target(), changes, content]);
            self.append(Self {
                more: changes.len().saturating_sub(CHANGES),
                changes: changes.into_iter().take(CHANGES).map(shortened).collect(),
                digest: Some(Digest::of(&all)),
            });
        }
    }

    /// Adds what is written later.
    pub fn append(&mut self, later: Self) {
        let digests = [self.digest, later.digest].into_iter().flatten();
        let digests: Vec<Digest> = digests.collect();
        self.digest = match digests.as_slice() {
            [one, other] => Some(Digest::of(&json!([one.to_string(), other.to_string()]))),
            digests => digests.first().copied(),
        };
        let changes = std::mem::take(&mut self.changes).into_iter();
        let changes: BTreeSet<PlannedChange> = changes.chain(later.changes).collect();
        self.more += later.more + changes.len().saturating_sub(CHANGES);
        self.changes = changes.into_iter().take(CHANGES).collect();
    }

    /// Whether nothing would be written.
    pub fn is_empty(&self) -> bool {
        self.digest.is_none()
    }
}

fn change(step: &Step, before: Option<&Object>, effect: Effect) -> PlannedChange {
    let fields = match step {
        Step::Update { desired, changed } => {
            let fields: BTreeSet<String> = changed
                .iter()
                .flat_map(|path| below(path, desired, before))
                .collect();
            fields.into_iter().collect()
        }
        _ => Vec::new(),
    };
    PlannedChange { effect, fields }
}

/// A change with few and short names.
fn shortened(PlannedChange { effect, fields }: PlannedChange) -> PlannedChange {
    let mut fields: Vec<String> = fields.iter().map(|field| name(field)).collect();
    if fields.len() > CHANGES {
        let more = fields.len() - (CHANGES - 1);
        fields.truncate(CHANGES - 1);
        fields.push(format!("and {more} more"));
    }
    let effect = Effect {
        kind: name(&effect.kind),
        path: name(&effect.path),
        element: name(&effect.element),
        verb: effect.verb,
    };
    PlannedChange { effect, fields }
}

/// A name as a plan holds it: one line, and cut when it is long.
pub(super) fn name(text: &str) -> String {
    let shown = one_line(text);
    match shown.len() > NAME {
        true => format!("{}…", &shown[..shown.floor_char_boundary(NAME)]),
        false => shown,
    }
}

/// The path of a field that differs; of a kubeconfig, the paths of the parts that differ.
fn below(path: &str, desired: &Object, before: Option<&Object>) -> Vec<String> {
    let bytes = |object: &Object| object.secret_bytes(&path::key_below(&["data"], path)?);
    let parts = || {
        let before = difference::read(&bytes(before?)?)?;
        let after = difference::read(&bytes(desired)?)?;
        Some(Parts::of(&before).difference(&Parts::of(&after)))
    };
    match parts().filter(|parts| !parts.is_empty()) {
        Some(parts) => parts.iter().map(|part| format!("{path}.{part}")).collect(),
        None => vec![path.to_owned()],
    }
}

/// What a step writes, as far as it may be part of a digest.
fn content((step, before): (&Step, Option<&Object>), effects: &[Effect], known: &Open) -> Value {
    match step {
        Step::Create { desired } | Step::Update { desired, .. } => whole(desired, known),
        Step::Delete { .. } => Value::Null,
        // The fields of a Secret are not looked at, whoever writes them.
        Step::Patch { reference, .. } if reference.kind == "Secret" => Value::Null,
        Step::Patch { fields, .. } => {
            let there = |path: &str| {
                before
                    .and_then(|before| path::at(&before.body, path))
                    .map(timeless)
            };
            // A guest names very many fields, or elements of one.
            let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for effect in effects.iter().filter(|effect| !effect.element.is_empty()) {
                named
                    .entry(&effect.path)
                    .or_default()
                    .insert(&effect.element);
            }
            let field = |(path, value): &(String, Value)| {
                let value = timeless(value);
                match named.get(path.as_str()) {
                    // Only times differ.
                    None if there(path).as_ref() == Some(&value) => Value::Null,
                    None => value,
                    Some(named) => elements(&value, named),
                }
            };
            fields.iter().map(field).collect()
        }
    }
}

/// The elements of a list with these names; those of other writers are none of this plan's business.
fn elements(list: &Value, names: &BTreeSet<&str>) -> Value {
    let is_named = |element: &&Value| {
        let mut values = KEYS.iter().filter_map(|key| element.get(key)?.as_str());
        values.any(|value| names.contains(value))
    };
    let all = list.as_array().into_iter().flatten();
    all.filter(is_named).cloned().collect()
}

/// A value without its times. A text that is a time is one, whatever field holds it: a guest that notes when it decided
/// answers with another one at each call.
fn timeless(value: &Value) -> Value {
    match value {
        Value::String(text) if parse_rfc3339(text).is_some() => Value::from("(time)"),
        Value::Array(items) => items.iter().map(timeless).collect(),
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| !TIMES.contains(&key.as_str()));
            Value::Object(
                kept.map(|(key, value)| (key.clone(), timeless(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// An object that the policy makes: its data without credentials, and the labels, annotations and fields that the
/// policy puts on it.
fn whole(desired: &Object, known: &Open) -> Value {
    let data = desired.body.get("data").and_then(Value::as_object);
    let data: Map<String, Value> = data
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            let known = known.said(&desired.reference, key).cloned();
            let read = || open(value, &desired.reference.kind);
            (key.clone(), known.unwrap_or_else(read))
        })
        .collect();
    json!([data, desired.body.get("type"), managed_keys::view(desired),])
}

/// A value of a written object. Of a kubeconfig no credential is left; of anything else in a Secret, nothing.
fn open(value: &Value, kind: &str) -> Value {
    if kind != "Secret" {
        return value.clone();
    }
    let decoded = value
        .as_str()
        .and_then(|text| STANDARD.decode(text.trim()).ok());
    let document = decoded.as_deref().and_then(difference::read);
    document.map_or(Value::Null, |document| Parts::of(&document).open())
}
