//! The forms of the objects world in a folder: a heartbeat that stops is noticed by time alone, and a set follows
//! files.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use transom_core::time::format_rfc3339;
use transom_e2e::agent::DEADLINE;
use transom_e2e::asking::{
    age, agent_may_list, every, lease, maps, may_renew, need, observed, put_policy,
    put_policy_of_agent, put_policy_of_requests, request,
};
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_support::identity::Identity;
use transom_support::wait;

/// Waits until the label of the ManagedCluster says in which form the inputs came.
fn wait_for_seen(stage: &Stage, seen: &str) -> Result<()> {
    let patch = stage.patch("one");
    let says = || {
        let text = fs::read_to_string(&patch).ok()?;
        text.lines()
            .any(|line| line.trim().ends_with(seen))
            .then_some(())
    };
    let came = wait::until("what a guest saw", DEADLINE, says);
    came.with_context(|| {
        format!(
            "{seen} in {}",
            fs::read_to_string(&patch).unwrap_or_default()
        )
    })
}

/// Writes an object into a file of the fleet.
pub(crate) fn put_object(stage: &Stage, file: &str, object: &Value) -> Result<()> {
    put(&stage.fleet.join(file), object.to_string().as_bytes())
}

/// The lease, renewed so many seconds after now.
fn beat(stage: &Stage, after: i64) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let renewed = format_rfc3339(i64::try_from(now)? + after);
    let metadata = json!({"name": "one", "namespace": "default"});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {"renewTime": renewed}});
    put_object(stage, "lease.yaml", &lease)
}

fn map(stage: &Stage, name: &str, of: &str) -> Result<()> {
    let metadata = json!({"name": name, "namespace": "default", "labels": {"of": of}});
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "1"}});
    put_object(stage, &format!("map-{name}.yaml"), &map)
}

fn stage(needs: &[Value]) -> Result<Stage> {
    let stage = Stage::new(0, 0)?;
    put_policy(&stage.policies, needs)?;
    let cluster = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": {"name": "one"}});
    put_object(&stage, "one.yaml", &cluster)?;
    Ok(stage)
}

#[test]
fn a_heartbeat_that_stops_is_noticed_by_time_alone() -> Result<()> {
    let stage = stage(&[need("lease", &lease(), &age(3))])?;
    let agent = stage.watch()?;
    wait_for_seen(&stage, "absent")?;
    beat(&stage, 0)?;
    wait_for_seen(&stage, "fresh")?;
    wait_for_seen(&stage, "stale")?;
    // A beat before the limit moves the time at which it is noticed.
    beat(&stage, 0)?;
    wait_for_seen(&stage, "fresh")?;
    beat(&stage, 1)?;
    wait_for_seen(&stage, "stale")?;
    // A clock that is ahead is caught up with.
    beat(&stage, 5)?;
    wait_for_seen(&stage, "ahead")?;
    wait_for_seen(&stage, "fresh")?;
    fs::remove_file(stage.fleet.join("lease.yaml"))?;
    wait_for_seen(&stage, "absent")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_heartbeat_counts_from_when_the_agent_sees_it_come() -> Result<()> {
    let stage = stage(&[need("lease", &lease(), &observed(4))])?;
    // It stopped, or its clock is behind: the agent has not seen it move yet.
    beat(&stage, -3600)?;
    let agent = stage.watch()?;
    wait_for_seen(&stage, "unsure")?;
    wait_for_seen(&stage, "stale")?;
    beat(&stage, -3600)?;
    wait_for_seen(&stage, "behind")?;
    wait_for_seen(&stage, "stale")?;
    beat(&stage, 3600)?;
    wait_for_seen(&stage, "ahead")?;
    wait_for_seen(&stage, "stale")?;
    // A restart says of nothing that it is stale before it has looked for as long.
    agent.stop()?;
    beat(&stage, -8)?;
    let agent = stage.watch()?;
    wait_for_seen(&stage, "unsure")?;
    beat(&stage, 0)?;
    wait_for_seen(&stage, "fresh")?;
    wait_for_seen(&stage, "stale")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_set_follows_the_files_and_is_not_made_of_some_of_them() -> Result<()> {
    let stage = stage(&[need("maps", &maps(), &every(&["x", "y"]))])?;
    map(&stage, "a", "x")?;
    map(&stage, "other", "z")?;
    let agent = stage.watch()?;
    wait_for_seen(&stage, "every-1-1")?;
    map(&stage, "b", "y")?;
    wait_for_seen(&stage, "every-2-2")?;
    // A file that cannot be read may hold one more.
    put(&stage.fleet.join("broken.yaml"), b"kind: [")?;
    map(&stage, "c", "y")?;
    let status = stage.own().join("status/asks/_cluster.one.yaml");
    stage.wait_for_text(&status, "reason: ReadFailed")?;
    fs::remove_file(stage.fleet.join("broken.yaml"))?;
    wait_for_seen(&stage, "every-3-3")?;
    map(&stage, "d", "x")?;
    stage.wait_for_text(&status, "reason: TooManyInputs")?;
    map(&stage, "a", "z")?;
    map(&stage, "b", "z")?;
    wait_for_seen(&stage, "every-2-2")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_manifest_answers_whether_a_requester_may_do_something() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    let access = need("access", &request(), &may_renew());
    put_policy_of_requests(&stage.policies, &[access])?;
    let spec = json!({"request": "", "signerName": "s", "username": "u", "groups": ["g"]});
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "one"}, "spec": spec});
    put_object(&stage, "request.yaml", &request)?;
    let agent = stage.watch()?;
    let status = stage.own().join("status/asks/_cluster.one.yaml");
    stage.wait_for_text(&status, "no manifest of kind SubjectAccessReview answers")?;
    let attributes = json!({"verb": "renew", "group": "register.open-cluster-management.io", "resource": "managedclusters", "subresource": "clientcertificates"});
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {"name": "renew"},
        "spec": {"user": "u", "groups": ["g"], "resourceAttributes": attributes}, "status": {"allowed": true},
    });
    put_object(&stage, "review.yaml", &review)?;
    stage.wait_for_text(&status, "state: Applied")?;
    agent.stop()?;
    Ok(())
}

/// A ManagedCluster at this site.
fn put_at(stage: &Stage, name: &str, site: &str) -> Result<()> {
    let metadata = json!({"name": name, "labels": {"site": site}});
    let cluster = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": metadata});
    put_object(stage, &format!("{name}.yaml"), &cluster)
}

#[test]
fn a_set_follows_what_another_policy_writes() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    for (name, settings) in [
        ("cluster-set-members", None),
        (
            "cluster-sets-by-rule",
            Some(json!({"rules": [{"set": "edge", "labels": {"site": ["north"]}}]})),
        ),
    ] {
        let mut policy = program::unlimited_manifest(name)?;
        if let Some(settings) = settings {
            policy["spec"]["guests"]["decide"]["settings"] = settings;
        }
        put(
            &stage.policies.join(format!("{name}.yaml")),
            policy.to_string().as_bytes(),
        )?;
    }
    let set = json!({"apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
        "metadata": {"name": "edge"}});
    put_object(&stage, "set.yaml", &set)?;
    put_at(&stage, "one", "north")?;
    put_at(&stage, "two", "south")?;
    let agent = stage.watch()?;
    let set = "patches/_cluster/ManagedClusterSet.edge_cluster.open-cluster-management.io.yaml";
    let set = stage.own().join(set);
    stage.wait_for_text(&set, "1 ManagedClusters selected")?;
    put_at(&stage, "two", "north")?;
    stage.wait_for_text(&set, "2 ManagedClusters selected")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_manifest_answers_whether_the_agent_itself_may_do_something() -> Result<()> {
    let primary = json!({"api-version": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "cluster": "local", "namespace": null, "name": "NAME"});
    let stage = stage(&[])?;
    let access = need("access", &primary, &agent_may_list("nodes"));
    put_policy_of_agent(&stage.policies, &[access], "nodes")?;
    let agent = stage.watch()?;
    let status = stage.own().join("status/asks/_cluster.one.yaml");
    stage.wait_for_text(
        &status,
        "no manifest of kind SelfSubjectAccessReview answers",
    )?;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {"name": "list"},
        "spec": {"resourceAttributes": {"verb": "list", "resource": "nodes"}}, "status": {"allowed": false},
    });
    put_object(&stage, "review.yaml", &review)?;
    wait_for_seen(&stage, "denied")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn an_authority_that_ends_is_told_when_it_ends() -> Result<()> {
    let stage = Stage::new(1, 0)?;
    let ends = SystemTime::now() + Duration::from_secs(20);
    let authority = STANDARD.encode(Identity::authority_until(1, ends)?);
    let mut kubeconfig = stage.kubeconfig(0)?;
    kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"] = json!(authority);
    stage.put_source(0, &STANDARD.encode(kubeconfig.to_string()))?;
    let agent = stage.watch()?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    // Nothing changes, and the resync is half an hour away.
    stage.wait_for_text(&stage.hosted_status(0), "CertificateExpired")?;
    agent.stop()?;
    Ok(())
}
