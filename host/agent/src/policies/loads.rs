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
#[derive(Clone)]
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) policy: Policy,
    pub(super) base: Base,
    pub(super) components: BTreeSet<Location>,
}

impl Job {
    fn kind(&self) -> JobKind {
        let builtin = self
            .components
            .iter()
            .all(|component| matches!(component, Location::Builtin(_)));
        if builtin {
            JobKind::Builtin
        } else {
            JobKind::Quick
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
    /// How many jobs use builtin guests only.
    builtin: usize,
}

impl Loads {
    /// Without jobs.
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            queue: VecDeque::new(),
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            builtin: 0,
        }
    }

    /// Adds a job; it replaces one for the same policy that did not begin.
    pub(super) fn add(&mut self, job: Job) {
        let queued = self
            .queue
            .iter()
            .position(|(_, queued)| queued.policy.name == job.policy.name);
        if let Some((kind, _)) = queued.and_then(|at| self.queue.remove(at)) {
            self.ended(kind);
        }
        let kind = job.kind();
        self.builtin += usize::from(kind == JobKind::Builtin);
        self.queue.push_back((kind, job));
        self.begin();
    }

    fn ended(&mut self, kind: JobKind) {
        self.builtin -= usize::from(kind == JobKind::Builtin);
    }

    /// How many jobs there are.
    pub(super) fn count(&self) -> usize {
        self.queue.len() + self.running.len()
    }

    /// Whether any job uses builtin guests only.
    pub(super) fn builtin(&self) -> bool {
        self.builtin > 0
    }

    /// Waits for the next job that is done.
    pub(super) async fn next(&mut self) -> Done {
        loop {
            self.begin();
            // A job that has run longer than `GRACE` makes room for the next one.
            let done = tokio::time::timeout(GRACE, self.tasks.join_next_with_id()).await;
            match done {
                Ok(Some(Ok((id, done)))) => {
                    self.freed(id);
                    match done {
                        Ok(done) => {
                            self.begin();
                            return done;
                        }
                        // A newer job for the same policy was added meanwhile, and replaces this one.
                        Err(job)
                            if self
                                .queue
                                .iter()
                                .any(|(_, other)| other.policy.name == job.policy.name) => {}
                        Err(job) => self.queue.push_back((JobKind::Slow, *job)),
                    }
                }
                // Tasks catch their panics, and are never aborted.
                Ok(Some(Err(error))) => self.freed(error.id()),
                Ok(None) if self.queue.is_empty() => std::future::pending().await,
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Removes a job that has ended.
    fn freed(&mut self, id: Id) {
        if let Some(running) = self.running.remove(&id) {
            self.ended(running.kind);
        }
    }

    /// Begins the jobs that may begin now.
    fn begin(&mut self) {
        loop {
            let next = self
                .queue
                .iter()
                .position(|(kind, job)| self.may_begin(*kind, job));
            let Some((kind, job)) = next.and_then(|at| self.queue.remove(at)) else {
                return;
            };
            let running = Running {
                policy: Arc::clone(&job.policy.name),
                since: Instant::now(),
                kind,
            };
            let engine = if kind == JobKind::Slow {
                self.engine.clone()
            } else {
                self.engine.hasty()
            };
            let task = self.tasks.spawn_blocking(move || run(&engine, job));
            self.running.insert(task.id(), running);
        }
    }

    /// Whether a job may begin. A policy has one job at a time; builtin guests come first and wait for no file.
    fn may_begin(&self, kind: JobKind, job: &Job) -> bool {
        if self
            .running
            .values()
            .any(|running| running.policy == job.policy.name)
        {
            return false;
        }
        let same = || self.running.values().filter(|running| running.kind == kind);
        match kind {
            JobKind::Builtin => same().count() < AT_ONCE,
            JobKind::Quick => {
                let quick = same()
                    .filter(|running| running.since.elapsed() < GRACE)
                    .count();
                !self.builtin() && quick < AT_ONCE && same().count() < AT_MOST
            }
            JobKind::Slow => !self.builtin() && same().next().is_none(),
        }
    }
}

/// Runs a job; returns the job itself when it takes longer than the engine waits.
fn run(engine: &Engine, job: Job) -> Result<Done, Box<Job>> {
    let again = Box::new(job.clone());
    let Job {
        number,
        policy,
        base,
        components,
    } = job;
    let name = Arc::clone(&policy.name);
    let fingerprints = components
        .into_iter()
        .map(|component| (component.clone(), component.fingerprint()))
        .collect();
    let result = match catch_unwind(AssertUnwindSafe(|| load::assemble(engine, policy, &base))) {
        Ok(Ok(loaded)) => Ok(loaded),
        Ok(Err(Unloaded::Slow)) => return Err(again),
        Ok(Err(Unloaded::Refused(refusal))) => Err(refusal),
        Err(_) => {
            let message = "a bug in the agent made loading the policy fail".to_owned();
            Err(Refusal {
                reason: KnownReason::AgentFailed,
                message,
            })
        }
    };
    Ok(Done {
        policy: name,
        number,
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
            let changes = swap.see(found);
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
            match tokio::time::timeout_at(until, swap.next()).await {
                Ok(done) => changes.extend(swap.finish(done)),
                // Builtin guests are trusted to load soon, and nothing should begin without them.
                Err(_) if swap.loads().builtin() => {
                    let done = swap.next().await;
                    changes.extend(swap.finish(done));
                }
                Err(_) => break,
            }
        }
        Ok((swap, changes))
    }

    async fn read(self) -> anyhow::Result<(Swap, Changes)> {
        self.0.await.context("failed to load the policies")
    }
}
