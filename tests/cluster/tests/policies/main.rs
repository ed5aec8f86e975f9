//! The kind `FleetPolicy` on a real API server: it accepts and refuses the same policies as a directory, and a policy
//! and its status read back unchanged. Runs no agent.

#![expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]

mod accepted;
mod refused;

use accepted::{accepted, filled, of_status, shipped};
use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use refused::REFUSED;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};
use transom_api::status::{
    CandidateStatus, Condition, ConditionStatus, ConditionType, EffectStatus, PolicyStatus,
    PrimaryCounts, PrimaryStatus, RevisionStatus,
};
use transom_api::{API_VERSION, State};
use transom_core::policy::{check, manifest};
use transom_test_cluster::{Cluster, Objects, Shared, wait};

/// The deadline for short waits.
const DEADLINE: Duration = Duration::from_secs(300);
/// The path of policies.
const PATH: &str = "/apis/transom.dev/v1alpha1/fleetpolicies";
const CRD: &str = include_str!("../../../../host/deploy/base/crd.yaml");

/// The cluster without policies, for one test at a time: a policy belongs to no namespace.
async fn cluster() -> Result<(
    MutexGuard<'static, ()>,
    &'static Cluster,
    Api<DynamicObject>,
)> {
    static CLUSTER: Shared = Shared::new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let cluster = CLUSTER.cluster(async |cluster| {
        cluster.objects().apply_manifest(CRD).await?;
        cluster.wait_for_crd("fleetpolicies.transom.dev").await
    })?;
    let objects = Objects::new(cluster.client(cluster.admin()).await?);
    // A kind is served a moment before discovery lists it.
    let api = wait::until("the kind FleetPolicy", DEADLINE, async || {
        Ok(objects.api(API_VERSION, "FleetPolicy", None).await.ok())
    });
    let api = api.await?;
    let all = ListParams::default();
    // A moment longer the storage of a new kind is still initialized, and answers that there are too many requests.
    wait::until("the storage of the kind", DEADLINE, async || {
        let gone = api.delete_collection(&DeleteParams::default(), &all).await;
        Ok(gone.ok())
    })
    .await?;
    wait::until("the end of earlier policies", DEADLINE, async || {
        let listed = api.list(&all).await.ok();
        Ok(listed.filter(|listed| listed.items.is_empty()).map(drop))
    })
    .await?;
    Ok((turn, cluster, api))
}

/// Creates like `kubectl`: the server refuses a field that the schema does not know.
async fn create(api: &Api<DynamicObject>, policy: &Value) -> Result<Value, String> {
    let request =
        Request::new(PATH).create(&PostParams::default(), policy.to_string().into_bytes());
    let mut request = request.map_err(|error| format!("not checked: {error}"))?;
    *request.uri_mut() = format!("{PATH}?fieldValidation=Strict")
        .parse()
        .map_err(|error| format!("not checked: {error}"))?;
    match api.clone().into_client().request(request).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Err(status.message),
        Err(error) => Err(format!("not checked: {error}")),
    }
}

#[tokio::test]
async fn accepts_what_a_directory_accepts_and_reads_it_back_equal() -> Result<()> {
    let (_turn, _, api) = cluster().await?;
    for policy in accepted()? {
        let written = manifest::parse(&policy)?;
        check::policy(written.clone())?;
        let created = create(&api, &policy).await;
        let created =
            created.map_err(|why| anyhow::anyhow!("{}: {why}", policy["metadata"]["name"]))?;
        let read = manifest::parse(&created)?;
        assert_eq!(read, written, "{}", policy["metadata"]["name"]);
        check::policy(read)?;
    }
    Ok(())
}

/// A policy with another value at a path.
fn changed(mut policy: Value, place: &str, value: &str) -> Result<Value> {
    let value: Value = serde_json::from_str(value)?;
    let (parent, name) = place.rsplit_once('/').context("a place has a name")?;
    match policy
        .pointer_mut(parent)
        .with_context(|| format!("there is no {parent}"))?
    {
        Value::Object(map) if value.is_null() => drop(map.remove(name)),
        Value::Object(map) => drop(map.insert(name.to_owned(), value)),
        Value::Array(list) => match list.get_mut(name.parse::<usize>()?) {
            Some(item) => *item = value,
            None => list.push(value),
        },
        other => bail!("{other} is no place to set something"),
    }
    Ok(policy)
}

#[tokio::test]
async fn refuses_what_a_directory_refuses() -> Result<()> {
    let (_turn, _, api) = cluster().await?;
    let (kubeconfig, taints, objects) = (
        shipped("external-managed-kubeconfig")?,
        shipped("built-in-taints")?,
        shipped("auto-import")?,
    );
    let ([conditions, verdicts, others], filled) = (of_status()?, filled()?);
    let mut wrong = Vec::new();
    assert_eq!(REFUSED.trim().lines().count(), 150);
    for case in REFUSED.trim().lines() {
        let mut words = case.splitn(3, ' ');
        let mut word = || words.next().with_context(|| format!("half a case: {case}"));
        let (which, place, value) = (word()?, word()?, word()?);
        let policy = match which {
            "k" => &kubeconfig,
            "t" => &taints,
            "s" => &conditions,
            "v" => &verdicts,
            "f" => &others,
            "h" => &filled,
            "o" => &objects,
            other => bail!("no policy has the letter {other}"),
        };
        let policy = changed(policy.clone(), place, value)?;
        let here = manifest::parse(&policy).and_then(check::policy);
        let there = create(&api, &policy).await;
        if here.is_ok()
            || !there
                .as_ref()
                .is_err_and(|why| !why.starts_with("not checked"))
        {
            wrong.push(format!(
                "{place} = {value}: {:?} here, {there:?} there",
                here.map(|policy| policy.name)
            ));
        }
        let name = policy["metadata"]["name"].as_str().unwrap_or_default();
        if there.is_ok() {
            api.delete(name, &DeleteParams::default()).await?;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[tokio::test]
async fn nulls_are_absent_fields_for_both() -> Result<()> {
    let (_turn, _, api) = cluster().await?;
    let mut policy = shipped("external-managed-kubeconfig")?;
    policy["spec"]["suspend"] = json!(null);
    policy["spec"]["guests"]["decide"]["digest"] = json!(null);
    policy["spec"]["grant"]["read"][0]["cluster"] = json!(null);
    let created = create(&api, &policy).await.map_err(anyhow::Error::msg)?;
    assert_eq!(manifest::parse(&created)?, manifest::parse(&policy)?);
    assert_eq!(
        created.pointer("/spec/guests/trigger/settings/availableReason"),
        Some(&Value::Null)
    );
    Ok(())
}

#[tokio::test]
async fn a_status_reads_back_equal_and_is_displayed() -> Result<()> {
    let (_turn, cluster, api) = cluster().await?;
    let policy = shipped("built-in-taints")?;
    create(&api, &policy).await.map_err(anyhow::Error::msg)?;
    let time = "2026-11-21T08:00:00Z".to_owned();
    let condition = |kind, status, reason: &str| Condition {
        kind,
        status,
        observed_generation: Some(1),
        reason: reason.to_owned(),
        message: "told".to_owned(),
        last_transition_time: time.clone(),
    };
    let digest = format!("sha256:{}", "7".repeat(64));
    let status = PolicyStatus {
        observed_generation: Some(1),
        revision: Some(RevisionStatus {
            id: "7d2d1ffd62".to_owned(),
            generation: Some(1),
            decide: digest.clone(),
            trigger: Some(digest.clone()),
        }),
        candidate: Some(CandidateStatus {
            id: "9c61603aed".to_owned(),
            decide: digest.clone(),
            trigger: None,
            gate: "Limits".to_owned(),
            reason: "LimitReached".to_owned(),
            primaries: Some(3),
            changed: Some(2),
            effects: vec![EffectStatus {
                effect: "ManagedCluster spec.taints example.com/x removed".to_owned(),
                count: 2,
            }],
            approve: Some(digest),
        }),
        counts: PrimaryCounts {
            total: 3,
            applied: 1,
            held: 0,
            waiting: 1,
            failed: 1,
        },
        top_failures: vec![PrimaryStatus {
            namespace: None,
            name: "c1".to_owned(),
            state: State::Failed,
            reason: "GuestTrapped".to_owned(),
            message: "told".to_owned(),
            since: time.clone(),
            failing_since: None,
            expires: None,
        }],
        conditions: vec![
            condition(ConditionType::Ready, ConditionStatus::False, "LimitReached"),
            condition(
                ConditionType::Loaded,
                ConditionStatus::False,
                "LimitReached",
            ),
            condition(
                ConditionType::Healthy,
                ConditionStatus::False,
                "GuestTrapped",
            ),
        ],
        ..PolicyStatus::default()
    };
    let patch = json!({"apiVersion": API_VERSION, "kind": "FleetPolicy", "metadata": {"name": "built-in-taints"}, "status": status});
    let written = api
        .patch_status(
            "built-in-taints",
            &PatchParams::apply("test").force(),
            &Patch::Apply(&patch),
        )
        .await?;
    let read: PolicyStatus = serde_json::from_value(written.data["status"].clone())?;
    assert_eq!(read, status);
    let shown = |name: &str| {
        let mut kubectl = cluster.kubectl(cluster.admin())?;
        let text = String::from_utf8(kubectl.args(["get", name]).output()?.stdout)?;
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let lines: Vec<Vec<String>> = text.lines().map(words).collect();
        let [head, row] = lines.as_slice() else {
            bail!("{lines:?}");
        };
        let all = head.iter().cloned().zip(row.iter().cloned());
        anyhow::Ok(all.collect::<Vec<(String, String)>>())
    };
    for name in ["transom", "fpol"] {
        let mut columns = shown(name)?;
        let age = columns.pop().context("no column")?;
        ensure!(age.0 == "AGE", "{age:?}");
        // Without another kind of the category the name is unique.
        let of = "fleetpolicy.transom.dev/";
        let named = columns.remove(0).1;
        ensure!(named.trim_start_matches(of) == "built-in-taints", "{named}");
        let expected = [
            ("PRIMARY", "ManagedCluster"),
            ("READY", "False"),
            ("REASON", "LimitReached"),
            ("ACTIVE", "7d2d1ffd62"),
            ("CANDIDATE", "9c61603aed"),
            ("GATE", "Limits"),
            ("APPLIED", "1"),
            ("WAITING", "1"),
            ("HELD", "0"),
            ("FAILED", "1"),
        ]
        .map(|(head, word)| (head.to_owned(), word.to_owned()));
        assert_eq!(columns, expected, "{name}");
    }
    let _: &Map<String, Value> = written.data["spec"].as_object().context("the spec stays")?;
    Ok(())
}

#[tokio::test]
async fn applies_one_more_role_and_replaces_write_grants_as_one_list() -> Result<()> {
    let (_turn, cluster, api) = cluster().await?;
    create(&api, &shipped("built-in-taints")?)
        .await
        .map_err(anyhow::Error::msg)?;
    create(&api, &shipped("external-managed-kubeconfig")?)
        .await
        .map_err(anyhow::Error::msg)?;
    let file = cluster.folder().join("more.yaml");
    let apply = |name: &str, spec: Value| -> Result<String> {
        let policy = json!({"apiVersion": API_VERSION, "kind": "FleetPolicy", "metadata": {"name": name}, "spec": spec});
        std::fs::write(&file, policy.to_string())?;
        let mut kubectl = cluster.kubectl(cluster.admin())?;
        let output = kubectl
            .args(["apply", "--server-side", "--field-manager", "other", "-f"])
            .arg(&file)
            .output()?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(name.to_owned())
    };
    // Roles are distinguished by name.
    let more = json!({"role": "more", "kind": "ConfigMap", "namespace": "a", "name": "b"});
    let name = apply(
        "external-managed-kubeconfig",
        json!({"grant": {"read": [more]}}),
    )?;
    let roles = |policy: &DynamicObject| -> Vec<String> {
        let read = policy
            .data
            .pointer("/spec/grant/read")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        read.iter()
            .filter_map(|grant| grant["role"].as_str().map(str::to_owned))
            .collect()
    };
    let mut expected: Vec<String> = shipped(&name)?["spec"]["grant"]["read"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|grant| grant["role"].as_str().map(str::to_owned))
        .collect();
    expected.push("more".to_owned());
    assert_eq!(roles(&api.get(&name).await?), expected);
    // Nothing distinguishes write grants, especially two of one kind: a change must list all of them.
    let write = json!([{"target": "primary", "verbs": ["patch"], "fields": ["spec.taints"], "taintKeys": ["a.example/b"]}]);
    let whole = apply("built-in-taints", json!({"grant": {"write": write}}));
    ensure!(
        whole.is_err_and(|error| error.to_string().contains("conflict")),
        "a list was taken from its owner"
    );
    Ok(())
}
