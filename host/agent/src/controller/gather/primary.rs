//! The primary of a reconcile: as it is, or gone for the policy, with what may be left of it.

use super::{Leftovers, Reader};
use crate::controller::deselected::{counts_as_gone, is_out_of_reach};
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::plan::finalizer;
use transom_core::plan::prune::Undesired;
use transom_core::reference::ObjectRef;

impl Reader<'_> {
    /// The uid of the cluster of the primary, if the policy makes or removes objects on another connection: there it
    /// tells them from those that agents of other clusters make.
    pub(super) async fn cluster_uid(&self) -> Result<Arc<str>, Failure> {
        let (controller, policy) = (self.controller, &self.loaded.revision.policy);
        let cluster = &self.key.primary.cluster;
        // A revision before may have made objects elsewhere.
        let known = controller.memory.lock().outputs.uid(cluster);
        if let Some(known) = known {
            return Ok(known);
        }
        if policy.marks_elsewhere().next().is_none() {
            return Ok(Arc::default());
        }
        let uid: Arc<str> = controller.connections.uid_of(cluster).await?.into();
        // A folder may get one yet.
        if !uid.is_empty() {
            controller.memory.lock().outputs.know(cluster, &uid);
        }
        Ok(uid)
    }

    /// The primary. One outside the namespaces of the policy is gone for it, whether it exists or not, and the agent
    /// may have no right to read it: it is looked at for the policy's finalizer only.
    pub(super) async fn primary(&mut self) -> Result<Option<Object>, Failure> {
        let (policy, primary) = (&self.loaded.revision.policy, &self.key.primary);
        if self.is_outside() && policy.finalizer.is_none() {
            return Ok(None);
        }
        match self.read_one(primary).await {
            Err(failure) if self.is_only_tried() && is_out_of_reach(&failure) => Ok(None),
            read => read,
        }
    }

    /// Whether a trial may take the primary for gone where it cannot be read. The active revision shows that it cannot:
    /// its finalizer would stay.
    fn is_only_tried(&self) -> bool {
        self.controller.trial.is_some() && self.is_outside()
    }

    /// Whether the policy leaves out its namespace. Of a primary on another connection nothing is known.
    fn is_outside(&self) -> bool {
        let rule = &self.loaded.revision.policy.primary;
        rule.leaves_out(&self.key.primary)
    }

    /// The primary is gone: releases its claim, and reads everything that was made for it.
    pub(super) async fn of_gone(&mut self) -> Result<Leftovers, Failure> {
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
        let policy = &self.loaded.revision.policy;
        let nothing_left = self.is_in_another_version().await?;
        let there = match nothing_left {
            true => None,
            false => self.left(made).await?,
        };
        if there.as_ref().is_some_and(|there| policy.is_about(there)) {
            let message = format!(
                "{} exists, although no watch event has reported it yet",
                key.primary
            );
            return Err(Failure::known(KnownReason::ReadFailed, message));
        }
        let released = {
            let mut memory = controller.memory.lock();
            // It tells what was made for this very primary.
            let uid = memory.uids.get(key).map(|uid| &**uid);
            let uid = uid.or_else(|| there.as_ref().map(Object::uid));
            self.touched.gone_uid = uid.unwrap_or_default().to_owned();
            memory.ownership.remove(key)
        };
        controller.enqueue_released(released);
        Ok(Leftovers {
            why: Undesired::SourceDeleted,
            candidates: match nothing_left {
                true => Vec::new(),
                false => self.outputs_except(None, &[]).await?,
            },
            unread: None,
            release: there.and_then(|there| {
                let release = finalizer::release(policy, &there);
                release.filter(|_| !self.is_of_another_policy(&there))
            }),
        })
    }

    /// Whether the object is a primary in the version of its kind that the policy names now: what was made for it is
    /// not left over then.
    async fn is_in_another_version(&self) -> Result<bool, Failure> {
        let (policy, primary) = (&self.loaded.revision.policy, &*self.key.primary);
        let now = ObjectRef {
            api_version: policy.primary.api_version.clone(),
            ..primary.clone()
        };
        if now == *primary || now.group() != primary.group() || !policy.primary.admits(&now) {
            return Ok(false);
        }
        let connections = &self.controller.connections;
        let there = match connections.read(&now).await? {
            None => connections.confirm(&now).await?,
            there => there,
        };
        Ok(there.is_some_and(|there| policy.is_about(&there)))
    }

    /// Whether an object is a primary of another policy that sets the same finalizer.
    fn is_of_another_policy(&self, there: &Object) -> bool {
        let policy = &self.loaded.revision.policy;
        self.controller.queues().iter().any(|queue| {
            let loaded = queue.loaded();
            let other = &loaded.revision.policy;
            other.name != policy.name
                && other.finalizer == policy.finalizer
                && other.is_about(there)
        })
    }

    /// The object of a primary that is gone for the policy, as the API server has it: one that its labels no longer
    /// select may bear the policy's finalizer. Not asked for where neither that nor anything that was made can be left.
    async fn left(&self, made: bool) -> Result<Option<Object>, Failure> {
        let (policy, controller) = (&self.loaded.revision.policy, self.controller);
        let selects = policy.finalizer.is_some() && !policy.primary.labels.is_empty();
        let may_bear = made
            || selects && {
                let memory = controller.memory.lock();
                memory.knows(self.key) || memory.deselected.contains(self.key)
            };
        if !may_bear || self.is_outside() && policy.finalizer.is_none() {
            return Ok(None);
        }
        match controller.connections.confirm(&self.key.primary).await {
            Err(failure) if counts_as_gone(&failure, made, self.is_only_tried()) => Ok(None),
            there => there,
        }
    }
}
