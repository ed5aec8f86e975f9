//! The page host/docs/change.md, followed command by command on a real API server with the agent of the chart: a plan,
//! new settings, a component that waits for its approval, fails, and is taken back. What the page shows is compared.
//! `--nocapture` prints what each command said.

use crate::applied::{install_chart, with_fleet};
use crate::deployed::{DEADLINE, Deployed, kubectl};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use transom_conformance::fixture::trapping;
use transom_e2e::program;
use transom_support::fleet::Fleet;
use transom_test_cluster::{Cluster, wait};
use transom_test_deploy::page::{Page, shell};
use transom_test_deploy::rendered::said;

const FLEET: Fleet = Fleet {
    clusters: 3,
    managed: 30,
    seed: 7,
};
/// The longest name for which the new component does not trap.
const LONGEST: usize = 40;
/// The policy whose guest fails for the cluster with the long name: the one of own-guest.md.
const FAILING: &str = r#"{"apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "maintenance"},
    "spec": {"primary": {"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster"},
    "guests": {"decide": {"component": "configmap:transom/my-taints/my-taints.wasm"}},
    "grant": {"write": [{"target": "primary", "verbs": ["patch"], "fields": ["spec.taints"],
    "taintKeys": ["example.com/maintenance"]}]}}}"#;

/// Makes what the reader has, and the beginning of each command.
fn prepare(cluster: &Cluster, top: &Path) -> Result<String> {
    fs::create_dir_all(top)?;
    FLEET.write(&top.join("fleet"))?;
    fs::write(top.join("my-taints.wasm"), trapping(LONGEST)?)?;
    fs::write(
        top.join("my-kubeconfig.wasm"),
        program::component("kubeconfig")?,
    )?;
    fs::write(
        top.join("settings.yaml"),
        "unavailable: {effect: PreferNoSelect}\n",
    )?;
    let policies = program::root().join("policies");
    fs::copy(
        policies.join("built-in-taints/policy.yaml"),
        top.join("new-policy.yaml"),
    )?;
    // The contexts of the page are the same API server here.
    let config = top.join("kubeconfig");
    fs::copy(cluster.write_kubeconfig(cluster.admin())?, &config)?;
    let words = |words: &[&str]| {
        let mut kubectl = transom_test_cluster::kubectl()?;
        said(
            kubectl
                .args(["config", "--kubeconfig"])
                .arg(&config)
                .args(words),
        )
    };
    let context: Value = serde_json::from_str(&words(&["view", "--minify", "--output=json"])?)?;
    let context = &context["contexts"][0]["context"];
    for name in ["hub", "hosting"] {
        let [to, user] = ["cluster", "user"].map(|of| context[of].as_str().unwrap_or_default());
        let (to, user) = (format!("--cluster={to}"), format!("--user={user}"));
        words(&["set-context", name, &to, &user])?;
    }
    let transom = program::binary()?.parent().context("no folder")?.display();
    Ok(format!(
        "cd {} && export PATH={transom}:$PATH KUBECONFIG={} && ",
        top.display(),
        config.display()
    ))
}

/// Creates an object.
fn create(cluster: &Cluster, object: &str) -> Result<()> {
    let file = cluster.folder().join("object.json");
    fs::write(&file, object)?;
    let words = ["create", "--filename"];
    said(kubectl(cluster)?.args(words).arg(&file)).map(drop)
}

/// Waits until this is true of the status of a policy.
pub(crate) async fn wait_for(
    cluster: &Cluster,
    policy: &str,
    is: impl Fn(&Value) -> bool,
) -> Result<()> {
    let words = ["get", "fleetpolicies.transom.dev", policy, "--output=json"];
    let mut last = Value::Null;
    let waited = wait::until("a status of the policy", DEADLINE, async || {
        let policy = said(kubectl(cluster)?.args(words))?;
        let mut policy: Value = serde_json::from_str(&policy)?;
        last = policy["status"].take();
        Ok(is(&last).then_some(()))
    })
    .await;
    waited.with_context(|| format!("the last one is {last}"))
}

/// What happens to the fleet before a command of the page.
async fn happen(cluster: &Cluster, command: &str, told: &str) -> Result<()> {
    // A cluster joins with a name that the new component cannot deal with.
    let joins = told.contains("approved sha256:") && !told.contains("RolledBack");
    if command == "kubectl get fpol built-in-taints" && joins {
        let joined = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": "a".repeat(LONGEST + 1)}, "spec": {"hubAcceptsClient": true}});
        create(cluster, &joined.to_string())?;
        let available = json!({"status": {"conditions": [{"type": "ManagedClusterConditionAvailable",
            "status": "True", "reason": "ManagedClusterAvailable", "message": "",
            "lastTransitionTime": "2026-11-27T00:00:00Z"}]}});
        let name = "a".repeat(LONGEST + 1);
        let patch = format!("--patch={available}");
        let words = [
            "patch",
            "managedcluster",
            &name,
            "--subresource=status",
            "--type=merge",
        ];
        said(kubectl(cluster)?.args(words).arg(patch))?;
        let is_back = |status: &Value| {
            status["candidate"]["reason"] == "RolledBack"
                && status["counts"]["applied"] == FLEET.managed + 1
        };
        wait_for(cluster, "built-in-taints", is_back).await?;
    }
    if command.contains("fpol maintenance") {
        create(cluster, FAILING)?;
        let fails = |status: &Value| status["failing"]["primaries"] == 1;
        wait_for(cluster, "maintenance", fails).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_change_is_planned_approved_and_taken_back_as_the_page_says() -> Result<()> {
    let cluster = with_fleet(FLEET).await?;
    install_chart(&cluster, &[])?;
    let top = cluster.folder().join("page");
    let begin = prepare(&cluster, &top)?;
    let agent = Deployed::start(&cluster).await?;
    for policy in ["built-in-taints", "external-managed-kubeconfig"] {
        let works = |status: &Value| status["counts"]["applied"].as_u64() > Some(0);
        wait_for(&cluster, policy, works).await?;
    }
    let (page, mut told) = (Page::read("change.md")?, String::new());
    for (command, shown) in page.all_shown() {
        let happened = happen(&cluster, command, &told).await;
        happened.with_context(|| format!("before `{command}`"))?;
        let output = said(&mut shell(&cluster, &format!("{begin}{command}"))?);
        let output = output.with_context(|| format!("`{command}`"))?;
        let output = output.replace(cluster.admin().name(), "alice");
        println!("$ {command}\n{output}");
        let compared = shown.is_in(&output);
        compared.with_context(|| format!("`{command}`\n{output}"))?;
        told.push_str(&format!("$ {command}\n{output}\n"));
    }
    page.is_followed()?;
    agent.stop(&cluster).map(drop)
}
