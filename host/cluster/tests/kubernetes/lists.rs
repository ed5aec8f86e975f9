//! How everything is listed: page by page, then watched from where the list ends. Never listed twice.

use crate::support::{DEADLINE, RIGHTS, all, connect, map, map_ref, told, watch};
use anyhow::Result;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::json;
use transom_core::observation::Observation;
use transom_core::watches::Scope;
use transom_test_cluster::{Cluster, Line, Options, wait};

/// More than one page.
const MAPS: usize = 620;

async fn fill(cluster: &Cluster) -> Result<()> {
    cluster.objects().apply_manifest(RIGHTS).await?;
    let maps = (0..MAPS).map(|number| cluster.objects().create(map(&format!("map-{number}"), "1")));
    stream::iter(maps).buffer_unordered(16).map_ok(drop).try_collect::<()>().await
}

/// Lists all, waits for a change, and gives what the agent asked of the API server for it: so many requests or more.
async fn requests(cluster: &Cluster, expected: usize) -> Result<Vec<Line>> {
    let mark = cluster.audit().mark()?;
    let agent = connect(cluster, &cluster.server()).await?;
    let mut changes = agent.changes();
    let scope = Scope { namespace: Some("default".to_owned()), ..all("v1", "ConfigMap") };
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
    // A watch has a line when it begins, and one when it ends; lines may come late.
    let begins = |line: &Line| line.verb != "watch" || line.stage == "ResponseStarted";
    let ours = |line: &Line| line.user == "agent" && line.uri.contains("/configmaps") && begins(line);
    wait::until("the requests in the log", DEADLINE, async || {
        let mut lines: Vec<Line> = cluster.audit().since(mark)?.into_iter().filter(ours).collect();
        lines.sort_by(|one, other| one.received.cmp(&other.received));
        Ok((lines.len() >= expected).then_some(lines))
    })
    .await
}

#[tokio::test]
async fn a_list_comes_page_by_page_and_is_watched_from_its_end() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    fill(&cluster).await?;
    let lines = requests(&cluster, 3).await?;
    let seen: Vec<(&str, u16)> = lines.iter().map(|line| (line.verb.as_str(), line.code)).collect();
    assert_eq!(seen, [("list", 200), ("list", 200), ("watch", 200)], "{lines:?}");
    assert!(lines[0].uri.contains("limit=500"), "{lines:?}");
    Ok(())
}
