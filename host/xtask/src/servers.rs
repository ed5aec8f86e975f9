//! `cargo xtask servers`: the real kube-apiserver, kube-controller-manager, etcd, kubectl, helm, Prometheus, Chromium,
//! registration controller, agent and operator of OCM, OCI registries with oras and cosign, CRDs and libfaketime for
//! the tests. Builds only what is not up to date, in the versions that `tests/servers` names.

mod go;
mod packages;

use crate::workspace::{self, Workspace};
use crate::{files, progress};
use anyhow::{Context as _, Result};
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Names the folder where tests look for them. Set beforehand, it is also where they are kept, so that several work
/// trees can share them.
pub(crate) const VARIABLE: &str = "TRANSOM_SERVERS";

/// Prepares them, and prints how tests find them without `cargo xtask test`.
pub(crate) fn run() -> Result<()> {
    let folder = prepare()?;
    progress::say(&format!(
        "    ready; for `cargo test` alone: export {VARIABLE}={}",
        folder.display()
    ));
    Ok(())
}

/// The folder that holds them; makes and fills it as needed.
pub(crate) fn prepare() -> Result<PathBuf> {
    let workspace = workspace::read()?;
    let folder = folder(&workspace)?;
    files::create_folder(&folder)?;
    let _alone = lock(&folder)?;
    go::prepare(&workspace.root.join("tests/servers"), &folder)?;
    packages::prepare(&folder)?;
    Ok(folder)
}

/// The folder's absolute path, because tests run in folders of their own.
fn folder(workspace: &Workspace) -> Result<PathBuf> {
    let folder =
        env::var_os(VARIABLE).map_or_else(|| workspace.target.join("servers"), PathBuf::from);
    std::path::absolute(&folder).with_context(|| format!("failed to find `{}`", folder.display()))
}

/// Waits until no other work tree fills the folder. The lock ends when the file is dropped.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let about = || format!("failed to lock `{}`", path.display());
    let file = File::create(&path).with_context(about)?;
    file.lock().with_context(about)?;
    Ok(file)
}

/// Whether what lies in the folder was made from this recipe.
fn is_current(folder: &Path, name: &str, key: &str) -> bool {
    fs::read_to_string(folder.join(name)).is_ok_and(|kept| kept == key)
}

/// Records what the things in the folder were made from.
fn keep(folder: &Path, name: &str, key: &str) -> Result<()> {
    files::write(&folder.join(name), key).map(drop)
}
