//! Leaders that end in the middle of a rollout, over and over: no object gets content of an earlier revision after that
//! of a later one, and nobody writes beside the leader. A watch sees every version of the objects, in the order in
//! which they were written.

use crate::agent::NOW;
use crate::components::{PARTS, SOURCES, component};
use crate::fleet::{POLICIES, fleet};
use crate::policies::POLICY;
use crate::replicas::Replicas;
use crate::stage::{ANY_TASK, DEADLINE, HOME, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;
use transom_api::labels;
use transom_core::digest::Digest;
use transom_e2e::size::Size;
use transom_support::numbers::Numbers;
use transom_test_cluster::wait;

const NAME: &str = "external-managed-kubeconfig";
/// The Secret that is written after all others.
const LAST: &str = "last";
/// The annotation with the number of the revision, on every object that the policy makes.
const ROUND: &str = "example.com/round";

#[test]
fn a_leader_that_ends_during_a_rollout_leaves_no_later_write_of_an_earlier_revision() -> Result<()>
{
    succeed(6, 6)
}

#[test]
#[ignore = "takes minutes: cargo xtask soak succession"]
fn soak() -> Result<()> {
    let size = Size::given(100, 12)?;
    succeed(size.rounds, size.clusters)
}

/// Ends the leader over and over while the policy changes; every fourth time it is asked to, and gives the Lease back.
fn succeed(ends: usize, clusters: usize) -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, clusters).await?;
        let digests = put_components(stage).await?;
        put_revision(stage, 0).await?;
        // Before the first write: a line of the audit log may appear after the write is seen.
        let (mark, first) = (stage.mark()?, version(stage).await?);
        let words = [
            POLICIES,
            "--lease-namespace",
            HOME,
            "--now",
            NOW,
            "--sources",
            SOURCES,
        ];
        let mut replicas = Replicas::start(stage, &words, &ANY_TASK).await?;
        wait_for_round(stage, clusters, 0, clusters).await?;
        let rollouts = end_all(&mut replicas, stage, ends, clusters);
        let (seen, mut spans) = futures::try_join!(versions(stage, first), rollouts)?;
        let written = in_order(&seen, &digests)?;
        let mut writes = replicas.in_turn(stage, mark).await?;
        // Revisions are kept as objects, too.
        writes.retain(|line| line.resource() == "secrets");
        let writes = writes.len();
        // A request of a killed agent may be carried out although its response reaches nobody.
        ensure!(
            written >= writes,
            "the watch saw {written} versions, the audit log {writes} writes"
        );
        println!(
            "{ends} leaders ended during rollouts: {written} writes in order; another one led after {} when killed, {} when asked to end",
            spread(&mut spans[0]),
            spread(&mut spans[1]),
        );
        replicas.stop()
    })
}

/// Median and maximum.
fn spread(all: &mut [Duration]) -> String {
    all.sort_unstable();
    let at = |index: usize| all.get(index).map_or(0.0, Duration::as_secs_f64);
    format!(
        "{:.2} s, {:.2} s at most",
        at(all.len() / 2),
        at(all.len().saturating_sub(1))
    )
}

/// Writes two components that answer alike into ConfigMaps; returns their digests.
async fn put_components(stage: &Stage) -> Result<[String; 2]> {
    stage.objects().namespace(PARTS).await?;
    let all = [component(b'a')?, component(b'b')?];
    for (index, bytes) in all.iter().enumerate() {
        stage.put_component(&format!("v{index}"), bytes).await?;
    }
    Ok(all.map(|bytes| Digest::of_bytes(&bytes).to_string()))
}

/// Changes the policy: another component, and another annotation on all that it makes.
async fn put_revision(stage: &Stage, round: usize) -> Result<()> {
    let decide = json!({"component": format!("configmap:{PARTS}/v{}/k", round % 2)});
    let own = json!({"annotations": {ROUND: round.to_string()}});
    let change = json!({"spec": {"guests": {"decide": decide}, "own": own}});
    stage.patch(POLICY, None, NAME, change).await
}

fn round_of(object: &DynamicObject) -> Option<usize> {
    let annotations = object.metadata.annotations.as_ref()?;
    annotations.get(ROUND)?.parse().ok()
}

/// Waits until this many Secrets are of a round.
async fn wait_for_round(stage: &Stage, clusters: usize, round: usize, count: usize) -> Result<()> {
    let what = format!("{count} of {clusters} Secrets of round {round}");
    wait::until(&what, DEADLINE, async || {
        let all = stage.list(SECRET).await?;
        let now = all
            .iter()
            .filter(|one| round_of(one) == Some(round))
            .count();
        Ok((now >= count).then_some(()))
    })
    .await
}

/// The version of all Secrets together.
async fn version(stage: &Stage) -> Result<String> {
    let api = stage.api(SECRET, None).await?;
    let all = api.list(&ListParams::default()).await?;
    all.metadata.resource_version.context("no version")
}

/// Every version of the Secrets that is written after a version, in that order, until a Secret `last` appears.
async fn versions(stage: &Stage, mut since: String) -> Result<Vec<DynamicObject>> {
    let api = stage.api(SECRET, None).await?;
    let mut seen = Vec::new();
    loop {
        // The server ends a watch after some minutes.
        let mut events = pin!(api.watch(&WatchParams::default(), &since).await?);
        while let Some(event) = events.try_next().await? {
            let (one, is_gone) = match event {
                WatchEvent::Added(one) | WatchEvent::Modified(one) => (one, false),
                WatchEvent::Deleted(one) => (one, true),
                WatchEvent::Bookmark(mark) => {
                    since = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(error) => anyhow::bail!("the watch failed: {error:?}"),
            };
            if one.metadata.name.as_deref() == Some(LAST) {
                return Ok(seen);
            }
            since = one
                .metadata
                .resource_version
                .clone()
                .context("no version")?;
            if round_of(&one).is_some() {
                ensure!(!is_gone, "a Secret was deleted: {:?}", one.metadata);
                seen.push(one);
            }
        }
    }
}

/// Checks that each object went from revision to revision in their order, and bears the component of its revision;
/// returns the number of writes.
fn in_order(seen: &[DynamicObject], digests: &[String; 2]) -> Result<usize> {
    let mut latest = BTreeMap::new();
    for one in seen {
        let round = round_of(one).context("an object without a revision")?;
        let at = one.metadata.namespace.clone();
        let before = latest.insert(at.clone(), round);
        ensure!(
            before.is_none_or(|before| before < round),
            "{at:?} was written by revision {before:?}, then by {round}"
        );
        let annotations = one.metadata.annotations.clone().unwrap_or_default();
        let stamped = annotations.get(labels::COMPONENT);
        ensure!(
            stamped == Some(&digests[round % 2]),
            "{at:?} of revision {round} bears {stamped:?}"
        );
    }
    Ok(seen.len())
}

/// Changes the policy and ends the leader before all is written, over and over; returns how long it took until another
/// one led, when it was killed and when it was asked to end.
async fn end_all(
    replicas: &mut Replicas,
    stage: &Stage,
    ends: usize,
    clusters: usize,
) -> Result<[Vec<Duration>; 2]> {
    let mut numbers = Numbers::new(17, 0);
    let mut spans = [Vec::new(), Vec::new()];
    for round in 1..=ends {
        put_revision(stage, round).await?;
        // Anywhere between the change of the policy and the last write.
        let written = numbers.take() as usize % clusters;
        wait_for_round(stage, clusters, round, written).await?;
        let asked = round % 4 == 0;
        spans[usize::from(asked)].push(replicas.end_leader(stage, asked).await?);
    }
    wait_for_round(stage, clusters, ends, clusters).await?;
    let last = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": PARTS, "name": LAST}});
    stage.objects().create(last).await?;
    Ok(spans)
}
