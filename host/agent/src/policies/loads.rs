//! Loads policies in the background, each on its own: builtin ones first, then those that load quickly. A load that
//! takes long is begun again in a queue of its own, one at a time, and holds up no other policy. Objects that hold
//! components are read before.

use crate::policies::Source;
use crate::policies::active::Changes;
use crate::policies::components::{self, Components, Versions};
use crate::policies::load::{self, Loaded, Unloaded};
use crate::policies::swap::{GRACE, Swap};
use anyhow::Context as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::task::{AbortHandle, Id, JoinHandle, JoinSet};
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_artifacts::folder::FileIdentity;
use transom_artifacts::{Base, Location, Objects, Sources};
use transom_cluster::Cluster;
use transom_core::catalogue::Refusal;
use transom_core::policy::Policy;
use transom_engine::Engine;

/// How many jobs of one kind run at once, not counting those that take longer than [`GRACE`].
const AT_ONCE: usize = 2;
/// How many quick jobs run at once, counting those that take longer than [`GRACE`]: each holds the bytes of its
/// components.
const AT_MOST: usize = 6;
/// How many jobs read objects at once: each holds what it read.
const READING: usize = 2;

/// A policy whose guests are to be fetched and compiled.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) policy: Policy,
    pub(super) base: Base,
    pub(super) components: BTreeSet<Location>,
    /// The objects that hold components, once they are read.
    pub(super) objects: Option<Objects>,
}

impl Job {
    fn kind(&self) -> JobKind {
        let is_builtin = |component: &Location| matches!(component, Location::Builtin(_));
        let is_object = |component: &Location| !component.objects().is_empty();
        match &self.objects {
            None if self.components.iter().any(is_object) => JobKind::Reading,
            _ if self.components.iter().all(is_builtin) => JobKind::Builtin,
            _ => JobKind::Quick,
        }
    }
}

/// How long a job may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JobKind {
    /// It reads objects, and is queued again with them.
    Reading,
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
    /// The versions of the objects that hold components.
    pub(super) versions: Versions,
}

/// What became of a job that ran.
enum Ran {
    Done(Box<Done>),
    /// It is to be queued once more.
    Again(JobKind, Box<Job>),
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
    components: Components,
    queue: VecDeque<(JobKind, Job)>,
    tasks: JoinSet<Ran>,
    running: BTreeMap<Id, Running>,
}

impl Loads {
    /// Without jobs.
    pub(super) fn new(engine: Engine, components: Components) -> Self {
        Self {
            engine,
            components,
            queue: VecDeque::new(),
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
        }
    }

    /// Which components policies may name.
    pub(super) fn components(&self) -> &Components {
        &self.components
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
                Ok(Some(Ok((id, Ran::Done(done))))) => {
                    self.running.remove(&id);
                    self.begin();
                    return *done;
                }
                Ok(Some(Ok((id, Ran::Again(kind, job))))) => {
                    self.running.remove(&id);
                    // A newer job for the same policy may have been added meanwhile; it replaces this one.
                    let newer = |(_, other): &(JobKind, Job)| other.policy.name == job.policy.name;
                    if !self.queue.iter().any(newer) {
                        self.queue.push_back((kind, *job));
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
            let task = match kind {
                JobKind::Reading => self.tasks.spawn(read(self.components.clone(), job)),
                JobKind::Slow => self.spawn(self.engine.clone(), job),
                JobKind::Builtin | JobKind::Quick => self.spawn(self.engine.hasty(), job),
            };
            self.running.insert(task.id(), running);
        }
    }

    fn spawn(&mut self, engine: Engine, job: Job) -> AbortHandle {
        let components = self.components.clone();
        self.tasks
            .spawn_blocking(move || run(&engine, &components, job))
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
            JobKind::Reading => same().count() < READING,
            JobKind::Builtin => same().count() < AT_ONCE,
            JobKind::Quick => {
                !builtin && same().filter(quick).count() < AT_ONCE && same().count() < AT_MOST
            }
            JobKind::Slow => !builtin && same().next().is_none(),
        }
    }
}

/// Reads the objects that hold the components of a job.
async fn read(components: Components, mut job: Job) -> Ran {
    job.objects = Some(components.read(&job.components).await);
    Ran::Again(job.kind(), Box::new(job))
}

/// Runs a job; it is to be queued again when it takes longer than the engine waits.
fn run(engine: &Engine, components: &Components, job: Job) -> Ran {
    let fingerprint = |component: &Location| (component.clone(), component.fingerprint());
    let fingerprints = job.components.iter().map(fingerprint).collect();
    let objects = job.objects.as_ref().unwrap_or(const { &Objects::new() });
    let from = load::From {
        sources: components.sources(),
        base: &job.base,
        objects,
    };
    let load = || load::assemble(engine, job.policy.clone(), from);
    let result = match catch_unwind(AssertUnwindSafe(load)) {
        Ok(Ok(loaded)) => Ok(loaded),
        Ok(Err(Unloaded::Slow)) => return Ran::Again(JobKind::Slow, Box::new(job)),
        Ok(Err(Unloaded::Refused(refusal))) => Err(refusal),
        Err(_) => Err(Refusal {
            reason: KnownReason::AgentFailed,
            message: "a bug in the agent made loading the policy fail".to_owned(),
        }),
    };
    Ran::Done(Box::new(Done {
        policy: Arc::clone(&job.policy.name),
        number: job.number,
        result,
        fingerprints,
        versions: components::versions(objects),
    }))
}

/// Policies that are being read and loaded in the background.
pub(crate) struct Loading {
    reading: JoinHandle<(Swap, Changes)>,
    components: Components,
}

impl Loading {
    /// Reads policies and begins to load them while the caller goes on: compiling takes a core for a while, and
    /// manifests can be read meanwhile.
    pub(crate) fn start(
        engine: Engine,
        source: Source,
        connections: BTreeSet<String>,
        sources: &Sources,
    ) -> Self {
        let components = Components::new(sources);
        let loads = Loads::new(engine, components.clone());
        let reading = tokio::spawn(async move {
            let reading = source.clone();
            let read = tokio::task::spawn_blocking(move || {
                reading.read().map_err(|error| error.to_string())
            });
            let mut swap = Swap::new(loads, source, connections);
            let found = read.await.unwrap_or_else(|error| Err(error.to_string()));
            let changes = swap.update(found);
            (swap, changes)
        });
        Self {
            reading,
            components,
        }
    }

    /// Sets the cluster whose objects hold components, once it is opened; `None` when there is none.
    pub(crate) fn opened(&self, cluster: Option<Arc<dyn Cluster>>) {
        self.components.opened(cluster);
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
        self.reading.await.context("failed to load the policies")
    }
}
