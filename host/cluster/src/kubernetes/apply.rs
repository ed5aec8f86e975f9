//! Performs a plan on an API server, one request per step, and merges each answer into the cache at once.

use super::Kubernetes;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::outcome::{Outcome, StepOutcome, WriteFailure};
use transom_core::plan::{Plan, Step};

impl Kubernetes {
    /// Performs the steps of a plan in order, each only if its object is as it was read; stops at the first failure.
    pub async fn apply(&self, plan: Plan) -> Outcome {
        let mut outcome = Outcome::default();
        for step in plan.steps {
            let (target, kind) = (step.target().clone(), step.kind());
            let (result, left) = match self.perform(&plan.policy, &step).await {
                Ok(left) => (Ok(()), left.map(Box::new)),
                Err(failure) => (Err(failure), None),
            };
            let failed = result.is_err();
            outcome.steps.push(StepOutcome {
                target,
                kind,
                result,
                left,
            });
            if failed {
                break;
            }
        }
        outcome
    }

    async fn perform(&self, policy: &str, step: &Step) -> Result<Option<Object>, WriteFailure> {
        let target = step.target();
        let asking = self.shared.asking(target);
        match self.writer.perform(policy, step).await {
            Ok(Some(object)) => {
                match step {
                    // The object waits for its finalizers; listeners are told.
                    Step::Delete { .. } => self.shared.took(&object, &asking),
                    _ => self.shared.wrote(&object, &asking),
                }
                let now = self.shared.known(target).and_then(Result::ok).flatten();
                Ok(now.filter(|now| now.version == object.version))
            }
            Ok(None) => {
                if let Step::Delete { version, .. } = step {
                    self.shared.gone(target, version, &asking);
                }
                Ok(None)
            }
            Err(failure) => {
                if failure.reason == KnownReason::WriteConflict {
                    // Lets the next reconcile start from the present object, even if the watch lags. If this read
                    // fails, that reconcile reads again.
                    let _ = self.read_fresh(target).await;
                }
                Err(failure)
            }
        }
    }
}
