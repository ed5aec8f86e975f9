//! Sources and subjects as nobody should make them: refused or carried, and nothing secret is said anywhere.

use crate::agent::Worker;
use crate::objects::{CLUSTERS, case_text, parse};
use crate::stage::{DEADLINE, HOSTED, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::ListParams;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use transom_e2e::canary::Canaries;
use transom_e2e::{http, program};
use transom_test_cluster::wait;

const EVENT: (&str, &str) = ("v1", "Event");
const POLICY: (&str, &str) = (transom_api::API_VERSION, transom_api::KIND);

/// A hosted cluster whose source has a token, and what a test changes of that source.
pub(crate) async fn with_source(stage: &Stage, name: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
    stage.ready(name, true).await?;
    let text =
        case_text("external-managed-kubeconfig", "T13-token", "given.yaml", str::to_owned)?.context("no case T13")?;
    let secret = parse(&text)?.into_iter().find(|object| object["kind"] == "Secret").context("no Secret")?;
    let bytes = STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap_or_default())?;
    let mut document: Value = serde_yaml::from_slice(&bytes).ok().context("not YAML")?;
    change(&mut document);
    let patch = json!({"data": {"kubeconfig": STANDARD.encode(document.to_string())}});
    stage.patch(SECRET, Some(CLUSTERS), &format!("{name}-admin-kubeconfig"), patch).await
}

/// Sources and subjects as nobody should make them, each with a canary of its own.
async fn hostile(stage: &Stage) -> Result<Canaries> {
    let mut canaries = Canaries::default();
    let mut plant = |place: &str| canaries.plant(place);
    let token = plant("a token");
    with_source(stage, "plain", |it| it["users"][0]["user"]["token"] = json!(token)).await?;
    let token = plant("a token of a wrong type");
    with_source(stage, "typed", |it| it["users"][0]["user"]["token"] = json!({"nested": token})).await?;
    let token = plant("a token with control characters");
    with_source(stage, "control", |it| it["users"][0]["user"]["token"] = json!(format!("{token}\u{1b}[2J\u{0}\u{7f}")))
        .await?;
    // Just below what a Secret may hold.
    let token = plant("a token in a large document").repeat(18_000);
    with_source(stage, "large", |it| it["users"][0]["user"]["token"] = json!(token)).await?;
    stage.ready("text", true).await?;
    let no_yaml = STANDARD.encode(format!("token: {}\nusers: [\"{}\n", plant("no YAML"), plant("an open quote")));
    stage.patch(SECRET, Some(CLUSTERS), "text-admin-kubeconfig", json!({"data": {"kubeconfig": no_yaml}})).await?;
    stage.ready("annotated", true).await?;
    let annotations =
        json!({"large": "x".repeat(200_000), "control": "\u{1b}[31m\u{7}\r\n", "secret": plant("an annotation")});
    stage.patch(HOSTED, Some(CLUSTERS), "annotated", json!({"metadata": {"annotations": annotations}})).await?;
    Ok(canaries)
}

/// Everything that the agent says to anybody.
struct Said {
    log: String,
    elsewhere: Vec<(&'static str, String)>,
}

impl Said {
    /// Its log grows until it ends, so that comes last.
    async fn by(stage: &Stage, agent: Worker) -> Result<Self> {
        let admin = agent.wait_until_ready().await?;
        let mut elsewhere = Vec::new();
        for path in ["/metrics", "/debug/state", "/readyz"] {
            elsewhere.push((path, http::get(admin, path)?.body));
        }
        for kind in [EVENT, POLICY] {
            let all = stage.api(kind, None).await?.list(&ListParams::default()).await?.items;
            ensure!(!all.is_empty(), "there is no {}", kind.1);
            elsewhere.push((kind.1, serde_json::to_string(&all)?));
        }
        Ok(Self { log: agent.stop()?, elsewhere })
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.elsewhere.iter().map(|(place, text)| (*place, text.as_str())).chain([("the log", self.log.as_str())])
    }
}

/// The shipped policies as objects of the server.
async fn policy_objects(stage: &Stage) -> Result<()> {
    let crd = Command::new(program::binary()?).arg("crd").output()?;
    stage.cluster.objects().apply_manifest(&String::from_utf8(crd.stdout)?).await?;
    stage.cluster.wait_for_crd("policies.transom.dev").await?;
    for policy in ["external-managed-kubeconfig", "built-in-taints"] {
        let path = program::policy(policy);
        stage.cluster.objects().apply_manifest(&fs::read_to_string(path)?).await?;
    }
    Ok(())
}

#[test]
fn hostile_objects_are_refused_or_carried_and_nothing_secret_is_said() -> Result<()> {
    on_stage(async |stage| {
        policy_objects(stage).await?;
        let canaries = hostile(stage).await?;
        let words = ["--log-format", "text", "--policy-objects", "--admin-address", "127.0.0.1:0"];
        let agent = stage.start_command(stage.command(&words)?.env("RUST_LOG", "debug"))?;
        let subjects = ["plain", "annotated", "typed", "text", "control", "large"];
        for name in subjects {
            let subject = format!("HostedCluster {CLUSTERS}/{name}");
            wait::until(&format!("a word on {name}"), DEADLINE, async || {
                Ok(agent.log()?.contains(&subject).then_some(()))
            })
            .await?;
        }
        for name in ["plain", "annotated"] {
            stage.wait_for_output(name).await?;
        }
        for name in ["typed", "text"] {
            let home = format!("klusterlet-{name}");
            ensure!(stage.get(SECRET, Some(&home), "external-managed-kubeconfig").await?.is_none(), "{name} was made");
        }
        for (kind, word) in [(EVENT, "typed"), (POLICY, "\"observedGeneration\"")] {
            wait::until(&format!("{word} in a {}", kind.1), DEADLINE, async || {
                Ok(serde_json::to_string(&stage.list(kind).await?)?.contains(word).then_some(()))
            })
            .await?;
        }
        let said = Said::by(stage, agent).await?;
        for (place, text) in said.all() {
            let found = canaries.found_in(text.as_bytes());
            ensure!(found.is_empty(), "{place} shows {found:?}");
            ensure!(!text.contains('\u{7}') && !text.contains("\u{1b}[2J"), "{place} has a control character");
        }
        Ok(())
    })
}
