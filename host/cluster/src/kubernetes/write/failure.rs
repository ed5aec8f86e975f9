//! Maps a refused write to a reason and a sentence.
//! For a Secret, drops the server's message, which may quote what was sent; keeps only reasons, paths and names.

use super::super::send::SendError;
use kube::core::Status;
use kube::core::response::StatusCause;
use transom_api::KnownReason;
use transom_core::failure::one_line;
use transom_core::plan::{WriteFailure, WriteKind};
use transom_core::reference::ObjectRef;

/// A reason, and a message that quotes nothing that was sent.
type Classified = (KnownReason, String);

const GONE: &str = "it no longer exists";

/// The failure for a refused write.
pub(crate) fn of(kind: WriteKind, target: &ObjectRef, refusal: &SendError) -> WriteFailure {
    let (reason, mut why) = classify(kind, target, refusal);
    let said = refusal.message();
    if target.kind != "Secret" && !said.is_empty() && !why.contains(said) {
        why = format!("{why}: {said}");
    }
    failed(kind, target, reason, &why)
}

/// A failure of a write.
pub(super) fn failed(
    kind: WriteKind,
    target: &ObjectRef,
    reason: KnownReason,
    why: &str,
) -> WriteFailure {
    let verb = match kind {
        WriteKind::Create => "create",
        WriteKind::Update => "update",
        WriteKind::Patch => "patch",
        WriteKind::Delete => "delete",
    };
    WriteFailure {
        reason,
        message: one_line(&format!("failed to {verb} {target}: {why}")),
    }
}

/// The failure of a write to an object that is gone.
pub(crate) fn gone(kind: WriteKind, target: &ObjectRef) -> WriteFailure {
    failed(kind, target, KnownReason::WriteConflict, GONE)
}

/// Whether the object of a step or its namespace is gone.
pub(crate) fn is_gone(refusal: &SendError) -> bool {
    matches!(refusal, SendError::Answered { code: 404, .. }) && !of_kind(refusal)
}

/// Whether the server no longer knows the kind: its 404 names no object.
pub(super) fn of_kind(refusal: &SendError) -> bool {
    let SendError::Answered {
        code: 404, status, ..
    } = refusal
    else {
        return false;
    };
    status
        .as_ref()
        .and_then(|status| status.details.as_ref())
        .is_none_or(|details| details.name.is_empty())
}

fn classify(kind: WriteKind, target: &ObjectRef, refusal: &SendError) -> Classified {
    use KnownReason as R;
    let (code, status) = match refusal {
        SendError::Silent(why) => return (R::ServerUnavailable, why.clone()),
        SendError::NotLeading => {
            let why = "this replica is not the leader any more";
            return (R::NotLeading, why.to_owned());
        }
        SendError::Answered { code, status, .. } => (*code, status.as_deref()),
    };
    if let Some(classified) = status.and_then(by_admission) {
        return classified;
    }
    let too_large = |status: &Status| status.message.contains("request is too large");
    let (reason, why) = match code {
        403 => return forbidden(status),
        422 => return invalid(status),
        404 if of_kind(refusal) => {
            let why = format!("the API server does not serve the kind {}", target.kind);
            return (R::KindMissing, why);
        }
        // The agent renews it, or is given another one: that says nothing about the object.
        401 => (
            R::ServerUnavailable,
            "the API server does not accept the agent's credential",
        ),
        // Nothing changed since the read: only a namespace that somebody creates ends this.
        404 if of_namespace(status) => (R::TargetNamespaceMissing, "its namespace does not exist"),
        404 if of_role(target, status) => (R::WriteFailed, "the role that it binds does not exist"),
        404 => (R::WriteConflict, GONE),
        409 if kind == WriteKind::Create => (R::WriteConflict, "it already exists"),
        409 => (R::WriteConflict, "it changed since it was read"),
        413 => (R::ObjectTooLarge, "the API server rejected it as too large"),
        400 | 415 => (R::WriteInvalid, "the API server cannot parse the request"),
        408 | 429 => (R::ServerUnavailable, "the API server is overloaded"),
        500 if status.is_some_and(too_large) => {
            let why = "the storage of the API server rejected it as too large";
            (R::ObjectTooLarge, why)
        }
        500 if status.is_some_and(of_another_shape) => (
            R::WriteInvalid,
            "the API server rejected the object as invalid",
        ),
        _ => {
            let reason = match code {
                500..=599 => R::ServerUnavailable,
                _ => R::WriteFailed,
            };
            let why = format!("the API server answered {code}{}", kind_of(status));
            return (reason, why);
        }
    };
    (reason, why.to_owned())
}

/// ` (InternalError)`: the server's reason, if it is one plain word.
fn kind_of(status: Option<&Status>) -> String {
    let reason = status.map_or("", |status| &status.reason);
    let word = !reason.is_empty()
        && reason.len() <= 50
        && reason.bytes().all(|byte| byte.is_ascii_alphabetic());
    if word {
        format!(" ({reason})")
    } else {
        String::new()
    }
}

/// A refusal by a webhook or an admission policy, whatever its status code, or a webhook that cannot be called: that
/// says nothing about the object. Keeps only the name of the webhook or policy.
fn by_admission(status: &Status) -> Option<Classified> {
    let named = |after: &str, end: char| {
        let name = status.message.split_once(after)?.1.split_once(end)?.0;
        let plain = name.len() <= 253
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
        Some(if plain {
            format!("`{name}`")
        } else {
            "of the cluster".to_owned()
        })
    };
    let said = &status.message;
    let mut reason = KnownReason::AdmissionRefused;
    let why = if said.starts_with("admission webhook \"") {
        let name = named("admission webhook \"", '"')?;
        format!("the admission webhook {name} refused it")
    } else if said.contains(" is forbidden: ValidatingAdmissionPolicy '") {
        let name = named("ValidatingAdmissionPolicy '", '\'')?;
        format!("the admission policy {name} refused it")
    } else if said.starts_with("Internal error occurred: failed calling webhook \"") {
        let name = named("failed calling webhook \"", '"')?;
        reason = KnownReason::ServerUnavailable;
        format!("the admission webhook {name} cannot be called")
    } else {
        return None;
    };
    Some((reason, why))
}

/// A 403: by RBAC, a quota, a namespace that is being deleted, or an admission plugin. Keeps the message of RBAC and of
/// quotas, which consists of names only: of users, verbs, resources and quotas.
fn forbidden(status: Option<&Status>) -> Classified {
    let said = status.map_or("", |status| &status.message);
    let why = said
        .split_once(" is forbidden: ")
        .map_or(said, |(_, why)| why);
    let quota = [
        "exceeded quota: ",
        "failed quota: ",
        "status unknown for quota: ",
        "insufficient quota ",
    ];
    let (reason, why) = if causes(status).any(|cause| cause.reason == "NamespaceTerminating") {
        (
            KnownReason::InputTerminating,
            "its namespace is being deleted",
        )
    } else if quota.iter().any(|start| why.starts_with(start)) {
        (KnownReason::QuotaExceeded, why)
    } else if why.starts_with("User \"") && why.contains("\" cannot ")
        // A role or a binding that gives more than the agent may.
        || why.starts_with("user \"") && why.contains(" is attempting to grant RBAC permissions ")
    {
        (KnownReason::WriteForbidden, why)
    } else if status.is_some() {
        let why = "an admission plugin of the API server refused it";
        (KnownReason::AdmissionRefused, why)
    } else {
        let why = "something in front of the API server refused it";
        (KnownReason::WriteForbidden, why)
    };
    (reason, why.to_owned())
}

/// Whether a server-side apply does not fit the kind: a field has another type, or the kind does not have the field.
/// The server answers with 500 and no reason then.
fn of_another_shape(status: &Status) -> bool {
    let starts = [
        "failed to create typed patch object (",
        "failed to convert new object (",
    ];
    status.reason.is_empty() && starts.iter().any(|start| status.message.starts_with(start))
}

/// A failed validation: the paths and kinds of up to three errors.
fn invalid(status: Option<&Status>) -> Classified {
    if causes(status).any(|cause| {
        cause
            .message
            .contains("field is immutable when `immutable` is set")
    }) {
        return (KnownReason::TargetImmutable, "it is immutable".to_owned());
    }
    if causes(status).any(|cause| cause.reason == "FieldValueTooLong" && cause.field == "data") {
        return (
            KnownReason::ObjectTooLarge,
            "the API server rejected its data as too large".to_owned(),
        );
    }
    let fields: Vec<String> = causes(status).take(3).map(field).collect();
    let fields = if fields.is_empty() {
        String::new()
    } else {
        format!(": {}", fields.join(", "))
    };
    (
        KnownReason::WriteInvalid,
        format!("the API server rejected the object as invalid{fields}"),
    )
}

/// `data[kubeconfig] (FieldValueInvalid)`.
fn field(cause: &StatusCause) -> String {
    let kind = if cause.reason.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        cause.reason.as_str()
    } else {
        ""
    };
    let path: String = cause
        .field
        .chars()
        .filter(|letter| !letter.is_control())
        .take(200)
        .collect();
    if kind.is_empty() {
        path
    } else {
        format!("{path} ({kind})")
    }
}

fn of_namespace(status: Option<&Status>) -> bool {
    status
        .and_then(|status| status.details.as_ref())
        .is_some_and(|details| details.kind == "namespaces")
}

/// Whether a binding cannot be written because its role is not there.
fn of_role(target: &ObjectRef, status: Option<&Status>) -> bool {
    let details = status.and_then(|status| status.details.as_ref());
    let is_role = |kind: &str| matches!(kind, "roles" | "clusterroles");
    target.kind.ends_with("RoleBinding") && details.is_some_and(|details| is_role(&details.kind))
}

fn causes(status: Option<&Status>) -> impl Iterator<Item = &StatusCause> {
    status
        .and_then(|status| status.details.as_ref())
        .into_iter()
        .flat_map(|details| &details.causes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const CANARY: &str = "c4n4ry-of-a-value";

    fn target(kind: &str) -> ObjectRef {
        ObjectRef::local("v1", kind, Some("n"), "s")
    }

    fn update(kind: &str, refusal: &SendError) -> WriteFailure {
        of(WriteKind::Update, &target(kind), refusal)
    }

    fn refusal(code: u16, status: Value) -> SendError {
        let mut status = status;
        status["status"] = json!("Failure");
        SendError::Answered {
            code,
            status: Some(serde_json::from_value(status).unwrap()),
            pause_ms: None,
        }
    }

    /// Every answer that a server may give, with a value wherever the server would quote one.
    #[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
    fn said() -> Vec<(SendError, KnownReason)> {
        use KnownReason as R;
        let cause = |field: &str, reason: &str, message: &str| {
            json!({"name": "s", "kind": "secrets",
                "causes": [{"field": field, "reason": reason, "message": format!("{message} {CANARY}")}]})
        };
        let secret = || json!({"name": "s", "kind": "secrets"});
        let namespace = json!({"name": "n", "kind": "namespaces"});
        let too_long = cause("data", "FieldValueTooLong", "");
        let wrong = cause("data[x]", "FieldValueInvalid", "Invalid value");
        let immutable = "field is immutable when `immutable` is set";
        let immutable = cause("data", "FieldValueForbidden", immutable);
        let terminating = cause("", "NamespaceTerminating", "");
        let unknown = "the server could not find the requested resource";
        let denied = "admission webhook \"w.example\" denied the request:";
        let uncalled = "Internal error occurred: failed calling webhook \"w.example\":";
        let policy = "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request:";
        let answers = [
            (409, "", secret(), R::WriteConflict),
            (404, "", secret(), R::WriteConflict),
            (404, "", namespace, R::TargetNamespaceMissing),
            (404, unknown, json!({}), R::KindMissing),
            (413, "", json!({}), R::ObjectTooLarge),
            (
                500,
                "etcdserver: request is too large",
                json!({}),
                R::ObjectTooLarge,
            ),
            (422, "", too_long, R::ObjectTooLarge),
            (422, "", wrong, R::WriteInvalid),
            (422, "", immutable, R::TargetImmutable),
            (400, "illegal base64", json!({}), R::WriteInvalid),
            (
                403,
                "secrets \"s\" is forbidden: no",
                secret(),
                R::AdmissionRefused,
            ),
            (403, "", terminating, R::InputTerminating),
            (418, denied, json!({}), R::AdmissionRefused),
            (503, denied, json!({}), R::AdmissionRefused),
            (500, uncalled, json!({}), R::ServerUnavailable),
            (422, policy, json!({}), R::AdmissionRefused),
            (401, "", json!({}), R::ServerUnavailable),
            (429, "", json!({}), R::ServerUnavailable),
            (500, "", json!({}), R::ServerUnavailable),
            (402, "", json!({}), R::WriteFailed),
        ];
        let quoting = |(code, message, details, word)| {
            let message = format!("{message} {CANARY}");
            let status = json!({"message": message, "reason": "X", "details": details});
            (refusal(code, status), word)
        };
        let no_status = |code| SendError::Answered {
            code,
            status: None,
            pause_ms: None,
        };
        let others = [
            (no_status(502), R::ServerUnavailable),
            (no_status(403), R::WriteForbidden),
            (
                SendError::Silent("it cannot be reached".to_owned()),
                R::ServerUnavailable,
            ),
        ];
        answers.into_iter().map(quoting).chain(others).collect()
    }

    #[test]
    fn each_answer_has_a_reason_and_no_secret_value_is_shown() {
        for (refusal, word) in said() {
            let failure = update("Secret", &refusal);
            assert_eq!(failure.reason, word, "{refusal:?}");
            assert!(!failure.message.contains(CANARY), "{}", failure.message);
            assert!(
                failure.message.starts_with("failed to update Secret n/s: "),
                "{}",
                failure.message
            );
        }
    }

    #[test]
    fn quotes_the_server_for_other_kinds() {
        let quoted = said()
            .into_iter()
            .filter(|(refusal, _)| !refusal.message().is_empty());
        for (refusal, _) in quoted {
            let failure = update("ManagedCluster", &refusal);
            assert!(failure.message.contains(CANARY), "{}", failure.message);
        }
    }

    #[test]
    fn a_binding_whose_role_is_missing_is_not_one_that_is_gone() {
        let details =
            json!({"name": "r", "kind": "clusterroles", "group": "rbac.authorization.k8s.io"});
        let refused = refusal(
            404,
            json!({"message": "clusterroles \"r\" not found", "details": details}),
        );
        let failure = of(WriteKind::Create, &target("RoleBinding"), &refused);
        assert_eq!(failure.reason, KnownReason::WriteFailed);
        assert!(
            failure.message.contains("\"r\" not found"),
            "{}",
            failure.message
        );
        let gone = of(WriteKind::Update, &target("ClusterRole"), &refused);
        assert_eq!(gone.reason, KnownReason::WriteConflict);
    }

    #[test]
    fn names_the_missing_permission_or_exceeded_quota() {
        let rights = r#"secrets "s" is forbidden: User "u" cannot patch resource "secrets" in API group "" in the namespace "n""#;
        let quota = r#"secrets "s" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1"#;
        for (said, word, shown) in [
            (
                rights,
                KnownReason::WriteForbidden,
                r#"User "u" cannot patch resource "secrets""#,
            ),
            (
                r#"roles "r" is forbidden: user "u" (groups=["g"]) is attempting to grant RBAC permissions not currently held:"#,
                KnownReason::WriteForbidden,
                "is attempting to grant RBAC permissions",
            ),
            (
                quota,
                KnownReason::QuotaExceeded,
                "exceeded quota: q, requested: secrets=1",
            ),
        ] {
            let failure = update(
                "Secret",
                &refusal(403, json!({"message": said, "reason": "Forbidden"})),
            );
            assert_eq!(failure.reason, word);
            assert!(failure.message.contains(shown), "{}", failure.message);
        }
    }

    #[test]
    fn a_hostile_webhook_chooses_neither_reason_nor_message() {
        let said = format!(
            "admission webhook \"w\" denied the request: secrets \"s\" is forbidden: exceeded quota: {CANARY}"
        );
        let failure = update(
            "Secret",
            &refusal(403, json!({"message": said, "reason": "Forbidden"})),
        );
        assert_eq!(
            failure.message,
            "failed to update Secret n/s: the admission webhook `w` refused it"
        );
        assert_eq!(failure.reason, KnownReason::AdmissionRefused);
    }
}
