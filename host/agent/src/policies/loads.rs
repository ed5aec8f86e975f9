//! Loads policies in the background, each on its own: builtin ones first, then those that load quickly. A load that
//! takes long is begun again in a queue of its own, one at a time, and holds up no other policy. Components that lie in a
//! cluster are read before, only so far ahead that few of them are in memory.

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
use transom_api::policy::GuestSpec;
use transom_artifacts::folder::FileIdentity;
use transom_artifacts::{Base, Gathered, Location};
use transom_cluster::Cluster;
use transom_core::catalogue::Refusal;
use transom_core::policy::Policy;
use transom_engine::Engine;

/// How many jobs of one kind run at once, not counting those that take longer than [`GRACE`].
const AT_ONCE: usize = 2;
/// How many quick jobs run at once, counting those that take longer than [`GRACE`]: each holds the bytes of its
/// components.
const AT_MOST: usize = 6;
/// How many jobs read components or have read them and wait for their turn: each holds the bytes.
const READING: usize = 2;

/// A policy whose guests are to be fetched and compiled.
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) policy: Policy,
    /// What tells the policy from one of the same name on another cluster.
    pub(super) owner: String,
    pub(super) base: Base,
    pub(super) components: BTreeSet<Location>,
    /// What lies in a cluster, once it is read.
    pub(super) gathered: Option<Gathered>,
    /// Whether it was found to take long.
    pub(super) slow: bool,
    /// Whether no revision of the policy is active: then what an earlier run loaded is better than nothing.
    pub(super) first: bool,
}

impl Job {
    fn kind(&self) -> JobKind {
        let is_builtin = |component: &Location| matches!(component, Location::Builtin(_));
        match &self.gathered {
            None if self.components.iter().any(Location::is_remote) => JobKind::Reading,
            _ if self.slow => JobKind::Slow,
            _ if self.components.iter().all(is_builtin) => JobKind::Builtin,
            _ => JobKind::Quick,
        }
    }

    /// The digest that the policy demands of a component.
    fn expected(&self, component: &Location) -> Option<&str> {
        let guests = std::iter::once(&self.policy.decide).chain(&self.policy.trigger);
        let same = |spec: &&GuestSpec| {
            Location::parse(&spec.component, &self.base).as_ref() == Ok(component)
        };
        guests.filter(same).find_map(|spec| spec.digest.as_deref())
    }

    /// Whether it has read components, and holds them.
    fn holds(&self) -> bool {
        self.gathered.is_some()
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
    /// Why the newest components cannot be loaded, when the result has those of an earlier run.
    pub(super) refused: Option<Refusal>,
    /// The components as they were before they were read.
    pub(super) fingerprints: BTreeMap<Location, Option<FileIdentity>>,
    /// What was in the objects that hold components.
    pub(super) versions: Versions,
    /// Whether something could not be read, so that reading it again may help.
    pub(super) incomplete: bool,
}

/// What became of a job that ran.
enum Ran {
    Done(Box<Done>),
    /// It is to be queued once more.
    Again(Box<Job>),
}

/// A job that is running.
struct Running {
    policy: Arc<str>,
    since: Instant,
    kind: JobKind,
    slow: bool,
}

/// All jobs.
pub(super) struct Loads {
    engine: Engine,
    components: Components,
    queue: VecDeque<Job>,
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
            .retain(|queued| queued.policy.name != job.policy.name);
        self.queue.push_back(job);
        self.begin();
    }

    /// How many jobs there are.
    pub(super) fn count(&self) -> usize {
        self.queue.len() + self.running.len()
    }

    /// Whether any job uses builtin guests only.
    pub(super) fn builtin(&self) -> bool {
        let queued = self.queue.iter().map(Job::kind);
        let mut kinds = queued.chain(self.running.values().map(|running| running.kind));
        kinds.any(|kind| kind == JobKind::Builtin)
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
                Ok(Some(Ok((id, Ran::Again(job))))) => {
                    self.running.remove(&id);
                    // A newer job for the same policy may have been added meanwhile; it replaces this one.
                    let newer = |other: &Job| other.policy.name == job.policy.name;
                    if !self.queue.iter().any(newer) {
                        self.queue.push_back(*job);
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
            let next = self
                .queue
                .iter()
                .position(|job| self.may_begin(job, builtin));
            let Some(job) = next.and_then(|at| self.queue.remove(at)) else {
                return;
            };
            let (kind, slow) = (job.kind(), job.slow);
            let running = Running {
                slow,
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
    fn may_begin(&self, job: &Job, builtin: bool) -> bool {
        let mut running = self.running.values();
        if running.any(|running| running.policy == job.policy.name) {
            return false;
        }
        let kind = job.kind();
        let same = || self.running.values().filter(|running| running.kind == kind);
        let quick = |running: &&Running| running.since.elapsed() < GRACE;
        match kind {
            // Only as slow jobs end, so that what they hold is bounded, too.
            JobKind::Reading if job.slow => {
                !self.running.values().any(|running| running.slow)
                    && !self.queue.iter().any(|other| other.slow && other.holds())
            }
            JobKind::Reading => {
                let reading = same().filter(|running| !running.slow).count();
                let waiting = self
                    .queue
                    .iter()
                    .filter(|other| !other.slow && other.holds());
                reading + waiting.count() < READING
            }
            JobKind::Builtin => same().count() < AT_ONCE,
            JobKind::Quick => {
                !builtin && same().filter(quick).count() < AT_ONCE && same().count() < AT_MOST
            }
            JobKind::Slow => !builtin && same().next().is_none(),
        }
    }
}

/// Reads the components of a job that lie in a cluster.
async fn read(components: Components, mut job: Job) -> Ran {
    let expected = |component: &Location| job.expected(component);
    job.gathered = Some(components.read(&job.components, &job.owner, expected).await);
    Ran::Again(Box::new(job))
}

/// Runs a job; it is to be queued again when it takes longer than the engine waits.
fn run(engine: &Engine, components: &Components, mut job: Job) -> Ran {
    let fingerprint = |component: &Location| (component.clone(), component.fingerprint());
    let fingerprints = job.components.iter().map(fingerprint).collect();
    let gathered = job.gathered.take().unwrap_or_default();
    let inputs = load::Inputs {
        sources: components.sources(),
        base: &job.base,
        gathered: &gathered,
    };
    let load = || load::assemble(engine, job.policy.clone(), inputs);
    let mut refused = None;
    let result = match catch_unwind(AssertUnwindSafe(load)) {
        Ok(Ok(loaded)) => {
            components.keep(&job.components, &job.owner, &gathered);
            Ok(loaded)
        }
        // What lies in a cluster is read again: it may be long until its turn.
        Ok(Err(Unloaded::Slow)) => {
            job.slow = true;
            return Ran::Again(Box::new(job));
        }
        Ok(Err(Unloaded::Refused(refusal))) => match earlier(engine, components, &job) {
            Some(loaded) => {
                refused = Some(refusal);
                Ok(loaded)
            }
            None => Err(refusal),
        },
        Err(_) => Err(Refusal {
            reason: KnownReason::AgentFailed,
            message: "a bug in the agent made loading the policy fail".to_owned(),
        }),
    };
    Ran::Done(Box::new(Done {
        policy: Arc::clone(&job.policy.name),
        number: job.number,
        result,
        refused,
        fingerprints,
        versions: components::versions(&gathered),
        incomplete: gathered.is_incomplete(),
    }))
}

/// The policy with the components that an earlier run loaded, if nothing is active yet.
fn earlier(engine: &Engine, components: &Components, job: &Job) -> Option<Loaded> {
    let remote = job.components.iter().filter(|one| one.is_remote());
    let kept: BTreeMap<_, _> = remote
        .map(|one| {
            Some((
                one.clone(),
                components.kept().find(one, &job.owner, job.expected(one))?,
            ))
        })
        .collect::<Option<_>>()?;
    if !job.first || kept.is_empty() {
        return None;
    }
    let gathered = Gathered {
        kept,
        ..Gathered::default()
    };
    let inputs = load::Inputs {
        sources: components.sources(),
        base: &job.base,
        gathered: &gathered,
    };
    let load = || load::assemble(engine, job.policy.clone(), inputs);
    catch_unwind(AssertUnwindSafe(load)).ok()?.ok()
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
        components: Components,
    ) -> Self {
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
