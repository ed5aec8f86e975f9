//! Guests that decide when a policy is reconciled. Never asked about anything but the primary itself.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::bindings::trigger::exports::transom::policy::trigger as wit;
use crate::{Context, Guest, Primary};

pub use wit::{Change, Readiness, ReadyAnswer, Verdict};

/// A guest that decides when a policy is reconciled.
pub trait Trigger: Guest {
    /// Whether the primary may be reconciled at all; asked first, whatever woke the reconcile.
    /// Not ready: no write and no prune, the output stays, state `Held` with the reason.
    fn ready(context: &Context<Self::Settings>, primary: &Primary) -> ReadyAnswer;

    /// Whether an update of the primary calls for a reconcile. `Ignore` never means that the output is right;
    /// so it must hold that the outputs for `before` and `after` would be equal.
    fn evaluate(context: &Context<Self::Settings>, change: &Change) -> Verdict;
}

impl ReadyAnswer {
    /// Go on.
    pub fn ready() -> Self {
        Self { readiness: Readiness::Ready, ask_again_at: None }
    }

    /// State `Held` with this reason.
    pub fn not_ready(problem: crate::Problem) -> Self {
        Self { readiness: Readiness::NotReady(problem), ask_again_at: None }
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
            // `ready` will say so where a person sees it.
            Err(problem) => Verdict::Run(vec![problem.reason]),
        }
    }
}
