//! The succession of watches: what was listed stays readable until what replaces it was listed, and a deletion in
//! between is reported.

use super::{Cache, later};
use crate::kubernetes::decode;
use crate::kubernetes::shared::{ServerNews, Topic};
use crate::kubernetes::store::{Item, KeptContent, StoreKey, StoredObject};
use crate::kubernetes::watched::{Watched, holds};
use crate::kubernetes::watching::about;
use transom_core::watches::Watches;

impl Cache {
    /// Has every watch that is not wanted retire. Returns what is wanted and not watched yet; when that is followed,
    /// [`Cache::retire`] ends those that need not wait.
    pub(in crate::kubernetes) fn wants(
        &mut self,
        mut wanted: Watches,
    ) -> (Watches, Vec<ServerNews>) {
        let mut news = Vec::new();
        for watched in &mut self.watches {
            let is_wanted = wanted.get(&*watched.scope) == Some(&watched.keep);
            if is_wanted {
                wanted.remove(&*watched.scope);
            }
            if watched.retiring == is_wanted && watched.failure.is_some() {
                news.push(about(watched));
            }
            watched.retiring = !is_wanted;
        }
        (wanted, news)
    }

    /// Ends the retiring watches of each kind whose wanted watches were listed or are found unreadable, and those that
    /// were not listed themselves. An object that a wanted watch takes over and did not find is gone.
    pub(in crate::kubernetes) fn retire(&mut self) -> Vec<ServerNews> {
        let is_awaited = |cache: &Self, one: &Watched| {
            let awaited = |new: &Watched| !new.synced && new.failure.is_none();
            let mut of_kind = cache.wanted().filter(|new| new.is_of_kind(&one.scope));
            of_kind.any(awaited)
        };
        let ends = |one: &&Watched| one.retiring && !(one.synced && is_awaited(self, one));
        let ends = self.watches.iter().filter(ends);
        let ends: Vec<u64> = ends.map(|one| one.number).collect();
        let of_these = |one: &mut Watched| ends.contains(&one.number);
        let ended: Vec<Watched> = self.watches.extract_if(.., of_these).collect();
        let mut news = Vec::new();
        for mut one in ended {
            news.append(&mut one.untold);
            for (key, kept) in one.store.all().filter(|_| !one.keep.names_only) {
                news.extend(self.hand_over(&one, key, kept));
            }
        }
        news
    }

    /// Hands an object of an ended watch to those that take it over: the list of one may still come, or was older. So they
    /// report when the object is gone. Returns the news if the merged state changes.
    fn hand_over(
        &mut self,
        ended: &Watched,
        key: &StoreKey,
        kept: &StoredObject,
    ) -> Vec<ServerNews> {
        let before = match self.merged(&ended.scope, key) {
            Some(there) => later(kept, there).content.clone(),
            None => kept.content.clone(),
        };
        let takes = |watched: &&Watched| self.takes_over(watched, ended, key, kept);
        let heirs = self.wanted().filter(takes).map(|heir| heir.number);
        let heirs: Vec<u64> = heirs.collect();
        for number in &heirs {
            match self.watch(*number) {
                Some(heir) if heir.synced => heir.store.expect(key, kept),
                Some(heir) => heir.store.apply_event(Item {
                    key: key.clone(),
                    version: kept.version.clone(),
                    content: kept.content.clone(),
                    ours: kept.ours,
                }),
                None => {}
            }
        }
        let after = self.merged(&ended.scope, key);
        let after = after.map(|kept| kept.content.clone());
        let mut news = self.news(&ended.scope, key, Some(&before), after.as_ref());
        if after.is_none() && heirs.is_empty() {
            // Nobody asks for it any more: it is not gone, but no fault of it is reported any longer.
            news.retain_mut(|news| {
                news.gone = false;
                matches!(news.topic, Topic::Fault(_))
            });
        }
        news
    }

    /// Whether a watch certainly covers an object of an ended one: an object that its selector leaves out is not gone.
    fn takes_over(
        &self,
        watched: &Watched,
        ended: &Watched,
        key: &StoreKey,
        kept: &StoredObject,
    ) -> bool {
        let (scope, reference) = (&*watched.scope, self.reference(&watched.scope, key));
        let KeptContent::Body(bytes) = &kept.content else {
            return false;
        };
        if !watched.is_of_kind(&ended.scope)
            || watched.keep.names_only
            || !watched.covers(&reference)
        {
            return false;
        }
        // If both watches have the same field selector, the object matches it: its fields need not be kept.
        let mut bounds = scope.clone();
        bounds
            .fields
            .take_if(|_| scope.fields == ended.scope.fields);
        let is_bound = bounds.fields.is_some() || bounds.labels.is_some();
        let is_held = || {
            let object = decode::restore(&reference, &kept.version, bytes);
            object.is_ok_and(|object| holds(&bounds, &object))
        };
        !is_bound || is_held()
    }
}
