//! Limits by the minute. How often one primary is reconciled, whatever wakes it: an object or an input that changes all
//! the time, or a guest that asks again. How much the guests of a policy log. The caller passes the time.

use crate::failure::Failure;
use crate::time;
use crate::work::Key;
use std::collections::HashMap;
use transom_api::KnownReason;

/// The most reconciles of one primary under one policy in [`WINDOW_SECONDS`]: four a second. In each the guests are
/// called a few times at most.
pub const MAX_RECONCILES: u32 = 240;
/// Length of a minute, which begins with the first reconcile in it.
pub const WINDOW_SECONDS: i64 = 60;
/// Old counters are removed when there are more than this, and then whenever their number has doubled.
const SWEPT_FROM: usize = 1_024;

/// The reconciles of the minute that began last, by primary and policy. In memory only.
#[derive(Clone, Debug, Default)]
pub struct ReconcileLimiter {
    minutes: HashMap<Key, Minute>,
    sweep_at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Minute {
    since_seconds: i64,
    reconciles: u32,
}

/// Why a primary is not reconciled now.
#[derive(Clone, Debug, PartialEq)]
pub struct Throttled {
    /// When it may be reconciled again, in seconds since 1970.
    pub until_seconds: i64,
    /// The failure to report, once for each minute.
    pub told: Option<Failure>,
}

impl ReconcileLimiter {
    /// Counts one more reconcile; admits it within the limit.
    ///
    /// # Errors
    /// Until when the reconcile is put off.
    pub fn admit(&mut self, key: &Key, now_seconds: i64) -> Result<(), Throttled> {
        self.sweep(now_seconds);
        let fresh = Minute {
            since_seconds: now_seconds,
            reconciles: 0,
        };
        let minute = self.minutes.entry(key.clone()).or_insert(fresh);
        if !minute.lasts(now_seconds) {
            *minute = fresh;
        }
        minute.reconciles = minute.reconciles.saturating_add(1);
        if minute.reconciles <= MAX_RECONCILES {
            return Ok(());
        }
        let until_seconds = minute.since_seconds.saturating_add(WINDOW_SECONDS);
        let first = minute.reconciles == MAX_RECONCILES + 1;
        Err(Throttled {
            until_seconds,
            told: first.then(|| exceeded(key, until_seconds)),
        })
    }

    /// Forgets minutes that are over.
    fn sweep(&mut self, now_seconds: i64) {
        if self.minutes.len() >= self.sweep_at.max(SWEPT_FROM) {
            self.minutes.retain(|_, minute| minute.lasts(now_seconds));
            self.sweep_at = self.minutes.len().saturating_mul(2);
        }
    }
}

impl Minute {
    /// Whether it still lasts. A minute that began in the future does not: the clock was set back.
    fn lasts(&self, now_seconds: i64) -> bool {
        (0..WINDOW_SECONDS).contains(&now_seconds.saturating_sub(self.since_seconds))
    }
}

fn exceeded(key: &Key, until_seconds: i64) -> Failure {
    let (primary, at) = (&key.primary, time::format_rfc3339(until_seconds));
    let message = format!(
        "{primary} is not reconciled before {at}: the limit is {MAX_RECONCILES} reconciles per minute"
    );
    Failure::known(KnownReason::ReconcileBudgetExceeded, message).until(Some(until_seconds))
}

/// Bytes of log that the guests of one policy may write in a minute.
pub const LOG_BYTES: u64 = 64 << 10;
/// Seconds for which an allowance is valid.
const LOG_SECONDS: u64 = 60;

/// The use of the minute that began last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    since_seconds: u64,
    used: u64,
    left_out: u64,
}

/// The decision on one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineVerdict {
    /// Whether the line is logged.
    pub told: bool,
    /// How many lines were dropped in the minute before; log this number with the first line of the new minute.
    pub left_out_before: u64,
}

impl Allowance {
    /// Counts one more line of so many bytes. Seconds count from any start, but must not go back.
    pub fn take(&mut self, bytes: u64, now_seconds: u64) -> LineVerdict {
        let mut left_out_before = 0;
        if now_seconds.saturating_sub(self.since_seconds) >= LOG_SECONDS {
            left_out_before = self.left_out;
            *self = Self {
                since_seconds: now_seconds,
                used: 0,
                left_out: 0,
            };
        }
        let used = self.used.saturating_add(bytes);
        let told = used <= LOG_BYTES;
        match told {
            true => self.used = used,
            false => self.left_out += 1,
        }
        LineVerdict {
            told,
            left_out_before,
        }
    }

    /// Whether it may be forgotten: its minute is over, and no dropped lines are left to report.
    pub fn is_over(&self, now_seconds: u64) -> bool {
        self.left_out == 0 && now_seconds.saturating_sub(self.since_seconds) >= LOG_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::key;

    /// How many of so many reconciles are admitted, how often a refusal is reported, and until when it holds.
    fn admitted(
        often: &mut ReconcileLimiter,
        primary: &str,
        times: u32,
        now: i64,
    ) -> (usize, usize, Option<i64>) {
        let all: Vec<_> = (0..times)
            .map(|_| often.admit(&key(primary), now))
            .collect();
        let told = all
            .iter()
            .filter(|one| matches!(one, Err(Throttled { told: Some(_), .. })));
        let until = all
            .iter()
            .find_map(|one| one.as_ref().err())
            .map(|off| off.until_seconds);
        (
            all.iter().filter(|one| one.is_ok()).count(),
            told.count(),
            until,
        )
    }

    #[test]
    fn limits_reconciles_per_primary_and_minute() {
        let (mut often, most) = (ReconcileLimiter::default(), MAX_RECONCILES as usize);
        assert_eq!(
            admitted(&mut often, "a", MAX_RECONCILES, 100),
            (most, 0, None)
        );
        assert_eq!(
            admitted(&mut often, "a", 6_000, 101),
            (0, 1, Some(160)),
            "told once"
        );
        assert_eq!(admitted(&mut often, "a", 6_000, 159), (0, 0, Some(160)));
        assert_eq!(
            admitted(&mut often, "b", 3, 159),
            (3, 0, None),
            "others are not concerned"
        );
        assert_eq!(admitted(&mut often, "a", 1_000, 160), (most, 1, Some(220)));
        assert_eq!(
            admitted(&mut often, "a", 1, 10),
            (1, 0, None),
            "a clock set back stops nobody"
        );
    }

    #[test]
    fn reports_the_primary_and_when_it_resumes() {
        let mut often = ReconcileLimiter::default();
        let told = (0..=MAX_RECONCILES)
            .find_map(|_| often.admit(&key("a"), 0).err()?.told)
            .unwrap();
        assert_eq!(
            (told.reason.as_str(), told.ask_again_at),
            ("ReconcileBudgetExceeded", Some(60))
        );
        assert!(
            told.message.contains("1970-01-01T00:01:00Z") && told.message.contains('a'),
            "{}",
            told.message
        );
    }

    #[test]
    fn forgets_elapsed_minutes() {
        let mut often = ReconcileLimiter::default();
        for number in 0..100_000 {
            drop(often.admit(&key(&format!("s{number}")), number / 10));
        }
        assert!(
            often.minutes.len() <= 1_200.max(SWEPT_FROM),
            "{} counters",
            often.minutes.len()
        );
    }

    #[test]
    fn omits_and_counts_lines_beyond_the_bytes_of_a_minute() {
        let mut allowance = Allowance::default();
        let told = |allowance: &mut Allowance, from: u64| {
            let seconds = (0..10_000).map(|line| from + line * 59 / 10_000);
            seconds
                .filter(|now| allowance.take(1_000, *now).told)
                .count() as u64
        };
        let (first, second) = (told(&mut allowance, 100), LOG_BYTES / 1_000);
        assert_eq!(first, second);
        assert!(
            !allowance.is_over(1_000),
            "what was left out is still to be told"
        );
        let next = allowance.take(1, 160);
        assert_eq!(
            next,
            LineVerdict {
                told: true,
                left_out_before: 10_000 - first
            }
        );
        assert_eq!(
            allowance.take(1, 161),
            LineVerdict {
                told: true,
                left_out_before: 0
            }
        );
        assert!(!allowance.is_over(200) && allowance.is_over(220));
    }

    #[test]
    fn a_short_line_still_fits_where_a_long_one_was_omitted() {
        let mut allowance = Allowance::default();
        assert!(!allowance.take(LOG_BYTES + 1, 7).told);
        assert!(allowance.take(LOG_BYTES, 7).told);
        assert!(!allowance.take(1, 59).told);
        assert_eq!(
            allowance.take(u64::MAX, 60),
            LineVerdict {
                told: false,
                left_out_before: 2
            }
        );
        assert_eq!(allowance.take(1, 121).left_out_before, 1);
    }
}
