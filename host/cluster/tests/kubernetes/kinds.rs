//! Kinds and permissions that are added and removed.

use crate::support::*;
use anyhow::Result;
use transom_api::KnownReason;
use transom_cluster::kubernetes::Kubernetes;
use transom_core::observation::Observation;

#[tokio::test]
async fn watches_a_kind_once_installed_and_again_after_its_removal() -> Result<()> {
    let scene = Scene::new("installed").await?;
    let (agent, things) = (&scene.agent, scene.all(&scene.group(), "Thing"));
    let mut changes = agent.changes();
    scene.watch([things, scene.all("v1", "ConfigMap")]).await?;
    let place = unreadable(&mut changes, KnownReason::KindMissing).await?;
    assert_eq!(
        place,
        "watch of Thing (installed.example.org/v1), namespace installed"
    );
    assert_eq!(agent.unreadable().len(), 1);
    assert_eq!(agent.read(&scene.thing_ref("a")).await?, None);

    scene.install_things("a").await?;
    readable(&mut changes, &place).await?;
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
    readable(&mut changes, &place).await?;
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
