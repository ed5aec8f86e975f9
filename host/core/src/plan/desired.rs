//! What a policy wants to be there: a whole object that it makes, or some fields of an object that others made. The
//! answers of all worlds are lowered to these values.

use super::TargetState;
use super::conditions::Conditions;
use crate::projection::path::Path;
use crate::reference::ObjectRef;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One object as a policy wants it.
#[derive(Debug)]
pub enum Desired<'a> {
    /// The policy makes the object, owns all of its data, and prunes it.
    Whole(Whole<'a>),
    /// The policy owns some fields of an object that others made.
    Fields(Fields),
    /// An object that others made is to go.
    Gone(ObjectRef),
    /// The finalizer of the policy is to be on the primary. Where nothing wants it, it is released
    /// ([`super::finalizer::release`]).
    Finalizer,
}

impl Desired<'_> {
    /// The object that it is about.
    pub fn object<'o>(&'o self, primary: &'o ObjectRef) -> &'o ObjectRef {
        match self {
            Self::Whole(whole) => &whole.object,
            Self::Fields(fields) => &fields.object,
            Self::Gone(object) => object,
            Self::Finalizer => primary,
        }
    }

    /// When the first certificate in it expires, in seconds since 1970.
    pub fn ends_seconds(&self) -> Option<i64> {
        match self {
            Self::Whole(whole) => whole.ends_seconds,
            Self::Fields(_) | Self::Gone(_) | Self::Finalizer => None,
        }
    }
}

/// The targets that an answer does not make.
pub fn left_out(desired: &[Desired<'_>], targets: &[TargetState]) -> BTreeSet<ObjectRef> {
    let makes = |object: &ObjectRef| {
        let mut all = desired.iter();
        all.any(|one| matches!(one, Desired::Whole(whole) if whole.object == *object))
    };
    let targets = targets.iter().map(|one| &one.object);
    targets.filter(|object| !makes(object)).cloned().collect()
}

/// Those of the targets that an answer does not make which it removes.
pub fn only_removed(
    desired: &[Desired<'_>],
    left_out: &BTreeSet<ObjectRef>,
) -> BTreeSet<ObjectRef> {
    let removed = desired.iter().filter_map(|one| match one {
        Desired::Gone(object) => left_out.get(object),
        _ => None,
    });
    removed.cloned().collect()
}

/// A whole object.
#[derive(Debug)]
pub struct Whole<'a> {
    /// Which object.
    pub object: ObjectRef,
    /// Top-level fields of a new object beside metadata and data, such as `type`. They are immutable, so an existing
    /// object keeps its own.
    pub fixed: Map<String, Value>,
    /// Its fields, labels and annotations included, as a manifest has them. What the cluster adds beside them stays; a
    /// field that an earlier answer had goes.
    pub content: Map<String, Value>,
    /// Every key of its data, where the policy owns all of it; empty where `content` says everything.
    pub data: BTreeMap<String, KeyContent<'a>>,
    /// When the first certificate in it expires, in seconds since 1970.
    pub ends_seconds: Option<i64>,
}

/// The value of one key of an object's data.
#[derive(Debug)]
pub enum KeyContent<'a> {
    /// Plain text.
    Text(String),
    /// Bytes that may hold a credential; they cross as base64.
    Hole(Box<dyn HoleContent + 'a>),
}

/// Bytes that no guest has seen. Their `Debug` form must not show them.
pub trait HoleContent: fmt::Debug {
    /// The bytes to write.
    fn bytes(&self) -> &[u8];
    /// Whether these bytes mean the same; then nothing is written.
    fn equals(&self, bytes: &[u8]) -> bool;
    /// Whether the credential in these bytes is the one to write, so that an object with them may be adopted.
    fn shares_credential(&self, bytes: &[u8]) -> bool;
    /// What they say beside credentials, as [`Open`] has it, where that is known without reading them.
    fn open(&self) -> Option<Value> {
        None
    }
}

/// What documents in desired objects say beside their credentials, by object and key of its data: a plan of a fleet
/// then need not read them again.
#[derive(Debug, Default)]
pub struct Open(BTreeMap<ObjectRef, BTreeMap<String, Value>>);

impl Open {
    /// That of all that is desired.
    pub fn of(desired: &[Desired<'_>]) -> Self {
        let whole = desired.iter().filter_map(|one| match one {
            Desired::Whole(whole) => Some(whole),
            _ => None,
        });
        let open = |(key, content): (&String, &KeyContent<'_>)| match content {
            KeyContent::Hole(hole) => Some((key.clone(), hole.open()?)),
            KeyContent::Text(_) => None,
        };
        let open = |whole: &Whole<'_>| whole.data.iter().filter_map(open).collect();
        Self(
            whole
                .map(|whole| (whole.object.clone(), open(whole)))
                .collect(),
        )
    }

    /// What a document says.
    pub(super) fn said(&self, object: &ObjectRef, key: &str) -> Option<&Value> {
        self.0.get(object)?.get(key)
    }
}

/// Some fields of an object that others made.
#[derive(Clone, Debug, PartialEq)]
pub struct Fields {
    /// Which object.
    pub object: ObjectRef,
    /// The fields, each path once.
    pub fields: Vec<(Path, Field)>,
}

/// What a policy wants of one field.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// This value; null removes the field.
    Value(Value),
    /// Some elements of a list that others own as well.
    Elements(Elements),
    /// Some conditions of a status.
    Conditions(Conditions),
}

/// The owned elements of a list of maps. An owned key occurs at most once in the result; all other elements keep their
/// place and form.
#[derive(Clone, Debug, PartialEq)]
pub struct Elements {
    /// The field of an element that identifies it.
    pub key: &'static str,
    /// The owned values of that field.
    pub owned: BTreeSet<String>,
    /// The fields by which an element is compared, beside the key; an absent one equals an empty text.
    pub compared: &'static [&'static str],
    /// The field with the time at which an element was added.
    pub time: &'static str,
    /// The elements that the policy wants, each key once and owned, without their time.
    pub wanted: Vec<Map<String, Value>>,
}

impl Elements {
    /// The taints of a ManagedCluster that a policy owns by key.
    pub fn of_taints(owned: BTreeSet<String>, wanted: Vec<Map<String, Value>>) -> Self {
        Self {
            key: "key",
            owned,
            compared: &["value", "effect"],
            time: "timeAdded",
            wanted,
        }
    }
}

/// Whether a value says what is wanted. An API server adds fields with their defaults, also to the elements of a list.
pub fn holds(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| there.get(key).is_some_and(|there| holds(there, value))),
        (Value::Array(there), Value::Array(wanted)) => {
            let mut pairs = there.iter().zip(wanted);
            there.len() == wanted.len() && pairs.all(|(there, wanted)| holds(there, wanted))
        }
        (there, wanted) => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::holds;
    use serde_json::json;

    #[test]
    fn a_value_with_defaults_says_what_is_wanted() {
        let wanted = json!({"a": [{"kind": "Group", "name": "g"}], "b": {"c": 1}});
        let added = json!({"a": [{"kind": "Group", "name": "g", "apiGroup": "x"}], "b": {"c": 1, "d": 2}, "e": 3});
        assert!(holds(&wanted, &wanted) && holds(&added, &wanted));
        for other in [
            json!({"a": [], "b": {"c": 1}}),
            json!({"a": [{"kind": "Group", "name": "g"}, {}], "b": {"c": 1}}),
            json!({"a": [{"kind": "User", "name": "g"}], "b": {"c": 1}}),
            json!({"a": [{"kind": "Group", "name": "g"}]}),
            json!(null),
        ] {
            assert!(!holds(&other, &wanted), "{other}");
        }
    }
}
