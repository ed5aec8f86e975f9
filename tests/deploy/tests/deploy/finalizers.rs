//! What `policies.md` says about a policy with a finalizer that is removed, followed on a real API server: afterwards
//! its primaries can go, and the finalizers of others stay.

use crate::applied::CRDS;
use crate::deployed::{DEADLINE, Deployed};
use crate::pages::all;
use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use transom_e2e::program;
use transom_support::fleet::Fleet;
use transom_test_cluster::{Cluster, Options, wait};
use transom_test_deploy::page::{Page, run};

const MANAGED: (&str, &str) = ("cluster.open-cluster-management.io/v1", "ManagedCluster");
const POLICY: &str = "cleanup";
/// The kinds that the policy removes.
const REMOVED: [&str; 2] = [
    "managedclusteraddons.addon.open-cluster-management.io",
    "manifestworks.work.open-cluster-management.io",
];
const FLEET: Fleet = Fleet {
    clusters: 0,
    managed: 3,
    seed: 7,
};

fn finalizers(cluster: &Value) -> Vec<&str> {
    let all = cluster["metadata"]["finalizers"].as_array();
    all.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[tokio::test]
async fn a_policy_that_is_removed_holds_no_cluster_as_the_page_says() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    for crds in [&CRDS[..], &REMOVED] {
        cluster.install_crds(crds).await?;
    }
    cluster.install_fleet(FLEET).await?;
    let before = all(&cluster, MANAGED.0, MANAGED.1).await?;
    let (install, page) = (Page::read("install.md")?, Page::read("policies.md")?);
    run(&cluster, &install.command(&["helm install"], &[])?)?;
    let transom = program::binary()?.parent().context("no folder")?.display();
    let with = format!("export PATH={transom}:$PATH && ");
    let file = program::policy(POLICY).display().to_string();
    let rights = format!(
        "{with}transom rbac --policies {file} --namespace transom --name transom-{POLICY} | kubectl apply --server-side -f -"
    );
    run(&cluster, &rights)?;
    run(&cluster, &format!("kubectl apply --filename {file}"))?;
    let agent = Deployed::start(&cluster).await?;
    let kept = wait::until("the finalizer of the policy", DEADLINE, async || {
        let now = all(&cluster, MANAGED.0, MANAGED.1).await?;
        let more = |(name, one): (&String, &Value)| {
            finalizers(one).len() == finalizers(&before[name]).len() + 1
        };
        Ok(now.iter().all(more).then_some(()))
    });
    kept.await
        .with_context(|| agent.log().unwrap_or_default())?;
    let (name, _) = before.first_key_value().context("no cluster")?;
    let status = page.command(&["transom status", "edge-1"], &[("edge-1", name)])?;
    run(&cluster, &format!("{with}{status}"))?;
    run(
        &cluster,
        &page.command(&["kubectl delete fleetpolicy"], &[])?,
    )?;
    let both = [["export NAME"], ["env.NAME"]].map(|words| page.all(&words));
    let [export, take] = both;
    let both = [export?, take?].concat().join("\n");
    // Once more than needed, as after an interruption.
    run(&cluster, &both)?;
    run(&cluster, &both)?;
    let after = all(&cluster, MANAGED.0, MANAGED.1).await?;
    for (name, one) in &before {
        ensure!(
            finalizers(one) == finalizers(&after[name]),
            "{name}: {:?}",
            finalizers(&after[name])
        );
    }
    // Nobody holds it any more once the others let it go.
    let clusters = cluster.objects().api(MANAGED.0, MANAGED.1, None).await?;
    let free = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    clusters
        .patch(name, &kube::api::PatchParams::default(), &free)
        .await?;
    clusters.delete(name, &DeleteParams::default()).await?;
    let place = (None, name.as_str());
    cluster
        .objects()
        .wait_for(MANAGED, place, Value::is_null)
        .await?;
    agent.stop(&cluster).map(drop)
}
