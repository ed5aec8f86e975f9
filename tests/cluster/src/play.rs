//! Starts a cluster with all CRDs and a fleet, and explains how to use it. Runs until stopped.

use crate::show;
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use transom_support::fleet::Fleet;
use transom_test_cluster::{Cluster, Options};

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
        return show::show(&cluster, transom).await;
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
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
