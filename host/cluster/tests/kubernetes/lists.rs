//! How lists work: page by page, then a watch from the end of the list, without a second list.

use crate::support::{
    DEADLINE, RIGHTS, all, cluster, connect, map, map_ref, told, watch, watch_keeping,
};
use anyhow::Result;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use transom_cluster::kubernetes::{Purpose, Verb};
use transom_core::observation::Observation;
use transom_core::projection::Paths;
use transom_core::watches::{Keep, Scope, Watches};
use transom_test_cluster::{Cluster, Line, Options, wait};

/// More than one page.
const MAPS: usize = 620;

async fn fill(cluster: &Cluster) -> Result<()> {
    cluster.objects().apply_manifest(RIGHTS).await?;
    let maps = (0..MAPS).map(|number| cluster.objects().create(map(&format!("map-{number}"), "1")));
    stream::iter(maps)
        .buffer_unordered(16)
        .map_ok(drop)
        .try_collect::<()>()
        .await
}

/// Lists everything, waits for a change, and returns the agent's requests to the API server: at least this many.
async fn requests(cluster: &Cluster, expected: usize) -> Result<Vec<Line>> {
    let mark = cluster.audit().mark()?;
    let agent = connect(cluster, &cluster.server()).await?;
    let mut changes = agent.changes();
    let scope = Scope {
        namespace: Some("default".to_owned()),
        ..all("v1", "ConfigMap")
    };
    watch(&agent, [scope]).await?;
    let found = agent.list("v1", "ConfigMap", None).len();
    assert!((MAPS..MAPS + 5).contains(&found), "{found} maps of {MAPS}");
    cluster.objects().apply(map("map-7", "2")).await?;
    told(&mut changes, "the change", |told| match told {
        Observation::Present(object) => (object.data("text") == Some(&json!("2"))).then_some(()),
        _ => None,
    })
    .await?;
    assert!(agent.read(&map_ref("map-619")).await?.is_some());
    // A watch has a line when it begins and one when it ends; lines may be late.
    let begins = |line: &Line| line.verb != "watch" || line.stage == "ResponseStarted";
    let ours =
        |line: &Line| line.user == "agent" && line.uri.contains("/configmaps") && begins(line);
    wait::until("the requests in the log", DEADLINE, async || {
        let mut lines: Vec<Line> = cluster
            .audit()
            .since(mark)?
            .into_iter()
            .filter(ours)
            .collect();
        lines.sort_by(|one, other| one.received.cmp(&other.received));
        Ok((lines.len() >= expected).then_some(lines))
    })
    .await
}

#[tokio::test]
async fn lists_in_pages_and_watches_from_the_end() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    fill(&cluster).await?;
    let lines = requests(&cluster, 3).await?;
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
async fn waits_for_a_relist_instead_of_reading_directly() -> Result<()> {
    let cluster = cluster().await?;
    cluster.objects().create(map("a", "1")).await?;
    let agent = connect(&cluster, &cluster.server()).await?;
    let keep = |field: &str| -> Result<Keep> {
        Ok(Keep {
            fields: Some(Paths::parse(&[field])?),
            ..Keep::default()
        })
    };
    let everywhere = all("v1", "ConfigMap");
    watch_keeping(
        &agent,
        Watches::from([(everywhere.clone(), keep("metadata.name")?)]),
    )
    .await?;
    // The policies need another field, then other namespaces.
    let here = Scope {
        namespace: Some("default".to_owned()),
        ..everywhere.clone()
    };
    for scope in [everywhere, here] {
        agent.watch(Watches::from([(scope, keep("data.text")?)]));
        let read = agent.read(&map_ref("a")).await?;
        assert_eq!(
            read.and_then(|map| map.data("text").cloned()),
            Some(json!("1"))
        );
    }
    assert_eq!(agent.writer().counts().of(Verb::Get, Purpose::Work), 0);
    Ok(())
}
