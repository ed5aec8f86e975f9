//! The cases that travel with a component: `transom build` puts those of the crate into it, `transom test COMPONENT`
//! runs them.

use super::{CaseVerdict, FILES, find, guest, whole};
use crate::args::TestArgs;
use crate::command::engine;
use crate::output::Screen;
use crate::policies::cases::ask;
use crate::telemetry;
use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use transom_artifacts::{GatheredComponents, Location};
use transom_core::cases::{GuestCase, difference};
use transom_engine::{CallLimits, Guest, travelling_cases};

/// The folder of a crate with its cases.
const CASES: &str = "cases";

/// The component that a path names, unless it is a folder.
pub(super) fn named(path: &Path) -> Option<&str> {
    let is_one = |text: &&str| path.is_file() || (!path.exists() && text.contains(':'));
    path.to_str().filter(is_one)
}

/// Runs the cases that travel with a component.
///
/// # Errors
/// When it cannot be loaded, or has no cases.
pub(super) fn test(component: &str, args: &TestArgs) -> anyhow::Result<Vec<CaseVerdict>> {
    if args.update || args.component.is_some() {
        bail!(
            "failed to use `--update` or `--component`: they are for cases in folders, not for those that travel with `{component}`"
        );
    }
    let location = Location::anywhere(component).map_err(anyhow::Error::msg)?;
    let failed = || format!("failed to read `{location}`");
    let artifact = location.fetch(None, &GatheredComponents::default());
    let artifact = artifact.with_context(failed)?;
    let cases = travelling_cases(&artifact.bytes).with_context(failed)?;
    if cases.is_empty() {
        bail!("failed to find a case in `{location}`: `transom build` puts those of a crate there");
    }
    let engine = engine::engine(CallLimits::LARGEST)?;
    let guest = guest::with_its_needs(&engine, &location, &artifact.bytes)?;
    Ok(cases.iter().map(|case| one(&guest, case)).collect())
}

fn one(guest: &Guest, case: &GuestCase) -> CaseVerdict {
    let (name, mut log) = (PathBuf::from(&case.name), Vec::new());
    let found = ask(guest, &case.given, &mut log);
    for line in &log {
        telemetry::logged_in_case(&name, line);
    }
    let differs = match found {
        Ok(found) => difference(&case.expected, &found).map(|differs| differs.to_string()),
        Err(error) => Some(format!("{error:#}")),
    };
    CaseVerdict {
        case: name,
        differences: differs.into_iter().collect(),
        updated: false,
    }
}

/// The cases of a crate, to travel with its component. One without an expectation yet stays behind.
///
/// # Errors
/// When a case cannot be read.
pub(in crate::command) fn of_crate(home: &Path, screen: &Screen) -> anyhow::Result<Vec<GuestCase>> {
    let folder = home.join(CASES);
    let mut found = Vec::new();
    if folder.is_dir() {
        find(&folder, false, &mut found)?;
    }
    let [given, expected] = FILES;
    let mut cases = Vec::new();
    for case in found {
        if !case.join(expected).is_file() {
            let case = case.display();
            screen.warn(format_args!(
                "`{case}` has no {expected}, so it does not travel with the component"
            ));
            continue;
        }
        let below = case.strip_prefix(&folder).unwrap_or(&case);
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let name = parts.join("/");
        whole(&case, &FILES).with_context(|| format!("failed to read the case `{name}`"))?;
        cases.push(GuestCase {
            given: guest::read(&case, given)?,
            expected: guest::read(&case, expected)?,
            name,
        });
    }
    Ok(cases)
}
