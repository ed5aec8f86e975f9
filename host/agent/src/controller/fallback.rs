//! Where a guest failed by its own fault: what was applied stays, is stale, or is taken back. `core::failure::failing`
//! decides.

use crate::controller::account::writes_of;
use crate::controller::gather::Leftovers;
use crate::controller::plan::Planned;
use crate::controller::{Admitted, Controller, Ended, Touched};
use std::sync::Arc;
use transom_core::failure::Failure;
use transom_core::failure::failing::{self, Reaction};
use transom_core::plan::desired::{Desired, Fields, Open};
use transom_core::plan::prune::{Pruned, Undesired};
use transom_core::plan::{self, Plan, TimeAdded, Unplanned};
use transom_core::stamp::{SourceRef, Stamp};
use transom_core::work::Key;

impl Controller {
    /// What follows when nothing could be planned: the failure, or, when its guest has failed for too long and the
    /// policy says so, a plan that takes back what was applied.
    pub(super) async fn fall_back(
        &self,
        admitted: Arc<Admitted>,
        ended: Box<Ended>,
    ) -> Result<Planned, Box<Ended>> {
        let Ended {
            failure,
            mut touched,
        } = *ended;
        let key = &admitted.work.key;
        // A reason that the guest declared is an answer.
        touched.answered = failure.reason.known().is_none();
        if self.trial.is_some() || !self.is_fault(key, &failure) {
            return Err(touched.end(failure));
        }
        let since = self.guest_failed(key).await;
        let spec = self.newest(&admitted).policy.on_failure;
        match failing::reaction(&spec, since, self.clock.now_seconds()) {
            Reaction::Hold(until) => {
                touched.ask_again(until);
                let soonest = [failure.ask_again_at, until].into_iter().flatten().min();
                Err(touched.end(failure.until(soonest)))
            }
            Reaction::Stale => Err(touched.end(failing::stale(&failure, None))),
            Reaction::Withdraw => self.withdraw(admitted, touched, &failure).await,
        }
    }

    /// Whether the guest failed by its own fault. A call that took too long counts once its retry did as well, or when
    /// it was so before.
    fn is_fault(&self, key: &Key, failure: &Failure) -> bool {
        let before = {
            let memory = self.memory.lock();
            memory.results.get(key).map_or(0, |last| last.failures)
        };
        let fault = match self.is_failing(key) {
            true => failing::fault(&failure.reason),
            false => failing::proven(&failure.reason, before.saturating_add(1)),
        };
        fault.is_some()
    }

    /// Plans that nothing is left of what was applied.
    async fn withdraw(
        &self,
        admitted: Arc<Admitted>,
        touched: Touched,
        why: &Failure,
    ) -> Result<Planned, Box<Ended>> {
        let (touched, made) = self.made(&admitted, touched).await;
        let fields = match &touched.primary {
            Some(primary) => {
                let policy = &admitted.loaded.revision.policy;
                policy.world.nothing(policy, &primary.reference)
            }
            None => Vec::new(),
        };
        let mut plan = match self.without(&admitted, &touched, &fields) {
            Ok(plan) => plan,
            Err(failure) => return Err(touched.end(failing::stale(why, Some(&failure)))),
        };
        let Pruned {
            plan: removal,
            kept,
            shared,
        } = self.undesired(&admitted, made, &touched.source());
        let kept = kept.or(shared);
        // These do not count as pruned: nothing is desired that they would have to wait for.
        plan.steps.extend(removal.steps);
        let before = touched.primary.iter().map(|primary| &**primary);
        self.accounts.would_write(&admitted.work.key, || {
            writes_of(&plan.steps, before, &Open::default())
        });
        Ok(Planned {
            kept: Some(match &kept {
                Some(kept) => failing::stale(why, Some(kept)),
                None => failing::withdrawn(why),
            }),
            admitted,
            plan,
            fields,
            time_added: TimeAdded::SetByCluster,
            unplanned: Unplanned::Nothing,
            ends: false,
            touched,
        })
    }

    /// The steps to a primary without what the policy owns of it.
    fn without(
        &self,
        admitted: &Admitted,
        touched: &Touched,
        fields: &[Fields],
    ) -> Result<Plan, Failure> {
        let key = &admitted.work.key;
        let Some(primary) = &touched.primary else {
            return Ok(Plan::new(key, None));
        };
        let stamp = Stamp::of(key, SourceRef::of(primary, ""), "", "");
        let wanting = self.wanting(admitted, primary, &stamp);
        let fields: Vec<_> = fields.iter().cloned().map(Desired::Fields).collect();
        let planned = plan::plan(&wanting, &fields, &self.memory.contentions)?;
        Ok(planned.plan)
    }

    /// What was made for a primary, to be taken back.
    async fn made(&self, admitted: &Admitted, mut touched: Touched) -> (Touched, Leftovers) {
        loop {
            let (back, read) = self.outputs(admitted, touched).await;
            touched = back;
            if !touched.room.lacks() {
                let (candidates, unread) = match read {
                    Ok(candidates) => (candidates, None),
                    Err(failure) => (Vec::new(), Some(failure)),
                };
                let leftovers = Leftovers {
                    why: Undesired::Withdrawn,
                    candidates,
                    unread,
                    release: None,
                };
                return (touched, leftovers);
            }
            let empty = self.documents.room(&admitted.work.key.policy);
            touched.room = std::mem::replace(&mut touched.room, empty).again().await;
        }
    }
}
