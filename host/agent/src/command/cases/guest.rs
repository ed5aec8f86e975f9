//! Runs one case of a guest: asks the built component, and compares its answer by the rules of the guest's own tests.
//! The guest does not run natively.

mod built;
mod expected;

use super::update::Came;
use crate::telemetry;
use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use transom_artifacts::Location;
use transom_core::document;
use transom_engine::{Engine, Guest, LogLine};

/// Limits of one file of a case.
const LIMITS: document::Limits = document::Limits {
    bytes: 4 << 20,
    nodes: 100_000,
    depth: 100,
};

/// The guests that were loaded.
#[derive(Default)]
pub(super) struct Warm {
    named: Option<(PathBuf, String)>,
    /// By the folders of their crates, with a warning about the component.
    loaded: BTreeMap<PathBuf, (Guest, Option<String>)>,
}

impl Warm {
    /// With the crate whose component the command line names, and that name.
    pub(super) fn naming(named: Option<(PathBuf, String)>) -> Self {
        Self {
            named,
            loaded: BTreeMap::new(),
        }
    }

    /// The warnings about the components that were asked.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &str> {
        self.loaded
            .values()
            .filter_map(|(_, warning)| warning.as_deref())
    }

    fn guest(&mut self, engine: &Engine, home: &Path) -> anyhow::Result<&Guest> {
        if !self.loaded.contains_key(home) {
            let named = self.named.as_ref().filter(|(of, _)| of == home);
            let location = match named {
                Some((_, component)) => Location::anywhere(component),
                None => built::find(home)?,
            };
            let guest = load(engine, &location)?;
            self.loaded
                .insert(home.to_owned(), (guest, built::outdated(home, &location)));
        }
        self.loaded
            .get(home)
            .map(|(guest, _)| guest)
            .context("failed to keep the guest")
    }
}

/// The folder of the guest's crate above a case; `None` when no crate lies above its `cases`.
pub(super) fn crate_above(case: &Path) -> Option<PathBuf> {
    let case = case.canonicalize().ok()?;
    let cases = case
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "cases"))?;
    cases
        .parent()
        .filter(|above| above.join("Cargo.toml").is_file())
        .map(Path::to_owned)
}

/// Returns the difference between the component's answer and what is expected, and the answer.
///
/// # Errors
/// When a file of the case cannot be read, or the component gives no answer.
pub(super) fn run(
    engine: &Engine,
    home: &Path,
    case: &Path,
    warm: &mut Warm,
) -> anyhow::Result<(Vec<String>, Came)> {
    let given = read(&case.join("given.yaml"))?;
    let expected = read(&case.join("expected.yaml"))?;
    let guest = warm.guest(engine, home)?;
    let mut log = Vec::new();
    let found = ask(guest, &given, &mut log);
    log.iter()
        .for_each(|line| telemetry::logged_in_case(case, line));
    let found = found?;
    if found != ask(guest, &given, &mut Vec::new())? {
        bail!("the guest gave two different answers to the same call");
    }
    let differences = expected::difference(&expected, &found)
        .into_iter()
        .collect();
    Ok((differences, Came::Whole(expected::least(&found))))
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let failed = || format!("failed to read `{}`", path.display());
    document::parse_one(&fs::read(path).with_context(failed)?, LIMITS).with_context(failed)
}

fn load(engine: &Engine, location: &Location) -> anyhow::Result<Guest> {
    let failed = || format!("failed to load `{location}`");
    let artifact = location.fetch(None).with_context(failed)?;
    let found = engine.inspect(&artifact.bytes).with_context(failed)?;
    let world = found
        .world
        .ok_or_else(|| anyhow!("it matches no world"))
        .with_context(failed)?;
    engine
        .load(&artifact.bytes, world, &found.needs)
        .with_context(failed)
}

/// Asks the guest the one question of a case, and keeps what it logged. A call without an answer fails its case.
fn ask(guest: &Guest, given: &Value, log: &mut Vec<LogLine>) -> anyhow::Result<Value> {
    let call = guest.ask(given.clone()).map_err(anyhow::Error::msg)?;
    log.extend(call.receipt.log);
    call.result.context("failed to call the component")
}
