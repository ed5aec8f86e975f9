//! No output shows a secret: no log at its most verbose level, no error, status, rendering or summary.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use transom_e2e::agent::Agent;
use transom_e2e::canary::Canaries;
use transom_e2e::stage::{NOW, Stage, put};
use transom_e2e::tree;
use transom_support::fleet;

/// The clusters of the fleet; the generator leaves the fourth waiting.
const CLUSTERS: usize = 15;

/// A fleet in which each source has canaries in a different field.
struct Planted {
    stage: Stage,
    canaries: Canaries,
    /// Clusters whose source the agent refuses.
    wrong: Vec<usize>,
}

impl Planted {
    /// Changes the source of a cluster, which gets its own canaries.
    fn source(
        &mut self,
        index: usize,
        change: impl FnOnce(&mut Value, &mut dyn FnMut(&str) -> String),
    ) -> Result<()> {
        let mut document = self.stage.kubeconfig(index)?;
        change(&mut document, &mut |place| {
            self.canaries.plant(&format!("{place} of {index}"))
        });
        self.stage
            .put_source(index, &STANDARD.encode(document.to_string()))
    }

    /// Changes the user of a source.
    fn user(
        &mut self,
        index: usize,
        change: impl FnOnce(&mut Value, &mut dyn FnMut(&str) -> String),
    ) -> Result<()> {
        self.source(index, |document, plant| {
            change(&mut document["users"][0]["user"], plant);
        })
    }
}

/// Writes the fleet: valid credentials, and credential fields of a wrong type or form, each with a canary.
fn plant() -> Result<Planted> {
    let wrong = vec![2, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14];
    let mut planted = Planted {
        stage: Stage::new(CLUSTERS, 4)?,
        canaries: Canaries::default(),
        wrong,
    };
    plant_users(&mut planted)?;
    plant_clusters(&mut planted)?;
    let Planted {
        stage, canaries, ..
    } = &mut planted;
    // A line that is YAML followed by one that is not, and text that is not base64.
    let (text, open) = (
        canaries.plant("a broken document"),
        canaries.plant("an open quote"),
    );
    stage.put_source(
        14,
        &STANDARD.encode(format!("token: {text}\nusers: [\"{open}\n")),
    )?;
    stage.put_source(5, &format!("\"%{}\"", canaries.plant("no base64")))?;
    let home = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: klusterlet-{}}}\n",
        fleet::managed_name(5)
    );
    put(&stage.fleet.join("home.yaml"), home.as_bytes())?;
    put_broken_files(stage, canaries)?;
    Ok(planted)
}

fn plant_users(planted: &mut Planted) -> Result<()> {
    planted.user(0, |user, plant| *user = json!({"token": plant("token")}))?;
    planted.user(1, |user, plant| {
        *user = json!({"username": plant("username"), "password": plant("password")});
    })?;
    planted.user(2, |user, plant| {
        user["token"] = json!({"nested": plant("token")});
    })?;
    planted.user(4, |user, plant| {
        user["password"] = json!([plant("password")]);
    })?;
    planted.user(6, |user, plant| {
        user["client-key-data"] = json!(plant("a key in the clear"));
    })?;
    planted.user(7, |user, plant| {
        user["client-certificate-data"] = json!(STANDARD.encode(plant("certificate")));
    })?;
    planted.user(8, |user, plant| {
        let environment = json!([{"name": "TOKEN", "value": plant("environment")}]);
        *user = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": plant("command"),
            "args": [plant("argument")], "env": environment, "interactiveMode": "Never"}});
    })?;
    planted.user(9, |user, plant| {
        let config =
            json!({"id-token": plant("id token"), "refresh-token": plant("refresh token")});
        *user = json!({"auth-provider": {"name": "oidc", "config": config}});
    })
}

fn plant_clusters(planted: &mut Planted) -> Result<()> {
    planted.source(10, |document, plant| {
        let url = format!(
            "http://{}:{}@proxy.example.com:3128",
            plant("proxy user"),
            plant("proxy password")
        );
        document["clusters"][0]["cluster"]["proxy-url"] = json!(url);
    })?;
    planted.source(11, |document, plant| {
        let url = format!(
            "https://{}:{}@api:6443",
            plant("server user"),
            plant("server password")
        );
        document["clusters"][0]["cluster"]["server"] = json!(url);
    })?;
    planted.source(12, |document, plant| {
        document["clusters"][0]["cluster"]["certificate-authority-data"] =
            json!({"wrong": plant("authority")});
    })?;
    planted.source(13, |document, plant| {
        document["users"] =
            json!({"name": "admin", "user": {"token": plant("users that are no list")}});
    })
}

/// Whole files with secrets that do not parse or contain wrong types.
fn put_broken_files(stage: &Stage, canaries: &mut Canaries) -> Result<()> {
    let secret = |name: &str, rest: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: a}}\n{rest}\n")
    };
    let files = [
        (
            "open.yaml",
            secret(
                "open",
                &format!("data: {{token: \"{}", canaries.plant("an open file")),
            ),
        ),
        (
            "tag.yaml",
            secret(
                "tag",
                &format!(
                    "stringData: {{token: !!int {}}}",
                    canaries.plant("a wrong tag")
                ),
            ),
        ),
        (
            "type.yaml",
            secret(
                "type",
                &format!("data: [{}]", canaries.plant("data that is a list")),
            ),
        ),
        (
            "deep.yaml",
            secret(
                "deep",
                &format!(
                    "data: {{token: {{deep: {}}}}}",
                    canaries.plant("a mapping in data")
                ),
            ),
        ),
        (
            "base.yaml",
            secret(
                "base",
                &format!(
                    "data: {{token: \"-{}\"}}",
                    canaries.plant("data that is no base64")
                ),
            ),
        ),
        (
            "twice.yaml",
            secret(
                "twice",
                &format!(
                    "data: {{{0}: YQ==, {0}: YQ==}}",
                    canaries.plant("a key that is there twice")
                ),
            ),
        ),
        (
            "alias.yaml",
            secret(
                "alias",
                &format!("data: {{a: *{}}}", canaries.plant("an unknown alias")),
            ),
        ),
        (
            "tab.yaml",
            secret(
                "tab",
                &format!("data:\n\ttoken: {}", canaries.plant("a tab")),
            ),
        ),
        (
            "bad.json",
            format!(
                "{{\"kind\": \"Secret\", \"data\": {{\"token\": \"{}\" oops}}}}",
                canaries.plant("broken JSON")
            ),
        ),
    ];
    files
        .iter()
        .try_for_each(|(name, text)| put(&stage.fleet.join(name), text.as_bytes()))
}

/// Searches the output, and all written files except the secrets themselves.
fn search(planted: &Planted, what: &str, output: &Output) -> Result<()> {
    let found: Vec<&str> = [&output.stdout, &output.stderr]
        .into_iter()
        .flat_map(|bytes| planted.canaries.found_in(bytes))
        .collect();
    ensure!(found.is_empty(), "{what} shows {found:?}");
    Ok(())
}

fn search_files(planted: &Planted) -> Result<usize> {
    let files = tree::files(&planted.stage.own())?;
    let others: Vec<&PathBuf> = files
        .iter()
        .filter(|path| !path.to_string_lossy().contains("/objects/klusterlet-"))
        .collect();
    for path in &others {
        let found = planted.canaries.found_in(&fs::read(path)?);
        ensure!(found.is_empty(), "{} shows {found:?}", path.display());
    }
    Ok(others.len())
}

fn talkative(mut command: Command) -> Command {
    command
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full");
    command
}

#[test]
fn no_output_shows_a_secret() -> Result<()> {
    let planted = plant()?;
    let stage = &planted.stage;
    ensure!(planted.canaries.count() > 100);
    for format in ["text", "json"] {
        let mut command = talkative(stage.run()?);
        let output = command
            .args(["--once", "--now", NOW, "--log-format", format])
            .output()?;
        ensure!(output.status.code() == Some(1), "run as {format}");
        search(&planted, &format!("run as {format}"), &output)?;
    }
    let files = search_files(&planted)?;
    ensure!(files > CLUSTERS, "{files}");
    for index in &planted.wrong {
        let status = fs::read_to_string(stage.hosted_status(*index))?;
        ensure!(
            status.contains("state: Failed") || status.contains("state: Waiting"),
            "{index}: {status}"
        );
        ensure!(!stage.secret(*index).exists(), "{index}");
    }
    // Proves that the search works: it finds a credential where one belongs.
    let made = fs::read(stage.secret(0))?;
    ensure!(
        !planted.canaries.found_in(&made).is_empty(),
        "the secret itself holds its canary"
    );
    Ok(())
}

#[test]
fn rendering_shows_no_credential_unless_asked() -> Result<()> {
    let planted = plant()?;
    let stage = &planted.stage;
    let render = |words: &[&str]| -> Result<Output> {
        Ok(talkative(stage.transom()?)
            .arg("render")
            .arg(&stage.fleet)
            .args(["--now", NOW])
            .args(words)
            .output()?)
    };
    let forms: [&[&str]; 4] = [
        &["-o", "yaml"],
        &["-o", "json"],
        &["-o", "table"],
        &["--diff"],
    ];
    for words in forms {
        let output = render(words)?;
        ensure!(!output.stdout.is_empty(), "{words:?}");
        search(&planted, &format!("render {words:?}"), &output)?;
    }
    let revealed = render(&["--reveal", "-o", "yaml"])?;
    ensure!(
        !planted.canaries.found_in(&revealed.stdout).is_empty(),
        "--reveal shows what is asked for"
    );
    ensure!(
        planted.canaries.found_in(&revealed.stderr).is_empty(),
        "only on standard output"
    );
    // The difference shows neither the value before nor the one after.
    ensure!(stage.once()?.status.code() == Some(1));
    let path = stage.secret(0);
    let text = fs::read_to_string(&path)?;
    put(
        &path,
        text.replace("  kubeconfig: ", "  other: ").as_bytes(),
    )?;
    search(&planted, "a difference", &render(&["--diff"])?)
}

#[test]
fn a_watching_agent_shows_no_secret() -> Result<()> {
    let planted = plant()?;
    let stage = &planted.stage;
    let log = stage.path("log");
    let mut command = talkative(stage.run()?);
    let agent = Agent::start(command.args(["--log-format", "json"]), log)?;
    stage.wait_for_secret_file(0)?;
    // A good source becomes invalid and good again while it is watched.
    let good = fs::read(stage.hosted(0))?;
    put(&stage.hosted(0), &fs::read(stage.hosted(0))?.repeat(2))?;
    stage.wait_for_text(&stage.own().join("unreadable.yaml"), "hosted-00000.yaml")?;
    put(&stage.hosted(0), &good)?;
    stage.wait_for_text(&stage.hosted_status(0), "state: Applied")?;
    for index in &planted.wrong {
        stage.wait_for_text(&stage.hosted_status(*index), "state: ")?;
    }
    // A file that the agent is writing may be gone again before it is read.
    let said = agent.stop()?;
    search_files(&planted)?;
    ensure!(said.lines().count() > CLUSTERS);
    let found = planted.canaries.found_in(said.as_bytes());
    ensure!(found.is_empty(), "the log shows {found:?}");
    Ok(())
}
