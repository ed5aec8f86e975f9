//! The cost of a run until it ends: time, CPU time of the servers, and requests to the API server, by client from its
//! audit log, and by verb from its own counters, which cannot attribute a request to a client.

use super::fleet::Scene;
use crate::floor::server::{SECRET, api};
use crate::process::{self, Cost};
use crate::rounds::median;
use crate::table::Figure;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use transom_test_cluster::{Line, Mark, wait};

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

/// The kinds that the agent works on; the API server itself requests the others.
const WORKED_ON: [&str; 9] = [
    "clusterrolebindings",
    "clusterroles",
    "hostedclusters",
    "klusterlets",
    "managedclusters",
    "namespaces",
    "rolebindings",
    "secrets",
    "services",
];
/// The deadline for the end of the audit log.
const DEADLINE: Duration = Duration::from_secs(60);

/// A moment in the audit log.
pub(super) struct Since {
    mark: Mark,
    /// Its time. The line of an earlier request may come later.
    received: String,
}

/// Requests of the agent, apart from Events and leases.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) writes: usize,
    pub(super) gets: usize,
}

impl Counted {
    /// All that are neither lists nor watches.
    pub(super) fn all(self) -> usize {
        self.writes + self.gets
    }
}

/// Requests by verb on the kinds that the agent works on, from any client. A watch counts when it ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Verbs(BTreeMap<String, usize>);

impl Verbs {
    /// The difference to earlier ones.
    pub(super) fn after(mut self, before: &Self) -> Self {
        for (verb, count) in &mut self.0 {
            *count = count.saturating_sub(before.0.get(verb).copied().unwrap_or_default());
        }
        self.0.retain(|_, count| *count > 0);
        self
    }

    /// All of them.
    pub(super) fn sum(&self) -> usize {
        self.0.values().sum()
    }

    /// `APPLY 925, LIST 7`.
    pub(super) fn shown(&self) -> String {
        self.0
            .iter()
            .map(|(verb, count)| format!("{verb} {count}"))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl Scene {
    /// The current moment.
    pub(super) async fn now(&self) -> Result<Since> {
        let mark = self.cluster.audit().mark()?;
        let (last, _) = self.lines(mark).await?;
        Ok(Since {
            mark,
            received: last.received,
        })
    }

    /// The agent's requests since a moment.
    pub(super) async fn requests(&self, since: &Since) -> Result<Counted> {
        let mut counted = Counted::default();
        for line in self.lines(since.mark).await?.1 {
            let ours = line.user == self.agent_user && line.stage == "ResponseComplete";
            let Some(target) = line
                .target
                .filter(|_| ours && line.received > since.received)
            else {
                continue;
            };
            if matches!(
                target.resource.as_str(),
                "events" | "fleetpolicies" | "leases"
            ) {
                continue;
            }
            match line.verb.as_str() {
                "get" => counted.gets += 1,
                "list" | "watch" => {}
                _ => counted.writes += 1,
            }
        }
        Ok(counted)
    }

    /// Requests by verb since the API server started.
    pub(super) async fn verbs(&self) -> Result<Verbs> {
        let mut verbs = Verbs::default();
        for ((verb, resource), count) in self.cluster.metrics().await?.requests() {
            // The only subresource is `status`, which is counted separately.
            let kind = resource.split('.').next().unwrap_or_default();
            if WORKED_ON.contains(&kind) && !resource.contains('/') {
                *verbs.0.entry(verb).or_default() += usize::try_from(count)?;
            }
        }
        Ok(verbs)
    }

    /// A request of the bench, and every earlier line: the log is in the order of the responses.
    async fn lines(&self, mark: Mark) -> Result<(Line, Vec<Line>)> {
        let name = format!("look-{}", self.looks.fetch_add(1, Ordering::Relaxed));
        let looked = api(&self.client, SECRET, Some("default"))
            .get_opt(&name)
            .await;
        drop(looked.context("failed to look for a secret that is not there")?);
        let is_ours = |line: &Line| {
            line.target
                .as_ref()
                .is_some_and(|target| target.name == name)
        };
        wait::until("the end of the audit log", DEADLINE, async || {
            let mut lines = self.cluster.audit().since(mark)?;
            let Some(place) = lines.iter().position(is_ours) else {
                return Ok(None);
            };
            let last = lines.split_off(place).into_iter().next();
            Ok(last.map(|last| (last, lines)))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbs(counts: &[(&str, usize)]) -> Verbs {
        Verbs(
            counts
                .iter()
                .map(|(verb, count)| ((*verb).to_owned(), *count))
                .collect(),
        )
    }

    #[test]
    fn shows_only_requests_since_the_last_look() {
        let before = verbs(&[("APPLY", 5), ("LIST", 7)]);
        let since = verbs(&[("APPLY", 9), ("LIST", 7), ("WATCH", 2)]).after(&before);
        assert_eq!(
            (since.shown(), since.sum()),
            ("APPLY 4, WATCH 2".to_owned(), 6)
        );
    }
}
