//! Other clients that write what the agent writes or reads, faster than the agent does.

use crate::fleet::{POLICIES, all_right, fleet, name, ports, recovers};
use crate::objects::{OUTPUT, home};
use crate::stage::{SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
