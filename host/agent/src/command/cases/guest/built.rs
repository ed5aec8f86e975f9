//! Where the built component of a guest's crate lies, and whether its sources are newer. Never starts cargo: in a
//! cloned folder a file may name any program as the toolchain.

use anyhow::bail;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use toml::Table;
use transom_artifacts::{Location, builtin_names};

/// The folder below a target folder in which components are looked for.
const BUILT: &str = "guests";
/// Maximum size of a manifest or a file of settings, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of files of a crate that are looked at.
const MAX_FILES: usize = 10_000;
/// Maximum depth of folders that are looked at.
const MAX_DEPTH: usize = 16;

/// The component of a guest crate: the built file, or else the builtin guest of the same name.
///
/// # Errors
/// When there is neither.
pub(super) fn find(home: &Path) -> anyhow::Result<Location> {
    let names = names(home);
    let file = |target: PathBuf, name: &str| target.join(BUILT).join(format!("{name}.wasm"));
    let places: Vec<PathBuf> = targets(home)
        .iter()
        .flat_map(|target| names.iter().map(|name| file(target.clone(), name)))
        .collect();
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(Location::anywhere(&found.to_string_lossy()));
    }
    match (
        builtin_names().find(|known| names.iter().any(|name| name == known)),
        places.first(),
    ) {
        (Some(known), _) => Ok(Location::Builtin(known.to_owned())),
        (None, Some(place)) => bail!(
            "failed to find the component of the guest: build it as `{}`, or name it with --component",
            place.display()
        ),
        (None, None) => bail!(
            "failed to find the name of the guest in `{}`",
            home.display()
        ),
    }
}

/// The package's name, then the folder's.
fn names(home: &Path) -> Vec<String> {
    let manifest = table(&home.join("Cargo.toml"));
    let package = manifest
        .as_ref()
        .and_then(|manifest| manifest.get("package")?.get("name")?.as_str());
    let folder = home.file_name().and_then(|name| name.to_str());
    // Cargo allows no slash in a name; one would lead to another folder.
    let mut names: Vec<String> = package
        .into_iter()
        .chain(folder)
        .filter(|name| !name.contains('/'))
        .map(str::to_owned)
        .collect();
    names.dedup();
    names
}

/// The folders that may be the target folder of a crate, in cargo's order of precedence. Last is `target` in the
/// current folder: `cargo xtask guests` puts components there when it is the top of a workspace.
fn targets(home: &Path) -> Vec<PathBuf> {
    let by_variable = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"]
        .into_iter()
        .filter_map(env::var_os);
    let by_variable = by_variable
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from);
    let workspaces = home.ancestors().skip(1).filter(|above| {
        table(&above.join("Cargo.toml")).is_some_and(|manifest| manifest.contains_key("workspace"))
    });
    let usual = [home]
        .into_iter()
        .chain(workspaces)
        .chain([Path::new("")])
        .map(|top| top.join("target"));
    by_variable.chain(by_settings(home)).chain(usual).collect()
}

/// The target folder that the nearest settings of cargo name: in the crate, above it, or in the user's own.
fn by_settings(home: &Path) -> Option<PathBuf> {
    let own = env::var_os("CARGO_HOME").map(PathBuf::from);
    let own = own.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let above = home.ancestors().map(|above| above.join(".cargo"));
    above.chain(own).find_map(|folder| {
        let settings = ["config", "config.toml"]
            .iter()
            .find_map(|name| table(&folder.join(name)))?;
        let target = settings
            .get("build")?
            .get("target-dir")?
            .as_str()?
            .to_owned();
        // Relative to where the folder with the settings lies.
        Some(folder.parent().unwrap_or(Path::new("")).join(target))
    })
}

/// A TOML file; `None` when it cannot be read.
fn table(path: &Path) -> Option<Table> {
    let is_small =
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= MAX_BYTES);
    let text = is_small.then(|| fs::read_to_string(path).ok()).flatten()?;
    toml::from_str(&text).ok()
}

/// The warning when a source of the crate is newer than its component. Crates that it depends on are not looked at.
pub(super) fn outdated(home: &Path, location: &Location) -> Option<String> {
    let (root, below) = location.file()?;
    let component = root.join(below);
    let built = modified(&component)?;
    let mut sources = Vec::new();
    files(home, 0, &mut sources);
    let newer = sources
        .into_iter()
        .filter_map(|file| Some((modified(&file)?, file)));
    let (_, newest) = newer.filter(|(changed, _)| *changed > built).max()?;
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
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let is_source = || {
            path.extension()
                .is_some_and(|kind| ["rs", "toml", "json"].iter().any(|known| kind == *known))
        };
        if found.len() >= MAX_FILES {
            return;
        } else if kind.is_dir()
            && depth < MAX_DEPTH
            && (depth > 0 || name == "src" || name == "wit")
        {
            files(&path, depth + 1, found);
        } else if kind.is_file() && (depth > 0 || is_source()) {
            found.push(path);
        }
    }
}
