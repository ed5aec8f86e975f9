//! Policies as objects of the API server: loaded, refused, fixed and removed, and what their status reports. Uses no
//! policy in a file.

use crate::objects::CLUSTERS;
use crate::stage::{DEADLINE, HOSTED, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use transom_e2e::program;
use transom_test_cluster::wait;

/// API version and kind of a policy.
pub(crate) const POLICY: (&str, &str) = (transom_api::API_VERSION, transom_api::KIND);
const CRD: &str = include_str!("../../../../host/deploy/base/crd.yaml");
const CRD_NAME: &str = "fleetpolicies.transom.dev";
const SHIPPED: &str = include_str!("../../../../policies/external-managed-kubeconfig/policy.yaml");
const TAINTS: &str = include_str!("../../../../policies/built-in-taints/policy.yaml");
const NAME: &str = "external-managed-kubeconfig";

impl Stage {
    /// Lifts the limits of a policy object.
    pub(crate) async fn lift_limits(&self, policy: &str) -> Result<()> {
        let unlimited = json!({"spec": {"limits": program::unlimited()}});
        self.patch(POLICY, None, policy, unlimited).await
    }

    /// Installs the kind `FleetPolicy`, and waits until it is served.
    pub(crate) async fn install_crd_of_policies(&self) -> Result<()> {
        self.objects().apply_manifest(CRD).await?;
        self.cluster.wait_for_crd(CRD_NAME).await?;
        self.list(POLICY).await.map(drop)
    }

    /// Installs the bundled policies as objects.
    pub(crate) async fn install_policies(&self) -> Result<()> {
        self.install_crd_of_policies().await?;
        self.objects().apply_manifest(SHIPPED).await?;
        self.objects().apply_manifest(TAINTS).await
    }

    /// Whether the kind is installed.
    pub(crate) async fn has_policies(&self) -> Result<bool> {
        let kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        Ok(self.get(kind, None, CRD_NAME).await?.is_some())
    }

    /// The status of the policy about HostedClusters.
    pub(crate) async fn policy_status(&self) -> Result<Value> {
        let policy = self.get(POLICY, None, NAME).await?;
        Ok(policy.context("the policy is gone")?["status"].take())
    }

    /// Waits until the status of the policy about HostedClusters is as expected, and returns it.
    pub(crate) async fn wait_for_status(
        &self,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let mut last = Value::Null;
        let found = wait::until(what, DEADLINE, async || {
            last = self.policy_status().await?;
            Ok(wanted(&last).then(|| last.clone()))
        })
        .await;
        found.with_context(|| format!("the last status was {last}"))
    }
}

/// Status and reason of a condition.
fn condition<'a>(status: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let all = status["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == kind);
    let text = |name: &str| {
        found
            .and_then(|found| found[name].as_str())
            .unwrap_or_default()
    };
    (text("status"), text("reason"))
}

fn loaded(status: &Value, generation: i64) -> bool {
    condition(status, "Loaded") == ("True", "Loaded") && status["observedGeneration"] == generation
}

#[test]
fn a_policy_object_reports_its_state_in_its_status() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("one", true).await?;
        stage.ready("late", false).await?;
        // Neither the kind nor a policy exists yet; the agent finds both when they appear.
        let agent = stage.start_agent(&["--policy-objects"])?;
        stage.install_crd_of_policies().await?;
        stage.objects().apply_manifest(SHIPPED).await?;
        stage.wait_for_right("one", 6443).await?;
        let status = stage
            .wait_for_status("a status with both primaries", |status| {
                loaded(status, 1)
                    && status["counts"]["applied"] == 1
                    && status["counts"]["waiting"] == 1
            })
            .await?;
        ensure!(
            status["counts"]["total"] == 2 && condition(&status, "Healthy").0 == "True",
            "{status}"
        );
        ensure!(
            condition(&status, "Watched") == ("True", "InSync"),
            "{status}"
        );
        ensure!(
            status["waiting"][0]["reason"] == "NamespaceMissing"
                && status["waiting"][0]["count"] == 1,
            "{status}"
        );
        let digest = status["revision"]["decide"].as_str().unwrap_or_default();
        ensure!(
            digest.starts_with("sha256:") && status["revision"]["generation"] == 1,
            "{status}"
        );
        stage.objects().namespace("klusterlet-late").await?;
        stage
            .wait_for_status("a status without waiting", |status| {
                status["counts"]["applied"] == 2
            })
            .await?;
        refused_and_mended(stage).await?;
        stage.delete(POLICY, None, NAME).await?;
        agent.wait_for_lines(1, &["policy removed"])?;
        ensure!(
            stage.made("one").await?.is_some(),
            "what was made went with the policy"
        );
        let said = agent.stop()?;
        ensure!(
            said.contains("recovered"),
            "no line about the recovered policy: {said}"
        );
        Ok(())
    })
}

/// The status reports a revision that cannot be loaded while the previous one stays active, and then the fix.
async fn refused_and_mended(stage: &Stage) -> Result<()> {
    let component = |name: &str| json!({"spec": {"guests": {"decide": {"component": name}}}});
    stage
        .patch(POLICY, None, NAME, component("builtin:nobody"))
        .await?;
    let status = stage
        .wait_for_status("a refusal", |status| {
            condition(status, "Loaded") == ("False", "ComponentNotFound")
        })
        .await?;
    ensure!(
        status["observedGeneration"] == 2 && status["revision"]["generation"] == 1,
        "{status}"
    );
    ensure!(
        condition(&status, "Stalled") == ("True", "ComponentNotFound"),
        "{status}"
    );
    stage.move_port("one", 7443).await?;
    stage.wait_for_right("one", 7443).await?;
    stage
        .patch(POLICY, None, NAME, component("builtin:kubeconfig"))
        .await?;
    stage
        .wait_for_status("a mended policy", |status| loaded(status, 3))
        .await?;
    // A removed status is written again.
    stage.put_status(POLICY, None, NAME, &json!({})).await?;
    stage
        .wait_for_status("the status again", |status| {
            loaded(status, 3) && status["counts"]["total"] == 2
        })
        .await?;
    let settings = json!({"spec": {"guests": {"decide": {"settings": {"port": ["https"]}}}}});
    stage.patch(POLICY, None, NAME, settings).await?;
    let refused = |status: &Value| condition(status, "Loaded") == ("False", "SettingsRefused");
    let status = stage.wait_for_status("refused settings", refused).await?;
    ensure!(
        condition(&status, "Stalled") == ("True", "SettingsRefused"),
        "{status}"
    );
    let message = status["conditions"].to_string();
    ensure!(
        message.contains("settings.port: is not a mapping"),
        "{message}"
    );
    stage
        .patch(
            POLICY,
            None,
            NAME,
            json!({"spec": {"guests": {"decide": {"settings": {"port": null}}}}}),
        )
        .await?;
    stage
        .wait_for_status("a policy mended again", |status| loaded(status, 5))
        .await?;
    Ok(())
}

/// Creates a hosted cluster that is not available.
async fn unavailable(stage: &Stage, name: &str) -> Result<()> {
    stage.ready(name, true).await?;
    let mut status = stage
        .get(HOSTED, Some(CLUSTERS), name)
        .await?
        .context("no HostedCluster")?["status"]
        .take();
    status["conditions"][0]["status"] = json!("False");
    stage
        .put_status(HOSTED, Some(CLUSTERS), name, &status)
        .await
}

#[test]
fn rejects_policy_objects_that_name_host_files_and_hides_if_they_exist() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.ready("one", true).await?;
        let components = tempfile::tempdir()?;
        std::os::unix::fs::symlink("/etc/passwd", components.path().join("link.wasm"))?;
        let folder = components
            .path()
            .to_str()
            .context("a path that is no text")?;
        let agent = stage.start_agent(&["--policy-objects", "--components", folder])?;
        stage.wait_for_right("one", 6443).await?;
        let mut said = BTreeSet::new();
        for (at, place) in [
            "/",
            "/etc/shadow",
            "/etc/nothing-is-here",
            "..",
            "../../../etc/shadow",
            "link.wasm",
        ]
        .into_iter()
        .enumerate()
        {
            let component = json!({"spec": {"guests": {"decide": {"component": place}}}});
            stage.patch(POLICY, None, NAME, component).await?;
            let generation = i64::try_from(at)? + 2;
            let status = stage
                .wait_for_status(place, |status| {
                    condition(status, "Loaded") == ("False", "ComponentNotAllowed")
                        && status["observedGeneration"] == generation
                })
                .await?;
            let conditions = status["conditions"].as_array().context("no conditions")?;
            let loaded = conditions
                .iter()
                .find(|one| one["type"] == "Loaded")
                .context("no condition")?;
            // Except the path itself, which is in backticks.
            said.insert(
                loaded["message"]
                    .as_str()
                    .unwrap_or_default()
                    .split('`')
                    .step_by(2)
                    .collect::<String>(),
            );
        }
        ensure!(
            said.len() == 1 && said.iter().all(|text| !text.contains("sha256")),
            "{said:?}"
        );
        // Everything else keeps working.
        stage.move_port("one", 7443).await?;
        stage.wait_for_right("one", 7443).await?;
        agent.stop()?;
        Ok(())
    })
}

#[test]
fn a_status_counts_primaries_explains_waiting_and_lists_top_failures() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("right", true).await?;
        for name in ["homeless-0", "homeless-1"] {
            stage.ready(name, false).await?;
        }
        unavailable(stage, "unavailable").await?;
        for number in 0..12 {
            let name = format!("broken-{number:02}");
            stage.ready(&name, true).await?;
            let none = json!({"data": {"kubeconfig": null, "other": "eA=="}});
            stage
                .patch(
                    SECRET,
                    Some(CLUSTERS),
                    &format!("{name}-admin-kubeconfig"),
                    none,
                )
                .await?;
        }
        stage.install_policies().await?;
        let agent = stage.start_agent(&["--policy-objects"])?;
        let status = stage
            .wait_for_status("every primary in it", |status| {
                status["counts"]["total"] == 16
            })
            .await?;
        let counts = json!({"total": 16, "applied": 1, "held": 1, "waiting": 2, "failed": 12});
        ensure!(status["counts"] == counts, "{status}");
        let waiting: Vec<Value> = status["waiting"].as_array().cloned().unwrap_or_default();
        let about = |it: &Value| {
            json!([
                it["state"],
                it["reason"],
                it["count"],
                it["expectedSeconds"],
                it["overdue"]
            ])
        };
        ensure!(
            waiting.iter().map(about).collect::<Vec<_>>()
                == [
                    json!(["Waiting", "NamespaceMissing", 2, 900, 0]),
                    json!(["Held", "NotAvailable", 1, 3600, 0])
                ],
            "{status}"
        );
        let worst = status["topFailures"]
            .as_array()
            .context("no top failures")?;
        let names: Vec<&str> = worst.iter().filter_map(|it| it["name"].as_str()).collect();
        ensure!(
            names
                == (0..10)
                    .map(|number| format!("broken-{number:02}"))
                    .collect::<Vec<_>>(),
            "{names:?}"
        );
        let all_failed = worst
            .iter()
            .all(|it| it["state"] == "Failed" && it["reason"] == "KubeconfigMissing");
        ensure!(all_failed && worst[0]["namespace"] == CLUSTERS, "{status}");
        ensure!(
            condition(&status, "Healthy") == ("False", "KubeconfigMissing"),
            "{status}"
        );
        ensure!(
            condition(&status, "Ready") == ("False", "KubeconfigMissing"),
            "{status}"
        );
        columns(stage)?;
        // Tools that know no other condition wait for this one.
        for index in 0..12 {
            let right = stage
                .get(SECRET, Some(CLUSTERS), "right-admin-kubeconfig")
                .await?
                .unwrap_or_default();
            let source =
                json!({"data": {"kubeconfig": right["data"]["kubeconfig"], "other": null}});
            stage
                .patch(
                    SECRET,
                    Some(CLUSTERS),
                    &format!("broken-{index:02}-admin-kubeconfig"),
                    source,
                )
                .await?;
        }
        let ready = [
            "wait",
            "--for=condition=Ready",
            "fpol",
            NAME,
            "--timeout=120s",
        ];
        let waited = stage
            .cluster
            .kubectl(stage.cluster.admin())?
            .args(ready)
            .output()?;
        ensure!(
            waited.status.success(),
            "{}",
            String::from_utf8_lossy(&waited.stderr)
        );
        agent.stop()?;
        Ok(())
    })
}

/// What `kubectl get` shows of a policy.
fn columns(stage: &Stage) -> Result<()> {
    let output = stage
        .cluster
        .kubectl(stage.cluster.admin())?
        .args(["get", "fpol", NAME])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let head = [
        "NAME",
        "PRIMARY",
        "READY",
        "REASON",
        "ACTIVE",
        "CANDIDATE",
        "GATE",
        "APPLIED",
        "WAITING",
        "HELD",
        "FAILED",
        "AGE",
    ];
    let row = [NAME, "HostedCluster", "False", "KubeconfigMissing"];
    // The digest of the active revision stands between; there is no candidate.
    let counts = ["1", "2", "1", "12"];
    let shown = matches!(words.as_slice(), [first, second]
        if *first == head && second.starts_with(&row) && second.get(5..9) == Some(&counts));
    ensure!(shown, "{text}");
    Ok(())
}

#[test]
fn an_unreadable_policy_is_reported_and_blocks_no_other() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("one", true).await?;
        stage.install_policies().await?;
        // Deeper than any client decodes, including those of these tests.
        let deep = "{down: ".repeat(150) + "1" + &"}".repeat(150);
        let bad = SHIPPED.replace(&format!("name: {NAME}"), "name: bottomless");
        let bad = bad.replace(
            "        clusterDomain:",
            &format!("        deep: {deep}\n        clusterDomain:"),
        );
        let path = stage.cluster.folder().join("bottomless.yaml");
        std::fs::write(&path, bad)?;
        let kubectl = |verb: &str| -> Result<()> {
            let output = stage
                .cluster
                .kubectl(stage.cluster.admin())?
                .args([verb, "-f"])
                .arg(&path)
                .output()?;
            ensure!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            Ok(())
        };
        kubectl("create")?;
        let agent = stage.start_agent(&["--policy-objects"])?;
        stage.wait_for_right("one", 6443).await?;
        agent.wait_for_lines(1, &["FleetPolicy bottomless"])?;
        // Meanwhile the others change.
        stage
            .patch(POLICY, None, NAME, json!({"spec": {"suspend": true}}))
            .await?;
        let suspended = |status: &Value| status["waiting"][0]["reason"] == "Suspended";
        stage
            .wait_for_status("a suspended policy", suspended)
            .await?;
        kubectl("delete")?;
        agent.stop()?;
        Ok(())
    })
}

/// Runs `transom run --once --policy-objects` to its end and returns its modifying requests.
async fn once(stage: &Stage, words: &[&str]) -> Result<Vec<String>> {
    let mark = stage.mark()?;
    let output = stage
        .command(&[&["--once", "--policy-objects"], words].concat())?
        .output()?;
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    stage.changing(mark).await
}

/// The writes that a read-only run announces, without credentials.
fn would(stage: &Stage) -> Result<String> {
    let output = stage
        .command(&["--once", "--policy-objects", "--read-only"])?
        .output()?;
    let would = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success() && !would.contains("LS0tLS1"),
        "it failed, or shows PEM: {}",
        output.status
    );
    Ok(would)
}

#[test]
fn leaves_the_last_status_on_exit_and_none_when_read_only() -> Result<()> {
    on_stage(async |stage| {
        stage.install_crd_of_policies().await?;
        stage.objects().apply_manifest(SHIPPED).await?;
        stage.ready("one", true).await?;
        stage.ready("late", false).await?;
        let asked = once(stage, &["--read-only"]).await?;
        ensure!(asked.is_empty(), "a read-only run asked for {asked:#?}");
        let would = would(stage)?;
        let name = "Secret klusterlet-one/external-managed-kubeconfig";
        ensure!(
            would.contains(&format!("+++ {name}\n")) && would.contains("\n+kind: Secret"),
            "{would}"
        );
        ensure!(
            would.contains("<redacted client-key")
                && would.contains("server: https://kube-apiserver."),
            "{would}"
        );
        ensure!(would.matches("+++ ").count() == 1, "{would}");
        for namespaces in 0..2 {
            if namespaces == 1 {
                stage.objects().namespace("klusterlet-late").await?;
            }
            let asked = once(stage, &[]).await?;
            let status = stage.policy_status().await?;
            let counts = json!({"total": 2, "applied": 1 + namespaces, "held": 0, "waiting": 1 - namespaces, "failed": 0});
            ensure!(
                loaded(&status, 1) && status["counts"] == counts,
                "{status}, after {asked:#?}"
            );
            ensure!(
                asked
                    .iter()
                    .filter(|asked| asked.contains("/status"))
                    .count()
                    == 1,
                "{asked:#?}"
            );
        }
        ensure!(
            self::would(stage)?.is_empty(),
            "nothing is new, and yet it would write"
        );
        let asked = once(stage, &[]).await?;
        ensure!(
            asked.is_empty(),
            "nothing is new, and yet it asked for {asked:#?}"
        );
        Ok(())
    })
}
