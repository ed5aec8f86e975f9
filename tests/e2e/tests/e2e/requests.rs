//! Verdicts on requests for certificates in a folder: they lie in the patch of the request, survive a kill, and are for
//! that one request alone.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use transom_core::reference::ObjectRef;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_support::wait;

/// The name of every request here.
const NAME: &str = "c1-abc";
/// Who asks for the first certificate of an imported cluster.
const IMPORTER: &str = "system:serviceaccount:c1:c1-bootstrap-sa";

fn reference() -> ObjectRef {
    let api_version = "certificates.k8s.io/v1";
    ObjectRef::local(api_version, "CertificateSigningRequest", None, NAME)
}

fn file(stage: &Stage) -> PathBuf {
    stage.fleet.join("request.yaml")
}

/// The request of a bundled case, with another uid and requester.
fn request(uid: &str, username: &str) -> Result<Value> {
    let given = "policies/client-certificates/cases/C01-imported/given.yaml";
    let text = fs::read_to_string(program::root().join(given))?;
    let first = text.split("\n---\n").next().context("it is empty")?;
    let mut request: Value = serde_yaml::from_str(first)?;
    request["metadata"]["uid"] = json!(uid);
    request["spec"]["username"] = json!(username);
    Ok(request)
}

fn put_request(stage: &Stage, uid: &str, username: &str) -> Result<()> {
    let request = request(uid, username)?;
    put(&file(stage), request.to_string().as_bytes())
}

/// The conditions of the request as the folder has it.
fn conditions(stage: &Stage) -> Result<Vec<Value>> {
    let request = stage.object(&reference())?.context("no request")?;
    let conditions = request.body.pointer("/status/conditions");
    let conditions = conditions.and_then(Value::as_array);
    Ok(conditions.cloned().unwrap_or_default())
}

/// Waits until the request is approved; gives the condition.
fn wait_for_approval(stage: &Stage) -> Result<Value> {
    let approved = |one: &Value| one["type"] == "Approved" && one["status"] == "True";
    let look = || conditions(stage).ok()?.into_iter().find(approved);
    wait::until("the approval", DEADLINE, look).context("it is not approved")
}

fn stage() -> Result<Stage> {
    let stage = Stage::new(0, 0)?;
    let mut policy = program::unlimited_manifest("client-certificates")?;
    policy["spec"]["guests"]["decide"]["settings"] = json!({"bootstrap": {"imported": true}});
    let policies = stage.policies.join("policy.yaml");
    put(&policies, policy.to_string().as_bytes())?;
    let cluster = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": "c1"}});
    let clusters = stage.fleet.join("cluster.yaml");
    put(&clusters, cluster.to_string().as_bytes())?;
    Ok(stage)
}

#[test]
fn a_verdict_survives_a_kill_and_is_for_one_request_alone() -> Result<()> {
    let stage = stage()?;
    let status = stage
        .own()
        .join(format!("status/client-certificates/_cluster.{NAME}.yaml"));
    put_request(&stage, "1", IMPORTER)?;
    let agent = stage.watch()?;
    let approved = wait_for_approval(&stage)?;
    agent.kill()?;
    let agent = stage.watch()?;
    stage.wait_for_text(&status, "state: Applied")?;
    agent.wait_for_lines(1, &["Applied", "InSync"])?;
    ensure!(
        conditions(&stage)? == std::slice::from_ref(&approved),
        "approved again"
    );
    agent.kill()?;
    // Another request under this name while no agent runs: what was said of the first one is not said of it.
    put_request(&stage, "2", "mallory")?;
    ensure!(
        conditions(&stage)?.is_empty(),
        "approved before anyone looked"
    );
    let agent = stage.watch()?;
    stage.wait_for_text(&status, "state: Waiting")?;
    ensure!(conditions(&stage)?.is_empty(), "mallory is approved");
    // The same while it runs, from one moment to the next.
    put_request(&stage, "3", IMPORTER)?;
    wait_for_approval(&stage)?;
    put_request(&stage, "4", "mallory")?;
    ensure!(conditions(&stage)?.is_empty(), "mallory is approved");
    stage.wait_for_text(&status, "state: Waiting")?;
    ensure!(conditions(&stage)?.is_empty(), "mallory is approved");
    agent.stop()?;
    Ok(())
}
