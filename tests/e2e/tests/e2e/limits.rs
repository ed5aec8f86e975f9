//! Limits on a folder of manifests: HostedClusters that are gone, all at once, and the runs after that; and policies
//! that do what a person decided about each cluster, which ship without limits.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_e2e::tree;
use transom_support::wait;

const POLICY: &str = "external-managed-kubeconfig";
const CLUSTERS: usize = 60;
/// The file of every secret that the policy makes.
const SECRET: &str = "Secret.external-managed-kubeconfig.yaml";

/// Runs once at a time of this hour, which tells how to approve what is withheld; returns the number of secrets that
/// are left.
fn run(stage: &Stage, hour: u8) -> Result<usize> {
    let now = format!("2026-11-21T{hour:02}:00:00Z");
    let output = stage.run()?.args(["--once", "--now", &now]).output()?;
    ensure!(output.status.success(), "{output:?}");
    if let Some(digest) = limits(stage)?["approve"].as_str() {
        let told = String::from_utf8_lossy(&output.stderr);
        let how = format!("put the digest {digest} into the annotation transom.dev/approved in ");
        ensure!(told.contains(&how), "{told}");
    }
    let objects = tree::contents(&stage.own().join("objects"))?;
    let secrets = objects.keys().filter(|path| path.ends_with(SECRET));
    Ok(secrets.count())
}

fn put_policy(stage: &Stage, approved: Option<&Value>) -> Result<()> {
    let mut policy = program::manifest(POLICY)?;
    policy["metadata"]["annotations"] = json!({"transom.dev/approved": approved});
    let path = stage.policies.join("policy.yaml");
    put(&path, policy.to_string().as_bytes())
}

/// The taints of a fleet under a limit of one cluster in ten minutes, and how many clusters bear one at a time.
fn tainted(stage: &Stage, lost: &[usize], minute: u8) -> Result<usize> {
    for index in 0..4 {
        let status = if lost.contains(&index) {
            "Unknown"
        } else {
            "True"
        };
        let condition = json!({"type": "ManagedClusterConditionAvailable", "status": status, "reason": "x",
            "message": "x", "lastTransitionTime": "2026-11-21T07:00:00Z"});
        let cluster = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": format!("c{index}")}, "spec": {"hubAcceptsClient": true},
            "status": {"conditions": [condition]}});
        put(
            &stage.fleet.join(format!("c{index}.yaml")),
            cluster.to_string().as_bytes(),
        )?;
    }
    let now = format!("2026-11-21T08:{minute:02}:00Z");
    let output = stage.run()?.args(["--once", "--now", &now]).output()?;
    ensure!(output.status.code().is_some(), "{output:?}");
    let names = (0..4).map(|index| stage.taints(&format!("c{index}")));
    let taints = names.collect::<Result<Vec<_>>>()?;
    Ok(taints.iter().filter(|taints| !taints.is_empty()).count())
}

#[test]
fn a_single_run_that_withholds_nothing_more_ends_the_interval() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    let mut policy = program::manifest("built-in-taints")?;
    policy["spec"]["limits"] =
        json!({"elementsAdded": {"count": 1}, "elementsRemoved": {"percent": 100}});
    put(
        &stage.policies.join("policy.yaml"),
        policy.to_string().as_bytes(),
    )?;
    ensure!(tainted(&stage, &[0], 0)? == 1);
    ensure!(
        tainted(&stage, &[0, 1], 1)? == 1,
        "the second one is withheld"
    );
    // While it is, the interval goes on.
    ensure!(tainted(&stage, &[0, 1], 20)? == 1);
    ensure!(tainted(&stage, &[0], 21)? == 1);
    ensure!(tainted(&stage, &[0, 2], 40)? == 2, "that is over");
    ensure!(tainted(&stage, &[0, 2, 3], 41)? == 2);
    Ok(())
}

fn limits(stage: &Stage) -> Result<Value> {
    let text = fs::read_to_string(stage.policy_status(POLICY))?;
    let mut status: Value = serde_yaml::from_str(&text)?;
    Ok(status["limits"].take())
}

#[test]
fn a_fleet_that_is_gone_loses_no_more_secrets_than_the_limit_until_the_rest_is_approved()
-> Result<()> {
    let stage = Stage::new(CLUSTERS, 0)?;
    put_policy(&stage, None)?;
    let all = run(&stage, 8)?;
    ensure!(all > 50 && limits(&stage)?.is_null(), "{all} secrets");
    for index in 0..CLUSTERS - 5 {
        fs::remove_file(stage.hosted(index))?;
    }
    let left = run(&stage, 8)?;
    let most = all - left;
    ensure!((1..=6).contains(&most), "{most} of {all}");
    let status = limits(&stage)?;
    ensure!(
        status["withheld"]
            .as_u64()
            .is_some_and(|withheld| withheld > 40),
        "{status}"
    );
    // Neither a start nor another hour lets more pass.
    ensure!(run(&stage, 8)? == left && run(&stage, 11)? == left);
    let status = limits(&stage)?;
    let said = stage
        .transom()?
        .args(["status", "--dir"])
        .arg(&stage.fleet)
        .arg("--policies")
        .arg(&stage.policies)
        .output()?;
    let said = String::from_utf8(said.stdout)?;
    let shown = said
        .lines()
        .filter(|line| line.starts_with("Held") && line.contains("LimitReached"));
    ensure!(status["withheld"] == shown.count(), "{said}");
    ensure!(!said.contains("WouldApply"), "{said}");
    // Only the digest of the status does.
    put_policy(&stage, Some(&json!(format!("sha256:{}", "0".repeat(64)))))?;
    ensure!(run(&stage, 11)? == left);
    put_policy(&stage, Some(&status["approve"]))?;
    ensure!(run(&stage, 11)? <= 5, "what was approved is still there");
    ensure!(limits(&stage)?.is_null());
    Ok(())
}

/// Clusters of whom a person says the same at once: more than the default limits let pass.
const DECIDED: usize = 15;

/// Runs once on these clusters with the policy as it ships; returns the files of what it made.
fn decided(stage: &Stage, accepts: bool) -> Result<Vec<String>> {
    let cluster = |at| {
        let text = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": format!("c{at}"), "uid": format!("uid-{at}")},
            "spec": {"hubAcceptsClient": accepts}});
        text.to_string()
    };
    let clusters: Vec<String> = (0..DECIDED).map(cluster).collect();
    put(
        &stage.fleet.join("clusters.yaml"),
        clusters.join("\n---\n").as_bytes(),
    )?;
    let output = stage.run()?.arg("--once").output()?;
    ensure!(output.status.success(), "{output:?}");
    let objects = tree::contents(&stage.own().join("objects"))?;
    Ok(objects
        .into_keys()
        .map(|path| path.display().to_string())
        .collect())
}

#[test]
fn clusters_that_are_denied_all_at_once_all_lose_their_rights() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    let policy = program::manifest("cluster-access")?;
    put(
        &stage.policies.join("policy.yaml"),
        policy.to_string().as_bytes(),
    )?;
    let registration = |files: &[String]| {
        let is_binding =
            |file: &&String| file.contains("RoleBinding") && file.contains("registration");
        files.iter().filter(is_binding).count()
    };
    let made = decided(&stage, true)?;
    ensure!(registration(&made) >= DECIDED, "{made:?}");
    let left = decided(&stage, false)?;
    ensure!(registration(&left) == 0, "{left:?}");
    Ok(())
}

/// Gives the source of the first cluster another token.
fn change_first(stage: &Stage, token: &str) -> Result<()> {
    let mut document = stage.kubeconfig(0)?;
    document["users"][0]["user"] = json!({"token": token});
    stage.put_source(0, &STANDARD.encode(document.to_string()))
}

/// How much of the limit of changed objects is recorded as used.
fn reserved(stage: &Stage) -> Result<Value> {
    let records = stage
        .own()
        .join("objects/transom/ConfigMap.transom-limits.yaml");
    let records: Value = serde_yaml::from_str(&fs::read_to_string(records)?)?;
    let record = records["data"][POLICY].as_str().unwrap_or_default();
    let record: Value = serde_json::from_str(record)?;
    Ok(record["reserved"]["objectsChanged"].clone())
}

#[test]
fn one_cluster_that_changes_in_every_run_is_one_and_no_end_in_order_uses_up_a_limit() -> Result<()>
{
    let stage = Stage::new(CLUSTERS, 0)?;
    put_policy(&stage, None)?;
    run(&stage, 8)?;
    for turn in 0..12 {
        change_first(&stage, &format!("token-{turn}"))?;
        run(&stage, 8)?;
        ensure!(reserved(&stage)? == 1, "run {turn}: {}", reserved(&stage)?);
    }
    // The same for an agent that is told to stop.
    let agent = stage.watch()?;
    let before = fs::read(stage.secret(0))?;
    change_first(&stage, "another")?;
    wait::until("the new secret", DEADLINE, || {
        let now = fs::read(stage.secret(0)).ok()?;
        (now != before).then_some(())
    })?;
    ensure!(reserved(&stage)? != 1, "it is reserved ahead");
    agent.stop()?;
    ensure!(reserved(&stage)? == 1, "{}", reserved(&stage)?);
    Ok(())
}
