//! The agent beside an editor: managed objects follow every change in the folder, and a status that cannot be written
//! for a while is written as soon as possible. Every wait is for a state.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use transom_e2e::agent::DEADLINE;
use transom_e2e::program::{code, stderr};
use transom_e2e::secret::Secret;
use transom_e2e::stage::{Stage, put};
use transom_support::{fleet, wait};

/// The first cluster is ready, the fourth not available, the sixth without a klusterlet namespace.
const READY: usize = 0;
const NOT_AVAILABLE: usize = 3;
const WITHOUT_HOME: usize = 5;

/// The list of unreadable objects.
fn unreadable(stage: &Stage) -> PathBuf {
    stage.own().join("unreadable.yaml")
}

/// The documents of a file of manifests.
fn documents(path: &std::path::Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path)?;
    Ok(text
        .split("\n---\n")
        .map(|document| format!("{}\n", document.trim_end()))
        .collect())
}

#[test]
fn a_changed_service_or_rotated_credential_updates_the_secret() -> Result<()> {
    let stage = Stage::new(2, 0)?;
    let agent = stage.watch()?;
    let first = stage.wait_for_secret(READY, "the secret", |_| true)?;
    let moved = stage.follows_port(READY, 7443)?;
    ensure!(moved.carries(&first));
    // The credential of another cluster of the fleet, which has its own CA and key.
    stage.put_source(READY, &stage.source(1)?)?;
    let source = Secret::read(&stage.hosted(READY))?;
    let now = stage.wait_for_secret(READY, "the rotated credential", |secret| {
        secret.carries(&source)
    })?;
    ensure!(!now.carries(&first) && now.server == moved.server);
    agent.stop()?;
    Ok(())
}

#[test]
fn a_namespace_created_later_ends_the_wait() -> Result<()> {
    let stage = Stage::new(6, 0)?;
    let agent = stage.watch()?;
    stage.wait_for_text(&stage.hosted_status(WITHOUT_HOME), "state: Waiting")?;
    ensure!(!stage.secret(WITHOUT_HOME).exists());
    let name = fleet::managed_name(WITHOUT_HOME);
    let home = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: klusterlet-{name}\n");
    put(&stage.fleet.join("home.yaml"), home.as_bytes())?;
    let source = Secret::read(&stage.hosted(WITHOUT_HOME))?;
    stage.wait_for_secret(WITHOUT_HOME, "the secret", |secret| secret.carries(&source))?;
    stage.wait_for_text(&stage.hosted_status(WITHOUT_HOME), "state: Applied")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_cluster_that_becomes_available_gets_its_secret() -> Result<()> {
    let stage = Stage::new(4, 0)?;
    let agent = stage.watch()?;
    stage.wait_for_text(&stage.hosted_status(NOT_AVAILABLE), "state: Held")?;
    ensure!(!stage.secret(NOT_AVAILABLE).exists());
    let path = stage.hosted(NOT_AVAILABLE);
    stage.edit(
        &path,
        "status: \"False\"\n    type: Available",
        "status: \"True\"\n    type: Available",
    )?;
    stage.wait_for_secret(NOT_AVAILABLE, "the secret", |_| true)?;
    agent.stop()?;
    Ok(())
}

#[test]
fn restores_an_edited_or_deleted_secret() -> Result<()> {
    let stage = Stage::new(1, 0)?;
    let agent = stage.watch()?;
    let first = stage.wait_for_secret(READY, "the secret", |_| true)?;
    fs::remove_file(stage.secret(READY))?;
    ensure!(stage.wait_for_secret(READY, "the secret again", |_| true)? == first);
    let text = fs::read_to_string(stage.secret(READY))?;
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("  kubeconfig: "));
    let line = line.context("no kubeconfig")?;
    stage.edit(&stage.secret(READY), line, "  kubeconfig: ZWRpdGVk")?;
    ensure!(stage.wait_for_secret(READY, "the secret as it was", |_| true)? == first);
    agent.stop()?;
    Ok(())
}

#[test]
fn a_removed_cluster_keeps_its_secret_until_its_klusterlet_is_gone() -> Result<()> {
    let stage = Stage::new(2, 0)?;
    let name = format!("klusterlet-{}", fleet::managed_name(READY));
    let klusterlet = stage.fleet.join("klusterlet.yaml");
    let manifest = format!(
        "apiVersion: operator.open-cluster-management.io/v1\nkind: Klusterlet\nmetadata:\n  name: {name}\n"
    );
    put(&klusterlet, manifest.as_bytes())?;
    let agent = stage.watch()?;
    stage.wait_for_secret(READY, "the secret", |_| true)?;
    fs::remove_file(stage.hosted(READY))?;
    stage.wait_for_text(&stage.hosted_status(READY), "reason: StillNeeded")?;
    Secret::read(&stage.secret(READY))?;
    fs::remove_file(&klusterlet)?;
    stage.wait_for_end(&stage.secret(READY))?;
    stage.wait_for_end(&stage.hosted_status(READY))?;
    Secret::read(&stage.secret(1))?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_file_that_does_not_parse_keeps_its_last_good_state() -> Result<()> {
    let stage = Stage::new(2, 0)?;
    let agent = stage.watch()?;
    let first = stage.wait_for_secret(READY, "the secret", |_| true)?;
    let good = fs::read_to_string(stage.hosted(READY))?;
    put(
        &stage.hosted(READY),
        format!("{good}\n---\nkind: [\n").as_bytes(),
    )?;
    stage.wait_for_text(&unreadable(&stage), "hosted-00000.yaml")?;
    // Its last good content still applies: the agent restores the secret from it.
    fs::remove_file(stage.secret(READY))?;
    ensure!(stage.wait_for_secret(READY, "the secret again", |_| true)? == first);
    put(
        &stage.hosted(READY),
        good.replace("port: 6443\n    protocol", "port: 8443\n    protocol")
            .as_bytes(),
    )?;
    stage.wait_for_secret(READY, "the new port", |secret| {
        secret.server.ends_with(":8443")
    })?;
    stage.wait_for_end(&unreadable(&stage))?;
    agent.stop()?;
    Ok(())
}

#[test]
fn an_object_in_two_files_is_unreadable_in_both() -> Result<()> {
    let stage = Stage::new(2, 0)?;
    let agent = stage.watch()?;
    stage.wait_for_secret(READY, "the secret", |_| true)?;
    let service = documents(&stage.hosted(READY))?
        .into_iter()
        .find(|text| text.contains("kind: Service"));
    let copy = stage.fleet.join("copy.yaml");
    put(&copy, service.context("no Service")?.as_bytes())?;
    stage.wait_for_text(&unreadable(&stage), "DuplicateObject")?;
    stage.wait_for_text(&stage.hosted_status(READY), "reason: DuplicateObject")?;
    let text = fs::read_to_string(unreadable(&stage))?;
    ensure!(
        text.contains("copy.yaml") && text.contains("hosted-00000.yaml"),
        "both files are named: {text}"
    );
    fs::remove_file(&copy)?;
    stage.wait_for_text(&stage.hosted_status(READY), "state: Applied")?;
    stage.wait_for_end(&unreadable(&stage))?;
    agent.stop()?;
    Ok(())
}

#[test]
fn taints_of_the_user_and_of_the_agent_coexist() -> Result<()> {
    let stage = Stage::new(0, 8)?;
    let agent = stage.watch()?;
    let name = "edge-00007";
    let (users, others) = ("maintenance.example.com/window", "example.com/other");
    let ours = "cluster.open-cluster-management.io/unavailable";
    let wait_for = |what: &str, keys: &[&str]| {
        wait::until(what, DEADLINE, || {
            (stage.taints(name).ok()? == keys).then_some(())
        })
    };
    wait_for("our taint behind the user's", &[users, ours])?;
    let path = stage.managed(name);
    stage.edit(&path, users, others)?;
    wait_for("the user's other taint beside ours", &[others, ours])?;
    // The agent sees the cluster again: no managed field covers the user's fields any more.
    let available =
        |status: &str| format!("status: \"{status}\"\n    type: ManagedClusterConditionAvailable");
    stage.edit(&path, &available("False"), &available("True"))?;
    wait_for("the user's taint alone", &[others])?;
    stage.edit(&path, &available("True"), &available("Unknown"))?;
    wait_for(
        "the other taint of ours",
        &[others, "cluster.open-cluster-management.io/unreachable"],
    )?;
    ensure!(fs::read_to_string(&path)?.contains("example.com/other"));
    agent.stop()?;
    Ok(())
}

#[test]
fn refuses_a_second_agent() -> Result<()> {
    let stage = Stage::new(1, 0)?;
    let agent = stage.watch()?;
    stage.wait_for_secret(READY, "the secret", |_| true)?;
    let second = stage.once()?;
    ensure!(second.status.code() == Some(2));
    ensure!(String::from_utf8_lossy(&second.stderr).contains("another agent"));
    agent.stop()?;
    Ok(())
}

/// Puts a non-empty folder in the place of a file: writing fails, as on a full disk.
fn in_the_way(file: &Path) -> Result<()> {
    if file.exists() {
        fs::remove_file(file)?;
    }
    fs::create_dir_all(file.join("in/the"))?;
    Ok(fs::write(file.join("in/the/way"), "")?)
}

#[test]
fn writes_a_delayed_status_as_soon_as_possible() -> Result<()> {
    let stage = Stage::new(3, 3)?;
    ensure!(code(&stage.once()?) == Some(0));
    let blocked = [
        stage.hosted_status(0),
        stage.hosted_status(2),
        stage.policy_status("built-in-taints"),
    ];
    blocked.iter().try_for_each(|file| in_the_way(file))?;
    let output = stage.once()?;
    ensure!(
        code(&output) == Some(1),
        "a run that could not say what became of it is right: {}",
        stderr(&output)
    );
    for left in [
        "failed to write the status of 2 primaries: ",
        "failed to write the status of 1 policies",
    ] {
        ensure!(
            stderr(&output).contains(left),
            "`{left}` is missing: {}",
            stderr(&output)
        );
    }
    let agent = stage.watch()?;
    agent.wait_for_lines(2, &["failed to write the status"])?;
    agent.wait_for_lines(1, &["the status of built-in-taints"])?;
    // A newer status replaces the one that could not be written.
    stage.edit(
        &stage.hosted(0),
        "status: \"True\"\n    type: Available",
        "status: \"False\"\n    type: Available",
    )?;
    agent.wait_for_lines(3, &["failed to write the status"])?;
    fs::remove_file(stage.hosted(2))?;
    stage.wait_for_end(&stage.secret(2))?;
    blocked.iter().try_for_each(fs::remove_dir_all)?;
    // No object changes from here on.
    stage.wait_for_text(&stage.hosted_status(0), "state: Held")?;
    stage.wait_for_text(&stage.policy_status("built-in-taints"), "counts:")?;
    let log = agent.stop()?;
    ensure!(
        !stage.hosted_status(2).exists(),
        "what is gone has a status: {log}"
    );
    ensure!(
        log.lines()
            .filter(|line| line.contains("failed to write the status"))
            .count()
            < 10,
        "each attempt is told"
    );
    Ok(())
}
