//! The world of tests: its functions, and the conversion of their arguments and answers. Only with the feature `facts`.

use super::{Binding, Decide, decided, wit};
use crate::call::CallState;
use crate::guest::{Decided, Guest, Question};
use crate::limits::Limits;
use crate::load::{Find, Function};
use crate::run::Call;
use generated::exports::transom::facts::facts as wit_facts;
use std::sync::Arc;
use transom_core::contract::decide::{Input, Requirement};
use transom_core::contract::{Context, Primary, Refusal, Timed};
use transom_core::failure::Failure;
use transom_core::world::{FACTS, Facts, World};
use wasmtime::component::{Instance, TypedFunc};
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
        with: { "transom:policy/types@0.1.0": crate::bindings::v0_1::generated::transom::policy::types },
    });
}

const INTERFACE: &str = "transom:facts/facts@0.1.0";

/// The binding of this world.
pub(super) const BINDING: &dyn Binding = &FactsBinding;

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
    require: Function,
    state: Function,
}

impl Decide for Functions {
    fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> WasmResult<()> {
        let _: Require<'_> = instance.get_typed_func(&mut *store, self.require)?;
        let _: State<'_> = instance.get_typed_func(&mut *store, self.state)?;
        Ok(())
    }

    fn require(
        &self,
        guest: &Guest,
        limits: &Limits,
        context: &Context,
        primary: &Primary,
        _found: &[Input],
    ) -> Call<Result<Requirement, Refusal>> {
        guest.call(
            limits,
            |lower| (lower.context(context), lower.primary(primary)),
            |store, instance, (context, primary)| {
                let asked: Require<'_> = instance.get_typed_func(&mut *store, self.require)?;
                Ok(asked.call(store, (&context, &primary))?.0)
            },
            |lift, answer| match answer {
                Ok(target) => Ok(Requirement {
                    target: lift.reference(target),
                    needs: Vec::new(),
                }),
                Err(failure) => Err(lift.refusal(failure)),
            },
        )
    }

    fn decides_by(&self) -> &'static str {
        "state"
    }

    fn decide(
        &self,
        guest: &Guest,
        limits: &Limits,
        question: &Question<'_>,
    ) -> Result<Call<Decided>, Failure> {
        let call = guest.call(
            limits,
            |lower| {
                let context = lower.context(question.context);
                (context, lower.primary(question.primary))
            },
            |store, instance, (context, primary)| {
                let asked: State<'_> = instance.get_typed_func(&mut *store, self.state)?;
                Ok(asked.call(store, (&context, &primary))?.0)
            },
            |lift, answer| match answer {
                Ok(answer) => Ok(Timed {
                    answer: Facts {
                        region: lift.text(answer.region),
                        version: lift.text(answer.version),
                    },
                    ask_again_at: answer.ask_again_at,
                }),
                Err(failure) => Err(lift.refusal(failure)),
            },
        );
        Ok(call.map(decided))
    }
}

/// Returns the object to write.
type Require<'a> = TypedFunc<Given<'a>, (Result<wit::ObjectRef, wit::Failure>,)>;
/// Returns the facts.
type State<'a> = TypedFunc<Given<'a>, (Result<wit_facts::Answer, wit::Failure>,)>;
/// The arguments of both.
type Given<'a> = (&'a wit::Context, &'a wit::Primary);
