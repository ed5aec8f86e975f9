//! The forms of the objects world on a real API server, with exactly the permissions that `transom rbac` prints: the
//! age of a heartbeat, sets of objects, and which change of them wakes.

use crate::stage::{DEADLINE, MANAGED, PARALLEL, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use std::path::Path;
use transom_core::metrics::{QUEUE, RECONCILES};
use transom_e2e::agent::Agent;
use transom_e2e::asking::{
    POLICY, SEEN, age, every, lease, maps, may_renew, need, put_policy, put_policy_of_requests,
    request,
};
use transom_e2e::http;
use transom_test_cluster::{Mark, Objects, User, wait};

pub(crate) const LEASE: (&str, &str) = ("coordination.k8s.io/v1", "Lease");
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
/// How many leases beat.
const LEASES: usize = 300;

/// Waits until the label of a ManagedCluster says in which form its inputs came.
pub(crate) async fn wait_for_seen(stage: &Stage, name: &str, seen: &str) -> Result<()> {
    wait_for_label(stage, MANAGED, name, seen).await
}

async fn wait_for_label(stage: &Stage, kind: (&str, &str), name: &str, seen: &str) -> Result<()> {
    let mut last = Value::Null;
    let came = wait::until("what a guest saw", DEADLINE, async || {
        let cluster = stage.get(kind, None, name).await?.unwrap_or_default();
        last = cluster["metadata"]["labels"][SEEN].clone();
        Ok((last == seen).then_some(()))
    });
    came.await
        .with_context(|| format!("{name} is to say {seen}; it says {last}"))
}

async fn put_lease(stage: &Stage, name: &str, renewed: &str) -> Result<()> {
    let lease = json!({
        "apiVersion": LEASE.0, "kind": LEASE.1,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"renewTime": renewed},
    });
    stage.objects().apply(lease).await.map(drop)
}

async fn put_map(stage: &Stage, name: &str, of: &str, x: &str, y: &str) -> Result<()> {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"of": of}},
        "data": {"x": x, "y": y},
    });
    stage.objects().apply(map).await.map(drop)
}

/// How many reconciles of a policy there were, once none is under way.
pub(crate) fn reconciles_of(agent: &Agent, policy: &str) -> Result<f64> {
    let admin = agent.admin().context("there is no admin server")?;
    agent.wait("an empty workqueue", || {
        let left = http::metric(admin, QUEUE.name, policy).ok()?;
        (left == 0.0).then_some(())
    })?;
    http::metric(admin, RECONCILES.name, &format!("policy=\"{policy}\""))
}

fn reconciles(agent: &Agent) -> Result<f64> {
    reconciles_of(agent, POLICY)
}

/// Starts the agent with these needs and the rights that follow; the mark is from before its first request.
async fn start(stage: &Stage, needs: &[Value]) -> Result<(Agent, Mark)> {
    let folder = stage.cluster.folder().join("policies-asks");
    put_policy(&folder, needs)?;
    start_with(stage, &folder).await
}

/// The same with a policy that was put.
async fn start_with(stage: &Stage, folder: &Path) -> Result<(Agent, Mark)> {
    let words = policies_at(folder)?;
    stage.grant_exactly(&words).await?;
    let mark = stage.mark()?;
    let agent = stage.start_agent(&words)?;
    // The first pass may end before a large component is compiled; then its summary names no primary.
    agent.wait_for_lines(1, &["\"message\":\"loaded\"", "\"policy\":"])?;
    Ok((agent, mark))
}

#[test]
fn heartbeats_of_hundreds_of_leases_start_no_reconcile() -> Result<()> {
    on_stage(async |stage| {
        let name = |at: usize| format!("c{at}");
        let beat = async |renewed: &str| {
            let beats =
                (0..LEASES).map(|at| async move { put_lease(stage, &name(at), renewed).await });
            stream::iter(beats)
                .buffer_unordered(PARALLEL)
                .try_collect::<()>()
                .await
        };
        // The agent works at 2026-11-21T08:00:00Z; the limit is five minutes.
        beat("2026-11-21T07:59:00.000000Z").await?;
        let clusters = (0..LEASES).map(|at| async move { stage.managed(&name(at)).await });
        stream::iter(clusters)
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        let (agent, mark) = start(stage, &[need("lease", &lease(), &age(300))]).await?;
        for at in 0..LEASES {
            wait_for_seen(stage, &name(at), "fresh").await?;
        }
        let before = reconciles(&agent)?;
        beat("2026-11-21T07:59:30.000000Z").await?;
        beat("2026-11-21T07:59:59.000000Z").await?;
        // The last change of all is one that counts; all others were observed before.
        put_lease(stage, "c7", "2026-11-21T07:55:00.000000Z").await?;
        wait_for_seen(stage, "c7", "stale").await?;
        let woken = reconciles(&agent)? - before;
        ensure!(woken == 1.0, "{woken} reconciles for {} beats", 2 * LEASES);
        put_lease(stage, "c7", "2026-11-21T08:10:00.000000Z").await?;
        wait_for_seen(stage, "c7", "ahead").await?;
        stage.delete(LEASE, Some("default"), "c7").await?;
        wait_for_seen(stage, "c7", "absent").await?;
        put_lease(stage, "c7", "2026-11-21T07:59:59.000000Z").await?;
        wait_for_seen(stage, "c7", "fresh").await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn a_set_has_every_selected_object_and_is_never_cut() -> Result<()> {
    on_stage(async |stage| {
        stage.managed("one").await?;
        for (name, of) in [("a", "x"), ("b", "y"), ("other", "z")] {
            put_map(stage, name, of, "1", "1").await?;
        }
        let (agent, mark) = start(stage, &[need("maps", &maps(), &every(&["x", "y"]))]).await?;
        wait_for_seen(stage, "one", "every-2-2").await?;
        put_map(stage, "c", "y", "1", "1").await?;
        wait_for_seen(stage, "one", "every-3-3").await?;
        let before = reconciles(&agent)?;
        // Neither another object nor an undeclared field is news; a declared one is.
        put_map(stage, "other", "z", "2", "2").await?;
        put_map(stage, "a", "x", "1", "2").await?;
        put_map(stage, "a", "z", "1", "2").await?;
        wait_for_seen(stage, "one", "every-2-2").await?;
        ensure!(
            reconciles(&agent)? - before == 1.0,
            "only the lost label counts"
        );
        put_map(stage, "a", "x", "1", "2").await?;
        wait_for_seen(stage, "one", "every-3-3").await?;
        put_map(stage, "d", "x", "1", "2").await?;
        agent.wait_for("ManagedCluster one", "Failed TooManyInputs")?;
        wait_for_seen(stage, "one", "every-3-3").await?;
        stage.delete(CONFIG_MAP, Some("default"), "b").await?;
        stage.delete(CONFIG_MAP, Some("default"), "c").await?;
        wait_for_seen(stage, "one", "every-2-2").await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn a_change_wakes_as_the_need_says() -> Result<()> {
    on_stage(async |stage| {
        for name in ["one", "two"] {
            stage.managed(name).await?;
        }
        let mut presence = need("lease", &lease(), &json!("object"));
        presence["wake"] = json!("presence");
        let (agent, mark) = start(stage, &[presence.clone()]).await?;
        wait_for_seen(stage, "one", "absent").await?;
        put_lease(stage, "one", "2026-11-21T07:59:00.000000Z").await?;
        wait_for_seen(stage, "one", "object").await?;
        let before = reconciles(&agent)?;
        put_lease(stage, "one", "2026-11-21T07:59:30.000000Z").await?;
        put_lease(stage, "two", "2026-11-21T07:59:00.000000Z").await?;
        wait_for_seen(stage, "two", "object").await?;
        ensure!(
            reconciles(&agent)? - before == 1.0,
            "a change of an object that is there"
        );
        // An input that never wakes is read when another one does.
        let mut never = need("lease", &lease(), &json!("object"));
        never["wake"] = json!("never");
        let outcome = need(
            "outcome",
            &json!({"api-version": MANAGED.0, "kind": MANAGED.1, "cluster": "local", "namespace": null, "name": "NAME"}),
            &json!("outcome"),
        );
        let set = need("maps", &maps(), &every(&["x"]));
        let folder = stage.cluster.folder().join("policies-asks");
        put_policy(&folder, &[never, outcome, set])?;
        wait_for_seen(stage, "one", "object_Applied_every-0-0").await?;
        stage.delete(LEASE, Some("default"), "one").await?;
        put_map(stage, "m", "x", "1", "1").await?;
        wait_for_seen(stage, "one", "absent_Applied_every-1-1").await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

pub(crate) const REQUEST: (&str, &str) = ("certificates.k8s.io/v1", "CertificateSigningRequest");
const PEM: &str = include_str!("../../../../host/core/tests/requests/plain.pem");

/// Who may renew certificates.
pub(crate) const RENEWS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: renews}
rules:
- {apiGroups: [register.open-cluster-management.io], resources: [managedclusters/clientcertificates], verbs: [renew]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: renews}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: renews}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: renewers}]
";

/// Who may ask for certificates.
pub(crate) const ASKS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: requests}
rules:
- {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: requests}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: requests}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:authenticated'}]
";

/// A user of a group asks a signer for a certificate; the request has the name of the user.
pub(crate) async fn ask_for_certificate(
    stage: &Stage,
    user: &str,
    group: &str,
    signer: &str,
) -> Result<()> {
    let account = stage.cluster.user(user, &[group])?;
    ask_as(stage, &account, user, &json!({}), signer).await
}

/// Somebody asks a signer for the certificate of [`PEM`], with a request of this name and these labels.
pub(crate) async fn ask_as(
    stage: &Stage,
    account: &User,
    name: &str,
    labels: &Value,
    signer: &str,
) -> Result<()> {
    stage.objects().apply_manifest(ASKS).await?;
    let objects = Objects::new(stage.cluster.client(account).await?);
    let request = json!({
        "apiVersion": REQUEST.0, "kind": REQUEST.1, "metadata": {"name": name, "labels": labels},
        "spec": {"request": STANDARD.encode(PEM), "signerName": signer, "usages": ["client auth"]},
    });
    let made = wait::until("the right to ask for a certificate", DEADLINE, async || {
        Ok(objects.create(request.clone()).await.ok())
    });
    made.await.map(drop)
}

#[test]
fn a_request_is_read_by_the_host_and_its_requester_is_asked_about() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-requests");
        let needs = [
            need("request", &request(), &json!("certificate-request")),
            need("access", &request(), &may_renew()),
        ];
        put_policy_of_requests(&folder, &needs)?;
        stage.objects().apply_manifest(RENEWS).await?;
        let signer = "kubernetes.io/kube-apiserver-client";
        let users = [("one", "renewers", "allowed"), ("two", "others", "denied")];
        for (user, group, _) in users {
            ask_for_certificate(stage, user, group, signer).await?;
        }
        let (agent, mark) = start_with(stage, &folder).await?;
        for (user, _, verdict) in users {
            let name = "system.open-cluster-management.c1.agent";
            let seen = format!("ECDSA.256.{user}.{name}_{verdict}");
            wait_for_label(stage, REQUEST, user, &seen).await?;
        }
        agent.stop()?;
        for name in ["one", "two"] {
            stage.delete(REQUEST, None, name).await?;
        }
        stage.nothing_denied(mark).await
    })
}
