//! What a person puts into the folder or on the command line by mistake: nothing is lost by it, and it is told.

use crate::ended::{code, stderr};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::process::Command;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::stage::{NOW, Stage, put};
use transom_support::wait;

/// What makes a manifest one that cannot be read.
const GARBAGE: &str = "\n---\nx: {{{\n";

#[test]
fn a_policy_among_the_manifests_is_an_object_like_any_other() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    let agent = stage.watch()?;
    stage.wait_for_secret(0, "the first secret", |_| true)?;
    let policy = program::policy("built-in-taints");
    put(&stage.fleet.join("policy.yaml"), &fs::read(policy)?)?;
    // The agent has seen it by the time that it follows a change that came later.
    stage.edit(&stage.hosted(0), "port: 6443\n    protocol", "port: 7443\n    protocol")?;
    stage.wait_for_secret(0, "the new port", |secret| secret.server.ends_with(":7443"))?;
    ensure!(stage.policy_status("built-in-taints").exists(), "the policies were removed");
    let log = agent.stop()?;
    ensure!(!log.contains("removed"), "{log}");
    Ok(())
}

#[test]
fn what_cannot_be_read_at_the_start_is_not_taken_for_gone() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    ensure!(code(&stage.once()?) == Some(0));
    let (secret, whole) = (fs::read(stage.secret(0))?, fs::read(stage.hosted(0))?);
    let broken = [whole.as_slice(), GARBAGE.as_bytes()].concat();
    put(&stage.hosted(0), &broken)?;
    let output = stage.once()?;
    ensure!(code(&output) == Some(1) && stderr(&output).contains("ReadFailed"), "{}", stderr(&output));
    ensure!(fs::read(stage.secret(0))? == secret, "it was deleted or written");
    // Once all can be read again, what is gone is gone.
    let agent = stage.watch()?;
    stage.wait_for_text(&stage.hosted_status(0), "ReadFailed")?;
    fs::remove_file(stage.hosted(0))?;
    stage.wait_for_end(&stage.secret(0))?;
    agent.stop()?;
    Ok(())
}

#[test]
fn fields_of_ours_that_somebody_takes_away_come_back() -> Result<()> {
    let stage = Stage::new(0, 10)?;
    let (agent, name) = (stage.watch()?, "edge-00008");
    let patch = stage.patch(name);
    let tainted =
        |name: &str, what: &str| wait::until(what, DEADLINE, || (stage.taints(name).ok()?.len() == 1).then_some(()));
    tainted(name, "the taint")?;
    fs::remove_file(&patch)?;
    tainted(name, "the taint after its file was removed")?;
    put(&patch, GARBAGE.as_bytes())?;
    tainted(name, "the taint after its file was garbled")?;
    fs::remove_dir_all(stage.own().join("patches"))?;
    tainted("edge-00009", "the taint of another one after the folder was removed")?;
    // What is taken away three times is somebody else's wish.
    stage.wait_for_text(
        &stage.own().join(format!("status/built-in-taints/_cluster.{name}.yaml")),
        "reason: Contended",
    )?;
    agent.stop()?;
    Ok(())
}

#[test]
fn wrong_use_is_told_and_does_nothing() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let (dir, file) = (stage.fleet.display().to_string(), stage.hosted(0).display().to_string());
    let empty = stage.path("empty");
    fs::create_dir_all(&empty)?;
    let empty = empty.display().to_string();
    for (words, named) in [
        (vec!["run", "--once", "--dir", &file], "it is no folder"),
        (vec!["run", "--once", "--dir", &dir, "--read-only"], "--read-only"),
        (vec!["run", "--once", "--dir", &dir, "--policy-objects"], "--policy-objects"),
        (vec!["run", "--context", "hub=there", "--policy-objects"], "the API server `local`, and none is connected"),
        (vec!["run", "--once", "--dir", &dir, "--policies", &empty], "failed to find a policy"),
        (vec!["render", &dir, "--policies", &empty], "failed to find a policy"),
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
fn a_policy_that_cannot_work_here_says_why() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let named = format!("hosting={}", stage.fleet.display());
    let output = stage.transom()?.args(["run", "--once", "--dir", &named]).output()?;
    ensure!(code(&output) == Some(1), "{:?}", code(&output));
    ensure!(stderr(&output).contains("spec.primary.cluster: there is no connection `local`"), "{}", stderr(&output));
    put(&stage.policies.join("broken.yaml"), b"{{{")?;
    ensure!(Command::new("mkfifo").arg(stage.policies.join("pipe.yaml")).status()?.success());
    let output = stage.once()?;
    ensure!(code(&output) == Some(1), "{:?}", code(&output));
    for told in ["broken.yaml, document 1: ManifestInvalid", "pipe.yaml: ManifestInvalid: it is not a regular file"] {
        ensure!(stderr(&output).contains(told), "{}", stderr(&output));
    }
    Ok(())
}

#[test]
fn output_that_is_lost_is_a_failure_and_a_json_log_is_json() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    let full = OpenOptions::new().write(true).open("/dev/full")?;
    let output = stage.transom()?.arg("render").arg(&stage.fleet).stdout(full).output()?;
    ensure!(code(&output) == Some(1), "{:?}", code(&output));
    ensure!(stderr(&output).contains("failed to write to standard output"), "{}", stderr(&output));
    put(&stage.fleet.join("broken.yaml"), GARBAGE.as_bytes())?;
    let output = stage.run()?.args(["--once", "--now", NOW, "--log-format", "json"]).output()?;
    ensure!(code(&output) == Some(1));
    for line in stderr(&output).lines() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        ensure!(line["message"].is_string() && line["timestamp"].is_string(), "{line}");
    }
    Ok(())
}

/// A file as `kubectl get --output yaml` writes it holds what the agent made, too.
#[test]
fn what_bears_our_stamp_is_ours_wherever_it_stands() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    ensure!(code(&stage.once()?) == Some(0));
    let made = stage.fleet.join("made.yaml");
    fs::rename(stage.secret(0), &made)?;
    fs::remove_dir_all(stage.own())?;
    let render = || -> Result<String> {
        let output =
            stage.transom()?.arg("render").arg(&stage.fleet).args(["--now", NOW, "--output", "table"]).output()?;
        ensure!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
        Ok(String::from_utf8(output.stdout)?)
    };
    ensure!(render()?.matches("external-managed-kubeconfig ").count() == 1, "the stamped one is right: {}", render()?);
    fs::remove_file(stage.hosted(0))?;
    ensure!(render()?.contains("delete  Secret"), "{}", render()?);
    // And when it is not only shown, a file of the user is left alone, and the user is told.
    let output = stage.once()?;
    ensure!(
        code(&output) == Some(1) && stderr(&output).contains("made.yaml, a file of the user"),
        "{}",
        stderr(&output)
    );
    ensure!(made.exists());
    Ok(())
}
