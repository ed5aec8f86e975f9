//! The settings of the guest `availability`: how long heartbeats may be missing.

use serde::Deserialize;
use transom_guest::Problem;

const DAY: u32 = 86_400;
/// How late a heartbeat may be when one that is missing counts, in seconds: half of the default duration.
const LATE: u32 = 30;

/// The settings. By default a cluster is `Unknown` after five lease durations, as Open Cluster Management does it.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// After how many lease durations without a heartbeat a cluster is `Unknown`; never before one and a half of them.
    pub missed_beats: u32,
    /// How much later than that, in seconds.
    pub delay_seconds: u32,
    /// How many seconds a cluster that became available stays so, although its heartbeats stop.
    pub settle_seconds: u32,
    /// Whether the condition of the clock is set.
    pub clock: bool,
    /// Whether heartbeats count from when the agent sees them come, instead of by the time that they carry, also for
    /// whether the cluster is available.
    pub observed: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            missed_beats: 5,
            delay_seconds: 0,
            settle_seconds: 0,
            clock: true,
            observed: false,
        }
    }
}

impl Settings {
    /// Refuses numbers out of range.
    pub(crate) fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(1..=100).contains(&self.missed_beats) {
            problems.push(Problem::in_settings("missedBeats", "is not from 1 to 100"));
        }
        if self.missed_beats == 1 && self.delay_seconds < LATE {
            let why = "of 1 needs `delaySeconds` of 30 or more: an agent beats up to a quarter of a lease duration late";
            problems.push(Problem::in_settings("missedBeats", why));
        }
        for (field, seconds) in [
            ("delaySeconds", self.delay_seconds),
            ("settleSeconds", self.settle_seconds),
        ] {
            if seconds > DAY {
                problems.push(Problem::in_settings(field, "is more than 86400"));
            }
        }
        problems
    }
}
