//! What the parts of one connection share: client, kinds, cache, listeners. Never holds the lock while it waits.

use super::cache::{Asked, Cache, Known};
use super::cause::Cause;
use super::connect::Standing;
use super::counts::Counts;
use super::decode;
use super::feed::{Feed, News, Topic};
use super::resources::{Resources, Unresolved};
use super::shelf::{Content, Fault};
use super::stream;
use super::watched::Watched;
use crate::ReadFailure;
use kube::Client;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use transom_api::Word;
use transom_core::object::Object;
use transom_core::observation::Observation;
use transom_core::reference::ObjectRef;
use transom_core::share::room;

/// What the parts of one connection share.
pub(super) struct Shared {
    /// Name of the connection.
    pub(super) name: String,
    /// The client.
    pub(super) client: Client,
    /// The requests since the start.
    pub(super) counts: Arc<Counts>,
    /// The paths of kinds.
    pub(super) resources: Resources,
    /// The number of the next watch.
    pub(super) next: AtomicU64,
    /// Rings when a watch was listed whole or is found unreadable.
    pub(super) settled: Notify,
    /// Whether the API server has answered since the start.
    pub(super) standing: watch::Receiver<Standing>,
    cache: RwLock<Cache>,
    feeds: Mutex<Vec<Weak<Feed>>>,
}

/// What was known when something was asked.
pub(super) struct Asking {
    asked: Asked,
    /// The version of the object, where it was known to be there.
    version: Option<Box<str>>,
}

impl Shared {
    /// With nothing watched yet.
    pub(super) fn new(
        name: &str,
        client: Client,
        resources: Resources,
        counts: Arc<Counts>,
        standing: watch::Receiver<Standing>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            resources,
            client,
            counts,
            next: AtomicU64::default(),
            settled: Notify::new(),
            standing,
            cache: RwLock::new(Cache::new(name)),
            feeds: Mutex::default(),
        }
    }

    /// The cache, to look at.
    pub(super) fn cache(&self) -> RwLockReadGuard<'_, Cache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the cache and tells every listener; both under the lock, so that news come in the order of the changes.
    pub(super) fn change(&self, change: impl FnOnce(&mut Cache) -> Vec<News>) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        let news = change(&mut cache);
        if news.is_empty() {
            return;
        }
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner).retain(|feed| match feed.upgrade() {
            Some(feed) => {
                feed.push(news.iter().cloned());
                true
            }
            None => false,
        });
    }

    /// The path of a kind, in a namespace or in all.
    pub(super) async fn path(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Result<String, Cause> {
        let resolve = timeout(stream::ANSWER, self.resources.resolve(api_version, kind)).await;
        let resource = resolve.map_err(|_| Cause::late(stream::ANSWER))?.map_err(|error| match error {
            Unresolved::Missing => Cause::missing(),
            Unresolved::Elsewhere(version) => Cause::unserved(api_version, &version),
            Unresolved::Failed(error) => Cause::of(&error),
        })?;
        Ok(self.resources.api(&resource, namespace).resource_url().to_owned())
    }

    /// Something is asked now: what is known of its object, to be held against the answer.
    pub(super) fn asking(&self, reference: &ObjectRef) -> Asking {
        let cache = self.cache();
        let version = match cache.find(reference) {
            Known::There(version, _) => Some(version),
            Known::Absent | Known::Unknown => None,
        };
        Asking { asked: cache.asked(), version }
    }

    /// A read of one object, or a delete, answered with it: that is known at once, unless a watch has told more.
    pub(super) fn took(&self, object: &Object, asking: &Asking) {
        self.change(|cache| cache.answered(object, asking.asked));
    }

    /// What a read of one object said of it, where the API server itself said so.
    pub(super) fn learnt(&self, reference: &ObjectRef, read: Option<&Object>, asking: &Asking) {
        match (read, &asking.version) {
            (Some(object), _) => self.took(object, asking),
            (None, Some(version)) => self.gone(reference, version, asking),
            (None, None) => {}
        }
    }

    /// What a write answered is known at once, too, and that it was written is no news to whoever wrote it.
    pub(super) fn wrote(&self, object: &Object, asking: &Asking) {
        self.change(|cache| {
            let mut news = cache.answered(object, asking.asked);
            news.retain(|news| !matches!(&news.topic, Topic::Object(reference) if **reference == object.reference));
            news
        });
    }

    /// An answer said that an object is gone that had this version.
    pub(super) fn gone(&self, reference: &ObjectRef, version: &str, asking: &Asking) {
        self.change(|cache| cache.answered_gone(reference, version, asking.asked));
    }

    /// A new listener, who is told what changes from now on.
    pub(super) fn listen(&self) -> Arc<Feed> {
        let feed = Arc::new(Feed::default());
        let _unchanged = self.cache();
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&feed));
        feed
    }

    /// What is known of an object without asking; nothing when it must be asked for. Parsed outside of the lock.
    pub(super) fn known(&self, reference: &ObjectRef) -> Option<Result<Option<Object>, ReadFailure>> {
        let known = self.cache().find(reference);
        Self::restore(reference, known)
    }

    /// Bytes that an object takes at most once it is decoded, where it is known.
    pub(super) fn weigh(&self, reference: &ObjectRef) -> Option<usize> {
        let known = self.cache().find(reference);
        match known {
            Known::Unknown => None,
            Known::Absent | Known::There(_, Content::Fault(_)) => Some(0),
            Known::There(_, Content::Body(bytes)) => Some(room::of_text(&bytes)),
        }
    }

    /// An object as it was last heard of, also while its watch is still being listed.
    pub(super) fn last_heard(&self, reference: &ObjectRef) -> Option<Object> {
        let heard = self.cache().heard(reference);
        Self::restore(reference, heard)?.ok()?
    }

    /// Why the watch that would tell of an object for sure cannot be listed. To ask for the one object then takes a right
    /// that its watch does without, and would not be answered better.
    pub(super) fn unlisted(&self, reference: &ObjectRef) -> Option<ReadFailure> {
        let cache = self.cache();
        let broken = |watched: &&Watched| watched.is_whole() && !watched.is_missing();
        let fault = cache.about(reference).filter(broken).find_map(|watched| watched.failure.as_ref());
        fault.map(|fault| failure(reference, fault))
    }

    fn restore(reference: &ObjectRef, known: Known) -> Option<Result<Option<Object>, ReadFailure>> {
        Some(match known {
            Known::Unknown => return None,
            Known::Absent => Ok(None),
            Known::There(version, Content::Body(bytes)) => {
                decode::restore(reference, &version, &bytes).map(Some).map_err(|fault| failure(reference, &fault))
            }
            Known::There(_, Content::Fault(fault)) => Err(failure(reference, &fault)),
        })
    }

    /// The state of a topic now, as a listener is told; nothing when there is nothing to say of it any more.
    pub(super) fn observation(&self, News { topic, gone }: &News) -> Option<Observation> {
        match topic {
            Topic::Object(reference) => match Self::restore(reference, self.cache().heard(reference)) {
                Some(Ok(Some(object))) => Some(Observation::Present(object)),
                Some(Err(_)) => None,
                Some(Ok(None)) | None => gone.then(|| Observation::Gone(reference.as_ref().clone())),
            },
            Topic::Fault(reference) => {
                let unreadable = self.cache().unreadable_object(reference).map(Observation::Unreadable);
                Some(unreadable.unwrap_or_else(|| Observation::Readable(reference.to_string())))
            }
            Topic::Watch(scope) => {
                let cache = self.cache();
                let unreadable = cache.unreadable_watch(scope).map(Observation::Unreadable);
                Some(unreadable.unwrap_or_else(|| Observation::Readable(cache.place(scope))))
            }
        }
    }
}

/// Why an object is not read that is being listed for too long.
pub(super) fn late(reference: &ObjectRef, after: Duration) -> ReadFailure {
    let message = format!("failed to read {reference}: its kind was not listed within {} s", after.as_secs());
    ReadFailure { reason: Word::ServerUnavailable, message }
}

/// Why an object cannot be read.
pub(super) fn failure(reference: &ObjectRef, fault: &Fault) -> ReadFailure {
    ReadFailure { reason: fault.reason, message: format!("failed to read {reference}: {}", fault.message) }
}
