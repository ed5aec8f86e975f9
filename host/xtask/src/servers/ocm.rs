//! The registration controller of Open Cluster Management, built from `tests/servers/ocm`: a module of its own, because
//! it brings its own Kubernetes libraries. No binary is downloaded.

use super::{go, is_current, keep};
use crate::{process, progress};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;

/// The file that holds what it was built from, word for word.
const KEY: &str = "ocm.key";
/// What the build depends on, in the folder of the recipe.
const RECIPE: [&str; 2] = ["go.mod", "go.sum"];
/// The name of the binary, and its package.
const PROGRAM: (&str, &str) = (
    "registration",
    "open-cluster-management.io/ocm/cmd/registration",
);

/// Builds it if it is missing or old.
pub(super) fn prepare(recipe: &Path, folder: &Path) -> Result<()> {
    let (name, package) = PROGRAM;
    let (key, path) = (read(recipe)?, folder.join(name));
    if is_current(folder, KEY, &key) && path.is_file() {
        return Ok(());
    }
    progress::say(&format!(
        "    building {name} from its Go module; this takes about four minutes, once"
    ));
    let fresh = path.with_extension("new");
    let mut go = go::command(recipe)?;
    go.args([
        "build",
        "-mod=readonly",
        "-buildvcs=false",
        "-trimpath",
        "-ldflags",
        "-s -w",
        "-o",
    ]);
    process::run(go.arg(&fresh).arg(package)).with_context(|| format!("failed to build {name}"))?;
    fs::rename(&fresh, &path).with_context(|| format!("failed to write `{}`", path.display()))?;
    keep(folder, KEY, &key)
}

fn read(recipe: &Path) -> Result<String> {
    let read = |name| {
        let path = recipe.join(name);
        fs::read_to_string(&path).with_context(|| format!("failed to read `{}`", path.display()))
    };
    RECIPE.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_recipe_builds_that_program() {
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/ocm");
        let text = read(&recipe).unwrap();
        assert!(
            text.contains(&format!("\ntool {}\n", PROGRAM.1)),
            "go.mod names another tool"
        );
    }
}
