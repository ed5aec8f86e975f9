//! Converts what a guest sees of Services.

use super::wit_services as wit;
use crate::measure::Lower;
use transom_core::contract::decide::{Protocol, Service, ServicePort};

impl Lower {
    pub(in crate::bindings) fn service(&mut self, service: &Service) -> wit::Service {
        wit::Service {
            reference: self.reference(&service.reference),
            service_type: self.text(&service.service_type),
            cluster_ips: self.list(&service.cluster_ips, |lower, ip| lower.text(ip)),
            external_name: self.maybe(service.external_name.as_deref()),
            ingress: self.list(&service.ingress, |lower, host| lower.text(host)),
            ports: self.list(&service.ports, Self::port),
        }
    }

    fn port(&mut self, port: &ServicePort) -> wit::ServicePort {
        wit::ServicePort {
            name: self.maybe(port.name.as_deref()),
            port: port.port,
            target_port: self.maybe(port.target_port.as_deref()),
            node_port: port.node_port,
            protocol: match port.protocol {
                Protocol::Tcp => wit::Protocol::Tcp,
                Protocol::Udp => wit::Protocol::Udp,
                Protocol::Sctp => wit::Protocol::Sctp,
            },
            app_protocol: self.maybe(port.app_protocol.as_deref()),
        }
    }
}
