//! What a guest of the objects world makes in a folder: several objects, bytes of a credential that it does not see, a
//! finalizer and a status. The agent is killed in the middle of it, over and over.

use crate::inputs::put_object;
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use transom_core::reference::ObjectRef;
use transom_e2e::agent::DEADLINE;
use transom_e2e::canary::Canaries;
use transom_e2e::fixture;
use transom_e2e::stage::Stage;
use transom_e2e::tree;
use transom_support::numbers::Numbers;
use transom_support::wait;

const CLUSTERS: (&str, &str) = ("cluster.open-cluster-management.io/v1", "ManagedCluster");
const FINALIZER: &str = "example.com/made";
const LABEL: &str = "example.com/cluster";
/// How often the agent is killed.
const KILLS: u64 = 12;
/// The file of the Secret that the user has.
const SOURCE: &str = "source.yaml";

fn read(path: &Path) -> Option<Value> {
    serde_yaml::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// A policy that makes a namespace, a ConfigMap and a Secret for each cluster, and keeps a finalizer, a label and a
/// condition on it.
fn put_policy(stage: &Stage) -> Result<()> {
    let made = |kind: &str, namespace: &str, name: &str, content: Value| json!({"apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name, "content": content.to_string()});
    let namespace = json!({"metadata": {"labels": {LABEL: "{name}"}}});
    let mut secret = made("Secret", "made-{name}", "token", json!({}));
    secret["holes"] = json!([{"path": "data.token", "role": "raw", "key": "token"}]);
    let makes = [
        made("Namespace", "", "made-{name}", namespace),
        made(
            "ConfigMap",
            "made-{name}",
            "card",
            json!({"data": {"cluster": "{name}"}}),
        ),
        secret,
    ];
    let ready =
        json!({"type": "Ready", "status": "True", "reason": "Made", "message": "all is made"});
    let content =
        json!({"metadata": {"labels": {LABEL: "made"}}, "status": {"conditions": [ready]}});
    let label = format!("metadata.labels[\"{LABEL}\"]");
    let verbs = ["create", "update", "delete"];
    let settings = json!({
        "finalizer": "UntilDeleted", "content": content.to_string(), "makes": makes,
        "asks": [{"role": "raw", "namespace": "default", "name": "{name}-source", "keys": ["token"]}],
    });
    let spec = json!({
        "primary": {"apiVersion": CLUSTERS.0, "kind": CLUSTERS.1},
        "grant": {
            "finalizer": FINALIZER,
            "read": [{"role": "raw", "kind": "Secret", "namespace": "default", "name": "{primary.name}-source", "keys": ["token"]}],
            "write": [
                {"target": "primary", "verbs": ["patch"], "fields": [label, "status.conditions"], "conditions": ["Ready"]},
                {"kind": "Namespace", "name": "made-{primary.name}", "verbs": verbs, "fields": [label]},
                {"kind": "ConfigMap", "namespace": "made-{primary.name}", "name": "card", "verbs": verbs, "fields": ["data"]},
                {"kind": "Secret", "namespace": "made-{primary.name}", "name": "token", "verbs": verbs,
                    "holes": {"data.token": {"bytes": ["raw"]}}},
            ],
        },
    });
    let folder = &stage.policies;
    fixture::put_policy(folder, "making", "fixture-desired", &settings, spec).map(drop)
}

fn put_source(stage: &Stage, token: &str) -> Result<()> {
    let metadata = json!({"name": "one-source", "namespace": "default"});
    let source = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"token": STANDARD.encode(token)}});
    put_object(stage, SOURCE, &source)
}

fn put_cluster(stage: &Stage, deleting: bool) -> Result<()> {
    let mut metadata = json!({"name": "one", "uid": "8f6c6f5e-0000-4000-8000-000000000001"});
    if deleting {
        metadata["deletionTimestamp"] = json!("2026-11-21T07:59:00Z");
    }
    let cluster = json!({"apiVersion": CLUSTERS.0, "kind": CLUSTERS.1, "metadata": metadata});
    put_object(stage, "one.yaml", &cluster)
}

/// The files of the three objects.
fn files(stage: &Stage) -> [PathBuf; 3] {
    [
        "_cluster/Namespace.made-one.yaml",
        "made-one/ConfigMap.card.yaml",
        "made-one/Secret.token.yaml",
    ]
    .map(|file| stage.own().join("objects").join(file))
}

/// The cluster as the folder has it.
fn cluster(stage: &Stage) -> Result<Value> {
    let cluster = stage.object(&ObjectRef::local(CLUSTERS.0, CLUSTERS.1, None, "one"))?;
    Ok(cluster.context("no cluster")?.body)
}

/// When the condition of the cluster changed, if everything is as the guest wants it.
fn is_right(stage: &Stage, token: &str) -> Option<String> {
    let [namespace, card, secret] = files(stage).map(|file| read(&file));
    let (namespace, card, secret) = (namespace?, card?, secret?);
    let cluster = cluster(stage).ok()?;
    let ready = &cluster["status"]["conditions"][0];
    let right = namespace["metadata"]["labels"][LABEL] == "one"
        && card["data"] == json!({"cluster": "one"})
        && secret["data"] == json!({"token": STANDARD.encode(token)})
        && cluster["metadata"]["labels"][LABEL] == "made"
        && cluster["metadata"]["finalizers"] == json!([FINALIZER])
        && ready["type"] == "Ready";
    let since = ready["lastTransitionTime"].as_str();
    since.filter(|_| right).map(str::to_owned)
}

fn wait_for(stage: &Stage, token: &str) -> Result<String> {
    let made = wait::until("everything to be made", DEADLINE, || is_right(stage, token));
    made.context("not all is as the guest wants it")
}

/// Kills an agent at some moment of its work: at any one, or as soon as the Secret is right.
fn kill_one(stage: &Stage, token: &str, instant: Option<Duration>) -> Result<()> {
    let (agent, start) = (stage.watch()?, Instant::now());
    let [.., secret] = files(stage);
    let data = json!({"token": STANDARD.encode(token)});
    wait::until("the instant of the kill", DEADLINE, || {
        let due = match instant {
            Some(instant) => start.elapsed() >= instant,
            None => read(&secret).is_some_and(|secret| secret["data"] == data),
        };
        due.then_some(())
    })?;
    agent.kill()
}

#[test]
fn what_a_guest_makes_survives_kills_and_goes_with_its_primary() -> Result<()> {
    let (stage, mut canaries) = (Stage::new(0, 0)?, Canaries::default());
    let mut tokens = (0..=KILLS).map(|round| canaries.plant(&format!("token {round}")));
    put_policy(&stage)?;
    put_cluster(&stage, false)?;
    let mut token = tokens.next().context("no token")?;
    put_source(&stage, &token)?;
    let started = Instant::now();
    let agent = stage.watch()?;
    let since = wait_for(&stage, &token)?;
    let span = started.elapsed();
    let mut logs = vec![agent.log()?];
    agent.kill()?;
    let mut numbers = Numbers::new(11, 0);
    for (round, next) in tokens.enumerate() {
        token = next;
        put_source(&stage, &token)?;
        // Somebody removes one of the objects meanwhile, three times of four.
        if let Some(file) = files(&stage).get(round % 4) {
            fs::remove_file(file).with_context(|| format!("no `{}`", file.display()))?;
        }
        let instant = span.mul_f64((numbers.take() % 1000) as f64 / 1000.0);
        kill_one(&stage, &token, (round % 2 == 0).then_some(instant))?;
        let agent = stage.watch()?;
        let now = wait_for(&stage, &token)?;
        ensure!(now == since, "the condition has another time: {now}");
        logs.push(agent.log()?);
        agent.kill()?;
    }
    // The cluster is deleted: its finalizer goes, and everything else stays until it is gone.
    put_cluster(&stage, true)?;
    let agent = stage.watch()?;
    let released = || {
        cluster(&stage).ok()?["metadata"]["finalizers"]
            .is_null()
            .then_some(())
    };
    wait::until("the release", DEADLINE, released)?;
    logs.push(agent.log()?);
    agent.kill()?;
    ensure!(
        files(&stage).iter().all(|file| file.exists()),
        "gone too early"
    );
    fs::remove_file(stage.fleet.join("one.yaml"))?;
    let agent = stage.watch()?;
    for file in files(&stage) {
        stage.wait_for_end(&file)?;
    }
    stage.wait_for_end(&stage.patch("one"))?;
    logs.push(agent.stop()?);
    ensure!(
        stage.fleet.join(SOURCE).exists(),
        "the user's Secret is gone"
    );
    ensure!(
        tree::files(&stage.own().join("tmp"))?.is_empty(),
        "left over"
    );
    // The token was in one file of the agent's, and is in none now.
    for file in tree::files(&stage.own())? {
        let found = canaries.found_in(&fs::read(&file)?).len();
        ensure!(found == 0, "{found} tokens in `{}`", file.display());
    }
    for log in logs {
        ensure!(
            canaries.found_in(log.as_bytes()).is_empty(),
            "a log shows a token"
        );
    }
    Ok(())
}
