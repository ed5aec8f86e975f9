//! The cost of a run until it ends: time, CPU time of the servers, requests. Excludes the CPU time of the client.

use super::asked::Verbs;
use super::fleet::Scene;
use crate::process::{self, Cost};
use crate::rounds::median;
use crate::table::Figure;
use anyhow::Result;
use std::process::Command;
use std::time::Instant;

/// The counters at its start.
pub(super) struct Spending {
    verbs: Verbs,
    servers: f64,
    start: Instant,
}

/// Its cost.
pub(super) struct Spent {
    wall_millis: f64,
    server_millis: f64,
    /// Requests of all clients.
    pub(super) verbs: Verbs,
}

impl Spending {
    /// Starts the measurement.
    pub(super) async fn start(scene: &Scene) -> Result<Self> {
        let verbs = scene.verbs().await?;
        Ok(Self {
            verbs,
            servers: scene.server_cpu_millis()?,
            start: Instant::now(),
        })
    }

    /// Ends the measurement.
    pub(super) async fn end(self, scene: &Scene) -> Result<Spent> {
        let wall_millis = self.start.elapsed().as_secs_f64() * 1e3;
        let server_millis = scene.server_cpu_millis()? - self.servers;
        Ok(Spent {
            wall_millis,
            server_millis,
            verbs: scene.verbs().await?.after(&self.verbs),
        })
    }
}

impl Spent {
    /// From start to end.
    pub(super) fn wall(&self) -> Figure {
        Figure::Millis(self.wall_millis)
    }

    /// CPU time of the API server and etcd.
    pub(super) fn servers(&self) -> Figure {
        Figure::Millis(self.server_millis)
    }
}

/// The cost of several runs of one program.
#[derive(Default)]
pub(super) struct Runs(Vec<(Cost, Spent)>);

impl Runs {
    /// Runs it once more, to its end.
    pub(super) async fn add(&mut self, scene: &Scene, command: &mut Command) -> Result<()> {
        let spending = Spending::start(scene).await?;
        let cost = process::run(command)?;
        self.0.push((cost, spending.end(scene).await?));
        Ok(())
    }

    /// From start to end.
    pub(super) fn wall(&self) -> Figure {
        self.median(|(cost, _)| cost.wall_millis)
    }

    /// CPU time of the program.
    pub(super) fn cpu(&self) -> Figure {
        self.median(|(cost, _)| cost.cpu_millis)
    }

    /// CPU time of the API server and etcd.
    pub(super) fn servers(&self) -> Figure {
        self.median(|(_, spent)| spent.server_millis)
    }

    /// Requests of the last run.
    pub(super) fn verbs(&self) -> Verbs {
        self.0
            .last()
            .map(|(_, spent)| spent.verbs.clone())
            .unwrap_or_default()
    }

    fn median(&self, of: impl Fn(&(Cost, Spent)) -> f64) -> Figure {
        Figure::Millis(median(&self.0.iter().map(of).collect::<Vec<_>>()))
    }
}
