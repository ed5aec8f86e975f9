//! What a reconcile has read and learnt. Each stage takes it and gives it on, so that the report has it however the
//! reconcile ends.

use crate::controller::documents::Room;
use crate::policies::load::Loaded;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;
use transom_core::digest::Digest;
use transom_core::failure::Failure;
use transom_core::fingerprint;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;
use transom_core::report::Reconcile;
use transom_core::work::{Cause, WorkItem};

/// A reconcile that was admitted. It uses one revision of its policy to its end.
pub(crate) struct Admitted {
    /// What is reconciled, and why.
    pub(crate) work: WorkItem,
    /// The policy with its guests.
    pub(crate) loaded: Arc<Loaded>,
    /// When the work came up.
    pub(crate) since: Instant,
    /// Whether time alone calls for it.
    pub(crate) timed: bool,
}

/// What a reconcile has read and learnt.
pub(crate) struct Touched {
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
    pub(crate) resyncs: bool,
    /// When an answer may change by time alone, in seconds since 1970.
    pub(crate) ask_again_at: Option<i64>,
    /// The room that this reconcile holds for what it reads.
    pub(crate) room: Room,
    /// When the first certificate expires in what is desired, in seconds since 1970.
    pub(crate) ends_seconds: Option<i64>,
}

impl Touched {
    /// Nothing yet.
    pub(crate) fn new(work: &WorkItem, room: Room) -> Self {
        Self {
            reconcile: Reconcile::new(work.key.clone()),
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
    pub(crate) fn read(&mut self, reference: &ObjectRef, object: Option<&Object>) {
        let fingerprint = object.map(fingerprint::of);
        self.objects.insert(reference.clone(), fingerprint);
    }

    /// Keeps the earliest of all times that were asked for.
    pub(crate) fn ask_again(&mut self, at: Option<i64>) {
        self.ask_again_at = [self.ask_again_at, at].into_iter().flatten().min();
    }

    /// Ends the reconcile with a failure.
    pub(crate) fn end(self, failure: Failure) -> Box<Ended> {
        Box::new(Ended {
            failure,
            touched: self,
        })
    }
}

/// A reconcile that ended before its last stage.
pub(crate) struct Ended {
    /// Why.
    pub(crate) failure: Failure,
    /// What it had read until then.
    pub(crate) touched: Touched,
}
