//! Other writers of the taints that a policy owns: someone with kubectl, a cluster that flips all the time, and the
//! real registration controller of Open Cluster Management. The agent gives up against each of them eventually.

use crate::stage::{CRDS, DEADLINE, MANAGED, Stage, on_stage, on_stage_of_its_own};
use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use transom_core::metrics::RECONCILES;
use transom_e2e::agent::Agent;
use transom_e2e::{http, program};
use transom_test_cluster::{Mark, available_crds, registration, wait};

const NAME: &str = "contested";
const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";
const UNAVAILABLE: &str = "cluster.open-cluster-management.io/unavailable";
/// The maximum of writes to one object in a minute.
const BUDGET: usize = 60;

impl Stage {
    /// Installs every CRD that is not there: the registration controller needs most of them.
    pub(crate) async fn install_other_crds(&self) -> Result<()> {
        let crds = available_crds()?;
        let crds = crds.iter().map(String::as_str);
        let crds: Vec<&str> = crds.filter(|name| !CRDS.contains(name)).collect();
        self.cluster.install_crds(&crds).await
    }

    /// Merges a change into the status of a ManagedCluster.
    pub(crate) async fn patch_status(&self, name: &str, change: Value) -> Result<()> {
        let api = self.api(MANAGED, None).await?;
        let patch = Patch::Merge(json!({"status": change}));
        api.patch_status(name, &PatchParams::default(), &patch)
            .await
            .map(drop)
            .context("failed to patch a status")
    }

    /// How often the agent wrote a ManagedCluster since a mark.
    async fn writes_of(&self, name: &str, since: Mark) -> Result<usize> {
        let target = format!("managedclusters /{name}");
        Ok(self
            .writes(since)
            .await?
            .iter()
            .filter(|write| write.ends_with(&target))
            .count())
    }
}

fn has(taints: &[Value], key: &str) -> bool {
    taints.iter().any(|taint| taint["key"] == key)
}

#[test]
fn stops_and_reports_after_a_taint_was_removed_three_times() -> Result<()> {
    on_stage(async |stage| {
        stage.managed(NAME).await?;
        let mark = stage.mark()?;
        let agent = stage.start_on_taints()?;
        agent.wait_for_first_pass()?;
        stage.set_available(NAME, "Unknown").await?;
        for _ in 0..3 {
            wait::until("the taint", DEADLINE, async || {
                Ok(has(&stage.taints_of(NAME).await?, UNREACHABLE).then_some(()))
            })
            .await?;
            agent.wait_for(&format!("ManagedCluster {NAME}"), "Applied InSync")?;
            stage
                .patch(MANAGED, None, NAME, json!({"spec": {"taints": null}}))
                .await?;
        }
        agent.wait_for(&format!("ManagedCluster {NAME}"), "Failed Contended")?;
        ensure!(
            stage.taints_of(NAME).await?.is_empty(),
            "it is left as the other one wants it"
        );
        wait::until("an Event about it", DEADLINE, async || {
            let events = stage.list(("events.k8s.io/v1", "Event")).await?;
            let told = |event: &Value| {
                event["reason"] == "Contended" && event["regarding"]["name"] == NAME
            };
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
fn limits_writes_per_minute_to_an_ever_changing_object() -> Result<()> {
    on_stage(async |stage| {
        for name in [NAME, "calm"] {
            stage.managed(name).await?;
        }
        let mark = stage.mark()?;
        let agent = stage.start_on_taints()?;
        agent.wait_for_first_pass()?;
        let primary = format!("ManagedCluster {NAME}");
        let braked = || {
            Ok::<_, anyhow::Error>(
                agent.state(&primary)?.as_deref() == Some("Failed WriteBudgetExceeded"),
            )
        };
        let mut flips = 0;
        while !braked()? {
            ensure!(flips <= BUDGET, "{flips} flips were all written");
            let (status, key) = [("Unknown", UNREACHABLE), ("False", UNAVAILABLE)][flips % 2];
            stage.set_available(NAME, status).await?;
            wait::until("the taint, or the limit of writes", DEADLINE, async || {
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

/// Starts the registration controller as the cluster's admin; it stops when the handle is dropped.
pub(crate) fn start_registration(stage: &Stage) -> Result<Agent> {
    start_registration_with(stage, &["--disable-leader-election"])
}

/// The same with other flags about the election of its leader.
pub(crate) fn start_registration_with(stage: &Stage, election: &[&str]) -> Result<Agent> {
    let kubeconfig = stage
        .cluster
        .write_kubeconfig(&stage.cluster.user("ocm", &["system:masters"])?)?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut command = registration()?;
    command.args(["controller", "--namespace", "default"]);
    command
        .args(election)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--listen")
        .arg(address.to_string());
    Agent::start(
        &mut command,
        stage.cluster.folder().join("registration.log"),
    )
}

/// Makes both handle a new cluster: then they have handled everything that they received before.
async fn passes_through_both(stage: &Stage, agent: &Agent, name: &str) -> Result<()> {
    stage.managed(name).await?;
    stage.set_available(name, "Unknown").await?;
    wait::until(
        &format!("the finalizer and a taint of {name}"),
        DEADLINE,
        async || {
            let cluster = stage
                .get(MANAGED, None, name)
                .await?
                .context("no ManagedCluster")?;
            let finalizers = cluster["metadata"]["finalizers"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let theirs =
                |one: &Value| one == "cluster.open-cluster-management.io/api-resource-cleanup";
            let tainted = has(&stage.taints_of(name).await?, UNREACHABLE);
            Ok((tainted && finalizers.iter().any(theirs)).then_some(()))
        },
    )
    .await?;
    agent.wait_for(&format!("ManagedCluster {name}"), "Applied InSync")
}

/// Waits until the only taint of a cluster has a time: a taint that OCM writes over ours has none until the agent adds
/// it.
async fn timed(stage: &Stage, name: &str) -> Result<()> {
    let what = format!("a time of the taint of {name}");
    let look = async || Ok((stage.taint_times(name, 1).await?.len() == 1).then_some(()));
    wait::until(&what, DEADLINE, look).await
}

/// `built-in-taints` with a change; the agent resyncs every primary each second.
fn policy(stage: &Stage, name: &str, change: impl FnOnce(&mut Value)) -> Result<String> {
    let mut manifest = program::manifest("built-in-taints")?;
    manifest["spec"]["resyncSeconds"] = json!(1);
    change(&mut manifest["spec"]);
    let path = stage.cluster.folder().join(name);
    fs::write(&path, serde_yaml::to_string(&manifest)?)?;
    Ok(path.display().to_string())
}

/// How many writes of a ManagedCluster or its status the API server has answered, from any client: by its own counters.
async fn writes_answered(stage: &Stage) -> Result<u64> {
    let requests = stage.cluster.metrics().await?.requests();
    let of_clusters = |resource: &str| {
        resource.split('/').next() == Some("managedclusters.cluster.open-cluster-management.io")
    };
    let writes = [
        "POST",
        "PUT",
        "PATCH",
        "APPLY",
        "DELETE",
        "DELETECOLLECTION",
    ];
    let counted = requests
        .iter()
        .filter(|((verb, of), _)| writes.contains(&verb.as_str()) && of_clusters(of));
    Ok(counted.map(|(_, count)| count).sum())
}

/// Lets the agent resync everything five times, which ends the period, and checks that no client writes meanwhile: by
/// the API server's counters and by the versions of the clusters.
async fn is_quiet(stage: &Stage, admin: SocketAddr) -> Result<()> {
    let versions = async || -> Result<Vec<Option<String>>> {
        Ok(stage
            .list(MANAGED)
            .await?
            .into_iter()
            .map(|cluster| cluster.metadata.resource_version)
            .collect())
    };
    let resyncs = || http::metric(admin, RECONCILES.name, "cause=\"Resync\"");
    let before = (versions().await?, writes_answered(stage).await?);
    ensure!(
        before.0.len() >= 2 && before.1 >= 2,
        "the counters count nothing: {before:?}"
    );
    let enough = resyncs()? + 5.0 * before.0.len() as f64;
    wait::until("five resyncs", DEADLINE, async || {
        Ok((resyncs()? >= enough).then_some(()))
    })
    .await?;
    let after = (versions().await?, writes_answered(stage).await?);
    ensure!(
        before == after,
        "somebody wrote: {before:?}, then {after:?}"
    );
    Ok(())
}

#[test]
fn writes_nothing_twice_beside_the_ocm_registration_controller() -> Result<()> {
    on_stage_of_its_own(async |stage| {
        stage.install_other_crds().await?;
        // The agent does not report a first pass over nothing.
        stage.managed("before").await?;
        let mut ocm = start_registration(stage)?;
        let agent = stage.start_agent(&["--policies", &policy(stage, "resynced.yaml", |_| {})?])?;
        agent.wait_for_first_pass()?;
        let admin = agent.ready()?;
        passes_through_both(stage, &agent, NAME).await?;
        // Without OCM's webhook their taint has no time. The agent adds one, and they keep it.
        timed(stage, NAME).await?;
        // The first marker comes after it: then both have handled the time.
        passes_through_both(stage, &agent, "marker-1").await?;
        timed(stage, "marker-1").await?;
        passes_through_both(stage, &agent, "marker-2").await?;
        timed(stage, "marker-2").await?;
        let quiet = stage.mark()?;
        is_quiet(stage, admin).await?;
        // Changes that alter nothing, such as each heartbeat, make both look at the cluster again.
        for beat in 0..5 {
            stage
                .patch_status(
                    NAME,
                    json!({"version": {"kubernetes": format!("v1.31.{beat}")}}),
                )
                .await?;
        }
        passes_through_both(stage, &agent, "marker-3").await?;
        ensure!(
            stage.writes_of(NAME, quiet).await? == 0,
            "{:?}",
            stage.writes(quiet).await?
        );
        let theirs = stage.all_lines(quiet).await?;
        let theirs = theirs
            .iter()
            .filter(|line| line.is_write() && line.user == "ocm");
        let of_it = theirs.filter(|line| {
            line.target
                .as_ref()
                .is_some_and(|target| target.name == NAME)
        });
        ensure!(
            of_it.clone().count() == 0,
            "{:?}",
            of_it.collect::<Vec<_>>()
        );
        agent.stop()?;

        // Another effect of the same key: they add their own each time, and after three rounds the agent leaves it to
        // them.
        let other = policy(stage, "other-effect.yaml", |spec| {
            spec["guests"]["decide"]["settings"] =
                json!({"unreachable": {"effect": "PreferNoSelect"}});
        })?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&["--policies", &other])?;
        agent.wait_for(&format!("ManagedCluster {NAME}"), "Failed Contended")?;
        let writes = stage.writes_of(NAME, mark).await?;
        ensure!((1..=3).contains(&writes), "{writes} writes");
        let effects: Vec<Value> = stage
            .taints_of(NAME)
            .await?
            .iter()
            .map(|taint| taint["effect"].clone())
            .collect();
        ensure!(
            effects.contains(&json!("NoSelect")),
            "theirs stays: {effects:?}"
        );
        agent.stop()?;
        ensure!(
            ocm.ended()?.is_none(),
            "the registration controller ended: {}",
            ocm.log()?
        );
        Ok(())
    })
}
