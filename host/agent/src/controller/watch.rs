//! Stage 1, watch: turns what the watches of clusters report into requests in workqueues.

use super::Controller;
use super::memory::LastResult;
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
use transom_core::reference::ObjectRef;
use transom_core::report::End;
use transom_core::signal::Signal;
use transom_core::work::{Cause, Key};

impl Controller {
    /// Turns an observation of a cluster into requests in workqueues.
    pub(crate) fn observe(&self, observation: Observation) {
        match observation {
            Observation::Present(object) => {
                let orphaned = {
                    let memory = &mut *self.memory.lock();
                    memory.outputs.observe(&object);
                    // What was made for a primary that is gone was put back: only its stamp leads to its owner.
                    let owner = memory.outputs.owner(&object.reference);
                    owner
                        .filter(|key| {
                            !memory
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
                self.memory.lock().outputs.gone(&reference);
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
            self.policies_changed.store(true, Ordering::Release);
        }
        for queue in self.queues() {
            if queue.loaded().revision.policy.primary.admits(object) {
                queue.push(object, as_primary.clone(), None);
            }
        }
        if self
            .memory
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
            let mut memory = self.memory.lock();
            // A reconcile that saw this very state has nothing to do.
            let is_known = |key: &&Key| {
                fingerprint.is_some()
                    && memory
                        .fingerprints
                        .get(*key)
                        .and_then(|fingerprints| fingerprints.get(object))
                        == Some(&fingerprint)
            };
            let mut concerned: Vec<Key> = memory
                .dependencies
                .concerned(object)
                .filter(|key| !is_known(key))
                .cloned()
                .collect();
            concerned.retain(|key| !memory.is_writing(key, object, fingerprint));
            concerned
        };
        for key in concerned {
            self.push(&key, Queued::Reconcile(Cause::Input(object.clone())), None);
        }
    }

    /// Enqueues every primary whose reconcile failed because something could not be read, not be confirmed as gone, or
    /// not be written to a server that did not answer.
    pub(super) fn retry_unread(&self) {
        let unread = |last: &LastResult| last.end == End::Ended(Class::Unreachable);
        let keys: Vec<Key> = self
            .memory
            .lock()
            .results
            .iter()
            .filter(|(_, last)| unread(last))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.push(&key, Queued::Reconcile(Cause::Retry), None);
        }
    }

    /// Enqueues contenders whose target was released.
    pub(crate) fn enqueue_released(&self, keys: Vec<Key>) {
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
