//! The audit log of the API server, read as values: who requested what, and the response. Contains no bodies.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

/// The log of one cluster.
pub struct Audit(PathBuf);

/// A position in the log, to read what follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(u64);

/// One answered request, or one watch that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The same for all lines of a request.
    pub id: String,
    /// `ResponseComplete`; `ResponseStarted` where a watch began; `Panic`.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Path and query.
    pub uri: String,
    /// The user who sent it.
    pub user: String,
    /// The name of the client program.
    pub user_agent: String,
    /// HTTP status; 0 without a response.
    pub code: u16,
    /// The object of the request; none if it is not a resource (`/readyz`).
    pub target: Option<Target>,
    /// Whether RBAC refused it. What was answered before RBAC was asked, such as 429 of a busy server, was not refused.
    pub denied: bool,
    /// The binding and role that allowed it, as RBAC words it.
    pub reason: String,
    /// When it was received, RFC 3339 with microseconds.
    pub received: String,
    /// When this stage was reached.
    pub reached: String,
}

/// The object of a request; empty fields where it names none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// API group, empty for the core.
    pub group: String,
    /// Plural of the kind.
    pub resource: String,
    /// `status` and the like.
    pub subresource: String,
    /// Namespace.
    pub namespace: String,
    /// Name; for a create, only if the API server knows it before it reads the body.
    pub name: String,
}

impl Line {
    /// Plural of the kind of its object; empty if it names none.
    pub fn resource(&self) -> &str {
        self.target.as_ref().map_or("", |target| &target.resource)
    }

    /// Whether it requests a change, successful or not.
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }
}

impl Audit {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Everything since the cluster was started.
    pub fn lines(&self) -> Result<Vec<Line>> {
        self.since(Mark::default())
    }

    /// The current end of the log.
    pub fn mark(&self) -> Result<Mark> {
        let about = || format!("failed to look at `{}`", self.0.display());
        Ok(Mark(self.0.metadata().with_context(about)?.len()))
    }

    /// Everything after a mark, in the order of the responses. A line may appear a moment after its response.
    pub fn since(&self, mark: Mark) -> Result<Vec<Line>> {
        let about = || format!("failed to read `{}`", self.0.display());
        let mut file = File::open(&self.0).with_context(about)?;
        // The line that was being written at the mark began before it.
        let before = mark.0.saturating_sub(1);
        file.seek(SeekFrom::Start(before)).with_context(about)?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(about)?;
        if mark.0 > 0 {
            text.drain(..text.find('\n').map_or(0, |end| end + 1));
        }
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole
            .lines()
            .map(|line| parse(line).with_context(about))
            .collect()
    }
}

fn parse(line: &str) -> Result<Line> {
    let event: Value = serde_json::from_str(line)?;
    let text = |pointer: &str| {
        event
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let code = event
        .pointer("/responseStatus/code")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    Ok(Line {
        id: text("/auditID"),
        stage: text("/stage"),
        verb: text("/verb"),
        uri: text("/requestURI"),
        user: text("/user/username"),
        user_agent: text("/userAgent"),
        code: u16::try_from(code).unwrap_or_default(),
        target: event.get("objectRef").map(|_| Target {
            group: text("/objectRef/apiGroup"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
        }),
        denied: text("/annotations/authorization.k8s.io~1decision") == "forbid",
        reason: text("/annotations/authorization.k8s.io~1reason"),
        received: text("/requestReceivedTimestamp"),
        reached: text("/stageTimestamp"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gives_user_request_and_response() {
        let line = parse(
            r#"{"auditID":"a","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/n/secrets/s","verb":"get",
            "user":{"username":"u"},"userAgent":"p/1","objectRef":{"resource":"secrets","namespace":"n","name":"s","apiVersion":"v1"},
            "responseStatus":{"code":403},"requestReceivedTimestamp":"1","stageTimestamp":"2",
            "annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":"r"}}"#,
        )
        .unwrap();
        assert_eq!(
            (
                line.verb.as_str(),
                line.user.as_str(),
                line.code,
                line.denied
            ),
            ("get", "u", 403, true)
        );
        let target = Target {
            resource: "secrets".into(),
            namespace: "n".into(),
            name: "s".into(),
            ..Target::default()
        };
        assert_eq!(line.target, Some(target));
        assert_eq!(
            (
                line.reason.as_str(),
                line.received.as_str(),
                line.reached.as_str()
            ),
            ("r", "1", "2")
        );
    }
}
