//! Guests that decide when a primary is reconciled. They are asked only about the primary itself.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::{Context, Guest, Primary};
use bindings::exports::transom::policy::trigger as wit;

pub use wit::{Change, Readiness, ReadyAnswer, Verdict};

#[doc(hidden)]
pub use Trigger as World;

/// What wit-bindgen makes of this world.
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package transom:sdk; world trigger { export transom:policy/trigger@0.2.0; }",
        pub_export_macro: true,
        export_macro_name: "export",
        default_bindings_module: "::transom_guest::trigger::bindings",
        runtime_path: "::transom_guest::wit_bindgen::rt",
        additional_derives: [PartialEq, Eq, serde::Serialize, serde::Deserialize],
        additional_type_attributes: {
            "transom:policy/trigger@0.2.0/change": [#[derive(Default)] #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]],
            "transom:policy/trigger@0.2.0/readiness": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/trigger@0.2.0/ready-answer": [#[serde(rename_all = "kebab-case")]],
            "transom:policy/trigger@0.2.0/verdict": [#[serde(rename_all = "kebab-case")]],
        },
        with: { "transom:policy/types@0.2.0": ::transom_guest::bindings::guest::transom::policy::types },
    });
}

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
