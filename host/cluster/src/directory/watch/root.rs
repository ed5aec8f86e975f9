//! Follows the given path when it leads to another folder.

use super::super::settle::SettlingPaths;
use super::{Follower, watcher};
use notify::{RecursiveMode, Watcher as _};
use std::path::Path;
use std::time::Instant;

impl Follower {
    /// Goes to the folder to which the given path leads now; false if it is the same one. Everything has to be scanned
    /// then.
    pub(super) fn follow_root(&mut self) -> bool {
        let Some(tree) = self.shared.tree().moved() else {
            return false;
        };
        // A new watcher does not keep the folders of the old tree. Without one, the present one watches the new
        // folders, too.
        if let Ok(watcher) = watcher(&self.signals) {
            self.watcher = watcher;
        }
        // What changed in the old folder does not matter any more.
        self.settling = SettlingPaths::new(self.settle);
        self.shared.move_to(tree);
        true
    }

    /// Watches the links through which the given path leads, before the folder to which they lead is scanned.
    pub(super) fn watch_root(&mut self) {
        let tree = self.shared.tree();
        self.links = tree.links();
        for folder in self.links.iter().filter_map(|link| link.parent()) {
            // A link whose folder cannot be watched is looked at in the next round.
            drop(self.watcher.watch(folder, RecursiveMode::NonRecursive));
        }
        if tree.moved().is_some() {
            // They were exchanged before they were watched.
            self.rescan_by(Instant::now());
        }
    }

    /// Whether an event is about the tree. Beside a link there may be anything.
    pub(super) fn concerns(&self, path: &Path) -> bool {
        let tree = self.shared.tree();
        let own = tree.own.as_ref();
        path.starts_with(&tree.root)
            || own.is_some_and(|own| path.starts_with(own))
            || self.links.iter().any(|link| link == path)
    }
}
