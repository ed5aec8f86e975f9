//! The time, as the agent takes it.

use std::time::{SystemTime, UNIX_EPOCH};

/// The agent's only wall clock: the system's, or the instant that `--now` fixes. Decisions do not call it; they get the
/// time as an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    fixed: Option<i64>,
}

impl Clock {
    /// The system's clock, unless a time is fixed.
    pub(crate) fn new(fixed: Option<i64>) -> Self {
        Self { fixed }
    }

    /// Seconds since 1970.
    pub(crate) fn now_seconds(self) -> i64 {
        self.fixed.unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
        })
    }
}
