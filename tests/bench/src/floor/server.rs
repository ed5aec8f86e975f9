//! Baselines on a real API server: only the necessary requests, by kube's own client, without decisions.

use anyhow::{Context as _, Result};
use clap::Subcommand;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{
    Api, DynamicObject, ListParams, Patch, PatchParams, PostParams, ValidationDirective,
    WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::pin::pin;
use tokio::runtime::Runtime;

/// Objects on a page of a list, as many as the agent requests.
const PAGE: u32 = 500;

/// Which baseline.
#[derive(Subcommand)]
pub(crate) enum Floor {
    /// Create every object of a JSON list
    Create {
        /// The list
        list: PathBuf,
        /// Concurrent requests
        #[arg(long)]
        parallel: usize,
        /// As the agent does: by server-side apply, which RBAC can bind by name
        #[arg(long)]
        apply: bool,
    },
    /// List everything that the agent watches
    List,
    /// List everything that the agent of a hub watches
    ListHub,
    /// Watch admin secrets, and write each into the namespace of its klusterlet
    Copy,
    /// Watch ManagedClusters, and taint each that is not available
    Taint,
}

/// Runs one.
pub(crate) fn run(kubeconfig: &Path, floor: &Floor) -> Result<()> {
    Runtime::new()?.block_on(async {
        let client = client(kubeconfig).await?;
        match floor {
            Floor::Create {
                list,
                parallel,
                apply,
            } => create(&client, list, *parallel, *apply).await,
            Floor::List => list(&client, &WATCHED).await,
            Floor::ListHub => list(&client, &WATCHED_ON_HUB).await,
            Floor::Copy => copy(&client).await,
            Floor::Taint => taint(&client).await,
        }
    })
}

/// A client without retries.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig).context("failed to read the kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// The objects of a kind in all namespaces, or in one.
pub(crate) fn api(
    client: &Client,
    (group, version, kind): (&str, &str, &str),
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Secrets.
pub(crate) const SECRET: (&str, &str, &str) = ("", "v1", "Secret");
/// ManagedClusters.
pub(crate) const MANAGED: (&str, &str, &str) =
    ("cluster.open-cluster-management.io", "v1", "ManagedCluster");

async fn create(client: &Client, list: &Path, parallel: usize, apply: bool) -> Result<()> {
    let objects: Vec<DynamicObject> = serde_json::from_slice(&std::fs::read(list)?)?;
    // Items of a list have no kind.
    let types = TypeMeta {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
    };
    let write = |mut object: DynamicObject| {
        object.types = Some(types.clone());
        write_one(client, object, apply)
    };
    stream::iter(objects)
        .map(write)
        .buffer_unordered(parallel)
        .try_collect::<()>()
        .await?;
    Ok(())
}

async fn write_one(client: &Client, object: DynamicObject, apply: bool) -> kube::Result<()> {
    let api = api(client, SECRET, object.metadata.namespace.as_deref());
    if !apply {
        return api.create(&PostParams::default(), &object).await.map(drop);
    }
    let name = object.metadata.name.clone().unwrap_or_default();
    let mut how = PatchParams::apply("transom-bench-floor");
    how.field_validation = Some(ValidationDirective::Ignore);
    api.patch(&name, &how, &Patch::Apply(&object))
        .await
        .map(drop)
}

/// A kind with what is selected of it.
type Listed = ((&'static str, &'static str, &'static str), Select);

/// What is listed of a kind.
#[derive(Clone, Copy)]
enum Select {
    Fields(&'static str),
    Labels(&'static str),
    /// Only the metadata of what has these labels.
    Names(&'static str),
}

const RBAC: &str = "rbac.authorization.k8s.io";
/// The label of what the agent made, and the opposite.
const OURS: Select = Select::Labels("transom.dev/policy");
const NOT_OURS: Select = Select::Names("!transom.dev/policy");

const WATCHED: [Listed; 7] = [
    (
        ("hypershift.openshift.io", "v1beta1", "HostedCluster"),
        Select::Fields(""),
    ),
    (MANAGED, Select::Fields("")),
    (
        ("operator.open-cluster-management.io", "v1", "Klusterlet"),
        Select::Fields(""),
    ),
    (("", "v1", "Namespace"), Select::Fields("")),
    (
        ("", "v1", "Service"),
        Select::Fields("metadata.name=kube-apiserver"),
    ),
    (
        SECRET,
        Select::Fields("type=Opaque,metadata.name!=external-managed-kubeconfig"),
    ),
    (
        SECRET,
        Select::Fields("metadata.name=external-managed-kubeconfig"),
    ),
];

const WATCHED_ON_HUB: [Listed; 9] = [
    (MANAGED, Select::Fields("")),
    (("", "v1", "Namespace"), Select::Names("")),
    (
        ("coordination.k8s.io", "v1", "Lease"),
        Select::Fields("metadata.name=managed-cluster-lease"),
    ),
    ((RBAC, "v1", "ClusterRole"), OURS),
    ((RBAC, "v1", "ClusterRole"), NOT_OURS),
    ((RBAC, "v1", "ClusterRoleBinding"), OURS),
    ((RBAC, "v1", "ClusterRoleBinding"), NOT_OURS),
    ((RBAC, "v1", "RoleBinding"), OURS),
    ((RBAC, "v1", "RoleBinding"), NOT_OURS),
];

async fn list(client: &Client, watched: &[Listed]) -> Result<()> {
    let whole = async |(kind, select): &Listed| {
        let api = api(client, *kind, None);
        let params = ListParams::default().limit(PAGE);
        let (mut params, names) = match select {
            Select::Fields("") => (params, false),
            Select::Fields(fields) => (params.fields(fields), false),
            Select::Labels(labels) => (params.labels(labels), false),
            Select::Names(labels) => (params.labels(labels), true),
        };
        let mut listed = 0;
        loop {
            let (many, metadata) = match names {
                true => {
                    let page = api.list_metadata(&params).await?;
                    (page.items.len(), page.metadata)
                }
                false => {
                    let page = api.list(&params).await?;
                    (page.items.len(), page.metadata)
                }
            };
            listed += many;
            params.continue_token = metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok::<_, kube::Error>(listed);
            }
        }
    };
    stream::iter(watched)
        .map(whole)
        .buffer_unordered(8)
        .try_collect::<Vec<_>>()
        .await?;
    Ok(())
}

/// Calls the function for every change of an object from now on, until it returns that it is done.
pub(crate) async fn follow(
    api: &Api<DynamicObject>,
    fields: Option<&str>,
    each: impl AsyncFnMut(DynamicObject) -> Result<bool>,
) -> Result<()> {
    let now = api
        .list_metadata(&ListParams::default().limit(1))
        .await?
        .metadata
        .resource_version;
    follow_from(api, fields, now.unwrap_or_default(), each).await
}

/// The same from a resource version on.
pub(crate) async fn follow_from(
    api: &Api<DynamicObject>,
    fields: Option<&str>,
    mut version: String,
    mut each: impl AsyncFnMut(DynamicObject) -> Result<bool>,
) -> Result<()> {
    loop {
        let params = WatchParams {
            field_selector: fields.map(str::to_owned),
            ..WatchParams::default()
        };
        let mut events = pin!(api.watch(&params, &version).await?);
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                version = object.metadata.resource_version.clone().unwrap_or(version);
                if each(object).await? {
                    return Ok(());
                }
            }
        }
    }
}

async fn copy(client: &Client) -> Result<()> {
    follow(
        &api(client, SECRET, None),
        Some("type=Opaque"),
        async |secret| {
            let name = secret.metadata.name.unwrap_or_default();
            let Some(cluster) = name.strip_suffix("-admin-kubeconfig") else {
                return Ok(false);
            };
            let namespace = format!("klusterlet-{}", cluster.replace('.', "-"));
            let patch =
                Patch::Merge(json!({"data": {"kubeconfig": secret.data["data"]["kubeconfig"]}}));
            let target = api(client, SECRET, Some(&namespace));
            target
                .patch(
                    "external-managed-kubeconfig",
                    &PatchParams::default(),
                    &patch,
                )
                .await?;
            Ok(false)
        },
    )
    .await
}

async fn taint(client: &Client) -> Result<()> {
    let clusters = api(client, MANAGED, None);
    follow(&clusters, None, async |cluster| {
        let name = cluster.metadata.name.unwrap_or_default();
        let taints = cluster.data["spec"]
            .get("taints")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        if let Some(taints) = tainted(&cluster.data, taints) {
            let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
            clusters
                .patch(&name, &PatchParams::default(), &patch)
                .await?;
        }
        Ok(false)
    })
    .await
}

/// The key of the taint of a cluster that does not report.
pub(crate) const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";

/// The desired taints, if they differ from the current ones.
fn tainted(cluster: &Value, mut taints: Vec<Value>) -> Option<Vec<Value>> {
    let conditions = cluster["status"]["conditions"].as_array()?;
    let available = conditions
        .iter()
        .find(|one| one["type"] == "ManagedClusterConditionAvailable")?;
    let before = taints.len();
    let unknown = available["status"] == "Unknown";
    let has = taints.iter().any(|taint| taint["key"] == UNREACHABLE);
    if unknown && !has {
        taints.push(
            json!({"key": UNREACHABLE, "effect": "NoSelect", "timeAdded": "2026-11-21T08:00:00Z"}),
        );
    } else if !unknown {
        taints.retain(|taint| taint["key"] != UNREACHABLE);
    }
    (taints.len() != before).then_some(taints)
}
