//! Runs one case of a guest: finds and asks the built component, and compares its answer by the rules of the guest's
//! own tests. The guest does not run natively, and cargo is never started: in a cloned folder a file may name any
//! program as the toolchain.

use super::update::Came;
use crate::command::case::settings::above_cases;
use crate::policies::cases::ask;
use crate::telemetry;
use anyhow::{Context as _, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{env, fs};
use toml::Table;
use transom_artifacts::{GatheredComponents, Location, builtin_names};
use transom_core::cases::{difference, least};
use transom_core::document;
use transom_engine::{Engine, Guest};

/// Limits of one file of a case.
const LIMITS: document::ParseLimits = document::ParseLimits {
    bytes: 4 << 20,
    nodes: 100_000,
    depth: 100,
};

/// The folder below a target folder in which components are looked for.
const BUILT: &str = "guests";
/// Maximum size of a manifest or a file of settings, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of files of a crate that are looked at.
const MAX_FILES: usize = 10_000;
/// Maximum depth of folders that are looked at.
const MAX_DEPTH: usize = 16;

/// The guests that were loaded.
#[derive(Default)]
pub(super) struct WarmGuests {
    named: Option<(PathBuf, String)>,
    /// By the folders of their crates, with a warning about the component.
    loaded: BTreeMap<PathBuf, (Guest, Option<String>)>,
}

impl WarmGuests {
    /// With the crate whose component the command line names, and that name.
    pub(super) fn naming(named: Option<(PathBuf, String)>) -> Self {
        Self {
            named,
            loaded: BTreeMap::new(),
        }
    }

    /// The warnings about the components that were asked.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &String> {
        let loaded = self.loaded.values();
        loaded.filter_map(|(_, warning)| warning.as_ref())
    }

    fn guest(&mut self, engine: &Engine, home: &Path) -> anyhow::Result<&Guest> {
        if !self.loaded.contains_key(home) {
            let named = self.named.as_ref().filter(|(of, _)| of == home);
            let location = match named {
                Some((_, component)) => {
                    Location::anywhere(component).map_err(anyhow::Error::msg)?
                }
                None => find(home)?,
            };
            let loaded = (load(engine, &location)?, outdated(home, &location));
            self.loaded.insert(home.to_owned(), loaded);
        }
        let loaded = self.loaded.get(home).context("failed to keep the guest")?;
        Ok(&loaded.0)
    }
}

/// The folder of the guest's crate above a case; `None` when no crate lies above its `cases`.
pub(super) fn crate_above(case: &Path) -> Option<PathBuf> {
    let case = case.canonicalize().ok()?;
    let home = above_cases(&case)?;
    let is_crate = home.join("Cargo.toml").is_file();
    is_crate.then(|| home.to_owned())
}

/// Returns the difference between the component's answer and what is expected, and the answer.
///
/// # Errors
/// When a file of the case cannot be read, or the component gives no answer.
pub(super) fn run(
    engine: &Engine,
    home: &Path,
    case: &Path,
    warm: &mut WarmGuests,
) -> anyhow::Result<(Vec<String>, Came)> {
    let given = read(case, "given.yaml")?;
    let expected = read(case, "expected.yaml")?;
    let guest = warm.guest(engine, home)?;
    let mut log = Vec::new();
    let found = ask(guest, &given, &mut log);
    for line in &log {
        telemetry::logged_in_case(case, line);
    }
    let found = found?;
    let difference = difference(&expected, &found).map(|difference| difference.to_string());
    let differences = difference.into_iter().collect();
    Ok((differences, Came::Whole(least(&found))))
}

/// A file of a case of a guest.
///
/// # Errors
/// When it cannot be read, or exceeds a limit.
pub(super) fn read(case: &Path, name: &str) -> anyhow::Result<Value> {
    let bytes = super::read(case, name, LIMITS.bytes)?;
    let failed = || format!("failed to read `{}`", case.join(name).display());
    document::parse_one(&bytes, LIMITS).with_context(failed)
}

fn load(engine: &Engine, location: &Location) -> anyhow::Result<Guest> {
    let artifact = location
        .fetch(None, &GatheredComponents::default())
        .with_context(|| format!("failed to load `{location}`"))?;
    with_its_needs(engine, location, &artifact.bytes)
}

/// A component as a guest of its own world, with all that it needs.
///
/// # Errors
/// When it cannot be loaded.
pub(super) fn with_its_needs(
    engine: &Engine,
    location: &Location,
    component: &[u8],
) -> anyhow::Result<Guest> {
    let failed = || format!("failed to load `{location}`");
    let found = engine.inspect(component).with_context(failed)?;
    let world = found.world.context("it matches no world");
    let world = world.with_context(failed)?;
    engine
        .load(component, world, &found.needs)
        .with_context(failed)
}

/// The component of a guest crate: the built file, or else the builtin guest of the same name.
///
/// # Errors
/// When there is neither.
fn find(home: &Path) -> anyhow::Result<Location> {
    let names = names(home);
    let mut places = Vec::new();
    for target in targets(home) {
        let built = target.join(BUILT);
        places.extend(names.iter().map(|name| built.join(format!("{name}.wasm"))));
    }
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Location::anywhere(&found.to_string_lossy()).map_err(anyhow::Error::msg);
    }
    if let Some(known) = builtin_names().find(|known| names.iter().any(|name| name == known)) {
        return Ok(Location::Builtin(known.to_owned()));
    }
    let failed = || {
        format!(
            "failed to find the name of the guest in `{}`",
            home.display()
        )
    };
    bail!(
        "failed to find the component of the guest: build it as `{}`, or name it with --component",
        places.first().with_context(failed)?.display()
    )
}

/// The package's name, then the folder's.
fn names(home: &Path) -> Vec<String> {
    let manifest = table(&home.join("Cargo.toml")).unwrap_or_default();
    let package = || manifest.get("package")?.get("name")?.as_str();
    let folder = home.file_name().and_then(|name| name.to_str());
    let names = [package(), folder].into_iter().flatten();
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    // Cargo allows no slash in a name; one would lead to another folder.
    names.retain(|name| !name.contains('/'));
    names.dedup();
    names
}

/// The folders that may be the target folder of a crate, in cargo's order of precedence. Last is `target` in the
/// current folder: `cargo xtask guests` puts components there when it is the top of a workspace.
fn targets(home: &Path) -> Vec<PathBuf> {
    let variables = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"];
    let mut targets: Vec<_> = variables.into_iter().filter_map(env::var_os).collect();
    targets.retain(|folder| !folder.is_empty());
    let mut targets: Vec<_> = targets.into_iter().map(PathBuf::from).collect();
    targets.extend(by_settings(home));
    let is_workspace = |above: &&Path| {
        table(&above.join("Cargo.toml")).is_some_and(|manifest| manifest.contains_key("workspace"))
    };
    let workspaces = home.ancestors().skip(1).filter(is_workspace);
    let tops = [home].into_iter().chain(workspaces).chain([Path::new("")]);
    targets.extend(tops.map(|top| top.join("target")));
    targets
}

/// The target folder that the nearest settings of cargo name: in the crate, above it, or in the user's own.
fn by_settings(home: &Path) -> Option<PathBuf> {
    let own = env::var_os("CARGO_HOME").map(PathBuf::from);
    let own = own.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let above = home.ancestors().map(|above| above.join(".cargo"));
    above.chain(own).find_map(|folder| {
        let mut files = ["config", "config.toml"].iter();
        let settings = files.find_map(|name| table(&folder.join(name)))?;
        let target = settings.get("build")?.get("target-dir")?.as_str()?;
        // Relative to where the folder with the settings lies.
        Some(folder.parent().unwrap_or(Path::new("")).join(target))
    })
}

/// A TOML file; `None` when it cannot be read.
fn table(path: &Path) -> Option<Table> {
    let found = fs::metadata(path).ok()?;
    let is_small = found.is_file() && found.len() <= MAX_BYTES;
    let text = is_small.then(|| fs::read_to_string(path).ok())?;
    toml::from_str(&text?).ok()
}

/// The warning when a source of the crate is newer than its component. Crates that it depends on are not looked at.
fn outdated(home: &Path, location: &Location) -> Option<String> {
    let (root, below) = location.file()?;
    let component = root.join(below);
    let built = modified(&component)?;
    let mut sources = Vec::new();
    files(home, 0, &mut sources);
    let sources = sources.into_iter();
    let changed = sources.filter_map(|file| Some((modified(&file)?, file)));
    let (_, newest) = changed.filter(|(changed, _)| *changed > built).max()?;
    Some(format!(
        "`{}` is older than `{}`: the cases ran with the older build; build the guest again",
        component.display(),
        newest.display()
    ))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// Collects the files that a crate is built from: at its top those that cargo and `include_str!` read, and all below
/// `src` and `wit`.
fn files(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let end = path.extension().and_then(|end| end.to_str());
        let is_source = depth > 0 || matches!(end, Some("rs" | "toml" | "json"));
        let may_hold = depth > 0 || name == "src" || name == "wit";
        if found.len() >= MAX_FILES {
            return;
        } else if kind.is_dir() && depth < MAX_DEPTH && may_hold {
            files(&path, depth + 1, found);
        } else if kind.is_file() && is_source {
            found.push(path);
        }
    }
}
