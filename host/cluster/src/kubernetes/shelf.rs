//! The objects of one watch, merged from lists, events and our own writes. Never goes back to an older version.

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

/// One object on the shelf.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// Its version.
    pub(super) version: Box<str>,
    /// What is kept of it.
    pub(super) content: Content,
    /// Whether it carries the label of what we make.
    pub(super) ours: bool,
    /// The list that saw it last.
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
    /// What we deleted, with its last version: until the watch is past it, older news of it are stale.
    deleted: BTreeMap<Key, Box<str>>,
    /// Where the stream was last.
    position: Box<str>,
    round: u32,
}

impl Shelf {
    /// Takes an object from an event or a write.
    pub(super) fn put(&mut self, item: Item) -> Change {
        let Item { key, version, content, ours } = item;
        if self.deleted.get(&key).is_some_and(|last| !newer(&version, last)) {
            return Change::None;
        }
        self.deleted.remove(&key);
        let round = self.round;
        match self.objects.get_mut(&key) {
            Some(kept) if newer(&kept.version, &version) => {
                kept.round = round;
                Change::None
            }
            Some(kept) => {
                let change = if kept.content == content { Change::None } else { Change::Changed };
                *kept = Kept { version, content, ours, round };
                change
            }
            None => {
                self.objects.insert(key, Kept { version, content, ours, round });
                Change::Changed
            }
        }
    }

    /// An object was deleted; `version` is that of the deletion. One that was made again since stays.
    pub(super) fn remove(&mut self, key: &str, version: &str) -> Change {
        match self.objects.get(key) {
            Some(kept) if !newer(&kept.version, version) => {
                self.objects.remove(key);
                Change::Gone
            }
            _ => Change::None,
        }
    }

    /// We deleted an object that had this version.
    pub(super) fn deleted(&mut self, key: &str, version: &str) -> Change {
        self.deleted.insert(key.into(), version.into());
        self.remove(key, version)
    }

    /// A list begins: what it does not name will be gone at its end.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// A list ended at a version. Gives what is gone: everything that it did not name and that is not newer than it.
    pub(super) fn end(&mut self, version: &str) -> Vec<(Key, Kept)> {
        let round = self.round;
        let stale = |_: &Key, kept: &mut Kept| kept.round != round && !newer(&kept.version, version);
        let gone = self.objects.extract_if(.., stale).collect();
        self.moved(version);
        gone
    }

    /// The stream came to a version.
    pub(super) fn moved(&mut self, version: &str) {
        self.position = version.into();
        self.deleted.retain(|_, last| newer(last, version));
    }

    /// Whether a version lies before what the stream told already: the server was restored from a backup.
    pub(super) fn went_back(&self, version: &str) -> bool {
        newer(&self.position, version)
    }

    /// Forgets all versions, because the server counts from a lower number than before; the next list is all there is.
    pub(super) fn restored(&mut self) {
        self.deleted.clear();
        self.position = Box::default();
        for kept in self.objects.values_mut() {
            kept.version = Box::default();
        }
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

    #[test]
    fn the_latest_version_stays_and_only_content_is_a_change() {
        let mut shelf = Shelf::default();
        assert_eq!(shelf.put(item("a", 5, "x")), Change::Changed);
        assert_eq!(shelf.put(item("a", 9, "x")), Change::None);
        assert_eq!(shelf.put(item("a", 7, "old")), Change::None);
        assert_eq!(shelf.put(item("a", 10, "y")), Change::Changed);
        assert_eq!(&*shelf.get("n/a").unwrap().version, "10");
        assert_eq!(shelf.remove("n/a", "9"), Change::None);
        assert_eq!(shelf.remove("n/a", "11"), Change::Gone);
        assert_eq!(shelf.remove("n/a", "11"), Change::None);
    }

    #[test]
    fn what_a_list_does_not_name_is_gone_unless_it_is_newer() {
        let mut shelf = Shelf::default();
        shelf.put(item("stays", 3, "x"));
        shelf.put(item("gone", 4, "x"));
        shelf.put(item("written", 12, "x"));
        shelf.begin();
        assert_eq!(shelf.put(item("stays", 3, "x")), Change::None);
        assert_eq!(shelf.put(item("new", 8, "x")), Change::Changed);
        assert!(shelf.get("n/gone").is_some());
        assert_eq!(names(&shelf.end("10")), ["gone"]);
        assert_eq!(shelf.len(), 3);
    }

    #[test]
    fn what_we_deleted_does_not_come_back_by_older_news() {
        let mut shelf = Shelf::default();
        shelf.begin();
        shelf.put(item("a", 5, "x"));
        shelf.end("6");
        shelf.put(item("a", 8, "ours"));
        assert_eq!(shelf.deleted("n/a", "8"), Change::Gone);
        assert_eq!(shelf.put(item("a", 7, "late")), Change::None);
        assert_eq!(shelf.put(item("a", 8, "late")), Change::None);
        assert_eq!(shelf.remove("n/a", "9"), Change::None);
        assert_eq!(shelf.put(item("a", 10, "again")), Change::Changed);
        assert!(shelf.deleted.is_empty());
        shelf.deleted("n/a", "10");
        shelf.moved("9");
        assert_eq!(shelf.deleted.len(), 1);
        shelf.moved("11");
        assert!(shelf.deleted.is_empty());
    }

    #[test]
    fn a_server_restored_from_a_backup_is_believed_again() {
        let mut shelf = Shelf::default();
        shelf.begin();
        shelf.put(item("a", 100, "x"));
        shelf.put(item("b", 101, "x"));
        shelf.end("120");
        assert!(shelf.went_back("50") && !shelf.went_back("120") && !shelf.went_back("121"));
        shelf.restored();
        shelf.begin();
        assert_eq!(shelf.put(item("a", 40, "older")), Change::Changed);
        assert_eq!(names(&shelf.end("50")), ["b"]);
        assert!(!shelf.went_back("51"));
    }

    #[test]
    fn keys_are_listed_by_namespace() {
        let mut shelf = Shelf::default();
        for (namespace, name) in [(Some("a"), "x"), (Some("a"), "y"), (Some("a-b"), "x"), (Some("b"), "x")] {
            shelf.put(Item { key: key(namespace, name), ..item("", 1, "") });
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
