//! What one agent is made of: connections, lanes, knowledge, clock. Never decides; it moves values between the stages.

pub(crate) mod clock;
pub(crate) mod connections;
mod invoke;
pub(crate) mod known;
mod lane;
mod pipeline;
pub(crate) mod queue;
mod workers;

use crate::agent::clock::Clock;
use crate::agent::connections::Connections;
use crate::agent::known::{Shared, Told};
use crate::agent::lane::Lane;
use crate::agent::pipeline::Seen;
use crate::agent::queue::Cause;
use crate::policies::load::Loaded;
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Notify;
use transom_api::{State, Word};
use transom_core::claims::Claimant;
use transom_core::contract::AgentFacts;
use transom_core::digest::Digest;
use transom_core::mark;
use transom_core::object::Object;
use transom_core::observation::Observation;
use transom_core::outcome::Outcome;
use transom_core::plan::Step;
use transom_core::policy::Writes;
use transom_core::reference::ObjectRef;
use transom_core::report::{Report, Schedule};
use transom_core::signal::Signal;
use transom_core::work::{Key, Why, WorkItem};

/// One agent.
pub(crate) struct Agent {
    pub(crate) connections: Connections,
    pub(crate) known: Shared,
    pub(crate) clock: Clock,
    pub(crate) facts: AgentFacts,
    lanes: RwLock<BTreeMap<Arc<str>, Arc<Lane>>>,
    /// Told whenever an evaluation ended.
    pub(crate) moved: Notify,
    /// Spreads back-off and audit over the fleet, differently in each run.
    seeds: RandomState,
}

impl Agent {
    /// An agent without policies.
    pub(crate) fn new(connections: Connections, clock: Clock, facts: AgentFacts) -> Self {
        Self {
            connections,
            known: Shared::default(),
            clock,
            facts,
            lanes: RwLock::default(),
            moved: Notify::new(),
            seeds: RandomState::new(),
        }
    }

    /// The lanes of all policies.
    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The lane of a policy.
    pub(crate) fn lane(&self, policy: &str) -> Option<Arc<Lane>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner).get(policy).cloned()
    }

    /// Takes in the lane of a new policy.
    pub(crate) fn add_lane(&self, lane: Arc<Lane>) {
        self.lanes.write().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(&lane.policy), lane);
    }

    /// Closes the lane of a policy that is gone, and forgets what was known for it; what it made stays.
    pub(crate) fn remove_lane(&self, policy: &str) {
        let lane = self.lanes.write().unwrap_or_else(PoisonError::into_inner).remove(policy);
        if let Some(lane) = lane {
            lane.close();
        }
        let woken = {
            let mut known = self.known.lock();
            let keys: Vec<_> = known.told.keys().filter(|key| *key.policy == *policy).cloned().collect();
            for key in keys {
                known.interest.remove(&key);
                known.told.remove(&key);
                known.marks.remove(&key);
                known.judged.remove(&key);
            }
            known.claims.remove_policy(policy)
        };
        self.wake(woken);
    }

    /// Takes note of everything that bears a stamp, before the first evaluation.
    pub(crate) fn find_outputs(&self) {
        for object in self.connections.made() {
            self.known.lock().outputs.observe(&object);
        }
    }

    /// Removes the status of whatever vanished while no agent was at work. For the end of a start.
    pub(crate) fn tidy_status(&self, policies: &BTreeSet<String>) {
        let subjects = {
            let known = self.known.lock();
            known.told.keys().map(|key| (key.policy.to_string(), (*key.subject).clone())).collect()
        };
        for error in self.connections.retain_status(policies, &subjects) {
            let (place, message) = ("status".to_owned(), error.to_string());
            telemetry::tell(&Signal::Unreadable { place, reason: Word::WriteFailed, message });
        }
    }

    /// An evaluation ended by a fault of ours.
    pub(crate) fn faulted(&self, key: &Key) {
        let told = Told {
            state: State::Failed,
            reason: Word::AgentFailed.into(),
            message: "the agent failed while it evaluated this subject".to_owned(),
            failures: 1,
        };
        self.known.lock().told.insert(key.clone(), told);
    }

    /// Stage 1: what a cluster told becomes items of lanes.
    pub(crate) fn observe(&self, observation: Observation) {
        match observation {
            Observation::Present(object) => {
                self.known.lock().outputs.observe(&object);
                self.changed(&object.reference, &Cause::Updated, Some(mark::of(&object)));
            }
            Observation::Gone(reference) => {
                self.known.lock().outputs.gone(&reference);
                self.changed(&reference, &Cause::Evaluate(Why::Gone), None);
            }
            Observation::Synced => {}
            Observation::Unreadable(unreadable) => {
                for object in &unreadable.objects {
                    self.changed(object, &Cause::Evaluate(Why::Unjudged), None);
                }
                let transom_core::observation::Unreadable { place, reason, message, .. } = unreadable;
                telemetry::tell(&Signal::Unreadable { place, reason, message });
            }
            Observation::Readable(place) => telemetry::tell(&Signal::Readable { place }),
        }
    }

    /// An object changed: its own evaluations and those that depend on it are due.
    fn changed(&self, object: &ObjectRef, as_subject: &Cause, mark: Option<Digest>) {
        for lane in self.lanes() {
            if lane.loaded().revision.policy.subject.admits(object) {
                lane.push(object, as_subject.clone(), None);
            }
        }
        let concerned: Vec<Key> = {
            let known = self.known.lock();
            // Who saw it exactly as it is now has nothing to learn.
            let knows =
                |key: &&Key| mark.is_some() && known.marks.get(*key).and_then(|marks| marks.get(object)) == Some(&mark);
            known.interest.concerned(object).filter(|key| !knows(key)).cloned().collect()
        };
        for key in concerned {
            self.push(&key, Cause::Evaluate(Why::Input(object.clone())), None);
        }
    }

    /// What was just written is known at once, and whoever else depends on it is evaluated.
    pub(crate) fn wrote(&self, key: &Key, steps: &[Step], outcome: &Outcome) {
        let done = steps.iter().zip(&outcome.steps).filter(|(_, done)| done.result.is_ok());
        for (step, _) in done {
            let others: Vec<Key> = {
                let mut known = self.known.lock();
                known.written.entry(step.target().clone()).or_default().insert(Arc::clone(&key.policy));
                match step {
                    Step::Create { desired } | Step::Update { desired, .. } => {
                        known.outputs.observe(desired);
                        known.contention.entry(desired.reference.clone()).or_default().left(Some(desired));
                    }
                    Step::Delete { reference, .. } => {
                        known.outputs.gone(reference);
                        known.contention.remove(reference);
                    }
                    Step::Patch { .. } => {}
                }
                known.interest.concerned(step.target()).filter(|other| *other != key).cloned().collect()
            };
            for other in others {
                self.push(&other, Cause::Evaluate(Why::Input(step.target().clone())), None);
            }
            for lane in self.lanes().iter().filter(|lane| lane.policy != key.policy) {
                if lane.loaded().revision.policy.subject.admits(step.target()) {
                    lane.push(step.target(), Cause::Updated, None);
                }
            }
        }
    }

    /// Claimants whose target was released are evaluated again.
    pub(crate) fn wake(&self, keys: Vec<Key>) {
        for key in keys {
            self.push(&key, Cause::Evaluate(Why::Released), None);
        }
    }

    fn push(&self, key: &Key, cause: Cause, after: Option<Duration>) {
        if let Some(lane) = self.lane(&key.policy) {
            lane.push(&key.subject, cause, after);
        }
    }

    /// What the next run of a key depends on.
    pub(crate) fn schedule(&self, loaded: &Loaded, key: &Key) -> Schedule {
        let failures = self.known.lock().told.get(key).map_or(0, |told| told.failures);
        let now_seconds = self.clock.now_seconds();
        let seed = self.seeds.hash_one((key, now_seconds, failures));
        Schedule { now_seconds, audit_seconds: loaded.revision.policy.audit_seconds, failures, seed }
    }

    /// Takes note of what an evaluation touched and came to, and sets its next run.
    pub(crate) fn settle(&self, lane: &Lane, loaded: &Loaded, work: &WorkItem, seen: Seen, report: &Report) {
        let key = &work.key;
        let gone = seen.subject.is_none();
        let seen_subject = seen.subject.clone();
        {
            let mut known = self.known.lock();
            known.interest.set(key, seen.objects.keys().cloned());
            known.marks.insert(key.clone(), seen.objects);
            match &seen.subject {
                // An update since then is still in the queue and is compared with what this evaluation saw.
                Some(subject) => known.judged.insert(key.clone(), Self::judged(loaded, subject)),
                None => known.judged.remove(key),
            };
        }
        self.located(loaded, key, &seen_subject, report);
        for why in [Why::Timer, Why::Retry, Why::Audit] {
            lane.forget(&key.subject, &why);
        }
        let why = match (report.failures, seen.ask_again_at) {
            (0, None) => Why::Audit,
            (0, Some(_)) => Why::Timer,
            _ => Why::Retry,
        };
        let settled = gone && report.reason == transom_api::Word::SourceGone.into();
        if let Some(after) = report.again_after_ms.filter(|_| !settled) {
            lane.push(&key.subject, Cause::Evaluate(why), Some(Duration::from_millis(after)));
        }
    }

    /// A subject whose target is not known now keeps the claim that it has.
    fn located(&self, loaded: &Loaded, key: &Key, subject: &Option<Arc<Object>>, report: &Report) {
        let claims = matches!(loaded.revision.policy.writes, Writes::Kubeconfig(_));
        if !claims || report.target.is_some() || report.reason == Word::SourceGone.into() {
            return;
        }
        let woken = {
            let mut known = self.known.lock();
            let stamped = known.outputs.of(key).next().cloned();
            known.claims.keep(Claimant::of(key, subject.as_deref()), stamped.as_ref())
        };
        self.wake(woken);
    }

    /// Stage 9: tells the cluster and the log, each transition once.
    pub(crate) async fn publish(&self, work: &WorkItem, report: &Report) {
        let key = &work.key;
        let told = Told {
            state: report.state,
            reason: report.reason.clone(),
            message: report.message.clone(),
            failures: report.failures,
        };
        let gone = report.reason == transom_api::Word::SourceGone.into() && report.state == transom_api::State::Applied;
        if gone {
            let mut known = self.known.lock();
            known.marks.remove(key);
            known.interest.remove(key);
        }
        let before = {
            let told_all = &mut self.known.lock().told;
            if gone { told_all.remove(key) } else { told_all.insert(key.clone(), told.clone()) }
        };
        let published = match gone {
            true => self.connections.forget(&report.policy, &report.subject).await,
            // The start of an agent is no news to anybody.
            false if report.reason == Word::TargetsUnlocated.into() => Ok(()),
            false => self.connections.publish(report).await,
        };
        let transition = before.is_none_or(|before| (before.state, before.reason) != (told.state, told.reason));
        telemetry::evaluated(work, report, transition);
        if let Err(error) = published {
            telemetry::unpublished(report, &error);
        }
    }

    /// A trigger guest ignored an update.
    pub(crate) fn ignored(&self, key: &Key) {
        telemetry::tell(&Signal::Ignored { key: key.clone() });
    }
}
