//! Stages 2 to 9 of one reconcile, in order. Decisions belong in `core`: there must be no `if` about policy here.

mod admit;
mod kubeconfig;
mod often;
mod prune;
mod taints;

use crate::agent::documents::Room;
use crate::agent::invoke::answer;
use crate::agent::known::Entry;
use crate::agent::queue::{Queued, Request};
use crate::agent::workqueue::Workqueue;
use crate::agent::{Agent, account};
use crate::policies::load::Loaded;
use crate::telemetry;
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_core::catalogue::guest::Guest;
use transom_core::contract::{Context, Readiness, Timed};
use transom_core::digest::Digest;
use transom_core::failure::{Class, Failure};
use transom_core::fingerprint;
use transom_core::inputs;
use transom_core::object::Object;
use transom_core::outcome::Outcome;
use transom_core::plan::Plan;
use transom_core::plan::brake::Admitted;
use transom_core::policy::Writes;
use transom_core::reference::ObjectRef;
use transom_core::report::{self, End, Reconcile, Success};
use transom_core::share::room;
use transom_core::trigger::LastSeen;
use transom_core::work::{Cause, Key, WorkItem};
use transom_engine::Limits;

/// What a reconcile has read and learnt, available to its report however it ends.
pub(crate) struct Seen {
    /// For the report.
    pub(crate) reconcile: Reconcile,
    /// Every object whose change calls for another reconcile, with its fingerprint where it was read.
    pub(crate) objects: BTreeMap<ObjectRef, Option<Digest>>,
    /// The primary as it was read.
    pub(crate) primary: Option<Arc<Object>>,
    /// The primary as this reconcile saw it. `None` when it wrote the primary and does not know the state after the
    /// write: the state before it says nothing about that.
    pub(crate) last_seen: Option<Arc<Object>>,
    /// Whether this is a resync, which requests again what no watch has confirmed.
    resyncs: bool,
    /// When an answer may change by time alone, in seconds since 1970.
    pub(crate) ask_again_at: Option<i64>,
    /// The room that this reconcile holds for what it reads.
    room: Room,
    /// When the first client certificate expires in the wanted kubeconfig, in seconds since 1970.
    pub(crate) ends_seconds: Option<i64>,
}

impl Seen {
    fn new(work: &WorkItem, room: Room) -> Self {
        let reconcile = Reconcile::new(work.key.clone());
        Self {
            reconcile,
            objects: BTreeMap::new(),
            primary: None,
            last_seen: None,
            resyncs: work.cause == Cause::Resync,
            ask_again_at: None,
            room,
            ends_seconds: None,
        }
    }

    /// Records an object that was read, or looked for and not found.
    fn read(&mut self, reference: &ObjectRef, object: Option<&Object>) {
        self.objects
            .insert(reference.clone(), object.map(fingerprint::of));
    }

    /// Keeps the earliest of all times that were asked for.
    fn ask_again(&mut self, at: Option<i64>) {
        self.ask_again_at = [self.ask_again_at, at].into_iter().flatten().min();
    }
}

impl Agent {
    /// Reconciles one primary that was taken from its queue.
    pub(crate) async fn reconcile(&self, queue: &Workqueue, request: Request) {
        let loaded = queue.loaded();
        let key = Key::new(&queue.policy, &request.primary);
        let admitted = self
            .known
            .lock()
            .often
            .admit(&key, self.clock.now_seconds());
        if let Err(off) = admitted {
            return self.put_off(queue, &loaded, key, request, off).await;
        }
        let (causes, since) = (request.causes.clone(), request.since);
        let timed = request.is_timed();
        let admitted = self.admit(&loaded, key.clone(), request).await;
        if let Some(journal) = &mut self.known.lock().journal {
            journal.push(Entry {
                key,
                causes,
                cause: admitted.as_ref().map(|work| work.cause.clone()),
            });
        }
        let Some(work) = admitted else { return };
        let mut seen = Seen::new(&work, self.documents.room(&work.key.policy));
        self.accounts.begin(&work.key);
        let result = self.attempt_within_room(&loaded, &work, &mut seen).await;
        let result = result.map_err(|failure| match failure.class {
            Class::Unlocated => failure.until(seen.ask_again_at),
            _ => failure,
        });
        // A failure may name a time to try again, just like an answer.
        seen.ask_again(
            result
                .as_ref()
                .err()
                .and_then(|failure| failure.ask_again_at),
        );
        let report = report::of(
            seen.reconcile.clone(),
            result,
            self.schedule(&loaded, &work.key),
        );
        // At the start of the agent only the target is known yet. The last primary that is located enqueues this one
        // again.
        if report.end == End::Ended(Class::Unlocated)
            && !self.known.lock().told.contains_key(&work.key)
        {
            return;
        }
        let uid = seen
            .primary
            .as_ref()
            .map(|primary| primary.uid().to_owned())
            .unwrap_or_default();
        let (writes, counts) = (
            &loaded.revision.policy.writes,
            (&work.key, seen.primary.is_some()),
        );
        let attempt = self.known.lock().attempt(writes, counts, timed, &report);
        telemetry::counted(&work, &report, attempt, since.elapsed());
        let told = queue.unless_removed(|| {
            self.settle(queue, &loaded, (&work, since), seen, &report);
            self.publish(&work, &uid, &report);
        });
        if !told {
            self.forget(&queue.policy);
        }
    }

    /// Stages 3 to 7. Starts again when there was no room for what they read; nothing was written then.
    async fn attempt_within_room(
        &self,
        loaded: &Arc<Loaded>,
        work: &WorkItem,
        seen: &mut Seen,
    ) -> Result<Success, Failure> {
        loop {
            let result = self.attempt(loaded, work, seen).await;
            if !seen.room.lacks() {
                return result;
            }
            let Seen { room, .. } =
                std::mem::replace(seen, Seen::new(work, self.documents.room(&work.key.policy)));
            seen.room = room.again().await;
            self.accounts.begin(&work.key);
        }
    }

    /// Stages 3 to 7.
    async fn attempt(
        &self,
        loaded: &Arc<Loaded>,
        work: &WorkItem,
        seen: &mut Seen,
    ) -> Result<Success, Failure> {
        let key = &work.key;
        let Some(primary) = self.look_at(&key.primary, seen).await? else {
            return self.retire(loaded, key, seen).await;
        };
        self.accounts
            .read(key, "primary", &key.primary, Some(&primary));
        let primary = Arc::new(primary);
        seen.reconcile.observed_generation = primary
            .body
            .pointer("/metadata/generation")
            .and_then(serde_json::Value::as_i64);
        (seen.primary, seen.last_seen) = (Some(Arc::clone(&primary)), Some(Arc::clone(&primary)));
        let policy = &loaded.revision.policy;
        if let Err(held) = policy
            .held(&primary)
            .and_then(|()| self.ready(loaded, key, &primary, seen))
        {
            self.locate(loaded, key, &primary);
            return Err(held);
        }
        match &policy.writes {
            Writes::Kubeconfig(_) => self.kubeconfig(loaded, key, &primary, seen).await,
            Writes::Taints(rule) => self.taints(loaded, key, &primary, rule, seen).await,
        }
    }

    /// Stage 3, first half: whether the primary may be reconciled at all.
    fn ready(
        &self,
        loaded: &Arc<Loaded>,
        key: &Key,
        primary: &Object,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let Some((guest, described)) = loaded
            .trigger
            .as_ref()
            .zip(loaded.revision.trigger.as_ref())
        else {
            return Ok(());
        };
        let view = inputs::primary(primary, described)?;
        let context = self.context(described);
        let Timed {
            answer,
            ask_again_at,
        } = answer(
            key,
            "ready",
            guest.ready(&Limits::default(), &context, &view),
        )?;
        seen.ask_again(ask_again_at);
        match answer {
            Readiness::Ready => Ok(()),
            Readiness::NotReady(problem) => {
                Err(described.failure(Class::Held, &problem).until(ask_again_at))
            }
        }
    }

    /// Reads an object, within the room; a resync requests again what no watch has confirmed.
    pub(crate) async fn look_at(
        &self,
        reference: &ObjectRef,
        seen: &mut Seen,
    ) -> Result<Option<Object>, Failure> {
        let known = self.room_for(reference, seen)?;
        self.look_within(reference, known, seen).await
    }

    /// Takes room for an object before it is decoded; false when its size is known only after reading it.
    fn room_for(&self, reference: &ObjectRef, seen: &mut Seen) -> Result<bool, Failure> {
        let weight = self.connections.weigh(reference);
        seen.room
            .take(reference, weight.unwrap_or_default())
            .map(|()| weight.is_some())
    }

    async fn look_within(
        &self,
        reference: &ObjectRef,
        known: bool,
        seen: &mut Seen,
    ) -> Result<Option<Object>, Failure> {
        let object = match seen.resyncs {
            true => self.connections.read_confirmed(reference).await,
            false => self.connections.read(reference).await,
        }?;
        if let Some(object) = object.as_ref().filter(|_| !known) {
            seen.room.take(reference, room::of_value(&object.body))?;
        }
        Ok(object)
    }

    /// Stage 7, for a plan that may be empty. Other reconciles that depend on what was written are enqueued; this one
    /// records it as what it saw last.
    pub(crate) async fn apply(&self, key: &Key, plan: Plan, seen: &mut Seen) -> Outcome {
        if plan.steps.is_empty() {
            return Outcome::default();
        }
        self.accounts.note(key, |account| {
            account.steps.extend(plan.steps.iter().cloned())
        });
        if self.accounts.are_only_asked() {
            return account::as_if_done(&plan.steps);
        }
        let Admitted { plan, stopped } =
            self.known
                .lock()
                .brake
                .admit(key, plan, self.clock.now_seconds());
        seen.ask_again(stopped.as_ref().and_then(|stopped| stopped.ask_again_at));
        let steps = plan.steps.clone();
        self.known.lock().about_to_write(key, &steps);
        seen.room.finish();
        let mut outcome = self.connections.apply(plan).await;
        outcome.stopped = stopped;
        self.wrote(key, &steps, &outcome);
        for (at, step) in steps.iter().enumerate() {
            if outcome
                .steps
                .get(at)
                .is_none_or(|done| done.result.is_err())
            {
                self.known.lock().brake.give_back(key, step.target());
            }
            let left = outcome.steps.get(at).and_then(|done| done.left.as_deref());
            let fingerprint = left.map(fingerprint::of);
            let told = self
                .known
                .lock()
                .end_of_write(key, step.target(), fingerprint);
            if told {
                self.push(
                    key,
                    Queued::Reconcile(Cause::Input(step.target().clone())),
                    None,
                );
            }
            if let Some(seen) = seen.objects.get_mut(step.target()) {
                // Replaces the fingerprint from before the write. When the new one is not known, any later state is
                // news.
                *seen = fingerprint;
            }
        }
        outcome
    }

    /// What a guest is given beside its arguments.
    pub(crate) fn context(&self, guest: &Guest) -> Context {
        Context {
            now_seconds: self.clock.now_seconds(),
            settings: Arc::clone(&guest.settings),
            agent: self.facts.clone(),
        }
    }

    /// The primary as this reconcile saw it, to compare the next update with.
    pub(crate) fn last_seen(loaded: &Loaded, primary: &Object) -> LastSeen {
        LastSeen::of(primary, loaded.revision.predicate().1)
    }
}
