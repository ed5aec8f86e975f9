//! Lists and changes: what is stored, and what is requested. A list comes page by page, then a watch from its end,
//! without a second list.

use crate::support::*;
use anyhow::Result;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use transom_api::KnownReason;
use transom_cluster::kubernetes::{Purpose, RequestVerb, ServerObservations};
use transom_core::observation::Observation;
use transom_core::plan::Step;
use transom_core::policy::selector::Selector;
use transom_core::projection::Paths;
use transom_core::reference::ObjectRef;
use transom_core::watches::{Keep, Scope, Watches};
use transom_test_cluster::{Line, Mark, wait};

/// Waits until an object is reported with a text in `data.text`.
async fn text(changes: &mut ServerObservations, name: &str, text: &str) -> Result<()> {
    told(changes, &format!("{name} with {text}"), |told| match told {
        Observation::Present(object) if object.reference.name == name => {
            (object.data("text") == Some(&json!(text))).then_some(())
        }
        _ => None,
    })
    .await
}

/// How often an agent read single objects of the scene since a mark; a later request of the test shows that the log is
/// complete.
async fn gets(scene: &Scene<'_>, since: Mark) -> Result<usize> {
    let namespace = scene.namespace.as_str();
    let maps = scene
        .objects
        .api("v1", "ConfigMap", Some(namespace))
        .await?;
    drop(maps.get_opt("the-end").await?);
    wait::until("the end of the log", DEADLINE, async || {
        let lines = scene.cluster.audit().since(since)?;
        let gets = lines.iter().filter(|line| {
            let target = line.target.as_ref();
            line.verb == "get" && target.is_some_and(|target| target.namespace == namespace)
        });
        let (agents, ours): (Vec<_>, Vec<_>) = gets.partition(|line| line.user == "agent");
        let asked: BTreeSet<&str> = agents.iter().map(|line| line.id.as_str()).collect();
        let end = ours.iter().any(|line| line.uri.ends_with("/the-end"));
        Ok(end.then_some(asked.len()))
    })
    .await
}

#[tokio::test]
async fn reads_and_changes_come_from_the_cache_without_requests() -> Result<()> {
    let scene = Scene::new("reads").await?;
    let agent = &scene.agent;
    scene.objects.create(scene.map("a", "1")).await?;
    scene.objects.create(scene.map("b", "1")).await?;
    let mut changes = agent.changes();
    scene.watch([scene.all("v1", "ConfigMap")]).await?;
    text(&mut changes, "a", "1").await?;
    let mark = scene.cluster.audit().mark()?;
    let a = agent
        .read(&scene.map_ref("a"))
        .await?
        .expect("a listed object");
    assert_eq!(a.data("text"), Some(&json!("1")));
    assert!(a.body.pointer("/metadata/managedFields").is_none() && a.body["kind"] == "ConfigMap");
    assert_eq!(a.meta("resourceVersion"), Some(a.version.as_str()));
    assert_eq!(agent.read(&scene.map_ref("none")).await?, None);
    assert_eq!(gets(&scene, mark).await?, 0);

    scene.objects.apply(scene.map("a", "2")).await?;
    scene.objects.create(scene.map("c", "1")).await?;
    text(&mut changes, "a", "2").await?;
    text(&mut changes, "c", "1").await?;
    scene.remove(&scene.map_ref("b")).await?;
    gone(&mut changes, &scene.map_ref("b")).await?;
    assert_eq!(agent.read(&scene.map_ref("b")).await?, None);
    assert!(
        agent
            .list("v1", "ConfigMap", Some(&scene.namespace))
            .contains(&scene.map_ref("c"))
    );
    assert_eq!(agent.list("v1", "ConfigMap", Some("nowhere")), []);

    let secret = scene.secret("none");
    let mark = scene.cluster.audit().mark()?;
    assert_eq!(agent.read(&secret).await?, None);
    assert_eq!(
        agent
            .read(&ObjectRef::local("example.org/v9", "Nothing", None, "x"))
            .await?,
        None
    );
    assert_eq!(agent.read(&scene.secret("../configmaps/a")).await?, None);
    let forbidden = agent
        .read(&ObjectRef::local(
            "v1",
            "Service",
            Some(&scene.namespace),
            "x",
        ))
        .await;
    assert_eq!(
        forbidden.map_err(|failure| failure.reason),
        Err(KnownReason::ReadForbidden)
    );
    assert_eq!(gets(&scene, mark).await?, 2);
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

fn secret_of(scene: &Scene<'_>, name: &str, kind: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "stringData": {"kubeconfig": "x", "other": "y"},
        "metadata": {"name": name, "namespace": scene.namespace, "labels": labels}})
}

fn names(list: &[ObjectRef]) -> Vec<&str> {
    list.iter()
        .map(|reference| reference.name.as_str())
        .collect()
}

#[tokio::test]
async fn stores_only_selected_objects_and_declared_fields() -> Result<()> {
    let scene = Scene::new("selected").await?;
    let agent = &scene.agent;
    for (name, kind) in [
        ("a-admin", "Opaque"),
        ("b-admin", "example.org/other"),
        ("c", "Opaque"),
        ("exact", "Opaque"),
    ] {
        scene
            .objects
            .create(secret_of(&scene, name, kind, &json!({})))
            .await?;
    }
    let opaque = Scope {
        fields: Some("type=Opaque".to_owned()),
        ..scene.all("v1", "Secret")
    };
    let exact = Scope {
        name: Some("exact".to_owned()),
        ..scene.all("v1", "Secret")
    };
    let fields = |paths: &[&str]| Some(Paths::parse(paths).expect("paths"));
    let keep = Keep {
        names: ["*-admin"].into(),
        fields: fields(&["data.kubeconfig"]),
        ..Keep::default()
    };
    let whole = Keep {
        fields: fields(&["data.kubeconfig", "data.other"]),
        ..Keep::default()
    };
    let only = Watches::from([(opaque.clone(), keep.clone())]);
    scene.watch_keeping(only.clone()).await?;
    assert_eq!(names(&agent.list("v1", "Secret", None)), ["a-admin"]);
    let a = scene.secret("a-admin");
    let read = agent.read(&a).await?.expect("a listed secret");
    assert!(
        read.data("kubeconfig").is_some()
            && read.data("other").is_none()
            && read.body["metadata"]["uid"].is_string()
    );

    // A watch of the same kind needs more: every object has the fields of both.
    scene
        .watch_keeping(Watches::from([(opaque, keep), (exact, whole)]))
        .await?;
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
    scene.watch_keeping(only).await?;
    assert_eq!(names(&agent.list("v1", "Secret", None)), ["a-admin"]);
    scene.remove(&a).await?;
    let first_gone = told(&mut changes, "a-admin gone", |told| match told {
        Observation::Gone(reference) => Some(reference.clone()),
        _ => None,
    });
    assert_eq!(first_gone.await?, a);
    Ok(())
}

#[tokio::test]
async fn finds_managed_objects_by_label_until_it_is_removed() -> Result<()> {
    let scene = Scene::new("labelled").await?;
    let agent = &scene.agent;
    let source = json!({"cluster": "local", "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "s"});
    let mut made = secret_of(
        &scene,
        "made",
        "Opaque",
        &json!({"app.kubernetes.io/managed-by": "transom", "transom.dev/policy": "p"}),
    );
    made["metadata"]["annotations"] = json!({"transom.dev/source": source.to_string()});
    scene.objects.apply(made).await?;
    scene
        .objects
        .create(secret_of(&scene, "other", "Opaque", &json!({})))
        .await?;
    let labels = Some(Selector::equal("app.kubernetes.io/managed-by", "transom"));
    scene
        .watch([Scope {
            labels,
            ..scene.all("v1", "Secret")
        }])
        .await?;
    let stamped = agent.stamped().into_iter();
    let stamped: Vec<ObjectRef> = stamped.map(|(object, _)| object).collect();
    assert_eq!(names(&stamped), ["made"]);

    let mut changes = agent.changes();
    scene
        .objects
        .apply(secret_of(&scene, "made", "Opaque", &json!({})))
        .await?;
    let made = scene.secret("made");
    gone(&mut changes, &made).await?;
    // It left the watch but exists: its absence is unknown, so the agent reads it.
    assert!(agent.read(&made).await?.is_some());
    assert!(agent.stamped().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_object_too_large_or_too_deep_blocks_no_other() -> Result<()> {
    let scene = Scene::new("large").await?;
    let agent = &scene.agent;
    scene.install_things("shallow").await?;
    // Each of these characters has one byte in etcd and six in JSON.
    let large = scene.map("large", &"\u{1}".repeat(300_000));
    scene.objects.create(large).await?;
    scene.objects.create(scene.map("small", "1")).await?;
    let mut changes = agent.changes();
    scene
        .watch([
            scene.all("v1", "ConfigMap"),
            scene.all(&scene.group(), "Thing"),
        ])
        .await?;
    assert_eq!(
        unreadable(&mut changes, KnownReason::ObjectTooLarge).await?,
        "ConfigMap large/large"
    );
    assert!(agent.read(&scene.map_ref("small")).await?.is_some());
    let refused = agent
        .read(&scene.map_ref("large"))
        .await
        .map_err(|failure| failure.reason);
    assert_eq!(refused, Err(KnownReason::ObjectTooLarge));
    let concerned: Vec<_> = agent
        .unreadable()
        .into_iter()
        .flat_map(|one| one.objects)
        .collect();
    assert_eq!(concerned, [scene.map_ref("large").into()]);

    let depth = "[".repeat(150) + &"]".repeat(150);
    let deep = scene.thing("deep");
    let deep = deep
        .to_string()
        .replacen('{', &format!("{{\"spec\": {{\"x\": {depth}}}, "), 1);
    let path = scene.cluster.folder().join("deep.json");
    std::fs::write(&path, deep)?;
    let mut kubectl = scene.cluster.kubectl(scene.cluster.admin())?;
    let created = kubectl.args(["create", "-f"]).arg(&path).output()?;
    assert!(
        created.status.success(),
        "{}",
        String::from_utf8_lossy(&created.stderr)
    );
    assert_eq!(
        unreadable(&mut changes, KnownReason::InvalidObject).await?,
        "Thing large/deep"
    );

    scene.objects.apply(scene.map("large", "2")).await?;
    let again = Observation::ObjectReadable("ConfigMap large/large".to_owned());
    readable(&mut changes, again).await?;
    scene.remove(&scene.map_ref("small")).await?;
    gone(&mut changes, &scene.map_ref("small")).await?;
    Ok(())
}

/// More than one page.
const MAPS: usize = 620;

async fn fill(scene: &Scene<'_>) -> Result<()> {
    let create = |number| {
        scene
            .objects
            .create(scene.map(&format!("map-{number}"), "1"))
    };
    stream::iter((0..MAPS).map(create))
        .buffer_unordered(16)
        .map_ok(drop)
        .try_collect::<()>()
        .await
}

/// Lists everything, waits for a change, and returns the agent's requests to the API server: at least this many.
async fn requests(scene: &Scene<'_>, expected: usize) -> Result<Vec<Line>> {
    let (agent, mark) = (&scene.agent, scene.cluster.audit().mark()?);
    let mut changes = agent.changes();
    scene.watch([scene.all("v1", "ConfigMap")]).await?;
    assert_eq!(agent.list("v1", "ConfigMap", None).len(), MAPS);
    scene.objects.apply(scene.map("map-7", "2")).await?;
    text(&mut changes, "map-7", "2").await?;
    assert!(agent.read(&scene.map_ref("map-619")).await?.is_some());
    let path = format!("/namespaces/{}/configmaps", scene.namespace);
    // A watch has a line when it begins and one when it ends; lines may be late.
    let begins = |line: &Line| line.verb != "watch" || line.stage == "ResponseStarted";
    let ours = |line: &Line| line.user == "agent" && line.uri.contains(&path) && begins(line);
    wait::until("the requests in the log", DEADLINE, async || {
        let mut lines = scene.cluster.audit().since(mark)?;
        lines.retain(ours);
        lines.sort_by(|one, other| one.received.cmp(&other.received));
        Ok((lines.len() >= expected).then_some(lines))
    })
    .await
}

#[tokio::test]
async fn lists_in_pages_and_watches_from_the_end() -> Result<()> {
    let scene = Scene::new("pages").await?;
    fill(&scene).await?;
    let lines = requests(&scene, 3).await?;
    let seen: Vec<(&str, u16)> = lines
        .iter()
        .map(|line| (line.verb.as_str(), line.code))
        .collect();
    assert_eq!(
        seen,
        [("list", 200), ("list", 200), ("watch", 200)],
        "{lines:?}"
    );
    assert!(lines[0].uri.contains("limit=500"), "{lines:?}");
    Ok(())
}

#[tokio::test]
async fn reads_what_was_listed_until_the_next_list_and_sends_no_get() -> Result<()> {
    let scene = Scene::new("relisted").await?;
    scene.objects.create(scene.map("a", "1")).await?;
    let agent = &scene.agent;
    let keep = |field: &str| -> Result<Keep> {
        Ok(Keep {
            fields: Some(Paths::parse(&[field])?),
            ..Keep::default()
        })
    };
    let here = scene.all("v1", "ConfigMap");
    let everywhere = Scope {
        namespace: None,
        ..here.clone()
    };
    let named = (everywhere.clone(), keep("metadata.name")?);
    scene.watch_keeping(Watches::from([named])).await?;
    // The policies need another field, then other namespaces.
    for scope in [everywhere, here] {
        agent.watch(Watches::from([(scope, keep("data.text")?)]));
        assert!(agent.read(&scene.map_ref("a")).await?.is_some());
        scene.agent.synced().await;
        let read = agent.read(&scene.map_ref("a")).await?;
        assert_eq!(
            read.and_then(|map| map.data("text").cloned()),
            Some(json!("1"))
        );
    }
    assert_eq!(
        agent.writer().counts().of(RequestVerb::Get, Purpose::Work),
        0
    );
    Ok(())
}

#[tokio::test]
async fn a_created_object_has_every_letter_of_its_texts() -> Result<()> {
    let scene = Scene::new("letters").await?;
    // An apply is read as YAML, which forbids some of them and folds others.
    let text = "\u{7f}-\u{85}-\u{9b}-\u{2028}-\u{2029}-\u{feff}-\u{ffff}-\u{1f600}-\n\r\t\u{1}";
    let mut step = create(&scene.secret("letters"), "x");
    if let Step::Create { desired } = &mut step {
        desired.body["metadata"]["annotations"]["example.org/text"] = json!(text);
    }
    let made = scene.done(&step).await?;
    let there = &made.body["metadata"]["annotations"]["example.org/text"];
    assert_eq!(*there, json!(text));
    Ok(())
}
