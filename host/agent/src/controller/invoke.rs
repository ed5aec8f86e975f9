//! Stage 5, invoke: asks the guest what it wants. A call blocks the thread that it is on; the pool sees to it that a
//! hanging guest does not hold up other policies.

use crate::controller::gather::Gathered;
use crate::controller::{Controller, Ended};
use std::sync::Arc;
use transom_core::catalogue::guest::Guest;
use transom_core::contract::{Context, Timed};
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
    /// Asks the guest that decides; nobody is asked about a primary that is gone.
    pub(super) fn invoke(&self, gathered: Gathered) -> Result<Proposed, Box<Ended>> {
        let Some(subject) = &gathered.subject else {
            return Ok(Proposed {
                gathered,
                answer: None,
            });
        };
        let loaded = &gathered.admitted.loaded;
        let (guest, described) = (&loaded.decide, &loaded.revision.decide);
        let key = &gathered.admitted.work.key;
        let question = Question {
            context: &self.context(described),
            object: &subject.primary,
            primary: &subject.view,
            described,
            inputs: &subject.inputs,
        };
        let asked = guest
            .decide(&loaded.limits, &question)
            .and_then(|call| self.answer(loaded, key, guest.decides_by(), call))
            .and_then(|answered| {
                let data = self.template_data(&subject.primary);
                let policy = &loaded.revision.policy;
                answered.map_err(|refusal| requirements::refused(policy, &data, described, refusal))
            });
        match asked {
            Err(failure) => Err(gathered.touched.end(failure)),
            Ok(Timed {
                answer,
                ask_again_at,
            }) => {
                self.accounts.decided(key, answer.shown());
                let mut gathered = gathered;
                gathered.touched.ask_again(ask_again_at);
                Ok(Proposed {
                    gathered,
                    answer: Some(answer),
                })
            }
        }
    }

    /// What a guest is given beside its arguments.
    pub(super) fn context(&self, guest: &Guest) -> Context {
        Context {
            now_seconds: self.clock.now_seconds(),
            settings: Arc::clone(&guest.settings),
            agent: self.facts.clone(),
        }
    }
}
