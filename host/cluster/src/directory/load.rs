//! Reads files into the state: all of them at the start, later those that changed. Work is shared by the cores.
//! Never reads the bytes of a file whose stamp says that it did not change, never parses equal bytes twice.

use super::Shared;
use super::manifest::{self, Fault};
use super::own::object_file;
use super::patch::Patch;
use super::slot::Made;
use super::store::{Content, News, Print};
use super::tree::{Layer, Place, Stamp, Step, gone};
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::BuildHasher as _;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// First line of a file of a whole object that was laid over one of a user.
const OVER: &str = "# made of the user's object ";
/// Files per thread below which another thread is not worth its start.
const SHARE: usize = 16;

/// What became of reading a file.
enum Reading {
    Gone,
    Same(Option<Stamp>),
    Content(Print, Content),
    Fault(Option<Print>, Fault),
}

/// Reads everything that a walk finds at or below a folder and that changed, and forgets what is gone.
/// `folder` is nothing for all layers; `each_folder` is called before a folder is listed.
pub(super) fn scan(
    shared: &Shared,
    folder: Option<&Place>,
    each_folder: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> Vec<News> {
    let mut found = BTreeMap::new();
    let mut closed = Vec::new();
    let mut each = |step: Step<'_>| match step {
        Step::Folder(path) => {
            if let (Err(error), Some(place)) = (each_folder(path), shared.tree.place(path)) {
                closed.push((place, error));
            }
        }
        Step::File(place, stamp) => drop(found.insert(place, stamp)),
        Step::Closed(place, error) => closed.push((place, error)),
    };
    match folder {
        Some(folder) => shared.tree.walk(folder, &mut each),
        None => shared.tree.walk_all(&mut each),
    }
    let mut news = Vec::new();
    let mut changed = Vec::new();
    {
        let store = shared.store();
        let folders = folder.map_or_else(Place::roots, |folder| vec![folder.clone()]);
        for place in folders.iter().flat_map(|folder| store.below(folder)) {
            let kept =
                closed.iter().any(|(closed, _)| closed.layer == place.layer && place.path.starts_with(&closed.path));
            if !kept && !found.contains_key(&place) {
                changed.push(place);
            }
        }
        for (place, stamp) in found {
            let known = store.print(&place).and_then(|print| print.stamp);
            if stamp.is_none() || stamp != known {
                changed.push(place);
            }
        }
    }
    news.extend(shared.refuse_folders(folder, closed));
    news.extend(refresh(shared, &changed));
    news
}

/// Reads files again, on as many threads as it is worth.
pub(super) fn refresh(shared: &Shared, places: &[Place]) -> Vec<News> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(places.len().div_ceil(SHARE)).max(1);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut news = Vec::new();
        while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
            news.extend(refresh_one(shared, place));
        }
        news
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut news = work();
        for other in others {
            news.extend(other.join().unwrap_or_default());
        }
        news
    })
}

/// Reads one file again and takes what it holds now.
fn refresh_one(shared: &Shared, place: &Place) -> Vec<News> {
    // A file of ours is not read while we write it.
    let _writing = (place.layer != Layer::User).then(|| shared.stripe(&place.path));
    let known = shared.store().print(place);
    let reading = read(shared, place, known);
    let mut store = shared.store_mut();
    let news = match reading {
        Reading::Gone => store.remove(place),
        Reading::Same(stamp) => {
            store.seen_again(place, stamp);
            Vec::new()
        }
        Reading::Content(print, content) => store.put(place, print, content),
        Reading::Fault(print, fault) => store.refuse(place, print, fault),
    };
    shared.tell(&store, &news);
    news
}

/// Takes bytes as those of a file of a user.
pub(super) fn take_bytes(shared: &Shared, place: &Place, bytes: &[u8]) {
    let print = Print { bytes: 0, stamp: None };
    let content = content(shared, place, bytes);
    let mut store = shared.store_mut();
    match content {
        Ok(content) => store.put(place, print, content),
        Err(fault) => store.refuse(place, Some(print), fault),
    };
}

/// Reads one file, unless its bytes are the known ones.
fn read(shared: &Shared, place: &Place, known: Option<Print>) -> Reading {
    if shared.tree.file(place).is_none() {
        return Reading::Gone;
    }
    let (bytes, stamp) = match bytes(&shared.tree.path(place), shared.limits.file_bytes) {
        Ok(read) => read,
        Err(error) if gone(&error) => return Reading::Gone,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            let limit = shared.limits.file_bytes;
            return Reading::Fault(None, Fault::invalid(format!("the file has more than {limit} bytes")));
        }
        Err(error) => return Reading::Fault(None, Fault::unread(&error)),
    };
    let print = Print { bytes: shared.key.hash_one(bytes.as_slice()), stamp };
    if known.is_some_and(|known| known.bytes == print.bytes) {
        return Reading::Same(stamp);
    }
    match content(shared, place, &bytes) {
        Ok(content) => Reading::Content(print, content),
        Err(fault) => Reading::Fault(Some(print), fault),
    }
}

/// The bytes of a file, and its stamp from before they were read.
fn bytes(path: &Path, limit: u64) -> io::Result<(Vec<u8>, Option<Stamp>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(limit)).unwrap_or_default());
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > limit) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok((bytes, Stamp::of(&metadata)))
}

/// What the bytes of a file hold. A file of ours that is not as we write it holds nothing: it is made again.
fn content(shared: &Shared, place: &Place, bytes: &[u8]) -> Result<Content, Fault> {
    match place.layer {
        Layer::User => {
            manifest::objects(&place.path, bytes, &shared.name, shared.limits.object_bytes).map(Content::Objects)
        }
        Layer::Made => Ok(made(shared, place, bytes).unwrap_or(Content::Nothing)),
        Layer::Patch => Ok(patch(shared, place, bytes).unwrap_or(Content::Nothing)),
    }
}

/// The object in a file of ours.
fn made(shared: &Shared, place: &Place, bytes: &[u8]) -> Option<Content> {
    let mut found = manifest::objects(&place.path, bytes, &shared.name, shared.limits.object_bytes).ok()?;
    let one = found.pop().filter(|one| found.is_empty() && *object_file(&one.reference) == *place.path)?;
    let first = std::str::from_utf8(bytes).ok()?.lines().next()?;
    let over = first.strip_prefix(OVER).map(|digest| digest.trim().into());
    Some(Content::Made(Box::new(one.reference), Made { text: one.text, over }))
}

/// The text of a file of ours.
pub(super) fn made_file(made: &Made, yaml: &str) -> String {
    match &made.over {
        Some(over) => format!("{OVER}{over}\n{yaml}"),
        None => yaml.to_owned(),
    }
}

/// The fields in a file of ours.
fn patch(shared: &Shared, place: &Place, bytes: &[u8]) -> Option<Content> {
    let mut documents = Vec::new();
    manifest::documents(&place.path, bytes, &mut |_, document| {
        documents.push(document);
        Ok(())
    })
    .ok()?;
    let document = documents.pop().filter(|_| documents.is_empty())?;
    let reference = manifest::reference(&document, &shared.name)?;
    (*object_file(&reference) == *place.path).then_some(())?;
    Some(Content::Patch(Box::new(reference), Patch::from_document(&document)?))
}
