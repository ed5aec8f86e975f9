//! The steps of `migrate.md` that switch the hypershift-addon agent off: policies take over everything that it made,
//! nothing is lost or written twice, and what it did at the end of a HostedCluster goes on.

use crate::deployed::{DEADLINE, Deployed};
use crate::pages::{FLEET, all, home, is_released, secrets};
use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use transom_e2e::program;
use transom_support::fleet::{hosted_name, managed_name};
use transom_test_cluster::{Cluster, Line, wait};
use transom_test_deploy::page::{Page, run};

/// What the kinds of the add-on need beside those of the fleet.
pub(crate) const CRD: &str = "managedclusteraddons.addon.open-cluster-management.io";
const HUB: &str = "local-cluster";
const HOSTED: (&str, &str) = ("hypershift.openshift.io/v1beta1", "HostedCluster");
const MANAGED: (&str, &str) = ("cluster.open-cluster-management.io/v1", "ManagedCluster");
const ADDON: (&str, &str) = (
    "addon.open-cluster-management.io/v1alpha1",
    "ManagedClusterAddOn",
);
const CONFIG: (&str, &str) = (
    "agent.open-cluster-management.io/v1",
    "KlusterletAddonConfig",
);
const INFRA: &str = "hypershift.openshift.io/auto-created-for-infra";
const COPIED: &str = "hypershiftdeployments.cluster.open-cluster-management.io";
/// The note of `auto-import` and the finalizer of `detach`.
const NOTE: &str = "import.open-cluster-management.io/auto-imported-as";
const FINALIZER: &str = "transom.dev/detach";
/// The copy whose certificate authorities the add-on replaced, by the number of its HostedCluster.
const OTHER_CA: usize = 1;

/// The copy of a secret of a HostedCluster, or the secret itself, by the end of its name.
fn named(index: usize, end: &str) -> String {
    format!("{}-{end}", hosted_name(index))
}

async fn merge(
    cluster: &Cluster,
    kind: (&str, &str),
    place: (Option<&str>, &str),
    body: &Value,
) -> Result<()> {
    let api = cluster.objects().api(kind.0, kind.1, place.0).await?;
    let (how, patch) = (PatchParams::default(), Patch::Merge(body));
    api.patch(place.1, &how, &patch).await?;
    Ok(())
}

/// Makes what the add-on leaves for the HostedClusters of the fleet, beside the secrets for their klusterlets: labels
/// of the ManagedClusters, notes on the HostedClusters, copies of both secrets, KlusterletAddonConfigs, and itself.
pub(crate) async fn left_by_addon(cluster: &Cluster) -> Result<()> {
    let objects = cluster.objects();
    cluster.install_addon_configs().await?;
    objects.namespace(HUB).await?;
    let addon = json!({"apiVersion": ADDON.0, "kind": ADDON.1, "spec": {},
        "metadata": {"name": "hypershift-addon", "namespace": HUB}});
    objects.create(addon).await?;
    for index in 0..FLEET.clusters {
        let (hosted, managed) = (hosted_name(index), managed_name(index));
        let place = (Some("clusters"), hosted.as_str());
        let there = objects.get(HOSTED, place).await?;
        let note = json!({"create-external-hub-kubeconfig": "2026-11-21T07:59:00Z"});
        let note = json!({"metadata": {"annotations": note}});
        merge(cluster, HOSTED, place, &note).await?;
        // It copies every label of the HostedCluster.
        let labels = json!({"metadata": {"labels": {INFRA: there["metadata"]["labels"][INFRA]}}});
        merge(cluster, MANAGED, (None, &managed), &labels).await?;
        objects.namespace(&managed).await?;
        objects.create(addon_config(&managed)).await?;
        let password = json!({"apiVersion": "v1", "kind": "Secret", "data": {"password": "eA=="},
            "metadata": {"name": named(index, "kubeadmin-password"), "namespace": "clusters"}});
        objects.create(password).await?;
        for end in ["admin-kubeconfig", "kubeadmin-password"] {
            let name = named(index, end);
            let source = objects
                .get(("v1", "Secret"), (Some("clusters"), &name))
                .await?;
            let mut data = source["data"].clone();
            if (index, end) == (OTHER_CA, "admin-kubeconfig") {
                data = json!({"kubeconfig": "b3RoZXIgYXV0aG9yaXRpZXM="});
            }
            let labels = json!({"synced-from-spoke": "true", format!("{COPIED}/cluster-name"): hosted,
                format!("{COPIED}/hosting-namespace"): "clusters"});
            let annotations =
                json!({"cluster.open-cluster-management.io/managedcluster-name": hosted});
            let copy = json!({"apiVersion": "v1", "kind": "Secret", "data": data, "metadata": {
                "name": name, "namespace": HUB, "labels": labels, "annotations": annotations}});
            objects.create(copy).await?;
        }
    }
    Ok(())
}

/// What the add-on makes for a ManagedCluster where Advanced Cluster Management runs.
fn addon_config(managed: &str) -> Value {
    let on = json!({"enabled": true});
    json!({"apiVersion": CONFIG.0, "kind": CONFIG.1, "metadata": {"name": managed, "namespace": managed},
        "spec": {"clusterName": managed, "clusterNamespace": managed,
            "clusterLabels": {"cloud": "auto-detect", "vendor": "auto-detect"},
            "applicationManager": on, "certPolicyController": on, "policyController": on, "searchCollector": on}})
}

/// Everything that is there for a HostedCluster.
struct State {
    secrets: BTreeMap<String, Value>,
    managed: BTreeMap<String, Value>,
    hosted: BTreeMap<String, Value>,
    /// The KlusterletAddonConfigs.
    configs: BTreeMap<String, Value>,
}

impl State {
    async fn of(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            secrets: secrets(cluster).await?,
            managed: all(cluster, MANAGED.0, MANAGED.1).await?,
            hosted: all(cluster, HOSTED.0, HOSTED.1).await?,
            configs: all(cluster, CONFIG.0, CONFIG.1).await?,
        })
    }

    /// Whether the policies have taken over all that they can.
    fn is_taken(&self) -> bool {
        let hosted = self.hosted.values().all(|hosted| {
            let metadata = &hosted["metadata"];
            metadata["annotations"][NOTE].is_string()
                && metadata["finalizers"]
                    .as_array()
                    .is_some_and(|all| all.contains(&json!(FINALIZER)))
        });
        let adopted =
            |object: &&Value| object["metadata"]["labels"]["transom.dev/adopted"] == "true";
        // The plan of a HostedCluster stops at the copy that is not ours.
        let copies = self
            .secrets
            .iter()
            .filter(|(name, _)| name.starts_with(HUB));
        hosted
            && self.managed.values().filter(adopted).count() == FLEET.clusters
            && copies.map(|(_, copy)| copy).filter(adopted).count() == 2 * (FLEET.clusters - 1)
    }
}

/// Nothing but ownership, the note and the finalizer changed.
fn kept(before: &State, after: &State) -> Result<()> {
    ensure!(
        before.secrets.keys().eq(after.secrets.keys()),
        "a Secret came or went"
    );
    // No shipped policy is about them.
    ensure!(
        before.configs.len() == FLEET.clusters && before.configs == after.configs,
        "a KlusterletAddonConfig changed"
    );
    for (name, secret) in &before.secrets {
        // Taken over before, or of others.
        if !name.starts_with(HUB) {
            ensure!(*secret == after.secrets[name], "{name} changed");
            continue;
        }
        is_released(&after.secrets[name], secret).with_context(|| name.clone())?;
    }
    for (name, cluster) in &before.managed {
        let now = &after.managed[name];
        is_released(now, cluster).with_context(|| name.clone())?;
        for field in ["spec", "status"] {
            ensure!(cluster[field] == now[field], "{name}: {field} changed");
        }
    }
    for (name, hosted) in &before.hosted {
        let mut now = after.hosted[name].clone();
        let metadata = &mut now["metadata"];
        if let Some(annotations) = metadata["annotations"].as_object_mut() {
            annotations.remove(NOTE);
        }
        if let Some(finalizers) = metadata["finalizers"].as_array_mut() {
            finalizers.retain(|one| *one != FINALIZER);
        }
        for field in ["annotations", "finalizers", "labels"] {
            let there = &hosted["metadata"][field];
            ensure!(*there == now["metadata"][field], "{name}: {field} changed");
        }
        ensure!(hosted["spec"] == now["spec"], "{name}: its spec changed");
    }
    Ok(())
}

/// No policy wrote an object of others twice.
fn each_once(asked: &[Line]) -> Result<()> {
    let mut writes = BTreeMap::new();
    for line in asked
        .iter()
        .filter(|line| line.is_write() && line.code < 300)
    {
        let target = line.target.clone().unwrap_or_default();
        let manager = line
            .uri
            .split_once("fieldManager=")
            .map(|(_, rest)| rest.to_owned());
        if ["secrets", "managedclusters", "hostedclusters"].contains(&&*target.resource) {
            *writes.entry((target, manager)).or_insert(0) += 1;
        }
    }
    writes.retain(|_, count| *count > 1);
    ensure!(writes.is_empty(), "written more than once: {writes:#?}");
    Ok(())
}

/// Follows the steps from the fourth on.
pub(crate) async fn take_over(cluster: &Cluster, page: &Page) -> Result<()> {
    let transom = program::binary()?.parent().context("no folder")?.display();
    let follow = |words: &[&str], fill: &[(&str, &str)]| -> Result<String> {
        let command = page.command(words, fill)?;
        run(
            cluster,
            &format!("export PATH={transom}:$PATH && {command}"),
        )
    };
    let here = ("<ManagedCluster of this cluster>", HUB);
    let before = State::of(cluster).await?;
    let agent = Deployed::start(cluster).await?;
    let told = follow(
        &["transom status", "--policies"],
        &[here, ("<that of the hub>", HUB)],
    )?;
    ensure!(told.contains(&hosted_name(0)), "{told}");
    ensure!(
        State::of(cluster).await?.managed == before.managed,
        "something was written"
    );
    for words in [
        ["transom rbac"],
        ["kubectl apply --filename policies"],
        ["--for=condition=Loaded"],
    ] {
        follow(&words, &[])?;
    }
    let taken = wait::until("all objects of the add-on", DEADLINE, async || {
        let state = State::of(cluster).await?;
        Ok(state.is_taken().then_some(state))
    });
    let taken = taken
        .await
        .with_context(|| agent.log().unwrap_or_default())?;
    kept(&before, &taken)?;
    let told = follow(&["get managedclusters,secrets"], &[])?;
    for index in 0..FLEET.clusters {
        ensure!(told.contains(&managed_name(index)), "{told}");
    }
    let copy = named(OTHER_CA, "admin-kubeconfig");
    ensure!(!told.contains(&format!("{HUB} {copy}")), "{told}");
    let told = follow(&["transom status --policy-objects"], &[])?;
    ensure!(told.contains("TargetNotOwned"), "{told}");
    // The copy that is not ours is deleted by hand, and made with the bytes of the source.
    follow(&["delete secret"], &[("<copy>", &copy), here])?;
    let source = before.secrets[&format!("clusters/{copy}")]["data"].clone();
    let place = (Some(HUB), copy.as_str());
    let is_made = |secret: &Value| secret["data"] == source;
    cluster
        .objects()
        .wait_for(("v1", "Secret"), place, is_made)
        .await?;
    follow(&["delete managedclusteraddons"], &[here])?;
    each_once(&agent.stop(cluster)?)?;
    leaves(cluster).await?;
    let left = all(cluster, CONFIG.0, CONFIG.1).await?;
    ensure!(left == before.configs, "a KlusterletAddonConfig changed");
    Ok(())
}

/// A HostedCluster goes as with the add-on: its ManagedCluster, its secret and its copies go along.
async fn leaves(cluster: &Cluster) -> Result<()> {
    let objects = cluster.objects();
    let agent = Deployed::start(cluster).await?;
    let (hosted, managed) = (hosted_name(0), managed_name(0));
    let place = (Some("clusters"), hosted.as_str());
    let api = objects.api(HOSTED.0, HOSTED.1, place.0).await?;
    api.delete(&hosted, &DeleteParams::default()).await?;
    // The hub releases the ManagedCluster, and HyperShift the HostedCluster.
    let goes = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
    objects.wait_for(MANAGED, (None, &managed), goes).await?;
    let free = json!({"metadata": {"finalizers": null}});
    merge(cluster, MANAGED, (None, &managed), &free).await?;
    let detached = |hosted: &Value| !hosted.to_string().contains(FINALIZER);
    objects.wait_for(HOSTED, place, detached).await?;
    merge(cluster, HOSTED, place, &free).await?;
    for (namespace, name) in [
        (HUB.to_owned(), named(0, "admin-kubeconfig")),
        (HUB.to_owned(), named(0, "kubeadmin-password")),
        (home(0), "external-managed-kubeconfig".to_owned()),
    ] {
        let place = (Some(namespace.as_str()), name.as_str());
        objects
            .wait_for(("v1", "Secret"), place, Value::is_null)
            .await?;
    }
    ensure!(
        objects
            .get(MANAGED, (None, &managed_name(1)))
            .await?
            .is_object()
    );
    agent.stop(cluster).map(drop)
}
