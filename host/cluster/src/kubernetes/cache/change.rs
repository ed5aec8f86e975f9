//! Changes of the cache by watch events, lists and answers, and the news that each change causes.
//! A change that no reader of the cache can see causes no news. Of an object of which only the name is kept, a reader
//! can see that it is gone, and is told that it changed.

use super::{Cache, SentAt, later};
use crate::kubernetes::decode;
use crate::kubernetes::shared::{ServerNews, Topic};
use crate::kubernetes::store::{Item, KeptContent, Moment, Store, StoreKey, StoredObject, key};
use crate::kubernetes::watched::{Watched, holds};
use std::sync::Arc;
use std::time::Instant;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;
use transom_core::watches::{Keep, Scope};

/// An object of which only the name is kept.
#[derive(PartialEq)]
struct NamedObject {
    version: Box<str>,
    /// Whether the watch told this version; an answer is known to who asked alone.
    is_told: bool,
}

impl Cache {
    /// The present moment, for a request that is sent now; pass it along with the answer.
    pub(in crate::kubernetes) fn asked(&self) -> SentAt {
        SentAt(self.moment)
    }

    /// Whether only an answer reported the state of an object, and no watch has confirmed it.
    pub(in crate::kubernetes) fn is_unconfirmed(&self, reference: &ObjectRef) -> bool {
        let key = key(reference.namespace.as_deref(), &reference.name);
        self.about(reference)
            .any(|watched| watched.store.is_unconfirmed(&key))
    }

    /// A list begins.
    pub(in crate::kubernetes) fn begin(&mut self, number: u64) {
        let now = self.moment;
        if let Some(watched) = self.watch(number) {
            watched.store.begin_list(now);
        }
    }

    /// A list contains an object. News of the first list of a watch are held back until it ends, unless another synced
    /// watch covers the object: that watch would find the object unchanged and report nothing.
    pub(in crate::kubernetes) fn put(&mut self, number: u64, item: Item) -> Vec<ServerNews> {
        let key = item.key.clone();
        let news = self.changed(number, &key, |store| store.apply_listed(item));
        if self.watch(number).is_none_or(|watched| watched.synced) {
            return news;
        }
        let listed = |news: &ServerNews| match &news.topic {
            Topic::Object(object) | Topic::Name(object) | Topic::Fault(object) => {
                self.about(object).any(|watched| watched.synced)
            }
            Topic::Watch(_) | Topic::Answer(_) => true,
        };
        let (now, later): (Vec<_>, Vec<_>) = news.into_iter().partition(listed);
        if let Some(watched) = self.watch(number) {
            watched.untold.extend(later);
        }
        now
    }

    /// An event moves a watch to a version and reports an object, if it is one that the watch keeps.
    pub(in crate::kubernetes) fn told(
        &mut self,
        number: u64,
        version: &str,
        item: Option<Item>,
    ) -> Vec<ServerNews> {
        let news = item.map(|item| {
            let key = item.key.clone();
            self.changed(number, &key, |store| store.apply_event(item))
        });
        self.moved(number, version);
        news.unwrap_or_default()
    }

    /// The watch has reached a version.
    fn moved(&mut self, number: u64, version: &str) {
        if let Some(watched) = self.watch(number) {
            watched.store.bookmark(version);
            watched.last_word = Instant::now();
        }
    }

    /// `None`, unless the version is older than one that the watch reported, because the server was restored. In that
    /// case forgets the versions of the watch, invalidates the answers to all requests sent before, and returns news of
    /// the objects for which another watch has a different state.
    pub(in crate::kubernetes) fn went_back(
        &mut self,
        number: u64,
        version: &str,
    ) -> Option<Vec<ServerNews>> {
        let watched = self
            .watch(number)
            .filter(|watched| watched.store.went_back(version))?;
        let scope = Arc::clone(&watched.scope);
        let keys: Vec<StoreKey> = watched
            .store
            .iter(None)
            .map(|(key, _)| key.clone())
            .collect();
        let merged = |cache: &Self| -> Vec<Option<KeptContent>> {
            keys.iter()
                .map(|key| cache.merged(&scope, key).map(|kept| kept.content.clone()))
                .collect()
        };
        let before = merged(self);
        if let Some(watched) = self.watch(number) {
            watched.store.reset_versions();
            watched.synced = false;
        }
        self.moment += 1;
        self.restored = self.moment;
        let states = keys.iter().zip(before.into_iter().zip(merged(self)));
        let news = states.flat_map(|(key, (before, after))| {
            self.news(&scope, key, before.as_ref(), after.as_ref())
        });
        Some(news.collect())
    }

    /// Changes the state of an object in one watch; returns news if the state merged from all watches changes.
    fn changed(
        &mut self,
        number: u64,
        key: &str,
        change: impl FnOnce(&mut Store),
    ) -> Vec<ServerNews> {
        let Some(scope) = self.watch(number).map(|watched| Arc::clone(&watched.scope)) else {
            return Vec::new();
        };
        let before = self.merged(&scope, key).map(|kept| kept.content.clone());
        let name = self.named(number, key);
        if let Some(watched) = self.watch(number) {
            change(&mut watched.store);
        }
        let after = self.merged(&scope, key).map(|kept| kept.content.clone());
        let gone = match name.filter(|_| after.is_none()) {
            Some(name) => match self.named(number, key) {
                Some(now) if now.is_told && now != name => return vec![self.edited(&scope, key)],
                now => now.is_none().then_some(KeptContent::Name),
            },
            None => None,
        };
        self.news(
            &scope,
            key,
            before.as_ref().or(gone.as_ref()),
            after.as_ref(),
        )
    }

    /// What a watch that keeps only names has of an object.
    fn named(&self, number: u64, key: &str) -> Option<NamedObject> {
        let mut watches = self.watches.iter();
        let watched = watches.find(|one| one.number == number && one.keep.names_only)?;
        let kept = watched.store.known(key).next()?;
        Some(NamedObject {
            version: kept.version.clone(),
            is_told: !watched.store.is_unconfirmed(key),
        })
    }

    /// The news of an object that changed and of which only the name is kept.
    pub(super) fn edited(&self, scope: &Scope, key: &str) -> ServerNews {
        ServerNews {
            topic: Topic::Name(Arc::new(self.reference(scope, key))),
            gone: false,
        }
    }

    /// The newest state of an object in any watch of its kind that keeps what the object says.
    pub(super) fn merged(&self, scope: &Scope, key: &str) -> Option<&StoredObject> {
        let of_kind = |other: &&Watched| other.is_of_kind(scope) && !other.keep.names_only;
        let kept = self
            .watches
            .iter()
            .filter(of_kind)
            .flat_map(|watched| watched.store.known(key));
        kept.reduce(later)
    }

    /// The news of an object whose merged state changes from `before` to `after`.
    fn news(
        &self,
        scope: &Scope,
        key: &str,
        before: Option<&KeptContent>,
        after: Option<&KeptContent>,
    ) -> Vec<ServerNews> {
        if before == after {
            return Vec::new();
        }
        let faulty = |content: Option<&KeptContent>| matches!(content, Some(KeptContent::Fault(_)));
        let (reference, gone) = (Arc::new(self.reference(scope, key)), after.is_none());
        let fault = faulty(before) || faulty(after);
        let fault = fault.then(|| ServerNews {
            topic: Topic::Fault(Arc::clone(&reference)),
            gone,
        });
        let object = (!faulty(after)).then_some(ServerNews {
            topic: Topic::Object(reference),
            gone,
        });
        fault.into_iter().chain(object).collect()
    }

    /// An event reports that an object left a scope, at a version. Without a key only the version counts: an object
    /// without a name is not kept.
    pub(in crate::kubernetes) fn apply_deletion(
        &mut self,
        number: u64,
        version: &str,
        key: Option<&str>,
    ) -> Vec<ServerNews> {
        let news =
            key.map(|key| self.changed(number, key, |store| store.apply_deletion(key, version)));
        self.moved(number, version);
        news.unwrap_or_default()
    }

    /// A list ended: objects that it did not contain are gone. Objects that the watch no longer keeps cause no news.
    pub(in crate::kubernetes) fn listed(&mut self, number: u64, version: &str) -> Vec<ServerNews> {
        let Some(watched) = self.watch(number) else {
            return Vec::new();
        };
        watched.synced = true;
        let gone = watched.store.end_list(version);
        let (scope, keep) = (Arc::clone(&watched.scope), watched.keep.clone());
        let mut news = std::mem::take(&mut watched.untold);
        for (key, kept) in gone
            .iter()
            .filter(|(key, _)| keep.admits(&self.reference(&scope, key)))
            .filter(|(key, _)| !keep.names_only || self.merged(&scope, key).is_none())
        {
            news.extend(self.ended(&scope, key, kept));
        }
        news
    }

    /// The news of an object that a watch does not keep any longer, in this last state.
    pub(super) fn ended(&self, scope: &Scope, key: &str, kept: &StoredObject) -> Vec<ServerNews> {
        let after = self.merged(scope, key);
        let before = after.map_or(kept, |after| later(kept, after));
        let after = after.map(|after| &after.content);
        self.news(scope, key, Some(&before.content), after)
    }

    /// The answer to a write or a read contains an object. Updates each watch whose scope certainly holds the object,
    /// unless the watch is past this version: also one whose list is under way, which may be older. Removes the object
    /// from the other watches, where only an earlier answer had put it there.
    pub(in crate::kubernetes) fn answered(
        &mut self,
        object: &Object,
        SentAt(asked): SentAt,
    ) -> Vec<ServerNews> {
        let Some(now) = self.learns(asked) else {
            return Vec::new();
        };
        let key = key(
            object.reference.namespace.as_deref(),
            &object.reference.name,
        );
        // Not the watches of other kinds: a Namespace and a ManagedCluster may have the same key.
        let watches = self.about(&object.reference).map(|watched| {
            let keep = holds(&watched.scope, object).then(|| watched.keep.clone());
            (watched.number, keep)
        });
        let watches: Vec<(u64, Option<Keep>)> = watches.collect();
        let mut news = Vec::new();
        for (number, keep) in watches {
            let change = |store: &mut Store| match &keep {
                Some(keep) => store.apply_answer(decode::kept(object.clone(), keep), asked, now),
                None if store.get(&key).is_some() && store.is_unconfirmed(&key) => {
                    store.apply_absence(&key, &object.version, asked, now);
                }
                None => {}
            };
            news.extend(self.changed(number, &key, change));
        }
        news
    }

    /// An answer reports that an object is gone; `version` is the one that it had when the request was sent.
    pub(in crate::kubernetes) fn answered_gone(
        &mut self,
        reference: &ObjectRef,
        version: &str,
        SentAt(asked): SentAt,
    ) -> Vec<ServerNews> {
        let key = key(reference.namespace.as_deref(), &reference.name);
        let numbers: Vec<u64> = self
            .about(reference)
            .map(|watched| watched.number)
            .collect();
        let Some(now) = self.learns(asked) else {
            return Vec::new();
        };
        let take = |store: &mut Store| store.apply_absence(&key, version, asked, now);
        let numbers = numbers.into_iter();
        numbers
            .flat_map(|number| self.changed(number, &key, take))
            .collect()
    }

    /// The moment of an answer that arrives now; `None` if the server was restored after the request was sent.
    fn learns(&mut self, asked: Moment) -> Option<Moment> {
        if asked < self.restored {
            return None;
        }
        self.moment += 1;
        Some(self.moment)
    }
}
