//! Limits a call by its CPU time, so that a busy machine fails no guest. Wall time has a generous ceiling, for a thread
//! that gets no CPU at all.

use crate::call::CallState;
use crate::failure::CallFailure;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use wasmtime::{Store, UpdateDeadline};

/// Ticks until the first read of the CPU clock. Most calls end before that and never read it: a read costs as much as a
/// small call. The CPU time of a call counts from its first read.
const FIRST_LOOK: u64 = 2;

/// The ceiling of wall time: this many times the time limit of the call, and at least ten seconds.
const CEILING: u32 = 20;
const LEAST_CEILING: Duration = Duration::from_secs(10);

/// More ticks than any engine lives, and few enough to be added to the current tick.
const FOR_EVER: u64 = u64::MAX / 2;

/// The time of one call.
pub(crate) struct Time {
    started: Instant,
    /// When it was looked at first, and what its thread had used by then.
    looked: Option<(Instant, Duration)>,
}

impl Time {
    /// From now on.
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            looked: None,
        }
    }

    /// What a call has used, for its receipt: wall time, but CPU time from the first read of the CPU clock on. Does not
    /// read that clock for a call that ended before its first read.
    pub(crate) fn used(&self) -> Duration {
        let passed = self.started.elapsed();
        self.looked.map_or(passed, |(at, before)| {
            let used = processor().saturating_sub(before);
            passed.min(at.duration_since(self.started) + used)
        })
    }

    /// How many ticks a call may go on until the next look.
    fn check(&mut self, allowed_ms: u64) -> Result<u64, CallFailure> {
        let (_, before) = *self
            .looked
            .get_or_insert_with(|| (Instant::now(), processor()));
        let used = processor().saturating_sub(before);
        go_on(used, self.started.elapsed(), allowed_ms)
    }
}

/// Stops a call in this store once it has used its time.
pub(crate) fn limit(store: &mut Store<CallState>, allowed_ms: u64, of_processor: bool) {
    if !of_processor {
        // A trap at the last tick is the default.
        store.set_epoch_deadline(allowed_ms.min(FOR_EVER));
        return;
    }
    store.set_epoch_deadline(FIRST_LOOK.min(allowed_ms));
    store.epoch_deadline_callback(move |mut store| {
        let ticks = store.data_mut().time.check(allowed_ms)?;
        Ok(UpdateDeadline::Continue(ticks))
    });
}

/// The ticks until the next look at a call that used this much while that much passed.
fn go_on(used: Duration, passed: Duration, allowed_ms: u64) -> Result<u64, CallFailure> {
    let allowed = Duration::from_millis(allowed_ms);
    if used >= allowed {
        return Err(CallFailure::TimedOut { allowed_ms });
    }
    if passed >= allowed.saturating_mul(CEILING).max(LEAST_CEILING) {
        return Err(CallFailure::NoProcessor {
            used_ms: millis(used),
            passed_ms: millis(passed),
        });
    }
    Ok(millis(allowed - used).clamp(1, FOR_EVER))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time that this thread has had a processor.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_call_goes_on_until_it_has_used_its_time() {
        assert_eq!(go_on(MS(0), MS(0), 250), Ok(250));
        assert_eq!(go_on(MS(100), MS(4_000), 250), Ok(150));
        // Less than a tick is left.
        let almost = MS(250) - Duration::from_nanos(1);
        assert_eq!(go_on(almost, almost, 250), Ok(1));
        for passed in [250, 100_000] {
            let stopped = go_on(MS(250), MS(passed), 250);
            assert_eq!(stopped, Err(CallFailure::TimedOut { allowed_ms: 250 }));
        }
    }

    #[test]
    fn a_thread_without_a_processor_ends_at_the_ceiling_and_the_machine_is_to_blame() {
        assert!(go_on(MS(10), MS(19_999), 1_000).is_ok());
        assert!(go_on(MS(0), MS(9_999), 1).is_ok());
        let stopped = go_on(MS(10), MS(20_000), 1_000).unwrap_err();
        assert_eq!(stopped.reason(), "EngineBusy");
        assert!(stopped.to_string().contains("10 ms"), "{stopped}");
    }

    #[test]
    fn no_limit_overflows() {
        assert_eq!(go_on(MS(1), MS(u64::MAX), u64::MAX), Ok(FOR_EVER));
    }

    #[test]
    fn the_clock_of_the_processor_goes_on_while_a_thread_works() {
        let before = processor();
        let mut sum = 0_u64;
        while processor() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(processor() > before);
    }
}
