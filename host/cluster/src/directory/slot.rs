//! The state of one object: its sources in users' files, what the agent made of it, and the effective object.
//! The effective object depends only on these texts. Does no I/O.

use super::manifest::FileFault;
use super::names::digest;
use super::patch::Patch;
use super::tree::FilePlace;
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::projection::{Paths, read};

/// How many files of a duplicate object are named.
const NAMED: usize = 4;

/// One object in one file of a user.
#[derive(Clone, Debug)]
pub(super) struct UserObject {
    /// The file.
    pub(super) file: Arc<Path>,
    /// Compact JSON.
    pub(super) text: Arc<str>,
    /// Upper bound of the bytes that it takes once it is parsed.
    pub(super) weight: usize,
}

/// One object that the agent made.
#[derive(Clone, Debug)]
pub(super) struct MadeObject {
    /// Compact JSON.
    pub(super) text: Arc<str>,
    /// Upper bound of the bytes that it takes once it is parsed.
    pub(super) weight: usize,
    /// Digest of the user's object that it was laid over; `None` if there was none.
    pub(super) over: Option<Box<str>>,
}

/// The effective state of an object, by its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The object does not exist.
    #[default]
    Absent,
    /// The object exists, at this version.
    Value(u64),
    /// The object is in several files, which are these.
    Duplicate(Arc<str>),
}

/// The effective object, with its source.
pub(super) enum Effective {
    /// The object does not exist.
    Absent,
    /// The object is in several files.
    Duplicate(Arc<str>),
    /// The user's object, with the fields that the agent laid over it.
    Users(Arc<str>, Option<Arc<Patch>>),
    /// An object that the agent made.
    Made(Arc<str>),
}

/// Everything known about one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// Users' files that contain it; more than one is an error.
    pub(super) users: Vec<UserObject>,
    /// The whole object that the agent made.
    pub(super) made: Option<Box<MadeObject>>,
    /// The fields that the agent laid over it.
    pub(super) patch: Option<Arc<Patch>>,
    /// The state as of the last update.
    pub(super) seen: SlotState,
}

impl Slot {
    /// Whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.made.is_none() && self.patch.is_none()
    }

    /// The effective object. A user's object takes precedence over one that the agent made, unless the agent made its
    /// own from exactly that object.
    pub(super) fn effective(&self) -> Effective {
        match (self.users.as_slice(), &self.made) {
            ([], None) => Effective::Absent,
            ([], Some(made)) => Effective::Made(Arc::clone(&made.text)),
            ([user], Some(made))
                if made
                    .over
                    .as_deref()
                    .is_some_and(|over| *over == *digest(user.text.as_bytes())) =>
            {
                Effective::Made(Arc::clone(&made.text))
            }
            ([user], _) => Effective::Users(Arc::clone(&user.text), self.patch.clone()),
            (users, _) => Effective::Duplicate(files(users)),
        }
    }

    /// Lays the patch over what the user has now, if exactly one file has the object: what is in none, or in several,
    /// is not known. Whether the patch differs then.
    pub(super) fn rebase(&mut self) -> bool {
        let ([user], Some(patch)) = (self.users.as_slice(), &self.patch) else {
            return false;
        };
        let body = parse(&user.text, patch.paths().as_ref());
        let Some(rebased) = body.ok().and_then(|body| patch.rebased(&body)) else {
            return false;
        };
        let left = Some(rebased).filter(|rebased| !rebased.fields.is_empty());
        self.patch = left.map(Arc::new);
        true
    }

    /// Upper bound of the bytes that the object takes once it is parsed, without the fields laid over it.
    pub(super) fn weigh(&self) -> usize {
        let made = self.made.as_ref().map_or(0, |made| made.weight);
        match self.users.as_slice() {
            [] => made,
            [user] => made.max(user.weight),
            // A duplicate object is not parsed.
            _ => 0,
        }
    }
}

impl Effective {
    /// Whether the kept text of the object contains a text; without the fields laid over it.
    pub(super) fn holds(&self, text: &str) -> bool {
        match self {
            Self::Absent | Self::Duplicate(_) => false,
            Self::Users(value, _) | Self::Made(value) => value.contains(text),
        }
    }

    /// The parsed object, or its metadata and these fields, with everything that is laid over it; `None` if it does not
    /// exist.
    pub(super) fn value(&self, fields: Option<&Paths>) -> Result<Option<Value>, FileFault> {
        match self {
            Self::Absent => Ok(None),
            Self::Duplicate(files) => Err(FileFault {
                reason: KnownReason::DuplicateObject,
                message: format!("it is defined in {files}"),
                objects: Vec::new(),
            }),
            Self::Made(text) => parse(text, fields).map(Some),
            Self::Users(text, patch) => Ok(Some(laid(parse(text, fields)?, patch.as_deref()))),
        }
    }

    /// The parsed object in this state and in another one; a text that both have is parsed once.
    pub(super) fn values(&self, other: &Self) -> [Result<Option<Value>, FileFault>; 2] {
        if let (Self::Users(text, patch), Self::Users(same, others)) = (self, other)
            && Arc::ptr_eq(text, same)
            && let Ok(body) = parse(text, None)
        {
            let first = laid(body.clone(), patch.as_deref());
            return [first, laid(body, others.as_deref())].map(|body| Ok(Some(body)));
        }
        [self.value(None), other.value(None)]
    }

    /// The state, with a version that is keyed per run: with a plain hash, the value of a Secret could be guessed.
    pub(super) fn seen(&self, key: &RandomState) -> SlotState {
        match self {
            Self::Absent => SlotState::Absent,
            Self::Duplicate(files) => SlotState::Duplicate(Arc::clone(files)),
            Self::Made(text) | Self::Users(text, None) => SlotState::Value(version(key, text)),
            // The version covers patch and text as they are kept, so no parsing is needed to compare two versions.
            Self::Users(text, Some(patch)) => SlotState::Value(key.hash_one((text, patch))),
        }
    }
}

fn parse(text: &str, fields: Option<&Paths>) -> Result<Value, FileFault> {
    let parsed = match fields {
        None => serde_json::from_str(text),
        Some(_) => read::object(text, fields),
    };
    parsed.map_err(|_| FileFault::invalid("it cannot be parsed".to_owned()))
}

/// A body with the fields laid over it.
fn laid(mut body: Value, patch: Option<&Patch>) -> Value {
    if let Some(patch) = patch {
        patch.lay(&mut body);
    }
    body
}

/// The version of an object's text.
pub(super) fn version(key: &RandomState, text: &str) -> u64 {
    key.hash_one(text)
}

/// The names of several files as one text, in a stable order: the first few, each once.
fn files(users: &[UserObject]) -> Arc<str> {
    let mut times: BTreeMap<&Path, usize> = BTreeMap::new();
    for user in users {
        *times.entry(&user.file).or_default() += 1;
    }
    let name = |(file, times): (&&Path, &usize)| {
        let place = FilePlace::new(super::tree::Layer::User, file);
        if *times == 1 {
            place.to_string()
        } else {
            format!("{place} ({times} times)")
        }
    };
    let mut names: Vec<String> = times.iter().take(NAMED).map(name).collect();
    if times.len() > NAMED {
        names.push(format!("and {} more", times.len() - NAMED));
    }
    names.join(", ").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn source(text: &str) -> UserObject {
        UserObject {
            file: Path::new("a.yaml").into(),
            text: text.into(),
            weight: 0,
        }
    }

    fn made(text: &str, over: Option<&str>) -> Option<Box<MadeObject>> {
        Some(Box::new(MadeObject {
            text: text.into(),
            weight: 0,
            over: over.map(|text| digest(text.as_bytes()).into()),
        }))
    }

    fn value(slot: &Slot) -> Value {
        slot.effective().value(None).unwrap().unwrap_or_default()
    }

    #[test]
    fn our_object_is_visible_until_the_user_adds_one() {
        let mut slot = Slot {
            made: made("1", None),
            ..Slot::default()
        };
        assert_eq!(value(&slot), json!(1));
        slot.users.push(source("2"));
        assert_eq!(value(&slot), json!(2));
    }

    #[test]
    fn our_copy_of_a_user_object_is_visible_until_the_user_changes_it() {
        let mut slot = Slot {
            users: vec![source("2")],
            made: made("1", Some("2")),
            ..Slot::default()
        };
        assert_eq!(value(&slot), json!(1));
        slot.users = vec![source("3")];
        assert_eq!(value(&slot), json!(3));
        slot.users.clear();
        assert_eq!(
            value(&slot),
            json!(1),
            "what we made stays when the user's object goes"
        );
    }

    #[test]
    fn two_states_of_one_text_are_read_as_each_is_alone() {
        let mut patch = Patch::default();
        patch.take(&json!({}), "b", &json!(1));
        let slot = |text: &Arc<str>, patch: Option<&Patch>| Slot {
            users: vec![UserObject {
                text: Arc::clone(text),
                ..source("")
            }],
            patch: patch.cloned().map(Arc::new),
            ..Slot::default()
        };
        let (text, broken): (Arc<str>, Arc<str>) = ("{}".into(), "{".into());
        let slots = [
            slot(&text, None),
            slot(&text, Some(&patch)),
            slot(&broken, None),
            Slot::default(),
        ];
        for (one, other) in slots
            .iter()
            .flat_map(|one| slots.iter().map(move |two| (one, two)))
        {
            let (one, other) = (one.effective(), other.effective());
            assert_eq!(one.values(&other), [one.value(None), other.value(None)]);
        }
    }

    #[test]
    fn an_object_in_two_files_cannot_be_read() {
        let key = RandomState::new();
        let slot = Slot {
            users: vec![source("1"), source("1")],
            made: made("1", None),
            ..Slot::default()
        };
        assert_eq!(
            slot.effective().seen(&key),
            SlotState::Duplicate("a.yaml (2 times)".into())
        );
        assert_eq!(
            slot.effective().value(None).err().unwrap().reason,
            KnownReason::DuplicateObject
        );
        let file = |name: String| UserObject {
            file: Path::new(&name).into(),
            ..source("1")
        };
        let slot = Slot {
            users: (0..9).map(|at| file(format!("{}.yaml", 9 - at))).collect(),
            ..Slot::default()
        };
        let named = "1.yaml, 2.yaml, 3.yaml, 4.yaml, and 5 more";
        assert_eq!(
            slot.effective().seen(&key),
            SlotState::Duplicate(named.into())
        );
    }

    #[test]
    fn the_version_covers_the_value_and_its_overlay() {
        let key = RandomState::new();
        let slot = |text: &str, set: Option<u8>| {
            let mut patch = Patch::default();
            patch.take(&json!({}), "b", &json!(set));
            Slot {
                users: vec![source(text)],
                patch: set.map(|_| Arc::new(patch)),
                ..Slot::default()
            }
        };
        let version = |text, set| slot(text, set).effective().seen(&key);
        assert_eq!(version("{}", Some(1)), version("{}", Some(1)));
        let all = [
            version("{}", None),
            version("{}", Some(1)),
            version("{}", Some(2)),
            version("[]", Some(1)),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other != one), "{at}");
        }
    }
}
