//! The whole state in memory: what every file holds, and what is seen of every object. Compact text, parsed on demand.
//! Never touches a file; a change tells what looks different after it, and nothing else.

use super::manifest::{Fault, Found};
use super::patch::Patch;
use super::slot::{Effective, Made, Seen, Slot, Source};
use super::tree::{Layer, Place, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::path::Path;
use std::sync::Arc;
use transom_api::Word;
use transom_core::observation::Unreadable;
use transom_core::reference::ObjectRef;

/// Something to tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum News {
    /// The object looks different, or is gone.
    Object(Arc<ObjectRef>),
    /// Something cannot be read.
    Unreadable(Unreadable),
    /// What could not be read can be, or is gone.
    Readable(String),
}

/// What a file was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print {
    /// Keyed hash of its bytes.
    pub(super) bytes: u64,
    /// What tells that it did not change since.
    pub(super) stamp: Option<Stamp>,
}

/// What a file holds.
pub(super) enum Content {
    /// Objects of a user.
    Objects(Vec<Found>),
    /// An object that we made.
    Made(Box<ObjectRef>, Made),
    /// Fields that we laid over an object.
    Patch(Box<ObjectRef>, Patch),
    /// Nothing of use.
    Nothing,
}

/// What became of a file.
pub(super) enum Edit {
    /// It is gone.
    Remove,
    /// Nothing is known about it now.
    Keep,
    /// It has the same bytes.
    Same(Option<Stamp>),
    /// It holds this now.
    Put(Print, Content),
    /// It cannot be used; what it held last stays.
    Refuse(Option<Print>, Fault),
}

/// A file that was read.
struct File {
    print: Print,
    objects: Vec<Arc<ObjectRef>>,
}

/// The whole state.
pub(super) struct Store {
    key: RandomState,
    /// Folders that cannot be listed.
    closed: BTreeSet<Place>,
    files: BTreeMap<Place, File>,
    slots: BTreeMap<Arc<ObjectRef>, Slot>,
    problems: BTreeMap<String, Unreadable>,
    duplicates: BTreeMap<Arc<str>, BTreeSet<Arc<ObjectRef>>>,
}

impl Store {
    /// With nothing in it; `key` is that of the versions.
    pub(super) fn new(key: RandomState) -> Self {
        Self {
            key,
            closed: BTreeSet::new(),
            files: BTreeMap::new(),
            slots: BTreeMap::new(),
            problems: BTreeMap::new(),
            duplicates: BTreeMap::new(),
        }
    }

    /// What a file was when it was read.
    pub(super) fn print(&self, place: &Place) -> Option<Print> {
        self.files.get(place).map(|file| file.print)
    }

    /// The known files at a path or below it.
    pub(super) fn below(&self, folder: &Place) -> Vec<Place> {
        let inside = |place: &&Place| place.layer == folder.layer && place.path.starts_with(&folder.path);
        self.files.range(folder.clone()..).map(|(place, _)| place).take_while(inside).cloned().collect()
    }

    /// Every object that is seen or cannot be.
    pub(super) fn references(&self) -> impl Iterator<Item = &Arc<ObjectRef>> {
        self.slots.iter().filter(|(_, slot)| slot.seen != Seen::Absent).map(|(reference, _)| reference)
    }

    /// Every object of a kind that is seen.
    pub(super) fn of_kind(&self, first: ObjectRef) -> impl Iterator<Item = &ObjectRef> {
        let kind = (first.cluster.clone(), first.api_version.clone(), first.kind.clone());
        self.slots
            .range(Arc::new(first)..)
            .take_while(move |(at, _)| at.cluster == kind.0 && at.api_version == kind.1 && at.kind == kind.2)
            .filter(|(_, slot)| matches!(slot.seen, Seen::Value(_)))
            .map(|(reference, _)| reference.as_ref())
    }

    /// Everything that cannot be read.
    pub(super) fn unreadable(&self) -> Vec<Unreadable> {
        let duplicates = self.duplicates.iter().map(|(files, objects)| duplicate(files, objects));
        self.problems.values().cloned().chain(duplicates).collect()
    }

    /// The slot of an object.
    pub(super) fn slot(&self, reference: &ObjectRef) -> Option<&Slot> {
        self.slots.get(reference)
    }

    /// What is seen of an object.
    pub(super) fn seen(&self, reference: &ObjectRef) -> Seen {
        self.slots.get(reference).map(|slot| slot.seen.clone()).unwrap_or_default()
    }

    /// Where the value of an object comes from.
    pub(super) fn effective(&self, reference: &ObjectRef) -> Effective {
        self.slots.get(reference).map_or(Effective::Absent, Slot::effective)
    }

    /// Takes over what became of several files as one change: an object that moved between them is not gone.
    pub(super) fn change(&mut self, edits: impl IntoIterator<Item = (Place, Edit)>) -> Vec<News> {
        let mut news = Vec::new();
        let mut touched = BTreeSet::new();
        for (place, edit) in edits {
            match edit {
                Edit::Keep => {}
                Edit::Same(stamp) => {
                    if let Some(file) = self.files.get_mut(&place) {
                        file.print.stamp = stamp;
                    }
                }
                Edit::Refuse(print, fault) => news.extend(self.refuse(&place, print, fault)),
                Edit::Remove => {
                    touched.extend(self.take_out(&place));
                    news.extend(self.mended(&place.to_string()));
                }
                Edit::Put(print, content) => {
                    touched.extend(self.take_out(&place));
                    touched.extend(self.put(&place, print, content));
                    news.extend(self.mended(&place.to_string()));
                }
            }
        }
        news.extend(self.settle(touched));
        news
    }

    /// Puts into the slots what a file holds.
    fn put(&mut self, place: &Place, print: Print, content: Content) -> Vec<Arc<ObjectRef>> {
        let mut objects = Vec::new();
        match content {
            Content::Objects(found) => {
                objects.reserve_exact(found.len());
                for found in found {
                    let (reference, slot) = self.entry(found.reference);
                    slot.users.push(Source { file: Arc::clone(&place.path), text: found.text });
                    objects.push(reference);
                }
            }
            Content::Made(reference, made) => {
                let (reference, slot) = self.entry(*reference);
                slot.made = Some(Box::new(made));
                objects.push(reference);
            }
            Content::Patch(reference, patch) => {
                let (reference, slot) = self.entry(*reference);
                slot.patch = Some(Arc::new(patch));
                objects.push(reference);
            }
            Content::Nothing => {}
        }
        self.files.insert(place.clone(), File { print, objects: objects.clone() });
        objects
    }

    /// Notes why a file cannot be used; what it held last stays.
    fn refuse(&mut self, place: &Place, print: Option<Print>, fault: Fault) -> Option<News> {
        if let Some(print) = print {
            self.files.entry(place.clone()).or_insert(File { print, objects: Vec::new() }).print = print;
        }
        let Fault { reason, message, objects } = fault;
        let place = place.to_string();
        let problem = Unreadable { message: format!("{place}: {message}"), place: place.clone(), reason, objects };
        if self.problems.get(&place) == Some(&problem) {
            return None;
        }
        self.problems.insert(place, problem.clone());
        Some(News::Unreadable(problem))
    }

    /// The folders at or below one, or all, that could not be listed.
    pub(super) fn closed_folders(&self, scanned: Option<&Place>) -> Vec<Place> {
        let inside =
            |folder: &&Place| scanned.is_none_or(|at| at.layer == folder.layer && folder.path.starts_with(&at.path));
        self.closed.iter().filter(inside).cloned().collect()
    }

    /// Notes that a folder cannot be listed; what is known of its files stays.
    pub(super) fn close(&mut self, folder: &Place, fault: Fault) -> Option<News> {
        self.closed.insert(folder.clone());
        self.refuse(folder, None, fault)
    }

    /// Notes that a folder can be listed again, or is gone.
    pub(super) fn reopened(&mut self, folder: &Place) -> Option<News> {
        self.closed.remove(folder);
        self.mended(&folder.to_string())
    }

    /// What is told when a place has no fault any more.
    fn mended(&mut self, place: &str) -> Option<News> {
        self.problems.remove(place).map(|problem| News::Readable(problem.place))
    }

    /// The slot of an object, made when there is none.
    fn entry(&mut self, reference: ObjectRef) -> (Arc<ObjectRef>, &mut Slot) {
        let reference = match self.slots.get_key_value(&reference) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(reference),
        };
        (Arc::clone(&reference), self.slots.entry(reference).or_default())
    }

    /// Takes out of the slots what a file put into them.
    fn take_out(&mut self, place: &Place) -> Vec<Arc<ObjectRef>> {
        let Some(file) = self.files.remove(place) else { return Vec::new() };
        for reference in &file.objects {
            let Some(slot) = self.slots.get_mut(reference) else { continue };
            match place.layer {
                Layer::User => slot.users.retain(|user| *user.file != *place.path),
                Layer::Made => slot.made = None,
                Layer::Patch => slot.patch = None,
            }
        }
        file.objects
    }

    /// Looks again at what was touched, and tells what looks different.
    fn settle(&mut self, touched: BTreeSet<Arc<ObjectRef>>) -> Vec<News> {
        let mut news = Vec::new();
        let mut groups = BTreeSet::new();
        for reference in touched {
            let Some(slot) = self.slots.get_mut(&reference) else { continue };
            let now = slot.effective().seen(&self.key);
            let before = std::mem::replace(&mut slot.seen, now.clone());
            if slot.is_empty() {
                self.slots.remove(&reference);
            }
            if now == before {
                continue;
            }
            if let Seen::Duplicate(files) = &before {
                self.duplicates.entry(Arc::clone(files)).or_default().remove(&reference);
                groups.insert(Arc::clone(files));
            }
            match now {
                Seen::Duplicate(files) => {
                    self.duplicates.entry(Arc::clone(&files)).or_default().insert(reference);
                    groups.insert(files);
                }
                _ => news.push(News::Object(reference)),
            }
        }
        news.extend(groups.into_iter().map(|files| self.group(files)));
        news
    }

    /// What is told about the objects that stand in the same several files.
    fn group(&mut self, files: Arc<str>) -> News {
        match self.duplicates.get(&files) {
            Some(objects) if !objects.is_empty() => News::Unreadable(duplicate(&files, objects)),
            _ => {
                self.duplicates.remove(&files);
                News::Readable(files.to_string())
            }
        }
    }

    /// The object that a file of ours holds.
    pub(super) fn holder(&self, place: &Place) -> Option<&ObjectRef> {
        self.files.get(place)?.objects.first().map(AsRef::as_ref)
    }

    /// The file of a user that holds an object, for messages.
    pub(super) fn users_file(&self, reference: &ObjectRef) -> Option<&Path> {
        self.slots.get(reference)?.users.first().map(|user| user.file.as_ref())
    }
}

/// Objects that stand in several files.
fn duplicate(files: &Arc<str>, objects: &BTreeSet<Arc<ObjectRef>>) -> Unreadable {
    let shown: Vec<String> = objects.iter().take(3).map(ToString::to_string).collect();
    let more = objects.len().saturating_sub(shown.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Unreadable {
        place: files.to_string(),
        reason: Word::DuplicateObject,
        message: format!("{}{more}: more than once in {files}", shown.join(", ")),
        objects: objects.iter().map(|object| object.as_ref().clone()).collect(),
    }
}
