//! Which servers a grant names: DNS forms of Services, node ports, load balancers, fields of objects, exact URLs.
//! URLs that reach this point have no userinfo, query or fragment.

use super::destination::Terms;
use super::url;
use crate::contract::credentials::{ClusterView, Url};
use crate::contract::decide::{Protocol, Service, ServicePort};
use crate::projection::path::Path;
use crate::reference::dns;
use serde_json::Value;
use std::net::IpAddr;
use transom_api::policy::{AddressGrant, bounds};

/// The default port of a URL.
const HTTPS: u16 = 443;
/// The most bytes of a URL that an error shows.
const LONGEST: usize = 300;

/// Whether a server is granted for an entry of the source.
pub(super) fn allowed(server: &Url, origin: &ClusterView, terms: &Terms<'_>) -> bool {
    let listed = |granted: &String| match granted.as_str() {
        "source" => *server == origin.server,
        literal if literal.contains("://") => {
            url::server(literal).is_ok_and(|literal| literal == *server)
        }
        role => terms
            .services(role)
            .any(|service| is_form_of(service, server, &terms.grant.cluster_domain)),
    };
    terms.grant.server.iter().any(listed)
        || terms
            .grant
            .addresses
            .iter()
            .any(|granted| reached(granted, server, terms))
}

/// A server for an error message.
pub(super) fn shown(server: &Url) -> String {
    url::write(server)
        .ok()
        .filter(|text| text.len() <= LONGEST)
        .unwrap_or_else(|| "that is not a URL".to_owned())
}

/// What is granted for an entry of the source, for an error message.
pub(super) fn granted(origin: &ClusterView, terms: &Terms<'_>) -> String {
    let listed = |granted: &String| match granted.as_str() {
        "source" => format!("{} of the source", shown(&origin.server)),
        literal if literal.contains("://") => literal.to_owned(),
        role => {
            let services = terms.services(role).map(|service| forms(service, terms));
            match services.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => format!("the Service {role}, which does not exist"),
                services => services,
            }
        }
    };
    let listed = terms.grant.server.iter().map(listed);
    let all = listed.chain(terms.grant.addresses.iter().map(address));
    all.collect::<Vec<_>>().join(", ")
}

fn forms(service: &Service, terms: &Terms<'_>) -> String {
    let ports: Vec<_> = tcp(service).map(|port| port.port.to_string()).collect();
    let namespace = service.reference.namespace.as_deref().unwrap_or_default();
    let (name, domain) = (&service.reference.name, &terms.grant.cluster_domain);
    format!(
        "https://{name}.{namespace}[.svc[.{domain}]]:{}",
        ports.join("|")
    )
}

fn address(granted: &AddressGrant) -> String {
    let role = granted.role.as_deref().unwrap_or_default();
    let host = granted.host.as_deref().unwrap_or_default();
    match (&granted.field, &granted.primary_field) {
        _ if granted.node_port => format!("{host} with a node port of {role}"),
        _ if granted.load_balancer => format!("a load balancer of {role}"),
        (Some(field), _) => format!("`{field}` of {role}"),
        (_, Some(field)) => format!("`{field}` of the primary"),
        _ => "nothing".to_owned(),
    }
}

/// Whether a URL is a DNS form of a Service, with https, one of its ports and no path.
fn is_form_of(service: &Service, server: &Url, cluster_domain: &str) -> bool {
    let namespace = service.reference.namespace.as_deref().unwrap_or_default();
    let name = format!("{}.{namespace}", service.reference.name);
    let form = match server.host.strip_prefix(&name) {
        Some("" | ".svc") => true,
        Some(tail) => tail.strip_prefix(".svc.") == Some(cluster_domain),
        None => false,
    };
    form && is_bare(server) && serves(service, server)
}

fn tcp(service: &Service) -> impl Iterator<Item = &ServicePort> {
    let ports = service.ports.iter();
    ports.filter(|port| port.protocol == Protocol::Tcp)
}

fn serves(service: &Service, server: &Url) -> bool {
    tcp(service).any(|port| port.port == server.port.unwrap_or(HTTPS))
}

/// Whether a URL has https and no path.
fn is_bare(server: &Url) -> bool {
    server.scheme == "https" && server.path.is_empty()
}

/// Whether a server is one that an address grant names.
fn reached(granted: &AddressGrant, server: &Url, terms: &Terms<'_>) -> bool {
    let role = granted.role.as_deref().unwrap_or_default();
    if granted.node_port {
        let of_port = |service: &Service| {
            tcp(service).any(|port| port.node_port.is_some() && port.node_port == server.port)
        };
        let host = granted.host.as_deref();
        let host = host.is_some_and(|pattern| is_host(pattern, &server.host));
        return host && is_bare(server) && terms.services(role).any(of_port);
    }
    if granted.load_balancer {
        let is_host = |ingress: &String| same_host(ingress, &server.host);
        let at = |service: &Service| service.ingress.iter().any(is_host);
        let mut services = terms.services(role);
        return is_bare(server) && services.any(|service| at(service) && serves(service, server));
    }
    let (field, of) = match (&granted.field, &granted.primary_field) {
        (Some(field), _) => (field, terms.objects(role).collect()),
        (None, Some(field)) => (field, vec![terms.primary]),
        (None, None) => return false,
    };
    let Ok(path) = Path::parse(field) else {
        return false;
    };
    let values = of.into_iter().filter_map(|fields| at(fields, &path));
    let mut endpoints = values.filter_map(|value| endpoint(value, granted.port));
    endpoints.any(|endpoint| {
        endpoint.port.unwrap_or(HTTPS) == server.port.unwrap_or(HTTPS)
            && server.scheme == "https"
            && server.path == endpoint.path
            && same_host(&endpoint.host, &server.host)
    })
}

/// Whether a host matches a pattern: the same host, or a name below the domain after `*.`.
fn is_host(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(domain) => {
            host.strip_suffix(domain).is_some_and(dns::is_subdomain)
                && host.parse::<IpAddr>().is_err()
        }
        None => same_host(pattern, host),
    }
}

/// Whether two hosts are the same name (ignoring case) or the same address, however it is spelled.
fn same_host(one: &str, other: &str) -> bool {
    match (one.parse::<IpAddr>(), other.parse::<IpAddr>()) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), Err(_)) => !one.is_empty() && one.eq_ignore_ascii_case(other),
        _ => false,
    }
}

/// The value at a path that leads through maps only.
fn at<'a>(fields: &'a Value, path: &Path) -> Option<&'a Value> {
    let mut keys = path.keys()?.into_iter();
    keys.try_fold(fields, |value, key| value.get(key))
}

/// Reads a field as a URL, a host with or without a port, or a map of `host` and `port`. A text that is longer than a
/// server of a policy may be is none: it would be read again for each cluster of an answer.
fn endpoint(value: &Value, port: Option<u16>) -> Option<Url> {
    let with_port = |mut url: Url| {
        url.port = url.port.or(port);
        url
    };
    match value {
        Value::String(text) if text.len() > bounds::PLACE => None,
        Value::String(text) if text.contains("://") => {
            let url = url::server(text).ok()?;
            (url.scheme == "https").then(|| with_port(url))
        }
        Value::String(text) => {
            let text = match text.parse::<IpAddr>() {
                Ok(IpAddr::V6(address)) => format!("[{address}]"),
                _ => text.clone(),
            };
            let url = url::server(&format!("https://{text}")).ok()?;
            is_bare(&url).then(|| with_port(url))
        }
        Value::Object(map) => {
            let port = match map.get("port") {
                None | Some(Value::Null) => None,
                Some(port) => Some(u16::try_from(port.as_u64()?).ok()?),
            };
            let host = map.get("host")?;
            if host.as_str()?.contains("://") {
                return None;
            }
            let url = endpoint(host, None)?;
            let bare = url.port.is_none() && is_bare(&url);
            bare.then(|| {
                with_port(Url {
                    port: port.filter(|port| *port > 0),
                    ..url
                })
            })
        }
        _ => None,
    }
}
