//! The paths of the servers and the CRDs. `cargo xtask servers` builds them.

use anyhow::{Context as _, Result, ensure};
use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The folder that `cargo xtask servers` prepared.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = env::var_os("TRANSOM_SERVERS").map(PathBuf::from);
    folder.context("TRANSOM_SERVERS is not set; run `cargo xtask servers`, it prints what to set")
}

/// The binary of a server: from `KUBEBUILDER_ASSETS` if set, else from the folder.
pub(crate) fn binary(name: &str) -> Result<PathBuf> {
    let (variable, folder) = match env::var_os("KUBEBUILDER_ASSETS") {
        Some(assets) => ("KUBEBUILDER_ASSETS", PathBuf::from(assets)),
        None => ("TRANSOM_SERVERS", folder()?),
    };
    let path = folder.join(name);
    ensure!(
        path.is_file(),
        "`{}` of {variable} holds no `{name}`; run `cargo xtask servers`",
        folder.display()
    );
    Ok(path)
}

/// The real kubectl, without a default cluster.
pub fn kubectl() -> Result<Command> {
    Ok(Command::new(binary("kubectl")?))
}

/// The real helm, without a default cluster.
pub fn helm() -> Result<Command> {
    Ok(Command::new(beside("helm")?))
}

/// The real registration controller of Open Cluster Management, without a default cluster.
pub fn registration() -> Result<Command> {
    Ok(Command::new(beside("registration")?))
}

/// The real operators of Open Cluster Management, of hubs and of klusterlets, without a default cluster.
pub fn registration_operator() -> Result<Command> {
    Ok(Command::new(beside("registration-operator")?))
}

/// The real controller manager of Kubernetes, without a default cluster.
pub fn controller_manager() -> Result<Command> {
    Ok(Command::new(beside("kube-controller-manager")?))
}

/// A file that does not come from `KUBEBUILDER_ASSETS`.
pub(crate) fn beside(name: &str) -> Result<PathBuf> {
    let path = folder()?.join(name);
    ensure!(
        path.is_file(),
        "TRANSOM_SERVERS holds no `{name}`; run `cargo xtask servers`"
    );
    Ok(path)
}
