//! Lists, changes, selectors, what is stored, and what is requested.

use crate::kinds::install;
use crate::support::{
    DEADLINE, all, cluster, connect, delete, gone, map, map_ref, told, unreadable, watch,
    watch_keeping,
};
use anyhow::Result;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_core::observation::Observation;
use transom_core::projection::Paths;
use transom_core::reference::ObjectRef;
use transom_core::watches::{Keep, Scope, Watches};
use transom_test_cluster::{Cluster, Mark, wait};

/// Waits until an object is reported with a text in `data.text`.
async fn text(
    changes: &mut transom_cluster::kubernetes::Observations,
    name: &str,
    text: &str,
) -> Result<()> {
    told(changes, &format!("{name} with {text}"), |told| match told {
        Observation::Present(object) if object.reference == map_ref(name) => {
            (object.data("text") == Some(&json!(text))).then_some(())
        }
        _ => None,
    })
    .await
}

/// How often the agent read single objects since a mark; a later request of the test shows that the log is complete.
async fn gets(cluster: &Cluster, since: Mark) -> Result<usize> {
    let maps = cluster
        .objects()
        .api("v1", "ConfigMap", Some("default"))
        .await?;
    drop(maps.get_opt("the-end").await?);
    wait::until("the end of the log", DEADLINE, async || {
        let lines = cluster.audit().since(since)?;
        let end = lines
            .iter()
            .any(|line| line.user == "admin" && line.uri.ends_with("/the-end"));
        let single = |line: &&transom_test_cluster::Line| {
            line.user == "agent" && line.verb == "get" && line.target.is_some()
        };
        let mut asked: Vec<&str> = lines
            .iter()
            .filter(single)
            .map(|line| line.id.as_str())
            .collect();
        asked.sort_unstable();
        asked.dedup();
        Ok(end.then_some(asked.len()))
    })
    .await
}

#[tokio::test]
async fn reads_and_changes_come_from_the_cache_without_requests() -> Result<()> {
    let cluster = cluster().await?;
    cluster.objects().create(map("a", "1")).await?;
    cluster.objects().create(map("b", "1")).await?;
    let agent = connect(&cluster, &cluster.server()).await?;
    let mut changes = agent.changes();
    watch(&agent, [all("v1", "ConfigMap")]).await?;
    text(&mut changes, "a", "1").await?;
    let mark = cluster.audit().mark()?;
    let a = agent.read(&map_ref("a")).await?.expect("a listed object");
    assert_eq!(a.data("text"), Some(&json!("1")));
    assert!(a.body.pointer("/metadata/managedFields").is_none() && a.body["kind"] == "ConfigMap");
    assert_eq!(a.meta("resourceVersion"), Some(a.version.as_str()));
    assert_eq!(agent.read(&map_ref("none")).await?, None);
    assert_eq!(gets(&cluster, mark).await?, 0);

    cluster.objects().apply(map("a", "2")).await?;
    cluster.objects().create(map("c", "1")).await?;
    text(&mut changes, "a", "2").await?;
    text(&mut changes, "c", "1").await?;
    delete(&cluster, &map_ref("b")).await?;
    gone(&mut changes, &map_ref("b")).await?;
    assert_eq!(agent.read(&map_ref("b")).await?, None);
    assert!(
        agent
            .list("v1", "ConfigMap", Some("default"))
            .contains(&map_ref("c"))
    );
    assert_eq!(agent.list("v1", "ConfigMap", Some("nowhere")), []);

    let secret = ObjectRef::local("v1", "Secret", Some("default"), "none");
    let mark = cluster.audit().mark()?;
    assert_eq!(agent.read(&secret).await?, None);
    assert_eq!(
        agent
            .read(&ObjectRef::local("example.org/v9", "Nothing", None, "x"))
            .await?,
        None
    );
    assert_eq!(
        agent
            .read(&ObjectRef::local(
                "v1",
                "Secret",
                Some("default"),
                "../configmaps/a"
            ))
            .await?,
        None
    );
    let forbidden = agent
        .read(&ObjectRef::local("v1", "Service", Some("default"), "x"))
        .await;
    assert_eq!(
        forbidden.map_err(|failure| failure.reason),
        Err(KnownReason::ReadForbidden)
    );
    assert_eq!(gets(&cluster, mark).await?, 2);
    let health = agent.health();
    assert!(
        health
            .watches
            .iter()
            .all(|watch| watch.synced && watch.objects >= 2),
        "{health:?}"
    );
    Ok(())
}

fn secret(name: &str, kind: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "stringData": {"kubeconfig": "x", "other": "y"},
        "metadata": {"name": name, "namespace": "default", "labels": labels}})
}

fn names(list: &[ObjectRef]) -> Vec<&str> {
    list.iter()
        .map(|reference| reference.name.as_str())
        .collect()
}

#[tokio::test]
async fn stores_only_selected_objects_and_declared_fields() -> Result<()> {
    let cluster = cluster().await?;
    for (name, kind) in [
        ("a-admin", "Opaque"),
        ("b-admin", "example.org/other"),
        ("c", "Opaque"),
        ("exact", "Opaque"),
    ] {
        cluster
            .objects()
            .create(secret(name, kind, &json!({})))
            .await?;
    }
    let agent = connect(&cluster, &cluster.server()).await?;
    let opaque = Scope {
        fields: Some("type=Opaque".to_owned()),
        ..all("v1", "Secret")
    };
    let exact = Scope {
        name: Some("exact".to_owned()),
        ..all("v1", "Secret")
    };
    let fields = |paths: &[&str]| Some(Paths::parse(paths).expect("paths"));
    let keep = Keep {
        names: vec!["*-admin".into()],
        fields: fields(&["data.kubeconfig"]),
        ..Keep::default()
    };
    let whole = Keep {
        fields: fields(&["data.kubeconfig", "data.other"]),
        ..Keep::default()
    };
    let only = Watches::from([(opaque.clone(), keep.clone())]);
    watch_keeping(&agent, only.clone()).await?;
    assert_eq!(names(&agent.list("v1", "Secret", None)), ["a-admin"]);
    let a = ObjectRef::local("v1", "Secret", Some("default"), "a-admin");
    let read = agent.read(&a).await?.expect("a listed secret");
    assert!(
        read.data("kubeconfig").is_some()
            && read.data("other").is_none()
            && read.body["metadata"]["uid"].is_string()
    );

    // A watch of the same kind needs more: every object has the fields of both.
    watch_keeping(&agent, Watches::from([(opaque, keep), (exact, whole)])).await?;
    assert_eq!(
        names(&agent.list("v1", "Secret", None)),
        ["a-admin", "exact"]
    );
    assert!(
        agent
            .read(&a)
            .await?
            .expect("a listed secret")
            .data("other")
            .is_some()
    );
    let fresh = agent.read_fresh(&a).await?;
    assert_eq!(fresh, agent.read(&a).await?);

    // Nothing is reported about objects that are no longer watched, especially not that they are gone.
    let mut changes = agent.changes();
    watch_keeping(&agent, only).await?;
    assert_eq!(names(&agent.list("v1", "Secret", None)), ["a-admin"]);
    delete(&cluster, &a).await?;
    let first_gone = told(&mut changes, "a-admin gone", |told| match told {
        Observation::Gone(reference) => Some(reference.clone()),
        _ => None,
    });
    assert_eq!(first_gone.await?, a);
    Ok(())
}

#[tokio::test]
async fn finds_managed_objects_by_label_until_it_is_removed() -> Result<()> {
    let cluster = cluster().await?;
    let source = json!({"cluster": "local", "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "s"});
    let mut made = secret(
        "made",
        "Opaque",
        &json!({"app.kubernetes.io/managed-by": "transom", "transom.dev/policy": "p"}),
    );
    made["metadata"]["annotations"] = json!({"transom.dev/source": source.to_string()});
    cluster.objects().apply(made).await?;
    cluster
        .objects()
        .create(secret("other", "Opaque", &json!({})))
        .await?;
    let agent = connect(&cluster, &cluster.server()).await?;
    let labels = Some("app.kubernetes.io/managed-by=transom".to_owned());
    watch(
        &agent,
        [Scope {
            labels,
            ..all("v1", "Secret")
        }],
    )
    .await?;
    let stamped = agent.stamped();
    assert_eq!(
        stamped
            .iter()
            .map(|object| object.reference.name.as_str())
            .collect::<Vec<_>>(),
        ["made"]
    );

    let mut changes = agent.changes();
    cluster
        .objects()
        .apply(secret("made", "Opaque", &json!({})))
        .await?;
    let made = ObjectRef::local("v1", "Secret", Some("default"), "made");
    gone(&mut changes, &made).await?;
    // It left the watch but exists: its absence is unknown, so the agent reads it.
    assert!(agent.read(&made).await?.is_some());
    assert!(agent.stamped().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_object_too_large_or_too_deep_blocks_no_other() -> Result<()> {
    let cluster = cluster().await?;
    install(&cluster, "shallow").await?;
    // Each of these characters has one byte in etcd and six in JSON.
    let large = map("large", &"\u{1}".repeat(300_000));
    cluster.objects().create(large).await?;
    cluster.objects().create(map("small", "1")).await?;
    let agent = connect(&cluster, &cluster.server()).await?;
    let mut changes = agent.changes();
    watch(
        &agent,
        [all("v1", "ConfigMap"), all("example.org/v1", "Thing")],
    )
    .await?;
    assert_eq!(
        unreadable(&mut changes, KnownReason::ObjectTooLarge).await?,
        "ConfigMap default/large"
    );
    assert!(agent.read(&map_ref("small")).await?.is_some());
    let refused = agent
        .read(&map_ref("large"))
        .await
        .map_err(|failure| failure.reason);
    assert_eq!(refused, Err(KnownReason::ObjectTooLarge));
    let concerned: Vec<_> = agent
        .unreadable()
        .into_iter()
        .flat_map(|one| one.objects)
        .collect();
    assert_eq!(concerned, [map_ref("large").into()]);

    let depth = "[".repeat(150) + &"]".repeat(150);
    let deep = json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "deep", "namespace": "default"}});
    let deep = deep
        .to_string()
        .replacen('{', &format!("{{\"spec\": {{\"x\": {depth}}}, "), 1);
    let path = cluster.folder().join("deep.json");
    std::fs::write(&path, deep)?;
    let created = cluster
        .kubectl(cluster.admin())?
        .args(["create", "-f"])
        .arg(&path)
        .output()?;
    assert!(
        created.status.success(),
        "{}",
        String::from_utf8_lossy(&created.stderr)
    );
    assert_eq!(
        unreadable(&mut changes, KnownReason::InvalidObject).await?,
        "Thing default/deep"
    );

    cluster.objects().apply(map("large", "2")).await?;
    crate::support::readable(&mut changes, "ConfigMap default/large").await?;
    delete(&cluster, &map_ref("small")).await?;
    gone(&mut changes, &map_ref("small")).await?;
    Ok(())
}
