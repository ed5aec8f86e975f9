//! Checks a policy's manifest and turns it into its checked form.

mod managed_keys;
mod write;

use super::manifest::{Manifest, PolicyError};
use super::{Policy, PrimaryRule, ReadRule, WriteRule};
use crate::pattern::Pattern;
use crate::pattern::template::{Names, Template};
use crate::reference::dns;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use transom_api::policy::bounds::{self, FEW, LABEL, MANY};
use transom_api::policy::{GrantSpec, GuestSpec, PolicySpec, PrimarySpec, ReadGrant};

pub(crate) type Checked<T> = Result<T, PolicyError>;

/// Checks a policy.
///
/// # Errors
/// The first invalid field, with its path.
pub fn policy(manifest: Manifest) -> Checked<Policy> {
    let Manifest { name, spec } = manifest;
    if name.len() > 63 || !dns::is_subdomain(&name) {
        return Err(PolicyError::new(
            "metadata.name",
            "is not a DNS subdomain of at most 63 bytes",
        ));
    }
    let primary = primary(&spec.primary)?;
    guest("spec.guests.decide", &spec.guests.decide)?;
    if let Some(trigger) = &spec.guests.trigger {
        guest("spec.guests.trigger", trigger)?;
    }
    let names = names(&spec.grant)?;
    let reads = reads(&spec.grant, &names)?;
    let (world, writes) = write::writes(&spec, &reads, &names)?;
    dependents(&spec, &reads, &writes)?;
    managed_keys::check(&spec.own, &writes)?;
    Ok(Policy {
        name: name.into(),
        suspend: spec.suspend,
        primary,
        trigger: spec.guests.trigger,
        decide: spec.guests.decide,
        world,
        reads,
        writes,
        own: spec.own,
        resync_seconds: spec.resync_seconds,
    })
}

fn primary(spec: &PrimarySpec) -> Checked<PrimaryRule> {
    object("spec.primary", &spec.cluster, &spec.api_version, &spec.kind)?;
    if spec.kind == "Secret" && spec.api_version == "v1" {
        return Err(PolicyError::new(
            "spec.primary.kind",
            "a Secret cannot be a primary, because guests would see its fields",
        ));
    }
    if spec.namespaces.is_empty() {
        return Err(PolicyError::new(
            "spec.primary.namespaces",
            "must name at least one namespace",
        ));
    }
    at_most("spec.primary.namespaces", &spec.namespaces, MANY)?;
    let mut namespaces = Vec::new();
    for (index, text) in spec.namespaces.iter().enumerate() {
        let field = format!("spec.primary.namespaces[{index}]");
        let parsed = pattern(&field, text, &Names::new())?;
        if parsed.is_template() {
            return Err(PolicyError::new(
                field,
                "must not contain a template: the primary is not known yet",
            ));
        }
        namespaces.push(parsed);
    }
    let PrimarySpec {
        cluster,
        api_version,
        kind,
        ..
    } = spec.clone();
    Ok(PrimaryRule {
        cluster,
        api_version,
        kind,
        namespaces,
    })
}

fn guest(field: &str, spec: &GuestSpec) -> Checked<()> {
    if spec.component.is_empty() {
        return Err(PolicyError::new(format!("{field}.component"), "is empty"));
    }
    if spec.component.chars().count() > bounds::PLACE {
        return Err(PolicyError::new(
            format!("{field}.component"),
            "is longer than 1024 characters",
        ));
    }
    let well_formed = |digest: &String| {
        digest.strip_prefix("sha256:").is_some_and(|hex| {
            hex.len() == 64
                && hex
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    if spec
        .digest
        .as_ref()
        .is_some_and(|digest| !well_formed(digest))
    {
        return Err(PolicyError::new(
            format!("{field}.digest"),
            "is not sha256: and 64 hexadecimal digits",
        ));
    }
    unique(
        &format!("{field}.capabilities"),
        spec.capabilities
            .iter()
            .map(|capability| format!("{capability:?}")),
    )
}

/// The templates of `grant.names`.
fn names(grant: &GrantSpec) -> Checked<Names> {
    let mut names = Names::new();
    if grant.names.len() > FEW {
        let why = format!("has {} entries, more than {FEW}", grant.names.len());
        return Err(PolicyError::new("spec.grant.names", why));
    }
    for (name, text) in &grant.names {
        let field = format!("spec.grant.names[\"{name}\"]");
        if name.is_empty()
            || name.len() > LABEL
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            return Err(PolicyError::new(
                "spec.grant.names",
                "has a name that does not consist of 1 to 63 letters and digits",
            ));
        }
        if text.chars().count() > bounds::TEMPLATE {
            return Err(PolicyError::new(field, "is longer than 512 characters"));
        }
        let template =
            Template::parse(text).map_err(|error| PolicyError::new(field, error.to_string()))?;
        names.insert(name.clone(), Arc::new(template));
    }
    Ok(names)
}

fn reads(grant: &GrantSpec, names: &Names) -> Checked<Vec<ReadRule>> {
    let mut rules: Vec<ReadRule> = Vec::new();
    at_most("spec.grant.read", &grant.read, MANY)?;
    for (index, spec) in grant.read.iter().enumerate() {
        let field = format!("spec.grant.read[{index}]");
        if rules.iter().any(|rule| rule.role == spec.role) {
            return Err(PolicyError::new(
                format!("{field}.role"),
                format!("`{}` is listed twice", spec.role),
            ));
        }
        rules.push(read(&field, spec, names)?);
    }
    Ok(rules)
}

fn read(field: &str, spec: &ReadGrant, names: &Names) -> Checked<ReadRule> {
    object(field, &spec.cluster, &spec.api_version, &spec.kind)?;
    if !dns::is_label(&spec.role.to_ascii_lowercase()) {
        return Err(PolicyError::new(
            format!("{field}.role"),
            "is not a word of at most 63 letters, digits and dashes",
        ));
    }
    let secret = spec.kind == "Secret" && spec.api_version == "v1";
    if secret == spec.keys.is_empty() {
        let why = match secret {
            true => "a read grant for Secrets must list the keys that may be read",
            false => "only Secrets have keys",
        };
        return Err(PolicyError::new(format!("{field}.keys"), why));
    }
    if (secret || spec.kind == "Service") && spec.namespace.is_none() {
        return Err(PolicyError::new(
            format!("{field}.namespace"),
            "is missing: the kind is namespaced",
        ));
    }
    for (index, key) in spec.keys.iter().enumerate() {
        data_key(&format!("{field}.keys[{index}]"), key)?;
    }
    unique(&format!("{field}.keys"), spec.keys.iter())?;
    at_most(&format!("{field}.keys"), &spec.keys, MANY)?;
    Ok(ReadRule {
        role: spec.role.clone(),
        cluster: spec.cluster.clone(),
        api_version: spec.api_version.clone(),
        kind: spec.kind.clone(),
        namespace: spec
            .namespace
            .as_ref()
            .map(|text| pattern(&format!("{field}.namespace"), text, names))
            .transpose()?,
        name: pattern(&format!("{field}.name"), &spec.name, names)?,
        keys: spec.keys.iter().cloned().collect(),
    })
}

/// Checks that the roles of `keepUntilAbsent` exist, and that the stars and templates of the target's namespace are
/// enough to name their objects.
fn dependents(spec: &PolicySpec, reads: &[ReadRule], writes: &[WriteRule]) -> Checked<()> {
    let named = writes.iter().filter_map(WriteRule::named);
    let targets: Vec<&Pattern> = named.map(|(namespace, _)| namespace).collect();
    let stars = targets
        .iter()
        .map(|target| target.stars())
        .min()
        .unwrap_or_default();
    at_most("spec.own.keepUntilAbsent", &spec.own.keep_until_absent, FEW)?;
    for (index, role) in spec.own.keep_until_absent.iter().enumerate() {
        let field = format!("spec.own.keepUntilAbsent[{index}]");
        let Some(rule) = reads.iter().find(|rule| rule.role == *role) else {
            return Err(PolicyError::new(
                field,
                format!("`{role}` is not a role of grant.read"),
            ));
        };
        let patterns: Vec<&Pattern> = rule.namespace.iter().chain([&rule.name]).collect();
        if patterns.iter().any(|pattern| pattern.stars() > stars) {
            return Err(PolicyError::new(
                field,
                "its name has more `*` than the namespace of the target",
            ));
        }
        let mut templates = patterns.iter().flat_map(|pattern| pattern.templates());
        let told = |template: &Template| {
            targets
                .iter()
                .all(|target| target.templates().any(|one| one == template))
        };
        if let Some(untold) = templates.find(|template| !told(template)) {
            return Err(PolicyError::new(
                field,
                format!(
                    "its name has {{{untold}}}, which the namespace of the target does not have"
                ),
            ));
        }
    }
    Ok(())
}

/// Cluster, version and kind of a grant or a primary.
fn object(field: &str, cluster: &str, api_version: &str, kind: &str) -> Checked<()> {
    connection(field, cluster)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("v1", api_version));
    if !dns::is_subdomain(group) || !dns::is_label(version) {
        return Err(PolicyError::new(
            format!("{field}.apiVersion"),
            "is not a version, or a group and a version",
        ));
    }
    let camel = kind.len() <= LABEL
        && kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.chars().all(|letter| letter.is_ascii_alphanumeric());
    if camel {
        Ok(())
    } else {
        Err(PolicyError::new(
            format!("{field}.kind"),
            "is not a kind in CamelCase",
        ))
    }
}

fn connection(field: &str, cluster: &str) -> Checked<()> {
    match dns::is_label(cluster) {
        true => Ok(()),
        false => Err(PolicyError::new(
            format!("{field}.cluster"),
            "is not the name of a connection: a DNS label",
        )),
    }
}

pub(crate) fn pattern(field: &str, text: &str, names: &Names) -> Checked<Pattern> {
    if text.chars().count() > bounds::PATTERN {
        return Err(PolicyError::new(field, "is longer than 253 characters"));
    }
    Pattern::parse(text, names).map_err(|error| PolicyError::new(field, error.to_string()))
}

/// Checks a key of a Secret's data.
pub(crate) fn data_key(field: &str, key: &str) -> Checked<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match !key.is_empty() && key.len() <= bounds::DATA_KEY && key.bytes().all(allowed) {
        true => Ok(()),
        false => Err(PolicyError::new(
            field,
            "does not name one key of a Secret's data",
        )),
    }
}

pub(crate) fn at_most<T>(field: &str, list: &[T], most: usize) -> Checked<()> {
    match list.len() <= most {
        true => Ok(()),
        false => Err(PolicyError::new(
            field,
            format!("has {} entries, more than {most}", list.len()),
        )),
    }
}

pub(crate) fn unique<T: Ord + Display>(field: &str, items: impl Iterator<Item = T>) -> Checked<()> {
    let mut seen = BTreeSet::new();
    for item in items {
        let shown = item.to_string();
        if !seen.insert(item) {
            return Err(PolicyError::new(
                field,
                format!("`{shown}` is listed twice"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::manifest;
    use crate::sample::{kubeconfig_manifest, taints_manifest};
    use crate::world::{KUBECONFIG, TAINTS};
    use serde_json::{Value, json};

    /// Reads and checks a manifest after setting the value at a pointer; null removes it.
    fn checked(mut whole: Value, pointer: &str, value: Value) -> Checked<Policy> {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match whole.pointer_mut(parent).unwrap() {
            Value::Object(map) if value.is_null() => drop(map.remove(name)),
            Value::Object(map) => drop(map.insert(name.to_owned(), value)),
            Value::Array(list) => list[name.parse::<usize>().unwrap()] = value,
            other => panic!("{other} is no place to set something"),
        }
        policy(manifest::parse(&whole)?)
    }

    #[test]
    fn the_grant_decides_the_world() {
        let kubeconfig = checked(kubeconfig_manifest(), "/spec/suspend", json!(true)).unwrap();
        assert_eq!((kubeconfig.world, kubeconfig.suspend), (KUBECONFIG, true));
        assert_eq!(
            (kubeconfig.resync_seconds, kubeconfig.reads.len()),
            (1800, 4)
        );
        let taints = checked(taints_manifest(), "/spec/resyncSeconds", json!(0)).unwrap();
        assert_eq!((taints.world, taints.resync_seconds), (TAINTS, 0));
        let two = json!([
            kubeconfig_manifest()["spec"]["grant"]["write"][0],
            kubeconfig_manifest()["spec"]["grant"]["write"][0]
        ]);
        assert!(checked(kubeconfig_manifest(), "/spec/grant/write", two).is_ok());
    }

    #[test]
    fn bundled_policies_are_valid() {
        for text in [
            include_str!("../../../../policies/external-managed-kubeconfig/policy.yaml"),
            include_str!("../../../../policies/built-in-taints/policy.yaml"),
        ] {
            let value: Value = serde_yaml::from_str(text).unwrap();
            assert_eq!(policy(manifest::parse(&value).unwrap()).map(|_| ()), Ok(()));
        }
    }

    fn many_names() -> Value {
        (0..17)
            .map(|number| (format!("n{number}"), json!("primary.name")))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn names_invalid_fields() {
        let write = "/spec/grant/write/0";
        let at = |tail: &str| format!("{write}/{tail}");
        for (pointer, value, field) in [
            (
                "/apiVersion".to_owned(),
                json!("transom.dev/v2"),
                "apiVersion",
            ),
            ("/kind".to_owned(), json!("Pod"), "kind"),
            ("/extra".to_owned(), json!(1), "extra"),
            ("/spec".to_owned(), json!(null), "spec"),
            ("/spec".to_owned(), json!({}), "spec"),
            ("/metadata/name".to_owned(), json!("A"), "metadata.name"),
            (
                "/metadata/name".to_owned(),
                json!("a".repeat(64)),
                "metadata.name",
            ),
            ("/metadata/name".to_owned(), json!(7), "metadata.name"),
            (
                "/metadata/namespace".to_owned(),
                json!("x"),
                "metadata.namespace",
            ),
            ("/spec/suspended".to_owned(), json!(true), "spec.suspended"),
            (
                "/spec/resyncSeconds".to_owned(),
                json!(-1),
                "spec.resyncSeconds",
            ),
            (
                "/spec/primary/kind".to_owned(),
                json!("hostedCluster"),
                "spec.primary.kind",
            ),
            (
                "/spec/primary/apiVersion".to_owned(),
                json!("a/b/c"),
                "spec.primary.apiVersion",
            ),
            (
                "/spec/primary/cluster".to_owned(),
                json!("The Hub"),
                "spec.primary.cluster",
            ),
            (
                "/spec/primary/namespaces".to_owned(),
                json!([]),
                "spec.primary.namespaces",
            ),
            (
                "/spec/primary/namespaces".to_owned(),
                json!(["a", "**"]),
                "spec.primary.namespaces[1]",
            ),
            (
                "/spec/primary/namespaces".to_owned(),
                json!(["{primary.name}"]),
                "spec.primary.namespaces[0]",
            ),
            (
                "/spec/guests/decide/component".to_owned(),
                json!(""),
                "spec.guests.decide.component",
            ),
            (
                "/spec/guests/decide/digest".to_owned(),
                json!("sha256:12"),
                "spec.guests.decide.digest",
            ),
            (
                "/spec/guests/trigger/capabilities".to_owned(),
                json!(["log", "log"]),
                "spec.guests.trigger.capabilities",
            ),
            (
                "/spec/guests/trigger/capabilities".to_owned(),
                json!(["clock"]),
                "spec.guests.trigger.capabilities[0]",
            ),
            (
                "/spec/guests/trigger/settings".to_owned(),
                json!([]),
                "spec.guests.trigger.settings",
            ),
            (
                "/spec/grant/read/1/role".to_owned(),
                json!("source"),
                "spec.grant.read[1].role",
            ),
            (
                "/spec/grant/read/1/role".to_owned(),
                json!("a b"),
                "spec.grant.read[1].role",
            ),
            (
                "/spec/grant/read/0/keys".to_owned(),
                json!(null),
                "spec.grant.read[0].keys",
            ),
            (
                "/spec/grant/read/0/keys".to_owned(),
                json!(["a/b"]),
                "spec.grant.read[0].keys[0]",
            ),
            (
                "/spec/grant/read/0/keys".to_owned(),
                json!(["a", "a"]),
                "spec.grant.read[0].keys",
            ),
            (
                "/spec/grant/read/0/namespace".to_owned(),
                json!(null),
                "spec.grant.read[0].namespace",
            ),
            (
                "/spec/grant/read/1/keys".to_owned(),
                json!(["a"]),
                "spec.grant.read[1].keys",
            ),
            (
                "/spec/grant/read/2/name".to_owned(),
                json!("{name}"),
                "spec.grant.read[2].name",
            ),
            (
                "/spec/grant/write".to_owned(),
                json!([]),
                "spec.grant.write",
            ),
            (at("kubeconfig"), json!(null), "spec.grant.write[0]"),
            (at("kind"), json!("ConfigMap"), "spec.grant.write[0].kind"),
            (at("kind"), json!(null), "spec.grant.write[0].kind"),
            (
                at("namespace"),
                json!(null),
                "spec.grant.write[0].namespace",
            ),
            (at("name"), json!(""), "spec.grant.write[0].name"),
            (at("cluster"), json!("-"), "spec.grant.write[0].cluster"),
            (at("verbs"), json!([]), "spec.grant.write[0].verbs"),
            (at("verbs"), json!(["patch"]), "spec.grant.write[0].verbs"),
            (
                at("verbs"),
                json!(["create", "create"]),
                "spec.grant.write[0].verbs",
            ),
            (
                at("fields"),
                json!(["data.a", "data.b"]),
                "spec.grant.write[0].fields",
            ),
            (
                at("fields"),
                json!(["metadata.labels"]),
                "spec.grant.write[0].fields",
            ),
            (
                at("taintKeys"),
                json!(["a"]),
                "spec.grant.write[0].taintKeys",
            ),
            (
                at("target"),
                json!("primary"),
                "spec.grant.write[0].kubeconfig",
            ),
            (
                at("kubeconfig/server"),
                json!([]),
                "spec.grant.write[0].kubeconfig.server",
            ),
            (
                at("kubeconfig/server"),
                json!(["home"]),
                "spec.grant.write[0].kubeconfig.server[0]",
            ),
            (
                at("kubeconfig/ca"),
                json!(["service"]),
                "spec.grant.write[0].kubeconfig.ca[0]",
            ),
            (
                at("kubeconfig/clusterDomain"),
                json!("a b"),
                "spec.grant.write[0].kubeconfig.clusterDomain",
            ),
            (
                at("kubeconfig/proxy"),
                json!("Yes"),
                "spec.grant.write[0].kubeconfig.proxy",
            ),
            (
                "/spec/own/keepUntilAbsent".to_owned(),
                json!(["nobody"]),
                "spec.own.keepUntilAbsent[0]",
            ),
            (
                "/spec/grant/read/3/name".to_owned(),
                json!("*-a-*"),
                "spec.own.keepUntilAbsent[0]",
            ),
            (
                "/spec/grant/read/3/name".to_owned(),
                json!("{dashed(primary.name)}"),
                "spec.own.keepUntilAbsent[0]",
            ),
        ] {
            let error = checked(kubeconfig_manifest(), &pointer, value)
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error.field, field, "{pointer}: {error}");
        }
    }

    #[test]
    fn names_invalid_names() {
        for (names, field) in [
            (json!({"a-b": "primary.name"}), "spec.grant.names"),
            (json!({"a": "primary.uid"}), "spec.grant.names[\"a\"]"),
            (json!({"a": "\"a\"".repeat(200)}), "spec.grant.names[\"a\"]"),
            (many_names(), "spec.grant.names"),
        ] {
            let error = checked(kubeconfig_manifest(), "/spec/grant/names", names)
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
    }

    #[test]
    fn parses_servers_and_bounds_everything() {
        let kubeconfig = "/spec/grant/write/0/kubeconfig";
        for (pointer, value, field) in [
            (
                format!("{kubeconfig}/server"),
                json!(["https://a?b"]),
                "spec.grant.write[0].kubeconfig.server[0]",
            ),
            (
                format!("{kubeconfig}/server"),
                json!(["service", "ftp://a"]),
                "spec.grant.write[0].kubeconfig.server[1]",
            ),
            (
                format!("{kubeconfig}/credentials"),
                json!(["Exec", "Exec"]),
                "spec.grant.write[0].kubeconfig.credentials",
            ),
            (
                format!("{kubeconfig}/ca"),
                json!(vec!["source"; 17]),
                "spec.grant.write[0].kubeconfig.ca",
            ),
            (
                "/spec/primary/namespaces".to_owned(),
                json!(["a".repeat(254)]),
                "spec.primary.namespaces[0]",
            ),
            (
                "/spec/primary/namespaces".to_owned(),
                json!(vec!["a"; 65]),
                "spec.primary.namespaces",
            ),
            (
                "/spec/primary/kind".to_owned(),
                json!("A".repeat(64)),
                "spec.primary.kind",
            ),
        ] {
            let error = checked(kubeconfig_manifest(), &pointer, value)
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error.field, field, "{pointer}: {error}");
        }
        let granted = json!(["service", "source", "https://api.example.com:6443"]);
        assert!(
            checked(
                kubeconfig_manifest(),
                &format!("{kubeconfig}/server"),
                granted
            )
            .is_ok()
        );
    }

    #[test]
    fn each_kind_of_address_has_one_form() {
        let grant = "spec.grant.write[0].kubeconfig.addresses";
        for (address, field) in [
            (
                json!({"role": "service", "nodePort": true, "host": "*.example.com"}),
                None,
            ),
            (
                json!({"role": "service", "nodePort": true, "host": "192.0.2.1"}),
                None,
            ),
            (
                json!({"role": "service", "nodePort": true, "host": "2001:db8::1"}),
                None,
            ),
            (json!({"role": "service", "loadBalancer": true}), None),
            (
                json!({"role": "klusterlet", "field": "spec.host", "port": 6443}),
                None,
            ),
            (json!({"primaryField": "status.controlPlaneEndpoint"}), None),
            (json!({}), Some("[0]")),
            (json!({"role": "service"}), Some("[0]")),
            (
                json!({"role": "service", "nodePort": true, "loadBalancer": true, "host": "a.b"}),
                Some("[0]"),
            ),
            (
                json!({"role": "klusterlet", "field": "a", "primaryField": "b"}),
                Some("[0]"),
            ),
            (
                json!({"role": "source", "nodePort": true, "host": "a.b"}),
                Some("[0].role"),
            ),
            (json!({"nodePort": true, "host": "a.b"}), Some("[0].role")),
            (
                json!({"role": "source", "field": "data.kubeconfig"}),
                Some("[0].role"),
            ),
            (json!({"role": "nobody", "field": "a"}), Some("[0].role")),
            (
                json!({"role": "service", "primaryField": "a"}),
                Some("[0].role"),
            ),
            (
                json!({"role": "service", "nodePort": true}),
                Some("[0].host"),
            ),
            (
                json!({"role": "service", "nodePort": true, "host": "*"}),
                Some("[0].host"),
            ),
            (
                json!({"role": "service", "nodePort": true, "host": "*.com"}),
                Some("[0].host"),
            ),
            (
                json!({"role": "service", "nodePort": true, "host": "a.*.com"}),
                Some("[0].host"),
            ),
            (
                json!({"role": "service", "nodePort": true, "host": "*.*.com"}),
                Some("[0].host"),
            ),
            (
                json!({"role": "service", "nodePort": true, "host": "*.0.0.1"}),
                None,
            ),
            (
                json!({"role": "service", "nodePort": true, "host": "u@a.b"}),
                Some("[0].host"),
            ),
            (
                json!({"role": "service", "nodePort": true, "host": "a.b:1"}),
                Some("[0].host"),
            ),
            (
                json!({"role": "service", "loadBalancer": true, "host": "a.b"}),
                Some("[0].host"),
            ),
            (
                json!({"role": "service", "loadBalancer": true, "port": 1}),
                Some("[0].port"),
            ),
            (json!({"primaryField": "a", "port": 0}), Some("[0].port")),
            (json!({"primaryField": "a[b]"}), Some("[0].primaryField")),
            (json!({"primaryField": ""}), Some("[0].primaryField")),
            (
                json!({"role": "klusterlet", "field": "a..b"}),
                Some("[0].field"),
            ),
        ] {
            for server in [json!(["service"]), json!([])] {
                let mut manifest = kubeconfig_manifest();
                manifest["spec"]["grant"]["write"][0]["kubeconfig"]["server"] = server;
                let error = checked(
                    manifest,
                    "/spec/grant/write/0/kubeconfig/addresses",
                    json!([address]),
                )
                .err();
                assert_eq!(
                    error.map(|error| error.field),
                    field.map(|field| format!("{grant}{field}")),
                    "{address}"
                );
            }
        }
    }

    #[test]
    fn checks_grants_of_taints() {
        let write = "/spec/grant/write/0";
        for (pointer, value, field) in [
            (
                "/spec/primary/kind".to_owned(),
                json!("Node"),
                "spec.grant.write[0].target",
            ),
            (
                format!("{write}/kind"),
                json!("Pod"),
                "spec.grant.write[0].kind",
            ),
            (
                format!("{write}/verbs"),
                json!(["patch", "delete"]),
                "spec.grant.write[0].verbs",
            ),
            (
                format!("{write}/cluster"),
                json!("The Hub"),
                "spec.grant.write[0].cluster",
            ),
            (
                format!("{write}/fields"),
                json!(["spec"]),
                "spec.grant.write[0].fields",
            ),
            (
                format!("{write}/taintKeys"),
                json!([]),
                "spec.grant.write[0].taintKeys",
            ),
            (
                format!("{write}/taintKeys"),
                json!(["a", "a"]),
                "spec.grant.write[0].taintKeys",
            ),
            (
                "/spec/own".to_owned(),
                json!({"keepUntilAbsent": ["x"]}),
                "spec.own.keepUntilAbsent[0]",
            ),
        ] {
            let error = checked(taints_manifest(), &pointer, value)
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error.field, field, "{pointer}: {error}");
        }
        let grant = taints_manifest()["spec"]["grant"]["write"][0].clone();
        let mixed = json!([grant, kubeconfig_manifest()["spec"]["grant"]["write"][0]]);
        let mut manifest = taints_manifest();
        manifest["spec"]["grant"]["read"] = kubeconfig_manifest()["spec"]["grant"]["read"].clone();
        for write in [json!([grant, grant]), mixed] {
            let error = checked(manifest.clone(), "/spec/grant/write", write)
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error.field, "spec.grant.write");
        }
    }

    #[test]
    fn refuses_rbac_objects_and_secrets_as_ordinary_objects() {
        let roles = json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "name": "x", "verbs": ["create"], "fields": ["subjects"]}]);
        let error = checked(kubeconfig_manifest(), "/spec/grant/write", roles)
            .map(|_| ())
            .unwrap_err();
        assert!(
            error.field == "spec.grant.write[0].kind" && error.why.contains("RBAC"),
            "{error}"
        );
        let error = checked(
            kubeconfig_manifest(),
            "/spec/primary",
            json!({"apiVersion": "v1", "kind": "Secret"}),
        );
        assert_eq!(error.map(|_| ()).unwrap_err().field, "spec.primary.kind");
    }
}
