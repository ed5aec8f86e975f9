//! Converts what every world shares: context, references, primary, problems.

use super::wit;
use crate::measure::{Lift, Lower};
use transom_core::contract::{Context, Primary, Problem, Refusal};
use transom_core::reference::ObjectRef;

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

    pub(super) fn reference(&mut self, reference: &ObjectRef) -> wit::ObjectRef {
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
    pub(super) fn reference(&mut self, reference: wit::ObjectRef) -> ObjectRef {
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

    pub(super) fn refusal(&mut self, failure: wit::Failure) -> Refusal {
        match failure {
            wit::Failure::Waiting(waiting) => Refusal::Waiting(
                self.problem(waiting.problem),
                self.list(waiting.objects, Self::reference),
            ),
            wit::Failure::Missing(problem) => Refusal::Missing(self.problem(problem)),
            wit::Failure::Invalid(problem) => Refusal::Invalid(self.problem(problem)),
        }
    }
}
