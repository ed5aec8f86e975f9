//! Loads policies in the background, each on its own: builtin ones first, then those that load quickly. A load that
//! takes long is begun again in a queue of its own, one at a time, and holds up no other policy.

use crate::policies::Source;
use crate::policies::active::Changes;
use crate::policies::load::{self, Loaded, Unloaded};
use crate::policies::swap::{GRACE, Swap};
use anyhow::Context as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::task::{Id, JoinHandle, JoinSet};
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_artifacts::folder::FileIdentity;
use transom_artifacts::{Base, Location};
use transom_core::catalogue::Refusal;
use transom_core::policy::Policy;
use transom_engine::Engine;

/// How many jobs of one kind run at once, not counting those that take longer than [`GRACE`].
const AT_ONCE: usize = 2;
/// How many quick jobs run at once, counting those that take longer than [`GRACE`]: each holds the bytes of its
/// components.
const AT_MOST: usize = 6;

/// A policy whose guests are to be fetched and compiled.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) policy: Policy,
    pub(super) base: Base,
    pub(super) components: BTreeSet<Location>,
}

impl Job {
    fn kind(&self) -> JobKind {
        let is_builtin = |component: &Location| matches!(component, Location::Builtin(_));
        match self.components.iter().all(is_builtin) {
            true => JobKind::Builtin,
            false => JobKind::Quick,
        }
    }
}

/// How long a job may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JobKind {
    /// It uses builtin guests only.
    Builtin,
    /// Others wait for it, so it may not take long.
    Quick,
    /// It takes long; only other slow jobs wait for it.
    Slow,
}

/// The result of a job.
pub(super) struct Done {
    pub(super) policy: Arc<str>,
    pub(super) number: u64,
    pub(super) result: Result<Loaded, Refusal>,
    /// The components as they were before they were read.
    pub(super) fingerprints: BTreeMap<Location, Option<FileIdentity>>,
}

/// A job that is running.
struct Running {
    policy: Arc<str>,
    since: Instant,
    kind: JobKind,
}

/// All jobs.
pub(super) struct Loads {
    engine: Engine,
    queue: VecDeque<(JobKind, Job)>,
    /// The results of jobs; a job itself when it takes too long.
    tasks: JoinSet<Result<Done, Box<Job>>>,
    running: BTreeMap<Id, Running>,
}

impl Loads {
    /// Without jobs.
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            queue: VecDeque::new(),
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
        }
    }

    /// Adds a job; it replaces one for the same policy that did not begin.
    pub(super) fn add(&mut self, job: Job) {
        self.queue
            .retain(|(_, queued)| queued.policy.name != job.policy.name);
        self.queue.push_back((job.kind(), job));
        self.begin();
    }

    /// How many jobs there are.
    pub(super) fn count(&self) -> usize {
        self.queue.len() + self.running.len()
    }

    /// Whether any job uses builtin guests only.
    pub(super) fn builtin(&self) -> bool {
        let queued = self.queue.iter().map(|(kind, _)| kind);
        let mut kinds = queued.chain(self.running.values().map(|running| &running.kind));
        kinds.any(|kind| *kind == JobKind::Builtin)
    }

    /// Waits for the next job that is done.
    pub(super) async fn next(&mut self) -> Done {
        loop {
            self.begin();
            // A job that has run longer than `GRACE` makes room for the next one.
            let done = tokio::time::timeout(GRACE, self.tasks.join_next_with_id()).await;
            match done {
                Ok(Some(Ok((id, Ok(done))))) => {
                    self.running.remove(&id);
                    self.begin();
                    return done;
                }
                Ok(Some(Ok((id, Err(job))))) => {
                    self.running.remove(&id);
                    // A newer job for the same policy may have been added meanwhile; it replaces this one.
                    let newer = |(_, other): &(JobKind, Job)| other.policy.name == job.policy.name;
                    if !self.queue.iter().any(newer) {
                        self.queue.push_back((JobKind::Slow, *job));
                    }
                }
                // Tasks catch their panics, and are never aborted.
                Ok(Some(Err(error))) => drop(self.running.remove(&error.id())),
                Ok(None) if self.queue.is_empty() => std::future::pending().await,
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Begins the jobs that may begin now.
    fn begin(&mut self) {
        loop {
            let builtin = self.builtin();
            let may_begin = |(kind, job): &(JobKind, Job)| self.may_begin(*kind, job, builtin);
            let next = self.queue.iter().position(may_begin);
            let Some((kind, job)) = next.and_then(|at| self.queue.remove(at)) else {
                return;
            };
            let running = Running {
                policy: Arc::clone(&job.policy.name),
                since: Instant::now(),
                kind,
            };
            let engine = match kind {
                JobKind::Slow => self.engine.clone(),
                JobKind::Builtin | JobKind::Quick => self.engine.hasty(),
            };
            let task = self.tasks.spawn_blocking(move || run(&engine, job));
            self.running.insert(task.id(), running);
        }
    }

    /// Whether a job may begin. A policy has one job at a time; builtin guests come first and wait for no file.
    fn may_begin(&self, kind: JobKind, job: &Job, builtin: bool) -> bool {
        let mut running = self.running.values();
        if running.any(|running| running.policy == job.policy.name) {
            return false;
        }
        let same = || self.running.values().filter(|running| running.kind == kind);
        let quick = |running: &&Running| running.since.elapsed() < GRACE;
        match kind {
            JobKind::Builtin => same().count() < AT_ONCE,
            JobKind::Quick => {
                !builtin && same().filter(quick).count() < AT_ONCE && same().count() < AT_MOST
            }
            JobKind::Slow => !builtin && same().next().is_none(),
        }
    }
}

/// Runs a job; returns the job itself when it takes longer than the engine waits.
fn run(engine: &Engine, job: Job) -> Result<Done, Box<Job>> {
    let fingerprint = |component: &Location| (component.clone(), component.fingerprint());
    let fingerprints = job.components.iter().map(fingerprint).collect();
    let load = || load::assemble(engine, job.policy.clone(), &job.base);
    let result = match catch_unwind(AssertUnwindSafe(load)) {
        Ok(Ok(loaded)) => Ok(loaded),
        Ok(Err(Unloaded::Slow)) => return Err(Box::new(job)),
        Ok(Err(Unloaded::Refused(refusal))) => Err(refusal),
        Err(_) => Err(Refusal {
            reason: KnownReason::AgentFailed,
            message: "a bug in the agent made loading the policy fail".to_owned(),
        }),
    };
    Ok(Done {
        policy: Arc::clone(&job.policy.name),
        number: job.number,
        result,
        fingerprints,
    })
}

/// Policies that are being read and loaded in the background.
pub(crate) struct Loading(JoinHandle<(Swap, Changes)>);

impl Loading {
    /// Reads policies and begins to load them while the caller goes on: compiling takes a core for a while, and
    /// manifests can be read meanwhile.
    pub(crate) fn start(engine: Engine, source: Source, connections: BTreeSet<String>) -> Self {
        Self(tokio::spawn(async move {
            let reading = source.clone();
            let read = tokio::task::spawn_blocking(move || {
                reading.read().map_err(|error| error.to_string())
            });
            let mut swap = Swap::new(engine, source, connections);
            let found = read.await.unwrap_or_else(|error| Err(error.to_string()));
            let changes = swap.update(found);
            (swap, changes)
        }))
    }

    /// Waits until all policies are loaded or refused; returns them and their changes, for `Active::publish`.
    ///
    /// # Errors
    /// When loading ended by a bug in the agent.
    pub(crate) async fn done(self) -> anyhow::Result<(Swap, Changes)> {
        let (mut swap, mut changes) = self.read().await?;
        while swap.loads().count() > 0 {
            let done = swap.next().await;
            changes.extend(swap.finish(done));
        }
        Ok((swap, changes))
    }

    /// The same, without policies whose components take longer than [`GRACE`]: they come later.
    ///
    /// # Errors
    /// As for [`Loading::done`].
    pub(crate) async fn begun(self) -> anyhow::Result<(Swap, Changes)> {
        let (mut swap, mut changes) = self.read().await?;
        let until = Instant::now() + GRACE;
        while swap.loads().count() > 0 {
            // Builtin guests are trusted to load soon, and nothing should begin without them.
            let done = match tokio::time::timeout_at(until, swap.next()).await {
                Ok(done) => done,
                Err(_) if swap.loads().builtin() => swap.next().await,
                Err(_) => break,
            };
            changes.extend(swap.finish(done));
        }
        Ok((swap, changes))
    }

    async fn read(self) -> anyhow::Result<(Swap, Changes)> {
        self.0.await.context("failed to load the policies")
    }
}
