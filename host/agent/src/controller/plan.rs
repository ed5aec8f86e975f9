//! Stage 6, plan: from what the guest wants to ordered steps with nothing left to choose. `core::plan` decides.

use crate::controller::account::writes_of;
use crate::controller::gather::{Leftovers, ObservedState};
use crate::controller::invoke::Proposed;
use crate::controller::{Admitted, Controller, Ended, Touched};
use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_api::policy::PruneSpec;
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::plan::desired::{Desired, Fields, Open};
use transom_core::plan::prune::{self, Pruned, Undesired};
use transom_core::plan::{
    self, Feasible, Plan, PlanInput, Step, TimeAdded, Unplanned, finalizer, remove,
};
use transom_core::reference::ObjectRef;
use transom_core::rollout::expected::is_determined;
use transom_core::stamp::{SourceRef, Stamp};
use transom_core::work::Key;
use transom_core::world::{Answer, Lowering};

/// What is to be written.
pub(super) struct Planned {
    /// The reconcile.
    pub(super) admitted: Arc<Admitted>,
    /// The steps: what is desired first, then what is pruned.
    pub(super) plan: Plan,
    /// The desired fields of the primary, to plan again when the cluster leaves an element without its time.
    pub(super) fields: Vec<Fields>,
    /// Who sets these times.
    pub(super) time_added: TimeAdded,
    /// Why something that is no longer desired stays, or what the guest waits for.
    pub(super) kept: Option<Failure>,
    /// What its guest is told of an object without a step.
    pub(super) unplanned: Unplanned,
    /// Whether the answer ends something that cannot be undone: it removes objects of others, or releases the primary.
    pub(super) ends: bool,
    /// What was read.
    pub(super) touched: Touched,
}

/// What an answer leads to.
struct Desires {
    /// The steps to what is desired.
    plan: Plan,
    /// The desired fields of the primary.
    fields: Vec<Fields>,
    /// The objects that the answer makes or removes by name, except those whose removal is left to pruning. Pruning
    /// skips them.
    made: BTreeSet<ObjectRef>,
    /// The step that releases the primary, if the policy keeps it and the answer does not.
    release: Option<Step>,
    /// What the guest waits for.
    waits: Option<Failure>,
    /// What its guest is told of an object without a step.
    unplanned: Unplanned,
    /// Why something that it removes by name stays. That holds up nothing.
    refused: Option<Failure>,
    /// Whether the plan lacks steps that must wait. Such a plan prunes nothing.
    partial: bool,
}

impl Desires {
    /// Those of a primary that is gone.
    fn none(key: &Key) -> Self {
        Self {
            plan: Plan::new(key, None),
            fields: Vec::new(),
            made: BTreeSet::new(),
            release: None,
            waits: None,
            unplanned: Unplanned::Nothing,
            refused: None,
            partial: false,
        }
    }

    /// Notes one of the things that an answer wants.
    fn take(&mut self, desired: Desired<'_>, primary: &ObjectRef) {
        match desired {
            Desired::Whole(whole) => drop(self.made.insert(whole.object)),
            Desired::Fields(one) if one.object == *primary => self.fields.push(one),
            Desired::Finalizer => self.release = None,
            Desired::Gone(object) => drop(self.made.insert(object)),
            Desired::Fields(_) => {}
        }
    }
}

impl Controller {
    /// Plans what the guest wants, and the removal of what is no longer desired. Frees the inputs.
    pub(super) fn plan(&self, proposed: Proposed) -> Result<Planned, Box<Ended>> {
        let Proposed { gathered, answer } = proposed;
        let mut touched = gathered.touched;
        let admitted = gathered.admitted;
        let key = &admitted.work.key;
        let (mut desires, mut time_added) = (Desires::none(key), TimeAdded::SetByCluster);
        if let Some((observed, answer)) = gathered.observed.zip(answer) {
            match self.desired(&admitted, &observed, &*answer, &mut touched) {
                Ok(desired) => desires = desired,
                Err(failure) => return Err(touched.end(failure)),
            }
            time_added = observed.time_added;
            // Of what was read the plan holds about half; the rest is freed before waiting for a server.
            let before = observed.room_before;
            drop(observed);
            let used = touched.room.used();
            touched.room.back(before + (used - before) / 2);
        }
        let source = touched.source();
        let left = (gathered.undesired, &source);
        let (removal, release, kept) = self.last(&admitted, &mut desires, left);
        if let Some(kept) = &kept {
            touched.plan_waits_for(&kept.objects);
        }
        let mut plan = desires.plan;
        let ends = remove::ends_others(&plan.steps, &key.primary) || release.is_some();
        let last = plan.steps.len();
        plan.prune(removal);
        plan.steps.extend(release);
        self.accounts.would_write(key, || {
            let last = plan.steps.get(last..).unwrap_or_default();
            writes_of(last, touched.primary.as_deref(), &Open::default())
        });
        touched.answered = true;
        Ok(Planned {
            admitted,
            plan,
            fields: desires.fields,
            time_added,
            kept,
            unplanned: desires.unplanned,
            ends,
            touched,
        })
    }

    /// The steps that follow the desired writes: the removal of undesired objects and the release of the primary; also
    /// why an object stays. The primary is released only when all its objects are gone or left to others, and the guest
    /// waits for nothing.
    fn last(
        &self,
        admitted: &Admitted,
        desires: &mut Desires,
        (mut undesired, source): (Leftovers, &SourceRef),
    ) -> (Vec<Step>, Option<Step>, Option<Failure>) {
        let policy = &admitted.loaded.revision.policy;
        let release = desires.release.take().or(undesired.release.take());
        let (partial, made) = (desires.partial, &desires.made);
        undesired
            .candidates
            .retain(|one| !partial && !made.contains(&one.object.reference));
        let is_left =
            undesired.why == Undesired::SourceDeleted && policy.own.prune == PruneSpec::Never;
        let Pruned { plan, kept, shared } = self.undesired(admitted, undesired, source);
        // Of a partial plan nothing is pruned, whatever could not be read for that.
        let kept = kept.filter(|_| !partial).or(desires.waits.take());
        let may_go = !policy.suspend && (is_left || kept.is_none());
        let kept = kept.or(desires.refused.take()).or(shared);
        (plan.steps, release.filter(|_| may_go), kept)
    }

    /// What an answer leads to.
    fn desired(
        &self,
        admitted: &Admitted,
        observed: &ObservedState,
        answer: &dyn Answer,
        touched: &mut Touched,
    ) -> Result<Desires, Failure> {
        let revision = &admitted.loaded.revision;
        let lowering = self.lowering(admitted, observed, observed.as_of);
        let desired = answer.lower(&lowering)?;
        let answered = answer.waits(&lowering)?;
        let (digest, component) = (&touched.reconcile.inputs, &revision.decide.digest);
        let digest = digest.as_deref().unwrap_or_default();
        let stamp = Stamp::of(&admitted.work.key, touched.source(), digest, component);
        let wanting = PlanInput {
            targets: &observed.targets,
            others: &observed.others,
            time_added: observed.time_added,
            ..self.wanting(admitted, &observed.primary, &stamp)
        };
        let looks = self.accounts.keeps_writes() || self.compares(&admitted.loaded);
        let open = Open::of(if looks { &desired } else { &[] });
        let desires = self.feasible((&wanting, desired), answered, touched)?;
        let writes = LazyCell::new(|| writes_of(&desires.plan.steps, observed.present(), &open));
        self.accounts.would_write(wanting.key, || writes.clone());
        let kept = (&desires.waits, &desires.refused);
        if is_determined(&observed.targets, kept, &desires.unplanned) {
            self.as_tried(admitted, observed, &wanting, &writes)?;
        }
        drop(writes);
        Ok(desires)
    }

    /// What an answer is lowered with, as of this time.
    pub(super) fn lowering<'a>(
        &'a self,
        admitted: &'a Admitted,
        observed: &'a ObservedState,
        now_seconds: i64,
    ) -> Lowering<'a> {
        let revision = &admitted.loaded.revision;
        Lowering {
            policy: &revision.policy,
            guest: &revision.decide,
            data: self.template_data(&observed.primary),
            primary: &observed.view,
            target: observed.target(),
            inputs: &observed.inputs,
            kubeconfigs: &observed.kubeconfigs,
            secrets: &observed.secrets,
            now_seconds,
        }
    }

    /// What is planned of all that is desired, and what it waits for.
    fn feasible(
        &self,
        (wanting, desired): (&PlanInput<'_>, Vec<Desired<'_>>),
        answered: Option<Failure>,
        touched: &mut Touched,
    ) -> Result<Desires, Failure> {
        let contentions = &self.memory.contentions;
        let mut lacking = plan::lacking(wanting, &desired, contentions);
        let planned = plan::plan(wanting, &desired, contentions);
        // What fails for the object itself fails for whoever writes it.
        let failures = match &planned {
            Ok(feasible) => [feasible.waits.as_ref(), feasible.refused.as_ref()],
            Err(failure) => [Some(failure), None],
        };
        let failures = failures.iter().flatten();
        lacking.retain(|object| !failures.clone().any(|one| one.objects.contains(object)));
        touched.lacking = Some(lacking);
        let removed = touched.leave_out(&desired, wanting.targets);
        let Feasible {
            plan,
            waits,
            unplanned,
            refused,
        } = planned?;
        let partial = waits.is_some();
        // What is not there counts before what the guest waits for.
        let waits = waits.or(answered);
        for waits in waits.iter().chain(&refused) {
            touched.ask_again(waits.ask_again_at);
            // The writes take their time: what changes meanwhile counts.
            let objects = &waits.objects;
            self.memory.lock().about_to_read(wanting.key, objects);
            touched.plan_waits_for(objects);
        }
        self.memory.lock().ownership.removes(wanting.key, removed);
        let ends = desired.iter().filter_map(Desired::ends_seconds).min();
        touched.writes_until(ends, wanting.now_seconds);
        let mut desires = Desires {
            plan,
            waits,
            unplanned,
            refused,
            release: finalizer::release(wanting.policy, wanting.primary),
            partial,
            ..Desires::none(wanting.key)
        };
        let is_left = |one: &Desired<'_>| match one {
            Desired::Gone(object) => {
                remove::is_left_to_prune(wanting.policy, object, &wanting.data)
            }
            _ => false,
        };
        for one in desired.into_iter().filter(|one| !is_left(one)) {
            desires.take(one, &wanting.primary.reference);
        }
        Ok(desires)
    }

    /// The step to the fields of a primary that the cluster left without a time: now the agent sets it.
    pub(super) fn with_times(
        &self,
        admitted: &Admitted,
        primary: &Object,
        fields: Vec<Fields>,
    ) -> Result<Plan, Failure> {
        let source = SourceRef::of(primary, "");
        let stamp = Stamp::of(&admitted.work.key, source, "", "");
        let now_seconds = self.clock.now_seconds();
        let wanting = PlanInput {
            time_added: TimeAdded::SetByUs(now_seconds),
            ..self.wanting(admitted, primary, &stamp)
        };
        let fields: Vec<_> = fields.into_iter().map(Desired::Fields).collect();
        let planned = plan::plan(&wanting, &fields, &self.memory.contentions)?;
        Ok(planned.plan)
    }

    pub(super) fn wanting<'a>(
        &'a self,
        admitted: &'a Admitted,
        primary: &'a Object,
        stamp: &'a Stamp,
    ) -> PlanInput<'a> {
        PlanInput {
            policy: &admitted.loaded.revision.policy,
            key: &admitted.work.key,
            data: self.template_data(primary),
            primary,
            targets: &[],
            others: &[],
            stamp,
            time_added: TimeAdded::SetByCluster,
            now_seconds: self.clock.now_seconds(),
        }
    }

    /// The removal of what is no longer desired.
    pub(super) fn undesired(
        &self,
        admitted: &Admitted,
        leftovers: Leftovers,
        source: &SourceRef,
    ) -> Pruned {
        let Leftovers {
            why,
            mut candidates,
            unread,
            release: _,
        } = leftovers;
        // Such an object may bear the stamp of a policy of an earlier agent.
        candidates.retain(|one| !self.facts.records.has(&one.object.reference));
        let (policy, key) = (&admitted.loaded.revision.policy, &admitted.work.key);
        if candidates.is_empty() || policy.suspend {
            return Pruned {
                plan: Plan::new(key, None),
                kept: unread,
                shared: None,
            };
        }
        let memory = &mut *self.memory.lock();
        for one in &candidates {
            // What is not proven to be of this cluster is no output: nothing becomes of it here.
            if why == Undesired::SourceDeleted && !prune::is_made_by(source, &one.object) {
                memory.outputs.gone(&one.object.reference);
            }
        }
        let ownership = &mut memory.ownership;
        prune::plan(policy, (key, source), &candidates, ownership, why)
    }
}
