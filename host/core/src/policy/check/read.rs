//! Checks read grants.

use super::{Checked, at_most, data_key, object, pattern, unique, wrong};
use crate::pattern::template::TemplateNames;
use crate::policy::{EveryRule, ReadRule};
use crate::reference::dns;
use transom_api::policy::bounds::MANY;
use transom_api::policy::{EverySpec, GrantSpec, ReadGrantSpec};

/// The rules of all read grants, each with a role of its own.
pub(super) fn reads(grant: &GrantSpec, names: &TemplateNames) -> Checked<Vec<ReadRule>> {
    at_most("spec.grant.read", &grant.read, MANY)?;
    let mut rules: Vec<ReadRule> = Vec::new();
    for (index, spec) in grant.read.iter().enumerate() {
        let field = format!("spec.grant.read[{index}]");
        if rules.iter().any(|rule| rule.role == spec.role) {
            let why = format!("`{}` is listed twice", spec.role);
            return wrong(format!("{field}.role"), why);
        }
        rules.push(read(&field, spec, names)?);
    }
    Ok(rules)
}

fn read(field: &str, spec: &ReadGrantSpec, names: &TemplateNames) -> Checked<ReadRule> {
    object(field, &spec.cluster, &spec.api_version, &spec.kind)?;
    if !dns::is_label(&spec.role.to_ascii_lowercase()) {
        let why = "is not a word of at most 63 letters, digits and dashes";
        return wrong(format!("{field}.role"), why);
    }
    let secret = spec.kind == "Secret" && spec.api_version == "v1";
    if secret == spec.keys.is_empty() {
        let why = match secret {
            true => "a read grant for Secrets must list the keys that may be read",
            false => "only Secrets have keys",
        };
        return wrong(format!("{field}.keys"), why);
    }
    if (secret || spec.kind == "Service") && spec.namespace.is_none() {
        let why = "is missing: the kind is namespaced";
        return wrong(format!("{field}.namespace"), why);
    }
    for (index, key) in spec.keys.iter().enumerate() {
        data_key(&format!("{field}.keys[{index}]"), key)?;
    }
    unique(&format!("{field}.keys"), spec.keys.iter())?;
    at_most(&format!("{field}.keys"), &spec.keys, MANY)?;
    let named = |name: &str, text: &String| pattern(&format!("{field}.{name}"), text, names);
    let namespace = spec.namespace.as_ref();
    Ok(ReadRule {
        role: spec.role.clone(),
        cluster: spec.cluster.clone(),
        api_version: spec.api_version.clone(),
        kind: spec.kind.clone(),
        namespace: namespace.map(|text| named("namespace", text)).transpose()?,
        name: named("name", &spec.name)?,
        keys: spec.keys.iter().cloned().collect(),
        every: spec
            .every
            .map(|limits| every(field, spec, limits))
            .transpose()?,
    })
}

/// The limits of the sets that a role may read.
fn every(field: &str, spec: &ReadGrantSpec, limits: EverySpec) -> Checked<EveryRule> {
    let field = format!("{field}.every");
    if spec.kind == "Secret" && spec.api_version == "v1" {
        return wrong(field, "is not for Secrets");
    }
    if spec.name != "*" {
        let why = "needs the name `*`: a set has all objects of a kind and namespace";
        return wrong(field, why);
    }
    let within = |name: &str, number: u32, most: u32| match (1..=most).contains(&number) {
        true => Ok(number as usize),
        false => wrong(format!("{field}.{name}"), format!("is not 1 to {most}")),
    };
    Ok(EveryRule {
        objects: within("objects", limits.objects, EverySpec::MAX_OBJECTS)?,
        bytes: within("bytes", limits.bytes, EverySpec::MAX_BYTES)?,
    })
}
