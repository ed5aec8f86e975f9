//! Faults under all policies of a hub: the agent is killed over and over while clusters come, are denied and go; answers
//! fail, the API server is killed, and somebody else writes each cluster at the same time. Afterwards all is as it is for
//! clusters of which nobody disturbed the agent. Prints how long it took.

use crate::access::{CLUSTERS, PREFIX};
use crate::copying::HUB;
use crate::spoke::{AVAILABLE, HUB_CRDS, SET_CRDS, UNREACHABLE};
use crate::stage::{BESIDE, DEADLINE, MANAGED, NAMESPACE, PARALLEL, Stage, on_stage};
use crate::together::{ADDON, SELF_MANAGED, WORK, addon_is_well, put_all};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use transom_e2e::agent::{Agent, has_ended};
use transom_e2e::size::Size;
use transom_support::numbers::Numbers;
use transom_test_cluster::{Fault, Line, Mark, Proxy, wait};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const ACCEPTED: &str = "HubAcceptedManagedCluster";
const CLOCK: &str = "ManagedClusterConditionClockSynced";
const ACCEPTED_ON: &str = "open-cluster-management.io/automatically-accepted-on";
/// What differs from object to object without meaning anything.
const OF_ONE: [&str; 6] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
];

/// Before a kill the agent makes fewer writes than so many for each cluster.
const WRITES: u64 = 4;

/// The clusters of one half, disturbed or not, by number.
#[derive(Clone, Copy)]
struct Half(&'static str, usize);

/// What becomes of a cluster in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Accepted,
    Denied,
    Unreachable,
    Gone,
}

fn end(index: usize) -> End {
    [End::Accepted, End::Denied, End::Unreachable, End::Gone][index % 4]
}

impl Half {
    fn name(self, index: usize) -> String {
        format!("{CLUSTERS}{}-{index}", self.0)
    }

    /// Does something for each of them, several at a time.
    async fn each(self, act: impl AsyncFn(usize) -> Result<()>) -> Result<()> {
        let all = stream::iter(0..self.1).map(|index| act(index));
        all.buffer_unordered(PARALLEL).try_collect().await
    }
}

/// A ManagedCluster whose agent says that it is available or not; it may be there already.
async fn put(stage: &Stage, name: &str, available: &str) -> Result<()> {
    let body = json!({"apiVersion": MANAGED.0, "kind": MANAGED.1, "metadata": {"name": name}});
    stage.objects().apply(body).await?;
    let cluster = stage.objects().get(MANAGED, (None, name)).await?;
    let mut status = match &cluster["status"] {
        Value::Null => json!({}),
        status => status.clone(),
    };
    let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|one| one["type"] != AVAILABLE);
    all.push(
        json!({"type": AVAILABLE, "status": available, "reason": "Told", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}),
    );
    status["conditions"] = json!(all);
    stage.put_status(MANAGED, None, name, &status).await
}

async fn accept(stage: &Stage, name: &str, accepts: bool) -> Result<()> {
    let body = json!({"spec": {"hubAcceptsClient": accepts}});
    stage.patch(MANAGED, None, name, body).await
}

/// An add-on and a work of a cluster; they may be there already.
async fn furnish(stage: &Stage, name: &str) -> Result<()> {
    for (kind, object) in [(ADDON, "addon"), (WORK, "work")] {
        let body = json!({"apiVersion": kind.0, "kind": kind.1, "spec": {},
            "metadata": {"name": object, "namespace": name}});
        stage.objects().apply(body).await?;
    }
    addon_is_well(stage, name).await
}

/// What happens to a cluster while the agent is disturbed. Much of it fails: the cluster is gone, or on its way.
async fn disturb(stage: &Stage, name: &str, number: u64) -> Result<()> {
    match number % 6 {
        0 => put(stage, name, "True").await,
        1 => put(stage, name, "Unknown").await,
        2 => accept(stage, name, true).await,
        3 => accept(stage, name, false).await,
        4 => furnish(stage, name).await,
        _ => stage.delete(MANAGED, None, name).await,
    }
}

/// Leads every cluster to its end, whatever it is now: first all are accepted.
async fn finish(stage: &Stage, half: Half) -> Result<()> {
    half.each(async |index| {
        let name = half.name(index);
        let objects = stage.objects();
        let stays = |cluster: &Value| cluster["metadata"]["deletionTimestamp"].is_null();
        objects.wait_for(MANAGED, (None, &name), stays).await?;
        put(stage, &name, "True").await?;
        accept(stage, &name, true).await?;
        let lease = ("coordination.k8s.io/v1", "Lease");
        let place = (Some(&*name), "managed-cluster-lease");
        objects.wait_for(lease, place, Value::is_object).await?;
        // Before that a rule would accept it once more, and a denial would deny what never was accepted.
        let is_accepted = |cluster: &Value| {
            cluster["metadata"]["annotations"][ACCEPTED_ON].is_string()
                && crate::spoke::says(cluster, ACCEPTED, "True")
                // Told of clusters that are available, and kept of others.
                && crate::spoke::says(cluster, CLOCK, "True")
        };
        let came = objects.wait_for(MANAGED, (None, &name), is_accepted);
        came.await?;
        // Those of an earlier life remember it.
        for (kind, object) in [(ADDON, "addon"), (WORK, "work")] {
            stage.delete(kind, Some(&name), object).await?;
        }
        if end(index) != End::Denied {
            furnish(stage, &name).await?;
        }
        match end(index) {
            End::Accepted => Ok(()),
            End::Denied => accept(stage, &name, false).await,
            End::Unreachable => put(stage, &name, "Unknown").await,
            End::Gone => stage.delete(MANAGED, None, &name).await,
        }
    })
    .await
}

/// Whether a cluster has come to its end.
fn is_at_end(cluster: &Value, end: End) -> bool {
    let says = |status: &str| crate::spoke::says(cluster, ACCEPTED, status);
    let is_tainted = cluster.to_string().contains(UNREACHABLE);
    match end {
        End::Accepted => says("True") && !is_tainted,
        End::Denied => says("False") && !is_tainted,
        End::Unreachable => says("True") && is_tainted,
        End::Gone => cluster.is_null(),
    }
}

/// All that there is about a cluster, in a form that is the same for two clusters of one end.
async fn state(stage: &Stage, name: &str) -> Result<Value> {
    let objects = stage.objects();
    let role = format!("{PREFIX}{name}");
    let bindings = ["registration", "work"].map(|what| format!("{role}:{what}"));
    let here = Some(name);
    let mut all = Vec::new();
    for (kind, place) in [
        (MANAGED, (None, name)),
        (NAMESPACE, (None, name)),
        ((RBAC, "ClusterRole"), (None, &*role)),
        ((RBAC, "ClusterRoleBinding"), (None, &*role)),
        ((RBAC, "RoleBinding"), (here, &*bindings[0])),
        ((RBAC, "RoleBinding"), (here, &*bindings[1])),
        (
            ("coordination.k8s.io/v1", "Lease"),
            (here, "managed-cluster-lease"),
        ),
        (ADDON, (here, "addon")),
        (WORK, (here, "work")),
    ] {
        all.push(plain(objects.get(kind, place).await?));
    }
    let text = json!(all).to_string().replace(name, "NAME");
    Ok(serde_json::from_str(&text)?)
}

/// An object without times and identifiers; the order of its conditions and finalizers means nothing.
fn plain(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        OF_ONE.iter().for_each(|key| drop(metadata.remove(*key)));
        let annotations = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut);
        if let Some(annotations) = annotations {
            annotations.remove(ACCEPTED_ON);
            annotations.retain(|key, _| !key.starts_with("transom.dev/") && !key.starts_with(NOTE));
        }
        metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    }
    for pointer in ["/metadata/finalizers", "/status/conditions", "/spec/taints"] {
        if let Some(list) = object.pointer_mut(pointer).and_then(Value::as_array_mut) {
            for key in ["lastTransitionTime", "timeAdded"] {
                list.iter_mut()
                    .filter_map(Value::as_object_mut)
                    .for_each(|one| drop(one.remove(key)));
            }
            list.sort_by_key(Value::to_string);
        }
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("renewTime");
    }
    object
}

/// What somebody else notes on each cluster meanwhile.
const NOTE: &str = "example.com/beat";

/// Leads both halves to their ends and compares them.
async fn compare(stage: &Stage, disturbed: Half) -> Result<()> {
    let start = Instant::now();
    finish(stage, disturbed).await?;
    let calm = Half("calm", 4);
    finish(stage, calm).await?;
    for half in [calm, disturbed] {
        half.each(async |index| {
            let right = |cluster: &Value| is_at_end(cluster, end(index));
            let name = half.name(index);
            let came = stage.objects().wait_for(MANAGED, (None, &name), right);
            came.await.map(drop)
        })
        .await?;
    }
    disturbed
        .each(async |index| {
            let mut both = [Value::Null, Value::Null];
            let came = wait::until("the state of undisturbed clusters", DEADLINE, async || {
                both = [
                    state(stage, &disturbed.name(index)).await?,
                    state(stage, &calm.name(index % calm.1)).await?,
                ];
                Ok((both[0] == both[1]).then_some(()))
            });
            came.await.with_context(|| {
                format!("{:?}: {:#} instead of {:#}", end(index), both[0], both[1])
            })
        })
        .await?;
    println!(
        "all {} as if nothing had happened after {:.1} s",
        disturbed.1,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// A hub under all policies; `test` disturbs this many clusters, and whoever starts after that finds nothing to do. Gives
/// where the agent began.
async fn on_hub(
    stage: &Stage,
    clusters: usize,
    test: impl AsyncFnOnce(&[&str], Half) -> Result<Agent>,
) -> Result<Mark> {
    for crds in [&HUB_CRDS, &SET_CRDS] {
        stage.cluster.install_crds(crds).await?;
    }
    stage.objects().namespace(HUB).await?;
    let folder = stage.cluster.folder().join("policies-hub-faults");
    put_all(&folder, None)?;
    let path = folder.to_str().context("the folder has another name")?;
    stage.grant_exactly(&["--policies", path]).await?;
    let words = [&["--policies", path][..], &SELF_MANAGED].concat();
    let began = stage.mark()?;
    let half = Half("rough", clusters);
    half.each(async |index| put(stage, &half.name(index), "True").await)
        .await?;
    let agent = test(&words, half).await?;
    compare(stage, half).await?;
    agent.stop()?;
    let mark = stage.mark()?;
    let agent = stage.start_at_real_time(&words)?;
    agent.wait_for_first_pass()?;
    agent.stop()?;
    let writes = stage.changing(mark).await?;
    ensure!(writes.is_empty(), "{writes:#?}");
    Ok(began)
}

/// Waits until an agent has made so many writes since a mark, or has looked at everything and has nothing left to do. Gives
/// whether it is at work.
async fn until_written(stage: &Stage, agent: &Agent, since: Mark, writes: usize) -> Result<bool> {
    let is_counted = |line: &Line| {
        line.user == stage.agent.name() && line.is_write() && !BESIDE.contains(&line.resource())
    };
    wait::until("the moment of a kill", DEADLINE, async || {
        ensure!(!has_ended(agent.id()), "it ended: {}", agent.tail());
        let lines = stage.cluster.audit().since(since)?;
        let at_work = lines.iter().filter(|line| is_counted(line)).count() >= writes;
        Ok((at_work || agent.has_nothing_to_do()).then_some(at_work))
    })
    .await
}

/// Kills the agent over and over while clusters are accepted, denied and removed: each time after so many writes, by chance.
fn killed(kills: usize, clusters: usize) -> Result<()> {
    on_stage(async |stage| {
        let mark = on_hub(stage, clusters, async |words, half| {
            let agent = stage.start_at_real_time(words)?;
            half.each(async |index| {
                let accepted = |cluster: &Value| crate::spoke::says(cluster, ACCEPTED, "True");
                let name = half.name(index);
                let came = stage.objects().wait_for(MANAGED, (None, &name), accepted);
                came.await.map(drop)
            })
            .await?;
            agent.kill()?;
            let (mut numbers, mut at_work, start) = (Numbers::new(13, 0), 0, Instant::now());
            for _ in 0..kills {
                let mark = stage.mark()?;
                let agent = stage.start_at_real_time(words)?;
                let acts: Vec<u64> = (0..half.1).map(|_| numbers.take()).collect();
                let disturbed = half.each(async |index| {
                    // What cannot happen to it now does not happen.
                    drop(disturb(stage, &half.name(index), acts[index]).await);
                    Ok(())
                });
                let writes = (numbers.take() % (WRITES * half.1 as u64)) as usize;
                let written = until_written(stage, &agent, mark, writes);
                let ((), works) = futures::try_join!(disturbed, written)?;
                agent.kill()?;
                at_work += usize::from(works);
            }
            let each = start.elapsed().as_secs_f64() / kills as f64;
            println!("{kills} kills, one in {each:.1} s, {at_work} of them at work");
            ensure!(2 * at_work > kills, "hardly any kill met an agent at work");
            stage.start_at_real_time(words)
        })
        .await?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn an_agent_of_a_hub_killed_at_any_moment_leaves_consistent_state() -> Result<()> {
    killed(12, 8)
}

#[test]
#[ignore = "takes minutes: cargo xtask soak hub_faults"]
fn soak() -> Result<()> {
    let size = Size::given(100, 40)?;
    killed(size.rounds, size.clusters)
}

#[test]
fn a_hub_recovers_from_wrong_answers_conflicts_and_the_end_of_its_api_server() -> Result<()> {
    on_stage(async |stage| {
        let proxy = Proxy::start(&stage.cluster).await?;
        on_hub(stage, 8, async |words, half| {
            let mut command = stage.command_at_real_time(&stage.agent, &proxy.server(), words)?;
            let agent = stage.start_command(&mut command)?;
            agent.wait_for_first_pass()?;
            let mut numbers = Numbers::new(17, 0);
            let faults = [
                Fault::Code(429, Some(1)),
                Fault::Code(500, None),
                Fault::Code(503, None),
                Fault::NoJson,
                Fault::Half,
            ];
            for fault in faults {
                proxy.fail(Some(fault));
                for index in 0..half.1 {
                    drop(disturb(stage, &half.name(index), numbers.take()).await);
                }
                proxy.cut();
                let met = proxy.met();
                wait::until("requests that meet the fault", DEADLINE, async || {
                    Ok((proxy.met() >= met + 3).then_some(()))
                })
                .await?;
                proxy.fail(None);
            }
            // The server is killed while the agent works; at its start it denies what it will allow. And somebody else writes the clusters that it writes.
            for index in 0..half.1 {
                drop(disturb(stage, &half.name(index), numbers.take()).await);
            }
            stage.cluster.restart_apiserver().await?;
            proxy.answer_writes_late(Some(Duration::from_millis(200)));
            for beat in 0..20 {
                half.each(async |index| {
                    let name = half.name(index);
                    drop(disturb(stage, &name, beat * index as u64).await);
                    let beat = json!({"metadata": {"annotations": {NOTE: beat.to_string()}}});
                    drop(stage.patch(MANAGED, None, &name, beat).await);
                    Ok(())
                })
                .await?;
            }
            proxy.answer_writes_late(None);
            Ok(agent)
        })
        .await
        .map(drop)
    })
}
