//! Creates, updates, patches and deletes: they change exactly the owned fields, and nothing if the object exists
//! already or differs from what was read.

use crate::support::*;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_test_cluster::wait;

const MANAGED: &str = "cluster.open-cluster-management.io/v1";

#[tokio::test]
async fn creates_an_object_with_one_request_and_one_field_manager() -> Result<()> {
    let scene = Scene::new("create-new").await?;
    let target = scene.secret("s");
    let mark = scene.cluster.audit().mark()?;
    let made = scene.done(&create(&target, "one")).await?;
    assert!(!made.uid().is_empty() && made.body["metadata"].get("managedFields").is_none());

    let there = scene.there(&target).await?;
    assert_eq!(
        (there.version.as_str(), &there.body["data"]),
        (made.version.as_str(), &made.body["data"])
    );
    let managers = managers(&there);
    assert_eq!(
        managers.keys().collect::<Vec<_>>(),
        [&("transom-external".to_owned(), "Apply".to_owned())]
    );

    let of_target = |line: &transom_test_cluster::Line| {
        line.target
            .as_ref()
            .is_some_and(|it| it.namespace == "create-new" && it.name == "s")
            && line.user == "agent"
    };
    let lines = wait::until("the request in the audit log", DEADLINE, async || {
        let lines: Vec<_> = scene
            .cluster
            .audit()
            .since(mark)?
            .into_iter()
            .filter(of_target)
            .collect();
        Ok((!lines.is_empty()).then_some(lines))
    })
    .await?;
    assert_eq!(
        lines
            .iter()
            .map(|line| (line.verb.as_str(), line.code))
            .collect::<Vec<_>>(),
        [("patch", 201)]
    );
    Ok(())
}

#[tokio::test]
async fn never_takes_over_an_existing_object() -> Result<()> {
    let scene = Scene::new("create-there").await?;
    let ours = scene.secret("ours");
    scene.done(&create(&ours, "one")).await?;
    let held = json!({"finalizers": ["example.org/held"], "labels": {"a": "b"}});
    for (name, foreign) in [
        ("ours", None),
        ("equal", Some(json!({"data": {"kubeconfig": "b25l"}}))),
        ("other-key", Some(json!({"data": {"other": "b25l"}}))),
        ("empty", Some(json!({}))),
        ("deleted", Some(json!({"metadata": held}))),
    ] {
        let target = scene.secret(name);
        if let Some(mut foreign) = foreign {
            foreign["apiVersion"] = json!("v1");
            foreign["kind"] = json!("Secret");
            foreign["metadata"]["name"] = json!(name);
            foreign["metadata"]["namespace"] = json!(scene.namespace);
            scene.foreign(foreign).await?;
        }
        if name == "deleted" {
            let secrets = scene
                .objects
                .api("v1", "Secret", Some(&scene.namespace))
                .await?;
            secrets
                .delete(name, &kube::api::DeleteParams::default())
                .await?;
        }
        let before = scene.there(&target).await?;
        let failure = scene
            .refused(&create(&target, "one"), KnownReason::WriteConflict)
            .await;
        assert!(
            failure.message.ends_with("it already exists"),
            "{}",
            failure.message
        );
        assert_eq!(scene.there(&target).await?.body, before.body, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn permissions_bound_by_name_allow_that_name_only() -> Result<()> {
    let scene = Scene::new("create-by-name").await?;
    let namespace = &scene.namespace;
    scene
        .objects
        .apply_manifest(&format!(
            "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: one, namespace: {namespace}}}
rules: [{{apiGroups: [''], resources: [secrets], resourceNames: [one], verbs: [create, patch]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: one, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: one}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: bound}}]
"
        ))
        .await?;
    let bound = connect(scene.cluster, &scene.cluster.user("bound", &[])?).await?;
    let made = wait::until("the rights", DEADLINE, async || {
        match bound
            .writer()
            .perform(POLICY, &create(&scene.secret("one"), "one"))
            .await
        {
            Ok(made) => Ok(made),
            Err(failure) if failure.reason == KnownReason::WriteForbidden => Ok(None),
            Err(failure) => anyhow::bail!("{failure:?}"),
        }
    })
    .await?;
    assert!(
        bound
            .writer()
            .perform(POLICY, &update(&made, "two"))
            .await
            .is_ok()
    );
    let other = bound
        .writer()
        .perform(POLICY, &create(&scene.secret("two"), CANARY))
        .await
        .unwrap_err();
    assert_eq!(other.reason, KnownReason::WriteForbidden);
    assert_eq!(
        other.message,
        "failed to create Secret create-by-name/two: User \"bound\" cannot patch resource \"secrets\" in API group \"\" \
         in the namespace \"create-by-name\""
    );
    assert_eq!(scene.read(&scene.secret("two")).await?, None);
    Ok(())
}

#[tokio::test]
async fn kubectl_may_apply_to_the_same_object() -> Result<()> {
    let scene = Scene::new("create-kubectl").await?;
    let target = scene.secret("s");
    scene.done(&create(&target, "one")).await?;
    let manifest = scene.cluster.folder().join("beside.yaml");
    let theirs: Value = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "s", "namespace": scene.namespace, "labels": {"team": "blue"}},
    });
    std::fs::write(&manifest, theirs.to_string())?;
    let mut kubectl = scene.cluster.kubectl(scene.cluster.admin())?;
    let output = kubectl
        .args(["apply", "--server-side", "-f"])
        .arg(&manifest)
        .output()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let there = scene.there(&target).await?;
    scene.done(&update(&there, "two")).await?;
    let after = scene.there(&target).await?;
    assert_eq!(after.label("team"), Some("blue"));
    assert_eq!(after.data("kubeconfig"), Some(&json!("dHdv")));
    let names: Vec<String> = managers(&after)
        .into_keys()
        .map(|(manager, _)| manager)
        .collect();
    assert_eq!(names, ["kubectl", "transom-external", "transom-external"]);
    Ok(())
}

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
