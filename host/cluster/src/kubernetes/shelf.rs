//! The objects of one watch, merged from what the watch tells and from what single requests answer. The watch has the
//! last word: an answer counts only for what the watch has not told yet, and only until it has.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use transom_api::Word;

/// `namespace/name`, or `/name` for what is cluster-scoped: sorted by namespace, and a third of an `ObjectRef`.
pub(super) type Key = Box<str>;

/// The key of an object.
pub(super) fn key(namespace: Option<&str>, name: &str) -> Key {
    format!("{}/{name}", namespace.unwrap_or_default()).into()
}

/// Namespace and name of a key.
pub(super) fn parts(key: &str) -> (Option<&str>, &str) {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    (Some(namespace).filter(|namespace| !namespace.is_empty()), name)
}

/// Why one object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// In one word.
    pub(super) reason: Word,
    /// What is wrong, without a value of it.
    pub(super) message: String,
}

/// What is kept of an object.
#[derive(Clone, PartialEq)]
pub(super) enum Content {
    /// Compact JSON without the version: equal bytes say that nothing changed that anybody could see.
    Body(Arc<[u8]>),
    /// It is there, but cannot be used.
    Fault(Arc<Fault>),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Self::Fault(fault) => write!(f, "Fault({})", fault.reason.as_str()),
        }
    }
}

/// One object as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    /// Which object.
    pub(super) key: Key,
    /// Its version.
    pub(super) version: Box<str>,
    /// What is kept of it.
    pub(super) content: Content,
    /// Whether it carries the label of what we make.
    pub(super) ours: bool,
}

/// A point in the order in which a connection asks and learns: the later, the higher.
pub(super) type Moment = u64;

/// The moment of what a watch told: there is nothing to doubt.
const TOLD: Moment = 0;

/// One object on the shelf.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// Its version.
    pub(super) version: Box<str>,
    /// What is kept of it.
    pub(super) content: Content,
    /// Whether it carries the label of what we make.
    pub(super) ours: bool,
    /// When an answer said so; `TOLD` once the watch has told this version.
    learnt: Moment,
    /// The list that named it last.
    round: u32,
}

/// An object that an answer said is gone.
#[derive(Debug)]
struct Tombstone {
    /// The last version that is known of it; older news of it are stale.
    last: Box<str>,
    /// When the answer said so.
    learnt: Moment,
    /// The version that was taken off the shelf, or withheld from it: of its end the watch will tell.
    held: Option<Box<str>>,
    /// The list that named it last, as it was before its end.
    round: u32,
}

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing that anybody could see.
    None,
    /// It is new or other than before.
    Changed,
    /// It is there no longer.
    Gone,
}

/// The objects of one watch.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    objects: BTreeMap<Key, Kept>,
    /// What answers said is gone and the watch has not told yet. What the watch has told gone needs no entry: no answer
    /// counts that is not newer than `position`.
    tombstones: BTreeMap<Key, Tombstone>,
    /// Whether there is any tombstone of whose object the watch has no end to tell.
    strangers: bool,
    /// Up to which version the watch has told everything; empty before the first whole list.
    position: Box<str>,
    round: u32,
    begun: Moment,
}

impl Shelf {
    /// An event told of an object.
    pub(super) fn told(&mut self, item: Item) -> Change {
        if let Some(tombstone) = self.tombstones.get_mut(&item.key) {
            if !newer(&item.version, &tombstone.last) {
                tombstone.held = Some(item.version);
                return Change::None;
            }
            self.tombstones.remove(&item.key);
        }
        match self.objects.get(&item.key) {
            Some(kept) if newer(&kept.version, &item.version) => Change::None,
            _ => self.place(item, TOLD, false),
        }
    }

    /// An event told that an object is gone; `version` is that of the deletion. One that was made again since stays.
    pub(super) fn told_gone(&mut self, key: &str, version: &str) -> Change {
        if let Some(tombstone) = self.tombstones.get_mut(key) {
            tombstone.held.take_if(|held| !newer(held, version));
            self.strangers = true;
        }
        match self.objects.get(key) {
            Some(kept) if !newer(&kept.version, version) => {}
            _ => return Change::None,
        }
        self.objects.remove(key);
        Change::Gone
    }

    /// A list that was begun named an object. It knows better than answers that had come before it began.
    pub(super) fn listed(&mut self, item: Item) -> Change {
        let (round, begun) = (self.round, self.begun);
        if let Some(tombstone) = self.tombstones.get_mut(&item.key) {
            if tombstone.learnt > begun && !newer(&item.version, &tombstone.last) {
                (tombstone.round, tombstone.held) = (round, Some(item.version));
                return Change::None;
            }
            self.tombstones.remove(&item.key);
        }
        match self.objects.get_mut(&item.key) {
            Some(kept) if newer(&kept.version, &item.version) && kept.learnt > begun => {
                kept.round = round;
                Change::None
            }
            _ => self.place(item, TOLD, true),
        }
    }

    /// The answer to something that was asked at a moment named an object. It says nothing new where the watch is past
    /// its version already, unless it corrects an answer that came before it was asked.
    pub(super) fn answered(&mut self, item: Item, asked: Moment, now: Moment) -> Change {
        let ahead = newer(&item.version, &self.position);
        let counts = match (self.tombstones.get(&item.key), self.objects.get(&item.key)) {
            (Some(tombstone), _) => asked >= tombstone.learnt || ahead && newer(&item.version, &tombstone.last),
            (None, Some(kept)) if kept.learnt == TOLD => ahead && newer(&item.version, &kept.version),
            (None, Some(kept)) => asked >= kept.learnt || ahead && newer(&item.version, &kept.version),
            (None, None) => ahead,
        };
        if !counts {
            return Change::None;
        }
        self.tombstones.remove(&item.key);
        self.place(item, now, false)
    }

    /// The answer to something that was asked at a moment said that an object is gone that had this version then.
    pub(super) fn answered_gone(&mut self, key: &str, version: &str, asked: Moment, now: Moment) -> Change {
        let Some(kept) = self.objects.get(key) else {
            if newer(version, &self.position) && !self.tombstones.contains_key(key) {
                self.strangers = true;
                let (last, round) = (version.into(), self.round.wrapping_sub(1));
                let tombstone = Tombstone { last, learnt: now, held: None, round };
                self.tombstones.insert(key.into(), tombstone);
            }
            return Change::None;
        };
        let same = *kept.version == *version || newer(version, &kept.version);
        if !same && (kept.learnt == TOLD || asked < kept.learnt) {
            return Change::None;
        }
        let (held, round) = (kept.version.clone(), kept.round);
        let last = if newer(&held, version) { held.clone() } else { version.into() };
        self.tombstones.insert(key.into(), Tombstone { last, learnt: now, held: Some(held), round });
        self.objects.remove(key);
        Change::Gone
    }

    /// A list begins: what it does not name will be gone at its end.
    pub(super) fn begin(&mut self, now: Moment) {
        self.round = self.round.wrapping_add(1);
        self.begun = now;
    }

    /// A list ended at a version. Gives what is gone: everything that it did not name, but for what was learnt since it
    /// began and is newer.
    pub(super) fn end(&mut self, version: &str) -> Vec<(Key, Kept)> {
        let (round, begun) = (self.round, self.begun);
        let later = |kept: &Kept| kept.learnt > begun && newer(&kept.version, version);
        let stale = |_: &Key, kept: &mut Kept| kept.round != round && !later(kept);
        let gone = self.objects.extract_if(.., stale).collect();
        self.tombstones.retain(|_, tombstone| {
            if tombstone.round != round {
                tombstone.held.take_if(|held| !newer(held, version));
            }
            tombstone.learnt > begun && (tombstone.held.is_some() || newer(&tombstone.last, version))
        });
        self.strangers = true;
        self.moved(version);
        gone
    }

    /// The watch came to a version.
    pub(super) fn moved(&mut self, version: &str) {
        self.position = version.into();
        if self.strangers {
            self.tombstones.retain(|_, tombstone| tombstone.held.is_some() || newer(&tombstone.last, version));
            self.strangers = self.tombstones.values().any(|tombstone| tombstone.held.is_none());
        }
    }

    /// Whether a version lies before what the watch told already: the server was restored from a backup.
    pub(super) fn went_back(&self, version: &str) -> bool {
        newer(&self.position, version)
    }

    /// Forgets all versions, because the server counts from a lower number than before; the next list is all there is.
    pub(super) fn restored(&mut self) {
        self.tombstones.clear();
        self.position = Box::default();
        for kept in self.objects.values_mut() {
            (kept.version, kept.learnt) = (Box::default(), TOLD);
        }
    }

    /// Whether only an answer, and no watch, has said what is known of an object.
    pub(super) fn is_unconfirmed(&self, key: &str) -> bool {
        self.tombstones.get(key).is_some_and(|tombstone| tombstone.held.is_some())
            || self.objects.get(key).is_some_and(|kept| kept.learnt != TOLD)
    }

    /// One object.
    pub(super) fn get(&self, key: &str) -> Option<&Kept> {
        self.objects.get(key)
    }

    /// Every object, or those of a namespace.
    pub(super) fn iter(&self, namespace: Option<&str>) -> impl Iterator<Item = (&Key, &Kept)> {
        let first: Key = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default().into();
        let inside = first.clone();
        self.objects.range(first..).take_while(move |(key, _)| key.starts_with(&*inside))
    }

    /// How many objects there are.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Puts an object in the place of what was known of it; `named` by the list that is under way.
    fn place(&mut self, item: Item, learnt: Moment, named: bool) -> Change {
        let Item { key, version, content, ours } = item;
        let before = self.objects.get(&key);
        let change = if before.is_some_and(|kept| kept.content == content) { Change::None } else { Change::Changed };
        let earlier = before.map_or(self.round.wrapping_sub(1), |kept| kept.round);
        let round = if named { self.round } else { earlier };
        self.objects.insert(key, Kept { version, content, ours, learnt, round });
        change
    }
}

/// Whether a version is later than another. They are decimal numbers; of others nothing is later.
pub(super) fn newer(version: &str, than: &str) -> bool {
    match (version.parse::<u128>(), than.parse::<u128>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, version: u32, text: &str) -> Item {
        let content = Content::Body(text.as_bytes().into());
        Item { key: key(Some("n"), name), version: version.to_string().into(), content, ours: false }
    }

    fn names(gone: &[(Key, Kept)]) -> Vec<&str> {
        gone.iter().map(|(key, _)| parts(key).1).collect()
    }

    fn at(version: &str) -> Shelf {
        let mut shelf = Shelf::default();
        shelf.begin(0);
        shelf.end(version);
        shelf
    }

    #[test]
    fn the_latest_version_stays_and_only_content_is_a_change() {
        let mut shelf = at("1");
        assert_eq!(shelf.told(item("a", 5, "x")), Change::Changed);
        assert_eq!(shelf.told(item("a", 9, "x")), Change::None);
        assert_eq!(shelf.told(item("a", 7, "old")), Change::None);
        assert_eq!(shelf.told(item("a", 10, "y")), Change::Changed);
        assert_eq!(&*shelf.get("n/a").unwrap().version, "10");
        assert_eq!(shelf.told_gone("n/a", "9"), Change::None);
        assert_eq!(shelf.told_gone("n/a", "11"), Change::Gone);
        assert_eq!(shelf.told_gone("n/a", "11"), Change::None);
    }

    #[test]
    fn what_a_list_does_not_name_is_gone_unless_it_is_newer() {
        let mut shelf = at("1");
        shelf.told(item("stays", 3, "x"));
        shelf.told(item("gone", 4, "x"));
        shelf.begin(0);
        // A write was answered while the list came; another one was answered, and undone, before the list was made.
        shelf.answered(item("written", 12, "x"), 0, 1);
        shelf.answered(item("undone", 8, "x"), 0, 2);
        assert_eq!(shelf.listed(item("stays", 3, "x")), Change::None);
        assert_eq!(shelf.listed(item("new", 8, "x")), Change::Changed);
        assert!(shelf.get("n/gone").is_some());
        assert_eq!(names(&shelf.end("10")), ["gone", "undone"]);
        assert_eq!(shelf.len(), 3);
        assert!(shelf.is_unconfirmed("n/written") && !shelf.is_unconfirmed("n/new"));
    }

    #[test]
    fn what_an_answer_said_is_gone_does_not_come_back_by_older_news() {
        let mut shelf = at("6");
        shelf.answered(item("a", 8, "ours"), 0, 1);
        assert_eq!(shelf.answered_gone("n/a", "8", 1, 2), Change::Gone);
        assert_eq!(shelf.told(item("a", 7, "late")), Change::None);
        assert_eq!(shelf.told(item("a", 8, "late")), Change::None);
        assert_eq!(shelf.answered(item("a", 8, "late"), 1, 3), Change::None);
        assert_eq!(shelf.told_gone("n/a", "9"), Change::None);
        assert!(!shelf.is_unconfirmed("n/a"));
        shelf.moved("9");
        assert!(shelf.tombstones.is_empty());
        assert_eq!(shelf.told(item("a", 10, "again")), Change::Changed);
    }

    #[test]
    fn a_list_that_began_before_an_end_was_learnt_brings_nothing_back_and_a_later_one_is_believed() {
        let mut shelf = at("6");
        shelf.told(item("a", 7, "x"));
        shelf.begin(0);
        assert_eq!(shelf.answered_gone("n/a", "7", 0, 1), Change::Gone);
        assert_eq!(shelf.listed(item("a", 7, "x")), Change::None);
        assert_eq!(names(&shelf.end("8")), Vec::<&str>::new());
        assert!(shelf.is_unconfirmed("n/a"));
        shelf.begin(1);
        assert_eq!(shelf.listed(item("a", 7, "x")), Change::Changed);
        shelf.end("9");
        assert!(!shelf.is_unconfirmed("n/a") && shelf.get("n/a").is_some());
    }

    #[test]
    fn no_tombstone_outlives_what_it_is_for() {
        let mut shelf = at("6");
        assert_eq!(shelf.answered_gone("n/stranger", "9", 0, 1), Change::None);
        assert_eq!(shelf.answered_gone("n/known", "5", 0, 2), Change::None);
        assert_eq!(shelf.tombstones.len(), 1);
        shelf.moved("9");
        assert!(shelf.tombstones.is_empty());
        shelf.told(item("a", 10, "x"));
        shelf.answered_gone("n/a", "10", 2, 3);
        shelf.begin(3);
        shelf.end("12");
        assert!(shelf.tombstones.is_empty());
    }

    #[test]
    fn a_server_restored_from_a_backup_is_believed_again() {
        let mut shelf = at("6");
        shelf.told(item("a", 100, "x"));
        shelf.told(item("b", 101, "x"));
        shelf.moved("120");
        assert!(shelf.went_back("50") && !shelf.went_back("120") && !shelf.went_back("121"));
        shelf.restored();
        shelf.begin(0);
        assert_eq!(shelf.listed(item("a", 40, "older")), Change::Changed);
        assert_eq!(names(&shelf.end("50")), ["b"]);
        assert!(!shelf.went_back("51"));
    }

    #[test]
    fn keys_are_listed_by_namespace() {
        let mut shelf = Shelf::default();
        for (namespace, name) in [(Some("a"), "x"), (Some("a"), "y"), (Some("a-b"), "x"), (Some("b"), "x")] {
            shelf.told(Item { key: key(namespace, name), ..item("", 1, "") });
        }
        let of = |namespace| shelf.iter(namespace).map(|(key, _)| parts(key)).collect::<Vec<_>>();
        assert_eq!(of(Some("a")), [(Some("a"), "x"), (Some("a"), "y")]);
        assert_eq!(of(None).len(), 4);
        assert_eq!(of(Some("c")), []);
        assert_eq!(parts(&key(None, "x")), (None, "x"));
    }

    #[test]
    fn versions_are_numbers() {
        assert!(newer("10", "9") && !newer("9", "10") && !newer("9", "9"));
        assert!(newer("340282366920938463463374607431768211455", "18446744073709551616"));
        assert!(!newer("b", "a") && !newer("1", "") && !newer("", "1"));
    }
}
