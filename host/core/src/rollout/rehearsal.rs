//! Primaries for which the trial of a candidate found nothing to write: they need no reconcile when the candidate
//! becomes active, unless something that was read for them changed since.

use crate::inputs::seen::Seen;
use crate::inputs::sightings::Sightings;
use crate::reference::ObjectRef;
use crate::trigger::LastSeen;
use crate::work::Key;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A primary for which a candidate changes nothing, and what its reconcile of the trial leaves behind: the same as one
/// of the active revision.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Every object whose change calls for another reconcile, with what was seen of it; without the primary.
    pub objects: BTreeMap<ObjectRef, Seen>,
    /// The primary as the candidate saw it.
    pub last_seen: LastSeen,
    /// What it wants to write, where that is an object of its own.
    pub targets: Option<BTreeSet<ObjectRef>>,
    /// When the first certificate expires in what is desired, in seconds since 1970.
    pub ends_seconds: Option<i64>,
    /// When the answer may change by time alone, in seconds since 1970.
    pub ask_again_at: Option<i64>,
    /// When fields of the objects were seen to change.
    pub sightings: Sightings,
    versions: Versions,
}

/// The versions of the objects that were read; `None` for one that was not there, or was read at two versions.
type Versions = BTreeMap<ObjectRef, Option<String>>;

/// What a trial settled, and what changed since it began to.
#[derive(Debug, Default)]
pub struct Rehearsal {
    settled: HashMap<Key, Settled>,
    /// The version of each object that changed; `None` when it is gone or its version is not known.
    changed: HashMap<ObjectRef, Option<String>>,
    all_changed: bool,
    /// The only objects that count, where it is about a candidate that was refused because of them.
    about: Option<BTreeSet<ObjectRef>>,
}

impl Settled {
    /// A primary with the versions of it and of its inputs, each as it was read.
    pub fn new(
        last_seen: LastSeen,
        objects: BTreeMap<ObjectRef, Seen>,
        read: impl IntoIterator<Item = (ObjectRef, Option<String>)>,
    ) -> Self {
        let mut versions = Versions::new();
        for (object, version) in read {
            let version = version.filter(|version| !version.is_empty());
            let known = versions.entry(object).or_insert_with(|| version.clone());
            if *known != version {
                *known = None;
            }
        }
        Self {
            objects,
            last_seen,
            targets: None,
            ends_seconds: None,
            ask_again_at: None,
            sightings: Sightings::default(),
            versions,
        }
    }
}

impl Rehearsal {
    /// Adds a primary that was read after this value was made.
    pub fn settle(&mut self, key: Key, settled: Settled) {
        self.settled.insert(key, settled);
    }

    /// Notes that an object changed, or may have; `version` is the one that it has now, if that is known.
    pub fn changed(&mut self, object: &ObjectRef, version: Option<&str>) {
        if self.about.as_ref().is_some_and(|about| !has(about, object)) {
            return;
        }
        let version = version.filter(|version| !version.is_empty());
        let version = version.map(str::to_owned);
        match self.changed.get_mut(object) {
            Some(known) => *known = version,
            None => drop(self.changed.insert(object.clone(), version)),
        }
    }

    /// Notes that it is not known what changed.
    pub fn all_changed(&mut self) {
        self.all_changed = true;
    }

    /// Forgets what was settled: the candidate is refused because of these objects, and only a change of them counts.
    pub fn refused_for(&mut self, objects: BTreeSet<ObjectRef>) {
        self.settled = HashMap::new();
        self.changed.retain(|object, _| has(&objects, object));
        self.about = Some(objects);
    }

    /// Whether anything changed, or may have.
    pub fn has_changed(&self) -> bool {
        self.all_changed || !self.changed.is_empty()
    }

    /// Takes the result for a primary, unless an object that it depends on has another version by now.
    pub fn take(&mut self, key: &Key) -> Option<Settled> {
        let settled = self.settled.remove(key).filter(|_| !self.all_changed)?;
        let stands =
            |object: &ObjectRef| match (self.changed.get(object), settled.versions.get(object)) {
                (None, _) => true,
                (Some(Some(now)), Some(Some(read))) => now == read,
                _ => false,
            };
        let stands = stands(&key.primary) && settled.objects.keys().all(stands);
        stands.then_some(settled)
    }
}

/// Whether an object is one of these, or a member of a set among them, which has the name `*`.
fn has(about: &BTreeSet<ObjectRef>, object: &ObjectRef) -> bool {
    let in_set = |namespace: Option<String>| {
        about.contains(&ObjectRef {
            namespace,
            name: "*".to_owned(),
            ..object.clone()
        })
    };
    about.contains(object) || in_set(object.namespace.clone()) || in_set(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{self, HOSTED, guest, object, target};
    use crate::trigger::{Evaluator, Predicate};
    use serde_json::json;

    /// A rehearsal that read the primary and its target at version 1, and looked for an input that was not there.
    fn rehearsal() -> Rehearsal {
        let key = sample::key("demo");
        let primary = object((*key.primary).clone(), json!({}));
        let guest = guest(&["status"], &[]);
        let predicate = Predicate {
            evaluator: Evaluator::AnyChange,
            declared: guest.declared(HOSTED.0, HOSTED.1),
            written: &[],
            finalizer: None,
        };
        let objects = [target("demo"), target("absent"), target("unread")];
        let read = [
            ((*key.primary).clone(), Some("1".to_owned())),
            (target("demo"), Some("1".to_owned())),
            (target("absent"), None),
        ];
        let settled = Settled::new(
            LastSeen::of(&primary, predicate),
            objects
                .into_iter()
                .map(|object| (object, Seen::pending()))
                .collect(),
            read,
        );
        let mut rehearsal = Rehearsal::default();
        rehearsal.settle(key, settled);
        rehearsal
    }

    #[test]
    fn a_primary_is_settled_until_something_that_it_rests_on_is_another_version() {
        let key = sample::key("demo");
        let stands = |changes: &[(ObjectRef, Option<&str>)]| {
            let mut rehearsal = rehearsal();
            for (object, version) in changes {
                rehearsal.changed(object, *version);
            }
            rehearsal.take(&key).is_some()
        };
        let primary = (*key.primary).clone();
        assert!(stands(&[]));
        assert!(stands(&[(target("other"), Some("2"))]));
        for object in [primary, target("demo")] {
            assert!(
                stands(&[(object.clone(), Some("1"))]),
                "it was read like that"
            );
            assert!(!stands(&[(object.clone(), Some("2"))]));
            assert!(!stands(&[(object.clone(), None)]));
            assert!(!stands(&[(object.clone(), Some(""))]));
            // The state now counts, not those in between.
            assert!(stands(&[
                (object.clone(), None),
                (object.clone(), Some("1"))
            ]));
            assert!(!stands(&[(object.clone(), Some("1")), (object, Some("2"))]));
        }
        for object in [target("absent"), target("unread")] {
            assert!(!stands(&[(object.clone(), Some("1"))]));
            assert!(!stands(&[(object, None)]));
        }
    }

    #[test]
    fn a_primary_is_taken_once_and_not_when_anything_may_have_changed() {
        let mut all = rehearsal();
        assert!(all.take(&sample::key("other")).is_none());
        assert!(all.take(&sample::key("demo")).is_some());
        assert!(all.take(&sample::key("demo")).is_none());
        let mut all = rehearsal();
        all.all_changed();
        assert!(all.take(&sample::key("demo")).is_none());
    }

    #[test]
    fn only_a_change_of_what_a_candidate_was_refused_for_counts_then() {
        let all = |changes: &[&str]| {
            let mut all = rehearsal();
            let tell = |all: &mut Rehearsal, name: &&str| all.changed(&target(name), None);
            changes[..1].iter().for_each(|name| tell(&mut all, name));
            all.refused_for([target("demo")].into());
            assert!(all.take(&sample::key("demo")).is_none());
            changes[1..].iter().for_each(|name| tell(&mut all, name));
            all
        };
        // Also one during the trial.
        for changes in [["demo", "other"], ["other", "demo"]] {
            assert!(all(&changes).has_changed(), "{changes:?}");
        }
        let mut others = all(&["other", "another"]);
        assert!(!others.has_changed());
        others.all_changed();
        assert!(others.has_changed());
    }

    #[test]
    fn an_object_that_was_read_at_two_versions_does_not_stand_once_it_changed() {
        let key = sample::key("demo");
        let mut all = rehearsal();
        let settled = all.take(&key).unwrap();
        let read = ["1", "2"].map(|version| ((*key.primary).clone(), Some(version.to_owned())));
        all.settle(
            key.clone(),
            Settled::new(settled.last_seen, settled.objects, read),
        );
        all.changed(&key.primary, Some("2"));
        assert!(all.take(&key).is_none());
    }
}
