//! The whole state in memory: the content of every file, and the effective state of every object.
//! Keeps compact text and parses it on demand. A change returns news only of what differs after it. Does no I/O.

mod leaving;
mod listing;
mod patched;
mod unreadable;

use super::change::{DirectoryNews, Edit, FileContent, Print};
use super::slot::{Effective, Slot, SlotState, UserObject};
use super::tree::{FilePlace, Layer};
use super::words::Words;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use transom_core::observation::Unreadable;
use transom_core::reference::ObjectRef;
use transom_core::watches::Scope;

/// A file that was read.
#[derive(Clone)]
struct File {
    /// Of what was read; `None` when it could not be read again.
    print: Option<Print>,
    objects: Vec<Arc<ObjectRef>>,
}

/// The whole state. A copy shares all text.
#[derive(Clone)]
pub(super) struct DirectoryStore {
    /// Name of the connection.
    cluster: Arc<str>,
    key: RandomState,
    /// Folders that cannot be listed.
    closed: BTreeSet<FilePlace>,
    files: BTreeMap<FilePlace, File>,
    slots: BTreeMap<Arc<ObjectRef>, Box<Slot>>,
    problems: BTreeMap<FilePlace, Unreadable>,
    /// The words of files of which no content is known, because they could not be parsed.
    hidden: BTreeMap<FilePlace, Words>,
    duplicates: BTreeMap<Arc<str>, BTreeSet<Arc<ObjectRef>>>,
    /// Objects that are gone, but still have a field patch.
    orphans: BTreeSet<Arc<ObjectRef>>,
    /// Objects whose field patch is no longer the one in its file, because of what the user changed.
    rebased: BTreeSet<Arc<ObjectRef>>,
    /// Objects that no user's file has any more, and since when. Their slots keep the last source.
    leaving: BTreeMap<Arc<ObjectRef>, Instant>,
}

/// The objects that an edit concerns.
type Touched = Vec<Arc<ObjectRef>>;
/// Sources that a change removed, if they are to be kept.
type Taken = Option<BTreeMap<Arc<ObjectRef>, Vec<UserObject>>>;

impl DirectoryStore {
    /// An empty store of a connection; `key` is that of the versions.
    pub(super) fn new(cluster: &str, key: RandomState) -> Self {
        Self {
            cluster: cluster.into(),
            key,
            closed: BTreeSet::new(),
            files: BTreeMap::new(),
            slots: BTreeMap::new(),
            problems: BTreeMap::new(),
            hidden: BTreeMap::new(),
            duplicates: BTreeMap::new(),
            orphans: BTreeSet::new(),
            rebased: BTreeSet::new(),
            leaving: BTreeMap::new(),
        }
    }

    /// The print of a file when it was read.
    pub(super) fn print(&self, place: &FilePlace) -> Option<Print> {
        self.files.get(place).and_then(|file| file.print)
    }

    /// The known files at a path or below it.
    pub(super) fn below(&self, folder: &FilePlace) -> impl Iterator<Item = &FilePlace> {
        let inside =
            |one: &&FilePlace| one.layer == folder.layer && one.path.starts_with(&folder.path);
        let places = self.files.range(folder.clone()..).map(|(place, _)| place);
        places.take_while(inside)
    }

    /// An object of a scope that several files define, so that nothing is known of it.
    pub(super) fn duplicate(&self, scope: &Scope) -> Option<Arc<ObjectRef>> {
        let mut all = self.duplicates.values().flatten();
        all.find(|one| scope.covers(one)).cloned()
    }

    /// The slot of an object.
    pub(super) fn slot(&self, reference: &ObjectRef) -> Option<&Slot> {
        self.slots.get(reference).map(Box::as_ref)
    }

    /// The state of an object, as of the last update.
    pub(super) fn seen(&self, reference: &ObjectRef) -> SlotState {
        self.slots
            .get(reference)
            .map(|slot| slot.seen.clone())
            .unwrap_or_default()
    }

    /// The effective object, with its source.
    pub(super) fn effective(&self, reference: &ObjectRef) -> Effective {
        self.slots
            .get(reference)
            .map_or(Effective::Absent, |slot| slot.effective())
    }

    /// Hides an object in users' files; for a state in memory only.
    pub(super) fn hide(&mut self, reference: &ObjectRef) -> Vec<DirectoryNews> {
        self.leaving.remove(reference);
        if let Some(slot) = self.slots.get_mut(reference) {
            slot.users.clear();
        }
        self.settle(BTreeSet::from([Arc::new(reference.clone())]))
    }

    /// Applies edits of several files as one change, so that an object that moved between them is not gone.
    pub(super) fn change(
        &mut self,
        edits: impl IntoIterator<Item = (FilePlace, Edit)>,
    ) -> Vec<DirectoryNews> {
        self.change_at(edits, None)
    }

    /// The same. With a time, an object that no user's file has any more stays as it is, and counts as leaving since
    /// then.
    pub(super) fn change_at(
        &mut self,
        edits: impl IntoIterator<Item = (FilePlace, Edit)>,
        keep: Option<Instant>,
    ) -> Vec<DirectoryNews> {
        let mut taken = keep.map(|_| BTreeMap::new());
        let mut news = Vec::new();
        let mut touched = BTreeSet::new();
        for (place, edit) in edits {
            match edit {
                Edit::Keep => {}
                Edit::Same(stamp) => {
                    let file = self.files.get_mut(&place);
                    if let Some(print) = file.and_then(|file| file.print.as_mut()) {
                        print.stamp = stamp;
                    }
                }
                Edit::Refuse(print, fault, words) => {
                    self.name_hidden(&place, words);
                    news.extend(self.refuse(&place, print, fault));
                }
                Edit::Remove => {
                    touched.extend(self.take_out(&place, &mut taken));
                    news.extend(self.mended(&place));
                }
                Edit::Put(print, content) => {
                    touched.extend(self.take_out(&place, &mut taken));
                    touched.extend(self.put(&place, print, content));
                    news.extend(self.mended(&place));
                }
            }
        }
        if let Some((taken, now)) = taken.zip(keep) {
            self.keep(taken, now);
        }
        news.extend(self.settle(touched));
        news
    }

    /// Adds the content of a file to the slots.
    fn put(&mut self, place: &FilePlace, print: Print, content: FileContent) -> Touched {
        let mut objects = Vec::new();
        match content {
            FileContent::Objects(found) => {
                objects.reserve_exact(found.len());
                for found in found {
                    self.found_again(&found.reference);
                    let (reference, slot) = self.entry(found.reference);
                    if slot.users.is_empty() {
                        // Nearly every object has exactly one source, so more room would be wasted.
                        slot.users.reserve_exact(1);
                    }
                    let again = slot
                        .users
                        .last()
                        .is_some_and(|user| Arc::ptr_eq(&user.file, &place.path));
                    slot.users.push(UserObject {
                        file: Arc::clone(&place.path),
                        text: found.text,
                        weight: found.weight,
                    });
                    // `take_out` removes all sources of one file at once.
                    objects.extend((!again).then_some(reference));
                }
            }
            FileContent::Made(reference, made) => {
                let (reference, slot) = self.entry(reference);
                slot.made = Some(Box::new(made));
                objects.push(reference);
            }
            FileContent::Patch(reference, patch) => {
                let (reference, slot) = self.entry(reference);
                slot.patch = Some(Arc::new(patch));
                objects.push(reference);
            }
            FileContent::Nothing => {}
        }
        self.files.insert(
            place.clone(),
            File {
                print: Some(print),
                objects: objects.clone(),
            },
        );
        objects
    }

    /// The slot of an object; makes it if there is none.
    fn entry(&mut self, reference: Arc<ObjectRef>) -> (Arc<ObjectRef>, &mut Slot) {
        let reference = self
            .slots
            .get_key_value(&reference)
            .map_or(reference, |(known, _)| Arc::clone(known));
        (
            Arc::clone(&reference),
            self.slots.entry(reference).or_default(),
        )
    }

    /// Removes the content of a file from the slots.
    fn take_out(&mut self, place: &FilePlace, taken: &mut Taken) -> Touched {
        let Some(file) = self.files.remove(place) else {
            return Vec::new();
        };
        for reference in &file.objects {
            if place.layer == Layer::Patch {
                self.rebased.remove(reference);
            }
            let Some(slot) = self.slots.get_mut(reference) else {
                continue;
            };
            match place.layer {
                Layer::User => {
                    let sources = slot.users.extract_if(.., |user| *user.file == *place.path);
                    match taken {
                        Some(taken) => taken
                            .entry(Arc::clone(reference))
                            .or_default()
                            .extend(sources),
                        None => sources.for_each(drop),
                    }
                }
                Layer::Made => slot.made = None,
                Layer::Patch => slot.patch = None,
            }
        }
        file.objects
    }

    /// Updates the state of the touched objects; returns news of those that differ.
    fn settle(&mut self, touched: BTreeSet<Arc<ObjectRef>>) -> Vec<DirectoryNews> {
        let mut news = Vec::new();
        let mut groups = BTreeSet::new();
        for reference in touched {
            let Some((before, now)) = self.update(&reference) else {
                continue;
            };
            if let SlotState::Duplicate(files) = &before {
                self.duplicates
                    .entry(Arc::clone(files))
                    .or_default()
                    .remove(&reference);
                groups.insert(Arc::clone(files));
            }
            match now {
                SlotState::Duplicate(files) => {
                    self.duplicates
                        .entry(Arc::clone(&files))
                        .or_default()
                        .insert(reference);
                    groups.insert(files);
                }
                _ => news.push(DirectoryNews::Object(reference)),
            }
        }
        news.extend(groups.into_iter().map(|files| self.group(files)));
        news
    }

    /// Updates the state of one object; returns the former and the new one if they differ.
    fn update(&mut self, reference: &Arc<ObjectRef>) -> Option<(SlotState, SlotState)> {
        self.follow(reference);
        let slot = self.slots.get_mut(reference)?;
        let now = match slot.effective().seen(&self.key) {
            // Share one text of file names between all duplicates in the same files.
            SlotState::Duplicate(files) => {
                let known = self
                    .duplicates
                    .get_key_value(&files)
                    .map(|(known, _)| Arc::clone(known));
                SlotState::Duplicate(known.unwrap_or(files))
            }
            now => now,
        };
        let before = std::mem::replace(&mut slot.seen, now.clone());
        if slot.is_empty() {
            self.slots.remove(reference);
        }
        (now != before).then_some((before, now))
    }

    /// The object in an own file.
    pub(super) fn holder(&self, place: &FilePlace) -> Option<&ObjectRef> {
        self.files.get(place)?.objects.first().map(AsRef::as_ref)
    }

    /// The user's file that contains an object, for messages.
    pub(super) fn users_file(&self, reference: &ObjectRef) -> Option<&Path> {
        self.slots
            .get(reference)?
            .users
            .first()
            .map(|user| user.file.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest;
    use super::super::{SizeLimits, patch::Patch, slot::MadeObject};
    use super::*;
    use crate::directory::manifest::FileFault;
    use proptest::prelude::*;
    use serde_json::json;
    use std::path::PathBuf;

    /// A change of a file: which of a few files, and its new content.
    #[derive(Clone, Debug)]
    enum Act {
        Remove(Layer, u8),
        Break(u8),
        Objects(u8, Vec<(u8, u8)>),
        Made(u8, u8, Option<u8>),
        Patch(u8, u8),
        WriteBack(u8, Patch),
    }

    fn act() -> impl Strategy<Value = Act> {
        let objects = proptest::collection::vec((0..4u8, 0..3u8), 0..4);
        prop_oneof![
            (
                prop_oneof![Just(Layer::User), Just(Layer::Made), Just(Layer::Patch)],
                0..4u8
            )
                .prop_map(|(layer, name)| Act::Remove(layer, name)),
            (0..4u8).prop_map(Act::Break),
            (0..4u8, objects).prop_map(|(file, objects)| Act::Objects(file, objects)),
            (0..4u8, 0..3u8, proptest::option::of(0..3u8))
                .prop_map(|(name, value, over)| Act::Made(name, value, over)),
            (0..4u8, 0..3u8).prop_map(|(name, value)| Act::Patch(name, value)),
        ]
    }

    fn text(name: u8, value: u8) -> String {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("o{name}")}, "data": {"x": [value]}})
            .to_string()
    }

    fn reference(name: u8) -> ObjectRef {
        ObjectRef::local("v1", "ConfigMap", None, &format!("o{name}"))
    }

    fn place(layer: Layer, name: u8) -> FilePlace {
        FilePlace::new(layer, &PathBuf::from(format!("f{name}.yaml")))
    }

    /// The act as an edit of a file.
    #[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
    fn edit(act: &Act) -> (FilePlace, Edit) {
        let print = Print {
            bytes: 0,
            stamp: None,
        };
        match act {
            Act::Remove(layer, name) => (place(*layer, *name), Edit::Remove),
            Act::Break(file) => (
                place(Layer::User, *file),
                Edit::Refuse(
                    Some(print),
                    FileFault::invalid(String::new()),
                    Words::default(),
                ),
            ),
            Act::Objects(file, objects) => {
                let documents: Vec<String> = objects
                    .iter()
                    .map(|(name, value)| text(*name, *value))
                    .collect();
                let found = manifest::objects(
                    documents.join("\n---\n").as_bytes(),
                    "local",
                    SizeLimits::default(),
                )
                .unwrap();
                (
                    place(Layer::User, *file),
                    Edit::Put(print, FileContent::Objects(found)),
                )
            }
            Act::Made(name, value, over) => {
                let over = over
                    .map(|over| super::super::names::digest(text(*name, over).as_bytes()).into());
                let made = MadeObject {
                    text: text(*name, *value).into(),
                    weight: 0,
                    over,
                };
                (
                    place(Layer::Made, *name),
                    Edit::Put(print, FileContent::Made(reference(*name).into(), made)),
                )
            }
            Act::Patch(name, value) => {
                let mut patch = Patch::default();
                // The user's element becomes another one.
                patch.take(&json!({"data": {"x": [0]}}), "data.x", &json!([value + 10]));
                edit(&Act::WriteBack(*name, patch))
            }
            Act::WriteBack(name, patch) if patch.fields.is_empty() => {
                (place(Layer::Patch, *name), Edit::Remove)
            }
            Act::WriteBack(name, patch) => (
                place(Layer::Patch, *name),
                Edit::Put(
                    print,
                    FileContent::Patch(reference(*name).into(), patch.clone()),
                ),
            ),
        }
    }

    /// The state of every object, from the start or as listeners were told.
    fn seen(store: &DirectoryStore) -> BTreeMap<u8, SlotState> {
        (0..4)
            .map(|name| (name, store.seen(&reference(name))))
            .collect()
    }

    #[test]
    fn objects_from_the_same_files_share_the_file_names() {
        let mut store = DirectoryStore::new("local", RandomState::new());
        let acts = [
            Act::Objects(0, vec![(0, 0), (1, 0)]),
            Act::Objects(1, vec![(0, 0), (1, 0)]),
        ];
        store.change(acts.iter().map(edit));
        match (store.seen(&reference(0)), store.seen(&reference(1))) {
            (SlotState::Duplicate(one), SlotState::Duplicate(other)) => {
                assert!(Arc::ptr_eq(&one, &other));
            }
            seen => panic!("{seen:?}"),
        }
    }

    /// Has the files of patches follow what users changed.
    fn write_back(store: &mut DirectoryStore, done: &mut Vec<Act>) {
        for object in store.rebased.clone() {
            let patch = store.outdated_by(&object).unwrap();
            let act = Act::WriteBack(object.name.as_bytes()[1] - b'0', patch);
            assert_eq!(store.change([edit(&act)]), [], "the object is as it was");
            done.push(act);
        }
        assert!(store.rebased.is_empty());
    }

    /// A store with all acts as one change.
    fn at_once(key: &RandomState, acts: &[Act]) -> DirectoryStore {
        let mut fresh = DirectoryStore::new("local", key.clone());
        let mut last: BTreeMap<FilePlace, &Act> = BTreeMap::new();
        for act in acts.iter().filter(|act| !matches!(act, Act::Break(_))) {
            last.insert(edit(act).0, act);
        }
        fresh.change(last.values().map(|act| edit(act)));
        fresh
    }

    proptest! {
        /// For any order of changes: no object of a user is gone before it is let go, and then the state equals that of
        /// the files.
        #[test]
        fn what_leaves_stays_until_it_is_let_go(acts in proptest::collection::vec(act(), 0..24), batch in 1..4usize) {
            let mut store = DirectoryStore::new("local", RandomState::new());
            let (now, mut done) = (Instant::now(), Vec::new());
            for acts in acts.chunks(batch) {
                let made = |name| store.slot(&reference(name)).is_some_and(|slot| slot.made.is_some());
                let was_made: Vec<bool> = (0..4).map(made).collect();
                let before = seen(&store);
                store.change_at(acts.iter().map(edit), Some(now));
                for (name, now) in seen(&store) {
                    let users = !was_made[usize::from(name)] && before[&name] != SlotState::Absent;
                    prop_assert!(!(users && now == SlotState::Absent), "o{name} is gone");
                }
                done.extend_from_slice(acts);
                write_back(&mut store, &mut done);
            }
            let all = store.leaving(|_| true);
            for news in store.let_go(&all) {
                prop_assert!(!matches!(&news, DirectoryNews::Object(object) if !all.contains(object)));
            }
            prop_assert!(store.leaving(|_| true).is_empty());
            write_back(&mut store, &mut done);
            prop_assert_eq!(seen(&store), seen(&at_once(&store.key, &done)));
        }

        /// For any order of changes: the state equals that of the files, a listener knows all of it, and no event was
        /// superfluous.
        #[test]
        fn the_state_depends_on_the_files_only(acts in proptest::collection::vec(act(), 0..24), batch in 1..4usize) {
            let mut store = DirectoryStore::new("local", RandomState::new());
            let mut told = seen(&store);
            let (mut unreadable, mut done) = (BTreeMap::new(), Vec::new());
            for acts in acts.chunks(batch) {
                for news in store.change(acts.iter().map(edit)) {
                    match news {
                        DirectoryNews::Object(object) => {
                            let name = object.name.as_bytes()[1] - b'0';
                            let now = store.seen(&object);
                            prop_assert!(told.insert(name, now.clone()) != Some(now), "told in vain");
                        }
                        DirectoryNews::Unreadable(one) => drop(unreadable.insert(one.place.clone(), *one)),
                        DirectoryNews::Readable(place) | DirectoryNews::FileReadable(place) => prop_assert!(unreadable.remove(&place).is_some(), "told in vain"),
                    }
                }
                for (name, now) in seen(&store) {
                    if matches!(now, SlotState::Duplicate(_)) {
                        // An event reports this.
                        told.insert(name, now);
                    }
                }
                prop_assert_eq!(&told, &seen(&store));
                let mut now = store.unreadable();
                now.sort_by(|one, other| one.place.cmp(&other.place));
                prop_assert_eq!(unreadable.values().cloned().collect::<Vec<_>>(), now);
                done.extend_from_slice(acts);
                write_back(&mut store, &mut done);
            }
            prop_assert_eq!(seen(&store), seen(&at_once(&store.key, &done)));
        }
    }
}
