//! Names that forge lines, move cursors or reverse text, through every command: all output is escaped.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use transom_core::redact::visible::is_hidden;
use transom_e2e::agent::Agent;
use transom_e2e::stage::{NOW, Stage, put};
use transom_e2e::tree;
use transom_support::fleet;

/// What a name does in a terminal or a log: starts its own line, changes the colour, reverses the text.
const FORGED: &str =
    "a\n2026-01-01T00:00:00Z  INFO FORGED\u{1b}[31m\u{9b}2J\u{202e}\u{2066}\u{2028}\u{85}\u{feff}";

/// Every invisible character, eight to a name.
fn names() -> Vec<String> {
    let hidden: Vec<char> = (1..0xe_1000)
        .filter_map(char::from_u32)
        .filter(|letter| is_hidden(*letter))
        .collect();
    let few = hidden
        .iter()
        .filter(|letter| u32::from(**letter) < 0xe_0000 || u32::from(**letter) % 512 == 1);
    let few: Vec<char> = few.copied().collect();
    let names = few
        .chunks(8)
        .enumerate()
        .map(|(at, letters)| format!("n{at}{}", letters.iter().collect::<String>()));
    names.chain([FORGED.to_owned()]).collect()
}

/// Checks that the only control characters are line ends, and that no line begins with text from a name.
fn check(what: &str, said: &[u8]) -> Result<String> {
    let text = String::from_utf8(said.to_vec()).with_context(|| format!("{what} is no text"))?;
    let hidden = text
        .chars()
        .find(|letter| *letter != '\n' && is_hidden(*letter));
    ensure!(
        hidden.is_none(),
        "{what}: {hidden:?} in {}",
        text.escape_debug()
    );
    let forged = text
        .lines()
        .any(|line| line.starts_with("2026-01-01T00:00:00Z  INFO FORGED"));
    ensure!(!forged, "{what}: a forged line in {text}");
    Ok(text)
}

/// A fleet whose clusters, files and policies have these names.
fn stage() -> Result<Stage> {
    let stage = Stage::new(2, 4)?;
    let text = fs::read_to_string(stage.managed(&fleet::managed_name(0)))?;
    let mut cluster: Value = serde_yaml::from_str(&text)?;
    cluster["status"]["conditions"] = json!([{
        "type": "ManagedClusterConditionAvailable", "status": "Unknown", "reason": "x", "message": FORGED,
        "lastTransitionTime": "2026-11-01T00:00:00Z",
    }]);
    let mut all = String::new();
    for name in names() {
        cluster["metadata"]["name"] = json!(name);
        all.push_str(&format!("---\n{cluster}\n"));
    }
    put(&stage.fleet.join("named.yaml"), all.as_bytes())?;
    let hosted = fs::read_to_string(stage.hosted(1))?;
    put(
        &stage.fleet.join(format!("{FORGED}.yaml")),
        hosted.as_bytes(),
    )?;
    put(
        &stage.fleet.join(format!("{FORGED} broken.yaml")),
        b"kind: {",
    )?;
    put(
        &stage.fleet.join(format!("{FORGED}/deep.yaml")),
        format!("{{\"kind\": {}}}", json!(FORGED)).as_bytes(),
    )?;
    let bad = std::ffi::OsStr::from_bytes(b"\xff\x1b[31m\n.yaml");
    fs::write(stage.fleet.join(bad), "kind: {")?;
    Ok(stage)
}

#[test]
fn every_command_escapes_names() -> Result<()> {
    let stage = stage()?;
    let fleet = stage.fleet.display().to_string();
    let policy = |name: &str| {
        format!(
            "{{apiVersion: transom.dev/v1alpha1, kind: FleetPolicy, metadata: {{name: {}}}}}\n",
            json!(name)
        )
    };
    let policies = stage.path("other");
    put(
        &policies.join(format!("{FORGED}.yaml")),
        policy(FORGED).as_bytes(),
    )?;
    put(&policies.join("b.yaml"), policy(FORGED).as_bytes())?;
    let case = stage.path(&format!("cases/{FORGED}"));
    put(&case.join("given.yaml"), b"{")?;
    put(&case.join("expected.yaml"), b"{")?;
    let (policies, cases) = (
        policies.display().to_string(),
        stage.path("cases").display().to_string(),
    );
    let mut all: Vec<Vec<&str>> = vec![
        vec!["run", "--once", "--now", NOW, "--dir", &fleet],
        vec![
            "run",
            "--once",
            "--now",
            NOW,
            "--dir",
            &fleet,
            "--log-format",
            "json",
        ],
        vec![
            "run",
            "--once",
            "--now",
            NOW,
            "--dir",
            &fleet,
            "--policies",
            &policies,
        ],
        vec!["validate", &policies],
        vec!["validate", &policies, "--output", "json"],
        vec!["rbac", "--policies", &policies],
        vec!["test", &cases],
        vec!["test", &cases, "--output", "json"],
        vec!["inspect", FORGED],
        vec!["explain", FORGED],
    ];
    for form in ["yaml", "json", "table"] {
        all.push(vec!["render", &fleet, "--now", NOW, "--output", form]);
    }
    all.push(vec!["render", &fleet, "--now", NOW, "--diff"]);
    // Pending writes exist only once.
    all.rotate_left(3);
    let mut said = String::new();
    for words in &all {
        let output = stage
            .transom()?
            .args(words)
            .env("RUST_LOG", "debug")
            .output()?;
        let what = format!("{words:?}").escape_debug().to_string();
        said += &check(&what, &output.stdout)?;
        said += &check(&what, &output.stderr)?;
        if words.contains(&"json") && words[0] != "run" {
            let document: Value =
                serde_json::from_slice(&output.stdout).with_context(|| what.clone())?;
            ensure!(!document.is_null());
        }
    }
    ensure!(
        said.contains(r"a\n2026-01-01T00:00:00Z  INFO FORGED\u001b[31m\u009b2J\u202e\u2066\u2028"),
        "{said}"
    );
    for path in tree::files(&stage.own())? {
        check(
            &format!("{}", path.display()).escape_debug().to_string(),
            &fs::read(&path)?,
        )?;
    }
    Ok(())
}

#[test]
fn a_running_agent_escapes_names_in_its_log() -> Result<()> {
    for form in ["text", "json"] {
        let stage = stage()?;
        let mut command: Command = stage.run()?;
        command
            .args(["--log-format", form, "--now", NOW])
            .env("RUST_LOG", "debug");
        let agent = Agent::start(&mut command, stage.path("log"))?;
        agent.wait("the lines of all clusters", || {
            let log = agent.log().ok()?;
            (log.contains("FORGED") && log.contains(r"n0\\u0001") && log.contains("broken.yaml"))
                .then_some(())
        })?;
        put(&stage.fleet.join(format!("{FORGED} broken.yaml")), b"")?;
        agent.wait_for_lines(1, &["readable again"])?;
        let log = check(form, agent.stop()?.as_bytes())?;
        match form {
            "json" => {
                let told = log
                    .lines()
                    .map(serde_json::from_str::<Value>)
                    .collect::<Result<Vec<_>, _>>()?;
                let forged = |line: &Value| {
                    line["primary"]
                        .as_str()
                        .is_some_and(|primary| primary.contains("INFO FORGED\\u001b"))
                };
                ensure!(told.iter().any(forged), "{log}");
            }
            _ => ensure!(log.contains(r#"primary="ManagedCluster a\\n2026"#), "{log}"),
        }
    }
    Ok(())
}

#[test]
fn json_output_reports_the_end_of_a_run_in_fields() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    put(&stage.fleet.join("broken.yaml"), b"kind: {")?;
    let output = stage
        .run()?
        .args(["--once", "--now", NOW, "--log-format", "json"])
        .output()?;
    let text = String::from_utf8(output.stderr)?;
    let told = text
        .lines()
        .map(serde_json::from_str::<Value>)
        .collect::<Result<Vec<_>, _>>()?;
    let counted = told.iter().any(|line| {
        line["state"] == "Applied" && line["reason"].is_string() && line["primaries"].is_u64()
    });
    ensure!(counted, "{text}");
    let broken: Vec<_> = told
        .iter()
        .filter(|line| line["place"] == "broken.yaml" && line["level"] == "INFO")
        .collect();
    ensure!(
        broken.len() == 1 && broken[0]["reason"] == "ManifestInvalid",
        "{text}"
    );
    ensure!(
        broken[0]["message"]
            .as_str()
            .is_some_and(|said| said.matches("broken.yaml").count() == 1),
        "{text}"
    );
    let status = fs::read_to_string(stage.own().join("status/built-in-taints.yaml"))?;
    ensure!(
        status.contains("reason: ManifestInvalid") && status.contains("broken.yaml: document 1"),
        "{status}"
    );
    Ok(())
}
