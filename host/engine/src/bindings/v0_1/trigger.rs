//! The trigger guest: its functions, and the conversion of their arguments and answers.

use super::wit;
use crate::call::CallState;
use crate::guest::Guest;
use crate::limits::Limits;
use crate::load::{Exports, Find, Function};
use crate::measure::{Lift, Lower};
use crate::run::Call;
use generated::exports::transom::policy::trigger;
use transom_core::contract::{Change, Context, Primary, Readiness, Timed, Verdict};
use wasmtime::component::{Instance, TypedFunc};
use wasmtime::{Result as WasmResult, Store};

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package transom:host;
            world trigger {
                export transom:policy/trigger@0.1.0;
            }
        ",
        with: { "transom:policy/types@0.1.0": crate::bindings::v0_1::generated::transom::policy::types },
    });
}

const INTERFACE: &str = "transom:policy/trigger@0.1.0";

/// The functions of a trigger guest.
pub(crate) struct Functions {
    ready: Function,
    evaluate: Function,
}

impl Functions {
    pub(crate) fn locate(find: &Find<'_>) -> Result<Self, String> {
        Ok(Self {
            ready: find.function(INTERFACE, "ready")?,
            evaluate: find.function(INTERFACE, "evaluate")?,
        })
    }

    /// Compares the types of both functions with the contract.
    pub(crate) fn check(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> WasmResult<()> {
        let _: Ready<'_> = instance.get_typed_func(&mut *store, self.ready)?;
        let _: Evaluate<'_> = instance.get_typed_func(&mut *store, self.evaluate)?;
        Ok(())
    }
}

impl Guest {
    /// Asks a trigger guest whether a primary may be reconciled.
    pub fn ready(
        &self,
        limits: &Limits,
        context: &Context,
        primary: &Primary,
    ) -> Call<Timed<Readiness>> {
        let Exports::Trigger(Functions { ready, .. }) = self.exports() else {
            return self.wrong_world();
        };
        self.call(
            limits,
            |lower| lower.for_ready(context, primary),
            |store, instance, (context, primary)| {
                let asked: Ready<'_> = instance.get_typed_func(&mut *store, ready)?;
                Ok(asked.call(store, (&context, &primary))?.0)
            },
            Lift::readiness,
        )
    }

    /// Asks a trigger guest for a verdict on a change.
    pub fn evaluate(&self, limits: &Limits, context: &Context, change: &Change) -> Call<Verdict> {
        let Exports::Trigger(Functions { evaluate, .. }) = self.exports() else {
            return self.wrong_world();
        };
        self.call(
            limits,
            |lower| lower.for_evaluate(context, change),
            |store, instance, (context, change)| {
                let asked: Evaluate<'_> = instance.get_typed_func(&mut *store, evaluate)?;
                Ok(asked.call(store, (&context, &change))?.0)
            },
            Lift::verdict,
        )
    }
}

/// Returns whether a primary may be reconciled.
type Ready<'a> = TypedFunc<(&'a wit::Context, &'a wit::Primary), (trigger::ReadyAnswer,)>;
/// Returns a verdict on a change.
type Evaluate<'a> = TypedFunc<(&'a wit::Context, &'a trigger::Change), (trigger::Verdict,)>;

impl Lower {
    fn for_ready(&mut self, context: &Context, primary: &Primary) -> (wit::Context, wit::Primary) {
        (self.context(context), self.primary(primary))
    }

    fn for_evaluate(
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
    fn readiness(&mut self, answer: trigger::ReadyAnswer) -> Timed<Readiness> {
        let readiness = match answer.readiness {
            trigger::Readiness::Ready => Readiness::Ready,
            trigger::Readiness::NotReady(problem) => Readiness::NotReady(self.problem(problem)),
        };
        Timed {
            answer: readiness,
            ask_again_at: answer.ask_again_at,
        }
    }

    fn verdict(&mut self, verdict: trigger::Verdict) -> Verdict {
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
