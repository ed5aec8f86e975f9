//! Checks where the credential of a kubeconfig may go.

use super::Checked;
use crate::kubeconfig::url;
use crate::policy::ReadRule;
use crate::policy::check::{at_most, unique};
use crate::policy::manifest::PolicyError;
use crate::projection::path::{Path, Segment};
use crate::reference::dns;
use std::net::IpAddr;
use transom_api::policy::bounds::{self, FEW};
use transom_api::policy::{AddressGrant, KubeconfigGrant};

/// Checks where the credential of a kubeconfig may go.
pub(in crate::world) fn destinations(
    field: &str,
    grant: &KubeconfigGrant,
    reads: &[ReadRule],
) -> Checked<()> {
    let has = |role: &str, kind: &str| {
        reads
            .iter()
            .any(|rule| rule.role == role && rule.kind == kind && rule.api_version == "v1")
    };
    for (index, server) in grant.server.iter().enumerate() {
        if let Some(why) = fault_of_server(server, |role| has(role, "Service")) {
            return Err(PolicyError::new(format!("{field}.server[{index}]"), why));
        }
    }
    for (index, role) in grant.ca.iter().enumerate() {
        if !has(role, "Secret") {
            return Err(PolicyError::new(
                format!("{field}.ca[{index}]"),
                "is not the role of a Secret",
            ));
        }
    }
    addresses(field, &grant.addresses, reads)?;
    for (name, list) in [("server", &grant.server), ("ca", &grant.ca)] {
        if list.is_empty() && (name == "ca" || grant.addresses.is_empty()) {
            return Err(PolicyError::new(
                format!("{field}.{name}"),
                "is empty, so nothing could be written",
            ));
        }
        at_most(&format!("{field}.{name}"), list, FEW)?;
    }
    unique(
        &format!("{field}.credentials"),
        grant.credentials.iter().map(|kind| format!("{kind:?}")),
    )?;
    match dns::is_subdomain(&grant.cluster_domain) {
        true => Ok(()),
        false => Err(PolicyError::new(
            format!("{field}.clusterDomain"),
            "is not a DNS subdomain",
        )),
    }
}

/// What is wrong with a granted server, if anything.
fn fault_of_server(server: &str, is_service: impl Fn(&str) -> bool) -> Option<String> {
    match server.contains("://") {
        true if server.len() > bounds::PLACE => Some("is longer than 1024 bytes".to_owned()),
        true if server.contains('*') => {
            Some("has a `*`: expected one exact URL, patterns are not supported".to_owned())
        }
        true => url::server(server)
            .err()
            .map(|why| format!("is {why}; expected one exact URL")),
        false if server == "source" || is_service(server) => None,
        false => {
            Some("is neither the role of a Service, nor `source`, nor an exact URL".to_owned())
        }
    }
}

fn addresses(field: &str, grants: &[AddressGrant], reads: &[ReadRule]) -> Checked<()> {
    at_most(&format!("{field}.addresses"), grants, FEW)?;
    for (index, grant) in grants.iter().enumerate() {
        if let Some((name, why)) = fault_of_form(grant, reads).or_else(|| fault_of_parts(grant)) {
            let field = format!("{field}.addresses[{index}]{name}");
            return Err(PolicyError::new(field, why));
        }
    }
    Ok(())
}

/// A field of a grant, and what is wrong with it.
type GrantFault = (&'static str, &'static str);

/// Whether an address grant has exactly one form, with the role of that form.
fn fault_of_form(grant: &AddressGrant, reads: &[ReadRule]) -> Option<GrantFault> {
    let role = grant.role.as_ref();
    let role = role.map(|role| reads.iter().find(|rule| rule.role == *role));
    let is = |rule: &ReadRule, kind: &str| rule.api_version == "v1" && rule.kind == kind;
    match (
        grant.node_port,
        grant.load_balancer,
        &grant.field,
        &grant.primary_field,
    ) {
        (true, false, None, None) | (false, true, None, None) => match role {
            Some(Some(rule)) if is(rule, "Service") => None,
            _ => Some((".role", "is not the role of a Service")),
        },
        (false, false, Some(_), None) => match role {
            Some(Some(rule)) if !is(rule, "Secret") => None,
            _ => {
                let why = "is not the role of an object whose fields may be read";
                Some((".role", why))
            }
        },
        (false, false, None, Some(_)) if role.is_some() => {
            Some((".role", "cannot be used with `primaryField`"))
        }
        (false, false, None, Some(_)) => None,
        _ => Some((
            "",
            "must have exactly one of `nodePort`, `loadBalancer`, `field` and `primaryField`",
        )),
    }
}

/// Whether an address grant has the fields of its form, and no others.
fn fault_of_parts(grant: &AddressGrant) -> Option<GrantFault> {
    let host = grant.host.as_deref();
    if grant.node_port != host.is_some_and(is_host) || !grant.node_port && host.is_some() {
        let why = "must be a host, an address, or `*.` and a domain of two parts or more, and only with `nodePort`";
        return Some((".host", why));
    }
    let path = grant.field.as_ref().or(grant.primary_field.as_ref());
    if grant.port == Some(0) || grant.port.is_some() && path.is_none() {
        return Some((".port", "is not a valid port, or is used without a field"));
    }
    let is_field = |segment: &Segment| matches!(segment, Segment::Field(_));
    let is_plain =
        |path: &String| Path::parse(path).is_ok_and(|path| path.segments().iter().all(is_field));
    let name = match grant.field {
        Some(_) => ".field",
        None => ".primaryField",
    };
    let is_wrong = path.is_some_and(|path| !is_plain(path));
    is_wrong.then_some((name, "is not the path of a field"))
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix("*.") {
        Some(domain) => {
            dns::is_subdomain(domain) && domain.contains('.') && domain.parse::<IpAddr>().is_err()
        }
        None => dns::is_subdomain(host) || host.parse::<IpAddr>().is_ok(),
    }
}
