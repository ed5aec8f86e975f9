//! A guest of the objects world that makes several objects for each primary, on a real API server, with exactly the
//! permissions that `transom rbac` prints.

use crate::stage::{DEADLINE, MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use transom_e2e::fixture;
use transom_test_cluster::Clock;
use transom_test_cluster::wait;

const NAMESPACE: (&str, &str) = ("v1", "Namespace");
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");

/// What the names of the namespaces begin with that the policy makes.
pub(crate) const MADE: &str = "made-";
/// The same for the roles and bindings.
pub(crate) const ACCESS: &str = "access-";
/// The name of such a namespace in a grant.
const OF_PRIMARY: &str = "made-{primary.name}";

/// The settings of the guest: a namespace of each primary, and a ConfigMap in it.
fn makes(content: &str) -> Value {
    json!([
        {"apiVersion": "v1", "kind": "Namespace", "name": "made-{name}",
            "content": r#"{"metadata": {"labels": {"example.com/cluster": "{name}"}}}"#},
        {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "made-{name}", "name": "facts", "content": content},
    ])
}

/// Writes the policy with these settings and the name of the namespaces that it may make.
fn put_policy(folder: &Path, makes: &Value, namespace: &str) -> Result<PathBuf> {
    let verbs = json!(["create", "update", "delete"]);
    let label = r#"metadata.labels["example.com/cluster"]"#;
    let spec = json!({
        "primary": {"apiVersion": MANAGED.0, "kind": MANAGED.1},
        "grant": {"write": [
            {"kind": "Namespace", "name": namespace, "verbs": verbs, "fields": [label],
                "values": {label: ["{primary.name}"]}},
            {"kind": "ConfigMap", "namespace": "made-{primary.name}", "name": "facts", "verbs": verbs,
                "fields": ["data"]},
        ]},
    });
    let settings = json!({"makes": makes});
    fixture::put_policy(folder, "makes", "fixture-desired", &settings, spec)
}

/// Waits until an object has this data.
async fn wait_for_data(stage: &Stage, namespace: &str, data: &Value) -> Result<()> {
    let mut last = Value::Null;
    let came = wait::until("the data of a ConfigMap", DEADLINE, async || {
        let found = stage.get(CONFIG_MAP, Some(namespace), "facts").await?;
        last = found.unwrap_or_default()["data"].take();
        Ok((last == *data).then_some(()))
    });
    came.await
        .with_context(|| format!("{namespace}: {last} is to be {data}"))
}

#[test]
fn an_answer_is_of_the_time_at_which_its_targets_were_named() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-timed");
        let content = r#"{"metadata": {"labels": {"example.com/cluster": "{name}"}}}"#;
        let made = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "made-{now}", "content": content}]);
        let file = put_policy(&folder, &made, "made-*")?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        // Whenever this agent looks at its clock it is five seconds later.
        let clock = Clock::shifted(&stage.cluster.folder().join("clock"), "+0 i5")?;
        let server = stage.cluster.server();
        let mut command = stage.command_at_real_time(&stage.agent, &server, &words)?;
        let agent = stage.start_command(clock.wear(&mut command)?)?;
        agent.wait_for("ManagedCluster one", "Applied InSync")?;
        agent.stop().map(drop)
    })
}

#[test]
fn a_guest_makes_several_objects_and_they_are_kept_and_pruned() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-makes");
        let (first, second) = (
            r#"{"data": {"a": "1", "b": "2"}}"#,
            r#"{"data": {"a": "3"}}"#,
        );
        let file = put_policy(&folder, &makes(first), OF_PRIMARY)?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        for name in ["one", "two"] {
            stage.managed(name).await?;
        }
        // Somebody else has an object where one is to be made.
        let other =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made-two"}});
        stage.objects().create(other).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        wait_for_data(stage, "made-one", &json!({"a": "1", "b": "2"})).await?;
        let made = stage.get(NAMESPACE, None, "made-one").await?;
        let made = made.context("no namespace")?;
        ensure!(
            made["metadata"]["labels"]["example.com/cluster"] == "one",
            "{made}"
        );
        agent.wait_for("ManagedCluster two", "Failed TargetNotOwned")?;
        // What others change is put back; what they add stays.
        let theirs = json!({"data": {"a": "9", "theirs": "stays"}});
        stage
            .patch(CONFIG_MAP, Some("made-one"), "facts", theirs)
            .await?;
        wait_for_data(
            stage,
            "made-one",
            &json!({"a": "1", "b": "2", "theirs": "stays"}),
        )
        .await?;
        // Another answer: a field that is not wanted any more goes.
        put_policy(&folder, &makes(second), OF_PRIMARY)?;
        wait_for_data(stage, "made-one", &json!({"a": "3", "theirs": "stays"})).await?;
        // One of the objects is not wanted any more.
        put_policy(&folder, &makes(""), OF_PRIMARY)?;
        wait::until("the ConfigMap is gone", DEADLINE, async || {
            let found = stage.get(CONFIG_MAP, Some("made-one"), "facts").await?;
            Ok(found.is_none().then_some(()))
        })
        .await?;
        ensure!(stage.get(NAMESPACE, None, "made-one").await?.is_some());
        // The primary goes, and with it the rest. Nothing ends a namespace here, so it only begins to go.
        stage.delete(MANAGED, None, "one").await?;
        wait::until("the namespace goes", DEADLINE, async || {
            let found = stage.get(NAMESPACE, None, "made-one").await?;
            let goes = |found: &Value| found["metadata"]["deletionTimestamp"].is_string();
            Ok(found.as_ref().is_none_or(goes).then_some(()))
        })
        .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        let two = stage.get(NAMESPACE, None, "made-two").await?;
        let labels = two.context("no namespace")?["metadata"]["labels"].take();
        ensure!(labels.get("transom.dev/policy").is_none(), "{labels}");
        Ok(())
    })
}

/// The policy of a guest that makes a ClusterRole for each cluster and binds it to a group of the cluster. `rules` is
/// what the guest asks for. When the access is `taken` away, it removes the binding by name, and first makes a
/// ConfigMap where there is no namespace.
fn put_access(folder: &Path, rules: &Value, taken: bool) -> Result<PathBuf> {
    let api_version = "rbac.authorization.k8s.io/v1";
    let verbs = json!(["create", "update", "delete"]);
    let group = "rbac.authorization.k8s.io";
    let (role, subject) = (
        |name: &str| json!({"apiGroup": group, "kind": "ClusterRole", "name": format!("access-{name}")}),
        |name: &str| json!({"apiGroup": group, "kind": "Group", "name": format!("agents:{name}")}),
    );
    let made = |kind: &str, content: Value| json!({"apiVersion": api_version, "kind": kind, "name": "access-{name}", "content": content.to_string()});
    let granted = |kind: &str, values: Value| {
        let fields: Vec<_> = values
            .as_object()
            .into_iter()
            .flatten()
            .map(|(field, _)| field.clone())
            .collect();
        json!({"apiVersion": api_version, "kind": kind, "name": "access-{primary.name}", "verbs": verbs,
            "fields": fields, "values": values})
    };
    let binding = made(
        "ClusterRoleBinding",
        json!({"roleRef": role("{name}"), "subjects": [subject("{name}")]}),
    );
    let made_role = made("ClusterRole", json!({"rules": rules}));
    let card = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "made-{name}", "name": "facts", "content": "{}"});
    let settings = match taken {
        false => json!({"makes": [made_role, binding]}),
        true => json!({"makes": [card, made_role], "removes": [binding]}),
    };
    // Without a resync only what is told wakes.
    let spec = json!({
        "primary": {"apiVersion": MANAGED.0, "kind": MANAGED.1},
        "resyncSeconds": 0,
        "grant": {"write": [
            {"kind": "ConfigMap", "namespace": "made-{primary.name}", "name": "facts", "verbs": verbs, "fields": ["data"]},
            granted("ClusterRole", json!({"rules": [reads("{primary.name}")]})),
            granted("ClusterRoleBinding", json!({
                "roleRef": [role("{primary.name}")], "subjects": [subject("{primary.name}")],
            })),
        ]},
    });
    fixture::put_policy(folder, "access", "fixture-desired", &settings, spec)
}

/// The rule that lets read one ManagedCluster, and renew its certificates.
fn reads(name: &str) -> Value {
    json!({"apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters"],
        "resourceNames": [name], "verbs": ["get", "renew"]})
}

#[test]
fn a_guest_gives_the_rights_that_its_grant_lists_and_no_others() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-access");
        let file = put_access(&folder, &json!([reads("{name}")]), false)?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let (role, binding) = (
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        );
        wait::until("the binding", DEADLINE, async || {
            stage.get(binding, None, "access-one").await
        })
        .await?;
        let bound = stage
            .get(binding, None, "access-one")
            .await?
            .context("no binding")?;
        ensure!(bound["subjects"][0]["name"] == "agents:one", "{bound}");
        let rules = async || {
            let found = stage.get(role, None, "access-one").await?;
            anyhow::Ok(found.context("no role")?["rules"].take())
        };
        ensure!(
            rules().await? == json!([reads("one")]),
            "{}",
            rules().await?
        );
        // What somebody adds to the role goes again.
        let more = json!({"rules": [reads("one"), {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
        stage.patch(role, None, "access-one", more).await?;
        wait::until("the role as it was", DEADLINE, async || {
            Ok((rules().await? == json!([reads("one")])).then_some(()))
        })
        .await?;
        // The guest asks for more than the grant lists: another cluster, another verb, one more rule.
        for rules_asked in [
            json!([reads("two")]),
            json!([{"apiGroups": ["cluster.open-cluster-management.io"], "resources": ["managedclusters"],
                "resourceNames": ["{name}"], "verbs": ["*"]}]),
            json!([reads("{name}"), {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]),
        ] {
            let refusals = || anyhow::Ok(agent.log()?.matches("ValueNotGranted").count());
            let before = refusals()?;
            put_access(&folder, &rules_asked, false)?;
            wait::until("the refusal", DEADLINE, async || {
                Ok((refusals()? > before).then_some(()))
            })
            .await?;
            ensure!(
                rules().await? == json!([reads("one")]),
                "{}",
                rules().await?
            );
        }
        stage.delete(MANAGED, None, "one").await?;
        for kind in [role, binding] {
            wait::until("role and binding are gone", DEADLINE, async || {
                let found = stage.get(kind, None, "access-one").await?;
                Ok(found.is_none().then_some(()))
            })
            .await?;
        }
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn an_object_of_others_that_goes_makes_room_at_once() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-room");
        let file = put_access(&folder, &json!([reads("{name}")]), false)?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        let api_version = "rbac.authorization.k8s.io/v1";
        let kind = |kind| (api_version, kind);
        let binding = kind("ClusterRoleBinding");
        let viewer =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
        let theirs = json!({"apiVersion": api_version, "kind": binding.1,
            "metadata": {"name": "access-taken"}, "roleRef": viewer});
        stage.objects().create(theirs).await?;
        stage.managed("taken").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        // Nobody reads this kind: the agent keeps nothing but the names of what others have.
        agent.wait_for("ManagedCluster taken", "Failed TargetNotOwned")?;
        stage.delete(binding, None, "access-taken").await?;
        agent.wait_for("ManagedCluster taken", "Applied InSync")?;
        let is_ours = |object: &Value| object["roleRef"]["name"] == "access-taken";
        let place = (None, "access-taken");
        stage.objects().wait_for(binding, place, is_ours).await?;
        stage.delete(MANAGED, None, "taken").await?;
        let is_gone = |object: &Value| object.is_null();
        stage.objects().wait_for(binding, place, is_gone).await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn an_object_of_others_that_they_put_right_is_found_right_at_once() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-right");
        let file = put_access(&folder, &json!([reads("{name}")]), false)?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        let binding = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding");
        let of = |kind, name| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"});
        let theirs = json!({"apiVersion": binding.0, "kind": binding.1,
            "metadata": {"name": "access-lent", "ownerReferences": [owner]},
            "roleRef": of("ClusterRole", "access-lent"), "subjects": [of("Group", "agents:lent")]});
        stage.objects().create(theirs).await?;
        let uid = async || {
            let there = stage.get(binding, None, "access-lent").await?;
            anyhow::Ok(there.context("no binding")?["metadata"]["uid"].take())
        };
        let before = uid().await?;
        stage.managed("lent").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for("ManagedCluster lent", "Failed TargetNotOwned")?;
        // Nobody reads this kind, and no label says that the object is the agent's: only the name is kept.
        let given = json!({"metadata": {"ownerReferences": null}});
        stage.patch(binding, None, "access-lent", given).await?;
        agent.wait_for("ManagedCluster lent", "Applied InSync")?;
        ensure!(uid().await? == before, "it was made anew");
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn a_right_is_taken_away_although_another_object_cannot_be_made() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-taken");
        let rules = json!([reads("{name}")]);
        let file = put_access(&folder, &rules, false)?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let kind = |kind| ("rbac.authorization.k8s.io/v1", kind);
        let place = (None, "access-one");
        let is_there = |object: &Value| object["metadata"]["name"] == "access-one";
        let binding = kind("ClusterRoleBinding");
        stage.objects().wait_for(binding, place, is_there).await?;
        put_access(&folder, &rules, true)?;
        let is_gone = |object: &Value| object.is_null();
        stage.objects().wait_for(binding, place, is_gone).await?;
        // It is told, and what else comes after it waits.
        agent.wait_for("ManagedCluster one", "Failed TargetNamespaceMissing")?;
        let role = stage.get(kind("ClusterRole"), None, "access-one").await?;
        ensure!(role.is_some(), "the role is gone as well");
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}
