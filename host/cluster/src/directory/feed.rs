//! The queue of one listener. It holds names and no values, so it stays small however slow the listener is.
//! The listener always reads the present value, and an object is queued only once.

use super::Shared;
use super::change::News;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use transom_core::observation::Observation;
use transom_core::reference::ObjectRef;
use transom_core::share::lock::MutexExt as _;

/// An entry of the queue.
enum Item {
    News(News),
    Synced,
}

/// The pending news of one listener.
#[derive(Default)]
pub(super) struct Feed {
    queue: Mutex<Queue>,
    ready: Notify,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    objects: BTreeSet<Arc<ObjectRef>>,
}

impl Feed {
    /// Adds news.
    pub(super) fn push(&self, news: impl IntoIterator<Item = News>) {
        let mut queue = self.queue.locked();
        for news in news {
            match &news {
                News::Object(reference) if !queue.objects.insert(Arc::clone(reference)) => {}
                _ => queue.items.push_back(Item::News(news)),
            }
        }
        drop(queue);
        self.ready.notify_one();
    }

    /// Marks the end of the objects that were present at the start.
    pub(super) fn push_synced(&self) {
        self.queue.locked().items.push_back(Item::Synced);
        self.ready.notify_one();
    }

    /// Takes the next entry.
    fn pop(&self) -> Option<Item> {
        let mut queue = self.queue.locked();
        let item = queue.items.pop_front();
        if let Some(Item::News(News::Object(reference))) = &item {
            queue.objects.remove(reference);
        }
        item
    }
}

/// The observations of a directory: every object, `Synced`, then changes.
pub struct Observations {
    pub(super) shared: Arc<Shared>,
    pub(super) feed: Arc<Feed>,
}

impl Observations {
    /// The next observation; waits until there is one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Observation {
        loop {
            if let Some(observation) = self.try_next() {
                return observation;
            }
            self.feed.ready.notified().await;
        }
    }

    /// The next observation, if there is one now.
    pub fn try_next(&mut self) -> Option<Observation> {
        loop {
            match self.feed.pop()? {
                Item::Synced => return Some(Observation::Synced),
                Item::News(News::Unreadable(unreadable)) => {
                    return Some(Observation::Unreadable(*unreadable));
                }
                Item::News(News::Readable(place)) => return Some(Observation::Readable(place)),
                Item::News(News::Object(reference)) if !self.shared.observes(&reference) => {}
                Item::News(News::Object(reference)) => match self.shared.read_kept(&reference) {
                    Ok(Some(object)) => return Some(Observation::Present(object)),
                    Ok(None) => return Some(Observation::Gone(reference.as_ref().clone())),
                    // Its fault, such as several files with the object, has news of its own.
                    Err(_) => {}
                },
            }
        }
    }
}
