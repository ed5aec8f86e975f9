//! Primaries by label in a folder: one that loses the label is treated like one that is gone.

use anyhow::{Result, ensure};
use transom_e2e::stage::Stage;

#[test]
fn only_primaries_with_the_label_count() -> Result<()> {
    let stage = Stage::new(2, 0)?;
    let kind = "kind: HostedCluster";
    let labels = "kind: HostedCluster\n    labels: {matchLabels: {tier: gold}}";
    stage.put_policy("external-managed-kubeconfig", &[(kind, labels)])?;
    let hosted = stage.hosted(0);
    let (environment, labelled) = ("    environment: ", "    tier: gold\n    environment: ");
    stage.edit(&hosted, environment, labelled)?;
    let agent = stage.watch()?;
    stage.follows_port(0, 7443)?;
    ensure!(!stage.secret(1).exists() && !stage.hosted_status(1).exists());
    stage.edit(&hosted, "tier: gold", "tier: lead")?;
    stage.wait_for_end(&stage.secret(0))?;
    stage.wait_for_end(&stage.hosted_status(0))?;
    stage.edit(&stage.hosted(1), environment, labelled)?;
    stage.follows_port(1, 7443)?;
    ensure!(!stage.secret(0).exists());
    // The policy is swapped for one of other labels, and then of other namespaces.
    let policy = stage
        .policies
        .join("external-managed-kubeconfig/policy.yaml");
    stage.edit(&policy, "tier: gold", "tier: lead")?;
    stage.wait_for_end(&stage.secret(1))?;
    stage.wait_for_end(&stage.hosted_status(1))?;
    stage.follows_port(0, 8443)?;
    stage.edit(&policy, r#"namespaces: ["*"]"#, "namespaces: [elsewhere]")?;
    stage.wait_for_end(&stage.secret(0))?;
    stage.wait_for_end(&stage.hosted_status(0))?;
    agent.stop()?;
    Ok(())
}
