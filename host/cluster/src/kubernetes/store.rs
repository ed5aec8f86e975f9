//! The store of one watch: objects merged from the watch and from the answers to single requests.
//! The watch takes precedence: an answer counts only for versions that the watch has not reached, and only until then.

mod item;

pub(super) use item::{Item, KeptContent, ObjectFault, StoreKey, StoredObject, key, parts};

use std::collections::BTreeMap;

/// A logical time, by the order in which a connection sends requests and merges answers; it increases.
pub(super) type Moment = u64;

/// The moment of every state that the watch itself reported.
const TOLD: Moment = 0;
/// The most bytes of large objects that one watch keeps. Whoever may make objects of a kind could else take all memory
/// of the agent with a few hundred of them.
const LARGE_BYTES: usize = 64 << 20;

/// An object that is gone according to an answer.
#[derive(Debug)]
struct Tombstone {
    /// The last known version; older states are stale.
    last: Box<str>,
    /// When the answer was merged.
    learnt: Moment,
    /// The version that was removed from the store, or kept out of it; the watch will still report its end.
    held: Option<Box<str>>,
    /// The last list that contained the object, as it was before its end.
    round: u32,
}

/// The objects of one watch.
#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<StoreKey, StoredObject>,
    /// How many of `objects` cannot be used.
    faults: usize,
    /// The bytes of those `objects` that are large.
    large: usize,
    /// Objects that are gone according to answers, until the watch reports it. An object that the watch reported as
    /// gone needs no entry: only answers newer than `position` count.
    tombstones: BTreeMap<StoreKey, Tombstone>,
    /// Objects that another watch reported, which ended since, until this one comes to their versions. They are not
    /// read: what that one kept of them may be less.
    expected: BTreeMap<StoreKey, StoredObject>,
    /// Whether some tombstone has no `held` version: the watch has no end of that object left to report.
    strangers: bool,
    /// The version up to which the watch has reported everything; empty before the first complete list.
    position: Box<str>,
    round: u32,
    begun: Moment,
}

impl Store {
    /// An event reports an object.
    pub(super) fn apply_event(&mut self, item: Item) {
        if let Some(tombstone) = self.tombstones.get_mut(&item.key) {
            if !newer(&item.version, &tombstone.last) {
                tombstone.held = Some(item.version);
                return;
            }
            self.tombstones.remove(&item.key);
        }
        let kept = self.objects.get(&item.key);
        if kept.is_none_or(|kept| !newer(&kept.version, &item.version)) {
            self.place(item, TOLD, false);
        }
    }

    /// An event reports that an object is gone; `version` is that of the deletion. An object that was created again
    /// since stays.
    pub(super) fn apply_deletion(&mut self, key: &str, version: &str) {
        if let Some(tombstone) = self.tombstones.get_mut(key) {
            tombstone.held.take_if(|held| !newer(held, version));
            self.strangers = true;
        }
        let ends = |kept: &StoredObject| !newer(&kept.version, version);
        if self.objects.get(key).is_some_and(ends) {
            self.remove(key);
        }
        if self.expected.get(key).is_some_and(ends) {
            self.expected.remove(key);
        }
    }

    /// The current list contains an object. It overrides answers that arrived before the list began.
    pub(super) fn apply_listed(&mut self, item: Item) {
        let (round, begun) = (self.round, self.begun);
        if let Some(tombstone) = self.tombstones.get_mut(&item.key) {
            if tombstone.learnt > begun && !newer(&item.version, &tombstone.last) {
                (tombstone.round, tombstone.held) = (round, Some(item.version));
                return;
            }
            self.tombstones.remove(&item.key);
        }
        match self.objects.get_mut(&item.key) {
            Some(kept) if newer(&kept.version, &item.version) && kept.learnt > begun => {
                kept.round = round;
            }
            _ => self.place(item, TOLD, true),
        }
    }

    /// An answer contains an object; `asked` is the moment of the request. Ignored if the watch is already past the
    /// version, unless it corrects an answer that arrived before the request was sent.
    pub(super) fn apply_answer(&mut self, item: Item, asked: Moment, now: Moment) {
        let ahead = self.is_behind(&item.version);
        let counts = match (self.tombstones.get(&item.key), self.objects.get(&item.key)) {
            (Some(tombstone), _) => {
                asked >= tombstone.learnt || ahead && newer(&item.version, &tombstone.last)
            }
            (None, Some(kept)) if kept.learnt == TOLD => {
                ahead && newer(&item.version, &kept.version)
            }
            (None, Some(kept)) => {
                asked >= kept.learnt || ahead && newer(&item.version, &kept.version)
            }
            (None, None) => ahead,
        };
        if counts {
            // The current list may have contained it while an answer said that it was gone.
            let listed =
                |tombstone: Tombstone| tombstone.round == self.round && tombstone.held.is_some();
            let listed = self.tombstones.remove(&item.key).is_some_and(listed);
            self.place(item, now, listed);
        }
    }

    /// An answer reports that an object is gone; `version` is the one that it had at the moment of the request,
    /// `asked`.
    pub(super) fn apply_absence(&mut self, key: &str, version: &str, asked: Moment, now: Moment) {
        self.expected.remove(key);
        let Some(kept) = self.objects.get(key) else {
            if self.is_behind(version) && !self.tombstones.contains_key(key) {
                self.strangers = true;
                let (last, round) = (version.into(), self.round.wrapping_sub(1));
                let tombstone = Tombstone {
                    last,
                    learnt: now,
                    held: None,
                    round,
                };
                self.tombstones.insert(key.into(), tombstone);
            }
            return;
        };
        let same = *kept.version == *version || newer(version, &kept.version);
        if !same && (kept.learnt == TOLD || asked < kept.learnt) {
            return;
        }
        let (held, round) = (kept.version.clone(), kept.round);
        let last = if newer(&held, version) {
            held.clone()
        } else {
            version.into()
        };
        self.tombstones.insert(
            key.into(),
            Tombstone {
                last,
                learnt: now,
                held: Some(held),
                round,
            },
        );
        self.remove(key);
    }

    /// A list begins: objects that it does not contain will be gone at its end.
    pub(super) fn begin_list(&mut self, now: Moment) {
        self.round = self.round.wrapping_add(1);
        self.begun = now;
    }

    /// A list ended at a version. Returns the objects that are gone: those that it did not contain, except those that
    /// an answer reported after the list began and at a newer version.
    pub(super) fn end_list(&mut self, version: &str) -> Vec<(StoreKey, StoredObject)> {
        let (round, begun) = (self.round, self.begun);
        let later = |kept: &StoredObject| kept.learnt > begun && newer(&kept.version, version);
        let stale = |_: &StoreKey, kept: &mut StoredObject| kept.round != round && !later(kept);
        let mut gone: Vec<_> = self.objects.extract_if(.., stale).collect();
        for (_, kept) in &gone {
            self.left(Some(kept));
        }
        let expected = std::mem::take(&mut self.expected).into_iter();
        gone.extend(expected.filter(|(key, _)| !self.objects.contains_key(key)));
        self.tombstones.retain(|_, tombstone| {
            if tombstone.round != round {
                tombstone.held.take_if(|held| !newer(held, version));
            }
            tombstone.learnt > begun
                && (tombstone.held.is_some() || newer(&tombstone.last, version))
        });
        self.strangers = true;
        self.bookmark(version);
        gone
    }

    /// The watch has reached a version.
    pub(super) fn bookmark(&mut self, version: &str) {
        self.position = version.into();
        if self.strangers {
            self.tombstones
                .retain(|_, tombstone| tombstone.held.is_some() || newer(&tombstone.last, version));
            self.strangers = self
                .tombstones
                .values()
                .any(|tombstone| tombstone.held.is_none());
        }
    }

    /// Whether the watch has not come to a version yet; it came to none before its first list.
    fn is_behind(&self, version: &str) -> bool {
        self.position.is_empty() || newer(version, &self.position)
    }

    /// Expects an object that another watch reported, if this one has not come to it, and no answer said that it is
    /// gone.
    pub(super) fn expect(&mut self, key: &StoreKey, kept: &StoredObject) {
        let is_gone = self.tombstones.contains_key(key);
        let is_latest = self
            .known(key)
            .all(|one| newer(&kept.version, &one.version));
        if kept.learnt == TOLD && self.is_behind(&kept.version) && is_latest && !is_gone {
            self.expected.insert(key.clone(), kept.clone());
        }
    }

    /// The states of an object, also an expected one.
    pub(super) fn known(&self, key: &str) -> impl Iterator<Item = &StoredObject> {
        let expected = self.expected.get(key);
        self.objects.get(key).into_iter().chain(expected)
    }

    /// Every object, also those that are expected.
    pub(super) fn all(&self) -> impl Iterator<Item = (&StoreKey, &StoredObject)> {
        self.objects.iter().chain(&self.expected)
    }

    /// Whether a version is older than one that the watch reported: the server was restored from a backup.
    pub(super) fn went_back(&self, version: &str) -> bool {
        newer(&self.position, version)
    }

    /// Forgets all versions, because those of the server went back. The next list decides which objects exist.
    pub(super) fn reset_versions(&mut self) {
        self.tombstones.clear();
        self.position = Box::default();
        for kept in self.objects.values_mut() {
            (kept.version, kept.learnt) = (Box::default(), TOLD);
        }
    }

    /// Whether only an answer reported the state of an object, and no watch has confirmed it.
    pub(super) fn is_unconfirmed(&self, key: &str) -> bool {
        self.tombstones
            .get(key)
            .is_some_and(|tombstone| tombstone.held.is_some())
            || self
                .objects
                .get(key)
                .is_some_and(|kept| kept.learnt != TOLD)
    }

    /// One object.
    pub(super) fn get(&self, key: &str) -> Option<&StoredObject> {
        self.objects.get(key)
    }

    /// Every object, or every object of a namespace.
    pub(super) fn iter(
        &self,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&StoreKey, &StoredObject)> {
        let first: StoreKey = namespace
            .map(|namespace| format!("{namespace}/"))
            .unwrap_or_default()
            .into();
        let inside = first.clone();
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.starts_with(&*inside))
    }

    /// Whether an object of [`Self::iter`] cannot be used. Looks at none of them.
    pub(super) fn has_faults(&self) -> bool {
        self.faults > 0
    }

    /// How many objects there are.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Replaces the state of an object; `named` if the current list contains it.
    fn place(&mut self, item: Item, learnt: Moment, named: bool) {
        let Item {
            key,
            version,
            content,
            ours,
        } = item;
        let round = match self.objects.get(&key) {
            _ if named => self.round,
            Some(before) => before.round,
            None => self.round.wrapping_sub(1),
        };
        let before = self.objects.get(&key).map_or(0, StoredObject::large_bytes);
        let mut kept = StoredObject {
            version,
            content,
            ours,
            learnt,
            round,
        };
        if self.large - before + kept.large_bytes() > LARGE_BYTES {
            kept.content = KeptContent::Fault(ObjectFault::of_many(LARGE_BYTES).into());
        }
        let is_ahead = |expected: &StoredObject| newer(&expected.version, &kept.version);
        if self.expected.get(&key).is_some_and(|one| !is_ahead(one)) {
            self.expected.remove(&key);
        }
        self.faults += usize::from(kept.is_faulty());
        self.large += kept.large_bytes();
        let before = self.objects.insert(key, kept);
        self.left(before.as_ref());
    }

    fn remove(&mut self, key: &str) {
        let gone = self.objects.remove(key);
        self.left(gone.as_ref());
    }

    /// An object left `objects`.
    fn left(&mut self, gone: Option<&StoredObject>) {
        self.faults -= usize::from(gone.is_some_and(StoredObject::is_faulty));
        self.large -= gone.map_or(0, StoredObject::large_bytes);
    }
}

/// Whether a version is newer than another. Versions are decimal numbers; no other text is newer or older.
pub(super) fn newer(version: &str, than: &str) -> bool {
    match (version.parse::<u128>(), than.parse::<u128>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use transom_api::KnownReason;

    fn item(name: &str, version: u32, text: &str) -> Item {
        let content = KeptContent::Body(text.as_bytes().into());
        Item {
            key: key(Some("n"), name),
            version: version.to_string().into(),
            content,
            ours: false,
        }
    }

    fn names(gone: &[(StoreKey, StoredObject)]) -> Vec<&str> {
        gone.iter().map(|(key, _)| parts(key).1).collect()
    }

    fn version_of<'a>(store: &'a Store, name: &str) -> Option<&'a str> {
        let kept = store.get(&key(Some("n"), name))?;
        Some(&kept.version)
    }

    fn at(version: &str) -> Store {
        let mut store = Store::default();
        store.begin_list(0);
        store.end_list(version);
        store
    }

    /// Does one thing with a store, to one object.
    fn change(store: &mut Store, what: usize, item: Item, now: Moment) {
        let (key, version) = (item.key.clone(), item.version.clone());
        match what {
            0 => store.apply_event(item),
            1 => store.apply_deletion(&key, &version),
            2 => store.apply_listed(item),
            3 => store.apply_answer(item, now, now),
            4 => store.apply_absence(&key, &version, now, now),
            5 => store.begin_list(now),
            6 => drop(store.end_list(&version)),
            7 => store.reset_versions(),
            _ => {
                let kept = StoredObject {
                    version,
                    content: item.content,
                    ours: item.ours,
                    learnt: TOLD,
                    round: 0,
                };
                store.expect(&key, &kept);
            }
        }
    }

    #[test]
    fn large_objects_take_only_so_much_memory_and_small_ones_have_room_beside_them() {
        let large = "x".repeat(1 << 20);
        let mut store = at("1");
        for index in 0..100 {
            store.apply_event(item(&format!("large-{index:02}"), 2, &large));
            store.apply_event(item(&format!("small-{index:02}"), 2, "x"));
        }
        let kept = |store: &Store| {
            let usable = store.iter(None).filter(|(_, kept)| !kept.is_faulty());
            usable.count()
        };
        assert_eq!(
            (store.len(), kept(&store), store.large),
            (200, 164, LARGE_BYTES)
        );
        assert!(store.has_faults());
        // A large object that changes keeps its room, and one that goes leaves it to the next one.
        store.apply_event(item("large-00", 3, &large));
        assert_eq!(kept(&store), 164);
        store.apply_deletion(&key(Some("n"), "large-00"), "4");
        store.apply_event(item("large-01", 4, "small now"));
        assert_eq!((kept(&store), store.large), (163, LARGE_BYTES - (2 << 20)));
        for index in 64..100 {
            store.apply_event(item(&format!("large-{index}"), 5, &large));
        }
        assert_eq!((kept(&store), store.large), (165, LARGE_BYTES));
        store.begin_list(9);
        assert_eq!(store.end_list("9").len(), 199);
        assert_eq!((store.large, store.has_faults()), (0, false));
    }

    proptest! {
        #[test]
        fn has_faults_while_one_of_its_objects_is_faulty(
            changes in proptest::collection::vec((0..9_usize, 0..2_usize, 1..9_u32, any::<bool>()), 1..30),
        ) {
            let fault = ObjectFault { reason: KnownReason::ObjectTooLarge, message: String::new() };
            let fault = KeptContent::Fault(fault.into());
            let mut store = Store::default();
            for (now, (what, name, version, is_faulty)) in (1..).zip(changes) {
                let mut item = item(["a", "b"][name], version, "x");
                if is_faulty {
                    item.content = fault.clone();
                }
                change(&mut store, what, item, now);
                let faulty = store.iter(None).filter(|(_, kept)| kept.is_faulty());
                prop_assert_eq!(store.faults, faulty.count());
            }
        }
    }

    #[test]
    fn keeps_the_latest_version() {
        let mut store = at("1");
        for (version, text, kept) in [(9, "x", "9"), (7, "old", "9"), (10, "y", "10")] {
            store.apply_event(item("a", version, text));
            assert_eq!(version_of(&store, "a"), Some(kept));
        }
        store.apply_deletion("n/a", "9");
        assert_eq!(version_of(&store, "a"), Some("10"));
        store.apply_deletion("n/a", "11");
        assert_eq!(version_of(&store, "a"), None);
    }

    #[test]
    fn a_list_deletes_what_it_omits_unless_that_is_newer() {
        let mut store = at("1");
        store.apply_event(item("stays", 3, "x"));
        store.apply_event(item("gone", 4, "x"));
        store.begin_list(0);
        // One write was answered while the list ran; another was answered, and undone, before the list was made.
        store.apply_answer(item("written", 12, "x"), 0, 1);
        store.apply_answer(item("undone", 8, "x"), 0, 2);
        store.apply_listed(item("stays", 3, "x"));
        store.apply_listed(item("new", 8, "x"));
        assert!(store.get("n/gone").is_some());
        assert_eq!(names(&store.end_list("10")), ["gone", "undone"]);
        assert_eq!(store.len(), 3);
        assert!(store.is_unconfirmed("n/written") && !store.is_unconfirmed("n/new"));
    }

    #[test]
    fn a_list_keeps_what_it_contained_although_answers_disagreed_meanwhile() {
        // After a restore, an object is created again at the version that it had before.
        let mut store = at("1");
        store.apply_event(item("a", 11, "x"));
        store.begin_list(1);
        store.apply_absence("n/a", "11", 1, 2);
        store.apply_listed(item("a", 11, "x"));
        assert_eq!(version_of(&store, "a"), None);
        store.apply_answer(item("a", 11, "x"), 2, 3);
        assert_eq!(names(&store.end_list("11")), <[&str; 0]>::default());
        assert_eq!(version_of(&store, "a"), Some("11"));
    }

    #[test]
    fn older_events_do_not_revive_what_a_response_deleted() {
        let mut store = at("6");
        store.apply_answer(item("a", 8, "ours"), 0, 1);
        store.apply_absence("n/a", "8", 1, 2);
        assert_eq!(version_of(&store, "a"), None);
        store.apply_event(item("a", 7, "late"));
        store.apply_event(item("a", 8, "late"));
        store.apply_answer(item("a", 8, "late"), 1, 3);
        assert_eq!(version_of(&store, "a"), None);
        store.apply_deletion("n/a", "9");
        assert!(!store.is_unconfirmed("n/a"));
        store.bookmark("9");
        assert!(store.tombstones.is_empty());
        store.apply_event(item("a", 10, "again"));
        assert_eq!(version_of(&store, "a"), Some("10"));
    }

    #[test]
    fn a_list_begun_before_a_deletion_revives_nothing_but_a_later_one_may() {
        let mut store = at("6");
        store.apply_event(item("a", 7, "x"));
        store.begin_list(0);
        store.apply_absence("n/a", "7", 0, 1);
        store.apply_listed(item("a", 7, "x"));
        assert_eq!(version_of(&store, "a"), None);
        assert_eq!(names(&store.end_list("8")), Vec::<&str>::new());
        assert!(store.is_unconfirmed("n/a"));
        store.begin_list(1);
        store.apply_listed(item("a", 7, "x"));
        store.end_list("9");
        assert!(!store.is_unconfirmed("n/a") && store.get("n/a").is_some());
    }

    #[test]
    fn removes_tombstones_that_are_no_longer_needed() {
        let mut store = at("6");
        store.apply_absence("n/stranger", "9", 0, 1);
        store.apply_absence("n/known", "5", 0, 2);
        assert_eq!(store.tombstones.len(), 1);
        store.bookmark("9");
        assert!(store.tombstones.is_empty());
        store.apply_event(item("a", 10, "x"));
        store.apply_absence("n/a", "10", 2, 3);
        store.begin_list(3);
        store.end_list("12");
        assert!(store.tombstones.is_empty());
    }

    #[test]
    fn accepts_a_server_restored_from_a_backup() {
        let mut store = at("6");
        store.apply_event(item("a", 100, "x"));
        store.apply_event(item("b", 101, "x"));
        store.bookmark("120");
        assert!(store.went_back("50") && !store.went_back("120") && !store.went_back("121"));
        store.reset_versions();
        store.begin_list(0);
        store.apply_listed(item("a", 40, "older"));
        assert_eq!(version_of(&store, "a"), Some("40"));
        assert_eq!(names(&store.end_list("50")), ["b"]);
        assert!(!store.went_back("51"));
    }

    #[test]
    fn lists_keys_by_namespace() {
        let mut store = Store::default();
        for (namespace, name) in [
            (Some("a"), "x"),
            (Some("a"), "y"),
            (Some("a-b"), "x"),
            (Some("b"), "x"),
        ] {
            store.apply_event(Item {
                key: key(namespace, name),
                ..item("", 1, "")
            });
        }
        let of = |namespace| {
            store
                .iter(namespace)
                .map(|(key, _)| parts(key))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Some("a")), [(Some("a"), "x"), (Some("a"), "y")]);
        assert_eq!(of(None).len(), 4);
        assert_eq!(of(Some("c")), []);
        assert_eq!(parts(&key(None, "x")), (None, "x"));
    }

    #[test]
    fn resource_versions_compare_as_numbers() {
        assert!(newer("10", "9") && !newer("9", "10") && !newer("9", "9"));
        assert!(newer(
            "340282366920938463463374607431768211455",
            "18446744073709551616"
        ));
        assert!(!newer("b", "a") && !newer("1", "") && !newer("", "1"));
    }
}
