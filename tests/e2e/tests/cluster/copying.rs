//! The policy `hub-copies` on real API servers: copies of secrets that no guest sees, with exactly the permissions that
//! `transom rbac` prints; on the server of the HostedClusters, and on another one.

use crate::importing::{nothing_denied_on, other_hub, policy, put, two_servers};
use crate::objects::{CLUSTERS, primary};
use crate::stage::{HOSTED, NAMESPACE, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use transom_api::labels;
use transom_e2e::program;
use transom_test_cluster::{Cluster, Objects, User};

/// The namespace of the copies.
pub(crate) const HUB: &str = "local-cluster";
/// What the names of the HostedClusters begin with whose secrets are copied.
pub(crate) const COPIES: &str = "copied-";
const WORDS: [&str; 4] = [
    "--cluster-name",
    "local-cluster",
    "--self-managed-cluster",
    "local-cluster",
];

/// A HostedCluster that is available, with both secrets; returns their data.
pub(crate) async fn hosted(stage: &Stage, name: &str) -> Result<[Value; 2]> {
    stage.ready(name, false).await?;
    let source = format!("{name}-admin-kubeconfig");
    let source = stage.get(SECRET, Some(CLUSTERS), &source).await?;
    let password = stage.guard.plant("the password of kubeadmin");
    let data = json!({"password": STANDARD.encode(password)});
    let metadata = json!({"name": format!("{name}-kubeadmin-password"), "namespace": CLUSTERS});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    stage.objects().create(secret).await?;
    Ok([source.context("no source")?["data"].take(), data])
}

/// Waits until a Secret has this data; null for a Secret that is gone.
async fn wait_for(objects: &Objects, namespace: &str, name: &str, data: &Value) -> Result<Value> {
    let is_right = |secret: &Value| secret["data"] == *data;
    let place = (Some(namespace), name);
    objects.wait_for(SECRET, place, is_right).await
}

#[test]
fn both_secrets_are_copied_kept_rotated_and_removed() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-copies");
        put(
            &folder,
            "hub-copies",
            &program::unlimited_manifest("hub-copies")?,
        )?;
        let path = folder.to_str().context("the folder has another name")?;
        stage.objects().namespace(HUB).await?;
        let rights = stage.grant_exactly(&["--policies", path]).await?;
        let [kubeconfig, password] = hosted(stage, "copied-shop").await?;
        hosted(stage, "copied-taken").await?;
        stage
            .plant_secret(HUB, "copied-taken-admin-kubeconfig")
            .await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&[&["--policies", path], &WORDS[..]].concat())?;
        let copy = "copied-shop-admin-kubeconfig";
        let of_password = "copied-shop-kubeadmin-password";
        let made = wait_for(stage.objects(), HUB, copy, &kubeconfig).await?;
        let (labels, domain) = (
            &made["metadata"]["labels"],
            "hypershiftdeployments.cluster.open-cluster-management.io",
        );
        ensure!(
            labels["synced-from-spoke"] == "true"
                && labels[format!("{domain}/cluster-name")] == "copied-shop"
                && labels[format!("{domain}/hosting-namespace")] == CLUSTERS
                && made["type"] == "Opaque",
            "{labels}"
        );
        wait_for(stage.objects(), HUB, of_password, &password).await?;
        agent.wait_for(&primary("copied-taken"), "Failed TargetNotOwned")?;
        // A rotated secret is copied again, and what others change or add is put back.
        let rotated = stage.guard.plant("a rotated kubeconfig");
        let rotated = json!({"kubeconfig": STANDARD.encode(rotated)});
        let body = json!({"data": rotated});
        stage.patch(SECRET, Some(CLUSTERS), copy, body).await?;
        wait_for(stage.objects(), HUB, copy, &rotated).await?;
        let body = json!({"data": {"password": "eA==", "more": "eA=="}});
        stage.patch(SECRET, Some(HUB), of_password, body).await?;
        wait_for(stage.objects(), HUB, of_password, &password).await?;
        // The password goes, and with it its copy; then the HostedCluster.
        let hosted = stage.get(HOSTED, Some(CLUSTERS), "copied-shop").await?;
        let mut status = hosted.context("no HostedCluster")?["status"].take();
        status["kubeadminPassword"] = Value::Null;
        stage
            .put_status(HOSTED, Some(CLUSTERS), "copied-shop", &status)
            .await?;
        wait_for(stage.objects(), HUB, of_password, &Value::Null).await?;
        wait_for(stage.objects(), HUB, copy, &rotated).await?;
        stage.delete(HOSTED, Some(CLUSTERS), "copied-shop").await?;
        wait_for(stage.objects(), HUB, copy, &Value::Null).await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // Only a write that comes too late is read again, and only an Event that repeats is patched.
        let unused = "get secrets, create events, patch events";
        stage.all_used_but(&rights, mark, unused)
    })
}

/// A hub on another server with the namespace `host-1`, and the folder of a policy that puts the copies there.
async fn hub_for_copies(stage: &Stage) -> Result<(Cluster, User, String)> {
    let (hub, account) = other_hub(stage, &[]).await?;
    hub.objects().namespace("host-1").await?;
    let folder = stage.cluster.folder().join("policies-copies-hub");
    let on_hub = |spec: &mut Value| {
        spec["guests"]["decide"]["settings"]["hub"] = json!("hub");
        let grant = &mut spec["grant"];
        grant["read"][0]["name"] = json!("host-1");
        for pointer in ["/read/0", "/write/0", "/write/1"] {
            if let Some(rule) = grant.pointer_mut(pointer) {
                rule["cluster"] = json!("hub");
            }
        }
        for at in [0, 1] {
            grant["write"][at]["namespace"] = json!("host-1");
        }
    };
    put(&folder, "hub-copies", &policy("hub-copies", on_hub)?)?;
    let path = folder.to_str().context("the folder has another name")?;
    Ok((hub, account, path.to_owned()))
}

#[test]
fn secrets_are_copied_to_a_hub_on_another_server() -> Result<()> {
    on_stage(async |stage| {
        let (hub, account, path) = hub_for_copies(stage).await?;
        let [kubeconfig, password] = hosted(stage, "copied-far").await?;
        let (agent, [mark, there]) = two_servers(stage, &hub, &account, &path).await?;
        let (kind, other) = (
            "copied-far-admin-kubeconfig",
            "copied-far-kubeadmin-password",
        );
        wait_for(hub.objects(), "host-1", kind, &kubeconfig).await?;
        wait_for(hub.objects(), "host-1", other, &password).await?;
        stage.delete(HOSTED, Some(CLUSTERS), "copied-far").await?;
        for name in [kind, other] {
            wait_for(hub.objects(), "host-1", name, &Value::Null).await?;
        }
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        nothing_denied_on(&hub, &account, there)?;
        Ok(())
    })
}

/// The primary that the stamp of a copy names.
fn source(copy: &Value) -> Result<Value> {
    let stamp = copy["metadata"]["annotations"][labels::SOURCE].as_str();
    Ok(serde_json::from_str(stamp.context("no stamp")?)?)
}

/// What an agent would have put on the hub for a HostedCluster of this name on a cluster with this uid.
fn of_another(copy: &Value, name: &str, cluster_uid: &str) -> Result<Value> {
    let mut source = source(copy)?;
    (source["name"], source["uid"]) = (json!(name), json!("of another cluster"));
    source["clusterUid"] = json!(cluster_uid);
    let mut there = copy.clone();
    let (labels, mut annotations) = (
        there["metadata"]["labels"].take(),
        there["metadata"]["annotations"].take(),
    );
    annotations[labels::SOURCE] = json!(source.to_string());
    there["metadata"] = json!({"name": format!("{name}-admin-kubeconfig"), "namespace": "host-1",
        "labels": labels, "annotations": annotations});
    Ok(there)
}

#[test]
fn what_agents_of_other_clusters_copied_is_neither_overwritten_nor_removed() -> Result<()> {
    on_stage(async |stage| {
        let (hub, account, path) = hub_for_copies(stage).await?;
        let [name, paused] = ["copied-mine", "copied-paused"];
        let [kubeconfig, _] = hosted(stage, name).await?;
        let [of_paused, _] = hosted(stage, paused).await?;
        let (agent, _) = two_servers(stage, &hub, &account, &path).await?;
        let of = |name: &str| format!("{name}-admin-kubeconfig");
        let copy = wait_for(hub.objects(), "host-1", &of(name), &kubeconfig).await?;
        wait_for(hub.objects(), "host-1", &of(paused), &of_paused).await?;
        let here = stage.get(NAMESPACE, None, "kube-system").await?;
        let here = here.context("no kube-system")?["metadata"]["uid"].take();
        ensure!(source(&copy)?["clusterUid"] == here, "{copy}");
        agent.stop()?;
        // One of another cluster has its own of a name that is none here, and of one that is here as well.
        let [absent, same] = ["copied-absent", "copied-same"];
        let mut theirs = Vec::new();
        for name in [absent, same] {
            hub.objects()
                .create(of_another(&copy, name, "other")?)
                .await?;
            theirs.push(
                hub.objects()
                    .get(SECRET, (Some("host-1"), &of(name)))
                    .await?,
            );
        }
        hosted(stage, same).await?;
        // And an earlier agent named no cluster; one of its primaries is paused, so nothing is written for it.
        for name in [name, paused] {
            let copy = (Some("host-1"), &*of(name));
            let mut earlier = source(&hub.objects().get(SECRET, copy).await?)?;
            let fields = earlier.as_object_mut().context("no source")?;
            fields.remove("clusterUid");
            let metadata = json!({"name": copy.1, "namespace": "host-1",
                "annotations": {labels::SOURCE: earlier.to_string()}});
            let earlier = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
            hub.objects().apply(earlier).await?;
        }
        let body = json!({"metadata": {"annotations": {labels::PAUSED: "true"}}});
        stage.patch(HOSTED, Some(CLUSTERS), paused, body).await?;
        let (agent, [mark, there]) = two_servers(stage, &hub, &account, &path).await?;
        agent.wait_for(&primary(same), "Failed TargetNotOwned")?;
        let mine = (Some("host-1"), &*of(name));
        let is_named = |copy: &Value| source(copy).is_ok_and(|source| source["clusterUid"] == here);
        hub.objects().wait_for(SECRET, mine, is_named).await?;
        agent.wait_for(&primary(paused), "Held Paused")?;
        for name in [name, same, paused] {
            stage.delete(HOSTED, Some(CLUSTERS), name).await?;
        }
        for name in [name, paused] {
            wait_for(hub.objects(), "host-1", &of(name), &Value::Null).await?;
        }
        agent.wait_for(&primary(same), "Applied SourceDeleted")?;
        agent.stop()?;
        for before in theirs {
            let name = before["metadata"]["name"].as_str().unwrap_or_default();
            let after = hub.objects().get(SECRET, (Some("host-1"), name)).await?;
            ensure!(after == before, "{before} became {after}");
        }
        stage.nothing_denied(mark).await?;
        nothing_denied_on(&hub, &account, there)?;
        Ok(())
    })
}
