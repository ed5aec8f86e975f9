//! Where a secret may go: a component that replaces the bundled one proposes other namespaces and servers, and the
//! policy decides.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_e2e::swap::POLICY;
use transom_support::fleet;

/// Settings of the bundled policy for the bundled guest.
const SETTINGS: &str =
    "        clusterDomain: cluster.local\n        naming:\n          precedence: Annotation\n";
/// The servers that the bundled policy grants.
const SERVERS: &str = "        server: [service]\n";

/// Two clusters, and the bundled policy with its own component and changed settings and servers.
fn stage(settings: &str, servers: &str) -> Result<Stage> {
    let stage = Stage::new(2, 0)?;
    let settings = format!("        {settings}\n");
    let changes = [
        ("builtin:kubeconfig", "decide.wasm"),
        (SETTINGS, &settings),
        (SERVERS, servers),
    ];
    stage.put_policy(POLICY, &changes)?;
    put(
        &stage.policies.join(POLICY).join("decide.wasm"),
        &program::component("fixture-answers")?,
    )?;
    Ok(stage)
}

/// Sets the managed cluster of the first cluster by annotation.
fn annotate(stage: &Stage, value: &str) -> Result<()> {
    let name = format!("  name: {}\n", fleet::hosted_name(0));
    let annotation = format!("cluster.open-cluster-management.io/managedcluster-name: {value:?}");
    let path = stage.hosted(0);
    let text = fs::read_to_string(&path)?;
    let text = match text.contains("  annotations:\n") {
        true => text.replacen(
            "  annotations:\n",
            &format!("  annotations:\n    {annotation}\n"),
            1,
        ),
        false => text.replacen(
            &name,
            &format!("{name}  annotations:\n    {annotation}\n"),
            1,
        ),
    };
    ensure!(
        text.contains(&annotation),
        "the cluster has no place for an annotation"
    );
    put(&path, text.as_bytes())
}

#[test]
fn never_writes_a_kubeconfig_into_the_namespace_of_another_cluster() -> Result<()> {
    // The second cluster's Service has this port.
    let other = format!(
        "{{namespace: klusterlet-{}, port: 2040}}",
        fleet::managed_name(1)
    );
    let long = "a".repeat(300);
    for annotation in [
        None,
        Some("*"),
        Some("../x"),
        Some("a/b"),
        Some(""),
        Some(&*long),
        Some("elsewhere"),
    ] {
        let stage = stage(&other, SERVERS)?;
        if let Some(annotation) = annotation {
            annotate(&stage, annotation)?;
        }
        let ran = stage.once()?;
        ensure!(ran.status.code() == Some(1), "{annotation:?}: {ran:?}");
        let status = fs::read_to_string(stage.hosted_status(0))?;
        ensure!(
            status.contains("reason: WriteNotGranted")
                && status.contains("granted: Secret klusterlet-"),
            "{status}"
        );
        ensure!(
            !stage.secret(0).exists(),
            "{annotation:?}: something was written for it"
        );
        // The cluster that owns the namespace has its own secret there.
        let made =
            fs::read_to_string(stage.secret(1)).context("the other cluster has no secret")?;
        ensure!(
            made.contains(&fleet::hosted_name(1)) && !made.contains(&fleet::hosted_name(0)),
            "{annotation:?}"
        );
    }
    Ok(())
}

#[test]
fn writes_a_granted_node_port_and_names_any_other_host_in_the_refusal() -> Result<()> {
    let granted =
        "        addresses: [{role: service, nodePort: true, host: '*.nodes.example.com'}]\n";
    for (host, port, reason) in [
        ("a.nodes.example.com", 31_443, "InSync"),
        ("a.nodes.example.com", 6_443, "ServerNotGranted"),
        ("nodes.evil.example.com", 31_443, "ServerNotGranted"),
    ] {
        let stage = stage(&format!("{{host: {host}, port: {port}}}"), granted)?;
        stage.once()?;
        let status = fs::read_to_string(stage.hosted_status(0))?;
        ensure!(
            status.contains(&format!("reason: {reason}")),
            "{host}:{port}: {status}"
        );
        let server = format!("https://{host}:{port}");
        match reason {
            "InSync" => {
                ensure!(transom_e2e::secret::Secret::read(&stage.secret(0))?.server == server);
            }
            _ => {
                ensure!(
                    status.contains(&format!("the guest proposed server {server}")),
                    "{status}"
                );
                ensure!(
                    status.contains("*.nodes.example.com with a node port of service"),
                    "{status}"
                );
                ensure!(
                    !status.contains("admin-kubeconfig"),
                    "the source is not at fault: {status}"
                );
            }
        }
    }
    Ok(())
}

/// The endpoint that HyperShift publishes differs from cluster to cluster.
#[test]
fn a_server_from_a_field_serves_that_primary_only() -> Result<()> {
    let granted = "        addresses: [{primaryField: status.controlPlaneEndpoint}]\n";
    let text = fs::read_to_string(Stage::new(2, 0)?.hosted(0))?;
    let host = text
        .split("controlPlaneEndpoint:")
        .nth(1)
        .and_then(|rest| rest.split("host: ").nth(1));
    let host = host
        .and_then(|rest| rest.lines().next())
        .context("the fleet has no endpoint")?;
    let stage = stage(&format!("{{host: {host}, port: 6443}}"), granted)?;
    stage.once()?;
    let [first, second] =
        [0, 1].map(|index| fs::read_to_string(stage.hosted_status(index)).unwrap_or_default());
    ensure!(first.contains("reason: InSync"), "{first}");
    ensure!(second.contains("reason: ServerNotGranted"), "{second}");
    Ok(())
}
