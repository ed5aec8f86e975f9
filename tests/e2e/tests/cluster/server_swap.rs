//! Two policies are replaced under a running agent while its fleet changes all the time. A watch sees every version of
//! each secret, in the order in which they were written; the audit log has exactly these writes, and none without a
//! change.

use crate::components::{PARTS, SOURCES};
use crate::fleet::POLICIES;
use crate::objects::{CLUSTERS, OUTPUT, home};
use crate::policies::POLICY;
use crate::stage::{HOME, MANAGED, SECRET, SERVICE, Stage, on_stage};
use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use tokio::time::timeout;
use transom_core::share::lock::MutexExt as _;
use transom_e2e::agent::Agent;
use transom_e2e::http::Meter;
use transom_e2e::load::UNREACHABLE;
use transom_e2e::program;
use transom_e2e::secret::Secret;
use transom_e2e::size::Size;
use transom_e2e::swap::{Component, GROWTH_BYTES, Place, Swap, Swapped, Writes};
use transom_support::fleet::{self, Fleet};
use transom_test_cluster::Mark;

/// Chooses the keys of the fleet.
const SEED: u64 = 7;
/// The agent, with policies as objects and components in ConfigMaps.
const WORDS: [&str; 5] = [POLICIES, "--lease-namespace", HOME, "--sources", SOURCES];
/// The Service of a control plane.
const SERVED: &str = "kube-apiserver";
/// After so long without a change whoever follows them looks whether it is over.
const LOOK: Duration = Duration::from_millis(200);
/// Objects on a page of a list.
const PAGE: u32 = 500;

#[test]
fn swaps_under_constant_change_lose_mix_and_repeat_nothing() -> Result<()> {
    let swap = Swap {
        clusters: 12,
        managed: 40,
        resync_seconds: 1,
        reconciles_per_change: 1,
        swaps: 4,
    };
    run(swap, |swapped| {
        ensure!(swapped.edits > 50 && swapped.read > 40, "{swapped:?}");
        Ok(())
    })
}

#[test]
#[ignore = "takes minutes: cargo xtask soak server_swap"]
fn soak() -> Result<()> {
    let size = Size::given(200, 12_000)?;
    let swap = Swap {
        clusters: 60,
        managed: size.clusters,
        resync_seconds: 2,
        reconciles_per_change: 64,
        swaps: size.rounds,
    };
    run(swap, |swapped| {
        println!("{swap:?}: {}", swapped.told());
        ensure!(swapped.growth() < GROWTH_BYTES, "memory grew: {swapped:?}");
        Ok(())
    })
}

fn run(swap: Swap, check: impl FnOnce(Swapped) -> Result<()>) -> Result<()> {
    on_stage(async |stage| {
        let place = Server::new(stage, swap).await?;
        check(block_in_place(|| swap.run(&place))?)?;
        stage.nothing_denied(place.mark).await
    })
}

/// A stage with a generated fleet, for threads outside its runtime.
struct Server<'a> {
    stage: &'a Stage,
    runtime: Handle,
    /// The beginning in the audit log.
    mark: Mark,
    /// The version of all Secrets before the agent started.
    begin: String,
    /// The number of a HostedCluster, by the namespace of its secret.
    numbers: BTreeMap<String, usize>,
    /// The ConfigMaps with components that were written.
    components: Mutex<BTreeSet<String>>,
    /// How many versions of each managed secret were seen, by its namespace.
    seen: Mutex<BTreeMap<String, usize>>,
}

impl<'a> Server<'a> {
    async fn new(stage: &'a Stage, swap: Swap) -> Result<Self> {
        stage.install_policies().await?;
        stage.objects().namespace(PARTS).await?;
        stage.grant_exactly(&WORDS).await?;
        stage.allow_components(&[&stage.agent]).await?;
        let fleet = Fleet {
            clusters: swap.clusters,
            managed: swap.managed,
            seed: SEED,
        };
        stage.cluster.install_fleet(fleet).await?;
        let secrets = stage.api(SECRET, None).await?;
        let one = ListParams::default().limit(1);
        let version = secrets.list_metadata(&one).await?.metadata.resource_version;
        let numbers = (0..swap.clusters).map(|index| (home(&fleet::managed_name(index)), index));
        Ok(Self {
            stage,
            runtime: Handle::current(),
            mark: stage.mark()?,
            begin: version.context("no version")?,
            numbers: numbers.collect(),
            components: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    fn wait<T>(&self, what: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(what)
    }

    async fn service(&self, index: usize) -> Result<Value> {
        let namespace = control_plane(index);
        let service = self.stage.get(SERVICE, Some(&namespace), SERVED).await?;
        service.with_context(|| format!("no Service in {namespace}"))
    }

    async fn patch_service(&self, index: usize, spec: Value) -> Result<()> {
        let (namespace, patch) = (control_plane(index), json!({"spec": spec}));
        let patched = self.stage.patch(SERVICE, Some(&namespace), SERVED, patch);
        patched.await
    }

    /// Follows the managed secrets from the beginning on; ends with the one that it writes itself once it is over.
    async fn versions(
        &self,
        over: &AtomicBool,
        each: &mut dyn FnMut(&DynamicObject) -> Result<()>,
    ) -> Result<()> {
        let api = self.stage.api(SECRET, None).await?;
        let params = WatchParams::default().fields(&format!("metadata.name={OUTPUT}"));
        let (mut since, mut ending) = (self.begin.clone(), false);
        loop {
            // The server ends a watch after some minutes.
            let mut events = pin!(api.watch(&params, &since).await?);
            loop {
                if !ending && over.load(Ordering::Relaxed) {
                    let last = json!({"apiVersion": SECRET.0, "kind": SECRET.1,
                        "metadata": {"namespace": PARTS, "name": OUTPUT}});
                    self.stage.objects().create(last).await?;
                    ending = true;
                }
                let Ok(event) = timeout(LOOK, events.try_next()).await else {
                    continue;
                };
                let secret = match event? {
                    Some(WatchEvent::Added(secret) | WatchEvent::Modified(secret)) => secret,
                    Some(WatchEvent::Bookmark(mark)) => {
                        since = mark.metadata.resource_version;
                        continue;
                    }
                    Some(WatchEvent::Deleted(gone)) => bail!("deleted: {:?}", gone.metadata),
                    Some(WatchEvent::Error(error)) => bail!("the watch failed: {error:?}"),
                    None => break,
                };
                if secret.metadata.namespace.as_deref() == Some(PARTS) {
                    return Ok(());
                }
                let version = secret.metadata.resource_version.clone();
                since = version.context("no version")?;
                each(&secret)?;
            }
        }
    }
}

/// The namespace of the control plane of a HostedCluster.
fn control_plane(index: usize) -> String {
    format!("{CLUSTERS}-{}", fleet::managed_name(index))
}

/// The port for clients of a Service.
fn client_port(service: &mut Value) -> Option<&mut Value> {
    let mut ports = service["spec"]["ports"].as_array_mut()?.iter_mut();
    let port = ports.find(|port| port["targetPort"] == "client")?;
    Some(&mut port["port"])
}

/// A Secret as a manifest, without the notes of the server, which name its fields.
fn manifest(secret: &DynamicObject) -> Result<String> {
    let mut secret = secret.clone();
    secret.metadata.managed_fields = None;
    let mut object = serde_json::to_value(&secret)?;
    (object["apiVersion"], object["kind"]) = (SECRET.0.into(), SECRET.1.into());
    let text = serde_yaml::to_string(&object).ok();
    text.context("a Secret cannot be read")
}

impl Place for Server<'_> {
    fn agent(&self) -> Result<Agent> {
        let (stage, server) = (self.stage, self.stage.cluster.server());
        let mut command = stage.command_at_real_time(&stage.agent, &server, &WORDS)?;
        // As it runs by default: it says nothing of a reconcile that changes nothing.
        stage.start_command(command.env_remove("RUST_LOG"))
    }

    fn put_revision(&self, policy: &str, component: Component<'_>, spec: &Value) -> Result<()> {
        let name = format!("{policy}-{}", component.version);
        let mut components = self.components.locked();
        if components.insert(name.clone()) {
            self.wait(self.stage.put_component(&name, component.bytes))?;
        }
        let mut spec = spec.clone();
        spec["guests"] = json!({"decide": {"component": format!("configmap:{PARTS}/{name}/k")}});
        spec["limits"] = program::unlimited();
        let patch = json!({"spec": spec});
        self.wait(self.stage.patch(POLICY, None, policy, patch))
    }

    fn revision(&self, policy: &str) -> Result<Option<String>> {
        let policy = self.wait(self.stage.get(POLICY, None, policy))?;
        let policy = policy.context("the policy is gone")?;
        let id = policy
            .pointer("/status/revision/id")
            .and_then(Value::as_str);
        Ok(id.map(str::to_owned))
    }

    fn made(&self, index: usize) -> Result<Option<String>> {
        let namespace = home(&fleet::managed_name(index));
        let secrets = self.wait(self.stage.api(SECRET, Some(&namespace)))?;
        let secret = self.wait(async { Ok(secrets.get_opt(OUTPUT).await?) })?;
        secret.as_ref().map(manifest).transpose()
    }

    fn source(&self, index: usize) -> Result<(Secret, u64)> {
        let name = format!("{}-admin-kubeconfig", fleet::hosted_name(index));
        let source = self.wait(self.stage.secret(CLUSTERS, &name))?;
        let mut service = self.wait(self.service(index))?;
        let port = client_port(&mut service).and_then(|port| port.as_u64());
        Ok((source.context("no source")?, port.context("no port")?))
    }

    fn set_port(&self, index: usize, port: u64) -> Result<()> {
        let mut service = self.wait(self.service(index))?;
        *client_port(&mut service).context("no port")? = port.into();
        let ports = service["spec"]["ports"].take();
        self.wait(self.patch_service(index, json!({"ports": ports})))
    }

    fn touch_service(&self, index: usize, state: bool) -> Result<()> {
        let spec = json!({"publishNotReadyAddresses": state});
        self.wait(self.patch_service(index, spec))
    }

    fn say_available(&self, name: &str, available: bool, message: bool) -> Result<()> {
        let status = if available { "True" } else { "Unknown" };
        let condition = json!({"type": "ManagedClusterConditionAvailable", "status": status, "reason": "Told",
            "message": message.to_string(), "lastTransitionTime": "2026-11-21T08:00:00Z"});
        let status = json!({"conditions": [condition]});
        self.wait(self.stage.put_status(MANAGED, None, name, &status))
    }

    fn unreachable(&self) -> Result<BTreeSet<String>> {
        let clusters = self.wait(self.stage.api(MANAGED, None))?;
        let (mut params, mut tainted) = (ListParams::default().limit(PAGE), BTreeSet::new());
        loop {
            let page = self.wait(async { Ok(clusters.list(&params).await?) })?;
            for cluster in page.items {
                let taints = cluster.data.pointer("/spec/taints").map(Value::to_string);
                if taints.is_some_and(|taints| taints.contains(UNREACHABLE)) {
                    tainted.extend(cluster.metadata.name);
                }
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(tainted);
            }
        }
    }

    /// Every version.
    fn follow(
        &self,
        _: &Meter,
        over: &AtomicBool,
        each: &mut dyn FnMut(&str, &str) -> Result<()>,
    ) -> Result<()> {
        self.wait(self.versions(over, &mut |secret| {
            let namespace = secret.metadata.namespace.clone().unwrap_or_default();
            each(&namespace, &manifest(secret)?)?;
            let mut seen = self.seen.locked();
            *seen.entry(namespace).or_default() += 1;
            Ok(())
        }))
    }

    /// By the audit log. A write that makes no version changes nothing.
    fn writes(&self, _: &str) -> Result<Writes> {
        let mut writes = Writes::default();
        let mut counted = BTreeMap::<String, usize>::new();
        for line in self.wait(self.stage.lines(self.mark))? {
            let (true, Some(target)) = (line.is_write() && line.code < 300, &line.target) else {
                continue;
            };
            let write = format!("{} at {}", line.verb, line.received);
            match (&*target.resource, &*target.subresource) {
                ("secrets", "") => {
                    *counted.entry(target.namespace.clone()).or_default() += 1;
                    let number = self.numbers.get(&target.namespace);
                    let number = number.with_context(|| format!("written: {target:?}"))?;
                    writes.hosted.entry(*number).or_default().push(write);
                }
                ("managedclusters", "") => {
                    let name = target.name.clone();
                    writes.managed.entry(name).or_default().push(write);
                }
                _ => {}
            }
        }
        let seen = self.seen.locked();
        ensure!(
            counted == *seen,
            "writes of each secret: {counted:?}, versions of each: {seen:?}"
        );
        Ok(writes)
    }
}
