//! The cache against a model of an API server: events, responses, reads and lists in any order and with any delay, with
//! restores from a backup and changes of what is watched in between. At the end both have the same objects, and so does
//! a listener to the cache's events.

use super::*;
use crate::kubernetes::decode;
use crate::kubernetes::shared::{ServerNews, Topic};
use crate::kubernetes::store::{Item, StoreKey};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use transom_core::projection::Paths;
use transom_core::watches::Keep;

/// The scopes of two watches, the second one of the objects with a label: an object may enter and leave it.
const SCOPES: usize = 2;
const NAMES: Range<usize> = 0..3;

/// What the first watch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// Every object.
    All,
    /// The names of the objects without the label.
    Names,
}

/// The content of an object, and whether it has the label.
type Content = (u8, bool);

/// An object of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    version: u64,
    content: Content,
}

/// The state of an object at a version.
#[derive(Clone, Copy, Debug)]
struct Past {
    version: u64,
    name: usize,
    before: Option<Stored>,
    after: Option<Stored>,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Another client writes or removes an object.
    Theirs(usize, Option<Content>),
    /// The agent does; the response comes later.
    Ours(usize, Option<Content>),
    /// The agent reads one; the response comes later.
    Read(usize),
    /// One of the responses in flight arrives.
    Answer(usize),
    /// A watch delivers the next event, or the next page of its list.
    Tell(usize),
    /// A watch that has delivered everything sends a bookmark.
    Bookmark(usize),
    /// A watch must list again, even in the middle of a list.
    Relist(usize),
    /// The server is restored to this many versions before.
    Restore(u64),
    /// More, or less, of each object is wanted.
    Want,
}

/// A response in flight.
struct Answer {
    asked: SentAt,
    name: usize,
    known: Option<Box<str>>,
    said: Option<Stored>,
}

/// The progress of a watch.
enum Stage {
    /// It lists next.
    Unlisted,
    /// It has requested a list, which the server has not read yet.
    Asked,
    /// The list was read at a version, and these items are still to be delivered.
    Listing(u64, VecDeque<(usize, Stored)>),
    /// It has delivered everything up to a version.
    At(u64),
}

/// A watch that is followed.
struct Following {
    number: u64,
    /// Which of the two it is.
    scope: usize,
    keep: Keep,
    stage: Stage,
}

struct World {
    first: First,
    /// Whether more of each object is wanted.
    digest: bool,
    next: u64,
    version: u64,
    stored: BTreeMap<usize, Stored>,
    past: Vec<Past>,
    following: Vec<Following>,
    answers: Vec<Answer>,
    cache: Cache,
    told: BTreeMap<String, Content>,
    restored: bool,
}

fn scope(labels: Option<Selector>) -> Scope {
    Scope {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: None,
        name: None,
        fields: None,
        labels,
    }
}

fn reference(name: usize) -> ObjectRef {
    ObjectRef::local("v1", "Secret", Some("n"), &name.to_string())
}

fn object(name: usize, stored: Stored) -> Object {
    let Stored {
        version,
        content: (text, label),
    } = stored;
    let labels = if label { json!({"l": "1"}) } else { json!({}) };
    let metadata = json!({"name": name.to_string(), "namespace": "n", "labels": labels});
    Object {
        reference: reference(name),
        version: version.to_string(),
        body: json!({"metadata": metadata, "t": text}),
    }
}

fn content(known: &KnownObject) -> Option<Content> {
    let KnownObject::There(_, super::KeptContent::Body(bytes)) = known else {
        return None;
    };
    let body: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    Some((
        u8::try_from(body["t"].as_u64().unwrap()).unwrap(),
        body["metadata"]["labels"]["l"].is_string(),
    ))
}

/// What each watch asks for, and keeps.
fn watches(first: First, digest: bool) -> [(Scope, Keep); SCOPES] {
    let keep = Keep {
        fields: Some(Paths::parse(&["t"]).unwrap()),
        digest,
        ..Keep::default()
    };
    let names = Keep {
        names_only: true,
        ..keep.clone()
    };
    let second = (scope(Some(Selector::equal("l", "1"))), keep.clone());
    match first {
        First::All => [(scope(None), keep), second],
        First::Names => [(scope(Some(Selector::other("l", "1"))), names), second],
    }
}

impl World {
    fn new(first: First) -> Self {
        let mut world = Self {
            first,
            digest: false,
            next: 0,
            version: 10,
            stored: BTreeMap::new(),
            past: Vec::new(),
            following: Vec::new(),
            answers: Vec::new(),
            cache: Cache::new("local"),
            told: BTreeMap::new(),
            restored: false,
        };
        world.want();
        world
    }

    /// Has the cache watch what is wanted now.
    fn want(&mut self) {
        let all = watches(self.first, self.digest);
        let (new, news) = self.cache.wants(all.iter().cloned().collect());
        self.hear(&news);
        for (scope, keep) in new {
            self.next += 1;
            let number = self.next;
            let which = all.iter().position(|(one, _)| *one == scope).unwrap();
            let watched = Watched::new(number, Arc::new(scope), keep.clone());
            self.cache.watches.push(watched);
            self.following.push(Following {
                number,
                scope: which,
                keep,
                stage: Stage::Unlisted,
            });
        }
        self.retire();
    }

    /// Like the caller that follows a watch, which does this with each change of a watch.
    fn retire(&mut self) {
        let news = self.cache.retire();
        self.hear(&news);
        let watches = &self.cache.watches;
        let goes_on = |one: &Following| watches.iter().any(|two| two.number == one.number);
        self.following.retain(goes_on);
    }

    /// What a watch sees of an object: the second one only objects with the label.
    fn seen(&self, watch: usize, stored: Option<Stored>) -> Option<Stored> {
        let scope = self.following[watch].scope;
        stored.filter(|stored| match (scope, self.first) {
            (0, First::All) => true,
            (0, First::Names) => !stored.content.1,
            _ => stored.content.1,
        })
    }

    /// An object as a watch keeps it.
    fn item(&self, watch: usize, name: usize, stored: Stored) -> Item {
        decode::kept(object(name, stored), &self.following[watch].keep)
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Theirs(name, content) => self.write(name, content),
            Op::Ours(name, content) => {
                let before = self.stored.get(&name).copied();
                self.ask(name);
                self.write(name, content);
                let answer = self.answers.last_mut().unwrap();
                answer.said = content.map(|content| Stored {
                    version: self.version,
                    content,
                });
                // The response has the object as deleted; if it was already gone, the agent goes by what it knew.
                answer.known = before
                    .map(|before| before.version.to_string().into())
                    .or_else(|| answer.known.take());
            }
            Op::Read(name) => self.ask(name),
            Op::Answer(which) if !self.answers.is_empty() => {
                self.answer(which % self.answers.len());
            }
            Op::Answer(_) => {}
            Op::Tell(watch) => self.tell(watch % self.following.len()),
            Op::Bookmark(watch) => {
                let watch = watch % self.following.len();
                let is_told = matches!(self.following[watch].stage, Stage::At(_))
                    && self.next_event(watch).is_none();
                if is_told {
                    self.moved(watch, None, self.version);
                }
            }
            Op::Relist(watch) => {
                let watch = watch % self.following.len();
                self.following[watch].stage = Stage::Unlisted;
            }
            Op::Restore(versions) => self.restore(versions),
            Op::Want => {
                let listed = self.cache.wanted().all(|one| one.synced);
                self.digest = !self.digest;
                self.want();
                let scope = &watches(self.first, self.digest)[1].0;
                let stays = self.cache.complete(scope).is_ok();
                assert!(stays || !listed, "what was listed stays readable");
            }
        }
        self.check();
    }

    fn write(&mut self, name: usize, content: Option<Content>) {
        let before = self.stored.get(&name).copied();
        if before.is_none() && content.is_none() {
            return;
        }
        self.version += 1;
        let after = content.map(|content| Stored {
            version: self.version,
            content,
        });
        match after {
            Some(after) => self.stored.insert(name, after),
            None => self.stored.remove(&name),
        };
        self.past.push(Past {
            version: self.version,
            name,
            before,
            after,
        });
    }

    fn ask(&mut self, name: usize) {
        let known = self.cache.version(&reference(name));
        let (asked, said) = (self.cache.asked(), self.stored.get(&name).copied());
        self.answers.push(Answer {
            asked,
            name,
            known,
            said,
        });
    }

    fn answer(&mut self, which: usize) {
        let Answer {
            asked,
            name,
            known,
            said,
        } = self.answers.remove(which);
        let news = match (said, known) {
            (Some(stored), _) => self.cache.answered(&object(name, stored), asked),
            (None, Some(version)) => self.cache.answered_gone(&reference(name), &version, asked),
            (None, None) => Vec::new(),
        };
        self.hear(&news);
    }

    fn next_event(&self, watch: usize) -> Option<Past> {
        let Stage::At(at) = self.following[watch].stage else {
            return None;
        };
        let concerns = |past: &&Past| {
            let before = self.seen(watch, past.before);
            before.or(self.seen(watch, past.after)).is_some()
        };
        self.past
            .iter()
            .filter(|past| past.version > at)
            .find(concerns)
            .copied()
    }

    fn tell(&mut self, watch: usize) {
        let number = self.following[watch].number;
        match &mut self.following[watch].stage {
            Stage::Unlisted => {
                self.following[watch].stage = Stage::Asked;
                self.cache.begin(number);
            }
            Stage::Asked => {
                let seen = |(name, stored): (&usize, &Stored)| {
                    Some((*name, self.seen(watch, Some(*stored))?))
                };
                let items = self.stored.iter().filter_map(seen).collect();
                self.following[watch].stage = Stage::Listing(self.version, items);
            }
            Stage::Listing(version, items) => match (items.pop_front(), *version) {
                (Some((name, stored)), _) => {
                    let item = self.item(watch, name, stored);
                    let news = self.cache.put(number, item);
                    self.hear(&news);
                }
                (None, version) => {
                    if self.went_back(watch, version) {
                        return;
                    }
                    let news = self.cache.listed(number, &version.to_string());
                    self.hear(&news);
                    self.following[watch].stage = Stage::At(version);
                    self.retire();
                }
            },
            Stage::At(_) => {
                if let Some(past) = self.next_event(watch) {
                    self.moved(watch, Some(past), past.version);
                }
            }
        }
    }

    fn moved(&mut self, watch: usize, past: Option<Past>, version: u64) {
        let (number, text) = (self.following[watch].number, version.to_string());
        if self.went_back(watch, version) {
            return;
        }
        let news = match past.map(|past| (past.name, self.seen(watch, past.after))) {
            Some((name, None)) => self
                .cache
                .apply_deletion(number, &text, Some(&item_key(name))),
            Some((name, Some(stored))) => {
                let item = self.item(watch, name, stored);
                self.cache.told(number, &text, Some(item))
            }
            None => self.cache.told(number, &text, None),
        };
        self.hear(&news);
        self.following[watch].stage = Stage::At(version);
    }

    /// Like the caller that follows a watch, which checks this before it accepts a version.
    fn went_back(&mut self, watch: usize, version: u64) -> bool {
        let following = &mut self.following[watch];
        let (number, version) = (following.number, version.to_string());
        let Some(news) = self.cache.went_back(number, &version) else {
            return false;
        };
        following.stage = Stage::Unlisted;
        self.hear(&news);
        true
    }

    /// The server restarts, so that earlier requests get no response. A watch beyond the restored version is refused,
    /// and lists again.
    fn restore(&mut self, versions: u64) {
        self.answers.clear();
        let to = self.version.saturating_sub(versions).max(10);
        while let Some(past) = self.past.pop_if(|past| past.version > to) {
            match past.before {
                Some(before) => self.stored.insert(past.name, before),
                None => self.stored.remove(&past.name),
            };
        }
        (self.version, self.restored) = (to, true);
        for one in &mut self.following {
            if !matches!(one.stage, Stage::At(at) if at <= to) {
                one.stage = Stage::Unlisted;
            }
        }
    }

    /// Handles events when they are delivered.
    fn hear(&mut self, news: &[ServerNews]) {
        for ServerNews { topic, gone } in news {
            let Topic::Object(reference) = topic else {
                continue;
            };
            match content(&self.cache.heard(reference)) {
                Some(content) => drop(self.told.insert(reference.name.clone(), content)),
                None if *gone => drop(self.told.remove(&reference.name)),
                None => {}
            }
        }
    }

    /// If a watch is past the version of an object, it has reported it: a late response revives nothing.
    fn check(&self) {
        for (watch, following) in self.following.iter().enumerate() {
            let (false, Stage::At(at)) = (self.restored, &following.stage) else {
                continue;
            };
            let all = &self.cache.watches;
            let store = &all
                .iter()
                .find(|one| one.number == following.number)
                .unwrap()
                .store;
            for name in NAMES {
                let last = self
                    .past
                    .iter()
                    .rfind(|past| past.name == name && past.version <= *at);
                let then = self.seen(watch, last.and_then(|past| past.after));
                let then = then.map(|stored| stored.version);
                let kept = store
                    .get(&item_key(name))
                    .map(|kept| kept.version.parse().unwrap());
                let stale = kept.filter(|version: &u64| version <= at && Some(*version) != then);
                assert_eq!(
                    stale, None,
                    "watch {watch} at {at} should have {name} at {then:?}"
                );
            }
        }
    }

    /// Delivers everything in flight; then a resync reads what no watch has confirmed.
    fn end(mut self) {
        while !self.answers.is_empty() {
            self.answer(0);
        }
        let is_done = |world: &Self, watch: usize| {
            matches!(world.following[watch].stage, Stage::At(_))
                && world.next_event(watch).is_none()
        };
        // With the last list those that retire end.
        while let Some(watch) = (0..self.following.len()).find(|watch| !is_done(&self, *watch)) {
            self.tell(watch);
        }
        assert_eq!(self.following.len(), SCOPES, "all others have ended");
        (0..SCOPES).for_each(|watch| self.run(Op::Bookmark(watch)));
        for name in NAMES {
            if self.cache.is_unconfirmed(&reference(name)) {
                assert!(self.restored, "no watch has told of {name}");
                self.ask(name);
                self.answer(0);
            }
        }
        // What is known only by name has to be requested.
        let kept = |stored: &Stored| self.first == First::All || stored.content.1;
        let mut expected = BTreeMap::new();
        for name in NAMES {
            let (stored, known) = (self.stored.get(&name), self.cache.find(&reference(name)));
            match stored.map(|stored| (stored, kept(stored))) {
                Some((stored, true)) => {
                    assert_eq!(content(&known), Some(stored.content), "{name}");
                    expected.insert(name.to_string(), stored.content);
                }
                Some((_, false)) => assert_eq!(known, KnownObject::Unknown, "{name}"),
                None => assert_eq!(known, KnownObject::Absent, "{name}"),
            }
        }
        assert_eq!(self.told, expected, "what was told");
    }
}

fn item_key(name: usize) -> StoreKey {
    key(Some("n"), &name.to_string())
}

fn op(restores: bool) -> impl Strategy<Value = Op> {
    let content = || prop::option::weighted(0.6, (0..3_u8, any::<bool>()));
    let watch = || 0..4_usize;
    prop_oneof![
        4 => (NAMES, content()).prop_map(|(name, content)| Op::Theirs(name, content)),
        4 => (NAMES, content()).prop_map(|(name, content)| Op::Ours(name, content)),
        3 => NAMES.prop_map(Op::Read),
        7 => (0..8_usize).prop_map(Op::Answer),
        10 => watch().prop_map(Op::Tell),
        1 => watch().prop_map(Op::Bookmark),
        1 => watch().prop_map(Op::Relist),
        // Together with a restore, only the resync finds what nobody reports.
        u32::from(!restores) => Just(Op::Want),
        u32::from(restores) => (0..6_u64).prop_map(Op::Restore),
    ]
}

fn ends_right(ops: &[Op]) {
    for first in [First::All, First::Names] {
        let mut world = World::new(first);
        ops.iter().for_each(|op| world.run(*op));
        world.end();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_converges_to_the_server_for_any_event_order(ops in prop::collection::vec(op(false), 1..60)) {
        ends_right(&ops);
    }

    #[test]
    fn a_resync_after_restores_finds_what_no_watch_could_report(ops in prop::collection::vec(op(true), 1..60)) {
        ends_right(&ops);
    }
}
