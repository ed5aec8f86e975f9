//! Loads policies in the background, each on its own: builtin ones first, then those that load quickly. A load that
//! takes long is begun again in a queue of its own, one at a time, and holds up no other policy. Components that lie in
//! a cluster are read before, only so far ahead that few of them are in memory.

mod concurrency;
mod job;
mod previous_revision;
mod restored;
mod run;

use crate::policies::components::{Components, PartVersions};
use crate::policies::load::LoadedPolicy;
use crate::policies::swap::GRACE;
pub(super) use job::Job;
use job::JobKind;
pub(super) use restored::Restoring;
use run::{read, run};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep_until};
use transom_artifacts::Location;
use transom_artifacts::folder::FileIdentity;
use transom_core::backoff::doubled_ms;
use transom_core::catalogue::Refusal;
use transom_core::rollout::history::History;
use transom_engine::Engine;

/// The first and the longest delay before something is read again that could not be read, in milliseconds.
const RETRY_MS: (u64, u64) = (10_000, 120_000);

/// When to read again what could not be read, after so many failures before. `seed` spreads the policies over time.
pub(super) fn retry_at(failures: u32, seed: u64) -> Instant {
    let (first, longest) = RETRY_MS;
    Instant::now() + Duration::from_millis(doubled_ms(first, longest, failures, seed))
}

/// The result of a job.
pub(super) struct JobResult {
    pub(super) policy: Arc<str>,
    pub(super) number: u64,
    pub(super) result: Result<LoadedPolicy, Refusal>,
    /// Why the newest components cannot be loaded, when the result has those of an earlier run.
    pub(super) refused: Option<Refusal>,
    /// The kept revisions, if they were read.
    pub(super) history: Option<History>,
    /// The active revision of the history, if it is not the result.
    pub(super) restored: Option<LoadedPolicy>,
    /// Whether a retry may restore that one: its components cannot be read now.
    pub(super) unrestored: bool,
    /// The one before it, while the faults of the active one are watched.
    pub(super) before: Option<LoadedPolicy>,
    /// The components as they were before they were read.
    pub(super) fingerprints: BTreeMap<Location, Option<FileIdentity>>,
    /// What was in the objects that hold components.
    pub(super) versions: PartVersions,
    /// Whether something could not be read, or a tag was resolved, so that reading it again may help.
    pub(super) incomplete: bool,
}

impl JobResult {
    /// Whether another load may give more.
    pub(super) fn asks_again(&self) -> bool {
        let is_refused = self.result.is_err() || self.refused.is_some();
        self.unrestored || self.incomplete && is_refused
    }
}

/// The revision that was active when the agent ended, while the newest components of the policy are still to be read.
pub(super) struct Restored {
    pub(super) policy: Arc<str>,
    pub(super) number: u64,
    /// The kept revisions.
    pub(super) history: History,
    /// The active one of them.
    pub(super) restored: LoadedPolicy,
    /// The one before it, while the faults of the active one are watched.
    pub(super) before: Option<LoadedPolicy>,
}

/// The previous revision, for a rollback. It is pulled last, after everything else was handed over.
pub(super) struct PreviousRevision {
    pub(super) policy: Arc<str>,
    /// `None` when it cannot be had.
    pub(super) before: Option<LoadedPolicy>,
}

/// What a job gives.
pub(super) enum JobOutput {
    /// Its result.
    Done(Box<JobResult>),
    /// The previous revision, which nothing waited for.
    PreviousRevision(Box<PreviousRevision>),
    /// What it restored; its result comes later.
    Restored(Box<Restored>),
}

/// What became of a job that ran.
enum Ran {
    Done(Box<JobResult>),
    /// The result. The job is queued again to get the previous revision.
    AllBut(Box<JobResult>, Box<Job>),
    PreviousRevision(Box<PreviousRevision>),
    /// The revision that was active. The job is queued again to load the newest manifest.
    Restored(Box<Restored>, Box<Job>),
    /// It is to be queued once more.
    Again(Box<Job>),
}

/// A job that is running.
struct RunningJob {
    policy: Arc<str>,
    since: Instant,
    kind: JobKind,
    slow: bool,
    /// Whether it only gets the previous revision, which nothing waits for.
    follows: bool,
    /// How often getting the previous revision failed, while it is still missing.
    lacking: Option<u32>,
    /// The registries that it asks.
    registries: BTreeSet<String>,
    /// Has it give way to others; `None` once it is to.
    gives_way: Option<Arc<Notify>>,
    /// Ends it, where that is possible.
    task: AbortHandle,
    /// Whether it was ended, and nobody waits for it.
    ended: bool,
}

/// All jobs.
pub(super) struct LoadQueue {
    engine: Engine,
    components: Components,
    queue: VecDeque<Job>,
    tasks: JoinSet<Ran>,
    running: BTreeMap<Id, RunningJob>,
    /// The registries that were asked, and whether they gave anything the last time. Jobs that ask registries which
    /// gave nothing wait for each other.
    registries: BTreeMap<String, bool>,
}

impl LoadQueue {
    /// Without jobs.
    pub(super) fn new(engine: Engine, components: Components) -> Self {
        Self {
            engine,
            components,
            queue: VecDeque::new(),
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            registries: BTreeMap::new(),
        }
    }

    /// Which components policies may name.
    pub(super) fn components(&self) -> &Components {
        &self.components
    }

    /// Adds a job; it replaces one for the same policy that did not begin.
    pub(super) fn add(&mut self, mut job: Job) {
        self.cancel(&job.name);
        let components = &self.components;
        let must_pull = |one: &Location| components.must_pull(one, job.wanted.asker(one));
        job.pulls = job.wanted.components.iter().any(must_pull);
        job.recalls = job.first && components.remembers();
        job.asks_newest();
        self.queue.push_back(job);
        self.begin();
    }

    /// Drops the job of a policy if it did not begin, and ends it if it only reads.
    pub(super) fn cancel(&mut self, policy: &str) {
        self.queue.retain(|queued| *queued.name != *policy);
        let reads = |kind| matches!(kind, JobKind::Reading | JobKind::Pulling);
        let running = self.running.values_mut();
        for one in running.filter(|one| *one.policy == *policy && reads(one.kind)) {
            one.task.abort();
            one.ended = true;
        }
    }

    /// The number of jobs, without those that only get the previous revision: nothing waits for them.
    pub(super) fn count(&self) -> usize {
        let running = self.running.values();
        let running = running.filter(|one| !one.ended && !one.follows);
        let queued = self.queue.iter().filter(|job| !job.follows());
        queued.count() + running.count()
    }

    /// Whether the revision before the active one of a policy is being pulled, or next to be.
    pub(super) fn follows(&self, policy: &str) -> bool {
        let mut queued = self.queue.iter();
        let mut running = self.running.values();
        queued.any(|job| job.follows() && !job.rests() && *job.name == *policy)
            || running.any(|one| one.follows && !one.ended && *one.policy == *policy)
    }

    /// How often getting the previous revision of a policy failed, while a job is still to get it, now or later.
    pub(super) fn lacking(&self, policy: &str) -> Option<u32> {
        let queued = self.queue.iter().filter(|job| *job.name == *policy);
        let running = self.running.values();
        let running = running.filter(|one| !one.ended && *one.policy == *policy);
        let mut lacking = queued
            .map(Job::lacking)
            .chain(running.map(|one| one.lacking));
        lacking.find_map(|one| one)
    }

    /// Has what could not be read tried again now.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        self.queue.iter_mut().for_each(|job| job.due = None);
    }

    /// Whether any job uses builtin guests only.
    pub(super) fn builtin(&self) -> bool {
        let queued = self.queue.iter().map(Job::kind);
        let mut kinds = queued.chain(self.running.values().map(|running| running.kind));
        kinds.any(|kind| kind == JobKind::Builtin)
    }

    /// Waits for the next job that gives something.
    pub(super) async fn next(&mut self) -> JobOutput {
        loop {
            self.begin();
            // A job that has run longer than `GRACE` makes room for the next one.
            let ended = tokio::time::timeout(GRACE, self.tasks.join_next_with_id()).await;
            match ended {
                Ok(Some(Ok((id, ran)))) => {
                    self.running.remove(&id);
                    if let Some(given) = self.take(ran) {
                        self.begin();
                        return given;
                    }
                }
                // Tasks catch their panics; those that only read are aborted when nobody waits for them any more.
                Ok(Some(Err(error))) => drop(self.running.remove(&error.id())),
                Ok(None) => self.rest().await,
                Err(_) => {}
            }
        }
    }

    /// Waits until a queued job may be due.
    async fn rest(&self) {
        let due = self.queue.iter().map(|job| job.due.filter(|_| job.rests()));
        match due.min() {
            Some(due) => sleep_until(due.unwrap_or_else(|| Instant::now() + GRACE)).await,
            None => std::future::pending().await,
        }
    }

    /// Takes what became of a job; returns what it gives.
    fn take(&mut self, ran: Ran) -> Option<JobOutput> {
        match ran {
            Ran::Done(done) => Some(JobOutput::Done(done)),
            Ran::AllBut(done, job) => {
                self.queue_again(*job);
                Some(JobOutput::Done(done))
            }
            Ran::PreviousRevision(before) => Some(JobOutput::PreviousRevision(before)),
            Ran::Restored(restored, job) => {
                self.queue_again(*job);
                Some(JobOutput::Restored(restored))
            }
            Ran::Again(job) => {
                self.queue_again(*job);
                None
            }
        }
    }

    /// Queues a job once more, unless a newer one for the same policy was added meanwhile: that replaces it.
    fn queue_again(&mut self, job: Job) {
        let read = [&job.gathered, &job.earlier];
        for gathered in read.into_iter().flatten() {
            for (image, pulled) in &gathered.images {
                // What it answers about one repository says nothing of the others.
                let silent = pulled.as_ref().is_err_and(|unread| unread.silent);
                self.remember(&image.registry, !silent);
            }
        }
        if !self.queue.iter().any(|other| other.name == job.name) {
            self.queue.push_back(job);
        }
    }

    /// Begins the jobs that may begin now.
    fn begin(&mut self) {
        loop {
            let in_queue = self.in_queue();
            let next = self
                .queue
                .iter()
                .position(|job| self.may_begin(job, &in_queue));
            let Some(job) = next.and_then(|at| self.queue.remove(at)) else {
                return self.make_way();
            };
            let (kind, slow, follows) = (job.kind(), job.slow, job.follows());
            let lacking = job.lacking();
            let registries = job.registries.clone();
            let policy = Arc::clone(&job.name);
            let gives_way = Arc::new(Notify::new());
            let task = match kind {
                JobKind::Reading | JobKind::Pulling => {
                    let gives_way = Arc::clone(&gives_way);
                    self.tasks
                        .spawn(read(self.components.clone(), job, gives_way))
                }
                JobKind::Slow => self.spawn(self.engine.clone(), job),
                JobKind::Builtin | JobKind::Quick => self.spawn(self.engine.hasty(), job),
            };
            let running = RunningJob {
                registries,
                gives_way: Some(gives_way),
                policy,
                since: Instant::now(),
                kind,
                slow,
                follows,
                lacking,
                task: task.clone(),
                ended: false,
            };
            self.running.insert(task.id(), running);
        }
    }

    fn spawn(&mut self, engine: Engine, job: Job) -> AbortHandle {
        let components = self.components.clone();
        self.tasks
            .spawn_blocking(move || run(&engine, &components, job))
    }
}
