//! Others who write the taints that a policy owns: someone with kubectl, a cluster that flips all the time, and the real
//! registration controller of Open Cluster Management. Nobody is written against for ever.

use crate::agent::Worker;
use crate::stage::{CRDS, DEADLINE, MANAGED, Stage, on_stage, on_stage_of_its_own};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_test_cluster::{Mark, available_crds, registration, wait};

const NAME: &str = "contested";
const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";
const UNAVAILABLE: &str = "cluster.open-cluster-management.io/unavailable";
/// The most writes to one object in a minute.
const BUDGET: usize = 60;

impl Stage {
    /// The taints of a ManagedCluster.
    async fn taints_of(&self, name: &str) -> Result<Vec<Value>> {
        let cluster = self.get(MANAGED, None, name).await?.context("no ManagedCluster")?;
        Ok(cluster["spec"]["taints"].as_array().cloned().unwrap_or_default())
    }

    /// How often the agent wrote a ManagedCluster since a mark.
    async fn writes_of(&self, name: &str, since: Mark) -> Result<usize> {
        let target = format!("managedclusters /{name}");
        Ok(self.writes(since).await?.iter().filter(|write| write.ends_with(&target)).count())
    }

    fn start_on_taints(&self) -> Result<Worker> {
        self.start_agent(&["--policies", &program::policy("built-in-taints").display().to_string()])
    }
}

fn has(taints: &[Value], key: &str) -> bool {
    taints.iter().any(|taint| taint["key"] == key)
}

#[test]
fn who_takes_a_taint_away_three_times_is_left_alone_and_told_of() -> Result<()> {
    on_stage(async |stage| {
        stage.managed(NAME).await?;
        let mark = stage.mark()?;
        let mut agent = stage.start_on_taints()?;
        agent.wait_for_first_pass().await?;
        stage.set_available(NAME, "Unknown").await?;
        for _ in 0..3 {
            wait::until("the taint", DEADLINE, async || {
                Ok(has(&stage.taints_of(NAME).await?, UNREACHABLE).then_some(()))
            })
            .await?;
            agent.wait_for(&format!("ManagedCluster {NAME}"), "Applied AsDesired").await?;
            stage.patch(MANAGED, None, NAME, json!({"spec": {"taints": null}})).await?;
        }
        agent.wait_for(&format!("ManagedCluster {NAME}"), "Failed Contended").await?;
        ensure!(stage.taints_of(NAME).await?.is_empty(), "it is left as the other one wants it");
        wait::until("an Event about it", DEADLINE, async || {
            let events = stage.list(("events.k8s.io/v1", "Event")).await?;
            let told = |event: &Value| event["reason"] == "Contended" && event["regarding"]["name"] == NAME;
            Ok(events.iter().any(|event| told(&event.data)).then_some(()))
        })
        .await?;
        let writes = stage.writes_of(NAME, mark).await?;
        ensure!(writes == 3, "{writes} writes");
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn what_changes_all_the_time_is_written_so_often_in_a_minute_and_not_more() -> Result<()> {
    on_stage(async |stage| {
        for name in [NAME, "calm"] {
            stage.managed(name).await?;
        }
        let mark = stage.mark()?;
        let mut agent = stage.start_on_taints()?;
        agent.wait_for_first_pass().await?;
        let subject = format!("ManagedCluster {NAME}");
        let braked = || Ok::<_, anyhow::Error>(agent.state(&subject)?.as_deref() == Some("Failed WriteBudgetExceeded"));
        let mut flips = 0;
        while !braked()? {
            ensure!(flips <= BUDGET, "{flips} flips were all written");
            let (status, key) = [("Unknown", UNREACHABLE), ("False", UNAVAILABLE)][flips % 2];
            stage.set_available(NAME, status).await?;
            wait::until("the taint, or the brake", DEADLINE, async || {
                Ok((has(&stage.taints_of(NAME).await?, key) || braked()?).then_some(()))
            })
            .await?;
            flips += 1;
        }
        let writes = stage.writes_of(NAME, mark).await?;
        ensure!(writes == BUDGET, "{writes} writes, {flips} flips");
        stage.set_available("calm", "Unknown").await?;
        stage.taint_times("calm", 1).await.context("others go on")?;
        agent.stop()?;
        Ok(())
    })
}

/// The registration controller as the cluster's admin, until its handle goes.
fn start_registration(stage: &Stage) -> Result<Agent> {
    let kubeconfig = stage.cluster.write_kubeconfig(&stage.cluster.user("ocm", &["system:masters"])?)?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = registration()?;
    command.args(["controller", "--disable-leader-election", "--namespace", "default"]);
    command.arg("--kubeconfig").arg(kubeconfig).arg("--listen").arg(address.to_string());
    Agent::start(&mut command, stage.cluster.folder().join("registration.log"))
}

/// Has both look at a cluster that is new to them: what they heard of before, they have dealt with.
async fn passes_through_both(stage: &Stage, agent: &mut Worker, name: &str) -> Result<()> {
    stage.managed(name).await?;
    stage.set_available(name, "Unknown").await?;
    wait::until(&format!("the finalizer and a taint of {name}"), DEADLINE, async || {
        let cluster = stage.get(MANAGED, None, name).await?.context("no ManagedCluster")?;
        let finalizers = cluster["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let theirs = |one: &Value| one == "cluster.open-cluster-management.io/api-resource-cleanup";
        let tainted = has(&stage.taints_of(name).await?, UNREACHABLE);
        Ok((tainted && finalizers.iter().any(theirs)).then_some(()))
    })
    .await?;
    agent.wait_for(&format!("ManagedCluster {name}"), "Applied AsDesired").await
}

#[test]
fn beside_the_registration_controller_of_ocm_nothing_is_written_twice() -> Result<()> {
    on_stage_of_its_own(async |stage| {
        let crds: Vec<String> = available_crds()?.into_iter().filter(|name| !CRDS.contains(&name.as_str())).collect();
        stage.cluster.install_crds(&crds.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        // A first pass over nothing is not told of.
        stage.managed("before").await?;
        let mut ocm = start_registration(stage)?;
        let mut agent = stage.start_on_taints()?;
        agent.wait_for_first_pass().await?;
        passes_through_both(stage, &mut agent, NAME).await?;
        // Without OCM's webhook a taint of theirs has no time: it gets one of ours, and they leave it there.
        let times = stage.taint_times(NAME, 1).await?;
        ensure!(times.len() == 1, "the taint has no time");
        let quiet = stage.mark()?;
        for marker in ["marker-1", "marker-2", "marker-3"] {
            passes_through_both(stage, &mut agent, marker).await?;
        }
        ensure!(stage.writes_of(NAME, quiet).await? == 0, "{:?}", stage.writes(quiet).await?);
        let theirs = stage.all_lines(quiet).await?;
        let theirs = theirs.iter().filter(|line| line.is_write() && line.user == "ocm");
        let of_it = theirs.filter(|line| line.target.as_ref().is_some_and(|target| target.name == NAME));
        ensure!(of_it.clone().count() == 0, "{:?}", of_it.collect::<Vec<_>>());
        agent.stop()?;

        // Another effect of the same key: they add their own each time, and after three rounds it is left to them.
        let policy = fs::read_to_string(program::policy("built-in-taints"))?;
        let other = policy.replace(
            "component: builtin:taints",
            "component: builtin:taints\n      settings: {unreachable: {effect: PreferNoSelect}}",
        );
        ensure!(other != policy, "the policy is written in another way");
        let path = stage.cluster.folder().join("other-effect.yaml");
        fs::write(&path, other)?;
        let mark = stage.mark()?;
        let mut agent = stage.start_agent(&["--policies", &path.display().to_string()])?;
        agent.wait_for(&format!("ManagedCluster {NAME}"), "Failed Contended").await?;
        let writes = stage.writes_of(NAME, mark).await?;
        ensure!((1..=3).contains(&writes), "{writes} writes");
        let effects: Vec<Value> = stage.taints_of(NAME).await?.iter().map(|taint| taint["effect"].clone()).collect();
        ensure!(effects.contains(&json!("NoSelect")), "theirs stays: {effects:?}");
        agent.stop()?;
        ensure!(ocm.ended()?.is_none(), "the registration controller ended: {}", ocm.log()?);
        Ok(())
    })
}
