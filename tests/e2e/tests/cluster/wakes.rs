//! Changes by users and other clients on the server, and the results. Every wait is for a state.

use crate::admitted::Refusal;
use crate::fleet::POLICIES;
use crate::objects::{CLUSTERS, OUTPUT, home, primary, rotated};
use crate::stage::{DEADLINE, HOSTED, KLUSTERLET, MANAGED, NAMESPACE, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Instant;
use transom_core::metrics::RECONCILES;
use transom_e2e::http;
use transom_test_cluster::wait;

#[test]
fn every_changed_input_requeues_its_primary() -> Result<()> {
    on_stage(async |stage| {
        for name in ["port", "edited", "deleted"] {
            stage.ready(name, true).await?;
        }
        stage.ready("late", false).await?;
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        for name in ["port", "edited", "deleted"] {
            stage.wait_for_right(name, 6443).await?;
        }
        agent.wait_for(&primary("late"), "Waiting NamespaceMissing")?;
        stage.objects().namespace(&home("late")).await?;
        stage.wait_for_right("late", 6443).await?;
        stage.move_port("port", 7443).await?;
        stage.wait_for_right("port", 7443).await?;
        let edited = json!({"data": {"kubeconfig": "ZWRpdGVk", "stray": "eA=="}, "metadata": {"labels": {"users": "own"}}});
        stage
            .patch(SECRET, Some(&home("edited")), OUTPUT, edited)
            .await?;
        stage.wait_for_right("edited", 6443).await?;
        wait::until("the end of the stray key", DEADLINE, async || {
            let secret = stage
                .get(SECRET, Some(&home("edited")), OUTPUT)
                .await?
                .context("no secret")?;
            ensure!(
                secret["metadata"]["labels"]["users"] == "own",
                "a label of the user is gone"
            );
            Ok(secret["data"]["stray"].is_null().then_some(()))
        })
        .await?;
        stage.delete(SECRET, Some(&home("deleted")), OUTPUT).await?;
        stage.wait_for_right("deleted", 6443).await?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn only_the_last_of_fifty_rotations_remains() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.ready("rotated", true).await?;
        let agent = stage.start_agent(&[POLICIES])?;
        agent.wait_for_first_pass()?;
        stage.wait_for_right("rotated", 6443).await?;
        let mark = stage.mark()?;
        let api = stage.api(SECRET, Some(CLUSTERS)).await?;
        let source = stage
            .get(SECRET, Some(CLUSTERS), "rotated-admin-kubeconfig")
            .await?
            .context("no source")?;
        let start = Instant::now();
        for number in 0..50 {
            let patch = Patch::Merge(rotated(&source, number)?);
            api.patch("rotated-admin-kubeconfig", &PatchParams::default(), &patch)
                .await?;
        }
        let (rotated, last) = (start.elapsed(), Instant::now());
        stage.wait_for_right("rotated", 6443).await?;
        let [rotated, right] = [rotated, last.elapsed()].map(|span| span.as_secs_f64());
        println!(
            "a secret rotated 50 times in {rotated:.1} s: right {right:.1} s after the last one"
        );
        // Later changes leave it as it is.
        stage.move_port("rotated", 7443).await?;
        stage.wait_for_right("rotated", 7443).await?;
        agent.stop()?;
        let writes = stage.writes(mark).await?;
        ensure!(writes.len() <= 51, "{} writes", writes.len());
        Ok(())
    })
}

#[test]
fn prunes_a_secret_after_its_source_and_its_klusterlet_are_gone() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("gone", true).await?;
        let klusterlet = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "metadata": {"name": home("gone")}, "spec": {}});
        stage.objects().create(klusterlet).await?;
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        stage.wait_for_right("gone", 6443).await?;
        stage.delete(HOSTED, Some(CLUSTERS), "gone").await?;
        agent.wait_for(&primary("gone"), "Waiting StillNeeded")?;
        ensure!(
            stage.made("gone").await?.is_some(),
            "it went before its klusterlet"
        );
        stage.delete(KLUSTERLET, None, &home("gone")).await?;
        stage.wait_for_no_output("gone").await?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn stops_after_three_conflicting_writes() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("contended", true).await?;
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        for number in 0..3 {
            stage.wait_for_right("contended", 6443).await?;
            let theirs = json!({"data": {"kubeconfig": null, "theirs": format!("eD{number}=")}});
            stage
                .patch(SECRET, Some(&home("contended")), OUTPUT, theirs)
                .await?;
        }
        agent.wait_for(&primary("contended"), "Failed Contended")?;
        ensure!(
            stage.made("contended").await?.is_none(),
            "it was overwritten a fourth time"
        );
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn recreates_the_secret_in_a_recreated_namespace() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.ready("again", true).await?;
        let agent = stage.start_agent(&[POLICIES])?;
        agent.wait_for_first_pass()?;
        stage.wait_for_right("again", 6443).await?;
        stage.delete(NAMESPACE, None, &home("again")).await?;
        stage.delete(SECRET, Some(&home("again")), OUTPUT).await?;
        agent.wait_for(&primary("again"), "Waiting InputTerminating")?;
        stage.finalise(&home("again")).await?;
        agent.wait_for(&primary("again"), "Waiting NamespaceMissing")?;
        let start = Instant::now();
        stage.objects().namespace(&home("again")).await?;
        stage.wait_for_right("again", 6443).await?;
        println!(
            "a namespace made again: right after {:.1} s",
            start.elapsed().as_secs_f64()
        );
        agent.stop()?;
        Ok(())
    })
}

/// Refuses Secrets in one namespace.
const REFUSAL: Refusal = Refusal {
    name: "no-secrets",
    rule: "{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [secrets]}",
    unless: "false",
    within: "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: klusterlet-refused}}}",
};

#[test]
fn understands_server_rejections_and_retries() -> Result<()> {
    on_stage(async |stage| {
        for name in ["refused", "quota", "frozen"] {
            stage.ready(name, true).await?;
        }
        refuse(stage).await?;
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        agent.wait_for(&primary("refused"), "Failed AdmissionRefused")?;
        agent.wait_for(&primary("quota"), "Failed QuotaExceeded")?;
        stage.wait_for_right("frozen", 6443).await?;
        stage
            .patch(
                SECRET,
                Some(&home("frozen")),
                OUTPUT,
                json!({"immutable": true}),
            )
            .await?;
        stage.move_port("frozen", 7443).await?;
        agent.wait_for(&primary("frozen"), "Failed TargetImmutable")?;
        stage.delete(SECRET, Some(&home("frozen")), OUTPUT).await?;
        stage.wait_for_right("frozen", 7443).await?;
        stage
            .delete(("v1", "ResourceQuota"), Some(&home("quota")), "none")
            .await?;
        REFUSAL.end(stage).await?;
        stage.wait_for_right("quota", 6443).await?;
        stage.wait_for_right("refused", 6443).await?;
        agent.stop()?;
        Ok(())
    })
}

/// A quota without room and a policy that refuses, both in force.
async fn refuse(stage: &Stage) -> Result<()> {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": home("quota")},
        "spec": {"hard": {"count/secrets": "0"}}, "status": {"hard": {"count/secrets": "0"}, "used": {"count/secrets": "0"}}});
    stage.objects().create(quota).await?;
    REFUSAL.begin(stage).await?;
    for name in ["refused", "quota"] {
        let api = stage.api(SECRET, Some(&home(name))).await?;
        wait::until("a secret that is refused", DEADLINE, async || {
            let try_one = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "try"}});
            let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
            let tried = api.create(&dry, &serde_json::from_value(try_one)?).await;
            Ok(matches!(tried, Err(kube::Error::Api(status)) if status.code == 403 || status.code == 422).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Reconciles of a policy so far.
fn reconciles(admin: SocketAddr, policy: &str) -> Result<f64> {
    http::metric(admin, RECONCILES.name, &format!("policy=\"{policy}\""))
}

#[test]
fn own_writes_trigger_no_reconcile() -> Result<()> {
    on_stage(async |stage| {
        let names = ["one", "two", "three", "four"];
        for name in names {
            stage.ready(name, true).await?;
            stage.managed(name).await?;
        }
        let agent = stage.start_agent(&[])?;
        agent.wait_for_first_pass()?;
        let admin = agent.ready()?;
        for policy in ["external-managed-kubeconfig", "built-in-taints"] {
            let before = reconciles(admin, policy)?;
            for name in names {
                match policy {
                    "built-in-taints" => {
                        stage.set_available(name, "Unknown").await?;
                        stage.taint_times(name, 1).await?;
                        // The same after a change to an object that the policy does not read.
                        let beat = json!({"metadata": {"annotations": {"example.com/beat": "1"}}});
                        stage.patch(MANAGED, None, name, beat).await?;
                    }
                    _ => {
                        stage.move_port(name, 7443).await?;
                        stage.wait_for_right(name, 7443).await?;
                    }
                }
            }
            // A write is visible before its reconcile is counted.
            let counted =
                async || Ok(Some(reconciles(admin, policy)?).filter(|after| after - before >= 4.0));
            let after = wait::until("four reconciles", DEADLINE, counted).await?;
            ensure!(
                after - before == 4.0,
                "{policy}: {} reconciles for 4 changes",
                after - before
            );
        }
        agent.stop()?;
        Ok(())
    })
}
