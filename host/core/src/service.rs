//! A Service as its record. Never guesses: a field of the wrong type is named.

use crate::contract::decide::{Protocol, Service, ServicePort};
use crate::failure::InvalidField;
use crate::field::{self, Place};
use crate::object::Object;
use serde_json::Value;

/// Reads a Service.
///
/// # Errors
/// At the first field of the wrong type or with an impossible value.
pub fn view(object: &Object) -> Result<Service, InvalidField> {
    let spec = Place::top(&object.body).map("spec")?;
    let addresses = match spec.get("clusterIPs").list()? {
        listed if listed.is_empty() => spec.get("clusterIP").text()?.into_iter().collect(),
        listed => listed.iter().map(Place::required_text).collect::<Result<Vec<_>, _>>()?,
    };
    Ok(Service {
        reference: object.reference.clone(),
        service_type: spec.get("type").text()?.unwrap_or_else(|| "ClusterIP".to_owned()),
        cluster_ips: addresses,
        external_name: spec.get("externalName").text()?.filter(|name| !name.is_empty()),
        ports: spec.get("ports").list()?.iter().map(port).collect::<Result<_, _>>()?,
    })
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
        app_protocol: place.get("appProtocol").text()?.filter(|name| !name.is_empty()),
    })
}

/// A number or a name, as text; 0 and nothing mean the port itself.
fn target_port(place: &Place<'_>) -> Result<Option<String>, InvalidField> {
    match place.value() {
        Some(Value::Number(_)) => Ok(field::port(place)?.map(|port| port.to_string())),
        _ => Ok(place.text()?.filter(|name| !name.is_empty())),
    }
}
