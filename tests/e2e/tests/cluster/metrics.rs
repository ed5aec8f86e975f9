//! What a real Prometheus reads from the real agent on a real API server: every expression of the dashboards and rules
//! returns a number, and metrics that need an API server are correct, compared with its audit log where possible.

use crate::objects::{CLUSTERS, OUTPUT, rotated};
use crate::stage::{DEADLINE, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use transom_core::metrics::{EXPIRY, REPAIRED, REQUESTS, WATCH_RESTARTS};
use transom_e2e::prometheus::{Prometheus, expressions};
use transom_e2e::{http, program};
use transom_support::fleet::{Fleet, hosted_name};
use transom_test_cluster::{Line, Mark, Wire, wait};

/// Three clusters that are ready, and as many ManagedClusters as needed for one with a taint.
const FLEET: Fleet = Fleet {
    clusters: 3,
    managed: 8,
    seed: 7,
};
/// The expiry of every client certificate of a fleet: 2099-12-31T00:00:00Z.
const ENDS: f64 = 4_102_358_400.0;

/// The bundled policies, with one resynced every second.
fn policies(stage: &Stage) -> Result<PathBuf> {
    let folder = stage.cluster.folder().join("policies-metrics");
    fs::create_dir_all(&folder)?;
    fs::copy(
        program::policy("built-in-taints"),
        folder.join("taints.yaml"),
    )?;
    let mut manifest = program::manifest(OUTPUT)?;
    manifest["spec"]["resyncSeconds"] = json!(1);
    fs::write(
        folder.join("kubeconfig.yaml"),
        serde_yaml::to_string(&manifest)?,
    )?;
    Ok(folder)
}

impl Stage {
    /// Waits until the managed secret of a cluster contains the credential of its source.
    async fn wait_for_carried(&self, name: &str) -> Result<()> {
        wait::until(&format!("the credential of {name}"), DEADLINE, async || {
            let source = self
                .secret(CLUSTERS, &format!("{name}-admin-kubeconfig"))
                .await?
                .context("no source")?;
            Ok(self
                .made(name)
                .await?
                .filter(|made| made.carries(&source))
                .map(drop))
        })
        .await
    }

    /// How often the agent sent such a request, whatever the response, by the log of the server.
    async fn count(&self, since: Mark, is: impl Fn(&Line, &str) -> bool) -> Result<f64> {
        let lines = self.lines(since).await?;
        let counted = lines.iter().filter(|line| {
            line.target
                .as_ref()
                .is_some_and(|target| is(line, &target.resource))
        });
        Ok(counted.count() as f64)
    }
}

/// The metric of a verb for the main work.
fn requests(verb: &str) -> String {
    format!("{}{{verb=\"{verb}\", purpose=\"work\"}}", REQUESTS.name)
}

#[test]
fn prometheus_scrapes_the_metrics_that_need_an_api_server() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_fleet(FLEET).await?;
        let (mark, wire) = (stage.mark()?, Wire::to(&stage.cluster.server())?);
        let folder = policies(stage)?.display().to_string();
        // No watch covers a source that is read by name, so a resync finds the change.
        let words = [
            "--policies",
            &folder,
            "--secret-reads",
            "strict",
            "--admin-address",
            "127.0.0.1:0",
        ];
        let agent = stage.start_agent_at(&wire.server(), &words)?;
        agent.wait_for_first_pass()?;
        for index in 0..FLEET.clusters {
            stage.wait_for_carried(&hosted_name(index)).await?;
        }
        let admin = agent.ready()?;
        let prometheus = Prometheus::start(&stage.cluster.folder().join("prometheus"), admin)?;
        prometheus.wait_for(&format!("{}{{policy=\"{OUTPUT}\"}}", EXPIRY.name), |ends| {
            ends == ENDS
        })?;
        prometheus.wait_for(
            &format!("sum({}) or vector(0)", REPAIRED.name),
            |repaired| repaired == 0.0,
        )?;

        let source = format!("{}-admin-kubeconfig", hosted_name(0));
        let before = stage
            .get(SECRET, Some(CLUSTERS), &source)
            .await?
            .context("no source")?;
        stage
            .patch(SECRET, Some(CLUSTERS), &source, rotated(&before, 1)?)
            .await?;
        stage.wait_for_carried(&hosted_name(0)).await?;
        prometheus.wait_for(
            &format!("{}{{policy=\"{OUTPUT}\"}}", REPAIRED.name),
            |repaired| repaired == 1.0,
        )?;

        let creates = stage
            .count(mark, |line, of| {
                of == "secrets" && line.verb == "patch" && line.code == 201
            })
            .await?;
        let updates = stage
            .count(mark, |line, of| {
                of == "secrets" && line.verb == "patch" && line.code != 201
            })
            .await?;
        let patches = stage
            .count(mark, |line, of| {
                of == "managedclusters" && line.verb == "patch"
            })
            .await?;
        ensure!(
            creates >= 3.0 && updates >= 1.0 && patches >= 1.0,
            "asked: {creates}, {updates}, {patches}"
        );
        for (verb, count) in [("create", creates), ("update", updates), ("patch", patches)] {
            prometheus
                .wait_for(&requests(verb), |counted| counted == count)
                .with_context(|| format!("{count}"))?;
        }
        prometheus.wait_for(&requests("watch"), |counted| counted >= 3.0)?;
        ensure!(
            prometheus.query(&requests("delete"))?.is_empty(),
            "something was deleted"
        );

        let restarts = format!("{}{{kind=\"HostedCluster\"}}", WATCH_RESTARTS.name);
        let before = http::metric(admin, WATCH_RESTARTS.name, "kind=\"HostedCluster\"")?;
        prometheus.wait_for(&restarts, |counted| counted == before)?;
        wire.cut();
        prometheus.wait_for(&restarts, |counted| counted > before)?;
        wire.carry(transom_test_cluster::Carries::All);

        for expression in expressions()? {
            prometheus.wait_for(&expression, |_| true)?;
        }
        ensure!(
            prometheus.rule_errors()?.is_empty(),
            "{:?}",
            prometheus.rule_errors()?
        );
        agent.stop()?;
        Ok(())
    })
}
