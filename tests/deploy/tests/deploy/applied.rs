//! A real API server accepts the rendered objects, which match their sources, and the agent works as deployed: with
//! these flags, and as the service account with these permissions, not as an administrator.

use crate::deployed::{DEADLINE, Deployed, kubectl};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::Instant;
use transom_e2e::program;
use transom_support::fleet::{Fleet, managed_name};
use transom_test_cluster::{Cluster, Options, helm, wait};
use transom_test_deploy::generated;
use transom_test_deploy::rendered::{self, folder, kustomization, said};

pub(crate) const CRDS: [&str; 5] = [
    "hostedclusters.hypershift.openshift.io",
    "managedclusters.cluster.open-cluster-management.io",
    "klusterlets.operator.open-cluster-management.io",
    "servicemonitors.monitoring.coreos.com",
    "prometheusrules.monitoring.coreos.com",
];
/// The objects for Prometheus and Grafana.
const MONITORING: [&str; 5] = [
    "configmap/transom-dashboard-agent",
    "configmap/transom-dashboard-generation",
    "configmap/transom-dashboard-service-level",
    "prometheusrule.monitoring.coreos.com/transom",
    "servicemonitor.monitoring.coreos.com/transom",
];
const FLEET: Fleet = Fleet {
    clusters: 3,
    managed: 5,
    seed: 11,
};

/// How the API server ends a request that took it too long, as it may beside other tests.
const BUSY: &str = "(Timeout)";

/// Runs the operator's command, again while the server is too busy: applying twice changes nothing.
fn apply(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let began = Instant::now();
    loop {
        let mut command = kubectl(cluster)?;
        match said(command.args(["apply", "--server-side"]).args(words)) {
            Err(busy) if began.elapsed() < DEADLINE && format!("{busy:#}").contains(BUSY) => {}
            said => return said,
        }
    }
}

#[tokio::test]
async fn the_base_applies_and_the_agent_runs_as_documented() -> Result<()> {
    let cluster = with_fleet(FLEET).await?;
    let base = folder("base").display().to_string();
    apply(
        &cluster,
        &["--filename", &folder("base/crd.yaml").display().to_string()],
    )?;
    cluster.wait_for_crd("fleetpolicies.transom.dev").await?;
    // A dry run does not create the namespace that the rest needs.
    apply(&cluster, &["--filename", &format!("{base}/namespace.yaml")])?;
    apply(&cluster, &["--dry-run=server", "--kustomize", &base])?;
    apply(&cluster, &["--kustomize", &base])?;
    said(kubectl(&cluster)?.args(["diff", "--server-side", "--kustomize", &base]))?;
    let objects = kustomization("base")?;
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .context("no Deployment")?;
    pod_is_admitted(&cluster, deployment)?;
    works(&cluster).await
}

/// The namespace enforces the restricted profile: a pod of the Deployment passes.
fn pod_is_admitted(cluster: &Cluster, deployment: &Value) -> Result<()> {
    let template = &deployment["spec"]["template"];
    let metadata =
        json!({"name": "probe", "namespace": "transom", "labels": template["metadata"]["labels"]});
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
    let path = cluster.folder().join("pod.json");
    fs::write(&path, pod.to_string())?;
    said(
        kubectl(cluster)?
            .args(["create", "--dry-run=server", "--filename"])
            .arg(&path),
    )
    .map(drop)
}

/// The agent with the flags of the Deployment, as its service account: ready, all objects created, no request denied.
async fn works(cluster: &Cluster) -> Result<()> {
    let agent = Deployed::start(cluster).await?;
    let secrets = cluster.objects().api("v1", "Secret", None).await?;
    let made = kube::api::ListParams::default().labels("app.kubernetes.io/managed-by=transom");
    wait::until("the secrets", DEADLINE, async || {
        Ok((secrets.list(&made).await?.items.len() == FLEET.clusters).then_some(()))
    })
    .await?;
    agent.stop(cluster).map(drop)
}

/// The installed objects for Prometheus and Grafana, by the common label.
fn monitoring(cluster: &Cluster) -> Result<Vec<String>> {
    let kinds = "configmaps,prometheusrules,servicemonitors";
    let words = [
        "get",
        kinds,
        "--namespace",
        "transom",
        "--selector",
        "app.kubernetes.io/name=transom",
    ];
    let told = said(kubectl(cluster)?.args(words).args(["--output", "name"]))?;
    Ok(told.lines().map(str::to_owned).collect())
}

/// A changed CRD over the one that helm installed, as host/docs/upgrade.md says.
fn newer_crd_is_taken(cluster: &Cluster) -> Result<()> {
    let text = fs::read_to_string(folder("base/crd.yaml"))?;
    let changed = text.replacen(
        "description: Kind of the objects",
        "description: The kind of the objects",
        1,
    );
    ensure!(
        changed != text,
        "crd.yaml has another description of its first column"
    );
    let path = cluster.folder().join("crd.yaml");
    fs::write(&path, changed)?;
    apply(
        cluster,
        &[
            "--force-conflicts",
            "--filename",
            &path.display().to_string(),
        ],
    )
    .map(drop)
}

/// An API server with a fleet, and without the agent.
pub(crate) async fn with_fleet(fleet: Fleet) -> Result<Cluster> {
    let cluster = Cluster::start(&Options::default()).await?;
    cluster.install_crds(&CRDS).await?;
    cluster.install_fleet(fleet).await?;
    Ok(cluster)
}

/// Installs the chart as its page says, with more flags; returns what helm says.
pub(crate) fn install_chart(cluster: &Cluster, more: &[&str]) -> Result<String> {
    let chart = folder("chart").display().to_string();
    let words = ["install", "transom", &chart, "--create-namespace"];
    helm_on(cluster, &[&words[..], more].concat())
}

/// helm as the admin, with nothing from the user's environment.
pub(crate) fn helm_on(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let mut helm = helm()?;
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(name, cluster.folder().join("helm"));
    }
    helm.args(words)
        .arg("--kubeconfig")
        .arg(cluster.write_kubeconfig(cluster.admin())?);
    said(helm.args(["--namespace", "transom"]))
}

#[tokio::test]
async fn installs_upgrades_and_removes_the_chart() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    cluster.install_crds(&CRDS).await?;
    let chart = folder("chart").display().to_string();
    let notes = install_chart(&cluster, &[])?;
    assert!(
        notes.contains("kubectl get fleetpolicies.transom.dev"),
        "{notes}"
    );
    let policies =
        said(kubectl(&cluster)?.args(["get", "fleetpolicies.transom.dev", "--output", "name"]))?;
    assert_eq!(policies.lines().count(), 2, "{policies}");
    newer_crd_is_taken(&cluster)?;
    let everything = "serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true,secretReads=strict,admin.tlsSecret=tls";
    for more in [&["--dry-run=server"][..], &[]] {
        let upgrade = [
            "upgrade",
            "transom",
            &chart,
            "--reset-then-reuse-values",
            "--set",
            everything,
        ];
        helm_on(&cluster, &[&upgrade, more].concat())?;
    }
    assert_eq!(monitoring(&cluster)?, MONITORING);
    helm_on(&cluster, &["uninstall", "transom"])?;
    let left = said(kubectl(&cluster)?.args([
        "get",
        "clusterroles,clusterrolebindings",
        "--output",
        "name",
    ]))?;
    assert!(!left.contains("/transom"), "{left}");
    cluster.wait_for_crd("fleetpolicies.transom.dev").await
}

/// The policy of a user, about objects that the chart's roles do not cover.
pub(crate) const OWN: &str = "apiVersion: transom.dev/v1alpha1
kind: FleetPolicy
metadata: {name: own}
spec:
  primary: {apiVersion: example.com/v1, kind: Widget}
  guests: {decide: {component: builtin:kubeconfig}}
  grant:
    read: [{role: source, kind: Secret, namespace: widgets, name: source, keys: [kubeconfig]}]
    write:
    - {kind: Secret, namespace: widgets, name: copy, verbs: [create], fields: [data.kubeconfig], kubeconfig: {server: [source], ca: [source]}}
";

/// Whether the API server allows something to the agent's service account.
fn may(cluster: &Cluster, words: &[&str]) -> Result<bool> {
    let account = "--as=system:serviceaccount:transom:transom";
    let output = kubectl(cluster)?
        .args(["auth", "can-i", account])
        .args(words)
        .output()?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => anyhow::bail!(
            "can-i {words:?}: {other}: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

#[tokio::test]
async fn grants_permissions_for_own_policies_beside_the_chart() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    cluster.install_crds(&CRDS).await?;
    let chart = folder("chart").display().to_string();
    install_chart(&cluster, &[])?;
    said(kubectl(&cluster)?.args(["create", "namespace", "widgets"]))?;
    let own = cluster.folder().join("own.yaml");
    fs::write(&own, OWN)?;
    let rules =
        |role: &str| said(kubectl(&cluster)?.args(["get", role, "--output", "jsonpath={.rules}"]));
    let shipped = rules("clusterrole/transom")?;
    // With the default name and with a custom one, but not the chart's.
    for name in [&["--name", "transom-own"][..], &[]] {
        let mut transom = Command::new(program::binary()?);
        let printed = said(
            transom
                .args(["rbac", "--namespace", "transom", "--policies"])
                .arg(&own)
                .args(name),
        )?;
        let path = cluster.folder().join("own-rbac.yaml");
        fs::write(&path, printed)?;
        apply(&cluster, &["--filename", &path.display().to_string()])?;
    }
    assert_eq!(
        rules("clusterrole/transom")?,
        shipped,
        "the chart's role changed"
    );
    let (own_before, upgrade) = (
        rules("clusterrole/transom-own")?,
        ["upgrade", "transom", &chart],
    );
    let asked = |words: &str| may(&cluster, &words.split(' ').collect::<Vec<_>>());
    let everything = || -> Result<()> {
        // The permissions of the own policy, then those of each bundled policy.
        for words in [
            "list hostedclusters.hypershift.openshift.io -A",
            "patch managedclusters.cluster.open-cluster-management.io",
            "create secrets/copy -n widgets",
            "patch secrets/external-managed-kubeconfig -n any",
        ] {
            ensure!(asked(words)?, "the agent may no longer {words}");
        }
        ensure!(
            !asked("delete secrets/copy -n widgets")?,
            "the agent may more than its policies need"
        );
        Ok(())
    };
    everything()?;
    // An upgrade that changes nothing, and one that changes the chart's rules.
    for values in [
        &["--reset-then-reuse-values"][..],
        &["--set", "secretReads=strict"],
    ] {
        helm_on(&cluster, &[&upgrade[..], values].concat())?;
        everything()?;
        assert_eq!(
            rules("clusterrole/transom-own")?,
            own_before,
            "the upgrade took the rights of the own policy"
        );
    }
    assert!(
        rules("clusterrole/transom")? != shipped,
        "the upgrade changed nothing"
    );
    Ok(())
}

/// Values of the chart for own policies, as `transom rbac` prints them.
fn own_values(cluster: &Cluster, policies: &str) -> Result<String> {
    let [own, values] = ["own.yaml", "values.yaml"].map(|name| cluster.folder().join(name));
    fs::write(&own, policies)?;
    let mut transom = Command::new(program::binary()?);
    let printed = transom.args(["rbac", "--output", "values", "--policies"]);
    fs::write(&values, said(printed.arg(&own))?)?;
    Ok(values.display().to_string())
}

#[tokio::test]
async fn the_chart_installs_own_policies_with_their_rights() -> Result<()> {
    let cluster = with_fleet(FLEET).await?;
    said(kubectl(&cluster)?.args(["create", "namespace", "widgets"]))?;
    let text = fs::read_to_string(program::policy("cluster-sets-by-rule"))?;
    let text = text.replace("rules: []", "rules: [{set: eu, labels: {env: [prod]}}]");
    let values = own_values(&cluster, &format!("{text}---\n{OWN}"))?;
    let chart = folder("chart").display().to_string();
    let none = "policies.builtInTaints=false,policies.externalManagedKubeconfig=false";
    install_chart(&cluster, &["--set", none, "--values", &values])?;
    let agent = Deployed::start(&cluster).await?;
    let (name, set) = (
        managed_name(0),
        "cluster.open-cluster-management.io/clusterset",
    );
    let clusters = "managedclusters.cluster.open-cluster-management.io";
    said(kubectl(&cluster)?.args(["label", clusters, &name, "env=prod"]))?;
    let api = cluster.objects().api(
        "cluster.open-cluster-management.io/v1",
        "ManagedCluster",
        None,
    );
    let api = api.await?;
    wait::until("the set of a cluster", DEADLINE, async || {
        let labels = api.get(&name).await?.metadata.labels.unwrap_or_default();
        Ok((labels.get(set).map(String::as_str) == Some("eu")).then_some(()))
    })
    .await?;
    // No request was denied, of either policy.
    agent.stop(&cluster)?;
    let asked = |words: &str| may(&cluster, &words.split(' ').collect::<Vec<_>>());
    ensure!(asked("create secrets/copy -n widgets")? && !asked("delete secrets/copy -n widgets")?);
    // Without them their rights go, too.
    let upgrade = ["upgrade", "transom", &chart, "--set", none];
    helm_on(&cluster, &upgrade)?;
    for words in [
        format!("patch {clusters}"),
        "create secrets/copy -n widgets".to_owned(),
    ] {
        ensure!(!asked(&words)?, "the agent may still {words}");
    }
    Ok(())
}

#[tokio::test]
async fn the_components_apply() -> Result<()> {
    let cluster = Cluster::start(&Options::default()).await?;
    cluster.install_crds(&CRDS).await?;
    apply(
        &cluster,
        &["--filename", &folder("base/crd.yaml").display().to_string()],
    )?;
    cluster.wait_for_crd("fleetpolicies.transom.dev").await?;
    let overlay = rendered::overlay(&["strict", "monitoring", "monitoring/dashboards"])?;
    apply(
        &cluster,
        &["--kustomize", &overlay.path().display().to_string()],
    )?;
    let arguments = "jsonpath={.spec.template.spec.containers[0].args}";
    let told = said(kubectl(&cluster)?.args([
        "get",
        "deployment/transom",
        "--namespace",
        "transom",
        "--output",
        arguments,
    ]))?;
    assert!(told.contains("--secret-reads=strict"), "{told}");
    assert_eq!(monitoring(&cluster)?, MONITORING);
    Ok(())
}

#[test]
fn generated_files_match_their_sources() -> Result<()> {
    let all = generated::all()?;
    let old: Vec<&str> = all
        .iter()
        .filter(|file| !file.is_current())
        .map(|file| file.path.as_str())
        .collect();
    assert!(
        old.is_empty(),
        "not up to date: {}; run `cargo xtask deploy`",
        old.join(", ")
    );
    Ok(())
}

#[test]
fn chart_and_base_have_the_current_version() -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let chart: Value = serde_yaml::from_str(&std::fs::read_to_string(
        rendered::folder("chart").join("Chart.yaml"),
    )?)?;
    assert_eq!([&chart["version"], &chart["appVersion"]], [version; 2]);
    let base = rendered::kustomization("base")?;
    let deployment = base
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .context("the base has no Deployment")?;
    assert_eq!(
        deployment.pointer("/spec/template/spec/containers/0/image"),
        Some(&format!("transom:{version}").into())
    );
    Ok(())
}
