//! Connections that are missing or slow when the agent starts, beside one that works; and the output of credential
//! plugins. All lead to one real server; the name of the connection tells which one was used.

use crate::objects::CLUSTERS;
use crate::stage::{DEADLINE, HOSTED, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use transom_core::time::parse_rfc3339;
use transom_e2e::agent::Agent;
use transom_e2e::{http, program};
use transom_test_cluster::{Carries, Proxy, Wire, wait};

/// The agent's account with several ways to the one server, a context for each.
fn kubeconfig(stage: &Stage, ways: &[(&str, &str)]) -> Result<PathBuf> {
    let (mut clusters, mut contexts, mut user) = (Vec::new(), Vec::new(), Value::Null);
    for (name, server) in ways {
        let one: Value = serde_yaml::from_str(&stage.cluster.kubeconfig_at(&stage.agent, server)?)?;
        clusters.push(json!({"name": name, "cluster": one["clusters"][0]["cluster"]}));
        contexts.push(json!({"name": name, "context": {"cluster": name, "user": "agent"}}));
        user = one["users"][0]["user"].clone();
    }
    let all = json!({"apiVersion": "v1", "kind": "Config", "clusters": clusters, "contexts": contexts,
        "users": [{"name": "agent", "user": user}]});
    let path = stage.cluster.folder().join(format!("ways-{}", ways.len()));
    fs::write(&path, serde_yaml::to_string(&all)?)?;
    Ok(path)
}

/// A bundled policy for the objects of a connection, under its own name.
fn policy(folder: &Path, name: &str, connection: &str) -> Result<()> {
    let mut policy = program::manifest(name)?;
    policy["metadata"]["name"] = json!(format!("{name}-{connection}"));
    policy["spec"]["primary"]["cluster"] = json!(connection);
    for rules in ["read", "write"] {
        for rule in policy["spec"]["grant"][rules]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if rule["target"].is_null() {
                rule["cluster"] = json!(connection);
            }
        }
    }
    fs::write(
        folder.join(format!("{name}-{connection}.yaml")),
        serde_yaml::to_string(&policy)?,
    )?;
    Ok(())
}

/// Starts the agent on some connections of a kubeconfig.
fn start(
    stage: &Stage,
    kubeconfig: &Path,
    policies: &Path,
    ways: &[(&str, &str)],
) -> Result<Agent> {
    let mut command = Command::new(program::binary()?);
    command
        .current_dir(stage.cluster.folder())
        .arg("run")
        .arg("--kubeconfig")
        .arg(kubeconfig);
    command.arg("--policies").arg(policies).args([
        "--log-format",
        "json",
        "--admin-address",
        "127.0.0.1:0",
    ]);
    for (name, _) in ways {
        command.args(["--context", &format!("{name}={name}")]);
    }
    stage.start_command(
        command
            .env("RUST_LOG", "info,transom=debug")
            .env("RUST_BACKTRACE", "0"),
    )
}

/// A hosted cluster that competes with all others for a target: it is the oldest.
async fn contested(stage: &Stage, oldest: &str, younger: &[&str]) -> Result<()> {
    stage.ready(oldest, true).await?;
    let born = stage
        .get(HOSTED, Some(CLUSTERS), oldest)
        .await?
        .context("it is not there")?;
    let born = born["metadata"]["creationTimestamp"]
        .as_str()
        .and_then(parse_rfc3339)
        .context("it has no age")?;
    let now = || {
        anyhow::Ok(i64::try_from(
            std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs(),
        )?)
    };
    wait::until("the next second", DEADLINE, async || {
        Ok((now()? > born).then_some(()))
    })
    .await?;
    let claim = json!({"metadata": {"annotations": {"cluster.open-cluster-management.io/managedcluster-name": oldest}}});
    for name in younger {
        stage.ready(name, false).await?;
        stage
            .patch(HOSTED, Some(CLUSTERS), name, claim.clone())
            .await?;
    }
    Ok(())
}

#[test]
fn late_or_slow_connections_block_no_other_and_work_once_they_answer() -> Result<()> {
    on_stage(async |stage| {
        let (wire, proxy) = (
            Wire::to(&stage.cluster.server())?,
            Proxy::start(&stage.cluster).await?,
        );
        wire.cut();
        proxy.hold(Some("managedclusters"));
        let (cut, slow, good) = (wire.server(), proxy.server(), stage.cluster.server());
        let ways = [
            ("away", cut.as_str()),
            ("local", good.as_str()),
            ("slow", slow.as_str()),
        ];
        let policies = tempfile::tempdir()?;
        policy(policies.path(), "external-managed-kubeconfig", "away")?;
        policy(policies.path(), "built-in-taints", "local")?;
        policy(policies.path(), "built-in-taints", "slow")?;
        contested(stage, "zone", &["alpha", "beta", "gamma"]).await?;
        for name in ["edge", "far"] {
            stage.managed(name).await?;
        }
        let mark = stage.mark()?;
        let agent = start(stage, &kubeconfig(stage, &ways)?, policies.path(), &ways)?;
        stage.set_available("edge", "Unknown").await?;
        stage
            .taint_times("edge", 1)
            .await
            .with_context(|| agent.tail())?;
        // The slow connection is still listing: readiness waits for it, the others did not.
        let admin = agent.admin().context("it has no admin server")?;
        ensure!(
            http::get(admin, "/readyz")?.status == 503,
            "the test is too slow: everything was listed meanwhile"
        );
        agent.wait_for_lines(1, &[&cut, "ServerUnavailable"])?;
        proxy.hold(None);
        agent.ready()?;
        // A connection that was missing at the start counts when it comes: the oldest primary owns the contested
        // target.
        wire.carry(Carries::All);
        stage
            .wait_for_right("zone", 6443)
            .await
            .with_context(|| agent.tail())?;
        stage.move_port("zone", 7443).await?;
        stage
            .wait_for_right("zone", 7443)
            .await
            .with_context(|| agent.tail())?;
        agent.stop()?;
        let writes = stage.writes(mark).await?;
        // It is created once and handed over once; each is one server-side apply.
        let made = writes
            .iter()
            .filter(|write| write.contains("secrets klusterlet-zone/"))
            .count();
        ensure!(made == 2, "somebody younger had it in between: {writes:?}");
        Ok(())
    })
}

#[test]
fn a_credential_plugin_may_return_a_token_or_a_certificate() -> Result<()> {
    on_stage(async |stage| {
        let folder = tempfile::tempdir()?;
        let certified = stage.cluster.user("certified", &["system:masters"])?;
        for (index, (user, fields)) in [
            (&stage.agent, [("token", "token")].as_slice()),
            (
                &certified,
                &[
                    ("clientCertificateData", "client-certificate-data"),
                    ("clientKeyData", "client-key-data"),
                ],
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let mut config: Value = serde_yaml::from_str(&stage.cluster.kubeconfig(user)?)?;
            let mut status = serde_json::Map::new();
            for (said, field) in fields {
                let text = config["users"][0]["user"][field]
                    .as_str()
                    .context("the user has no such field")?
                    .to_owned();
                let text = if *said == "token" {
                    text
                } else {
                    decoded(&text)?
                };
                status.insert((*said).to_owned(), json!(text));
            }
            let answer = folder.path().join(format!("answer-{index}"));
            fs::write(
                &answer,
                json!({"kind": "ExecCredential", "status": status}).to_string(),
            )?;
            config["users"][0]["user"] = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1",
                "command": "cat", "args": [answer], "interactiveMode": "Never"}});
            let path = folder.path().join(format!("kubeconfig-{index}"));
            fs::write(&path, serde_yaml::to_string(&config)?)?;
            let mark = stage.mark()?;
            let output = Command::new(program::binary()?)
                .args(["run", "--once", "--kubeconfig"])
                .arg(&path)
                .current_dir(folder.path())
                .output()?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(
                output.status.success(),
                "{index}: {}: {said}",
                output.status
            );
            let lines = stage.all_lines(mark).await?;
            ensure!(
                lines.iter().any(|line| line.user == user.name()),
                "{index}: it asked as somebody else: {said}"
            );
        }
        Ok(())
    })
}

fn decoded(text: &str) -> Result<String> {
    use base64::Engine as _;
    Ok(String::from_utf8(
        base64::engine::general_purpose::STANDARD.decode(text)?,
    )?)
}
