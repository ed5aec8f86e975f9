//! What a policy may write: Secrets that hold a kubeconfig, or taints of the primary, but not both.

use super::super::manifest::PolicyError;
use super::super::{ReadRule, SecretRule, TaintsRule, Writes};
use super::{Checked, at_most, connection, data_key, pattern, unique};
use crate::contract::taints::MANAGED_CLUSTER;
use crate::kubeconfig::url;
use crate::pattern::template::Names;
use crate::projection::path::{Path, Segment};
use crate::reference::dns;
use std::net::IpAddr;
use transom_api::policy::bounds::{self, FEW, MANY};
use transom_api::policy::{
    AddressGrant, KubeconfigGrant, PolicySpec, PrimarySpec, Verb, WriteGrant,
};

/// Checks that all write grants are of one sort; that sort decides the world of the decide guest.
pub(super) fn writes(spec: &PolicySpec, reads: &[ReadRule], names: &Names) -> Checked<Writes> {
    let mut secrets = Vec::new();
    let mut taints = Vec::new();
    at_most("spec.grant.write", &spec.grant.write, FEW)?;
    for (index, grant) in spec.grant.write.iter().enumerate() {
        let field = format!("spec.grant.write[{index}]");
        connection(&field, &grant.cluster)?;
        unique(
            &format!("{field}.verbs"),
            grant.verbs.iter().map(|verb| format!("{verb:?}")),
        )?;
        match (grant.target, &grant.kubeconfig) {
            (Some(_), None) => taints.push(taints_rule(&field, grant, &spec.primary)?),
            (None, Some(kubeconfig)) => {
                secrets.push(secret_rule(&field, grant, kubeconfig, reads, names)?)
            }
            (Some(_), Some(_)) => {
                return Err(PolicyError::new(
                    format!("{field}.kubeconfig"),
                    "cannot be used with `target: primary`",
                ));
            }
            (None, None) => return Err(unusable(&field, grant)),
        }
    }
    match (secrets.is_empty(), taints.pop(), taints.is_empty()) {
        (false, None, _) => Ok(Writes::Kubeconfig(secrets)),
        (true, Some(rule), true) => Ok(Writes::Taints(rule)),
        (true, None, _) => Err(PolicyError::new(
            "spec.grant.write",
            "is empty: it must grant at least one write",
        )),
        _ => Err(PolicyError::new(
            "spec.grant.write",
            "grants taints and something else; use two policies",
        )),
    }
}

fn unusable(field: &str, grant: &WriteGrant) -> PolicyError {
    if grant.api_version.starts_with("rbac.authorization.k8s.io/") {
        return PolicyError::new(
            format!("{field}.kind"),
            "RBAC kinds cannot be granted: write access to them is cluster-admin access",
        );
    }
    PolicyError::new(
        field,
        "has neither `kubeconfig` nor `target: primary`, so no guest could use it",
    )
}

fn taints_rule(field: &str, grant: &WriteGrant, primary: &PrimarySpec) -> Checked<TaintsRule> {
    let (api_version, kind) = MANAGED_CLUSTER;
    if primary.api_version != api_version || primary.kind != kind {
        return Err(PolicyError::new(
            format!("{field}.target"),
            format!("only a {kind} of {api_version} has taints"),
        ));
    }
    for (name, given) in [
        ("kind", &grant.kind),
        ("namespace", &grant.namespace),
        ("name", &grant.name),
    ] {
        if given.is_some() {
            return Err(PolicyError::new(
                format!("{field}.{name}"),
                "must be absent with `target: primary`",
            ));
        }
    }
    if grant.verbs != [Verb::Patch] {
        return Err(PolicyError::new(
            format!("{field}.verbs"),
            "a primary can only be patched",
        ));
    }
    if grant.fields != ["spec.taints"] {
        return Err(PolicyError::new(
            format!("{field}.fields"),
            "is not [spec.taints]",
        ));
    }
    if grant.taint_keys.is_empty()
        || grant
            .taint_keys
            .iter()
            .any(|key| key.is_empty() || key.chars().count() > bounds::TAINT_KEY)
    {
        return Err(PolicyError::new(
            format!("{field}.taintKeys"),
            "is empty, or has an invalid key",
        ));
    }
    at_most(&format!("{field}.taintKeys"), &grant.taint_keys, MANY)?;
    unique(&format!("{field}.taintKeys"), grant.taint_keys.iter())?;
    Ok(TaintsRule {
        keys: grant.taint_keys.iter().cloned().collect(),
    })
}

fn secret_rule(
    field: &str,
    grant: &WriteGrant,
    kubeconfig: &KubeconfigGrant,
    reads: &[ReadRule],
    names: &Names,
) -> Checked<SecretRule> {
    let required = |name: &str, given: &Option<String>| {
        given
            .clone()
            .ok_or_else(|| PolicyError::new(format!("{field}.{name}"), "is missing"))
    };
    if grant.api_version != "v1" || required("kind", &grant.kind)? != "Secret" {
        return Err(PolicyError::new(
            format!("{field}.kind"),
            "a kubeconfig can be written only to a Secret of v1",
        ));
    }
    if !grant.taint_keys.is_empty() {
        return Err(PolicyError::new(
            format!("{field}.taintKeys"),
            "a Secret has no taints",
        ));
    }
    if grant.verbs.is_empty() || grant.verbs.contains(&Verb::Patch) {
        return Err(PolicyError::new(
            format!("{field}.verbs"),
            "must be some of create, update, delete",
        ));
    }
    let key = match grant.fields.as_slice() {
        [only] => only.strip_prefix("data.").unwrap_or_default(),
        _ => "",
    };
    data_key(&format!("{field}.fields"), key)?;
    destinations(&format!("{field}.kubeconfig"), kubeconfig, reads)?;
    Ok(SecretRule {
        cluster: grant.cluster.clone(),
        namespace: pattern(
            &format!("{field}.namespace"),
            &required("namespace", &grant.namespace)?,
            names,
        )?,
        name: pattern(
            &format!("{field}.name"),
            &required("name", &grant.name)?,
            names,
        )?,
        verbs: grant.verbs.iter().copied().collect(),
        key: key.to_owned(),
        kubeconfig: kubeconfig.clone(),
    })
}

fn destinations(field: &str, grant: &KubeconfigGrant, reads: &[ReadRule]) -> Checked<()> {
    let has = |role: &str, kind: &str| {
        reads
            .iter()
            .any(|rule| rule.role == role && rule.kind == kind && rule.api_version == "v1")
    };
    for (index, server) in grant.server.iter().enumerate() {
        let why = match server.contains("://") {
            true if server.len() > bounds::PLACE => Some("is longer than 1024 bytes".to_owned()),
            true if server.contains('*') => {
                Some("has a `*`: expected one exact URL, patterns are not supported".to_owned())
            }
            true => url::server(server)
                .err()
                .map(|why| format!("is {why}; expected one exact URL")),
            false if server == "source" || has(server, "Service") => None,
            false => {
                Some("is neither the role of a Service, nor `source`, nor an exact URL".to_owned())
            }
        };
        if let Some(why) = why {
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

/// Checks that each address grant has exactly one form, with all fields of that form and no others.
fn addresses(field: &str, grants: &[AddressGrant], reads: &[ReadRule]) -> Checked<()> {
    at_most(&format!("{field}.addresses"), grants, FEW)?;
    for (index, grant) in grants.iter().enumerate() {
        let at = |name: &str, why: &str| {
            Err(PolicyError::new(
                format!("{field}.addresses[{index}]{name}"),
                why,
            ))
        };
        let role = grant
            .role
            .as_ref()
            .map(|role| reads.iter().find(|rule| rule.role == *role));
        let is = |rule: &ReadRule, kind: &str| rule.api_version == "v1" && rule.kind == kind;
        let path = grant.field.as_ref().or(grant.primary_field.as_ref());
        match (
            grant.node_port,
            grant.load_balancer,
            &grant.field,
            &grant.primary_field,
        ) {
            (true, false, None, None) | (false, true, None, None) => match role {
                Some(Some(rule)) if is(rule, "Service") => {}
                _ => return at(".role", "is not the role of a Service"),
            },
            (false, false, Some(_), None) => match role {
                Some(Some(rule)) if !is(rule, "Secret") => {}
                _ => {
                    return at(
                        ".role",
                        "is not the role of an object whose fields may be read",
                    );
                }
            },
            (false, false, None, Some(_)) if role.is_some() => {
                return at(".role", "cannot be used with `primaryField`");
            }
            (false, false, None, Some(_)) => {}
            _ => {
                return at(
                    "",
                    "must have exactly one of `nodePort`, `loadBalancer`, `field` and `primaryField`",
                );
            }
        }
        if grant.node_port != grant.host.as_deref().is_some_and(is_host)
            || !grant.node_port && grant.host.is_some()
        {
            let why = "must be a host, an address, or `*.` and a domain of two parts or more, and only with `nodePort`";
            return at(".host", why);
        }
        if grant.port == Some(0) || grant.port.is_some() && path.is_none() {
            return at(".port", "is not a valid port, or is used without a field");
        }
        let plain = |path: &Path| {
            path.segments()
                .iter()
                .all(|segment| matches!(segment, Segment::Field(_)))
        };
        if path.is_some_and(|path| !Path::parse(path).is_ok_and(|path| plain(&path))) {
            let name = if grant.field.is_some() {
                ".field"
            } else {
                ".primaryField"
            };
            return at(name, "is not the path of a field");
        }
    }
    Ok(())
}

fn is_host(host: &str) -> bool {
    match host.strip_prefix("*.") {
        Some(domain) => {
            dns::is_subdomain(domain) && domain.contains('.') && domain.parse::<IpAddr>().is_err()
        }
        None => dns::is_subdomain(host) || host.parse::<IpAddr>().is_ok(),
    }
}
