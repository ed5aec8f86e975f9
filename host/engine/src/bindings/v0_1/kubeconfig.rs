//! The kubeconfig world: its functions, and the conversion of their arguments and answers.

mod credentials;
mod services;

use super::{Binding, Decide, decided, wit};
use crate::call::CallState;
use crate::case::{GivenCase, inputs, outcome, timed};
use crate::guest::{Decided, Find, Function, Guest, Question};
use crate::limits::CallLimits;
use crate::measure::{Lift, Lower};
use crate::run::Call;
use generated::exports::transom::policy::kubeconfig as wit_kubeconfig;
use generated::transom::policy::{
    credentials as wit_credentials, proposals as wit_proposals, services as wit_services,
};
use serde_json::{Value, json};
use std::sync::Arc;
use transom_core::contract::decide::{
    Absence, Form, Input, InputValue, KubeconfigAnswer, Need, Requirement, Wake,
};
use transom_core::contract::{Context, GuestRefusal, Primary, Timed};
use transom_core::failure::Failure;
use transom_core::world::{KUBECONFIG, World};
use wasmtime::component::Instance;
use wasmtime::{Result as WasmResult, Store};

pub(in crate::bindings) mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit/released/0.1.0",
        inline: "
            package transom:host;
            world kubeconfig {
                export transom:policy/kubeconfig@0.1.0;
            }
        ",
        with: { "transom:policy/types@0.1.0": crate::bindings::v0_1::generated::transom::policy::types },
    });
}

/// The binding of this world.
pub(in crate::bindings) const BINDING: &dyn Binding = &Kubeconfig;

struct Kubeconfig;

impl Binding for Kubeconfig {
    fn world(&self) -> &'static dyn World {
        KUBECONFIG
    }

    fn locate(&self, find: &Find<'_>) -> Result<Arc<dyn Decide>, String> {
        let interface = find.interface("kubeconfig");
        Ok(Arc::new(Functions {
            require: find.function(&interface, "require")?,
            transform: find.function(&interface, "transform")?,
        }))
    }
}

struct Functions {
    /// Returns where the result goes, and what must be read for it.
    require: Function<Arguments, Required>,
    /// Returns the kubeconfig.
    transform: Function<Arguments, Transformed>,
}

impl Decide for Functions {
    fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> WasmResult<()> {
        self.require.check(store, instance)?;
        self.transform.check(store, instance).map(drop)
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
            |lower| lower.for_kubeconfig(context, primary, found),
            Lift::requirement,
        )
    }

    fn decides_by(&self) -> &'static str {
        "transform"
    }

    fn decide(
        &self,
        guest: &Guest,
        limits: &CallLimits,
        question: &Question<'_>,
    ) -> Result<Call<Decided>, Failure> {
        let call = guest.transform(limits, question.context, question.primary, question.inputs);
        Ok(call.map(decided))
    }

    fn ask(&self, guest: &Guest, given: &mut GivenCase) -> Result<Call<Value>, String> {
        let (limits, context) = (CallLimits::default(), given.context()?);
        let primary = given.primary(guest)?.ok_or("`primary` is missing")?;
        if let Some(found) = given.take("found")? {
            let found = inputs(guest, &context, &primary, found)?;
            let call = guest.require(&limits, &context, &primary, &found);
            return Ok(call.map(|answer| outcome(&answer, |required| json!(required))));
        }
        let given = given.take("inputs")?;
        let given = given.ok_or("neither `found` nor `inputs` is given")?;
        let inputs = inputs(guest, &context, &primary, given)?;
        let call = guest.transform(&limits, &context, &primary, &inputs);
        Ok(call.map(|answer| outcome(&answer, |answer| timed("kubeconfig", answer))))
    }
}

impl Guest {
    /// Asks a kubeconfig guest for the kubeconfig.
    pub fn transform(
        &self,
        limits: &CallLimits,
        context: &Context,
        primary: &Primary,
        inputs: &[Input],
    ) -> Call<Result<KubeconfigAnswer, GuestRefusal>> {
        let Some(Functions { transform, .. }) = self.functions() else {
            return self.wrong_world();
        };
        self.call(
            limits,
            transform,
            |lower| lower.for_kubeconfig(context, primary, inputs),
            Lift::kubeconfig,
        )
    }
}

type Required = Result<wit_kubeconfig::Requirement, wit::Failure>;
type Transformed = Result<wit_kubeconfig::Answer, wit::Failure>;
/// The arguments of both functions: context, primary, and what was found.
type Arguments = (wit::Context, wit::Primary, Vec<wit_kubeconfig::Input>);

impl Lower {
    fn for_kubeconfig(
        &mut self,
        context: &Context,
        primary: &Primary,
        inputs: &[Input],
    ) -> Arguments {
        (
            self.context(context),
            self.primary(primary),
            self.list(inputs, Self::input),
        )
    }

    fn input(&mut self, input: &Input) -> wit_kubeconfig::Input {
        let value = match &input.value {
            InputValue::Absent => wit_kubeconfig::Value::Absent,
            InputValue::Present => wit_kubeconfig::Value::Present,
            InputValue::Object(fields) => wit_kubeconfig::Value::Object(self.json(fields)),
            InputValue::Service(service) => wit_kubeconfig::Value::Service(self.service(service)),
            InputValue::Kubeconfig(view) => wit_kubeconfig::Value::Kubeconfig(self.source(view)),
            // No guest of this world can ask for another form.
            InputValue::Fresh(_)
            | InputValue::Stale(_)
            | InputValue::Ahead(_)
            | InputValue::Behind(_)
            | InputValue::Unsure(_)
            | InputValue::Every(_)
            | InputValue::Outcome(_)
            | InputValue::FailedWrite(_)
            | InputValue::CertificateRequest(_)
            | InputValue::Secret(_)
            | InputValue::Certificate(_)
            | InputValue::Allowed
            | InputValue::Denied(_)
            | InputValue::Count(_) => wit_kubeconfig::Value::Present,
        };
        wit_kubeconfig::Input {
            role: self.text(&input.role),
            value,
        }
    }
}

impl Lift<'_> {
    fn requirement(&mut self, answer: Required) -> Result<Requirement, GuestRefusal> {
        self.answer(answer, |lift, requirement| Requirement {
            target: Some(lift.reference(requirement.target)),
            targets: Vec::new(),
            needs: lift.list(requirement.needs, Self::need),
        })
    }

    fn kubeconfig(&mut self, answer: Transformed) -> Result<KubeconfigAnswer, GuestRefusal> {
        self.answer(answer, |lift, answer| Timed {
            answer: lift.proposal(answer.kubeconfig),
            ask_again_at: answer.ask_again_at,
        })
    }

    fn need(&mut self, need: wit_kubeconfig::Need) -> Need {
        Need {
            role: self.text(need.role),
            reference: self.reference(need.reference),
            form: match need.form {
                wit_kubeconfig::Form::Presence => Form::Presence,
                wit_kubeconfig::Form::Object => Form::Object,
                wit_kubeconfig::Form::Service => Form::Service,
                wit_kubeconfig::Form::Kubeconfig(key) => Form::Kubeconfig(self.text(key)),
            },
            absence: match need.absence {
                wit_kubeconfig::Absence::Wait(reason) => Absence::Wait(self.reason(reason)),
                wit_kubeconfig::Absence::Fail(reason) => Absence::Fail(self.reason(reason)),
                wit_kubeconfig::Absence::Fine => Absence::Fine,
            },
            wake: Wake::Change,
        }
    }
}
