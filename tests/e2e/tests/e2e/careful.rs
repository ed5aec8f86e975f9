//! Mistakes of a person in the folder or on the command line: nothing is lost, and the agent reports each mistake.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::process::Command;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::program::{code, stderr};
use transom_e2e::stage::{NOW, Stage, put};
use transom_support::wait;

/// Makes a manifest unreadable.
const GARBAGE: &str = "\n---\nx: {{{\n";

#[test]
fn a_policy_among_the_manifests_is_an_ordinary_object() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    let agent = stage.watch()?;
    stage.wait_for_secret(0, "the first secret", |_| true)?;
    let policy = program::policy("built-in-taints");
    put(&stage.fleet.join("policy.yaml"), &fs::read(policy)?)?;
    // The agent has seen it once it has handled a later change.
    stage.follows_port(0, 7443)?;
    ensure!(
        stage.policy_status("built-in-taints").exists(),
        "the policies were removed"
    );
    let log = agent.stop()?;
    ensure!(!log.contains("removed"), "{log}");
    Ok(())
}

#[test]
fn an_object_unreadable_at_startup_does_not_count_as_deleted() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    ensure!(code(&stage.once()?) == Some(0));
    let (secret, whole) = (fs::read(stage.secret(0))?, fs::read(stage.hosted(0))?);
    let broken = [whole.as_slice(), GARBAGE.as_bytes()].concat();
    put(&stage.hosted(0), &broken)?;
    let output = stage.once()?;
    ensure!(
        code(&output) == Some(1) && stderr(&output).contains("ReadFailed"),
        "{}",
        stderr(&output)
    );
    ensure!(
        fs::read(stage.secret(0))? == secret,
        "it was deleted or written"
    );
    // Once everything is readable again, missing objects count as deleted.
    let agent = stage.watch()?;
    stage.wait_for_text(&stage.hosted_status(0), "ReadFailed")?;
    fs::remove_file(stage.hosted(0))?;
    stage.wait_for_end(&stage.secret(0))?;
    agent.stop()?;
    Ok(())
}

#[test]
fn an_object_that_a_broken_file_names_does_not_count_as_absent() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    stage.put_policy(
        "cluster-acceptance",
        &[("rules: []", "rules: [{names: ['edge-*']}]")],
    )?;
    for name in ["edge-1", "edge-2"] {
        let cluster = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": name}, "spec": {"hubAcceptsClient": false}});
        put(
            &stage.fleet.join(format!("{name}.yaml")),
            cluster.to_string().as_bytes(),
        )?;
    }
    // Whoever has this role was accepted before, and then denied.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "open-cluster-management:managedcluster:edge-1"}, "rules": []});
    let (file, whole) = (stage.fleet.join("role.yaml"), role.to_string());
    put(
        &file,
        [whole.as_bytes(), GARBAGE.as_bytes()].concat().as_slice(),
    )?;
    let accepted = |name: &str| stage.patch(name).exists();
    let (output, told) = (
        stage.once()?,
        "`role.yaml` cannot be parsed, and may hold it",
    );
    ensure!(stderr(&output).contains(told), "{}", stderr(&output));
    ensure!(
        !accepted("edge-1") && accepted("edge-2"),
        "{}",
        stderr(&output)
    );
    let agent = stage.watch()?;
    put(&file, whole.as_bytes())?;
    let policy = || stage.policy_field("cluster-acceptance", "/counts/applied");
    wait::until("both are decided", DEADLINE, || {
        (policy()? == 2).then_some(())
    })?;
    ensure!(!accepted("edge-1"));
    agent.stop()?;
    Ok(())
}

#[test]
fn restores_managed_fields_that_someone_removed() -> Result<()> {
    let stage = Stage::new(0, 10)?;
    let (agent, name) = (stage.watch()?, "edge-00008");
    let patch = stage.patch(name);
    let tainted = |name: &str, what: &str| {
        wait::until(what, DEADLINE, || {
            (stage.taints(name).ok()?.len() == 1).then_some(())
        })
    };
    tainted(name, "the taint")?;
    fs::remove_file(&patch)?;
    tainted(name, "the taint after its file was removed")?;
    put(&patch, GARBAGE.as_bytes())?;
    tainted(name, "the taint after its file was garbled")?;
    fs::remove_dir_all(stage.own().join("patches"))?;
    tainted(
        "edge-00009",
        "the taint of another one after the folder was removed",
    )?;
    // After three removals the agent respects the other party's wish.
    stage.wait_for_text(
        &stage
            .own()
            .join(format!("status/built-in-taints/_cluster.{name}.yaml")),
        "reason: Contended",
    )?;
    agent.stop()?;
    Ok(())
}

#[test]
fn wrong_usage_is_reported_and_changes_nothing() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let (dir, file) = (
        stage.fleet.display().to_string(),
        stage.hosted(0).display().to_string(),
    );
    let empty = stage.path("empty");
    fs::create_dir_all(&empty)?;
    let empty = empty.display().to_string();
    for (words, named) in [
        (vec!["run", "--once", "--dir", &file], "it is not a folder"),
        (
            vec!["run", "--once", "--dir", &dir, "--read-only"],
            "--read-only",
        ),
        (
            vec!["run", "--once", "--dir", &dir, "--policy-objects"],
            "--policy-objects",
        ),
        (
            vec!["run", "--context", "hub=there", "--policy-objects"],
            "the API server `local`, and none is connected",
        ),
        (
            vec!["run", "--once", "--dir", &dir, "--policies", &empty],
            "failed to find a policy",
        ),
        (
            vec!["render", &dir, "--policies", &empty],
            "failed to find a policy",
        ),
    ] {
        let output = stage.transom()?.args(&words).output()?;
        ensure!(code(&output) == Some(2), "{words:?}: {:?}", code(&output));
        ensure!(
            stderr(&output).contains(named) && stderr(&output).lines().count() == 1,
            "{words:?}: {}",
            stderr(&output)
        );
        ensure!(!stage.secret(0).exists(), "{words:?} wrote something");
    }
    Ok(())
}

#[test]
fn what_could_not_be_done_ends_with_another_code_than_wrong_use() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let dir = stage.fleet.display().to_string();
    let file = stage.path("pulled.wasm").display().to_string();
    // Nobody listens on port 1.
    let place = "oci:127.0.0.1:1/team/mine:v1";
    for words in [
        &["push", "builtin:taints", place][..],
        &["pull", place, "-o", &file],
        &["approve", "built-in-taints", "sha256:0", "--dir", &dir],
        &["rollback", "built-in-taints", "--dir", &dir],
    ] {
        for (words, expected) in [(words, 1), (&words[..1], 2)] {
            let output = stage.transom()?.args(words).output()?;
            ensure!(
                code(&output) == Some(expected)
                    && stderr(&output).contains("failed to") == (expected == 1),
                "{words:?}: {:?} {}",
                code(&output),
                stderr(&output)
            );
        }
    }
    Ok(())
}

#[test]
fn a_policy_that_cannot_work_explains_why() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let named = format!("hosting={}", stage.fleet.display());
    let output = stage
        .transom()?
        .args(["run", "--once", "--dir", &named])
        .output()?;
    ensure!(code(&output) == Some(1), "{:?}", code(&output));
    ensure!(
        stderr(&output).contains("spec.primary.cluster: no connection `local`"),
        "{}",
        stderr(&output)
    );
    put(&stage.policies.join("broken.yaml"), b"{{{")?;
    ensure!(
        Command::new("mkfifo")
            .arg(stage.policies.join("pipe.yaml"))
            .status()?
            .success()
    );
    let output = stage.once()?;
    ensure!(code(&output) == Some(1), "{:?}", code(&output));
    for told in [
        "broken.yaml, document 1: ManifestInvalid",
        "pipe.yaml: ManifestInvalid: it is not a regular file",
    ] {
        ensure!(stderr(&output).contains(told), "{}", stderr(&output));
    }
    Ok(())
}

#[test]
fn lost_output_is_a_failure_and_a_json_log_is_valid_json() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    let full = OpenOptions::new().write(true).open("/dev/full")?;
    let output = stage
        .transom()?
        .arg("render")
        .arg(&stage.fleet)
        .stdout(full)
        .output()?;
    ensure!(code(&output) == Some(1), "{:?}", code(&output));
    ensure!(
        stderr(&output).contains("failed to write to standard output"),
        "{}",
        stderr(&output)
    );
    put(&stage.fleet.join("broken.yaml"), GARBAGE.as_bytes())?;
    let output = stage
        .run()?
        .args(["--once", "--now", NOW, "--log-format", "json"])
        .output()?;
    ensure!(code(&output) == Some(1));
    for line in stderr(&output).lines() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        ensure!(
            line["message"].is_string() && line["timestamp"].is_string(),
            "{line}"
        );
    }
    Ok(())
}

/// A file in the form of `kubectl get --output yaml` may also contain managed objects.
#[test]
fn an_object_with_our_ownership_labels_is_managed_in_any_file() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    ensure!(code(&stage.once()?) == Some(0));
    let made = stage.fleet.join("made.yaml");
    fs::rename(stage.secret(0), &made)?;
    fs::remove_dir_all(stage.own())?;
    let render = || -> Result<String> {
        let output = stage
            .transom()?
            .arg("render")
            .arg(&stage.fleet)
            .args(["--now", NOW, "--output", "table"])
            .output()?;
        ensure!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
        Ok(String::from_utf8(output.stdout)?)
    };
    ensure!(
        render()?.matches("external-managed-kubeconfig ").count() == 1,
        "the stamped one is right: {}",
        render()?
    );
    fs::remove_file(stage.hosted(0))?;
    ensure!(render()?.contains("delete  Secret"), "{}", render()?);
    // If it is more than a copy, the agent leaves the user's file alone and tells the user.
    let output = stage.once()?;
    ensure!(
        code(&output) == Some(1) && stderr(&output).contains("made.yaml, a file of the user"),
        "{}",
        stderr(&output)
    );
    ensure!(made.exists());
    Ok(())
}
