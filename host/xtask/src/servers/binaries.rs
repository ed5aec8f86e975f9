//! kube-apiserver, kubectl and etcd: those of `KUBEBUILDER_ASSETS` if it is set, else built from `tests/servers`. No
//! binary is downloaded.

use super::{go, is_current, keep};
use crate::{process, progress};
use anyhow::{Context as _, Result, ensure};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that holds what the binaries were built from, word for word.
const KEY: &str = "binaries.key";
/// Name, package, and how long a build takes on two cores.
const SERVERS: [(&str, &str, &str); 3] = [
    ("etcd", "./etcd", "half a minute"),
    (
        "kube-apiserver",
        "k8s.io/kubernetes/cmd/kube-apiserver",
        "four minutes",
    ),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl", "a minute"),
];
/// What the build depends on, in the folder of the recipe.
const RECIPE: [&str; 3] = ["go.mod", "go.sum", "etcd/main.go"];

/// Finds or builds all three.
pub(super) fn prepare(recipe: &Path, folder: &Path) -> Result<()> {
    if let Some(assets) = env::var_os("KUBEBUILDER_ASSETS") {
        return check_assets(&PathBuf::from(assets));
    }
    let text = read(recipe)?;
    let key = text.concat();
    if is_current(folder, KEY, &key) && SERVERS.iter().all(|(name, ..)| folder.join(name).is_file())
    {
        return Ok(());
    }
    let version =
        version(&text[0]).context("go.mod of tests/servers requires no k8s.io/kubernetes")?;
    for (name, package, duration) in SERVERS {
        let mut go = go::command(recipe)?;
        progress::say(&format!(
            "    building {name} from its Go module; this takes about {duration}, once"
        ));
        build(&mut go, package, version, &folder.join(name))
            .with_context(|| format!("failed to build {name}"))?;
    }
    keep(folder, KEY, &key)
}

fn check_assets(assets: &Path) -> Result<()> {
    for (name, ..) in SERVERS {
        ensure!(
            assets.join(name).is_file(),
            "KUBEBUILDER_ASSETS is `{}`, which does not contain `{name}`; add it, or unset the variable to build all",
            assets.display()
        );
    }
    progress::say(&format!(
        "    servers of KUBEBUILDER_ASSETS: {}",
        assets.display()
    ));
    Ok(())
}

fn read(recipe: &Path) -> Result<Vec<String>> {
    let read = |name| {
        let path = recipe.join(name);
        fs::read_to_string(&path).with_context(|| format!("failed to read `{}`", path.display()))
    };
    RECIPE.into_iter().map(read).collect()
}

/// The version of Kubernetes that a `go.mod` requires, such as `v1.34.4`.
fn version(module: &str) -> Option<&str> {
    let mut lines = module
        .lines()
        .filter_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    lines.next()?.split_whitespace().next()
}

/// Builds a new file and renames it: a running server keeps the old one.
fn build(go: &mut Command, package: &str, version: &str, path: &Path) -> Result<()> {
    let fresh = path.with_extension("new");
    go.args([
        "build",
        "-mod=readonly",
        "-buildvcs=false",
        "-trimpath",
        "-ldflags",
        &flags(version),
        "-o",
    ]);
    process::run(go.arg(&fresh).arg(package))?;
    fs::rename(&fresh, path).with_context(|| format!("failed to write `{}`", path.display()))
}

/// The version flags; without them the server calls itself v0.0.0-master.
fn flags(version: &str) -> String {
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let at = "k8s.io/component-base/version";
    format!("-s -w -X {at}.gitVersion={version} -X {at}.gitMajor={major} -X {at}.gitMinor={minor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_reports_the_required_version() {
        let module = "require (\n\tgo.etcd.io/etcd/server/v3 v3.6.5\n\tk8s.io/kubernetes v1.34.4 // indirect\n)\n";
        assert_eq!(version(module), Some("v1.34.4"));
        assert!(flags("v1.34.4").ends_with(
            ".gitVersion=v1.34.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
        ));
    }

    #[test]
    fn the_committed_recipe_is_complete() {
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers");
        let text = read(&recipe).unwrap();
        assert!(version(&text[0]).is_some_and(|version| version.starts_with("v1.")));
    }

    #[test]
    fn names_what_is_missing_in_incomplete_assets() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd"), "").unwrap();
        let error = check_assets(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("does not contain `kube-apiserver`"),
            "{error}"
        );
    }
}
