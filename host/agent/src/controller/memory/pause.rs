//! For how long the memory is locked at a time while a swap goes on: no reconcile can start meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Steps of a doubling: a duration is told to a quarter of itself.
const STEPS: u64 = 4;
/// Durations that are counted apart: 64 doublings of a nanosecond.
const COUNTED: usize = 64 * 4;

/// The pause of a swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pause {
    /// The longest lock. With thousands of locks it is one that the kernel interrupted: even one that only looks up a
    /// key takes a hundred microseconds then.
    pub(crate) longest: Duration,
    /// What 999 of 1,000 locks did not exceed, rounded up by at most a quarter.
    pub(crate) p999: Duration,
}

/// The locks of a swap, by their duration.
#[derive(Debug)]
pub(super) struct Locks {
    counts: [AtomicU64; COUNTED],
    longest: AtomicU64,
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; COUNTED],
            longest: AtomicU64::default(),
        }
    }
}

impl Locks {
    /// Forgets all of them.
    pub(super) fn clear(&self) {
        let counts = self.counts.iter().chain([&self.longest]);
        counts.for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Counts one.
    pub(super) fn add(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get(step(nanos)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// What they say of the pause.
    pub(super) fn pause(&self) -> Pause {
        let longest = self.longest.load(Ordering::Relaxed);
        let counts = || {
            self.counts
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
        };
        let all: u64 = counts().sum();
        let mut sum = 0;
        let reached = counts().position(|count| {
            sum += count;
            all > 0 && sum.saturating_mul(1_000) >= all.saturating_mul(999)
        });
        let p999 = reached.map_or(0, end).min(longest);
        Pause {
            longest: Duration::from_nanos(longest),
            p999: Duration::from_nanos(p999),
        }
    }
}

/// The step of a duration.
fn step(nanos: u64) -> usize {
    let nanos = nanos.max(STEPS);
    let doublings = u64::from(nanos.ilog2());
    let quarter = (nanos >> (doublings - 2)) - STEPS;
    usize::try_from(doublings * STEPS + quarter).unwrap_or(COUNTED - 1)
}

/// The longest duration of a step.
fn end(step: usize) -> u64 {
    let next = u64::try_from(step + 1).unwrap_or(u64::MAX);
    let (doublings, quarter) = (next / STEPS, next % STEPS);
    match doublings {
        0..2 => STEPS,
        2..64 => ((STEPS + quarter) << (doublings - 2)) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_told_to_a_quarter_of_itself() {
        for nanos in (4..100_000).chain([u64::MAX / 3, u64::MAX - 1, u64::MAX]) {
            let end = end(step(nanos));
            assert!(end >= nanos && end - nanos <= nanos / 4, "{nanos}: {end}");
        }
        assert_eq!((step(0), step(1)), (step(4), step(4)));
    }

    #[test]
    fn one_lock_of_a_thousand_may_be_longer_than_the_percentile() {
        let locks = Locks::default();
        let micros = Duration::from_micros;
        assert_eq!(locks.pause(), Pause::default());
        (0..999).for_each(|_| locks.add(micros(1)));
        locks.add(micros(500));
        let pause = locks.pause();
        assert_eq!(pause.longest, micros(500));
        assert!((micros(1)..micros(2)).contains(&pause.p999), "{pause:?}");
        locks.add(micros(600));
        assert!(locks.pause().p999 >= micros(500));
        locks.clear();
        assert_eq!(locks.pause(), Pause::default());
    }
}
