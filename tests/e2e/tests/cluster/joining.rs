//! The real other side: the registration agent of Open Cluster Management joins a hub on which only Transom's policies
//! run. Two API servers; the controller manager of Kubernetes signs the certificates and does nothing else.

use crate::access::{BINDING, CLUSTERS, PREFIX};
use crate::availability::{CLOCK, LEASE_NAME, beat, lease_time};
use crate::inputs::{LEASE, REQUEST};
use crate::leaving::WORK;
use crate::spoke::{AVAILABLE, HOME, HUB_SECRET, Hub, Spoke, is_tainted, says};
use crate::stage::{DEADLINE, MANAGED, NAMESPACE, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Instant;
use transom_core::time::parse_rfc3339;
use transom_test_cluster::wait;

/// How long the agent of a cluster may be silent whose lease lasts a second.
const GRACE_SECONDS: i64 = 5;
/// How often the secret of a cluster's agent is touched.
const PACE_SECONDS: u64 = 5;

/// Waits until the ManagedCluster is as it should be, and returns it.
pub(crate) async fn wait_for(
    stage: &Stage,
    name: &str,
    what: &str,
    is_right: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let came = stage.objects().wait_for(MANAGED, (None, name), is_right);
    came.await.with_context(|| what.to_owned())
}

/// When the agent of a cluster renewed its lease last, in seconds since 1970.
pub(crate) async fn renewed(stage: &Stage, name: &str) -> Result<i64> {
    let place = (Some(name), LEASE_NAME);
    let lease = stage.objects().get(LEASE, place).await?;
    let at = lease["spec"]["renewTime"].as_str().context("no time")?;
    parse_rfc3339(at).context("the time of the lease cannot be read")
}

/// Since when a cluster is available, or not.
async fn available(stage: &Stage, name: &str) -> Result<(Value, Value)> {
    let cluster = stage.objects().get(MANAGED, (None, name)).await?;
    let mut all = cluster["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let available = all.find(|one| one["type"] == AVAILABLE);
    let available = available.with_context(|| format!("{cluster:#}"))?;
    let part = |key: &str| available[key].clone();
    Ok((part("status"), part("lastTransitionTime")))
}

/// Waits for two graces in which its agent was never silent for one: the cluster stays available all the time.
async fn stays_available(stage: &Stage, name: &str) -> Result<()> {
    let mut last = renewed(stage, name).await?;
    let (mut begun, mut before) = (last, available(stage, name).await?);
    let is_over = wait::until("heartbeats for two graces", DEADLINE, async || {
        let at = renewed(stage, name).await?;
        if at - last >= GRACE_SECONDS || before.0 != "True" {
            // The machine was busy: it was unavailable, or may have been.
            (begun, before) = (at, available(stage, name).await?);
        }
        last = at;
        Ok((at - begun >= 2 * GRACE_SECONDS).then_some(()))
    });
    is_over.await?;
    let now = available(stage, name).await?;
    ensure!(
        now.0 == "True" && now == before,
        "{before:?}, and then {now:?}"
    );
    Ok(())
}

/// Rows of `availability`: C05, L12, L13, L14, L15.
/// Rows of `cluster-access`: A07.
#[test]
fn the_registration_agent_joins_is_watched_denied_and_removed() -> Result<()> {
    on_stage(async |stage| {
        let hub = Hub::start(stage, "1h").await?;
        let name = format!("{CLUSTERS}spoke");
        let spoke = Spoke::start(stage, &name).await?;
        let agent = spoke.agent("registration-1.log")?;
        // It registers, and its request is approved; nothing else happens before somebody accepts it.
        wait_for(stage, &name, "the ManagedCluster", Value::is_object).await?;
        ensure!(stage.get(NAMESPACE, None, &name).await?.is_none());
        let accepts = |accepts: bool| json!({"spec": {"hubAcceptsClient": accepts, "leaseDurationSeconds": 1}});
        stage.patch(MANAGED, None, &name, accepts(true)).await?;
        let joined = wait_for(stage, &name, "an available cluster", |cluster| {
            let all = ["ManagedClusterJoined", AVAILABLE, CLOCK];
            all.iter().all(|kind| says(cluster, kind, "True")) && !is_tainted(cluster)
        });
        let joined = joined
            .await
            .with_context(|| format!("{}\n{}", agent.tail(), hub.transom.tail()))?;
        let claims = joined["status"]["clusterClaims"]
            .as_array()
            .context("no claims")?;
        ensure!(
            claims.iter().any(|claim| claim["value"] == "spoke"),
            "{joined:#}"
        );
        stays_available(stage, &name)
            .await
            .with_context(|| agent.tail())?;
        spoke.renews(stage).await.with_context(|| agent.tail())?;
        // It stops, and is noticed; it starts again.
        drop(agent);
        wait_for(stage, &name, "an unreachable cluster", |cluster| {
            says(cluster, AVAILABLE, "Unknown") && is_tainted(cluster)
        })
        .await?;
        // Its last heartbeat says another time than the hub has, and no other one follows.
        let past = lease_time(renewed(stage, &name).await? - 301);
        beat(stage, &name, &past).await?;
        wait_for(stage, &name, "a clock that is behind", |cluster| {
            says(cluster, CLOCK, "False") && says(cluster, AVAILABLE, "Unknown")
        })
        .await?;
        let agent = spoke.agent("registration-2.log")?;
        wait_for(stage, &name, "an available cluster again", |cluster| {
            [AVAILABLE, CLOCK]
                .iter()
                .all(|kind| says(cluster, kind, "True"))
                && !is_tainted(cluster)
        })
        .await?;
        // It is denied while it has a work, and accepted again.
        let [registration, work] =
            ["registration", "work"].map(|what| format!("{PREFIX}{name}:{what}"));
        let body = json!({"apiVersion": WORK.0, "kind": WORK.1, "spec": {}, "metadata": {"name": "kept", "namespace": name}});
        stage.objects().create(body).await?;
        stage.patch(MANAGED, None, &name, accepts(false)).await?;
        wait_for(stage, &name, "a denied cluster", |cluster| {
            says(cluster, "HubAcceptedManagedCluster", "False")
                && says(cluster, AVAILABLE, "Unknown")
        })
        .await?;
        let here = Some(name.as_str());
        let gone = async |binding: &str| {
            let place = (here, binding);
            stage
                .objects()
                .wait_for(BINDING, place, Value::is_null)
                .await
        };
        gone(&registration).await?;
        ensure!(stage.get(BINDING, here, &work).await?.is_some());
        stage.delete(WORK, here, "kept").await?;
        gone(&work).await?;
        stage.patch(MANAGED, None, &name, accepts(true)).await?;
        let again = wait_for(
            stage,
            &name,
            "the cluster available after the denial",
            |cluster| {
                says(cluster, "HubAcceptedManagedCluster", "True")
                    && says(cluster, AVAILABLE, "True")
            },
        );
        again.await.with_context(|| agent.tail())?;
        // Its ManagedCluster is deleted and made again while it runs: it finds its way back.
        let before = stage.get(MANAGED, None, &name).await?.unwrap_or_default();
        stage.delete(MANAGED, None, &name).await?;
        wait_for(stage, &name, "no ManagedCluster", |cluster| {
            cluster["metadata"]["uid"] != before["metadata"]["uid"]
        })
        .await?;
        let made = json!({"apiVersion": MANAGED.0, "kind": MANAGED.1, "metadata": {"name": name},
            "spec": {"hubAcceptsClient": true, "leaseDurationSeconds": 1}});
        stage.objects().apply(made).await?;
        let back = wait_for(stage, &name, "the cluster that was made again", |cluster| {
            ["ManagedClusterJoined", AVAILABLE]
                .iter()
                .all(|kind| says(cluster, kind, "True"))
                && !is_tainted(cluster)
        });
        back.await.with_context(|| agent.tail())?;
        drop(agent);
        stage.delete(MANAGED, None, &name).await?;
        wait::until("the roles are gone", DEADLINE, async || {
            let role = format!("{PREFIX}{name}");
            let found = stage
                .get(("rbac.authorization.k8s.io/v1", "ClusterRole"), None, &role)
                .await?;
            Ok(found.is_none().then_some(()))
        })
        .await?;
        hub.end().await
    })
}

/// What signs says that a certificate began five minutes ago, so the agent, which renews with a fifth to a quarter of
/// the whole time left, does so 52 to 76 seconds after it was signed; it looks when its secret is touched, or after
/// five minutes. It ends 94 seconds later: with 130 seconds only 22 are left for a join before the first renewal, which
/// nobody approves until the cluster is accepted.
const SHORT: &str = "170s";

#[test]
#[ignore = "takes minutes: cargo xtask soak joining"]
fn rotation() -> Result<()> {
    on_stage(async |stage| {
        let hub = Hub::start(stage, SHORT).await?;
        let name = format!("{CLUSTERS}short");
        let spoke = Spoke::start(stage, &name).await?;
        let agent = spoke.agent("registration-short.log")?;
        wait_for(stage, &name, "the ManagedCluster", Value::is_object).await?;
        let accept = json!({"spec": {"hubAcceptsClient": true}});
        stage.patch(MANAGED, None, &name, accept).await?;
        let is_available = |cluster: &Value| says(cluster, AVAILABLE, "True");
        wait_for(stage, &name, "an available cluster", is_available).await?;
        let objects = spoke.cluster.objects();
        let place = (Some(HOME), HUB_SECRET);
        let first = objects.get(SECRET, place).await?["data"]["tls.crt"].take();
        let secrets = objects.api(SECRET.0, SECRET.1, place.0).await?;
        let (mut touched, begun) = (None, Instant::now());
        let renewed = wait::until("another certificate", DEADLINE, async || {
            // The agent looks at the certificate when the secret changes, and writes it at the version that it read.
            let time = begun.elapsed().as_secs() / PACE_SECONDS;
            if touched.replace(time) != Some(time) {
                let touch =
                    json!({"metadata": {"annotations": {"example.com/touched": time.to_string()}}});
                secrets
                    .patch(place.1, &PatchParams::default(), &Patch::Merge(touch))
                    .await?;
            }
            let now = objects.get(SECRET, place).await?["data"]["tls.crt"].take();
            Ok((now != first).then_some(()))
        });
        renewed
            .await
            .with_context(|| format!("{}\n{}", agent.tail(), hub.transom.tail()))?;
        let renewer = format!("system:open-cluster-management:{name}:agent");
        let requests = stage.list(REQUEST).await?;
        let by_itself = requests
            .iter()
            .filter(|one| one.data["spec"]["username"] == *renewer);
        ensure!(
            by_itself.count() >= 1,
            "it was not renewed under its own name"
        );
        let rotated = |cluster: &Value| says(cluster, "ClusterCertificateRotated", "True");
        wait_for(stage, &name, "a cluster that tells of it", rotated).await?;
        drop(agent);
        hub.end().await
    })
}
