//! Sets of objects: all of a kind and a namespace whose labels are selected, cut to what the guest declared; and which
//! reconciles a change of one member concerns.

mod question;

use crate::contract::decide::{Member, Wake};
use crate::digest::Digest;
use crate::inputs::seen::Observed;
use crate::object::Object;
use crate::policy::selector::Selector;
use crate::reference::ObjectRef;
use crate::work::Key;
pub use question::SetQuestion;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The members of a set as they were seen, each with the digest of what crossed of it.
pub type Members = BTreeMap<Box<str>, Digest>;

/// A set that a reconcile asked for.
#[derive(Clone, Debug)]
pub struct SeenSet {
    question: Arc<SetQuestion>,
    /// Which change of a member counts.
    wake: Wake,
    /// What was found; none while it is being read.
    members: Option<Arc<Members>>,
}

/// What was found of a set.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundSet {
    /// The members as the guest sees them, by namespace and name.
    pub members: Vec<Member>,
    /// The same for [`SeenSet`].
    pub seen: Arc<Members>,
}

impl FoundSet {
    /// A digest of the members.
    pub fn digest(&self) -> Digest {
        let members = self.seen.iter();
        let members = members.map(|(name, digest)| format!("{name} {digest}\n"));
        Digest::of_bytes(members.collect::<String>().as_bytes())
    }
}

impl SeenSet {
    /// Whether it is what a question asks for.
    pub fn is_about(&self, question: &SetQuestion) -> bool {
        *self.question == *question
    }

    /// A set that is about to be read: any change that may be one of it counts.
    pub fn pending(question: Arc<SetQuestion>, wake: Wake) -> Self {
        Self {
            question,
            wake,
            members: None,
        }
    }

    /// What was found.
    #[must_use]
    pub fn with(self, members: Arc<Members>) -> Self {
        Self {
            members: Some(members),
            ..self
        }
    }

    /// Which objects it has.
    pub fn question(&self) -> &SetQuestion {
        &self.question
    }

    /// Whether an object as the cluster has it now is a member that was not seen. Only its metadata is looked at.
    pub fn missed(&self, now: &Object) -> bool {
        let members = self.members.as_deref();
        let seen = members.is_some_and(|all| all.contains_key(&key(&now.reference)));
        self.question.has(now) && !seen
    }

    /// Equal for sets that are held once, and so concern the same.
    fn identity(&self) -> (*const SetQuestion, Option<*const Members>, Wake) {
        let members = self.members.as_ref().map(Arc::as_ptr);
        (Arc::as_ptr(&self.question), members, self.wake)
    }

    /// Whether a change of an object concerns it.
    pub fn concerns(&self, object: &ObjectRef, observed: Observed<'_>) -> bool {
        if !self.question.may_have(object) {
            return false;
        }
        let Some(members) = &self.members else {
            return true;
        };
        let before = members.get(&key(object));
        match (before, observed) {
            (_, Observed::Unreadable) => true,
            (None, Observed::Gone) => false,
            (Some(_), Observed::Gone) => true,
            (before, Observed::Present(object)) => match (before, self.question.has(object)) {
                (None, false) => false,
                (Some(seen), true) => {
                    let member = || self.question.member(object);
                    self.wake == Wake::Change && Digest::of(&member().fields) != *seen
                }
                _ => true,
            },
        }
    }
}

/// Namespace and name of a member.
fn key(object: &ObjectRef) -> Box<str> {
    let namespace = object.namespace.as_deref().unwrap_or_default();
    [namespace, "/", &object.name].concat().into()
}

/// The index from places to the keys that asked for sets of them. A plain value that the caller keeps.
#[derive(Debug, Default)]
pub struct Sets {
    by_place: HashMap<SetPlace, BTreeSet<Key>>,
    by_key: HashMap<Key, Vec<SeenSet>>,
    /// The last answer to each question, which keys share that saw the same.
    answers: HashMap<(ObjectRef, Selector), Answers>,
}

/// Group and version, kind, and namespace; `None` for all namespaces, and for cluster-scoped kinds.
type SetPlace = (String, String, Option<String>);

/// Questions about one place and labels, each with its last answer.
type Answers = Vec<(Arc<SetQuestion>, Arc<Members>)>;

impl Sets {
    /// Adds a set that a key is about to read, so that a change before its reconcile ends is not missed.
    pub fn add(&mut self, key: &Key, set: SeenSet) {
        let place = place(&set.question.place);
        self.by_place.entry(place).or_default().insert(key.clone());
        self.by_key.entry(key.clone()).or_default().push(set);
    }

    /// Replaces the sets of a key by those that its reconcile saw.
    pub fn set(&mut self, key: &Key, sets: Vec<SeenSet>) {
        self.remove(key);
        for mut set in sets {
            self.share(&mut set);
            self.add(key, set);
        }
    }

    /// Makes keys that saw the same answer to the same question hold it once.
    fn share(&mut self, set: &mut SeenSet) {
        let Some(members) = &mut set.members else {
            return;
        };
        let about = (set.question.place.clone(), set.question.labels.clone());
        let answers = self.answers.entry(about).or_default();
        let known = answers.iter_mut().find(|(one, _)| *one == set.question);
        match known {
            Some((question, answer)) => {
                set.question = Arc::clone(question);
                match answer == members {
                    true => *members = Arc::clone(answer),
                    false => *answer = Arc::clone(members),
                }
            }
            None => {
                let answer = (Arc::clone(&set.question), Arc::clone(members));
                answers.push(answer);
            }
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &Key) {
        for set in self.by_key.remove(key).unwrap_or_default() {
            let place = place(&set.question.place);
            if let Some(keys) = self.by_place.get_mut(&place) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_place.remove(&place);
                }
            }
            self.forget(set);
        }
    }

    /// Drops a set, and its answer if no other key holds it.
    fn forget(&mut self, set: SeenSet) {
        let about = (set.question.place.clone(), set.question.labels.clone());
        drop(set);
        if let Some(answers) = self.answers.get_mut(&about) {
            answers.retain(|(_, answer)| Arc::strong_count(answer) > 1);
            if answers.is_empty() {
                self.answers.remove(&about);
            }
        }
    }

    /// The keys that asked for a set.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.by_key.keys()
    }

    /// Whether a key asked for a set.
    pub fn has(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// The keys that a change of an object concerns, in order. Of the keys that saw the same, one is judged.
    pub fn concerned(&self, object: &ObjectRef, observed: Observed<'_>) -> Vec<Key> {
        let mut around = place(object);
        let mut keys: BTreeSet<&Key> = self.by_place.get(&around).into_iter().flatten().collect();
        if around.2.take().is_some() {
            keys.extend(self.by_place.get(&around).into_iter().flatten());
        }
        let mut judged = HashMap::new();
        let mut concerns = |set: &SeenSet| {
            let judge = || set.concerns(object, observed);
            *judged.entry(set.identity()).or_insert_with(judge)
        };
        let concerned = |key: &&Key| {
            let mut sets = self.by_key.get(*key).into_iter().flatten();
            sets.any(&mut concerns)
        };
        keys.into_iter().filter(concerned).cloned().collect()
    }
}

fn place(object: &ObjectRef) -> SetPlace {
    let ObjectRef {
        api_version,
        kind,
        namespace,
        ..
    } = object.clone();
    (api_version, kind, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::decide::{Absence, Form, LabelTerm, Need, Query};
    use crate::contract::description::Read;
    use crate::policy::EveryRule;
    use crate::projection::Declared;
    use crate::sample::object;
    use serde_json::{Value, json};
    use transom_api::KnownReason;
    use transom_api::policy::LabelOperator;

    const MOST: EveryRule = EveryRule {
        objects: 3,
        bytes: 1_000,
    };

    fn query(names_only: bool) -> Query {
        Query {
            labels: vec![LabelTerm {
                key: "l".to_owned(),
                operator: LabelOperator::Exists,
                values: vec![],
            }],
            names_only,
            terminating: false,
        }
    }

    fn question(names_only: bool) -> Arc<SetQuestion> {
        let declared = Declared::compile(&Read {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            fields: vec!["data.x".to_owned()],
            changes: vec![],
        });
        let need = Need {
            role: "maps".to_owned(),
            reference: ObjectRef::local("v1", "ConfigMap", Some("n"), ""),
            form: Form::Every(query(names_only)),
            absence: Absence::Fine,
            wake: Wake::Change,
        };
        SetQuestion::of(&need, &query(names_only), &declared.unwrap())
            .unwrap()
            .into()
    }

    fn map(name: &str, labels: Value, data: Value) -> Object {
        let reference = ObjectRef::local("v1", "ConfigMap", Some("n"), name);
        object(
            reference,
            json!({"metadata": {"labels": labels}, "data": data}),
        )
    }

    fn labelled(name: &str, x: u8) -> Object {
        map(name, json!({"l": ""}), json!({"x": x, "y": x}))
    }

    #[test]
    fn a_change_concerns_who_asked_for_its_namespace_or_for_all() {
        let asked = |namespace: Option<&str>| {
            let mut question = SetQuestion::clone(&question(true));
            question.place.namespace = namespace.map(str::to_owned);
            SeenSet::pending(question.into(), Wake::Change)
        };
        let key = |name: &str| {
            let primary = ObjectRef::local("v1", "Node", None, name);
            Key::new(&"p".into(), &primary)
        };
        let mut sets = Sets::default();
        for (name, namespace) in [("all", None), ("n", Some("n")), ("other", Some("other"))] {
            sets.add(&key(name), asked(namespace));
        }
        let object = labelled("new", 1);
        let concerned = sets.concerned(&object.reference, Observed::Present(&object));
        assert_eq!(concerned, [key("all"), key("n")]);
        for name in ["all", "n", "other"] {
            sets.remove(&key(name));
        }
        assert!(sets.by_place.is_empty());
    }

    #[test]
    fn has_the_selected_objects_with_their_declared_fields() {
        let mut dying = labelled("dying", 1);
        dying.body["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let others = [map("other", json!({}), json!({})), dying];
        let all = [labelled("a", 1), labelled("b", 2)];
        let found = question(false)
            .members(all.iter().chain(&others), MOST)
            .unwrap();
        let shown: Vec<_> = found
            .members
            .iter()
            .map(|one| (&*one.name, &one.fields))
            .collect();
        assert_eq!(
            shown,
            [
                ("a", &json!({"data": {"x": 1}})),
                ("b", &json!({"data": {"x": 2}}))
            ]
        );
        let found = question(true).members(&all, MOST).unwrap();
        assert_eq!(found.members[0].fields, json!({}));
    }

    #[test]
    fn tells_a_member_that_was_not_seen() {
        let question = question(false);
        let pending = SeenSet::pending(Arc::clone(&question), Wake::Change);
        let seen = question.members([&labelled("a", 1)], MOST).unwrap().seen;
        let set = pending.clone().with(seen);
        let (other, b) = (map("other", json!({}), json!({})), labelled("b", 1));
        let mut dying = b.clone();
        dying.body["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(!set.missed(&labelled("a", 2)) && !set.missed(&other));
        assert!(set.missed(&b) && pending.missed(&b));
        assert!(!set.missed(&dying), "it is no member");
    }

    #[test]
    fn a_set_beyond_the_grant_is_refused_and_never_cut() {
        let many: Vec<_> = (0..4).map(|at| labelled(&at.to_string(), 1)).collect();
        let large = map("large", json!({"l": ""}), json!({"x": "x".repeat(1_000)}));
        for objects in [&many[..], &[large]] {
            let failure = question(false).members(objects, MOST).unwrap_err();
            assert_eq!(
                failure.reason,
                KnownReason::TooManyInputs.into(),
                "{failure}"
            );
        }
        assert!(question(false).members(&many[1..], MOST).is_ok());
        let large = map("large", json!({"l": ""}), json!({"x": vec!["x"; 300]}));
        let failure = question(false).members([&many[0], &large], MOST);
        let message = "the objects of kind ConfigMap in n with the labels l are more than 1000 bytes that the grant \
                       allows; ConfigMap n/large alone has 1221";
        assert_eq!(failure.unwrap_err().message, message);
        let odd = map("odd", json!({"l": ""}), json!("x"));
        let failure = question(false).members([&odd], MOST).unwrap_err();
        assert_eq!(failure.reason, KnownReason::InvalidObject.into());
    }

    #[test]
    fn a_long_text_of_one_object_neither_fails_a_set_nor_wakes_by_its_end() {
        let key = Key::new(&"p".into(), &ObjectRef::local("v1", "Node", None, "x"));
        let with = |x: Value| map("a", json!({"l": ""}), json!({"x": x}));
        let beginning = "x".repeat(4_096);
        let long = |letter: &str| with(json!(format!("{beginning}{}", letter.repeat(256 << 10))));
        let question = question(false);
        let others = labelled("b", 1);
        let most = EveryRule {
            bytes: 5_000,
            ..MOST
        };
        let found = question.members([&long("x"), &others], most).unwrap();
        assert_eq!(found.members[0].fields, json!({"data": {"x": beginning}}));
        assert_eq!(found.members[1].fields, json!({"data": {"x": 1}}));
        let mut sets = Sets::default();
        let set = SeenSet::pending(question, Wake::Change).with(found.seen);
        sets.set(&key, vec![set]);
        for (now, wakes) in [(long("y"), false), (with(json!("y")), true)] {
            let concerned = sets.concerned(&now.reference, Observed::Present(&now));
            assert_eq!(!concerned.is_empty(), wakes);
        }
    }

    #[test]
    fn only_what_a_guest_would_see_differently_wakes() {
        let key = Key::new(&"p".into(), &ObjectRef::local("v1", "Node", None, "x"));
        let concerned = |sets: &Sets, object: &Object| {
            !sets
                .concerned(&object.reference, Observed::Present(object))
                .is_empty()
        };
        let (member, other) = (labelled("a", 1), map("other", json!({}), json!({})));
        let unseen = map("a", json!({"l": "", "m": ""}), json!({"x": 1, "y": 9}));
        for (names_only, wake, changed) in [
            (false, Wake::Change, true),
            (true, Wake::Change, false),
            (false, Wake::Presence, false),
        ] {
            let question = question(names_only);
            let pending = SeenSet::pending(Arc::clone(&question), wake);
            let mut sets = Sets::default();
            sets.add(&key, pending.clone());
            assert!(
                concerned(&sets, &other),
                "while it is read, anything may matter"
            );
            let found = question.members([&member], MOST).unwrap();
            sets.set(&key, vec![pending.with(found.seen)]);
            assert!(!concerned(&sets, &member) && !concerned(&sets, &unseen));
            assert!(!concerned(&sets, &other) && concerned(&sets, &labelled("new", 1)));
            assert_eq!(concerned(&sets, &labelled("a", 2)), changed);
            assert!(
                concerned(&sets, &map("a", json!({}), json!({"x": 1}))),
                "it left"
            );
            let gone = |name: &str| {
                let object = labelled(name, 1).reference;
                !sets.concerned(&object, Observed::Gone).is_empty()
            };
            assert!(gone("a") && !gone("other"));
            let elsewhere = ObjectRef::local("v1", "ConfigMap", Some("m"), "a");
            assert!(sets.concerned(&elsewhere, Observed::Gone).is_empty());
            sets.remove(&key);
            assert!(sets.by_place.is_empty() && !concerned(&sets, &labelled("new", 1)));
        }
    }

    #[test]
    fn a_number_counts_what_is_there_and_wakes_when_one_joins_or_leaves() {
        let need = Need {
            role: "maps".to_owned(),
            reference: ObjectRef::local("v1", "ConfigMap", Some("n"), ""),
            form: Form::Count(query(true).labels),
            absence: Absence::Fine,
            wake: Wake::Change,
        };
        let question = Arc::new(SetQuestion::how_many(&need, &query(true).labels).unwrap());
        let elsewhere = ObjectRef::local("v1", "ConfigMap", Some("m"), "x");
        let there = [labelled("a", 1).reference, labelled("b", 1).reference];
        let members = question.counted(&[&there[..], &[elsewhere]].concat());
        assert_eq!(members.len(), 2);
        let key = Key::new(&"p".into(), &ObjectRef::local("v1", "Node", None, "x"));
        let mut sets = Sets::default();
        let set = SeenSet::pending(Arc::clone(&question), Wake::Change).with(members);
        sets.set(&key, vec![set]);
        let mut dying = labelled("b", 9);
        dying.body["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let other = map("other", json!({}), json!({}));
        for (object, wakes) in [
            (&labelled("a", 2), false),
            (&dying, false),
            (&other, false),
            (&labelled("c", 1), true),
            (&map("a", json!({}), json!({})), true),
        ] {
            let concerned = sets.concerned(&object.reference, Observed::Present(object));
            assert_eq!(!concerned.is_empty(), wakes, "{object:?}");
        }
        for (gone, wakes) in [(&there[0], true), (&other.reference, false)] {
            let concerned = sets.concerned(gone, Observed::Gone);
            assert_eq!(!concerned.is_empty(), wakes, "{gone}");
        }
    }

    #[test]
    fn keys_that_saw_the_same_hold_it_once() {
        let key = |name: &str| Key::new(&"p".into(), &ObjectRef::local("v1", "Node", None, name));
        let mut sets = Sets::default();
        for name in ["a", "b"] {
            let question = question(false);
            let found = question.members([&labelled("m", 1)], MOST).unwrap();
            let set = SeenSet::pending(question, Wake::Change).with(found.seen);
            sets.set(&key(name), vec![set]);
        }
        let members = |name: &str| sets.by_key[&key(name)][0].members.clone().unwrap();
        assert!(Arc::ptr_eq(&members("a"), &members("b")));
        sets.remove(&key("a"));
        assert_eq!(sets.answers.len(), 1);
        sets.remove(&key("b"));
        assert!(sets.answers.is_empty());
    }
}
