//! Stages 3 to 7 of a policy that owns taints of its primary. Patches no other field.

use super::Seen;
use crate::agent::invoke::answer;
use crate::agent::queue::Queued;
use crate::agent::{Agent, account};
use crate::policies::load::Loaded;
use std::sync::Arc;
use transom_core::contract::Timed;
use transom_core::contract::taints::Decision;
use transom_core::failure::{Class, Failure};
use transom_core::managed_cluster;
use transom_core::object::Object;
use transom_core::outcome::Outcome;
use transom_core::pattern::TemplateData;
use transom_core::plan::taints::{self, TimeAdded};
use transom_core::policy::TaintsRule;
use transom_core::report::Success;
use transom_core::requirements;
use transom_core::work::{Cause, Key};
use transom_engine::Limits;

impl Agent {
    /// Asks which taints the primary should carry, and patches those that the policy owns.
    pub(super) async fn taints(
        &self,
        loaded: &Arc<Loaded>,
        key: &Key,
        primary: &Object,
        rule: &TaintsRule,
        seen: &mut Seen,
    ) -> Result<Success, Failure> {
        let described = &loaded.revision.decide;
        seen.reconcile.target = Some(primary.reference.clone());
        let declared = described.declared(&primary.reference.api_version, &primary.reference.kind);
        let view = managed_cluster::view(primary, declared)
            .map_err(|invalid| Failure::invalid_object(primary, &invalid))?;
        let answered = answer(
            key,
            "compute",
            loaded
                .decide
                .compute(&Limits::default(), &self.context(described), &view),
        )?;
        let data = TemplateData {
            object: primary,
            agent: &self.facts,
        };
        let Timed {
            answer,
            ask_again_at,
        } = answered.map_err(|refusal| {
            requirements::refused(&loaded.revision.policy, &data, described, refusal)
        })?;
        seen.ask_again(ask_again_at);
        let wanted = match answer {
            Decision::Own(wanted) => wanted,
            Decision::Hold(problem) => {
                return Err(described.failure(Class::Held, &problem).until(ask_again_at));
            }
        };
        self.accounts.note(key, |account| {
            account.decision = Some(account::of_taints(&wanted))
        });
        let at = self.clock.now_seconds();
        let added = self.connections.time_added(&primary.reference, at).await;
        let plan = |primary: &Object, added| {
            let mut known = self.known.lock();
            let written = (Arc::clone(&key.policy), primary.reference.clone());
            let contention = known.contention.entry(written).or_default();
            taints::plan(key, primary, rule, &wanted, added, (contention, at))
        };
        let mut outcome = self.apply(key, plan(primary, added)?, seen).await;
        let mut left = taken(&mut outcome);
        if let Some(untimed) =
            left.take_if(|left| added == TimeAdded::SetByCluster && taints::untimed(left, rule))
        {
            self.connections.left_without_time(&primary.reference).await;
            let timed = self
                .apply(key, plan(&untimed, TimeAdded::SetByUs(at))?, seen)
                .await;
            outcome.steps.extend(timed.steps);
            outcome.stopped = timed.stopped;
            left = taken(&mut outcome);
        }
        if outcome.steps.iter().any(|step| step.result.is_ok()) {
            // The state after the write counts as seen. When it is not known, another writer may have changed the
            // primary meanwhile, and its state may look as it did before the write: reconcile again.
            seen.last_seen = left.map(Arc::from);
            let unknown = seen.last_seen.is_none() && outcome.failure().is_none();
            if unknown && !self.accounts.are_only_asked() {
                self.push(key, Queued::Reconcile(Cause::Undecided), None);
            }
        }
        Ok(Success {
            gone: false,
            outcome,
            kept: None,
            ask_again_at: seen.ask_again_at,
        })
    }
}

/// The primary as the last write left it, where that is known.
fn taken(outcome: &mut Outcome) -> Option<Box<Object>> {
    outcome
        .steps
        .iter_mut()
        .rev()
        .find_map(|step| step.left.take())
}
