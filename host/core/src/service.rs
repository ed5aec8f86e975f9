//! Reads a Service into its record. A field of the wrong type is an error that names it.

use crate::contract::decide::{Protocol, Service, ServicePort};
use crate::failure::InvalidField;
use crate::object::Object;
use crate::object::field::{self, Place};
use serde_json::Value;

/// Reads a Service.
///
/// # Errors
/// At the first field of the wrong type or with an impossible value.
pub fn view(object: &Object) -> Result<Service, InvalidField> {
    let spec = Place::top(&object.body).map("spec")?;
    let addresses = match spec.get("clusterIPs").list()? {
        listed if listed.is_empty() => spec.get("clusterIP").text()?.into_iter().collect(),
        listed => listed
            .iter()
            .map(Place::required_text)
            .collect::<Result<Vec<_>, _>>()?,
    };
    Ok(Service {
        reference: object.reference.clone(),
        service_type: spec
            .get("type")
            .text()?
            .unwrap_or_else(|| "ClusterIP".to_owned()),
        cluster_ips: addresses,
        external_name: spec
            .get("externalName")
            .text()?
            .filter(|name| !name.is_empty()),
        ingress: ingress(&Place::top(&object.body).map("status")?)?,
        ports: spec
            .get("ports")
            .list()?
            .iter()
            .map(port)
            .collect::<Result<_, _>>()?,
    })
}

/// Host names and addresses of the load balancer, in order.
fn ingress(status: &Place<'_>) -> Result<Vec<String>, InvalidField> {
    let mut all = Vec::new();
    for entry in status.map("loadBalancer")?.get("ingress").list()? {
        let entry = entry.as_map()?;
        for field in ["hostname", "ip"] {
            all.extend(entry.get(field).text()?.filter(|text| !text.is_empty()));
        }
    }
    Ok(all)
}

fn port(place: &Place<'_>) -> Result<ServicePort, InvalidField> {
    let place = place.as_map()?;
    let protocol = match place.get("protocol").text()?.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(_) => return Err(place.get("protocol").not("TCP, UDP or SCTP")),
    };
    let number = place.get("port");
    Ok(ServicePort {
        name: place.get("name").text()?.filter(|name| !name.is_empty()),
        port: field::port(&number)?.ok_or_else(|| number.not("a port"))?,
        target_port: target_port(&place.get("targetPort"))?,
        node_port: field::port(&place.get("nodePort"))?,
        protocol,
        app_protocol: place
            .get("appProtocol")
            .text()?
            .filter(|name| !name.is_empty()),
    })
}

/// A number or a name, as text; `None` for 0 or absent, which mean the port itself.
fn target_port(place: &Place<'_>) -> Result<Option<String>, InvalidField> {
    match place.value() {
        Some(Value::Number(_)) => Ok(field::port(place)?.map(|port| port.to_string())),
        _ => Ok(place.text()?.filter(|name| !name.is_empty())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;
    use crate::sample::object;
    use serde_json::json;

    fn read(spec: Value) -> Result<Service, InvalidField> {
        let reference = ObjectRef::local("v1", "Service", Some("clusters-demo"), "kube-apiserver");
        view(&object(reference, json!({"spec": spec})))
    }

    #[test]
    fn reads_an_entire_service() {
        let service = read(json!({
            "type": "NodePort", "clusterIPs": ["10.0.0.1", "fd00::1"], "clusterIP": "10.0.0.1",
            "ports": [
                {"name": "client", "port": 6443, "targetPort": "client", "nodePort": 31000, "appProtocol": "https"},
                {"port": 53, "targetPort": 5353, "protocol": "UDP", "nodePort": 0, "name": ""},
            ],
        }))
        .unwrap();
        assert_eq!(service.service_type, "NodePort");
        assert_eq!(service.cluster_ips, ["10.0.0.1", "fd00::1"]);
        let client = ServicePort {
            name: Some("client".to_owned()),
            port: 6443,
            target_port: Some("client".to_owned()),
            node_port: Some(31000),
            protocol: Protocol::Tcp,
            app_protocol: Some("https".to_owned()),
        };
        let dns = ServicePort {
            name: None,
            port: 53,
            target_port: Some("5353".to_owned()),
            node_port: None,
            protocol: Protocol::Udp,
            app_protocol: None,
        };
        assert_eq!(service.ports, [client, dns]);
    }

    #[test]
    fn absent_fields_have_defaults() {
        for spec in [
            json!(null),
            json!({}),
            json!({"ports": null, "clusterIP": null}),
        ] {
            let service = read(spec).unwrap();
            assert_eq!(
                (
                    service.service_type.as_str(),
                    service.ports.len(),
                    service.cluster_ips.len()
                ),
                ("ClusterIP", 0, 0)
            );
        }
        assert_eq!(
            read(json!({"clusterIP": "None"})).unwrap().cluster_ips,
            ["None"]
        );
    }

    #[test]
    fn a_load_balancer_has_names_and_addresses() {
        let reference = ObjectRef::local("v1", "Service", Some("clusters-demo"), "kube-apiserver");
        let ingress = |status: Value| {
            let service = view(&object(reference.clone(), json!({"status": status})));
            service
                .map(|service| service.ingress)
                .map_err(|invalid| invalid.path)
        };
        let both = json!({"loadBalancer": {"ingress": [{"hostname": "lb.example.com", "ip": ""}, {"ip": "192.0.2.1"}]}});
        assert_eq!(
            ingress(both),
            Ok(vec!["lb.example.com".to_owned(), "192.0.2.1".to_owned()])
        );
        for none in [
            json!(null),
            json!({}),
            json!({"loadBalancer": null}),
            json!({"loadBalancer": {"ingress": []}}),
        ] {
            assert_eq!(ingress(none), Ok(vec![]));
        }
        for (status, path) in [
            (json!([]), "status"),
            (json!({"loadBalancer": 1}), "status.loadBalancer"),
            (
                json!({"loadBalancer": {"ingress": ["x"]}}),
                "status.loadBalancer.ingress[0]",
            ),
            (
                json!({"loadBalancer": {"ingress": [{"ip": 1}]}}),
                "status.loadBalancer.ingress[0].ip",
            ),
        ] {
            assert_eq!(ingress(status), Err(path.to_owned()));
        }
    }

    #[test]
    fn wrong_types_are_named() {
        for (spec, path) in [
            (json!("x"), "spec"),
            (json!({"type": 1}), "spec.type"),
            (json!({"clusterIPs": "x"}), "spec.clusterIPs"),
            (json!({"clusterIPs": [1]}), "spec.clusterIPs[0]"),
            (json!({"ports": {}}), "spec.ports"),
            (json!({"ports": ["x"]}), "spec.ports[0]"),
            (json!({"ports": [{}]}), "spec.ports[0].port"),
            (json!({"ports": [{"port": 0}]}), "spec.ports[0].port"),
            (
                json!({"ports": [{"port": 1}, {"port": 65536}]}),
                "spec.ports[1].port",
            ),
            (json!({"ports": [{"port": "6443"}]}), "spec.ports[0].port"),
            (
                json!({"ports": [{"port": 1, "targetPort": true}]}),
                "spec.ports[0].targetPort",
            ),
            (
                json!({"ports": [{"port": 1, "protocol": "tcp"}]}),
                "spec.ports[0].protocol",
            ),
        ] {
            assert_eq!(
                read(spec.clone()).map_err(|invalid| invalid.path),
                Err(path.to_owned()),
                "{spec}"
            );
        }
    }
}
