//! The back-off of a watch: at most 30 s, or up to 60 s if the API server asks for it.

use super::cause::{Cause, Next};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use transom_api::KnownReason;
use transom_core::backoff::doubled_ms;

/// A stream that ended sooner did no useful work.
pub(super) const SHORT: Duration = Duration::from_secs(1);
/// How many failures of a stream in a row are not reported.
const UNTOLD: u32 = 3;
/// The longest wait that an API server may ask for.
const ASKED: Duration = Duration::from_secs(60);

/// Counts failures in a row for the back-off.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
    last: Option<KnownReason>,
    random: RandomState,
}

impl Backoff {
    /// A request succeeded.
    pub(super) fn reset(&mut self) {
        *self = Self {
            random: self.random.clone(),
            ..Self::default()
        };
    }

    /// Whether a failure is reported. A broken stream is retried first. So is a request for which the server names a
    /// wait: it may be setting up a kind that was just installed.
    pub(super) fn tells(&self, cause: &Cause) -> bool {
        let first = cause.wait.is_some() || cause.next != Next::Again;
        !first || self.failures > UNTOLD
    }

    /// How long to wait after one more failure: shorter for an unavailable server, longer for missing rights and kinds.
    pub(super) fn wait(&mut self, cause: &Cause) -> Duration {
        if self.last != Some(cause.reason) {
            self.failures = 0;
            self.last = Some(cause.reason);
        }
        let (first, longest) = match cause.reason {
            KnownReason::ServerUnavailable => (200, 5_000),
            _ => (1_000, 30_000),
        };
        let seed = self.random.hash_one(self.failures);
        let wait = match cause.next {
            Next::Resume | Next::Silent | Next::Relist if self.failures == 0 => 0,
            _ => doubled_ms(first, longest, self.failures, seed),
        };
        self.failures = self.failures.saturating_add(1);
        Duration::from_millis(wait).max(cause.wait.unwrap_or_default().min(ASKED))
    }
}

/// How long the API server may keep one watch open, in seconds: less than five minutes, and spread so that not all
/// watches end at the same time.
pub(super) fn watch_seconds() -> u32 {
    let spread = RandomState::new().hash_one(0) % 60;
    u32::try_from(spread).unwrap_or_default() + 230
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(cause: &Cause, count: usize) -> Vec<u128> {
        let mut backoff = Backoff::default();
        (0..count)
            .map(|_| backoff.wait(cause).as_millis())
            .collect()
    }

    #[test]
    fn waits_double_up_to_the_maximum() {
        let missing = waits(&Cause::missing(), 10);
        assert!(
            (750..=1_000).contains(&missing[0]) && (1_500..=2_000).contains(&missing[1]),
            "{missing:?}"
        );
        assert!(
            missing.iter().all(|wait| *wait <= 30_000) && missing[9] >= 22_500,
            "{missing:?}"
        );
        let away = waits(&Cause::new(KnownReason::ServerUnavailable, ""), 40);
        assert!(
            away[0] >= 150 && away.iter().all(|wait| *wait <= 5_000),
            "{away:?}"
        );
    }

    #[test]
    fn retries_a_broken_stream_at_once_and_reports_only_repeated_breaks() {
        let broken = Cause::new(KnownReason::ServerUnavailable, "").cut();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.wait(&broken), Duration::ZERO);
        assert!(!backoff.tells(&broken));
        for _ in 0..3 {
            backoff.wait(&broken);
        }
        assert!(backoff.tells(&broken));
        backoff.reset();
        assert!(!backoff.tells(&broken) && backoff.tells(&Cause::missing()));
    }

    #[test]
    fn another_failure_resets_the_wait_and_the_server_may_ask_for_more() {
        let mut backoff = Backoff::default();
        let away = Cause::new(KnownReason::ServerUnavailable, "");
        for _ in 0..9 {
            backoff.wait(&away);
        }
        assert!(backoff.wait(&Cause::missing()) <= Duration::from_secs(1));
        let asked = Cause {
            wait: Some(Duration::from_secs(9)),
            ..away
        };
        assert_eq!(backoff.wait(&asked), Duration::from_secs(9));
        assert!(
            !backoff.tells(&asked),
            "a kind whose CRD was just installed is asked for again first"
        );
    }
}
