//! Where the workspace lies and which of its packages are guests, as cargo reports it.

use crate::process;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the tasks need to know of the workspace.
pub(crate) struct Workspace {
    /// The folder of the root manifest.
    pub(crate) root: PathBuf,
    /// The shared target folder.
    pub(crate) target: PathBuf,
    /// Every package that becomes a component, by name.
    pub(crate) guests: Vec<Guest>,
}

/// A package that becomes a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    /// Name of the package.
    pub(crate) package: String,
    /// Whether it is a fixture of the tests and does not ship.
    pub(crate) fixture: bool,
}

impl Guest {
    /// Name of the component: the package's, without the prefix of the project.
    pub(crate) fn name(&self) -> &str {
        self.package
            .strip_prefix("transom-")
            .unwrap_or(&self.package)
    }
}

/// The cargo that runs this program, or the one on the path, without what cargo tells this program of its own package:
/// build scripts that look at it, such as ring's, would run again after each `cargo build` without xtask, and after
/// them all that depends on them would be built again.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    cargo
}

/// Builds a program of the workspace and returns its path. All packages are selected, so that its dependencies have the
/// features of `cargo build --workspace` and are not built a second time. On a terminal cargo shows how far it is.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let workspace = read()?;
    let mut build = cargo();
    build
        .current_dir(&workspace.root)
        .args(["build", "--workspace", "--bin", name]);
    if !std::io::stderr().is_terminal() {
        build.arg("--quiet");
    }
    process::run(&mut build)?;
    Ok(workspace.target.join("debug").join(name))
}

/// Reads the workspace from `cargo metadata`.
pub(crate) fn read() -> Result<Workspace> {
    // The variable of this run comes first: the path that was compiled in may belong to another work tree that shares
    // the target folder.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = Path::new(&here).join("../../Cargo.toml");
    let text = process::output(
        cargo()
            .args([
                "metadata",
                "--no-deps",
                "--format-version=1",
                "--manifest-path",
            ])
            .arg(&manifest),
    )?;
    let metadata: Value =
        serde_json::from_str(&text).context("failed to read the output of `cargo metadata`")?;
    let folder = |key: &str| {
        metadata[key]
            .as_str()
            .map(PathBuf::from)
            .with_context(|| format!("`cargo metadata` names no `{key}`"))
    };
    let root = folder("workspace_root")?;
    Ok(Workspace {
        target: folder("target_directory")?,
        guests: guests_of(&metadata, &root),
        root,
    })
}

/// The packages under `guest/` and `tests/fixtures/` with a target of crate type `cdylib`.
fn guests_of(metadata: &Value, root: &Path) -> Vec<Guest> {
    let packages = metadata["packages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let mut guests: Vec<Guest> = packages
        .iter()
        .filter_map(|package| guest_of(package, root))
        .collect();
    guests.sort_by(|a, b| (a.fixture, &a.package).cmp(&(b.fixture, &b.package)));
    guests
}

fn guest_of(package: &Value, root: &Path) -> Option<Guest> {
    let name = package["name"].as_str()?;
    let manifest = Path::new(package["manifest_path"].as_str()?)
        .strip_prefix(root)
        .ok()?;
    let fixture = manifest.starts_with("tests/fixtures");
    let cdylib = package["targets"].as_array()?.iter().any(|target| {
        target["crate_types"]
            .as_array()
            .is_some_and(|types| types.iter().any(|kind| kind == "cdylib"))
    });
    (cdylib && (fixture || manifest.starts_with("guest"))).then(|| Guest {
        package: name.to_owned(),
        fixture,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, folder: &str, kind: &str) -> Value {
        json!({"name": name, "manifest_path": format!("/w/{folder}/Cargo.toml"), "targets": [{"crate_types": [kind]}]})
    }

    #[test]
    fn guests_are_cdylibs_under_their_folders_fixtures_last() {
        let metadata = json!({"packages": [
            package("loops", "tests/fixtures/loops", "cdylib"),
            package("transom-taints", "guest/taints", "cdylib"),
            package("transom-guest", "guest/sdk", "lib"),
            package("other", "host/other", "cdylib"),
            package("bad", "elsewhere", "cdylib"),
        ]});
        let found = guests_of(&metadata, Path::new("/w"));
        let names: Vec<(&str, bool)> = found
            .iter()
            .map(|guest| (guest.name(), guest.fixture))
            .collect();
        assert_eq!(names, [("taints", false), ("loops", true)]);
    }
}
