//! Every way in which a real API server refuses, with its reason. No value of a Secret is shown: each contains a
//! canary.

use crate::support::*;
use anyhow::Result;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use transom_api::KnownReason;
use transom_cluster::kubernetes::{Kubernetes, KubernetesOptions};
use transom_core::object::Object;
use transom_core::plan::Step;
use transom_core::reference::ObjectRef;
use transom_test_cluster::wait;

/// A Secret with ownership labels that is changed before it is sent.
fn made(target: &ObjectRef, change: impl FnOnce(&mut Value)) -> Step {
    let mut body = secret(target, CANARY);
    change(&mut body);
    Step::Create {
        desired: Object {
            reference: target.clone(),
            version: String::new(),
            body,
        },
    }
}

#[tokio::test]
async fn names_missing_permissions_namespaces_and_kinds() -> Result<()> {
    let scene = Scene::new("refused").await?;
    let nobody = connect(scene.cluster, &scene.cluster.user("nobody", &[])?).await?;
    let failure = nobody
        .writer()
        .perform(POLICY, &create(&scene.secret("s"), CANARY))
        .await
        .unwrap_err();
    assert_eq!(failure.reason, KnownReason::WriteForbidden);
    assert!(
        failure
            .message
            .contains("User \"nobody\" cannot patch resource \"secrets\""),
        "{}",
        failure.message
    );

    let failure = scene
        .refused(
            &create(&secret_ref("never-was", "s"), CANARY),
            KnownReason::TargetNamespaceMissing,
        )
        .await;
    assert_eq!(
        failure.message,
        "failed to create Secret never-was/s: its namespace does not exist"
    );
    let unknown = ObjectRef::local("example.org/v1", "Unknown", None, "u");
    let failure = scene
        .refused(&made(&unknown, |_| ()), KnownReason::KindMissing)
        .await;
    assert_eq!(
        failure.message,
        "failed to create Unknown u: the API server does not serve the kind Unknown"
    );

    scene.objects.namespace("going").await?;
    scene.cluster.delete_namespace("going").await?;
    let failure = scene
        .refused(
            &create(&secret_ref("going", "s"), CANARY),
            KnownReason::InputTerminating,
        )
        .await;
    assert_eq!(
        failure.message,
        "failed to create Secret going/s: its namespace is being deleted"
    );
    scene.cluster.finalize_namespace("going").await?;
    // The API server admits by its cache of namespaces, which may be a little older.
    let step = create(&secret_ref("going", "s"), CANARY);
    wait::until("the namespace to be gone", DEADLINE, async || {
        let result = scene.agent.writer().perform(POLICY, &step).await;
        let failure = result.expect_err("a write into a namespace that is gone");
        Ok((failure.reason == KnownReason::TargetNamespaceMissing).then_some(()))
    })
    .await
}

#[tokio::test]
async fn handles_a_kind_that_is_removed_and_reinstalled() -> Result<()> {
    let scene = Scene::new("kinds").await?;
    let admin = connect(scene.cluster, scene.cluster.admin()).await?;
    let thing = |name: &str| Step::Create {
        desired: Object {
            reference: scene.thing_ref(name),
            version: String::new(),
            body: scene.thing(name),
        },
    };
    let until = async |what: &str, step: Step, word: Option<KnownReason>| {
        wait::until(what, DEADLINE, async || {
            let word_now = admin
                .writer()
                .perform(POLICY, &step)
                .await
                .err()
                .map(|failure| failure.reason);
            Ok((word_now == word).then_some(()))
        })
        .await
    };
    scene.objects.create(scene.things("v1")).await?;
    until("a thing", thing("a"), None).await?;
    scene.uninstall_things().await?;
    until("no such kind", thing("b"), Some(KnownReason::KindMissing)).await?;
    scene.objects.create(scene.things("v1")).await?;
    until("a thing again", thing("c"), None).await
}

#[tokio::test]
async fn names_invalid_oversized_and_immutable_writes() -> Result<()> {
    let scene = Scene::new("invalid").await?;
    let target = scene.secret("s");
    let key = made(&target, |body| body["data"]["no/key"] = json!("eA=="));
    let failure = scene.refused(&key, KnownReason::WriteInvalid).await;
    assert_eq!(
        failure.message,
        "failed to create Secret invalid/s: the API server rejected the object as invalid: data[no/key] (FieldValueInvalid)"
    );
    let base64 = made(&target, |body| {
        body["data"]["kubeconfig"] = json!(format!("%{CANARY}%"));
    });
    scene.refused(&base64, KnownReason::WriteInvalid).await;
    let label = made(&target, |body| {
        body["metadata"]["labels"]["x"] = json!(format!("not a label: {CANARY}"));
    });
    scene.refused(&label, KnownReason::WriteInvalid).await;
    let kind = made(&target, |body| body["type"] = json!("kubernetes.io/tls"));
    scene.refused(&kind, KnownReason::WriteInvalid).await;
    for size in [800_000, 1_200_000, 3_000_000] {
        let large = create(&target, &CANARY.repeat(size / CANARY.len()));
        match size {
            800_000 => drop(scene.done(&large).await?),
            _ => drop(
                scene
                    .refused(
                        &create(&scene.secret("large"), &CANARY.repeat(size / CANARY.len())),
                        KnownReason::ObjectTooLarge,
                    )
                    .await,
            ),
        }
    }
    let slash = scene.secret("a/b");
    scene
        .refused(&create(&slash, CANARY), KnownReason::WriteInvalid)
        .await;

    let mut body = secret(&scene.secret("fixed"), CANARY);
    body["immutable"] = json!(true);
    let fixed = scene.foreign(body).await?;
    let failure = scene
        .refused(&update(&fixed, "two"), KnownReason::TargetImmutable)
        .await;
    assert_eq!(
        failure.message,
        "failed to update Secret invalid/fixed: it is immutable"
    );
    Ok(())
}

#[tokio::test]
async fn says_which_part_of_a_patch_is_in_place_when_its_status_is_refused() -> Result<()> {
    let scene = Scene::new("in-part").await?;
    let cluster = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": "in-part"}, "spec": {"hubAcceptsClient": false},
    });
    let cluster = scene.foreign(cluster).await?;
    let condition = json!({"type": "Ours", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let fields = [
        ("status.conditions", json!([condition])),
        ("metadata.labels.ours", json!("x")),
    ];
    let step = Step::Patch {
        reference: cluster.reference.clone(),
        version: cluster.version.clone(),
        fields: fields
            .map(|(path, value)| (path.to_owned(), value))
            .to_vec(),
    };
    // The role has no right to the subresource.
    let done = scene.agent.perform(POLICY, &step).await;
    let failure = done.result.unwrap_err();
    assert_eq!(failure.reason, KnownReason::WriteForbidden, "{failure:?}");
    let Some(Step::Patch { fields, .. }) = done.part.as_deref() else {
        panic!("{:?}", done.part)
    };
    assert_eq!(*fields, [("metadata.labels.ours".to_owned(), json!("x"))]);
    let there = scene.there(&cluster.reference).await?;
    assert_eq!(there.body["metadata"]["labels"]["ours"], json!("x"));
    assert_eq!(there.body["status"], cluster.body["status"]);
    // It is not as it was read any more: this time nothing is written.
    let done = scene.agent.perform(POLICY, &step).await;
    let reason = done.result.unwrap_err().reason;
    assert_eq!((reason, done.part), (KnownReason::WriteConflict, None));
    Ok(())
}

#[tokio::test]
async fn names_the_exceeded_quota() -> Result<()> {
    let scene = Scene::new("quota").await?;
    let none = json!({"count/secrets": "0"});
    scene
        .objects
        .create(json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": scene.namespace},
            "spec": {"hard": none}, "status": {"hard": none, "used": none},
        }))
        .await?;
    // The API server learns of quotas by a watch.
    let failure = wait::until("a full quota", DEADLINE, async || {
        let tried = scene
            .agent
            .writer()
            .perform(POLICY, &create(&scene.secret("s"), CANARY))
            .await;
        if let Ok(Some(made)) = &tried {
            drop(scene.agent.writer().perform(POLICY, &delete(made)).await);
        }
        Ok(tried.err())
    })
    .await?;
    assert_eq!(failure.reason, KnownReason::QuotaExceeded);
    assert_eq!(
        failure.message,
        "failed to create Secret quota/s: exceeded quota: few, requested: count/secrets=1, used: count/secrets=0, \
         limited: count/secrets=0"
    );
    Ok(())
}

#[tokio::test]
async fn names_an_admission_policy_without_quoting_it() -> Result<()> {
    let scene = Scene::new("policed").await?;
    for document in [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-secrets"},
            "spec": {
                "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
                "validations": [{"expression": "false", "messageExpression": "'no: ' + 'c4n4ry-of-a-value'"}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "here"},
            "spec": {
                "policyName": "no-secrets", "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}}},
            },
        }),
    ] {
        scene.objects.create(document).await?;
    }
    let failure = wait::until("the policy", DEADLINE, async || {
        let tried = scene
            .agent
            .writer()
            .perform(POLICY, &create(&scene.secret("s"), CANARY))
            .await;
        if let Ok(Some(made)) = &tried {
            drop(scene.agent.writer().perform(POLICY, &delete(made)).await);
        }
        Ok(tried.err())
    })
    .await?;
    assert_eq!(failure.reason, KnownReason::AdmissionRefused);
    assert_eq!(
        failure.message,
        "failed to create Secret policed/s: the admission policy `no-secrets` refused it"
    );
    Ok(())
}

#[tokio::test]
async fn reports_a_server_that_does_not_answer() -> Result<()> {
    let scene = Scene::new("silent").await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("https://{}", listener.local_addr()?);
    let server = scene
        .cluster
        .server()
        .trim_start_matches("https://")
        .to_owned();
    // Everything is forwarded to the API server, until the task is dropped with its listener and connections.
    let between = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = TcpStream::connect(&server).await.unwrap();
            connections
                .spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    let agent = scene.cluster.user("agent", &[])?;
    let cut = Kubernetes::connect(options(scene.cluster, &agent, &address)?).await?;
    assert!(
        cut.writer()
            .perform(POLICY, &create(&scene.secret("first"), CANARY))
            .await
            .is_ok()
    );
    between.abort();
    assert!(between.await.is_err_and(|error| error.is_cancelled()));
    let gone = wait::until("the end of the connection", DEADLINE, async || {
        // The first request may still use the connection that is being closed.
        let failure = cut
            .writer()
            .perform(POLICY, &create(&scene.secret("s"), CANARY))
            .await
            .unwrap_err();
        assert_eq!(
            failure.reason,
            KnownReason::ServerUnavailable,
            "{}",
            failure.message
        );
        Ok(failure
            .message
            .ends_with("connection refused")
            .then_some(failure))
    });
    let failure = gone.await?;
    assert_eq!(failure.reason, KnownReason::ServerUnavailable);
    assert_eq!(
        failure.message,
        "failed to create Secret silent/s: the API server cannot be reached: connection refused"
    );
    Ok(())
}

#[tokio::test]
async fn read_only_shows_the_write_and_sends_no_request() -> Result<()> {
    let scene = Scene::new("read-only").await?;
    let target = scene.secret("s");
    let there = scene.done(&create(&target, "one")).await?;
    let agent = scene.cluster.user("read-only-agent", &[])?;
    let options = options(scene.cluster, &agent, &scene.cluster.server())?;
    let reader = Kubernetes::connect(KubernetesOptions {
        read_only: true,
        ..options
    })
    .await?;
    for (step, says) in [
        (
            create(&scene.secret("t"), CANARY),
            "would create Secret read-only/t",
        ),
        (
            update(&there, CANARY),
            "would update Secret read-only/s: data.kubeconfig",
        ),
        (
            delete(&there),
            "would delete Secret read-only/s: its source was deleted",
        ),
        (
            taint(&there, json!([])),
            "would patch Secret read-only/s: spec.taints",
        ),
    ] {
        let failure = reader.writer().perform(POLICY, &step).await.unwrap_err();
        assert_eq!(
            (failure.reason, failure.message.as_str()),
            (KnownReason::ReadOnly, says)
        );
    }
    let asked =
        |line: &transom_test_cluster::Line| line.user == "read-only-agent" && line.target.is_some();
    assert!(!scene.cluster.audit().lines()?.iter().any(asked));
    assert_eq!(scene.there(&target).await?.version, there.version);
    Ok(())
}
