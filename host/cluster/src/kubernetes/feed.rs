//! What was not told yet, for one listener: names, not values, so that it stays small however slow the listener is.
//! Never tells an older state than the present one, and never one object twice for one change.

use super::shared::Shared;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use transom_core::observation::Observation;
use transom_core::reference::ObjectRef;
use transom_core::watches::Scope;

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Topic {
    /// An object is other than before, or gone.
    Object(Arc<ObjectRef>),
    /// An object became usable or unusable.
    Fault(Arc<ObjectRef>),
    /// A watch can be followed or not.
    Watch(Arc<Scope>),
}

/// One thing to tell, with whether the last word of it was that it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct News {
    /// About what.
    pub(super) topic: Topic,
    /// Whether it is gone; of what is absent without that word nobody looks after it any more.
    pub(super) gone: bool,
}

/// What one listener was not told yet.
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
    /// The queue; a listener that panicked leaves it whole.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what there is to tell; of each topic only the last word counts.
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

    /// Takes the next thing to tell.
    pub(super) fn pop(&self) -> Option<News> {
        let mut queue = self.queue();
        let topic = queue.order.pop_front()?;
        let gone = queue.gone.remove(&topic).unwrap_or_default();
        Some(News { topic, gone })
    }
}

/// What a cluster tells: every change from the moment on at which this was made.
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
    fn an_object_that_changes_often_is_told_once_with_the_last_word() {
        let feed = Feed::default();
        let topic = |name: &str| Topic::Object(Arc::new(ObjectRef::local("v1", "Secret", Some("n"), name)));
        let news = |name: &str, gone: bool| News { topic: topic(name), gone };
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
