//! The queue of one listener. It holds topics and no values, so it stays small however slow the listener is.
//! The listener always reads the present state, and a topic is queued only once.

use super::shared::Shared;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use transom_core::observation::Observation;
use transom_core::reference::ObjectRef;
use transom_core::watches::Scope;

/// The topic of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    /// An object changed or is gone.
    Object(Arc<ObjectRef>),
    /// An object became usable or unusable.
    Fault(Arc<ObjectRef>),
    /// A watch can be followed, or cannot.
    Watch(Arc<Scope>),
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct News {
    /// Its topic.
    pub(super) topic: Topic,
    /// Whether the object is gone. An object that is absent without this flag is only no longer watched, and not
    /// reported.
    pub(super) gone: bool,
}

/// The pending news of one listener.
#[derive(Default)]
pub(super) struct Feed {
    queue: Mutex<Queue>,
    ready: Notify,
}

#[derive(Default)]
struct Queue {
    order: VecDeque<Topic>,
    gone: HashMap<Topic, bool>,
}

impl Feed {
    /// The queue. A poisoned lock is usable, because no panic leaves the queue half changed.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds news; for each topic only the latest counts.
    pub(super) fn push(&self, news: impl IntoIterator<Item = News>) {
        let mut queue = self.queue();
        for News { topic, gone } in news {
            if queue.gone.insert(topic.clone(), gone).is_none() {
                queue.order.push_back(topic);
            }
        }
        drop(queue);
        self.ready.notify_one();
    }

    /// Takes the next news.
    pub(super) fn pop(&self) -> Option<News> {
        let mut queue = self.queue();
        let topic = queue.order.pop_front()?;
        let gone = queue.gone.remove(&topic).unwrap_or_default();
        Some(News { topic, gone })
    }
}

/// The observations of a cluster: every change since this was made.
pub struct Observations {
    pub(super) shared: Arc<Shared>,
    pub(super) feed: Arc<Feed>,
}

impl Observations {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn de_duplicates_by_key_and_keeps_the_latest_event() {
        let feed = Feed::default();
        let topic =
            |name: &str| Topic::Object(Arc::new(ObjectRef::local("v1", "Secret", Some("n"), name)));
        let news = |name: &str, gone: bool| News {
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
        assert_eq!(feed.pop(), None);
    }
}
