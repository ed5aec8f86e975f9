//! A real API server with a fleet, and the cost of its servers. Shows no content of a Secret.

use crate::floor::server::{SECRET, api, client};
use crate::process::{self, Programs};
use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::api::{DeleteParams, ListParams};
use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use transom_core::metrics::{Metric, WATCH_OBJECTS};
use transom_e2e::agent::{ADMIN, Agent};
use transom_e2e::{http, program};
use transom_support::fleet::Fleet;
use transom_test_cluster::{Cluster, Options};

/// Concurrent requests, if the order does not matter.
pub(super) const PARALLEL: usize = 32;
/// The name of the managed objects.
pub(super) const OUTPUT: &str = "external-managed-kubeconfig";

/// The server, its fleet, and its clients.
pub(super) struct Scene {
    pub(super) cluster: Cluster,
    /// HostedClusters, or ManagedClusters.
    pub(super) clusters: usize,
    /// Kubeconfig of the agent.
    pub(super) agent: String,
    /// Kubeconfig of the baselines.
    pub(super) floor: String,
    /// The agent's output, which the baseline writes again.
    pub(super) outputs: PathBuf,
    pub(super) client: Client,
    pub(super) agent_user: String,
    /// How often the end of the audit log was read.
    pub(super) looks: AtomicUsize,
}

impl Scene {
    /// HostedClusters with secrets, Services and namespaces.
    pub(super) async fn hosted(work: &Path, clusters: usize) -> Result<Self> {
        Self::new(
            work,
            Fleet {
                clusters,
                managed: 0,
                seed: 1,
            },
            clusters,
        )
        .await
    }

    /// ManagedClusters.
    pub(super) async fn managed(work: &Path, managed: usize) -> Result<Self> {
        Self::new(
            work,
            Fleet {
                clusters: 0,
                managed,
                seed: 1,
            },
            managed,
        )
        .await
    }

    async fn new(work: &Path, fleet: Fleet, clusters: usize) -> Result<Self> {
        let cluster = Cluster::start(&Options::default()).await?;
        cluster.install_all_crds().await?;
        cluster.install_fleet(fleet).await?;
        let groups = ["system:masters"];
        let (agent, floor) = (
            cluster.user("bench-agent", &groups)?,
            cluster.user("bench-floor", &groups)?,
        );
        let shown = |path: PathBuf| path.display().to_string();
        let (agent_file, floor) = (
            cluster.write_kubeconfig(&agent)?,
            cluster.write_kubeconfig(&floor)?,
        );
        let client = client(&floor).await?;
        let outputs = work.join("outputs.json");
        Ok(Self {
            clusters,
            agent: shown(agent_file),
            floor: shown(floor),
            outputs,
            client,
            agent_user: agent.name().to_owned(),
            looks: AtomicUsize::new(0),
            cluster,
        })
    }

    /// Starts the agent, and waits until it watches everything.
    pub(super) fn start_agent(&self, programs: &Programs) -> Result<Agent> {
        // No other process takes the port in the short time until the agent does.
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let policies = self.policies(&["external-managed-kubeconfig", "built-in-taints"])?;
        let words = [
            "run",
            "--kubeconfig",
            &self.agent,
            "--policies",
            &policies,
            ADMIN,
            &admin,
        ];
        let agent = process::start(&mut programs.transom(&words))?;
        agent.ready()?;
        Ok(agent)
    }

    /// Writes shipped policies without limits into a folder: every cluster changes at once on purpose.
    pub(super) fn policies(&self, names: &[&str]) -> Result<String> {
        let folder = self.outputs.with_file_name("policies");
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context("failed to empty the folder of policies");
            }
            _ => {}
        }
        for name in names {
            let from = program::policy(name);
            let text = std::fs::read_to_string(&from)
                .with_context(|| format!("failed to read `{}`", from.display()))?;
            let to = folder.join(name);
            std::fs::create_dir_all(&to).context("failed to make a folder of policies")?;
            std::fs::write(to.join("policy.yaml"), program::without_limits(&text))
                .context("failed to write a policy")?;
        }
        Ok(folder.display().to_string())
    }

    /// Writes the managed objects into a file, in the form in which they would be created; returns their number.
    pub(super) async fn keep_outputs(&self) -> Result<usize> {
        let mut made = Vec::new();
        for mut secret in self.outputs().await? {
            let metadata = &mut secret.metadata;
            (
                metadata.uid,
                metadata.resource_version,
                metadata.creation_timestamp,
            ) = (None, None, None);
            metadata.managed_fields = None;
            made.push(serde_json::to_value(&secret)?);
        }
        ensure!(!made.is_empty(), "the agent made nothing");
        let count = made.len();
        std::fs::write(&self.outputs, serde_json::to_vec(&Value::Array(made))?)
            .with_context(|| format!("failed to write `{}`", self.outputs.display()))?;
        Ok(count)
    }

    /// Removes everything that the agent or a baseline created.
    pub(super) async fn clear_outputs(&self) -> Result<()> {
        let remove = |secret: kube::api::DynamicObject| async move {
            let api = api(&self.client, SECRET, secret.metadata.namespace.as_deref());
            api.delete(OUTPUT, &DeleteParams::default()).await.map(drop)
        };
        let all = self.outputs().await?;
        stream::iter(all)
            .map(remove)
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        Ok(())
    }

    /// The objects that the agent or a baseline created.
    pub(super) async fn outputs(&self) -> Result<Vec<kube::api::DynamicObject>> {
        let named = ListParams::default().fields(&format!("metadata.name={OUTPUT}"));
        Ok(api(&self.client, SECRET, None).list(&named).await?.items)
    }

    /// CPU time of the API server and etcd so far.
    pub(super) fn server_cpu_millis(&self) -> Result<f64> {
        let [apiserver, etcd] = [self.cluster.apiserver(), self.cluster.etcd()].map(|server| {
            let id = server
                .id()
                .context("failed to ask for the CPU time of a server: it does not run")?;
            process::cpu_millis(id)
        });
        Ok(apiserver? + etcd?)
    }
}

/// A metric of the agent, summed over its labels.
pub(super) fn metric(agent: &Agent, metric: &Metric) -> Result<f64> {
    let about = || format!("failed to ask the agent for `{}`", metric.name);
    let admin = agent.admin().with_context(about)?;
    http::metric(admin, metric.name, "").with_context(about)
}

/// The memory that the agent may use for the number of objects in its cache now, in mebibytes.
pub(super) fn allowance(agent: &Agent) -> Result<f64> {
    Ok(64.0 + metric(agent, &WATCH_OBJECTS)? * 10.0 / 1024.0)
}
