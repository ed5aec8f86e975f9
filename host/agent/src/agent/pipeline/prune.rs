//! Prunes what was made for a primary that is gone or has another target now.

use super::Seen;
use crate::agent::Agent;
use crate::policies::load::Loaded;
use std::sync::Arc;
use transom_api::KnownReason;
use transom_core::failure::Failure;
use transom_core::outcome::Outcome;
use transom_core::plan::prune::{self, Candidate, Pruned, Undesired};
use transom_core::reference::ObjectRef;
use transom_core::report::Success;
use transom_core::work::Key;

impl Agent {
    /// The primary is gone: prunes everything that was made for it, and releases its claim.
    pub(super) async fn retire(
        &self,
        loaded: &Arc<Loaded>,
        key: &Key,
        seen: &mut Seen,
    ) -> Result<Success, Failure> {
        let made = self.known.lock().outputs.of(key).next().is_some();
        if let Some(place) = self.connections.unread(&key.primary).filter(|_| made) {
            // The primary may be in that place, so its claim and what was made for it stay.
            let message = format!(
                "{} is not found, but {place} cannot be read: its managed objects are left in place",
                key.primary
            );
            return Err(Failure::known(KnownReason::ReadFailed, message));
        }
        if made && self.connections.confirm(&key.primary).await?.is_some() {
            let message = format!(
                "{} exists, although no watch event has reported it yet",
                key.primary
            );
            return Err(Failure::known(KnownReason::ReadFailed, message));
        }
        let woken = self.known.lock().ownership.remove(key);
        self.wake(woken);
        let (outcome, kept) = self
            .prune(loaded, key, None, Undesired::SourceDeleted, seen)
            .await?;
        Ok(Success {
            gone: true,
            outcome,
            kept,
            ask_again_at: None,
        })
    }

    /// Prunes every output of a key except the desired one.
    pub(super) async fn prune(
        &self,
        loaded: &Arc<Loaded>,
        key: &Key,
        desired: Option<&ObjectRef>,
        why: Undesired,
        seen: &mut Seen,
    ) -> Result<(Outcome, Option<Failure>), Failure> {
        let outputs: Vec<_> = self
            .known
            .lock()
            .outputs
            .of(key)
            .filter(|output| Some(*output) != desired)
            .cloned()
            .collect();
        let mut candidates = Vec::with_capacity(outputs.len());
        for output in outputs {
            let keepers = prune::keepers(&loaded.revision.policy, key, &output);
            self.depends(key, std::iter::once(&output).chain(&keepers), seen);
            if let Some(object) = self.look_at(&output, seen).await? {
                let kept_by = self.present(&keepers).await?;
                candidates.push(Candidate {
                    object: Arc::new(object),
                    kept_by,
                });
            }
        }
        if candidates.is_empty() || loaded.revision.policy.suspend {
            return Ok((Outcome::default(), None));
        }
        let Pruned { plan, kept } = {
            let known = self.known.lock();
            prune::plan(
                &loaded.revision.policy,
                key,
                &candidates,
                &known.ownership,
                why,
            )
        };
        Ok((self.apply(key, plan, seen).await, kept))
    }

    /// Has every change of these objects call for another reconcile, however this one ends. Called before they are
    /// read, so that a change during the read is not missed.
    fn depends<'a>(
        &self,
        key: &Key,
        objects: impl Iterator<Item = &'a ObjectRef>,
        seen: &mut Seen,
    ) {
        let objects: Vec<ObjectRef> = objects.cloned().collect();
        self.known.lock().about_to_read(key, &objects);
        seen.objects
            .extend(objects.into_iter().map(|object| (object, None)));
    }

    /// Those of the objects that exist. A removal cannot be undone, so an absence is confirmed.
    async fn present(&self, references: &[ObjectRef]) -> Result<Vec<ObjectRef>, Failure> {
        let mut present = Vec::new();
        for reference in references {
            let there = self.connections.read(reference).await?.is_some();
            if there || self.connections.confirm(reference).await?.is_some() {
                present.push(reference.clone());
            }
        }
        Ok(present)
    }
}
