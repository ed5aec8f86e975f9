//! Admission that changes or refuses what the agent writes: the policy and the primary report it, the audit log shows
//! no write loop, and meanwhile the agent leaves writes of others alone. A successful test leaves no admission policy.

use crate::objects::{OUTPUT, home, primary};
use crate::stage::{DEADLINE, SECRET, Stage, on_stage};
use anyhow::{Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use transom_core::metrics::RECONCILES;
use transom_e2e::agent::Agent;
use transom_e2e::http;
use transom_test_cluster::{Asks, Line, Mark, Say, Webhook, wait};

const EVENT: (&str, &str) = ("events.k8s.io/v1", "Event");
/// How often another client writes what the webhook changed.
const POKES: usize = 10;

impl Stage {
    /// Waits until the status of the policy and an Event on a primary explain the failure.
    async fn wait_for_told(&self, name: &str, reason: &str) -> Result<()> {
        let wanted = |status: &Value| {
            let all = |field: &str| status[field].as_array().cloned().unwrap_or_default();
            let unhealthy = all("conditions").iter().any(|it| {
                it["type"] == "Healthy" && it["status"] == "False" && it["reason"] == reason
            });
            let worst = |it: &Value| it["name"] == name && it["reason"] == reason;
            unhealthy && all("topFailures").iter().any(worst)
        };
        let what = format!("{reason} in the status");
        self.wait_for_status(&what, wanted).await?;
        wait::until(&format!("an Event of {reason}"), DEADLINE, async || {
            let about = |event: &Value| {
                let regarding = &event["regarding"];
                event["reason"] == reason
                    && event["type"] == "Warning"
                    && (&regarding["kind"], &regarding["name"])
                        == (&json!("HostedCluster"), &json!(name))
            };
            let events = serde_json::to_value(self.list(EVENT).await?)?;
            Ok(events
                .as_array()
                .into_iter()
                .flatten()
                .any(about)
                .then_some(()))
        })
        .await
    }

    /// The agent's requests for the secret of a cluster since a mark, whatever the response.
    async fn attempts(&self, name: &str, since: Mark) -> Result<Vec<Line>> {
        let mut lines = self.lines(since).await?;
        let of = |line: &Line| {
            let target = line.target.as_ref();
            target.is_some_and(|it| {
                it.resource == "secrets" && it.namespace == home(name) && it.name == OUTPUT
            })
        };
        lines.retain(|line| line.is_write() && of(line));
        Ok(lines)
    }
}

async fn start(stage: &Stage) -> Result<(Agent, SocketAddr)> {
    stage.install_policies().await?;
    let agent = stage.start_agent(&["--policy-objects", "--admin-address", "127.0.0.1:0"])?;
    agent.wait_for_first_pass()?;
    let admin = agent.ready()?;
    Ok((agent, admin))
}

/// Another value each time, so that every write triggers the agent again.
fn changing() -> impl Fn(&Value) -> Say + Send + Sync + 'static {
    let times = AtomicU64::new(0);
    move |request| match request["name"] == OUTPUT || request["name"] == "probe" {
        true => {
            let value = format!("{:08}", times.fetch_add(1, Ordering::SeqCst));
            Say::Patch(vec![
                json!({"op": "add", "path": "/data/kubeconfig", "value": value}),
            ])
        }
        false => Say::Patch(Vec::new()),
    }
}

#[test]
fn reports_changes_by_admission_and_writes_once() -> Result<()> {
    on_stage(async |stage| {
        for name in ["changed", "sound"] {
            stage.ready(name, true).await?;
        }
        let webhook = Webhook::start(changing()).await?;
        let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": home("changed")}}});
        let asks = Asks {
            name: "changing",
            group: "",
            resource: "secrets",
            scope: &here,
        };
        let changed = match webhook
            .install(stage.objects(), asks, probe("changed"))
            .await
        {
            Ok(()) => changed(stage).await,
            failed => failed,
        };
        Webhook::uninstall(stage.objects(), "changing").await?;
        changed?;
        // Without the webhook everything is as before. By then the desired write differs from the one that the webhook
        // changed.
        wait::until("the end of the webhook", DEADLINE, async || {
            let left = stage.objects().apply(probe("changed")).await?;
            Ok((left.data["data"]["kubeconfig"] == PROBED).then_some(()))
        })
        .await?;
        let (agent, _) = start(stage).await?;
        stage.wait_for_right("changed", 7443).await?;
        agent.stop()?;
        Ok(())
    })
}

/// The value of the Secret that shows whether the server calls the webhook.
const PROBED: &str = "cHJvYmU=";

fn probe(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "probe", "namespace": home(name)},
        "data": {"kubeconfig": PROBED}})
}

/// While the webhook is installed.
async fn changed(stage: &Stage) -> Result<()> {
    let mark = stage.mark()?;
    let (agent, admin) = start(stage).await?;
    agent.wait_for(&primary("changed"), "Failed AdmissionChanged")?;
    stage.wait_for_told("changed", "AdmissionChanged").await?;
    ensure!(
        agent
            .log()?
            .contains("stored something else in data.kubeconfig: an admission webhook"),
        "{}",
        agent.tail()
    );
    stage.wait_for_right("sound", 6443).await?;
    poke(stage, admin).await?;
    let attempts = stage.attempts("changed", mark).await?;
    ensure!(
        (1..=2).contains(&attempts.len()),
        "one create and one update at most: {attempts:#?}"
    );
    agent.wait_for(&primary("changed"), "Failed AdmissionChanged")?;
    // Something else is desired, which needs another write.
    stage.move_port("changed", 7443).await?;
    let count = attempts.len();
    wait::until("another write", DEADLINE, async || {
        Ok((stage.attempts("changed", mark).await?.len() > count).then_some(()))
    })
    .await?;
    poke(stage, admin).await?;
    agent.stop()?;
    ensure!(
        stage.attempts("changed", mark).await?.len() == count + 1,
        "it was written more than once"
    );
    Ok(())
}

/// Another client writes the target: each write triggers the agent, and the webhook changes it, too.
async fn poke(stage: &Stage, admin: SocketAddr) -> Result<()> {
    for _ in 0..POKES {
        let before = reconciles(admin)?;
        let note = json!({"metadata": {"annotations": {"example.com/poke": before.to_string()}}});
        stage
            .patch(SECRET, Some(&home("changed")), OUTPUT, note)
            .await?;
        wait::until("a reconcile", DEADLINE, async || {
            Ok((reconciles(admin)? > before).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// How often the policy was reconciled.
fn reconciles(admin: SocketAddr) -> Result<f64> {
    http::metric(admin, RECONCILES.name, &format!("policy=\"{OUTPUT}\""))
}

/// Refuses Secrets in one namespace.
const REFUSAL: Refusal = Refusal {
    name: "no-writes",
    rule: "{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [secrets]}",
    unless: "false",
    within: "{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: klusterlet-denied}}}",
};

#[test]
fn reports_admission_refusals_and_retries_with_backoff() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("denied", true).await?;
        REFUSAL.begin(stage).await?;
        let refused = refused(stage).await;
        REFUSAL.end(stage).await?;
        refused
    })
}

async fn refused(stage: &Stage) -> Result<()> {
    wait::until("a secret that is refused", DEADLINE, async || {
        let tried = stage.objects().apply(probe("denied")).await;
        Ok(tried.is_err().then_some(()))
    })
    .await?;
    let mark = stage.mark()?;
    let (agent, _) = start(stage).await?;
    agent.wait_for(&primary("denied"), "Failed AdmissionRefused")?;
    stage.wait_for_told("denied", "AdmissionRefused").await?;
    let attempts = wait::until("four attempts", DEADLINE, async || {
        let attempts = stage.attempts("denied", mark).await?;
        Ok((attempts.len() >= 4).then_some(attempts))
    })
    .await?;
    ensure!(
        attempts
            .iter()
            .all(|line| line.code == 422 || line.code == 403),
        "{attempts:#?}"
    );
    let times = attempts.iter().map(|line| {
        let received: MicroTime = serde_json::from_value(json!(line.received))?;
        Ok(received.0.as_millisecond())
    });
    let times = times.collect::<Result<Vec<_>>>()?;
    // One, two, then four seconds, each up to a quarter shorter by jitter: never sooner, however fast the machine is.
    for (index, pair) in times.windows(2).take(3).enumerate() {
        ensure!(
            pair[1] - pair[0] >= 750 << index,
            "attempt {index} was followed too soon: {times:?}"
        );
    }
    agent.stop()?;
    Ok(())
}

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// A policy that refuses, with its binding.
pub(crate) struct Refusal {
    /// Name of both; the message contains it, too.
    pub(crate) name: &'static str,
    /// The rule of resources and operations.
    pub(crate) rule: &'static str,
    /// What it allows, as an expression.
    pub(crate) unless: &'static str,
    /// The resources to which it is bound.
    pub(crate) within: &'static str,
}

impl Refusal {
    /// Creates it; the server needs a moment to enforce it.
    pub(crate) async fn begin(&self, stage: &Stage) -> Result<()> {
        let Self {
            name,
            rule,
            unless,
            within,
        } = self;
        let manifest = format!(
            "
apiVersion: {ADMISSION}
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  matchConstraints: {{resourceRules: [{rule}]}}
  validations: [{{expression: \"{unless}\", message: {name} here}}]
---
apiVersion: {ADMISSION}
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny], matchResources: {within}}}
"
        );
        stage.objects().apply_manifest(&manifest).await
    }

    /// Removes it.
    pub(crate) async fn end(&self, stage: &Stage) -> Result<()> {
        for kind in [
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
        ] {
            stage.delete((ADMISSION, kind), None, self.name).await?;
        }
        Ok(())
    }
}
