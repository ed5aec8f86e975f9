//! The least rights that policies need on the cluster of one connection, each with its reasons. Plain values: verbs
//! and resources are named one by one, without wildcards.

mod admission;
pub mod kinds;
mod least;
mod own;
mod verb;
mod writes;

pub use least::every_secret;
pub use verb::Verb;

use crate::policy::{Policy, ReadRule, Target};
use crate::reference::{LOCAL, group, is_secret};
use crate::stamp::CLUSTER_NAMESPACE;
use crate::watches::{Scope, SecretReads, plan};
use kinds::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use transom_api::policy::WriteVerb;

/// Name of the Lease by which replicas elect their leader.
pub const LEASE: &str = "transom";

/// Name of the ConfigMap that records how much each policy changed; `spec.limits`.
pub const LIMITS: &str = "transom-limits";

/// The namespace for Events about cluster-scoped objects.
const EVENTS_OF_CLUSTER: &str = "default";

/// Why a right is needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Because {
    /// A line of a policy.
    Policy {
        /// Name of the policy.
        policy: Arc<str>,
        /// Path of the line, with the role that it grants: `spec.grant.read[0] (source)`.
        line: String,
    },
    /// Something that the agent itself does, whatever the policies say.
    Agent(&'static str),
}

/// `policy external, spec.grant.write[0]`, or `the agent runs leader election`.
impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { policy, line } => write!(f, "policy {policy}, {line}"),
            Self::Agent(what) => write!(f, "the agent {what}"),
        }
    }
}

/// The objects that a right covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoveredObjects {
    /// Exact namespace; `None` for all of them, or for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// API group, empty for the core group.
    pub group: String,
    /// Plural name, with the subresource if it is one: `fleetpolicies/status`.
    pub resource: String,
    /// Exact name; `None` for all.
    pub name: Option<String>,
}

impl CoveredObjects {
    /// All objects of a resource.
    fn all(group: &str, resource: &str) -> Self {
        Self {
            namespace: None,
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: None,
        }
    }
}

/// What may be done with some objects, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Right {
    /// What may be done; never empty.
    pub verbs: BTreeSet<Verb>,
    /// Why; never empty.
    pub because: BTreeSet<Because>,
}

/// All rights; none of them is covered by another.
pub type Rights = BTreeMap<CoveredObjects, Right>;

/// The arguments of [`of`].
#[derive(Clone, Copy)]
pub struct RightsRequest<'a> {
    /// Name of the connection.
    pub connection: &'a str,
    /// Name of the connection on which the agent itself needs rights: [`home`].
    pub home: &'a str,
    /// How Secrets are read.
    pub secrets: SecretReads,
    /// Whether nothing is written but the Lease.
    pub read_only: bool,
    /// What the agent itself does.
    pub own: AgentDuties<'a>,
    /// The plural and the scope of a kind by its group and name, for those that [`kinds::known`] does not know:
    /// from discovery, or [`kinds::guess`].
    pub kind: &'a dyn Fn(&str, &str) -> Kind,
}

/// What an agent does besides the work for its policies, by its flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentDuties<'a> {
    /// Namespace of the Lease by which replicas elect their leader, if they do.
    pub lease: Option<&'a str>,
    /// Whether its policies are objects.
    pub policies: bool,
    /// Whether it asks the API server who may read its metrics.
    pub reviews: bool,
    /// The ConfigMaps that may hold components.
    pub components: &'a [AnyOf],
}

/// Objects of a namespace by name; `None` stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyOf {
    /// Exact namespace.
    pub namespace: Option<String>,
    /// Exact name.
    pub name: Option<String>,
}

/// The connection that the agent uses for itself, such as for its Lease: [`LOCAL`] where there is one of that name,
/// else the first of these API servers; `None` where there is none.
pub fn home<'a>(servers: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut servers = servers.into_iter();
    let first = servers.next()?;
    Some(if first == LOCAL {
        first
    } else {
        servers.find(|name| *name == LOCAL).unwrap_or(first)
    })
}

/// The rights that policies need on one connection; on [`home`] also those of the agent itself.
pub fn of(policies: &[&Policy], asked: RightsRequest<'_>) -> Rights {
    let mut needed = Needed {
        asked,
        rights: Rights::new(),
    };
    let whole = policies.iter().map(|policy| (*policy, None));
    for (scope, (_, because)) in plan::explained(whole, asked.connection, asked.secrets) {
        needed.scope(&scope, &[Verb::List, Verb::Watch], &because);
    }
    for policy in policies {
        needed.primaries(policy);
        needed.reads(policy);
        needed.asks(policy);
        needed.writes(policy);
        needed.cluster(policy);
        if !asked.read_only {
            needed.events(policy);
        }
    }
    if asked.connection == asked.home {
        needed.own(asked.own);
    }
    least::of(needed.rights)
}

/// Rights as they are collected, including those that others cover.
struct Needed<'a> {
    asked: RightsRequest<'a>,
    rights: Rights,
}

impl Needed<'_> {
    fn add(
        &mut self,
        objects: CoveredObjects,
        verbs: &[Verb],
        because: impl IntoIterator<Item = Because>,
    ) {
        let right = self.rights.entry(objects).or_default();
        right.verbs.extend(verbs.iter().cloned());
        right.because.extend(because);
    }

    /// Group and kind of a scope.
    fn kind<'s>(&self, scope: &'s Scope) -> (&'s str, Kind) {
        let group = group(&scope.api_version);
        let asked = || (self.asked.kind)(group, &scope.kind);
        (
            group,
            kinds::known(group, &scope.kind).unwrap_or_else(asked),
        )
    }

    /// Adds a right to the objects of a scope. RBAC can limit it by names only, not by other selectors.
    fn scope(&mut self, scope: &Scope, verbs: &[Verb], because: &BTreeSet<Because>) {
        let objects = self.objects(scope);
        self.add(objects, verbs, because.iter().cloned());
    }

    fn objects(&self, scope: &Scope) -> CoveredObjects {
        let (group, kind) = self.kind(scope);
        CoveredObjects {
            namespace: scope.namespace.clone().filter(|_| kind.namespaced),
            group: group.to_owned(),
            resource: kind.plural,
            name: scope.name.clone(),
        }
    }

    /// The right to read a primary by name: one that left a watch by labels may still exist without the labels.
    fn primaries(&mut self, policy: &Policy) {
        let primary = &policy.primary;
        if primary.cluster != self.asked.connection || primary.labels.is_empty() {
            return;
        }
        let because = because(policy, "spec.primary".to_owned());
        for (scope, _) in plan::primary(policy, None) {
            self.scope(&scope, &[Verb::Get], &because);
        }
    }

    /// Secrets are read by exact name where no watch shows for certain whether they exist.
    fn reads(&mut self, policy: &Policy) {
        let is_secret = |rule: &ReadRule| is_secret(&rule.api_version, &rule.kind);
        let connection = self.asked.connection;
        let reads = policy.reads.iter().enumerate();
        for (index, rule) in reads.filter(|(_, rule)| rule.cluster == connection && is_secret(rule))
        {
            let because = because(policy, plan::read_line(index, rule));
            let mut scopes = plan::read(policy, None, rule);
            scopes.retain(|(scope, _)| scope.name.is_none());
            for (scope, _) in scopes {
                self.scope(&scope, &[Verb::Get], &because);
            }
        }
    }

    /// The rights to write, and those that the world of the policy needs besides.
    fn writes(&mut self, policy: &Policy) {
        let connection = self.asked.connection;
        self.finalizer(policy);
        let ours = policy.writes.iter().enumerate();
        for (index, rule) in ours.filter(|(_, rule)| rule.cluster == connection) {
            match rule.target {
                Target::Primary => self.patches(policy, index, rule, plan::primary(policy, None)),
                Target::Others { .. } if rule.verbs.contains(&WriteVerb::Patch) => {
                    self.patches(policy, index, rule, plan::target(policy, None, rule));
                }
                Target::Named { .. } | Target::Others { .. } => self.makes(policy, index, rule),
            }
            self.hands_on(policy, index, rule);
            if !rule.taint_keys.is_empty() {
                let (group, resource, why) = admission::OF_TAINTS;
                let line = format!("{} ({why})", plan::write_line(index));
                let objects = CoveredObjects::all(group, resource);
                self.add(objects, &[Verb::List], because(policy, line));
            }
            for (group, resource, verb, why) in admission::reviews(rule) {
                if !self.asked.read_only {
                    let line = format!("{} ({why})", plan::write_line(index));
                    self.add(
                        CoveredObjects::all(group, resource),
                        &[verb],
                        because(policy, line),
                    );
                }
            }
        }
    }

    /// A finalizer is a field of the primary, which is read again when something was in the way of a write.
    fn finalizer(&mut self, policy: &Policy) {
        let here = policy.primary.cluster == self.asked.connection;
        if !here || self.asked.read_only || policy.finalizer.is_none() {
            return;
        }
        let because = because(policy, "spec.grant.finalizer".to_owned());
        for (scope, _) in plan::primary(policy, None) {
            self.scope(&scope, &[Verb::Get, Verb::Patch], &because);
        }
    }

    /// The right to read the uid of the namespace `kube-system`: on other connections, stamps name the primary's
    /// cluster by it.
    fn cluster(&mut self, policy: &Policy) {
        if policy.primary.cluster != self.asked.connection {
            return;
        }
        let namespace = CoveredObjects {
            name: Some(CLUSTER_NAMESPACE.to_owned()),
            ..CoveredObjects::all("", "namespaces")
        };
        for (index, _) in policy.marks_elsewhere() {
            let line = format!("{} (the uid of the cluster)", plan::write_line(index));
            self.add(namespace.clone(), &[Verb::List], because(policy, line));
        }
    }

    /// Warnings about a primary become Events in its namespace, and one about a moved tag an Event on the policy.
    fn events(&mut self, policy: &Policy) {
        if self.asked.connection == LOCAL && policy.has_tags() {
            let objects = CoveredObjects {
                namespace: Some(EVENTS_OF_CLUSTER.to_owned()),
                ..CoveredObjects::all("events.k8s.io", "events")
            };
            let because = because(policy, "spec.guests (a moved tag)".to_owned());
            self.add(objects, &[Verb::Create, Verb::Patch], because);
        }
        if policy.primary.cluster != self.asked.connection {
            return;
        }
        for (scope, _) in plan::primary(policy, None) {
            let (_, kind) = self.kind(&scope);
            let namespace = match kind.namespaced {
                true => scope.namespace,
                false => Some(EVENTS_OF_CLUSTER.to_owned()),
            };
            let objects = CoveredObjects {
                namespace,
                ..CoveredObjects::all("events.k8s.io", "events")
            };
            let because = because(policy, "spec.primary (warnings)".to_owned());
            self.add(objects, &[Verb::Create, Verb::Patch], because);
        }
    }
}

fn because(policy: &Policy, line: String) -> BTreeSet<Because> {
    BTreeSet::from([Because::Policy {
        policy: Arc::clone(&policy.name),
        line,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{kubeconfig_manifest, objects_manifest, policy, taints_manifest, with};
    use serde_json::{Value, json};

    const OWN: AgentDuties<'static> = AgentDuties {
        lease: Some("transom"),
        policies: true,
        reviews: true,
        components: &[],
    };

    /// What an agent on `local` that does everything is asked about a connection.
    fn asked(connection: &str, secrets: SecretReads) -> RightsRequest<'_> {
        RightsRequest {
            connection,
            home: LOCAL,
            secrets,
            read_only: false,
            own: OWN,
            kind: &|_, kind| kinds::guess(kind),
        }
    }

    fn rights_for(manifests: &[Value], asked: RightsRequest<'_>) -> Rights {
        let policies: Vec<_> = manifests.iter().map(policy).collect();
        of(&policies.iter().collect::<Vec<_>>(), asked)
    }

    fn rights(manifests: &[Value], connection: &str, secrets: SecretReads) -> Rights {
        rights_for(manifests, asked(connection, secrets))
    }

    /// The same for an agent that writes nothing, and does nothing else.
    fn read_only(manifests: &[Value], secrets: SecretReads) -> Vec<String> {
        let asked = RightsRequest {
            read_only: true,
            own: AgentDuties::default(),
            ..asked(LOCAL, secrets)
        };
        let rights = rights_for(manifests, asked);
        let shown = shown(&rights);
        assert_eq!(shown.len(), rights.len(), "more than the policies need");
        shown
    }

    /// `namespace/resource.group/name: verbs`, with `*` for all; without those of the agent itself.
    fn shown(rights: &Rights) -> Vec<String> {
        let ours = |right: &&Right| {
            right
                .because
                .iter()
                .any(|because| matches!(because, Because::Policy { .. }))
        };
        let or_all = |text: &Option<String>| text.clone().unwrap_or_else(|| "*".to_owned());
        let one = |(objects, right): (&CoveredObjects, &Right)| {
            let verbs: Vec<_> = right.verbs.iter().map(Verb::as_str).collect();
            let (namespace, name) = (or_all(&objects.namespace), or_all(&objects.name));
            format!(
                "{namespace}/{}.{}/{name}: {}",
                objects.resource,
                objects.group,
                verbs.join(" ")
            )
        };
        rights
            .iter()
            .filter(|(_, right)| ours(right))
            .map(one)
            .collect()
    }

    const KLUSTERLETS: &str = "*/klusterlets.operator.open-cluster-management.io/*: list watch";
    const SERVICES: &str = "*/services./kube-apiserver: list watch";
    const EVENTS: &str = "*/events.events.k8s.io/*: create patch";
    const HOSTED: &str = "*/hostedclusters.hypershift.openshift.io/*: list watch";

    #[test]
    fn the_agent_runs_on_local_or_on_the_first_connection() {
        assert_eq!(home([]), None);
        assert_eq!(home(["hub", "edge"]), Some("hub"));
        assert_eq!(home(["hub", LOCAL, "edge"]), Some(LOCAL));
        let count = |connection, home, read_only| {
            let asked = RightsRequest {
                home,
                read_only,
                ..asked(connection, SecretReads::Watch)
            };
            rights_for(&[], asked).len()
        };
        // Read-only, neither the status of policies nor what they changed is written.
        let counts = [
            count("hub", "hub", false),
            count("hub", "hub", true),
            count(LOCAL, "hub", false),
        ];
        assert_eq!(counts, [7, 4, 0]);
    }

    #[test]
    fn grants_are_bound_by_names() {
        let manifests = [kubeconfig_manifest()];
        assert_eq!(
            shown(&rights(&manifests, LOCAL, SecretReads::Watch)),
            [
                "*/namespaces./*: list watch",
                "*/secrets./*: get list watch",
                "*/secrets./external-managed-kubeconfig: create patch delete",
                SERVICES,
                EVENTS,
                HOSTED,
                KLUSTERLETS
            ]
        );
        let strict = shown(&rights(&manifests, LOCAL, SecretReads::Strict));
        let secrets: Vec<_> = strict
            .iter()
            .filter(|line| line.contains("secrets"))
            .collect();
        let target = "*/secrets./external-managed-kubeconfig: list watch create patch delete";
        assert_eq!(secrets, ["*/secrets./*: get", target]);
        assert_eq!(rights(&manifests, "hub", SecretReads::Watch), Rights::new());
    }

    #[test]
    fn taints_need_patch_on_primaries_and_events() {
        let write = "/spec/grant/write/0";
        let by_key =
            json!({"target": "primary", "verbs": ["patch"], "fields": ["spec.taints[key=a]"]});
        let by_key = with(objects_manifest(), &[(write, by_key)]);
        for manifest in [taints_manifest(), by_key] {
            assert_eq!(
                shown(&rights(&[manifest], LOCAL, SecretReads::Strict)),
                [
                    "*/mutatingwebhookconfigurations.admissionregistration.k8s.io/*: list",
                    "*/managedclusters.cluster.open-cluster-management.io/*: get list watch patch",
                    "default/events.events.k8s.io/*: create patch"
                ]
            );
        }
    }

    #[test]
    fn a_status_needs_patch_on_its_subresource_only() {
        let grant = |fields: Value| json!({"target": "primary", "verbs": ["patch"], "fields": fields, "conditions": ["Approved"]});
        let shown_for = |changes: &[(&str, Value)]| {
            let manifest = with(objects_manifest(), changes);
            let mut rights = shown(&rights(&[manifest], LOCAL, SecretReads::Strict));
            rights.retain(|right| !right.contains("events"));
            rights
        };
        let write = "/spec/grant/write/0";
        assert_eq!(
            shown_for(&[(write, grant(json!(["status.conditions"])))]),
            [
                "*/managedclusters.cluster.open-cluster-management.io/*: get list watch",
                "*/managedclusters/status.cluster.open-cluster-management.io/*: patch",
            ]
        );
        let mut both = grant(json!(["status.conditions", "metadata.labels.a"]));
        assert_eq!(
            shown_for(&[(write, both.clone())])[0],
            "*/managedclusters.cluster.open-cluster-management.io/*: get list watch patch"
        );
        both["signers"] = json!(["a.b/c"]);
        both["fields"] = json!(["status.conditions"]);
        let request =
            json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"});
        assert_eq!(
            shown_for(&[("/spec/primary", request), (write, both)]),
            [
                "*/certificatesigningrequests.certificates.k8s.io/*: get list watch",
                "*/certificatesigningrequests/approval.certificates.k8s.io/*: patch",
                "*/signers.certificates.k8s.io/a.b/c: approve",
            ]
        );
    }

    #[test]
    fn fields_of_objects_of_others_need_patch_where_the_grant_names_them() {
        let shown_for = |change: (&str, Value)| {
            let grant = json!({"kind": "ConfigMap", "namespace": "{primary.name}", "name": "facts", "verbs": ["patch"],
                "fields": ["data.x", "status.conditions"], "conditions": ["Ours"]});
            let grant = with(grant, &[change]);
            let manifest = with(objects_manifest(), &[("/spec/grant/write/0", grant)]);
            let mut rights = shown(&rights(&[manifest], LOCAL, SecretReads::Strict));
            rights.retain(|right| right.contains("configmaps"));
            rights
        };
        assert_eq!(
            shown_for(("/cluster", json!("local"))),
            [
                "*/configmaps./facts: get list watch patch",
                "*/configmaps/status./facts: patch",
            ]
        );
        assert_eq!(
            shown_for(("/namespace", json!("here")))[1],
            "here/configmaps/status./facts: patch"
        );
        assert_eq!(
            shown_for(("/name", json!("{primary.name}"))),
            [
                "*/configmaps./*: get list watch patch",
                "*/configmaps/status./*: patch",
            ]
        );
        assert_eq!(shown_for(("/cluster", json!("hub"))), Vec::<String>::new());
    }

    #[test]
    fn what_is_made_on_another_connection_needs_the_uid_of_the_cluster_of_the_primary() {
        let listed = |verbs: Value, cluster: &str, connection: &str| {
            let grant = json!([{"kind": "ConfigMap", "namespace": "n", "name": "{primary.name}", "verbs": verbs,
                "fields": ["data.x"], "cluster": cluster}]);
            let manifest = with(objects_manifest(), &[("/spec/grant/write", grant)]);
            let rights = shown(&rights(&[manifest], connection, SecretReads::Strict));
            let read = "*/namespaces./kube-system: list";
            rights.iter().any(|right| right == read)
        };
        let makes = || json!(["create", "update"]);
        assert!(listed(makes(), "hub", LOCAL));
        assert!(!listed(makes(), "hub", "hub"));
        assert!(!listed(makes(), LOCAL, LOCAL));
        assert!(!listed(json!(["create"]), "hub", LOCAL), "it has no stamp");
        assert!(!listed(json!(["patch"]), "hub", LOCAL), "others made it");
    }

    #[test]
    fn fields_that_a_webhook_reviews_need_the_right_that_it_asks_for() {
        let join = "*/managedclustersets/join.cluster.open-cluster-management.io/*: create";
        let accept = "*/managedclusters/accept.register.open-cluster-management.io/*: update";
        for (field, needed) in [
            (
                r#"metadata.labels["cluster.open-cluster-management.io/clusterset"]"#,
                vec![join],
            ),
            ("metadata.labels", vec![join]),
            (
                r#"metadata.labels["cluster.open-cluster-management.io/*"]"#,
                vec![join],
            ),
            (
                r#"metadata.labels["cluster.open-cluster-management.io/a*"]"#,
                vec![],
            ),
            ("metadata.labels.other", vec![]),
            ("spec.hubAcceptsClient", vec![accept]),
            ("spec", vec![accept]),
        ] {
            let grant = json!({"target": "primary", "verbs": ["patch"], "fields": [field]});
            let manifest = with(objects_manifest(), &[("/spec/grant/write/0", grant)]);
            let mut rights = shown(&rights(&[manifest], LOCAL, SecretReads::Strict));
            rights.retain(|right| right == join || right == accept);
            assert_eq!(rights, needed, "{field}");
        }
    }

    #[test]
    fn read_only_needs_read_permissions_only() {
        let secrets = "*/secrets./*: get list watch";
        let manifests = [kubeconfig_manifest(), taints_manifest()];
        assert_eq!(
            read_only(&manifests, SecretReads::Watch),
            [
                "*/namespaces./*: list watch",
                secrets,
                SERVICES,
                "*/mutatingwebhookconfigurations.admissionregistration.k8s.io/*: list",
                "*/managedclusters.cluster.open-cluster-management.io/*: list watch",
                HOSTED,
                KLUSTERLETS
            ]
        );
        let strict = read_only(&manifests, SecretReads::Strict);
        let target = "*/secrets./external-managed-kubeconfig: list watch";
        assert_eq!(strict[1..3], ["*/secrets./*: get", target]);
    }

    #[test]
    fn exact_namespaces_need_only_roles() {
        let exact = with(
            kubeconfig_manifest(),
            &[
                ("/spec/primary/namespaces", json!(["clusters"])),
                ("/spec/own/keepUntilAbsent", json!([])),
                ("/spec/grant/write/0/namespace", json!("home")),
                ("/spec/grant/write/0/verbs", json!(["update"])),
                ("/spec/grant/read/3/kind", json!("Widget")),
            ],
        );
        assert_eq!(
            shown(&rights(&[exact], LOCAL, SecretReads::Strict)),
            [
                "*/namespaces./*: list watch",
                SERVICES,
                "*/widgets.operator.open-cluster-management.io/*: list watch",
                "clusters/secrets./*: get",
                &EVENTS.replace('*', "clusters").replace("/clusters:", "/*:"),
                "clusters/hostedclusters.hypershift.openshift.io/*: list watch",
                "home/secrets./external-managed-kubeconfig: get list watch patch"
            ]
        );
    }

    #[test]
    fn a_permission_covered_by_another_keeps_its_reason() {
        let other = with(
            kubeconfig_manifest(),
            &[
                ("/metadata/name", json!("other")),
                ("/spec/primary/namespaces", json!(["clusters"])),
            ],
        );
        let rights = rights(&[kubeconfig_manifest(), other], LOCAL, SecretReads::Watch);
        assert!(rights.keys().all(|objects| {
            objects
                .namespace
                .as_deref()
                .is_none_or(|name| name == "transom")
        }));
        let reasons = |resource: &str| -> Vec<_> {
            let all =
                |objects: &&CoveredObjects| objects.resource == resource && objects.name.is_none();
            let because = &rights[rights.keys().find(all).unwrap()].because;
            because.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            reasons("hostedclusters"),
            [
                "policy external, spec.primary",
                "policy other, spec.primary"
            ]
        );
        let source = "policy other, spec.grant.read[0] (source)".to_owned();
        assert!(reasons("secrets").contains(&source));
    }

    #[test]
    fn warns_of_access_to_all_secrets_but_not_to_named_ones() {
        let said =
            |manifest: &Value, reads, read_only| every_secret(&policy(manifest), reads, read_only);
        let bound = with(
            kubeconfig_manifest(),
            &[
                ("/spec/primary/namespaces", json!(["clusters"])),
                ("/spec/own/keepUntilAbsent", json!([])),
                ("/spec/grant/write/0/namespace", json!("home")),
            ],
        );
        for reads in [SecretReads::Watch, SecretReads::Strict] {
            let all = said(&kubeconfig_manifest(), reads, false);
            assert!(
                all.len() == 1 && all[0].contains("every Secret of `local`"),
                "{all:?}"
            );
            assert!(all[0].contains("spec.grant.read[0] (source)"), "{all:?}");
            assert_eq!(said(&bound, reads, false), Vec::<String>::new());
            assert_eq!(said(&taints_manifest(), reads, false), Vec::<String>::new());
        }
        let named = with(
            kubeconfig_manifest(),
            &[("/spec/grant/write/0/name", json!("access-*"))],
        );
        let writes = |read_only| {
            said(&named, SecretReads::Strict, read_only)[0]
                .contains("create, patch, delete every Secret")
        };
        assert!(writes(false) && !writes(true));
        let elsewhere = with(
            kubeconfig_manifest(),
            &[("/spec/grant/read/0/cluster", json!("hub"))],
        );
        assert_eq!(
            said(&elsewhere, SecretReads::Strict, false)
                .iter()
                .filter(|one| one.contains("`hub`"))
                .count(),
            1
        );
    }

    #[test]
    fn without_policies_the_agent_needs_few_permissions() {
        let rights = rights(&[], LOCAL, SecretReads::Watch);
        let lease = rights
            .iter()
            .find(|(objects, _)| objects.resource == "leases")
            .unwrap();
        assert_eq!(
            (lease.0.namespace.as_deref(), lease.0.name.as_deref()),
            (Some("transom"), Some(LEASE))
        );
        let revisions = rights
            .iter()
            .find(|(objects, _)| objects.resource == "controllerrevisions")
            .unwrap();
        assert_eq!(revisions.0.namespace.as_deref(), Some("transom"));
        assert_eq!((rights.len(), shown(&rights)), (8, vec![]));
        let limits = rights
            .iter()
            .find(|(objects, _)| objects.resource == "configmaps");
        let (limits, right) = limits.unwrap();
        assert_eq!(
            (limits.namespace.as_deref(), limits.name.as_deref()),
            (Some("transom"), Some(LIMITS))
        );
        let verbs = [Verb::List, Verb::Create, Verb::Patch];
        assert_eq!(right.verbs, verbs.into());
        assert!(read_only(&[], SecretReads::Watch).is_empty());
    }
}
