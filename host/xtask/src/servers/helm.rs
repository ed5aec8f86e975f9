//! helm, built from `tests/servers/helm`: a module of its own, because its Kubernetes libraries are newer than those of
//! the servers. No binary is downloaded.

use super::{go, is_current, keep};
use crate::{process, progress};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;

/// The file that holds what it was built from, word for word.
const KEY: &str = "helm.key";
/// What the build depends on, in the folder of the recipe.
const RECIPE: [&str; 2] = ["go.mod", "go.sum"];
const PACKAGE: &str = "helm.sh/helm/v3/cmd/helm";

/// Builds it if it is missing or old.
pub(super) fn prepare(recipe: &Path, folder: &Path) -> Result<()> {
    let text = read(recipe)?;
    let (key, path) = (text.concat(), folder.join("helm"));
    if is_current(folder, KEY, &key) && path.is_file() {
        return Ok(());
    }
    progress::say("    building helm from its Go module; this takes about three minutes, once");
    let flags = flags(&text[0])
        .context("go.mod of tests/servers/helm requires no helm.sh/helm/v3 and k8s.io/client-go")?;
    let fresh = path.with_extension("new");
    let mut go = go::command(recipe)?;
    go.args([
        "build",
        "-mod=readonly",
        "-buildvcs=false",
        "-trimpath",
        "-ldflags",
        &flags,
        "-o",
    ]);
    process::run(go.arg(&fresh).arg(PACKAGE)).context("failed to build helm")?;
    fs::rename(&fresh, &path).with_context(|| format!("failed to write `{}`", path.display()))?;
    keep(folder, KEY, &key)
}

fn read(recipe: &Path) -> Result<Vec<String>> {
    let read = |name| {
        let path = recipe.join(name);
        fs::read_to_string(&path).with_context(|| format!("failed to read `{}`", path.display()))
    };
    RECIPE.into_iter().map(read).collect()
}

/// The version flags; without them helm calls itself unknown, and renders for Kubernetes 1.20.
fn flags(module: &str) -> Option<String> {
    let version = required(module, "helm.sh/helm/v3")?;
    let minor = required(module, "k8s.io/client-go")?
        .strip_prefix("v0.")?
        .split('.')
        .next()?;
    let at = "helm.sh/helm/v3";
    let kubernetes = ["chartutil", "lint/rules"].map(|package| {
        format!(
            "-X {at}/pkg/{package}.k8sVersionMajor=1 -X {at}/pkg/{package}.k8sVersionMinor={minor}"
        )
    });
    Some(format!(
        "-s -w -X {at}/internal/version.version={version} {}",
        kubernetes.join(" ")
    ))
}

/// The version of a module that a `go.mod` requires, such as `v3.22.0`.
fn required<'a>(module: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = module
        .lines()
        .filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' '));
    lines.next()?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_recipe_names_the_versions() {
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers/helm");
        let text = read(&recipe).unwrap();
        let flags = flags(&text[0]).unwrap();
        assert!(flags.contains("/internal/version.version=v3."), "{flags}");
        assert!(
            flags.contains("/pkg/chartutil.k8sVersionMajor=1"),
            "{flags}"
        );
    }
}
