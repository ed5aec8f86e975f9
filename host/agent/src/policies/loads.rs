//! Loading in the background: each policy for itself, what ships first, and never so many at once that a slow component
//! holds up the others for long. Never looks at what was loaded.

use crate::policies::Source;
use crate::policies::at_work::Changes;
use crate::policies::load::{self, Loaded};
use crate::policies::swap::{GRACE, Swap};
use anyhow::Context as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::task::{Id, JoinHandle, JoinSet};
use tokio::time::Instant;
use transom_api::Word;
use transom_artifacts::folder::Mark;
use transom_artifacts::{Base, Location};
use transom_core::catalogue::Refusal;
use transom_core::policy::Policy;
use transom_engine::Engine;

/// How many are loaded at once, not counting those that take longer than [`GRACE`].
const AT_ONCE: usize = 2;
/// How many are loaded at once however long they take: each holds the bytes of its components.
const AT_MOST: usize = 6;

/// A policy whose guests are to be brought and compiled.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) policy: Policy,
    pub(super) base: Base,
    pub(super) components: BTreeSet<Location>,
}

impl Job {
    fn is_builtin(&self) -> bool {
        self.components.iter().all(|component| matches!(component, Location::Builtin(_)))
    }
}

/// What became of a job.
pub(super) struct Done {
    pub(super) policy: Arc<str>,
    pub(super) number: u64,
    pub(super) result: Result<Loaded, Refusal>,
    /// The components as they were before they were read.
    pub(super) marks: BTreeMap<Location, Option<Mark>>,
}

/// A job that is being done.
struct Running {
    policy: Arc<str>,
    since: Instant,
    builtin: bool,
}

/// All jobs.
pub(super) struct Loads {
    engine: Engine,
    queue: VecDeque<Job>,
    tasks: JoinSet<Done>,
    running: BTreeMap<Id, Running>,
}

impl Loads {
    /// With nothing to do.
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine, queue: VecDeque::new(), tasks: JoinSet::new(), running: BTreeMap::new() }
    }

    /// Takes a job in place of one for the same policy that did not begin.
    pub(super) fn add(&mut self, job: Job) {
        self.queue.retain(|queued| queued.policy.name != job.policy.name);
        self.queue.push_back(job);
        self.begin();
    }

    /// How many jobs there are.
    pub(super) fn count(&self) -> usize {
        self.queue.len() + self.running.len()
    }

    /// Whether any of them brings what ships only.
    pub(super) fn builtin(&self) -> bool {
        self.queue.iter().any(Job::is_builtin) || self.running.values().any(|running| running.builtin)
    }

    /// The next job that is done; waits for it.
    pub(super) async fn next(&mut self) -> Done {
        loop {
            self.begin();
            // One that takes long makes room for the next.
            let done = tokio::time::timeout(GRACE, self.tasks.join_next_with_id()).await;
            match done {
                Ok(Some(Ok((id, done)))) => {
                    self.running.remove(&id);
                    self.begin();
                    return done;
                }
                // Tasks catch their panics, and are never aborted.
                Ok(Some(Err(error))) => drop(self.running.remove(&error.id())),
                Ok(None) if self.queue.is_empty() => std::future::pending().await,
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Begins what may begin now.
    fn begin(&mut self) {
        loop {
            let builtin = self.builtin();
            let next = self.queue.iter().position(|job| self.may_begin(job, builtin));
            let Some(job) = next.and_then(|at| self.queue.remove(at)) else { return };
            let running =
                Running { policy: Arc::clone(&job.policy.name), since: Instant::now(), builtin: job.is_builtin() };
            let engine = self.engine.clone();
            let task = self.tasks.spawn_blocking(move || run(&engine, job));
            self.running.insert(task.id(), running);
        }
    }

    /// One job of a policy at a time; what ships comes first (`builtin`: some of it is left), and waits for no file.
    fn may_begin(&self, job: &Job, builtin: bool) -> bool {
        if self.running.values().any(|running| running.policy == job.policy.name) {
            return false;
        }
        if job.is_builtin() {
            return self.running.values().filter(|running| running.builtin).count() < AT_ONCE;
        }
        let files = || self.running.values().filter(|running| !running.builtin);
        let quick = files().filter(|running| running.since.elapsed() < GRACE).count();
        !builtin && quick < AT_ONCE && files().count() < AT_MOST
    }
}

fn run(engine: &Engine, job: Job) -> Done {
    let Job { number, policy, base, components } = job;
    let name = Arc::clone(&policy.name);
    let marks = components.into_iter().map(|component| (component.clone(), component.mark())).collect();
    let result = catch_unwind(AssertUnwindSafe(|| load::assemble(engine, policy, &base)));
    let failed =
        |_| Err(Refusal { word: Word::AgentFailed, message: "the agent failed while it loaded the policy".to_owned() });
    Done { policy: name, number, result: result.unwrap_or_else(failed), marks }
}

/// Policies that are being read and loaded in the background.
pub(crate) struct Loading(JoinHandle<(Swap, Changes)>);

impl Loading {
    /// Reads policies while the caller goes on, and begins to load them: compiling takes a core for a while, and
    /// manifests can be read meanwhile.
    pub(crate) fn start(engine: Engine, source: Source, connections: BTreeSet<String>) -> Self {
        Self(tokio::spawn(async move {
            let reading = source.clone();
            let read = tokio::task::spawn_blocking(move || reading.read().map_err(|error| error.to_string()));
            let mut swap = Swap::new(engine, source, connections);
            let found = read.await.unwrap_or_else(|error| Err(error.to_string()));
            let changes = swap.see(found);
            (swap, changes)
        }))
    }

    /// The policies, once all are loaded or refused, and what changed with them: for `AtWork::publish`.
    ///
    /// # Errors
    /// When loading ended by a fault of ours.
    pub(crate) async fn done(self) -> anyhow::Result<(Swap, Changes)> {
        let (mut swap, mut changes) = self.read().await?;
        while swap.loads().count() > 0 {
            let done = swap.next().await;
            changes.extend(swap.finish(done));
        }
        Ok((swap, changes))
    }

    /// The same, but without those whose components take longer than they should: they come later.
    ///
    /// # Errors
    /// As [`Loading::done`].
    pub(crate) async fn begun(self) -> anyhow::Result<(Swap, Changes)> {
        let (mut swap, mut changes) = self.read().await?;
        let until = Instant::now() + GRACE;
        while swap.loads().count() > 0 {
            match tokio::time::timeout_at(until, swap.next()).await {
                Ok(done) => changes.extend(swap.finish(done)),
                // What ships is trusted to end soon, and nothing should begin without it.
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
