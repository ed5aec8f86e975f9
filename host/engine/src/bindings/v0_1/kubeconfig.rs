//! Converts the arguments and answers of a kubeconfig guest.

use super::exported::kubeconfig as wit_kubeconfig;
use super::wit;
use crate::measure::{Lift, Lower};
use transom_core::contract::decide::{
    Absence, Form, Input, InputValue, KubeconfigAnswer, Need, Protocol, Requirement, Service,
    ServicePort,
};
use transom_core::contract::{Context, Primary, Refusal, Timed};
use wasmtime::component::TypedFunc;

/// Returns where the result goes, and what must be read for it.
pub(crate) type Require<'a> =
    TypedFunc<Given<'a>, (Result<wit_kubeconfig::Requirement, wit::Failure>,)>;
/// Returns the kubeconfig.
pub(crate) type Transform<'a> =
    TypedFunc<Given<'a>, (Result<wit_kubeconfig::Answer, wit::Failure>,)>;
/// The arguments of both.
type Given<'a> = (
    &'a wit::Context,
    &'a wit::Primary,
    &'a [wit_kubeconfig::Input],
);

/// The owned arguments of both functions: context, primary, and what was found.
pub(crate) type Arguments = (wit::Context, wit::Primary, Vec<wit_kubeconfig::Input>);

impl Lower {
    pub(crate) fn for_kubeconfig(
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
        };
        wit_kubeconfig::Input {
            role: self.text(&input.role),
            value,
        }
    }

    fn service(&mut self, service: &Service) -> wit_kubeconfig::Service {
        wit_kubeconfig::Service {
            reference: self.reference(&service.reference),
            service_type: self.text(&service.service_type),
            cluster_ips: self.list(&service.cluster_ips, |lower, ip| lower.text(ip)),
            external_name: self.maybe(service.external_name.as_deref()),
            ingress: self.list(&service.ingress, |lower, host| lower.text(host)),
            ports: self.list(&service.ports, Self::port),
        }
    }

    fn port(&mut self, port: &ServicePort) -> wit_kubeconfig::ServicePort {
        wit_kubeconfig::ServicePort {
            name: self.maybe(port.name.as_deref()),
            port: port.port,
            target_port: self.maybe(port.target_port.as_deref()),
            node_port: port.node_port,
            protocol: match port.protocol {
                Protocol::Tcp => wit_kubeconfig::Protocol::Tcp,
                Protocol::Udp => wit_kubeconfig::Protocol::Udp,
                Protocol::Sctp => wit_kubeconfig::Protocol::Sctp,
            },
            app_protocol: self.maybe(port.app_protocol.as_deref()),
        }
    }
}

impl Lift<'_> {
    pub(crate) fn requirement(
        &mut self,
        answer: Result<wit_kubeconfig::Requirement, wit::Failure>,
    ) -> Result<Requirement, Refusal> {
        match answer {
            Ok(requirement) => Ok(Requirement {
                target: self.reference(requirement.target),
                needs: self.list(requirement.needs, Self::need),
            }),
            Err(failure) => Err(self.refusal(failure)),
        }
    }

    pub(crate) fn kubeconfig(
        &mut self,
        answer: Result<wit_kubeconfig::Answer, wit::Failure>,
    ) -> Result<KubeconfigAnswer, Refusal> {
        match answer {
            Ok(answer) => Ok(Timed {
                answer: self.proposal(answer.kubeconfig),
                ask_again_at: answer.ask_again_at,
            }),
            Err(failure) => Err(self.refusal(failure)),
        }
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
        }
    }
}
