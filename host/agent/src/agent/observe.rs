//! Stage 1: turns observations of clusters, and the agent's own writes, into requests in workqueues.

use super::Agent;
use super::known::Told;
use super::queue::Queued;
use super::workqueue::Workqueue;
use crate::telemetry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use transom_core::digest::Digest;
use transom_core::failure::Class;
use transom_core::fingerprint;
use transom_core::observation::{Observation, Unreadable};
use transom_core::outcome::Outcome;
use transom_core::plan::Step;
use transom_core::reference::ObjectRef;
use transom_core::report::End;
use transom_core::signal::Signal;
use transom_core::work::{Cause, Key};

impl Agent {
    /// Turns an observation of a cluster into requests in workqueues.
    pub(crate) fn observe(&self, observation: Observation) {
        match observation {
            Observation::Present(object) => {
                let orphaned = {
                    let known = &mut *self.known.lock();
                    known.outputs.observe(&object);
                    // What was made for a primary that is gone was put back: only its stamp leads to its owner.
                    let owner = known.outputs.owner(&object.reference);
                    owner
                        .filter(|key| {
                            !known
                                .dependencies
                                .concerned(&object.reference)
                                .any(|one| one == *key)
                        })
                        .cloned()
                };
                self.changed(&object.reference, &Queued::Updated, || {
                    Some(fingerprint::of(&object))
                });
                // A stamp may name any object; only a primary of the policy is enqueued.
                let queue = orphaned.as_ref().and_then(|key| self.queue(&key.policy));
                let admits = |(queue, key): &(Arc<Workqueue>, Key)| {
                    queue.loaded().revision.policy.primary.admits(&key.primary)
                };
                if let Some((queue, key)) = queue.zip(orphaned).filter(admits) {
                    queue.push(
                        &key.primary,
                        Queued::Reconcile(Cause::Input(object.reference)),
                        None,
                    );
                }
            }
            Observation::Gone(reference) => {
                self.known.lock().outputs.gone(&reference);
                self.changed(&reference, &Queued::Reconcile(Cause::Gone), || None);
            }
            Observation::Synced => {}
            Observation::Unreadable(unreadable) => {
                for object in &unreadable.objects {
                    self.changed(object, &Queued::Reconcile(Cause::Undecided), || None);
                }
                self.statuses.changed();
                let Unreadable {
                    place,
                    reason,
                    message,
                    ..
                } = unreadable;
                telemetry::tell(&Signal::Unreadable {
                    place,
                    reason,
                    message,
                });
            }
            Observation::Readable(place) => {
                self.statuses.changed();
                telemetry::tell(&Signal::Readable { place });
                self.locate_new();
                self.retry_unread();
            }
        }
    }

    /// Enqueues the reconciles of a changed object and those that depend on it.
    fn changed(
        &self,
        object: &ObjectRef,
        as_primary: &Queued,
        fingerprint: impl FnOnce() -> Option<Digest>,
    ) {
        if self.connections.gives_policies(object) {
            self.policies_told.store(true, Ordering::Release);
        }
        for queue in self.queues() {
            if queue.loaded().revision.policy.primary.admits(object) {
                queue.push(object, as_primary.clone(), None);
            }
        }
        if self
            .known
            .lock()
            .dependencies
            .concerned(object)
            .next()
            .is_none()
        {
            return;
        }
        let fingerprint = fingerprint();
        let concerned: Vec<Key> = {
            let mut known = self.known.lock();
            // A reconcile that saw this very state has nothing to do.
            let knows = |key: &&Key| {
                fingerprint.is_some()
                    && known
                        .fingerprints
                        .get(*key)
                        .and_then(|fingerprints| fingerprints.get(object))
                        == Some(&fingerprint)
            };
            let mut concerned: Vec<Key> = known
                .dependencies
                .concerned(object)
                .filter(|key| !knows(key))
                .cloned()
                .collect();
            concerned.retain(|key| !known.is_writing(key, object, fingerprint));
            concerned
        };
        for key in concerned {
            self.push(&key, Queued::Reconcile(Cause::Input(object.clone())), None);
        }
    }

    /// Enqueues every primary whose reconcile failed because something could not be read, not be confirmed as gone, or
    /// not be written to a server that did not answer.
    pub(super) fn retry_unread(&self) {
        let unread = |told: &Told| told.end == End::Ended(Class::Unreachable);
        let keys: Vec<Key> = self
            .known
            .lock()
            .told
            .iter()
            .filter(|(_, told)| unread(told))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.push(&key, Queued::Reconcile(Cause::Retry), None);
        }
    }

    /// Records what was just written, and enqueues every other reconcile that depends on it.
    pub(crate) fn wrote(&self, key: &Key, steps: &[Step], outcome: &Outcome) {
        telemetry::wrote(key, outcome);
        let done = steps
            .iter()
            .zip(&outcome.steps)
            .filter(|(_, done)| done.result.is_ok());
        for (step, _) in done {
            let others: Vec<Key> = {
                let mut known = self.known.lock();
                known
                    .written
                    .entry(step.target().clone())
                    .or_default()
                    .insert(Arc::clone(&key.policy));
                match step {
                    Step::Create { desired } | Step::Update { desired, .. } => {
                        known.outputs.observe(desired)
                    }
                    Step::Delete { reference, .. } => known.outputs.gone(reference),
                    Step::Patch { .. } => {}
                }
                known.wrote(&key.policy, step);
                known
                    .dependencies
                    .concerned(step.target())
                    .filter(|other| *other != key)
                    .cloned()
                    .collect()
            };
            for other in others {
                self.push(
                    &other,
                    Queued::Reconcile(Cause::Input(step.target().clone())),
                    None,
                );
            }
            for queue in self
                .queues()
                .iter()
                .filter(|queue| queue.policy != key.policy)
            {
                if queue.loaded().revision.policy.primary.admits(step.target()) {
                    queue.push(step.target(), Queued::Updated, None);
                }
            }
        }
    }

    /// Enqueues contenders whose target was released.
    pub(crate) fn wake(&self, keys: Vec<Key>) {
        for key in keys {
            self.push(&key, Queued::Reconcile(Cause::Released), None);
        }
    }

    pub(super) fn push(&self, key: &Key, cause: Queued, after: Option<Duration>) {
        if let Some(queue) = self.queue(&key.policy) {
            queue.push(&key.primary, cause, after);
        }
    }
}
