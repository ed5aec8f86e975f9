//! Follows corrections of the clock: what waits for a time of day must not wait for as long as a wrong clock said.

use super::Controller;
use std::time::Duration;
use tokio::time::Instant;

/// How often to compare the clock with the time that passed.
const LOOK: Duration = Duration::from_secs(15);
/// Both are rounded: less is no correction.
const LEAST_SECONDS: i64 = 2;

impl Controller {
    /// Has timers come earlier after the clock was set forward, until the task is aborted.
    pub(crate) async fn follow_clock(&self) {
        let mut last = Look::new(self.clock.now_seconds(), Instant::now());
        loop {
            tokio::time::sleep(LOOK).await;
            if let Some(by) = last.step(self.clock.now_seconds(), Instant::now()) {
                self.queues.all().iter().for_each(|queue| queue.advance(by));
            }
        }
    }
}

/// What the clock said when it was last found wrong, or at the start.
struct Look {
    wall_seconds: i64,
    at: Instant,
}

impl Look {
    fn new(wall_seconds: i64, at: Instant) -> Self {
        Self { wall_seconds, at }
    }

    /// By how much the clock was set forward since, at once or little by little. After it was set back, timers come too
    /// early, which does no harm: the guest names the time again.
    fn step(&mut self, wall_seconds: i64, at: Instant) -> Option<Duration> {
        let passed = at.saturating_duration_since(self.at).as_secs();
        let said = wall_seconds.saturating_sub(self.wall_seconds);
        let ahead = said.saturating_sub(i64::try_from(passed).unwrap_or(i64::MAX));
        if ahead.abs() < LEAST_SECONDS {
            return None;
        }
        *self = Self::new(wall_seconds, at);
        let ahead = u64::try_from(ahead).ok();
        ahead.map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_was_set_forward_brings_timers_forward() {
        let begun = Instant::now();
        let mut last = Look::new(1_000, begun);
        // What passed, what the clock says then, and by how much it was set forward.
        for (passed, wall, step) in [
            (15, 1_015, None),
            (30, 1_031, None),
            // Little by little.
            (45, 1_047, Some(2)),
            (60, 1_062, None),
            (75, 11_877, Some(10_800)),
            (90, 11_892, None),
            // Set back, and then right.
            (105, 1_107, None),
            (120, 1_122, None),
        ] {
            let found = last.step(wall, begun + Duration::from_secs(passed));
            assert_eq!(found, step.map(Duration::from_secs), "{passed} {wall}");
        }
    }
}
