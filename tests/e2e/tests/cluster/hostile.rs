//! Invalid and extreme sources and primaries: the agent refuses or accepts each, and the others keep working. The end
//! of every test searches the output.

use crate::fleet::POLICIES;
use crate::objects::{CLUSTERS, OUTPUT, case_text, home, parse, primary};
use crate::stage::{CRDS, DEADLINE, HOSTED, MANAGED, SECRET, Stage, on_stage};
use Form::{List, Map, Text};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::Instant;
use transom_e2e::agent::Agent;
use transom_test_cluster::wait;

/// The maximum size of a Secret, and of a kubeconfig.
const MOST: usize = 1 << 20;

/// A hosted cluster whose source has a token, with a test's change of that source.
async fn with_source(stage: &Stage, name: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
    stage.ready(name, true).await?;
    let text = case_text(
        "external-managed-kubeconfig",
        "T13-token",
        "given.yaml",
        str::to_owned,
    )?
    .context("no case T13")?;
    let secret = parse(&text)?
        .into_iter()
        .find(|object| object["kind"] == "Secret")
        .context("no Secret")?;
    let bytes = STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap_or_default())?;
    let mut document: Value = serde_yaml::from_slice(&bytes).ok().context("not YAML")?;
    change(&mut document);
    let patch = json!({"data": {"kubeconfig": STANDARD.encode(document.to_string())}});
    stage
        .patch(
            SECRET,
            Some(CLUSTERS),
            &format!("{name}-admin-kubeconfig"),
            patch,
        )
        .await
}

/// Makes a source of the given size: its token is a canary, repeated.
fn fill(document: &mut Value, canary: &str, bytes: usize) {
    document["users"][0]["user"]["token"] = json!("");
    let wanted = bytes.saturating_sub(document.to_string().len());
    document["users"][0]["user"]["token"] =
        json!(canary.repeat(wanted / canary.len() + 1)[..wanted]);
}

/// Invalid and extreme sources, each with its own canary.
async fn sources(stage: &Stage) -> Result<()> {
    let plant = |place: &str| stage.guard.plant(place);
    let token = plant("a token");
    with_source(stage, "plain", |it| {
        it["users"][0]["user"]["token"] = json!(token);
    })
    .await?;
    let token = plant("a token of a wrong type");
    with_source(stage, "typed", |it| {
        it["users"][0]["user"]["token"] = json!({"nested": token});
    })
    .await?;
    // In JSON the last one may stay unescaped, in YAML not. No client can use such a token, so its user is not in use.
    let token = plant("a token with control characters");
    let token = format!("{token}\u{1b}[2J\u{0}\u{7f}");
    let other = json!({"name": "other", "user": {"token": token}});
    with_source(stage, "control", |it| {
        let in_use = it["users"][0].take();
        it["users"] = json!([other, in_use]);
    })
    .await?;
    // The name of the Service is longer than the address in the source: either it just fits, or it does not.
    let token = plant("a token in a large document");
    with_source(stage, "large", |it| fill(it, &token, MOST - 100)).await?;
    with_source(stage, "full", |it| fill(it, &token, MOST)).await?;
    stage.ready("text", true).await?;
    let no_yaml = STANDARD.encode(format!(
        "token: {}\nusers: [\"{}\n",
        plant("no YAML"),
        plant("an open quote")
    ));
    stage
        .patch(
            SECRET,
            Some(CLUSTERS),
            "text-admin-kubeconfig",
            json!({"data": {"kubeconfig": no_yaml}}),
        )
        .await
}

/// Primaries as large as the API server accepts.
async fn primaries(stage: &Stage) -> Result<()> {
    stage.ready("annotated", true).await?;
    let annotations =
        json!({"control": "\u{1b}[31m\u{7}\r\n", "secret": stage.guard.plant("an annotation")});
    stage
        .patch(
            HOSTED,
            Some(CLUSTERS),
            "annotated",
            json!({"metadata": {"annotations": annotations}}),
        )
        .await?;
    // Annotations up to their maximum, and conditions until etcd has no room for more.
    stage.ready("wide", true).await?;
    let annotations = json!({"large": "x".repeat((256 << 10) - "large".len())});
    stage
        .patch(
            HOSTED,
            Some(CLUSTERS),
            "wide",
            json!({"metadata": {"annotations": annotations}}),
        )
        .await?;
    let mut status = stage
        .get(HOSTED, Some(CLUSTERS), "wide")
        .await?
        .context("no HostedCluster")?["status"]
        .take();
    let conditions = status["conditions"]
        .as_array_mut()
        .context("no conditions")?;
    let available = conditions[0].clone();
    for number in 0..38 {
        let mut wide = available.clone();
        (wide["type"], wide["message"]) =
            (json!(format!("Wide{number}")), json!("y".repeat(32 << 10)));
        conditions.push(wide);
    }
    stage
        .put_status(HOSTED, Some(CLUSTERS), "wide", &status)
        .await?;
    let size = stage
        .get(HOSTED, Some(CLUSTERS), "wide")
        .await?
        .context("no HostedCluster")?
        .to_string()
        .len();
    println!("a HostedCluster of {size} bytes");
    ensure!(size > 1_500_000, "it has {size} bytes only");
    Ok(())
}

/// The outcome for each.
const OUTCOMES: [(&str, &str); 8] = [
    ("plain", "Applied InSync"),
    ("typed", "Failed KubeconfigInvalid"),
    ("control", "Applied InSync"),
    ("large", "Applied InSync"),
    ("full", "Failed KubeconfigTooLarge"),
    ("text", "Failed KubeconfigUnparsable"),
    ("annotated", "Applied InSync"),
    ("wide", "Applied InSync"),
];

/// The token of the first user in the kubeconfig of a Secret; none without a Secret.
async fn token(stage: &Stage, namespace: &str, name: &str) -> Result<Option<String>> {
    let Some(secret) = stage.get(SECRET, Some(namespace), name).await? else {
        return Ok(None);
    };
    let bytes = STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap_or_default())?;
    // YAML cannot represent some characters that JSON accepts.
    let document = serde_json::from_slice(&bytes)
        .ok()
        .or_else(|| serde_yaml::from_slice(&bytes).ok());
    let document: Value = document.with_context(|| format!("{namespace}/{name} cannot be read"))?;
    let token = document["users"][0]["user"]["token"].as_str();
    Ok(Some(
        token
            .with_context(|| format!("{namespace}/{name} has no token"))?
            .to_owned(),
    ))
}

#[test]
fn hostile_objects_are_refused_or_copied_and_leak_no_secret() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        sources(stage).await?;
        primaries(stage).await?;
        let start = Instant::now();
        // Once as text, then as JSON.
        let words = ["--log-format", "text", POLICIES];
        let agent = stage.start_command(stage.command(&words)?.env("RUST_LOG", "debug"))?;
        for (name, _) in OUTCOMES {
            agent.wait_for_lines(1, &[&primary(name)])?;
        }
        agent.stop()?;
        let agent = stage.start_command(stage.command(&[POLICIES])?.env("RUST_LOG", "debug"))?;
        for (name, outcome) in OUTCOMES {
            agent.wait_for(&primary(name), outcome)?;
            let made = token(stage, &home(name), OUTPUT).await?;
            if outcome.starts_with("Failed") {
                ensure!(made.is_none(), "{name} was made");
            } else {
                let source = token(stage, CLUSTERS, &format!("{name}-admin-kubeconfig")).await?;
                ensure!(made.is_some() && made == source, "{name} has another token");
            }
        }
        println!(
            "hostile objects: all said after {:.1} s",
            start.elapsed().as_secs_f64()
        );
        others_go_on(stage, "plain", 7443).await?;
        agent.stop()?;
        Ok(())
    })
}

/// Checks that the agent follows a change of a valid primary.
async fn others_go_on(stage: &Stage, name: &str, port: u16) -> Result<()> {
    stage.move_port(name, port).await?;
    wait::until(
        &format!("the secret of {name} with port {port}"),
        DEADLINE,
        async || {
            let secret = stage
                .get(SECRET, Some(&home(name)), OUTPUT)
                .await?
                .context("no secret")?;
            let bytes =
                STANDARD.decode(secret["data"]["kubeconfig"].as_str().unwrap_or_default())?;
            Ok(String::from_utf8_lossy(&bytes)
                .contains(&format!(":{port}"))
                .then_some(()))
        },
    )
    .await
}

/// Puts a value at a path of an object.
async fn spoil(
    stage: &Stage,
    kind: (&str, &str),
    name: &str,
    place: &str,
    value: Value,
) -> Result<()> {
    let namespace = (kind == HOSTED).then_some(CLUSTERS);
    let mut object = stage
        .get(kind, namespace, name)
        .await?
        .context("no object")?;
    // About a managed cluster that gets no taint whatever it contains.
    if kind == MANAGED {
        object["status"]["conditions"][2]["status"] = json!("Unknown");
        object["spec"]["taints"] = json!([]);
    }
    *object.pointer_mut(place).context("no such place")? = value;
    stage
        .patch(kind, namespace, name, json!({"spec": object["spec"]}))
        .await?;
    stage
        .put_status(kind, namespace, name, &object["status"])
        .await
}

/// A value of wrong type at a path; each contains a canary.
#[derive(Clone, Copy)]
enum Form {
    Text,
    List,
    Map,
}

impl Form {
    fn value(self, canary: String) -> Value {
        match self {
            Self::Text => json!(canary),
            Self::List => json!([canary]),
            Self::Map => json!({"nested": canary}),
        }
    }
}

const FAILED: &str = "Failed InvalidObject";
const HELD: &str = "Held UnreadableFields";

/// Kind, path, the wrong values, and the outcome for the object with any of them.
type Wrong = (
    (&'static str, &'static str),
    &'static str,
    &'static [Form],
    &'static str,
);

const WRONG: [Wrong; 14] = [
    (HOSTED, "/spec", &[Text, List], FAILED),
    (HOSTED, "/status", &[Text, List], FAILED),
    (HOSTED, "/status/conditions", &[Text, Map], FAILED),
    // Any element could be the condition in question.
    (HOSTED, "/status/conditions/0", &[Text], FAILED),
    (HOSTED, "/status/conditions/0/type", &[List], FAILED),
    (HOSTED, "/status/conditions/0/status", &[List, Map], HELD),
    (HOSTED, "/status/conditions/0/reason", &[Map], HELD),
    (MANAGED, "/spec", &[Text], FAILED),
    (MANAGED, "/spec/taints", &[Text, List, Map], FAILED),
    (MANAGED, "/status", &[List], FAILED),
    (MANAGED, "/status/conditions", &[Text, Map], FAILED),
    (MANAGED, "/status/conditions/2", &[Text, List, Map], FAILED),
    (MANAGED, "/status/conditions/2/type", &[Map], FAILED),
    (MANAGED, "/status/conditions/2/status", &[List, Map], FAILED),
];

/// An object, as a log names it.
fn said_of(kind: (&str, &str), name: &str) -> String {
    if kind == HOSTED {
        primary(name)
    } else {
        format!("ManagedCluster {name}")
    }
}

/// The published CRDs accept no wrong type; older CRDs accepted any field.
#[test]
fn fields_of_wrong_type_are_reported_and_block_no_other_primary() -> Result<()> {
    on_stage(async |stage| {
        for (crd, kind) in [(CRDS[0], HOSTED), (CRDS[1], MANAGED)] {
            stage.remove_crd(crd).await?;
            stage.cluster.install_loose_crd(crd).await?;
            stage.list(kind).await?;
        }
        stage.install_policies().await?;
        stage.ready("right", true).await?;
        stage.managed("right").await?;
        let wrong = WRONG.into_iter().flat_map(|(kind, place, forms, outcome)| {
            forms.iter().map(move |form| (kind, place, *form, outcome))
        });
        let wrong: Vec<_> = wrong.collect();
        ensure!(wrong.len() == 24, "{} wrong values", wrong.len());
        for (index, &(kind, place, form, _)) in wrong.iter().enumerate() {
            let name = format!("wrong-{index}");
            match kind == HOSTED {
                true => stage.ready(&name, true).await?,
                false => stage.managed(&name).await?,
            }
            let value = form.value(stage.guard.plant(&format!("{place} of a {}", kind.1)));
            spoil(stage, kind, &name, place, value).await?;
        }
        let (mark, start) = (stage.mark()?, Instant::now());
        let agent = stage.start_command(stage.command(&[POLICIES])?.env("RUST_LOG", "debug"))?;
        for (index, &(kind, place, _, outcome)) in wrong.iter().enumerate() {
            let told = agent.wait_for(&said_of(kind, &format!("wrong-{index}")), outcome);
            told.with_context(|| format!("{place} of a {}", kind.1))?;
        }
        println!(
            "wrong types: all said after {:.1} s",
            start.elapsed().as_secs_f64()
        );
        stage.wait_for_right("right", 6443).await?;
        stage.move_port("right", 7443).await?;
        stage.wait_for_right("right", 7443).await?;
        stage.set_available("right", "Unknown").await?;
        stage.taint_times("right", 1).await?;
        // The agent follows a fixed object.
        mend(stage, &agent).await?;
        agent.stop()?;
        let of_wrong = |write: &&String| write.contains("wrong-") && !write.contains(MENDED);
        let writes = stage.writes(mark).await?;
        let writes: Vec<&String> = writes.iter().filter(of_wrong).collect();
        ensure!(writes.is_empty(), "written for what is wrong: {writes:#?}");
        Ok(())
    })
}

/// The hosted cluster whose conditions are fixed.
const MENDED: &str = "wrong-4";

async fn mend(stage: &Stage, agent: &Agent) -> Result<()> {
    let mut right = stage
        .get(HOSTED, Some(CLUSTERS), "right")
        .await?
        .context("no HostedCluster")?;
    let start = Instant::now();
    stage
        .put_status(HOSTED, Some(CLUSTERS), MENDED, &right["status"].take())
        .await?;
    stage.wait_for_right(MENDED, 6443).await?;
    agent.wait_for(&primary(MENDED), "Applied InSync")?;
    println!(
        "a field of a wrong type mended: right after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
