//! Objects that all primaries share: whoever can makes and keeps them, and what is planned is what is written.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;
use transom_core::stamp::Stamp;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program::{code, stderr, stdout};
use transom_e2e::stage::{NOW, Stage, put};
use transom_e2e::tree;
use transom_support::wait;

const POLICY: &str = "cluster-access";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const PREFIX: &str = "open-cluster-management:managedcluster";

fn stage() -> Result<Stage> {
    let stage = Stage::new(0, 0)?;
    stage.put_policy(POLICY, &[])?;
    Ok(stage)
}

/// Puts a cluster; the one with the smallest number is the oldest.
fn put_cluster(stage: &Stage, number: usize, is_accepted: bool) -> Result<()> {
    let cluster = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": format!("c{number}"), "uid": format!("u-c{number}"),
            "creationTimestamp": format!("2026-01-0{}T00:00:00Z", number + 1)},
        "spec": {"hubAcceptsClient": is_accepted},
    });
    let file = stage.fleet.join(format!("c{number}.yaml"));
    put(&file, cluster.to_string().as_bytes())
}

/// Puts a binding of somebody else where the policy wants one for this cluster.
fn put_foreign(stage: &Stage, number: usize) -> Result<()> {
    let binding = json!({
        "apiVersion": RBAC, "kind": "RoleBinding",
        "metadata": {"namespace": format!("c{number}"), "name": format!("{PREFIX}:c{number}:registration")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    let file = stage.fleet.join("foreign.yaml");
    put(&file, binding.to_string().as_bytes())
}

/// Puts the namespace of this cluster into two files, so that nothing can be planned for it.
fn put_twice(stage: &Stage, number: usize) -> Result<()> {
    let name = format!("c{number}");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string();
    for file in ["first.yaml", "second.yaml"] {
        put(&stage.fleet.join(file), namespace.as_bytes())?;
    }
    Ok(())
}

/// The role that all clusters share.
fn shared(stage: &Stage) -> Result<Option<Object>> {
    let name = format!("{PREFIX}:registration");
    stage.object(&ObjectRef::local(RBAC, "ClusterRole", None, &name))
}

/// The cluster that the shared role is made for.
fn keeper(stage: &Stage) -> Option<String> {
    let role = shared(stage).ok()??;
    Some(Stamp::read(&role)?.source.reference.name)
}

/// State, reason and message of a cluster, as `status` has them.
fn status(stage: &Stage, number: usize) -> Result<Value> {
    let mut command = stage.transom()?;
    command.arg("status").arg("--dir").arg(&stage.fleet);
    command.arg("--policies").arg(&stage.policies);
    let output = command.args(["-o", "json", "--now", NOW]).output()?;
    let rows: Value = serde_json::from_slice(&output.stdout).with_context(|| stderr(&output))?;
    let name = format!("c{number}");
    let rows = rows.as_array().cloned().unwrap_or_default();
    let row = rows.into_iter().find(|row| row["primary"]["name"] == *name);
    row.with_context(|| format!("{name} is not told: {}", stdout(&output)))
}

#[test]
fn one_cluster_whose_binding_is_another_s_keeps_no_other_from_its_rights() -> Result<()> {
    let stage = stage()?;
    for number in 0..3 {
        put_cluster(&stage, number, true)?;
    }
    put_foreign(&stage, 0)?;
    let output = stage.once()?;
    let told = stderr(&output);
    ensure!(code(&output) == Some(1), "{told}");
    // What stands before the binding is written.
    ensure!(keeper(&stage).as_deref() == Some("c0"), "{told}");
    ensure!(
        told.contains("TargetNotOwned") && !told.contains("OwnedByAnother"),
        "{told}"
    );
    // It is at rest: the next run writes nothing.
    let before = tree::contents(&stage.own().join("objects"))?;
    stage.once()?;
    ensure!(tree::contents(&stage.own().join("objects"))? == before);
    for (number, state) in [(0, "Failed"), (1, "Applied"), (2, "Applied")] {
        let row = status(&stage, number)?;
        ensure!(row["state"] == state, "{row:#}");
    }
    Ok(())
}

#[test]
fn a_shared_role_is_made_again_and_corrected_while_the_oldest_cluster_cannot() -> Result<()> {
    let stage = stage()?;
    // The youngest one keeps the role: it is the first that is accepted.
    put_cluster(&stage, 3, true)?;
    let agent = stage.watch()?;
    let keeps = |number: usize| {
        let name = format!("c{number}");
        let kept = || (keeper(&stage).as_ref() == Some(&name)).then_some(());
        wait::until(&format!("the role of {name}"), DEADLINE, kept)
    };
    keeps(3)?;
    put_twice(&stage, 0)?;
    for number in 0..3 {
        put_cluster(&stage, number, true)?;
    }
    let counts = |state: &str| stage.policy_field(POLICY, &format!("/counts/{state}"));
    let decided = || (counts("failed")? == 1 && counts("applied")? == 3).then_some(());
    wait::until("one failed and three applied", DEADLINE, decided)?;
    ensure!(keeper(&stage).as_deref() == Some("c3"));
    // It is denied, and the role is gone.
    put_cluster(&stage, 3, false)?;
    keeps(1)?;
    let files = tree::contents(&stage.own().join("objects"))?;
    let is_role = |path: &&std::path::PathBuf| {
        let name = path.display().to_string();
        name.contains("ClusterRole.") && name.contains("managedcluster%3Aregistration")
    };
    let role = files.keys().find(is_role).context("no shared role")?;
    fs::remove_file(stage.own().join("objects").join(role))?;
    keeps(1)?;
    // What all want of it changes.
    stage.put_policy(
        POLICY,
        &[("\nspec:", "\nspec:\n  own: {labels: {team: red}}")],
    )?;
    let labelled = || {
        let role = shared(&stage).ok()??;
        (role.body["metadata"]["labels"]["team"] == "red").then_some(())
    };
    wait::until("the label of the shared role", DEADLINE, labelled)?;
    agent.stop()?;
    Ok(())
}

/// The plan of the policy as it is.
fn plan(stage: &Stage) -> Result<Value> {
    let mut command = stage.transom()?;
    command.args(["plan", POLICY, "--dir"]).arg(&stage.fleet);
    command.arg("--policies").arg(&stage.policies);
    let output = command.args(["-o", "json", "--now", NOW]).output()?;
    serde_json::from_slice(&output.stdout).with_context(|| stderr(&output))
}

#[test]
fn a_plan_and_an_approval_are_of_all_clusters_that_share_what_is_planned() -> Result<()> {
    const CLUSTERS: usize = 8;
    let stage = stage()?;
    for number in 0..CLUSTERS {
        put_cluster(&stage, number, true)?;
    }
    let preview = |own: &str, approve: &str| {
        let spec = format!("\nspec:\n  rollout: {{mode: Preview}}\n  {own}");
        let approved =
            format!("\nmetadata:\n  annotations: {{transom.dev/approved: \"{approve}\"}}");
        stage.put_policy(POLICY, &[("\nmetadata:", &approved), ("\nspec:", &spec)])
    };
    for own in ["", "own: {labels: {team: red}}"] {
        preview(own, "")?;
        let planned = plan(&stage)?;
        ensure!(
            planned["primaries"]["wouldChange"] == CLUSTERS && planned["primaries"]["waiting"] == 0,
            "{planned:#}"
        );
        ensure!(plan(&stage)?["digest"] == planned["digest"]);
        let output = stage.once()?;
        let all = format!("would change something for {CLUSTERS} of {CLUSTERS} primaries");
        ensure!(stderr(&output).contains(&all), "{}", stderr(&output));
        ensure!(
            !stderr(&output).contains("no longer be applied"),
            "{}",
            stderr(&output)
        );
        let approve = stage.policy_field(POLICY, "/candidate/approve");
        let approve = approve.context("there is no digest to approve")?;
        preview(own, approve.as_str().unwrap_or_default())?;
        let output = stage.once()?;
        ensure!(code(&output) == Some(0), "{}", stderr(&output));
        // It is what was planned: nothing is left.
        let planned = plan(&stage)?;
        ensure!(planned["primaries"]["unchanged"] == CLUSTERS, "{planned:#}");
    }
    let role = shared(&stage)?.context("no shared role")?;
    ensure!(role.body["metadata"]["labels"]["team"] == "red");
    Ok(())
}
