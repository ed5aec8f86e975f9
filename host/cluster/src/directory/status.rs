//! Status as files: one per policy and subject, one per policy, one of everything that cannot be read.
//! Never writes one that differs in nothing but times; what there was is compared by its first line.

use super::Shared;
use super::manifest::emit;
use super::own::{Own, STATUS, digest, policy_file, status_file};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use transom_api::{Reason, State, Word};
use transom_core::outcome::WriteKind;
use transom_core::reference::ObjectRef;
use transom_core::report::Report;
use transom_core::time::format_rfc3339;

/// The file of everything that cannot be read.
const UNREADABLE: &str = "unreadable.yaml";
/// How the first line of a status file starts.
const MARK: &str = "# transom ";

/// A policy's own status.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyStatus {
    /// Name of the policy.
    pub policy: String,
    /// The revision that is at work; nothing when there is none.
    pub revision: Option<String>,
    /// Why the newest revision is not at work, and what is wrong in it; nothing when it is.
    pub refused: Option<(Reason, String)>,
    /// When this was found, in seconds since 1970.
    pub at_seconds: i64,
}

/// Writes a subject's status.
pub(super) fn publish(shared: &Shared, report: &Report) -> io::Result<()> {
    let mut body = Map::new();
    body.insert("policy".to_owned(), json!(report.policy));
    body.insert("subject".to_owned(), json!(report.subject));
    body.insert("state".to_owned(), json!(report.state));
    insert(&mut body, "target", report.target.as_ref().map(|target| json!(target)));
    insert(&mut body, "inputs", report.inputs.as_ref().map(|inputs| json!(inputs)));
    let condition = Condition {
        kind: "Applied",
        status: match report.state {
            State::Applied => "True",
            State::Held | State::Waiting => "Unknown",
            State::Failed => "False",
        },
        reason: report.reason.as_str(),
        message: &report.message,
        generation: report.observed_generation,
    };
    let writes = (!report.writes.is_empty()).then(|| {
        let writes: Vec<Value> = report.writes.iter().map(|(kind, target)| json!({verb(*kind): target})).collect();
        json!({"time": format_rfc3339(report.at_seconds), "writes": writes})
    });
    let file = status_file(&report.policy, &report.subject);
    write(shared, &file, body, &condition, Times { at_seconds: report.at_seconds, writes })
}

/// Writes a policy's own status.
pub(super) fn publish_policy(shared: &Shared, status: &PolicyStatus) -> io::Result<()> {
    let mut body = Map::new();
    body.insert("policy".to_owned(), json!(status.policy));
    insert(&mut body, "revision", status.revision.as_ref().map(|revision| json!(revision)));
    let (reason, message) = match &status.refused {
        Some((reason, message)) => (reason.as_str(), message.as_str()),
        None => (Word::AsDesired.as_str(), "the newest revision is at work"),
    };
    let condition = Condition {
        kind: "Loaded",
        status: if status.refused.is_none() { "True" } else { "False" },
        reason,
        message,
        generation: None,
    };
    write(shared, &policy_file(&status.policy), body, &condition, Times { at_seconds: status.at_seconds, writes: None })
}

/// Removes a subject's status.
pub(super) fn forget(shared: &Shared, policy: &str, subject: &ObjectRef) -> io::Result<()> {
    shared.own.as_ref().map_or(Ok(()), |own| own.remove(&status_file(policy, subject)))
}

/// Removes every status but the given ones.
pub(super) fn retain(
    shared: &Shared,
    policies: &BTreeSet<String>,
    subjects: &BTreeSet<(String, ObjectRef)>,
) -> io::Result<()> {
    let Some(own) = &shared.own else { return Ok(()) };
    let mut kept: BTreeSet<PathBuf> = policies.iter().map(|policy| policy_file(policy)).collect();
    kept.extend(subjects.iter().map(|(policy, subject)| status_file(policy, subject)));
    for file in status_files(own)? {
        if !kept.contains(&file) {
            own.remove(&file)?;
        }
    }
    Ok(())
}

/// Every status file, relative to the own folder.
fn status_files(own: &Own) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(own.path(Path::new(STATUS)))? {
        let entry = entry?;
        let path = Path::new(STATUS).join(entry.file_name());
        if entry.file_type()?.is_dir() {
            for inner in std::fs::read_dir(entry.path())? {
                files.push(path.join(inner?.file_name()));
            }
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// Writes the list of everything that cannot be read, or removes it when there is nothing.
pub(super) fn publish_unreadable(shared: &Shared) -> io::Result<()> {
    let Some(own) = &shared.own else { return Ok(()) };
    let unreadable = shared.store().unreadable();
    if unreadable.is_empty() {
        return own.remove(Path::new(UNREADABLE));
    }
    let shown: Vec<Value> = unreadable
        .iter()
        .map(|one| {
            json!({
                "place": one.place, "reason": one.reason.as_str(), "message": one.message, "objects": one.objects,
            })
        })
        .collect();
    let text = emit(&json!({ "unreadable": shown })).map_err(io::Error::other)?;
    if std::fs::read(own.path(Path::new(UNREADABLE))).is_ok_and(|bytes| bytes == text.as_bytes()) {
        return Ok(());
    }
    own.write(Path::new(UNREADABLE), text.as_bytes())
}

/// A condition in the shape of Kubernetes, without its time.
struct Condition<'a> {
    kind: &'a str,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
    generation: Option<i64>,
}

/// What does not count when a status is compared.
struct Times {
    at_seconds: i64,
    writes: Option<Value>,
}

/// The first line of a status file: digest of what counts, status of the condition, and since when it has that.
struct Mark {
    digest: String,
    status: String,
    since: String,
}

/// Writes a status file when what counts differs, or something was written.
fn write(
    shared: &Shared,
    file: &Path,
    mut body: Map<String, Value>,
    condition: &Condition<'_>,
    times: Times,
) -> io::Result<()> {
    let Some(own) = &shared.own else { return Ok(()) };
    let mut shown = json!({
        "type": condition.kind, "status": condition.status, "reason": condition.reason, "message": condition.message,
    });
    if let (Some(generation), Some(shown)) = (condition.generation, shown.as_object_mut()) {
        shown.insert("observedGeneration".to_owned(), json!(generation));
    }
    let counted = digest(format!("{}{shown}", Value::Object(body.clone())).as_bytes());
    let before = mark(&own.path(file))?;
    if times.writes.is_none() && before.as_ref().is_some_and(|before| before.digest == counted) {
        return Ok(());
    }
    let since = match &before {
        Some(before) if before.status == condition.status => before.since.clone(),
        _ => format_rfc3339(times.at_seconds),
    };
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("lastTransitionTime".to_owned(), json!(since));
    }
    body.insert("conditions".to_owned(), json!([shown]));
    let writes = times.writes.or_else(|| before.as_ref().and_then(|_| last_writes(&own.path(file))));
    insert(&mut body, "lastWrites", writes);
    let yaml = emit(&Value::Object(body)).map_err(io::Error::other)?;
    own.write(file, format!("{MARK}{counted} {} {since}\n{yaml}", condition.status).as_bytes())
}

/// The first line of a status file; nothing when there is no such file or someone rewrote it.
fn mark(path: &Path) -> io::Result<Option<Mark>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut line = String::new();
    if BufReader::with_capacity(160, file.take(160)).read_line(&mut line).is_err() {
        return Ok(None);
    }
    let mut words = line.strip_prefix(MARK).unwrap_or_default().split_whitespace().map(str::to_owned);
    Ok(match (words.next(), words.next(), words.next()) {
        (Some(digest), Some(status), Some(since)) => Some(Mark { digest, status, since }),
        _ => None,
    })
}

/// What the status file says was written last.
fn last_writes(path: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(path).ok()?;
    serde_yaml::from_str::<Value>(&text).ok()?.get("lastWrites").cloned()
}

/// Adds a field that may be absent.
fn insert(body: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        body.insert(key.to_owned(), value);
    }
}

/// A kind of write, as it is shown.
fn verb(kind: WriteKind) -> &'static str {
    match kind {
        WriteKind::Create => "created",
        WriteKind::Update => "updated",
        WriteKind::Patch => "patched",
        WriteKind::Delete => "deleted",
    }
}
