//! Updates, patches and deletes: they change exactly the owned fields, and nothing if the object differs from what was
//! read.

use crate::support::*;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_core::object::Object;

const MANAGED: &str = "cluster.open-cluster-management.io/v1";

#[tokio::test]
async fn an_update_removes_stray_keys_and_keeps_the_rest() -> Result<()> {
    let scene = Scene::new("update").await?;
    let target = scene.secret("s");
    let mut body = secret(&target, "one");
    body["type"] = json!("example.org/other");
    body["data"]["stray.key"] = json!("eA==");
    body["metadata"]["labels"]["team"] = json!("blue");
    body["metadata"]["finalizers"] = json!(["example.org/held"]);
    let before = scene.foreign(body).await?;
    // As in the cache, which stores no finalizers.
    let mut seen = before.clone();
    seen.body["metadata"]
        .as_object_mut()
        .unwrap()
        .retain(|key, _| key != "finalizers" && key != "managedFields");
    let after = scene.done(&update(&seen, "two")).await?;
    assert_eq!(
        after.body["data"],
        json!({"kubeconfig": STANDARD.encode("two")})
    );
    let there = scene.there(&target).await?;
    assert_eq!(there.version, after.version);
    for pointer in [
        "/type",
        "/metadata/labels",
        "/metadata/annotations",
        "/metadata/finalizers",
        "/metadata/uid",
    ] {
        assert_eq!(
            there.body.pointer(pointer),
            before.body.pointer(pointer),
            "{pointer}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn does_not_overwrite_an_object_changed_since_it_was_read() -> Result<()> {
    let scene = Scene::new("stale").await?;
    let target = scene.secret("s");
    let first = scene.done(&create(&target, "one")).await?;
    let second = scene.done(&update(&first, "two")).await?;
    for step in [update(&first, "three"), delete(&first)] {
        let failure = scene.refused(&step, KnownReason::WriteConflict).await;
        assert!(
            failure.message.ends_with("it changed since it was read"),
            "{}",
            failure.message
        );
    }
    assert_eq!(
        scene.there(&target).await?.body["data"],
        second.body["data"]
    );

    let of_another = Object {
        body: first.body.clone(),
        ..second.clone()
    };
    let mut of_another = delete(&of_another);
    if let transom_core::plan::Step::Delete { uid, .. } = &mut of_another {
        "00000000-0000-0000-0000-000000000000".clone_into(uid);
    }
    scene.refused(&of_another, KnownReason::WriteConflict).await;
    assert_eq!(
        scene
            .agent
            .writer()
            .perform(POLICY, &delete(&second))
            .await
            .map_err(|it| it.message),
        Ok(None)
    );
    assert_eq!(scene.read(&target).await?, None);

    assert_eq!(
        scene
            .agent
            .writer()
            .perform(POLICY, &delete(&second))
            .await
            .map_err(|it| it.message),
        Ok(None),
        "gone is gone"
    );
    let failure = scene
        .refused(&update(&second, "three"), KnownReason::WriteConflict)
        .await;
    assert!(
        failure.message.ends_with("it no longer exists"),
        "{}",
        failure.message
    );
    assert_eq!(scene.read(&target).await?, None, "an update makes nothing");
    Ok(())
}

#[tokio::test]
async fn an_object_with_a_finalizer_remains_after_a_delete() -> Result<()> {
    let scene = Scene::new("held").await?;
    let mut body = secret(&scene.secret("s"), "one");
    body["metadata"]["finalizers"] = json!(["example.org/held"]);
    let held = scene.foreign(body).await?;
    let left = scene
        .agent
        .writer()
        .perform(POLICY, &delete(&held))
        .await
        .map_err(|it| anyhow::anyhow!(it.message))?;
    assert!(left.context("it is gone")?.deleting());
    Ok(())
}

#[tokio::test]
async fn a_patch_sets_the_taints_and_leaves_every_other_field() -> Result<()> {
    let scene = Scene::new("patch").await?;
    let user = json!({"key": "user", "value": "", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"});
    let spec = json!({"hubAcceptsClient": true, "leaseDurationSeconds": 33, "taints": [user]});
    let manifest = json!({"apiVersion": MANAGED, "kind": "ManagedCluster", "metadata": {"name": "patched"}, "spec": spec});
    let before = scene.foreign(manifest).await?;
    let ours = json!({"key": "a/one", "effect": "NoSelect", "timeAdded": "2026-11-21T08:15:30Z"});
    let after = scene.done(&taint(&before, json!([user, ours]))).await?;
    assert_eq!(after.body["spec"]["taints"], json!([user, ours]));
    assert_eq!(after.body["spec"]["leaseDurationSeconds"], json!(33));
    scene
        .refused(&taint(&before, json!([])), KnownReason::WriteConflict)
        .await;
    let cleared = scene.done(&taint(&after, Value::Null)).await?;
    assert_eq!(cleared.body["spec"].get("taints"), None);
    let same = scene.done(&taint(&cleared, Value::Null)).await?;
    assert_eq!(
        same.version, cleared.version,
        "what is equal is not written"
    );
    Ok(())
}
