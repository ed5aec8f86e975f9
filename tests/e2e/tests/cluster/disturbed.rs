//! A fleet whose agent is killed over and over, whose requests fail, and whose API server ends, while somebody else
//! changes each object at the same time; whose agent loses its rights and the right time; and whose leader ends while
//! its guests are swapped. Afterwards all is as it is where nobody disturbed the agent. Prints how long it took.

use crate::components::{PARTS, SOURCES};
use crate::policies::POLICY;
use crate::replicas::Replicas;
use crate::stage::{DEADLINE, HOME, MANAGED, PARALLEL, Stage, is_main_write, on_stage};
use crate::together::SELF_MANAGED;
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use transom_core::digest::Digest;
use transom_e2e::agent::{Agent, has_ended};
use transom_e2e::program;
use transom_support::numbers::Numbers;
use transom_test_cluster::{Clock, Fault, Line, Mark, Proxy, SET_BY_SERVER, User, wait};

/// The start of what somebody else notes on each object meanwhile.
const NOTE: &str = "example.com/beat";

/// What the clusters of a fleet are, what happens to each while its agent is disturbed, and how each ends.
pub(crate) trait Life {
    /// How a cluster ends.
    type End: Copy + Debug;
    /// All ends; the clusters take turns.
    const ENDS: [Self::End; 4];
    /// Before a kill the agent makes fewer writes than so many for each cluster.
    const WRITES: u64;

    /// Puts the policies into a folder, and what they need onto the server.
    async fn prepare(&self, stage: &Stage, folder: &Path) -> Result<()>;
    /// Makes a cluster.
    async fn begin(&self, stage: &Stage, name: &str) -> Result<()>;
    /// Waits until an agent has done its first work for a cluster.
    async fn settle(&self, stage: &Stage, name: &str) -> Result<()>;
    /// What happens to a cluster meanwhile. Much of it fails: the cluster is gone, or on its way.
    async fn disturb(&self, stage: &Stage, name: &str, number: u64) -> Result<()>;
    /// Leads a cluster to its end, whatever it is now.
    async fn finish(&self, stage: &Stage, name: &str, end: Self::End) -> Result<()>;
    /// Waits until a cluster has come to its end.
    async fn ended(&self, stage: &Stage, name: &str, end: Self::End) -> Result<()>;
    /// All that there is about a cluster.
    async fn state(&self, stage: &Stage, name: &str, end: Self::End) -> Result<Value>;
}

/// The clusters of one half, disturbed or not, by number.
#[derive(Clone, Copy)]
struct Half(&'static str, usize);

impl Half {
    fn name(self, index: usize) -> String {
        format!("{}{}-{index}", crate::access::CLUSTERS, self.0)
    }

    /// Does something for each of them, several at a time.
    async fn each(self, act: impl AsyncFn(usize) -> Result<()>) -> Result<()> {
        let all = stream::iter(0..self.1).map(|index| act(index));
        all.buffer_unordered(PARALLEL).try_collect().await
    }
}

fn end<L: Life>(index: usize) -> L::End {
    L::ENDS[index % L::ENDS.len()]
}

/// The state of a cluster, the same for two clusters of one end.
async fn state<L: Life>(life: &L, stage: &Stage, name: &str, end: L::End) -> Result<Value> {
    let state = life.state(stage, name, end).await?;
    Ok(serde_json::from_str(
        &state.to_string().replace(name, "NAME"),
    )?)
}

/// An object without times and identifiers; the order of its conditions and finalizers means nothing.
pub(crate) fn plain(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        // These differ from object to object without meaning anything.
        SET_BY_SERVER
            .iter()
            .for_each(|key| drop(metadata.remove(*key)));
        let annotations = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut);
        if let Some(annotations) = annotations {
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

/// Leads both halves to their ends and compares them.
async fn compare<L: Life>(life: &L, stage: &Stage, disturbed: Half) -> Result<()> {
    let start = Instant::now();
    let calm = Half("calm", L::ENDS.len());
    calm.each(async |index| life.begin(stage, &calm.name(index)).await)
        .await?;
    for half in [disturbed, calm] {
        half.each(async |index| {
            let name = half.name(index);
            let finished = life.finish(stage, &name, end::<L>(index)).await;
            finished.with_context(|| format!("`{name}` cannot be finished"))
        })
        .await?;
    }
    for half in [calm, disturbed] {
        half.each(async |index| {
            let (name, end) = (half.name(index), end::<L>(index));
            let ended = life.ended(stage, &name, end).await;
            ended.with_context(|| format!("`{name}` does not come to its end, {end:?}"))
        })
        .await?;
    }
    disturbed
        .each(async |index| {
            let end = end::<L>(index);
            let names = [disturbed.name(index), calm.name(index % calm.1)];
            let mut both = [Value::Null, Value::Null];
            let came = wait::until("the state of undisturbed clusters", DEADLINE, async || {
                for (at, name) in names.iter().enumerate() {
                    both[at] = state(life, stage, name, end).await?;
                }
                Ok((both[0] == both[1]).then_some(()))
            });
            came.await
                .with_context(|| format!("{end:?}: {:#} instead of {:#}", both[0], both[1]))
        })
        .await?;
    println!(
        "all {} as if nothing had happened after {:.1} s",
        disturbed.1,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The same under one agent, which ends then.
async fn end_well<L: Life>(life: &L, stage: &Stage, half: Half, agent: Agent) -> Result<()> {
    let compared = compare(life, stage, half).await;
    compared.with_context(|| agent.tail())?;
    agent.stop().map(drop)
}

/// Has something happen to each cluster. What cannot happen to one now does not happen.
async fn disturb<L: Life>(life: &L, stage: &Stage, half: Half, numbers: &mut Numbers) {
    let acts: Vec<u64> = (0..half.1).map(|_| numbers.take()).collect();
    let disturbed = half.each(async |index| {
        drop(life.disturb(stage, &half.name(index), acts[index]).await);
        Ok(())
    });
    drop(disturbed.await);
}

/// Waits until an agent has done its first work for each cluster.
async fn settle<L: Life>(life: &L, stage: &Stage, half: Half) -> Result<()> {
    half.each(async |index| life.settle(stage, &half.name(index)).await)
        .await
}

/// A fleet under its policies; `test` disturbs this many clusters and compares them, and whoever starts after that
/// finds nothing to do. Gives where the agent began.
async fn on_fleet<L: Life>(
    life: &L,
    stage: &Stage,
    clusters: usize,
    test: impl AsyncFnOnce(&[&str], Half) -> Result<()>,
) -> Result<Mark> {
    let folder = stage.cluster.folder().join("policies-disturbed");
    life.prepare(stage, &folder).await?;
    let path = folder.to_str().context("the folder has another name")?;
    stage.grant_exactly(&["--policies", path]).await?;
    let words = [&["--policies", path][..], &SELF_MANAGED].concat();
    let began = stage.mark()?;
    let half = Half("rough", clusters);
    half.each(async |index| life.begin(stage, &half.name(index)).await)
        .await?;
    test(&words, half).await?;
    let mark = stage.mark()?;
    let agent = stage.start_at_real_time(&words)?;
    agent.wait_for_first_pass()?;
    agent.stop()?;
    let writes = stage.changing(mark).await?;
    ensure!(writes.is_empty(), "{writes:#?}");
    Ok(began)
}

/// Whether a request is a write of an agent, other than what it writes beside its main task.
fn is_write_of(agent: &User, line: &Line) -> bool {
    line.user == agent.name() && is_main_write(line)
}

/// Has something happen to each cluster until there were so many writes since a mark: what changes next may not concern
/// the agent.
async fn disturb_until<L: Life>(
    life: &L,
    stage: &Stage,
    (half, numbers): (Half, &mut Numbers),
    since: Mark,
    (count, is_write): (usize, impl Fn(&Line) -> bool),
) -> Result<()> {
    wait::until("writes of the agent", DEADLINE, async || {
        disturb(life, stage, half, numbers).await;
        let lines = stage.cluster.audit().since(since)?;
        let written = lines.iter().filter(|line| is_write(line)).count();
        Ok((written >= count).then_some(()))
    })
    .await
}

/// Waits until an agent has made so many writes since a mark, or has looked at everything and has nothing left to do.
/// Gives whether it is at work.
async fn until_written(stage: &Stage, agent: &Agent, since: Mark, writes: usize) -> Result<bool> {
    let is_counted = |line: &Line| is_write_of(&stage.agent, line);
    wait::until("writes of the agent", DEADLINE, async || {
        ensure!(!has_ended(agent.id()), "it ended: {}", agent.tail());
        let lines = stage.cluster.audit().since(since)?;
        let at_work = lines.iter().filter(|line| is_counted(line)).count() >= writes;
        Ok((at_work || agent.has_nothing_to_do()).then_some(at_work))
    })
    .await
}

/// Kills the agent over and over while something happens to each cluster: each time after so many writes, by chance.
pub(crate) fn killed<L: Life>(life: &L, kills: usize, clusters: usize) -> Result<()> {
    on_stage(async |stage| {
        let mark = on_fleet(life, stage, clusters, async |words, half| {
            let agent = stage.start_at_real_time(words)?;
            let settled = settle(life, stage, half).await;
            settled.with_context(|| agent.tail())?;
            agent.kill()?;
            let (mut numbers, mut at_work, start) = (Numbers::new(13, 0), 0, Instant::now());
            for _ in 0..kills {
                let mark = stage.mark()?;
                let agent = stage.start_at_real_time(words)?;
                let writes = (numbers.take() % (L::WRITES * half.1 as u64)) as usize;
                let written = until_written(stage, &agent, mark, writes);
                let disturbed = disturb(life, stage, half, &mut numbers);
                let ((), works) = futures::join!(disturbed, written);
                let works = works?;
                agent.kill()?;
                at_work += usize::from(works);
            }
            let each = start.elapsed().as_secs_f64() / kills as f64;
            println!("{kills} kills, one in {each:.1} s, {at_work} of them at work");
            ensure!(2 * at_work > kills, "hardly any kill met an agent at work");
            end_well(life, stage, half, stage.start_at_real_time(words)?).await
        })
        .await?;
        stage.nothing_denied(mark).await
    })
}

/// Lets requests fail in each way, kills the API server, and writes each cluster at the same time as the agent.
pub(crate) fn failed<L: Life>(life: &L) -> Result<()> {
    on_stage(async |stage| {
        let proxy = Proxy::start(&stage.cluster).await?;
        on_fleet(life, stage, 8, async |words, half| {
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
                disturb(life, stage, half, &mut numbers).await;
                proxy.cut();
                let met = proxy.met();
                wait::until("requests that meet the fault", DEADLINE, async || {
                    Ok((proxy.met() >= met + 3).then_some(()))
                })
                .await?;
                proxy.fail(None);
            }
            // The server is killed while the agent works; at its start it denies what it will allow. And somebody else
            // writes the clusters that it writes.
            disturb(life, stage, half, &mut numbers).await;
            stage.cluster.restart_apiserver().await?;
            proxy.answer_writes_late(Some(Duration::from_millis(200)));
            for beat in 0..20 {
                half.each(async |index| {
                    let name = half.name(index);
                    drop(life.disturb(stage, &name, beat * index as u64).await);
                    let note = json!({"metadata": {"annotations": {NOTE: beat.to_string()}}});
                    drop(stage.patch(MANAGED, None, &name, note).await);
                    Ok(())
                })
                .await?;
            }
            proxy.answer_writes_late(None);
            end_well(life, stage, half, agent).await
        })
        .await
        .map(drop)
    })
}

/// Takes rights away from the agent, a half of them at a time and all of them, and moves its clock.
pub(crate) fn deprived<L: Life>(life: &L) -> Result<()> {
    on_stage(async |stage| {
        let proxy = Proxy::start(&stage.cluster).await?;
        let clock = Clock::shifted(&stage.cluster.folder().join("clock"), "+0")?;
        on_fleet(life, stage, 8, async |words, half| {
            let mut command = stage.command_at_real_time(&stage.agent, &proxy.server(), words)?;
            let agent = stage.start_command(clock.wear(&mut command)?)?;
            let settled = settle(life, stage, half).await;
            settled.with_context(|| agent.tail())?;
            let mut numbers = Numbers::new(19, 0);
            for half_of_them in [Some(0), Some(1), None] {
                match half_of_them {
                    Some(first) => stage.grant_half(&words[..2], first).await?,
                    None => stage.revoke().await?,
                }
                let mark = stage.mark()?;
                // What it watches it would go on seeing.
                proxy.cut();
                disturb(life, stage, half, &mut numbers).await;
                wait::until("a request that is denied", DEADLINE, async || {
                    let lines = stage.cluster.audit().since(mark)?;
                    // The test itself asks for one namespace, until that is denied.
                    let is_denied = |line: &Line| {
                        line.user == stage.agent.name()
                            && line.denied
                            && !line.uri.ends_with("limit=1")
                    };
                    Ok(lines.iter().any(is_denied).then_some(()))
                })
                .await
                .with_context(|| agent.tail())?;
                stage.grant_exactly(&words[..2]).await?;
            }
            for offset in ["+1d", "-2h", "+0"] {
                clock.shift(offset)?;
                let mark = stage.mark()?;
                let is_write = |line: &Line| is_write_of(&stage.agent, line);
                disturb_until(life, stage, (half, &mut numbers), mark, (1, is_write))
                    .await
                    .with_context(|| agent.tail())?;
            }
            end_well(life, stage, half, agent).await
        })
        .await
        .map(drop)
    })
}

/// Swaps the guests that decide, of all policies, under three replicas, and ends the one that leads, over and over.
pub(crate) fn succeeded<L: Life>(life: &L) -> Result<()> {
    on_stage(async |stage| {
        stage.install_crd_of_policies().await?;
        stage.objects().namespace(PARTS).await?;
        on_fleet(life, stage, 8, async |words, half| {
            let guests = put_policies(stage, Path::new(words[1])).await?;
            let objects = ["--policy-objects", "--lease-namespace", HOME];
            let rights = [&words[..2], &objects].concat();
            let words = [&objects[..], &["--sources", SOURCES], &SELF_MANAGED].concat();
            let mark = stage.mark()?;
            let mut replicas = Replicas::start(stage, &words, &rights).await?;
            settle(life, stage, half).await?;
            let mut numbers = Numbers::new(23, 0);
            for round in 0..SWAPS {
                let mark = stage.mark()?;
                let writes = 1 + numbers.take() as usize % half.1;
                let is_write = |line: &Line| replicas.wrote(line);
                let disturbed = (half, &mut numbers);
                let written = disturb_until(life, stage, disturbed, mark, (writes, is_write));
                let (swapped, written) = futures::join!(swap(stage, &guests, round), written);
                swapped.and(written)?;
                replicas.end_leader(stage, round % 2 == 0).await?;
                wait_for_guests(stage, &guests, round).await?;
            }
            compare(life, stage, half).await?;
            let writes = replicas.in_turn(stage, mark).await?.len();
            println!("{SWAPS} swaps and ends of leaders: {writes} writes in turn");
            replicas.stop()
        })
        .await
        .map(drop)
    })
}

/// An even number: the last one brings the bundled guests back.
const SWAPS: usize = 4;

/// A policy, and the bundled component that decides for it.
type Guest = (String, String);

/// Makes objects of the policies of a folder, and ConfigMaps of their components, with other bytes and the same
/// behaviour.
async fn put_policies(stage: &Stage, folder: &Path) -> Result<Vec<Guest>> {
    let mut guests = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path().join("policy.yaml");
        let policy: Value = serde_yaml::from_str(&fs::read_to_string(&file)?)?;
        let component = policy["spec"]["guests"]["decide"]["component"].as_str();
        let component = component.and_then(|component| component.strip_prefix("builtin:"));
        let component = component.context("it has no bundled component")?.to_owned();
        let other = program::variant(&component, b'x')?;
        stage.put_component(&component, &other).await?;
        let name = policy["metadata"]["name"].as_str().context("no name")?;
        guests.push((name.to_owned(), component));
        stage.objects().apply(policy).await?;
    }
    Ok(guests)
}

/// Has every policy use its other component, or the bundled one again.
async fn swap(stage: &Stage, guests: &[Guest], round: usize) -> Result<()> {
    for (policy, component) in guests {
        let component = match round % 2 {
            0 => format!("configmap:{PARTS}/{component}/k"),
            _ => format!("builtin:{component}"),
        };
        let decide = json!({"spec": {"guests": {"decide": {"component": component}}}});
        stage.patch(POLICY, None, policy, decide).await?;
    }
    Ok(())
}

/// Waits until every policy works with the component of a round.
async fn wait_for_guests(stage: &Stage, guests: &[Guest], round: usize) -> Result<()> {
    for (policy, component) in guests {
        let bytes = match round % 2 {
            0 => program::variant(component, b'x')?,
            _ => program::component(component)?,
        };
        let digest = Digest::of_bytes(&bytes).to_string();
        let is_active = |policy: &Value| policy["status"]["revision"]["decide"] == digest;
        stage
            .objects()
            .wait_for(POLICY, (None, policy), is_active)
            .await?;
    }
    Ok(())
}
