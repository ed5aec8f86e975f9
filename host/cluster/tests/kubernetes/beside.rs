//! What is written beside the main work: Events on primaries, the status of policies, and how it is counted.

use crate::support::*;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use transom_api::{KnownReason, State};
use transom_cluster::kubernetes::{Purpose, RequestVerb, SeenVersion};
use transom_core::failure::Class;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;
use transom_core::report::{End, Report};
use transom_test_cluster::wait;

fn report(primary: &ObjectRef, state: State, reason: KnownReason, message: &str) -> Report {
    Report {
        policy: POLICY.to_owned(),
        primary: primary.clone(),
        end: if state == State::Applied {
            End::InSync
        } else {
            End::Ended(Class::of(reason))
        },
        state,
        reason: reason.into(),
        message: message.to_owned(),
        target: None,
        writes: Vec::new(),
        inputs: None,
        failing: None,
        observed_generation: None,
        at_seconds: 0,
        again_after_ms: None,
        resync_after_ms: None,
        failures: 2,
    }
}

async fn events(scene: &Scene<'_>, namespace: &str, primary: &Object) -> Result<Vec<Value>> {
    let api = scene
        .objects
        .api("events.k8s.io/v1", "Event", Some(namespace))
        .await?;
    let all = api.list(&kube::api::ListParams::default()).await?.items;
    let all = all
        .into_iter()
        .map(|event| serde_json::to_value(event).unwrap());
    Ok(all
        .filter(|event| event["regarding"]["uid"] == primary.uid())
        .collect())
}

#[tokio::test]
async fn emits_an_event_on_failure_and_counts_repeats() -> Result<()> {
    let scene = Scene::new("events").await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "primary", "namespace": scene.namespace}});
    let primary = scene.foreign(map).await?;
    scene.done(&create(&scene.secret("s"), "one")).await?;
    let told = scene.agent.writer().events("agent-0");
    for (state, reason) in [
        (State::Applied, KnownReason::InSync),
        (State::Waiting, KnownReason::OwnedByAnother),
        (State::Held, KnownReason::Paused),
    ] {
        told.publish(
            &report(&primary.reference, state, reason, "fine"),
            primary.uid(),
        )
        .await
        .unwrap();
    }
    assert!(events(&scene, &scene.namespace, &primary).await?.is_empty());
    for _ in 0..3 {
        let failure = report(
            &primary.reference,
            State::Failed,
            KnownReason::QuotaExceeded,
            "no room",
        );
        told.publish(&failure, primary.uid()).await.unwrap();
    }
    let long = report(
        &primary.reference,
        State::Failed,
        KnownReason::WriteInvalid,
        &"ä".repeat(600),
    );
    told.publish(&long, primary.uid()).await.unwrap();
    let mut events = events(&scene, &scene.namespace, &primary).await?;
    events.sort_by_key(|event| event["reason"].to_string());
    assert_eq!(
        events
            .iter()
            .map(|event| event["reason"].clone())
            .collect::<Vec<_>>(),
        ["QuotaExceeded", "WriteInvalid"]
    );
    let first = &events[0];
    assert_eq!(
        (&first["type"], &first["note"]),
        (&json!("Warning"), &json!("policy `external`: no room"))
    );
    assert_eq!(first["series"]["count"], json!(3));
    assert_eq!(first["related"]["name"], json!(POLICY));
    let counts = scene.agent.writer().counts();
    assert_eq!(
        (
            counts.of(RequestVerb::Create, Purpose::Event),
            counts.of(RequestVerb::Patch, Purpose::Event)
        ),
        (2, 2)
    );
    assert_eq!(counts.of(RequestVerb::Create, Purpose::Work), 1);

    let mut kubectl = scene.cluster.kubectl(scene.cluster.admin())?;
    let described = kubectl
        .args(["describe", "configmap", "primary", "-n", &scene.namespace])
        .output()?;
    let described = String::from_utf8_lossy(&described.stdout).into_owned();
    assert!(
        described.contains("QuotaExceeded") && described.contains("(x3 over"),
        "{described}"
    );
    Ok(())
}

#[tokio::test]
async fn emits_events_for_cluster_scoped_and_deleted_objects() -> Result<()> {
    let scene = Scene::new("events-cluster").await?;
    let manifest = json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": "warned"}, "spec": {"hubAcceptsClient": true}});
    let primary = scene.foreign(manifest).await?;
    let told = scene.agent.writer().events("agent-0");
    let failure = report(
        &primary.reference,
        State::Failed,
        KnownReason::AdmissionRefused,
        "no",
    );
    told.publish(&failure, primary.uid()).await.unwrap();
    let found = events(&scene, "default", &primary).await?;
    assert_eq!(found.len(), 1);
    let api = scene
        .objects
        .api("events.k8s.io/v1", "Event", Some("default"))
        .await?;
    api.delete(
        found[0]["metadata"]["name"].as_str().unwrap(),
        &kube::api::DeleteParams::default(),
    )
    .await?;
    assert!(
        told.publish(&failure, primary.uid()).await.is_err(),
        "its Event is gone"
    );
    told.publish(&failure, primary.uid()).await.unwrap();
    assert_eq!(events(&scene, "default", &primary).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_policy_status_is_the_newest_and_not_written_twice() -> Result<()> {
    let scene = Scene::new("status").await?;
    let policies = ObjectRef::local("transom.dev/v1alpha1", "FleetPolicy", None, "shown");
    let mut manifest: Value = serde_yaml::from_str(include_str!(
        "../../../../policies/external-managed-kubeconfig/policy.yaml"
    ))?;
    manifest["metadata"] = json!({"name": "shown"});
    scene.foreign(manifest).await?;
    let statuses = Arc::new(scene.agent.writer().policy_statuses());
    let failures = Arc::new(Mutex::new(Vec::new()));
    let running = tokio::spawn({
        let (statuses, failures) = (Arc::clone(&statuses), Arc::clone(&failures));
        async move {
            statuses
                .run(|policy, failure| {
                    failures.lock().unwrap().push((
                        policy.to_owned(),
                        failure.reason,
                        failure.message.clone(),
                    ));
                })
                .await;
        }
    });
    let status = |message: &str| {
        json!({"conditions": [{"type": "Loaded", "status": "True", "reason": "Loaded", "message": message,
            "lastTransitionTime": "2026-11-21T08:15:30Z"}]})
    };
    let shown = async |message: &str| {
        wait::until(message, DEADLINE, async || {
            anyhow::ensure!(failures.lock().unwrap().is_empty(), "{failures:?}");
            let there = scene.there(&policies).await?;
            Ok((there.body["status"]["conditions"][0]["message"] == message).then_some(there))
        })
        .await
    };
    statuses.publish("shown", None, status("one"));
    let one = shown("one").await?;
    for message in ["two", "three", "four"] {
        statuses.publish("shown", None, status(message));
    }
    let four = shown("four").await?;
    assert_eq!(
        scene
            .agent
            .writer()
            .counts()
            .of(RequestVerb::Patch, Purpose::Status),
        2,
        "the newest is written, not each"
    );
    assert_eq!(
        four.body["metadata"]["generation"],
        one.body["metadata"]["generation"]
    );
    let managers = managers(&four);
    let ours = managers
        .get(&("transom".to_owned(), "Apply".to_owned()))
        .context("we own nothing")?;
    assert!(
        ours.get("f:status").is_some() && ours.get("f:spec").is_none(),
        "{ours}"
    );

    // A missing policy is reported and dropped; an equal status is not written.
    statuses.found("shown", status("five"));
    statuses.publish("shown", None, status("five"));
    statuses.publish("never-was", None, status("x"));
    wait::until("the failure", DEADLINE, async || {
        Ok((!failures.lock().unwrap().is_empty()).then_some(()))
    })
    .await?;
    let failed = failures.lock().unwrap().clone();
    assert_eq!(
        (failed[0].0.as_str(), failed[0].1),
        ("never-was", KnownReason::WriteConflict),
        "{failed:?}"
    );
    assert_eq!(scene.there(&policies).await?.version, four.version);
    running.abort();
    Ok(())
}

#[tokio::test]
async fn a_policy_status_is_written_only_to_the_object_that_was_observed() -> Result<()> {
    let scene = Scene::new("status-seen").await?;
    let reference = ObjectRef::local("transom.dev/v1alpha1", "FleetPolicy", None, "remade");
    let mut manifest: Value = serde_yaml::from_str(include_str!(
        "../../../../policies/external-managed-kubeconfig/policy.yaml"
    ))?;
    manifest["metadata"] = json!({"name": "remade"});
    let first = scene.foreign(manifest.clone()).await?;
    let seen = |object: &Object| {
        Some(SeenVersion {
            uid: object.uid().to_owned(),
            version: object.version.clone(),
        })
    };
    let statuses = scene.agent.writer().policy_statuses();
    let failures = Mutex::new(Vec::new());
    let write = async |seen: Option<SeenVersion>, message: &str| {
        let condition = json!({"type": "Loaded", "status": "True", "reason": "Loaded", "message": message,
            "lastTransitionTime": "2026-11-21T08:15:30Z"});
        statuses.publish("remade", seen, json!({"conditions": [condition]}));
        statuses
            .finish(|_, failure| failures.lock().unwrap().push(failure.reason))
            .await;
        scene.there(&reference).await
    };

    // The policy was edited since it was observed: the status is written nevertheless.
    let mut edited = manifest.clone();
    edited["metadata"]["labels"] = json!({"team": "blue"});
    scene.objects.apply(edited).await?;
    let there = write(seen(&first), "one").await?;
    assert_eq!(there.body["status"]["conditions"][0]["message"], "one");
    assert_eq!(there.label("team"), Some("blue"));
    let lists = || {
        scene
            .agent
            .writer()
            .counts()
            .of(RequestVerb::List, Purpose::Status)
    };
    assert_eq!(lists(), 1, "a conflict is looked at");

    // It was deleted and created again: the status is about the one before.
    scene.remove(&reference).await?;
    let second = scene.foreign(manifest).await?;
    let there = write(seen(&first), "two").await?;
    assert_eq!(there.body.get("status"), None);
    assert_eq!(*failures.lock().unwrap(), [KnownReason::WriteConflict]);
    // Nothing is pending for the new one, and it gets the same status when it is observed.
    let there = write(seen(&second), "one").await?;
    assert_eq!(there.body["status"]["conditions"][0]["message"], "one");
    assert_eq!((lists(), failures.lock().unwrap().len()), (2, 1));
    scene.remove(&reference).await
}
