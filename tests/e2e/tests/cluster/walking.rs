//! The shortest end-to-end path: a HostedCluster becomes a secret that clients read, an unavailable cluster is tainted,
//! a second start writes nothing, and every request was one that the agent may make.

use crate::objects::CLUSTERS;
use crate::stage::{DEADLINE, MANAGED, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fs;
use transom_support::fleet::{self, Fleet};
use transom_test_cluster::wait;

/// Hosted clusters and managed clusters of the fleet: the fourth hosted one is not available, the sixth has no
/// namespace.
const FLEET: Fleet = Fleet {
    clusters: 6,
    managed: 12,
    seed: 7,
};

/// The kubeconfig that the agent made, as the real kubectl reads it.
async fn read_by_kubectl(stage: &Stage, namespace: &str) -> Result<Value> {
    let secret = stage
        .get(SECRET, Some(namespace), "external-managed-kubeconfig")
        .await?
        .context("no secret")?;
    let encoded = secret["data"]["kubeconfig"]
        .as_str()
        .context("no kubeconfig")?;
    let path = stage.cluster.folder().join("made.kubeconfig");
    fs::write(&path, STANDARD.decode(encoded)?)?;
    let mut kubectl = stage.cluster.kubectl(stage.cluster.admin())?;
    let output = kubectl
        .arg("config")
        .arg("view")
        .arg("--raw")
        .args(["-o", "json"])
        .arg("--kubeconfig")
        .arg(&path)
        .output()?;
    ensure!(
        output.status.success(),
        "kubectl refuses what the agent made"
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The taints of every ManagedCluster.
async fn taints(stage: &Stage) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for index in 0..FLEET.managed {
        let name = if index < FLEET.clusters {
            fleet::managed_name(index)
        } else {
            format!("edge-{index:05}")
        };
        if let Some(object) = stage.get(MANAGED, None, &name).await? {
            all.push(object["spec"]["taints"].clone());
        }
    }
    Ok(all)
}

#[test]
fn a_fleet_converges_and_stays_so_within_the_agents_permissions() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_fleet(FLEET).await?;
        let before = taints(stage).await?;
        let start = stage.mark()?;
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        agent.wait_for(
            &format!("HostedCluster {CLUSTERS}/{}", fleet::hosted_name(3)),
            "Held NotAvailable",
        )?;
        agent.wait_for(
            &format!("HostedCluster {CLUSTERS}/{}", fleet::hosted_name(5)),
            "Waiting NamespaceMissing",
        )?;
        agent.stop()?;
        let first = stage.writes(start).await?;
        ensure!(
            first
                .iter()
                .filter(|write| write.contains(" secrets klusterlet-"))
                .count()
                == 4,
            "{first:#?}"
        );
        for index in [0, 1, 2, 4] {
            reads_the_same(stage, index).await?;
        }
        others_stay(&before, &taints(stage).await?)?;
        // A second start finds everything correct.
        let again = stage.mark()?;
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        let log = agent.stop()?;
        let second = stage.writes(again).await?;
        ensure!(
            second.is_empty(),
            "the second start wrote {second:#?}\n{log}"
        );
        within_rights(stage, start).await
    })
}

/// client-go reads the source with another server.
async fn reads_the_same(stage: &Stage, index: usize) -> Result<()> {
    let (name, home) = (
        fleet::hosted_name(index),
        format!("klusterlet-{}", fleet::managed_name(index)),
    );
    let made = read_by_kubectl(stage, &home).await?;
    let source = stage
        .secret(CLUSTERS, &format!("{name}-admin-kubeconfig"))
        .await?
        .context("no source")?;
    let written = stage
        .secret(&home, "external-managed-kubeconfig")
        .await?
        .context("nothing was made")?;
    ensure!(
        written.carries(&source),
        "{name}: more than the server differs"
    );
    let server = made["clusters"][0]["cluster"]["server"]
        .as_str()
        .unwrap_or_default();
    ensure!(
        server.starts_with(&format!(
            "https://kube-apiserver.{CLUSTERS}-{name}.svc.cluster.local:"
        )),
        "{server}"
    );
    ensure!(
        made["current-context"] == "admin"
            && made["users"][0]["user"]["client-key-data"].is_string(),
        "{name}"
    );
    Ok(())
}

/// The user's taints are unchanged to the letter, and the agent's are present.
fn others_stay(before: &[Value], after: &[Value]) -> Result<()> {
    ensure!(
        before.len() == FLEET.managed,
        "{} ManagedClusters",
        before.len()
    );
    let ours = |taint: &&Value| {
        taint["key"]
            .as_str()
            .is_some_and(|key| key.starts_with("cluster.open-cluster-management.io/un"))
    };
    let theirs = |all: &Value| -> Vec<Value> {
        all.as_array()
            .into_iter()
            .flatten()
            .filter(|taint| !ours(taint))
            .cloned()
            .collect()
    };
    for (before, after) in before.iter().zip(after) {
        ensure!(
            theirs(before) == theirs(after),
            "a taint of the user changed"
        );
    }
    ensure!(
        after
            .iter()
            .flat_map(|all| all.as_array().into_iter().flatten())
            .any(|taint| ours(&taint)),
        "no taint of ours"
    );
    Ok(())
}

/// No request of the agent was denied.
async fn within_rights(stage: &Stage, since: transom_test_cluster::Mark) -> Result<()> {
    let lines = stage.lines(since).await?;
    let denied: Vec<_> = lines
        .iter()
        .filter(|line| line.code == 403 || line.denied)
        .collect();
    ensure!(denied.is_empty(), "denied: {denied:#?}");
    Ok(())
}

#[test]
fn patches_and_removes_own_taints_beside_those_of_others() -> Result<()> {
    on_stage(async |stage| {
        stage
            .cluster
            .install_fleet(Fleet {
                clusters: 0,
                managed: 8,
                seed: 7,
            })
            .await?;
        let name = "edge-00007";
        let agent = stage.start_agent(&[])?;
        let keys = async || -> Result<Vec<String>> {
            let object = stage
                .get(MANAGED, None, name)
                .await?
                .context("no ManagedCluster")?;
            let taints = object["spec"]["taints"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            Ok(taints
                .iter()
                .filter_map(|taint| Some(taint["key"].as_str()?.to_owned()))
                .collect())
        };
        let wait_for = async |what: &str, want: &[&str]| {
            wait::until(what, DEADLINE, async || {
                Ok((keys().await? == want).then_some(()))
            })
            .await
        };
        let (users, ours) = (
            "maintenance.example.com/window",
            "cluster.open-cluster-management.io/unavailable",
        );
        wait_for("our taint behind the user's", &[users, ours]).await?;
        stage.set_available(name, "True").await?;
        wait_for("the user's taint alone", &[users]).await?;
        stage.set_available(name, "Unknown").await?;
        wait_for(
            "the other taint of ours",
            &[users, "cluster.open-cluster-management.io/unreachable"],
        )
        .await?;
        agent.wait_for(&format!("ManagedCluster {name}"), "Applied InSync")?;
        agent.stop()?;
        Ok(())
    })
}
