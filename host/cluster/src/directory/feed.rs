//! The queue of one listener. It holds names and no values, so it stays small however slow the listener is.
//! The listener always reads the present value, and an object is queued only once.

use super::SharedDirectory;
use super::change::DirectoryNews;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use transom_core::observation::{Observation, Unwatched};
use transom_core::reference::ObjectRef;
use transom_core::share::lock::MutexExt as _;

/// The pending news of one listener.
#[derive(Default)]
pub(super) struct DirectoryFeed {
    queue: Mutex<Queue>,
    ready: Notify,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<DirectoryNews>,
    objects: BTreeSet<Arc<ObjectRef>>,
}

impl DirectoryFeed {
    /// Adds news.
    pub(super) fn push(&self, news: impl IntoIterator<Item = DirectoryNews>) {
        let mut queue = self.queue.locked();
        for news in news {
            match &news {
                DirectoryNews::Object(reference)
                    if !queue.objects.insert(Arc::clone(reference)) => {}
                _ => queue.items.push_back(news),
            }
        }
        drop(queue);
        self.ready.notify_one();
    }

    /// Takes the next entry.
    fn pop(&self) -> Option<DirectoryNews> {
        let mut queue = self.queue.locked();
        let item = queue.items.pop_front();
        if let Some(DirectoryNews::Object(reference)) = &item {
            queue.objects.remove(reference);
        }
        item
    }
}

/// The changes of a directory.
pub struct DirectoryObservations {
    pub(super) shared: Arc<SharedDirectory>,
    pub(super) feed: Arc<DirectoryFeed>,
}

impl DirectoryObservations {
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
                DirectoryNews::Unreadable(unreadable) => {
                    return Some(Observation::Unreadable(*unreadable));
                }
                DirectoryNews::Readable(place) => {
                    let folder = Unwatched::Connection(self.shared.name.clone());
                    return Some(Observation::Readable(place, folder));
                }
                DirectoryNews::FileReadable(place) => {
                    return Some(Observation::FileReadable(place));
                }
                DirectoryNews::Object(reference) if !self.shared.observes(&reference) => {}
                DirectoryNews::Object(reference) => {
                    match self.shared.read_kept(&reference) {
                        Ok(Some(object)) => return Some(Observation::Present(object)),
                        Ok(None) => return Some(Observation::Gone(reference.as_ref().clone())),
                        // Its fault, such as several files with the object, has news of its own.
                        Err(_) => {}
                    }
                }
            }
        }
    }
}
