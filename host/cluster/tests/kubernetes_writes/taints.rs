//! Who sets the time of a taint: the webhook of Open Cluster Management, reproduced as measured, or the agent.

use crate::planned::planned;
use crate::support::*;
use anyhow::Result;
use serde_json::{Value, json};
use transom_api::KnownReason;
use transom_core::contract::taints::{Decision, Effect, Wanted};
use transom_core::object::Object;
use transom_core::plan::contention::Contentions;
use transom_core::plan::{Step, TimeAdded};
use transom_core::policy::{Policy, check, manifest};
use transom_test_cluster::{Asks, TAINTED_AT, Webhook, set_taint_times};

const GROUP: &str = "cluster.open-cluster-management.io";
const MANAGED: &str = "cluster.open-cluster-management.io/v1";

/// A taint as a guest wants it, without its time.
fn wanted(key: &str) -> Wanted {
    Wanted {
        key: key.to_owned(),
        value: String::new(),
        effect: Effect::NoSelect,
    }
}

/// A policy that owns two keys of taints.
fn policy() -> Policy {
    let write = json!({"target": "primary", "verbs": ["patch"], "fields": ["spec.taints"], "taintKeys": ["a/one", "a/two"]});
    let manifest = json!({
        "apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": POLICY},
        "spec": {
            "primary": {"apiVersion": MANAGED, "kind": "ManagedCluster"},
            "guests": {"decide": {"component": "builtin:taints"}},
            "grant": {"write": [write]},
        },
    });
    check::policy(manifest::parse(&manifest).unwrap()).unwrap()
}

/// The step that gives a cluster these taints, as the agent plans it.
fn step(primary: &Object, wanted: &[Wanted], time_added: TimeAdded) -> Step {
    let answer = Decision::Own(wanted.to_vec());
    let planning = (&mut Contentions::default(), 0);
    let plan = planned(&policy(), primary, &answer, time_added, planning);
    plan.unwrap().steps.pop().unwrap()
}

async fn managed(scene: &Scene, name: &str, taints: Value) -> Result<Object> {
    let labels = json!({"test": "taints"});
    let manifest = json!({"apiVersion": MANAGED, "kind": "ManagedCluster", "metadata": {"name": name, "labels": labels},
        "spec": {"hubAcceptsClient": true, "taints": taints}});
    scene.foreign(manifest).await
}

#[tokio::test]
async fn leaves_times_to_the_webhook_if_one_is_installed() -> Result<()> {
    let scene = Scene::new("taints").await?;
    assert!(!scene.agent.writer().taint_times_by_webhook().await);
    let user = json!({"key": "user", "value": "", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"});
    let before = managed(&scene, "tainted", json!([user])).await?;
    let by_us = TimeAdded::SetByUs(1_763_712_000);
    let first = scene
        .done(&step(&before, &[wanted("a/one")], by_us))
        .await?;
    assert_eq!(
        first.body["spec"]["taints"][0], user,
        "another's taint stays as it is"
    );
    assert_eq!(
        first.body["spec"]["taints"][1]["timeAdded"],
        "2025-11-21T08:00:00Z"
    );

    let webhook = Webhook::start(set_taint_times).await?;
    let scope = json!({"objectSelector": {"matchLabels": {"test": "taints"}}});
    let asks = Asks {
        name: "ocm",
        group: GROUP,
        resource: "managedclusters",
        scope: &scope,
    };
    let labels = json!({"test": "taints"});
    let probe = json!({"apiVersion": MANAGED, "kind": "ManagedCluster", "metadata": {"name": "probe", "labels": labels},
        "spec": {"hubAcceptsClient": true}});
    webhook.install(&scene.objects, asks, probe).await?;
    let two = [wanted("a/one"), wanted("a/two")];
    let refused = scene
        .refused(&step(&first, &two, by_us), KnownReason::AdmissionRefused)
        .await;
    assert!(
        refused
            .message
            .contains("It is not allowed to set TimeAdded of Taint a/two."),
        "{}",
        refused.message
    );

    assert!(
        !scene.agent.writer().taint_times_by_webhook().await,
        "an answer holds for a minute"
    );
    let fresh = connect(scene.cluster, &scene.cluster.user("agent", &[])?).await?;
    assert!(fresh.writer().taint_times_by_webhook().await);
    let there = scene.there(&first.reference).await?;
    let after = scene
        .done(&step(&there, &two, TimeAdded::SetByCluster))
        .await?;
    let taints = after.body["spec"]["taints"].as_array().unwrap();
    assert_eq!(
        taints
            .iter()
            .map(|taint| &taint["timeAdded"])
            .collect::<Vec<_>>(),
        ["2020-01-01T00:00:00Z", "2025-11-21T08:00:00Z", TAINTED_AT]
    );
    let swapped = scene
        .done(&step(&after, &[wanted("a/two")], TimeAdded::SetByCluster))
        .await?;
    let keys = |object: &Object| -> Vec<Value> {
        object.body["spec"]["taints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|taint| taint["key"].clone())
            .collect()
    };
    assert_eq!(keys(&swapped), ["user", "a/two"]);

    // An owned key with another effect is replaced, and gets its time.
    let odd = json!([{"key": "a/one", "effect": "PreferNoSelect"}]);
    let replaced = scene
        .done(&step(
            &managed(&scene, "odd", odd).await?,
            &[wanted("a/one")],
            TimeAdded::SetByCluster,
        ))
        .await?;
    assert_eq!(
        replaced.body["spec"]["taints"],
        json!([{"key": "a/one", "effect": "NoSelect", "timeAdded": TAINTED_AT}])
    );

    let nobody = connect(scene.cluster, &scene.cluster.user("nobody", &[])?).await?;
    assert!(
        nobody.writer().taint_times_by_webhook().await,
        "who may not know sets none"
    );
    Webhook::uninstall(&scene.objects, "ocm").await?;
    Ok(())
}
