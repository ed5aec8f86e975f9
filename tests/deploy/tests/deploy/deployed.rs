//! The agent as a Deployment runs it: with its flags, as its service account, with these permissions, not as an
//! administrator. No kubelet runs here, so a test starts the process.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fs;
use std::process::Command;
use transom_e2e::agent::Agent;
pub(crate) use transom_e2e::agent::DEADLINE;
use transom_e2e::{http, program};
use transom_test_cluster::{Cluster, Line, Mark, User};
use transom_test_deploy::rendered::said;

/// The start of an operator's command.
pub(crate) fn kubectl(cluster: &Cluster) -> Result<Command> {
    cluster.kubectl(cluster.admin())
}

/// Writes what the container mounts of Secrets and ConfigMaps, as kubelet would; returns the path of each in the
/// container, and its folder here.
fn mounts(cluster: &Cluster, deployment: &Value) -> Result<Vec<(String, String)>> {
    let pod = &deployment["spec"]["template"]["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut mounted = Vec::new();
    for volume in list(&pod["volumes"]) {
        let (kind, name) = match (&volume["secret"], &volume["configMap"]) {
            (Value::Object(secret), _) => ("secret", secret["secretName"].as_str()),
            (_, Value::Object(map)) => ("configmap", map["name"].as_str()),
            _ => continue,
        };
        let name = name.context("a volume names no object")?;
        let words = ["get", kind, name, "--namespace", "transom"];
        let object = said(kubectl(cluster)?.args(words).args(["--output", "json"]))?;
        let object: Value = serde_json::from_str(&object)?;
        let folder = cluster.folder().join("mounts").join(name);
        fs::create_dir_all(&folder)?;
        for (key, value) in object["data"].as_object().context("it is empty")? {
            let text = value.as_str().context("no text")?;
            let bytes = match kind {
                "secret" => STANDARD.decode(text)?,
                _ => text.as_bytes().to_vec(),
            };
            fs::write(folder.join(key), bytes)?;
        }
        let mounts = list(&pod["containers"][0]["volumeMounts"]);
        let here = mounts.iter().find(|one| one["name"] == volume["name"]);
        let path = here.and_then(|one| one["mountPath"].as_str());
        let path = path.with_context(|| format!("{volume} is mounted nowhere"))?;
        mounted.push((path.to_owned(), folder.display().to_string()));
    }
    Ok(mounted)
}

/// A running agent.
pub(crate) struct Deployed {
    agent: Agent,
    account: User,
    mark: Mark,
}

impl Deployed {
    /// Starts the agent of the Deployment that is on the cluster, and waits until it is ready.
    pub(crate) async fn start(cluster: &Cluster) -> Result<Self> {
        let words = [
            "get",
            "deployment/transom",
            "--namespace",
            "transom",
            "--output",
            "json",
        ];
        let deployment: Value = serde_json::from_str(&said(kubectl(cluster)?.args(words))?)?;
        let account = cluster.service_account("transom", "transom").await?;
        let (mut listens, mounted) = (false, mounts(cluster, &deployment)?);
        let arguments = deployment
            .pointer("/spec/template/spec/containers/0/args")
            .and_then(Value::as_array);
        let mut transom = Command::new(program::binary()?);
        for argument in arguments
            .context("the container has no args")?
            .iter()
            .filter_map(Value::as_str)
        {
            let mut here = argument.replace("[::]:8080", "127.0.0.1:0");
            listens |= here != argument;
            for (path, folder) in &mounted {
                here = here.replace(&format!("={path}/"), &format!("={folder}/"));
            }
            transom.arg(here);
        }
        ensure!(
            listens,
            "the agent does not listen at the port of the container"
        );
        transom
            .arg("--kubeconfig")
            .arg(cluster.write_kubeconfig(&account)?);
        transom
            .env("XDG_CACHE_HOME", cluster.folder().join("cache"))
            .env_remove("RUST_LOG");
        let mark = cluster.audit().mark()?;
        let agent = Agent::start(&mut transom, cluster.folder().join("transom.log"))?;
        let admin = agent.ready()?;
        ensure!(
            http::get(admin, "/healthz")?.status == 200,
            "ready and not healthy"
        );
        Ok(Self {
            agent,
            account,
            mark,
        })
    }

    /// Its entire output.
    pub(crate) fn log(&self) -> Result<String> {
        self.agent.log()
    }

    /// Stops it, and returns its requests to the API server; fails if one was denied.
    pub(crate) fn stop(self, cluster: &Cluster) -> Result<Vec<Line>> {
        self.agent.stop()?;
        let asked = cluster
            .audit()
            .since(self.mark)?
            .into_iter()
            .filter(|line| line.user == self.account.name());
        let asked: Vec<Line> = asked.collect();
        let denied = asked.iter().filter(|line| line.denied);
        let denied: Vec<String> = denied
            .map(|line| format!("{} {}", line.verb, line.uri))
            .collect();
        ensure!(denied.is_empty(), "denied: {denied:?}");
        Ok(asked)
    }
}
