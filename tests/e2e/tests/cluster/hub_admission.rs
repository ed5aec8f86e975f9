//! `host/deploy/hub/admission.yaml` on a real API server, for a hub without the webhooks of Open Cluster Management:
//! who may accept a cluster, move it between sets, and bind a set. Each user has only the rights that a rule is about.

use crate::importing::put;
use crate::rights::may_do;
use crate::spoke::SET_CRDS;
use crate::stage::{DEADLINE, MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use transom_e2e::program;
use transom_test_cluster::{Objects, wait};

const ADMISSION: &str = include_str!("../../../../host/deploy/hub/admission.yaml");
const BINDING: (&str, &str) = (
    "cluster.open-cluster-management.io/v1beta2",
    "ManagedClusterSetBinding",
);
/// The label of a cluster with the name of its set.
const SET: &str = "cluster.open-cluster-management.io/clusterset";
/// What rights are about: group and resource.
const GROUP: &str = "cluster.open-cluster-management.io";
const CLUSTERS: (&str, &str) = (GROUP, "managedclusters");
const BINDINGS: (&str, &str) = (GROUP, "managedclustersetbindings");
const ACCEPT: (&str, &str) = (
    "register.open-cluster-management.io",
    "managedclusters/accept",
);
const JOIN: (&str, &str) = (GROUP, "managedclustersets/join");
const BIND: (&str, &str) = (GROUP, "managedclustersets/bind");
const WRITE: &[&str] = &["get", "create", "patch"];

/// What the server says to an attempt: nothing if it takes it, else the code and the message.
pub(crate) type Said = Option<(u16, String)>;
/// The code of a refusal, and what its message has in it.
pub(crate) type Refusal = (u16, &'static str);

const MAY_NOT_ACCEPT: Refusal = (403, "managedclusters/accept");
const MAY_NOT_JOIN: Refusal = (403, "managedclustersets/join");
const MAY_NOT_BIND: Refusal = (403, "managedclustersets/bind");
const NO_HTTPS: Refusal = (422, "a URL with https");
const NO_NAMESPACE: Refusal = (422, "a namespace can have");
const OTHER_NAME: Refusal = (422, "the name of the set");

/// Verbs on one resource, and the one object that they are for; without a name, on all.
pub(crate) type Right<'a> = ((&'a str, &'a str), &'a [&'a str], &'a str);

/// The objects as a new user with these rights sees them, once all of them are in force.
pub(crate) async fn person(stage: &Stage, name: &str, rights: &[Right<'_>]) -> Result<Objects> {
    let user = stage.cluster.user(name, &[])?;
    let rules: Vec<Value> = rights
        .iter()
        .map(|((group, resource), verbs, name)| {
            let names = Some(name).filter(|name| !name.is_empty());
            json!({"apiGroups": [group], "resources": [resource], "verbs": verbs,
                "resourceNames": names.into_iter().collect::<Vec<_>>()})
        })
        .collect();
    let objects = stage.objects();
    objects
        .allow(&[user.name()], None, name, json!(rules))
        .await?;
    let client = stage.cluster.client(&user).await?;
    for (resource, verbs, name) in rights {
        for verb in *verbs {
            wait::until("a right in force", DEADLINE, async || {
                let may = may_do(&client, verb, *resource, None, name).await?;
                Ok(may.then_some(()))
            })
            .await?;
        }
    }
    Ok(Objects::new(client))
}

pub(crate) fn said<T>(answer: kube::Result<T>) -> Result<Said> {
    match answer {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some((status.code, status.message.clone()))),
        Err(error) => Err(error.into()),
    }
}

/// Checks that an attempt is taken, or refused like this.
pub(crate) fn is_right(row: &str, said: Said, refusal: Option<Refusal>) -> Result<()> {
    let is_right = match (&said, refusal) {
        (None, None) => true,
        (Some((code, message)), Some((expected, why))) => {
            *code == expected
                && message.contains(".transom.dev' with binding")
                && message.contains(why)
        }
        _ => false,
    };
    ensure!(is_right, "{row}: {said:?} in place of {refusal:?}");
    Ok(())
}

fn cluster(name: &str, set: Option<&str>, spec: Value) -> Value {
    let labels = set.map(|set| json!({ SET: set }));
    json!({"apiVersion": MANAGED.0, "kind": MANAGED.1, "spec": spec,
        "metadata": {"name": name, "labels": labels.unwrap_or_else(|| json!({}))}})
}

fn binding(name: &str, set: &str) -> Value {
    json!({"apiVersion": BINDING.0, "kind": BINDING.1, "spec": {"clusterSet": set},
        "metadata": {"name": name, "namespace": "default"}})
}

fn address(url: &str) -> Value {
    json!({"managedClusterClientConfigs": [{"url": url}]})
}

fn accepts(accepts: bool) -> Value {
    json!({"spec": {"hubAcceptsClient": accepts}})
}

fn label(set: &Value) -> Value {
    json!({"metadata": {"labels": {SET: set}}})
}

/// Somebody creates a ManagedCluster or a binding.
async fn creates(by: &Objects, object: Value) -> Result<Said> {
    creates_with(by, object, &PostParams::default()).await
}

async fn creates_with(by: &Objects, object: Value, how: &PostParams) -> Result<Said> {
    let kind = [MANAGED, BINDING]
        .into_iter()
        .find(|kind| object["kind"] == kind.1);
    let (version, kind) = kind.context("another kind")?;
    let api = by.api(version, kind, Some("default")).await?;
    let object: DynamicObject = serde_json::from_value(object)?;
    said(api.create(how, &object).await)
}

/// Somebody patches a ManagedCluster or a binding.
async fn changes(by: &Objects, kind: (&str, &str), name: &str, patch: Value) -> Result<Said> {
    let api = by.api(kind.0, kind.1, Some("default")).await?;
    let how = PatchParams::default();
    said(api.patch(name, &how, &Patch::Merge(patch)).await)
}

/// The agent of a cluster replaces its ManagedCluster: it may not patch it.
async fn replaces(by: &Objects, name: &str, change: impl FnOnce(&mut Value)) -> Result<Said> {
    let mut object = by.get(MANAGED, (None, name)).await?;
    change(&mut object);
    let object: DynamicObject = serde_json::from_value(object)?;
    let api = by.api(MANAGED.0, MANAGED.1, None).await?;
    said(api.replace(name, &PostParams::default(), &object).await)
}

/// Waits until the server refuses what nobody may create, or takes it again.
async fn is_checked(stage: &Stage, checked: bool) -> Result<()> {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for (object, refusal) in [
        (cluster("try", None, address("http://try")), NO_HTTPS),
        (binding("try", "another"), OTHER_NAME),
    ] {
        wait::until("the checks of a hub", DEADLINE, async || {
            let said = creates_with(stage.objects(), object.clone(), &dry).await?;
            let expected = checked.then_some(refusal);
            Ok(is_right("try", said, expected).is_ok().then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Applies the shipped file, and waits until the server enforces it.
pub(crate) async fn begin(stage: &Stage) -> Result<()> {
    stage.objects().apply_manifest(ADMISSION).await?;
    is_checked(stage, true).await
}

/// Removes it, and waits until nothing of it is enforced on what the next test does.
pub(crate) async fn end(stage: &Stage) -> Result<()> {
    for kind in [
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ] {
        let kind = ("admissionregistration.k8s.io/v1", kind);
        for name in ["managedclusters", "managedclustersetbindings"] {
            let name = format!("{name}.hub.transom.dev");
            stage.delete(kind, None, &name).await?;
        }
    }
    is_checked(stage, false).await
}

/// Rows of `webhook`: W17, W18, W20, W21, W22, W23.
#[test]
fn only_who_may_accept_clusters_accepts_one_and_its_own_agent_undoes_no_denial() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&SET_CRDS).await?;
        let joiner: &[Right<'_>] = &[(CLUSTERS, &["get", "create"], "")];
        let joiner = person(stage, "hub-joiner", joiner).await?;
        // Without the file whoever brings a cluster accepts it, and chooses its set.
        let itself = cluster("itself", Some("a"), json!({"hubAcceptsClient": true}));
        is_right("unchecked", creates(&joiner, itself).await?, None)?;
        begin(stage).await?;
        let agent: &[Right<'_>] = &[(CLUSTERS, &["get", "update"], "one")];
        let agent = person(stage, "hub-agent", agent).await?;
        let editor = person(stage, "hub-editor", &[(CLUSTERS, WRITE, "")]).await?;
        let owner: &[Right<'_>] = &[(CLUSTERS, WRITE, ""), (ACCEPT, &["update"], "one")];
        let owner = person(stage, "hub-owner", owner).await?;

        let accepted = |name: &str| cluster(name, None, json!({"hubAcceptsClient": true}));
        let no = Some(MAY_NOT_ACCEPT);
        is_right("W17", creates(&joiner, accepted("one")).await?, no)?;
        is_right("W17, editor", creates(&editor, accepted("one")).await?, no)?;
        let waiting = cluster("two", None, json!({}));
        is_right("waiting", creates(&joiner, waiting).await?, None)?;
        is_right("W18, W20", creates(&owner, accepted("one")).await?, None)?;
        is_right("another", creates(&owner, accepted("three")).await?, no)?;

        let lease = json!({"spec": {"leaseDurationSeconds": 30}});
        let change = async |by: &Objects, patch| changes(by, MANAGED, "one", patch).await;
        is_right("W21", change(&editor, lease).await?, None)?;
        let said = replaces(&agent, "one", |one| {
            one["metadata"]["labels"] = json!({"env": "test"});
        });
        is_right("W21, agent", said.await?, None)?;
        is_right("W23", change(&editor, accepts(false)).await?, None)?;
        let said = replaces(&agent, "one", |one| {
            one["spec"]["hubAcceptsClient"] = json!(true);
        });
        is_right("the agent undoes a denial", said.await?, no)?;
        is_right("W22", change(&editor, accepts(true)).await?, no)?;
        stage.objects().namespace("one").await?;
        is_right("W18, W20", change(&owner, accepts(true)).await?, None)?;
        end(stage).await
    })
}

/// Rows of `webhook`: W28, W29, W30, W31.
#[test]
fn only_who_may_join_both_sets_moves_a_cluster_and_its_own_agent_does_not() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&SET_CRDS).await?;
        begin(stage).await?;
        let agent: &[Right<'_>] = &[(CLUSTERS, &["get", "update"], "one")];
        let agent = person(stage, "hub-agent", agent).await?;
        let editor = person(stage, "hub-editor", &[(CLUSTERS, WRITE, "")]).await?;
        let join: &[&str] = &["create"];
        let mover: &[Right<'_>] = &[(CLUSTERS, WRITE, ""), (JOIN, join, "a"), (JOIN, join, "b")];
        let mover = person(stage, "hub-mover", mover).await?;

        let member = |set| cluster("one", Some(set), json!({}));
        let no = Some(MAY_NOT_JOIN);
        is_right("W28", creates(&editor, member("a")).await?, no)?;
        is_right("W28, c", creates(&mover, member("c")).await?, no)?;
        is_right("W28, a", creates(&mover, member("a")).await?, None)?;
        let moves = async |by: &Objects, set: Value| changes(by, MANAGED, "one", label(&set)).await;
        is_right("W29", moves(&mover, json!("b")).await?, None)?;
        is_right("W30, b to c", moves(&mover, json!("c")).await?, no)?;
        let said = replaces(&agent, "one", |one| {
            one["metadata"]["labels"] = json!({SET: "a", "env": "test"});
        });
        is_right("the agent moves its cluster", said.await?, no)?;
        stage
            .patch(MANAGED, None, "one", label(&json!("c")))
            .await?;
        is_right("W30, c to b", moves(&mover, json!("b")).await?, no)?;
        is_right("W31", moves(&mover, Value::Null).await?, no)?;
        is_right("W31, empty", moves(&mover, json!("")).await?, no)?;
        let other = json!({"metadata": {"labels": {"env": "test"}}});
        let said = changes(&editor, MANAGED, "one", other).await?;
        is_right("another label", said, None)?;
        stage
            .patch(MANAGED, None, "one", label(&json!("a")))
            .await?;
        is_right("out of a", moves(&mover, Value::Null).await?, None)?;
        is_right("none is none", moves(&editor, json!("")).await?, None)?;
        end(stage).await
    })
}

/// Rows of `webhook`: W24, W25, W26, W27, W32, W33, W34.
#[test]
fn addresses_are_https_and_bindings_name_a_set_that_their_maker_may_bind() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&SET_CRDS).await?;
        let objects = stage.objects();
        let old = cluster("old", None, address("http://old"));
        let named = cluster("01.old", None, address("https://old"));
        for before in [old, named, binding("old", "another")] {
            objects.create(before).await?;
        }
        begin(stage).await?;
        let editor: &[Right<'_>] = &[(CLUSTERS, WRITE, ""), (BINDINGS, WRITE, "")];
        let editor = person(stage, "hub-editor", editor).await?;
        let binder: &[Right<'_>] = &[(BINDINGS, WRITE, ""), (BIND, &["create"], "a")];
        let binder = person(stage, "hub-binder", binder).await?;

        let no = Some(NO_HTTPS);
        for (row, url, refusal) in [
            ("W24", "http://one", no),
            ("W24, no URL", "one", no),
            ("W25", "https://one:6443", None),
        ] {
            let one = cluster("one", None, address(url));
            is_right(row, creates(&editor, one).await?, refusal)?;
        }
        let to = |url| json!({"spec": address(url)});
        let change = async |name: &str, patch: Value| changes(&editor, MANAGED, name, patch).await;
        is_right("W24, update", change("one", to("http://one")).await?, no)?;
        // What was there before is still changed, for instance to let it go.
        let note = json!({"metadata": {"annotations": {"example.com/note": "x"}}});
        is_right("before", change("old", note.clone()).await?, None)?;
        is_right("not worse", change("old", to("http://new")).await?, no)?;
        let no = Some(NO_NAMESPACE);
        let named = |spec| cluster("01.set", None, spec);
        let said = creates(&editor, named(address("https://one"))).await?;
        is_right("W26", said, no)?;
        is_right("W27", creates(&editor, named(json!({}))).await?, None)?;
        is_right(
            "W26, update",
            change("01.set", to("https://one")).await?,
            no,
        )?;

        let without = json!({"spec": {"managedClusterClientConfigs": null}});
        is_right("W27, update", change("01.old", without).await?, None)?;

        let no = Some(OTHER_NAME);
        is_right("W32", creates(&binder, binding("b", "a")).await?, no)?;
        let no = Some(MAY_NOT_BIND);
        is_right("W33", creates(&editor, binding("a", "a")).await?, no)?;
        is_right("W33, b", creates(&binder, binding("b", "b")).await?, no)?;
        is_right("bound", creates(&binder, binding("a", "a")).await?, None)?;
        let set = |set: &str| json!({"spec": {"clusterSet": set}});
        let change = async |name: &str, patch: Value| changes(&editor, BINDING, name, patch).await;
        is_right(
            "W32, update",
            change("a", set("b")).await?,
            Some(OTHER_NAME),
        )?;
        is_right("W34", change("a", note.clone()).await?, None)?;
        is_right("before", change("old", note).await?, None)?;
        is_right("bound by its name", change("old", set("old")).await?, no)?;
        end(stage).await
    })
}

#[test]
fn policies_accept_and_move_clusters_by_the_rights_of_transom_rbac_alone() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&SET_CRDS).await?;
        begin(stage).await?;
        let mut one = cluster("one", None, json!({}));
        one["metadata"]["labels"] = json!({"env": "test"});
        stage.objects().create(one).await?;
        let folder = stage.cluster.folder().join("policies-admission");
        let mut accepts = program::unlimited_manifest("cluster-acceptance")?;
        accepts["spec"]["guests"]["decide"]["settings"]["rules"] =
            json!([{"names": ["one"], "labels": {"env": ["test"]}}]);
        put(&folder, "cluster-acceptance", &accepts)?;
        // Without that one right the server refuses what the policy writes.
        let words = policies_at(&folder)?;
        stage.revoke().await?;
        let (_, accept) = ACCEPT;
        stage.grant_but(&words, accept, &["update"]).await?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for("ManagedCluster one", "Failed AdmissionRefused")?;
        agent.stop()?;
        let mut moves = program::unlimited_manifest("cluster-sets-by-rule")?;
        moves["spec"]["guests"]["decide"]["settings"]["rules"] =
            json!([{"set": "a", "labels": {"env": ["test"]}}]);
        put(&folder, "cluster-sets-by-rule", &moves)?;
        stage.grant_exactly(&words).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let place = (None, "one");
        let is_done = |one: &Value| {
            one["spec"]["hubAcceptsClient"] == true && one["metadata"]["labels"][SET] == "a"
        };
        let done = stage.objects().wait_for(MANAGED, place, is_done).await;
        done.with_context(|| agent.tail())?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        end(stage).await
    })
}
