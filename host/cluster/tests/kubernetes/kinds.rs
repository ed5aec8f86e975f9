//! Kinds and permissions that are added and removed.

use crate::support::{
    DEADLINE, RIGHTS, THINGS, all, cluster, connect, delete, gone, readable, told, unreadable,
    watch,
};
use anyhow::Result;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_core::observation::Observation;
use transom_core::reference::ObjectRef;
use transom_test_cluster::{Cluster, Options, wait};

fn thing(name: &str) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": name, "namespace": "default"}})
}

fn thing_ref(name: &str) -> ObjectRef {
    ObjectRef::local("example.org/v1", "Thing", Some("default"), name)
}

/// Installs the kind; waits until an object of it can be created.
pub(crate) async fn install(cluster: &Cluster, first: &str) -> Result<()> {
    cluster.objects().apply_manifest(THINGS).await?;
    cluster.wait_for_crd("things.example.org").await?;
    wait::until("a Thing", DEADLINE, async || {
        Ok(cluster.objects().create(thing(first)).await.ok())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn watches_a_kind_once_installed_and_again_after_its_removal() -> Result<()> {
    let cluster = cluster().await?;
    let agent = connect(&cluster, &cluster.server()).await?;
    let mut changes = agent.changes();
    watch(
        &agent,
        [all("example.org/v1", "Thing"), all("v1", "ConfigMap")],
    )
    .await?;
    let place = unreadable(&mut changes, KnownReason::KindMissing).await?;
    assert_eq!(place, "watch of Thing (example.org/v1)");
    assert_eq!(agent.unreadable().len(), 1);
    assert_eq!(agent.read(&thing_ref("a")).await?, None);

    install(&cluster, "a").await?;
    readable(&mut changes, &place).await?;
    wait::until("the first Thing", DEADLINE, async || {
        Ok(agent.read(&thing_ref("a")).await?)
    })
    .await?;
    assert_eq!(agent.unreadable(), []);

    delete(
        &cluster,
        &ObjectRef::local(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            None,
            "things.example.org",
        ),
    )
    .await?;
    gone(&mut changes, &thing_ref("a")).await?;
    assert_eq!(
        unreadable(&mut changes, KnownReason::KindMissing).await?,
        place
    );
    install(&cluster, "b").await?;
    let b = |told: &Observation| matches!(told, Observation::Present(object) if object.reference == thing_ref("b"));
    told(&mut changes, "the new Thing", |told| b(told).then_some(())).await?;
    assert_eq!(
        agent.list("example.org/v1", "Thing", None),
        [thing_ref("b")]
    );
    Ok(())
}

#[tokio::test]
async fn reports_a_forbidden_kind_and_watches_it_once_allowed() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    let agent = connect(&cluster, &cluster.server()).await?;
    let mut changes = agent.changes();
    watch(&agent, [all("v1", "ConfigMap")]).await?;
    let place = unreadable(&mut changes, KnownReason::ReadForbidden).await?;
    let [unreadable] = &agent.unreadable()[..] else {
        panic!("{:?}", agent.unreadable())
    };
    assert!(
        unreadable.message.contains("configmaps is forbidden"),
        "{}",
        unreadable.message
    );
    cluster.objects().apply_manifest(RIGHTS).await?;
    readable(&mut changes, &place).await?;
    assert!(
        !agent
            .list("v1", "ConfigMap", Some("kube-system"))
            .is_empty()
    );
    Ok(())
}

#[tokio::test]
async fn a_kind_in_another_version_is_not_missing_and_keeps_its_objects() -> Result<()> {
    let cluster = cluster().await?;
    cluster
        .objects()
        .apply_manifest(&THINGS.replace("- name: v1", "- name: v2"))
        .await?;
    cluster.wait_for_crd("things.example.org").await?;
    let agent = connect(&cluster, &cluster.server()).await?;
    let mut changes = agent.changes();
    watch(&agent, [all("example.org/v1", "Thing")]).await?;
    unreadable(&mut changes, KnownReason::ReadFailed).await?;
    let failure = agent
        .read(&thing_ref("a"))
        .await
        .map_err(|failure| (failure.reason, failure.message));
    let message = "failed to read Thing default/a: failed to watch Thing: the API server serves the kind as example.org/v2, not as example.org/v1";
    assert_eq!(failure, Err((KnownReason::ReadFailed, message.to_owned())));
    Ok(())
}
