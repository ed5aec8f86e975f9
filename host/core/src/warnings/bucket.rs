//! A token bucket: limits how often something may happen. The caller passes the time.

/// A burst, then one in each interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// How many at once.
    pub(super) burst: u64,
    /// Milliseconds until the next one after those.
    pub(super) interval_ms: u64,
}

/// A bucket that starts full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    rate: Rate,
    /// When it is full again: each token that is taken delays this by one interval.
    full_at_ms: u64,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            rate,
            full_at_ms: 0,
        }
    }

    /// Whether there is a token.
    pub(super) fn has(&self, now_ms: u64) -> bool {
        let missing_ms = self.full_at_ms.saturating_sub(now_ms);
        missing_ms
            <= self
                .rate
                .interval_ms
                .saturating_mul(self.rate.burst.saturating_sub(1))
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now_ms: u64) -> bool {
        let has = self.has(now_ms);
        if has {
            self.full_at_ms = self
                .full_at_ms
                .max(now_ms)
                .saturating_add(self.rate.interval_ms);
        }
        has
    }

    /// Whether all tokens are back, so that it may be forgotten.
    pub(super) fn is_full(&self, now_ms: u64) -> bool {
        self.full_at_ms <= now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bucket: &mut Bucket, now_ms: u64) -> usize {
        (0..100).filter(|_| bucket.take(now_ms)).count()
    }

    #[test]
    fn a_burst_then_one_in_each_interval() {
        let mut bucket = Bucket::new(Rate {
            burst: 5,
            interval_ms: 300_000,
        });
        assert_eq!(taken(&mut bucket, 1_000), 5);
        assert_eq!(taken(&mut bucket, 300_999), 0);
        assert_eq!(taken(&mut bucket, 301_000), 1);
        assert_eq!(taken(&mut bucket, 901_000), 2);
        assert!(!bucket.is_full(2_400_999));
        assert!(bucket.is_full(2_401_000));
        assert_eq!(
            taken(&mut bucket, 100_000_000),
            5,
            "never more than the burst"
        );
    }
}
