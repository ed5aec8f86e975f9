//! What a reconcile has read and learnt, however it ends.

use super::Admitted;
use super::documents::Room;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_core::contract::decide::FailedWrite;
use transom_core::failure::{Class, Failure};
use transom_core::inputs::seen::Seen;
use transom_core::inputs::sets::SeenSet;
use transom_core::object::Object;
use transom_core::plan::TargetState;
use transom_core::plan::desired::{self, Desired};
use transom_core::reference::ObjectRef;
use transom_core::report::Reconcile;
use transom_core::stamp::SourceRef;

/// What a reconcile has read and learnt. Each stage takes it and gives it on, so that the report has it however the
/// reconcile ends.
pub(super) struct Touched {
    /// For the report.
    pub(super) reconcile: Reconcile,
    /// Every object whose change calls for another reconcile, with what was seen of it.
    pub(super) objects: BTreeMap<ObjectRef, Seen>,
    /// What the needs of the guest saw of objects, some of which are targets as well, and what the plan waits for: an
    /// own write of these may call for another reconcile.
    pub(super) needed: BTreeMap<ObjectRef, Seen>,
    /// The sets whose change calls for another reconcile.
    pub(super) sets: Vec<SeenSet>,
    /// Every set that the guest was shown.
    pub(super) shown_sets: Vec<SeenSet>,
    /// Every object that was absent for the guest.
    pub(super) absent: BTreeSet<ObjectRef>,
    /// The primary as it was read.
    pub(super) primary: Option<Arc<Object>>,
    /// The uid of one that is gone, if it is known.
    pub(super) gone_uid: String,
    /// The uid of its cluster, where the policy makes or removes objects on another connection; else empty.
    pub(super) cluster_uid: Arc<str>,
    /// The objects that others made and of which fields may be written, as they were read.
    pub(super) others: Vec<Arc<Object>>,
    /// The primary as this reconcile saw it. `None` when it wrote the primary and does not know the state after the
    /// write: the state before it says nothing about that.
    pub(super) last_seen: Option<Arc<Object>>,
    /// Whether this is a resync, which requests again what no watch has confirmed.
    pub(super) resyncs: bool,
    /// When an answer may change by time alone, in seconds since 1970.
    pub(super) ask_again_at: Option<i64>,
    /// The shared objects that are this one's to write and not as it wants them; `None` if that is not known.
    pub(super) lacking: Option<BTreeSet<ObjectRef>>,
    /// The targets that its answer does not make; `None` without an answer.
    pub(super) left_out: Option<BTreeSet<ObjectRef>>,
    /// Whether the guest that decides answered.
    pub(super) answered: bool,
    /// What the guest was shown of a failed write, if it asked for that: the failure, or that there is none.
    pub(super) shown_failure: Option<Option<FailedWrite>>,
    /// The room that this reconcile holds for what it reads.
    pub(super) room: Room,
    /// When the first certificate expires in what is desired, in seconds since 1970.
    pub(super) ends_seconds: Option<i64>,
}

impl Touched {
    /// Nothing yet.
    pub(super) fn new(admitted: &Admitted, room: Room) -> Self {
        Self {
            reconcile: Reconcile::new(admitted.work.key.clone()),
            objects: BTreeMap::new(),
            needed: BTreeMap::new(),
            sets: Vec::new(),
            shown_sets: Vec::new(),
            absent: BTreeSet::new(),
            primary: None,
            gone_uid: String::new(),
            cluster_uid: Arc::default(),
            others: Vec::new(),
            last_seen: None,
            resyncs: admitted.resyncs,
            ask_again_at: None,
            lacking: None,
            left_out: None,
            answered: false,
            shown_failure: None,
            room,
            ends_seconds: None,
        }
    }

    /// Notes the targets that an answer does not make; returns those of them that it removes.
    pub(super) fn leave_out(
        &mut self,
        desired: &[Desired<'_>],
        targets: &[TargetState],
    ) -> BTreeSet<ObjectRef> {
        let left_out = desired::left_out(desired, targets);
        let removed = desired::only_removed(desired, &left_out);
        self.left_out = Some(left_out);
        removed
    }

    /// The primary, present or gone, as stamps name it.
    pub(super) fn source(&self) -> SourceRef {
        match &self.primary {
            Some(primary) => SourceRef::of(primary, &self.cluster_uid),
            None => SourceRef {
                uid: self.gone_uid.clone(),
                ..SourceRef::gone(&self.reconcile.key.primary, &self.cluster_uid)
            },
        }
    }

    /// Records an object that was read, or looked for and not found: every change of it counts.
    pub(super) fn read(&mut self, reference: &ObjectRef, object: Option<&Object>) {
        self.saw(reference, Seen::whole(object));
    }

    /// Records what was seen of an object.
    pub(super) fn saw(&mut self, reference: &ObjectRef, seen: Seen) {
        self.objects.entry(reference.clone()).or_default().add(seen);
    }

    /// Records what a need saw of an object, as far as it wakes.
    pub(super) fn saw_for_need(&mut self, reference: &ObjectRef, seen: Seen) {
        let needed = self.needed.entry(reference.clone()).or_default();
        needed.add(seen.clone());
        self.saw(reference, seen);
    }

    /// From now on only a change of `seen`, and of what needs read of the target, triggers a reconcile.
    pub(super) fn narrow(&mut self, target: &ObjectRef, mut seen: Seen) {
        if let Some(needed) = self.needed.get(target) {
            seen.add(needed.clone());
        }
        self.objects.insert(target.clone(), seen);
    }

    /// Records a set that the guest is shown, in place of an earlier answer to the same question.
    pub(super) fn tells(&mut self, set: SeenSet) {
        self.shown_sets.retain(|one| !one.is_about(set.question()));
        self.shown_sets.push(set);
    }

    /// The primary and the objects that others made, as they were read.
    pub(super) fn before(&self) -> Vec<Arc<Object>> {
        self.primary.iter().chain(&self.others).cloned().collect()
    }

    /// Keeps the earliest of all times that were asked for.
    pub(super) fn ask_again(&mut self, at: Option<i64>) {
        self.ask_again_at = [self.ask_again_at, at].into_iter().flatten().min();
    }

    /// Keeps when the first certificate ends of what is written, and asks again in the next second: then it has
    /// expired.
    pub(super) fn writes_until(&mut self, ends: Option<i64>, now_seconds: i64) {
        self.ends_seconds = self.ends_seconds.into_iter().chain(ends).min();
        let expired = ends.and_then(|at| at.checked_add(1));
        self.ask_again(expired.filter(|at| *at > now_seconds));
    }

    /// Has a change of each object that is waited for call for another reconcile, whether it was read or not.
    pub(super) fn waits_for(&mut self, objects: &[ObjectRef]) {
        for object in objects {
            let seen = self.objects.entry(object.clone());
            seen.or_insert_with(Seen::pending);
        }
    }

    /// Has a change of each of these objects that was read count although it is not known what the object says now: the
    /// plan cannot go on because of it.
    fn hindered_by(&mut self, objects: &[ObjectRef]) {
        for object in objects {
            self.objects.get_mut(object).map(Seen::hinders);
        }
    }

    /// The same for what a plan waits for, of which an own write may call for another reconcile as well.
    pub(super) fn plan_waits_for(&mut self, objects: &[ObjectRef]) {
        self.waits_for(objects);
        self.hindered_by(objects);
        for object in objects {
            self.needed.entry(object.clone()).or_default().expect();
        }
    }

    /// Ends the reconcile with a failure.
    pub(super) fn end(mut self, failure: Failure) -> Box<Ended> {
        if failure.class == Class::Waiting {
            self.waits_for(&failure.objects);
        }
        self.hindered_by(&failure.objects);
        Box::new(Ended {
            failure,
            touched: self,
        })
    }
}

/// A reconcile that ended before its last stage.
pub(super) struct Ended {
    /// Why.
    pub(super) failure: Failure,
    /// What it had read until then.
    pub(super) touched: Touched,
}
