//! Rate limit for a value of which only the newest counts: at most one write in each interval, and only when it
//! differs. The caller writes, and passes the time.

/// The interval after failures is at most 64 times the one between writes.
const MOST_DOUBLINGS: u32 = 6;

/// The value that is to be written at one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Latest<T> {
    interval_ms: u64,
    written: Option<T>,
    wanted: Option<T>,
    not_before_ms: u64,
    failures: u32,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum NextTask<T> {
    /// Write this; then report it with [`Latest::done`].
    Write(T),
    /// Ask again at this time, in milliseconds.
    At(u64),
    /// Wait for another value.
    Nothing,
}

impl<T: Clone + PartialEq> Latest<T> {
    /// Starts without a known written value.
    pub fn new(interval_ms: u64) -> Self {
        Self {
            interval_ms,
            written: None,
            wanted: None,
            not_before_ms: 0,
            failures: 0,
        }
    }

    /// Sets the value that another writer has written. Drops the wanted value, which may be older.
    pub fn found(&mut self, value: T) {
        (self.written, self.wanted) = (Some(value), None);
    }

    /// Sets the value that should be there.
    pub fn want(&mut self, value: T) {
        self.wanted = Some(value);
    }

    /// The value that is still to be written, now or later.
    pub fn left(&self) -> Option<&T> {
        self.wanted
            .as_ref()
            .filter(|wanted| self.written.as_ref() != Some(*wanted))
    }

    /// What to do at this time.
    pub fn next(&self, now_ms: u64) -> NextTask<T> {
        match self.left() {
            None => NextTask::Nothing,
            Some(_) if now_ms < self.not_before_ms => NextTask::At(self.not_before_ms),
            Some(wanted) => NextTask::Write(wanted.clone()),
        }
    }

    /// Reports that a value was written, or that the write failed. A failed write is tried again after the interval,
    /// then after twice that, and so on.
    pub fn done(&mut self, value: T, written: bool, now_ms: u64) {
        self.failures = if written {
            0
        } else {
            self.failures.saturating_add(1)
        };
        let doubled = self
            .interval_ms
            .saturating_mul(1 << self.failures.saturating_sub(1).min(MOST_DOUBLINGS));
        self.not_before_ms = now_ms.saturating_add(doubled);
        self.written = written.then_some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_newest_value_after_the_interval() {
        let mut latest = Latest::new(5_000);
        assert_eq!(latest.next(0), NextTask::Nothing);
        latest.want(1);
        assert_eq!(latest.next(0), NextTask::Write(1));
        latest.done(1, true, 10);
        latest.want(2);
        latest.want(3);
        assert_eq!(
            (latest.next(10), latest.left()),
            (NextTask::At(5_010), Some(&3))
        );
        assert_eq!(latest.next(5_010), NextTask::Write(3));
    }

    #[test]
    fn retries_a_failed_write_and_skips_an_equal_one() {
        let mut latest = Latest::new(5_000);
        latest.found(1);
        latest.want(1);
        assert_eq!((latest.next(0), latest.left()), (NextTask::Nothing, None));
        latest.want(2);
        latest.done(2, false, 0);
        assert_eq!(
            (latest.next(4_999), latest.next(5_000)),
            (NextTask::At(5_000), NextTask::Write(2))
        );
        latest.done(2, false, 5_000);
        assert_eq!(latest.next(5_000), NextTask::At(15_000));
        (0..100).for_each(|_| latest.done(2, false, 5_000));
        assert_eq!(latest.next(5_000), NextTask::At(325_000));
        latest.want(3);
        latest.done(3, true, 5_000);
        latest.want(2);
        latest.want(3);
        assert_eq!(latest.next(6_000), NextTask::Nothing);
    }
}
