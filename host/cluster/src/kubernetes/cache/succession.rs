//! The succession of watches: what was listed stays readable until what replaces it was listed, and a deletion in
//! between is reported.

use super::Cache;
use crate::kubernetes::decode;
use crate::kubernetes::shared::{ServerNews, Topic};
use crate::kubernetes::store::{Item, KeptContent, StoreKey, StoredObject};
use crate::kubernetes::watched::{Watched, holds};
use crate::kubernetes::watching::about;
use std::sync::Arc;
use transom_core::reference::ObjectRef;
use transom_core::watches::{Scope, Watches};

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
    /// nobody reads: before that happens, no revision works that needs them. So however often others are wanted, at
    /// most one generation of them stays. An object that a wanted watch takes over and did not find is gone.
    pub(in crate::kubernetes) fn retire(&mut self) -> Vec<ServerNews> {
        let mut awaited: Vec<Arc<Scope>> = Vec::new();
        for new in self.wanted() {
            let is_known = || awaited.iter().any(|scope| new.is_of_kind(scope));
            if !new.synced && new.failure.is_none() && !is_known() {
                awaited.push(Arc::clone(&new.scope));
            }
        }
        let is_awaited = |one: &Watched| awaited.iter().any(|scope| one.is_of_kind(scope));
        for one in &mut self.watches {
            one.is_read |= !one.retiring && !is_awaited(one);
        }
        let serves = |one: &Watched| one.is_read && one.synced && is_awaited(one);
        let ends = |one: &mut Watched| one.retiring && !serves(one);
        let ended: Vec<Watched> = self.watches.extract_if(.., ends).collect();
        let mut news = Vec::new();
        for mut one in ended {
            news.append(&mut one.untold);
            if one.keep.names_only {
                for (key, kept) in one.store.all() {
                    if self.misses(&one, key) {
                        news.extend(self.ended(&one.scope, key, kept));
                    } else if self.has_other(&one, key, kept) {
                        news.push(self.edited(&one.scope, key));
                    }
                }
                continue;
            }
            let is_heir = |heir: &&Watched| heir.is_of_kind(&one.scope) && !heir.keep.names_only;
            let heirs = self.wanted().filter(is_heir).map(|heir| heir.number);
            let heirs: Vec<u64> = heirs.collect();
            for (key, kept) in one.store.all() {
                news.extend(self.hand_over(&one, &heirs, key, kept));
            }
        }
        news
    }

    /// Whether an object of which an ended watch kept the name is gone: the watch of the same objects that goes on has
    /// not found it, and no other has it.
    fn misses(&self, ended: &Watched, key: &StoreKey) -> bool {
        let reference = self.reference(&ended.scope, key);
        let mut heirs = self.wanted().filter(|heir| *heir.scope == *ended.scope);
        let is_listed = heirs.any(|heir| heir.synced && heir.keep.admits(&reference));
        let mut others = self.about(&reference);
        is_listed && others.all(|other| other.store.get(key).is_none())
    }

    /// Whether the watch that goes on found another version of such an object.
    fn has_other(&self, ended: &Watched, key: &StoreKey, kept: &StoredObject) -> bool {
        let mut heirs = self.wanted().filter(|heir| *heir.scope == *ended.scope);
        let is_other = |now: &StoredObject| now.version != kept.version;
        let found = heirs.any(|heir| heir.store.get(key).is_some_and(is_other));
        found && self.merged(&ended.scope, key).is_none()
    }

    /// Hands an object of an ended watch to those that take it over: the list of one may still come, or was older. So
    /// they report when the object is gone. Returns the news if the merged state changes.
    fn hand_over(
        &mut self,
        ended: &Watched,
        heirs: &[u64],
        key: &StoreKey,
        kept: &StoredObject,
    ) -> Vec<ServerNews> {
        let reference = self.reference(&ended.scope, key);
        let mut is_taken = false;
        for number in heirs {
            let heir = self.watch(*number);
            let heir = heir.filter(|heir| takes_over(heir, ended, &reference, kept));
            is_taken |= heir.is_some();
            match heir {
                Some(heir) if heir.synced => heir.store.expect(key, kept),
                // What its list has brought already is not older.
                Some(heir) if heir.store.get(key).is_none() => heir.store.apply_event(Item {
                    key: key.clone(),
                    version: kept.version.clone(),
                    content: kept.content.clone(),
                    ours: kept.ours,
                }),
                _ => {}
            }
        }
        let mut news = self.ended(&ended.scope, key, kept);
        if !is_taken {
            // Nobody asks for it any more: it is not gone, but no fault of it is reported any longer.
            news.retain_mut(|news| {
                let gone = std::mem::take(&mut news.gone);
                !gone || matches!(news.topic, Topic::Fault(_))
            });
        }
        news
    }
}

/// Whether a watch certainly covers an object of an ended one: an object that its selector leaves out is not gone.
fn takes_over(
    watched: &Watched,
    ended: &Watched,
    reference: &ObjectRef,
    kept: &StoredObject,
) -> bool {
    if !watched.covers(reference) {
        return false;
    }
    let scope = &*watched.scope;
    // If both watches have the same field selector, the object matches it: its fields need not be kept.
    let mut bounds = scope.clone();
    bounds
        .fields
        .take_if(|_| scope.fields == ended.scope.fields);
    // The same holds for labels.
    bounds
        .labels
        .take_if(|_| scope.labels == ended.scope.labels);
    if bounds.fields.is_none() && bounds.labels.is_none() {
        return true;
    }
    let KeptContent::Body(bytes) = &kept.content else {
        return false;
    };
    let object = decode::restore(reference, &kept.version, bytes);
    object.is_ok_and(|object| holds(&bounds, &object))
}
