//! Servers and networks that fail: no object is lost, and no existing object is reported as gone.

use crate::support::{
    all, cluster, connect, delete, gone, map, map_ref, readable, told, unreadable, watch,
};
use anyhow::Result;
use serde_json::json;
use transom_api::KnownReason;
use transom_cluster::kubernetes::{Kubernetes, KubernetesOptions};
use transom_core::observation::Observation;
use transom_core::reference::ObjectRef;
use transom_test_cluster::{Carries, Wire};

#[tokio::test]
async fn finds_exactly_the_objects_deleted_during_a_disconnect() -> Result<()> {
    let cluster = cluster().await?;
    for name in ["stays", "changes", "goes", "goes-too"] {
        cluster.objects().create(map(name, "1")).await?;
    }
    let wire = Wire::to(&cluster.server())?;
    let agent = connect(&cluster, &wire.server()).await?;
    watch(&agent, [all("v1", "ConfigMap")]).await?;
    let mut changes = agent.changes();

    // The API server still knows the events in between: the watch continues where it was.
    wire.cut();
    let place = unreadable(&mut changes, KnownReason::ServerUnavailable).await?;
    assert!(agent.read(&map_ref("goes")).await?.is_some());
    let other = agent
        .read(&ObjectRef::local("v1", "Secret", Some("default"), "x"))
        .await;
    assert_eq!(
        other.map_err(|failure| failure.reason),
        Err(KnownReason::ServerUnavailable)
    );
    let asked = agent.confirm(&map_ref("goes")).await;
    assert_eq!(
        asked.map_err(|failure| failure.reason),
        Err(KnownReason::ServerUnavailable)
    );
    delete(&cluster, &map_ref("goes")).await?;
    wire.carry(Carries::All);
    readable(&mut changes, &place).await?;
    let stays = agent.confirm(&map_ref("stays")).await?;
    assert_eq!(
        stays.and_then(|map| map.data("text").cloned()),
        Some(json!("1"))
    );
    assert_eq!(agent.confirm(&map_ref("goes")).await, Ok(None));
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
    gone(&mut changes, &map_ref("goes")).await?;

    // A new API server has no history: everything is listed and compared.
    wire.cut();
    assert_eq!(
        unreadable(&mut changes, KnownReason::ServerUnavailable).await?,
        place
    );
    delete(&cluster, &map_ref("goes-too")).await?;
    cluster.objects().apply(map("changes", "2")).await?;
    cluster.restart_apiserver().await?;
    wire.carry(Carries::All);
    let mut seen = Vec::new();
    let both = told(&mut changes, "the deletion and the change", |told| {
        match told {
            Observation::Gone(reference) => seen.push((reference.name.clone(), false)),
            Observation::Present(object)
                if object.reference.namespace.as_deref() == Some("default") =>
            {
                seen.push((object.reference.name.clone(), true));
            }
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
            .read(&map_ref("changes"))
            .await?
            .and_then(|map| map.data("text").cloned()),
        Some(json!("2"))
    );
    assert!(agent.read(&map_ref("stays")).await?.is_some());
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
    let cluster = cluster().await?;
    cluster.objects().create(map("a", "1")).await?;
    let agent = connect(&cluster, &cluster.server()).await?;
    watch(&agent, [all("v1", "ConfigMap"), all("v1", "Secret")]).await?;
    let mut changes = agent.changes();
    cluster.apiserver().kill()?;
    unreadable(&mut changes, KnownReason::ServerUnavailable).await?;
    assert!(agent.read(&map_ref("a")).await?.is_some());
    cluster.restart_apiserver().await?;
    cluster.objects().apply(map("a", "2")).await?;
    told(&mut changes, "the change", |told| match told {
        Observation::Present(object) => (object.data("text") == Some(&json!("2"))).then_some(()),
        _ => None,
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_wrong_address_or_credential_gives_a_clear_error() -> Result<()> {
    let cluster = cluster().await?;
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
