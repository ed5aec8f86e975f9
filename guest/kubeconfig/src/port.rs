//! Finds the port of the Service that clients use. It is no node port, because the address is inside the cluster.

use crate::reasons;
use crate::settings::{Port, PortChoice};
use transom_guest::Problem;
use transom_guest::kubeconfig::{Protocol, Service, ServicePort};

/// The port of the API server.
///
/// With a name in the settings: the TCP port of that name. Without: the first of these rules that fits exactly one TCP
/// port number: it is the only one; it is named `client`; it is named `https`; its application protocol is `https`; its
/// target is `client`; its target is `https`. If none fits, the port is ambiguous.
pub(crate) fn choose(setting: &Port, service: &Service) -> Result<u16, Problem> {
    let ports = || {
        service
            .ports
            .iter()
            .filter(|port| port.protocol == Protocol::Tcp)
    };
    let Some(first) = ports().next() else {
        return Err(reasons::SERVICE_WITHOUT_PORTS
            .problem("Service kube-apiserver has no TCP port")
            .at("spec.ports"));
    };
    if let Some(wanted) = &setting.name {
        return ports()
            .find(|port| port.name.as_ref() == Some(wanted))
            .map(|port| port.port)
            .ok_or_else(|| {
                let message = [
                    "Service kube-apiserver has no TCP port named `",
                    wanted,
                    "`",
                ]
                .concat();
                reasons::SERVICE_PORT_MISSING
                    .problem(message)
                    .at("spec.ports")
            });
    }
    if setting.choice == PortChoice::First {
        return Ok(first.port);
    }
    RULES
        .iter()
        .find_map(|rule| only(ports().filter(|port| rule(port)).map(|port| port.port)))
        .ok_or_else(|| {
            let message =
                "which port of Service kube-apiserver is the one of clients cannot be told";
            reasons::SERVICE_PORT_AMBIGUOUS
                .problem(message)
                .at("spec.ports")
        })
}

const RULES: [fn(&ServicePort) -> bool; 6] = [
    |_| true,
    |port| port.name.as_deref() == Some("client"),
    |port| port.name.as_deref() == Some("https"),
    |port| {
        port.app_protocol
            .as_deref()
            .is_some_and(|protocol| protocol.eq_ignore_ascii_case("https"))
    },
    |port| port.target_port.as_deref() == Some("client"),
    |port| port.target_port.as_deref() == Some("https"),
];

/// The value of an iterator whose items are all equal, else `None`.
fn only<T: PartialEq>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.all(|item| item == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(port: u16, name: Option<&str>, target: Option<&str>, app: Option<&str>) -> ServicePort {
        ServicePort {
            name: name.map(Into::into),
            port,
            target_port: target.map(Into::into),
            app_protocol: app.map(Into::into),
            ..ServicePort::default()
        }
    }

    fn chosen(setting: &Port, ports: &[ServicePort]) -> Result<u16, String> {
        let service = Service {
            ports: ports.to_vec(),
            ..Service::default()
        };
        choose(setting, &service).map_err(|problem| problem.reason)
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
    fn rules_apply_in_order() {
        let other = || port(9090, Some("metrics"), Some("9090"), None);
        let detect = Port::default();
        let cases = [
            (vec![port(443, None, None, None)], Ok(443)),
            (
                vec![
                    other(),
                    port(1, Some("client"), None, None),
                    port(2, Some("https"), None, None),
                ],
                Ok(1),
            ),
            (
                vec![
                    other(),
                    port(2, Some("https"), None, None),
                    port(3, Some("a"), None, Some("https")),
                ],
                Ok(2),
            ),
            (
                vec![
                    other(),
                    port(3, Some("a"), None, Some("https")),
                    port(4, Some("b"), Some("client"), None),
                ],
                Ok(3),
            ),
            (
                vec![other(), port(4, Some("b"), Some("client"), None)],
                Ok(4),
            ),
            (
                vec![
                    port(4, Some("b"), Some("client"), None),
                    port(5, Some("c"), Some("https"), None),
                ],
                Ok(4),
            ),
            (
                vec![other(), port(5, Some("c"), Some("https"), None)],
                Ok(5),
            ),
            (
                vec![other(), port(7, Some("a"), None, Some("HTTPS"))],
                Ok(7),
            ),
            (
                vec![
                    port(8, Some("a"), None, None),
                    port(8, Some("b"), None, None),
                ],
                Ok(8),
            ),
            // Two ports that fit one rule decide nothing; the next rule does.
            (
                vec![
                    port(5, Some("a"), Some("client"), Some("https")),
                    port(6, Some("b"), Some("1"), Some("https")),
                ],
                Ok(5),
            ),
            (
                vec![other(), port(6443, Some("api"), Some("8443"), None)],
                Err("ServicePortAmbiguous"),
            ),
            (vec![], Err("ServiceWithoutPorts")),
        ];
        for (ports, expected) in cases {
            assert_eq!(
                chosen(&detect, &ports),
                expected.map_err(str::to_owned),
                "{ports:?}"
            );
        }
    }

    #[test]
    fn only_tcp_counts() {
        let udp = ServicePort {
            protocol: Protocol::Udp,
            ..port(1, Some("client"), None, None)
        };
        assert_eq!(
            chosen(&Port::default(), std::slice::from_ref(&udp)),
            Err("ServiceWithoutPorts".into())
        );
        assert_eq!(
            chosen(&Port::default(), &[udp, port(2, Some("x"), None, None)]),
            Ok(2)
        );
    }

    #[test]
    fn settings_override_the_rules() {
        let ports = [
            port(1, Some("client"), None, None),
            port(2, Some("api"), None, None),
        ];
        let named = |name: &str| Port {
            name: Some(name.into()),
            ..Port::default()
        };
        assert_eq!(chosen(&named("api"), &ports), Ok(2));
        assert_eq!(
            chosen(&named("none"), &ports),
            Err("ServicePortMissing".into())
        );
        let first = Port {
            choice: PortChoice::First,
            name: None,
        };
        assert_eq!(chosen(&first, &[ports[1].clone(), ports[0].clone()]), Ok(2));
    }
}
