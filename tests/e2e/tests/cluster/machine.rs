//! Faults of the machine on which the agent runs, simulated without changing the test's machine: the full disk is a
//! device that accepts no data, and for files a size limit of the process that cuts the cache of compiled code; the
//! clock jumps only for the agent's process.

use crate::agent::{ADMIN, NOW};
use crate::fleet::POLICIES;
use crate::stage::{HOME, on_stage};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::time::Instant;
use transom_core::rights::LEASE;
use transom_test_cluster::Clock;

/// A file cannot grow beyond 256 KiB, and standard output and standard error accept nothing.
const FULL: &str = r#"ulimit -f 512; trap "" XFSZ; exec "$@" >/dev/full 2>/dev/full"#;

#[test]
fn a_full_disk_stops_no_work() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        for name in ["one", "two"] {
            stage.ready(name, name == "one").await?;
        }
        let cache = stage.cluster.folder().join("full");
        fs::create_dir_all(&cache)?;
        // The log with the address of its admin server is lost, so the test chooses the address.
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let inner = stage.command(&["--log-format", "text", POLICIES, ADMIN, &admin])?;
        let mut command = Command::new("sh");
        command
            .args(["-c", FULL, "sh"])
            .arg(inner.get_program())
            .args(inner.get_args());
        command
            .current_dir(stage.cluster.folder())
            .env("RUST_LOG", "debug")
            .env("XDG_CACHE_HOME", &cache);
        let start = Instant::now();
        let agent = stage.start_command(&mut command)?;
        stage.wait_for_right("one", 6443).await?;
        stage.objects().namespace("klusterlet-two").await?;
        stage.wait_for_right("two", 6443).await?;
        stage.move_port("one", 7443).await?;
        stage.wait_for_right("one", 7443).await?;
        println!(
            "a full disk from the start: right after {:.1} s",
            start.elapsed().as_secs_f64()
        );
        ensure!(agent.stop()?.is_empty(), "the log could be written");
        Ok(())
    })
}

#[test]
fn a_clock_jump_costs_no_work_and_no_lease() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.ready("timely", true).await?;
        stage.managed("timely").await?;
        let lease = ("coordination.k8s.io/v1", "Lease");
        stage.delete(lease, Some(HOME), LEASE).await?;
        let holder = async || -> Result<Value> {
            let lease = stage
                .get(lease, Some(HOME), LEASE)
                .await?
                .unwrap_or_default();
            Ok(json!([
                lease["spec"]["holderIdentity"],
                lease["spec"]["leaseTransitions"]
            ]))
        };
        // The clock shows 8 o'clock when the agent starts; the agent uses this running clock and no fixed time.
        let clock = Clock::at(&stage.cluster.folder().join("clock"), "2026-11-21 08:00:00")?;
        let fixed = stage.command(&["--lease-namespace", HOME, POLICIES])?;
        let mut command = Command::new(fixed.get_program());
        command.args(
            fixed
                .get_args()
                .filter(|word| *word != "--now" && *word != NOW),
        );
        command
            .current_dir(stage.cluster.folder())
            .env("RUST_LOG", "info,transom=debug");
        let mut agent = stage.start_command(clock.wear(&mut command)?)?;
        agent.wait_for_first_pass().await?;
        stage.wait_for_right("timely", 6443).await?;
        let led = holder().await?;
        let hours = [
            ("a day on", "2026-11-22 12"),
            ("two hours back", "2026-11-21 06"),
            ("right again", "2026-11-21 08"),
        ];
        for ((what, hour), port) in hours.into_iter().zip(7443..) {
            clock.set(&format!("{hour}:00:00"))?;
            let start = Instant::now();
            stage.move_port("timely", port).await?;
            stage.wait_for_right("timely", port).await?;
            stage.set_available("timely", "Unknown").await?;
            let added = stage.taint_times("timely", 1).await?;
            ensure!(
                added[0].starts_with(&hour.replace(' ', "T")),
                "{what}: a taint of {added:?}"
            );
            stage.set_available("timely", "True").await?;
            stage.taint_times("timely", 0).await?;
            println!(
                "the clock is {what}: right after {:.1} s",
                start.elapsed().as_secs_f64()
            );
        }
        ensure!(
            holder().await? == led,
            "the lease changed hands: {led}, then {}",
            holder().await?
        );
        agent.stop()?;
        Ok(())
    })
}
