//! Which job may begin: how many of each kind run at once, and which wait for others.

use super::{Job, JobKind, Loads, Running};
use crate::policies::swap::GRACE;
use std::collections::BTreeSet;

/// How many jobs of one kind run at once, not counting those that take longer than [`GRACE`].
const AT_ONCE: usize = 2;
/// How many quick jobs run at once, counting those that take longer than [`GRACE`]: each holds the bytes of its
/// components.
const AT_MOST: usize = 6;
/// How many jobs read components or have read them and wait for their turn: each holds the bytes.
const READING: usize = 2;
/// How many jobs ask registries at once, counting those that take longer than [`GRACE`]: each has a process for it.
const PULLING: usize = 4;

/// What runs and what is held, counted once for all jobs of the queue: there may be thousands.
pub(super) struct Places {
    /// Whether any job uses builtin guests only.
    builtin: bool,
    /// Whether a slow job that reads may begin.
    slow_reads: bool,
    /// How many jobs read what is near, without slow ones.
    near: usize,
    /// How many ask registries, without slow ones and those that take long.
    far: usize,
    /// How many queued jobs hold what they read near, and from registries.
    held: [usize; 2],
    /// Whether there is room for one more job of builtin guests, one that loads quickly, and a slow one.
    room: [bool; 3],
}

impl Loads {
    /// Counts what runs and what is held.
    pub(super) fn places(&self) -> Places {
        let of = |kind| self.running.values().filter(move |one| one.kind == kind);
        let quick = |running: &&Running| running.since.elapsed() < GRACE;
        let holding = || self.queue.iter().filter(|job| job.holds());
        let held = |pulls| holding().filter(move |job| !job.slow && job.pulls == pulls);
        let reading = |kind| of(kind).filter(|running| !running.slow);
        let quickly = of(JobKind::Quick).filter(quick).count();
        Places {
            builtin: self.builtin(),
            // Only as slow jobs end, so that what they hold is bounded, too.
            slow_reads: !self.running.values().any(|running| running.slow)
                && !holding().any(|job| job.slow),
            near: reading(JobKind::Reading).count(),
            far: reading(JobKind::Pulling).filter(quick).count(),
            held: [false, true].map(|pulls| held(pulls).count()),
            room: [
                of(JobKind::Builtin).count() < AT_ONCE,
                quickly < AT_ONCE && of(JobKind::Quick).count() < AT_MOST,
                of(JobKind::Slow).next().is_none(),
            ],
        }
    }

    /// Whether a job may begin. A policy has one job at a time; builtin guests come first and wait for no file.
    pub(super) fn may_begin(&self, job: &Job, places: &Places) -> bool {
        let mut running = self.running.values();
        if job.rests() || running.any(|running| running.policy == job.name) {
            return false;
        }
        let [builtin, quick, slow] = places.room;
        let held = places.held[usize::from(job.pulls)];
        match job.kind() {
            JobKind::Reading | JobKind::Pulling if job.slow => places.slow_reads,
            JobKind::Reading => places.near + held < READING,
            // A registry that is slow holds up nothing that is near.
            JobKind::Pulling => places.far + held < READING && self.may_pull(job),
            JobKind::Builtin => builtin,
            JobKind::Quick => !places.builtin && quick,
            JobKind::Slow => !places.builtin && slow,
        }
    }

    /// Whether registries may be asked for a job. One registry gets few of the processes, and all that gave nothing the last
    /// time get one together, so that the others have theirs.
    fn may_pull(&self, job: &Job) -> bool {
        let running = self.running.values();
        let pulling: Vec<_> = running
            .filter(|running| running.kind == JobKind::Pulling)
            .map(|running| &running.registries)
            .collect();
        let is_silent = |asked: &BTreeSet<String>| !asked.is_disjoint(&self.silent);
        let is_same = |asked: &&&BTreeSet<String>| !asked.is_disjoint(&job.registries);
        let same = pulling.iter().filter(is_same).count();
        let waits = is_silent(&job.registries) && pulling.iter().any(|asked| is_silent(asked));
        pulling.len() < PULLING && same < READING && !waits
    }
}
