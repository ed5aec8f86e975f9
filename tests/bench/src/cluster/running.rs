//! Programs that run during a measurement, until their value is dropped. Ignores their output.

use super::fleet::Scene;
use crate::process::{self, Programs};
use anyhow::{Context as _, Result};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command};
use std::time::Duration;
use transom_core::metrics::{Metric, WATCH_OBJECTS};
use transom_e2e::http;
use transom_test_cluster::wait;

/// The deadline for the agent to watch everything; far longer than needed.
const DEADLINE: Duration = Duration::from_secs(300);

/// A program that runs until this value is dropped.
pub(super) struct Running(Child);

impl Running {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(
            command
                .spawn()
                .with_context(|| format!("failed to start {command:?}"))?,
        ))
    }

    /// CPU time so far.
    pub(super) fn cpu_millis(&self) -> Result<f64> {
        process::cpu_millis(self.0.id())
    }

    /// The peak memory so far, in mebibytes.
    pub(super) fn peak(&self) -> Result<f64> {
        process::peak_of(self.0.id())
            .context("failed to ask for the memory of a program: it has ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If it has already exited, both do nothing.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The agent, and the address of its metrics.
pub(super) struct Agent {
    pub(super) running: Running,
    admin: SocketAddr,
}

impl Agent {
    /// Starts it, and waits until it watches everything.
    pub(super) async fn start(programs: &Programs, scene: &Scene) -> Result<Self> {
        // No other process takes the port in the short time until the agent does.
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let words = [
            "run",
            "--kubeconfig",
            &scene.agent,
            "--admin-address",
            &admin.to_string(),
        ];
        let running = Running::start(&mut programs.transom(&words))?;
        let ready = async || {
            Ok(http::get(admin, "/readyz")
                .ok()
                .filter(|answer| answer.status == 200)
                .map(drop))
        };
        wait::until("an agent that is ready", DEADLINE, ready).await?;
        Ok(Self { running, admin })
    }

    /// A metric, summed over its labels.
    pub(super) fn metric(&self, metric: &Metric) -> Result<f64> {
        http::metric(self.admin, metric.name, "")
            .with_context(|| format!("failed to ask the agent for `{}`", metric.name))
    }

    /// The memory that it may use for the number of objects in its cache now, in mebibytes.
    pub(super) fn allowance(&self) -> Result<f64> {
        Ok(64.0 + self.metric(&WATCH_OBJECTS)? * 10.0 / 1024.0)
    }
}
