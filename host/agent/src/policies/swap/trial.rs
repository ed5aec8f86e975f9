//! Trials of candidates: which are due, and what follows from their results.

use super::rollout::{PassedCandidate, Pending};
use super::{ManifestState, Swap};
use crate::policies::Approval;
use crate::policies::active::{PolicyChanges, Rehearsed};
use crate::policies::load::LoadedPolicy;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_core::catalogue::Revision;
use transom_core::rollout::expected::Expecting;
use transom_core::rollout::history::RevisionRecord;
use transom_core::rollout::{self, Approved, Candidate, CandidateVerdict, Probation, Trial};
use transom_core::share::lock::MutexExt as _;

/// The prefix of the bar of a candidate that gave different answers to the same question. It was never active, so its
/// reason is not `RolledBack`.
pub(super) const UNSTABLE: &str = "AnswerUnstable: ";
/// How often a candidate that waits is compared with the live objects again.
const AGAIN: Duration = Duration::from_secs(60);
/// How many trials run at once; of candidates whose last trial took too long, or that are tried for longer than
/// [`AGAIN`], one. Once such a trial is known to take long, it takes no room of the others.
const AT_ONCE: usize = 2;
/// How often the wait before the next trial is doubled at most, for a candidate whose trials take too long.
const DOUBLED: u32 = 5;

/// A trial that runs.
pub(super) struct RunningTrial {
    number: u64,
    pub(super) since: Instant,
    _end: oneshot::Sender<()>,
}

impl ManifestState {
    /// Whether the trial of its candidate runs, and takes long.
    fn is_tried_slowly(&self) -> bool {
        let pending = self.pending.as_ref();
        let running = pending.and_then(|pending| pending.running.as_ref());
        running.is_some_and(|running| running.since.elapsed() > AGAIN)
    }

    /// How often in a row a trial took too long, with the one that an edit ends now.
    pub(super) fn late_trials(&self) -> u32 {
        self.late.max(u32::from(self.is_tried_slowly()))
    }
}

/// A candidate to try.
pub(crate) struct DueTrial {
    pub(super) policy: Arc<str>,
    number: u64,
    /// The candidate.
    pub(crate) loaded: Arc<LoadedPolicy>,
    /// The approval of the policy.
    pub(crate) approval: Option<Approval>,
    /// Whether the approval was already there when this became the candidate.
    approved_before: bool,
    /// Ends when nobody waits for the trial any more.
    pub(crate) outdated: oneshot::Receiver<()>,
}

/// A candidate that was tried.
pub(crate) struct TriedCandidate {
    policy: Arc<str>,
    number: u64,
    trial: Trial,
    rehearsed: Option<Rehearsed>,
    approval: Option<Approval>,
    approved: Approved,
    now_seconds: i64,
}

impl DueTrial {
    /// The approval that counts for the plan of this trial. One that was there before the candidate was given for
    /// something else, such as what the limits withheld, unless it names exactly this plan.
    pub(crate) fn approval_of(&self, trial: &Trial) -> Option<&Approval> {
        let plan = || rollout::approval(&self.loaded.revision.id(), trial);
        let counts = |one: &&Approval| !self.approved_before || one.digest == plan();
        self.approval.as_ref().filter(counts)
    }

    /// What was found, and when.
    pub(crate) fn tried(
        self,
        (trial, rehearsed): (Trial, Option<Rehearsed>),
        approved: Approved,
        now_seconds: i64,
    ) -> TriedCandidate {
        TriedCandidate {
            policy: self.policy,
            number: self.number,
            trial,
            rehearsed,
            approval: self.approval,
            approved,
            now_seconds,
        }
    }
}

impl Swap {
    /// The candidates that are to be tried now, as far as there is room beside so many trials. Each counts as running
    /// until [`Swap::tried`].
    pub(crate) fn due(&mut self, running: usize) -> Vec<DueTrial> {
        let now = Instant::now();
        let runs = |one: &&ManifestState| {
            let pending = one.pending.as_ref();
            pending.is_some_and(|pending| pending.running.is_some())
        };
        let tried = || self.newest.values().filter(runs);
        let late_runs = tried().any(|one| one.late_trials() > 0);
        let room = room(running, tried().any(ManifestState::is_tried_slowly));
        let due: Vec<_> = (self.newest.iter_mut())
            .filter_map(|(name, newest)| {
                let approval = newest.approval();
                let pending = newest.pending.as_mut()?;
                pending.reconsider(now);
                let waits = pending.running.is_none();
                let at = pending.due.filter(|at| *at <= now && waits)?;
                let late = newest.late > 0;
                Some((at, late, (Arc::clone(name), approval, pending)))
            })
            .collect();
        let numbers = &mut self.number;
        in_turn(due, room, late_runs)
            .map(|(policy, approval, pending)| {
                *numbers += 1;
                let (end, outdated) = oneshot::channel();
                pending.running = Some(RunningTrial {
                    number: *numbers,
                    since: now,
                    _end: end,
                });
                DueTrial {
                    policy,
                    number: *numbers,
                    loaded: Arc::clone(&pending.loaded),
                    approval,
                    approved_before: pending.approved_before,
                    outdated,
                }
            })
            .collect()
    }

    /// Whether a candidate is being tried, or is to be tried now.
    pub(crate) fn tries(&self) -> bool {
        let now = Instant::now();
        let mut pending = self.newest.values().filter_map(|one| one.pending.as_ref());
        pending.any(|one| one.running.is_some() || one.due.is_some_and(|at| at <= now))
    }

    /// Takes the result of a trial.
    pub(crate) fn tried(&mut self, tried: TriedCandidate) -> PolicyChanges {
        let Some(newest) = self.newest.get_mut(&tried.policy) else {
            return PolicyChanges::new();
        };
        let outdated = newest.approval() != tried.approval;
        let newest_fails = newest.failed || newest.refusal.is_some();
        let is_ours = |running: &RunningTrial| running.number == tried.number;
        let pending = newest.pending.as_mut();
        let Some(pending) = pending.filter(|one| one.running.as_ref().is_some_and(is_ours)) else {
            return PolicyChanges::new();
        };
        (pending.running, pending.refused) = (None, None);
        // Another replica leads, or may have: it is tried anew once this one leads again.
        if !self.caught_up {
            pending.due = Some(Instant::now());
            return PolicyChanges::new();
        }
        newest.late = (newest.late + 1) * u32::from(tried.trial.late);
        let revision = Arc::clone(&pending.loaded.revision);
        let (compares, verdict) = verdict(self.good.get(&tried.policy), &revision, &tried);
        let stands = |gate, reason, message, trial| Candidate {
            revision: Arc::clone(&revision),
            gate,
            reason,
            message,
            trial: Some(Arc::new(trial)),
        };
        match verdict {
            // An approval that was taken back meanwhile counts no more.
            CandidateVerdict::Activate if outdated => {
                pending.due = Some(Instant::now());
                PolicyChanges::new()
            }
            CandidateVerdict::Activate => {
                pending.due = None;
                self.keep_passed(&revision, tried)
            }
            CandidateVerdict::Wait(gate, reason, message) => {
                pending.due = Some(Instant::now() + again(newest.late, outdated));
                // Why the newest manifest is refused says more than what the revision before it would change.
                if compares && newest_fails {
                    return PolicyChanges::new();
                }
                let candidate = stands(gate, reason, message, tried.trial);
                self.waits(&tried.policy, candidate)
            }
            CandidateVerdict::Refuse(gate, reason, message) => {
                let candidate = stands(gate, reason, message, tried.trial);
                self.refuse_tried(&tried.policy, candidate, tried.rehearsed)
            }
        }
    }

    /// Refuses a candidate for its answers; `changes` records what may have it tried again.
    fn refuse_tried(
        &mut self,
        name: &Arc<str>,
        candidate: Candidate,
        changes: Option<Rehearsed>,
    ) -> PolicyChanges {
        let unstable = candidate.reason == KnownReason::AnswerUnstable;
        let newest = self.newest.get_mut(name);
        if let Some(pending) = newest.and_then(|newest| newest.pending.as_mut()) {
            pending.refuse(changes.filter(|_| !unstable));
        }
        if unstable {
            // Another trial might not notice.
            let why = format!("{UNSTABLE}{}", candidate.message);
            self.bar(name, RevisionRecord::of(&candidate.revision), &why);
        }
        self.refuse_candidate(name, candidate)
    }

    /// Schedules the note that records a candidate as active, now that it passed all gates. It works only after that:
    /// else another leader would not know of it.
    fn keep_passed(&mut self, revision: &Revision, tried: TriedCandidate) -> PolicyChanges {
        let name = tried.policy;
        let newest = self.newest.get_mut(&name);
        let Some(pending) = newest.and_then(|newest| newest.pending.as_mut()) else {
            return PolicyChanges::new();
        };
        let rollback = revision.policy.spec.rollout.rollback;
        let expecting = Expecting {
            expected: tried.trial.expected.clone(),
            probation: Probation::new(tried.now_seconds, tried.trial.active_faults, rollback),
        };
        pending.passed = Some(PassedCandidate {
            record: RevisionRecord::of(revision).with(&tried.trial.plan, &expecting),
            approved: rollout::approved(revision, &tried.trial, &tried.approved),
            rehearsed: tried.rehearsed,
        });
        let loaded = Arc::clone(&pending.loaded);
        if let Some(why) = self.barred(&name, &revision.id()) {
            return self.refuse_barred(&name, &loaded, why);
        }
        self.note(&name);
        PolicyChanges::new()
    }
}

/// What becomes of a revision that was tried, and whether it only compares: in the mode `Shadow` the active one is
/// tried as well.
fn verdict(
    active: Option<&Arc<LoadedPolicy>>,
    revision: &Revision,
    tried: &TriedCandidate,
) -> (bool, CandidateVerdict) {
    match active.is_some_and(|active| active.revision.id() == revision.id()) {
        true => (true, rollout::comparison(revision, &tried.trial)),
        false => {
            let verdict = rollout::verdict(revision, &tried.trial, &tried.approved);
            (false, verdict)
        }
    }
}

/// How long a candidate waits for its next trial, after so many trials in a row that took too long; not at all when its
/// approval changed meanwhile.
fn again(late: u32, outdated: bool) -> Duration {
    match outdated {
        true => Duration::ZERO,
        false => AGAIN * 2u32.pow(late.min(DOUBLED)),
    }
}

impl Pending {
    /// It was refused; `changes` records what may have it tried again.
    fn refuse(&mut self, changes: Option<Rehearsed>) {
        let after = Instant::now() + after_refusal(self.refusals);
        self.refusals += 1;
        (self.due, self.refused) = (None, changes.map(|changes| (changes, after)));
    }

    /// Has a candidate tried again that was refused for objects that changed since, or are gone.
    fn reconsider(&mut self, now: Instant) {
        let changed = |(changes, after): &mut (Rehearsed, Instant)| {
            *after <= now && changes.locked().has_changed()
        };
        if self.refused.take_if(changed).is_some() {
            self.due = Some(now);
        }
    }
}

/// For how long a candidate that was refused so often before is not tried again, whatever changes: at first not at all.
fn after_refusal(before: u32) -> Duration {
    again(before.saturating_sub(1), before == 0)
}

/// For how many trials there is room beside so many. `one_is_slow`: one of them takes long.
fn room(running: usize, one_is_slow: bool) -> usize {
    AT_ONCE.saturating_sub(running.saturating_sub(usize::from(one_is_slow)))
}

/// The due candidates that are tried now, the longest waiting first. Of those whose last trial took too long, only one
/// is tried at a time, so that they hold up no others. `late_runs`: one of them is being tried.
fn in_turn<T>(
    mut due: Vec<(Instant, bool, T)>,
    room: usize,
    mut late_runs: bool,
) -> impl Iterator<Item = T> {
    due.sort_by_key(|(at, ..)| *at);
    due.retain(|(_, late, _)| !late || !std::mem::replace(&mut late_runs, true));
    due.into_iter().take(room).map(|(.., candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_whose_trials_take_too_long_leave_a_place_to_others() {
        let now = Instant::now();
        let due = |all: &[(u64, bool)]| {
            let one = |(index, (since, late)): (usize, &(u64, bool))| {
                (now - Duration::from_secs(*since), *late, index)
            };
            all.iter().enumerate().map(one).collect::<Vec<_>>()
        };
        let taken = |all: &[(u64, bool)], room, late_runs| {
            in_turn(due(all), room, late_runs).collect::<Vec<_>>()
        };
        assert_eq!(
            taken(&[(1, false), (3, false), (2, false)], 2, false),
            [1, 2]
        );
        assert_eq!(taken(&[(9, true), (8, true), (1, false)], 2, false), [0, 2]);
        assert_eq!(taken(&[(9, true), (1, false)], 1, true), [1]);
        assert!(taken(&[(9, true)], 1, true).is_empty());
        assert_eq!((again(0, false), again(9, true)), (AGAIN, Duration::ZERO));
        assert_eq!((again(1, false), again(40, false)), (AGAIN * 2, AGAIN * 32));
        let refused = [0, 1, 2, 40].map(after_refusal);
        assert_eq!(refused, [Duration::ZERO, AGAIN, AGAIN * 2, AGAIN * 32]);
    }
}
