//! Primaries that stay until their guests have cleaned up, and objects of others that are removed, on a real API server
//! with exactly the permissions that `transom rbac` prints: the policies `cleanup` and `detach`, and a guest of its
//! own.

use crate::access::{BINDING, CLUSTERS, PREFIX};
use crate::admitted::Refusal;
use crate::objects::CLUSTERS as HOSTED_IN;
use crate::stage::{DEADLINE, HOSTED, KLUSTERLET, MANAGED, Stage, on_stage, policies_at};
use crate::status::wait_for_condition;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use transom_e2e::agent::Agent;
use transom_e2e::fixture;
use transom_e2e::program;
use transom_test_cluster::wait;

pub(crate) const WORK: (&str, &str) = ("work.open-cluster-management.io/v1", "ManifestWork");
pub(crate) const ADDON: (&str, &str) = (
    "addon.open-cluster-management.io/v1alpha1",
    "ManagedClusterAddOn",
);
pub(crate) const CRDS: [&str; 2] = [
    "manifestworks.work.open-cluster-management.io",
    "managedclusteraddons.addon.open-cluster-management.io",
];
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
/// What others hold objects with.
const HOLD: &str = "example.com/hold";
/// The Klusterlet that does not go.
/// What the operator of a Klusterlet holds it with; without the operator it stays for ever.
pub(crate) const OPERATOR: &str = "operator.open-cluster-management.io/klusterlet-hosted-cleanup";
pub(crate) const STUCK: &str = "klusterlet-import-leaving";

/// Whether an object is being deleted.
pub(crate) fn goes(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Who holds an object.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let names = object["metadata"]["finalizers"].as_array();
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    names.collect()
}

/// Whether the policy `detach` holds a HostedCluster.
pub(crate) fn is_held(hosted: &Value) -> bool {
    finalizers(hosted).contains(&"transom.dev/detach")
}

/// Lets others hold an object by these finalizers; null lets it go.
pub(crate) async fn hold(
    stage: &Stage,
    kind: (&str, &str),
    place: (Option<&str>, &str),
    names: &Value,
) -> Result<()> {
    let body = json!({"metadata": {"finalizers": names}});
    stage.patch(kind, place.0, place.1, body).await
}

/// The policy of a guest that does this about its finalizer, for clusters with these labels.
fn put_policy(folder: &Path, finalizer: &str, labels: &Value) -> Result<PathBuf> {
    let spec = json!({
        "primary": {"apiVersion": MANAGED.0, "kind": MANAGED.1, "labels": {"matchLabels": labels}},
        "grant": {
            "finalizer": "example.com/leaving",
            "write": [{"target": "primary", "verbs": ["patch"], "fields": ["metadata.labels.x"]}],
        },
    });
    let settings = json!({"finalizer": finalizer});
    fixture::put_policy(folder, "leaving", "fixture-desired", &settings, spec)
}

#[test]
fn a_primary_stays_until_its_guest_releases_it() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-leaving");
        let file = put_policy(&folder, "Keep", &json!({}))?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let one = (None, "one");
        hold(stage, MANAGED, one, &json!([HOLD])).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let both = |there: &Value| finalizers(there) == [HOLD, "example.com/leaving"];
        stage.objects().wait_for(MANAGED, one, both).await?;
        // Somebody takes it off.
        hold(stage, MANAGED, one, &json!([HOLD])).await?;
        stage.objects().wait_for(MANAGED, one, both).await?;
        // It is deleted while no agent runs, and the others let it go.
        agent.stop()?;
        stage.delete(MANAGED, None, "one").await?;
        hold(stage, MANAGED, one, &json!(["example.com/leaving"])).await?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for_first_pass()?;
        stage.objects().wait_for(MANAGED, one, goes).await?;
        put_policy(&folder, "UntilDeleted", &json!({}))?;
        stage
            .objects()
            .wait_for(MANAGED, one, Value::is_null)
            .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn a_primary_that_is_selected_no_more_is_released() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-deselected");
        let file = put_policy(&folder, "Keep", &json!({"example.com/kept": "true"}))?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        let label = async |value: Value| {
            let body = json!({"metadata": {"labels": {"example.com/kept": value}}});
            stage.patch(MANAGED, None, "one", body).await
        };
        stage.managed("one").await?;
        label(json!("true")).await?;
        let one = (None, "one");
        hold(stage, MANAGED, one, &json!([HOLD])).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let kept = |there: &Value| finalizers(there) == [HOLD, "example.com/leaving"];
        stage.objects().wait_for(MANAGED, one, kept).await?;
        label(Value::Null).await?;
        let released = |there: &Value| finalizers(there) == [HOLD];
        stage.objects().wait_for(MANAGED, one, released).await?;
        label(json!("true")).await?;
        stage.objects().wait_for(MANAGED, one, kept).await?;
        label(Value::Null).await?;
        stage.objects().wait_for(MANAGED, one, released).await?;
        // Selected again while it is being deleted: it takes no finalizer then, and goes.
        stage.delete(MANAGED, None, "one").await?;
        label(json!("true")).await?;
        hold(stage, MANAGED, one, &Value::Null).await?;
        stage
            .objects()
            .wait_for(MANAGED, one, Value::is_null)
            .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn a_primary_that_left_the_selection_while_no_agent_ran_is_released() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-left");
        let file = put_policy(&folder, "Keep", &json!({"example.com/kept": "true"}))?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        let label = async |name: &str, value: Value| {
            let body = json!({"metadata": {"labels": {"example.com/kept": value}}});
            stage.patch(MANAGED, None, name, body).await
        };
        for name in ["left", "theirs"] {
            stage.managed(name).await?;
        }
        label("left", json!("true")).await?;
        let (left, theirs) = ((None, "left"), (None, "theirs"));
        hold(stage, MANAGED, left, &json!([HOLD])).await?;
        // Another controller uses the same finalizer for what the policy does not select.
        hold(stage, MANAGED, theirs, &json!(["example.com/leaving"])).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let kept = |there: &Value| finalizers(there) == [HOLD, "example.com/leaving"];
        stage.objects().wait_for(MANAGED, left, kept).await?;
        agent.stop()?;
        label("left", Value::Null).await?;
        let agent = stage.start_agent(&words)?;
        let released = |there: &Value| finalizers(there) == [HOLD];
        stage.objects().wait_for(MANAGED, left, released).await?;
        let stays = |there: &Value| finalizers(there) == ["example.com/leaving"];
        stage.objects().wait_for(MANAGED, theirs, stays).await?;
        agent.stop()?;
        hold(stage, MANAGED, theirs, &Value::Null).await?;
        stage.nothing_denied(mark).await
    })
}

/// A cluster, what the guest of its policy removes, the grant, and the state that this leads to.
fn beyond_the_grant() -> Vec<(&'static str, Value, Value, &'static str)> {
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": name});
    let rule = |name: &str| {
        json!({"kind": "ConfigMap", "namespace": "default", "name": name, "verbs": ["remove"],
            "labels": {"matchLabels": {"example.com/disposable": "true"}}})
    };
    let hidden = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "disposable",
        "hidden": true});
    let refused = "Failed WriteNotGranted";
    let removes = |one: Value| json!({"removes": [one]});
    vec![
        (
            "other-name",
            removes(map("disposable")),
            rule("other"),
            refused,
        ),
        (
            "other-kind",
            removes(json!({"apiVersion": "v1", "kind": "Namespace", "name": "default"})),
            rule("*"),
            refused,
        ),
        ("other-label", removes(map("precious")), rule("*"), refused),
        (
            "no-target",
            removes(hidden),
            rule("*"),
            "Failed ContractBroken",
        ),
        (
            "no-finalizer",
            json!({"finalizer": "Keep"}),
            rule("*"),
            refused,
        ),
        (
            "made",
            removes(map("made")),
            rule("*"),
            "Failed TargetNotOwned",
        ),
        (
            "granted",
            removes(map("disposable")),
            rule("*"),
            "Applied InSync",
        ),
    ]
}

#[test]
fn a_guest_removes_nothing_beyond_its_grant() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-beyond");
        for (name, settings, rule, _) in beyond_the_grant() {
            let selected = json!({"matchLabels": {"example.com/case": name}});
            let spec = json!({
                "primary": {"apiVersion": MANAGED.0, "kind": MANAGED.1, "labels": selected},
                "grant": {"write": [rule]},
            });
            fixture::put_policy(&folder.join(name), name, "fixture-desired", &settings, spec)?;
        }
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        let ours = json!({"app.kubernetes.io/managed-by": "transom", "transom.dev/policy": "another",
            "example.com/disposable": "true"});
        let source = json!({"transom.dev/source": json!({"cluster": "local", "apiVersion": MANAGED.0,
            "kind": MANAGED.1, "name": "x", "uid": ""}).to_string()});
        let disposable = json!({"example.com/disposable": "true"});
        for (name, labels, annotations) in [
            ("disposable", disposable, json!({})),
            ("precious", json!({}), json!({})),
            ("made", ours, source),
        ] {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default",
                "labels": labels, "annotations": annotations}});
            stage.objects().create(map).await?;
        }
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let all = beyond_the_grant();
        for (name, ..) in &all {
            if *name != "granted" {
                stage.managed(name).await?;
                let label = json!({"metadata": {"labels": {"example.com/case": name}}});
                stage.patch(MANAGED, None, name, label).await?;
            }
        }
        for (name, _, _, state) in all.iter().filter(|one| one.0 != "granted") {
            agent.wait_for(&format!("ManagedCluster {name}"), state)?;
        }
        for name in ["disposable", "precious", "made"] {
            let there = stage.get(CONFIG_MAP, Some("default"), name).await?;
            ensure!(there.is_some(), "{name} is gone");
        }
        // What is granted goes, once.
        stage.managed("granted").await?;
        let label = json!({"metadata": {"labels": {"example.com/case": "granted"}}});
        stage.patch(MANAGED, None, "granted", label).await?;
        stage
            .objects()
            .wait_for(CONFIG_MAP, (Some("default"), "disposable"), Value::is_null)
            .await?;
        agent.stop()?;
        for name in ["precious", "made"] {
            stage.delete(CONFIG_MAP, Some("default"), name).await?;
        }
        stage.nothing_denied(mark).await
    })
}

/// Refuses that works whose name begins so are removed.
const HELD: Refusal = Refusal {
    name: "no-removal",
    rule: "{apiGroups: [work.open-cluster-management.io], apiVersions: ['*'], operations: [DELETE], resources: [manifestworks]}",
    unless: "!request.name.startsWith('denied')",
    within: "{}",
};

#[test]
fn a_removal_that_the_api_server_refuses_holds_up_no_other_removal() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&CRDS).await?;
        HELD.begin(stage).await?;
        let name = &format!("{CLUSTERS}refusing");
        let agent = removes_the_others(stage, name).await;
        HELD.end(stage).await?;
        let agent = agent?;
        stage
            .objects()
            .wait_for(MANAGED, (None, name), Value::is_null)
            .await?;
        agent.stop()?;
        Ok(())
    })
}

async fn removes_the_others(stage: &Stage, name: &str) -> Result<Agent> {
    let file = program::policy("cleanup");
    let words = policies_at(&file)?;
    stage.grant_exactly(&words).await?;
    stage.managed(name).await?;
    stage.objects().namespace(name).await?;
    let work = |of: &str| {
        json!({"apiVersion": WORK.0, "kind": WORK.1, "spec": {},
            "metadata": {"name": of, "namespace": name}})
    };
    for of in ["denied", "fine", "other"] {
        stage.objects().create(work(of)).await?;
    }
    wait::until("a removal that is refused", DEADLINE, async || {
        if stage.get(WORK, Some(name), "denied-probe").await?.is_none() {
            stage.objects().create(work("denied-probe")).await?;
        }
        let tried = stage.delete(WORK, Some(name), "denied-probe").await;
        Ok(tried.is_err().then_some(()))
    })
    .await?;
    let agent = stage.start_agent(&words)?;
    let has = |there: &Value| !finalizers(there).is_empty();
    stage.objects().wait_for(MANAGED, (None, name), has).await?;
    stage.delete(MANAGED, None, name).await?;
    for of in ["fine", "other"] {
        let place = (Some(name), of);
        stage
            .objects()
            .wait_for(WORK, place, Value::is_null)
            .await?;
    }
    agent.wait_for(&format!("ManagedCluster {name}"), "Failed AdmissionRefused")?;
    ensure!(stage.get(WORK, Some(name), "denied").await?.is_some());
    Ok(agent)
}

#[test]
fn add_ons_and_works_go_in_their_order_and_the_cluster_last() -> Result<()> {
    on_stage(async |stage| {
        stage.cluster.install_crds(&CRDS).await?;
        let name = &format!("{CLUSTERS}leaving");
        let folder = stage.cluster.folder().join("policies-cleanup");
        for policy in ["cleanup", "cluster-access"] {
            let to = folder.join(policy);
            fs::create_dir_all(&to)?;
            fs::copy(program::policy(policy), to.join("policy.yaml"))?;
        }
        let words = policies_at(&folder)?;
        let rights = stage.grant_exactly(&words).await?;
        stage.managed(name).await?;
        let none = json!({"conditions": []});
        stage.put_status(MANAGED, None, name, &none).await?;
        let accept = json!({"spec": {"hubAcceptsClient": true}});
        stage.patch(MANAGED, None, name, accept).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let of_cluster = (None, name.as_str());
        stage
            .objects()
            .wait_for(MANAGED, of_cluster, |there| {
                let mut names = finalizers(there);
                names.sort_unstable();
                let prefix = "cluster.open-cluster-management.io/";
                names
                    == [
                        &*format!("{prefix}api-resource-cleanup"),
                        &*format!("{prefix}resource-cleanup"),
                    ]
            })
            .await?;
        let [registration, work] =
            ["registration", "work"].map(|what| format!("{PREFIX}{name}:{what}"));
        let here = Some(name.as_str());
        stage
            .objects()
            .wait_for(BINDING, (here, &work), Value::is_object)
            .await?;
        let held = json!([HOLD]);
        for (kind, object, priority) in [
            (ADDON, "addon", "0"),
            (WORK, "first", "20"),
            (WORK, "last", "100"),
        ] {
            let body = json!({"apiVersion": kind.0, "kind": kind.1, "spec": {}, "metadata": {
                "name": object, "namespace": name, "finalizers": held,
                "annotations": {"open-cluster-management.io/cleanup-priority": priority}}});
            stage.objects().create(body).await?;
        }
        let left = |resource: &str, count, pending| {
            json!({"type": "Deleting", "status": "False", "reason": "ResourceRemaining", "message": format!(
                "The resource {resource} is remaning, the remaining count is {count}, the finalizer pending count is {pending}")})
        };
        stage.delete(MANAGED, None, name).await?;
        let addon = (here, "addon");
        wait_for_condition(stage, MANAGED, name, &left("managedclusteraddons", 1, 1)).await?;
        stage.objects().wait_for(ADDON, addon, goes).await?;
        stage
            .objects()
            .wait_for(BINDING, (here, &registration), Value::is_null)
            .await?;
        agent.wait_for_lines(
            1,
            &[r#""policy":"cleanup""#, r#""reason":"ResourceRemaining""#],
        )?;
        ensure!(!goes(&stage.objects().get(WORK, (here, "first")).await?));
        hold(stage, ADDON, addon, &Value::Null).await?;
        wait_for_condition(stage, MANAGED, name, &left("manifestworks", 2, 2)).await?;
        stage
            .objects()
            .wait_for(WORK, (here, "first"), goes)
            .await?;
        ensure!(!goes(&stage.objects().get(WORK, (here, "last")).await?));
        hold(stage, WORK, (here, "first"), &Value::Null).await?;
        wait_for_condition(stage, MANAGED, name, &left("manifestworks", 1, 1)).await?;
        ensure!(stage.get(BINDING, here, &work).await?.is_some());
        ensure!(stage.get(MANAGED, None, name).await?.is_some());
        hold(stage, WORK, (here, "last"), &Value::Null).await?;
        stage
            .objects()
            .wait_for(MANAGED, of_cluster, Value::is_null)
            .await?;
        stage
            .objects()
            .wait_for(BINDING, (here, &work), Value::is_null)
            .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // Other rights are those that it hands on, or that it needs when a write comes too late.
        let removed = [
            ("manifestworks", "delete"),
            ("managedclusteraddons", "delete"),
            ("managedclusters", "patch"),
        ];
        stage.all_used(&rights, mark, |right| !right.is_one_of(&removed))?;
        for crd in CRDS {
            stage.remove_crd(crd).await?;
        }
        Ok(())
    })
}

#[test]
fn a_hosted_cluster_leaves_its_hub_before_it_goes() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-detach");
        for policy in ["auto-import", "detach"] {
            let mut policy = program::unlimited_manifest(policy)?;
            if policy["metadata"]["name"] == "detach" {
                let settings = &mut policy["spec"]["guests"]["decide"]["settings"];
                settings["stuckAfterSeconds"] = json!(1);
                settings["takeFinalizers"] = json!(true);
            }
            let name = policy["metadata"]["name"].as_str().unwrap_or_default();
            fs::create_dir_all(folder.join(name))?;
            fs::write(folder.join(name).join("policy.yaml"), policy.to_string())?;
        }
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        let of_hub = [
            "--cluster-name",
            "local-cluster",
            "--self-managed-cluster",
            "local-cluster",
        ];
        let mark = stage.mark()?;
        // The server says when the Klusterlet was deleted.
        let agent = stage.start_at_real_time(&[&words[..], &of_hub[..]].concat())?;
        let name = "import-leaving";
        stage.ready(name, false).await?;
        let cluster = (None, name);
        let hosted = (Some(HOSTED_IN), name);
        stage
            .objects()
            .wait_for(MANAGED, cluster, Value::is_object)
            .await?;
        stage.objects().wait_for(HOSTED, hosted, is_held).await?;
        // The hub holds the ManagedCluster until it has cleaned up, and the operator the Klusterlet.
        hold(stage, MANAGED, cluster, &json!([HOLD])).await?;
        let klusterlet = json!({"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "metadata": {"name": STUCK,
            "finalizers": [OPERATOR, HOLD]}, "spec": {}});
        stage.objects().create(klusterlet).await?;
        stage.delete(HOSTED, Some(HOSTED_IN), name).await?;
        stage.objects().wait_for(MANAGED, cluster, goes).await?;
        agent.wait_for_lines(
            1,
            &[
                r#""policy":"detach""#,
                r#""reason":"ManagedClusterRemains""#,
            ],
        )?;
        // The Klusterlet begins to go, and does not.
        stage.delete(KLUSTERLET, None, STUCK).await?;
        stage
            .objects()
            .wait_for(KLUSTERLET, (None, STUCK), |there| {
                finalizers(there) == [HOLD]
            })
            .await?;
        agent.wait_for_lines(
            1,
            &[r#""policy":"detach""#, r#""reason":"KlusterletStuck""#],
        )?;
        hold(stage, MANAGED, cluster, &Value::Null).await?;
        stage
            .objects()
            .wait_for(MANAGED, cluster, Value::is_null)
            .await?;
        stage
            .objects()
            .wait_for(HOSTED, hosted, Value::is_object)
            .await?;
        hold(stage, KLUSTERLET, (None, STUCK), &Value::Null).await?;
        stage
            .objects()
            .wait_for(HOSTED, hosted, Value::is_null)
            .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}
