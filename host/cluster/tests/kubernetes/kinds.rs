//! Kinds and permissions that are added and removed.

use crate::support::*;
use anyhow::Result;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_cluster::kubernetes::Kubernetes;
use transom_core::object::Object;
use transom_core::observation::Observation;
use transom_core::plan::Step;
use transom_test_cluster::wait;

#[tokio::test]
async fn watches_a_kind_once_installed_and_again_after_its_removal() -> Result<()> {
    let scene = Scene::new("installed").await?;
    let (agent, things) = (&scene.agent, scene.all(&scene.group(), "Thing"));
    let mut changes = agent.changes();
    scene
        .watch([things.clone(), scene.all("v1", "ConfigMap")])
        .await?;
    let place = unreadable(&mut changes, KnownReason::KindMissing).await?;
    assert_eq!(
        place,
        "watch of Thing (installed.example.org/v1), namespace installed"
    );
    assert_eq!(agent.unreadable().len(), 1);
    assert_eq!(agent.read(&scene.thing_ref("a")).await?, None);

    scene.install_things("a").await?;
    readable(&mut changes, followed(&place, &things)).await?;
    transom_test_cluster::wait::until("the first Thing", DEADLINE, async || {
        Ok(agent.read(&scene.thing_ref("a")).await?)
    })
    .await?;
    assert_eq!(agent.unreadable(), []);

    scene.uninstall_things().await?;
    gone(&mut changes, &scene.thing_ref("a")).await?;
    assert_eq!(
        unreadable(&mut changes, KnownReason::KindMissing).await?,
        place
    );
    scene.install_things("b").await?;
    let b = scene.thing_ref("b");
    told(&mut changes, "the new Thing", |told| {
        matches!(told, Observation::Present(object) if object.reference == b).then_some(())
    })
    .await?;
    assert_eq!(agent.list(&scene.group(), "Thing", None), [b]);
    Ok(())
}

#[tokio::test]
async fn reports_a_forbidden_kind_and_watches_it_once_allowed() -> Result<()> {
    let scene = Scene::new("forbidden").await?;
    let user = scene.cluster.user("forbidden", &[])?;
    let agent = connect(scene.cluster, &user).await?;
    let mut changes = agent.changes();
    agent.watch([(scene.all("v1", "ConfigMap"), Default::default())].into());
    let place = unreadable(&mut changes, KnownReason::ReadForbidden).await?;
    let [unreadable] = &agent.unreadable()[..] else {
        panic!("{:?}", agent.unreadable())
    };
    assert!(
        unreadable.message.contains("configmaps is forbidden"),
        "{}",
        unreadable.message
    );
    scene.objects.create(scene.map("a", "1")).await?;
    scene.objects.apply_manifest(ALLOWED).await?;
    readable(
        &mut changes,
        followed(&place, &scene.all("v1", "ConfigMap")),
    )
    .await?;
    assert_eq!(agent.list("v1", "ConfigMap", None), [scene.map_ref("a")]);
    Ok(())
}

/// The agent's permissions for the user `forbidden`.
const ALLOWED: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: forbidden}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: agent}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: forbidden}]
";

#[tokio::test]
async fn a_kind_in_another_version_is_not_missing_and_keeps_its_objects() -> Result<()> {
    let scene = Scene::new("versions").await?;
    scene.objects.create(scene.things("v2")).await?;
    let agent: &Kubernetes = &scene.agent;
    let mut changes = agent.changes();
    scene.watch([scene.all(&scene.group(), "Thing")]).await?;
    unreadable(&mut changes, KnownReason::ReadFailed).await?;
    let failure = agent.read(&scene.thing_ref("a")).await;
    let failure = failure.map_err(|failure| (failure.reason, failure.message));
    let message = "failed to read Thing versions/a: failed to watch Thing: the API server serves the kind as versions.example.org/v2, not as versions.example.org/v1";
    assert_eq!(failure, Err((KnownReason::ReadFailed, message.to_owned())));
    Ok(())
}

/// Installs the kind of a scene with or without the subresource `status`; an object of it is written by the admin.
async fn things_with_status(scene: &Scene<'_>, has_status: bool) -> Result<()> {
    let mut things = scene.things("v1");
    if has_status {
        things["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    }
    scene.objects.apply(things).await?;
    Ok(())
}

/// The step that sets one field of an object.
fn set(object: &Object, path: &str, value: &Value) -> Step {
    Step::Patch {
        reference: object.reference.clone(),
        version: object.version.clone(),
        fields: vec![(path.to_owned(), value.clone())],
    }
}

/// Sets the field `status.phase` of the Thing `a`; the reason of a failure.
async fn phase(scene: &Scene<'_>, admin: &Kubernetes, value: &str) -> Result<Option<KnownReason>> {
    let there = scene.there(&scene.thing_ref("a")).await?;
    let step = set(&there, "status.phase", &json!(value));
    let done = admin.writer().perform(POLICY, &step).await;
    Ok(done.err().map(|failure| failure.reason))
}

async fn first_thing(scene: &Scene<'_>) -> Result<Object> {
    wait::until("a Thing", DEADLINE, async || {
        Ok(scene.objects.create(scene.thing("a")).await.ok().map(drop))
    })
    .await?;
    scene.there(&scene.thing_ref("a")).await
}

#[tokio::test]
async fn writes_a_subresource_that_a_known_kind_gets_later() -> Result<()> {
    let scene = Scene::new("gets-status").await?;
    let admin = connect(scene.cluster, scene.cluster.admin()).await?;
    things_with_status(&scene, false).await?;
    let thing = first_thing(&scene).await?;
    let step = set(&thing, "spec.size", &json!(1));
    admin.writer().perform(POLICY, &step).await.unwrap();
    things_with_status(&scene, true).await?;
    wait::until("the subresource", DEADLINE, async || {
        let group = scene.group();
        let served = scene.objects.client().list_api_group_resources(&group);
        let served = served.await?.resources;
        Ok(served
            .iter()
            .any(|one| one.name == "things/status")
            .then_some(()))
    })
    .await?;
    wait::until("the status", DEADLINE, async || {
        let failed = phase(&scene, &admin, "ready").await?;
        Ok(failed.is_none().then_some(()))
    })
    .await?;
    let there = scene.there(&scene.thing_ref("a")).await?;
    assert_eq!(there.body["status"], json!({"phase": "ready"}));
    Ok(())
}

#[tokio::test]
async fn writes_nothing_of_a_patch_whose_kind_lacks_a_subresource() -> Result<()> {
    let scene = Scene::new("lacks-status").await?;
    let admin = connect(scene.cluster, scene.cluster.admin()).await?;
    things_with_status(&scene, false).await?;
    let thing = first_thing(&scene).await?;
    let fields = [("spec.size", json!(1)), ("status.phase", json!("ready"))];
    let step = Step::Patch {
        reference: thing.reference.clone(),
        version: thing.version.clone(),
        fields: fields
            .map(|(path, value)| (path.to_owned(), value))
            .to_vec(),
    };
    let done = admin.perform(POLICY, &step).await;
    let failure = done.result.unwrap_err();
    assert_eq!(
        (failure.reason, failure.message.as_str()),
        (
            KnownReason::WriteInvalid,
            "failed to patch Thing lacks-status/a: its kind has no subresource `status`"
        )
    );
    assert_eq!(done.part, None);
    assert_eq!(scene.there(&thing.reference).await?, thing);
    Ok(())
}

#[tokio::test]
async fn refuses_a_subresource_that_a_known_kind_lost() -> Result<()> {
    let scene = Scene::new("loses-status").await?;
    let admin = connect(scene.cluster, scene.cluster.admin()).await?;
    things_with_status(&scene, true).await?;
    first_thing(&scene).await?;
    assert_eq!(phase(&scene, &admin, "one").await?, None);
    things_with_status(&scene, false).await?;
    let mut turn = 0;
    wait::until("the refusal", DEADLINE, async || {
        turn += 1;
        let failed = phase(&scene, &admin, &turn.to_string()).await?;
        Ok((failed == Some(KnownReason::WriteInvalid)).then_some(()))
    })
    .await
}
