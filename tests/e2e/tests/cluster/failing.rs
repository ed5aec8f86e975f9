//! A guest that fails for one HostedCluster of two: the other one goes on, and the time until its secret is taken back
//! goes on under each next leader.

use crate::agent::NOW;
use crate::leases::LEASES;
use crate::objects::{CLUSTERS, OUTPUT, home};
use crate::policies::POLICY;
use crate::stage::{DEADLINE, HOME, HOSTED, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use transom_core::rights::{LEASE, LIMITS};
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_test_cluster::wait;

const NAME: &str = "external-managed-kubeconfig";
/// In the status of a HostedCluster for which the guest traps.
const TRAP: &str = "trap.example.com";

impl Stage {
    /// A new agent that leads at once, at a time: the one before was killed.
    async fn lead_at(&self, now: &str) -> Result<Agent> {
        self.delete(LEASES, Some(HOME), LEASE).await?;
        let words = [
            "--policy-objects",
            "--lease-namespace",
            HOME,
            "--components",
            "guests",
        ];
        let fixed = self.command(&words)?;
        let mut command = Command::new(fixed.get_program());
        command.args(
            fixed
                .get_args()
                .map(|word| if word == NOW { now.as_ref() } else { word }),
        );
        command
            .current_dir(self.cluster.folder())
            .env("RUST_LOG", "info,transom=debug");
        let agent = self.start_command(&mut command)?;
        agent.wait_for_first_pass()?;
        Ok(agent)
    }

    /// Has the guest trap for a HostedCluster, or no longer.
    async fn trap(&self, name: &str, traps: bool) -> Result<()> {
        let hosted = self.get(HOSTED, Some(CLUSTERS), name).await?;
        let mut status = hosted.context("no HostedCluster")?["status"].take();
        let host = if traps { TRAP } else { "good.example.com" };
        status["controlPlaneEndpoint"] = json!({"host": host, "port": 6443});
        self.put_status(HOSTED, Some(CLUSTERS), name, &status).await
    }

    /// Waits until the only primary for which the guest fails has a reason, and returns the status.
    async fn fails_with(&self, reason: &str) -> Result<Value> {
        self.wait_for_status(reason, |status| {
            let first = &status["topFailures"][0];
            first["reason"] == reason
                && first["name"] == "two"
                && status["failing"]["primaries"] == 1
        })
        .await
    }

    /// What is kept of the failures.
    async fn kept_failures(&self) -> Result<Value> {
        let kept = self.get(("v1", "ConfigMap"), Some(HOME), LIMITS).await?;
        Ok(kept.map_or(Value::Null, |mut kept| {
            kept["data"][format!("failing_{NAME}")].take()
        }))
    }
}

#[test]
fn a_failure_for_one_primary_leaves_the_others_and_its_time_goes_on_under_the_next_leader()
-> Result<()> {
    on_stage(async |stage| {
        for name in ["one", "two"] {
            stage.ready(name, true).await?;
        }
        stage.install_policies().await?;
        let guests = stage.cluster.folder().join("guests");
        fs::create_dir_all(&guests)?;
        fs::write(
            guests.join("answers.wasm"),
            program::component("fixture-answers")?,
        )?;
        let settings =
            json!({"clusterDomain": null, "naming": null, "ask": "OutOfBounds", "only": TRAP});
        let spec = json!({"guests": {"decide": {"component": "answers.wasm", "settings": settings}},
            "onFailure": {"mode": "Withdraw", "staleAfterSeconds": 3600}});
        stage
            .patch(POLICY, None, NAME, json!({"spec": spec}))
            .await?;
        let agent = stage.lead_at(NOW).await?;
        for name in ["one", "two"] {
            stage.wait_for_right(name, 6443).await?;
        }
        agent.kill()?;

        stage.trap("two", true).await?;
        stage.delete(SECRET, Some(&home("one")), OUTPUT).await?;
        let agent = stage.lead_at("2026-11-21T09:00:00Z").await?;
        stage.wait_for_right("one", 6443).await?;
        let status = stage.fails_with("GuestTrapped").await?;
        let failing = json!({"primaries": 1, "expired": 0, "since": "2026-11-21T09:00:00Z", "expires": "2026-11-21T10:00:00Z"});
        ensure!(status["failing"] == failing, "{status}");
        let is_kept = async || Ok(stage.kept_failures().await?.is_string().then_some(()));
        wait::until("the time to be kept", DEADLINE, is_kept).await?;
        agent.kill()?;

        let agent = stage.lead_at("2026-11-21T09:59:59Z").await?;
        let status = stage.fails_with("GuestTrapped").await?;
        ensure!(status["failing"] == failing, "{status}");
        ensure!(stage.made("two").await?.is_some());
        agent.kill()?;

        let agent = stage.lead_at("2026-11-21T10:00:00Z").await?;
        stage.wait_for_no_output("two").await?;
        let status = stage.fails_with("Withdrawn").await?;
        ensure!(
            status["topFailures"][0]["message"]
                .as_str()
                .is_some_and(|text| text.starts_with("GuestTrapped: ")),
            "{status}"
        );
        let told = async || {
            let events = stage.list(("v1", "Event")).await?;
            let one = |reason: &str| events.iter().any(|event| event.data["reason"] == reason);
            Ok((one("GuestTrapped") && one("Withdrawn")).then_some(()))
        };
        wait::until("an Event for each", DEADLINE, told).await?;
        stage.wait_for_right("one", 6443).await?;
        agent.kill()?;

        stage.trap("two", false).await?;
        let agent = stage.lead_at("2026-11-21T11:00:00Z").await?;
        stage.wait_for_right("two", 6443).await?;
        stage
            .wait_for_status("no failure", |status| status["failing"].is_null())
            .await?;
        let is_gone = async || Ok(stage.kept_failures().await?.is_null().then_some(()));
        wait::until("nothing to be kept", DEADLINE, is_gone).await?;
        agent.stop()?;
        Ok(())
    })
}
