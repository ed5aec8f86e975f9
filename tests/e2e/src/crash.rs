//! Kills the agent at random moments, over and over, and checks what it leaves. Used by tests and soak.

use crate::agent::{Agent, DEADLINE};
use crate::secret::{Secret, is_secret};
use crate::stage::{NOW, Stage, put};
use crate::tree;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use transom_support::numbers::Numbers;
use transom_support::wait;

/// The amount of work.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// HostedClusters, and as many ManagedClusters.
    pub clusters: usize,
    /// How often the agent is killed.
    pub kills: usize,
    /// Chooses the moments and the changes between them.
    pub seed: u64,
}

/// What was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survived {
    /// Kills that met the agent while working, not at its end.
    pub at_work: usize,
    /// Kills that met it between the first and the last byte of a file.
    pub unfinished: usize,
    /// Visible files that were read completely meanwhile.
    pub read: usize,
    /// Files that were compared with the undisturbed run.
    pub compared: usize,
}

impl Crash {
    /// Kills an agent over and over while its fleet changes, and compares the result of the last start with that of an
    /// undisturbed run on the same fleet.
    ///
    /// # Errors
    /// When they differ, when an incomplete file was ever visible, or when temporary files remain.
    pub fn run(self) -> Result<Survived> {
        let stage = unlimited(self.clusters)?;
        let undisturbed = Instant::now();
        ensure!(stage.once()?.status.success(), "the fleet is not sound");
        let span = undisturbed.elapsed();
        let (over, read) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (at_work, unfinished) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| read_all(&stage, &over, &read));
            let killed = self.kill_all(&stage, span);
            over.store(true, Ordering::Relaxed);
            reader
                .join()
                .map_err(|_| anyhow::anyhow!("the reader panicked"))??;
            killed
        })?;
        ensure!(stage.once()?.status.success(), "the last start failed");
        let compared = compare(&stage, self.clusters)?;
        Ok(Survived {
            at_work,
            unfinished,
            read: read.into_inner(),
            compared,
        })
    }

    /// Returns how many kills met the agent while working, and how many in the middle of a file.
    fn kill_all(self, stage: &Stage, span: Duration) -> Result<(usize, usize)> {
        let mut numbers = Numbers::new(self.seed, 0);
        let (mut at_work, mut unfinished) = (0, 0);
        for round in 0..self.kills {
            self.disturb(stage, &mut numbers)?;
            let mut command = stage.run()?;
            command.args(["--now", NOW]);
            // A watching agent does not exit by itself; one that runs once may have exited before it is killed.
            if round % 2 == 0 {
                command.arg("--once");
            }
            let mut agent = Agent::start(&mut command, stage.path("log"))?;
            let (start, instant) = (
                Instant::now(),
                span.mul_f64((numbers.take() % 1000) as f64 / 1000.0),
            );
            wait::until("the instant of the kill", DEADLINE, || {
                (start.elapsed() >= instant).then_some(())
            })?;
            at_work += usize::from(agent.ended()?.is_none());
            agent.kill()?;
            unfinished += usize::from(!tree::files(&stage.own().join("tmp"))?.is_empty());
        }
        Ok((at_work, unfinished))
    }

    /// What a user does meanwhile: new ports for some clusters, some results deleted.
    fn disturb(self, stage: &Stage, numbers: &mut Numbers) -> Result<()> {
        for _ in 0..self.clusters / 2 {
            let index = (numbers.take() % self.clusters as u64) as usize;
            stage.set_port(index, 1024 + numbers.take() % 60_000)?;
        }
        for _ in 0..self.clusters / 4 {
            let index = (numbers.take() % self.clusters as u64) as usize;
            remove(&stage.secret(index))?;
            remove(&stage.patch(&transom_support::fleet::managed_name(index)))?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            bail!("failed to remove `{}`: {error}", path.display())
        }
        _ => Ok(()),
    }
}

/// Reads every visible result over and over; each must be complete at all times.
fn read_all(stage: &Stage, over: &AtomicBool, read: &AtomicUsize) -> Result<()> {
    loop {
        let last = over.load(Ordering::Relaxed);
        for folder in ["objects", "patches"] {
            for path in tree::files(&stage.own().join(folder))? {
                match fs::read_to_string(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    text => whole(folder, is_secret(&path), &text?)
                        .with_context(|| format!("half of `{}`", path.display()))?,
                }
                read.fetch_add(1, Ordering::Relaxed);
            }
        }
        if last {
            return Ok(());
        }
    }
}

/// Whether a result is complete.
fn whole(folder: &str, is_secret: bool, text: &str) -> Result<()> {
    if is_secret {
        return Secret::parse(text).map(|_| ());
    }
    let patch: serde_yaml::Value = serde_yaml::from_str(text)
        .ok()
        .context("the object is not YAML")?;
    ensure!(
        folder == "objects" || patch["fields"][0]["path"].as_str() == Some("spec.taints"),
        "the patch has no field"
    );
    Ok(())
}

/// A stage whose policies have no limits: what was changed before a kill would count.
fn unlimited(clusters: usize) -> Result<Stage> {
    let stage = Stage::new(clusters, clusters)?;
    for policy in ["external-managed-kubeconfig", "built-in-taints"] {
        stage.put_policy(policy, &[])?;
    }
    Ok(stage)
}

/// Compares with an undisturbed run over the same manifests; returns the number of compared files.
fn compare(stage: &Stage, clusters: usize) -> Result<usize> {
    let other = unlimited(0)?;
    for (path, _) in tree::contents(&stage.fleet)?
        .iter()
        .filter(|(path, _)| !path.starts_with(".transom"))
    {
        put(&other.fleet.join(path), &fs::read(stage.fleet.join(path))?)?;
    }
    ensure!(other.once()?.status.success(), "the undisturbed run failed");
    let mut compared = 0;
    for folder in ["objects", "patches"] {
        let (ours, theirs) = (
            tree::contents(&stage.own().join(folder))?,
            tree::contents(&other.own().join(folder))?,
        );
        let differing: Vec<_> = ours
            .keys()
            .chain(theirs.keys())
            .filter(|path| ours.get(*path) != theirs.get(*path))
            .collect();
        ensure!(
            differing.is_empty(),
            "differ from an undisturbed run: {differing:?}"
        );
        compared += ours.len();
    }
    ensure!(compared > clusters, "hardly anything was made");
    let left = tree::files(&stage.own().join("tmp"))?;
    ensure!(left.is_empty(), "left over: {left:?}");
    Ok(compared)
}
