//! A policy that does what a controller of others does is told while that controller runs, and only told: beside the
//! real registration controller of Open Cluster Management, which elects its leader.

use crate::contest::start_registration_with;
use crate::policies::POLICY;
use crate::stage::{DEADLINE, Stage, on_stage_of_its_own};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use transom_core::metrics::{POLICIES, RECONCILES};
use transom_e2e::agent::Agent;
use transom_e2e::{http, program};
use transom_test_cluster::wait;

/// A policy that replaces the registration controller, and one that replaces nothing.
const REPLACES: &str = "cluster-set-members";
const OTHER: &str = "cluster-sets-by-rule";
/// A short election, so that the end of a controller that is killed is seen soon.
const ELECTION: [&str; 6] = [
    "--leader-election-lease-duration",
    "15s",
    "--leader-election-renew-deadline",
    "10s",
    "--leader-election-retry-period",
    "2s",
];
const LEASE: (&str, &str) = ("coordination.k8s.io/v1", "Lease");
const LOCK: &str = "registration-controller-lock";

/// The condition `Conflicting` of a policy, once its status is there.
async fn conflicting(stage: &Stage, policy: &str) -> Result<Option<Value>> {
    let object = stage.get(POLICY, None, policy).await?.unwrap_or_default();
    let conditions = object["status"]["conditions"].as_array();
    let conditions = conditions.context("it has no status yet")?;
    let found = conditions.iter().find(|one| one["type"] == "Conflicting");
    Ok(found.cloned())
}

/// Waits until the condition of the policy that replaces the controller is there, or is not.
async fn wait_until_told(stage: &Stage, told: bool) -> Result<Option<Value>> {
    wait::until("what is told of the controller", DEADLINE, async || {
        let Ok(found) = conflicting(stage, REPLACES).await else {
            return Ok(None);
        };
        Ok((found.is_some() == told).then_some(found))
    })
    .await
}

/// The Events about the policy with this reason.
async fn events(stage: &Stage) -> Result<Vec<Value>> {
    let events = stage.list(("events.k8s.io/v1", "Event")).await?;
    let events = events.into_iter().map(|one| one.data);
    let ours = |one: &Value| one["reason"] == "Conflicting" && one["regarding"]["name"] == REPLACES;
    Ok(events.filter(ours).collect())
}

/// When the controller renewed its Lease last.
async fn renewed(stage: &Stage) -> Result<Value> {
    let lease = stage.get(LEASE, Some("default"), LOCK).await?;
    Ok(lease.context("it holds no Lease")?["spec"]["renewTime"].clone())
}

fn metric(agent: &Agent, name: &str, label: &str) -> Result<f64> {
    http::metric(agent.admin().context("no admin server")?, name, label)
}

#[test]
fn a_policy_tells_while_the_controller_that_it_replaces_runs() -> Result<()> {
    on_stage_of_its_own(async |stage| {
        stage.install_other_crds().await?;
        stage.cluster.install_policy_crd().await?;
        let folder = stage.cluster.folder().join("policies-conflicting");
        for policy in [REPLACES, OTHER] {
            let text = fs::read_to_string(program::policy(policy))?;
            fs::create_dir_all(folder.join(policy))?;
            fs::write(folder.join(policy).join("policy.yaml"), &text)?;
            stage.objects().apply_manifest(&text).await?;
        }
        let path = folder.to_str().context("the folder has another name")?;
        stage
            .grant_exactly(&["--policies", path, "--policy-objects"])
            .await?;
        let began = stage.mark()?;
        let agent = stage.start_at_real_time(&["--policy-objects"])?;
        agent.ready()?;
        wait_until_told(stage, false).await?;
        let ocm = start_registration_with(stage, &ELECTION)?;
        let told = wait_until_told(stage, true)
            .await?
            .context("no condition")?;
        ensure!(told["status"] == "True", "{told}");
        ensure!(told["reason"] == "Conflicting", "{told}");
        let message = told["message"].as_str().unwrap_or_default();
        for part in [&format!("default/{LOCK}"), "host/docs/policies.md#"] {
            ensure!(message.contains(part), "{part} is missing: {message}");
        }
        let holder = stage.get(LEASE, Some("default"), LOCK).await?;
        let holder = holder.context("no Lease")?["spec"]["holderIdentity"].clone();
        ensure!(message.contains(holder.as_str().context("no holder")?));
        ensure!(
            conflicting(stage, OTHER).await?.is_none(),
            "{OTHER} is told"
        );
        let label = "status=\"Conflicting\"";
        ensure!((metric(&agent, POLICIES.name, label)? - 1.0).abs() < f64::EPSILON);
        // A heart-beat wakes nobody.
        let reconciles = || metric(&agent, RECONCILES.name, REPLACES);
        let (beat, before) = (renewed(stage).await?, reconciles()?);
        wait::until("another heart-beat", DEADLINE, async || {
            Ok((renewed(stage).await? != beat).then_some(()))
        })
        .await?;
        ensure!((reconciles()? - before).abs() < f64::EPSILON);
        // It is killed: its Lease runs out.
        ocm.kill()?;
        wait_until_told(stage, false).await?;
        let count = events(stage).await?.len();
        ensure!(count == 1, "{count} Events");
        // Another one gives its Lease back when it ends.
        let ocm = start_registration_with(stage, &ELECTION)?;
        wait_until_told(stage, true).await?;
        ocm.signal("-TERM")?;
        wait_until_told(stage, false).await?;
        ensure!(metric(&agent, POLICIES.name, label)?.abs() < f64::EPSILON);
        agent.stop()?;
        stage.nothing_denied(began).await
    })
}
