//! The klusterlet operator of Open Cluster Management in hosted mode: it takes the secret that the policy
//! `external-managed-kubeconfig` writes, reaches the API server of a hosted cluster with it, and needs it to clean up.
//! Without pods: no kubelet runs the Deployments that it makes.

use crate::objects::{CLUSTERS, OUTPUT, home, primary};
use crate::spoke::{controllers, free_address, says};
use crate::stage::{HOSTED, KLUSTERLET, NAMESPACE, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::process::Command;
use transom_e2e::agent::Agent;
use transom_test_cluster::{Cluster, Options, Tunnels, registration_operator};

/// The HostedCluster.
const NAME: &str = "operated";
/// The namespace of the operator's agents inside the hosted cluster.
const INSIDE: &str = "open-cluster-management-operated";
const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
const ACCOUNT: (&str, &str) = ("v1", "ServiceAccount");
/// What the operator makes of the secret for its agents.
const DERIVED: &str = "external-managed-kubeconfig-registration";

/// The operator on the hosting cluster. No DNS of a cluster is there, so a proxy leads it to the hosted API server.
fn operator(stage: &Stage, dns: &Tunnels) -> Result<Agent> {
    let admin = stage.cluster.user("operator", &["system:masters"])?;
    let kubeconfig = stage.cluster.write_kubeconfig(&admin)?;
    let mut command: Command = registration_operator()?;
    command.args(["klusterlet", "--disable-leader-election"]);
    command.args(["--namespace", "open-cluster-management"]);
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--listen", &free_address()?]);
    command.env("HTTPS_PROXY", format!("http://127.0.0.1:{}", dns.port));
    Agent::start(&mut command, stage.cluster.folder().join("operator.log"))
}

/// Makes the source of a HostedCluster the kubeconfig of an admin of its real API server.
async fn put_source(stage: &Stage, hosted: &Cluster, admin: &str) -> Result<()> {
    let admin = hosted.user(admin, &["system:masters"])?;
    let public = format!("https://api.{NAME}.example.com:6443");
    let kubeconfig = STANDARD.encode(hosted.kubeconfig_at(&admin, &public)?);
    let source = format!("{NAME}-admin-kubeconfig");
    let data = json!({"data": {"kubeconfig": kubeconfig}});
    stage.patch(SECRET, Some(CLUSTERS), &source, data).await
}

/// Waits until the operator says something about its Klusterlet.
async fn wait_for(stage: &Stage, kind: &str, status: &str) -> Result<Value> {
    let klusterlet = home(NAME);
    let is_right = |object: &Value| says(object, kind, status);
    let objects = stage.objects();
    objects
        .wait_for(KLUSTERLET, (None, &klusterlet), is_right)
        .await
}

/// Waits until the kubeconfig for the operator's agents names this port.
async fn wait_for_port(stage: &Stage, port: u16) -> Result<()> {
    let server = format!("https://kube-apiserver.{CLUSTERS}-{NAME}.svc.cluster.local:{port}\n");
    let is_right = |secret: &Value| {
        let text = secret["data"]["kubeconfig"].as_str().unwrap_or_default();
        let text = STANDARD.decode(text).unwrap_or_default();
        String::from_utf8_lossy(&text).contains(&server)
    };
    let place = (Some(&*home(NAME)), DERIVED);
    let objects = stage.objects();
    objects.wait_for(SECRET, place, is_right).await.map(drop)
}

#[test]
fn the_klusterlet_operator_takes_the_kubeconfig_and_cleans_up_with_it() -> Result<()> {
    on_stage(async |stage| {
        let home = home(NAME);
        let hosted = Cluster::start(&Options {
            names: vec![format!(
                "kube-apiserver.{CLUSTERS}-{NAME}.svc.cluster.local"
            )],
            ..Options::default()
        })
        .await?;
        let dns = Tunnels::to(&hosted.server())?;
        stage.ready(NAME, false).await?;
        put_source(stage, &hosted, "admin-1").await?;
        let mark = stage.mark()?;
        let policy = stage.unlimited("external-managed-kubeconfig")?;
        let transom = stage.start_at_real_time(&["--policies", &policy])?;
        transom.wait_for(&primary(NAME), "Waiting NamespaceMissing")?;
        let operator = operator(stage, &dns)?;
        let kubernetes = controllers(&stage.cluster, "namespace", "1h")?;
        // The operator makes the namespace, and the secret comes into it.
        let klusterlet = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "metadata": {"name": home}, "spec": {
            "clusterName": NAME, "namespace": INSIDE, "deployOption": {"mode": "Hosted"},
            "registrationImagePullSpec": "registry.example/registration", "workImagePullSpec": "registry.example/work"}});
        stage.objects().create(klusterlet).await?;
        let ready = wait_for(stage, "ReadyToApply", "True").await;
        let ready = ready.with_context(|| format!("{}\n{}", operator.tail(), transom.tail()))?;
        let secret = stage.objects().get(SECRET, (Some(&home), OUTPUT)).await?;
        let made = secret["metadata"]["creationTimestamp"].as_str();
        let said = ready.to_string();
        ensure!(made.is_some_and(|made| said.contains(made)), "{said}");
        // It works inside the hosted cluster with it, and makes kubeconfigs for its agents.
        let applied = wait_for(stage, "Applied", "True").await;
        applied.with_context(|| operator.tail())?;
        ensure!(dns.made() > 0, "nothing went to the hosted cluster");
        let account = format!("{home}-registration-sa");
        let account = (Some(INSIDE), account.as_str());
        let inside = hosted.objects();
        ensure!(inside.get(ACCOUNT, account).await?.is_object());
        wait_for_port(stage, 6443).await?;
        let deployment = format!("{home}-registration-agent");
        let deployment = (Some(&*home), deployment.as_str());
        ensure!(
            stage
                .objects()
                .get(DEPLOYMENT, deployment)
                .await?
                .is_object()
        );
        // A port that moves reaches the agents, and a rotated admin kubeconfig the operator.
        stage.move_port(NAME, 7443).await?;
        put_source(stage, &hosted, "admin-2").await?;
        stage.wait_for_right(NAME, 7443).await?;
        wait_for_port(stage, 7443).await?;
        // The HostedCluster goes, and the secret stays until the operator has cleaned up with it.
        stage.delete(HOSTED, Some(CLUSTERS), NAME).await?;
        transom.wait_for(&primary(NAME), "Waiting StillNeeded")?;
        stage.delete(KLUSTERLET, None, &home).await?;
        let objects = stage.objects();
        let gone = objects.wait_for(KLUSTERLET, (None, &home), Value::is_null);
        gone.await.with_context(|| operator.tail())?;
        ensure!(inside.get(ACCOUNT, account).await?.is_null());
        objects
            .wait_for(NAMESPACE, (None, &home), Value::is_null)
            .await?;
        drop((operator, kubernetes));
        transom.stop()?;
        stage.nothing_denied(mark).await
    })
}
