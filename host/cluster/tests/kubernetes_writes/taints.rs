//! Who sets the time of a taint: the webhook of Open Cluster Management, played as it was measured, or we.

use crate::support::*;
use crate::webhook::{Say, Webhook};
use anyhow::Result;
use serde_json::{Value, json};
use transom_api::Word;
use transom_core::contract::taints::{Effect, Wanted};
use transom_core::object::Object;
use transom_core::plan::taints::{self, TimeAdded};
use transom_core::plan::{Plan, Step};
use transom_core::policy::TaintsRule;
use transom_core::work::Key;
use transom_test_cluster::wait;

const GROUP: &str = "cluster.open-cluster-management.io";
const MANAGED: &str = "cluster.open-cluster-management.io/v1";
const NOW: &str = "2026-11-21T09:00:00Z";

/// What the webhook does with an update: it refuses a time that the client sets and a time that is left out of an
/// unchanged taint, compares with the first old taint of the same key, sets the others, and drops empty values.
fn on_update(request: &Value) -> Say {
    let list = |object: &str| request[object]["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let (old, mut new) = (list("oldObject"), list("object"));
    let mut refused = Vec::new();
    for taint in &mut new {
        let before = old.iter().find(|old| old["key"] == taint["key"]);
        let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let same = before.filter(|old| ["value", "effect"].iter().all(|field| text(old, field) == text(taint, field)));
        let set = !taint["timeAdded"].is_null();
        match same {
            Some(old) if old["timeAdded"] != taint["timeAdded"] => refused.push(text(taint, "key")),
            Some(_) => {}
            None if set && request["operation"] == "UPDATE" => refused.push(text(taint, "key")),
            None => taint["timeAdded"] = json!(NOW),
        }
        if taint["value"] == "" {
            taint.as_object_mut().unwrap().remove("value");
        }
    }
    match refused.is_empty() {
        false => Say::Deny(400, format!("It is not allowed to set TimeAdded of Taint {}.", refused.join(", "))),
        true if new.is_empty() => Say::Patch(Vec::new()),
        true => Say::Patch(vec![json!({"op": "replace", "path": "/spec/taints", "value": new})]),
    }
}

fn wanted(key: &str) -> Wanted {
    Wanted { key: key.to_owned(), value: String::new(), effect: Effect::NoSelect }
}

/// The step that gives a cluster these taints, as the agent plans it.
fn planned(subject: &Object, wanted: &[Wanted], added: TimeAdded) -> Step {
    let rule = TaintsRule { keys: ["a/one", "a/two"].map(str::to_owned).into() };
    let key = Key::new(&POLICY.into(), &subject.reference);
    let Plan { mut steps, .. } = taints::plan(&key, subject, &rule, wanted, added).unwrap();
    steps.pop().unwrap()
}

async fn managed(scene: &Scene, name: &str, taints: Value) -> Result<Object> {
    let labels = json!({"test": "taints"});
    let manifest = json!({"apiVersion": MANAGED, "kind": "ManagedCluster", "metadata": {"name": name, "labels": labels},
        "spec": {"hubAcceptsClient": true, "taints": taints}});
    scene.foreign(manifest).await
}

#[tokio::test]
async fn times_are_left_to_the_webhook_where_one_is_installed() -> Result<()> {
    let scene = Scene::new("taints").await?;
    assert!(!scene.agent.writer().taint_times_by_webhook().await);
    let user = json!({"key": "user", "value": "", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"});
    let before = managed(&scene, "tainted", json!([user])).await?;
    let by_us = TimeAdded::SetByUs(1_763_712_000);
    let first = scene.done(&planned(&before, &[wanted("a/one")], by_us)).await?;
    assert_eq!(first.body["spec"]["taints"][0], user, "another's taint stays as it is");
    assert_eq!(first.body["spec"]["taints"][1]["timeAdded"], "2025-11-21T08:00:00Z");

    let webhook = Webhook::start(on_update).await?;
    let here = json!({"objectSelector": {"matchLabels": {"test": "taints"}}});
    scene.objects.create(webhook.configuration("ocm", GROUP, "managedclusters", &here)).await?;
    let two = [wanted("a/one"), wanted("a/two")];
    let refused = wait::until("the webhook", DEADLINE, async || {
        // Each time with another list, until the webhook refuses the time in it.
        let there = scene.there(&first.reference).await?;
        let step = if there.body["spec"]["taints"][2].is_null() {
            planned(&there, &two, by_us)
        } else {
            planned(&there, &[wanted("a/one")], by_us)
        };
        let failed = scene.agent.writer().perform(POLICY, &step).await.err();
        Ok(failed.filter(|_| matches!(&step, Step::Patch { fields, .. } if fields[0].1.to_string().contains("a/two"))))
    })
    .await?;
    assert_eq!(refused.reason, Word::AdmissionRefused);
    assert!(refused.message.contains("It is not allowed to set TimeAdded of Taint a/two."), "{}", refused.message);

    assert!(!scene.agent.writer().taint_times_by_webhook().await, "an answer holds for a minute");
    let fresh = connect(scene.cluster, &scene.cluster.user("agent", &[])?).await?;
    assert!(fresh.writer().taint_times_by_webhook().await);
    let there = scene.there(&first.reference).await?;
    let after = scene.done(&planned(&there, &two, TimeAdded::SetByCluster)).await?;
    let taints = after.body["spec"]["taints"].as_array().unwrap();
    assert_eq!(
        taints.iter().map(|taint| &taint["timeAdded"]).collect::<Vec<_>>(),
        ["2020-01-01T00:00:00Z", "2025-11-21T08:00:00Z", NOW]
    );
    let swapped = scene.done(&planned(&after, &[wanted("a/two")], TimeAdded::SetByCluster)).await?;
    let keys = |object: &Object| -> Vec<Value> {
        object.body["spec"]["taints"].as_array().unwrap().iter().map(|taint| taint["key"].clone()).collect()
    };
    assert_eq!(keys(&swapped), ["user", "a/two"]);

    // An owned key with another effect is replaced, and gets its time.
    let odd = json!([{"key": "a/one", "effect": "PreferNoSelect"}]);
    let replaced =
        scene.done(&planned(&managed(&scene, "odd", odd).await?, &[wanted("a/one")], TimeAdded::SetByCluster)).await?;
    assert_eq!(replaced.body["spec"]["taints"], json!([{"key": "a/one", "effect": "NoSelect", "timeAdded": NOW}]));

    let nobody = connect(scene.cluster, &scene.cluster.user("nobody", &[])?).await?;
    assert!(nobody.writer().taint_times_by_webhook().await, "who may not know sets none");
    let configurations =
        scene.objects.api("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", None).await?;
    configurations.delete("ocm", &kube::api::DeleteParams::default()).await?;
    Ok(())
}
