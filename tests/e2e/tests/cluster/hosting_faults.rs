//! Faults under the policies of a hosting cluster, while its HostedClusters come, are rotated, detached and go: each is
//! imported, has its kubeconfig and its copies on the hub, and leaves the hub before it goes.

use crate::copying::{HUB, hosted};
use crate::disturbed::{Life, deprived, failed, killed, plain, succeeded};
use crate::importing::IMPORTED;
use crate::leaving::{OPERATOR, hold, is_held};
use crate::objects::{CLUSTERS as HOSTED_IN, OUTPUT, home};
use crate::stage::{DEADLINE, HOSTED, KLUSTERLET, MANAGED, SECRET, SERVICE, Stage};
use crate::together::put_all;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use transom_core::share::lock::MutexExt as _;
use transom_e2e::size::Size;
use transom_test_cluster::wait;

/// The policies of a hosting cluster.
const POLICIES: [&str; 4] = [
    "auto-import",
    "detach",
    "external-managed-kubeconfig",
    "hub-copies",
];
/// The secrets of a HostedCluster, by the ends of their names, and the key of each.
const SECRETS: [(&str, &str); 2] = [
    ("admin-kubeconfig", "kubeconfig"),
    ("kubeadmin-password", "password"),
];
/// A label of a HostedCluster that its ManagedCluster gets.
const TIER: &str = "example.com/tier";

/// How often a person may take away what the agent made for a cluster, in each way: the end of a cluster takes more
/// away, and after ten times within minutes the agent lets go (`Contended`).
const TAKEN: u32 = 1;

/// HostedClusters, and what is made of them on the hub.
#[derive(Default)]
struct Hosting {
    /// How often a person took away what one agent made, by cluster and way; empty where the agent is killed again and
    /// again.
    taken: Option<Mutex<BTreeMap<(String, u64), u32>>>,
}

impl Hosting {
    /// Under one agent, which counts what others take away.
    fn of_one_agent() -> Self {
        Self {
            taken: Some(Mutex::default()),
        }
    }

    /// Whether a cluster may be disturbed in this way: what the agent made is not taken away too often, and the note of
    /// an import only in the end.
    fn may_disturb(&self, name: &str, way: u64) -> bool {
        let Some(taken) = &self.taken else {
            return true;
        };
        match way {
            4 | 5 => {}
            7 => return false,
            _ => return true,
        }
        let mut taken = taken.locked();
        let count = taken.entry((name.to_owned(), way)).or_default();
        *count += 1;
        *count <= TAKEN
    }
}

/// What becomes of a HostedCluster in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Imported,
    Rotated,
    /// A person took its ManagedCluster away.
    Detached,
    Gone,
}

/// What a HostedCluster needs, by kind, namespace and name.
fn sources(name: &str) -> [((&'static str, &'static str), String, String); 3] {
    let [kubeconfig, password] =
        SECRETS.map(|(end, _)| (SECRET, HOSTED_IN.to_owned(), format!("{name}-{end}")));
    let service = "kube-apiserver".to_owned();
    [
        kubeconfig,
        password,
        (SERVICE, format!("{HOSTED_IN}-{name}"), service),
    ]
}

/// A HostedCluster that is available, with all that it needs; it may be there already.
async fn put(stage: &Stage, name: &str) -> Result<()> {
    let there = stage.get(HOSTED, Some(HOSTED_IN), name).await?;
    if there.is_some() {
        return Ok(());
    }
    // Nothing collects here what an earlier one of that name left.
    for (kind, namespace, name) in sources(name) {
        stage.delete(kind, Some(&namespace), &name).await?;
    }
    hosted(stage, name).await.map(drop)
}

/// Whether all is there that a HostedCluster needs: whoever makes one may be interrupted, too.
async fn is_whole(stage: &Stage, name: &str) -> Result<bool> {
    let hosted = stage.get(HOSTED, Some(HOSTED_IN), name).await?;
    let is_told = |hosted: &Value| !hosted["status"]["conditions"].is_null();
    let mut whole = hosted.as_ref().is_some_and(is_told);
    for (kind, namespace, name) in sources(name) {
        whole &= stage.get(kind, Some(&namespace), &name).await?.is_some();
    }
    Ok(whole)
}

/// Gives its source other credentials.
async fn rotate(stage: &Stage, name: &str) -> Result<()> {
    let source = format!("{name}-admin-kubeconfig");
    let place = (Some(HOSTED_IN), &*source);
    let mut secret = stage.objects().get(SECRET, place).await?;
    stage.guard.plant_source(&mut secret)?;
    let body = json!({"data": secret["data"]});
    stage.patch(SECRET, place.0, place.1, body).await
}

/// Deletes it while its Klusterlet is stuck.
async fn remove(stage: &Stage, name: &str) -> Result<()> {
    let klusterlet = home(name);
    let body = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "spec": {},
        "metadata": {"name": klusterlet, "finalizers": [OPERATOR]}});
    let there = stage.get(KLUSTERLET, None, &klusterlet).await?;
    if there.is_none() {
        stage.objects().create(body).await?;
    }
    stage.delete(KLUSTERLET, None, &klusterlet).await?;
    stage.delete(HOSTED, Some(HOSTED_IN), name).await
}

/// Changes its label, or what is noted about its import.
async fn describe(stage: &Stage, name: &str, what: &str, key: &str, value: Value) -> Result<()> {
    let body = json!({"metadata": {what: {key: value}}});
    stage.patch(HOSTED, Some(HOSTED_IN), name, body).await
}

/// The copy of a secret without its credentials: whether they are those of its source.
async fn copy(stage: &Stage, name: &str, (end, key): (&str, &str)) -> Result<Value> {
    let (objects, secret) = (stage.objects(), format!("{name}-{end}"));
    let source = objects.get(SECRET, (Some(HOSTED_IN), &secret)).await?;
    let mut copy = objects.get(SECRET, (Some(HUB), &secret)).await?;
    if copy.is_null() {
        return Ok(Value::Null);
    }
    copy["data"] = json!(copy["data"] == json!({key: source["data"][key]}));
    Ok(plain(copy))
}

/// Both copies of a HostedCluster's secrets.
async fn copies(stage: &Stage, name: &str) -> Result<[Value; 2]> {
    let [kubeconfig, password] = SECRETS;
    Ok([
        copy(stage, name, kubeconfig).await?,
        copy(stage, name, password).await?,
    ])
}

/// Waits until both copies are those of the sources, or are gone.
async fn wait_for_copies(stage: &Stage, name: &str, are_there: bool) -> Result<()> {
    let what = format!("the copies of {name}");
    wait::until(&what, DEADLINE, async || {
        let copies = copies(stage, name).await?;
        let is_right = |copy: &Value| match are_there {
            true => copy["data"] == json!(true),
            false => copy.is_null(),
        };
        Ok(copies.iter().all(is_right).then_some(()))
    })
    .await
}

/// Waits for all that is made of a HostedCluster.
async fn wait_for_all(stage: &Stage, name: &str) -> Result<()> {
    let objects = stage.objects();
    let is_noted =
        |hosted: &Value| hosted["metadata"]["annotations"][IMPORTED] == name && is_held(hosted);
    let place = (Some(HOSTED_IN), name);
    objects.wait_for(HOSTED, place, is_noted).await?;
    objects
        .wait_for(MANAGED, (None, name), Value::is_object)
        .await?;
    wait_for_copies(stage, name, true).await?;
    stage.wait_for_right(name, 6443).await
}

impl Life for Hosting {
    type End = End;

    const ENDS: [End; 4] = [End::Imported, End::Rotated, End::Detached, End::Gone];
    const WRITES: u64 = 1;

    async fn prepare(&self, stage: &Stage, folder: &Path) -> Result<()> {
        stage.objects().namespace(HUB).await?;
        for name in put_all(folder, None)? {
            if !POLICIES.contains(&&*name) {
                fs::remove_dir_all(folder.join(name))?;
            }
        }
        Ok(())
    }

    async fn begin(&self, stage: &Stage, name: &str) -> Result<()> {
        stage.objects().namespace(&home(name)).await?;
        put(stage, name).await
    }

    async fn settle(&self, stage: &Stage, name: &str) -> Result<()> {
        wait_for_all(stage, name).await
    }

    async fn disturb(&self, stage: &Stage, name: &str, number: u64) -> Result<()> {
        let way = number % 8;
        if !self.may_disturb(name, way) {
            return put(stage, name).await;
        }
        match way {
            0 | 1 => put(stage, name).await,
            2 => rotate(stage, name).await,
            3 => remove(stage, name).await,
            4 => stage.delete(MANAGED, None, name).await,
            5 => {
                let copy = format!("{name}-kubeadmin-password");
                stage.delete(SECRET, Some(HUB), &copy).await?;
                stage.delete(SECRET, Some(&home(name)), OUTPUT).await
            }
            6 => describe(stage, name, "labels", TIER, json!(number.to_string())).await,
            _ => describe(stage, name, "annotations", IMPORTED, Value::Null).await,
        }
    }

    /// First all are imported.
    async fn finish(&self, stage: &Stage, name: &str, end: End) -> Result<()> {
        let objects = stage.objects();
        let place = (Some(HOSTED_IN), name);
        // Without its note nobody knows whose Klusterlet it is: a person frees it, as the reason says.
        let klusterlet = home(name);
        let freed = hold(stage, KLUSTERLET, (None, &klusterlet), &Value::Null).await;
        if stage.get(KLUSTERLET, None, &klusterlet).await?.is_some() {
            freed?;
        }
        let stays = |hosted: &Value| hosted["metadata"]["deletionTimestamp"].is_null();
        objects.wait_for(HOSTED, place, stays).await?;
        if !is_whole(stage, name).await? {
            stage.delete(HOSTED, Some(HOSTED_IN), name).await?;
            objects.wait_for(HOSTED, place, Value::is_null).await?;
        }
        put(stage, name).await?;
        describe(stage, name, "labels", TIER, json!("gold")).await?;
        wait::until("an import", DEADLINE, async || {
            // In this order: the agent makes the cluster before it notes that.
            let hosted = objects.get(HOSTED, place).await?;
            let cluster = objects.get(MANAGED, (None, name)).await?;
            let is_noted = !hosted["metadata"]["annotations"][IMPORTED].is_null();
            if cluster.is_null() && is_noted {
                // A person took it away. What the agent saw before may be noted once more.
                describe(stage, name, "annotations", IMPORTED, Value::Null).await?;
            }
            Ok((cluster["metadata"]["labels"][TIER] == "gold").then_some(()))
        })
        .await?;
        wait_for_all(stage, name).await?;
        match end {
            End::Imported => Ok(()),
            End::Rotated => rotate(stage, name).await,
            End::Detached => stage.delete(MANAGED, None, name).await,
            End::Gone => remove(stage, name).await,
        }
    }

    async fn ended(&self, stage: &Stage, name: &str, end: End) -> Result<()> {
        let objects = stage.objects();
        match end {
            End::Imported | End::Rotated => wait_for_all(stage, name).await,
            End::Detached => {
                let gone = objects.wait_for(MANAGED, (None, name), Value::is_null);
                gone.await?;
                let place = (Some(HOSTED_IN), name);
                let free = objects.wait_for(HOSTED, place, |hosted| !is_held(hosted));
                free.await.map(drop)
            }
            End::Gone => {
                let klusterlet = home(name);
                let hosted = (HOSTED, (Some(HOSTED_IN), name));
                let klusterlet = (KLUSTERLET, (None, &*klusterlet));
                for (kind, place) in [hosted, (MANAGED, (None, name)), klusterlet] {
                    let gone = objects.wait_for(kind, place, Value::is_null).await;
                    gone.with_context(|| format!("a {} stays", kind.1))?;
                }
                wait_for_copies(stage, name, false).await
            }
        }
    }

    async fn state(&self, stage: &Stage, name: &str, _: End) -> Result<Value> {
        let objects = stage.objects();
        let hosted = objects.get(HOSTED, (Some(HOSTED_IN), name)).await?;
        let managed = objects.get(MANAGED, (None, name)).await?;
        let copies = copies(stage, name).await?;
        let source = format!("{name}-admin-kubeconfig");
        let source = stage.secret(HOSTED_IN, &source).await?;
        let made = stage.made(name).await?.map(|made| {
            let is_right = source.is_some_and(|source| made.carries(&source));
            // The digest of its guest is of no account: what a swap leaves as it is is not written.
            json!({"server": made.server, "right": is_right})
        });
        Ok(json!([plain(hosted), plain(managed), copies, made]))
    }
}

#[test]
fn an_agent_of_hosted_clusters_killed_at_any_moment_leaves_consistent_state() -> Result<()> {
    killed(&Hosting::default(), 12, 8)
}

#[test]
#[ignore = "takes minutes: cargo xtask soak hosting_faults"]
fn soak() -> Result<()> {
    let size = Size::given(100, 40)?;
    killed(&Hosting::default(), size.rounds, size.clusters)
}

#[test]
fn hosted_clusters_recover_from_wrong_answers_conflicts_and_the_end_of_the_api_server() -> Result<()>
{
    failed(&Hosting::of_one_agent())
}

#[test]
fn hosted_clusters_recover_from_rights_and_a_clock_that_come_and_go() -> Result<()> {
    deprived(&Hosting::of_one_agent())
}

#[test]
fn hosted_clusters_survive_swaps_of_all_guests_and_ends_of_the_leader() -> Result<()> {
    succeeded(&Hosting::of_one_agent())
}
