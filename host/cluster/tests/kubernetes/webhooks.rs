//! Webhooks that refuse, break, or change writes: each has its reason, and no write repeats forever. One of them, that
//! of Open Cluster Management, sets the times of taints; it is reproduced as measured.

use crate::planned::planned;
use crate::support::*;
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use transom_api::KnownReason;
use transom_core::contract::taints::{Decision, TaintEffect, WantedTaint};
use transom_core::object::Object;
use transom_core::plan::contention::Contentions;
use transom_core::plan::{Step, TimeAdded};
use transom_core::policy::{Policy, check, manifest};
use transom_test_cluster::{Asks, Say, TAINTED_AT, Webhook, set_taint_times, wait};

/// Whether a request is about a Secret of a test, not about the probe of the webhook.
fn of_test(request: &Value) -> bool {
    request["name"] != "probe"
}

/// Sends the Secrets of a scene's namespace through a webhook, and waits until this works.
async fn install(webhook: &Webhook, scene: &Scene<'_>) -> Result<()> {
    let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}}});
    let asks = Asks {
        name: &scene.namespace,
        group: "",
        resource: "secrets",
        scope: &here,
    };
    let probe = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "probe", "namespace": scene.namespace},
        "data": {"probe": STANDARD.encode(CANARY)}});
    webhook.install(&scene.objects, asks, probe).await
}

#[tokio::test]
async fn names_a_webhook_that_rejects_without_quoting_it() -> Result<()> {
    for code in [400, 403, 409, 422, 429, 500, 503] {
        let scene = Scene::new(&format!("denied-{code}")).await?;
        let webhook = Webhook::start(move |request| match of_test(request) {
            true => Say::Deny(code, format!("{} says {CANARY}", request["object"]["data"])),
            false => Say::Patch(Vec::new()),
        })
        .await?;
        install(&webhook, &scene).await?;
        let failure = scene
            .refused(
                &create(&scene.secret("s"), CANARY),
                KnownReason::AdmissionRefused,
            )
            .await;
        assert_eq!(
            failure.message,
            format!(
                "failed to create Secret denied-{code}/s: the admission webhook `denied-{code}.example.org` refused it"
            )
        );
        let before = Instant::now();
        scene
            .refused(
                &create(&scene.secret("s"), CANARY),
                KnownReason::AdmissionRefused,
            )
            .await;
        assert!(before.elapsed() < DEADLINE, "{code}");
    }
    Ok(())
}

#[tokio::test]
async fn names_a_webhook_that_cannot_be_called() -> Result<()> {
    let scene = Scene::new("broken").await?;
    let webhook = Webhook::start(|_| Say::Patch(Vec::new())).await?;
    install(&webhook, &scene).await?;
    webhook.stop().await?;
    let failure = wait::until("the end of its connections", DEADLINE, async || {
        Ok(scene
            .agent
            .writer()
            .perform(POLICY, &create(&scene.secret("s"), CANARY))
            .await
            .err())
    })
    .await?;
    assert_eq!(
        failure.reason,
        KnownReason::ServerUnavailable,
        "{}",
        failure.message
    );
    assert_eq!(
        failure.message,
        "failed to create Secret broken/s: the admission webhook `broken.example.org` cannot be called"
    );
    Ok(())
}

#[tokio::test]
async fn additions_by_a_webhook_are_no_change() -> Result<()> {
    let scene = Scene::new("adding").await?;
    let webhook = Webhook::start(|request| match of_test(request) {
        true => Say::Patch(vec![
            json!({"op": "add", "path": "/metadata/labels/injected", "value": "x"}),
            json!({"op": "add", "path": "/metadata/annotations/injected", "value": "x"}),
        ]),
        false => Say::Patch(Vec::new()),
    })
    .await?;
    install(&webhook, &scene).await?;
    let made = scene.done(&create(&scene.secret("s"), "one")).await?;
    assert_eq!(made.label("injected"), Some("x"));
    let after = scene.done(&update(&made, "two")).await?;
    assert_eq!(after.annotation("injected"), Some("x"));
    Ok(())
}

#[tokio::test]
async fn rewrites_a_webhooks_change_only_when_something_else_is_desired() -> Result<()> {
    let scene = Scene::new("changing").await?;
    let (on, times) = (Arc::new(AtomicBool::new(true)), AtomicU64::new(0));
    let webhook = Webhook::start({
        let on = Arc::clone(&on);
        move |request| match of_test(request) && on.load(Ordering::SeqCst) {
            // Another value each time, so that every write would trigger the agent again.
            true => {
                let value = format!("{:08}", times.fetch_add(1, Ordering::SeqCst));
                Say::Patch(vec![
                    json!({"op": "add", "path": "/data/kubeconfig", "value": value}),
                ])
            }
            false => Say::Patch(Vec::new()),
        }
    })
    .await?;
    install(&webhook, &scene).await?;
    let target = scene.secret("s");
    let failure = scene
        .refused(&create(&target, "one"), KnownReason::AdmissionChanged)
        .await;
    assert_eq!(
        failure.message,
        "failed to create Secret changing/s: the API server stored something else in data.kubeconfig: an admission webhook \
         changed that, or the CRD does not have the field; so it is not written again"
    );
    // The next reconcile finds the webhook's result and desires the same as before.
    let there = scene.there(&target).await?;
    scene
        .refused(&update(&there, "one"), KnownReason::AdmissionChanged)
        .await;
    let asked = webhook.asked();
    for _ in 0..20 {
        let there = scene.there(&target).await?;
        scene
            .refused(&update(&there, "one"), KnownReason::AdmissionChanged)
            .await;
    }
    assert_eq!(webhook.asked(), asked, "the same write was sent again");

    scene
        .refused(
            &update(&scene.there(&target).await?, "two"),
            KnownReason::AdmissionChanged,
        )
        .await;
    assert!(webhook.asked() > asked, "another write was not sent");
    on.store(false, Ordering::SeqCst);
    let mended = scene
        .done(&update(&scene.there(&target).await?, "three"))
        .await?;
    scene.done(&update(&mended, "one")).await?;
    Ok(())
}

const GROUP: &str = "cluster.open-cluster-management.io";
const MANAGED: &str = "cluster.open-cluster-management.io/v1";

/// A taint as a guest wants it, without its time.
fn wanted(key: &str) -> WantedTaint {
    WantedTaint {
        key: key.to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSelect,
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
fn step(primary: &Object, wanted: &[WantedTaint], time_added: TimeAdded) -> Step {
    let answer = Decision::Own(wanted.to_vec());
    let planning = (&Contentions::default(), 0);
    let plan = planned(&policy(), primary, &answer, time_added, planning);
    plan.unwrap().steps.pop().unwrap()
}

async fn managed(scene: &Scene<'_>, name: &str, taints: Value) -> Result<Object> {
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
