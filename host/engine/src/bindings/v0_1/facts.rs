//! The world of tests: its functions, and the conversion of their arguments and answers. Only with the feature `facts`.

use super::{Binding, Decide, decided, wit};
use crate::call::CallState;
use crate::case::{GivenCase, outcome, timed};
use crate::guest::{Decided, Find, Function, Guest, Question};
use crate::limits::CallLimits;
use crate::measure::Lift;
use crate::run::Call;
use generated::exports::transom::facts::facts as wit_facts;
use serde_json::{Value, json};
use std::sync::Arc;
use transom_core::contract::decide::{Input, Requirement};
use transom_core::contract::{Context, GuestRefusal, Primary, Timed};
use transom_core::failure::Failure;
use transom_core::world::{FACTS, Facts, World};
use wasmtime::component::Instance;
use wasmtime::{Result as WasmResult, Store};

mod generated {
    wasmtime::component::bindgen!({
        path: ["../../wit", "../../tests/fixtures/facts/wit"],
        inline: "
            package transom:host;
            world facts {
                export transom:facts/facts@0.1.0;
            }
        ",
        with: { "transom:policy/types@0.2.0": crate::bindings::v0_1::generated::transom::policy::types },
    });
}

const INTERFACE: &str = "transom:facts/facts@0.1.0";

/// The binding of this world.
pub(in crate::bindings) const BINDING: &dyn Binding = &FactsBinding;

struct FactsBinding;

impl Binding for FactsBinding {
    fn world(&self) -> &'static dyn World {
        FACTS
    }

    fn locate(&self, find: &Find<'_>) -> Result<Arc<dyn Decide>, String> {
        Ok(Arc::new(Functions {
            require: find.function(INTERFACE, "require")?,
            state: find.function(INTERFACE, "state")?,
        }))
    }
}

struct Functions {
    /// Returns the object to write.
    require: Function<Arguments, Required>,
    /// Returns the facts.
    state: Function<Arguments, Stated>,
}

type Arguments = (wit::Context, wit::Primary);
type Required = Result<wit::ObjectRef, wit::Failure>;
type Stated = Result<wit_facts::Answer, wit::Failure>;

impl Decide for Functions {
    fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> WasmResult<()> {
        self.require.check(store, instance)?;
        self.state.check(store, instance).map(drop)
    }

    fn require(
        &self,
        guest: &Guest,
        limits: &CallLimits,
        context: &Context,
        primary: &Primary,
        _found: &[Input],
    ) -> Call<Result<Requirement, GuestRefusal>> {
        guest.call(
            limits,
            &self.require,
            |lower| (lower.context(context), lower.primary(primary)),
            Lift::published_in,
        )
    }

    fn decides_by(&self) -> &'static str {
        "state"
    }

    fn decide(
        &self,
        guest: &Guest,
        limits: &CallLimits,
        question: &Question<'_>,
    ) -> Result<Call<Decided>, Failure> {
        let call = self.state(guest, limits, question.context, question.primary);
        Ok(call.map(decided))
    }

    fn ask(&self, guest: &Guest, given: &mut GivenCase) -> Result<Call<Value>, String> {
        let context = given.context()?;
        let primary = given.primary(guest)?.ok_or("`primary` is missing")?;
        let call = self.state(guest, &CallLimits::default(), &context, &primary);
        let shown = |facts: &Facts| json!({"region": facts.region, "version": facts.version});
        let shown = |answer: Timed<Facts>| Timed {
            answer: shown(&answer.answer),
            ask_again_at: answer.ask_again_at,
        };
        Ok(call.map(|answer| outcome(&answer.map(shown), |answer| timed("facts", answer))))
    }
}

impl Functions {
    fn state(
        &self,
        guest: &Guest,
        limits: &CallLimits,
        context: &Context,
        primary: &Primary,
    ) -> Call<Result<Timed<Facts>, GuestRefusal>> {
        guest.call(
            limits,
            &self.state,
            |lower| (lower.context(context), lower.primary(primary)),
            Lift::facts,
        )
    }
}

impl Lift<'_> {
    fn published_in(&mut self, answer: Required) -> Result<Requirement, GuestRefusal> {
        self.answer(answer, |lift, target| Requirement {
            target: Some(lift.reference(target)),
            targets: Vec::new(),
            needs: Vec::new(),
        })
    }

    fn facts(&mut self, answer: Stated) -> Result<Timed<Facts>, GuestRefusal> {
        self.answer(answer, |lift, answer| Timed {
            answer: Facts {
                region: lift.text(answer.region),
                version: lift.text(answer.version),
            },
            ask_again_at: answer.ask_again_at,
        })
    }
}
