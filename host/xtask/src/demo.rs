//! `cargo xtask demo`: the main job on a folder of manifests, from nothing to a swapped component. Everything lies in
//! `target/demo`.

mod stage;

use crate::{files, progress, start};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use stage::{Stage, reacts};
use std::fs;
use transom_support::fleet;

/// The index of the HostedCluster, and of the ManagedCluster, that is edited.
const EDITED: usize = 0;

/// Where the main job is shown.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run on a real kube-apiserver instead of a folder
    #[arg(long)]
    cluster: bool,
}

/// Runs the demo, one chapter after the other.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.cluster {
        return start::demo();
    }
    let stage = Stage::set()?;
    preview(&stage)?;
    once(&stage)?;
    progress::step(
        "the agent keeps running; each change below requeues only the primaries that it affects",
    );
    let agent = stage::start(&stage)?;
    edit_service(&stage)?;
    lose_cluster(&stage)?;
    swap_component(&stage)?;
    agent.stop()?;
    closing(&stage);
    Ok(())
}

/// Shows what would be written for one cluster, with credentials redacted.
fn preview(stage: &Stage) -> Result<()> {
    progress::step(
        "the pending writes for one HostedCluster (nothing is written, credentials are redacted)",
    );
    let manifest = stage.hosted(EDITED);
    stage.transom(
        &[
            "render",
            &stage.shown(&manifest),
            "--policies",
            &stage.shown(&stage.policies),
        ],
        &[0, 3],
    )
}

/// Reconciles everything once; then again, to show that nothing is written where nothing differs.
fn once(stage: &Stage) -> Result<()> {
    progress::step("the whole fleet, one run");
    let (fleet, policies) = (stage.shown(&stage.fleet), stage.shown(&stage.policies));
    let words = ["run", "--dir", &fleet, "--policies", &policies, "--once"];
    stage.transom(&words, &[0])?;
    progress::say(&format!(
        "    written: {}",
        stage.shown(&stage.secret(EDITED))
    ));
    progress::say(&format!(
        "    written: {}",
        stage.shown(&stage.patch(&managed_in_trouble()))
    ));
    progress::step("second run: everything is in sync, nothing is written");
    stage.transom(&words, &[0])
}

/// The first ManagedCluster of the fleet that is not available.
fn managed_in_trouble() -> String {
    fleet::managed_name(7)
}

/// The Service of a hosted control plane gets another port; the secret follows.
fn edit_service(stage: &Stage) -> Result<()> {
    let before = server(stage)?;
    progress::step("the port of one kube-apiserver Service is edited");
    stage.edit(
        &stage.hosted(EDITED),
        "port: 6443\n    protocol",
        "port: 7443\n    protocol",
    )?;
    let after = reacts("the new port in the secret", || {
        server(stage).ok().filter(|now| *now != before)
    })?;
    progress::say(&format!(
        "    server in the secret: {before}\n                     now: {after}"
    ));
    Ok(())
}

/// The server in the kubeconfig that the agent made.
fn server(stage: &Stage) -> Result<String> {
    server_in(&files::text(&stage.secret(EDITED))?)
}

/// The server in the kubeconfig of a secret's manifest. Nothing else of it gets into a result or an error.
fn server_in(manifest: &str) -> Result<String> {
    let encoded =
        value(manifest, "kubeconfig:").context("the secret has no kubeconfig on one line")?;
    // The text of a decoding error could quote the credential.
    let bytes = STANDARD
        .decode(encoded)
        .ok()
        .context("the kubeconfig of the secret is not base64")?;
    value(&String::from_utf8_lossy(&bytes), "server:")
        .context("the kubeconfig of the secret names no server")
}

/// The value behind a key on its line.
fn value(text: &str, key: &str) -> Option<String> {
    let line = text
        .lines()
        .find_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key))?;
    Some(line.trim().trim_matches(['"', '\'']).to_owned())
}

/// A ManagedCluster stops reporting; it gets its taint.
fn lose_cluster(stage: &Stage) -> Result<()> {
    progress::step("one ManagedCluster stops renewing its lease");
    let name = fleet::managed_name(EDITED);
    stage.edit(
        &stage.managed(&name),
        "reason: ManagedClusterAvailable\n    status: \"True\"",
        "reason: ManagedClusterLeaseUpdateStopped\n    status: \"Unknown\"",
    )?;
    let patch = stage.patch(&name);
    let text = reacts("the taint", || {
        fs::read_to_string(&patch)
            .ok()
            .filter(|text| text.contains("unreachable"))
    })?;
    progress::say(&format!(
        "    {}:\n{}",
        stage.shown(&patch),
        indented(&text)
    ));
    Ok(())
}

/// The component of the taints policy is replaced by one that wants no taint.
fn swap_component(stage: &Stage) -> Result<()> {
    progress::step("the component that computes taints is replaced by one that sets no taints");
    let patch = stage.patch(&fleet::managed_name(EDITED));
    stage.swap()?;
    reacts("the end of the taint", || {
        let tainted = fs::read_to_string(&patch).is_ok_and(|text| text.contains("unreachable"));
        (!tainted).then_some(())
    })?;
    progress::say(
        "    the new component was loaded next to the old one and then swapped in: the taint is removed",
    );
    Ok(())
}

fn closing(stage: &Stage) {
    progress::step("done; you can edit the fleet and run these commands");
    let (program, fleet, policies) = (
        stage.shown(&stage.program),
        stage.shown(&stage.fleet),
        stage.shown(&stage.policies),
    );
    progress::say(&format!(
        "    {program} run --dir {fleet} --policies {policies}"
    ));
    progress::say(&format!(
        "    {program} render {fleet} --policies {policies} --diff"
    ));
    progress::say(&format!(
        "    ls {fleet}/.transom    # objects, patches, status"
    ));
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("      {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_only_the_server_of_a_secret() {
        let kubeconfig =
            STANDARD.encode("clusters:\n- cluster:\n    server: 'https://a:1'\nusers: canary\n");
        let manifest = format!("kind: Secret\ndata:\n  kubeconfig: \"{kubeconfig}\"\n");
        assert_eq!(server_in(&manifest).unwrap(), "https://a:1");
        let error = server_in("data:\n  kubeconfig: canary!\n").unwrap_err();
        assert!(!format!("{error:?}").contains("canary"));
    }
}
