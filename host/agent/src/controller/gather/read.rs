//! Reading for one reconcile: within its room, and so that every change of what is read calls for another reconcile.

use super::{Leftovers, ObservedState, Reader};
use crate::controller::{Admitted, Controller, Touched};
use std::sync::Arc;
use transom_api::policy::PruneSpec;
use transom_core::failure::Failure;
use transom_core::inputs::seen::Seen;
use transom_core::object::Object;
use transom_core::ownership::Ownership;
use transom_core::plan::prune::{self, Handover, PruneCandidate, Undesired};
use transom_core::plan::{Other, TargetState};
use transom_core::projection::path::Path;
use transom_core::reference::ObjectRef;
use transom_core::share::room;

impl Controller {
    /// Every output of a primary, whatever it wants now.
    pub(in crate::controller) async fn outputs(
        &self,
        admitted: &Admitted,
        touched: Touched,
    ) -> (Touched, Result<Vec<PruneCandidate>, Failure>) {
        let mut reader = Reader {
            controller: self,
            loaded: &admitted.loaded,
            key: &admitted.work.key,
            touched,
            first_round: None,
        };
        let read = reader.outputs_except(None, &[]).await;
        (reader.touched, read)
    }
}

impl Reader<'_> {
    /// Reads objects that others made. Of these only what the policy may write counts as a change.
    pub(super) async fn of_others(
        &mut self,
        primary: &Object,
        objects: &[ObjectRef],
    ) -> Result<Vec<Other>, Failure> {
        let (controller, policy) = (self.controller, &self.loaded.revision.policy);
        // What was seen of them for a need stays.
        controller.memory.lock().about_to_read(self.key, objects);
        self.touched.waits_for(objects);
        let there = self.read_untracked(objects).await?;
        let data = controller.template_data(primary);
        for (object, existing) in objects.iter().zip(&there) {
            controller
                .accounts
                .read(self.key, "target", object, existing.as_deref());
            let fields: Arc<[Path]> = policy.watched(object, &data).into();
            self.touched
                .saw(object, Seen::fields(&fields, existing.as_deref()));
        }
        self.touched.others.extend(there.iter().flatten().cloned());
        let others = objects.iter().cloned().zip(there);
        Ok(others
            .map(|(object, existing)| Other { object, existing })
            .collect())
    }

    /// Why a target that was made for another primary may not be taken over now, if so.
    pub(super) async fn take_over(
        &mut self,
        target: &TargetState,
    ) -> Result<Option<Failure>, Failure> {
        let (policy, connections) = (&self.loaded.revision.policy, &self.controller.connections);
        let owned = matches!(target.ownership, Ownership::Owner { .. });
        let owned = owned || target.ownership.stands_in();
        let existing = target.existing.as_deref().filter(|_| owned);
        let source = self.touched.source();
        let handover = existing.and_then(|there| Handover::of(policy, &source, self.key, there));
        let Some(handover) = handover else {
            return Ok(None);
        };
        let connected = connections.has(&handover.former.primary.cluster);
        let dependents = self.read_tracked(&handover.dependents).await?;
        if let Err(failure) = handover.permit(connected, &dependents) {
            return Ok(Some(failure));
        }
        // A takeover cannot be undone, and a watch may lag behind the API server.
        let mut confirmed = Vec::with_capacity(dependents.len());
        for dependent in &handover.dependents {
            confirmed.push(connections.confirm(dependent).await?.map(Arc::new));
        }
        Ok(handover.permit(connected, &confirmed).err())
    }

    /// The outputs of the primary, except a target that every answer makes. Those that the answer leaves out are pruned
    /// after the targets are written, so a failure to read them does not hold up the writes. Empty if the policy never
    /// prunes: it has left these objects to others, and their changes trigger no reconcile.
    pub(super) async fn moved_from(&mut self, observed: &ObservedState) -> Leftovers {
        let (candidates, unread) = match self.loaded.revision.policy.own.prune {
            PruneSpec::Never => (Vec::new(), None),
            PruneSpec::WhenSourceDeleted => {
                match self
                    .outputs_except(observed.certain.as_ref(), &observed.targets)
                    .await
                {
                    Ok(candidates) => (candidates, None),
                    Err(failure) => (Vec::new(), Some(failure)),
                }
            }
        };
        Leftovers {
            why: Undesired::TargetMoved,
            candidates,
            unread,
            release: None,
        }
    }

    /// Reads every object made for the primary except `target`, with the objects that keep it. Targets that were read
    /// before are not read again.
    pub(super) async fn outputs_except(
        &mut self,
        target: Option<&ObjectRef>,
        read: &[TargetState],
    ) -> Result<Vec<PruneCandidate>, Failure> {
        let (controller, policy) = (self.controller, &self.loaded.revision.policy);
        let outputs = prune::undesired(controller.memory.lock().outputs.of(self.key), target);
        let mut candidates = Vec::with_capacity(outputs.len());
        for output in outputs {
            let dependents = prune::dependents(policy, self.key, &output);
            let known = read.iter().find(|one| one.object == output);
            let unread = known.is_none().then_some(&output);
            self.depend_on(unread.into_iter().chain(&dependents));
            let object = match known {
                Some(known) => known.existing.clone(),
                None => self.read_one(&output).await?.map(Arc::new),
            };
            let Some(object) = object else {
                // No watch tells of what went while nobody watched it. If only the watch is late, it adds it again.
                controller.memory.lock().outputs.gone(&output);
                continue;
            };
            let kept_by = self.present(&dependents).await?;
            candidates.push(PruneCandidate { object, kept_by });
        }
        Ok(candidates)
    }

    /// Those of the objects that exist. A removal cannot be undone, so an absence is confirmed.
    pub(super) async fn present(
        &self,
        references: &[ObjectRef],
    ) -> Result<Vec<ObjectRef>, Failure> {
        let connections = &self.controller.connections;
        let mut present = Vec::new();
        for reference in references {
            // What is not kept is requested either way.
            let is_kept = connections.weigh(reference).is_some();
            let there = is_kept && connections.read(reference).await?.is_some();
            if there || connections.confirm(reference).await?.is_some() {
                present.push(reference.clone());
            }
        }
        Ok(present)
    }

    /// Has every change of these objects call for another reconcile, however this one ends. Called before they are
    /// read, so that a change during the read is not missed.
    pub(super) fn depend_on<'a>(&mut self, objects: impl IntoIterator<Item = &'a ObjectRef>) {
        let objects: Vec<ObjectRef> = objects.into_iter().cloned().collect();
        let memory = &mut self.controller.memory.lock();
        memory.about_to_read(self.key, &objects);
        for object in objects {
            self.touched.objects.entry(object).or_default().expect();
        }
    }

    /// Reads objects, in the order of `references`; `None` for an absent one.
    pub(super) async fn read_tracked(
        &mut self,
        references: &[ObjectRef],
    ) -> Result<Vec<Option<Arc<Object>>>, Failure> {
        self.depend_on(references);
        let objects = self.read_untracked(references).await?;
        for (reference, object) in references.iter().zip(&objects) {
            self.touched.read(reference, object.as_deref());
        }
        Ok(objects)
    }

    /// Like `read_untracked`, but only from what is kept in memory: an object that would have to be requested counts as
    /// absent.
    pub(super) async fn read_cached(
        &mut self,
        references: &[ObjectRef],
    ) -> Result<Vec<Option<Arc<Object>>>, Failure> {
        let mut objects = Vec::with_capacity(references.len());
        for reference in references {
            let object = match self.controller.connections.weigh(reference) {
                Some(weight) => {
                    self.touched.room.take(reference, weight)?;
                    self.read_one_within(reference, true).await?
                }
                None => None,
            };
            objects.push(object.map(Arc::new));
        }
        Ok(objects)
    }

    /// Like `read_tracked`, but does not record which of their changes trigger a reconcile.
    pub(super) async fn read_untracked(
        &mut self,
        references: &[ObjectRef],
    ) -> Result<Vec<Option<Arc<Object>>>, Failure> {
        // Takes room for all of them before the first one is decoded.
        let weighed: Vec<_> = references.iter().map(|one| self.room_for(one)).collect();
        let mut objects = Vec::with_capacity(references.len());
        let weighed = weighed.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (reference, weighed) in references.iter().zip(weighed) {
            objects.push(
                self.read_one_within(reference, weighed)
                    .await?
                    .map(Arc::new),
            );
        }
        Ok(objects)
    }

    /// Reads an object, within the room; a resync requests again what no watch has confirmed.
    pub(super) async fn read_one(
        &mut self,
        reference: &ObjectRef,
    ) -> Result<Option<Object>, Failure> {
        let weighed = self.room_for(reference)?;
        self.read_one_within(reference, weighed).await
    }

    /// Takes room for an object before it is decoded; false when its size is known only after reading it.
    pub(super) fn room_for(&mut self, reference: &ObjectRef) -> Result<bool, Failure> {
        let weight = self.controller.connections.weigh(reference);
        let room = &mut self.touched.room;
        room.take(reference, weight.unwrap_or_default())?;
        Ok(weight.is_some())
    }

    pub(super) async fn read_one_within(
        &mut self,
        reference: &ObjectRef,
        weighed: bool,
    ) -> Result<Option<Object>, Failure> {
        let connections = &self.controller.connections;
        let object = match self.touched.resyncs {
            true => connections.read_confirmed(reference).await,
            false => connections.read(reference).await,
        }?;
        let object = match self.controller.accounts.shared() {
            Some(shared) => shared.over(self.key, reference, object),
            None => object,
        };
        let object = match &self.controller.trial {
            Some(overlay) => overlay.over(reference, object),
            None => object,
        };
        if let Some(object) = object.as_ref().filter(|_| !weighed) {
            self.touched
                .room
                .take(reference, room::of_value(&object.body))?;
        }
        Ok(object)
    }
}
