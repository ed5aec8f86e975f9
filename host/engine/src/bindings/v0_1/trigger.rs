//! The trigger guest: its functions, and the conversion of their arguments and answers.

use super::wit;
use crate::call::CallState;
use crate::case::{self, GivenCase, timed};
use crate::guest::{Find, Function, Guest};
use crate::limits::CallLimits;
use crate::load::Exports;
use crate::measure::{Lift, Lower};
use crate::run::Call;
use generated::exports::transom::policy::trigger;
use serde_json::{Value, json};
use transom_core::contract::{Change, Context, Primary, Readiness, Timed, TriggerVerdict};
use wasmtime::component::Instance;
use wasmtime::{Result as WasmResult, Store};

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit/released/0.1.0",
        inline: "
            package transom:host;
            world trigger {
                export transom:policy/trigger@0.1.0;
            }
        ",
        with: { "transom:policy/types@0.1.0": crate::bindings::v0_1::generated::transom::policy::types },
    });
}

/// The functions of a trigger guest.
pub(crate) struct Functions {
    /// Returns whether a primary may be reconciled.
    ready: Function<(wit::Context, wit::Primary), trigger::ReadyAnswer>,
    /// Returns a verdict on a change.
    evaluate: Function<(wit::Context, trigger::Change), trigger::Verdict>,
}

impl Functions {
    pub(crate) fn locate(find: &Find<'_>) -> Result<Self, String> {
        let interface = find.interface("trigger");
        Ok(Self {
            ready: find.function(&interface, "ready")?,
            evaluate: find.function(&interface, "evaluate")?,
        })
    }

    /// Compares the types of both functions with the contract.
    pub(crate) fn check(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> WasmResult<()> {
        self.ready.check(store, instance)?;
        self.evaluate.check(store, instance).map(drop)
    }

    /// Asks the one question of a case of the guest; the error says what is wrong with the case.
    pub(crate) fn ask(&self, guest: &Guest, given: &mut GivenCase) -> Result<Call<Value>, String> {
        let (limits, context) = (CallLimits::default(), given.context()?);
        if let Some(change) = given.take::<Change>("change")? {
            let change = case::declared(guest, &change.after.reference)?.cut_change(change);
            let verdict = guest.evaluate(&limits, &context, &change);
            return Ok(verdict.map(|verdict| json!(verdict)));
        }
        let primary = given.primary(guest)?;
        let primary = primary.ok_or("neither `primary` nor `change` is given")?;
        let ready = guest.ready(&limits, &context, &primary);
        Ok(ready.map(|answer| timed("readiness", &answer)))
    }
}

impl Guest {
    /// Asks a trigger guest whether a primary may be reconciled.
    pub fn ready(
        &self,
        limits: &CallLimits,
        context: &Context,
        primary: &Primary,
    ) -> Call<Timed<Readiness>> {
        let Exports::Trigger(Functions { ready, .. }) = self.exports() else {
            return self.wrong_world();
        };
        self.call(
            limits,
            ready,
            |lower| (lower.context(context), lower.primary(primary)),
            Lift::readiness,
        )
    }

    /// Asks a trigger guest for a verdict on a change.
    pub fn evaluate(
        &self,
        limits: &CallLimits,
        context: &Context,
        change: &Change,
    ) -> Call<TriggerVerdict> {
        let Exports::Trigger(Functions { evaluate, .. }) = self.exports() else {
            return self.wrong_world();
        };
        self.call(
            limits,
            evaluate,
            |lower| (lower.context(context), lower.change(change)),
            Lift::verdict,
        )
    }
}

impl Lower {
    fn change(&mut self, change: &Change) -> trigger::Change {
        trigger::Change {
            before: self.primary(&change.before),
            after: self.primary(&change.after),
            changed: self.list(&change.changed, |lower, path| lower.text(path)),
        }
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

    fn verdict(&mut self, verdict: trigger::Verdict) -> TriggerVerdict {
        match verdict {
            trigger::Verdict::Run(reasons) => {
                if reasons.is_empty() {
                    self.breaks("it answered `run` without a reason".to_owned());
                }
                TriggerVerdict::Run(self.list(reasons, Self::reason))
            }
            trigger::Verdict::Ignore => TriggerVerdict::Ignore,
        }
    }
}
