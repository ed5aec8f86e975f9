//! The memory budget for what reconciles read, decoded. All reconciles share it; one policy gets at most three
//! quarters. A reconcile does not wait while it holds a part: when it needs more than is left, it gives all back, waits
//! for everything that it needs, and begins again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use transom_api::KnownReason;
use transom_core::failure::Failure;
use transom_core::reference::ObjectRef;
use transom_core::share::budget::Budget;
use transom_core::share::lock::MutexExt as _;

/// An object, and at most one copy of it for the guest.
const COPIES: usize = 2;

/// Room for all reconciles, in KiB.
pub(crate) struct Documents {
    left: Arc<Semaphore>,
    /// What is left of each policy's share, while one of its reconciles runs.
    shares: Mutex<HashMap<String, Weak<Semaphore>>>,
    /// What one policy may hold at once, so that a server that does not answer leaves the rest to the other policies.
    share: u32,
}

impl Documents {
    /// As much room as the budget gives.
    pub(crate) fn new(budget: &Budget) -> Self {
        let all = kib(usize::try_from(budget.documents).unwrap_or(usize::MAX));
        Self {
            left: Arc::new(Semaphore::new(all as usize)),
            shares: Mutex::default(),
            share: all - all / 4,
        }
    }

    /// The room of one reconcile of a policy, still empty.
    pub(crate) fn room(&self, policy: &str) -> Room {
        let mut shares = self.shares.locked();
        let own = shares
            .get(policy)
            .and_then(Weak::upgrade)
            .unwrap_or_else(|| {
                shares.retain(|_, share| share.strong_count() > 0);
                let own = Arc::new(Semaphore::new(self.share as usize));
                shares.insert(policy.to_owned(), Arc::downgrade(&own));
                own
            });
        Room::empty(own, Arc::clone(&self.left), self.share)
    }
}

/// What one reconcile holds of the room for all.
pub(crate) struct Room {
    /// What is left of the policy's share.
    own: Arc<Semaphore>,
    /// What is left of the room for all.
    left: Arc<Semaphore>,
    /// The policy's share: what one reconcile may hold at most.
    share: u32,
    held: Option<Held>,
    used: u32,
    lacking: Option<u32>,
    over: bool,
}

/// The same amount of a policy's share and of the room for all.
struct Held {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Held {
    /// Takes both amounts if both are available now.
    fn try_take(own: &Arc<Semaphore>, left: &Arc<Semaphore>, kib: u32) -> Option<Self> {
        let own = Arc::clone(own).try_acquire_many_owned(kib).ok()?;
        Some(Self {
            own,
            all: Arc::clone(left).try_acquire_many_owned(kib).ok()?,
        })
    }

    /// Waits for both amounts: first among the reconciles of one policy, then among the policies.
    async fn take(own: &Arc<Semaphore>, left: &Arc<Semaphore>, kib: u32) -> Option<Self> {
        let own = Arc::clone(own).acquire_many_owned(kib).await.ok()?;
        Some(Self {
            own,
            all: Arc::clone(left).acquire_many_owned(kib).await.ok()?,
        })
    }

    fn merge(&mut self, more: Self) {
        self.own.merge(more.own);
        self.all.merge(more.all);
    }

    fn give_back(&mut self, kib: usize) {
        drop((self.own.split(kib), self.all.split(kib)));
    }
}

impl Room {
    fn empty(own: Arc<Semaphore>, left: Arc<Semaphore>, share: u32) -> Self {
        Self {
            own,
            left,
            share,
            held: None,
            used: 0,
            lacking: None,
            over: false,
        }
    }

    /// Takes room for an object before it is decoded.
    ///
    /// # Errors
    /// `ObjectTooLarge` when the share is too small for it; any other failure when there is not enough room now, see
    /// [`Self::lacks`]. A caller that goes on to take all that it needs lacks the sum, and begins again only once.
    pub(crate) fn take(&mut self, object: &ObjectRef, bytes: usize) -> Result<(), Failure> {
        let wanted = kib(bytes.saturating_mul(COPIES));
        let used = self.lacking.unwrap_or(self.used).saturating_add(wanted);
        if used > self.share && !self.over {
            let message = format!(
                "{object} and the objects that are read with it take {} MiB after decoding; the limit is {} MiB",
                used >> 10,
                self.share >> 10
            );
            return Err(
                Failure::known(KnownReason::ObjectTooLarge, message).about([object.clone()])
            );
        }
        self.add(wanted)
    }

    /// Takes room for reading credentials, at most what is left of the share, so that one document always fits.
    ///
    /// # Errors
    /// When there is not enough room now, see [`Self::lacks`].
    pub(crate) fn take_up_to(&mut self, bytes: usize) -> Result<(), Failure> {
        self.add(kib(bytes).min(self.share.saturating_sub(self.used)))
    }

    fn add(&mut self, wanted: u32) -> Result<(), Failure> {
        let used = self.lacking.unwrap_or(self.used).saturating_add(wanted);
        let more = used.saturating_sub(self.held());
        if more > 0 && !self.over {
            let more = Held::try_take(&self.own, &self.left, more).filter(|_| !self.lacks());
            let Some(more) = more else {
                self.lacking = Some(used);
                return Err(Failure::known(
                    KnownReason::AgentFailed,
                    "not enough memory to read objects now",
                ));
            };
            match &mut self.held {
                Some(held) => held.merge(more),
                None => self.held = Some(more),
            }
        }
        self.used = used;
        Ok(())
    }

    fn held(&self) -> u32 {
        self.held.as_ref().map_or(0, |held| {
            u32::try_from(held.all.num_permits()).unwrap_or(u32::MAX)
        })
    }

    /// What is used now, for [`Self::back`].
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Returns to an earlier use: what was read since then was dropped. Its room is kept for the next reads.
    pub(crate) fn back(&mut self, used: u32) {
        self.used = used;
    }

    /// Gives back what is not used. Later reads need no room: something may have been written, so the reconcile cannot
    /// begin again.
    pub(crate) fn finish(&mut self) {
        self.over = true;
        let unused = self.held().saturating_sub(self.used) as usize;
        if let Some(held) = &mut self.held {
            held.give_back(unused);
        }
    }

    /// Whether something was not read because room was lacking.
    pub(crate) fn lacks(&self) -> bool {
        self.lacking.is_some()
    }

    /// Gives all room back, then waits for as much as was lacking, first come, first served. For the same reconcile
    /// from its beginning.
    pub(crate) async fn again(self) -> Self {
        let Self {
            own,
            left,
            share,
            held,
            lacking,
            ..
        } = self;
        drop(held);
        let held = Held::take(&own, &left, lacking.unwrap_or_default().min(share)).await;
        Self {
            held,
            ..Self::empty(own, left, share)
        }
    }
}

/// Bytes in KiB, rounded up.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const MIB: usize = 1 << 20;

    fn documents(mib: u64) -> Documents {
        Documents::new(&Budget {
            calls: 3,
            documents: mib << 20,
        })
    }

    fn secret(name: &str) -> ObjectRef {
        ObjectRef::local("v1", "Secret", Some("n"), name)
    }

    #[test]
    fn refuses_by_name_what_can_never_fit_and_takes_no_memory() {
        let documents = documents(8);
        let mut room = documents.room("p");
        room.take(&secret("a"), MIB).unwrap();
        for bytes in [4 * MIB, usize::MAX] {
            let failure = room.take(&secret("large"), bytes).unwrap_err();
            assert_eq!(failure.reason, KnownReason::ObjectTooLarge.into());
            assert!(
                failure.message.contains("n/large") && failure.objects == [secret("large")],
                "{failure}"
            );
            assert!(!room.lacks());
        }
        room.take(&secret("b"), 3 * MIB / 2).unwrap();
        room.take_up_to(usize::MAX).unwrap();
        assert_eq!(documents.left.available_permits(), 2 << 10);
        drop(room);
        assert_eq!(documents.left.available_permits(), 8 << 10);
    }

    #[test]
    fn dropped_documents_free_memory_within_and_after_a_reconcile() {
        let documents = documents(8);
        let mut room = documents.room("p");
        room.take(&secret("primary"), MIB).unwrap();
        let used = room.used();
        for _ in 0..3 {
            room.take(&secret("input"), MIB).unwrap();
            room.take_up_to(16 * MIB).unwrap();
            room.back(used);
        }
        assert_eq!(documents.left.available_permits(), 2 << 10);
        room.finish();
        assert_eq!(documents.left.available_permits(), 6 << 10);
        // After `finish` nothing is refused.
        room.take(&secret("output"), 100 * MIB).unwrap();
        assert!(!room.lacks());
    }

    #[tokio::test]
    async fn a_waiting_reconcile_holds_no_memory_and_gets_all_of_it_at_once() {
        let documents = documents(8);
        let (mut one, mut other) = (documents.room("p"), documents.room("q"));
        one.take(&secret("a"), MIB).unwrap();
        other.take(&secret("a"), 2 * MIB).unwrap();
        one.take(&secret("b"), 3 * MIB / 2).unwrap_err();
        one.take(&secret("c"), MIB / 2).unwrap_err();
        assert!(one.lacks());
        let mut waits = Box::pin(one.again());
        assert!(futures::poll!(&mut waits).is_pending());
        // A later request does not overtake.
        let mut late = documents.room("q");
        late.take(&secret("c"), 1).unwrap_err();
        drop(other);
        let mut one = waits.await;
        one.take(&secret("a"), MIB).unwrap();
        one.take(&secret("b"), 2 * MIB).unwrap();
        assert_eq!(documents.left.available_permits(), (8 - 6) << 10);
    }

    #[tokio::test]
    async fn a_policy_with_slow_reconciles_leaves_a_quarter_to_the_others() {
        let documents = documents(8);
        let mut holds = documents.room("p");
        holds.take(&secret("a"), 3 * MIB).unwrap();
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let mut room = documents.room("p");
            room.take(&secret("a"), MIB).unwrap_err();
            let mut room = Box::pin(room.again());
            assert!(futures::poll!(&mut room).is_pending());
            waiting.push(room);
        }
        documents.room("q").take(&secret("a"), MIB).unwrap();
        drop(holds);
        for room in waiting {
            room.await.take(&secret("a"), MIB).unwrap();
        }
        documents.room("q");
        assert_eq!(
            documents.shares.lock().unwrap().len(),
            1,
            "policies that are gone are forgotten"
        );
    }

    #[tokio::test]
    async fn concurrent_reads_all_finish_within_the_bound() {
        let documents = Arc::new(documents(8));
        let most = Arc::new(AtomicUsize::new(0));
        let reconciles = (0..200).map(|at| {
            let (documents, most) = (Arc::clone(&documents), Arc::clone(&most));
            tokio::spawn(async move {
                let mut room = documents.room(["p", "q"][at % 2]);
                'again: loop {
                    for object in 0..4 {
                        if room
                            .take(&secret("a"), MIB * (1 + (at + object) % 2) / 2)
                            .is_err()
                        {
                            assert!(room.lacks());
                            room = room.again().await;
                            continue 'again;
                        }
                        most.fetch_max(
                            (8 << 10) - documents.left.available_permits(),
                            Ordering::Relaxed,
                        );
                        tokio::task::yield_now().await;
                    }
                    return;
                }
            })
        });
        let all = futures::future::join_all(reconciles.collect::<Vec<_>>());
        let all = tokio::time::timeout(std::time::Duration::from_secs(60), all)
            .await
            .unwrap();
        assert!(
            all.into_iter().all(|ended| ended.is_ok()) && most.load(Ordering::Relaxed) > 4 << 10
        );
        assert_eq!(documents.left.available_permits(), 8 << 10);
    }
}
