//! Status as files: one per policy and primary object, one per policy, and one for everything that cannot be read.
//! A file is not rewritten if only times differ; the first line of a file has the digest to compare.

mod file;
mod unreadable;

use super::SharedDirectory;
use super::names::{policy_file, status_file, status_folder};
use super::own::{OwnFolder, STATUS, file_in};
use crate::KeptStatuses;
use file::{UntimedCondition, write};
use rustix::fs::FileType;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::hash::BuildHasher as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use transom_api::status::{PolicyStatus, PrimaryStatus};
use transom_api::{Reason, State};
use transom_core::document::emit::to_yaml_in_order;
use transom_core::document::{ParseLimits, parse_many};
use transom_core::reference::ObjectRef;
use transom_core::report::{End, Report};
use transom_core::time::format_rfc3339;
pub(super) use unreadable::publish_unreadable;

/// The parser's limits for a status file: more than one ever needs.
const OWN_LIMITS: ParseLimits = ParseLimits {
    bytes: 1 << 18,
    nodes: 10_000,
    depth: 16,
};
/// The most bytes that are read of an own file that contains no object.
const OWN_BYTES: u64 = 16 << 20;
/// Since when a guest fails for a primary, in the file of that.
const FAILING_SINCE: &str = "failingSince";
/// When what was applied for it is stale, or withdrawn.
const EXPIRES: &str = "expires";

/// Writes the status of a primary object, or removes it if the object is gone. The status describes the present state
/// and not the last action, so it is the same after any interruption.
pub(super) fn publish(shared: &SharedDirectory, report: &Report) -> io::Result<()> {
    let Some(own) = &shared.own else {
        return Ok(());
    };
    let file = status_file(&report.policy, &report.primary);
    if report.end == End::Gone {
        shared.published().remove(&file);
        return own.remove(&file);
    }
    let said = said(shared, report);
    let known = shared.published().get(&file).copied();
    if known.is_some_and(|(before, stamp)| before == said && own.stamp(&file) == Some(stamp)) {
        return Ok(());
    }
    let message = match (&report.reason, report.state) {
        (Reason::Known(word), State::Applied) => word.meaning(),
        _ => report.message.as_str(),
    };
    let condition = UntimedCondition {
        kind: "Applied",
        status: match report.state {
            State::Applied => "True",
            State::Held | State::Waiting => "Unknown",
            State::Failed => "False",
        },
        reason: report.reason.as_str(),
        message,
        generation: report.observed_generation,
    };
    match write(own, &file, body(report), &condition, report.at_seconds)? {
        Some(stamp) => shared.published().insert(file, (said, stamp)),
        None => shared.published().remove(&file),
    };
    Ok(())
}

/// The fields of a status beside its condition.
fn body(report: &Report) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("policy".to_owned(), json!(report.policy));
    body.insert("primary".to_owned(), json!(report.primary));
    body.insert("state".to_owned(), json!(report.state));
    insert(
        &mut body,
        "target",
        report.target.as_ref().map(|target| json!(target)),
    );
    insert(
        &mut body,
        "inputs",
        report.inputs.as_ref().map(|inputs| json!(inputs)),
    );
    let failing = report.failing;
    let times = [
        (FAILING_SINCE, failing.map(|at| at.since_seconds)),
        (EXPIRES, failing.and_then(|at| at.expires_seconds)),
    ];
    for (field, at) in times {
        insert(&mut body, field, at.map(|at| json!(format_rfc3339(at))));
    }
    body
}

/// What a status says, as far as it is compared: all but its times.
fn said(shared: &SharedDirectory, report: &Report) -> u64 {
    let failing = report.failing;
    let failing = failing.map(|at| (at.since_seconds, at.expires_seconds));
    shared.key.hash_one((
        report.state.as_str(),
        report.reason.as_str(),
        &report.message,
        &report.target,
        &report.inputs,
        failing,
        report.observed_generation,
    ))
}

/// Writes a policy's own status if more than its times differs.
pub(super) fn publish_policy(
    shared: &SharedDirectory,
    policy: &str,
    status: &PolicyStatus,
) -> io::Result<()> {
    let Some(own) = &shared.own else {
        return Ok(());
    };
    if policy_status(shared, policy)?.is_some_and(|before| before.same_but_times(status)) {
        return Ok(());
    }
    let mut body = json!(status);
    if let Some(body) = body.as_object_mut() {
        body.insert("policy".to_owned(), json!(policy));
    }
    own.write(
        &policy_file(policy),
        to_yaml_in_order(&body, &["policy", "revision", "counts"]).as_bytes(),
    )
}

/// The present status of a policy; `None` if there is none, or it was made unreadable.
pub(super) fn policy_status(
    shared: &SharedDirectory,
    policy: &str,
) -> io::Result<Option<PolicyStatus>> {
    let file = policy_file(policy);
    let text = match (&shared.own, &shared.tree().own) {
        (Some(own), _) => read(own, &file)?,
        // One that may not be written, but read.
        (None, Some(own)) => file_in(own, &file)?.map(whole).transpose()?,
        (None, None) => None,
    };
    let Some(text) = text else {
        return Ok(None);
    };
    let document = parse_many(&text, OWN_LIMITS)
        .pop()
        .and_then(|document| document.value.ok());
    Ok(document.and_then(|value| serde_json::from_value(value).ok()))
}

/// The status in a primary object's status file; `None` if there is no file, or the agent did not write it so.
pub(super) fn reported(
    shared: &SharedDirectory,
    policy: &str,
    primary: &ObjectRef,
) -> io::Result<Option<PrimaryStatus>> {
    let Some(own) = &shared.tree().own else {
        return Ok(None);
    };
    let Some(file) = file_in(own, &status_file(policy, primary))? else {
        return Ok(None);
    };
    let mut text = Vec::new();
    file.take(OWN_LIMITS.bytes as u64).read_to_end(&mut text)?;
    let Some(body) = parse_many(&text, OWN_LIMITS)
        .pop()
        .and_then(|document| document.value.ok())
    else {
        return Ok(None);
    };
    let text = |pointer| {
        body.pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let state = body
        .get("state")
        .and_then(|state| serde_json::from_value(state.clone()).ok());
    let said = (
        state,
        text("/conditions/0/reason"),
        text("/conditions/0/message"),
        text("/conditions/0/lastTransitionTime"),
    );
    let (Some(state), Some(reason), Some(message), Some(since)) = said else {
        return Ok(None);
    };
    let told = |field: &str| body.get(field).and_then(Value::as_str).map(str::to_owned);
    Ok(Some(PrimaryStatus {
        namespace: primary.namespace.clone(),
        name: primary.name.clone(),
        state,
        reason,
        message,
        since,
        failing_since: told(FAILING_SINCE),
        expires: told(EXPIRES),
    }))
}

/// Removes every status except the given ones. While a file cannot be read, its primaries are not known: those of the
/// given policies all stay.
pub(super) fn retain(shared: &SharedDirectory, kept: &KeptStatuses) -> io::Result<()> {
    let Some(own) = &shared.own else {
        return Ok(());
    };
    let all_read = shared.store().unread().is_none();
    let (mut files, mut folders) = (BTreeSet::new(), BTreeSet::new());
    for (policy, primaries) in kept {
        files.insert(policy_file(policy));
        match primaries.as_ref().filter(|_| all_read) {
            Some(primaries) => {
                files.extend(primaries.iter().map(|one| status_file(policy, one)));
            }
            None => drop(folders.insert(status_folder(policy))),
        }
    }
    let is_gone = |file: &Path| {
        let folder = file.parent();
        !files.contains(file) && folder.is_none_or(|folder| !folders.contains(folder))
    };
    shared.published().clear();
    let all = status_files(own)?.into_iter();
    remove_all(own, all.filter(|file| is_gone(file)))
}

/// Removes the status of a policy, and of its primaries.
pub(super) fn forget(shared: &SharedDirectory, policy: &str) -> io::Result<()> {
    let Some(own) = &shared.own else {
        return Ok(());
    };
    shared.published().clear();
    let mut files = files_in(own, &status_folder(policy))?;
    files.push(policy_file(policy));
    remove_all(own, files)
}

/// Removes files; a file that cannot be removed holds up no other. Fails with the first failure.
fn remove_all(own: &OwnFolder, files: impl IntoIterator<Item = PathBuf>) -> io::Result<()> {
    let removed = files.into_iter().map(|file| own.remove(&file));
    removed.fold(Ok(()), io::Result::and)
}

/// Every status file, relative to the own folder.
fn status_files(own: &OwnFolder) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for (name, kind) in own.entries(Path::new(STATUS))? {
        let path = Path::new(STATUS).join(name);
        match kind {
            FileType::Directory => files.extend(files_in(own, &path)?),
            FileType::RegularFile => files.push(path),
            _ => {}
        }
    }
    Ok(files)
}

/// The files of a folder of the own one.
fn files_in(own: &OwnFolder, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let files = own.entries(folder)?.into_iter();
    let files = files.filter(|(_, kind)| kind.is_file());
    Ok(files.map(|(name, _)| folder.join(name)).collect())
}

/// The bytes of an own file, up to `OWN_BYTES`: the agent writes no larger one.
fn read(own: &OwnFolder, file: &Path) -> io::Result<Option<Vec<u8>>> {
    own.file(file)?.map(whole).transpose()
}

fn whole(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(OWN_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Adds a field that may be absent.
fn insert(body: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        body.insert(key.to_owned(), value);
    }
}
