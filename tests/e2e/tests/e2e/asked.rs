//! `transom status` on a folder: states and reasons, failures first, and nothing written.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;
use transom_e2e::program::{code, stderr, stdout};
use transom_e2e::stage::{NOW, Stage};
use transom_e2e::tree;
use transom_support::fleet;

const POLICY: &str = "external-managed-kubeconfig";

fn ask(stage: &Stage, words: &[&str]) -> Result<Output> {
    let mut transom = stage.transom()?;
    Ok(transom
        .arg("status")
        .arg("--dir")
        .arg(&stage.fleet)
        .args(["--now", NOW])
        .args(words)
        .output()?)
}

fn rows(stage: &Stage, words: &[&str]) -> Result<Vec<Value>> {
    let output = ask(stage, &[words, &["-o", "json"]].concat())?;
    let rows: Value = serde_json::from_slice(&output.stdout).with_context(|| stderr(&output))?;
    rows.as_array().cloned().context("no list")
}

/// A primary without its source, a suspended one, a waiting one, and some with pending writes.
fn stage() -> Result<Stage> {
    let stage = Stage::new(6, 6)?;
    let source = fs::read_to_string(stage.hosted(0))?;
    let kept: Vec<&str> = source
        .split("\n---\n")
        .filter(|document| !document.contains("kind: Secret"))
        .collect();
    ensure!(
        kept.len() < source.split("\n---\n").count(),
        "the fleet has no source"
    );
    fs::write(stage.hosted(0), kept.join("\n---\n"))?;
    Ok(stage)
}

#[test]
fn a_table_of_all_primaries_lists_failures_first_and_writes_nothing() -> Result<()> {
    let stage = stage()?;
    let before = tree::contents(&stage.fleet)?;
    let output = ask(&stage, &[])?;
    ensure!(
        code(&output) == Some(1),
        "a primary failed: {}",
        stderr(&output)
    );
    let order = ["Failed", "Waiting", "Held", "WouldApply", "Applied"];
    let states: Vec<String> = rows(&stage, &[])?
        .iter()
        .map(|row| row["state"].as_str().unwrap_or("-").to_owned())
        .collect();
    let places: Vec<usize> = states
        .iter()
        .filter_map(|state| order.iter().position(|known| known == state))
        .collect();
    ensure!(
        places.len() == states.len() && places.is_sorted(),
        "{states:?}"
    );
    for state in order {
        ensure!(
            states.iter().any(|known| known == state),
            "none is {state}: {states:?}"
        );
        ensure!(
            stdout(&output).lines().any(|line| line.starts_with(state)),
            "{}",
            stdout(&output)
        );
    }
    ensure!(
        tree::contents(&stage.fleet)? == before && !stage.own().exists(),
        "something was written"
    );
    Ok(())
}

#[test]
fn one_primary_is_shown_with_inputs_decision_plan_and_remedy() -> Result<()> {
    let stage = stage()?;
    let missing = format!("clusters/{}", fleet::hosted_name(0));
    let told = stdout(&ask(&stage, &["HostedCluster", &missing])?);
    for wanted in [
        "Failed SourceMissing",
        "to do ",
        "-admin-kubeconfig",
        "absent",
        "decision   none",
        "plan       nothing",
    ] {
        ensure!(told.contains(wanted), "`{wanted}` is not told: {told}");
    }
    let good = format!("clusters/{}", fleet::hosted_name(1));
    let row = rows(&stage, &["hostedcluster", &good])?
        .pop()
        .context("no row")?;
    ensure!(
        row["state"] == "WouldApply" && row["policy"] == POLICY,
        "{row:#}"
    );
    let roles: Vec<_> = row["inputs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|input| (&input["role"], &input["present"]))
        .collect();
    for (role, present) in [
        ("primary", true),
        ("source", true),
        ("service", true),
        ("home", true),
        ("target", false),
    ] {
        ensure!(
            roles
                .iter()
                .any(|(name, is)| **name == role && **is == present),
            "{role}: {roles:?}"
        );
    }
    ensure!(
        row["inputs"][0]["version"]
            .as_str()
            .is_some_and(|version| !version.is_empty()),
        "{row:#}"
    );
    ensure!(
        row["decision"]["servers"][0]
            .as_str()
            .is_some_and(|server| server.starts_with("https://kube-apiserver."))
    );
    ensure!(
        row["plan"][0]["action"] == "create" && row["plan"][0]["manifest"]["kind"] == "Secret",
        "{row:#}"
    );
    let tainted = rows(&stage, &["ManagedCluster", &fleet::managed_name(2)])?
        .pop()
        .context("no row")?;
    ensure!(
        tainted["plan"][0]["fields"].get("spec.taints").is_some(),
        "{tainted:#}"
    );
    for (kind, said) in [
        ("HostedCluster", "no policy has such a primary"),
        ("Widget", "is HostedCluster of"),
    ] {
        let nobody = ask(&stage, &[kind, "clusters/nobody"])?;
        ensure!(
            code(&nobody) == Some(2) && stderr(&nobody).contains(said),
            "{}",
            stderr(&nobody)
        );
    }
    Ok(())
}

#[test]
fn since_comes_from_the_agents_report_and_no_credential_is_shown() -> Result<()> {
    let stage = stage()?;
    ensure!(code(&stage.once()?) == Some(1));
    let missing = format!("clusters/{}", fleet::hosted_name(0));
    let row = rows(&stage, &["HostedCluster", &missing])?
        .pop()
        .context("no row")?;
    ensure!(
        row["since"] == NOW && row["reported"]["reason"] == "SourceMissing",
        "{row:#}"
    );
    let all = rows(&stage, &[])?;
    ensure!(
        all.iter()
            .all(|row| row["plan"].as_array().is_some_and(Vec::is_empty)),
        "all was written before"
    );
    // What would be written again is shown without its hidden values.
    let secret = fs::read_to_string(stage.secret(1))?;
    let data = secret
        .lines()
        .find_map(|line| line.trim().strip_prefix("kubeconfig: "))
        .context("no kubeconfig")?
        .to_owned();
    fs::remove_file(stage.secret(1))?;
    for form in ["table", "json", "yaml"] {
        for words in [
            vec![],
            vec![
                "HostedCluster".to_owned(),
                format!("clusters/{}", fleet::hosted_name(1)),
            ],
        ] {
            let mut all: Vec<&str> = words.iter().map(String::as_str).collect();
            all.extend(["-o", form]);
            let shown = stdout(&ask(&stage, &all)?);
            ensure!(
                shown.contains("WouldApply"),
                "{form}: nothing is to be written"
            );
            ensure!(
                !shown.contains(&data[200..260]) && !shown.contains("PRIVATE KEY"),
                "{form}: a credential is shown"
            );
        }
    }
    // It announces no next write for an object that the running agent has given up on.
    let status = fs::read_to_string(stage.hosted_status(1))?;
    let given_up = status
        .replace("state: Applied", "state: Failed")
        .replace("reason: InSync", "reason: Contended");
    fs::write(stage.hosted_status(1), given_up)?;
    let row = rows(
        &stage,
        &[
            "HostedCluster",
            &format!("clusters/{}", fleet::hosted_name(1)),
        ],
    )?
    .pop()
    .context("no row")?;
    ensure!(
        row["state"] == "Failed"
            && row["reason"] == "Contended"
            && row["plan"][0]["action"] == "create",
        "{row:#}"
    );
    ensure!(
        row["remedy"]
            .as_str()
            .is_some_and(|remedy| !remedy.is_empty()),
        "{row:#}"
    );
    // It does not wait for a status that a user wrote.
    fs::remove_file(stage.hosted_status(0))?;
    symlink("/dev/stdin", stage.hosted_status(0))?;
    let row = rows(&stage, &["HostedCluster", &missing])?
        .pop()
        .context("no row")?;
    ensure!(
        row.get("reported").is_none() && row["reason"] == "SourceMissing",
        "{row:#}"
    );
    Ok(())
}

#[test]
fn a_restart_shortens_no_wait() -> Result<()> {
    let stage = stage()?;
    stage.once()?;
    let status = || fs::read_to_string(stage.policy_status(POLICY));
    ensure!(
        status()?.contains(&format!("since: {NOW}"))
            || status()?.contains(&format!("since: \"{NOW}\"")),
        "{}",
        status()?
    );
    ensure!(
        status()?.contains("overdue: 0") && !status()?.contains("overdue: 1"),
        "{}",
        status()?
    );
    let day = NOW.replace("2026-11-21", "2026-11-22");
    ensure!(day != NOW && code(&stage.run()?.args(["--once", "--now", &day]).output()?) == Some(1));
    ensure!(status()?.contains("overdue: 1"), "{}", status()?);
    Ok(())
}
