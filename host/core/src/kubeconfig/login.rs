//! Whether clients can log in as a user: what client-go refuses before it sends a request. Errors hold no value.

use super::facts::some_text;
use super::{DocumentPlace, KubeconfigError};
use serde_json::{Map, Value};
use transom_api::KnownReason;

/// The fields that become headers of a request.
const HEADERS: [&str; 5] = ["token", "as", "as-uid", "as-groups", "as-user-extra"];

/// Checks the fields of a user. One without any credential is anonymous, which clients can be.
///
/// # Errors
/// `KubeconfigInvalid`.
pub(super) fn usable(
    fields: &Map<String, Value>,
    place: &DocumentPlace,
) -> Result<(), KubeconfigError> {
    let wrong = |field, message| {
        let place = place.field(field);
        Err(place.error(KnownReason::KubeconfigInvalid, message))
    };
    let has = |name: &&str| some_text(fields, name).is_some();
    let basic = ["username", "password"].into_iter().find(has);
    if let (Some(basic), true) = (basic, ["token", "tokenFile"].iter().any(has)) {
        return wrong(basic, "beside a token, which clients reject");
    }
    let more = HEADERS[2..].iter();
    let more = more
        .copied()
        .find(|name| fields.get(*name).is_some_and(says));
    if let (Some(field), false) = (more, has(&"as")) {
        return wrong(field, "without `as`, which clients reject");
    }
    let broken = |name: &&&str| fields.get(**name).is_some_and(breaks_header);
    match HEADERS.iter().find(broken) {
        Some(field) => wrong(field, "a control character, which no header may hold"),
        None => Ok(()),
    }
}

/// Whether a field is neither absent nor empty.
fn says(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a text at or below a value cannot be sent as a header. A tab can. Keys are escaped before they are sent.
fn breaks_header(value: &Value) -> bool {
    match value {
        Value::String(text) => text
            .bytes()
            .any(|byte| byte.is_ascii_control() && byte != b'\t'),
        Value::Array(items) => items.iter().any(breaks_header),
        Value::Object(fields) => fields.values().any(breaks_header),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
