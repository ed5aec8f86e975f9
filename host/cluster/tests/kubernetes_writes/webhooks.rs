//! Webhooks that refuse, break, or change writes: each has its reason, and no write repeats forever.

use crate::support::*;
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use transom_api::KnownReason;
use transom_test_cluster::{Asks, Say, Webhook, wait};

/// Whether a request is about a Secret of a test, not about the probe of the webhook.
fn of_test(request: &Value) -> bool {
    request["name"] != "probe"
}

/// Sends the Secrets of a scene's namespace through a webhook, and waits until this works.
async fn install(webhook: &Webhook, scene: &Scene) -> Result<()> {
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
        KnownReason::AdmissionRefused,
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
        "failed to create Secret changing/s: an admission webhook changed data.kubeconfig, so it is not written again"
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
