//! The cache against a model of an API server: events, responses, reads and lists in any order and with any delay, with
//! restores from a backup in between. At the end both have the same objects, and so does a listener to the cache's
//! events.

use super::*;
use crate::kubernetes::decode;
use crate::kubernetes::shared::{ServerNews, Topic};
use crate::kubernetes::store::{Item, StoreKey};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use transom_core::watches::Keep;

/// Two watches, the second one of the objects with a label: an object may enter and leave it.
const WATCHES: [u64; 2] = [1, 2];
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

struct World {
    first: First,
    version: u64,
    stored: BTreeMap<usize, Stored>,
    past: Vec<Past>,
    stages: [Stage; 2],
    answers: Vec<Answer>,
    cache: Cache,
    told: BTreeMap<String, Content>,
    restored: bool,
}

fn scope(labels: Option<Selector>) -> Arc<Scope> {
    let (api_version, kind) = ("v1".to_owned(), "Secret".to_owned());
    Arc::new(Scope {
        api_version,
        kind,
        namespace: None,
        name: None,
        fields: None,
        labels,
    })
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
fn watches(first: First) -> [(Option<Selector>, Keep); 2] {
    let second = (Some(Selector::equal("l", "1")), Keep::default());
    let names = Keep {
        names_only: true,
        ..Keep::default()
    };
    match first {
        First::All => [(None, Keep::default()), second],
        First::Names => [(Some(Selector::other("l", "1")), names), second],
    }
}

impl World {
    fn new(first: First) -> Self {
        let mut cache = Cache::new("local");
        for (number, (labels, keep)) in WATCHES.into_iter().zip(watches(first)) {
            let watched = Watched::new(number, scope(labels), keep);
            cache.watches.push(watched);
        }
        Self {
            first,
            version: 10,
            stored: BTreeMap::new(),
            past: Vec::new(),
            stages: [Stage::Unlisted, Stage::Unlisted],
            answers: Vec::new(),
            cache,
            told: BTreeMap::new(),
            restored: false,
        }
    }

    /// What a watch sees of an object: the second one only objects with the label.
    fn seen(&self, watch: usize, stored: Option<Stored>) -> Option<Stored> {
        stored.filter(|stored| match (watch, self.first) {
            (0, First::All) => true,
            (0, First::Names) => !stored.content.1,
            _ => stored.content.1,
        })
    }

    /// An object as a watch keeps it.
    fn item(&self, watch: usize, name: usize, stored: Stored) -> Item {
        decode::kept(object(name, stored), &self.cache.watches[watch].keep)
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
            Op::Tell(watch) => self.tell(watch),
            Op::Bookmark(watch) => {
                if matches!(self.stages[watch], Stage::At(_)) && self.next_event(watch).is_none() {
                    self.moved(watch, None, self.version);
                }
            }
            Op::Relist(watch) => self.stages[watch] = Stage::Unlisted,
            Op::Restore(versions) => self.restore(versions),
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
        let Stage::At(at) = self.stages[watch] else {
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
        match &mut self.stages[watch] {
            Stage::Unlisted => {
                self.stages[watch] = Stage::Asked;
                self.cache.begin(WATCHES[watch]);
            }
            Stage::Asked => {
                let seen = |(name, stored): (&usize, &Stored)| {
                    Some((*name, self.seen(watch, Some(*stored))?))
                };
                let items = self.stored.iter().filter_map(seen).collect();
                self.stages[watch] = Stage::Listing(self.version, items);
            }
            Stage::Listing(version, items) => match (items.pop_front(), *version) {
                (Some((name, stored)), _) => {
                    let item = self.item(watch, name, stored);
                    let news = self.cache.put(WATCHES[watch], item);
                    self.hear(&news);
                }
                (None, version) => {
                    if self.went_back(watch, version) {
                        return;
                    }
                    let news = self.cache.listed(WATCHES[watch], &version.to_string());
                    self.hear(&news);
                    self.stages[watch] = Stage::At(version);
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
        let (number, text) = (WATCHES[watch], version.to_string());
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
        self.stages[watch] = Stage::At(version);
    }

    /// Like the caller that follows a watch, which checks this before it accepts a version.
    fn went_back(&mut self, watch: usize, version: u64) -> bool {
        let Some(news) = self.cache.went_back(WATCHES[watch], &version.to_string()) else {
            return false;
        };
        self.hear(&news);
        self.stages[watch] = Stage::Unlisted;
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
        for stage in &mut self.stages {
            if !matches!(stage, Stage::At(at) if *at <= to) {
                *stage = Stage::Unlisted;
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
        for (watch, stage) in self.stages.iter().enumerate() {
            let (false, Stage::At(at)) = (self.restored, stage) else {
                continue;
            };
            for name in NAMES {
                let last = self
                    .past
                    .iter()
                    .rfind(|past| past.name == name && past.version <= *at);
                let then = self.seen(watch, last.and_then(|past| past.after));
                let then = then.map(|stored| stored.version);
                let kept = self.cache.watches[watch]
                    .store
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
        for watch in 0..WATCHES.len() {
            while !matches!(self.stages[watch], Stage::At(_)) || self.next_event(watch).is_some() {
                self.tell(watch);
            }
            self.run(Op::Bookmark(watch));
        }
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
    let watch = || 0..WATCHES.len();
    prop_oneof![
        4 => (NAMES, content()).prop_map(|(name, content)| Op::Theirs(name, content)),
        4 => (NAMES, content()).prop_map(|(name, content)| Op::Ours(name, content)),
        3 => NAMES.prop_map(Op::Read),
        7 => (0..8_usize).prop_map(Op::Answer),
        10 => watch().prop_map(Op::Tell),
        1 => watch().prop_map(Op::Bookmark),
        1 => watch().prop_map(Op::Relist),
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
