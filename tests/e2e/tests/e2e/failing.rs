//! A guest that fails for some primaries: the others go on, and what was applied for these is held, stale after a
//! while, or taken back within the limits. Each run is a process of its own, so that the time goes on from what is
//! kept.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use transom_conformance::fixture::taints_component;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_support::fleet::hosted_name;

const POLICY: &str = "external-managed-kubeconfig";
const TAINTS: &str = "built-in-taints";
const CLUSTERS: usize = 8;
/// In the status of a HostedCluster for which the guest traps.
const TRAP: &str = "trap.example.com";

/// A fleet under a guest that traps where it finds [`TRAP`], after its secrets were made.
struct Fleet {
    stage: Stage,
    /// The HostedClusters with a secret.
    made: Vec<usize>,
}

impl Fleet {
    fn new(on_failure: &Value, more: &Value) -> Result<Self> {
        let mut fleet = Self {
            stage: Stage::new(CLUSTERS, 0)?,
            made: Vec::new(),
        };
        // The guest knows no other port.
        for at in 0..CLUSTERS {
            fleet.stage.set_port(at, 6443)?;
        }
        fleet.put_policy(on_failure, more)?;
        let component = program::component("fixture-answers")?;
        put(&fleet.stage.policies.join("answers.wasm"), &component)?;
        fleet.run("2026-11-21T08:00:00Z")?;
        fleet.made = (0..CLUSTERS)
            .filter(|at| fleet.stage.secret(*at).exists())
            .collect();
        ensure!(fleet.made.len() >= 3, "{:?}", fleet.made);
        Ok(fleet)
    }

    fn put_policy(&self, on_failure: &Value, more: &Value) -> Result<()> {
        let mut policy = program::manifest(POLICY)?;
        let spec = &mut policy["spec"];
        spec["guests"]["decide"] =
            json!({"component": "answers.wasm", "settings": {"ask": "Panics", "only": TRAP}});
        spec["onFailure"] = on_failure.clone();
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let path = self.stage.policies.join("policy.yaml");
        put(&path, policy.to_string().as_bytes())
    }

    /// Runs once at a time. A failed primary is no success.
    fn run(&self, now: &str) -> Result<()> {
        let output = self.stage.run()?.args(["--once", "--now", now]).output()?;
        ensure!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        Ok(())
    }

    /// Has the guest trap for a HostedCluster, or no longer.
    fn trap(&self, at: usize, traps: bool) -> Result<()> {
        let path = self.stage.hosted(at);
        let good = "controlPlaneEndpoint:\n    host: ";
        let bad = format!("{good}{TRAP}.");
        match traps {
            true => self.stage.edit(&path, good, &bad),
            false => self.stage.edit(&path, &bad, good),
        }
    }

    fn yaml(path: &Path) -> Result<Value> {
        let text = fs::read_to_string(path)?;
        serde_yaml::from_str(&text).with_context(|| format!("no YAML: {text}"))
    }

    /// Reason, since when the guest fails, and when that expires.
    fn primary(&self, at: usize) -> Result<(String, Option<String>, Option<String>)> {
        let status = Self::yaml(&self.stage.hosted_status(at))?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let reason = text(&status["conditions"][0]["reason"]).context("no reason")?;
        Ok((
            reason,
            text(&status["failingSince"]),
            text(&status["expires"]),
        ))
    }

    fn status(&self) -> Result<Value> {
        Self::yaml(&self.stage.policy_status(POLICY))
    }

    /// A condition of the policy: status and reason.
    fn condition(&self, kind: &str) -> Result<Option<(String, String)>> {
        let status = self.status()?;
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        let one = all.into_iter().find(|one| one["type"] == kind);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(one.map(|one| (text(&one["status"]), text(&one["reason"]))))
    }

    fn secrets(&self) -> usize {
        let there = self
            .made
            .iter()
            .filter(|at| self.stage.secret(**at).exists());
        there.count()
    }
}

fn some(reason: &str, since: &str, expires: &str) -> (String, Option<String>, Option<String>) {
    (
        reason.to_owned(),
        Some(since.to_owned()),
        Some(expires.to_owned()),
    )
}

#[test]
fn what_was_applied_is_held_where_the_guest_fails_and_stale_after_a_day() -> Result<()> {
    let fleet = Fleet::new(&json!({}), &json!({}))?;
    let (bad, good) = (fleet.made[0], fleet.made[1]);
    let before = fs::read(fleet.stage.secret(bad))?;
    fleet.trap(bad, true)?;
    fs::remove_file(fleet.stage.secret(good))?;
    fleet.run("2026-11-21T09:00:00Z")?;
    let (since, expires) = ("2026-11-21T09:00:00Z", "2026-11-22T09:00:00Z");
    ensure!(
        fleet.primary(bad)? == some("GuestTrapped", since, expires),
        "{:?}",
        fleet.primary(bad)?
    );
    ensure!(fleet.primary(good)?.0 == "InSync" && fleet.secrets() == fleet.made.len());
    let failing = json!({"primaries": 1, "expired": 0, "since": since, "expires": expires});
    ensure!(fleet.status()?["failing"] == failing, "{}", fleet.status()?);
    fleet.run("2026-11-22T08:59:59Z")?;
    ensure!(fleet.primary(bad)? == some("GuestTrapped", since, expires));
    fleet.run(expires)?;
    ensure!(
        fleet.primary(bad)? == some("Stale", since, expires),
        "{:?}",
        fleet.primary(bad)?
    );
    let failing = json!({"primaries": 1, "expired": 1, "since": since});
    ensure!(fleet.status()?["failing"] == failing, "{}", fleet.status()?);
    ensure!(fleet.condition("Ready")? == Some(("False".to_owned(), "Stale".to_owned())));
    ensure!(
        fs::read(fleet.stage.secret(bad))? == before,
        "it was touched"
    );
    // `transom status` knows it, too, and says what to do.
    let said = fleet
        .stage
        .transom()?
        .args(["status", "--now", expires, "--dir"])
        .arg(&fleet.stage.fleet)
        .arg("--policies")
        .arg(&fleet.stage.policies)
        .output()?;
    let said = String::from_utf8(said.stdout)?;
    let line = said
        .lines()
        .find(|line| line.contains(&hosted_name(bad)))
        .unwrap_or_default();
    ensure!(
        line.starts_with("Failed") && line.contains("Stale") && line.contains("GuestTrapped"),
        "{said}"
    );
    fleet.trap(bad, false)?;
    fleet.run("2026-11-22T10:00:00Z")?;
    ensure!(fleet.primary(bad)? == ("InSync".to_owned(), None, None));
    ensure!(fleet.status()?["failing"].is_null());
    // A new failure has a time of its own.
    fleet.trap(bad, true)?;
    fleet.run("2026-11-22T11:00:00Z")?;
    ensure!(fleet.primary(bad)?.0 == "GuestTrapped");
    Ok(())
}

#[test]
fn what_was_made_is_taken_back_after_the_time_and_made_again_when_the_guest_answers() -> Result<()>
{
    let withdraw = json!({"mode": "Withdraw", "staleAfterSeconds": 3600});
    let fleet = Fleet::new(&withdraw, &json!({}))?;
    let bad = fleet.made[0];
    fleet.trap(bad, true)?;
    for now in ["2026-11-21T09:00:00Z", "2026-11-21T09:59:59Z"] {
        fleet.run(now)?;
        ensure!(fleet.primary(bad)?.0 == "GuestTrapped" && fleet.secrets() == fleet.made.len());
    }
    for now in ["2026-11-21T10:00:00Z", "2026-11-21T12:00:00Z"] {
        fleet.run(now)?;
        ensure!(
            fleet.primary(bad)?.0 == "Withdrawn",
            "{:?}",
            fleet.primary(bad)?
        );
        ensure!(!fleet.stage.secret(bad).exists() && fleet.secrets() == fleet.made.len() - 1);
    }
    fleet.trap(bad, false)?;
    fleet.run("2026-11-21T13:00:00Z")?;
    ensure!(fleet.primary(bad)?.0 == "InSync" && fleet.secrets() == fleet.made.len());
    Ok(())
}

#[test]
fn a_guest_that_fails_for_all_takes_back_no_more_than_the_limit_until_that_is_approved()
-> Result<()> {
    let withdraw = json!({"mode": "Withdraw", "staleAfterSeconds": 0});
    let limits = json!({"limits": {"objectsPruned": {"count": 1}}});
    let fleet = Fleet::new(&withdraw, &limits)?;
    for at in &fleet.made {
        fleet.trap(*at, true)?;
    }
    for now in ["2026-11-21T09:00:00Z", "2026-11-21T12:00:00Z"] {
        fleet.run(now)?;
        ensure!(
            fleet.secrets() == fleet.made.len() - 1,
            "{}",
            fleet.status()?
        );
    }
    let withheld = fleet.made.len() - 1;
    let status = fleet.status()?;
    ensure!(status["limits"]["withheld"] == withheld, "{status}");
    ensure!(
        status["failing"]["primaries"] == fleet.made.len(),
        "{status}"
    );
    let path = fleet.stage.policies.join("policy.yaml");
    let mut policy = Fleet::yaml(&path)?;
    policy["metadata"]["annotations"] =
        json!({"transom.dev/approved": status["limits"]["approve"]});
    put(&path, policy.to_string().as_bytes())?;
    fleet.run("2026-11-21T12:00:00Z")?;
    ensure!(fleet.secrets() == 0, "{}", fleet.status()?);
    Ok(())
}

#[test]
fn a_policy_that_is_to_fail_is_stalled_at_once_and_keeps_its_output() -> Result<()> {
    let fleet = Fleet::new(&json!({"mode": "Fail"}), &json!({}))?;
    ensure!(fleet.condition("Stalled")?.is_none());
    fleet.trap(fleet.made[0], true)?;
    fleet.run("2026-11-21T09:00:00Z")?;
    let is = |status: &str| Some((status.to_owned(), "GuestTrapped".to_owned()));
    ensure!(fleet.condition("Stalled")? == is("True") && fleet.condition("Ready")? == is("False"));
    // Never stale.
    fleet.run("2027-11-21T09:00:00Z")?;
    ensure!(fleet.primary(fleet.made[0])?.0 == "GuestTrapped");
    ensure!(fleet.secrets() == fleet.made.len());
    Ok(())
}

#[test]
fn nothing_is_taken_back_while_only_an_input_is_missing() -> Result<()> {
    let fleet = Fleet::new(
        &json!({"mode": "Withdraw", "staleAfterSeconds": 0}),
        &json!({}),
    )?;
    let bad = fleet.made[0];
    // The guest says that it lacks its source.
    let text = fs::read_to_string(fleet.stage.hosted(bad))?;
    let (kept, _) = text.split_once("\nkind: Secret").context("no Secret")?;
    let (kept, _) = kept.rsplit_once("---").context("no document")?;
    let rest = text
        .split("---")
        .filter(|one| !one.contains("kind: Secret") && !kept.contains(*one));
    let all: Vec<&str> = std::iter::once(kept).chain(rest).collect();
    put(&fleet.stage.hosted(bad), all.join("---").as_bytes())?;
    for now in ["2026-11-21T09:00:00Z", "2026-12-21T09:00:00Z"] {
        fleet.run(now)?;
        let (reason, since, _) = fleet.primary(bad)?;
        ensure!(reason == "NothingGiven" && since.is_none(), "{reason}");
        ensure!(fleet.secrets() == fleet.made.len());
    }
    Ok(())
}

#[test]
fn owned_taints_are_taken_back_and_those_of_others_stay() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    // A guest that traps for long names.
    let name = "a-cluster-with-a-name-of-more-than-forty-bytes";
    let cluster = format!(
        "apiVersion: cluster.open-cluster-management.io/v1\nkind: ManagedCluster\nmetadata: {{name: {name}}}\n\
         spec: {{hubAcceptsClient: true, taints: [{{key: theirs, effect: NoSelect}}]}}\nstatus:\n  conditions:\n  \
         - {{type: HubAcceptedManagedCluster, status: \"True\", reason: R, message: m, lastTransitionTime: \"2026-01-01T00:00:00Z\"}}\n  \
         - {{type: ManagedClusterConditionAvailable, status: Unknown, reason: R, message: m, lastTransitionTime: \"2026-01-01T00:00:00Z\"}}\n"
    );
    put(&stage.managed(name), cluster.as_bytes())?;
    let run = |now: &str, on_failure: &Value| {
        let mut policy = program::manifest(TAINTS)?;
        policy["spec"]["guests"]["decide"]["component"] = json!("decide.wasm");
        policy["spec"]["onFailure"] = on_failure.clone();
        put(
            &stage.policies.join("policy.yaml"),
            policy.to_string().as_bytes(),
        )?;
        let output = stage.run()?.args(["--once", "--now", now]).output()?;
        ensure!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        stage.taints(name)
    };
    put(
        &stage.policies.join("decide.wasm"),
        &program::component("taints")?,
    )?;
    let tainted = run("2026-11-21T08:00:00Z", &json!({}))?;
    ensure!(tainted.len() == 2 && tainted[0] == "theirs", "{tainted:?}");
    // A candidate that traps would be refused; the first revision of a policy is not tried.
    fs::remove_dir_all(stage.own().join("objects/transom"))?;
    let trapping = taints_component(
        r#"(func (export "transom:policy/guest@0.1.0#validate") (param i32 i32) (result i32) (i32.const 1024))
        (func (export "transom:policy/taints@0.1.0#compute") (param i32) (result i32) (unreachable))"#,
    )?;
    put(&stage.policies.join("decide.wasm"), &trapping)?;
    ensure!(run("2026-11-21T09:00:00Z", &json!({}))? == tainted);
    let withdraw = json!({"mode": "Withdraw", "staleAfterSeconds": 3600});
    ensure!(run("2026-11-21T09:30:00Z", &withdraw)? == tainted);
    ensure!(run("2026-11-21T10:00:00Z", &withdraw)? == ["theirs"]);
    Ok(())
}

#[test]
fn a_running_agent_follows_a_change_of_the_time_at_once() -> Result<()> {
    let fleet = Fleet::new(&json!({}), &json!({}))?;
    let bad = fleet.made[0];
    fleet.trap(bad, true)?;
    let agent = fleet.stage.watch()?;
    let status = fleet.stage.hosted_status(bad);
    fleet.stage.wait_for_text(&status, "reason: GuestTrapped")?;
    fleet.put_policy(&json!({"staleAfterSeconds": 0}), &json!({}))?;
    fleet.stage.wait_for_text(&status, "reason: Stale")?;
    ensure!(fleet.stage.secret(bad).exists());
    fleet.put_policy(
        &json!({"mode": "Withdraw", "staleAfterSeconds": 0}),
        &json!({}),
    )?;
    fleet.stage.wait_for_text(&status, "reason: Withdrawn")?;
    ensure!(!fleet.stage.secret(bad).exists());
    agent.stop()?;
    Ok(())
}
