//! Converts the arguments and answers of a trigger guest.

use super::exported::trigger;
use super::wit;
use crate::measure::{Lift, Lower};
use transom_core::contract::{Change, Context, Primary, Readiness, Timed, Verdict};
use wasmtime::component::TypedFunc;

/// Returns whether a primary may be reconciled.
pub(crate) type Ready<'a> =
    TypedFunc<(&'a wit::Context, &'a wit::Primary), (trigger::ReadyAnswer,)>;
/// Returns a verdict on a change.
pub(crate) type Evaluate<'a> =
    TypedFunc<(&'a wit::Context, &'a trigger::Change), (trigger::Verdict,)>;

impl Lower {
    pub(crate) fn for_ready(
        &mut self,
        context: &Context,
        primary: &Primary,
    ) -> (wit::Context, wit::Primary) {
        (self.context(context), self.primary(primary))
    }

    pub(crate) fn for_evaluate(
        &mut self,
        context: &Context,
        change: &Change,
    ) -> (wit::Context, trigger::Change) {
        let change = trigger::Change {
            before: self.primary(&change.before),
            after: self.primary(&change.after),
            changed: self.list(&change.changed, |lower, path| lower.text(path)),
        };
        (self.context(context), change)
    }
}

impl Lift<'_> {
    pub(crate) fn readiness(&mut self, answer: trigger::ReadyAnswer) -> Timed<Readiness> {
        let readiness = match answer.readiness {
            trigger::Readiness::Ready => Readiness::Ready,
            trigger::Readiness::NotReady(problem) => Readiness::NotReady(self.problem(problem)),
        };
        Timed {
            answer: readiness,
            ask_again_at: answer.ask_again_at,
        }
    }

    pub(crate) fn verdict(&mut self, verdict: trigger::Verdict) -> Verdict {
        match verdict {
            trigger::Verdict::Run(reasons) => {
                if reasons.is_empty() {
                    self.breaks("it answered `run` without a reason".to_owned());
                }
                Verdict::Run(self.list(reasons, Self::reason))
            }
            trigger::Verdict::Ignore => Verdict::Ignore,
        }
    }
}
