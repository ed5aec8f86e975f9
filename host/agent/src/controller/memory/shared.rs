//! [`Memory`] behind its lock. Whoever looks at every primary of a policy takes the lock for a few of them at a time,
//! so that a reconcile waits for a few at most; what comes or goes meanwhile may be missed.

use super::pause::{Locks, Pause};
use super::{LastResult, Memory};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::ops::{Bound, Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use transom_core::dependencies::Outputs;
use transom_core::ownership::OwnershipIndex;
use transom_core::plan::contention::Contentions;
use transom_core::share::lock::MutexExt as _;
use transom_core::work::Key;

/// How many primaries are looked at under one lock. That takes less than a call of a guest.
const LOOKED_AT: usize = 4;
/// How many are copied with their targets under one lock.
const COPIED: usize = 2;

/// The memory behind its lock.
pub(crate) struct SharedMemory {
    memory: Mutex<Memory>,
    /// The memory's contentions, which have a lock of their own: a plan takes longer than all else that needs the
    /// memory.
    pub(crate) contentions: Arc<Contentions>,
    /// How many measure for how long it is locked.
    measured: AtomicUsize,
    /// The locks since one does.
    locks: Locks,
    /// How often the lock was taken.
    #[cfg(test)]
    taken: AtomicUsize,
}

/// The memory while it is locked.
pub(crate) struct Locked<'a> {
    memory: MutexGuard<'a, Memory>,
    /// Since when in the time of this thread, if that is measured.
    since: Option<(Duration, &'a Locks)>,
}

/// Measures for how long the memory is locked at a time, by anyone, until it is dropped: the processor time of whoever
/// holds the lock. That the kernel gives the processor to others meanwhile has other causes.
pub(crate) struct Measure<'a>(&'a SharedMemory);

impl Default for SharedMemory {
    fn default() -> Self {
        let memory = Memory::default();
        Self {
            contentions: Arc::clone(&memory.contentions),
            memory: Mutex::new(memory),
            measured: AtomicUsize::default(),
            locks: Locks::default(),
            #[cfg(test)]
            taken: AtomicUsize::default(),
        }
    }
}

impl SharedMemory {
    /// Takes the lock for a short while. A panic while it was held leaves every index whole, so poisoning is ignored.
    pub(crate) fn lock(&self) -> Locked<'_> {
        let memory = self.memory.locked();
        #[cfg(test)]
        self.taken.fetch_add(1, Ordering::Relaxed);
        let measures = self.measured.load(Ordering::Relaxed) > 0;
        Locked {
            memory,
            since: measures.then(|| (now(), &self.locks)),
        }
    }

    /// Measures from now on for how long the lock is held at a time.
    pub(crate) fn measure(&self) -> Measure<'_> {
        if self.measured.fetch_add(1, Ordering::Relaxed) == 0 {
            self.locks.clear();
        }
        Measure(self)
    }

    /// Looks at the result of each primary of a policy, in order of their names.
    pub(crate) fn each_result(&self, policy: &str, mut each: impl FnMut(&Key, &LastResult)) {
        self.in_pieces(Key::first_of(policy), |memory, from| {
            let results = memory.results_from(policy, from).take(LOOKED_AT);
            let looked = results.inspect(|(key, result)| each(key, result));
            looked.last().map(|(key, _)| key.clone())
        });
    }

    /// Looks at the result of each primary of all policies, in order.
    pub(crate) fn each_result_of_all(&self, mut each: impl FnMut(&Key, &LastResult)) {
        self.in_pieces(Bound::Unbounded, |memory, from| {
            let results = memory.results.range((from, Bound::Unbounded));
            let looked = results
                .take(LOOKED_AT)
                .inspect(|(key, result)| each(key, result));
            looked.last().map(|(key, _)| key.clone())
        });
    }

    /// When the first client certificate expires in what each policy made, in seconds since 1970.
    pub(crate) fn first_ends(&self) -> BTreeMap<Arc<str>, i64> {
        let mut first = BTreeMap::new();
        self.in_pieces(Bound::Unbounded, |memory, from| {
            let ends = memory.ends.range((from, Bound::Unbounded));
            let looked = ends.take(LOOKED_AT).inspect(|(key, ends)| {
                let found = first.entry(Arc::clone(&key.policy)).or_insert(**ends);
                *found = (*found).min(**ends);
            });
            looked.last().map(|(key, _)| key.clone())
        });
        first
    }

    /// The keys of a policy that have a result, or something that was made for them.
    pub(crate) fn keys_of(&self, policy: &str) -> Vec<Key> {
        let mut keys = Vec::new();
        self.each_result(policy, |key, _| keys.push(key.clone()));
        self.in_pieces(Key::first_of(policy), |memory, from| {
            let made = memory.outputs.keys(from).take(LOOKED_AT);
            let before = keys.len();
            keys.extend(made.filter(|key| *key.policy == *policy).cloned());
            keys.get(before..)?.last().cloned()
        });
        keys.sort();
        keys.dedup();
        keys
    }

    /// A copy of who wants which target and of what was made, for all policies.
    pub(crate) fn copy_claims(&self) -> (OwnershipIndex, Outputs) {
        let (mut ownership, mut outputs) = (OwnershipIndex::default(), Outputs::default());
        self.in_pieces(Bound::Unbounded, |memory, from| {
            memory.ownership.copy(&mut ownership, from, COPIED)
        });
        self.in_pieces(Bound::Unbounded, |memory, from| {
            let copied = memory.outputs.keys(from).take(COPIED).inspect(|key| {
                let made = memory.outputs.of(key);
                made.for_each(|object| outputs.record(object, Some((*key).clone())));
            });
            copied.last().cloned()
        });
        let memory = self.lock();
        memory.ownership.copy_rest(&mut ownership);
        outputs.copy_uids(&memory.outputs);
        drop(memory);
        (ownership, outputs)
    }

    /// Takes the lock until a piece is the last one: it is given where to go on, and gives the last key that it looked
    /// at.
    fn in_pieces(
        &self,
        mut from: Bound<Key>,
        mut piece: impl FnMut(&Memory, Bound<Key>) -> Option<Key>,
    ) {
        loop {
            let last = piece(&self.lock(), from);
            let Some(last) = last else { return };
            from = Bound::Excluded(last);
        }
    }
}

impl Measure<'_> {
    /// The pause until now.
    pub(crate) fn pause(&self) -> Pause {
        self.0.locks.pause()
    }
}

impl Drop for Measure<'_> {
    fn drop(&mut self) {
        self.0.measured.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for Locked<'_> {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.memory
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some((since, locks)) = self.since {
            locks.add(now().saturating_sub(since));
        }
    }
}

/// The processor time of this thread.
fn now() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_api::KnownReason;
    use transom_core::ownership::Contender;
    use transom_core::reference::ObjectRef;
    use transom_core::report::End;

    const PRIMARIES: usize = 40 * LOOKED_AT;

    fn key(policy: &str, name: usize) -> Key {
        let primary = ObjectRef::local("v1", "Thing", None, &format!("{name:04}"));
        Key::new(&policy.into(), &primary)
    }

    fn made(policy: &str, name: usize) -> ObjectRef {
        ObjectRef::local("v1", "Secret", Some(policy), &name.to_string())
    }

    /// Three policies whose primaries all have a result, an output and a target; and one of `b` that is gone and left
    /// an output behind.
    fn memory() -> SharedMemory {
        let shared = SharedMemory::default();
        let mut memory = shared.lock();
        for policy in ["a", "b", "c"] {
            for name in 0..PRIMARIES {
                let key = key(policy, name);
                let made = made(policy, name);
                memory.outputs.record(&made, Some(key.clone()));
                memory.ownership.set(Contender::of(&key, None), &[made]);
                let last = LastResult::sample(End::InSync, KnownReason::InSync, 0);
                memory.results.insert(key, last);
            }
        }
        let left = (made("b", PRIMARIES), Some(key("b", PRIMARIES)));
        memory.outputs.record(&left.0, left.1);
        drop(memory);
        shared
    }

    /// How often the lock is taken meanwhile.
    fn locks(shared: &SharedMemory, look: impl FnOnce()) -> usize {
        let before = shared.taken.load(Ordering::Relaxed);
        look();
        shared.taken.load(Ordering::Relaxed) - before
    }

    #[test]
    fn everything_of_a_policy_is_found_a_few_at_a_time() {
        let shared = memory();
        let (mut results, mut known) = (Vec::new(), Vec::new());
        let often = locks(&shared, || {
            shared.each_result("b", |key, _| results.push(key.clone()));
        });
        let all: Vec<Key> = (0..PRIMARIES).map(|name| key("b", name)).collect();
        assert_eq!(results, all, "each once, in order, and of no other policy");
        assert!(often >= PRIMARIES / LOOKED_AT, "{often} locks");
        let mut all_results = 0;
        let often = locks(&shared, || {
            shared.each_result_of_all(|_, _| all_results += 1);
        });
        assert_eq!(all_results, 3 * PRIMARIES);
        assert!(often >= 3 * PRIMARIES / LOOKED_AT, "{often} locks");
        let often = locks(&shared, || known = shared.keys_of("b"));
        let left = key("b", PRIMARIES);
        assert_eq!(known, [all, vec![left]].concat());
        assert!(often >= 2 * PRIMARIES / LOOKED_AT, "{often} locks");
        for policy in ["", "aa", "d"] {
            assert_eq!(shared.keys_of(policy), [], "{policy}");
        }
    }

    #[test]
    fn claims_are_copied_a_few_at_a_time() {
        let shared = memory();
        let mut copy = Default::default();
        let often = locks(&shared, || copy = shared.copy_claims());
        let (ownership, outputs) = copy;
        let memory = shared.lock();
        assert_eq!(ownership, memory.ownership);
        let of = |outputs: &Outputs| {
            let keys = outputs.keys(Bound::Unbounded);
            let made = |key: &Key| outputs.of(key).cloned().collect::<Vec<_>>();
            keys.map(|key| (key.clone(), made(key))).collect::<Vec<_>>()
        };
        assert_eq!(of(&outputs), of(&memory.outputs));
        assert!(often >= 2 * 3 * PRIMARIES / COPIED, "{often} locks");
    }

    #[test]
    fn the_first_certificate_of_a_policy_counts() {
        let shared = SharedMemory::default();
        let ends = (0..PRIMARIES).flat_map(|name| {
            let at = i64::try_from(name).unwrap();
            [(key("p", name), 9_000 - at), (key("q", name), 8_000 + at)]
        });
        shared.lock().ends = ends.collect();
        let first: Vec<_> = shared.first_ends().into_iter().collect();
        let least = 9_001 - i64::try_from(PRIMARIES).unwrap();
        assert_eq!(first, [(Arc::from("p"), least), (Arc::from("q"), 8_000)]);
    }

    #[test]
    fn measures_the_longest_lock_until_nobody_measures() {
        let shared = SharedMemory::default();
        let hold = |least: Duration| {
            let locked = shared.lock();
            let since = now();
            while now() - since < least {
                std::hint::spin_loop();
            }
            drop(locked);
        };
        let (short, long) = (Duration::from_micros(1), Duration::from_millis(2));
        hold(long);
        let measure = shared.measure();
        hold(short);
        let other = shared.measure();
        assert!(measure.pause().longest >= short);
        hold(long);
        assert!(measure.pause().longest >= long && other.pause().longest >= long);
        drop((measure, other));
        hold(long);
        let anew = shared.measure().pause();
        assert_eq!(anew, Pause::default(), "it begins anew");
    }
}
