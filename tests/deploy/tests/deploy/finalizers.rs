//! What `policies.md` says about a policy with a finalizer that is removed, followed on a real API server: afterwards
//! its primaries can go, and the finalizers of others stay.

use crate::applied::CRDS;
use crate::deployed::{DEADLINE, Deployed};
use crate::pages::all;
use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use transom_e2e::program;
use transom_support::fleet::Fleet;
use transom_test_cluster::{Cluster, Options, wait};
use transom_test_deploy::page::{Page, run};

/// A policy with a finalizer, and its primaries: version, kind, and plural.
const HELD: [(&str, &str, &str, &str); 2] = [
    (
        "cleanup",
        "cluster.open-cluster-management.io/v1",
        "ManagedCluster",
        "managedclusters",
    ),
    (
        "detach",
        "hypershift.openshift.io/v1beta1",
        "HostedCluster",
        "hostedclusters",
    ),
];
/// The kinds that `cleanup` removes.
const REMOVED: [&str; 2] = [
    "managedclusteraddons.addon.open-cluster-management.io",
    "manifestworks.work.open-cluster-management.io",
];
const FLEET: Fleet = Fleet {
    clusters: 2,
    managed: 3,
    seed: 7,
};

fn finalizers(primary: &Value) -> Vec<&str> {
    let all = primary["metadata"]["finalizers"].as_array();
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Adds a policy of the repository, with its rights; `with` finds the binary.
fn add(cluster: &Cluster, with: &str, policy: &str) -> Result<()> {
    let file = program::policy(policy).display().to_string();
    let rights = format!(
        "{with}transom rbac --policies {file} --namespace transom --name transom-{policy} | kubectl apply --server-side -f -"
    );
    run(cluster, &rights)?;
    run(cluster, &format!("kubectl apply --filename {file}")).map(drop)
}

#[tokio::test]
async fn a_policy_that_is_removed_holds_no_cluster_as_the_page_says() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    for crds in [&CRDS[..], &REMOVED] {
        cluster.install_crds(crds).await?;
    }
    cluster.install_fleet(FLEET).await?;
    let (install, page) = (Page::read("install.md")?, Page::read("policies.md")?);
    let transom = program::binary()?.parent().context("no folder")?.display();
    let with = format!("export PATH={transom}:$PATH && ");
    let mut before = Vec::new();
    for (_, version, kind, _) in HELD {
        before.push(all(&cluster, version, kind).await?);
    }
    run(&cluster, &install.command(&["helm install"], &[])?)?;
    for (policy, ..) in HELD {
        add(&cluster, &with, policy)?;
    }
    let agent = Deployed::start(&cluster).await?;
    for ((_, version, kind, _), before) in HELD.into_iter().zip(&before) {
        let kept = wait::until("the finalizer of the policy", DEADLINE, async || {
            let now = all(&cluster, version, kind).await?;
            let more = |(name, one): (&String, &Value)| {
                finalizers(one).len() == finalizers(&before[name]).len() + 1
            };
            Ok(now.iter().all(more).then_some(()))
        });
        kept.await
            .with_context(|| agent.log().unwrap_or_default())?;
    }
    let (name, _) = before[0].first_key_value().context("no cluster")?;
    let status = page.command(&["transom status", "edge-1"], &[("edge-1", name)])?;
    run(&cluster, &format!("{with}{status}"))?;
    let exports = page.all(&["export NAME"])?;
    for ((held, before), export) in HELD.into_iter().zip(&before).zip(exports) {
        take_off(&cluster, &page, held, &export)?;
        are_free(&cluster, held, before).await?;
    }
    agent.stop(&cluster).map(drop)
}

/// Removes a policy as the page says, and takes its finalizer off.
fn take_off(
    cluster: &Cluster,
    page: &Page,
    (policy, _, _, plural): (&str, &str, &str, &str),
    export: &str,
) -> Result<()> {
    let delete = format!("kubectl delete fleetpolicy {policy}");
    run(cluster, &page.command(&[&delete], &[])?)?;
    // A here-string is no blank to fill in.
    let take = page.all(&["env.NAME", &format!("get {plural}")])?;
    let both = format!("{export}\n{}", take.join("\n"));
    // Once more than needed, as after an interruption.
    run(cluster, &both)?;
    run(cluster, &both).map(drop)
}

/// Checks that the primaries have the finalizers of others, and that nobody holds one once these are gone.
async fn are_free(
    cluster: &Cluster,
    (_, version, kind, _): (&str, &str, &str, &str),
    before: &BTreeMap<String, Value>,
) -> Result<()> {
    let after = all(cluster, version, kind).await?;
    for (name, one) in before {
        let left = finalizers(&after[name]);
        ensure!(finalizers(one) == left, "{name}: {left:?}");
    }
    let (_, one) = before.first_key_value().context("no primary")?;
    let of = |field: &str| one["metadata"][field].as_str();
    let (namespace, name) = (of("namespace"), of("name").context("no name")?);
    let primaries = cluster.objects().api(version, kind, namespace).await?;
    let free = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    primaries
        .patch(name, &kube::api::PatchParams::default(), &free)
        .await?;
    primaries.delete(name, &DeleteParams::default()).await?;
    let objects = cluster.objects();
    let gone = objects.wait_for((version, kind), (namespace, name), Value::is_null);
    gone.await.map(drop)
}
