//! What the parts of one connection share: client, kinds, cache, listeners. Its locks are not held across an await.
//! A listener queues topics, each only once, and reads the present state: its queue stays small however slow it is.

use super::cache::{Cache, KnownObject, SentAt};
use super::connect::ConnectionStanding;
use super::counts::RequestCounts;
use super::decode;
use super::resources::Resources;
use super::store::{KeptContent, ObjectFault};
use super::watched::Watched;
use crate::ReadFailure;
use kube::Client;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, Weak};
use tokio::sync::{Notify, watch};
use transom_core::object::Object;
use transom_core::observation::Observation;
use transom_core::reference::ObjectRef;
use transom_core::share::lock::{MutexExt as _, RwLockExt as _};
use transom_core::share::room;
use transom_core::stamp::Stamp;
use transom_core::watches::Scope;

/// What the parts of one connection share.
pub(super) struct SharedConnection {
    /// Name of the connection.
    pub(super) name: String,
    /// The client.
    pub(super) client: Client,
    /// The requests since the start.
    pub(super) counts: Arc<RequestCounts>,
    /// The paths of kinds.
    pub(super) resources: Resources,
    /// The number of the next watch.
    pub(super) next: AtomicU64,
    /// Notified when a watch was listed completely, is found unreadable or is removed.
    pub(super) settled: Notify,
    /// Whether the API server has answered since the start.
    pub(super) standing: watch::Receiver<ConnectionStanding>,
    cache: RwLock<Cache>,
    feeds: Mutex<Vec<Weak<ServerFeed>>>,
}

/// The state of the cache when a request was sent.
pub(super) struct Asking {
    asked: SentAt,
    /// The version of the object, if it was known to exist.
    version: Option<Box<str>>,
}

impl SharedConnection {
    /// Watches nothing yet.
    pub(super) fn new(
        name: &str,
        client: Client,
        resources: Resources,
        counts: Arc<RequestCounts>,
        standing: watch::Receiver<ConnectionStanding>,
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
        self.cache.reading()
    }

    /// Changes the cache and notifies every listener, both under the lock, so that news arrive in the order of the
    /// changes.
    pub(super) fn change(&self, change: impl FnOnce(&mut Cache) -> Vec<ServerNews>) {
        let mut cache = self.cache.writing();
        let news = change(&mut cache);
        if news.is_empty() {
            return;
        }
        self.feeds.locked().retain(|feed| {
            let feed = feed.upgrade();
            if let Some(feed) = &feed {
                feed.push(news.iter().cloned());
            }
            feed.is_some()
        });
    }

    /// The state of the cache for a request that is sent now, to compare its answer with.
    pub(super) fn asking(&self, reference: &ObjectRef) -> Asking {
        let cache = self.cache();
        Asking {
            asked: cache.asked(),
            version: cache.version(reference),
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
            news.retain(|news| match &news.topic {
                Topic::Object(reference) | Topic::Name(reference) => {
                    **reference != object.reference
                }
                Topic::Fault(_) | Topic::Watch(_) | Topic::Answer(_) => true,
            });
            news
        });
    }

    /// An answer reports that the object with this version is gone.
    pub(super) fn gone(&self, reference: &ObjectRef, version: &str, asking: &Asking) {
        self.change(|cache| cache.answered_gone(reference, version, asking.asked));
    }

    /// Adds a listener that is told what changes from now on.
    pub(super) fn listen(&self) -> Arc<ServerFeed> {
        let feed = Arc::new(ServerFeed::default());
        let _unchanged = self.cache();
        self.feeds.locked().push(Arc::downgrade(&feed));
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
            KnownObject::Unknown | KnownObject::There(_, KeptContent::Name) => None,
            KnownObject::Absent | KnownObject::There(_, KeptContent::Fault(_)) => Some(0),
            KnownObject::There(_, KeptContent::Body(bytes)) => Some(room::of_text(&bytes)),
        }
    }

    /// The last known state of an object, also while its watch is being listed.
    pub(super) fn last_heard(&self, reference: &ObjectRef) -> Option<Object> {
        let heard = self.cache().heard(reference);
        Self::restore(reference, heard)?.ok()?
    }

    /// The stamp of an object as it was last known, also while its watch is being listed.
    pub(super) fn stamp(&self, reference: &ObjectRef) -> Option<Stamp> {
        let heard = self.cache().heard(reference);
        match heard {
            KnownObject::There(_, KeptContent::Body(bytes)) => decode::stamp(&bytes),
            _ => None,
        }
    }

    /// Why the watch that certainly covers an object cannot be listed. A GET instead would need a right that the watch
    /// does not, and would fail for the same cause. A watch that was listed and is only in doubt holds up no read.
    pub(super) fn unlisted(&self, reference: &ObjectRef) -> Option<ReadFailure> {
        let cache = self.cache();
        let broken =
            |watched: &&Watched| watched.is_whole() && !watched.is_missing() && !watched.answered;
        let fault = cache
            .about(reference)
            .filter(broken)
            .find_map(|watched| watched.failure.as_ref());
        fault.map(|fault| failure(reference, fault))
    }

    fn restore(
        reference: &ObjectRef,
        known: KnownObject,
    ) -> Option<Result<Option<Object>, ReadFailure>> {
        Some(match known {
            KnownObject::Unknown | KnownObject::There(_, KeptContent::Name) => return None,
            KnownObject::Absent => Ok(None),
            KnownObject::There(version, KeptContent::Body(bytes)) => {
                decode::restore(reference, &version, &bytes)
                    .map(Some)
                    .map_err(|fault| failure(reference, &fault))
            }
            KnownObject::There(_, KeptContent::Fault(fault)) => Err(failure(reference, &fault)),
        })
    }

    /// The present state of a topic for a listener; `None` if there is nothing left to report.
    pub(super) fn observation(
        &self,
        ServerNews { topic, gone }: &ServerNews,
    ) -> Option<Observation> {
        match topic {
            Topic::Object(reference) => {
                let heard = self.cache().heard(reference);
                match Self::restore(reference, heard) {
                    Some(Ok(Some(object))) => Some(Observation::Present(object)),
                    Some(Err(_)) => None,
                    Some(Ok(None)) | None => gone.then(|| Observation::Gone((**reference).clone())),
                }
            }
            Topic::Name(reference) => {
                let is_named = self.cache().has_name(reference);
                is_named.then(|| Observation::Changed((**reference).clone()))
            }
            Topic::Fault(reference) => Some(match self.cache().unreadable_object(reference) {
                Some(unreadable) => Observation::Unreadable(unreadable),
                None => Observation::ObjectReadable(reference.to_string()),
            }),
            Topic::Answer(_) => Some(Observation::Answered),
            Topic::Watch(scope) => {
                let cache = self.cache();
                Some(match cache.unreadable_watch(scope) {
                    Some(unreadable) => Observation::Unreadable(unreadable),
                    None => Observation::Readable(cache.place(scope), cache.unwatched(scope)),
                })
            }
        }
    }
}

/// The topic of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    /// An object changed or is gone.
    Object(Arc<ObjectRef>),
    /// An object changed of which only the name is kept. Another topic, so that it hides no end of the object.
    Name(Arc<ObjectRef>),
    /// An object became usable or unusable.
    Fault(Arc<ObjectRef>),
    /// A watch can be followed, or cannot.
    Watch(Arc<Scope>),
    /// The first list of a watch is complete, or it answered again while it is in doubt.
    Answer(Arc<Scope>),
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerNews {
    /// Its topic.
    pub(super) topic: Topic,
    /// Whether the object is gone. An object that is absent without this flag is no longer watched, and not reported.
    pub(super) gone: bool,
}

/// The pending news of one listener.
#[derive(Default)]
pub(super) struct ServerFeed {
    queue: Mutex<Queue>,
    ready: Notify,
}

#[derive(Default)]
struct Queue {
    order: VecDeque<Topic>,
    gone: HashMap<Topic, bool>,
}

impl ServerFeed {
    /// Adds news; for each topic only the latest counts.
    pub(super) fn push(&self, news: impl IntoIterator<Item = ServerNews>) {
        let mut queue = self.queue.locked();
        for ServerNews { topic, gone } in news {
            if queue.gone.insert(topic.clone(), gone).is_none() {
                queue.order.push_back(topic);
            }
        }
        drop(queue);
        self.ready.notify_one();
    }

    /// Takes the next news.
    pub(super) fn pop(&self) -> Option<ServerNews> {
        let mut queue = self.queue.locked();
        let topic = queue.order.pop_front()?;
        let gone = queue.gone.remove(&topic).unwrap_or_default();
        Some(ServerNews { topic, gone })
    }
}

/// The observations of a cluster: every change since this was made.
pub struct ServerObservations {
    pub(super) shared: Arc<SharedConnection>,
    pub(super) feed: Arc<ServerFeed>,
}

impl ServerObservations {
    /// The next observation; waits until there is one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Observation {
        loop {
            while let Some(news) = self.feed.pop() {
                if let Some(observation) = self.shared.observation(&news) {
                    return observation;
                }
            }
            self.feed.ready.notified().await;
        }
    }
}

/// Why an object cannot be read.
pub(super) fn failure(reference: &ObjectRef, fault: &ObjectFault) -> ReadFailure {
    ReadFailure {
        reason: fault.reason,
        message: format!("failed to read {reference}: {}", fault.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn de_duplicates_by_key_and_keeps_the_latest_event() {
        let feed = ServerFeed::default();
        let topic =
            |name: &str| Topic::Object(Arc::new(ObjectRef::local("v1", "Secret", Some("n"), name)));
        let news = |name: &str, gone: bool| ServerNews {
            topic: topic(name),
            gone,
        };
        feed.push([news("a", false), news("b", false)]);
        feed.push([news("a", true)]);
        feed.push([news("b", true), news("b", false)]);
        assert_eq!(feed.pop(), Some(news("a", true)));
        feed.push([news("a", false)]);
        assert_eq!(feed.pop(), Some(news("b", false)));
        assert_eq!(feed.pop(), Some(news("a", false)));
        // That one of which only the name is kept changed hides no end.
        let edited = ServerNews {
            topic: Topic::Name(Arc::new(ObjectRef::local("v1", "Secret", Some("n"), "a"))),
            gone: false,
        };
        feed.push([news("a", true), edited.clone()]);
        assert_eq!(
            (feed.pop(), feed.pop()),
            (Some(news("a", true)), Some(edited))
        );
        assert_eq!(feed.pop(), None);
    }
}
