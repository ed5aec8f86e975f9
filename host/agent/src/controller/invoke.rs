//! Stage 5, invoke: asks the guest what it wants. A call blocks the thread that it is on; the pool sees to it that a
//! hanging guest does not hold up other policies.

use crate::controller::gather::{Gathered, ObservedState};
use crate::controller::{Admitted, Controller, Ended};
use std::sync::Arc;
use transom_core::catalogue::guest::GuestFacts;
use transom_core::contract::{Context, Timed};
use transom_core::failure::Failure;
use transom_core::requirements;
use transom_core::world::Answer;
use transom_engine::Question;

/// What the guest wants, unchecked.
pub(super) struct Proposed {
    /// What was read.
    pub(super) gathered: Gathered,
    /// The answer; `None` when the primary is gone, and no guest was asked.
    pub(super) answer: Option<Box<dyn Answer>>,
}

impl Controller {
    /// Calls the decide guest. If the primary is gone, it calls no guest.
    pub(super) fn invoke(&self, gathered: Gathered) -> Result<Proposed, Box<Ended>> {
        let Some(observed) = &gathered.observed else {
            return Ok(Proposed {
                gathered,
                answer: None,
            });
        };
        let key = &gathered.admitted.work.key;
        match self.ask(&gathered.admitted, observed, observed.as_of) {
            Err(failure) => Err(gathered.touched.end(failure)),
            Ok(Timed {
                answer,
                ask_again_at,
            }) => {
                self.accounts.decided(key, || answer.shown());
                let mut gathered = gathered;
                gathered.touched.ask_again(ask_again_at);
                Ok(Proposed {
                    gathered,
                    answer: Some(answer),
                })
            }
        }
    }

    /// Asks the guest that decides, as of this time.
    pub(super) fn ask(
        &self,
        admitted: &Admitted,
        observed: &ObservedState,
        now_seconds: i64,
    ) -> Result<Timed<Box<dyn Answer>>, Failure> {
        let loaded = &admitted.loaded;
        let (guest, described) = (&loaded.decide, &loaded.revision.decide);
        let question = Question {
            context: &self.context_at(described, now_seconds),
            object: &observed.primary,
            primary: &observed.view,
            described,
            inputs: &observed.inputs,
        };
        guest
            .decide(&loaded.limits, &question)
            .and_then(|call| self.answer(loaded, &admitted.work.key, guest.decides_by(), call))
            .and_then(|answered| {
                let data = self.template_data(&observed.primary);
                let policy = &loaded.revision.policy;
                answered.map_err(|refusal| requirements::refused(policy, &data, described, refusal))
            })
    }

    /// What a guest is given beside its arguments.
    pub(super) fn context(&self, guest: &GuestFacts) -> Context {
        self.context_at(guest, self.clock.now_seconds())
    }

    fn context_at(&self, guest: &GuestFacts, now_seconds: i64) -> Context {
        Context {
            now_seconds,
            settings: Arc::clone(&guest.settings),
            agent: self.facts.clone(),
        }
    }
}
