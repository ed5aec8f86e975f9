//! What happens to the server, the agent and its rights, and that the work is right afterwards: nothing lost, nothing
//! foreign touched, nothing secret said. Prints how long it took to recover.

use crate::agent::Worker;
use crate::objects::{CLUSTERS, case_text, parse};
use crate::stage::{CRDS, DEADLINE, HOSTED, KLUSTERLET, PARALLEL, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::time::Instant;
use transom_e2e::canary::Canaries;
use transom_support::numbers::Numbers;
use transom_test_cluster::wait;

/// Hosted clusters where a test needs load.
const MANY: usize = 20;

fn name(index: usize) -> String {
    format!("f{index:03}")
}

/// So many hosted clusters that are ready, and a Secret in each of their namespaces that is none of ours.
async fn fleet(stage: &Stage, clusters: usize) -> Result<()> {
    let made = stream::iter(0..clusters).map(|index| async move {
        let name = name(index);
        stage.ready(&name, true).await?;
        let foreign = json!({"apiVersion": "v1", "kind": "Secret", "data": {"kubeconfig": "eA=="},
            "metadata": {"name": "foreign", "namespace": format!("klusterlet-{name}")}});
        stage.objects().create(foreign).await.map(drop)
    });
    made.buffer_unordered(PARALLEL).try_collect().await
}

/// Another port for each of some clusters.
async fn ports(stage: &Stage, clusters: impl Iterator<Item = usize>, port: u16) -> Result<()> {
    let moved = stream::iter(clusters).map(|index| async move { stage.move_port(&name(index), port).await });
    moved.buffer_unordered(PARALLEL).try_collect().await
}

async fn all_right(stage: &Stage, clusters: usize, port: u16) -> Result<()> {
    let right = stream::iter(0..clusters).map(|index| async move { stage.wait_for_right(&name(index), port).await });
    right.buffer_unordered(PARALLEL).try_collect().await
}

/// The versions of what is none of ours.
async fn foreign(stage: &Stage) -> Result<Vec<(Option<String>, Option<String>)>> {
    let all = stage.api(SECRET, None).await?.list(&kube::api::ListParams::default()).await?.items;
    let foreign = all.into_iter().filter(|it| it.metadata.name.as_deref() == Some("foreign"));
    Ok(foreign.map(|it| (it.metadata.namespace, it.metadata.resource_version)).collect())
}

/// How long it takes until all is right, printed.
async fn recovers(stage: &Stage, what: &str, clusters: usize, port: u16) -> Result<()> {
    let start = Instant::now();
    all_right(stage, clusters, port).await?;
    println!("{what}: all {clusters} right after {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

async fn started(stage: &Stage, port: u16) -> Result<Worker> {
    let mut agent = stage.start_agent(&[])?;
    agent.wait_for_first_pass().await?;
    all_right(stage, MANY, port).await?;
    Ok(agent)
}

#[test]
fn an_api_server_that_is_killed_under_load_comes_back_to_a_working_agent() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, MANY).await?;
        let before = foreign(stage).await?;
        let agent = started(stage, 6443).await?;
        // The agent is at work on these when the server dies.
        ports(stage, 0..MANY, 7443).await?;
        stage.cluster.restart_apiserver().await?;
        recovers(stage, "the API server killed under load", MANY, 7443).await?;
        ports(stage, 0..MANY / 2, 8443).await?;
        stage.cluster.restart_etcd().await?;
        ports(stage, MANY / 2..MANY, 8443).await?;
        recovers(stage, "etcd killed under load", MANY, 8443).await?;
        agent.stop()?;
        ensure!(foreign(stage).await? == before, "what is none of ours was touched");
        Ok(())
    })
}

#[test]
fn a_watch_whose_past_is_forgotten_starts_anew_and_misses_nothing() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, MANY).await?;
        let agent = started(stage, 6443).await?;
        agent.freeze()?;
        ports(stage, 0..MANY, 7443).await?;
        stage.delete(HOSTED, Some(CLUSTERS), &name(0)).await?;
        stage.cluster.compact().await?;
        stage.cluster.restart_apiserver().await?;
        agent.thaw()?;
        let start = Instant::now();
        let right = stream::iter(1..MANY).map(|index| async move { stage.wait_for_right(&name(index), 7443).await });
        right.buffer_unordered(PARALLEL).try_collect::<Vec<()>>().await?;
        wait::until("the end of what the missed deletion left", DEADLINE, async || {
            Ok(stage.made(&name(0)).await?.is_none().then_some(()))
        })
        .await?;
        println!("history compacted while the agent was away: right after {:.1} s", start.elapsed().as_secs_f64());
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn an_agent_killed_at_any_instant_leaves_nothing_wrong() -> Result<()> {
    killed(8, MANY)
}

#[test]
#[ignore = "takes minutes: cargo test -p transom-e2e --test cluster soak -- --ignored --nocapture"]
fn soak() -> Result<()> {
    killed(100, 300)
}

/// Kills the agent over and over while the fleet changes; then one more start puts all right.
fn killed(kills: usize, clusters: usize) -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, clusters).await?;
        let before = foreign(stage).await?;
        let first = Instant::now();
        let agent = stage.start_agent(&[])?;
        all_right(stage, clusters, 6443).await?;
        let span = first.elapsed();
        agent.kill()?;
        let mut numbers = Numbers::new(11, 0);
        for round in 0..kills {
            let port = 10_000 + u16::try_from(round)?;
            ports(stage, 0..clusters, port).await?;
            for _ in 0..clusters / 4 {
                let victim = format!("klusterlet-{}", name((numbers.take() % clusters as u64) as usize));
                stage.delete(SECRET, Some(&victim), "external-managed-kubeconfig").await?;
            }
            let agent = stage.start_agent(&[])?;
            let instant = Instant::now() + span.mul_f64((numbers.take() % 1000) as f64 / 1000.0);
            wait::until("the instant of the kill", DEADLINE, async || Ok((Instant::now() >= instant).then_some(())))
                .await?;
            agent.kill()?;
        }
        let last = 10_000 + u16::try_from(kills)? - 1;
        let mut agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass().await?;
        recovers(stage, &format!("{kills} kills at random instants"), clusters, last).await?;
        agent.stop()?;
        ensure!(foreign(stage).await? == before, "what is none of ours was touched");
        // And a start after that finds nothing to do.
        let mark = stage.mark()?;
        let mut agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass().await?;
        agent.stop()?;
        let writes = stage.writes(mark).await?;
        ensure!(writes.is_empty(), "{writes:#?}");
        Ok(())
    })
}

#[test]
fn rights_that_are_taken_away_and_given_back_cost_nothing_but_time() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, MANY).await?;
        let agent = started(stage, 6443).await?;
        let revoked = stage.revoke().await;
        ports(stage, 0..MANY, 7443).await?;
        let told = wait::until("a word on the rights", DEADLINE, async || {
            Ok(agent.log()?.contains("Forbidden").then_some(()))
        });
        let told = told.await;
        stage.grant().await?;
        revoked?;
        told?;
        recovers(stage, "rights revoked and given back", MANY, 7443).await?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn a_kind_that_is_missing_holds_up_nobody_and_is_watched_when_it_comes() -> Result<()> {
    on_stage(async |stage| {
        for index in [0, 2] {
            stage.remove_crd(CRDS[index]).await?;
        }
        let agent = stage.start_agent(&[])?;
        let told = wait::until("a word on the kind", DEADLINE, async || {
            Ok(agent.log()?.contains("KindMissing").then_some(()))
        });
        let told = told.await;
        stage.cluster.install_crds(&[CRDS[0], CRDS[2]]).await?;
        told?;
        let start = Instant::now();
        stage.ready("new", true).await?;
        stage.wait_for_right("new", 6443).await?;
        println!("a kind that was missing: right after {:.1} s", start.elapsed().as_secs_f64());
        // Gone with its objects, and here again under the eyes of the agent.
        let klusterlet = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "metadata": {"name": "klusterlet-new"}, "spec": {}});
        stage.objects().create(klusterlet).await?;
        stage.remove_crd(CRDS[0]).await?;
        stage.cluster.install_crds(&[CRDS[0]]).await?;
        let start = Instant::now();
        stage.ready("newer", true).await?;
        stage.wait_for_right("newer", 6443).await?;
        println!("a kind removed and installed again: right after {:.1} s", start.elapsed().as_secs_f64());
        agent.stop()?;
        Ok(())
    })
}

/// A source with a token, and what a test changes of it.
async fn with_source(stage: &Stage, name: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
    stage.ready(name, true).await?;
    let text =
        case_text("external-managed-kubeconfig", "T13-token", "given.yaml", str::to_owned)?.context("no case T13")?;
    let secret = parse(&text)?.into_iter().find(|object| object["kind"] == "Secret").context("no Secret")?;
    let bytes = STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap_or_default())?;
    let mut document: Value = serde_yaml::from_slice(&bytes).ok().context("not YAML")?;
    change(&mut document);
    let patch = json!({"data": {"kubeconfig": STANDARD.encode(document.to_string())}});
    stage.patch(SECRET, Some(CLUSTERS), &format!("{name}-admin-kubeconfig"), patch).await
}

/// Sources and subjects as nobody should make them, each with a canary of its own.
async fn hostile(stage: &Stage) -> Result<Canaries> {
    let mut canaries = Canaries::default();
    let mut plant = |place: &str| canaries.plant(place);
    let token = plant("a token");
    with_source(stage, "plain", |it| it["users"][0]["user"]["token"] = json!(token)).await?;
    let token = plant("a token of a wrong type");
    with_source(stage, "typed", |it| it["users"][0]["user"]["token"] = json!({"nested": token})).await?;
    let token = plant("a token with control characters");
    with_source(stage, "control", |it| it["users"][0]["user"]["token"] = json!(format!("{token}\u{1b}[2J\u{0}\u{7f}")))
        .await?;
    // Just below what a Secret may hold.
    let token = plant("a token in a large document").repeat(18_000);
    with_source(stage, "large", |it| it["users"][0]["user"]["token"] = json!(token)).await?;
    stage.ready("text", true).await?;
    let no_yaml = STANDARD.encode(format!("token: {}\nusers: [\"{}\n", plant("no YAML"), plant("an open quote")));
    stage.patch(SECRET, Some(CLUSTERS), "text-admin-kubeconfig", json!({"data": {"kubeconfig": no_yaml}})).await?;
    stage.ready("annotated", true).await?;
    let annotations =
        json!({"large": "x".repeat(200_000), "control": "\u{1b}[31m\u{7}\r\n", "secret": plant("an annotation")});
    stage.patch(HOSTED, Some(CLUSTERS), "annotated", json!({"metadata": {"annotations": annotations}})).await?;
    Ok(canaries)
}

#[test]
fn hostile_objects_are_refused_or_carried_and_nothing_secret_is_said() -> Result<()> {
    on_stage(async |stage| {
        let canaries = hostile(stage).await?;
        let agent = stage.start_agent(&["--log-format", "text"])?;
        for (name, state) in [("plain", true), ("annotated", true), ("typed", false), ("text", false)] {
            let subject = format!("HostedCluster {CLUSTERS}/{name}");
            wait::until(&format!("a word on {name}"), DEADLINE, async || {
                Ok(agent.log()?.contains(&subject).then_some(()))
            })
            .await?;
            if state {
                stage.wait_for_output(name).await?;
            } else {
                ensure!(
                    stage
                        .get(SECRET, Some(&format!("klusterlet-{name}")), "external-managed-kubeconfig")
                        .await?
                        .is_none()
                );
            }
        }
        for name in ["control", "large"] {
            let subject = format!("HostedCluster {CLUSTERS}/{name}");
            wait::until(&format!("a word on {name}"), DEADLINE, async || {
                Ok(agent.log()?.contains(&subject).then_some(()))
            })
            .await?;
        }
        let events = stage.api(("v1", "Event"), None).await?;
        let said = wait::until("an Event on what failed", DEADLINE, async || {
            let said = serde_json::to_string(&events.list(&kube::api::ListParams::default()).await?.items)?;
            Ok(said.contains("typed").then_some(said))
        })
        .await?;
        let log = agent.stop()?;
        ensure!(!log.contains('\u{7}') && !log.contains("\u{1b}[2J"), "a control character is in the log");
        let found: Vec<&str> =
            [log.as_bytes(), said.as_bytes()].into_iter().flat_map(|it| canaries.found_in(it)).collect();
        ensure!(found.is_empty(), "shown: {found:?}");
        Ok(())
    })
}
