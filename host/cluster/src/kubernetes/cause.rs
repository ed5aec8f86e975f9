//! Why a read or a watch failed: a reason and a sentence.
//! Contains no credential, and no body that does not come from an API server.

use super::connect::plugin::PluginError;
use super::decode::Malformed;
use kube::core::Status;
use std::error::Error;
use std::io;
use std::time::Duration;
use transom_api::KnownReason;

/// Characters of a server's own message that are shown.
const MESSAGE_CHARS: usize = 300;

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
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
pub(super) struct Cause {
    /// The reason; `KindMissing` for everything that is not found. With `Next::Again` that is certain.
    pub(super) reason: KnownReason,
    /// One sentence without a full stop.
    pub(super) message: String,
    /// What to do about it.
    pub(super) next: Next,
    /// The wait that the API server asks for.
    pub(super) wait: Option<Duration>,
}

impl From<Malformed> for Cause {
    fn from(Malformed: Malformed) -> Self {
        Self::malformed()
    }
}

impl Cause {
    /// A cause that is not a Status of the API server.
    pub(super) fn new(reason: KnownReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            next: Next::Again,
            wait: None,
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
            next: Next::Relist,
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
            next: Next::Relist,
            ..Self::new(KnownReason::ServerUnavailable, message)
        }
    }

    /// A watch was silent for longer than a healthy server is.
    pub(super) fn silent(after: Duration) -> Self {
        let message = format!("the watch received nothing for {} s", after.as_secs());
        Self {
            next: Next::Silent,
            ..Self::new(KnownReason::ServerUnavailable, message)
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
            next: Next::Resume,
            ..self
        }
    }

    /// An error inside a stream, after which its events may have gaps.
    pub(super) fn in_stream(self) -> Self {
        Self {
            next: Next::Relist,
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
            404 if !about_one => Next::Relist,
            410 => Next::Relist,
            _ => Next::Again,
        };
        let wait = status
            .details
            .as_ref()
            .map(|details| u64::from(details.retry_after_seconds));
        let wait = wait.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let (reason, message) = match status.code {
            410 => (
                KnownReason::ServerUnavailable,
                "the resource version of the watch has expired".to_owned(),
            ),
            401 => (
                KnownReason::ReadFailed,
                "the API server does not accept the credential of the connection".to_owned(),
            ),
            403 => (KnownReason::ReadForbidden, said(status)),
            404 => (KnownReason::KindMissing, Self::missing().message),
            429 => (
                KnownReason::ServerUnavailable,
                "the API server is overloaded (429)".to_owned(),
            ),
            500..=599 => (KnownReason::ServerUnavailable, said(status)),
            _ => (KnownReason::ReadFailed, said(status)),
        };
        Self {
            reason,
            message,
            next,
            wait,
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
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
                Self::new(KnownReason::ServerUnavailable, unreachable(error))
            }
            _ => Self::malformed(),
        }
    }
}

/// The message of an API server, on one line; only the status code if something else answered in its place.
fn said(status: &Status) -> String {
    if status.reason == "Failed to parse error data" || status.message.is_empty() {
        return format!(
            "the answer has code {} and is not a valid API server response",
            status.code
        );
    }
    let plain = status
        .message
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c });
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

fn told(error: &io::Error) -> String {
    let inner = error.get_ref().map(ToString::to_string);
    inner
        .filter(|text| text.starts_with("invalid peer certificate"))
        .unwrap_or_else(|| error.kind().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_shows_text_from_other_programs() {
        let status = Status::failure("Authorization: Bearer abc", "Failed to parse error data")
            .with_code(502);
        let cause = Cause::of_status(&status);
        assert_eq!(cause.reason, KnownReason::ServerUnavailable);
        assert_eq!(
            cause.message,
            "the answer has code 502 and is not a valid API server response"
        );
    }

    #[test]
    fn maps_answers_to_reasons() {
        let word =
            |code: u16| Cause::of_status(&Status::failure("said\nthus", "").with_code(code)).reason;
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
        assert_eq!(Cause::of_status(&status).message, "said thus");
        assert_eq!(Cause::of_status(&status.with_code(410)).next, Next::Relist);
    }
}
