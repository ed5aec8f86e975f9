//! Servers and networks that fail: no object is lost, and no existing object is reported as gone.

use crate::support::*;
use anyhow::Result;
use serde_json::json;
use transom_api::KnownReason;
use transom_cluster::kubernetes::{Kubernetes, KubernetesOptions};
use transom_core::observation::Observation;
use transom_core::reference::ObjectRef;
use transom_test_cluster::{Carries, Wire};

#[tokio::test]
async fn finds_exactly_the_objects_deleted_during_a_disconnect() -> Result<()> {
    let cluster = own_cluster().await?;
    let wire = Wire::to(&cluster.server())?;
    let scene = Scene::at(&cluster, &wire.server(), "cut").await?;
    for name in ["stays", "changes", "goes", "goes-too"] {
        scene.objects.create(scene.map(name, "1")).await?;
    }
    let agent = &scene.agent;
    scene.watch([scene.all("v1", "ConfigMap")]).await?;
    let mut changes = agent.changes();

    // The API server still knows the events in between: the watch continues where it was.
    wire.cut();
    let place = unreadable(&mut changes, KnownReason::ServerUnavailable).await?;
    assert!(agent.read(&scene.map_ref("goes")).await?.is_some());
    let other = agent.read(&scene.secret("x")).await;
    assert_eq!(
        other.map_err(|failure| failure.reason),
        Err(KnownReason::ServerUnavailable)
    );
    let asked = agent.confirm(&scene.map_ref("goes")).await;
    assert_eq!(
        asked.map_err(|failure| failure.reason),
        Err(KnownReason::ServerUnavailable)
    );
    scene.remove(&scene.map_ref("goes")).await?;
    wire.carry(Carries::All);
    readable(
        &mut changes,
        followed(&place, &scene.all("v1", "ConfigMap")),
    )
    .await?;
    let stays = agent.confirm(&scene.map_ref("stays")).await?;
    assert_eq!(
        stays.and_then(|map| map.data("text").cloned()),
        Some(json!("1"))
    );
    assert_eq!(agent.confirm(&scene.map_ref("goes")).await, Ok(None));
    // A kind that is not served, now or at the next attempt, says nothing about its objects.
    for _ in 0..3 {
        let asked = agent
            .confirm(&ObjectRef::local("example.org/v1", "Thing", None, "x"))
            .await;
        assert_eq!(
            asked.map_err(|failure| failure.reason),
            Err(KnownReason::KindMissing)
        );
    }
    gone(&mut changes, &scene.map_ref("goes")).await?;

    // A new API server has no history: everything is listed and compared.
    wire.cut();
    assert_eq!(
        unreadable(&mut changes, KnownReason::ServerUnavailable).await?,
        place
    );
    scene.remove(&scene.map_ref("goes-too")).await?;
    scene.objects.apply(scene.map("changes", "2")).await?;
    cluster.restart_apiserver().await?;
    wire.carry(Carries::All);
    let mut seen = Vec::new();
    let both = told(&mut changes, "the deletion and the change", |told| {
        match told {
            Observation::Gone(reference) => seen.push((reference.name.clone(), false)),
            Observation::Present(object) => seen.push((object.reference.name.clone(), true)),
            _ => {}
        }
        (seen.len() == 2).then(|| seen.clone())
    });
    let mut both = both.await?;
    both.sort();
    assert_eq!(
        both,
        [("changes".to_owned(), true), ("goes-too".to_owned(), false)]
    );
    assert_eq!(
        agent
            .read(&scene.map_ref("changes"))
            .await?
            .and_then(|map| map.data("text").cloned()),
        Some(json!("2"))
    );
    assert!(agent.read(&scene.map_ref("stays")).await?.is_some());
    assert!(
        agent
            .health()
            .watches
            .iter()
            .all(|watch| watch.restarts > 0)
    );
    Ok(())
}

#[tokio::test]
async fn reconnects_to_a_killed_api_server() -> Result<()> {
    let cluster = own_cluster().await?;
    let scene = Scene::at(&cluster, &cluster.server(), "killed").await?;
    scene.objects.create(scene.map("a", "1")).await?;
    let agent = &scene.agent;
    let kinds = ["ConfigMap", "Secret"].map(|kind| scene.all("v1", kind));
    scene.watch(kinds).await?;
    let mut changes = agent.changes();
    cluster.apiserver().kill()?;
    unreadable(&mut changes, KnownReason::ServerUnavailable).await?;
    assert!(agent.read(&scene.map_ref("a")).await?.is_some());
    cluster.restart_apiserver().await?;
    scene.objects.apply(scene.map("a", "2")).await?;
    told(&mut changes, "the change", |told| match told {
        Observation::Present(object) => (object.data("text") == Some(&json!("2"))).then_some(()),
        _ => None,
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_wrong_address_or_credential_gives_a_clear_error() -> Result<()> {
    let cluster = cluster();
    let agent = cluster.user("agent", &[])?;
    let closed = cluster.kubeconfig_at(&agent, "https://127.0.0.1:1")?;
    let stranger = cluster
        .kubeconfig(&agent)?
        .replace("certificate-authority-data", "x-unknown");
    for (name, text, says) in [
        ("closed", closed, "connection refused"),
        ("stranger", stranger, "certificate"),
    ] {
        let path = cluster.folder().join(name);
        std::fs::write(&path, text)?;
        let options = KubernetesOptions {
            name: "hub".to_owned(),
            kubeconfig: Some(path),
            ..KubernetesOptions::default()
        };
        let Err(error) = Kubernetes::connect(options).await else {
            panic!("{name} was accepted")
        };
        let error = error.to_string();
        assert!(
            error.contains("connection `hub`") && error.contains(says),
            "{error}"
        );
    }
    Ok(())
}
