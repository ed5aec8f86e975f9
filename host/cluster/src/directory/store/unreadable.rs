//! What of the state cannot be read: files, folders, and objects that two files define.

use super::{DirectoryStore, File};
use crate::directory::change::{DirectoryNews, Print, duplicate};
use crate::directory::manifest::FileFault;
use crate::directory::tree::FilePlace;
use crate::directory::words::Words;
use std::sync::Arc;
use transom_core::observation::{Unreadable, Unwatched};
use transom_core::reference::ObjectRef;

impl DirectoryStore {
    /// Everything that cannot be read.
    pub(in crate::directory) fn unreadable(&self) -> Vec<Unreadable> {
        let duplicates = self
            .duplicates
            .iter()
            .map(|(files, objects)| duplicate(files, objects));
        self.problems.values().cloned().chain(duplicates).collect()
    }

    /// The first place that cannot be read.
    pub(in crate::directory) fn unread(&self) -> Option<&str> {
        let first = self.problems.values().next();
        first.map(|problem| problem.place.as_str())
    }

    /// A file that cannot be parsed and may hold this object: whether it is there is not known. A file whose last
    /// content is known counts as that.
    pub(in crate::directory) fn hidden_in(&self, object: &ObjectRef) -> Option<&FilePlace> {
        let mut hidden = self.hidden.iter();
        let found = hidden.find(|(_, words)| words.name(object, &self.key));
        found.map(|(place, _)| place)
    }

    /// Keeps the words of a file that cannot be parsed, unless its last content is known.
    pub(in crate::directory) fn name_hidden(&mut self, place: &FilePlace, words: Words) {
        let file = self.files.get(place);
        if file.is_some_and(|file| !file.objects.is_empty()) {
            return;
        }
        // Of a file that cannot be opened any more, the last words count.
        if !words.is_empty() {
            self.hidden.insert(place.clone(), words);
        }
    }

    /// Records why a file cannot be used; its last content stays.
    pub(in crate::directory) fn refuse(
        &mut self,
        place: &FilePlace,
        print: Option<Print>,
        fault: FileFault,
    ) -> Option<DirectoryNews> {
        match print {
            Some(print) => {
                let file = self.files.entry(place.clone()).or_insert(File {
                    print: Some(print),
                    objects: Vec::new(),
                });
                file.print = Some(print);
            }
            // It may be readable again with the content that it had: that is read then, and counts as mended.
            None => drop(self.files.get_mut(place).map(|file| file.print.take())),
        }
        let FileFault {
            reason,
            message,
            objects,
        } = fault;
        let problem = Unreadable {
            message: format!("{place}: {message}"),
            place: place.to_string(),
            reason,
            unwatched: match self.closed.contains(place) {
                true => Unwatched::Connection(self.cluster.to_string()),
                false => Unwatched::Part,
            },
            objects,
        };
        if self.problems.get(place) == Some(&problem) {
            return None;
        }
        self.problems.insert(place.clone(), problem.clone());
        Some(DirectoryNews::Unreadable(Box::new(problem)))
    }

    /// The folders that could not be listed, at or below one folder or everywhere.
    pub(in crate::directory) fn closed_folders(
        &self,
        scanned: Option<&FilePlace>,
    ) -> Vec<FilePlace> {
        let inside = |folder: &&FilePlace| {
            scanned.is_none_or(|at| at.layer == folder.layer && folder.path.starts_with(&at.path))
        };
        self.closed.iter().filter(inside).cloned().collect()
    }

    /// Records that a folder cannot be listed; the known state of its files stays.
    pub(in crate::directory) fn close(
        &mut self,
        folder: &FilePlace,
        fault: FileFault,
    ) -> Option<DirectoryNews> {
        self.closed.insert(folder.clone());
        self.refuse(folder, None, fault)
    }

    /// Records that a folder can be listed again, or is gone.
    pub(in crate::directory) fn reopened(&mut self, folder: &FilePlace) -> Option<DirectoryNews> {
        self.closed.remove(folder);
        self.mended(folder)
    }

    /// Removes the fault of a place; returns the news.
    pub(in crate::directory) fn mended(&mut self, place: &FilePlace) -> Option<DirectoryNews> {
        self.hidden.remove(place);
        let problem = self.problems.remove(place)?;
        Some(match problem.unwatched {
            Unwatched::Part => DirectoryNews::FileReadable(problem.place),
            Unwatched::Kind { .. } | Unwatched::Connection(_) => {
                DirectoryNews::Readable(problem.place)
            }
        })
    }

    /// The news about the duplicates in the same files.
    pub(in crate::directory) fn group(&mut self, files: Arc<str>) -> DirectoryNews {
        match self.duplicates.get(&files) {
            Some(objects) if !objects.is_empty() => {
                DirectoryNews::Unreadable(Box::new(duplicate(&files, objects)))
            }
            _ => {
                self.duplicates.remove(&files);
                DirectoryNews::FileReadable(files.to_string())
            }
        }
    }
}
