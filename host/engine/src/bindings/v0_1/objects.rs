//! The objects world: its functions, and the conversion of their arguments and answers.

mod forms;
mod holes;
mod secrets;

use super::{Binding, Decide, decided, wit};
use crate::call::CallState;
use crate::case::{self, GivenCase, outcome};
use crate::guest::{Decided, Find, Function, Guest, Question};
use crate::limits::CallLimits;
use crate::measure::{Lift, Lower};
use crate::run::Call;
use generated::exports::transom::policy::objects as wit_objects;
use generated::transom::policy::inputs;
use serde_json::{Value, json};
use std::sync::Arc;
use transom_core::contract::decide::{Form, Input, InputValue, Need, Requirement};
use transom_core::contract::objects::{Apply, ObjectOwnership, ObjectsAnswer};
use transom_core::contract::{Context, GuestRefusal, Primary, Timed};
use transom_core::failure::Failure;
use transom_core::world::{OBJECTS, World};
use wasmtime::component::{self, Instance};
use wasmtime::{Result as WasmResult, Store};

pub(in crate::bindings) mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit/released/0.1.0",
        inline: "
            package transom:host;
            world objects {
                export transom:policy/objects@0.1.0;
            }
        ",
        with: {
            "transom:policy/types@0.1.0": crate::bindings::v0_1::generated::transom::policy::types,
            "transom:policy/credentials@0.1.0": crate::bindings::v0_1::kubeconfig::generated::transom::policy::credentials,
            "transom:policy/proposals@0.1.0": crate::bindings::v0_1::kubeconfig::generated::transom::policy::proposals,
            "transom:policy/services@0.1.0": crate::bindings::v0_1::kubeconfig::generated::transom::policy::services,
        },
    });
}

/// The binding of this world.
pub(super) const BINDING: &dyn Binding = &ObjectsBinding(V0_1);

/// The world in a generation.
pub(in crate::bindings) struct ObjectsBinding<F>(pub(in crate::bindings) F);

impl<F: Forms> Binding for ObjectsBinding<F> {
    fn world(&self) -> &'static dyn World {
        OBJECTS
    }

    fn locate(&self, find: &Find<'_>) -> Result<Arc<dyn Decide>, String> {
        let interface = find.interface("objects");
        Ok(Arc::new(Functions::<F> {
            require: find.function(&interface, "require")?,
            reconcile: find.function(&interface, "reconcile")?,
        }))
    }
}

/// The forms in which inputs are asked for and cross in a generation: each may add some to those of the one before.
pub(in crate::bindings) trait Forms: Send + Sync + 'static {
    /// One thing that was found.
    type Input: component::Lower;
    /// What `require` answers.
    type Requirement: component::Lift;

    /// Converts what was found.
    fn input(lower: &mut Lower, input: &Input) -> Self::Input;

    /// Converts what is needed.
    fn requirement(lift: &mut Lift<'_>, required: Self::Requirement) -> Requirement;
}

forms! {
    /// The forms of 0.1.
    V0_1: wit_objects, inputs;
    |lift| {}
    |lower| {
        // No guest of this generation can ask for what has such a value.
        InputValue::Behind(_) | InputValue::Unsure(_) | InputValue::FailedWrite(_) => {
            inputs::Value::Present
        },
    }
}

struct Functions<F: Forms> {
    /// Returns what must be read.
    require: Function<Arguments<F>, Result<F::Requirement, wit::Failure>>,
    /// Returns what objects are to say.
    reconcile: Function<Arguments<F>, Reconciled>,
}

/// The arguments of both functions: context, primary, and what was found.
type Arguments<F> = (wit::Context, wit::Primary, Vec<<F as Forms>::Input>);
type Reconciled = Result<wit_objects::Answer, wit::Failure>;

impl<F: Forms> Decide for Functions<F> {
    fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> WasmResult<()> {
        self.require.check(store, instance)?;
        self.reconcile.check(store, instance).map(drop)
    }

    fn require(
        &self,
        guest: &Guest,
        limits: &CallLimits,
        context: &Context,
        primary: &Primary,
        found: &[Input],
    ) -> Call<Result<Requirement, GuestRefusal>> {
        guest.call(
            limits,
            &self.require,
            |lower| Self::arguments(lower, context, primary, found),
            |lift, answer| lift.answer(answer, F::requirement),
        )
    }

    fn decides_by(&self) -> &'static str {
        "reconcile"
    }

    fn decide(
        &self,
        guest: &Guest,
        limits: &CallLimits,
        question: &Question<'_>,
    ) -> Result<Call<Decided>, Failure> {
        let Question {
            context,
            primary,
            inputs,
            ..
        } = *question;
        let call = self.reconcile(guest, limits, context, primary, inputs);
        Ok(call.map(decided))
    }

    fn ask(&self, guest: &Guest, given: &mut GivenCase) -> Result<Call<Value>, String> {
        let (limits, context) = (CallLimits::default(), given.context()?);
        let primary = given.primary(guest)?.ok_or("`primary` is missing")?;
        if let Some(found) = given.take("found")? {
            let found = case::inputs(guest, &context, &primary, found)?;
            let call = guest.require(&limits, &context, &primary, &found);
            return Ok(call.map(|answer| {
                outcome(&answer, |required| {
                    let mut all = json!(required);
                    all["needs"] = required.needs.iter().map(shown).collect();
                    all
                })
            }));
        }
        let given: Vec<Input> = given.take("inputs")?.unwrap_or_default();
        let inputs = case::inputs(guest, &context, &primary, given)?;
        let call = self.reconcile(guest, &limits, &context, &primary, &inputs);
        let shown = |timed: &Timed<ObjectsAnswer>| {
            let mut shown = json!(timed.answer);
            shown["ask-again-at"] = json!(timed.ask_again_at);
            shown
        };
        Ok(call.map(|answer| outcome(&answer, shown)))
    }
}

impl<F: Forms> Functions<F> {
    fn arguments(
        lower: &mut Lower,
        context: &Context,
        primary: &Primary,
        inputs: &[Input],
    ) -> Arguments<F> {
        (
            lower.context(context),
            lower.primary(primary),
            lower.list(inputs, F::input),
        )
    }

    fn reconcile(
        &self,
        guest: &Guest,
        limits: &CallLimits,
        context: &Context,
        primary: &Primary,
        inputs: &[Input],
    ) -> Call<Result<Timed<ObjectsAnswer>, GuestRefusal>> {
        guest.call(
            limits,
            &self.reconcile,
            |lower| Self::arguments(lower, context, primary, inputs),
            Lift::objects,
        )
    }
}

/// A need as cases write it.
fn shown(need: &Need) -> Value {
    let mut shown = json!(need);
    shown["wake"] = json!(need.wake);
    shown
}

impl Lift<'_> {
    fn objects(&mut self, answer: Reconciled) -> Result<Timed<ObjectsAnswer>, GuestRefusal> {
        self.answer(answer, |lift, answer| Timed {
            answer: ObjectsAnswer {
                apply: lift.list(answer.apply, |lift, desired| Apply {
                    object: lift.reference(desired.object),
                    ownership: match desired.ownership {
                        wit_objects::Ownership::Whole => ObjectOwnership::Whole,
                        wit_objects::Ownership::Fields => ObjectOwnership::Fields,
                    },
                    content: lift.text(desired.content),
                    holes: lift.list(desired.holes, Self::filled),
                }),
                remove: lift.list(answer.remove, Self::reference),
                keep_finalizer: answer.keep_finalizer,
                wait: answer.wait.map(|waiting| lift.waiting(waiting)),
            },
            ask_again_at: answer.ask_again_at,
        })
    }
}
