//! Important pages followed to the letter: every command as written, on a real API server, where the real agent has
//! run, comparing the objects of others before and after.

use crate::applied::{OWN, with_fleet};
use crate::deployed::{DEADLINE, Deployed, kubectl};
use crate::taking_over;
use anyhow::{Context as _, Result, ensure};
use kube::api::ListParams;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Stdio;
use transom_e2e::program;
use transom_support::fleet::{Fleet, hosted_name, managed_name};
use transom_test_cluster::{Cluster, wait};
use transom_test_deploy::page::{Page, run, shell};
use transom_test_deploy::rendered::said;

/// Three clusters that get a secret, and as many ManagedClusters as needed for two with a taint.
pub(crate) const FLEET: Fleet = Fleet {
    clusters: 3,
    managed: 16,
    seed: 7,
};
const OUTPUT: &str = "external-managed-kubeconfig";
const STAMP: [&str; 3] = [
    "app.kubernetes.io/managed-by",
    "transom.dev/policy",
    "transom.dev/adopted",
];

pub(crate) fn home(index: usize) -> String {
    format!("klusterlet-{}", managed_name(index))
}

/// A cluster with the fleet, and without the agent.
async fn hosting() -> Result<Cluster> {
    with_fleet(FLEET).await
}

/// All objects of a kind by namespace and name, with all fields.
pub(crate) async fn all(
    cluster: &Cluster,
    version: &str,
    kind: &str,
) -> Result<BTreeMap<String, Value>> {
    let found = cluster
        .objects()
        .api(version, kind, None)
        .await?
        .list(&ListParams::default())
        .await?;
    let named = |object: kube::api::DynamicObject| {
        let name = object.metadata.name.clone().unwrap_or_default();
        let place = object
            .metadata
            .namespace
            .clone()
            .map(|namespace| format!("{namespace}/"))
            .unwrap_or_default();
        Ok((format!("{place}{name}"), serde_json::to_value(object)?))
    };
    found.items.into_iter().map(named).collect()
}

pub(crate) async fn secrets(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    // Helm keeps its releases in Secrets, too.
    let mut secrets = all(cluster, "v1", "Secret").await?;
    secrets.retain(|name, _| !name.starts_with("transom/"));
    Ok(secrets)
}

/// The managed secrets, by namespace, with whether each was adopted.
fn stamped(secrets: &BTreeMap<String, Value>) -> BTreeMap<&str, bool> {
    let of_policy = |secret: &&Value| {
        let labels = &secret["metadata"]["labels"];
        labels[STAMP[0]] == "transom" && labels[STAMP[1]] == OUTPUT
    };
    let told = |secret: &Value| secret["metadata"]["labels"][STAMP[2]] == "true";
    let named = secrets.iter().filter(|(_, secret)| of_policy(secret));
    named
        .map(|(name, secret)| (name.split('/').next().unwrap_or_default(), told(secret)))
        .collect()
}

/// Secrets of others that almost match the selector of the page.
async fn plant(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let near = [
        ("plain", json!({})),
        ("manager", json!({STAMP[0]: "transom"})),
        ("policy", json!({STAMP[1]: OUTPUT})),
        (
            "other-policy",
            json!({STAMP[0]: "transom", STAMP[1]: "own"}),
        ),
        (
            "other-manager",
            json!({STAMP[0]: "Helm", STAMP[1]: OUTPUT, STAMP[2]: "true"}),
        ),
    ];
    let mut names = BTreeSet::new();
    for namespace in [home(0), "default".to_owned()] {
        for (name, labels) in &near {
            let metadata = json!({"name": name, "namespace": namespace, "labels": labels,
                "annotations": {"transom.dev/inputs": "somebody's", "transom.dev/source": "somebody's"}});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": "Yg=="}});
            cluster.objects().create(secret).await?;
            names.insert(format!("{namespace}/{name}"));
        }
    }
    Ok(names)
}

/// Creates the secret of a cluster as the hypershift-addon agent does: client-go reads the source, one field is
/// changed, client-go writes it. `port` is that of the Service if the secret should be correct.
async fn made_by_addon(cluster: &Cluster, index: usize, port: u16) -> Result<()> {
    let source = format!("clusters/{}-admin-kubeconfig", hosted_name(index));
    let sources = secrets(cluster).await?;
    let source = sources
        .get(&source)
        .with_context(|| format!("no {source}"))?;
    let path = cluster.folder().join("addon.kubeconfig");
    let encoded = source["data"]["kubeconfig"]
        .as_str()
        .context("no kubeconfig")?;
    let server = format!(
        "https://kube-apiserver.clusters-{}.svc.cluster.local:{port}",
        hosted_name(index)
    );
    let write = format!(
        "base64 -d <<< {encoded} > {path} && name=$(kubectl config get-clusters --kubeconfig {path} | tail -n 1) && \
         kubectl config set-cluster \"$name\" --server {server} --kubeconfig {path} > {path}.said && base64 -w 0 {path}",
        path = path.display()
    );
    let written = said(&mut shell(cluster, &write)?)
        .ok()
        .context("kubectl does not read the source")?;
    let metadata = json!({"name": OUTPUT, "namespace": home(index),
        "labels": {"team": "fleet"}, "annotations": {"example.com/note": "kept"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"kubeconfig": written}});
    cluster.objects().create(secret).await.map(drop)
}

/// Runs the agent of the Deployment until every cluster has its secret and two ManagedClusters their taint.
async fn work(cluster: &Cluster) -> Result<()> {
    let agent = Deployed::start(cluster).await?;
    let done = async || {
        let made = stamped(&secrets(cluster).await?).len() == FLEET.clusters;
        Ok((made && tainted(cluster).await?.len() >= 2).then_some(()))
    };
    let came = wait::until("secrets and taints", DEADLINE, done).await;
    came.with_context(|| agent.log().unwrap_or_default())?;
    agent.stop(cluster).map(drop)
}

/// The ManagedClusters that have a taint, with all fields.
async fn tainted(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    let mut clusters = all(
        cluster,
        "cluster.open-cluster-management.io/v1",
        "ManagedCluster",
    )
    .await?;
    clusters.retain(|_, cluster| {
        cluster["spec"]["taints"]
            .as_array()
            .is_some_and(|taints| !taints.is_empty())
    });
    Ok(clusters)
}

/// Whether an object is unchanged except for the ownership labels, which are gone.
pub(crate) fn is_released(before: &Value, after: &Value) -> Result<()> {
    ensure!(
        before["data"] == after["data"] && before["type"] == after["type"],
        "more than the metadata changed"
    );
    ensure!(
        before["metadata"]["uid"] == after["metadata"]["uid"],
        "it was made anew"
    );
    for field in ["labels", "annotations"] {
        let mut kept = before["metadata"][field]
            .as_object()
            .cloned()
            .unwrap_or_default();
        kept.retain(|key, _| key != STAMP[0] && !key.starts_with("transom.dev/"));
        let there: Map<String, Value> = after["metadata"][field]
            .as_object()
            .cloned()
            .unwrap_or_default();
        ensure!(kept == there, "{field}: {there:?} instead of {kept:?}");
    }
    Ok(())
}

/// Runs a command that waits for the end of the namespace, and meanwhile does the work of the namespace controller.
async fn run_to_the_end_of_the_namespace(cluster: &Cluster, command: &str) -> Result<()> {
    let log = fs::File::create(cluster.folder().join("deletes.log"))?;
    let mut child = shell(cluster, command)?
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()?;
    let namespaces = cluster.objects().api("v1", "Namespace", None).await?;
    wait::until("the deletion of the namespace", DEADLINE, async || {
        let namespace = namespaces.get("transom").await?;
        Ok(namespace.metadata.deletion_timestamp.map(drop))
    })
    .await?;
    cluster.finalize_namespace("transom").await?;
    let ended = wait::until(command, DEADLINE, async || Ok(child.try_wait()?)).await?;
    let said = fs::read_to_string(cluster.folder().join("deletes.log"))?;
    ensure!(ended.success(), "`{command}` ended with {ended}: {said}");
    Ok(())
}

/// Everything that the agent could have left on the cluster except the secrets: objects with its name.
fn of_transom(cluster: &Cluster) -> Result<String> {
    let kinds = "crds,namespaces,clusterroles,clusterrolebindings";
    let named = said(kubectl(cluster)?.args(["get", kinds, "--output", "name"]))?;
    Ok(named
        .lines()
        .filter(|line| line.contains("transom"))
        .collect::<Vec<_>>()
        .join("\n"))
}

/// The state of the cluster for each part of the page.
struct Uninstall {
    cluster: Cluster,
    page: Page,
    users: BTreeSet<String>,
}

impl Uninstall {
    /// Runs the one command with these words.
    fn follow(&self, words: &[&str]) -> Result<String> {
        run(&self.cluster, &self.page.command(words, &[])?)
    }

    /// Checks that objects of others are unchanged, including the version.
    fn is_left_alone(
        &self,
        before: &BTreeMap<String, Value>,
        after: &BTreeMap<String, Value>,
    ) -> Result<()> {
        let others =
            |name: &&String| self.users.contains(*name) || name.ends_with("-admin-kubeconfig");
        let others: Vec<&String> = before.keys().filter(others).collect();
        ensure!(
            others.len() == self.users.len() + FLEET.clusters,
            "{others:?}"
        );
        for name in others {
            ensure!(
                before.get(name) == after.get(name),
                "{name} is somebody else's and was touched"
            );
        }
        Ok(())
    }

    /// Section 1: the agent is removed, and its objects stay.
    async fn agent(&self) -> Result<()> {
        let before = secrets(&self.cluster).await?;
        let taints = tainted(&self.cluster).await?;
        self.follow(&["helm uninstall"])?;
        ensure!(
            secrets(&self.cluster).await? == before,
            "helm took a secret, or changed one"
        );
        ensure!(tainted(&self.cluster).await? == taints, "helm took a taint");
        let left = of_transom(&self.cluster)?;
        let wanted = "customresourcedefinition.apiextensions.k8s.io/fleetpolicies.transom.dev\nnamespace/transom";
        ensure!(left == wanted, "{left}");
        let policies: Vec<String> = all(&self.cluster, "transom.dev/v1alpha1", "FleetPolicy")
            .await?
            .into_keys()
            .collect();
        ensure!(policies == ["own"], "{policies:?}");
        Ok(())
    }

    /// Section 2, the list: it matches the labels.
    async fn list(&self) -> Result<()> {
        let told = self.follow(&["get secrets", "--label-columns"])?;
        let rows = told
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let rows: BTreeMap<&str, bool> = rows
            .map(|row| (row[0], row.last() == Some(&"true")))
            .collect();
        let secrets = secrets(&self.cluster).await?;
        ensure!(rows == stamped(&secrets), "{told}");
        let told = self.follow(&["get secrets", "custom-columns"])?;
        let is_told = |home: &str| {
            let mut lines = told.lines();
            lines.any(|line| line.starts_with(home) && line.contains("HostedCluster"))
        };
        ensure!(rows.keys().all(|home| is_told(home)), "{told}");
        Ok(())
    }

    /// Section 2, release: only the ownership labels are removed, in any number of starts.
    async fn release(&self) -> Result<()> {
        let before = secrets(&self.cluster).await?;
        for words in [
            ["annotate secrets", "transom.dev/source-"],
            ["label secrets", "transom.dev/policy-"],
        ] {
            let commands = self.page.all(&words)?;
            let [dry, real] = commands.as_slice() else {
                anyhow::bail!("not a pair: {commands:?}")
            };
            ensure!(
                dry.replace("--dry-run=server ", "") == *real,
                "the first says what the second does"
            );
            let unchanged = secrets(&self.cluster).await?;
            run(&self.cluster, dry)?;
            ensure!(
                secrets(&self.cluster).await? == unchanged,
                "`{dry}` changed something"
            );
            // Once more than needed, as after an interruption.
            run(&self.cluster, real)?;
            run(&self.cluster, real)?;
        }
        let after = secrets(&self.cluster).await?;
        ensure!(before.keys().eq(after.keys()), "a secret is gone");
        self.is_left_alone(&before, &after)?;
        for (name, secret) in before.iter().filter(|(name, _)| name.ends_with(OUTPUT)) {
            is_released(secret, &after[name]).with_context(|| name.clone())?;
        }
        Ok(())
    }

    /// Section 2, delete: what the policy created is deleted, what it adopted stays.
    async fn delete(&self) -> Result<()> {
        let before = secrets(&self.cluster).await?;
        let stamps = stamped(&before);
        let made: BTreeSet<String> = stamps
            .iter()
            .filter(|(_, adopted)| !**adopted)
            .map(|(home, _)| format!("{home}/{OUTPUT}"))
            .collect();
        ensure!(
            made.len() == 1 && stamps.len() == FLEET.clusters,
            "{stamps:?}"
        );
        self.follow(&["delete secrets"])?;
        let after = secrets(&self.cluster).await?;
        let gone: BTreeSet<String> = before
            .keys()
            .filter(|name| !after.contains_key(*name))
            .cloned()
            .collect();
        ensure!(gone == made, "{gone:?} are gone");
        self.is_left_alone(&before, &after)
    }

    /// Section 3: the taints of one cluster.
    async fn taints(&self) -> Result<()> {
        let mut before = tainted(&self.cluster).await?;
        let (name, _) = before.pop_first().context("no taint")?;
        run(
            &self.cluster,
            &self
                .page
                .command(&["patch managedcluster"], &[("<name>", &name)])?,
        )?;
        ensure!(
            tainted(&self.cluster).await? == before,
            "other taints than those of {name} went, or its own stayed"
        );
        Ok(())
    }

    /// The binding of a work agent, which the policy `cluster-access` leaves with its finalizer.
    fn binding(&self) -> Result<()> {
        let namespace = home(0);
        let name = format!("open-cluster-management:managedcluster:{namespace}:work");
        let (group, finalizer) = (
            "rbac.authorization.k8s.io",
            "cluster.open-cluster-management.io/manifest-work-cleanup",
        );
        let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace, "finalizers": [finalizer]},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "view"}});
        let file = self.cluster.folder().join("binding.json");
        fs::write(&file, binding.to_string())?;
        said(
            kubectl(&self.cluster)?
                .args(["apply", "--filename"])
                .arg(&file),
        )?;
        let words = ["patch rolebinding"];
        run(
            &self.cluster,
            &self.page.command(&words, &[("<cluster>", &namespace)])?,
        )?;
        let mut get = kubectl(&self.cluster)?;
        let get = get.args(["get", "rolebinding", &name, "--namespace", &namespace]);
        let left = said(get.args(["--output", "jsonpath={.metadata.finalizers}"]))?;
        ensure!(left.trim().is_empty(), "{left}");
        said(kubectl(&self.cluster)?.args([
            "delete",
            "rolebinding",
            &name,
            "--namespace",
            &namespace,
        ]))?;
        Ok(())
    }

    /// The last sections: permissions that somebody applied, and what Helm leaves.
    async fn rest(&self) -> Result<()> {
        let (binary, policy) = (program::binary()?, program::policy("detach"));
        let rbac = format!("{} rbac --name transom-own", binary.display());
        let rbac = format!("{rbac} --policies {}", policy.display());
        run(&self.cluster, &format!("{rbac} | kubectl apply -f -"))?;
        ensure!(of_transom(&self.cluster)?.contains("transom-own"));
        self.follow(&["delete clusterroles"])?;
        self.follow(&["delete roles"])?;
        self.follow(&["delete crd"])?;
        run_to_the_end_of_the_namespace(
            &self.cluster,
            &self.page.command(&["delete namespace"], &[])?,
        )
        .await?;
        let left = of_transom(&self.cluster)?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    }

    /// Section 1 again, for an installation with kustomize.
    async fn kustomize(&self, install: &Page) -> Result<()> {
        let before = secrets(&self.cluster).await?;
        let folder = ("<your folder>", "host/deploy/base");
        for (words, fill) in [
            (&["apply", "crd.yaml"][..], &[][..]),
            (&["kubectl wait"], &[]),
            (&["apply", "--kustomize"], &[folder]),
        ] {
            run(&self.cluster, &install.command(words, fill)?)?;
        }
        let delete = self.page.command(&["delete", "--kustomize"], &[])?;
        run_to_the_end_of_the_namespace(&self.cluster, &delete).await?;
        let left = of_transom(&self.cluster)?;
        ensure!(left.is_empty(), "{left}");
        ensure!(
            secrets(&self.cluster).await? == before,
            "it took a secret, or changed one"
        );
        Ok(())
    }
}

#[tokio::test]
async fn uninstall_removes_what_it_says_and_nothing_of_others() -> Result<()> {
    let cluster = hosting().await?;
    made_by_addon(&cluster, 0, 6443).await?;
    let users = plant(&cluster).await?;
    let uninstall = Uninstall {
        cluster,
        page: Page::read("uninstall.md")?,
        users,
    };
    let (install, cluster) = (Page::read("install.md")?, &uninstall.cluster);
    let helm_install = install.command(&["helm install"], &[])?;

    run(cluster, &helm_install)?;
    work(cluster).await?;
    let adopted: BTreeMap<_, _> = (0..FLEET.clusters)
        .map(|index| (home(index), index == 0))
        .collect();
    let found = secrets(cluster).await?;
    ensure!(
        stamped(&found)
            .into_iter()
            .map(|(home, adopted)| (home.to_owned(), adopted))
            .collect::<BTreeMap<_, _>>()
            == adopted
    );
    let own = cluster.folder().join("own.yaml");
    fs::write(&own, OWN)?;
    said(kubectl(cluster)?.args(["apply", "--filename"]).arg(&own))?;
    uninstall.agent().await?;
    uninstall.list().await?;
    uninstall.release().await?;

    // A later install adopts what was released without rewriting it, and creates what is missing.
    said(kubectl(cluster)?.args(["delete", "fleetpolicies.transom.dev", "own"]))?;
    said(kubectl(cluster)?.args(["delete", "secret", OUTPUT, "--namespace", &home(2)]))?;
    let before = secrets(cluster).await?;
    run(cluster, &helm_install)?;
    work(cluster).await?;
    let after = secrets(cluster).await?;
    for name in [home(0), home(1)].map(|home| format!("{home}/{OUTPUT}")) {
        is_released(&after[&name], &before[&name])
            .with_context(|| format!("{name} was taken over"))?;
    }
    said(kubectl(cluster)?.args(["apply", "--filename"]).arg(&own))?;
    uninstall.agent().await?;
    uninstall.delete().await?;
    uninstall.taints().await?;
    uninstall.binding()?;
    uninstall.rest().await?;
    uninstall.kustomize(&install).await?;
    uninstall.page.is_followed()
}

/// Whether a line of the log says what the page says of it.
fn tells(log: &str, index: usize, what: &str, end: &str) -> bool {
    let target = format!("{}/{OUTPUT}", home(index));
    let is = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        let message = line["message"].as_str().unwrap_or_default();
        message.starts_with(what) && message.contains(&target) && message.ends_with(end)
    };
    log.lines().any(is)
}

#[tokio::test]
async fn migration_is_read_only_first_and_then_rewrites_no_correct_object() -> Result<()> {
    let cluster = hosting().await?;
    made_by_addon(&cluster, 0, 6443).await?;
    made_by_addon(&cluster, 1, 7443).await?;
    cluster.install_crds(&[taking_over::CRD]).await?;
    taking_over::left_by_addon(&cluster).await?;
    let (page, before) = (Page::read("migrate.md")?, secrets(&cluster).await?);
    let names = [
        ("<ManagedCluster of this cluster>", "local-cluster"),
        ("<that of the hub>", "local-cluster"),
    ];
    run(&cluster, &page.command(&["helm install"], &names)?)?;
    let agent = Deployed::start(&cluster).await?;
    // No kubelet runs here: the log is that of the process.
    let logs = page.command(&["logs", "| grep ReadOnly"], &[])?;
    let (selects, grep) = logs.split_once('|').context("no pipe")?;
    let words = [
        "get",
        "deployment/transom",
        "--namespace",
        "transom",
        "--output",
        "jsonpath={.spec.template.metadata.labels}",
    ];
    let labels: Value = serde_json::from_str(&said(kubectl(&cluster)?.args(words))?)?;
    ensure!(
        selects.contains("app.kubernetes.io/name=transom")
            && labels["app.kubernetes.io/name"] == "transom"
    );
    let log = cluster.folder().join("transom.log");
    let grep = format!("cat {} | {grep}", log.display());
    wait::until("a word on each secret", DEADLINE, async || {
        let told = run(&cluster, &grep).unwrap_or_default();
        let all = tells(&told, 0, "would update", ": metadata")
            && tells(&told, 1, "would update", ": data.kubeconfig, metadata")
            && tells(&told, 2, "would create", OUTPUT);
        Ok(all.then_some(()))
    })
    .await
    .with_context(|| run(&cluster, &grep).unwrap_or_default())?;
    let asked = agent.stop(&cluster)?;
    let leases = |line: &transom_test_cluster::Line| line.resource() == "leases";
    let asked: Vec<_> = asked
        .iter()
        .filter(|line| line.is_write() && !leases(line))
        .collect();
    ensure!(asked.is_empty(), "read-only, it asked for {asked:#?}");
    ensure!(
        secrets(&cluster).await? == before,
        "read-only, something was written"
    );

    run(&cluster, &page.command(&["helm upgrade"], &[])?)?;
    work(&cluster).await?;
    let after = secrets(&cluster).await?;
    let (right, moved) = [0, 1]
        .map(|index| format!("{}/{OUTPUT}", home(index)))
        .into();
    is_released(&after[&right], &before[&right]).context("what was right")?;
    ensure!(
        after[&moved]["data"] != before[&moved]["data"],
        "what was wrong is still wrong"
    );
    ensure!(
        after[&right]["metadata"]["labels"][STAMP[2]] == "true",
        "nothing says that it was adopted"
    );
    taking_over::take_over(&cluster, &page).await?;
    page.is_followed()
}
