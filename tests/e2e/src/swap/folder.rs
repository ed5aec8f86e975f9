//! The swaps in a folder of manifests: a stage of its own.

use super::{Component, Place, Writes};
use crate::agent::{ADMIN, Agent, DEADLINE};
use crate::http::Meter;
use crate::load::UNREACHABLE;
use crate::program;
use crate::secret::{Secret, is_secret};
use crate::stage::{Stage, port_of, put};
use crate::tree;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use transom_cluster::directory::{Directory, DirectoryOptions};
use transom_core::object::Object;
use transom_core::reference::LOCAL;
use transom_support::{fleet, wait};

/// A change of a Service that changes no answer.
const FAMILIES: [&str; 2] = ["PreferDualStack", "RequireDualStack"];
/// A change of a ManagedCluster that changes no answer, and one that does.
const MESSAGES: [&str; 2] = [
    "Managed cluster is available\"",
    "Managed cluster is available.\"",
];
const AVAILABLE: [&str; 2] = [
    "status: \"Unknown\"\n    type: ManagedClusterConditionAvailable",
    "status: \"True\"\n    type: ManagedClusterConditionAvailable",
];

impl Place for Stage {
    fn agent(&self) -> Result<Agent> {
        let mut command = self.run()?;
        command.args([ADMIN, "127.0.0.1:0", "--log-format", "json"]);
        Agent::start(&mut command, self.path("log"))
    }

    fn put_revision(&self, policy: &str, component: Component<'_>, spec: &Value) -> Result<()> {
        let name = format!("{}.wasm", component.version);
        let folder = self.policies.join(policy);
        let path = folder.join(&name);
        if !path.exists() {
            put(&path, component.bytes)?;
        }
        let mut object = program::unlimited_manifest(policy)?;
        object["spec"]["guests"]["decide"]["component"] = name.into();
        merge(&mut object["spec"], spec);
        put(&folder.join("policy.yaml"), object.to_string().as_bytes())
    }

    fn revision(&self, policy: &str) -> Result<Option<String>> {
        let text = match fs::read_to_string(self.policy_status(policy)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let status: Value = serde_yaml::from_str(&text)?;
        let id = status.pointer("/revision/id").and_then(Value::as_str);
        Ok(id.map(str::to_owned))
    }

    fn made(&self, index: usize) -> Result<Option<String>> {
        match fs::read_to_string(self.secret(index)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            text => Ok(Some(text?)),
        }
    }

    fn source(&self, index: usize) -> Result<(Secret, u64)> {
        let text = fs::read_to_string(self.hosted(index))?;
        let (_, port) = port_of(&text).context("the Service has no port")?;
        Ok((Secret::parse(&text)?, port.parse()?))
    }

    fn set_port(&self, index: usize, port: u64) -> Result<()> {
        Stage::set_port(self, index, port)
    }

    fn touch_service(&self, index: usize, state: bool) -> Result<()> {
        choose(&self.hosted(index), &[(FAMILIES, state)])
    }

    fn say_available(&self, name: &str, available: bool, message: bool) -> Result<()> {
        let texts = [(AVAILABLE, available), (MESSAGES, message)];
        choose(&self.managed(name), &texts)
    }

    fn unreachable(&self) -> Result<BTreeSet<String>> {
        let options = DirectoryOptions {
            writable: false,
            watch: false,
            ..DirectoryOptions::new(LOCAL, &self.fleet)
        };
        let kind = "cluster.open-cluster-management.io/v1";
        let directory = Directory::open(options)?;
        let clusters = directory.list(kind, "ManagedCluster", None);
        let mut tainted = BTreeSet::new();
        for object in directory.read(&clusters) {
            tainted.extend(
                object?
                    .filter(is_unreachable)
                    .map(|one| one.reference.name.clone()),
            );
        }
        Ok(tainted)
    }

    /// Reads every secret after each write; those that are as before are not told again.
    fn follow(
        &self,
        meter: &Meter,
        over: &AtomicBool,
        each: &mut dyn FnMut(&str, &str) -> Result<()>,
    ) -> Result<()> {
        let (mut written, mut last) = (0.0, false);
        let mut before = BTreeMap::new();
        while !last {
            last = wait::until("another write, or the end", DEADLINE, || {
                if over.load(Ordering::Relaxed) {
                    return Some(true);
                }
                let writes = meter.metric("transom_writes_total", "").ok()?;
                let news = writes > written;
                written = writes;
                news.then_some(false)
            })?;
            let all = tree::files(&self.own().join("objects"))?;
            for path in all.into_iter().filter(|path| is_secret(path)) {
                let text = match fs::read_to_string(&path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    text => text?,
                };
                if before.get(&path) != Some(&text) {
                    each(&path.display().to_string(), &text)?;
                    before.insert(path, text);
                }
            }
        }
        Ok(())
    }

    /// By its log, which tells each write.
    fn writes(&self, log: &str) -> Result<Writes> {
        let mut writes = Writes::default();
        let numbers: BTreeMap<String, usize> = (0..fs::read_dir(self.fleet.join("hosted"))?
            .count())
            .map(|index| {
                (
                    format!("HostedCluster clusters/{}", fleet::hosted_name(index)),
                    index,
                )
            })
            .collect();
        let lines = log.lines().map(serde_json::from_str::<Value>);
        for line in lines.flatten() {
            let (Some(primary), true) = (line["primary"].as_str(), line["target"].is_string())
            else {
                continue;
            };
            let [message, cause] =
                ["message", "cause"].map(|key| line[key].as_str().unwrap_or_default());
            let write = format!("{message} for {cause}");
            match (
                numbers.get(primary),
                primary.strip_prefix("ManagedCluster "),
            ) {
                (Some(index), _) => writes.hosted.entry(*index).or_default().push(write),
                (None, Some(name)) => writes
                    .managed
                    .entry(name.to_owned())
                    .or_default()
                    .push(write),
                _ => {}
            }
        }
        Ok(writes)
    }
}

/// Merges a patch into an object.
fn merge(to: &mut Value, patch: &Value) {
    match patch.as_object() {
        Some(fields) => fields
            .iter()
            .for_each(|(key, value)| merge(&mut to[key], value)),
        None => to.clone_from(patch),
    }
}

fn is_unreachable(cluster: &Object) -> bool {
    let taints = cluster.body.pointer("/spec/taints");
    taints.is_some_and(|taints| taints.to_string().contains(UNREACHABLE))
}

/// Has a file hold the first or the second of each pair of texts.
fn choose(path: &Path, texts: &[([&str; 2], bool)]) -> Result<()> {
    let mut text = fs::read_to_string(path)?;
    for (both, second) in texts {
        let [to, from] = if *second { [both[1], both[0]] } else { *both };
        ensure!(
            text.contains(to) || text.contains(from),
            "`{}` holds neither text",
            path.display()
        );
        if !text.contains(to) {
            text = text.replacen(from, to, 1);
        }
    }
    put(path, text.as_bytes())
}
