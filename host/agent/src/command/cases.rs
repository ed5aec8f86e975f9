//! `transom test`: runs the cases of policies and guests through the built components; those of policies also through
//! the agent's own controller, in memory. Changes an expectation only with `--update`.

mod bench;
mod compare;
mod guest;
mod policy;
mod travelling;
mod update;

use crate::args::{TableFormat, TestArgs};
use crate::command::block_on;
use crate::command::engine;
use crate::output::{CommandEnd, Screen, Tint, Tinted};
use anyhow::{Context as _, bail};
pub(super) use bench::bench;
use serde_json::json;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use transom_artifacts::folder::Folder;
use transom_engine::{CallLimits, Engine};
pub(super) use travelling::of_crate;
use update::Came;

/// The files of a case of a guest.
const FILES: [&str; 2] = ["given.yaml", "expected.yaml"];
/// The files of a case of a policy; the last may be absent.
const POLICY_FILES: [&str; 3] = ["given.yaml", "expected.yaml", "then.yaml"];

/// One case and its result.
struct CaseVerdict {
    case: PathBuf,
    /// How the result differs from what is expected, line by line; empty when it does not.
    differences: Vec<String>,
    /// Whether the result was written as the new expectation.
    updated: bool,
}

impl CaseVerdict {
    fn failed(&self) -> bool {
        !self.updated && !self.differences.is_empty()
    }
}

/// What was loaded for one case and is used again for the next.
#[derive(Default)]
struct WarmRunner {
    policies: policy::WarmRevisions,
    guests: guest::WarmGuests,
}

/// Runs every case below a path.
///
/// # Errors
/// When there is no case, or the engine cannot be made.
pub(crate) fn test(args: &TestArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    if let Some(component) = travelling::named(&args.path) {
        let verdicts = travelling::test(component, args)?;
        return Ok(report(&verdicts, args.output, screen));
    }
    let mut cases = Vec::new();
    if !args.path.exists() {
        bail!(
            "failed to find `{}`: `transom test PATH` runs the cases below PATH, or those that travel with the component PATH; the default is `policies`",
            args.path.display()
        );
    }
    find(&args.path, false, &mut cases)?;
    if cases.is_empty() {
        bail!(
            "failed to find a case below `{}`: expected folders `cases/<case>` with given.yaml and expected.yaml",
            args.path.display()
        );
    }
    // The agent that will run the policies may allow more than the default.
    let engine = engine::engine(CallLimits::LARGEST)?;
    let named = args
        .component
        .as_deref()
        .map(|component| only_guest(&cases, component))
        .transpose()?;
    let mut warm = WarmRunner {
        guests: guest::WarmGuests::naming(named),
        ..WarmRunner::default()
    };
    let verdicts = block_on(async {
        let mut verdicts: Vec<CaseVerdict> = Vec::with_capacity(cases.len());
        for case in cases {
            verdicts.push(run_case(&engine, case, &mut warm, args.update).await);
        }
        verdicts
    })?;
    let ending = report(&verdicts, args.output, screen);
    for warning in warm.guests.warnings() {
        screen.warn(format_args!("{warning}"));
    }
    Ok(ending)
}

/// Prints what became of cases.
fn report(verdicts: &[CaseVerdict], format: TableFormat, screen: &Screen) -> CommandEnd {
    match format {
        TableFormat::Table => table(verdicts, screen),
        TableFormat::Json => {
            // A name of a folder that is not UTF-8 cannot be written as JSON.
            let rows = verdicts.iter().map(|verdict| json!({"case": verdict.case.display().to_string(), "passed": !verdict.failed(), "differences": verdict.differences, "updated": verdict.updated}));
            screen.json(&rows.collect::<Vec<_>>());
        }
    }
    CommandEnd::failed_if(verdicts.iter().any(CaseVerdict::failed))
}

/// The crate of the one guest that `--component` is for, and the value of the flag.
fn only_guest(cases: &[PathBuf], component: &str) -> anyhow::Result<(PathBuf, String)> {
    let homes = cases.iter().filter_map(|case| guest::crate_above(case));
    let mut homes = homes.collect::<BTreeSet<_>>().into_iter();
    match (homes.next(), homes.next()) {
        (Some(home), None) => Ok((home, component.to_owned())),
        (None, _) => bail!(
            "failed to use `--component`: no case belongs to a guest, below a folder with a Cargo.toml"
        ),
        (Some(one), Some(other)) => bail!(
            "failed to use `--component`: it applies to one guest, but there are cases of `{}` and of `{}`",
            one.display(),
            other.display()
        ),
    }
}

/// Finds every case, in order of name: a folder that lies in a folder named `cases`, or that holds a file of a case. A
/// folder that holds only folders groups cases, and one that holds a folder `cases` is no case, whatever else is in it.
/// Enters no link: it may lead out of the folder, or back to one above. `grouped` says that a folder above groups
/// cases. The SDK finds the same ones.
fn find(path: &Path, grouped: bool, cases: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let in_cases = grouped
        || path.canonicalize().is_ok_and(|whole| {
            let above = whole.parent().and_then(Path::file_name);
            above.is_some_and(|name| name == "cases")
        });
    let holds_one =
        (POLICY_FILES.iter()).any(|name| path.join(name).is_file()) && !path.join("cases").is_dir();
    if holds_one || (in_cases && !groups(path)?) {
        cases.push(path.to_owned());
        return Ok(());
    }
    for entry in entries(path)? {
        let below = path.join(entry);
        if fs::symlink_metadata(&below).is_ok_and(|found| found.is_dir()) {
            find(&below, in_cases, cases)?;
        }
    }
    Ok(())
}

/// The names in a folder, in order.
fn entries(folder: &Path) -> anyhow::Result<Vec<OsString>> {
    let failed = || format!("failed to read the folder `{}`", folder.display());
    let entries = fs::read_dir(folder).with_context(failed)?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names: Vec<_> = names.collect::<Result<_, _>>().with_context(failed)?;
    names.sort();
    Ok(names)
}

/// Whether a folder holds folders and nothing else.
fn groups(path: &Path) -> anyhow::Result<bool> {
    let names = entries(path)?;
    Ok(!names.is_empty() && names.iter().all(|name| path.join(name).is_dir()))
}

/// Refuses a case that lacks a file, or holds one that no case has: its name is probably misspelt.
fn whole(case: &Path, files: &[&str]) -> anyhow::Result<()> {
    let mut strange = entries(case)?;
    strange.retain(|name| !files.iter().any(|file| name == file));
    let strange: Vec<_> = strange
        .iter()
        .map(|name| format!("`{}`", name.display()))
        .collect();
    let strange =
        (!strange.is_empty()).then(|| format!("{} is not a file of a case", strange.join(", ")));
    let missing = FILES.iter().find(|name| !case.join(name).is_file());
    match (missing, strange) {
        (Some(missing), Some(strange)) => bail!("`{missing}` is missing; {strange}"),
        (Some(missing), None) => bail!("`{missing}` is missing"),
        (None, Some(strange)) => bail!("{strange}: expected {}", files.join(", ")),
        (None, None) => Ok(()),
    }
}

/// Reads a file of a case. Somebody else may have written the case: only a regular file is read, and none outside the
/// folder of the case, because its text may be shown.
///
/// # Errors
/// When there is no such file, or it has more than `most` bytes.
fn read(case: &Path, name: &str, most: usize) -> anyhow::Result<Vec<u8>> {
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let read = Folder::open(case).and_then(|folder| folder.read(Path::new(name), most));
    let failed = || format!("failed to read `{}`", case.join(name).display());
    Ok(read.with_context(failed)?.0)
}

/// Runs one case. With `updates`, writes the result as the expectation when that makes the case pass.
async fn run_case(
    engine: &Engine,
    case: PathBuf,
    warm: &mut WarmRunner,
    updates: bool,
) -> CaseVerdict {
    let expected = case.join("expected.yaml");
    // A new case consists of `given.yaml`.
    let is_new =
        updates && fs::symlink_metadata(&expected).is_err() && case.join("given.yaml").is_file();
    if is_new && let Err(error) = fs::write(&expected, "") {
        let differences = vec![format!("failed to write `{}`: {error}", expected.display())];
        return CaseVerdict {
            case,
            differences,
            updated: false,
        };
    }
    let read = || read(&case, "expected.yaml", update::LIMITS.bytes).ok();
    let before = updates.then(read).flatten();
    let ran = one(engine, &case, warm).await;
    let (mut differences, came) = ran.unwrap_or_else(|error| (vec![format!("{error:#}")], None));
    // For a new case, an empty result is written down, too.
    let mut updated = is_new && differences.is_empty();
    if let Some(came) = came.filter(|_| updates && !differences.is_empty()) {
        let left = update_to(engine, &case, &came, warm).await;
        updated = left.is_empty();
        if !updated {
            differences.push(format!("not updated: {}", left.join("; ")));
        }
    }
    if !updated && updates {
        let restored = match is_new {
            true => fs::remove_file(&expected),
            false => match before.filter(|before| read().is_some_and(|now| now != *before)) {
                Some(before) => fs::write(&expected, before),
                None => Ok(()),
            },
        };
        if let Err(error) = restored {
            let difference = format!("failed to restore `{}`: {error}", expected.display());
            differences.push(difference);
        }
    }
    CaseVerdict {
        case,
        differences,
        updated,
    }
}

/// Writes the result of a case as its expectation, and runs the case again; returns why it does not pass.
async fn update_to(
    engine: &Engine,
    case: &Path,
    came: &Came,
    warm: &mut WarmRunner,
) -> Vec<String> {
    let again = match update::write(&case.join("expected.yaml"), came) {
        Ok(()) => one(engine, case, warm).await,
        Err(error) => Err(error),
    };
    let (mut left, again) = again.unwrap_or_else(|error| (vec![format!("{error:#}")], None));
    if let Some(first) = left
        .first_mut()
        .filter(|_| again.is_some_and(|again| again != *came))
    {
        *first = format!("a second run came to another result: {first}");
    }
    left
}

/// Runs one case: of a guest when it lies in the guest's crate, else of the policy that it lies under.
async fn one(
    engine: &Engine,
    case: &Path,
    warm: &mut WarmRunner,
) -> anyhow::Result<(Vec<String>, Option<Came>)> {
    let (differences, came) = match guest::crate_above(case) {
        Some(home) => {
            whole(case, &FILES)?;
            guest::run(engine, &home, case, &mut warm.guests)?
        }
        None => {
            whole(case, &POLICY_FILES)?;
            policy::run(engine, case, &mut warm.policies).await?
        }
    };
    Ok((differences, Some(came)))
}

fn table(verdicts: &[CaseVerdict], screen: &Screen) {
    for verdict in verdicts {
        let word = match verdict {
            _ if verdict.failed() => Tinted::new("FAILED", Tint::Red, 7),
            CaseVerdict { updated: true, .. } => Tinted::new("updated", Tint::Yellow, 7),
            _ => Tinted::new("passed", Tint::Green, 7),
        };
        screen.line_of(&word, format_args!("  {}", verdict.case.display()));
        for line in &verdict.differences {
            screen.line(format_args!("        {line}"));
        }
    }
    let failed = verdicts.iter().filter(|verdict| verdict.failed()).count();
    let updated = verdicts.iter().filter(|verdict| verdict.updated).count();
    let passed = verdicts.len() - failed - updated;
    match updated {
        0 => screen.line(format_args!("{passed} passed, {failed} failed")),
        _ => screen.line(format_args!(
            "{passed} passed, {updated} updated, {failed} failed"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also of the SDK: see `a_case_is_every_folder_that_holds_more_than_folders` there.
    #[test]
    fn a_case_is_every_folder_that_holds_more_than_folders() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["a/given.yaml", "b/c/d/expected.yaml", "b/e/misspelt"] {
            let file = folder.path().join("cases").join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let mut found = Vec::new();
        find(&folder.path().join("cases"), false, &mut found).unwrap();
        let cases = ["a", "b/c/d", "b/e"].map(|case| folder.path().join("cases").join(case));
        assert_eq!(found, cases);
    }

    #[test]
    fn only_a_case_of_a_policy_has_what_comes_then() {
        let case = tempfile::tempdir().unwrap();
        for name in POLICY_FILES {
            fs::write(case.path().join(name), "").unwrap();
        }
        assert!(whole(case.path(), &POLICY_FILES).is_ok());
        let told = whole(case.path(), &FILES).unwrap_err().to_string();
        assert_eq!(
            told,
            "`then.yaml` is not a file of a case: expected given.yaml, expected.yaml"
        );
    }
}
