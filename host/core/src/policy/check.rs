//! Checks a policy's manifest and turns it into its checked form.

mod read;
mod write;

use super::component::ComponentSource;
use super::manifest::{PolicyError, PolicyManifest};
use super::{Policy, PrimaryRule, ReadRule, WriteRule, ask, verify};
use crate::digest::is_digest;
use crate::pattern::Pattern;
use crate::pattern::template::{Template, TemplateNames};
use crate::policy::selector::Selector;
use crate::reference::dns;
use crate::rollout::identity;
use crate::watches::{SecretReads, plan};
use crate::world::World;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use transom_api::policy::bounds::{self, FEW, LABEL, MANY};
use transom_api::policy::rollout::HISTORY;
use transom_api::policy::{
    FailureMode, GrantSpec, GuestSpec, Limited, LimitsSpec, OnFailureSpec, PolicySpec, PrimarySpec,
    ReplacesSpec, RollbackSpec, RolloutSpec,
};

/// The most watches that one policy needs: of its primaries and its grant, in each exact namespace.
const WATCHES: usize = 512;

pub(crate) type Checked<T> = Result<T, PolicyError>;

/// The error for a field.
pub(crate) fn wrong<T>(field: impl Into<String>, why: impl Into<String>) -> Checked<T> {
    Err(PolicyError::new(field, why))
}

/// Checks a policy.
///
/// # Errors
/// The first invalid field, with its path.
pub fn policy(manifest: PolicyManifest) -> Checked<Policy> {
    let PolicyManifest { name, spec } = manifest;
    if name.len() > 63 || !dns::is_subdomain(&name) {
        let why = "is not a DNS subdomain of at most 63 bytes";
        return wrong("metadata.name", why);
    }
    let written = Arc::new(spec.clone());
    let identity = identity(&spec);
    rollout(&spec.rollout)?;
    let primary = primary(&spec.primary)?;
    guest("spec.guests.decide", &spec.guests.decide)?;
    if let Some(trigger) = &spec.guests.trigger {
        guest("spec.guests.trigger", trigger)?;
    }
    spec.verify.as_ref().map_or(Ok(()), verify::check)?;
    let names = names(&spec.grant)?;
    let reads = read::reads(&spec.grant, &names)?;
    let (world, writes) = write::writes(&spec, &reads, &names)?;
    write::finalizer(&spec.grant, world)?;
    dependents(&spec, &reads, &writes)?;
    write::managed_keys(&spec.own, &writes)?;
    limits(&spec.limits)?;
    replaces(&spec.replaces)?;
    on_failure(spec.on_failure, world)?;
    if spec.budget.time_milliseconds == Some(0) {
        return wrong("spec.budget.timeMilliseconds", "is not at least 1");
    }
    let policy = Policy {
        name: name.into(),
        suspend: spec.suspend,
        primary,
        trigger: spec.guests.trigger,
        decide: spec.guests.decide,
        verify: spec.verify,
        world,
        reads,
        asks: ask::rules(&spec.grant.ask, &spec.primary, &names)?,
        writes,
        finalizer: spec.grant.finalizer,
        own: spec.own,
        limits: spec.limits.into(),
        on_failure: spec.on_failure,
        budget: spec.budget,
        resync_seconds: spec.resync_seconds,
        spec: written,
        identity,
    };
    watched(&policy).map(|()| policy)
}

/// Checks how much a policy watches: each watch is a task and a request that stays open, and each exact namespace may
/// need one for each line of the grant.
pub(super) fn watched(policy: &Policy) -> Checked<()> {
    let connections: BTreeSet<&str> = policy.clusters().map(|(_, name)| name).collect();
    let on = |name| plan::explained([(policy, None)], name, SecretReads::Watch).len();
    let count: usize = connections.into_iter().map(on).sum();
    match count <= WATCHES {
        true => Ok(()),
        false => {
            let why = format!(
                "needs {count} watches with the lines of `spec.grant`, more than {WATCHES}; name fewer namespaces, or \
                 several by `*`"
            );
            wrong("spec.primary.namespaces", why)
        }
    }
}

fn rollout(spec: &RolloutSpec) -> Checked<()> {
    let from = |field: &str, value: u32, (least, most): (u32, u32)| match (least..=most)
        .contains(&value)
    {
        true => Ok(()),
        false => wrong(
            format!("spec.rollout.{field}"),
            format!("must be from {least} to {most}"),
        ),
    };
    from("history", spec.history, HISTORY)?;
    let rollback = spec.rollback;
    let window = RollbackSpec::WINDOW;
    from("rollback.windowSeconds", rollback.window_seconds, window)?;
    from("rollback.count", rollback.count, (1, u32::MAX))?;
    from("rollback.percent", rollback.percent, (0, 100))
}

fn replaces(all: &[ReplacesSpec]) -> Checked<()> {
    at_most("spec.replaces", all, bounds::FEW)?;
    match all.iter().position(|one| !dns::is_subdomain(&one.lease)) {
        Some(at) => wrong(
            format!("spec.replaces[{at}].lease"),
            "is no name of a Lease",
        ),
        None => Ok(()),
    }
}

fn limits(spec: &LimitsSpec) -> Checked<()> {
    if !(1..=LimitsSpec::MAX_INTERVAL_SECONDS).contains(&spec.interval_seconds) {
        return wrong("spec.limits.intervalSeconds", "is not 1 to 86400");
    }
    let too_much = |one: &Limited| spec.of(*one).percent > 100;
    match Limited::ALL.into_iter().find(too_much) {
        Some(one) => wrong(
            format!("spec.limits.{}.percent", one.as_str()),
            "is more than 100",
        ),
        None => Ok(()),
    }
}

fn on_failure(spec: OnFailureSpec, world: &dyn World) -> Checked<()> {
    if spec.mode == FailureMode::Withdraw && !world.withdraws() {
        let why = "is Withdraw, but others may have written the fields that are granted here: what the policy wrote \
                   cannot be told from that";
        return wrong("spec.onFailure.mode", why);
    }
    match spec.stale_after_seconds > OnFailureSpec::MAX_STALE_AFTER_SECONDS {
        true => wrong("spec.onFailure.staleAfterSeconds", "is more than 31536000"),
        false => Ok(()),
    }
}

fn primary(spec: &PrimarySpec) -> Checked<PrimaryRule> {
    object("spec.primary", &spec.cluster, &spec.api_version, &spec.kind)?;
    if spec.kind == "Secret" && spec.api_version == "v1" {
        let why = "a Secret cannot be a primary, because guests would see its fields";
        return wrong("spec.primary.kind", why);
    }
    let field = "spec.primary.namespaces";
    if spec.namespaces.is_empty() {
        return wrong(field, "must name at least one namespace");
    }
    at_most(field, &spec.namespaces, MANY)?;
    let mut namespaces = Vec::new();
    for (index, text) in spec.namespaces.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let parsed = pattern(&field, text, &TemplateNames::new())?;
        if parsed.is_template() {
            let why = "must not contain a template: the primary is not known yet";
            return wrong(field, why);
        }
        namespaces.push(parsed);
    }
    Ok(PrimaryRule {
        cluster: spec.cluster.clone(),
        api_version: spec.api_version.clone(),
        kind: spec.kind.clone(),
        namespaces,
        labels: Selector::parse("spec.primary.labels", &spec.labels)?,
        pause: spec.pause,
    })
}

fn guest(field: &str, spec: &GuestSpec) -> Checked<()> {
    if spec.component.is_empty() {
        return wrong(format!("{field}.component"), "is empty");
    }
    if spec.component.chars().count() > bounds::PLACE {
        return wrong(
            format!("{field}.component"),
            "is longer than 1024 characters",
        );
    }
    ComponentSource::parse(&spec.component)
        .map_err(|why| PolicyError::new(format!("{field}.component"), why))?;
    if !spec.digest.as_deref().is_none_or(is_digest) {
        let why = "is not sha256: and 64 hexadecimal digits";
        return wrong(format!("{field}.digest"), why);
    }
    let capabilities = spec.capabilities.iter();
    let capabilities = capabilities.map(|capability| format!("{capability:?}"));
    unique(&format!("{field}.capabilities"), capabilities)
}

/// The templates of `grant.names`.
fn names(grant: &GrantSpec) -> Checked<TemplateNames> {
    let mut names = TemplateNames::new();
    within("spec.grant.names", grant.names.len(), FEW)?;
    for (name, text) in &grant.names {
        let field = format!("spec.grant.names[\"{name}\"]");
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if name.is_empty() || name.len() > LABEL || !plain {
            let why = "has a name that does not consist of 1 to 63 letters and digits";
            return wrong("spec.grant.names", why);
        }
        if text.chars().count() > bounds::TEMPLATE {
            return wrong(field, "is longer than 512 characters");
        }
        let template =
            Template::parse(text).map_err(|error| PolicyError::new(field, error.to_string()))?;
        names.insert(name.clone(), Arc::new(template));
    }
    Ok(names)
}

/// Checks that the roles of `keepUntilAbsent` exist, and that the stars and templates of the target's namespace are
/// enough to name their objects.
fn dependents(spec: &PolicySpec, reads: &[ReadRule], writes: &[WriteRule]) -> Checked<()> {
    let named = writes.iter().filter_map(WriteRule::named);
    // Of a cluster-scoped target the name stands for the namespace.
    let targets: Vec<&Pattern> = named
        .map(|(namespace, name)| namespace.unwrap_or(name))
        .collect();
    let stars = targets.iter().map(|target| target.stars()).min();
    at_most("spec.own.keepUntilAbsent", &spec.own.keep_until_absent, FEW)?;
    for (index, role) in spec.own.keep_until_absent.iter().enumerate() {
        let field = format!("spec.own.keepUntilAbsent[{index}]");
        let Some(rule) = reads.iter().find(|rule| rule.role == *role) else {
            return wrong(field, format!("`{role}` is not a role of grant.read"));
        };
        let patterns: Vec<&Pattern> = rule.namespace.iter().chain([&rule.name]).collect();
        if patterns
            .iter()
            .any(|pattern| pattern.stars() > stars.unwrap_or_default())
        {
            let why = "its name has more `*` than the namespace of the target";
            return wrong(field, why);
        }
        let told = |template: &Template| {
            let mut targets = targets.iter();
            targets.all(|target| target.templates().any(|one| one == template))
        };
        let mut templates = patterns.iter().flat_map(|pattern| pattern.templates());
        if let Some(untold) = templates.find(|template| !told(template)) {
            let why = format!(
                "its name has {{{untold}}}, which the namespace of the target does not have"
            );
            return wrong(field, why);
        }
    }
    Ok(())
}

/// Cluster, version and kind of a grant or a primary.
pub(crate) fn object(field: &str, cluster: &str, api_version: &str, kind: &str) -> Checked<()> {
    connection(field, cluster)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("v1", api_version));
    if !dns::is_subdomain(group) || !dns::is_label(version) {
        let why = "is not a version, or a group and a version";
        return wrong(format!("{field}.apiVersion"), why);
    }
    let camel = kind.len() <= LABEL
        && kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.chars().all(|letter| letter.is_ascii_alphanumeric());
    match camel {
        true => Ok(()),
        false => wrong(format!("{field}.kind"), "is not a kind in CamelCase"),
    }
}

fn connection(field: &str, cluster: &str) -> Checked<()> {
    let why = "is not the name of a connection: a DNS label";
    match dns::is_label(cluster) {
        true => Ok(()),
        false => wrong(format!("{field}.cluster"), why),
    }
}

pub(crate) fn pattern(field: &str, text: &str, names: &TemplateNames) -> Checked<Pattern> {
    if text.chars().count() > bounds::PATTERN {
        return wrong(field, "is longer than 253 characters");
    }
    Pattern::parse(text, names).map_err(|error| PolicyError::new(field, error.to_string()))
}

/// Checks a key of a Secret's data.
pub(crate) fn data_key(field: &str, key: &str) -> Checked<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match !key.is_empty() && key.len() <= bounds::DATA_KEY && key.bytes().all(allowed) {
        true => Ok(()),
        false => wrong(field, "does not name one key of a Secret's data"),
    }
}

pub(crate) fn at_most<T>(field: &str, list: &[T], most: usize) -> Checked<()> {
    within(field, list.len(), most)
}

pub(crate) fn within(field: &str, entries: usize, most: usize) -> Checked<()> {
    match entries <= most {
        true => Ok(()),
        false => wrong(field, format!("has {entries} entries, more than {most}")),
    }
}

pub(crate) fn unique<T: Ord + Display>(field: &str, items: impl Iterator<Item = T>) -> Checked<()> {
    let mut seen = BTreeSet::new();
    for item in items {
        let shown = item.to_string();
        if !seen.insert(item) {
            return wrong(field, format!("`{shown}` is listed twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{EveryRule, manifest};
    use crate::sample::{kubeconfig_manifest, taints_manifest};
    use crate::world::{KUBECONFIG, TAINTS};
    use serde_json::{Value, json};

    /// Reads and checks a manifest after setting the value of a field; null removes it.
    fn checked(mut whole: Value, field: &str, value: Value) -> Checked<Policy> {
        let pointer = format!("/{}", field.replace(['.', '['], "/").replace(']', ""));
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match whole.pointer_mut(parent).unwrap() {
            Value::Object(map) if value.is_null() => drop(map.remove(name)),
            Value::Object(map) => drop(map.insert(name.to_owned(), value)),
            Value::Array(list) => list[name.parse::<usize>().unwrap()] = value,
            other => panic!("{other} is no place to set something"),
        }
        policy(manifest::parse(&whole)?)
    }

    /// The field that is refused after a field is set.
    fn refused(manifest: Value, field: &str, value: Value) -> String {
        checked(manifest, field, value).map(drop).unwrap_err().field
    }

    /// Sets fields below a place, each to a value that is refused. The error names the field itself, or what is
    /// wrong below it.
    fn refuses(manifest: &Value, place: &str, rows: &[(&str, Value, &str)]) {
        for (field, value, below) in rows {
            let field = format!("{place}{field}");
            let named = refused(manifest.clone(), &field, value.clone());
            assert_eq!(named, format!("{field}{below}"), "{value}");
        }
    }

    #[test]
    fn only_a_policy_that_owns_what_it_writes_may_withdraw_it() {
        let withdraw = json!({"mode": "Withdraw"});
        for manifest in [kubeconfig_manifest(), taints_manifest()] {
            assert!(checked(manifest, "spec.onFailure", withdraw.clone()).is_ok());
        }
        let objects = crate::sample::objects_manifest();
        assert!(checked(objects.clone(), "spec.onFailure", json!({"mode": "Fail"})).is_ok());
        let field = refused(objects, "spec.onFailure", withdraw);
        assert_eq!(field, "spec.onFailure.mode");
    }

    #[test]
    fn the_grant_decides_the_world() {
        let kubeconfig = checked(kubeconfig_manifest(), "spec.suspend", json!(true)).unwrap();
        assert_eq!((kubeconfig.world, kubeconfig.suspend), (KUBECONFIG, true));
        assert_eq!(
            (kubeconfig.resync_seconds, kubeconfig.reads.len()),
            (1800, 4)
        );
        let taints = checked(taints_manifest(), "spec.resyncSeconds", json!(0)).unwrap();
        assert_eq!((taints.world, taints.resync_seconds), (TAINTS, 0));
        let grant = &kubeconfig_manifest()["spec"]["grant"]["write"][0];
        let two = json!([grant, grant]);
        assert!(checked(kubeconfig_manifest(), "spec.grant.write", two).is_ok());
    }

    #[test]
    fn a_set_has_limits_and_is_no_set_of_secrets() {
        let every = json!({"every": {}, "name": "*", "role": "home", "kind": "Namespace"});
        let at = "spec.grant.read[2]";
        let rule = checked(kubeconfig_manifest(), at, every.clone())
            .unwrap()
            .reads[2]
            .every;
        let default = EveryRule {
            objects: 1_000,
            bytes: 1 << 20,
        };
        assert_eq!(rule, Some(default));
        for (field, value, refused_at) in [
            ("name", json!("klusterlet-*"), ""),
            ("kind", json!("Secret"), ""),
            ("every", json!({"objects": 0}), ".objects"),
            ("every", json!({"objects": 100_001}), ".objects"),
            ("every", json!({"bytes": 0}), ".bytes"),
        ] {
            let mut every = every.clone();
            every[field] = value;
            if every["kind"] == "Secret" {
                (every["keys"], every["namespace"]) = (json!(["a"]), json!("n"));
            }
            let field = refused(kubeconfig_manifest(), at, every);
            assert_eq!(field, format!("{at}.every{refused_at}"));
        }
    }

    #[test]
    fn bundled_policies_are_valid() {
        for text in [
            include_str!("../../../../policies/external-managed-kubeconfig/policy.yaml"),
            include_str!("../../../../policies/built-in-taints/policy.yaml"),
        ] {
            let value: Value = serde_yaml::from_str(text).unwrap();
            assert_eq!(policy(manifest::parse(&value).unwrap()).map(drop), Ok(()));
        }
    }

    #[test]
    fn a_policy_asks_for_a_bounded_number_of_watches() {
        let of = |namespaces: usize, reads: usize| {
            let texts = (0..namespaces).map(|number| json!(format!("n{number}")));
            let read = |number: usize| {
                json!({"role": format!("r{number}"), "kind": "ConfigMap",
                "namespace": "{primary.namespace}", "name": format!("{{primary.namespace}}-{number}")})
            };
            let mut manifest = crate::sample::objects_manifest();
            manifest["spec"]["primary"]["namespaces"] = texts.collect();
            manifest["spec"]["grant"]["read"] = (0..reads).map(read).collect();
            checked(manifest, "spec.suspend", json!(true)).map(drop)
        };
        // One more in each namespace is that of the primaries.
        assert_eq!(of(8, 63), Ok(()));
        for (namespaces, reads) in [(8, 64), (64, 64)] {
            let refused = of(namespaces, reads).unwrap_err();
            assert_eq!(refused.field, "spec.primary.namespaces");
            let count = namespaces * (reads + 1);
            assert!(
                refused.why.starts_with(&format!("needs {count} watches")),
                "{refused}"
            );
        }
    }

    #[test]
    fn names_invalid_fields() {
        let many = (0..17).map(|number| (format!("n{number}"), json!("primary.name")));
        let many = Value::Object(many.collect());
        let manifest = kubeconfig_manifest();
        refuses(
            &manifest,
            "",
            &[
                ("apiVersion", json!("transom.dev/v2"), ""),
                ("kind", json!("Pod"), ""),
                ("extra", json!(1), ""),
                ("spec", json!(null), ""),
                ("spec", json!({}), ""),
                ("metadata.name", json!("A"), ""),
                ("metadata.name", json!("a".repeat(64)), ""),
                ("metadata.name", json!(7), ""),
                ("metadata.namespace", json!("x"), ""),
            ],
        );
        refuses(
            &manifest,
            "spec.",
            &[
                ("suspended", json!(true), ""),
                ("resyncSeconds", json!(-1), ""),
                ("primary.kind", json!("hostedCluster"), ""),
                ("primary.kind", json!("A".repeat(64)), ""),
                ("primary.apiVersion", json!("a/b/c"), ""),
                ("primary.cluster", json!("The Hub"), ""),
                ("primary.namespaces", json!([]), ""),
                ("primary.namespaces", json!(vec!["a"; 65]), ""),
                ("primary.namespaces", json!(["a", "**"]), "[1]"),
                ("primary.namespaces", json!(["{primary.name}"]), "[0]"),
                ("primary.namespaces", json!(["a".repeat(254)]), "[0]"),
                ("guests.decide.component", json!(""), ""),
                ("guests.decide.component", json!("configmap:a/b"), ""),
                ("guests.decide.digest", json!("sha256:12"), ""),
                ("guests.trigger.capabilities", json!(["log", "log"]), ""),
                ("guests.trigger.capabilities", json!(["clock"]), "[0]"),
                ("guests.trigger.settings", json!([]), ""),
                ("grant.names", json!({"a-b": "primary.name"}), ""),
                ("grant.names", json!({"a": "primary.uid"}), "[\"a\"]"),
                ("grant.names", json!({"a": "\"a\"".repeat(200)}), "[\"a\"]"),
                ("grant.names", many, ""),
                ("grant.read[1].role", json!("source"), ""),
                ("grant.read[1].role", json!("a b"), ""),
                ("grant.read[0].keys", json!(null), ""),
                ("grant.read[0].keys", json!(["a/b"]), "[0]"),
                ("grant.read[0].keys", json!(["a", "a"]), ""),
                ("grant.read[0].namespace", json!(null), ""),
                ("grant.read[1].keys", json!(["a"]), ""),
                ("grant.read[2].name", json!("{name}"), ""),
                (
                    "onFailure",
                    json!({"staleAfterSeconds": 31_536_001}),
                    ".staleAfterSeconds",
                ),
                ("rollout", json!({"history": 1}), ".history"),
                (
                    "rollout",
                    json!({"rollback": {"windowSeconds": 59}}),
                    ".rollback.windowSeconds",
                ),
                (
                    "rollout",
                    json!({"rollback": {"windowSeconds": 86_401}}),
                    ".rollback.windowSeconds",
                ),
                (
                    "rollout",
                    json!({"rollback": {"count": 0}}),
                    ".rollback.count",
                ),
                (
                    "rollout",
                    json!({"rollback": {"percent": 101}}),
                    ".rollback.percent",
                ),
                ("limits", json!({"intervalSeconds": 0}), ".intervalSeconds"),
                (
                    "limits",
                    json!({"intervalSeconds": 86_401}),
                    ".intervalSeconds",
                ),
                (
                    "limits",
                    json!({"objectsPruned": {"percent": 101}}),
                    ".objectsPruned.percent",
                ),
                ("own.keepUntilAbsent", json!(["nobody"]), "[0]"),
            ],
        );
        let secret = json!({"apiVersion": "v1", "kind": "Secret"});
        refuses(&manifest, "spec.", &[("primary", secret, ".kind")]);
        for name in ["*-a-*", "{dashed(primary.name)}"] {
            let named = refused(manifest.clone(), "spec.grant.read[3].name", json!(name));
            assert_eq!(named, "spec.own.keepUntilAbsent[0]", "{name}");
        }
    }

    #[test]
    fn checks_grants_of_kubeconfigs() {
        let manifest = kubeconfig_manifest();
        refuses(
            &manifest,
            "spec.grant.write[0].",
            &[
                ("kind", json!("ConfigMap"), ""),
                ("kind", json!(null), ""),
                ("namespace", json!(null), ""),
                ("name", json!(""), ""),
                ("cluster", json!("-"), ""),
                ("verbs", json!([]), ""),
                ("verbs", json!(["patch"]), ""),
                ("verbs", json!(["create", "create"]), ""),
                ("fields", json!(["data.a", "data.b"]), ""),
                ("fields", json!(["metadata.labels"]), ""),
                ("taintKeys", json!(["a"]), ""),
                ("kubeconfig.server", json!([]), ""),
                ("kubeconfig.server", json!(["home"]), "[0]"),
                ("kubeconfig.server", json!(["https://a?b"]), "[0]"),
                ("kubeconfig.server", json!(["service", "ftp://a"]), "[1]"),
                ("kubeconfig.ca", json!(["service"]), "[0]"),
                ("kubeconfig.ca", json!(vec!["source"; 17]), ""),
                ("kubeconfig.credentials", json!(["Exec", "Exec"]), ""),
                ("kubeconfig.clusterDomain", json!("a b"), ""),
                ("kubeconfig.proxy", json!("Yes"), ""),
            ],
        );
        let grant = "spec.grant.write[0]";
        let no_kubeconfig = refused(
            manifest.clone(),
            &format!("{grant}.kubeconfig"),
            json!(null),
        );
        assert_eq!(no_kubeconfig, format!("{grant}.kind"));
        let primary = refused(
            manifest.clone(),
            &format!("{grant}.target"),
            json!("primary"),
        );
        assert_eq!(primary, format!("{grant}.kubeconfig"));
        let server = format!("{grant}.kubeconfig.server");
        let granted = json!(["service", "source", "https://api.example.com:6443"]);
        assert!(checked(manifest, &server, granted).is_ok());
    }

    #[test]
    fn each_kind_of_address_has_one_form() {
        let good = vec![
            json!({"role": "service", "nodePort": true, "host": "*.example.com"}),
            json!({"role": "service", "nodePort": true, "host": "192.0.2.1"}),
            json!({"role": "service", "nodePort": true, "host": "2001:db8::1"}),
            json!({"role": "service", "nodePort": true, "host": "*.0.0.1"}),
            json!({"role": "service", "loadBalancer": true}),
            json!({"role": "klusterlet", "field": "spec.host", "port": 6443}),
            json!({"primaryField": "status.controlPlaneEndpoint"}),
        ];
        let several = vec![
            json!({}),
            json!({"role": "service"}),
            json!({"role": "service", "nodePort": true, "loadBalancer": true, "host": "a.b"}),
            json!({"role": "klusterlet", "field": "a", "primaryField": "b"}),
        ];
        let role = vec![
            json!({"role": "source", "nodePort": true, "host": "a.b"}),
            json!({"nodePort": true, "host": "a.b"}),
            json!({"role": "source", "field": "data.kubeconfig"}),
            json!({"role": "nobody", "field": "a"}),
            json!({"role": "service", "primaryField": "a"}),
        ];
        let host = vec![
            json!({"role": "service", "nodePort": true}),
            json!({"role": "service", "nodePort": true, "host": "*"}),
            json!({"role": "service", "nodePort": true, "host": "*.com"}),
            json!({"role": "service", "nodePort": true, "host": "a.*.com"}),
            json!({"role": "service", "nodePort": true, "host": "*.*.com"}),
            json!({"role": "service", "nodePort": true, "host": "u@a.b"}),
            json!({"role": "service", "nodePort": true, "host": "a.b:1"}),
            json!({"role": "service", "loadBalancer": true, "host": "a.b"}),
        ];
        let port = vec![
            json!({"role": "service", "loadBalancer": true, "port": 1}),
            json!({"primaryField": "a", "port": 0}),
        ];
        let primary_field = vec![json!({"primaryField": "a[b]"}), json!({"primaryField": ""})];
        let field = vec![json!({"role": "klusterlet", "field": "a..b"})];
        let place = "spec.grant.write[0].kubeconfig.addresses";
        for (addresses, wrong) in [
            (good, None),
            (several, Some("")),
            (role, Some(".role")),
            (host, Some(".host")),
            (port, Some(".port")),
            (primary_field, Some(".primaryField")),
            (field, Some(".field")),
        ] {
            for (address, server) in addresses
                .iter()
                .flat_map(|address| [json!(["service"]), json!([])].map(|server| (address, server)))
            {
                let mut manifest = kubeconfig_manifest();
                manifest["spec"]["grant"]["write"][0]["kubeconfig"]["server"] = server;
                let error = checked(manifest, place, json!([address])).err();
                let expected = wrong.map(|field| format!("{place}[0]{field}"));
                assert_eq!(error.map(|error| error.field), expected, "{address}");
            }
        }
    }

    #[test]
    fn checks_grants_of_taints() {
        let manifest = taints_manifest();
        refuses(
            &manifest,
            "spec.grant.write[0].",
            &[
                ("kind", json!("Pod"), ""),
                ("verbs", json!(["patch", "delete"]), ""),
                ("cluster", json!("The Hub"), ""),
                ("fields", json!(["spec"]), ""),
                ("taintKeys", json!([]), ""),
                ("taintKeys", json!(["a", "a"]), ""),
                ("taintKeys", json!(["a b"]), ""),
            ],
        );
        let own = json!({"keepUntilAbsent": ["x"]});
        refuses(&manifest, "spec.", &[("own", own, ".keepUntilAbsent[0]")]);
        let node = refused(manifest.clone(), "spec.primary.kind", json!("Node"));
        assert_eq!(node, "spec.grant.write[0].target");
        let grant = &manifest["spec"]["grant"]["write"][0];
        let other = &kubeconfig_manifest()["spec"]["grant"];
        let mut reading = manifest.clone();
        reading["spec"]["grant"]["read"] = other["read"].clone();
        for write in [json!([grant, grant]), json!([grant, other["write"][0]])] {
            refuses(&reading, "spec.grant.", &[("write", write, "")]);
        }
    }

    #[test]
    fn refuses_objects_that_give_rights_which_are_not_listed() {
        let roles = json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "name": "x", "verbs": ["create"], "fields": ["subjects"]}]);
        let error = checked(kubeconfig_manifest(), "spec.grant.write", roles).map(drop);
        let error = error.unwrap_err();
        assert!(
            error.field == "spec.grant.write[0].values[\"subjects\"]"
                && error.why.contains("has to be listed"),
            "{error}"
        );
    }
}
