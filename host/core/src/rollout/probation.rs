//! What is watched for a while after a revision became active, and when that takes it back.

use super::names;
use crate::reference::ObjectRef;
use serde::{Deserialize, Serialize};
use serde_json::json;
use transom_api::KnownReason;
use transom_api::policy::RollbackSpec;

/// What is watched for a while after a revision became active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Probation {
    /// Until when, in seconds since 1970.
    until_seconds: i64,
    /// For how long. One that was kept by an earlier agent does not say.
    #[serde(default = "usual")]
    window_seconds: u32,
    /// How many primaries failed under the revision before by a fault of its guest.
    pub faults: usize,
}

fn usual() -> u32 {
    RollbackSpec::default().window_seconds
}

impl Probation {
    /// That of a revision that becomes active now.
    pub fn new(now_seconds: i64, faults: usize, rollback: RollbackSpec) -> Self {
        let window_seconds = rollback.window_seconds;
        Self {
            until_seconds: now_seconds.saturating_add(i64::from(window_seconds)),
            window_seconds,
            faults,
        }
    }

    /// Whether it is over.
    pub fn is_over(&self, now_seconds: i64) -> bool {
        self.until_seconds <= now_seconds
    }

    /// Whether it goes on and has begun, by this clock: not while the clock is set back to before its beginning.
    pub fn goes_on(&self, now_seconds: i64) -> bool {
        !self.is_over(now_seconds) && self.bounded(now_seconds) == *self
    }

    /// The same, not longer than its window from now on: the clock may have been set back.
    #[must_use]
    pub fn bounded(self, now_seconds: i64) -> Self {
        let latest = now_seconds.saturating_add(i64::from(self.window_seconds));
        Self {
            until_seconds: self.until_seconds.min(latest),
            ..self
        }
    }

    /// When it is over, in seconds since 1970.
    pub fn until_seconds(&self) -> i64 {
        self.until_seconds
    }

    /// As it is kept.
    pub(super) fn text(self) -> String {
        json!(self).to_string()
    }
}

/// The primaries of a policy that count against a new revision, as [`crate::failure::failing::counts`] decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// When they were counted, in seconds since 1970.
    pub at_seconds: i64,
    /// How many primaries there are.
    pub primaries: usize,
    /// Those that fail.
    pub now: Vec<(ObjectRef, KnownReason, String)>,
}

/// Why a new revision is taken back: so many more primaries fail than before by a fault of its guest, or because it is
/// not what was tried.
pub fn rolls_back(before: usize, now: &Faults, rollback: RollbackSpec) -> Option<String> {
    let (count, all) = (now.now.len(), now.primaries);
    let (_, reason, why) = now.now.first()?;
    let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let share = all.saturating_mul(size(rollback.percent)).div_ceil(100);
    let least = share.max(size(rollback.count)).max(1);
    let named = names(now.now.iter().map(|(primary, _, _)| primary));
    (count >= before.saturating_add(least)).then(|| {
        format!("{count} of {all} primaries failed after it became active, {before} before ({named}): {reason:?}: {why}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::hosted;

    #[test]
    fn a_revision_is_taken_back_from_the_level_of_its_policy_on() {
        let faults = |count: usize| Faults {
            at_seconds: 0,
            primaries: 250,
            now: (0..count)
                .map(|n| {
                    let why = "why".to_owned();
                    (hosted(&format!("c{n}")), KnownReason::Diverged, why)
                })
                .collect(),
        };
        let level = |count, percent| RollbackSpec {
            count,
            percent,
            ..RollbackSpec::default()
        };
        for (before, count, percent, least) in [
            (0, 1, 1, 3),
            (4, 1, 1, 7),
            (0, 5, 1, 5),
            (0, 1, 10, 25),
            (0, 0, 0, 1),
        ] {
            let rolls = |now| rolls_back(before, &faults(now), level(count, percent));
            assert_eq!(rolls(least - 1), None, "{count} {percent}");
            let why = rolls(least).unwrap();
            let begins = format!("{least} of 250 primaries failed");
            assert!(
                why.starts_with(&begins) && why.contains("c0") && why.ends_with("Diverged: why"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_probation_lasts_as_long_as_its_policy_said_and_no_longer() {
        let rollback = RollbackSpec {
            window_seconds: 60,
            ..RollbackSpec::default()
        };
        let short = Probation::new(1_000, 0, rollback);
        assert!(!short.is_over(1_000) && !short.is_over(1_059));
        assert!(short.is_over(1_060));
        // The clock was set back: it lasts for one window more.
        assert!(short.goes_on(1_000) && !short.goes_on(999) && !short.goes_on(1_060));
        let set_back = short.bounded(900);
        assert!(!set_back.is_over(959) && set_back.is_over(960));
        assert_eq!(short.bounded(1_030), short);
        let earlier: Probation =
            serde_json::from_str("{\"untilSeconds\":1600,\"faults\":2}").unwrap();
        assert_eq!(earlier, Probation::new(1_000, 2, RollbackSpec::default()));
    }
}
