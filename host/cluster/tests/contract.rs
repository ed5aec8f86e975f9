//! What the trait `Cluster` promises, as one table of steps that a directory and a real API server both pass.

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;
use transom_api::status::{PolicyStatus, PrimaryCounts};
use transom_api::{API_VERSION, KIND, KnownReason, State};
use transom_cluster::directory::{Directory, DirectoryOptions};
use transom_cluster::kubernetes::{Kubernetes, KubernetesOptions, Leading, Server};
use transom_cluster::{Cluster, KeptStatuses, Patience};
use transom_core::failure::Class;
use transom_core::object::Object;
use transom_core::observation::Observation;
use transom_core::plan::Step;
use transom_core::policy::selector::Selector;
use transom_core::projection::Paths;
use transom_core::reference::ObjectRef;
use transom_core::report::{End, Report};
use transom_core::stamp::{SourceRef, Stamp};
use transom_core::watches::{Keep, Scope, Watches};
use transom_core::work::Key;
use transom_test_cluster::{Objects, Options, wait};

/// The deadline for what takes seconds, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_directory_keeps_the_contract() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = DirectoryOptions {
        settle: Duration::from_millis(20),
        ..DirectoryOptions::new("local", folder.path())
    };
    let cluster = Box::new(Directory::open(options)?);
    pass(Side::new(cluster, User::Files(folder))).await
}

#[tokio::test]
async fn an_api_server_keeps_the_contract() -> Result<()> {
    let server = transom_test_cluster::Cluster::start(&Options::default()).await?;
    server.install_policy_crd().await?;
    server.objects().apply_manifest(RIGHTS).await?;
    let options = KubernetesOptions {
        name: "local".to_owned(),
        kubeconfig: Some(server.write_kubeconfig(&server.user("agent", &[])?)?),
        ..KubernetesOptions::default()
    };
    let agent = Kubernetes::connect(options).await?;
    wait::until("the agent's rights", DEADLINE, async || {
        Ok(agent.confirm(&map_ref("a")).await.is_ok().then_some(()))
    })
    .await?;
    let agent = Server::new(agent, "replica", Leading::always(), |policy, failure| {
        eprintln!("the status of {policy} was not written: {failure:?}");
    });
    let user = Objects::new(server.client(server.admin()).await?);
    pass(Side::new(Box::new(agent), User::Client(user))).await
}

/// The steps in order; each begins with what the earlier ones left.
async fn pass(mut side: Side) -> Result<()> {
    let side = &mut side;
    observes(side).await.context("observes what is watched")?;
    reads(side).await.context("knows what is there")?;
    writes(side).await.context("shows a write at once")?;
    conflicts(side)
        .await
        .context("writes only over what was read")?;
    confirms(side)
        .await
        .context("confirms what no watch reported")?;
    deletes(side).await.context("deletes at once")?;
    doubts(side).await.context("names what cannot be read")?;
    publishes_policies(side)
        .await
        .context("keeps a policy's status")?;
    publishes(side).await.context("keeps a primary's result")?;
    cuts(side).await.context("reads what is kept")
}

/// What `transom rbac` grants for policies that read and make ConfigMaps in one namespace; no Service can be read.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [transom.dev], resources: [fleetpolicies], verbs: [get, list, watch]}
- {apiGroups: [transom.dev], resources: [fleetpolicies/status], verbs: [patch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: agent}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: agent}]
";

async fn observes(side: &mut Side) -> Result<()> {
    side.watch(&[]).await?;
    let mut secret = map("unwatched", "0");
    secret["kind"] = json!("Secret");
    secret["data"] = json!({"x": "MA=="});
    side.put(secret).await?;
    side.put(map("a", "1")).await?;
    same(side.told().await?, "a 1")?;
    let mut labelled = map("b", "1");
    labelled["metadata"]["labels"] = json!({"of": "b"});
    side.put(labelled).await?;
    same(side.told().await?, "b 1")
}

async fn cuts(side: &mut Side) -> Result<()> {
    let mut large = map("large", "1");
    large["data"]["y"] = json!("2");
    large["metadata"]["labels"] = json!({"z": "3"});
    side.put(large).await?;
    let keep = Keep {
        fields: Some(Paths::parse(&["data.x"])?),
        ..Keep::default()
    };
    side.watch_kept(&[], &keep).await?;
    let large = map_ref("large");
    let parts = |object: &Object| {
        let (data, metadata) = (&object.body["data"], &object.body["metadata"]);
        json!([data, metadata["labels"]])
    };
    let read = async || {
        side.cluster
            .read(&large)
            .await
            .map(|one| one.as_ref().map(parts))
    };
    let came = wait::until("the object", DEADLINE, async || Ok(read().await?));
    same(came.await?, json!([{"x": "1"}, {"z": "3"}]))?;
    let whole = side.cluster.read_whole(&large).await;
    let whole = whole.map(|one| one.as_ref().map(parts));
    same(whole, Ok(Some(json!([{"x": "1", "y": "2"}, {"z": "3"}]))))
}

async fn reads(side: &mut Side) -> Result<()> {
    let (a, absent) = (map_ref("a"), map_ref("absent"));
    let cluster = &side.cluster;
    let list = |namespace, labels: &Selector| cluster.list("v1", "ConfigMap", namespace, labels);
    for namespace in [None, a.namespace.as_deref()] {
        let all = [a.clone(), map_ref("b")];
        same(list(namespace, &Selector::default()), all)?;
        same(list(namespace, &Selector::equal("of", "b")), [map_ref("b")])?;
    }
    same(list(Some("another"), &Selector::default()), [])?;
    let object = side.there(&a).await?;
    same(cluster.read_confirmed(&a).await, Ok(Some(object.clone())))?;
    same(cluster.confirm(&a).await, Ok(Some(object)))?;
    same(cluster.read(&absent).await, Ok(None))?;
    same(cluster.confirm(&absent).await, Ok(None))?;
    for (place, labels, there) in [
        (map_ref(""), Selector::default(), &["a", "b"][..]),
        (map_ref(""), Selector::equal("of", "b"), &["b"]),
        (a.clone(), Selector::default(), &["a"]),
        (absent.clone(), Selector::default(), &[]),
    ] {
        let listed = cluster.list_metadata(&place, &labels, &|_| true).await;
        let listed = listed.map_err(|failure| format!("{failure:?}"));
        let names = listed.map(|all| all.into_iter().map(|one| one.reference).collect());
        same(
            names,
            Ok(there.iter().map(|name| map_ref(name)).collect::<Vec<_>>()),
        )?;
    }
    let (place, every) = (map_ref(""), Selector::default());
    let list = cluster.list_metadata(&place, &every, &|one| one.reference.name == "b");
    let wanted = list.await.map(|all| all.len());
    same(wanted.map_err(|failure| format!("{failure:?}")), Ok(1))?;
    ensure!(cluster.weigh(&a) > Some(0), "a has a size");
    same(cluster.weigh(&absent), Some(0))
}

async fn writes(side: &mut Side) -> Result<()> {
    let made = map_ref("made");
    side.apply(side.create("1").await?).await?;
    same(side.value(&made).await?, json!("1"))?;
    let made_by = |policy: &str| side.cluster.made(policy, "v1", "ConfigMap");
    same(made_by("p"), [made.clone()].into())?;
    same(made_by("another"), [].into())?;
    let stamped = side.cluster.stamped().into_iter();
    let stamped: Vec<_> = stamped.map(|(object, _)| object).collect();
    same(stamped, [made.clone()])?;
    side.apply(side.update("2").await?).await?;
    same(side.value(&made).await?, json!("2"))?;
    let fields = vec![("data.x".to_owned(), json!("3"))];
    let (reference, version) = (made.clone(), side.there(&made).await?.version);
    let patch = Step::Patch {
        reference,
        version,
        fields,
    };
    side.apply(patch).await?;
    same(side.value(&made).await?, json!("3"))
}

async fn conflicts(side: &mut Side) -> Result<()> {
    side.refused(side.create("4").await?).await?;
    let stale = side.update("4").await?;
    side.apply(side.update("5").await?).await?;
    side.refused(stale).await?;
    same(side.value(&map_ref("made")).await?, json!("5"))
}

async fn confirms(side: &mut Side) -> Result<()> {
    let made = map_ref("made");
    side.remove(&made).await?;
    same(side.cluster.confirm(&made).await, Ok(None))?;
    same(side.cluster.read(&made).await, Ok(None))?;
    same(side.told().await?, "made is gone")
}

async fn deletes(side: &mut Side) -> Result<()> {
    side.apply(side.create("1").await?).await?;
    let there = side.there(&map_ref("made")).await?;
    let delete = Step::Delete {
        uid: there.uid().to_owned(),
        reference: there.reference,
        version: there.version,
        why: "a test".to_owned(),
    };
    side.apply(delete.clone()).await?;
    same(side.cluster.read(&map_ref("made")).await, Ok(None))?;
    same(side.cluster.made("p", "v1", "ConfigMap"), [].into())
}

async fn doubts(side: &mut Side) -> Result<()> {
    let service = ObjectRef::local("v1", "Service", Some("default"), "s");
    same(side.cluster.unreadable(), [])?;
    same(side.cluster.watch_errors(), [])?;
    match &side.user {
        User::Files(folder) => std::fs::write(folder.path().join("half.yaml"), "{")?,
        User::Client(_) => side.watch(&["Service"]).await?,
    }
    let cluster = &side.cluster;
    let found = wait::until("what is unreadable", DEADLINE, async || {
        Ok(cluster.unreadable().pop())
    });
    let (found, errors) = (found.await?, cluster.watch_errors());
    let named = |error: &_| {
        let transom_api::status::WatchStatus {
            cluster, reason, ..
        } = error;
        (cluster == "local" && reason == found.reason.as_str()).then_some(())
    };
    same(errors.iter().map(named).collect::<Vec<_>>(), [Some(())])?;
    let doubt = cluster.unread(&service).is_some() || cluster.confirm(&service).await.is_err();
    ensure!(doubt, "a Service may be in {}", found.place);
    match &side.user {
        User::Files(folder) => std::fs::remove_file(folder.path().join("half.yaml"))?,
        User::Client(_) => side.watch(&[]).await?,
    }
    wait::until("that it is over", DEADLINE, async || {
        let over = side.cluster.unreadable().is_empty();
        Ok((over && side.cluster.watch_errors().is_empty()).then_some(()))
    })
    .await
}

async fn publishes_policies(side: &mut Side) -> Result<()> {
    let text = include_str!("../../../policies/external-managed-kubeconfig/policy.yaml");
    let mut policy: Value = serde_yaml::from_str(text)?;
    policy["metadata"] = json!({"name": "p"});
    side.put(policy).await?;
    // An API server may tell of the agent's own writes, too.
    while side.told().await? != "p" {}
    same(side.cluster.policy_status("p"), None)?;
    let counts = PrimaryCounts {
        total: 1,
        failed: 1,
        ..PrimaryCounts::default()
    };
    let status = PolicyStatus {
        counts,
        ..PolicyStatus::default()
    };
    side.cluster.publish_policy("p", &status)?;
    let cluster = &side.cluster;
    wait::until("the status", DEADLINE, async || {
        Ok((cluster.policy_status("p").as_ref() == Some(&status)).then_some(()))
    })
    .await?;
    side.remove(&ObjectRef::local(API_VERSION, KIND, None, "p"))
        .await?;
    while side.told().await? != "p is gone" {}
    side.cluster.retain(&KeptStatuses::new())?;
    same(side.cluster.policy_status("p"), None)
}

async fn publishes(side: &mut Side) -> Result<()> {
    let uid = side.there(&map_ref("a")).await?.uid().to_owned();
    let reason = KnownReason::AgentFailed;
    side.cluster.publish(&report(reason), &uid)?;
    match &side.user {
        User::Files(_) => {
            let reported = side.cluster.reported("p", &map_ref("a"));
            let reported = reported.map(|status| (status.state, status.reason));
            same(reported, Some((State::Failed, reason.as_str().to_owned())))?;
        }
        User::Client(objects) => {
            let events = objects.api("events.k8s.io/v1", "Event", None).await?;
            wait::until("the Event", DEADLINE, async || {
                let events = events.list(&kube::api::ListParams::default()).await?;
                let ours = |event: &kube::api::DynamicObject| {
                    event.data["regarding"]["uid"] == *uid
                        && event.data["reason"] == reason.as_str()
                };
                Ok(events.iter().any(ours).then_some(()))
            })
            .await?;
        }
    }
    let gone = Report {
        end: End::Gone,
        state: State::Applied,
        ..report(KnownReason::InSync)
    };
    side.cluster.publish(&gone, "")?;
    same(side.cluster.reported("p", &map_ref("a")), None)
}

/// A cluster, and a user who changes what is in it without the agent.
struct Side {
    cluster: Box<dyn Cluster>,
    changes: BoxStream<'static, Observation>,
    user: User,
}

enum User {
    Files(TempDir),
    Client(Objects),
}

impl Side {
    fn new(cluster: Box<dyn Cluster>, user: User) -> Self {
        let changes = cluster.changes();
        Self {
            cluster,
            changes,
            user,
        }
    }

    /// Watches ConfigMaps of one namespace, policies, and more kinds.
    async fn watch(&self, more: &[&str]) -> Result<()> {
        self.watch_kept(more, &Keep::default()).await
    }

    /// The same, and keeps only a part of the objects.
    async fn watch_kept(&self, more: &[&str], keep: &Keep) -> Result<()> {
        let mut wanted: Watches = [transom_core::watches::policies()].into();
        for kind in ["ConfigMap"].iter().chain(more) {
            let scope = Scope {
                api_version: "v1".to_owned(),
                kind: (*kind).to_owned(),
                namespace: Some("default".to_owned()),
                name: None,
                fields: None,
                labels: None,
            };
            wanted.insert(scope, keep.clone());
        }
        self.cluster.watch(wanted);
        let synced = self.cluster.synced(Patience::Long);
        same(timeout(DEADLINE, synced).await?, Ok(()))
    }

    /// The next object that is observed, with its value.
    async fn told(&mut self) -> Result<String> {
        loop {
            match timeout(DEADLINE, self.changes.next()).await? {
                Some(Observation::Present(Object {
                    reference, body, ..
                })) => {
                    let value = body["data"]["x"].as_str().unwrap_or_default();
                    return Ok(format!("{} {value}", reference.name).trim_end().to_owned());
                }
                Some(Observation::Gone(reference)) => {
                    return Ok(format!("{} is gone", reference.name));
                }
                Some(_) => {}
                None => bail!("the changes ended"),
            }
        }
    }

    async fn there(&self, object: &ObjectRef) -> Result<Object> {
        match self.cluster.read(object).await {
            Ok(Some(object)) => Ok(object),
            other => bail!("{object}: {other:?}"),
        }
    }

    async fn value(&self, object: &ObjectRef) -> Result<Value> {
        Ok(self.there(object).await?.body["data"]["x"].clone())
    }

    /// Creates `made` for the primary `a`.
    async fn create(&self, value: &str) -> Result<Step> {
        let (primary, mut body) = (self.there(&map_ref("a")).await?, map("made", value));
        let key = Key::new(&"p".into(), &primary.reference);
        Stamp::of(&key, SourceRef::of(&primary, ""), "inputs", "component").put(&mut body);
        let desired = Object {
            reference: map_ref("made"),
            version: String::new(),
            body,
        };
        Ok(Step::Create { desired })
    }

    async fn update(&self, value: &str) -> Result<Step> {
        let mut desired = self.there(&map_ref("made")).await?;
        desired.body["data"]["x"] = json!(value);
        let changed = vec!["data.x".to_owned()];
        Ok(Step::Update { desired, changed })
    }

    async fn perform(&self, step: Step) -> Option<KnownReason> {
        let done = self.cluster.perform("p", step).await;
        done.result.err().map(|failure| failure.reason)
    }

    async fn apply(&self, step: Step) -> Result<()> {
        same(self.perform(step).await, None)
    }

    async fn refused(&self, step: Step) -> Result<()> {
        same(self.perform(step).await, Some(KnownReason::WriteConflict))
    }

    /// The user creates an object.
    async fn put(&self, object: Value) -> Result<()> {
        match &self.user {
            User::Files(folder) => {
                let name = format!(
                    "{}.json",
                    object["metadata"]["name"].as_str().context("a name")?
                );
                std::fs::write(folder.path().join(".new"), object.to_string())?;
                std::fs::rename(folder.path().join(".new"), folder.path().join(name))?;
            }
            User::Client(objects) => drop(objects.create(object).await?),
        }
        Ok(())
    }

    /// The user removes an object of theirs, or of the agent.
    async fn remove(&self, object: &ObjectRef) -> Result<()> {
        let (kind, name) = (&object.kind, &object.name);
        match &self.user {
            User::Files(folder) => {
                let made = format!(".transom/objects/default/{kind}.{name}.yaml");
                let files = [format!("{name}.json"), made];
                let mut files = files.map(|file| folder.path().join(file)).into_iter();
                let file: PathBuf = files.find(|file| file.exists()).context("no file")?;
                std::fs::remove_file(file)?;
            }
            User::Client(objects) => {
                let namespace = object.namespace.as_deref();
                let api = objects.api(&object.api_version, kind, namespace).await?;
                api.delete(name, &kube::api::DeleteParams::default())
                    .await?;
            }
        }
        Ok(())
    }
}

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"x": value}})
}

fn map_ref(name: &str) -> ObjectRef {
    ObjectRef::local("v1", "ConfigMap", Some("default"), name)
}

/// A failed reconcile of the primary `a`.
fn report(reason: KnownReason) -> Report {
    Report {
        policy: "p".to_owned(),
        primary: map_ref("a"),
        end: End::Ended(Class::of(reason)),
        state: State::Failed,
        reason: reason.into(),
        message: "a message".to_owned(),
        target: None,
        writes: Vec::new(),
        inputs: None,
        failing: None,
        observed_generation: None,
        at_seconds: 0,
        again_after_ms: None,
        resync_after_ms: None,
        failures: 1,
    }
}

/// An error that shows both values unless they are equal.
fn same<T: Debug + PartialEq<U>, U: Debug>(seen: T, expected: U) -> Result<()> {
    ensure!(seen == expected, "saw {seen:?}, expected {expected:?}");
    Ok(())
}
