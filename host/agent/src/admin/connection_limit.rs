//! A limit on the peers that are served at a time, for one purpose. A new peer is never refused: the oldest one has to
//! leave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Places for peers, in the order in which they came.
pub(super) struct ConnectionLimit {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    came: u64,
    leave: BTreeMap<u64, Arc<Notify>>,
}

/// One place; given back when this is dropped.
pub(super) struct Place {
    limit: Arc<ConnectionLimit>,
    came: u64,
}

impl ConnectionLimit {
    /// A limit with `most` places.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: Mutex::default(),
        })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place. When all are taken, notifies the `leave` of the oldest peer.
    pub(super) fn enter(self: &Arc<Self>, leave: &Arc<Notify>) -> Place {
        let mut held = self.held();
        if held.leave.len() >= self.most {
            held.dismiss();
        }
        held.came += 1;
        let came = held.came;
        held.leave.insert(came, Arc::clone(leave));
        Place {
            limit: Arc::clone(self),
            came,
        }
    }

    /// Notifies the oldest peer to leave.
    pub(super) fn dismiss(&self) {
        self.held().dismiss();
    }
}

impl Held {
    fn dismiss(&mut self) {
        if let Some((_, first)) = self.leave.pop_first() {
            first.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limit.held().leave.remove(&self.came);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[test]
    fn only_the_oldest_connection_makes_room() {
        let limit = ConnectionLimit::new(2);
        let peers = [(); 4].map(|()| Arc::new(Notify::new()));
        let told = || {
            peers
                .iter()
                .map(|peer| peer.notified().now_or_never().is_some())
                .collect::<Vec<_>>()
        };
        let first = limit.enter(&peers[0]);
        let _second = limit.enter(&peers[1]);
        assert_eq!(told(), [false; 4]);
        drop(first);
        let _third = limit.enter(&peers[2]);
        assert_eq!(told(), [false; 4], "a place was free");
        let _fourth = limit.enter(&peers[3]);
        assert_eq!(told(), [false, true, false, false]);
        limit.dismiss();
        assert_eq!(told(), [false, false, true, false]);
        assert_eq!(limit.held().leave.len(), 1);
    }
}
