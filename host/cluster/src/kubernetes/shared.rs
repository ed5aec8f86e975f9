//! What the parts of one connection share: client, kinds, cache, listeners. Its locks are not held across an await.

use super::cache::{Asked, Cache, Known};
use super::cause::Cause;
use super::connect::Standing;
use super::counts::Counts;
use super::decode;
use super::feed::{Feed, News, Topic};
use super::resources::{Resources, Unresolved};
use super::store::{Content, Fault};
use super::stream;
use super::watched::Watched;
use crate::ReadFailure;
use kube::Client;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use transom_api::KnownReason;
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
    /// Notified when a watch was listed completely, is found unreadable or is removed.
    pub(super) settled: Notify,
    /// Whether the API server has answered since the start.
    pub(super) standing: watch::Receiver<Standing>,
    cache: RwLock<Cache>,
    feeds: Mutex<Vec<Weak<Feed>>>,
}

/// The state of the cache when a request was sent.
pub(super) struct Asking {
    asked: Asked,
    /// The version of the object, if it was known to exist.
    version: Option<Box<str>>,
}

impl Shared {
    /// Watches nothing yet.
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

    /// The cache, for reading.
    pub(super) fn cache(&self) -> RwLockReadGuard<'_, Cache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the cache and notifies every listener, both under the lock, so that news arrive in the order of the
    /// changes.
    pub(super) fn change(&self, change: impl FnOnce(&mut Cache) -> Vec<News>) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        let news = change(&mut cache);
        if news.is_empty() {
            return;
        }
        self.feeds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|feed| match feed.upgrade() {
                Some(feed) => {
                    feed.push(news.iter().cloned());
                    true
                }
                None => false,
            });
    }

    /// The path of a kind, in a namespace or in all.
    pub(super) async fn path(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Result<String, Cause> {
        let resolve = timeout(stream::ANSWER, self.resources.resolve(api_version, kind)).await;
        let resource = resolve
            .map_err(|_| Cause::late(stream::ANSWER))?
            .map_err(|error| match error {
                Unresolved::Missing => Cause::missing(),
                Unresolved::Elsewhere(version) => Cause::unserved(api_version, &version),
                Unresolved::Failed(error) => Cause::of(&error),
            })?;
        Ok(self
            .resources
            .api(&resource, namespace)
            .resource_url()
            .to_owned())
    }

    /// The state of the cache for a request that is sent now, to compare its answer with.
    pub(super) fn asking(&self, reference: &ObjectRef) -> Asking {
        let cache = self.cache();
        let version = match cache.find(reference) {
            Known::There(version, _) => Some(version),
            Known::Absent | Known::Unknown => None,
        };
        Asking {
            asked: cache.asked(),
            version,
        }
    }

    /// Merges the object in the answer to a read or a delete into the cache, unless a watch has reported more.
    pub(super) fn took(&self, object: &Object, asking: &Asking) {
        self.change(|cache| cache.answered(object, asking.asked));
    }

    /// Merges the result of a read into the cache. Only for answers of the API server itself.
    pub(super) fn learnt(&self, reference: &ObjectRef, read: Option<&Object>, asking: &Asking) {
        match (read, &asking.version) {
            (Some(object), _) => self.took(object, asking),
            (None, Some(version)) => self.gone(reference, version, asking),
            (None, None) => {}
        }
    }

    /// Merges the answer to a write into the cache. Listeners are not told of the object, because its writer knows.
    pub(super) fn wrote(&self, object: &Object, asking: &Asking) {
        self.change(|cache| {
            let mut news = cache.answered(object, asking.asked);
            news.retain(|news| !matches!(&news.topic, Topic::Object(reference) if **reference == object.reference));
            news
        });
    }

    /// An answer reports that the object with this version is gone.
    pub(super) fn gone(&self, reference: &ObjectRef, version: &str, asking: &Asking) {
        self.change(|cache| cache.answered_gone(reference, version, asking.asked));
    }

    /// Adds a listener that is told what changes from now on.
    pub(super) fn listen(&self) -> Arc<Feed> {
        let feed = Arc::new(Feed::default());
        let _unchanged = self.cache();
        self.feeds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::downgrade(&feed));
        feed
    }

    /// What the cache knows of an object; `None` if it must be requested. Decodes outside the lock.
    pub(super) fn known(
        &self,
        reference: &ObjectRef,
    ) -> Option<Result<Option<Object>, ReadFailure>> {
        let known = self.cache().find(reference);
        Self::restore(reference, known)
    }

    /// Upper bound of the bytes that a cached object takes once it is decoded; `None` if it must be requested.
    pub(super) fn weigh(&self, reference: &ObjectRef) -> Option<usize> {
        let known = self.cache().find(reference);
        match known {
            Known::Unknown => None,
            Known::Absent | Known::There(_, Content::Fault(_)) => Some(0),
            Known::There(_, Content::Body(bytes)) => Some(room::of_text(&bytes)),
        }
    }

    /// The last known state of an object, also while its watch is being listed.
    pub(super) fn last_heard(&self, reference: &ObjectRef) -> Option<Object> {
        let heard = self.cache().heard(reference);
        Self::restore(reference, heard)?.ok()?
    }

    /// Why the watch that certainly covers an object cannot be listed. A GET instead would need a right that the watch
    /// does not, and would fail for the same cause.
    pub(super) fn unlisted(&self, reference: &ObjectRef) -> Option<ReadFailure> {
        let cache = self.cache();
        let broken = |watched: &&Watched| watched.is_whole() && !watched.is_missing();
        let fault = cache
            .about(reference)
            .filter(broken)
            .find_map(|watched| watched.failure.as_ref());
        fault.map(|fault| failure(reference, fault))
    }

    fn restore(reference: &ObjectRef, known: Known) -> Option<Result<Option<Object>, ReadFailure>> {
        Some(match known {
            Known::Unknown => return None,
            Known::Absent => Ok(None),
            Known::There(version, Content::Body(bytes)) => {
                decode::restore(reference, &version, &bytes)
                    .map(Some)
                    .map_err(|fault| failure(reference, &fault))
            }
            Known::There(_, Content::Fault(fault)) => Err(failure(reference, &fault)),
        })
    }

    /// The present state of a topic for a listener; `None` if there is nothing left to report.
    pub(super) fn observation(&self, News { topic, gone }: &News) -> Option<Observation> {
        match topic {
            Topic::Object(reference) => {
                match Self::restore(reference, self.cache().heard(reference)) {
                    Some(Ok(Some(object))) => Some(Observation::Present(object)),
                    Some(Err(_)) => None,
                    Some(Ok(None)) | None => {
                        gone.then(|| Observation::Gone(reference.as_ref().clone()))
                    }
                }
            }
            Topic::Fault(reference) => {
                let unreadable = self
                    .cache()
                    .unreadable_object(reference)
                    .map(Observation::Unreadable);
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

/// The failure of a read whose object took too long to be listed.
pub(super) fn late(reference: &ObjectRef, after: Duration) -> ReadFailure {
    let message = format!(
        "failed to read {reference}: its kind was not listed within {} s",
        after.as_secs()
    );
    ReadFailure {
        reason: KnownReason::ServerUnavailable,
        message,
    }
}

/// Why an object cannot be read.
pub(super) fn failure(reference: &ObjectRef, fault: &Fault) -> ReadFailure {
    ReadFailure {
        reason: fault.reason,
        message: format!("failed to read {reference}: {}", fault.message),
    }
}
