//! Stages 3 and 4, gather: reads the primary, asks whether it is ready and what the guest needs, and reads that.
//! Failures name an object and a path, never the content of a Secret.

use crate::controller::Controller;
use crate::controller::invoke::answer;
use crate::controller::touched::{Admitted, Ended, Touched};
use crate::policies::load::Loaded;
use std::sync::Arc;
use std::time::Duration;
use transom_api::KnownReason;
use transom_core::contract::decide::{Input, Need, Requirement};
use transom_core::contract::{Primary, Readiness, Timed};
use transom_core::failure::{Class, Failure};
use transom_core::inputs::kubeconfigs::Kubeconfigs;
use transom_core::inputs::{self, Found};
use transom_core::object::Object;
use transom_core::ownership::{Contender, Ownership};
use transom_core::pattern::TemplateData;
use transom_core::plan::handover::Handover;
use transom_core::plan::prune::{self, Candidate, Undesired};
use transom_core::plan::{TimeAdded, unlocated};
use transom_core::reference::ObjectRef;
use transom_core::requirements::{self, Next, Rounds};
use transom_core::share::room;
use transom_core::stamp::Stamp;
use transom_core::work::Key;
use transom_engine::Limits;

/// How long after its beginning a policy waits for the primaries of other policies that may want the same targets. Once
/// they are located, the oldest contender is known, whichever policy was loaded first. The limit keeps a guest that
/// takes long for each primary from holding up other policies.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the claim is checked again meanwhile.
const AGAIN_SECONDS: i64 = 5;

/// Everything that a decision rests on.
pub(super) struct Gathered {
    /// The reconcile.
    pub(super) admitted: Arc<Admitted>,
    /// The primary and what the guest gets to see; `None` when the primary is gone.
    pub(super) subject: Option<Subject>,
    /// What was made for the primary and is no longer desired.
    pub(super) undesired: Leftovers,
    /// What was read.
    pub(super) touched: Touched,
}

/// A primary that may be reconciled, and what was read for it.
pub(super) struct Subject {
    pub(super) primary: Arc<Object>,
    pub(super) view: Primary,
    pub(super) target: ObjectRef,
    /// The object to make, as it is; `None` when it is not there, or when the policy makes none.
    pub(super) existing: Option<Object>,
    pub(super) ownership: Ownership,
    pub(super) inputs: Vec<Input>,
    pub(super) kubeconfigs: Kubeconfigs,
    pub(super) time_added: TimeAdded,
    /// The room in use before the inputs were read.
    pub(super) room_before: u32,
}

/// Objects that were made for a primary and are no longer desired.
pub(super) struct Leftovers {
    pub(super) why: Undesired,
    pub(super) candidates: Vec<Candidate>,
    /// Why they could not all be read.
    pub(super) unread: Option<Failure>,
}

impl Controller {
    /// Reads everything that the decision rests on. Starts again when there was no room for it; nothing was written
    /// then.
    pub(super) async fn gather(&self, admitted: Arc<Admitted>) -> Result<Gathered, Box<Ended>> {
        let work = &admitted.work;
        let mut room = self.documents.room(&work.key.policy);
        loop {
            self.accounts.begin(&work.key);
            let mut reader = Reader {
                controller: self,
                loaded: &admitted.loaded,
                key: &work.key,
                touched: Touched::new(work, room),
            };
            let read = reader.all().await;
            let touched = reader.touched;
            if touched.room.lacks() {
                room = touched.room.again().await;
                continue;
            }
            return match read {
                Err(failure) => Err(touched.end(failure)),
                Ok((subject, undesired)) => Ok(Gathered {
                    admitted: Arc::clone(&admitted),
                    subject,
                    undesired,
                    touched,
                }),
            };
        }
    }

    /// The values for the templates of a grant.
    pub(super) fn template_data<'a>(&'a self, primary: &'a Object) -> TemplateData<'a> {
        TemplateData {
            object: primary,
            agent: &self.facts,
        }
    }
}

/// Reads for one reconcile.
struct Reader<'a> {
    controller: &'a Controller,
    loaded: &'a Loaded,
    key: &'a Key,
    touched: Touched,
}

impl Reader<'_> {
    async fn all(&mut self) -> Result<(Option<Subject>, Leftovers), Failure> {
        let Some(primary) = self.look_at(&self.key.primary.clone()).await? else {
            return Ok((None, self.of_gone().await?));
        };
        let (controller, policy) = (self.controller, &self.loaded.revision.policy);
        let accounts = &controller.accounts;
        accounts.read(self.key, "primary", &self.key.primary, Some(&primary));
        let generation = primary.body.pointer("/metadata/generation");
        self.touched.reconcile.observed_generation = generation.and_then(serde_json::Value::as_i64);
        let primary = Arc::new(primary);
        self.touched.primary = Some(Arc::clone(&primary));
        self.touched.last_seen = Some(Arc::clone(&primary));
        if let Err(held) = policy.held(&primary).and_then(|()| self.ready(&primary)) {
            self.locate(&primary);
            return Err(held);
        }
        let subject = match policy.world.requires() {
            true => self.required(primary).await?,
            false => self.of_primary_alone(primary).await,
        };
        let undesired = self.moved_from(&subject.target).await;
        Ok((Some(subject), undesired))
    }

    /// Whether the primary may be reconciled at all.
    fn ready(&mut self, primary: &Object) -> Result<(), Failure> {
        let (trigger, described) = (&self.loaded.trigger, &self.loaded.revision.trigger);
        let Some((guest, described)) = trigger.as_ref().zip(described.as_ref()) else {
            return Ok(());
        };
        let view = inputs::primary(primary, described)?;
        let context = self.controller.context(described);
        let call = guest.ready(&Limits::default(), &context, &view);
        let Timed {
            answer: readiness,
            ask_again_at,
        } = answer(self.key, "ready", call)?;
        self.touched.ask_again(ask_again_at);
        match readiness {
            Readiness::Ready => Ok(()),
            Readiness::NotReady(problem) => {
                Err(described.failure(Class::Held, &problem).until(ask_again_at))
            }
        }
    }

    /// Claims the target of a primary that is held, so that no other primary takes it meanwhile. When the guest cannot
    /// name the target, an earlier claim stays. The guest of a suspended policy is not asked.
    fn locate(&self, primary: &Arc<Object>) {
        let policy = &self.loaded.revision.policy;
        if !policy.world.requires() || policy.suspend {
            return;
        }
        let located = inputs::primary(primary, &self.loaded.revision.decide).and_then(|view| {
            let asked = self.require(primary, &view, &[])?;
            let target = asked.target.clone();
            let data = self.controller.template_data(primary);
            Rounds::default()
                .answer(policy, &data, asked)
                .map(|_| target)
        });
        if let Ok(target) = located {
            let contender = Contender::of(self.key, Some(primary));
            let released = self
                .controller
                .memory
                .lock()
                .ownership
                .set(contender, target);
            self.controller.enqueue_released(released);
        }
    }

    /// A guest that is asked for nothing but its answer writes fields of the primary.
    async fn of_primary_alone(&mut self, primary: Arc<Object>) -> Subject {
        let described = &self.loaded.revision.decide;
        let target = primary.reference.clone();
        self.touched.reconcile.target = Some(target.clone());
        let declared = described.declared(&target.api_version, &target.kind);
        Subject {
            view: declared.primary(&primary),
            time_added: self.time_added(&primary).await,
            primary,
            target,
            existing: None,
            ownership: Ownership::Owner { sole: true },
            inputs: Vec::new(),
            kubeconfigs: Kubeconfigs::new(self.controller.kubeconfig_limits),
            room_before: self.touched.room.used(),
        }
    }

    /// Who sets the times of new taints of the primary. Asks the cluster only when the policy owns taints: only then
    /// it has the right to.
    async fn time_added(&self, primary: &Object) -> TimeAdded {
        if self.loaded.revision.policy.taint_keys().next().is_none() {
            return TimeAdded::SetByCluster;
        }
        let now_seconds = self.controller.clock.now_seconds();
        let connections = &self.controller.connections;
        connections
            .time_added(&primary.reference, now_seconds)
            .await
    }

    /// Asks the guest what it needs and reads it, until it needs nothing new.
    async fn required(&mut self, primary: Arc<Object>) -> Result<Subject, Failure> {
        let (controller, described) = (self.controller, &self.loaded.revision.decide);
        let view = inputs::primary(&primary, described)?;
        let limits = controller.kubeconfig_limits;
        let (mut rounds, mut found, mut inputs) = (Rounds::default(), Vec::new(), Vec::new());
        let mut kubeconfigs = Kubeconfigs::new(limits);
        let room_before = self.touched.room.used();
        let (target, existing, ownership) = loop {
            let asked = self.require(&primary, &view, &inputs)?;
            let target = asked.target.clone();
            let data = controller.template_data(&primary);
            let next = rounds.answer(&self.loaded.revision.policy, &data, asked)?;
            let (existing, ownership) = self.claim(&primary, &target).await?;
            let needs = match next {
                Next::Complete(_) => break (target, existing, ownership),
                Next::Read(needs) => needs,
            };
            if let Ownership::Pending { remaining } = ownership {
                return Err(unlocated(&target, remaining));
            }
            // Frees what the last round read before more is read.
            drop((existing, std::mem::take(&mut found)));
            kubeconfigs = Kubeconfigs::new(limits);
            self.touched.room.back(room_before);
            found = self.read(needs).await?;
            self.touched.room.take_up_to(kubeconfigs.cost(&found))?;
            inputs::check_present(&found, described)?;
            let mut read = |found: &_, object: &_, key: &_| kubeconfigs.read(found, object, key);
            inputs = inputs::cross(&found, described, &mut read)?;
        };
        let digest = inputs::digest(&view, &found, &inputs);
        self.touched.reconcile.inputs = Some(digest.to_string());
        self.take_over(&primary, existing.as_ref(), &ownership)
            .await?;
        Ok(Subject {
            time_added: self.time_added(&primary).await,
            primary,
            view,
            target,
            existing,
            ownership,
            inputs,
            kubeconfigs,
            room_before,
        })
    }

    fn require(
        &self,
        primary: &Object,
        view: &Primary,
        inputs: &[Input],
    ) -> Result<Requirement, Failure> {
        let (guest, described) = (&self.loaded.decide, &self.loaded.revision.decide);
        let context = self.controller.context(described);
        let call = guest.require(&Limits::default(), &context, view, inputs);
        answer(self.key, "require", call)?.map_err(|refusal| {
            let data = self.controller.template_data(primary);
            requirements::refused(&self.loaded.revision.policy, &data, described, refusal)
        })
    }

    async fn read(&mut self, needs: Vec<Need>) -> Result<Vec<Found>, Failure> {
        let references: Vec<ObjectRef> = needs.iter().map(|need| need.reference.clone()).collect();
        let objects = self.look(&references).await?;
        let accounts = &self.controller.accounts;
        for (need, object) in needs.iter().zip(&objects) {
            accounts.read(self.key, &need.role, &need.reference, object.as_deref());
        }
        let found = needs.into_iter().zip(objects);
        Ok(found.map(|(need, object)| Found { need, object }).collect())
    }

    /// Claims the target for the primary and reads it; returns whether the primary may have it.
    async fn claim(
        &mut self,
        primary: &Arc<Object>,
        target: &ObjectRef,
    ) -> Result<(Option<Object>, Ownership), Failure> {
        let controller = self.controller;
        self.touched.reconcile.target = Some(target.clone());
        self.depend_on([target]);
        let existing = self.look_at(target).await?;
        self.touched.read(target, existing.as_ref());
        let accounts = &controller.accounts;
        accounts.read(self.key, "target", target, existing.as_ref());
        let stamp = existing.as_ref().and_then(Stamp::read);
        let queue = controller.queue(&self.key.policy);
        let others = queue.is_some_and(|queue| queue.begun.elapsed() < PATIENCE);
        let (released, ownership) = {
            let ownership = &mut controller.memory.lock().ownership;
            let contender = Contender::of(self.key, Some(primary));
            let released = ownership.set(contender, target.clone());
            (released, ownership.decide(self.key, stamp.as_ref(), others))
        };
        controller.enqueue_released(released);
        if others && matches!(ownership, Ownership::Pending { .. }) {
            let again = controller.clock.now_seconds().saturating_add(AGAIN_SECONDS);
            self.touched.ask_again(Some(again));
        }
        Ok((existing, ownership))
    }

    /// Checks whether a target that was made for another primary may be taken over now.
    async fn take_over(
        &mut self,
        primary: &Object,
        existing: Option<&Object>,
        ownership: &Ownership,
    ) -> Result<(), Failure> {
        let (policy, connections) = (&self.loaded.revision.policy, &self.controller.connections);
        let existing = existing.filter(|_| matches!(ownership, Ownership::Owner { .. }));
        let handover = existing.and_then(|there| Handover::of(policy, primary, self.key, there));
        let Some(handover) = handover else {
            return Ok(());
        };
        let connected = connections.has(&handover.former.primary.cluster);
        let keepers = self.look(&handover.keepers).await?;
        handover.permit(connected, &keepers)?;
        // A takeover cannot be undone, and a watch may lag behind the API server.
        let mut confirmed = Vec::with_capacity(keepers.len());
        for keeper in &handover.keepers {
            confirmed.push(connections.confirm(keeper).await?.map(Arc::new));
        }
        handover.permit(connected, &confirmed)
    }

    /// The primary is gone: releases its claim, and reads everything that was made for it.
    async fn of_gone(&mut self) -> Result<Leftovers, Failure> {
        let (controller, key) = (self.controller, self.key);
        let connections = &controller.connections;
        let made = controller.memory.lock().outputs.of(key).next().is_some();
        if let Some(place) = connections.unread(&key.primary).filter(|_| made) {
            // The primary may be in that place, so its claim and what was made for it stay.
            let message = format!(
                "{} is not found, but {place} cannot be read: its managed objects are left in place",
                key.primary
            );
            return Err(Failure::known(KnownReason::ReadFailed, message));
        }
        if made && connections.confirm(&key.primary).await?.is_some() {
            let message = format!(
                "{} exists, although no watch event has reported it yet",
                key.primary
            );
            return Err(Failure::known(KnownReason::ReadFailed, message));
        }
        let released = controller.memory.lock().ownership.remove(key);
        controller.enqueue_released(released);
        Ok(Leftovers {
            why: Undesired::SourceDeleted,
            candidates: self.outputs_except(None).await?,
            unread: None,
        })
    }

    /// What was made for the primary under another target. It is pruned after the target was written, which a failure
    /// to read it does not hold up.
    async fn moved_from(&mut self, target: &ObjectRef) -> Leftovers {
        let (candidates, unread) = match self.outputs_except(Some(target)).await {
            Ok(candidates) => (candidates, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        Leftovers {
            why: Undesired::TargetMoved,
            candidates,
            unread,
        }
    }

    /// Every output of the key but one, with the objects that keep it.
    async fn outputs_except(
        &mut self,
        target: Option<&ObjectRef>,
    ) -> Result<Vec<Candidate>, Failure> {
        let (controller, policy) = (self.controller, &self.loaded.revision.policy);
        let outputs = prune::undesired(controller.memory.lock().outputs.of(self.key), target);
        let mut candidates = Vec::with_capacity(outputs.len());
        for output in outputs {
            let keepers = prune::keepers(policy, self.key, &output);
            self.depend_on(std::iter::once(&output).chain(&keepers));
            if let Some(object) = self.look_at(&output).await? {
                let kept_by = self.present(&keepers).await?;
                let object = Arc::new(object);
                candidates.push(Candidate { object, kept_by });
            }
        }
        Ok(candidates)
    }

    /// Those of the objects that exist. A removal cannot be undone, so an absence is confirmed.
    async fn present(&self, references: &[ObjectRef]) -> Result<Vec<ObjectRef>, Failure> {
        let connections = &self.controller.connections;
        let mut present = Vec::new();
        for reference in references {
            let there = connections.read(reference).await?.is_some();
            if there || connections.confirm(reference).await?.is_some() {
                present.push(reference.clone());
            }
        }
        Ok(present)
    }

    /// Has every change of these objects call for another reconcile, however this one ends. Called before they are
    /// read, so that a change during the read is not missed.
    fn depend_on<'a>(&mut self, objects: impl IntoIterator<Item = &'a ObjectRef>) {
        let objects: Vec<ObjectRef> = objects.into_iter().cloned().collect();
        let memory = &mut self.controller.memory.lock();
        memory.about_to_read(self.key, &objects);
        let unknown = objects.into_iter().map(|object| (object, None));
        self.touched.objects.extend(unknown);
    }

    /// Reads objects, in the order of `references`; `None` for an absent one.
    async fn look(
        &mut self,
        references: &[ObjectRef],
    ) -> Result<Vec<Option<Arc<Object>>>, Failure> {
        self.depend_on(references);
        // Takes room for all of them before the first one is decoded.
        let weighed: Vec<_> = references.iter().map(|one| self.room_for(one)).collect();
        let mut objects = Vec::with_capacity(references.len());
        let weighed = weighed.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (reference, weighed) in references.iter().zip(weighed) {
            let object = self.look_within(reference, weighed).await?.map(Arc::new);
            self.touched.read(reference, object.as_deref());
            objects.push(object);
        }
        Ok(objects)
    }

    /// Reads an object, within the room; a resync requests again what no watch has confirmed.
    async fn look_at(&mut self, reference: &ObjectRef) -> Result<Option<Object>, Failure> {
        let weighed = self.room_for(reference)?;
        self.look_within(reference, weighed).await
    }

    /// Takes room for an object before it is decoded; false when its size is known only after reading it.
    fn room_for(&mut self, reference: &ObjectRef) -> Result<bool, Failure> {
        let weight = self.controller.connections.weigh(reference);
        let room = &mut self.touched.room;
        room.take(reference, weight.unwrap_or_default())?;
        Ok(weight.is_some())
    }

    async fn look_within(
        &mut self,
        reference: &ObjectRef,
        weighed: bool,
    ) -> Result<Option<Object>, Failure> {
        let connections = &self.controller.connections;
        let object = match self.touched.resyncs {
            true => connections.read_confirmed(reference).await,
            false => connections.read(reference).await,
        }?;
        if let Some(object) = object.as_ref().filter(|_| !weighed) {
            self.touched
                .room
                .take(reference, room::of_value(&object.body))?;
        }
        Ok(object)
    }
}
