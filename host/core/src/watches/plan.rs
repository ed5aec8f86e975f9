//! From the active policies to what a connection watches for them. Asks for no more than the grants name.

use super::bound::{self, bound, places};
use super::cover::{merge, narrow, spare};
use super::{Keep, Scope, SecretReads, Watches};
use crate::catalogue::{Catalogue, Revision};
use crate::inputs::request::is_request;
use crate::lease::replaced;
use crate::policy::selector::Selector;
use crate::policy::{Policy, ReadRule, WriteRule};
use crate::projection::Paths;
use crate::projection::path::Path;
use crate::reference::{ObjectRef, is_secret};
use crate::rights::Because;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_api::labels;

/// Kinds of the core group whose objects are kept whole, as those that ask for a certificate are: the host itself reads
/// fields that no guest declares.
const WHOLE: [&str; 3] = ["Secret", "Service", "Namespace"];

/// The types of Secrets that Kubernetes requires to have a key of data. A role that may read such a key may mean them.
const TYPES: [(&str, &str); 3] = [
    ("tls.crt", "kubernetes.io/tls"),
    ("tls.key", "kubernetes.io/tls"),
    (".dockerconfigjson", "kubernetes.io/dockerconfigjson"),
];

/// What is kept of each scope, and which lines of policies need it.
pub(crate) type ExplainedWatches = BTreeMap<Scope, (Keep, BTreeSet<Because>)>;

/// What a connection watches for every active policy, for revisions that work or are tried beside them, and for
/// the objects that hold components of any policy. A watch that another one covers is left out.
pub fn of(
    catalogue: &Catalogue,
    beside: &[Arc<Revision>],
    connection: &str,
    secrets: SecretReads,
    components: &BTreeSet<ObjectRef>,
) -> Watches {
    // A candidate is tried on the objects that it would read.
    let revisions = catalogue.entries().flat_map(|(_, entry)| {
        let candidate = entry.candidate.as_ref();
        let candidate = candidate.map(|candidate| &*candidate.revision);
        entry.revision.as_deref().into_iter().chain(candidate)
    });
    let beside = beside.iter().map(|revision| &**revision);
    let policies = revisions
        .chain(beside)
        .map(|revision| (&revision.policy, Some(revision)));
    let mut watches = wanted_by(policies, connection, secrets);
    for object in components.iter().filter(|one| one.cluster == connection) {
        let (scope, keep) = component(object);
        merge(&mut watches, scope, keep, BTreeSet::new());
    }
    spare(narrow(watches))
        .into_iter()
        .map(|(scope, (keep, _))| (scope, keep))
        .collect()
}

/// The same for any policies, with the lines that need each watch. Without a revision whole objects are kept.
pub(crate) fn explained<'a>(
    policies: impl IntoIterator<Item = (&'a Policy, Option<&'a Revision>)>,
    connection: &str,
    secrets: SecretReads,
) -> ExplainedWatches {
    spare(narrow(wanted_by(policies, connection, secrets)))
}

/// The watches that policies need, also those that another one covers.
fn wanted_by<'a>(
    policies: impl IntoIterator<Item = (&'a Policy, Option<&'a Revision>)>,
    connection: &str,
    secrets: SecretReads,
) -> ExplainedWatches {
    let mut watches = ExplainedWatches::new();
    for (policy, revision) in policies {
        for (line, bounds) in wanted(policy, revision, connection, secrets) {
            let because = Because::Policy {
                policy: Arc::clone(&policy.name),
                line,
            };
            for (scope, keep) in bounds {
                merge(&mut watches, scope, keep, BTreeSet::from([because.clone()]));
            }
        }
    }
    watches
}

/// The watches that one line of a policy needs.
pub(crate) type Bounds = Vec<(Scope, Keep)>;

/// Every line of one policy that needs watches on one connection.
fn wanted(
    policy: &Policy,
    revision: Option<&Revision>,
    connection: &str,
    secrets: SecretReads,
) -> Vec<(String, Bounds)> {
    let mut all = Vec::new();
    // A newer manifest left the policy no namespace, so no primaries. Patterns would ask for all namespaces then.
    if policy.primary.namespaces.is_empty() {
        return all;
    }
    if policy.primary.cluster == connection {
        all.push(("spec.primary".to_owned(), primary(policy, revision)));
    }
    for (index, rule) in policy
        .reads
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.cluster == connection)
    {
        let mut bounds = read(policy, revision, rule);
        bounds.retain(|(scope, _)| scope.fields.is_none() || secrets == SecretReads::Watch);
        all.push((read_line(index, rule), bounds));
    }
    let written = policy
        .beside()
        .filter(|(_, rule)| rule.cluster == connection);
    all.extend(written.map(|(index, rule)| (write_line(index), target(policy, revision, rule))));
    if policy.primary.cluster == connection {
        let replaces = policy.spec.replaces.iter().enumerate();
        all.extend(replaces.map(|(index, one)| {
            let line = format!("spec.replaces[{index}]");
            (line, vec![replaced::watch(&one.lease)])
        }));
    }
    for (field, source) in policy.sources() {
        let objects = source.objects().into_iter();
        let here = objects.filter(|object| object.cluster == connection);
        all.push((field, here.map(component).collect()));
    }
    all
}

/// The watch of an object that holds a component. Keeps only its metadata and a digest: when it changes, it is read
/// whole.
fn component(object: &ObjectRef) -> (Scope, Keep) {
    let scope = Scope {
        namespace: object.namespace.clone(),
        name: Some(object.name.clone()),
        ..Scope::all(&object.api_version, &object.kind)
    };
    let keep = Keep {
        fields: Some(Paths::default()),
        digest: true,
        ..Keep::default()
    };
    (scope, keep)
}

/// Names the line of a read grant.
pub(crate) fn read_line(index: usize, rule: &ReadRule) -> String {
    format!("spec.grant.read[{index}] ({})", rule.role)
}

/// Names the line of a write grant.
pub(crate) fn write_line(index: usize) -> String {
    format!("spec.grant.write[{index}]")
}

/// The watches of the primaries of a policy.
pub(crate) fn primary(policy: &Policy, revision: Option<&Revision>) -> Bounds {
    let rule = &policy.primary;
    let fields = revision
        .filter(|_| !whole(&rule.api_version, &rule.kind))
        .map(declared);
    let mut all = bound(
        &rule.api_version,
        &rule.kind,
        &bound::places_of_primaries(policy),
        fields.as_ref(),
    );
    for (scope, _) in &mut all {
        scope.labels = Some(rule.labels.clone()).filter(|labels| !labels.is_empty());
    }
    all
}

/// What is listed for the primaries of a policy.
pub fn scopes_of_primaries(policy: &Policy) -> impl Iterator<Item = Scope> {
    primary(policy, None).into_iter().map(|(scope, _)| scope)
}

/// Where the primaries of a policy may lie, whatever their labels: its kind, in all namespaces or in these.
pub fn places_of_primaries(policy: &Policy) -> Vec<ObjectRef> {
    let rule = &policy.primary;
    let place = |scope: Scope| ObjectRef {
        cluster: rule.cluster.clone(),
        api_version: scope.api_version,
        kind: scope.kind,
        namespace: scope.namespace,
        name: String::new(),
    };
    scopes_of_primaries(policy).map(place).collect()
}

/// The fields of a primary that the guests read, and those that the policy writes.
fn declared(revision: &Revision) -> Paths {
    let rule = &revision.policy.primary;
    let guests = revision.guests();
    let declared = guests.map(|guest| guest.declared(&rule.api_version, &rule.kind));
    let mut paths: Vec<_> = declared
        .flat_map(|declared| [&declared.fields, &declared.changes])
        .collect();
    let written = places_of_fields(revision.policy.primary_fields());
    paths.push(&written);
    Paths::union(paths)
}

/// The watches for what a role may read. For Secrets without an exact name they select the type `Opaque`, and the types
/// that have a granted key: never every Secret, because there are many and large ones, such as those of Helm.
pub(crate) fn read(policy: &Policy, revision: Option<&Revision>, rule: &ReadRule) -> Bounds {
    // Only the guest that decides asks for objects, and gets the fields that it declared.
    let guest = revision
        .filter(|_| !whole(&rule.api_version, &rule.kind))
        .map(|revision| &revision.decide);
    let fields = guest.map(|guest| &guest.declared(&rule.api_version, &rule.kind).fields);
    let all = bound(
        &rule.api_version,
        &rule.kind,
        &places(policy, rule.namespace.as_ref(), &rule.name),
        fields,
    );
    if is_secret(&rule.api_version, &rule.kind) {
        let (named, all) = all.into_iter().partition(|(scope, _)| scope.name.is_some());
        return of_types(named, &all, &rule.keys);
    }
    all
}

/// Adds watches of Secrets, one for each type that may have one of the granted keys.
fn of_types(named: Bounds, all: &Bounds, keys: &BTreeSet<String>) -> Bounds {
    let may_have = |(key, _): &&(&str, &str)| keys.contains(*key);
    let special = TYPES.iter().filter(may_have).map(|(_, kind)| *kind);
    let types: BTreeSet<_> = special.chain(["Opaque"]).collect();
    let mut watches = named;
    for (scope, keep) in all {
        watches.extend(types.iter().map(|kind| {
            let fields = Some(format!("type={kind}"));
            let scope = Scope {
                fields,
                ..scope.clone()
            };
            (scope, keep.clone())
        }));
    }
    watches
}

/// The watches for the objects that a policy makes, or may write of those that others made. Objects that it makes are
/// selected by our label where they have no exact name, in either mode: after a restart the agent must find what it
/// made. A second watch keeps the names of objects without the label, so that the agent does not request an object that
/// does not exist; not for Secrets, whose metadata may repeat their content (ADR 0057). A target without the label is
/// read by exact name. An object that is made once bears no label: only its metadata is kept.
pub(crate) fn target(policy: &Policy, revision: Option<&Revision>, rule: &WriteRule) -> Bounds {
    let Some((namespace, name)) = rule.place() else {
        return Bounds::default();
    };
    let is_secret = is_secret(&rule.api_version, &rule.kind);
    let of_others = rule.named().is_none();
    let once = rule.creates_only() && !is_secret;
    let fields = match of_others {
        true => revision
            .filter(|_| !whole(&rule.api_version, &rule.kind))
            .map(|_| places_of_fields(&rule.fields)),
        false => once.then(Paths::default),
    };
    let mut all = bound(
        &rule.api_version,
        &rule.kind,
        &places(policy, namespace, name),
        fields.as_ref(),
    );
    if of_others || once {
        return all;
    }
    let mut others = Bounds::new();
    for (scope, keep) in all.iter_mut().filter(|(scope, _)| scope.name.is_none()) {
        if !is_secret {
            others.push(names_of_others(scope, keep));
        }
        scope.labels = Some(Selector::equal(labels::MANAGED_BY, labels::MANAGER));
    }
    all.extend(others);
    all
}

/// The watch of the names of those objects that do not bear our label.
fn names_of_others(scope: &Scope, keep: &Keep) -> (Scope, Keep) {
    let scope = Scope {
        labels: Some(Selector::other(labels::MANAGED_BY, labels::MANAGER)),
        ..scope.clone()
    };
    let keep = Keep {
        names_only: true,
        ..keep.clone()
    };
    (scope, keep)
}

/// The places of fields that a policy writes.
fn places_of_fields(written: &[Path]) -> Paths {
    let places: Vec<_> = written
        .iter()
        .map(|path| path.place().to_string())
        .collect();
    Paths::parse(&places).unwrap_or_default()
}

fn whole(api_version: &str, kind: &str) -> bool {
    api_version == "v1" && WHOLE.contains(&kind) || is_request(api_version, kind)
}

#[cfg(test)]
mod tests {
    use super::super::KeptNames;
    use super::*;
    use crate::sample::{self, guest, kubeconfig_manifest, policy, taints_manifest};
    use serde_json::{Value, json};

    fn revision(manifest: &Value) -> Revision {
        Revision {
            policy: policy(manifest),
            trigger: Some(guest(&["status"], &["metadata.annotations"])),
            decide: guest(&["spec.platform"], &[]),
        }
    }

    /// A policy with values set at some pointers.
    fn with(manifest: Value, changes: &[(&str, Value)]) -> Revision {
        revision(&sample::with(manifest, changes))
    }

    fn catalogue(revisions: impl IntoIterator<Item = Revision>) -> Catalogue {
        revisions
            .into_iter()
            .fold(Catalogue::default(), |catalogue, revision| {
                catalogue.with(revision, "file")
            })
    }

    /// `kind namespace/name selectors: names in namespaces, fields`, with `*` for all.
    fn shown(watches: &Watches) -> Vec<String> {
        let or_all = |text: &Option<String>| text.clone().unwrap_or_else(|| "*".to_owned());
        let list = |names: &KeptNames| {
            let all: BTreeSet<&str> = names
                .exact
                .iter()
                .chain(&names.open)
                .map(|name| &**name)
                .collect();
            match names.are_all() {
                true => "*".to_owned(),
                false => Vec::from_iter(all).join(","),
            }
        };
        let one = |(scope, keep): (&Scope, &Keep)| {
            let labels = scope.labels.as_ref().map(ToString::to_string);
            let selectors: String = scope
                .fields
                .iter()
                .chain(&labels)
                .map(|selector| format!(" {selector}"))
                .collect();
            let fields = keep.fields.as_ref().map_or_else(
                || "whole".to_owned(),
                |paths| {
                    paths
                        .list()
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join(",")
                },
            );
            let fields = match keep.names_only {
                true => "names".to_owned(),
                false => fields,
            };
            let (namespace, name) = (or_all(&scope.namespace), or_all(&scope.name));
            let (names, namespaces) = (list(&keep.names), list(&keep.namespaces));
            format!(
                "{} {namespace}/{name}{selectors}: {names} in {namespaces}, {fields}",
                scope.kind
            )
        };
        watches.iter().map(one).collect()
    }

    fn watched(revisions: impl IntoIterator<Item = Revision>, secrets: SecretReads) -> Vec<String> {
        shown(&of(
            &catalogue(revisions),
            &[],
            "local",
            secrets,
            &BTreeSet::new(),
        ))
    }

    const HOSTED: &str = "HostedCluster */*: * in *, status,metadata.annotations,spec.platform";
    const KLUSTERLET: &str = "Klusterlet */*: klusterlet-* in *, ";
    const NAMESPACE: &str = "Namespace */*: klusterlet-* in *, whole";
    const TARGET: &str = "Secret */external-managed-kubeconfig: * in klusterlet-*, whole";
    const SERVICE: &str = "Service */kube-apiserver: * in *-*, whole";

    #[test]
    fn the_grant_of_a_policy_decides_its_watches() {
        let source = "Secret */* type=Opaque,metadata.name!=external-managed-kubeconfig: *-admin-kubeconfig in *, whole";
        assert_eq!(
            watched([revision(&kubeconfig_manifest())], SecretReads::Watch),
            [HOSTED, KLUSTERLET, NAMESPACE, source, TARGET, SERVICE]
        );
        assert_eq!(
            watched([revision(&kubeconfig_manifest())], SecretReads::Strict),
            [HOSTED, KLUSTERLET, NAMESPACE, TARGET, SERVICE]
        );
        let taints = ["ManagedCluster */*: * in *, spec.taints"];
        assert_eq!(
            watched([revision(&taints_manifest())], SecretReads::Watch),
            taints
        );
        assert_eq!(
            of(
                &catalogue([revision(&kubeconfig_manifest())]),
                &[],
                "hub",
                SecretReads::Watch,
                &BTreeSet::new()
            ),
            Watches::new()
        );
        assert_eq!(watched([], SecretReads::Watch), Vec::<String>::new());
    }

    #[test]
    fn a_policy_that_is_bounded_to_no_namespace_is_watched_nowhere() {
        let mut bounded = revision(&kubeconfig_manifest());
        bounded.policy.primary.namespaces.clear();
        assert_eq!(watched([bounded], SecretReads::Watch), Vec::<String>::new());
    }

    #[test]
    fn what_a_revision_reads_stays_watched_until_another_one_works() {
        let replaced = [Arc::new(revision(&kubeconfig_manifest()))];
        let watches = of(
            &catalogue([revision(&taints_manifest())]),
            &replaced,
            "local",
            SecretReads::Watch,
            &BTreeSet::new(),
        );
        let both = [kubeconfig_manifest(), taints_manifest()];
        let both = both.iter().map(revision);
        assert_eq!(shown(&watches), watched(both, SecretReads::Watch));
    }

    #[test]
    fn watches_the_objects_that_hold_components() {
        let component = (
            "/spec/guests/decide/component",
            json!("configmap:transom/taints/a+taints/b+more/c"),
        );
        let watched = |connection: &str| {
            let revision = with(taints_manifest(), std::slice::from_ref(&component));
            shown(&of(
                &catalogue([revision]),
                &[],
                connection,
                SecretReads::Watch,
                &BTreeSet::new(),
            ))
        };
        assert_eq!(
            watched("local"),
            [
                "ManagedCluster */*: * in *, spec.taints",
                "ConfigMap transom/more: * in *, ",
                "ConfigMap transom/taints: * in *, ",
            ]
        );
        assert_eq!(watched("hub"), Vec::<String>::new());
    }

    #[test]
    fn watches_exact_namespaces_one_by_one() {
        let exact = with(
            kubeconfig_manifest(),
            &[("/spec/primary/namespaces", json!(["two", "one"]))],
        );
        let hosted = |namespace: &str| HOSTED.replace("*/*", &format!("{namespace}/*"));
        let source = |namespace: &str| {
            format!(
                "Secret {namespace}/* type=Opaque,metadata.name!=external-managed-kubeconfig: *-admin-kubeconfig in *, whole"
            )
        };
        let service = SERVICE.replace("*-*", "one-*,two-*");
        assert_eq!(
            watched([exact], SecretReads::Watch),
            [
                &*hosted("one"),
                &*hosted("two"),
                KLUSTERLET,
                NAMESPACE,
                TARGET,
                &*source("one"),
                &*source("two"),
                &*service
            ]
        );
        let mixed = with(
            kubeconfig_manifest(),
            &[("/spec/primary/namespaces", json!(["one", "team-*"]))],
        );
        let watched = watched([mixed], SecretReads::Strict);
        assert_eq!(watched[0], HOSTED.replace("in *", "in one,team-*"));
        assert_eq!(watched[4], SERVICE.replace("*-*", "one-*,team-*-*"));
    }

    #[test]
    fn finds_targets_without_exact_name_by_our_label() {
        let target = with(
            kubeconfig_manifest(),
            &[(
                "/spec/grant/write/0/name",
                json!("{primary.name}-kubeconfig"),
            )],
        );
        let expected =
            "Secret */* app.kubernetes.io/managed-by=transom: *-kubeconfig in klusterlet-*, whole";
        assert_eq!(watched([target], SecretReads::Strict)[3], expected);
    }

    #[test]
    fn secrets_are_watched_of_each_type_that_may_have_a_granted_key() {
        let watched = |keys: Value| {
            let role = json!({"role": "a", "kind": "Secret", "namespace": "n", "name": "a-*", "keys": keys});
            let revision = with(
                sample::objects_manifest(),
                &[("/spec/grant/read", json!([role]))],
            );
            let mut watched = watched([revision], SecretReads::Watch);
            watched.retain(|one| one.starts_with("Secret"));
            watched
        };
        let of = |kind: &str| format!("Secret n/* type={kind}: a-* in *, whole");
        assert_eq!(watched(json!(["token"])), [of("Opaque")]);
        assert_eq!(
            watched(json!(["tls.crt", "tls.key"])),
            [of("Opaque"), of("kubernetes.io/tls")]
        );
        assert_eq!(
            watched(json!([".dockerconfigjson"])),
            [of("Opaque"), of("kubernetes.io/dockerconfigjson")]
        );
    }

    #[test]
    fn shows_which_targets_are_not_there() {
        let made = |kind: &str, verbs: &[&str]| {
            let target = json!({"kind": kind, "name": "a-{primary.name}", "verbs": verbs,
                "fields": ["metadata.labels.x"]});
            with(
                sample::objects_manifest(),
                &[("/spec/grant/write/0", target)],
            )
        };
        let watched = |revision: Revision| watched([revision], SecretReads::Watch);
        assert_eq!(
            watched(made("Namespace", &["create", "update"]))[1..],
            [
                "Namespace */* app.kubernetes.io/managed-by=transom: a-* in *, whole",
                "Namespace */* app.kubernetes.io/managed-by notin (transom): a-* in *, names",
            ]
        );
        // Made once, it bears no label.
        assert_eq!(
            watched(made("Namespace", &["create"]))[1..],
            ["Namespace */*: a-* in *, "]
        );
    }

    #[test]
    fn objects_of_others_are_watched_by_name_with_what_is_written_of_them() {
        let watched = |namespace: &str, name: &str| {
            let grant = json!([{"kind": "ConfigMap", "namespace": namespace, "name": name, "verbs": ["patch"],
                "fields": ["data.x", "metadata.labels[\"a.b/c-*\"]", "status.conditions"], "conditions": ["Ours"]}]);
            let revision = with(sample::objects_manifest(), &[("/spec/grant/write", grant)]);
            let mut watched = watched([revision], SecretReads::Watch);
            watched.retain(|one| one.starts_with("ConfigMap"));
            watched
        };
        let fields = "data.x,metadata.labels,status.conditions";
        for (namespace, name, expected) in [
            ("here", "facts", "here/facts: * in *"),
            ("{primary.name}", "facts", "*/facts: * in *"),
            ("here", "{primary.name}-facts", "here/*: *-facts in *"),
        ] {
            let expected = format!("ConfigMap {expected}, {fields}");
            assert_eq!(watched(namespace, name), [expected]);
        }
    }

    #[test]
    fn labels_of_primaries_limit_a_watch_that_no_other_policy_needs() {
        let labels = |labels: Value| ("/spec/primary/labels", labels);
        let expressions = json!([{"key": "b", "operator": "In", "values": ["c", "d"]}]);
        let selected = labels(json!({"matchLabels": {"a": ""}, "matchExpressions": expressions}));
        let one = with(taints_manifest(), std::slice::from_ref(&selected));
        let alone = ["ManagedCluster */* a=,b in (c,d): * in *, spec.taints"];
        assert_eq!(watched([one.clone()], SecretReads::Watch), alone);
        let named = |name: &str| ("/metadata/name", json!(name));
        let other = labels(json!({"matchLabels": {"e": "f"}}));
        let two = with(taints_manifest(), &[named("two"), other]);
        let each = [alone[0], "ManagedCluster */* e=f: * in *, spec.taints"];
        assert_eq!(watched([one.clone(), two], SecretReads::Watch), each);
        let every = with(taints_manifest(), &[named("every")]);
        assert_eq!(
            watched([one, every], SecretReads::Watch),
            ["ManagedCluster */*: * in *, spec.taints"]
        );
    }

    #[test]
    fn watches_shared_by_two_policies_are_opened_once() {
        let other = |changes: &[(&str, Value)]| {
            let named = [
                ("/metadata/name", json!("other")),
                ("/spec/own/keepUntilAbsent", json!([])),
            ];
            with(kubeconfig_manifest(), &[&named[..], changes].concat())
        };
        let watched = |changes: &[(&str, Value)]| {
            watched(
                [revision(&kubeconfig_manifest()), other(changes)],
                SecretReads::Watch,
            )
        };
        let all = [
            HOSTED,
            KLUSTERLET,
            NAMESPACE,
            "Secret */* type=Opaque,metadata.name!=external-managed-kubeconfig: *-admin-kubeconfig in *, whole",
            TARGET,
            SERVICE,
        ];
        assert_eq!(watched(&[]), all);
        for (pointer, value, expected) in [
            // The same watch keeps what both lines need.
            (
                "/spec/grant/read/2/name",
                json!("home-*"),
                NAMESPACE.replace("klusterlet-*", "home-*,klusterlet-*"),
            ),
            (
                "/spec/grant/read/2/name",
                json!("*"),
                NAMESPACE.replace("klusterlet-*", "*"),
            ),
            (
                "/spec/grant/read/0/name",
                json!("x-*"),
                all[3].replace("kubeconfig in", "kubeconfig,x-* in"),
            ),
            (
                "/spec/grant/write/0/namespace",
                json!("home-*"),
                TARGET.replace("klusterlet-*", "home-*,klusterlet-*"),
            ),
            // A covering watch keeps the objects of the watch that it covers.
            (
                "/spec/grant/read/2/name",
                json!("home"),
                NAMESPACE.replace("klusterlet-*", "home,klusterlet-*"),
            ),
            (
                "/spec/grant/write/0/namespace",
                json!("home"),
                TARGET.replace("klusterlet-*", "home,klusterlet-*"),
            ),
            (
                "/spec/primary/namespaces",
                json!(["one"]),
                HOSTED.to_owned(),
            ),
        ] {
            let watched = watched(&[(pointer, value.clone())]);
            assert!(
                watched.contains(&expected),
                "{pointer} {value}: {expected} is not in {watched:#?}"
            );
            assert_eq!(watched.len(), all.len(), "{pointer} {value}: {watched:#?}");
        }
        let service = watched(&[("/spec/grant/read/1/name", json!("kube-*"))]);
        assert_eq!(
            service[5], "Service */*: kube-*,kube-apiserver in *-*, whole",
            "one more, which holds the other"
        );
    }
}
