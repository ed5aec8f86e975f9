//! The policy `auto-import` on real API servers: imports a HostedCluster once, with exactly the permissions that
//! `transom rbac` prints; on the hub's own server together with `external-managed-kubeconfig`, and on another one,
//! which the HostedCluster leaves again by the policy `detach`.

use crate::leaving::is_held;
use crate::objects::{CLUSTERS, home, primary};
use crate::stage::{
    CRDS, DEADLINE, HOME, HOSTED, MANAGED, NAMESPACE, Stage, on_stage, on_stage_of_its_own,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use transom_e2e::agent::{ADMIN, Agent};
use transom_e2e::program;
use transom_test_cluster::{Cluster, Mark, Options, User, wait};

/// The agent of a hub that hosts the control planes itself.
pub(crate) const SELF_MANAGED: [&str; 4] = [
    "--cluster-name",
    "local-cluster",
    "--self-managed-cluster",
    "local-cluster",
];
const ADDON_CONFIG: (&str, &str) = (
    "agent.open-cluster-management.io/v1",
    "KlusterletAddonConfig",
);
/// What the names of the HostedClusters begin with that the policy imports.
pub(crate) const IMPORTS: &str = "import-";
/// The note on a HostedCluster that was imported.
pub(crate) const IMPORTED: &str = "import.open-cluster-management.io/auto-imported-as";

/// A bundled policy without limits, changed.
pub(crate) fn policy(name: &str, change: impl FnOnce(&mut Value)) -> Result<Value> {
    let mut policy = program::unlimited_manifest(name)?;
    change(&mut policy["spec"]);
    Ok(policy)
}

/// Makes it ask for add-ons, as its page says.
fn with_addons(spec: &mut Value) {
    spec["guests"]["decide"]["settings"]["addons"] = json!({"searchCollector": false});
    let (name, grant) = ("{managedCluster}", &mut spec["grant"]);
    let namespace = json!({"role": "namespace", "kind": "Namespace", "name": name});
    let config = json!({"apiVersion": ADDON_CONFIG.0, "kind": ADDON_CONFIG.1, "namespace": name, "name": name,
        "verbs": ["create", "update"], "fields": ["spec"]});
    for (list, rule) in [("read", namespace), ("write", config)] {
        grant[list]
            .as_array_mut()
            .into_iter()
            .for_each(|list| list.push(rule.clone()));
    }
}

/// Puts a policy into a folder of its own below one for all.
pub(crate) fn put(folder: &Path, name: &str, policy: &Value) -> Result<()> {
    let folder = folder.join(name);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("policy.yaml"), policy.to_string())?;
    Ok(())
}

async fn label(stage: &Stage, name: &str, value: &str) -> Result<()> {
    let body = json!({"metadata": {"labels": {"example.com/tier": value}}});
    stage.patch(HOSTED, Some(CLUSTERS), name, body).await
}

fn has_label(object: &Value, value: &str) -> bool {
    object["metadata"]["labels"]["example.com/tier"] == value
}

#[test]
fn a_hosted_cluster_becomes_a_managed_cluster_with_addons_and_its_kubeconfig() -> Result<()> {
    on_stage_of_its_own(async |stage| {
        stage.cluster.install_addon_configs().await?;
        let folder = stage.cluster.folder().join("policies-import");
        put(&folder, "auto-import", &policy("auto-import", with_addons)?)?;
        let kubeconfig = fs::read_to_string(program::policy("external-managed-kubeconfig"))?;
        put(
            &folder,
            "external-managed-kubeconfig",
            &serde_yaml::from_str(&kubeconfig)?,
        )?;
        let path = folder.to_str().context("the folder has another name")?;
        stage.grant_exactly(&["--policies", path]).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&[&["--policies", path], &SELF_MANAGED[..]].concat())?;
        stage.ready("import-shop", false).await?;
        let cluster = stage
            .objects()
            .wait_for(MANAGED, (None, "import-shop"), Value::is_object)
            .await?;
        ensure!(
            cluster["spec"] == json!({"hubAcceptsClient": true, "leaseDurationSeconds": 60}),
            "{cluster}"
        );
        let annotations = &cluster["metadata"]["annotations"];
        for (key, value) in [
            (
                "import.open-cluster-management.io/klusterlet-deploy-mode",
                "Hosted",
            ),
            (
                "import.open-cluster-management.io/hosting-cluster-name",
                "local-cluster",
            ),
            ("open-cluster-management/created-via", "hypershift"),
        ] {
            ensure!(annotations[key] == value, "{key}: {cluster}");
        }
        // The hub makes the namespace of the cluster, and imports it.
        let missing = stage
            .get(ADDON_CONFIG, Some("import-shop"), "import-shop")
            .await?;
        ensure!(missing.is_none(), "{missing:?}");
        stage.objects().namespace("import-shop").await?;
        let config = stage
            .objects()
            .wait_for(
                ADDON_CONFIG,
                (Some("import-shop"), "import-shop"),
                Value::is_object,
            )
            .await?;
        ensure!(
            config["spec"]["searchCollector"]["enabled"] == json!(false)
                && config["spec"]["policyController"]["enabled"] == json!(true),
            "{config}"
        );
        stage.objects().namespace(&home("import-shop")).await?;
        stage.wait_for_right("import-shop", 6443).await?;
        addon_config_is_taken_over(stage, &config["spec"]).await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

/// One that is there already, and says what the policy wants, keeps its content and is owned from then on.
async fn addon_config_is_taken_over(stage: &Stage, like: &Value) -> Result<()> {
    let name = "import-left";
    let mut spec = like.clone();
    for field in ["clusterName", "clusterNamespace"] {
        spec[field] = json!(name);
    }
    stage.objects().namespace(name).await?;
    let body = json!({"apiVersion": ADDON_CONFIG.0, "kind": ADDON_CONFIG.1, "spec": spec,
        "metadata": {"name": name, "namespace": name}});
    stage.objects().create(body).await?;
    stage.ready(name, false).await?;
    let adopted =
        |config: &Value| config["metadata"]["labels"]["transom.dev/adopted"] == json!("true");
    let place = (Some(name), name);
    let config = stage
        .objects()
        .wait_for(ADDON_CONFIG, place, adopted)
        .await?;
    ensure!(config["spec"] == spec, "{config}");
    Ok(())
}

#[test]
fn a_hosted_cluster_is_imported_once_and_what_people_change_stays() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-import-once");
        put(
            &folder,
            "auto-import",
            &program::unlimited_manifest("auto-import")?,
        )?;
        let path = folder.to_str().context("the folder has another name")?;
        let rights = stage.grant_exactly(&["--policies", path]).await?;
        let words = [&["--policies", path], &SELF_MANAGED[..]].concat();
        // One name is taken.
        stage.managed("import-taken").await?;
        let theirs = stage.get(MANAGED, None, "import-taken").await?;
        for name in ["import-taken", "import-once"] {
            stage.ready(name, false).await?;
        }
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for(&primary("import-taken"), "Failed TargetNotOwned")?;
        agent.wait_for(&primary("import-once"), "Applied InSync")?;
        let is_noted =
            |hosted: &Value| hosted["metadata"]["annotations"][IMPORTED] == "import-once";
        stage
            .objects()
            .wait_for(HOSTED, (Some(CLUSTERS), "import-once"), is_noted)
            .await?;
        // A person denies it, and the hub finds out where it runs; labels of the HostedCluster follow.
        let body = json!({"metadata": {"labels": {"cloud": "Azure"}},
            "spec": {"hubAcceptsClient": false, "leaseDurationSeconds": 120}});
        stage.patch(MANAGED, None, "import-once", body).await?;
        label(stage, "import-once", "gold").await?;
        let labelled = |cluster: &Value| has_label(cluster, "gold");
        let cluster = stage
            .objects()
            .wait_for(MANAGED, (None, "import-once"), labelled)
            .await?;
        ensure!(
            cluster["spec"]["hubAcceptsClient"] == json!(false)
                && cluster["spec"]["leaseDurationSeconds"] == json!(120)
                && cluster["metadata"]["labels"]["cloud"] == "Azure",
            "{cluster}"
        );
        // A person detaches it: neither a change nor another agent imports it again.
        stage.delete(MANAGED, None, "import-once").await?;
        stage
            .objects()
            .wait_for(MANAGED, (None, "import-once"), Value::is_null)
            .await?;
        agent.stop()?;
        label(stage, "import-once", "silver").await?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for_first_pass()?;
        agent.wait_for(&primary("import-once"), "Applied InSync")?;
        ensure!(stage.get(MANAGED, None, "import-once").await?.is_none());
        // Without the note it is imported again.
        let body = json!({"metadata": {"annotations": {(IMPORTED): null}}});
        stage
            .patch(HOSTED, Some(CLUSTERS), "import-once", body)
            .await?;
        let labelled = |cluster: &Value| has_label(cluster, "silver");
        stage
            .objects()
            .wait_for(MANAGED, (None, "import-once"), labelled)
            .await?;
        // The HostedCluster goes; the ManagedCluster stays.
        stage.delete(HOSTED, Some(CLUSTERS), "import-once").await?;
        agent.wait_for(&primary("import-once"), "Held SourceDeleted")?;
        agent.stop()?;
        ensure!(stage.get(MANAGED, None, "import-once").await?.is_some());
        ensure!(stage.get(MANAGED, None, "import-taken").await? == theirs);
        stage.nothing_denied(mark).await?;
        // Only a write that comes too late is read again, only an Event that repeats is patched, and webhooks that do
        // not run here ask for the rest.
        let unused = "get hostedclusters, get managedclusters, create events, patch events, \
            update managedclusters/accept, create managedclustersets/join";
        stage.all_used_but(&rights, mark, unused)
    })
}

/// Puts the ManagedClusters of a policy on a hub under the name `hub`.
pub(crate) fn on_hub(spec: &mut Value) {
    spec["guests"]["decide"]["settings"]["hub"] = json!("hub");
    for list in ["read", "write"] {
        let rules = spec["grant"][list].as_array_mut().into_iter().flatten();
        let of_hub = rules.filter(|rule| rule["kind"] == MANAGED.1);
        of_hub.for_each(|rule| rule["cluster"] = json!("hub"));
    }
}

/// A hub on another server that serves these kinds, and the agent's account there.
pub(crate) async fn other_hub(stage: &Stage, crds: &[&str]) -> Result<(Cluster, User)> {
    let hub = Cluster::start(&Options::default()).await?;
    hub.install_crds(crds).await?;
    let account = hub.service_account(HOME, "agent").await?;
    stage.guard.look_for_token(&account);
    Ok((hub, account))
}

/// Checks that nothing was denied to an account on another hub since a mark.
pub(crate) fn nothing_denied_on(hub: &Cluster, account: &User, since: Mark) -> Result<()> {
    let lines = hub.audit().since(since)?.into_iter();
    let denied: Vec<_> = lines
        .filter(|line| line.user == account.name() && line.denied)
        .collect();
    ensure!(denied.is_empty(), "denied on the hub: {denied:#?}");
    Ok(())
}

/// An agent with these policies that works for the stage, and for a hub on another server under the name `hub`, with
/// exactly the permissions that `transom rbac` prints for both; and where it begins in both audit logs.
pub(crate) async fn two_servers(
    stage: &Stage,
    hub: &Cluster,
    account: &User,
    path: &str,
) -> Result<(Agent, [Mark; 2])> {
    stage.grant_exactly(&["--policies", path]).await?;
    let rights = stage.rights(
        "agent",
        &["--policies", path, "--connection", "hub"],
        "yaml",
    )?;
    hub.objects().apply_manifest(&rights).await?;
    // One kubeconfig with a context for each server.
    let mut both: Value = serde_yaml::from_str(&stage.cluster.kubeconfig(&stage.agent)?)?;
    let other: Value = serde_yaml::from_str(&hub.kubeconfig(account)?)?;
    for (list, name) in [
        ("clusters", "cluster"),
        ("users", "user"),
        ("contexts", "context"),
    ] {
        let mut entry = other[list][0].clone();
        entry["name"] = json!("hub");
        if list == "contexts" {
            entry[name] = json!({"cluster": "hub", "user": "hub"});
        }
        both[list].as_array_mut().context("no list")?.push(entry);
        both[list][0]["name"] = json!("local");
    }
    both["contexts"][0]["context"] = json!({"cluster": "local", "user": "local"});
    let kubeconfig = Path::new(path).with_extension("kubeconfig");
    fs::write(&kubeconfig, serde_yaml::to_string(&both)?)?;
    let marks = [stage.mark()?, hub.audit().mark()?];
    let mut command = Command::new(program::binary()?);
    command
        .args(["run", "--policies", path, "--log-format", "json"])
        .args([ADMIN, "127.0.0.1:0", "--cluster-name", "host-1"])
        .args(["--self-managed-cluster", "local-cluster"])
        .args(["--context", "local=local", "--context", "hub=hub"])
        .arg("--kubeconfig")
        .arg(&kubeconfig);
    Ok((stage.start_command(&mut command)?, marks))
}

#[test]
fn a_hosted_cluster_is_imported_into_a_hub_on_another_server() -> Result<()> {
    on_stage(async |stage| {
        let (hub, account) = other_hub(stage, &[CRDS[1]]).await?;
        let folder = stage.cluster.folder().join("policies-import-hub");
        put(&folder, "auto-import", &policy("auto-import", on_hub)?)?;
        let path = folder.to_str().context("the folder has another name")?;
        stage.ready("import-far", false).await?;
        let (agent, [mark, there]) = two_servers(stage, &hub, &account, path).await?;
        let mut last = None;
        let came = wait::until("the ManagedCluster on the hub", DEADLINE, async || {
            let clusters = hub.objects().api(MANAGED.0, MANAGED.1, None).await?;
            last = clusters.get_opt("host-1-import-far").await?;
            Ok(last.is_some().then_some(()))
        });
        came.await.with_context(|| agent.tail())?;
        let annotations = last.and_then(|cluster| cluster.metadata.annotations);
        let hosting = "import.open-cluster-management.io/hosting-cluster-name";
        let hosting = annotations.and_then(|all| all.get(hosting).cloned());
        ensure!(hosting.as_deref() == Some("host-1"), "{hosting:?}");
        let is_noted =
            |hosted: &Value| hosted["metadata"]["annotations"][IMPORTED] == "host-1-import-far";
        stage
            .objects()
            .wait_for(HOSTED, (Some(CLUSTERS), "import-far"), is_noted)
            .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        nothing_denied_on(&hub, &account, there)?;
        ensure!(
            stage
                .get(MANAGED, None, "host-1-import-far")
                .await?
                .is_none()
        );
        ensure!(
            stage
                .get(NAMESPACE, None, "host-1-import-far")
                .await?
                .is_none()
        );
        Ok(())
    })
}

#[test]
fn a_hosted_cluster_leaves_a_hub_on_another_server_which_is_down_meanwhile() -> Result<()> {
    on_stage(async |stage| {
        let (hub, account) = other_hub(stage, &[CRDS[1]]).await?;
        let folder = stage.cluster.folder().join("policies-detach-hub");
        for name in ["auto-import", "detach"] {
            put(&folder, name, &policy(name, on_hub)?)?;
        }
        let path = folder.to_str().context("the folder has another name")?;
        let (name, cluster) = ("import-parting", (None, "host-1-import-parting"));
        stage.ready(name, false).await?;
        let (agent, [mark, there]) = two_servers(stage, &hub, &account, path).await?;
        let on_hub = hub.objects();
        on_hub.wait_for(MANAGED, cluster, Value::is_object).await?;
        let hosted = (Some(CLUSTERS), name);
        stage.objects().wait_for(HOSTED, hosted, is_held).await?;
        // A server that starts denies everything until it has read its roles, so this is looked at before.
        nothing_denied_on(&hub, &account, there)?;
        // While the hub cannot be asked, it is not known whether its ManagedCluster is gone.
        hub.apiserver().kill()?;
        stage.delete(HOSTED, Some(CLUSTERS), name).await?;
        let unread = [r#""policy":"detach""#, r#""reason":"ServerUnavailable""#];
        agent.wait_for_lines(1, &unread)?;
        let left = stage.get(HOSTED, hosted.0, name).await?;
        ensure!(left.is_some(), "released without an answer of the hub");
        hub.restart_apiserver().await?;
        on_hub.wait_for(MANAGED, cluster, Value::is_null).await?;
        stage
            .objects()
            .wait_for(HOSTED, hosted, Value::is_null)
            .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        Ok(())
    })
}
