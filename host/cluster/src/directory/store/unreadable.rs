//! What of the state cannot be read: files, folders, and objects that two files define.

use super::{File, Store};
use crate::directory::change::{News, Print, duplicate};
use crate::directory::manifest::Fault;
use crate::directory::tree::Place;
use std::sync::Arc;
use transom_core::observation::Unreadable;

impl Store {
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
        self.problems.keys().next().map(String::as_str)
    }

    /// Records why a file cannot be used; its last content stays.
    pub(in crate::directory) fn refuse(
        &mut self,
        place: &Place,
        print: Option<Print>,
        fault: Fault,
    ) -> Option<News> {
        if let Some(print) = print {
            self.files
                .entry(place.clone())
                .or_insert(File {
                    print,
                    objects: Vec::new(),
                })
                .print = print;
        }
        let Fault {
            reason,
            message,
            objects,
        } = fault;
        let place = place.to_string();
        let problem = Unreadable {
            message: format!("{place}: {message}"),
            place: place.clone(),
            reason,
            objects,
        };
        if self.problems.get(&place) == Some(&problem) {
            return None;
        }
        self.problems.insert(place, problem.clone());
        Some(News::Unreadable(Box::new(problem)))
    }

    /// The folders that could not be listed, at or below one folder or everywhere.
    pub(in crate::directory) fn closed_folders(&self, scanned: Option<&Place>) -> Vec<Place> {
        let inside = |folder: &&Place| {
            scanned.is_none_or(|at| at.layer == folder.layer && folder.path.starts_with(&at.path))
        };
        self.closed.iter().filter(inside).cloned().collect()
    }

    /// Records that a folder cannot be listed; the known state of its files stays.
    pub(in crate::directory) fn close(&mut self, folder: &Place, fault: Fault) -> Option<News> {
        self.closed.insert(folder.clone());
        self.refuse(folder, None, fault)
    }

    /// Records that a folder can be listed again, or is gone.
    pub(in crate::directory) fn reopened(&mut self, folder: &Place) -> Option<News> {
        self.closed.remove(folder);
        self.mended(&folder.to_string())
    }

    /// Removes the fault of a place; returns the news.
    pub(in crate::directory) fn mended(&mut self, place: &str) -> Option<News> {
        self.problems
            .remove(place)
            .map(|problem| News::Readable(problem.place))
    }

    /// The news about the duplicates in the same files.
    pub(in crate::directory) fn group(&mut self, files: Arc<str>) -> News {
        match self.duplicates.get(&files) {
            Some(objects) if !objects.is_empty() => {
                News::Unreadable(Box::new(duplicate(&files, objects)))
            }
            _ => {
                self.duplicates.remove(&files);
                News::Readable(files.to_string())
            }
        }
    }
}
