//! Guests that decide when a primary is reconciled. They are asked only about the primary itself.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::bindings::trigger::exports::transom::policy::trigger as wit;
use crate::{Context, Guest, Primary};

pub use wit::{Change, Readiness, ReadyAnswer, Verdict};

/// A guest that decides when a primary is reconciled.
pub trait Trigger: Guest {
    /// Whether the primary may be reconciled; asked first, whatever caused the reconcile. If not ready: no write and no
    /// prune, the output stays, and the state is `Held` with the reason.
    fn ready(context: &Context<Self::Settings>, primary: &Primary) -> ReadyAnswer;

    /// Whether an update of the primary calls for a reconcile. `Ignore` does not say that the output is right, only
    /// that the outputs for `before` and `after` would be equal; return it only if that holds.
    fn evaluate(context: &Context<Self::Settings>, change: &Change) -> Verdict;
}

impl ReadyAnswer {
    /// The primary may be reconciled.
    pub fn ready() -> Self {
        Self {
            readiness: Readiness::Ready,
            ask_again_at: None,
        }
    }

    /// The primary may not be reconciled: state `Held` with this reason.
    pub fn not_ready(problem: crate::Problem) -> Self {
        Self {
            readiness: Readiness::NotReady(problem),
            ask_again_at: None,
        }
    }
}

impl<T: Trigger> wit::Guest for T {
    fn ready(context: RawContext, primary: Primary) -> ReadyAnswer {
        match Context::read(context) {
            Ok(context) => T::ready(&context, &primary),
            Err(problem) => ReadyAnswer::not_ready(problem),
        }
    }

    fn evaluate(context: RawContext, change: Change) -> Verdict {
        match Context::read(context) {
            Ok(context) => T::evaluate(&context, &change),
            // `ready` will report the problem in the status.
            Err(problem) => Verdict::Run(vec![problem.reason]),
        }
    }
}
