//! What happens to the machine on which the agent runs. Never changes the machine of the test: the full disk is a device
//! that takes nothing, and for files a limit of the process in the middle of what it keeps of compiled code; the clock
//! that is moved is that of the agent's process.

use crate::agent::NOW;
use crate::objects::{Identifiers, case_text, parse};
use crate::stage::{DEADLINE, HOME, MANAGED, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::Instant;
use transom_core::rights::LEASE;
use transom_test_cluster::{Clock, wait};

/// A file that grows beyond 256 KiB is refused the rest, and standard output and standard error take nothing.
const FULL: &str = r#"ulimit -f 512; trap "" XFSZ; exec "$@" >/dev/full 2>/dev/full"#;

#[test]
fn a_full_disk_costs_no_work() -> Result<()> {
    on_stage(async |stage| {
        for name in ["one", "two"] {
            stage.ready(name, name == "one").await?;
        }
        let cache = stage.cluster.folder().join("full");
        fs::create_dir_all(&cache)?;
        let inner = stage.command(&["--log-format", "text"])?;
        let mut command = Command::new("sh");
        command.args(["-c", FULL, "sh"]).arg(inner.get_program()).args(inner.get_args());
        command.current_dir(stage.cluster.folder()).env("RUST_LOG", "debug").env("XDG_CACHE_HOME", &cache);
        let agent = stage.start_command(&mut command)?;
        stage.wait_for_right("one", 6443).await?;
        stage.objects().namespace("klusterlet-two").await?;
        stage.wait_for_right("two", 6443).await?;
        stage.move_port("one", 7443).await?;
        stage.wait_for_right("one", 7443).await?;
        ensure!(agent.stop()?.is_empty(), "the log could be written");
        Ok(())
    })
}

/// Sets whether a ManagedCluster is available, and waits for what its taints say then: the times of ours.
async fn times(stage: &Stage, name: &str, status: &str, ours: usize) -> Result<Vec<String>> {
    let mut cluster = stage.get(MANAGED, None, name).await?.context("no ManagedCluster")?;
    for condition in cluster["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "ManagedClusterConditionAvailable" {
            condition["status"] = json!(status);
        }
    }
    stage.put_status(MANAGED, None, name, &cluster["status"]).await?;
    let of = |taint: &Value| Some(taint["timeAdded"].as_str()?.to_owned());
    wait::until(&format!("{ours} taints of {name}"), DEADLINE, async || {
        let cluster = stage.get(MANAGED, None, name).await?.unwrap_or_default();
        let taints = cluster["spec"]["taints"].as_array().cloned().unwrap_or_default();
        Ok((taints.len() == ours).then(|| taints.iter().filter_map(of).collect()))
    })
    .await
}

#[test]
fn a_clock_that_is_moved_costs_no_work_and_no_lease() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("timely", true).await?;
        let text = case_text("built-in-taints", "T01-available", "given.yaml", |_| "timely".to_owned())?;
        for object in parse(&text.context("the case T01 is not there")?)? {
            stage.put(&object, &mut Identifiers::new()).await?;
        }
        let lease = ("coordination.k8s.io/v1", "Lease");
        stage.delete(lease, Some(HOME), LEASE).await?;
        let holder = async || -> Result<Value> {
            let lease = stage.get(lease, Some(HOME), LEASE).await?.unwrap_or_default();
            Ok(json!([lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]]))
        };
        // The clock shows 8 o'clock when the agent starts; it works by it, and by no time that is fixed.
        let clock = Clock::at(&stage.cluster.folder().join("clock"), "2026-11-21 08:00:00")?;
        let fixed = stage.command(&["--lease-namespace", HOME])?;
        let mut command = Command::new(fixed.get_program());
        command.args(fixed.get_args().filter(|word| *word != "--now" && *word != NOW));
        command.current_dir(stage.cluster.folder()).env("RUST_LOG", "info,transom=debug");
        let mut agent = stage.start_command(clock.wear(&mut command)?)?;
        agent.wait_for_first_pass().await?;
        stage.wait_for_right("timely", 6443).await?;
        let led = holder().await?;
        let hours =
            [("a day on", "2026-11-22 12"), ("two hours back", "2026-11-21 06"), ("right again", "2026-11-21 08")];
        for ((what, hour), port) in hours.into_iter().zip(7443..) {
            clock.set(&format!("{hour}:00:00"))?;
            let start = Instant::now();
            stage.move_port("timely", port).await?;
            stage.wait_for_right("timely", port).await?;
            let added = times(stage, "timely", "Unknown", 1).await?;
            ensure!(added[0].starts_with(&hour.replace(' ', "T")), "{what}: a taint of {added:?}");
            times(stage, "timely", "True", 0).await?;
            println!("the clock is {what}: right after {:.1} s", start.elapsed().as_secs_f64());
        }
        ensure!(holder().await? == led, "the lease changed hands: {led}, then {}", holder().await?);
        agent.stop()?;
        Ok(())
    })
}
