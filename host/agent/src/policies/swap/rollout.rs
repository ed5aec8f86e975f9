//! Candidates: a new revision of an active policy is tried on the live objects before it becomes active, and waits for
//! approval where its mode says so.

use super::probation::Probation;
use super::{Newest, Swap};
use crate::policies::active::{Changes, Rehearsed};
use crate::policies::load::Loaded;
use crate::policies::{Approval, Written};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_api::policy::{Limited, ModeSpec};
use transom_core::catalogue::Refusal;
use transom_core::rollout::history::{History, Record};
use transom_core::rollout::{self, Approved, Candidate, Gate, Trial, Verdict};

/// How often a candidate that waits is compared with the live objects again.
const AGAIN: Duration = Duration::from_secs(60);
/// How many trials run at once.
const AT_ONCE: usize = 2;

/// A revision that was loaded whole and is not active.
pub(super) struct Pending {
    pub(super) loaded: Arc<Loaded>,
    /// When it is tried next; `None` once it was refused.
    pub(super) due: Option<Instant>,
    /// The trial that runs, which ends when this is dropped.
    pub(super) running: Option<Running>,
    /// Once it passed all gates and is only to be kept as the active one.
    pub(super) passed: Option<Passed>,
}

/// A trial that runs.
pub(super) struct Running {
    number: u64,
    _end: oneshot::Sender<()>,
}

/// What a candidate that passed all gates takes with it.
#[derive(Clone)]
pub(super) struct Passed {
    /// How long its faults are watched.
    pub(super) probation: rollout::Probation,
    /// What was approved, by what it counts for the limits; nothing when it needed no approval.
    pub(super) approved: BTreeMap<Limited, u32>,
    /// What its trial found right as it is.
    pub(super) rehearsed: Option<Rehearsed>,
}

/// A candidate to try.
pub(crate) struct Due {
    pub(super) policy: Arc<str>,
    number: u64,
    /// The candidate.
    pub(crate) loaded: Arc<Loaded>,
    /// The approval of the policy.
    pub(crate) approval: Option<Approval>,
    /// Ends when nobody waits for the trial any more.
    pub(crate) outdated: oneshot::Receiver<()>,
}

/// A candidate that was tried.
pub(crate) struct Tried {
    policy: Arc<str>,
    number: u64,
    trial: Trial,
    rehearsed: Option<Rehearsed>,
    approval: Option<Approval>,
    approved: Approved,
    now_seconds: i64,
}

impl Newest {
    /// Takes the manifests as they are now, of which only the approval may differ.
    pub(super) fn approve(&mut self, written: Vec<Written>) {
        let before = std::mem::replace(&mut self.written, written);
        if before != self.written
            && let Some(pending) = &mut self.pending
        {
            // One that was refused is not tried again.
            pending.due = pending.due.map(|_| Instant::now());
        }
    }

    fn approval(&self) -> Option<Approval> {
        self.written.first().and_then(Written::approval)
    }
}

impl Due {
    /// What was found, and when.
    pub(crate) fn tried(
        self,
        (trial, rehearsed): (Trial, Option<Rehearsed>),
        approved: Approved,
        now_seconds: i64,
    ) -> Tried {
        Tried {
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
    /// Takes a revision that was loaded whole: it becomes active, is a candidate first, or is barred.
    pub(super) fn take_loaded(&mut self, name: &Arc<str>, loaded: Arc<Loaded>) -> Changes {
        let id = loaded.revision.id();
        let active = self.good.get(name).map(|good| good.revision.id());
        if let Some(why) = self.barred(name, &id)
            && active != Some(id)
            && self.rolls_out
        {
            return self.refuse_barred(name, &loaded, why);
        }
        let kept = self.histories.get(name).and_then(History::active);
        let automatic = loaded.revision.policy.spec.rollout.mode == ModeSpec::Automatic;
        let is_active = match active {
            Some(active) => active == id,
            // The first revision ever, or the one that was active when the agent ended. One that was active and cannot be
            // restored was active before this one.
            None => kept.map_or(automatic, |kept| kept.id == id),
        };
        match is_active || !self.rolls_out {
            true => self.put_to_work(name, loaded),
            false => self.propose(name, loaded),
        }
    }

    /// Puts the revision to work that was active when the agent ended.
    pub(super) fn restore(&mut self, name: &Arc<str>, restored: Loaded) -> Changes {
        let mut clusters = restored.revision.policy.clusters();
        let recalled = self.recalled.remove(name);
        if (self.good.contains_key(name) && !recalled)
            || !clusters.all(|(_, cluster)| self.connections.contains(cluster))
        {
            return Changes::new();
        }
        drop(clusters);
        let suspends = |newest: &Newest| newest.written.iter().any(Written::suspends);
        let suspends = self.newest.get(name).is_some_and(suspends);
        let mut changes = self.put_to_work(name, Arc::new(restored));
        if suspends {
            changes.extend(self.suspend(name));
        }
        changes
    }

    /// The candidate of a policy is none any more.
    pub(super) fn drop_candidate(&mut self, name: &str) {
        if let Some(newest) = self.newest.get_mut(name) {
            newest.pending = None;
        }
    }

    pub(super) fn refuse_barred(
        &mut self,
        name: &Arc<str>,
        loaded: &Loaded,
        why: String,
    ) -> Changes {
        self.drop_candidate(name);
        let reason = KnownReason::RolledBack;
        let candidate = Candidate {
            revision: Arc::clone(&loaded.revision),
            gate: Gate::Answers,
            reason,
            message: why.clone(),
            trial: None,
        };
        let refusal = Refusal::new(reason, why).at(Gate::Answers);
        let mut changes = self.narrow(name);
        changes.extend(self.refuse(name, refusal, true));
        changes.extend(self.change(|known| {
            known.catalogue = known.catalogue.refused_at(candidate);
        }));
        changes
    }

    /// Makes a revision that was loaded the candidate. What its manifest forbids is forbidden from now on.
    pub(super) fn propose(&mut self, name: &Arc<str>, loaded: Arc<Loaded>) -> Changes {
        let Some(newest) = self.newest.get_mut(name) else {
            return Changes::new();
        };
        newest.pending = Some(Pending {
            loaded: Arc::clone(&loaded),
            due: Some(Instant::now()),
            running: None,
            passed: None,
        });
        let reason = KnownReason::Trying;
        let candidate = Candidate {
            revision: Arc::clone(&loaded.revision),
            gate: Gate::Answers,
            reason,
            message: reason.meaning().to_owned(),
            trial: None,
        };
        let mut changes = self.narrow(name);
        changes.extend(self.waits(name, candidate));
        changes
    }

    /// Puts a revision to work that was loaded whole, and has that kept.
    pub(super) fn put_to_work(&mut self, name: &Arc<str>, loaded: Arc<Loaded>) -> Changes {
        let Some(newest) = self.newest.get_mut(name) else {
            return Changes::new();
        };
        newest.pending = None;
        {
            let mut known = self.active.lock();
            known.plans.remove(name);
            known.rehearsed.remove(name);
        }
        let place = newest.place.clone();
        let before = self.good.insert(Arc::clone(name), Arc::clone(&loaded));
        let other = |before: &Arc<Loaded>| before.revision.id() != loaded.revision.id();
        if let Some(before) = before.filter(other) {
            self.probations
                .insert(Arc::clone(name), Probation::after(before));
        }
        self.note(name, |note| {
            note.active.push(Record::of(&loaded.revision));
        });
        self.change(|known| {
            let before = known.catalogue.revision(name);
            let same = before.is_some_and(|before| *before == loaded.revision);
            known.catalogue = known.catalogue.with((*loaded.revision).clone(), place);
            if !same {
                known.loaded.insert(Arc::clone(name), loaded);
            }
        })
    }

    /// The candidates that are to be tried now, as far as there is room beside so many trials. Each counts as running until
    /// [`Swap::tried`].
    pub(crate) fn due(&mut self, running: usize) -> Vec<Due> {
        let now = Instant::now();
        let room = AT_ONCE.saturating_sub(running);
        let mut due: Vec<_> = (self.newest.iter_mut())
            .filter_map(|(name, newest)| {
                let approval = newest.approval();
                let pending = newest.pending.as_mut()?;
                let waits = pending.running.is_none();
                let at = pending.due.filter(|at| *at <= now && waits)?;
                Some((at, Arc::clone(name), approval, pending))
            })
            .collect();
        due.sort_by_key(|(at, ..)| *at);
        let taken = due.into_iter().take(room);
        let numbers = &mut self.number;
        taken
            .map(|(_, policy, approval, pending)| {
                *numbers += 1;
                let (end, outdated) = oneshot::channel();
                pending.running = Some(Running {
                    number: *numbers,
                    _end: end,
                });
                Due {
                    policy,
                    number: *numbers,
                    loaded: Arc::clone(&pending.loaded),
                    approval,
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
    pub(crate) fn tried(&mut self, tried: Tried) -> Changes {
        let Tried {
            policy: name,
            number,
            trial,
            rehearsed,
            approval,
            approved,
            now_seconds,
        } = tried;
        let newest = self.newest.get_mut(&name);
        let outdated = newest
            .as_ref()
            .is_some_and(|one| one.approval() != approval);
        let is_ours = |running: &Running| running.number == number;
        let pending = newest.and_then(|newest| newest.pending.as_mut());
        let Some(pending) = pending.filter(|one| one.running.as_ref().is_some_and(is_ours)) else {
            return Changes::new();
        };
        pending.running = None;
        let revision = &pending.loaded.revision;
        let verdict = rollout::verdict(revision, &trial, &approved);
        let revision = Arc::clone(revision);
        let stands = |gate, reason, message, trial| Candidate {
            revision: Arc::clone(&revision),
            gate,
            reason,
            message,
            trial: Some(Arc::new(trial)),
        };
        match verdict {
            // An approval that was taken back meanwhile counts no more.
            Verdict::Activate if outdated => {
                pending.due = Some(Instant::now());
                Changes::new()
            }
            Verdict::Activate => {
                // It is kept as the active one first: another leader would not know that it was.
                pending.due = None;
                let probation = rollout::Probation::new(now_seconds, trial.active_faults);
                pending.passed = Some(Passed {
                    probation,
                    approved: rollout::approved(&revision, &trial, &approved),
                    rehearsed,
                });
                let mut record = Record::of(&revision);
                record.probation = Some(probation);
                if let Some(why) = self.barred(&name, &record.id) {
                    let loaded = self
                        .newest
                        .get_mut(&name)
                        .and_then(|one| one.pending.take());
                    return loaded.map_or_else(Changes::new, |pending| {
                        self.refuse_barred(&name, &pending.loaded, why)
                    });
                }
                self.note(&name, |note| note.active.push(record));
                Changes::new()
            }
            Verdict::Wait(gate, reason, message) => {
                let candidate = stands(gate, reason, message, trial);
                let wait = if outdated { Duration::ZERO } else { AGAIN };
                pending.due = Some(Instant::now() + wait);
                self.waits(&name, candidate)
            }
            Verdict::Refuse(gate, reason, message) => {
                let record = Record::of(&revision);
                let candidate = stands(gate, reason, message.clone(), trial);
                pending.due = None;
                if reason == KnownReason::AnswerUnstable {
                    // Another trial might not notice.
                    self.bar(&name, record, &message);
                }
                let mut changes = self.refuse(&name, Refusal::new(reason, message).at(gate), true);
                changes.extend(self.change(|known| {
                    known.catalogue = known.catalogue.refused_at(candidate);
                }));
                changes
            }
        }
    }

    /// Shows where a candidate stands.
    fn waits(&self, name: &str, candidate: Candidate) -> Changes {
        let place = self.newest.get(name);
        let place = place.map(|newest| newest.place.clone()).unwrap_or_default();
        self.change(|known| known.catalogue = known.catalogue.trying(candidate, place))
    }
}
