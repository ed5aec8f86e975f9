//! Checks what a policy says for sense and turns it into its checked form. Never loads a component.

use super::manifest::{Manifest, PolicyError};
use super::{Policy, ReadRule, SecretRule, SubjectRule, TaintsRule, Writes};
use crate::contract::taints::MANAGED_CLUSTER;
use crate::dns;
use crate::pattern::Pattern;
use std::collections::BTreeSet;
use std::fmt::Display;
use transom_api::policy::{
    GrantSpec, GuestSpec, KubeconfigGrant, PolicySpec, ReadGrant, SubjectSpec, Verb, WriteGrant,
};

type Checked<T> = Result<T, PolicyError>;

/// Checks a policy.
///
/// # Errors
/// At the first field that makes no sense, with its path.
pub fn policy(manifest: Manifest) -> Checked<Policy> {
    let Manifest { name, spec } = manifest;
    if name.len() > 63 || !dns::is_subdomain(&name) {
        return Err(PolicyError::new("metadata.name", "is not a DNS subdomain of at most 63 bytes"));
    }
    let subject = subject(&spec.subject)?;
    guest("spec.guests.decide", &spec.guests.decide)?;
    if let Some(trigger) = &spec.guests.trigger {
        guest("spec.guests.trigger", trigger)?;
    }
    let reads = reads(&spec.grant)?;
    let writes = writes(&spec, &reads)?;
    keepers(&spec, &reads, &writes)?;
    Ok(Policy {
        name: name.into(),
        suspend: spec.suspend,
        subject,
        trigger: spec.guests.trigger,
        decide: spec.guests.decide,
        reads,
        writes,
        own: spec.own,
        audit_seconds: spec.audit_seconds,
    })
}

fn subject(spec: &SubjectSpec) -> Checked<SubjectRule> {
    object("spec.subject", &spec.cluster, &spec.api_version, &spec.kind)?;
    if spec.kind == "Secret" && spec.api_version == "v1" {
        return Err(PolicyError::new(
            "spec.subject.kind",
            "a Secret cannot be a subject: its fields would cross to guests",
        ));
    }
    if spec.namespaces.is_empty() {
        return Err(PolicyError::new("spec.subject.namespaces", "names no namespace"));
    }
    let mut namespaces = Vec::new();
    for (index, text) in spec.namespaces.iter().enumerate() {
        let field = format!("spec.subject.namespaces[{index}]");
        let parsed = pattern(&field, text)?;
        if parsed.is_template() {
            return Err(PolicyError::new(field, "a subject cannot be found by its own name"));
        }
        namespaces.push(parsed);
    }
    let SubjectSpec { cluster, api_version, kind, .. } = spec.clone();
    Ok(SubjectRule { cluster, api_version, kind, namespaces })
}

fn guest(field: &str, spec: &GuestSpec) -> Checked<()> {
    if spec.component.is_empty() {
        return Err(PolicyError::new(format!("{field}.component"), "names no component"));
    }
    let well_formed = |digest: &String| {
        digest
            .strip_prefix("sha256:")
            .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
    };
    if spec.digest.as_ref().is_some_and(|digest| !well_formed(digest)) {
        return Err(PolicyError::new(format!("{field}.digest"), "is not sha256: and 64 hexadecimal digits"));
    }
    unique(&format!("{field}.capabilities"), spec.capabilities.iter().map(|capability| format!("{capability:?}")))
}

fn reads(grant: &GrantSpec) -> Checked<Vec<ReadRule>> {
    let mut rules: Vec<ReadRule> = Vec::new();
    for (index, spec) in grant.read.iter().enumerate() {
        let field = format!("spec.grant.read[{index}]");
        if rules.iter().any(|rule| rule.role == spec.role) {
            return Err(PolicyError::new(format!("{field}.role"), format!("`{}` stands there twice", spec.role)));
        }
        rules.push(read(&field, spec)?);
    }
    Ok(rules)
}

fn read(field: &str, spec: &ReadGrant) -> Checked<ReadRule> {
    object(field, &spec.cluster, &spec.api_version, &spec.kind)?;
    if !dns::is_label(&spec.role.to_ascii_lowercase()) {
        return Err(PolicyError::new(format!("{field}.role"), "is not a short word of letters, digits and dashes"));
    }
    let secret = spec.kind == "Secret" && spec.api_version == "v1";
    if secret == spec.keys.is_empty() {
        let why = if secret { "a grant of Secrets names the keys that may be read" } else { "only Secrets have keys" };
        return Err(PolicyError::new(format!("{field}.keys"), why));
    }
    if (secret || spec.kind == "Service") && spec.namespace.is_none() {
        return Err(PolicyError::new(format!("{field}.namespace"), "is missing: the kind has namespaces"));
    }
    for (index, key) in spec.keys.iter().enumerate() {
        data_key(&format!("{field}.keys[{index}]"), key)?;
    }
    unique(&format!("{field}.keys"), spec.keys.iter())?;
    Ok(ReadRule {
        role: spec.role.clone(),
        cluster: spec.cluster.clone(),
        api_version: spec.api_version.clone(),
        kind: spec.kind.clone(),
        namespace: spec.namespace.as_ref().map(|text| pattern(&format!("{field}.namespace"), text)).transpose()?,
        name: pattern(&format!("{field}.name"), &spec.name)?,
        keys: spec.keys.iter().cloned().collect(),
    })
}

/// All write grants are of one sort, and that sort says which world the decide guest is built for.
fn writes(spec: &PolicySpec, reads: &[ReadRule]) -> Checked<Writes> {
    let mut secrets = Vec::new();
    let mut taints = Vec::new();
    for (index, grant) in spec.grant.write.iter().enumerate() {
        let field = format!("spec.grant.write[{index}]");
        unique(&format!("{field}.verbs"), grant.verbs.iter().map(|verb| format!("{verb:?}")))?;
        match (grant.target, &grant.kubeconfig) {
            (Some(_), None) => taints.push(taints_rule(&field, grant, &spec.subject)?),
            (None, Some(kubeconfig)) => secrets.push(secret_rule(&field, grant, kubeconfig, reads)?),
            (Some(_), Some(_)) => {
                return Err(PolicyError::new(format!("{field}.kubeconfig"), "a subject is no target for a kubeconfig"));
            }
            (None, None) => return Err(unusable(&field, grant)),
        }
    }
    match (secrets.is_empty(), taints.pop(), taints.is_empty()) {
        (false, None, _) => Ok(Writes::Kubeconfig(secrets)),
        (true, Some(rule), true) => Ok(Writes::Taints(rule)),
        (true, None, _) => Err(PolicyError::new("spec.grant.write", "grants nothing")),
        _ => Err(PolicyError::new("spec.grant.write", "grants taints and something else; that takes two policies")),
    }
}

fn unusable(field: &str, grant: &WriteGrant) -> PolicyError {
    if grant.api_version.starts_with("rbac.authorization.k8s.io/") {
        return PolicyError::new(
            format!("{field}.kind"),
            "RBAC kinds need a rule on values: who may write them is root",
        );
    }
    PolicyError::new(field, "says neither `kubeconfig` nor `target: subject`, so no guest could have it written")
}

fn taints_rule(field: &str, grant: &WriteGrant, subject: &SubjectSpec) -> Checked<TaintsRule> {
    let (api_version, kind) = MANAGED_CLUSTER;
    if subject.api_version != api_version || subject.kind != kind {
        return Err(PolicyError::new(
            format!("{field}.target"),
            format!("only a {kind} of {api_version} carries taints"),
        ));
    }
    for (name, given) in [("kind", &grant.kind), ("namespace", &grant.namespace), ("name", &grant.name)] {
        if given.is_some() {
            return Err(PolicyError::new(format!("{field}.{name}"), "the subject needs no name"));
        }
    }
    if grant.verbs != [Verb::Patch] {
        return Err(PolicyError::new(format!("{field}.verbs"), "a subject can only be patched"));
    }
    if grant.fields != ["spec.taints"] {
        return Err(PolicyError::new(format!("{field}.fields"), "is not [spec.taints]"));
    }
    if grant.taint_keys.is_empty() || grant.taint_keys.iter().any(|key| key.is_empty() || key.len() > 317) {
        return Err(PolicyError::new(format!("{field}.taintKeys"), "names no key, or an impossible one"));
    }
    unique(&format!("{field}.taintKeys"), grant.taint_keys.iter())?;
    Ok(TaintsRule { keys: grant.taint_keys.iter().cloned().collect() })
}

fn secret_rule(
    field: &str,
    grant: &WriteGrant,
    kubeconfig: &KubeconfigGrant,
    reads: &[ReadRule],
) -> Checked<SecretRule> {
    let required = |name: &str, given: &Option<String>| {
        given.clone().ok_or_else(|| PolicyError::new(format!("{field}.{name}"), "is missing"))
    };
    if grant.api_version != "v1" || required("kind", &grant.kind)? != "Secret" {
        return Err(PolicyError::new(
            format!("{field}.kind"),
            "a kubeconfig is written to a Secret of v1 and nothing else",
        ));
    }
    connection(field, &grant.cluster)?;
    if !grant.taint_keys.is_empty() {
        return Err(PolicyError::new(format!("{field}.taintKeys"), "a Secret carries no taints"));
    }
    if grant.verbs.is_empty() || grant.verbs.contains(&Verb::Patch) {
        return Err(PolicyError::new(format!("{field}.verbs"), "are some of create, update, delete"));
    }
    let key = match grant.fields.as_slice() {
        [only] => only.strip_prefix("data.").unwrap_or_default(),
        _ => "",
    };
    data_key(&format!("{field}.fields"), key)?;
    destinations(&format!("{field}.kubeconfig"), kubeconfig, reads)?;
    Ok(SecretRule {
        cluster: grant.cluster.clone(),
        namespace: pattern(&format!("{field}.namespace"), &required("namespace", &grant.namespace)?)?,
        name: pattern(&format!("{field}.name"), &required("name", &grant.name)?)?,
        verbs: grant.verbs.iter().copied().collect(),
        key: key.to_owned(),
        kubeconfig: kubeconfig.clone(),
    })
}

fn destinations(field: &str, grant: &KubeconfigGrant, reads: &[ReadRule]) -> Checked<()> {
    let has = |role: &str, kind: &str| {
        reads.iter().any(|rule| rule.role == role && rule.kind == kind && rule.api_version == "v1")
    };
    for (index, server) in grant.server.iter().enumerate() {
        if server != "source" && !server.contains("://") && !has(server, "Service") {
            return Err(PolicyError::new(
                format!("{field}.server[{index}]"),
                "is no role of a Service, `source` or a URL",
            ));
        }
    }
    for (index, role) in grant.ca.iter().enumerate() {
        if !has(role, "Secret") {
            return Err(PolicyError::new(format!("{field}.ca[{index}]"), "is no role of a Secret"));
        }
    }
    for (name, list) in [("server", &grant.server), ("ca", &grant.ca)] {
        if list.is_empty() {
            return Err(PolicyError::new(
                format!("{field}.{name}"),
                "grants nothing, so that nothing could be written",
            ));
        }
    }
    match dns::is_subdomain(&grant.cluster_domain) {
        true => Ok(()),
        false => Err(PolicyError::new(format!("{field}.clusterDomain"), "is not a DNS subdomain")),
    }
}

/// Roles of `keepUntilAbsent` exist, and the stars of a target's namespace are enough to name their object.
fn keepers(spec: &PolicySpec, reads: &[ReadRule], writes: &Writes) -> Checked<()> {
    let stars = match writes {
        Writes::Kubeconfig(rules) => rules.iter().map(|rule| rule.namespace.stars()).min().unwrap_or_default(),
        Writes::Taints(_) => 0,
    };
    for (index, role) in spec.own.keep_until_absent.iter().enumerate() {
        let field = format!("spec.own.keepUntilAbsent[{index}]");
        let Some(rule) = reads.iter().find(|rule| rule.role == *role) else {
            return Err(PolicyError::new(field, format!("`{role}` is no role of grant.read")));
        };
        if rule.name.stars().max(rule.namespace.as_ref().map_or(0, Pattern::stars)) > stars {
            return Err(PolicyError::new(field, "its name has more stars than the namespace of the target"));
        }
    }
    Ok(())
}

/// Cluster, version and kind of a grant or a subject.
fn object(field: &str, cluster: &str, api_version: &str, kind: &str) -> Checked<()> {
    connection(field, cluster)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("v1", api_version));
    if !dns::is_subdomain(group) || !dns::is_label(version) {
        return Err(PolicyError::new(format!("{field}.apiVersion"), "is not a version, or a group and a version"));
    }
    let camel = kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.chars().all(|letter| letter.is_ascii_alphanumeric());
    if camel { Ok(()) } else { Err(PolicyError::new(format!("{field}.kind"), "is not a kind in CamelCase")) }
}

fn connection(field: &str, cluster: &str) -> Checked<()> {
    match dns::is_label(cluster) {
        true => Ok(()),
        false => Err(PolicyError::new(format!("{field}.cluster"), "is not the name of a connection: a DNS label")),
    }
}

fn pattern(field: &str, text: &str) -> Checked<Pattern> {
    Pattern::parse(text).map_err(|error| PolicyError::new(field, error.to_string()))
}

/// A key as a Secret's data may have it.
fn data_key(field: &str, key: &str) -> Checked<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match !key.is_empty() && key.len() <= 253 && key.bytes().all(allowed) {
        true => Ok(()),
        false => Err(PolicyError::new(field, "does not name one key of a Secret's data")),
    }
}

fn unique<T: Ord + Display>(field: &str, items: impl Iterator<Item = T>) -> Checked<()> {
    let mut seen = BTreeSet::new();
    for item in items {
        let shown = item.to_string();
        if !seen.insert(item) {
            return Err(PolicyError::new(field, format!("`{shown}` stands there twice")));
        }
    }
    Ok(())
}
