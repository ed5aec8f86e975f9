//! The history of a policy on a real API server: how much of it is kept, which revision `transom rollback --to` goes
//! back to, and that an approval counts for one candidate only.

use crate::components::{PARTS, SOURCES};
use crate::limits::TAINTS;
use crate::policies::POLICY;
use crate::rollout::{TEAM, said};
use crate::stage::{DEADLINE, HOME, MANAGED, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use transom_conformance::fixture::trapping;
use transom_e2e::program;
use transom_test_cluster::{User, wait};

const NAME: &str = "external-managed-kubeconfig";
/// The digest of a plan that nobody made.
const OTHER: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
/// The longest name for which the guest does not trap.
const LONGEST: usize = 40;

impl Stage {
    /// Gives the guest of the policy other settings, and waits until it works with them; returns the revision.
    async fn settle(&self, settings: Value) -> Result<String> {
        let change = json!({"spec": {"guests": {"decide": {"settings": settings}}}});
        self.patch(POLICY, None, TAINTS, change).await?;
        self.wait_for_newest().await
    }

    /// Waits until the newest manifest is the active revision; returns that.
    async fn wait_for_newest(&self) -> Result<String> {
        wait::until("the newest as the active revision", DEADLINE, async || {
            let policy = self.get(POLICY, None, TAINTS).await?;
            let policy = policy.context("the policy is gone")?;
            let (status, now) = (&policy["status"], &policy["metadata"]["generation"]);
            let is_active = status["observedGeneration"] == *now
                && status["revision"]["generation"] == *now
                && status["candidate"].is_null();
            let id = status["revision"]["id"].as_str().map(str::to_owned);
            Ok(id.filter(|_| is_active))
        })
        .await
    }

    /// Waits until a revision is active.
    async fn wait_for_revision(&self, id: &str) -> Result<()> {
        wait::until("another active revision", DEADLINE, async || {
            let status = self.status_of_taints().await?;
            Ok((status["revision"]["id"] == id).then_some(()))
        })
        .await
    }

    /// What `transom history` says about the policy.
    fn history(&self, user: &User) -> Result<Vec<Value>> {
        let output = self.transom_as(user, &["history", TAINTS, "-o", "json"])?;
        ensure!(output.status.success(), "{}", said(&output));
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Waits until the effect of the taint of a cluster is this one.
    async fn wait_for_effect(&self, effect: &str) -> Result<()> {
        wait::until(&format!("the effect {effect}"), DEADLINE, async || {
            let taints = self.taints_of("a").await?;
            Ok((taints.len() == 1 && taints[0]["effect"] == effect).then_some(()))
        })
        .await
    }

    /// Has a revision become active that fails then, and waits until it is barred.
    async fn bar_one(&self) -> Result<()> {
        self.hold_components().await?;
        self.put_component("traps", &trapping(LONGEST)?).await?;
        let component =
            |component: &str| json!({"spec": {"guests": {"decide": {"component": component}}}});
        let traps = component(&format!("configmap:{PARTS}/traps/k"));
        self.patch(POLICY, None, TAINTS, traps).await?;
        self.wait_for_tainted(0).await?;
        let long = "x".repeat(LONGEST + 1);
        self.managed(&long).await?;
        self.set_available(&long, "Unknown").await?;
        wait::until("the bar of the failed revision", DEADLINE, async || {
            let kept = self.revisions(TAINTS).await?;
            Ok(kept.iter().any(|(_, why)| why.is_some()).then_some(()))
        })
        .await?;
        self.delete(MANAGED, None, &long).await?;
        self.patch(POLICY, None, TAINTS, component("builtin:taints"))
            .await?;
        self.wait_for_newest().await.map(drop)
    }
}

fn digest(record: &Value) -> &str {
    record["digest"].as_str().unwrap_or_default()
}

/// What a digest has in common with that of another record at its beginning.
fn common(all: &[Value]) -> Option<&str> {
    let first = |record: &'_ Value| Some(digest(record).get(.."sha256:".len() + 1)?.to_owned());
    let twice = |record: &&Value| {
        let same = all.iter().filter(|other| first(other) == first(record));
        same.count() > 1
    };
    digest(all.iter().find(twice)?).get(..="sha256:".len())
}

#[test]
fn a_rollback_goes_to_the_one_revision_that_is_named_or_says_why_not() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.lift_limits(TAINTS).await?;
        stage.managed("a").await?;
        stage.set_available("a", "Unknown").await?;
        let owner = stage.person("owner", true).await?;
        let many = json!({"spec": {"rollout": {"history": 20}}});
        stage.patch(POLICY, None, TAINTS, many).await?;
        let flags = ["--policy-objects", "--lease-namespace", HOME];
        let agent = stage.start_agent(&[&flags[..], &["--sources", SOURCES]].concat())?;
        stage.wait_for_effect("NoSelect").await?;
        stage.bar_one().await?;
        let soft = json!({"unreachable": {"effect": "PreferNoSelect"}});
        let soft = stage.settle(soft).await?;
        stage.wait_for_effect("PreferNoSelect").await?;
        // Sixteen digits: two of seventeen revisions begin alike.
        let mut last = String::new();
        let mut all = stage.history(&owner)?;
        for seconds in 1..=16 {
            if !last.is_empty() && common(&all).is_some() {
                break;
            }
            let grace =
                json!({"unreachable": null, "unavailable": {"gracePeriodSeconds": seconds}});
            last = stage.settle(grace).await?;
            all = stage.history(&owner)?;
        }
        stage.wait_for_effect("NoSelect").await?;
        let alike = common(&all).context("no two revisions begin alike")?;
        let find = |wanted: &dyn Fn(&Value) -> bool| all.iter().find(|one| wanted(one));
        let barred = find(&|one| one["state"] == "barred").context("none is barred")?;
        let full = find(&|one| one["revision"] == soft.as_str()).context("it is not kept")?;
        let go = |to: &str| stage.transom_as(&owner, &["rollback", TAINTS, "--to", to]);
        let generation = async || {
            let policy = stage.get(POLICY, None, TAINTS).await?;
            anyhow::Ok(policy.context("the policy is gone")?["metadata"]["generation"].take())
        };
        let before = generation().await?;
        for (to, words) in [
            (alike, ["several begin with", alike]),
            (digest(barred), ["it is barred", "GuestTrapped"]),
            (
                "0123456789abcdef",
                [
                    "failed to find the revision",
                    "transom history built-in-taints",
                ],
            ),
            (
                "",
                [
                    "failed to find the revision",
                    "transom history built-in-taints",
                ],
            ),
        ] {
            let output = go(to)?;
            let why = said(&output);
            let is_clear = words.iter().all(|word| why.contains(word));
            ensure!(!output.status.success() && is_clear, "{to}: {why}");
        }
        ensure!(
            generation().await? == before,
            "a refusal changed the policy"
        );
        // By its whole digest, and by the beginning with and without `sha256:`.
        let prefixed = format!("sha256:{soft}");
        for (to, id, effect) in [
            (digest(full), &soft, "PreferNoSelect"),
            (last.as_str(), &last, "NoSelect"),
            (&prefixed, &soft, "PreferNoSelect"),
        ] {
            let output = go(to)?;
            let told = program::stdout(&output);
            ensure!(
                output.status.success() && told.contains(id),
                "{told} {}",
                said(&output)
            );
            stage.wait_for_revision(id).await?;
            stage.wait_for_effect(effect).await?;
        }
        let output = go(&soft)?;
        let told = program::stdout(&output);
        ensure!(
            output.status.success() && told.contains("already"),
            "{told}"
        );
        agent.stop().map(drop)
    })
}

#[test]
fn as_many_revisions_are_kept_as_the_policy_says_and_the_active_one_always() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.lift_limits(TAINTS).await?;
        let owner = stage.person("owner", true).await?;
        let agent = stage.start_agent(&["--policy-objects", "--lease-namespace", HOME])?;
        stage.wait_for_newest().await?;
        // The default is ten.
        for (history, changes, kept) in [(json!(3), 5, 3), (Value::Null, 9, 10)] {
            let rollout = json!({"spec": {"rollout": {"history": history}}});
            stage.patch(POLICY, None, TAINTS, rollout).await?;
            stage.wait_for_newest().await?;
            for change in 1..=changes {
                let grace = json!({"unavailable": {"gracePeriodSeconds": 100 * kept + change}});
                let id = stage.settle(grace).await?;
                let all = stage.history(&owner)?;
                let active = |one: &&Value| one["state"] == "active";
                let active = all.iter().find(active).context("none is active")?;
                ensure!(
                    active["revision"] == id.as_str(),
                    "{active} instead of {id}"
                );
            }
            let so_many = async || Ok((stage.revisions(TAINTS).await?.len() == kept).then_some(()));
            wait::until(&format!("{kept} revisions"), DEADLINE, so_many).await?;
        }
        ensure!(
            stage.revisions(NAME).await?.len() == 1,
            "those of another policy"
        );
        agent.stop().map(drop)
    })
}

#[test]
fn an_approval_counts_for_no_other_candidate_also_when_it_is_put_back() -> Result<()> {
    on_stage(async |stage| {
        let agent = stage.start_with_approval().await?;
        let owner = stage.person("owner", true).await?;
        let team = |team: &str| json!({"spec": {"rollout": {"mode": "Preview"}, "own": {"annotations": {TEAM: team}}}});
        stage.patch(POLICY, None, NAME, team("a")).await?;
        let first = stage.approvable("").await?;
        let output = stage.transom_as(&owner, &["approve", NAME, &first])?;
        ensure!(output.status.success(), "{}", said(&output));
        stage.wait_for_team("one", Some("a")).await?;
        let policy = stage.get(POLICY, None, NAME).await?;
        let approved = policy.context("the policy is gone")?["metadata"]["annotations"].take();
        ensure!(
            approved["transom.dev/approved"] == first.as_str(),
            "{approved}"
        );
        // The approval is still there when the candidate changes.
        stage.patch(POLICY, None, NAME, team("b")).await?;
        let second = stage.approvable(&first).await?;
        let reason = async |reason: &str| {
            let is = |status: &Value| status["candidate"]["reason"] == reason;
            stage.wait_for_status(reason, is).await
        };
        reason("ApprovalRequired").await?;
        let none: serde_json::Map<String, Value> = (approved.as_object().into_iter().flatten())
            .map(|(key, _)| (key.clone(), Value::Null))
            .collect();
        let put = |annotations: &Value| {
            let output =
                stage.patch_as(&owner, &json!({"metadata": {"annotations": annotations}}))?;
            ensure!(output.status.success(), "{}", said(&output));
            anyhow::Ok(())
        };
        // The agent looks at its policies a few times a second: only a change that its status shows was seen.
        let mut other = approved.clone();
        other["transom.dev/approved"] = json!(OTHER);
        for (annotations, seen) in [(other, "PlanChanged"), (none.into(), "ApprovalRequired")] {
            put(&annotations)?;
            reason(seen).await?;
        }
        put(&approved)?;
        let status = reason("PlanChanged").await?;
        let told = status["conditions"].to_string();
        ensure!(
            told.contains("another plan was approved") && told.contains(&second),
            "{told}"
        );
        // It is tried again with another cluster, and waits as before.
        stage.ready("two", true).await?;
        stage.wait_for_right("two", 6443).await?;
        let second = stage.approvable(&second).await?;
        for name in ["one", "two"] {
            stage.wait_for_team(name, Some("a")).await?;
        }
        let status = reason("PlanChanged").await?;
        shows(stage, &status)?;
        let output = stage.transom_as(&owner, &["approve", NAME, &second])?;
        ensure!(output.status.success(), "{}", said(&output));
        stage.wait_for_team("one", Some("b")).await?;
        agent.stop().map(drop)
    })
}

/// `kubectl get fpol` shows the active revision, the candidate, and its gate and reason.
fn shows(stage: &Stage, status: &Value) -> Result<()> {
    let mut kubectl = stage.cluster.kubectl(stage.cluster.admin())?;
    let text = String::from_utf8(kubectl.args(["get", "fpol", NAME]).output()?.stdout)?;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let lines: Vec<Vec<String>> = text.lines().map(words).collect();
    let [head, row] = lines.as_slice() else {
        anyhow::bail!("{text}");
    };
    for (column, pointer) in [
        ("ACTIVE", "/revision/id"),
        ("CANDIDATE", "/candidate/id"),
        ("GATE", "/candidate/gate"),
        ("REASON", "/candidate/reason"),
    ] {
        let at = head.iter().position(|one| one == column);
        let shown = at.and_then(|at| row.get(at)).map(String::as_str);
        let expected = status.pointer(pointer).and_then(Value::as_str);
        ensure!(shown.is_some() && shown == expected, "{column}: {text}");
    }
    Ok(())
}
