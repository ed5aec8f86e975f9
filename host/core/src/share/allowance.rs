//! Limits the log bytes of a minute; lines beyond the limit are counted and dropped. The caller passes the time.

/// Bytes of log that the guests of one policy may write in a minute.
pub const LOG_BYTES: u64 = 64 << 10;
/// Seconds for which an allowance is valid.
const WINDOW_SECONDS: u64 = 60;

/// The use of the minute that began last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    since_seconds: u64,
    used: u64,
    left_out: u64,
}

/// The decision on one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the line is logged.
    pub told: bool,
    /// How many lines were dropped in the minute before; log this number with the first line of the new minute.
    pub left_out_before: u64,
}

impl Allowance {
    /// Counts one more line of so many bytes. Seconds count from any start, but must not go back.
    pub fn take(&mut self, bytes: u64, now_seconds: u64) -> Verdict {
        let mut left_out_before = 0;
        if now_seconds.saturating_sub(self.since_seconds) >= WINDOW_SECONDS {
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
        Verdict {
            told,
            left_out_before,
        }
    }

    /// Whether it may be forgotten: its minute is over, and no dropped lines are left to report.
    pub fn is_over(&self, now_seconds: u64) -> bool {
        self.left_out == 0 && now_seconds.saturating_sub(self.since_seconds) >= WINDOW_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            Verdict {
                told: true,
                left_out_before: 10_000 - first
            }
        );
        assert_eq!(
            allowance.take(1, 161),
            Verdict {
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
            Verdict {
                told: false,
                left_out_before: 2
            }
        );
        assert_eq!(allowance.take(1, 121).left_out_before, 1);
    }
}
