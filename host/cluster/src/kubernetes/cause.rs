//! Why a read or a watch failed, as a reason and a sentence, and how long to wait before the next attempt.
//! Contains no credential, and no body that does not come from an API server.

use super::connect::plugin::PluginError;
use super::decode::Malformed;
use super::store::ObjectFault;
use http_body_util::LengthLimitError;
use kube::core::Status;
use std::collections::BTreeMap;
use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::time::Duration;
use transom_api::KnownReason;
use transom_core::backoff::doubled_ms;

/// Characters of a server's own message that are shown.
const MESSAGE_CHARS: usize = 300;

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAttempt {
    /// Wait, then ask the same again.
    Again,
    /// The stream broke: resume at its last version, at once.
    Resume,
    /// The stream fell silent: resume at its last version, at once.
    Silent,
    /// The cache may have gaps: list everything, at once.
    Relist,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestFailure {
    /// The reason; `KindMissing` for everything that is not found. With `NextAttempt::Again` that is certain.
    pub(super) reason: KnownReason,
    /// One sentence without a full stop.
    pub(super) message: String,
    /// What to do about it.
    pub(super) next: NextAttempt,
    /// The wait that the API server asks for.
    pub(super) wait: Option<Duration>,
    /// Whether the version that was asked for has expired.
    pub(super) expired: bool,
}

impl From<Malformed> for RequestFailure {
    fn from(Malformed: Malformed) -> Self {
        Self::malformed()
    }
}

impl From<RequestFailure> for ObjectFault {
    fn from(cause: RequestFailure) -> Self {
        Self {
            reason: cause.reason,
            message: cause.message,
        }
    }
}

impl RequestFailure {
    /// A cause that is not a Status of the API server.
    pub(super) fn new(reason: KnownReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            next: NextAttempt::Again,
            wait: None,
            expired: false,
        }
    }

    /// The API server did not answer in time.
    pub(super) fn late(after: Duration) -> Self {
        Self::new(
            KnownReason::ServerUnavailable,
            format!("the API server did not answer within {} s", after.as_secs()),
        )
    }

    /// The kind is not served.
    pub(super) fn missing() -> Self {
        Self::new(
            KnownReason::KindMissing,
            "the API server does not serve the kind",
        )
    }

    /// The kind is served, but only in another version, so its objects may still exist.
    pub(super) fn unserved(version: &str, served: &str) -> Self {
        Self::new(
            KnownReason::ReadFailed,
            format!("the API server serves the kind as {served}, not as {version}"),
        )
    }

    /// The answer does not come from an API server.
    pub(super) fn malformed() -> Self {
        Self {
            next: NextAttempt::Relist,
            ..Self::new(
                KnownReason::ReadFailed,
                "the answer is not a valid API server response",
            )
        }
    }

    /// Versions went back, so everything must be listed.
    pub(super) fn restored() -> Self {
        let message = "the resource versions of the API server went backwards, as after a restore from a backup";
        Self {
            next: NextAttempt::Relist,
            ..Self::new(KnownReason::ServerUnavailable, message)
        }
    }

    /// A watch was silent for longer than a healthy server is.
    pub(super) fn silent(after: Duration) -> Self {
        let message = format!("the watch received nothing for {} s", after.as_secs());
        Self {
            next: NextAttempt::Silent,
            ..Self::new(KnownReason::ServerUnavailable, message)
        }
    }

    /// Whether the kind is certainly not served; otherwise a proxy may answer for a server that has objects.
    pub(super) fn is_missing(&self) -> bool {
        self.reason == KnownReason::KindMissing && self.next == NextAttempt::Again
    }

    /// The same, but a kind that may be served does not count as missing.
    pub(super) fn certain(self) -> Self {
        match self.reason {
            KnownReason::KindMissing if !self.is_missing() => Self {
                reason: KnownReason::ReadFailed,
                ..self
            },
            _ => self,
        }
    }

    /// Whether the same request would be refused again.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self.reason,
            KnownReason::KindMissing | KnownReason::ReadForbidden
        )
    }

    /// A stream ended early.
    pub(super) fn cut(self) -> Self {
        Self {
            next: NextAttempt::Resume,
            ..self
        }
    }

    /// An error inside a stream, after which its events may have gaps.
    pub(super) fn in_stream(self) -> Self {
        Self {
            next: NextAttempt::Relist,
            ..self
        }
    }

    /// The cause for a Status of the API server.
    pub(super) fn of_status(status: &Status) -> Self {
        let about_one = status
            .details
            .as_ref()
            .is_some_and(|details| !details.name.is_empty());
        let next = match status.code {
            // The path is unknown, or something other than the API server answered: the kind is resolved again.
            404 if !about_one => NextAttempt::Relist,
            410 => NextAttempt::Relist,
            _ => NextAttempt::Again,
        };
        let wait = status.details.as_ref();
        let wait = wait.map(|details| u64::from(details.retry_after_seconds));
        let wait = wait.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let (reason, message) = match status.code {
            410 => {
                let why = "the resource version of the watch has expired";
                (KnownReason::ServerUnavailable, why.to_owned())
            }
            401 => {
                let why = "the API server does not accept the credential of the connection";
                (KnownReason::ReadFailed, why.to_owned())
            }
            429 => {
                let why = "the API server is overloaded (429)";
                (KnownReason::ServerUnavailable, why.to_owned())
            }
            403 => (KnownReason::ReadForbidden, said(status)),
            404 => (KnownReason::KindMissing, Self::missing().message),
            500..=599 => (KnownReason::ServerUnavailable, said(status)),
            _ => (KnownReason::ReadFailed, said(status)),
        };
        Self {
            reason,
            message,
            next,
            wait,
            expired: status.code == 410,
        }
    }

    /// Why a request failed.
    pub(super) fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            kube::Error::Auth(_) => Self::new(
                KnownReason::ReadFailed,
                "the credential of the connection cannot be used",
            ),
            kube::Error::Service(error) if error.is::<PluginError>() => {
                Self::new(KnownReason::ReadFailed, error.to_string())
            }
            kube::Error::Service(error) if error.is::<LengthLimitError>() => Self::new(
                KnownReason::ServerUnavailable,
                "the answer of the API server is too large, or has no end",
            ),
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
                Self::new(KnownReason::ServerUnavailable, unreachable(error))
            }
            _ => Self::malformed(),
        }
    }
}

/// The message of an API server, on one line; only the status code if something else answered in its place.
fn said(status: &Status) -> String {
    // The client takes any JSON object for a Status; that of an API server always says that it failed.
    let of_another = status.status.is_none() || status.reason == "Failed to parse error data";
    if of_another || status.message.is_empty() {
        return format!(
            "the answer has code {} and is not a valid API server response",
            status.code
        );
    }
    plain(&status.message)
}

/// The begin of a text that others wrote, without control characters.
fn plain(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MESSAGE_CHARS).collect()
}

/// Why a server cannot be reached, as the system or TLS reports it. Contains nothing that was sent.
fn unreachable(error: &(dyn Error + 'static)) -> String {
    let mut cause = Some(error);
    let mut said = None;
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            said = Some(told(error));
        }
        cause = error.source();
    }
    match said {
        Some(said) => format!("the API server cannot be reached: {said}"),
        None => "the API server cannot be reached, or the connection to it broke".to_owned(),
    }
}

/// The kind of error, or what a library says where that has no kind.
fn told(error: &io::Error) -> String {
    let kind = error.kind();
    let inner = error.get_ref().map(ToString::to_string);
    if let Some(text) = inner.filter(|text| text.starts_with("invalid peer certificate")) {
        return text;
    }
    let mut root = error
        .get_ref()
        .filter(|_| kind == io::ErrorKind::Other)
        .map(|inner| inner as &(dyn Error + 'static));
    while let Some(source) = root.and_then(Error::source) {
        root = Some(source);
    }
    let first_line = |text: String| plain(text.lines().next().unwrap_or_default());
    root.map_or_else(|| kind.to_string(), |root| first_line(root.to_string()))
}

/// A stream that ended sooner did no useful work.
pub(super) const SHORT: Duration = Duration::from_secs(1);
/// The longest wait of the back-off, in milliseconds.
const LONGEST_MS: u64 = 30_000;
/// The same. A stream that delivers events for longer works.
pub(super) const LONGEST: Duration = Duration::from_millis(LONGEST_MS);
/// How many failures of a stream in a row are not reported.
const UNTOLD: u32 = 3;
/// The longest wait that an API server may ask for.
const ASKED: Duration = Duration::from_secs(60);

/// The back-off of a watch, by its failures in a row: at most 30 s, or up to 60 s if the API server asks for it.
/// Counts each reason for itself: a new one begins with a short wait, and reasons that alternate still back off.
#[derive(Default)]
pub(super) struct Backoff {
    failures: BTreeMap<KnownReason, u32>,
    random: RandomState,
}

impl Backoff {
    /// A request succeeded.
    pub(super) fn reset(&mut self) {
        self.failures.clear();
    }

    /// Failures in a row, for whatever reasons.
    fn in_a_row(&self) -> u32 {
        self.failures.values().copied().fold(0, u32::saturating_add)
    }

    /// Whether a failure is reported. A broken stream is retried first. So is a request for which the server names a
    /// wait: it may be setting up a kind that was just installed.
    pub(super) fn tells(&self, cause: &RequestFailure) -> bool {
        let first = cause.wait.is_some() || cause.next != NextAttempt::Again;
        !first || self.in_a_row() > UNTOLD
    }

    /// How long to wait after one more failure: shorter for an unavailable server, longer for missing rights and kinds.
    pub(super) fn wait(&mut self, cause: &RequestFailure) -> Duration {
        let is_first = self.failures.is_empty();
        let failures = self.failures.entry(cause.reason).or_default();
        let (first, longest) = match cause.reason {
            KnownReason::ServerUnavailable => (200, 5_000),
            _ => (1_000, LONGEST_MS),
        };
        let seed = self.random.hash_one(*failures);
        let wait = match cause.next {
            NextAttempt::Resume | NextAttempt::Silent | NextAttempt::Relist if is_first => 0,
            _ => doubled_ms(first, longest, *failures, seed),
        };
        *failures = failures.saturating_add(1);
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

    #[test]
    fn only_a_certain_answer_says_that_a_kind_is_missing() {
        let certain = RequestFailure::missing();
        let of_a_proxy = RequestFailure {
            next: NextAttempt::Relist,
            ..RequestFailure::missing()
        };
        assert_eq!(certain.certain().reason, KnownReason::KindMissing);
        assert_eq!(of_a_proxy.certain().reason, KnownReason::ReadFailed);
    }

    #[test]
    fn never_shows_text_from_other_programs() {
        let status = Status::failure("Authorization: Bearer abc", "Failed to parse error data")
            .with_code(502);
        let cause = RequestFailure::of_status(&status);
        assert_eq!(cause.reason, KnownReason::ServerUnavailable);
        assert_eq!(
            cause.message,
            "the answer has code 502 and is not a valid API server response"
        );
    }

    #[test]
    fn maps_answers_to_reasons() {
        let word = |code: u16| {
            RequestFailure::of_status(&Status::failure("said\nthus", "").with_code(code)).reason
        };
        assert_eq!(
            [403, 404, 429, 503].map(word),
            [
                KnownReason::ReadForbidden,
                KnownReason::KindMissing,
                KnownReason::ServerUnavailable,
                KnownReason::ServerUnavailable,
            ]
        );
        assert_eq!([400, 401, 422].map(word), [KnownReason::ReadFailed; 3]);
        let status = Status::failure("said\nthus", "Forbidden").with_code(403);
        assert_eq!(RequestFailure::of_status(&status).message, "said thus");
        assert_eq!(
            RequestFailure::of_status(&status.with_code(410)).next,
            NextAttempt::Relist
        );
    }

    #[derive(Debug, thiserror::Error)]
    #[error("error reading a body from connection")]
    struct Broken(#[source] Box<dyn Error + Send + Sync>);

    #[test]
    fn says_why_a_connection_broke_whatever_wraps_the_cause() {
        let wrapped = |inner: Box<dyn Error + Send + Sync>| io::Error::other(Broken(inner));
        for (error, said) in [
            (io::ErrorKind::ConnectionReset.into(), "connection reset"),
            (
                wrapped("connection closed\nmore".into()),
                "connection closed",
            ),
            (
                wrapped(Box::new(io::Error::from(io::ErrorKind::TimedOut))),
                "timed out",
            ),
            (
                io::Error::other("invalid peer certificate: Expired"),
                "invalid peer certificate: Expired",
            ),
        ] {
            let message = RequestFailure::of(&kube::Error::ReadEvents(error)).message;
            assert_eq!(message, format!("the API server cannot be reached: {said}"));
        }
    }

    fn waits(cause: &RequestFailure, count: usize) -> Vec<u128> {
        let mut backoff = Backoff::default();
        (0..count)
            .map(|_| backoff.wait(cause).as_millis())
            .collect()
    }

    #[test]
    fn waits_double_up_to_the_maximum() {
        let missing = waits(&RequestFailure::missing(), 10);
        assert!(
            (750..=1_000).contains(&missing[0]) && (1_500..=2_000).contains(&missing[1]),
            "{missing:?}"
        );
        assert!(
            missing.iter().all(|wait| *wait <= 30_000) && missing[9] >= 22_500,
            "{missing:?}"
        );
        let away = waits(&RequestFailure::new(KnownReason::ServerUnavailable, ""), 40);
        assert!(
            away[0] >= 150 && away.iter().all(|wait| *wait <= 5_000),
            "{away:?}"
        );
    }

    #[test]
    fn retries_a_broken_stream_at_once_and_reports_only_repeated_breaks() {
        let broken = RequestFailure::new(KnownReason::ServerUnavailable, "").cut();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.wait(&broken), Duration::ZERO);
        assert!(!backoff.tells(&broken));
        for _ in 0..3 {
            backoff.wait(&broken);
        }
        assert!(backoff.tells(&broken));
        backoff.reset();
        assert!(!backoff.tells(&broken) && backoff.tells(&RequestFailure::missing()));
    }

    #[test]
    fn reasons_that_alternate_back_off_and_are_reported() {
        let mut backoff = Backoff::default();
        let causes = [RequestFailure::malformed(), RequestFailure::restored()];
        let waits: Vec<Duration> = (0..20)
            .map(|turn| backoff.wait(&causes[turn % 2]))
            .collect();
        assert_eq!(waits[0], Duration::ZERO);
        assert!(waits[1..].iter().all(|wait| !wait.is_zero()), "{waits:?}");
        assert!(
            waits[18] >= LONGEST * 3 / 4 && waits[19] >= Duration::from_millis(3_750),
            "{waits:?}"
        );
        assert!(causes.iter().all(|cause| backoff.tells(cause)));
    }

    #[test]
    fn another_failure_begins_with_a_short_wait_and_the_server_may_ask_for_more() {
        let mut backoff = Backoff::default();
        let away = RequestFailure::new(KnownReason::ServerUnavailable, "");
        for _ in 0..9 {
            backoff.wait(&away);
        }
        assert!(backoff.wait(&RequestFailure::missing()) <= Duration::from_secs(1));
        let asked = RequestFailure {
            wait: Some(Duration::from_secs(9)),
            ..away
        };
        assert_eq!(backoff.wait(&asked), Duration::from_secs(9));
        assert!(
            !Backoff::default().tells(&asked),
            "a kind whose CRD was just installed is asked for again first"
        );
    }
}
