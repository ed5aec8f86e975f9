//! The objects world: its functions, and the conversion of their arguments and answers.

mod holes;
mod secrets;

use super::{Binding, Decide, decided, wit};
use crate::call::CallState;
use crate::case::{self, Given, outcome};
use crate::guest::{Decided, Find, Function, Guest, Question};
use crate::limits::Limits;
use crate::measure::{Lift, Lower};
use crate::run::Call;
use generated::exports::transom::policy::objects as wit_objects;
use generated::transom::policy::{forms, inputs};
use serde_json::{Value, json};
use std::sync::Arc;
use transom_core::contract::decide::{
    Absence, Age, CertificateRequest, Form, Input, InputValue, Member, Need, Query, RequestContent,
    Requirement, Wake,
};
use transom_core::contract::objects::{Apply, Objects, Ownership};
use transom_core::contract::{Context, Primary, Refusal, Timed};
use transom_core::failure::Failure;
use transom_core::world::{OBJECTS, World};
use wasmtime::component::Instance;
use wasmtime::{Result as WasmResult, Store};

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit",
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

const INTERFACE: &str = "transom:policy/objects@0.1.0";

/// The binding of this world.
pub(super) const BINDING: &dyn Binding = &ObjectsBinding;

struct ObjectsBinding;

impl Binding for ObjectsBinding {
    fn world(&self) -> &'static dyn World {
        OBJECTS
    }

    fn locate(&self, find: &Find<'_>) -> Result<Arc<dyn Decide>, String> {
        Ok(Arc::new(Functions {
            require: find.function(INTERFACE, "require")?,
            reconcile: find.function(INTERFACE, "reconcile")?,
        }))
    }
}

struct Functions {
    /// Returns what must be read.
    require: Function<Arguments, Required>,
    /// Returns what objects are to say.
    reconcile: Function<Arguments, Reconciled>,
}

/// The arguments of both functions: context, primary, and what was found.
type Arguments = (wit::Context, wit::Primary, Vec<inputs::Input>);
type Required = Result<wit_objects::Requirement, wit::Failure>;
type Reconciled = Result<wit_objects::Answer, wit::Failure>;

impl Decide for Functions {
    fn check(&self, store: &mut Store<CallState>, instance: &Instance) -> WasmResult<()> {
        self.require.check(store, instance)?;
        self.reconcile.check(store, instance).map(drop)
    }

    fn require(
        &self,
        guest: &Guest,
        limits: &Limits,
        context: &Context,
        primary: &Primary,
        found: &[Input],
    ) -> Call<Result<Requirement, Refusal>> {
        guest.call(
            limits,
            &self.require,
            |lower| lower.for_objects(context, primary, found),
            Lift::required,
        )
    }

    fn decides_by(&self) -> &'static str {
        "reconcile"
    }

    fn decide(
        &self,
        guest: &Guest,
        limits: &Limits,
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

    fn ask(&self, guest: &Guest, given: &mut Given) -> Result<Call<Value>, String> {
        let (limits, context) = (Limits::default(), given.context()?);
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
        let shown = |timed: &Timed<Objects>| {
            let mut shown = json!(timed.answer);
            shown["ask-again-at"] = json!(timed.ask_again_at);
            shown
        };
        Ok(call.map(|answer| outcome(&answer, shown)))
    }
}

impl Functions {
    fn reconcile(
        &self,
        guest: &Guest,
        limits: &Limits,
        context: &Context,
        primary: &Primary,
        inputs: &[Input],
    ) -> Call<Result<Timed<Objects>, Refusal>> {
        guest.call(
            limits,
            &self.reconcile,
            |lower| lower.for_objects(context, primary, inputs),
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

impl Lower {
    fn for_objects(&mut self, context: &Context, primary: &Primary, inputs: &[Input]) -> Arguments {
        let input = |lower: &mut Self, input: &Input| inputs::Input {
            role: lower.text(&input.role),
            value: match &input.value {
                InputValue::Object(fields) => inputs::Value::Object(lower.json(fields)),
                InputValue::Absent => inputs::Value::Absent,
                InputValue::Fresh(until) => inputs::Value::Fresh(*until),
                InputValue::Stale(since) => inputs::Value::Stale(*since),
                InputValue::Ahead(until) => inputs::Value::Ahead(*until),
                InputValue::Every(members) => {
                    inputs::Value::Every(lower.list(members, Self::member))
                }
                InputValue::Outcome(outcome) => inputs::Value::Outcome(inputs::Outcome {
                    state: lower.text(&outcome.state),
                    reason: lower.text(&outcome.reason),
                    since_seconds: outcome.since_seconds,
                    failures: outcome.failures,
                }),
                InputValue::CertificateRequest(request) => {
                    inputs::Value::CertificateRequest(lower.certificate_request(request))
                }
                InputValue::Secret(bytes) => {
                    inputs::Value::Secret(lower.list(bytes, Self::secret_bytes))
                }
                InputValue::Certificate(content) => {
                    inputs::Value::Certificate(lower.certificate(content))
                }
                InputValue::Allowed => inputs::Value::Allowed,
                InputValue::Denied(why) => inputs::Value::Denied(lower.text(why)),
                InputValue::Count(number) => inputs::Value::Count(*number),
                InputValue::Present => inputs::Value::Present,
                InputValue::Service(service) => inputs::Value::Service(lower.service(service)),
                InputValue::Kubeconfig(view) => inputs::Value::Kubeconfig(lower.source(view)),
            },
        };
        (
            self.context(context),
            self.primary(primary),
            self.list(inputs, input),
        )
    }

    fn texts(&mut self, texts: &[String]) -> Vec<String> {
        self.list(texts, |lower, text| lower.text(text))
    }

    fn certificate_request(&mut self, request: &CertificateRequest) -> inputs::CertificateRequest {
        inputs::CertificateRequest {
            signer: self.text(&request.signer),
            requester: self.text(&request.requester),
            groups: self.texts(&request.groups),
            usages: self.texts(&request.usages),
            seconds: request.seconds,
            content: match &request.content {
                RequestContent::Readable(requested) => {
                    forms::RequestContent::Readable(forms::Requested {
                        common_name: self.maybe(requested.common_name.as_deref()),
                        organisations: self.texts(&requested.organisations),
                        other_subject: self.texts(&requested.other_subject),
                        names: self.texts(&requested.names),
                        key: self.text(&requested.key),
                        key_bits: requested.key_bits,
                    })
                }
                RequestContent::Malformed(why) => forms::RequestContent::Malformed(self.text(why)),
            },
        }
    }

    fn member(&mut self, member: &Member) -> inputs::Member {
        inputs::Member {
            namespace: self.maybe(member.namespace.as_deref()),
            name: self.text(&member.name),
            fields: self.json(&member.fields),
        }
    }
}

impl Lift<'_> {
    fn required(&mut self, answer: Required) -> Result<Requirement, Refusal> {
        self.answer(answer, |lift, required| Requirement {
            target: None,
            targets: lift.list(required.targets, Self::reference),
            needs: lift.list(required.needs, Self::need_of_object),
        })
    }

    fn need_of_object(&mut self, need: inputs::Need) -> Need {
        Need {
            role: self.text(need.role),
            reference: self.reference(need.reference),
            form: match need.form {
                inputs::Form::Presence => Form::Presence,
                inputs::Form::Object => Form::Object,
                inputs::Form::Service => Form::Service,
                inputs::Form::Kubeconfig(key) => Form::Kubeconfig(self.text(key)),
                inputs::Form::Age(age) => Form::Age(Age {
                    field: self.text(age.field),
                    seconds: age.seconds,
                }),
                inputs::Form::Every(query) => Form::Every(Query {
                    labels: self.list(query.labels, Self::label_term),
                    names_only: query.names_only,
                    terminating: query.terminating,
                }),
                inputs::Form::Outcome => Form::Outcome,
                inputs::Form::CertificateRequest => Form::CertificateRequest,
                inputs::Form::Secret(keys) => Form::Secret(self.list(keys, Self::text)),
                inputs::Form::Certificate(keys) => Form::Certificate(self.certificate_keys(keys)),
                inputs::Form::Access(review) => Form::Access(self.review(review)),
                inputs::Form::Count(labels) => Form::Count(self.list(labels, Self::label_term)),
            },
            absence: match need.absence {
                inputs::Absence::Wait(reason) => Absence::Wait(self.reason(reason)),
                inputs::Absence::Fail(reason) => Absence::Fail(self.reason(reason)),
                inputs::Absence::Fine => Absence::Fine,
            },
            wake: match need.wake {
                inputs::Wake::Change => Wake::Change,
                inputs::Wake::Presence => Wake::Presence,
                inputs::Wake::Never => Wake::Never,
            },
        }
    }

    fn objects(&mut self, answer: Reconciled) -> Result<Timed<Objects>, Refusal> {
        self.answer(answer, |lift, answer| Timed {
            answer: Objects {
                apply: lift.list(answer.apply, |lift, desired| Apply {
                    object: lift.reference(desired.object),
                    ownership: match desired.ownership {
                        wit_objects::Ownership::Whole => Ownership::Whole,
                        wit_objects::Ownership::Fields => Ownership::Fields,
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
