//! The policy `client-certificates` on a real API server: approves renewals of agents that may renew, and the first
//! requests of those whom the settings name, with exactly the permissions that `transom rbac` prints.

use crate::inputs::{RENEWS, REQUEST, ask_as};
use crate::stage::{DEADLINE, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use transom_e2e::program;
use transom_test_cluster::{User, wait};

/// The agent whose certificate all of these ask for.
const AGENT: &str = "system:open-cluster-management:c1:agent";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

async fn ask(stage: &Stage, account: &User, name: &str, cluster: &str) -> Result<()> {
    let labels = json!({"open-cluster-management.io/cluster-name": cluster});
    ask_as(stage, account, name, &labels, SIGNER).await
}

/// Waits until a request is approved and its certificate is there; gives the condition.
async fn wait_for_approval(stage: &Stage, name: &str) -> Result<Value> {
    let mut last = Value::Null;
    let came = wait::until("the approval of a request", DEADLINE, async || {
        let object = stage.get(REQUEST, None, name).await?.unwrap_or_default();
        last = object["status"].clone();
        let mut all = last["conditions"].as_array().into_iter().flatten();
        Ok(all.find(|one| one["type"] == "Approved").cloned())
    });
    came.await
        .with_context(|| format!("{name} is to be approved: {last}"))
}

#[test]
fn agents_get_their_own_certificates_and_nobody_else_does() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-certificates");
        fs::create_dir_all(&folder)?;
        let file = folder.join("policy.yaml");
        let mut policy = program::manifest("client-certificates")?;
        policy["spec"]["guests"]["decide"]["settings"] =
            json!({"bootstrap": {"groups": ["joiners"], "imported": true}});
        fs::write(&file, policy.to_string())?;
        let words = policies_at(&file)?;
        let rights = stage.grant_exactly(&words).await?;
        stage.objects().apply_manifest(RENEWS).await?;
        let renewer = stage.cluster.user(AGENT, &["renewers"])?;
        let denied = stage.cluster.user(AGENT, &["others"])?;
        let joiner = stage.cluster.user("joiner", &["joiners"])?;
        let stranger = stage.cluster.user("stranger", &["renewers"])?;
        let imported = stage
            .cluster
            .service_account("c1", "c1-bootstrap-sa")
            .await?;
        for (account, name, cluster) in [
            (&renewer, "renewal", "c1"),
            (&renewer, "of-another", "c11"),
            (&denied, "denied", "c1"),
            (&joiner, "joins", "c1"),
            (&stranger, "stranger", "c1"),
            (&imported, "imported", "c1"),
        ] {
            ask(stage, account, name, cluster).await?;
        }
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        for name in ["renewal", "joins"] {
            let condition = wait_for_approval(stage, name).await?;
            let reason = "AutoApprovedByHubCSRApprovingController";
            ensure!(condition["reason"] == reason, "{name}: {condition}");
        }
        for (name, reason) in [
            ("of-another", "RequestNotRecognized"),
            ("denied", "RequesterNotAllowed"),
            ("stranger", "RequesterNotAllowed"),
            ("imported", "RequesterNotAllowed"),
        ] {
            let primary = format!("CertificateSigningRequest {name}");
            agent.wait_for(&primary, &format!("Waiting {reason}"))?;
        }
        // The cluster of the import comes, and its account may register it.
        stage.managed("c1").await?;
        wait_for_approval(stage, "imported").await?;
        // One that comes while the agent runs.
        ask(stage, &renewer, "renewal-2", "c1").await?;
        wait_for_approval(stage, "renewal-2").await?;
        let unanswered = ["of-another", "denied", "stranger"];
        for name in unanswered {
            let object = stage.get(REQUEST, None, name).await?.context(name)?;
            let conditions = &object["status"]["conditions"];
            ensure!(conditions.is_null(), "{name}: {conditions}");
        }
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        let writes = stage.changing(mark).await?;
        let ours = |write: &&String| write.contains("certificatesigningrequests");
        ensure!(writes.iter().filter(ours).count() == 4, "{writes:?}");
        // Only a write that comes too late is read again.
        let unused = "get certificatesigningrequests, approve signers, create events, patch events";
        stage.all_used_but(&rights, mark, unused)?;
        for name in unanswered
            .iter()
            .chain(&["renewal", "joins", "imported", "renewal-2"])
        {
            stage.delete(REQUEST, None, name).await?;
        }
        Ok(())
    })
}
