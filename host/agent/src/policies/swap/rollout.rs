//! Candidates: a new revision of an active policy is tried on the live objects before it becomes active, and waits for
//! approval where its mode says so.

use super::{Newest, Swap};
use crate::policies::active::Changes;
use crate::policies::load::Loaded;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_api::policy::ModeSpec;
use transom_core::catalogue::Refusal;
use transom_core::rollout::{self, Candidate, Gate, Trial, Verdict};

/// How often a candidate that waits is compared with the live objects again.
const AGAIN: Duration = Duration::from_secs(60);
/// How many trials run at once.
const AT_ONCE: usize = 2;

/// A revision that was loaded whole and is not active.
pub(super) struct Pending {
    loaded: Arc<Loaded>,
    /// When it is tried next; `None` while a trial runs, and once it was refused.
    due: Option<Instant>,
    running: bool,
}

/// A candidate to try.
pub(crate) struct Due {
    pub(super) policy: Arc<str>,
    number: u64,
    /// The candidate.
    pub(crate) loaded: Arc<Loaded>,
    /// The digest that was approved for the policy.
    pub(crate) approved: Option<String>,
}

/// A candidate that was tried.
pub(crate) struct Tried {
    policy: Arc<str>,
    number: u64,
    trial: Trial,
    approved: Option<String>,
}

impl Due {
    /// What was found.
    pub(crate) fn tried(self, trial: Trial) -> Tried {
        Tried {
            policy: self.policy,
            number: self.number,
            trial,
            approved: self.approved,
        }
    }
}

impl Swap {
    /// Whether a revision that was loaded is to be tried before it becomes active.
    pub(super) fn is_candidate(&self, name: &str, loaded: &Loaded) -> bool {
        let revision = &loaded.revision;
        let automatic = revision.policy.rollout.mode == ModeSpec::Automatic;
        match self.good.get(name) {
            _ if !self.rolls_out => false,
            None => !automatic,
            Some(good) => good.revision.id() != revision.id(),
        }
    }

    /// Makes a revision that was loaded the candidate. What its manifest forbids is forbidden from now on.
    pub(super) fn propose(&mut self, name: &Arc<str>, loaded: Arc<Loaded>) -> Changes {
        let Some(newest) = self.newest.get_mut(name) else {
            return Changes::new();
        };
        newest.pending = Some(Pending {
            loaded: Arc::clone(&loaded),
            due: Some(Instant::now()),
            running: false,
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

    /// Puts a revision to work that was loaded whole.
    pub(super) fn put_to_work(&mut self, name: &Arc<str>, loaded: Arc<Loaded>) -> Changes {
        let Some(newest) = self.newest.get_mut(name) else {
            return Changes::new();
        };
        newest.pending = None;
        let place = newest.place.clone();
        self.good.insert(Arc::clone(name), Arc::clone(&loaded));
        self.change(|known| {
            let before = known.catalogue.revision(name);
            let same = before.is_some_and(|before| *before == loaded.revision);
            known.catalogue = known.catalogue.with((*loaded.revision).clone(), place);
            if !same {
                known.loaded.insert(Arc::clone(name), loaded);
            }
        })
    }

    /// The candidates that are to be tried now, as far as there is room for another trial. Each counts as running until
    /// [`Swap::tried`].
    pub(crate) fn due(&mut self) -> Vec<Due> {
        let now = Instant::now();
        let running = |newest: &&Newest| newest.pending.as_ref().is_some_and(|one| one.running);
        let room = AT_ONCE.saturating_sub(self.newest.values().filter(running).count());
        let mut due: Vec<_> = (self.newest.iter_mut())
            .filter_map(|(name, newest)| {
                let approved = newest.written.first().and_then(|one| one.approved());
                let approved = approved.map(str::to_owned);
                let pending = newest.pending.as_mut()?;
                let at = pending.due.filter(|at| *at <= now && !pending.running)?;
                Some((at, Arc::clone(name), newest.number, approved, pending))
            })
            .collect();
        due.sort_by_key(|(at, ..)| *at);
        let taken = due.into_iter().take(room);
        taken
            .map(|(_, policy, number, approved, pending)| {
                pending.running = true;
                let loaded = Arc::clone(&pending.loaded);
                Due {
                    policy,
                    number,
                    loaded,
                    approved,
                }
            })
            .collect()
    }

    /// Whether a candidate is being tried, or is to be tried now.
    pub(crate) fn tries(&self) -> bool {
        let now = Instant::now();
        let mut pending = self.newest.values().filter_map(|one| one.pending.as_ref());
        pending.any(|one| one.running || one.due.is_some_and(|at| at <= now))
    }

    /// Takes the result of a trial.
    pub(crate) fn tried(&mut self, tried: Tried) -> Changes {
        let Tried {
            policy: name,
            number,
            trial,
            approved,
        } = tried;
        let counts = |newest: &&mut Newest| newest.number == number;
        let newest = self.newest.get_mut(&name).filter(counts);
        let Some(pending) = newest.and_then(|newest| newest.pending.as_mut()) else {
            return Changes::new();
        };
        pending.running = false;
        let revision = &pending.loaded.revision;
        let verdict = rollout::verdict(revision, &trial, approved.as_deref());
        let stands = |gate, reason, message| Candidate {
            revision: Arc::clone(revision),
            gate,
            reason,
            message,
            trial: Some(Arc::new(trial)),
        };
        match verdict {
            Verdict::Activate => {
                let loaded = Arc::clone(&pending.loaded);
                self.put_to_work(&name, loaded)
            }
            Verdict::Wait(gate, reason, message) => {
                let candidate = stands(gate, reason, message);
                pending.due = Some(Instant::now() + AGAIN);
                self.waits(&name, candidate)
            }
            Verdict::Refuse(gate, reason, message) => {
                let candidate = stands(gate, reason, message.clone());
                pending.due = None;
                let mut changes = self.refuse(&name, Refusal { reason, message }, true);
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
