//! Starts a cluster with all CRDs and a fleet, and explains how to use it. Runs until stopped.

use anyhow::{Context as _, Result, bail};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use transom_support::fleet::Fleet;
use transom_test_cluster::{Cluster, Options, User};

/// A real API server with the CRDs and an example fleet, until Ctrl-C.
#[derive(clap::Parser)]
pub(crate) struct Args {
    /// HostedClusters, each with secret, Service and namespaces
    #[arg(long, default_value_t = 8)]
    hosted: usize,
    /// ManagedClusters; the first belong to the HostedClusters
    #[arg(long, default_value_t = 10)]
    managed: usize,
    /// A program `transom` that runs on the fleet as a demonstration; then the cluster ends
    #[arg(long)]
    show: Option<PathBuf>,
}

/// Runs until stopped.
pub(crate) async fn run(args: Args) -> Result<()> {
    tokio::select! {
        ended = play(&args) => ended,
        asked = tokio::signal::ctrl_c() => asked.context("failed to wait for Ctrl-C"),
    }
}

async fn play(args: &Args) -> Result<()> {
    say("==> starting etcd and kube-apiserver");
    let cluster = Cluster::start(&Options::default()).await?;
    say("==> installing the CRDs");
    cluster.install_all_crds().await?;
    cluster.install_policy_crd().await?;
    say("==> creating the fleet");
    let fleet = Fleet {
        clusters: args.hosted,
        managed: args.managed,
        seed: 1,
    };
    let installed = cluster.install_fleet(fleet).await?;
    if let Some(transom) = &args.show {
        return show(&cluster, transom).await;
    }
    let kubeconfig = cluster.write_kubeconfig(cluster.admin())?;
    let kubectl = cluster
        .kubectl(cluster.admin())?
        .get_program()
        .display()
        .to_string();
    say(&format!(
        "    {} objects: {} HostedClusters, {} ManagedClusters",
        installed.objects, args.hosted, args.managed
    ));
    say(&format!(
        "==> ready at {}; Ctrl-C ends it and removes all of it",
        cluster.server()
    ));
    say(&format!("    export KUBECONFIG={}", kubeconfig.display()));
    say(&format!(
        "    {kubectl} get hostedclusters,managedclusters -A"
    ));
    say(&format!(
        "    audit log: {}",
        cluster.folder().join("audit.log").display()
    ));
    std::future::pending().await
}

#[expect(clippy::print_stderr, reason = "what the program is for")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// The namespace of the agent.
const NAMESPACE: &str = "transom";

/// Runs a program `transom` on the fleet twice.
async fn show(cluster: &Cluster, transom: &Path) -> Result<()> {
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
