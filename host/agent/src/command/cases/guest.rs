//! Runs one case of a guest: what is given is asked of the built component, and its answer compared.
//! Never asks natively, and never looser than the guest's own tests.

mod answer;
mod arguments;
mod cut;
mod expected;
mod inputs;
mod words;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use transom_artifacts::{Location, builtin_names};
use transom_core::contract::decide::Input;
use transom_core::contract::description::World;
use transom_core::{document, managed_cluster};
use transom_engine::{Call, Engine, Guest, Limits};
use words::Words;

/// Where built components are looked for: below the guest's own crate, or where `transom` is started, which is where
/// `cargo xtask guests` puts them when that is the top of a workspace.
const BUILT: &str = "target/guests";
/// What one file of a case may cost.
const LIMITS: document::Limits = document::Limits { bytes: 4 << 20, nodes: 100_000, depth: 100 };

/// The guests that were loaded, by the folders of their crates.
pub(super) type Warm = BTreeMap<PathBuf, Guest>;

/// The folder of the guest's crate above a case; none when no crate lies above its `cases`.
pub(super) fn crate_above(case: &Path) -> Option<PathBuf> {
    let case = case.canonicalize().ok()?;
    let cases = case.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "cases"))?;
    cases.parent().filter(|above| above.join("Cargo.toml").is_file()).map(Path::to_owned)
}

/// Gives the difference between the component's answer and what is expected.
///
/// # Errors
/// When a file of the case cannot be read, or the component gives no answer.
pub(super) fn run(engine: &Engine, home: PathBuf, case: &Path, warm: &mut Warm) -> anyhow::Result<Vec<String>> {
    let given = read(&case.join("given.yaml"))?;
    let expected = read(&case.join("expected.yaml"))?;
    let guest = match warm.get(&home) {
        Some(guest) => guest.clone(),
        None => {
            let guest = load(engine, &home)?;
            warm.insert(home, guest.clone());
            guest
        }
    };
    let found = ask(&guest, &given)?;
    if found != ask(&guest, &given)? {
        bail!("asked twice, the guest gave two answers");
    }
    Ok(expected::difference(&expected, &found).into_iter().collect())
}

fn read(path: &Path) -> anyhow::Result<Value> {
    let failed = || format!("failed to read `{}`", path.display());
    document::parse_one(&fs::read(path).with_context(failed)?, LIMITS).with_context(failed)
}

/// Loads the component of a guest crate: the built file, else the one of the binary.
fn load(engine: &Engine, home: &Path) -> anyhow::Result<Guest> {
    let name = home.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("failed to name the guest in `{}`", home.display()))?;
    let built = [home, Path::new("")].map(|top| top.join(BUILT).join(format!("{name}.wasm")));
    let location = match built.iter().find(|file| file.is_file()) {
        Some(file) => Location::anywhere(&file.to_string_lossy()),
        None if builtin_names().any(|known| known == name) => Location::Builtin(name.to_owned()),
        None => bail!("failed to find the component of the guest: build it and put it at `{}`", built[0].display()),
    };
    let failed = || format!("failed to load `{location}`");
    let artifact = location.fetch(None).with_context(failed)?;
    let found = engine.inspect(&artifact.bytes).with_context(failed)?;
    let world = found.world.ok_or_else(|| anyhow!("it fits no world")).with_context(failed)?;
    engine.load(&artifact.bytes, world, &found.needs).with_context(failed)
}

/// Puts the one question of a case to the guest.
fn ask(guest: &Guest, given: &Value) -> anyhow::Result<Value> {
    Words::inside("", given.clone(), |given| {
        if let Some(settings) = given.take("validate") {
            return answered(guest.validate(&Limits::default(), &settings.to_string()), |problems| {
                problems.iter().map(answer::problem).collect()
            });
        }
        match guest.world() {
            World::Trigger => trigger(guest, given),
            World::Kubeconfig => kubeconfig(guest, given),
            World::Taints => taints(guest, given),
        }
    })
}

fn trigger(guest: &Guest, given: &mut Words) -> anyhow::Result<Value> {
    let context = arguments::context(given)?;
    if let Some(change) = given.maybe("change", arguments::change)? {
        let change = cut::of(guest, &change.after.reference)?.cut_change(change);
        return answered(guest.evaluate(&Limits::default(), &context, &change), answer::verdict);
    }
    let subject = given.maybe("subject", arguments::subject)?.context("there is neither `subject` nor `change`")?;
    let subject = cut::of(guest, &subject.reference)?.cut(subject);
    answered(guest.ready(&Limits::default(), &context, &subject), answer::readiness)
}

fn kubeconfig(guest: &Guest, given: &mut Words) -> anyhow::Result<Value> {
    let context = arguments::context(given)?;
    let subject = given.maybe("subject", arguments::subject)?.context("there is no `subject`")?;
    let subject = cut::of(guest, &subject.reference)?.cut(subject);
    let require = |found: &[Input]| guest.require(&Limits::default(), &context, &subject, found);
    if given.has("found") {
        let found = cut::inputs(guest, given.each("found", inputs::input)?, require)?;
        let call = require(&found);
        return answered(call, |result| answer::result(result, answer::requirement));
    }
    if !given.has("inputs") {
        bail!("there is neither `found` nor `inputs`");
    }
    let inputs = cut::inputs(guest, given.each("inputs", inputs::input)?, require)?;
    let call = guest.transform(&Limits::default(), &context, &subject, &inputs);
    answered(call, |result| answer::result(result, answer::kubeconfig))
}

fn taints(guest: &Guest, given: &mut Words) -> anyhow::Result<Value> {
    let context = arguments::context(given)?;
    let cluster = given.maybe("cluster", arguments::cluster)?.context("there is no `cluster`")?;
    let cluster = managed_cluster::declared::cut(&cluster, &cut::of(guest, &cluster.reference)?)?;
    answered(guest.compute(&Limits::default(), &context, &cluster), |result| answer::result(result, answer::taints))
}

/// The answer of a call in the words of `wit/`; a call that gives none fails its case.
fn answered<T>(call: Call<T>, say: impl FnOnce(&T) -> Value) -> anyhow::Result<Value> {
    let answer = call.result.context("failed to ask the component")?;
    Ok(say(&answer))
}
