//! What a policy writes or removes may be what it reads: it is reconciled again for that, before a single run ends and
//! at once in an agent that runs.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::process::Output;
use transom_core::reference::ObjectRef;
use transom_e2e::agent::Agent;
use transom_e2e::program::{code, stderr, stdout};
use transom_e2e::stage::{NOW, Stage, put};

/// A folder without objects, with some of the policies.
fn stage(policies: &[&str]) -> Result<Stage> {
    let stage = Stage::new(0, 0)?;
    for policy in policies {
        stage.put_policy(policy, &[])?;
    }
    Ok(stage)
}

/// What a run would do, as `transom render` shows it.
fn render(stage: &Stage) -> Result<Output> {
    let mut render = stage.transom()?;
    render.arg("render").arg(&stage.fleet).args(["--now", NOW]);
    render.arg("--policies").arg(&stage.policies);
    Ok(render.arg("--exit-code").output()?)
}

/// The reasons for which primaries wait.
fn waiting(output: &Output) -> Vec<String> {
    let told = stderr(output);
    let after = |line: &str| {
        line.split_once("Waiting")
            .map(|(_, reason)| reason.trim().to_owned())
    };
    told.lines().filter_map(after).collect()
}

/// Runs once; a render tells the same before, and then nothing is left to write.
fn once(stage: &Stage) -> Result<()> {
    let before = render(stage)?;
    let output = stage.once()?;
    ensure!(code(&output) == Some(0), "{}", stderr(&output));
    let (told, done) = (waiting(&before), waiting(&output));
    ensure!(told == done, "{told:?}, and then {done:?}");
    let left = render(stage)?;
    ensure!(code(&left) == Some(0), "{}{}", stdout(&left), stderr(&left));
    Ok(())
}

fn managed_cluster() -> ObjectRef {
    let api_version = "cluster.open-cluster-management.io/v1";
    ObjectRef::local(api_version, "ManagedCluster", None, "one")
}

fn put_cluster(stage: &Stage, is_accepted: bool, deletion: Option<&str>) -> Result<()> {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": NOW});
    let cluster = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": "one", "uid": "u", "deletionTimestamp": deletion},
        "spec": {"hubAcceptsClient": is_accepted},
        "status": {"conditions": [condition("ManagedClusterJoined"), condition("ManagedClusterConditionAvailable")]},
    });
    put(
        &stage.fleet.join("one.yaml"),
        cluster.to_string().as_bytes(),
    )
}

/// Whether an object is there and bears a finalizer of this name.
fn bears(stage: &Stage, object: &ObjectRef, finalizer: &str) -> Result<bool> {
    let there = stage.object(object)?.context("it is not there")?;
    let finalizers = there.body.pointer("/metadata/finalizers").cloned();
    Ok(finalizers.is_some_and(|all| all.to_string().contains(finalizer)))
}

#[test]
fn a_cluster_is_released_by_the_run_that_removes_what_was_made_for_it() -> Result<()> {
    let finalizer = "cluster.open-cluster-management.io/api-resource-cleanup";
    for is_accepted in [true, false] {
        let stage = stage(&["cluster-access"])?;
        put_cluster(&stage, true, None)?;
        once(&stage)?;
        ensure!(bears(&stage, &managed_cluster(), finalizer)?);
        put_cluster(&stage, is_accepted, Some(NOW))?;
        once(&stage)?;
        ensure!(
            !bears(&stage, &managed_cluster(), finalizer)?,
            "accepted: {is_accepted}"
        );
    }
    Ok(())
}

fn hosted_cluster() -> ObjectRef {
    let api_version = "hypershift.openshift.io/v1beta1";
    ObjectRef::local(api_version, "HostedCluster", Some("clusters"), "one")
}

fn put_hosted(stage: &Stage, deletion: Option<&str>) -> Result<()> {
    let hosted = json!({
        "apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster",
        "metadata": {"name": "one", "namespace": "clusters", "uid": "u", "deletionTimestamp": deletion,
            "annotations": {"cluster.open-cluster-management.io/managedcluster-name": "one"}},
        "spec": {},
        "status": {"conditions": [{"type": "Available", "status": "True", "reason": "AsExpected"}]},
    });
    let file = stage.fleet.join("hosted.yaml");
    put(&file, hosted.to_string().as_bytes())
}

#[test]
fn a_hosted_cluster_is_released_by_the_run_that_removes_its_managed_cluster() -> Result<()> {
    let stage = stage(&["auto-import", "detach"])?;
    put_hosted(&stage, None)?;
    once(&stage)?;
    ensure!(stage.object(&managed_cluster())?.is_some());
    ensure!(bears(&stage, &hosted_cluster(), "transom.dev/detach")?);
    put_hosted(&stage, Some(NOW))?;
    once(&stage)?;
    ensure!(stage.object(&managed_cluster())?.is_none());
    ensure!(!bears(&stage, &hosted_cluster(), "transom.dev/detach")?);
    Ok(())
}

/// The work of a cluster, which its agent has yet to take off.
fn put_work(stage: &Stage) -> Result<()> {
    let work = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "w", "namespace": "one", "deletionTimestamp": NOW, "finalizers": ["example.com/work"]},
    });
    put(&stage.fleet.join("work.yaml"), work.to_string().as_bytes())
}

#[test]
fn a_managed_cluster_that_the_agent_made_stays_until_it_is_cleaned_up() -> Result<()> {
    const CLEANUP: &str = "cluster.open-cluster-management.io/resource-cleanup";
    for follows in [false, true] {
        let stage = stage(&["auto-import", "detach", "cleanup"])?;
        put_hosted(&stage, None)?;
        put_work(&stage)?;
        once(&stage)?;
        ensure!(bears(&stage, &managed_cluster(), CLEANUP)?);
        let agent = follows.then(|| stage.watch()).transpose()?;
        let reach = |what: &str, is_there: &dyn Fn() -> Option<()>| match &agent {
            Some(agent) => agent.wait(what, is_there),
            None => once(&stage).and_then(|()| is_there().context(what.to_owned())),
        };
        put_hosted(&stage, Some(NOW))?;
        reach("the removal that waits", &|| {
            let there = stage.object(&managed_cluster()).ok()??.body;
            let waits = there.pointer("/status/conditions/0/type")? == "Deleting";
            let since = there.pointer("/metadata/deletionTimestamp")?.as_str()?;
            (waits && (follows || since == NOW)).then_some(())
        })?;
        ensure!(bears(&stage, &managed_cluster(), CLEANUP)?);
        ensure!(bears(&stage, &hosted_cluster(), "transom.dev/detach")?);
        fs::remove_file(stage.fleet.join("work.yaml"))?;
        reach("the end", &|| {
            let is_gone = stage.object(&managed_cluster()).ok()?.is_none();
            let held = bears(&stage, &hosted_cluster(), "transom.dev/detach").ok()?;
            (is_gone && !held).then_some(())
        })?;
        agent.map(Agent::stop).transpose()?;
    }
    Ok(())
}

/// A condition in the agent's patch of the cluster.
fn condition(stage: &Stage, kind: &str) -> Option<Value> {
    let text = fs::read_to_string(stage.patch("one")).ok()?;
    let patch: Value = serde_yaml::from_str(&text).ok()?;
    let mut fields = patch["fields"].as_array()?.iter();
    let conditions = fields.find(|field| field["path"] == "status.conditions")?;
    let mut conditions = conditions["value"].as_array()?.iter();
    conditions.find(|one| one["type"] == kind).cloned()
}

#[test]
fn a_policy_that_makes_a_lease_says_at_once_what_follows_from_it() -> Result<()> {
    const CLOCK: &str = "ManagedClusterConditionClockSynced";
    let single = stage(&["cluster-access", "availability"])?;
    put_cluster(&single, true, None)?;
    once(&single)?;
    ensure!(condition(&single, CLOCK).is_some());

    let followed = stage(&["cluster-access", "availability"])?;
    put_cluster(&followed, true, None)?;
    let agent = followed.watch()?;
    agent.wait(CLOCK, || condition(&followed, CLOCK))?;
    agent.stop()?;
    Ok(())
}
