//! One file of a status: its condition, and the first line by which an equal one is known.

use crate::directory::names::digest;
use crate::directory::own::OwnFolder;
use crate::directory::tree::FileStamp;
use serde_json::{Map, Value, json};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;
use transom_core::document::emit::to_yaml_in_order;
use transom_core::time::format_rfc3339;

/// How the first line of a primary's status file starts.
const MARK: &str = "# transom ";

/// A condition in the form of Kubernetes, without its time.
pub(super) struct UntimedCondition<'a> {
    pub(super) kind: &'a str,
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    pub(super) generation: Option<i64>,
}

/// The first line of a status file: digest of the compared fields, status of the condition, and since when it has that
/// status.
struct Fingerprint {
    digest: String,
    status: String,
    since: String,
    /// Of the file, if an equal one proves that it is unchanged.
    stamp: Option<FileStamp>,
}

/// Writes a status file if more than its time differs. Returns the stamp of a file that says this already.
pub(super) fn write(
    own: &OwnFolder,
    file: &Path,
    mut body: Map<String, Value>,
    condition: &UntimedCondition<'_>,
    at_seconds: i64,
) -> io::Result<Option<FileStamp>> {
    let mut shown = json!({
        "type": condition.kind, "status": condition.status, "reason": condition.reason, "message": condition.message,
    });
    if let (Some(generation), Some(shown)) = (condition.generation, shown.as_object_mut()) {
        shown.insert("observedGeneration".to_owned(), json!(generation));
    }
    body.insert("conditions".to_owned(), json!([shown]));
    let mut body = Value::Object(body);
    let counted = digest(body.to_string().as_bytes());
    let before = fingerprint(own, file)?;
    let same = before.as_ref().filter(|before| before.digest == counted);
    if let Some(before) = same {
        return Ok(before.stamp);
    }
    let since = match before {
        Some(before) if before.status == condition.status => before.since,
        _ => format_rfc3339(at_seconds),
    };
    if let Some(shown) = body
        .pointer_mut("/conditions/0")
        .and_then(Value::as_object_mut)
    {
        shown.insert("lastTransitionTime".to_owned(), json!(since));
    }
    let yaml = to_yaml_in_order(&body, &["policy", "primary", "state"]);
    own.write(
        file,
        format!("{MARK}{counted} {} {since}\n{yaml}", condition.status).as_bytes(),
    )?;
    Ok(None)
}

/// The first line of a status file; `None` if there is no file, or its first line was changed.
fn fingerprint(own: &OwnFolder, file: &Path) -> io::Result<Option<Fingerprint>> {
    let Some(file) = own.file(file)? else {
        return Ok(None);
    };
    let stamp = FileStamp::of(&file.metadata()?);
    let mut line = String::new();
    if BufReader::with_capacity(160, file.take(160))
        .read_line(&mut line)
        .is_err()
    {
        return Ok(None);
    }
    let mut words = line
        .strip_prefix(MARK)
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned);
    Ok(match (words.next(), words.next(), words.next()) {
        (Some(digest), Some(status), Some(since)) => Some(Fingerprint {
            digest,
            status,
            since,
            stamp,
        }),
        _ => None,
    })
}
