//! What every guest has: the functions that describe it, and the conversion of what all worlds share (description,
//! context, references, primary, problems).

use super::generated::exports::transom::policy::guest;
use super::wit;
use crate::call::CallState;
use crate::guest::{Find, Function};
use crate::measure::{Lift, Lower};
use transom_core::contract::decide::{LabelOperator, LabelTerm, Review, Who};
use transom_core::contract::description::{DeclaredReason, Description, Read};
use transom_core::contract::{Context, GuestRefusal, Primary, Problem};
use transom_core::reference::ObjectRef;
use wasmtime::component::Instance;
use wasmtime::{Result as WasmResult, Store};

/// The functions that every guest has.
pub(crate) struct About {
    /// Returns the guest's self-description.
    pub(crate) describe: Function<(), guest::Description>,
    /// Takes settings, returns what is wrong with them.
    pub(crate) validate: Function<(String,), Vec<wit::Problem>>,
}

impl About {
    pub(crate) fn locate(find: &Find<'_>) -> Result<Self, String> {
        let interface = find.interface("guest");
        Ok(Self {
            describe: find.function(&interface, "describe")?,
            validate: find.function(&interface, "validate")?,
        })
    }

    /// Compares the types of both functions with the contract.
    pub(crate) fn check(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> WasmResult<()> {
        self.describe.check(store, instance)?;
        self.validate.check(store, instance).map(drop)
    }
}

impl Lower {
    pub(super) fn context(&mut self, context: &Context) -> wit::Context {
        wit::Context {
            now_seconds: context.now_seconds,
            settings: self.text(&context.settings),
            agent: wit::Agent {
                cluster_name: self.text(&context.agent.cluster_name),
                self_managed: context.agent.self_managed,
            },
        }
    }

    pub(in crate::bindings) fn reference(&mut self, reference: &ObjectRef) -> wit::ObjectRef {
        wit::ObjectRef {
            cluster: self.text(&reference.cluster),
            api_version: self.text(&reference.api_version),
            kind: self.text(&reference.kind),
            namespace: self.maybe(reference.namespace.as_deref()),
            name: self.text(&reference.name),
        }
    }

    pub(super) fn primary(&mut self, primary: &Primary) -> wit::Primary {
        wit::Primary {
            reference: self.reference(&primary.reference),
            uid: self.text(&primary.uid),
            created_seconds: primary.created_seconds,
            deleting: primary.deleting,
            fields: self.json(&primary.fields),
        }
    }
}

impl Lift<'_> {
    pub(in crate::bindings) fn reference(&mut self, reference: wit::ObjectRef) -> ObjectRef {
        ObjectRef {
            cluster: self.text(reference.cluster),
            api_version: self.text(reference.api_version),
            kind: self.text(reference.kind),
            namespace: self.maybe(reference.namespace),
            name: self.text(reference.name),
        }
    }

    pub(super) fn problem(&mut self, problem: wit::Problem) -> Problem {
        Problem {
            reason: self.reason(problem.reason),
            message: self.sentence(problem.message),
            field: problem.field.map(|field| self.sentence(field)),
        }
    }

    pub(in crate::bindings) fn label_term(&mut self, term: wit::LabelTerm) -> LabelTerm {
        LabelTerm {
            key: self.text(term.key),
            operator: match term.operator {
                wit::Operator::In => LabelOperator::In,
                wit::Operator::NotIn => LabelOperator::NotIn,
                wit::Operator::Exists => LabelOperator::Exists,
                wit::Operator::DoesNotExist => LabelOperator::DoesNotExist,
            },
            values: self.list(term.values, Self::text),
        }
    }

    pub(in crate::bindings) fn review(&mut self, review: wit::Review) -> Review {
        Review {
            who: match review.who {
                wit::Who::Requester => Who::Requester,
                wit::Who::Agent => Who::Agent,
            },
            verb: self.text(review.verb),
            group: self.text(review.group),
            resource: self.text(review.resource),
            subresource: self.maybe(review.subresource),
            namespace: self.maybe(review.namespace),
            name: self.maybe(review.name),
        }
    }

    /// Why a guest waits, and for which objects.
    pub(super) fn waiting(&mut self, waiting: wit::Waiting) -> (Problem, Vec<ObjectRef>) {
        let problem = self.problem(waiting.problem);
        (problem, self.list(waiting.objects, Self::reference))
    }

    fn refusal(&mut self, failure: wit::Failure) -> GuestRefusal {
        match failure {
            wit::Failure::Waiting(waiting) => {
                let (problem, objects) = self.waiting(waiting);
                GuestRefusal::Waiting(problem, objects)
            }
            wit::Failure::Missing(problem) => GuestRefusal::Missing(self.problem(problem)),
            wit::Failure::Invalid(problem) => GuestRefusal::Invalid(self.problem(problem)),
        }
    }

    /// An answer, or why there is none.
    pub(super) fn answer<A, T>(
        &mut self,
        answer: Result<A, wit::Failure>,
        lift: impl FnOnce(&mut Self, A) -> T,
    ) -> Result<T, GuestRefusal> {
        match answer {
            Ok(answer) => Ok(lift(self, answer)),
            Err(failure) => Err(self.refusal(failure)),
        }
    }

    pub(crate) fn description(&mut self, description: guest::Description) -> Description {
        Description {
            name: self.text(description.name),
            version: self.text(description.version),
            reads: self.list(description.reads, Self::read),
            reasons: self.list(description.reasons, Self::declared_reason),
            settings_schema: self.text(description.settings_schema),
            grant: self.suggested_grant(description.grant),
        }
    }

    pub(crate) fn objections(&mut self, problems: Vec<wit::Problem>) -> Vec<Problem> {
        self.list(problems, Self::problem)
    }

    fn read(&mut self, read: guest::Read) -> Read {
        Read {
            api_version: self.text(read.api_version),
            kind: self.text(read.kind),
            fields: self.list(read.fields, Self::text),
            changes: self.list(read.changes, Self::text),
        }
    }

    fn declared_reason(&mut self, reason: guest::Reason) -> DeclaredReason {
        DeclaredReason {
            name: self.text(reason.name),
            meaning: self.sentence(reason.meaning),
            remedy: self.sentence(reason.remedy),
        }
    }
}
