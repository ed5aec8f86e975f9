//! One changed file in a watched fleet: from its rename to the new result, and its cost for the agent. Changes one file
//! at a time.

use crate::directory::{fleet, shown};
use crate::process::{self, Programs};
use crate::rounds::median;
use crate::table::{Figure, Row, Table};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use transom_e2e::agent::Agent;
use transom_support::fleet::{Fleet, hosted_name, managed_name};

/// Sizes of the fleets, in HostedClusters.
const FLEETS: [usize; 3] = [100, 1000, 10_000];
/// Changes of each fleet.
const CHANGES: usize = 60;
/// How long the cost of an idle agent is measured.
const IDLE: Duration = Duration::from_secs(3);
/// The deadline of every wait.
const DEADLINE: Duration = Duration::from_secs(300);

/// The cost of one change, in milliseconds.
struct Cost {
    cpu: f64,
    wall: f64,
}

/// Measures fleets of each size.
pub(crate) fn measure(programs: &Programs, work: &Path, table: &mut Table) -> Result<()> {
    let mut first: Option<(f64, f64)> = None;
    for clusters in FLEETS {
        let Cost { cpu, wall } = change(programs, work, clusters)?;
        let (cpu_floor, wall_floor) = *first.get_or_insert((cpu, wall));
        for (kind, figure, floor) in [
            ("CPU of the agent", cpu, cpu_floor),
            ("rename to result", wall, wall_floor),
        ] {
            table.add(Row {
                what: format!("one changed file, {clusters} HostedClusters watched, {kind}"),
                figure: Figure::Millis(figure),
                against: "the same with 100".to_owned(),
                floor: Figure::Millis(floor),
                fastest: None,
                target: None,
            })?;
        }
    }
    Ok(())
}

fn change(programs: &Programs, work: &Path, clusters: usize) -> Result<Cost> {
    let (folder, _) = fleet(
        work,
        &format!("watched-{clusters}"),
        Fleet {
            clusters,
            managed: 0,
            seed: 1,
        },
    )?;
    let words = ["run", "--dir", &shown(&folder)];
    let mut agent = process::start(&mut programs.transom(&words))?;
    let settled = folder.join(".transom/status/external-managed-kubeconfig");
    wait(&mut agent, "a status for each primary", || {
        fs::read_dir(&settled).is_ok_and(|all| all.count() == clusters)
    })?;
    thread::sleep(IDLE);
    let idle = idle_share(&agent)?;
    let (start, before) = (Instant::now(), process::cpu_millis(agent.id())?);
    let mut walls = Vec::with_capacity(CHANGES);
    for turn in 0..CHANGES {
        let watched = Watched::of(&folder, turn % 3);
        walls.push(watched.change(&mut agent, turn)?);
    }
    let spent =
        process::cpu_millis(agent.id())? - before - idle * start.elapsed().as_secs_f64() * 1e3;
    Ok(Cost {
        cpu: spent / CHANGES as f64,
        wall: median(&walls),
    })
}

/// CPU time of an idle agent, as a share of wall time.
fn idle_share(agent: &Agent) -> Result<f64> {
    let before = process::cpu_millis(agent.id())?;
    thread::sleep(IDLE);
    Ok((process::cpu_millis(agent.id())? - before) / (IDLE.as_secs_f64() * 1e3))
}

/// The files of one HostedCluster.
struct Watched {
    manifest: PathBuf,
    result: PathBuf,
    beside: PathBuf,
}

impl Watched {
    fn of(folder: &Path, index: usize) -> Self {
        let namespace = format!("klusterlet-{}", managed_name(index));
        Self {
            manifest: folder
                .join("hosted")
                .join(hosted_name(index))
                .with_extension("yaml"),
            result: folder
                .join(".transom/objects")
                .join(namespace)
                .join("Secret.external-managed-kubeconfig.yaml"),
            beside: folder.with_extension("next"),
        }
    }

    /// Gives the Service another port by rename, and waits for the new result; returns the time in milliseconds.
    fn change(&self, agent: &mut Agent, turn: usize) -> Result<f64> {
        let text = fs::read_to_string(&self.manifest)
            .with_context(|| format!("failed to read `{}`", self.manifest.display()))?;
        let before = fs::read(&self.result)
            .with_context(|| format!("failed to read `{}`", self.result.display()))?;
        fs::write(&self.beside, with_port(&text, 7000 + turn)?)?;
        let start = Instant::now();
        fs::rename(&self.beside, &self.manifest)?;
        wait(agent, "the new result", || {
            fs::read(&self.result).is_ok_and(|now| now != before)
        })?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

/// The manifest with another port of its Service.
fn with_port(text: &str, port: usize) -> Result<String> {
    let (head, ports) = text
        .rsplit_once("\n  ports:")
        .context("failed to find the ports of the Service")?;
    let (before, behind) = ports
        .split_once(" port: ")
        .context("failed to find a port")?;
    let (_, rest) = behind
        .split_once('\n')
        .context("failed to find the end of a port")?;
    Ok(format!("{head}\n  ports:{before} port: {port}\n{rest}"))
}

/// Looks every millisecond.
fn wait(agent: &mut Agent, what: &str, mut look: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !look() {
        if let Some(status) = agent.ended()? {
            bail!("the agent ended with {status} before {what} was there");
        }
        if start.elapsed() > DEADLINE {
            bail!("failed to see {what} within {} s", DEADLINE.as_secs());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_port_of_the_service_changes() {
        let text = "port: 1\n  ports:\n  - nodePort: 31443\n    port: 6443\n    protocol: TCP\n";
        assert_eq!(
            with_port(text, 7).unwrap(),
            text.replace(" port: 6443", " port: 7")
        );
    }
}
