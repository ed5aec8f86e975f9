//! Values that a real API server keeps in a form of its own: quantities, and lists to whose elements it adds defaults.
//! That is no webhook's doing, and nothing is written again.

use crate::stage::{DEADLINE, MANAGED, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use transom_e2e::fixture;
use transom_test_cluster::wait;

const QUOTA: (&str, &str) = ("v1", "ResourceQuota");
const RANGE: (&str, &str) = ("v1", "LimitRange");

/// Makes a quota and a range, and writes the limits of a range that others made.
fn put_policy(folder: &Path) -> Result<PathBuf> {
    let range = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1000m"}}]}});
    let quota = json!({"spec": {"hard": {"limits.cpu": "1000m"}}});
    let made = |kind: &str, name: &str, content: &Value, others: bool| {
        json!({"apiVersion": "v1", "kind": kind,
        "namespace": "default", "name": name, "content": content.to_string(), "others": others})
    };
    let verbs = json!(["create", "update", "delete"]);
    let granted = |kind: &str, name: &str, field: &str, verbs: &Value| {
        json!({"kind": kind, "namespace": "default",
        "name": name, "verbs": verbs, "fields": [field]})
    };
    let spec = json!({
        "primary": {"apiVersion": MANAGED.0, "kind": MANAGED.1},
        "grant": {"write": [
            granted("ResourceQuota", "normal", "spec", &verbs),
            granted("LimitRange", "normal", "spec", &verbs),
            granted("LimitRange", "theirs", "spec.limits", &json!(["patch"])),
        ]},
    });
    let settings = json!({"makes": [
        made("ResourceQuota", "normal", &quota, false),
        made("LimitRange", "normal", &range, false),
        made("LimitRange", "theirs", &range, true),
    ]});
    fixture::put_policy(folder, "normal", "fixture-desired", &settings, spec)
}

async fn wait_for_cpu(stage: &Stage, cpu: &str) -> Result<()> {
    wait::until("the quota", DEADLINE, async || {
        let quota = stage.get(QUOTA, Some("default"), "normal").await?;
        let hard = quota.unwrap_or_default()["spec"]["hard"].take();
        Ok((hard["limits.cpu"] == cpu).then_some(()))
    })
    .await
}

#[test]
fn what_the_server_keeps_in_another_form_is_no_change_and_is_not_written_again() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-normal");
        let file = put_policy(&folder)?;
        let words = policies_at(&file)?;
        stage.grant_exactly(&words).await?;
        let theirs = json!({"apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": "theirs", "namespace": "default"},
            "spec": {"limits": [{"type": "Pod", "max": {"cpu": "7"}}]}});
        stage.objects().create(theirs).await?;
        stage.managed("one").await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        agent.wait_for("ManagedCluster one", "Applied InSync")?;
        wait_for_cpu(stage, "1").await?;
        let range = stage.get(RANGE, Some("default"), "theirs").await?;
        let range = range.context("no range")?["spec"]["limits"][0].take();
        ensure!(
            range["max"]["cpu"] == "1" && range["default"]["cpu"] == "1",
            "{range}"
        );
        // Each change of others by hand has everything reconciled again.
        for cpu in ["5", "1001m"] {
            let by_hand = json!({"spec": {"hard": {"limits.cpu": cpu}}});
            stage
                .patch(QUOTA, Some("default"), "normal", by_hand)
                .await?;
            wait_for_cpu(stage, "1").await?;
        }
        agent.wait_for("ManagedCluster one", "Applied InSync")?;
        let log = agent.stop()?;
        let writes = stage.writes(mark).await?;
        let of = |what: &str| writes.iter().filter(|write| write.ends_with(what)).count();
        ensure!(of("resourcequotas default/normal") == 3, "{writes:#?}");
        ensure!(of("limitranges default/normal") == 1, "{writes:#?}");
        ensure!(of("limitranges default/theirs") == 1, "{writes:#?}");
        ensure!(
            !log.contains("AdmissionChanged"),
            "told as a webhook's doing"
        );
        for (kind, name) in [(QUOTA, "normal"), (RANGE, "normal"), (RANGE, "theirs")] {
            stage.delete(kind, Some("default"), name).await?;
        }
        stage.nothing_denied(mark).await
    })
}
