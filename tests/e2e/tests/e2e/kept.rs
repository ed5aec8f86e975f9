//! What is kept on disk of components and compiled code counts only while nobody else could have written it.

use crate::registries::Reach;
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use transom_e2e::program;
use transom_e2e::stage::Stage;
use transom_e2e::swap::POLICY;
use transom_e2e::tree;

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// The kept bytes of components.
fn kept(stage: &Stage) -> Result<Vec<PathBuf>> {
    let mut all = tree::files(&stage.path("cache"))?;
    all.retain(|path| path.extension().is_some_and(|end| end == "wasm"));
    ensure!(!all.is_empty(), "nothing is kept");
    Ok(all)
}

/// What another user may do to the kept files.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// A file that others may write.
    File,
    /// Its folder.
    Folder,
    /// A link to a file elsewhere.
    Link,
}

#[test]
fn what_others_could_have_written_is_never_loaded_and_is_read_again_from_its_place() -> Result<()> {
    let (registry, stage, reach) = Reach::private(1)?;
    registry.push("team/kubeconfig:v1", &program::component("kubeconfig")?)?;
    let component = format!("oci:{}:v1", registry.place("team/kubeconfig"));
    stage.put_policy(POLICY, &[("builtin:kubeconfig", &component)])?;
    let start = |log: &str| reach.start(&stage, &registry, log);
    let agent = start("log")?;
    let status = stage.policy_status(POLICY);
    stage.wait_for_secret(0, "the secret", |_| true)?;
    stage.wait_for_text(&status, "reason: Loaded")?;
    agent.stop()?;
    registry.stop()?;

    // Each damage alone, without the registry: refused with a reason, and nothing that was written is touched.
    let written = fs::read(stage.secret(0))?;
    let file = kept(&stage)?
        .into_iter()
        .next()
        .context("nothing is kept")?;
    let folder = file.parent().context("it lies in no folder")?;
    let aside = stage.path("aside.wasm");
    for damage in [Damage::File, Damage::Folder, Damage::Link] {
        match damage {
            Damage::File => set_mode(&file, 0o666).context("no file")?,
            Damage::Folder => set_mode(folder, 0o777)?,
            Damage::Link => {
                fs::rename(&file, &aside)?;
                symlink(&aside, &file)?;
            }
        }
        fs::remove_file(&status).with_context(|| format!("{damage:?}: no status"))?;
        let agent = start(&format!("{damage:?}"))?;
        let refused = stage.wait_for_text(&status, "reason: RegistryUnavailable");
        refused.with_context(|| format!("{damage:?}"))?;
        let told = fs::read_to_string(&status)?;
        ensure!(
            !told.contains("revision:"),
            "{damage:?}: it was loaded: {told}"
        );
        agent.stop()?;
        ensure!(
            fs::read(stage.secret(0))? == written,
            "{damage:?}: it was written"
        );
        match damage {
            Damage::File => set_mode(&file, 0o600)?,
            Damage::Folder => set_mode(folder, 0o700)?,
            Damage::Link => fs::rename(&aside, &file).context("the link is gone")?,
        }
    }
    let agent = start("mended")?;
    stage.follows_port(0, 7443)?;
    agent.stop()?;

    // With the registry: everything is pulled and compiled again, and is private again.
    let all = tree::files(&stage.path("cache"))?;
    for path in &all {
        set_mode(path, 0o666)?;
    }
    registry.start_again()?;
    let agent = start("log-2")?;
    stage.wait_for_text(&status, "reason: Loaded")?;
    stage.follows_port(0, 8443)?;
    agent.stop()?;
    for path in kept(&stage)? {
        let mode = fs::metadata(&path)?.permissions().mode();
        ensure!(mode & 0o077 == 0, "{} has mode {mode:o}", path.display());
    }
    Ok(())
}
