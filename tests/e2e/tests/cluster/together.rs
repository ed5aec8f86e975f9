//! All policies on one API server, with exactly the permissions that `transom rbac` prints for them, and the real other
//! side: a HostedCluster is imported, the real registration agent joins its cluster, and it leaves again. Nothing is
//! denied, also with the checks of a hub; no field has two owners, and once all is settled nothing is written.

use crate::access::{CLUSTERS, PREFIX};
use crate::availability::CLOCK;
use crate::copying::{HUB, hosted};
use crate::hub_admission;
use crate::inputs::{REQUEST, reconciles_of};
use crate::leaving::{OPERATOR, goes};
use crate::objects::{CLUSTERS as HOSTED_IN, home};
use crate::spoke::{
    AVAILABLE, BOOTSTRAP, HUB_CRDS, JOINERS, SET_CRDS, Spoke, controllers, is_tainted, says,
};
use crate::stage::{DEADLINE, HOSTED, KLUSTERLET, MANAGED, NAMESPACE, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_test_cluster::{Mark, wait};

/// The agent of a hub that hosts control planes itself.
pub(crate) const SELF_MANAGED: [&str; 4] = ["--cluster-name", HUB, "--self-managed-cluster", HUB];
const SET: (&str, &str) = (
    "cluster.open-cluster-management.io/v1beta2",
    "ManagedClusterSet",
);
const BINDING: (&str, &str) = (SET.0, "ManagedClusterSetBinding");
pub(crate) const ADDON: (&str, &str) = (
    "addon.open-cluster-management.io/v1alpha1",
    "ManagedClusterAddOn",
);
pub(crate) const WORK: (&str, &str) = ("work.open-cluster-management.io/v1", "ManifestWork");
const ROLE: (&str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRole");
/// The set that clusters with the claim of the spoke get, and the namespace that it wants on them.
pub(crate) const EDGE: &str = "edge";
pub(crate) const SET_LABEL: &str = "cluster.open-cluster-management.io/clusterset";
/// What others hold objects with.
pub(crate) const HOLD: &str = "example.com/hold";

/// All policies that there are, each with its own folder, with the settings of a hub, and with a pace of resyncs if one
/// is given. Returns their names.
pub(crate) fn put_all(folder: &Path, resync: Option<u64>) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(program::root().join("policies"))? {
        let file = entry?.path().join("policy.yaml");
        if !file.is_file() {
            continue;
        }
        let mut policy: Value = serde_yaml::from_str(&fs::read_to_string(&file)?)?;
        let name = policy["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let settings = match name.as_str() {
            "client-certificates" => Some(json!({"bootstrap": {"groups": [JOINERS]}})),
            "cluster-acceptance" => Some(json!({"rules": [{"names": [format!("{CLUSTERS}*")]}]})),
            "cluster-sets-by-rule" => {
                Some(json!({"rules": [{"set": EDGE, "claims": {"id.k8s.io": ["spoke"]}}]}))
            }
            "detach" => Some(json!({"stuckAfterSeconds": 1, "takeFinalizers": true})),
            _ => None,
        };
        for (key, value) in settings.iter().flat_map(Value::as_object).flatten() {
            policy["spec"]["guests"]["decide"]["settings"][key.as_str()] = value.clone();
        }
        policy["spec"]["limits"] = program::unlimited();
        if let Some(seconds) = resync {
            policy["spec"]["resyncSeconds"] = json!(seconds);
        }
        crate::importing::put(folder, &name, &policy)?;
        names.insert(name);
    }
    Ok(names)
}

/// What several policies write, each fields of its own; everything else has one writer.
const WRITTEN_BY_SEVERAL: [(&str, &[&str]); 3] = [
    ("hostedclusters", &["auto-import", "detach"]),
    (
        "managedclusters",
        &[
            "addon-health",
            "auto-import",
            "built-in-taints",
            "cleanup",
            "cluster-acceptance",
            "cluster-access",
            "cluster-sets-by-rule",
            "taint-times",
        ],
    ),
    (
        "managedclusters/status",
        &[
            "availability",
            "cleanup",
            "cluster-access",
            "managed-namespaces",
        ],
    ),
];

/// Checks that what several policies wrote since a mark is what they share, and that each of these wrote it.
async fn each_has_its_own(stage: &Stage, since: Mark) -> Result<()> {
    let mut writers: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for line in stage.lines(since).await? {
        let policy = line.uri.split_once("fieldManager=transom-");
        let policy = policy.and_then(|(_, rest)| rest.split('&').next());
        let (Some(policy), Some(target)) = (policy, &line.target) else {
            continue;
        };
        let what = match target.subresource.as_str() {
            "" => target.resource.clone(),
            part => format!("{}/{part}", target.resource),
        };
        let object = (what, target.namespace.clone(), target.name.clone());
        let policies = writers.entry(object).or_default();
        policies.insert(policy.to_owned());
    }
    writers.retain(|_, policies| policies.len() > 1);
    let mut by_kind: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ((what, ..), policies) in writers {
        by_kind.entry(what).or_default().extend(policies);
    }
    let known = WRITTEN_BY_SEVERAL.map(|(what, policies)| {
        let policies = policies.iter().map(|policy| (*policy).to_owned());
        (what.to_owned(), policies.collect())
    });
    ensure!(by_kind == BTreeMap::from(known), "{by_kind:#?}");
    Ok(())
}

/// The fields of an object that two policies own, by its `managedFields`.
fn owned_twice(object: &Value) -> Vec<String> {
    fn leaves(fields: &Value, path: &str, to: &mut Vec<String>) {
        for (key, below) in fields.as_object().into_iter().flatten() {
            let path = format!("{path}/{key}");
            match below.as_object().is_none_or(serde_json::Map::is_empty) {
                // A dot is the map itself, which everybody with a key of it has.
                true if key != "." => to.push(path),
                true => {}
                false => leaves(below, &path, to),
            }
        }
    }
    let mut seen = BTreeMap::new();
    let mut twice = Vec::new();
    let managers = object["metadata"]["managedFields"].as_array();
    for entry in managers.into_iter().flatten() {
        let manager = entry["manager"].as_str().unwrap_or_default();
        let mut fields = Vec::new();
        leaves(&entry["fieldsV1"], "", &mut fields);
        for field in fields
            .into_iter()
            .filter(|_| manager.starts_with("transom-"))
        {
            let first = seen.entry(field.clone()).or_insert(manager);
            if *first != manager {
                twice.push(format!("{field}: {first}, {manager}"));
            }
        }
    }
    twice
}

#[test]
fn reads_what_two_own() {
    let entry = |manager: &str, key: &str| json!({"manager": manager, "fieldsV1": {"f:metadata": {"f:labels": {".": {}, (key): {}}}}});
    let object = |second: &str| json!({"metadata": {"managedFields": [entry("transom-a", "f:x"), entry("transom-b", second), entry("kubectl", "f:x")]}});
    assert_eq!(owned_twice(&object("f:y")), Vec::<String>::new());
    assert_eq!(
        owned_twice(&object("f:x")),
        ["/f:metadata/f:labels/f:x: transom-a, transom-b"]
    );
}

/// Rights that this story does not use.
const UNUSED: [(&str, &str); 16] = [
    // What `cluster-access` hands on to the agents of a cluster, and does not do itself.
    ("certificatesigningrequests", "create"),
    ("events", "create"),
    ("events", "patch"),
    ("events", "update"),
    ("leases", "update"),
    ("managedclusteraddons/status", "update"),
    ("managedclusters", "update"),
    ("managedclusters/clientcertificates", "renew"),
    ("managedclusters/status", "update"),
    ("manifestworks", "patch"),
    ("manifestworks", "update"),
    ("manifestworks/status", "patch"),
    ("manifestworks/status", "update"),
    // The checks of a hub, and the approval itself, ask for these, which is no request of the agent.
    ("managedclusters/accept", "update"),
    ("managedclustersets/join", "create"),
    ("signers", "approve"),
];

/// Rights to read single objects of kinds that are watched: for a write that comes too late, which need not happen
/// here. The other kinds are read before something is removed, or kept for good.
const UNREAD: [(&str, &str); 11] = [
    ("certificatesigningrequests", "get"),
    ("clusterrolebindings", "get"),
    ("clusterroles", "get"),
    ("klusterlets", "get"),
    ("leases", "get"),
    ("managedclusteraddons", "get"),
    ("managedclustersetbindings", "get"),
    ("managedclustersets", "get"),
    ("manifestworks", "get"),
    ("namespaces", "get"),
    ("rolebindings", "get"),
];

/// The agent of the add-on of a cluster says that it is well.
pub(crate) async fn addon_is_well(stage: &Stage, cluster: &str) -> Result<()> {
    let well = json!({"conditions": [{"type": "Available", "status": "True", "reason": "Told", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    stage.put_status(ADDON, Some(cluster), "addon", &well).await
}

/// Everything that the agents of the story make and need.
struct Story<'a> {
    stage: &'a Stage,
    name: String,
}

impl Story<'_> {
    /// Waits until the ManagedCluster is as it should be.
    async fn cluster(&self, what: &str, is_right: impl Fn(&Value) -> bool) -> Result<Value> {
        let objects = self.stage.objects();
        let came = objects.wait_for(MANAGED, (None, &self.name), is_right);
        came.await.with_context(|| what.to_owned())
    }

    fn here(&self) -> Option<&str> {
        Some(&self.name)
    }

    /// An object of others in the namespace of the cluster, which goes only when they release it.
    async fn held(&self, kind: (&str, &str), name: &str) -> Result<()> {
        let body = json!({"apiVersion": kind.0, "kind": kind.1, "spec": {},
            "metadata": {"name": name, "namespace": self.name, "finalizers": [HOLD]}});
        self.stage.objects().create(body).await.map(drop)
    }

    async fn release(&self, kind: (&str, &str), name: &str) -> Result<()> {
        let body = json!({"metadata": {"finalizers": null}});
        self.stage.patch(kind, self.here(), name, body).await
    }

    /// The agent of the add-on says that it is well.
    async fn addon_is_well(&self) -> Result<()> {
        addon_is_well(self.stage, &self.name).await
    }

    /// A HostedCluster is imported and accepted before its agent comes: it is not reachable.
    async fn is_imported(&self) -> Result<()> {
        let stage = self.stage;
        let [kubeconfig, password] = hosted(stage, &self.name).await?;
        stage.objects().namespace(&home(&self.name)).await?;
        stage.wait_for_right(&self.name, 6443).await?;
        for (what, data) in [
            ("admin-kubeconfig", kubeconfig),
            ("kubeadmin-password", password),
        ] {
            let name = format!("{}-{what}", self.name);
            let copied = |copy: &Value| copy["data"] == data;
            let place = (Some(HUB), name.as_str());
            stage.objects().wait_for(SECRET, place, copied).await?;
        }
        self.cluster("a ManagedCluster that is not reachable", |cluster| {
            says(cluster, "HubAcceptedManagedCluster", "True") && is_tainted(cluster)
        })
        .await?;
        // People change the lease; nothing puts it back.
        let lease = json!({"spec": {"leaseDurationSeconds": 1}});
        stage.patch(MANAGED, None, &self.name, lease).await
    }

    /// The cluster is available, in its set, and each of its parts is told.
    async fn is_settled(&self, spoke: &Spoke) -> Result<()> {
        let stage = self.stage;
        self.cluster("an available cluster", |cluster| {
            let all = ["ManagedClusterJoined", AVAILABLE, CLOCK];
            let taints = cluster["spec"]["taints"].as_array();
            let mut taints = taints.into_iter().flatten();
            all.iter().all(|kind| says(cluster, kind, "True"))
                && !is_tainted(cluster)
                && taints.all(|taint| taint["timeAdded"].is_string())
                && cluster["metadata"]["labels"][SET_LABEL] == EDGE
                && cluster["metadata"]["labels"]["feature.open-cluster-management.io/addon-addon"]
                    == "available"
                && cluster["status"]["managedNamespaces"][0]["conditions"][0]["status"] == "True"
        })
        .await?;
        // The registration agent made the namespace that the set wants on its clusters.
        let wanted = spoke.cluster.objects().get(NAMESPACE, (None, EDGE)).await?;
        ensure!(wanted.is_object(), "no namespace on the spoke");
        let counted =
            |set: &Value| set["status"]["conditions"][0]["message"] == "1 ManagedClusters selected";
        stage.objects().wait_for(SET, (None, EDGE), counted).await?;
        let bound = |binding: &Value| binding["status"]["conditions"][0]["status"] == "True";
        let place = (Some("default"), EDGE);
        stage
            .objects()
            .wait_for(BINDING, place, bound)
            .await
            .map(drop)
    }

    /// The HostedCluster is deleted: its ManagedCluster goes, with its add-ons first and then its works.
    async fn leaves(&self) -> Result<()> {
        let (stage, objects) = (self.stage, self.stage.objects());
        stage.delete(HOSTED, Some(HOSTED_IN), &self.name).await?;
        let remains = |resource: &'static str| {
            move |cluster: &Value| {
                let all = cluster["status"]["conditions"].as_array();
                let mut all = all.into_iter().flatten();
                goes(cluster)
                    && all.any(|one| {
                        one["type"] == "Deleting"
                            && one["message"]
                                .as_str()
                                .is_some_and(|text| text.contains(resource))
                    })
            }
        };
        self.cluster("add-ons first", remains("managedclusteraddons"))
            .await?;
        ensure!(!goes(&objects.get(WORK, (self.here(), "work")).await?));
        // The Klusterlet begins to go, and is stuck: its finalizer is taken off.
        let klusterlet = home(&self.name);
        stage.delete(KLUSTERLET, None, &klusterlet).await?;
        let gone = objects.wait_for(KLUSTERLET, (None, &klusterlet), Value::is_null);
        gone.await.context("no Klusterlet")?;
        self.release(ADDON, "addon").await?;
        self.cluster("then works", remains("manifestworks")).await?;
        self.release(WORK, "work").await?;
        self.cluster("no ManagedCluster", Value::is_null).await?;
        let place = (Some(HOSTED_IN), self.name.as_str());
        objects.wait_for(HOSTED, place, Value::is_null).await?;
        stage.wait_for_no_output(&self.name).await?;
        for what in ["admin-kubeconfig", "kubeadmin-password"] {
            let name = format!("{}-{what}", self.name);
            objects
                .wait_for(SECRET, (Some(HUB), &name), Value::is_null)
                .await?;
        }
        let role = format!("{PREFIX}{}", self.name);
        objects
            .wait_for(ROLE, (None, &role), Value::is_null)
            .await?;
        // The namespace stays with what others have in it, until somebody deletes it: then it ends.
        let namespace = objects.get(NAMESPACE, (None, &self.name)).await?;
        ensure!(namespace.is_object() && !goes(&namespace), "{namespace}");
        stage.delete(NAMESPACE, None, &self.name).await?;
        objects
            .wait_for(NAMESPACE, (None, &self.name), Value::is_null)
            .await
            .map(drop)
    }
}

/// Checks that five resyncs of every primary under every policy write nothing, and that no field has two owners.
async fn is_quiet(stage: &Stage, names: &BTreeSet<String>, words: &[&str]) -> Result<()> {
    let agent = stage.start_at_real_time(words)?;
    agent.wait_for_first_pass()?;
    let rounds = |agent: &Agent| -> Result<BTreeMap<String, f64>> {
        let all = names.iter();
        all.map(|name| Ok((name.clone(), reconciles_of(agent, name)?)))
            .collect()
    };
    let mark = stage.mark()?;
    let before = rounds(&agent)?;
    wait::until("five resyncs of each policy", DEADLINE, async || {
        let now = rounds(&agent)?;
        // Requests for certificates are gone by then.
        let idle = |name: &str| name == "client-certificates";
        let all = before
            .iter()
            .all(|(name, count)| idle(name) || now[name] >= count + 5.0);
        Ok(all.then_some(()))
    })
    .await
    .with_context(|| format!("{before:?}, then {:?}", rounds(&agent)))?;
    agent.stop()?;
    let changing = stage.changing(mark).await?;
    ensure!(changing.is_empty(), "nothing was to do: {changing:#?}");
    for kind in [
        HOSTED, MANAGED, SET, BINDING, ADDON, SECRET, NAMESPACE, ROLE,
    ] {
        for object in stage.list(kind).await? {
            let twice = owned_twice(&serde_json::to_value(&object)?);
            ensure!(
                twice.is_empty(),
                "{} {}: {twice:#?}",
                kind.1,
                object.name_any()
            );
        }
    }
    Ok(())
}

/// A set with a namespace for its clusters, and a binding of it.
pub(crate) async fn put_set(stage: &Stage) -> Result<()> {
    for object in [
        json!({"apiVersion": SET.0, "kind": SET.1, "metadata": {"name": EDGE},
            "spec": {"managedNamespaces": [{"name": EDGE}]}}),
        json!({"apiVersion": BINDING.0, "kind": BINDING.1, "metadata": {"name": EDGE, "namespace": "default"},
            "spec": {"clusterSet": EDGE}}),
    ] {
        stage.objects().apply(object).await?;
    }
    Ok(())
}

/// What the story needs on the hub: kinds, a set with a namespace for its clusters, and who may bring clusters.
async fn given(stage: &Stage) -> Result<()> {
    for crds in [&HUB_CRDS, &SET_CRDS] {
        stage.cluster.install_crds(crds).await?;
    }
    stage.objects().apply_manifest(BOOTSTRAP).await?;
    stage.objects().namespace(HUB).await?;
    put_set(stage).await
}

#[test]
fn a_hosted_cluster_comes_and_goes_under_all_policies_with_the_real_agent() -> Result<()> {
    on_stage(async |stage| {
        given(stage).await?;
        // The checks of a hub hinder neither the policies nor the real agent.
        hub_admission::begin(stage).await?;
        let folder = stage.cluster.folder().join("policies-together");
        let names = put_all(&folder, None)?;
        let path = folder.to_str().context("the folder has another name")?;
        let words = [&["--policies", path][..], &SELF_MANAGED].concat();
        let rights = stage.grant_exactly(&["--policies", path]).await?;
        let mark = stage.mark()?;
        let transom = stage.start_at_real_time(&words)?;
        let kubernetes = controllers(&stage.cluster, "csrsigning,namespace", "1h")?;
        let story = Story {
            stage,
            name: format!("{CLUSTERS}spoke"),
        };
        story.is_imported().await.with_context(|| transom.tail())?;
        // The operator holds the Klusterlet, and will not come to release it.
        let klusterlet = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "spec": {},
            "metadata": {"name": home(&story.name), "finalizers": [OPERATOR]}});
        stage.objects().create(klusterlet).await?;
        let spoke = Spoke::start(stage, &story.name).await?;
        let agent = spoke.agent("registration-1.log")?;
        let joined = story.cluster("a cluster that has joined", |cluster| {
            says(cluster, AVAILABLE, "True")
        });
        joined.await.with_context(|| agent.tail())?;
        story.held(ADDON, "addon").await?;
        story.held(WORK, "work").await?;
        story.addon_is_well().await?;
        let user =
            json!({"spec": {"taints": [{"key": "example.com/user", "effect": "PreferNoSelect"}]}});
        stage.patch(MANAGED, None, &story.name, user).await?;
        let settled = story.is_settled(&spoke).await;
        settled.with_context(|| format!("{}\n{}", agent.tail(), transom.tail()))?;
        let renewed = spoke.renews(stage).await;
        renewed.with_context(|| format!("{}\n{}", agent.tail(), transom.tail()))?;
        story.is_settled(&spoke).await?;
        transom.stop()?;
        for request in stage.list(REQUEST).await? {
            stage.delete(REQUEST, None, &request.name_any()).await?;
        }
        put_all(&folder, Some(1))?;
        is_quiet(stage, &names, &words).await?;
        put_all(&folder, None)?;
        let transom = stage.start_at_real_time(&words)?;
        // The agent stops: its cluster, and the add-ons of it, are unknown. It comes back.
        drop(agent);
        story
            .cluster("an unreachable cluster", |cluster| {
                let label = "feature.open-cluster-management.io/addon-addon";
                says(cluster, AVAILABLE, "Unknown")
                    && is_tainted(cluster)
                    && cluster["metadata"]["labels"][label] == "unreachable"
            })
            .await?;
        let agent = spoke.agent("registration-2.log")?;
        story
            .cluster("an available cluster again", |cluster| {
                says(cluster, AVAILABLE, "True") && !is_tainted(cluster)
            })
            .await?;
        story.addon_is_well().await?;
        story.is_settled(&spoke).await?;
        story.leaves().await.with_context(|| transom.tail())?;
        drop((agent, kubernetes));
        transom.stop()?;
        stage.nothing_denied(mark).await?;
        each_has_its_own(stage, mark).await?;
        stage.all_used(&rights, mark, |right| {
            right.is_one_of(&UNUSED) || right.is_one_of(&UNREAD)
        })?;
        hub_admission::end(stage).await
    })
}
