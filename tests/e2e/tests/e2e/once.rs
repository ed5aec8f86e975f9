//! `run --once` and `render`: what they write, what they do not write again, and their exit codes.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use transom_e2e::program::{code, stderr};
use transom_e2e::secret::Secret;
use transom_e2e::stage::{NOW, Stage};
use transom_e2e::tree;
use transom_support::fleet;

/// Indexes of HostedClusters by the state that the generator gives them.
const NOT_AVAILABLE: usize = 3;
const WITHOUT_HOME: usize = 5;

#[test]
fn turns_a_fleet_into_secrets_and_taints() -> Result<()> {
    let stage = Stage::new(10, 12)?;
    let output = stage.once()?;
    ensure!(code(&output) == Some(0), "{}", stderr(&output));
    for index in 0..10 {
        let path = stage.secret(index);
        if [NOT_AVAILABLE, WITHOUT_HOME].contains(&index) {
            ensure!(!path.exists(), "{index} is held or waits");
            continue;
        }
        let (made, source) = (Secret::read(&path)?, Secret::read(&stage.hosted(index))?);
        let managed = fleet::managed_name(index);
        let port = if index % 7 == 1 { 2040 } else { 6443 };
        let server = format!("https://kube-apiserver.clusters-{managed}.svc.cluster.local:{port}");
        ensure!(made.server == server, "{index}: {}", made.server);
        ensure!(
            made.carries(&source),
            "{index}: something else than the server differs from the source"
        );
        ensure!(fs::metadata(&path)?.permissions().mode() & 0o777 == 0o600);
    }
    taints_are_right(&stage)
}

/// `render` shows a ManagedCluster as it exists, with the agent's fields laid over it.
fn taints_are_right(stage: &Stage) -> Result<()> {
    let own = "cluster.open-cluster-management.io/";
    for index in 0..12 {
        let name = if index < 10 {
            fleet::managed_name(index)
        } else {
            format!("edge-{index:05}")
        };
        let patch = fs::read_to_string(stage.patch(&name)).unwrap_or_default();
        let value = patch.split("\n  value:").nth(1);
        match index % 10 {
            2 => ensure!(
                !patch.is_empty() && value.is_none(),
                "{name}: an old taint goes"
            ),
            7 => {
                let value = value.unwrap_or_default();
                ensure!(
                    value.contains("maintenance.example.com/window"),
                    "{name}: a user's taint stays"
                );
                ensure!(
                    value.contains("2026-02-01T04:00:00Z"),
                    "{name}: and keeps its time"
                );
                ensure!(value.contains(&format!("{own}unavailable")), "{name}");
            }
            8 | 9 => ensure!(
                value.is_some_and(|value| value.contains(&format!("{own}unreachable"))),
                "{name}"
            ),
            _ => ensure!(patch.is_empty(), "{name}: nothing to change"),
        }
    }
    Ok(())
}

#[test]
fn a_second_run_writes_nothing() -> Result<()> {
    let stage = Stage::new(6, 10)?;
    ensure!(code(&stage.once()?) == Some(0));
    let (prints, contents) = (tree::prints(&stage.own())?, tree::contents(&stage.fleet)?);
    ensure!(prints.len() > 10);
    // The same at another time: what is written does not depend on the time of the run, before a wait is overdue.
    let again = stage
        .run()?
        .args(["--once", "--now", "2026-11-21T08:01:30Z"])
        .output()?;
    ensure!(code(&again) == Some(0));
    ensure!(
        tree::prints(&stage.own())? == prints,
        "a file was written again"
    );
    ensure!(tree::contents(&stage.fleet)? == contents);
    Ok(())
}

#[test]
fn managed_objects_carry_the_policys_labels_while_it_lists_them() -> Result<()> {
    let stage = Stage::new(1, 0)?;
    let policy =
        |own: &str| stage.put_policy("external-managed-kubeconfig", &[("\n  own:\n", own)]);
    policy(
        "\n  own:\n    labels: {team: blue, tier: gold}\n    annotations: {example.com/note: theirs}\n",
    )?;
    ensure!(code(&stage.once()?) == Some(0));
    let made = fs::read_to_string(stage.secret(0))?;
    ensure!(
        ["team: blue", "tier: gold", "example.com/note: theirs"]
            .iter()
            .all(|text| made.contains(text))
    );
    stage.edit(&stage.secret(0), "team: blue", "team: red\n    users: own")?;
    policy("\n  own:\n    labels: {team: blue}\n")?;
    ensure!(code(&stage.once()?) == Some(0));
    let made = fs::read_to_string(stage.secret(0))?;
    ensure!(
        ["team: blue", "users: own"]
            .iter()
            .all(|text| made.contains(text)),
        "what the user put there is gone"
    );
    ensure!(
        !made.contains("tier: gold") && !made.contains("example.com/note: theirs"),
        "what nobody wants is there"
    );
    policy("\n  own:\n    labels: {transom.dev/policy: other}\n")?;
    let refused = stage.once()?;
    ensure!(code(&refused) == Some(1), "{}", stderr(&refused));
    let told = stderr(&refused) + &String::from_utf8_lossy(&refused.stdout);
    ensure!(
        told.contains(r#"spec.own.labels["transom.dev/policy"]"#),
        "{told}"
    );
    Ok(())
}

#[test]
fn never_changes_files_of_the_user() -> Result<()> {
    let stage = Stage::new(4, 8)?;
    let users = |stage: &Stage| -> Result<_> {
        let mut prints = tree::prints(&stage.fleet)?;
        prints.retain(|path, _| !path.starts_with(".transom"));
        Ok(prints)
    };
    let before = users(&stage)?;
    ensure!(code(&stage.once()?) == Some(0) && users(&stage)? == before);
    Ok(())
}

#[test]
fn one_broken_cluster_fails_alone() -> Result<()> {
    let stage = Stage::new(4, 4)?;
    stage.edit(&stage.hosted(0), "  kubeconfig: ", "  kubeconfig: \"!\" #")?;
    let output = stage.once()?;
    ensure!(code(&output) == Some(1), "{}", stderr(&output));
    ensure!(!stage.secret(0).exists());
    Secret::read(&stage.secret(1))?;
    Secret::read(&stage.secret(2))?;
    let status = fs::read_to_string(stage.hosted_status(0))?;
    ensure!(status.contains("state: Failed"), "{status}");
    ensure!(
        stderr(&output).contains("hosted-00000"),
        "{}",
        stderr(&output)
    );
    Ok(())
}

#[test]
fn a_file_that_does_not_parse_affects_no_other() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    fs::write(
        stage.fleet.join("broken.yaml"),
        "kind: Service\nmetadata: [\n",
    )?;
    let output = stage.once()?;
    ensure!(code(&output) == Some(1), "{}", stderr(&output));
    ensure!(
        stderr(&output).contains("broken.yaml"),
        "{}",
        stderr(&output)
    );
    Secret::read(&stage.secret(0))?;
    Secret::read(&stage.secret(1))?;
    Ok(())
}

#[test]
fn wrong_usage_exits_with_2() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let missing = stage.path("missing");
    let missing = missing.to_string_lossy();
    let fleet = stage.fleet.to_string_lossy().into_owned();
    let wrong: [&[&str]; 7] = [
        &[],
        &["run"],
        &["run", "--dir", &missing],
        &["run", "--dir", &fleet, "--once", "--now", "yesterday"],
        &["run", "--dir", &fleet, "--once", "--policies", &missing],
        &["run", "--dir", &fleet, "--dir", &fleet, "--once"],
        &["render", &missing],
    ];
    for words in wrong {
        let output = stage.transom()?.args(words).output()?;
        ensure!(
            code(&output) == Some(2),
            "{words:?}: {:?} {}",
            code(&output),
            stderr(&output)
        );
        ensure!(!output.stderr.is_empty(), "{words:?} says why");
    }
    Ok(())
}

#[test]
fn a_policy_that_waits_is_told_with_what_it_waits_for() -> Result<()> {
    // The third of them has an old taint.
    let stage = Stage::new(0, 3)?;
    let taints = "built-in-taints";
    let in_mode = |mode: &str| {
        let mode = format!("\nspec:\n  rollout: {{mode: {mode}}}");
        stage.put_policy(taints, &[("\nspec:", &mode)])
    };
    let states = || -> Result<String> {
        let mut command = stage.transom()?;
        command.args(["status", "--dir"]).arg(&stage.fleet);
        let output = command.arg("--policies").arg(&stage.policies).output()?;
        Ok(String::from_utf8(output.stdout)?)
    };
    let is_held = |reason: &str| -> Result<()> {
        let shown = states()?;
        let held = shown.lines().any(|line| {
            line.starts_with("Held ") && line.contains(reason) && line.contains(taints)
        });
        ensure!(held && !shown.contains("WouldApply"), "{shown}");
        Ok(())
    };
    for (mode, told, next) in [
        ("Shadow", "Shadowing", "Set spec.rollout.mode to"),
        (
            "Preview",
            "ApprovalRequired",
            "into the annotation transom.dev/approved in ",
        ),
    ] {
        in_mode(mode)?;
        // Also before an agent has published anything.
        is_held(told)?;
        let output = stage.once()?;
        let said = stderr(&output);
        let line =
            format!("policy {taints}: {told}: the candidate would change something for 1 of 3");
        ensure!(
            code(&output) == Some(0) && said.contains(&line) && said.contains(next),
            "{said}"
        );
        is_held(told)?;
    }
    let approve = stage.policy_field(taints, "/candidate/approve");
    let approve = approve.context("there is no digest to approve")?;
    let approved = format!("\nmetadata:\n  annotations: {{transom.dev/approved: {approve}}}");
    let mode = "\nspec:\n  rollout: {mode: Preview}";
    stage.put_policy(taints, &[("\nmetadata:", &approved), ("\nspec:", mode)])?;
    let output = stage.once()?;
    ensure!(
        !stderr(&output).contains("ApprovalRequired"),
        "{}",
        stderr(&output)
    );
    let shown = states()?;
    ensure!(
        !shown.contains("Held") && !shown.contains("WouldApply"),
        "{shown}"
    );
    Ok(())
}

#[test]
fn render_shows_changes_and_writes_nothing() -> Result<()> {
    let stage = Stage::new(4, 10)?;
    let before = tree::prints(&stage.fleet)?;
    let render = |words: &[&str]| -> Result<Output> {
        Ok(stage
            .transom()?
            .arg("render")
            .arg(&stage.fleet)
            .args(["--now", NOW])
            .args(words)
            .output()?)
    };
    let output = render(&["-o", "json", "--exit-code"])?;
    ensure!(code(&output) == Some(3), "{}", stderr(&output));
    let list: Value = serde_json::from_slice(&output.stdout)?;
    let kinds = |kind: &str| {
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        items.iter().filter(|item| item["kind"] == kind).count()
    };
    ensure!(
        (kinds("Secret"), kinds("ManagedCluster")) == (3, 4),
        "{} {}",
        kinds("Secret"),
        kinds("ManagedCluster")
    );
    ensure!(
        tree::prints(&stage.fleet)? == before,
        "render wrote something"
    );
    ensure!(code(&stage.once()?) == Some(0));
    let output = render(&["--diff", "--exit-code"])?;
    ensure!(
        code(&output) == Some(0) && output.stdout.is_empty(),
        "{}",
        stderr(&output)
    );
    Ok(())
}
