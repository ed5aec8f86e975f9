//! What the real agent counts as an attempt, and what a real Prometheus computes from its counters with the shipped
//! rules: the service level and the alerts. Statements about the rules alone are tests of promtool.

use crate::admin::start_command;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use transom_core::metrics::{COPY_FAILURES, COPY_TOTAL, RECONCILES};
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::prometheus::Prometheus;
use transom_e2e::stage::{Stage, put};
use transom_e2e::{http, program};
use transom_support::wait;
use transom_test_cluster::Clock;

const POLICY: &str = "external-managed-kubeconfig";
/// The fleet of the resync: twenty correct clusters and one without a Service; also a suspended one and a waiting one,
/// which are no attempts.
const CLUSTERS: usize = 23;
const WRONG: usize = 20;

/// A fleet, and the clock of its agent.
struct Scene {
    stage: Stage,
    clock: Clock,
}

/// The number of attempts, and of failed ones.
fn counted(admin: SocketAddr) -> Result<(f64, f64)> {
    Ok((
        http::metric(admin, COPY_TOTAL.name, "")?,
        http::metric(admin, COPY_FAILURES.name, "")?,
    ))
}

/// The number of reconciles for a cause.
fn reconciles(admin: SocketAddr, why: &str) -> Result<f64> {
    http::metric(admin, RECONCILES.name, &format!("cause=\"{why}\""))
}

/// Waits for this many more reconciles for a cause, so that wrong counting has a chance to show.
fn goes_on(admin: SocketAddr, why: &str, times: usize) -> Result<()> {
    let enough = reconciles(admin, why)? + times as f64;
    let look = || reconciles(admin, why).ok().filter(|count| *count >= enough);
    Ok(wait::until(
        &format!("{times} more reconciles for {why}"),
        DEADLINE,
        look,
    )
    .map(drop)?)
}

impl Scene {
    /// The agent resyncs every primary each `resync_seconds`.
    fn new(resync_seconds: u32) -> Result<Self> {
        let stage = Stage::new(CLUSTERS, 1)?;
        let mut manifest = program::manifest(POLICY)?;
        manifest["spec"]["resyncSeconds"] = json!(resync_seconds);
        put(
            &stage.policies.join(POLICY).join("policy.yaml"),
            serde_yaml::to_string(&manifest)?.as_bytes(),
        )?;
        let clock = Clock::at(&stage.path("clock"), "2026-11-21 08:00:00")?;
        let scene = Self { stage, clock };
        scene.minute(0)?;
        Ok(scene)
    }

    /// Stops the clock at this many minutes past eight: what counts once a minute counts once.
    fn minute(&self, minute: usize) -> Result<()> {
        self.clock.hold(&format!("2026-11-21 08:{minute:02}:30"))
    }

    fn start(&self) -> Result<(Agent, SocketAddr)> {
        let mut command = self.stage.run()?;
        start_command(&self.stage, self.clock.wear(&mut command)?)
    }

    /// Removes the Service of a cluster, and returns a function that restores it.
    fn break_service(&self, index: usize) -> Result<impl Fn() -> Result<()> + use<>> {
        let path = self.stage.hosted(index);
        let whole = fs::read_to_string(&path)?;
        let documents: Vec<&str> = whole.split("\n---\n").collect();
        let left: Vec<&str> = documents
            .iter()
            .filter(|text| !text.contains("kind: Service\n"))
            .copied()
            .collect();
        ensure!(
            left.len() + 1 == documents.len(),
            "not one Service in {}",
            path.display()
        );
        put(&path, left.join("\n---\n").as_bytes())?;
        Ok(move || put(&path, whole.as_bytes()))
    }

    /// Waits until exactly this much was counted.
    fn wait_for(&self, admin: SocketAddr, expected: (f64, f64)) -> Result<()> {
        let look = || {
            counted(admin)
                .ok()
                .filter(|counted| counted.0 >= expected.0)
        };
        let there = wait::until(&format!("{expected:?} attempts"), DEADLINE, look)
            .with_context(|| format!("it is {:?}", counted(admin).ok()))?;
        ensure!(there == expected, "counted {there:?}, not {expected:?}");
        Ok(())
    }
}

#[test]
fn a_start_counts_each_cluster_once_despite_retries() -> Result<()> {
    let scene = Scene::new(1_800)?;
    let mend = scene.break_service(WRONG)?;
    // The second start finds all of them correct except one, and writes nothing: the counters show the same.
    for start in ["first", "second"] {
        let (agent, admin) = scene.start()?;
        scene.wait_for(admin, (21.0, 1.0)).context(start)?;
        for minute in 1..4 {
            scene.minute(minute)?;
            goes_on(admin, "Retry", 1)?;
        }
        ensure!(
            counted(admin)? == (21.0, 1.0),
            "{start} start, and three more tries: {:?}",
            counted(admin)?
        );
        if start == "second" {
            // A change that writes counts, and so does a recovery.
            let text = fs::read_to_string(scene.stage.hosted(0))?;
            put(
                &scene.stage.hosted(0),
                text.replace("port: 6443", "port: 7443").as_bytes(),
            )?;
            scene.wait_for(admin, (22.0, 1.0)).context("a change")?;
            mend()?;
            scene
                .wait_for(admin, (23.0, 1.0))
                .context("what failed is right")?;
        }
        agent.kill()?;
    }
    Ok(())
}

#[test]
fn a_resync_counts_each_cluster_once_for_the_service_level() -> Result<()> {
    let scene = Scene::new(1)?;
    let mend = scene.break_service(WRONG)?;
    let (agent, admin) = scene.start()?;
    let prometheus = Prometheus::start(&scene.stage.path("prometheus"), admin)?;
    let mut expected = (21.0, 1.0);
    for minute in 1..2 {
        // Within a minute the same result counts once, however often it occurs.
        goes_on(admin, "Resync", 2 * CLUSTERS)?;
        scene.wait_for(admin, expected)?;
        prometheus.wait_for(COPY_TOTAL.name, |total| total == expected.0)?;
        scene.minute(minute)?;
        // The failing cluster is resynced as well, despite its retries in between.
        expected = (expected.0 + 21.0, expected.1 + 1.0);
        scene.wait_for(admin, expected)?;
    }
    let level = format!(
        "100 * ({total} - {failed}) / {total}",
        total = COPY_TOTAL.name,
        failed = COPY_FAILURES.name
    );
    prometheus.wait_for(&level, |level| (level - 100.0 * 20.0 / 21.0).abs() < 1e-9)?;
    prometheus.wait_for("transom:copy_errors:ratio_rate5m", |ratio| {
        (ratio - 1.0 / 21.0).abs() < 1e-9
    })?;
    prometheus.wait_for("transom:primaries_sound:ratio", |ratio| {
        (ratio - 22.0 / 23.0).abs() < 1e-9
    })?;
    // A single failure: a warning at most, independent of timing, and no page.
    prometheus.wait_for(
        "count(ALERTS{alertname=\"TransomPrimariesFailed\", severity=\"warning\"})",
        |count| count == 1.0,
    )?;
    prometheus.wait_for("count(ALERTS)", |count| count == 1.0)?;

    let others = [1, 2]
        .into_iter()
        .map(|index| scene.break_service(index))
        .collect::<Result<Vec<_>>>()?;
    // A change of result counts at once.
    expected = (expected.0 + 2.0, expected.1 + 2.0);
    scene.wait_for(admin, expected)?;
    for alert in ["TransomSuccessLow", "TransomCopyErrorsHigh"] {
        prometheus.wait_for(
            &format!("count(ALERTS{{alertname=\"{alert}\", severity=\"critical\"}})"),
            |count| count == 1.0,
        )?;
    }
    mend()?;
    others.into_iter().try_for_each(|mend| mend())?;
    expected.0 += 3.0;
    scene.wait_for(admin, expected)?;
    goes_on(admin, "Resync", CLUSTERS)?;
    ensure!(counted(admin)? == expected, "{:?}", counted(admin)?);
    prometheus.wait_for("count(ALERTS) or vector(0)", |count| count == 0.0)?;
    agent.kill()
}
