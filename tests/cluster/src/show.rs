//! The main task on a real API server, shown step by step: the agent with least privilege, and what kubectl shows
//! afterwards. Shows no content of a Secret.

use crate::play::say;
use anyhow::{Context as _, Result, bail};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use transom_test_cluster::{Cluster, User};

/// The namespace of the agent.
const NAMESPACE: &str = "transom";

/// Runs a program `transom` on the fleet twice.
pub(crate) async fn show(cluster: &Cluster, transom: &Path) -> Result<()> {
    say("==> the agent gets the rights that `transom rbac` prints, and no others");
    let agent = cluster.service_account(NAMESPACE, "transom").await?;
    let rights = Command::new(transom)
        .arg("rbac")
        .output()
        .context("failed to run `transom rbac`")?;
    apply(cluster, &rights.stdout)?;
    say(
        "==> transom run --once: every HostedCluster gets its secret, every ManagedCluster its taints",
    );
    let kubeconfig = cluster.write_kubeconfig(&agent)?;
    once(transom, &kubeconfig)?;
    let kubectl = |words: &[&str]| done(cluster.kubectl(cluster.admin())?.args(words));
    kubectl(&[
        "get",
        "secrets",
        "-A",
        "--field-selector",
        "metadata.name=external-managed-kubeconfig",
    ])?;
    kubectl(&[
        "get",
        "managedclusters",
        "-o",
        "custom-columns=NAME:.metadata.name,TAINTS:.spec.taints[*].key",
    ])?;
    say("==> second run: everything is in sync, nothing is written");
    let before = writes(cluster, &agent)?;
    once(transom, &kubeconfig)?;
    say(&format!(
        "    writes of the first run: {before}; of the second: {}",
        writes(cluster, &agent)? - before
    ));
    Ok(())
}

fn once(transom: &Path, kubeconfig: &Path) -> Result<()> {
    done(
        Command::new(transom)
            .args(["run", "--once", "--kubeconfig"])
            .arg(kubeconfig),
    )
}

/// Applies manifests with kubectl.
fn apply(cluster: &Cluster, manifests: &[u8]) -> Result<()> {
    let mut kubectl = cluster.kubectl(cluster.admin())?;
    let mut child = kubectl
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    child
        .stdin
        .take()
        .context("kubectl takes no input")?
        .write_all(manifests)?;
    let status = child.wait()?;
    if status.success() {
        Ok(())
    } else {
        bail!("kubectl apply ended with {status}")
    }
}

fn done(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("failed to run {command:?}"))?;
    if status.success() {
        Ok(())
    } else {
        bail!("{command:?} ended with {status}")
    }
}

/// Writes of the agent so far, as the API server logged them.
fn writes(cluster: &Cluster, agent: &User) -> Result<usize> {
    let lines = cluster.audit().lines()?;
    let wrote = |verb: &str| matches!(verb, "create" | "update" | "patch" | "delete");
    Ok(lines
        .iter()
        .filter(|line| line.user == agent.name() && line.code < 300 && wrote(&line.verb))
        .count())
}
