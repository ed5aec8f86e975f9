//! Runs one case of a guest: asks the built component, and compares its answer by the rules of the guest's own tests.
//! The guest does not run natively.

mod answer;
mod arguments;
mod built;
mod cut;
mod expected;
mod inputs;
mod words;

use super::update::Came;
use crate::telemetry;
use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use transom_artifacts::Location;
use transom_core::contract::decide::Input;
use transom_core::contract::description::Role;
use transom_core::world::{KUBECONFIG, TAINTS};
use transom_core::{document, managed_cluster};
use transom_engine::{Call, Engine, Guest, Limits, LogLine};
use words::Words;

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
    let mut said = Said::default();
    let found = ask(guest, &given, &mut said);
    said.tell(case);
    let found = found?;
    if found != ask(guest, &given, &mut Said::default())? {
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

/// Asks the guest the one question of a case.
fn ask(guest: &Guest, given: &Value, said: &mut Said) -> anyhow::Result<Value> {
    Words::inside("", given.clone(), |given| {
        if let Some(settings) = given.take("validate") {
            return said.answered(
                guest.validate(&Limits::default(), &settings.to_string()),
                |problems| problems.iter().map(answer::problem).collect(),
            );
        }
        match guest.role() {
            Role::Trigger => trigger(guest, given, said),
            Role::Decide(world) if world == KUBECONFIG => kubeconfig(guest, given, said),
            Role::Decide(world) if world == TAINTS => taints(guest, given, said),
            Role::Decide(world) => anyhow::bail!(
                "guests of the world `{}` have no cases of their own; give their policy cases",
                world.name()
            ),
        }
    })
}

fn trigger(guest: &Guest, given: &mut Words, said: &mut Said) -> anyhow::Result<Value> {
    let context = arguments::context(given)?;
    if let Some(change) = given.maybe("change", arguments::change)? {
        let change = cut::of(guest, &change.after.reference)?.cut_change(change);
        return said.answered(
            guest.evaluate(&Limits::default(), &context, &change),
            answer::verdict,
        );
    }
    let primary = given
        .maybe("primary", arguments::primary)?
        .context("neither `primary` nor `change` is given")?;
    let primary = cut::of(guest, &primary.reference)?.cut(primary);
    said.answered(
        guest.ready(&Limits::default(), &context, &primary),
        answer::readiness,
    )
}

fn kubeconfig(guest: &Guest, given: &mut Words, said: &mut Said) -> anyhow::Result<Value> {
    let context = arguments::context(given)?;
    let primary = given
        .maybe("primary", arguments::primary)?
        .context("`primary` is missing")?;
    let primary = cut::of(guest, &primary.reference)?.cut(primary);
    let require = |found: &[Input]| guest.require(&Limits::default(), &context, &primary, found);
    if given.has("found") {
        let found = cut::inputs(guest, given.each("found", inputs::input)?, require)?;
        let call = require(&found);
        return said.answered(call, |result| answer::result(result, answer::requirement));
    }
    if !given.has("inputs") {
        bail!("neither `found` nor `inputs` is given");
    }
    let inputs = cut::inputs(guest, given.each("inputs", inputs::input)?, require)?;
    let call = guest.transform(&Limits::default(), &context, &primary, &inputs);
    said.answered(call, |result| answer::result(result, answer::kubeconfig))
}

fn taints(guest: &Guest, given: &mut Words, said: &mut Said) -> anyhow::Result<Value> {
    let context = arguments::context(given)?;
    let cluster = given
        .maybe("cluster", arguments::cluster)?
        .context("`cluster` is missing")?;
    let cluster = managed_cluster::declared::cut(&cluster, &cut::of(guest, &cluster.reference)?)?;
    said.answered(
        guest.compute(&Limits::default(), &context, &cluster),
        |result| answer::result(result, answer::taints),
    )
}

/// What the guest logged while it was asked.
#[derive(Default)]
struct Said(Vec<LogLine>);

impl Said {
    /// The answer of a call in the words of `wit/`; a call that gives none fails its case.
    fn answered<T>(
        &mut self,
        call: Call<T>,
        say: impl FnOnce(&T) -> Value,
    ) -> anyhow::Result<Value> {
        self.0.extend(call.receipt.log);
        let answer = call.result.context("failed to call the component")?;
        Ok(say(&answer))
    }

    /// Logs the lines as those of a guest at work.
    fn tell(self, case: &Path) {
        self.0
            .iter()
            .for_each(|line| telemetry::logged_in_case(case, line));
    }
}
