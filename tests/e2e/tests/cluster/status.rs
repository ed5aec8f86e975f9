//! A guest of the objects world that writes the status of its primary, on a real API server, with exactly the
//! permissions that `transom rbac` prints: conditions among those of others, and verdicts on requests for certificates.

use crate::access::answers;
use crate::inputs::{REQUEST, ask_for_certificate};
use crate::stage::{DEADLINE, MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use transom_e2e::agent::Agent;
use transom_e2e::fixture;
use transom_test_cluster::wait;

const LABEL: &str = "example.com/seen";

/// Writes the policy of a guest that gives its primaries this content.
fn put_policy(
    folder: &Path,
    primary: (&str, &str),
    grant: &Value,
    content: &Value,
) -> Result<PathBuf> {
    let mut write = json!({"target": "primary", "verbs": ["patch"]});
    let fields = grant.as_object().context("the grant is no map")?.clone();
    write
        .as_object_mut()
        .context("the grant is no map")?
        .extend(fields);
    let spec = json!({
        "primary": {"apiVersion": primary.0, "kind": primary.1},
        "grant": {"write": [write]},
    });
    let settings = json!({"content": content.to_string()});
    fixture::put_policy(folder, "status", "fixture-desired", &settings, spec)
}

fn condition(kind: &str, status: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "Told", "message": message})
}

/// Waits until an object has a condition with this status and message; gives its time, and the types of all.
pub(crate) async fn wait_for_condition(
    stage: &Stage,
    kind: (&str, &str),
    name: &str,
    wanted: &Value,
) -> Result<(String, Vec<String>)> {
    let mut last = Value::Null;
    let came = wait::until("a condition", DEADLINE, async || {
        let object = stage.get(kind, None, name).await?.unwrap_or_default();
        last = object["status"]["conditions"].clone();
        let all = last.as_array().into_iter().flatten();
        let types = all.clone().map(|one| text(one, "type")).collect();
        let fields = ["type", "status", "reason", "message"];
        let says = |one: &&Value| fields.iter().all(|field| one[*field] == wanted[*field]);
        let found = all.clone().find(says);
        Ok(found.map(|one| (text(one, "lastTransitionTime"), types)))
    });
    came.await
        .with_context(|| format!("{name}: {last} is to have {wanted}"))
}

/// Waits until a revision is refused, because its answers hold what is not granted.
fn wait_for_refusal(agent: &Agent, what: &str) -> Result<()> {
    let is_refusal = |line: &str| {
        let words = ["refused: ", "ValueNotGranted", what];
        words.iter().all(|word| line.contains(word)).then_some(())
    };
    agent.wait(what, || agent.log().ok()?.lines().find_map(is_refusal))
}

fn text(condition: &Value, field: &str) -> String {
    condition[field].as_str().unwrap_or_default().to_owned()
}

#[test]
fn conditions_are_set_among_those_of_others_and_their_times_move_with_the_status() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-status");
        let grant = json!({"fields": [format!("metadata.labels[\"{LABEL}\"]"), "status.conditions"], "conditions": ["Ours"]});
        let put = |label: &str, conditions: &[Value]| {
            let content = json!({"metadata": {"labels": {LABEL: label}}, "status": {"conditions": conditions}});
            put_policy(&folder, MANAGED, &grant, &content)
        };
        let (first, second) = (
            condition("Ours", "True", "one"),
            condition("Ours", "True", "two"),
        );
        let file = put("one", std::slice::from_ref(&first))?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        stage.managed("one").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let (then, types) = wait_for_condition(stage, MANAGED, "one", &first).await?;
        ensure!(!then.is_empty() && types.len() > 1, "{then}, {types:?}");
        // The label went to the object, and the condition to its subresource, each in one request.
        let object = stage.get(MANAGED, None, "one").await?.context("gone")?;
        ensure!(object["metadata"]["labels"][LABEL] == "one", "{object}");
        let writes = stage.changing(mark).await?;
        let ours = |write: &&String| write.contains("managedclusters");
        ensure!(writes.iter().filter(ours).count() == 2, "{writes:?}");
        // Another message moves no time; another status does, also one that somebody else set.
        put("two", std::slice::from_ref(&second))?;
        let (same, others) = wait_for_condition(stage, MANAGED, "one", &second).await?;
        ensure!(same == then && others == types, "{same}: {then}");
        let mut theirs = object["status"].clone();
        for one in theirs["conditions"].as_array_mut().into_iter().flatten() {
            if one["type"] == "Ours" {
                one["status"] = "False".into();
                one["lastTransitionTime"] = "2026-01-01T00:00:00Z".into();
            }
        }
        stage.put_status(MANAGED, None, "one", &theirs).await?;
        let (moved, _) = wait_for_condition(stage, MANAGED, "one", &second).await?;
        ensure!(moved.as_str() >= then.as_str(), "{moved}: {then}");
        // What is not granted never becomes active, and what is granted goes when the answer says so.
        put("two", &[condition("Theirs", "True", "no")])?;
        wait_for_refusal(&agent, "the condition `Theirs`")?;
        put("two", &[json!({"type": "Ours", "status": null})])?;
        wait::until("the condition goes", DEADLINE, async || {
            let object = stage.get(MANAGED, None, "one").await?.unwrap_or_default();
            let mut all = object["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten();
            Ok((!all.any(|one| one["type"] == "Ours")).then_some(()))
        })
        .await?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn a_label_that_is_written_before_its_status_is_refused_counts_towards_the_limit() -> Result<()> {
    const FLEET: usize = 6;
    const LIMIT: usize = 2;
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-refused-status");
        let grant = json!({"fields": [format!("metadata.labels[\"{LABEL}\"]"), "status.conditions"], "conditions": ["Ours"]});
        let content = json!({"metadata": {"labels": {LABEL: "one"}},
            "status": {"conditions": [condition("Ours", "True", "m")]}});
        let file = put_policy(&folder, MANAGED, &grant, &content)?;
        let mut policy: Value = serde_json::from_slice(&fs::read(&file)?)?;
        policy["spec"]["limits"] = json!({"elementsAdded": {"count": LIMIT}});
        fs::write(&file, policy.to_string())?;
        let words = policies_at(&file)?;
        stage.revoke().await?;
        let status = "managedclusters/status";
        stage.grant_but(&words, status, &["patch"]).await?;
        let names: Vec<String> = (0..FLEET).map(|index| format!("refused-{index}")).collect();
        for name in &names {
            stage.managed(name).await?;
        }
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let ended = |state: &str| {
            let of = |name: &&String| agent.state(&format!("ManagedCluster {name}"));
            let is = |name: &&String| of(name).is_ok_and(|now| now.as_deref() == Some(state));
            names.iter().filter(is).count()
        };
        agent.wait("the limit", || {
            let all = [ended("Failed WriteForbidden"), ended("Held LimitReached")];
            (all == [LIMIT, FLEET - LIMIT]).then_some(())
        })?;
        // Each is tried again. What is withheld is looked at once a second meanwhile.
        wait::until("more attempts", DEADLINE, async || {
            let tried = answers(stage, mark, "managedclusters", "status").await?;
            Ok((tried.len() >= 4 * LIMIT).then_some(()))
        })
        .await?;
        let clusters = stage.list(MANAGED).await?;
        let clusters = clusters.iter();
        let labelled = clusters.filter(|one| one.labels().contains_key(LABEL));
        let labelled = labelled.count();
        ensure!(labelled == LIMIT, "{labelled} are labelled");
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn requests_are_approved_for_the_granted_signers_only() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-verdicts");
        let signer = "kubernetes.io/kube-apiserver-client";
        let grant = json!({"fields": ["status.conditions"], "conditions": ["Approved"], "signers": [signer]});
        let approved = condition("Approved", "True", "as it should be");
        let put = |verdict: &Value| {
            let content = json!({"status": {"conditions": [verdict]}});
            put_policy(&folder, REQUEST, &grant, &content)
        };
        let file = put(&approved)?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        for (user, signer) in [
            ("verdict-one", signer),
            ("verdict-two", "example.com/other"),
        ] {
            ask_for_certificate(stage, user, "askers", signer).await?;
        }
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let (then, types) = wait_for_condition(stage, REQUEST, "verdict-one", &approved).await?;
        ensure!(
            !then.is_empty() && types == ["Approved"],
            "{then}, {types:?}"
        );
        agent.wait_for(
            "CertificateSigningRequest verdict-two",
            "Failed ValueNotGranted",
        )?;
        let two = stage.get(REQUEST, None, "verdict-two").await?;
        let conditions = two.context("gone")?["status"]["conditions"].take();
        ensure!(conditions.is_null(), "{conditions}");
        // No guest denies where that is not granted.
        put(&condition("Denied", "True", "no"))?;
        wait_for_refusal(&agent, "the condition `Denied`")?;
        agent.stop()?;
        for name in ["verdict-one", "verdict-two"] {
            stage.delete(REQUEST, None, name).await?;
        }
        stage.nothing_denied(mark).await
    })
}
