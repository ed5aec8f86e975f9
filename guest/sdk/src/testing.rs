//! Runs a guest natively, as plain Rust, on folders of cases. Needs no component, host or cluster.
//!
//! ```ignore
//! transom_guest::test_cases!(taints: MyGuest);
//! ```
//!
//! A case is a folder with `given.yaml` and `expected.yaml`; the names in both are those of `wit/`. A folder that holds
//! only folders groups cases.
//!
//! | `given.yaml` | calls | `expected.yaml` |
//! |---|---|---|
//! | `context`, `primary` (trigger guest) | `ready` | `readiness`, `ask-again-at` |
//! | `context`, `change` | `evaluate` | `run: [...]` or `ignore` |
//! | `context`, `primary`, `found` (kubeconfig guest) | `require` | `ok: {target, needs}` or `err: {...}` |
//! | `context`, `primary`, `inputs` | `transform` | `ok: {kubeconfig, ask-again-at}` or `err: {...}` |
//! | `context`, `primary`, `found` (objects guest) | `require` | `ok: {targets, needs}` or `err: {...}` |
//! | `context`, `primary`, `inputs` | `reconcile` | `ok: {apply, remove, keep-finalizer, wait, ask-again-at}` or `err: {...}` |
//! | `context`, `cluster` | `compute` | `ok: {decision, ask-again-at}` or `err: {...}` |
//! | `validate` (settings) | `validate` | a list of problems |
//!
//! As the host does, the runner cuts the input to what the guest's description declares: an undeclared field of a
//! primary, of an object or of a managed cluster is absent. It also refuses a taints guest that declares a path which
//! fills no field of the record.
//!
//! Settings, the `fields` of a primary, the value of a form `object` and the `content` that a guest wants, also of the
//! objects of a text, are written as YAML, not as JSON in a text. Absent fields have their default: empty, zero, false,
//! absent; a lease lasts 60 seconds. Without `agent`, the agent works for the hub's own cluster.
//!
//! In `expected.yaml`, a field that is left out must have its default in the answer; the case of a variant must always
//! be given. Only `message` may be left out and have a value, because sentences may change. Every answer must give only
//! declared reasons, and the same answer when asked twice.

mod compare;
#[doc(hidden)]
pub mod declared;
mod given;

use crate::bindings::guest::exports::transom::policy::guest::Guest as GuestExports;
use crate::kubeconfig::bindings::exports::transom::policy::kubeconfig::Guest as KubeconfigExports;
use crate::objects::bindings::exports::transom::policy::objects::Guest as ObjectsExports;
use crate::taints::bindings::exports::transom::policy::taints::Guest as TaintsExports;
use crate::trigger::bindings::exports::transom::policy::trigger::Guest as TriggerExports;
use crate::{Guest, Kubeconfig, ObjectRef, Objects, Primary, Taints, Trigger};
use declared::Declared;
use given::{Given, cut_inputs};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// The failed cases, and why they failed.
pub struct Failed(Vec<(PathBuf, String)>);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(case, why)| write!(f, "\ncase `{}`: {why}", case.display()))
    }
}

/// As [`fmt::Display`], because a failed test prints this.
impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failed {}

/// Runs the cases of a trigger guest.
///
/// # Errors
/// The failed cases; also an error if there is no case.
pub fn trigger<G: Trigger>(folder: impl AsRef<Path>) -> Result<(), Failed> {
    run::<G>(folder.as_ref(), |given| {
        if let Some(change) = given.change()? {
            let change = of::<G>(&change.after.reference)?.change(change)?;
            return answer(<G as TriggerExports>::evaluate(given.context()?, change));
        }
        let primary = primary::<G>(given)?.ok_or("there is neither `primary` nor `change`")?;
        answer(<G as TriggerExports>::ready(given.context()?, primary))
    })
}

/// Runs the cases of a kubeconfig guest.
///
/// # Errors
/// The failed cases; also an error if there is no case.
pub fn kubeconfig<G: Kubeconfig>(folder: impl AsRef<Path>) -> Result<(), Failed> {
    run::<G>(folder.as_ref(), |given| {
        let primary = primary::<G>(given)?.ok_or("there is no `primary`")?;
        let (found, inputs, context) = (
            given.inputs("found")?,
            given.inputs("inputs")?,
            given.context()?,
        );
        let require =
            |found| <G as KubeconfigExports>::require(context.clone(), primary.clone(), found);
        let needs = |found| {
            Ok(kinds(require(found)?.needs, |need| {
                (need.role, need.reference)
            }))
        };
        if let Some(found) = found {
            return answer(result(require(cut_inputs(&G::ABOUT, found, needs)?)));
        }
        let inputs = inputs.ok_or("there is neither `found` nor `inputs`")?;
        let inputs = cut_inputs(&G::ABOUT, inputs, needs)?;
        answer(result(<G as KubeconfigExports>::transform(
            context.clone(),
            primary.clone(),
            inputs,
        )))
    })
}

/// Runs the cases of an objects guest.
///
/// # Errors
/// The failed cases; also an error if there is no case.
pub fn objects<G: Objects>(folder: impl AsRef<Path>) -> Result<(), Failed> {
    run::<G>(folder.as_ref(), |given| {
        let primary = primary::<G>(given)?.ok_or("there is no `primary`")?;
        let (found, inputs, context) = (
            given.inputs("found")?,
            given.inputs("inputs")?,
            given.context()?,
        );
        let require =
            |found| <G as ObjectsExports>::require(context.clone(), primary.clone(), found);
        let needs = |found| {
            Ok(kinds(require(found)?.needs, |need| {
                (need.role, need.reference)
            }))
        };
        if let Some(found) = found {
            return answer(result(require(cut_inputs(&G::ABOUT, found, needs)?)));
        }
        let inputs = cut_inputs(&G::ABOUT, inputs.unwrap_or_default(), needs)?;
        let mut answer = answer(result(<G as ObjectsExports>::reconcile(
            context.clone(),
            primary.clone(),
            inputs,
        )))?;
        let desired = answer
            .pointer_mut("/ok/apply")
            .and_then(Value::as_array_mut);
        for desired in desired.into_iter().flatten() {
            parse_content(desired)?;
            let holes = desired.get_mut("holes").and_then(Value::as_array_mut);
            for hole in holes.into_iter().flatten() {
                let text = hole.pointer_mut("/hole/manifests");
                let mut manifests = text.and_then(Value::as_array_mut).into_iter().flatten();
                manifests.try_for_each(parse_content)?;
            }
        }
        Ok(answer)
    })
}

/// Replaces the content of a desired object, or of one of a text, by the JSON in its text.
fn parse_content(desired: &mut Value) -> Result<(), String> {
    let Some(content) = desired.get_mut("content") else {
        return Ok(());
    };
    let parsed = serde_json::from_str(content.as_str().unwrap_or_default());
    *content = parsed.map_err(|error| format!("the `content` is not JSON: {error}"))?;
    Ok(())
}

/// The role and the object of each need.
fn kinds<N>(needs: Vec<N>, kind: impl Fn(N) -> (String, ObjectRef)) -> BTreeMap<String, ObjectRef> {
    needs.into_iter().map(kind).collect()
}

/// The declarations of a guest for the kind of an object.
fn of<G: Guest>(object: &ObjectRef) -> Result<Declared, String> {
    Declared::of(&G::ABOUT, (&object.api_version, &object.kind))
}

/// The primary of a case, cut to what the guest declares.
fn primary<G: Guest>(given: &mut Given) -> Result<Option<Primary>, String> {
    given
        .primary()?
        .map(|primary| of::<G>(&primary.reference)?.primary(primary))
        .transpose()
}

/// Runs the cases of a taints guest.
///
/// # Errors
/// The failed cases; also an error if there is no case.
pub fn taints<G: Taints>(folder: impl AsRef<Path>) -> Result<(), Failed> {
    declared::check(&G::ABOUT).map_err(|why| Failed(vec![(folder.as_ref().to_owned(), why)]))?;
    run::<G>(folder.as_ref(), |given| {
        let cluster = given.cluster()?.ok_or("there is no `cluster`")?;
        let cluster = of::<G>(&cluster.reference)?.cluster(cluster);
        answer(result(<G as TaintsExports>::compute(
            given.context()?,
            cluster,
        )))
    })
}

/// `ok` or `err`, as in `expected.yaml`.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome<T, E> {
    Ok(T),
    Err(E),
}

fn result<T, E>(result: Result<T, E>) -> Outcome<T, E> {
    match result {
        Ok(value) => Outcome::Ok(value),
        Err(error) => Outcome::Err(error),
    }
}

fn answer(answer: impl Serialize) -> Result<Value, String> {
    serde_json::to_value(answer)
        .map_err(|error| format!("failed to write the answer down: {error}"))
}

/// Runs every case of a folder.
fn run<G: Guest>(
    folder: &Path,
    call: impl Fn(&mut Given) -> Result<Value, String>,
) -> Result<(), Failed> {
    let cases = cases(folder).map_err(|why| Failed(vec![(folder.to_owned(), why)]))?;
    let count = cases.len();
    let failed: Vec<_> = cases
        .into_iter()
        .filter_map(|case| run_one::<G>(&case, &call).err().map(|why| (case, why)))
        .collect();
    if !failed.is_empty() {
        return Err(Failed(failed));
    }
    // Cargo counts all cases as one test, and hides the output of a test that passes.
    drop(writeln!(
        io::stderr(),
        "{count} cases in {} passed",
        folder.display()
    ));
    Ok(())
}

/// The folders of cases, sorted. One that holds only folders groups cases, as for `transom test` and `transom build`.
fn cases(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut cases = Vec::new();
    // A link may lead anywhere, also to a folder above it.
    let is_folder = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    for case in entries(folder)?.into_iter().filter(is_folder) {
        let held = entries(&case)?;
        match !held.is_empty() && held.iter().all(|path| path.is_dir()) {
            true => cases.extend(self::cases(&case)?),
            false => cases.push(case),
        }
    }
    if cases.is_empty() {
        Err("there is no case in the folder".into())
    } else {
        Ok(cases)
    }
}

/// What is in a folder, sorted.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("failed to read the folder: {error}");
    let entries = fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<_> = paths.collect::<io::Result<_>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn run_one<G: Guest>(
    case: &Path,
    call: impl Fn(&mut Given) -> Result<Value, String>,
) -> Result<(), String> {
    only_its_files(case)?;
    let given = read(&case.join("given.yaml"))?;
    let expected = read(&case.join("expected.yaml"))?;
    let ask = || {
        let mut given = Given::new(given.clone())?;
        let found = match given.validate()? {
            Some(settings) => answer(<G as GuestExports>::validate(settings))?,
            None => call(&mut given)?,
        };
        given.done()?;
        Ok::<_, String>(found)
    };
    let found = ask()?;
    if found != ask()? {
        return Err("asked twice, the guest gave two answers".into());
    }
    compare::declared(&G::ABOUT, &given, &found)?;
    compare::equal(&expected, &found)
}

/// Refuses other files in a case: a misspelt file would be ignored silently.
fn only_its_files(case: &Path) -> Result<(), String> {
    let is_one = |path: &PathBuf| path.ends_with("given.yaml") || path.ends_with("expected.yaml");
    match entries(case)?.into_iter().find(|path| !is_one(path)) {
        None => Ok(()),
        Some(other) => Err(format!(
            "`{}` is no file of a case: want given.yaml and expected.yaml",
            other.file_name().unwrap_or_default().display()
        )),
    }
}

fn read(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("failed to read `{}`: {error}", path.display()))?;
    serde_yaml::from_str(&text)
        .map_err(|error| format!("failed to parse `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also of `transom test`, under the same name.
    #[test]
    fn a_case_is_every_folder_that_holds_more_than_folders() {
        let folder = std::env::temp_dir().join(format!("transom-sdk-{}", std::process::id()));
        for file in ["a/given.yaml", "b/c/d/expected.yaml", "b/e/misspelt"] {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let found = cases(&folder).unwrap();
        let refused = only_its_files(&folder.join("b/e")).unwrap_err();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, ["a", "b/c/d", "b/e"].map(|case| folder.join(case)));
        assert!(refused.contains("`misspelt`"), "{refused}");
    }
}
