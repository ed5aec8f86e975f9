//! Other clients that write what the agent writes or reads, faster than the agent does, or revert a write before the
//! agent has the response to it: everything becomes correct again without a resync.

use crate::access;
use crate::fleet::{POLICIES, all_right, fleet, name, ports, recovers};
use crate::objects::{OUTPUT, home};
use crate::stage::{DEADLINE, MANAGED, PARALLEL, SECRET, Stage, on_stage};
use crate::status::wait_for_condition;
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use transom_test_cluster::{Proxy, wait};

/// Objects that are raced for concurrently; each is reverted once.
const ROUNDS: usize = 24;
/// The delay of responses to writes: long enough for the other client, even on a busy machine.
const LATE: Duration = Duration::from_millis(600);

#[test]
fn recreates_an_object_deleted_before_its_write_was_answered() -> Result<()> {
    deleted(ROUNDS)
}

#[test]
fn sets_a_taint_again_when_removed_before_its_write_was_answered() -> Result<()> {
    reverted(ROUNDS)
}

#[test]
fn releases_what_its_own_delete_leaves_with_a_finalizer() -> Result<()> {
    released(ROUNDS / 2)
}

#[test]
#[ignore = "takes minutes: cargo xtask soak races"]
fn soak() -> Result<()> {
    (0..10).try_for_each(|_| {
        deleted(50)?;
        reverted(50)?;
        released(50)
    })
}

/// The binding of the work agent bears a finalizer of the policy, so that its delete leaves it: the watch may tell of
/// that before the delete is answered, at the same time, or later. Clusters are denied, deleted, or deleted by force.
fn released(rounds: usize) -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&[access::WORKS]).await?;
        let words = ["--policies", &stage.unlimited("cluster-access")?];
        stage.grant_exactly(&words).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let agent = stage.start_agent_at(&proxy.server(), &words)?;
        for late in [None, Some(LATE)] {
            let names = (0..rounds).map(|index| format!("{}{index}", access::CLUSTERS));
            let binding = |name: &str| format!("{}{name}:work", access::PREFIX);
            let each = async |name: String, index: usize| {
                access::undecided(stage, &name).await?;
                access::accept(stage, &name, true).await?;
                wait_for_condition(stage, MANAGED, &name, &access::decided(true)).await?;
                proxy.answer_writes_late(late);
                match index % 3 {
                    0 => access::accept(stage, &name, false).await?,
                    1 => stage.delete(MANAGED, None, &name).await?,
                    _ => {
                        stage.delete(MANAGED, None, &name).await?;
                        let free = json!({"metadata": {"finalizers": null}});
                        // The agent may have released it before.
                        drop(stage.patch(MANAGED, None, &name, free).await);
                    }
                }
                let place = (Some(&*name), &*binding(&name));
                let gone = stage
                    .objects()
                    .wait_for(access::BINDING, place, Value::is_null);
                gone.await?;
                stage.delete(MANAGED, None, &name).await?;
                let gone = stage
                    .objects()
                    .wait_for(MANAGED, (None, &*name), Value::is_null);
                gone.await.map(drop)
            };
            let all = stream::iter(names.enumerate()).map(|(index, name)| each(name, index));
            let all = all.buffer_unordered(PARALLEL).try_collect::<()>();
            all.await.with_context(|| agent.tail())?;
            proxy.answer_writes_late(None);
        }
        agent.stop()?;
        stage.remove_crd(access::WORKS).await
    })
}

/// Waits until an object exists that was created later than another one.
async fn made_again(stage: &Stage, namespace: &str, before: &Value) -> Result<()> {
    wait::until(
        &format!("another {OUTPUT} in {namespace}"),
        DEADLINE,
        async || {
            let now = stage.get(SECRET, Some(namespace), OUTPUT).await?;
            Ok(now
                .filter(|now| now["metadata"]["uid"] != *before)
                .map(drop))
        },
    )
    .await
}

fn deleted(rounds: usize) -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, rounds).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let words = [
            "--policies",
            &stage.unlimited("external-managed-kubeconfig")?,
        ];
        let agent = stage.start_agent_at(&proxy.server(), &words)?;
        all_right(stage, rounds, 6443).await?;
        proxy.answer_writes_late(Some(LATE));
        let undone = stream::iter(0..rounds).map(|index| async move {
            let namespace = home(&name(index));
            let first = stage
                .get(SECRET, Some(&namespace), OUTPUT)
                .await?
                .context("there is no output")?;
            stage.delete(SECRET, Some(&namespace), OUTPUT).await?;
            made_again(stage, &namespace, &first["metadata"]["uid"]).await?;
            // The agent does not know yet that it has created it.
            stage.delete(SECRET, Some(&namespace), OUTPUT).await
        });
        undone
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        proxy.answer_writes_late(None);
        all_right(stage, rounds, 6443)
            .await
            .with_context(|| agent.tail())?;
        agent.stop()?;
        Ok(())
    })
}

/// Waits until a cluster has taints, or none.
async fn tainted(stage: &Stage, name: &str, wanted: bool) -> Result<()> {
    wait::until(
        &format!("taints of {name}: {wanted}"),
        DEADLINE,
        async || {
            let some = !stage.taints_of(name).await?.is_empty();
            Ok((some == wanted).then_some(()))
        },
    )
    .await
}

fn reverted(rounds: usize) -> Result<()> {
    on_stage(async |stage| {
        let names: Vec<String> = (0..rounds).map(name).collect();
        let each = || stream::iter(&names);
        each()
            .map(|name| stage.managed(name))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let agent = stage.start_agent_at(
            &proxy.server(),
            &["--policies", &stage.unlimited("built-in-taints")?],
        )?;
        agent.wait_for_first_pass()?;
        proxy.answer_writes_late(Some(LATE));
        let undone = each().map(|name| async move {
            stage.set_available(name, "Unknown").await?;
            tainted(stage, name, true).await?;
            // It looks again as in the agent's last reconcile.
            stage
                .patch(MANAGED, None, name, json!({"spec": {"taints": null}}))
                .await
        });
        undone
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        proxy.answer_writes_late(None);
        let again = each().map(|name| tainted(stage, name, true));
        again
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await
            .with_context(|| agent.tail())?;
        let last = names.last().context("nobody was raced")?;
        agent.wait_for(&format!("ManagedCluster {last}"), "Applied InSync")?;
        ensure!(
            !agent.stop()?.contains("Contended"),
            "one undone write is no contest"
        );
        Ok(())
    })
}

/// Targets that another client writes all the time.
const STORMY: usize = 4;
/// Changes of each source during that time.
const CHANGES: u16 = 20;

/// What they write.
const THEIRS: &str = "example.com/theirs";

/// Patches an annotation of every target until told to stop; returns how often, and the last value of each target.
async fn storm(stage: &Stage, stop: &AtomicBool) -> Result<(usize, Vec<String>)> {
    let times = AtomicUsize::new(0);
    let writers = stream::iter(0..STORMY).map(|index| {
        let times = &times;
        async move {
            let api = stage
                .api(SECRET, Some(&format!("klusterlet-{}", name(index))))
                .await?;
            let mut last = String::new();
            while !stop.load(Ordering::SeqCst) {
                last = times.fetch_add(1, Ordering::SeqCst).to_string();
                let theirs = json!({"metadata": {"annotations": {THEIRS: last}}});
                api.patch(
                    "external-managed-kubeconfig",
                    &PatchParams::default(),
                    &Patch::Merge(theirs),
                )
                .await?;
            }
            anyhow::Ok(last)
        }
    });
    let ended: Vec<Result<String>> = writers.buffered(STORMY).collect().await;
    let last = ended.into_iter().collect::<Result<_>>()?;
    Ok((times.into_inner(), last))
}

#[test]
fn a_busy_second_writer_causes_no_extra_writes() -> Result<()> {
    on_stage(async |stage| {
        fleet(stage, STORMY).await?;
        let agent = stage.start_agent(&[POLICIES])?;
        all_right(stage, STORMY, 6443).await?;
        let (mark, stop, last) = (stage.mark()?, AtomicBool::new(false), 7_000 + CHANGES - 1);
        let changes = async {
            let mut changed = Ok(());
            for port in 7_000..=last {
                changed = changed.and(ports(stage, 0..STORMY, port).await);
            }
            stop.store(true, Ordering::SeqCst);
            changed
        };
        let (theirs, changed) = tokio::join!(storm(stage, &stop), changes);
        let ((theirs, last_of_theirs), ()) = (theirs?, changed?);
        recovers(
            stage,
            &format!("after {theirs} writes of somebody else"),
            STORMY,
            last,
        )
        .await
        .with_context(|| agent.tail())?;
        let lines = stage.lines(mark).await?;
        let asked: Vec<_> = lines.iter().filter(|line| line.is_write()).collect();
        let refused = asked.iter().filter(|line| line.code == 409).count();
        let wrote = stage.writes(mark).await?.len();
        println!("    {wrote} writes of ours, {refused} refused");
        ensure!(refused > 0, "they never met");
        ensure!(wrote <= STORMY * usize::from(CHANGES), "{wrote} writes");
        // Then the other writer stops: one write for each change, and none for its writes.
        let mark = stage.mark()?;
        ports(stage, 0..2, 8443).await?;
        all_right(stage, 2, 8443).await?;
        let writes = stage.writes(mark).await?;
        ensure!(writes.len() == 2, "{writes:?}");
        agent.stop()?;
        for (index, last) in last_of_theirs.iter().enumerate() {
            let target = stage
                .get(SECRET, Some(&home(&name(index))), OUTPUT)
                .await?
                .context("no target")?;
            ensure!(
                target["metadata"]["annotations"][THEIRS] == *last,
                "what they wrote last to {index} is gone"
            );
        }
        Ok(())
    })
}
