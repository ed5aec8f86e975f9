//! Reads files into the state: all files at the start, later those that changed. Several threads share the work.
//! Reads no file whose stamp proves that it is unchanged, and does not parse the same bytes twice.

use super::SharedDirectory;
use super::change::{DirectoryNews, Edit, FileContent, Print};
use super::manifest::{self, FileFault};
use super::names::object_file;
use super::patch::Patch;
use super::slot::MadeObject;
use super::tree::{FilePlace, FileStamp, Layer, WalkStep, gone};
use super::words::Words;
use crate::parallel::in_batches;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs::{File, Metadata};
use std::hash::BuildHasher as _;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use transom_core::reference::ObjectRef;

/// Start of the first line of a whole object's file, if the object was laid over a user's object.
const OVER: &str = "# made of the user's object ";
/// Files that a thread reads at a time; for fewer, another thread is not worth starting.
const SHARE: usize = 16;

/// Files of more bytes than this are parsed one at a time.
const LARGE: usize = 256 << 10;

/// The callbacks of a scan.
pub(super) struct Scan<'a> {
    /// Called for every folder before it is listed.
    pub(super) folder: &'a mut dyn FnMut(&Path) -> io::Result<()>,
    /// Whether to leave a file for later, because it is being written.
    pub(super) later: &'a dyn Fn(&FilePlace) -> bool,
}

/// The result of a scan.
#[derive(Default)]
pub(super) struct Scanned {
    /// Files that changed, are new or are gone.
    pub(super) files: BTreeSet<FilePlace>,
    /// Those of `files` that changed so recently that they may be half written.
    pub(super) fresh: Vec<FilePlace>,
    /// The news that listeners got already.
    pub(super) news: Vec<DirectoryNews>,
}

impl Scanned {
    /// Adds the result of another scan.
    pub(super) fn add(&mut self, other: Self) {
        self.files.extend(other.files);
        self.fresh.extend(other.fresh);
        self.news.extend(other.news);
    }
}

/// Finds the files at or below a folder that are new, changed or gone. `folder` is `None` for all layers.
pub(super) fn scan(
    shared: &SharedDirectory,
    folder: Option<&FilePlace>,
    scan: Scan<'_>,
) -> Scanned {
    let tree = shared.tree();
    let mut found = BTreeMap::new();
    let mut closed = Vec::new();
    let mut each = |step: WalkStep<'_>| match step {
        WalkStep::Folder(path) => {
            if let (Err(error), Some(place)) = ((scan.folder)(path), tree.place(path)) {
                closed.push((place, error));
            }
        }
        WalkStep::File(place, stamp) => drop(found.insert(place, stamp)),
        WalkStep::Closed(place, error) => closed.push((place, error)),
    };
    match folder {
        Some(folder) => tree.walk(folder, &mut each),
        None => tree.walk_all(&mut each),
    }
    let mut files = changed(shared, folder, &found, &closed);
    files.retain(|place| !(scan.later)(place));
    let fresh = files
        .iter()
        .filter(|place| found.get(place) == Some(&None))
        .cloned()
        .collect();
    Scanned {
        files,
        fresh,
        news: shared.refuse_folders(folder, closed),
    }
}

/// The files whose stamp is not the known one, and the known files that are gone from the folders that could be listed.
fn changed(
    shared: &SharedDirectory,
    folder: Option<&FilePlace>,
    found: &BTreeMap<FilePlace, Option<FileStamp>>,
    closed: &[(FilePlace, io::Error)],
) -> BTreeSet<FilePlace> {
    let store = shared.store();
    let unseen = |place: &FilePlace| {
        closed
            .iter()
            .any(|(closed, _)| closed.layer == place.layer && place.path.starts_with(&closed.path))
    };
    let folders = folder.map_or_else(FilePlace::roots, |folder| vec![folder.clone()]);
    let known = folders.iter().flat_map(|folder| store.below(folder));
    let mut changed: BTreeSet<FilePlace> = known
        .filter(|place| !found.contains_key(place) && !unseen(place))
        .cloned()
        .collect();
    changed.extend(found.iter().filter_map(|(place, stamp)| {
        let known = store.print(place).and_then(|print| print.stamp);
        (stamp.is_none() || *stamp != known).then(|| place.clone())
    }));
    changed
}

/// Reads files again and applies their content as one change.
pub(super) fn refresh(shared: &SharedDirectory, places: BTreeSet<FilePlace>) -> Vec<DirectoryNews> {
    take_over(shared, read_files(shared, places))
}

/// Reads files again, in batches on several threads. Applies the agent's own files at once: they are never half
/// written, and no object moves between them.
pub(super) fn read_files(
    shared: &SharedDirectory,
    places: BTreeSet<FilePlace>,
) -> Vec<(FilePlace, Edit)> {
    let Ok(edits) = in_batches(SHARE, places.into_iter(), |places| {
        let mut edits = Vec::with_capacity(places.len());
        for place in places {
            if place.layer == Layer::User {
                let edit = read(shared, &place);
                edits.push((place, edit));
            } else {
                // The agent does not write the file meanwhile.
                let _writing = shared.stripe(&place.path);
                let edit = read(shared, &place);
                take_over(shared, [(place, edit)]);
            }
        }
        Ok::<_, Infallible>(edits)
    });
    edits.into_iter().flatten().collect()
}

/// Applies edits of files to the state and notifies the listeners.
pub(super) fn take_over(
    shared: &SharedDirectory,
    edits: impl IntoIterator<Item = (FilePlace, Edit)>,
) -> Vec<DirectoryNews> {
    take_over_at(shared, edits, None)
}

/// The same. With a time, objects that no user's file has any more are leaving since then, and not gone.
pub(super) fn take_over_at(
    shared: &SharedDirectory,
    edits: impl IntoIterator<Item = (FilePlace, Edit)>,
    keep: Option<Instant>,
) -> Vec<DirectoryNews> {
    let mut store = shared.store_mut();
    let news = store.change_at(edits, keep);
    shared.tell(&store, &news);
    news
}

/// Objects that are leaving are gone now.
pub(super) fn let_go(
    shared: &SharedDirectory,
    objects: &BTreeSet<Arc<ObjectRef>>,
) -> Vec<DirectoryNews> {
    let mut store = shared.store_mut();
    let news = store.let_go(objects);
    shared.tell(&store, &news);
    news
}

/// Removes a file from a directory in memory.
pub(super) fn take_away(shared: &SharedDirectory, place: FilePlace) {
    take_over(shared, [(place, Edit::Remove)]);
}

/// Sets the bytes of a file of a directory in memory.
pub(super) fn take_bytes(shared: &SharedDirectory, place: FilePlace, bytes: &[u8]) {
    let print = Print {
        bytes: 0,
        stamp: None,
    };
    let edit = edit(shared, &place, print, bytes);
    take_over(shared, [(place, edit)]);
}

/// Reads one file, and parses it unless its bytes are the known ones.
fn read(shared: &SharedDirectory, place: &FilePlace) -> Edit {
    let mut read = open(shared, place);
    if place.layer == Layer::User && read.as_ref().is_err_and(gone) {
        if !shared.tree().is_there() {
            return Edit::Keep;
        }
        // The file may only have been missing because the whole root was away for a moment.
        read = open(shared, place);
    }
    let (bytes, stamp) = match read {
        Ok(Some(read)) => read,
        Ok(None) => return Edit::Remove,
        Err(error) if gone(&error) => return Edit::Remove,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            let limit = shared.limits.file_bytes;
            return Edit::Refuse(
                None,
                FileFault::invalid(format!("the file has more than {limit} bytes")),
                Words::default(),
            );
        }
        Err(error) => return Edit::Refuse(None, FileFault::unread(&error), Words::default()),
    };
    let print = Print {
        bytes: shared.key.hash_one(bytes.as_slice()),
        stamp,
    };
    if shared
        .store()
        .print(place)
        .is_some_and(|known| known.bytes == print.bytes)
    {
        return Edit::Same(stamp);
    }
    // Only one large file is parsed at a time, to bound the memory that this takes.
    let _alone = (bytes.len() > LARGE).then(|| shared.large());
    edit(shared, place, print, &bytes)
}

/// The edit that these bytes are.
fn edit(shared: &SharedDirectory, place: &FilePlace, print: Print, bytes: &[u8]) -> Edit {
    match content(shared, place, bytes) {
        Ok(content) => Edit::Put(print, content),
        Err(fault) => Edit::Refuse(Some(print), fault, Words::of(bytes, &shared.key)),
    }
}

/// The bytes of a file that counts, and its stamp from before they were read; `None` for other files.
fn open(
    shared: &SharedDirectory,
    place: &FilePlace,
) -> io::Result<Option<(Vec<u8>, Option<FileStamp>)>> {
    let Some((file, metadata)) = shared.tree().open(place)? else {
        return Ok(None);
    };
    let bytes = read_whole(file, &metadata, shared.limits.file_bytes)?;
    Ok(Some((bytes, FileStamp::of(&metadata))))
}

/// The bytes of a file; an error if there are more than `limit`.
pub(super) fn read_whole(file: File, metadata: &Metadata, limit: u64) -> io::Result<Vec<u8>> {
    if metadata.len() > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > limit) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Parses the bytes of a file. An own file that is not as the agent writes it has no content, so it is made again.
fn content(
    shared: &SharedDirectory,
    place: &FilePlace,
    bytes: &[u8],
) -> Result<FileContent, FileFault> {
    match place.layer {
        Layer::User => {
            manifest::objects(bytes, &shared.name, shared.limits).map(FileContent::Objects)
        }
        Layer::Made => Ok(made(shared, place, bytes).unwrap_or(FileContent::Nothing)),
        Layer::Patch => Ok(patch(shared, place, bytes).unwrap_or(FileContent::Nothing)),
    }
}

/// The object in a file of the agent.
fn made(shared: &SharedDirectory, place: &FilePlace, bytes: &[u8]) -> Option<FileContent> {
    let mut found = manifest::objects(bytes, &shared.name, shared.limits).ok()?;
    let one = found
        .pop()
        .filter(|one| found.is_empty() && *object_file(&one.reference) == *place.path)?;
    let first = std::str::from_utf8(bytes).ok()?.lines().next()?;
    let over = first.strip_prefix(OVER).map(|digest| digest.trim().into());
    Some(FileContent::Made(
        one.reference,
        MadeObject {
            text: one.text,
            weight: one.weight,
            over,
        },
    ))
}

/// The text of a file of the agent.
pub(super) fn made_file(made: &MadeObject, yaml: &str) -> String {
    match &made.over {
        Some(over) => format!("{OVER}{over}\n{yaml}"),
        None => yaml.to_owned(),
    }
}

/// The fields in a file of the agent; `None` if one byte differs from what was written.
fn patch(shared: &SharedDirectory, place: &FilePlace, bytes: &[u8]) -> Option<FileContent> {
    Patch::is_whole(bytes).then_some(())?;
    let document = manifest::document(bytes, shared.limits)?;
    let reference = manifest::reference(&document, &shared.name)?;
    (*object_file(&reference) == *place.path).then_some(())?;
    Some(FileContent::Patch(
        reference.into(),
        Patch::from_document(&document)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::names::digest;
    use super::super::tree::Tree;
    use super::super::{SizeLimits, apply};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn written_files_read_back_equal(
            data in proptest::collection::btree_map(".{0,12}", "(?s).{0,40}|yes|012|1_000|<<|2001-01-01|~|-", 0..6),
            over in proptest::option::of("[a-z]{4}"),
        ) {
            let shared = SharedDirectory::new("local".to_owned(), Tree { given: "".into(), root: "".into(), own: None }, SizeLimits::default(), None);
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
            let over = over.map(|over| digest(over.as_bytes()).into());
            let made = MadeObject { text: body.to_string().into(), weight: 0, over };
            let place = FilePlace::new(Layer::Made, Path::new("_cluster/ConfigMap.a.yaml"));
            let text = made_file(&made, &apply::object_text(&body));
            match content(&shared, &place, text.as_bytes()) {
                Ok(FileContent::Made(_, read)) => prop_assert_eq!((read.text, read.over), (made.text, made.over)),
                _ => prop_assert!(false, "not read: {}", text),
            }
        }
    }
}
