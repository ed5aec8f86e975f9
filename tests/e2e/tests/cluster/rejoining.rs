//! The registration agent of Open Cluster Management finds its way back to a hub on which only Transom's policies run:
//! after a bootstrap credential that was wrong, a certificate that is broken or expired, a move to another hub and
//! another name. The agent ends by itself, or is unhealthy, where kubelet would start it again: here the test does.

use crate::access::CLUSTERS;
use crate::inputs::REQUEST;
use crate::joining::{renewed, wait_for};
use crate::spoke::{
    AVAILABLE, BOOTSTRAP, HOME, HUB_CRDS, HUB_SECRET, Hub, JOINER, JOINERS, Spoke, controllers,
    is_tainted, remove_requests, says,
};
use crate::stage::{CRDS, DEADLINE, MANAGED, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};
use transom_e2e::agent::Agent;
use transom_test_cluster::{Cluster, Options, wait};

/// A certificate of this validity ends before the test does.
const SHORT: Duration = Duration::from_secs(30);

impl Hub<'_> {
    /// Signs for another time from now on.
    fn sign_for(self, validity: &str) -> Result<Self> {
        drop(self.signer);
        let signer = controllers(&self.stage.cluster, "csrsigning", validity)?;
        Ok(Self { signer, ..self })
    }

    /// Accepts a cluster once it has registered, and waits until it is available; returns its uid.
    async fn joins(&self, name: &str, agent: &Agent) -> Result<Value> {
        let accept = json!({"spec": {"hubAcceptsClient": true, "leaseDurationSeconds": 1}});
        let joined = async {
            wait_for(self.stage, name, "the ManagedCluster", Value::is_object).await?;
            self.stage.patch(MANAGED, None, name, accept).await?;
            let is_available = |cluster: &Value| says(cluster, AVAILABLE, "True");
            wait_for(self.stage, name, "an available cluster", is_available).await
        };
        let said = || format!("{}\n{}", agent.tail(), self.transom.tail());
        let cluster = joined.await.with_context(said)?;
        Ok(cluster["metadata"]["uid"].clone())
    }

    /// Waits for a heartbeat after this one.
    async fn beats_after(&self, name: &str, last: i64, agent: &Agent) -> Result<()> {
        let beats = wait::until("another heartbeat", DEADLINE, async || {
            Ok((renewed(self.stage, name).await? > last).then_some(()))
        });
        beats.await.with_context(|| agent.tail())
    }
}

/// The requests for a certificate of whoever brings new clusters.
async fn bootstraps(stage: &Stage) -> Result<Vec<DynamicObject>> {
    let mut requests = stage.list(REQUEST).await?;
    requests.retain(|one| one.data["spec"]["username"] == JOINER);
    Ok(requests)
}

/// Waits until the agent has its credential for the hub.
async fn has_certificate(spoke: &Spoke, agent: &Agent) -> Result<()> {
    let place = (Some(HOME), HUB_SECRET);
    let is_there = |secret: &Value| secret["data"]["tls.crt"].is_string();
    let there = spoke.cluster.objects().wait_for(SECRET, place, is_there);
    there.await.map(drop).with_context(|| agent.tail())
}

/// Has the agent register elsewhere, until it has noticed that and ended. Returns whether it ended without an error;
/// without a certificate it ends with one.
async fn moves(spoke: &Spoke, kubeconfig: &str, mut agent: Agent) -> Result<bool> {
    let mut touched = 0;
    let ended = wait::until("the end of the agent", DEADLINE, async || {
        touched += 1;
        spoke.points_to(kubeconfig, touched).await?;
        agent.ended()
    });
    Ok(ended.await?.success())
}

/// Rows of `client-certificates`: K28, K29, K32, K33.
#[test]
fn the_registration_agent_comes_back_after_a_wrong_bootstrap_a_broken_certificate_and_restarts()
-> Result<()> {
    on_stage(async |stage| {
        let hub = Hub::start(stage, "1h").await?;
        let (first, second) = (format!("{CLUSTERS}back"), format!("{CLUSTERS}renamed"));
        let spoke = Spoke::start(stage, &first).await?;
        let joiner = stage.cluster.user(JOINER, &[JOINERS])?;
        // Nobody answers where its bootstrap kubeconfig points to.
        let nowhere = stage
            .cluster
            .kubeconfig_at(&joiner, "https://127.0.0.1:1")?;
        spoke.points_to(&nowhere, 0).await?;
        let agent = spoke.agent("registration-nowhere.log")?;
        agent.wait_for_lines(1, &["connection refused"])?;
        ensure!(stage.get(MANAGED, None, &first).await?.is_none());
        ensure!(!moves(&spoke, &stage.cluster.kubeconfig(&joiner)?, agent).await?);
        let agent = spoke.agent("registration-fixed.log")?;
        let uid = hub.joins(&first, &agent).await?;
        // Its certificate is broken, so it registers once more.
        drop(agent);
        let (last, before) = (
            renewed(stage, &first).await?,
            bootstraps(stage).await?.len(),
        );
        let broken = json!({"data": {"tls.crt": "bm8gY2VydGlmaWNhdGU="}});
        let objects = spoke.cluster.objects();
        let secrets = objects.api(SECRET.0, SECRET.1, Some(HOME)).await?;
        secrets
            .patch(HUB_SECRET, &PatchParams::default(), &Patch::Merge(broken))
            .await?;
        let agent = spoke.agent("registration-broken.log")?;
        wait::until("another bootstrap", DEADLINE, async || {
            Ok((bootstraps(stage).await?.len() > before).then_some(()))
        })
        .await
        .with_context(|| agent.tail())?;
        hub.beats_after(&first, last, &agent).await?;
        // It starts again with what it has.
        drop(agent);
        let (last, before) = (
            renewed(stage, &first).await?,
            bootstraps(stage).await?.len(),
        );
        let agent = spoke.agent("registration-again.log")?;
        hub.beats_after(&first, last, &agent).await?;
        ensure!(bootstraps(stage).await?.len() == before);
        let cluster = stage.get(MANAGED, None, &first).await?;
        ensure!(cluster.context("it is gone")?["metadata"]["uid"] == uid);
        // Under another name it is another cluster.
        drop(agent);
        let agent = spoke.agent_as(&second, "registration-renamed.log")?;
        hub.joins(&second, &agent).await?;
        ensure!(bootstraps(stage).await?.len() > before);
        wait_for(stage, &first, "an unreachable cluster", |cluster| {
            says(cluster, AVAILABLE, "Unknown") && is_tainted(cluster)
        })
        .await?;
        drop(agent);
        hub.end().await
    })
}

/// Row of `client-certificates`: K30.
#[test]
fn the_registration_agent_registers_again_once_its_certificate_has_expired() -> Result<()> {
    on_stage(async |stage| {
        let hub = Hub::start(stage, &format!("{}s", SHORT.as_secs())).await?;
        let name = format!("{CLUSTERS}expired");
        let spoke = Spoke::start(stage, &name).await?;
        let agent = spoke.agent("registration-short-lived.log")?;
        has_certificate(&spoke, &agent).await?;
        drop(agent);
        // Nobody signs for so short a time any more; then the last certificate ends.
        let hub = hub.sign_for("1h")?;
        let ends = SystemTime::now() + SHORT;
        wait::until("the end of the certificate", DEADLINE, async || {
            Ok((SystemTime::now() > ends).then_some(()))
        })
        .await?;
        remove_requests(stage).await?;
        let agent = spoke.agent("registration-expired.log")?;
        hub.joins(&name, &agent).await?;
        ensure!(!bootstraps(stage).await?.is_empty());
        drop(agent);
        hub.end().await
    })
}

/// Row of `client-certificates`: K31.
#[test]
fn the_registration_agent_moves_to_a_hub_that_its_bootstrap_names_anew() -> Result<()> {
    on_stage(async |stage| {
        let hub = Hub::start(stage, "1h").await?;
        let old = Cluster::start(&Options::default()).await?;
        old.install_crds(&[&CRDS[..], &HUB_CRDS].concat()).await?;
        old.objects().apply_manifest(BOOTSTRAP).await?;
        let signer = controllers(&old, "csrsigning", "1h")?;
        let name = format!("{CLUSTERS}moved");
        let spoke = Spoke::start(stage, &name).await?;
        let joiner = old.user(JOINER, &[JOINERS])?;
        spoke.points_to(&old.kubeconfig(&joiner)?, 0).await?;
        let agent = spoke.agent("registration-old-hub.log")?;
        // A person approves it there.
        let requests = old.objects().api(REQUEST.0, REQUEST.1, None).await?;
        wait::until("a request on the old hub", DEADLINE, async || {
            let requests = requests.list(&ListParams::default()).await?;
            let Some(request) = requests.items.first() else {
                return Ok(None);
            };
            let mut approve = old.kubectl(old.admin())?;
            approve.args(["certificate", "approve", &request.name_any()]);
            Ok(approve.output()?.status.success().then_some(()))
        })
        .await?;
        has_certificate(&spoke, &agent).await?;
        let joiner = stage.cluster.user(JOINER, &[JOINERS])?;
        let here = stage.cluster.kubeconfig(&joiner)?;
        ensure!(moves(&spoke, &here, agent).await?);
        let agent = spoke.agent("registration-new-hub.log")?;
        hub.joins(&name, &agent).await?;
        ensure!(!bootstraps(stage).await?.is_empty());
        drop((agent, signer));
        hub.end().await
    })
}
