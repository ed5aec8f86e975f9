//! Which API server the agent uses and how it connects: kubeconfigs, contexts, proxies, and where its Lease is. Checks
//! the audit log, not the agent's own output.

use crate::leases::LEASES;
use crate::stage::{HOME, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use transom_core::rights::LEASE;
use transom_e2e::agent::Agent;
use transom_e2e::{http, program};
use transom_test_cluster::{Carries, Tunnels, User, Wire};

/// Other environment variables that affect the connection to a server.
const VARIABLES: [&str; 7] = [
    "KUBECONFIG",
    "KUBERNETES_SERVICE_HOST",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "RUST_LOG",
];

/// A folder for the user's files, and a command whose environment contains nothing else.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Result<Self> {
        Ok(Self {
            folder: tempfile::tempdir()?,
        })
    }

    fn put(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().context("a file lies in no folder")?)?;
        fs::write(&path, text)?;
        Ok(path)
    }

    /// The same in a pod on this server, as far as the environment goes: a test may not write to the path of a pod's
    /// account files.
    fn once_in_pod(&self, stage: &Stage) -> Result<Command> {
        let server = stage.cluster.server();
        let (host, port) = server
            .trim_start_matches("https://")
            .split_once(':')
            .context("the server has no port")?;
        let mut pod = self.once()?;
        pod.env("KUBERNETES_SERVICE_HOST", host)
            .env("KUBERNETES_SERVICE_PORT", port);
        Ok(pod)
    }

    /// `transom run --once` of a user without any configuration.
    fn once(&self) -> Result<Command> {
        let mut command = Command::new(program::binary()?);
        let home = self.folder.path().join("home");
        fs::create_dir_all(&home)?;
        command
            .args(["run", "--once"])
            .current_dir(self.folder.path());
        for name in VARIABLES {
            command.env_remove(name);
        }
        command.env("HOME", home);
        Ok(command)
    }
}

/// The agent works, and uses this server.
async fn works(stage: &Stage, what: &str, command: &mut Command) -> Result<()> {
    let mark = stage.mark()?;
    let output = command
        .output()
        .with_context(|| format!("{what}: failed to start it"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{what}: {}: {said}", output.status);
    ensure!(
        !stage.lines(mark).await?.is_empty(),
        "{what}: it asked another server: {said}"
    );
    Ok(())
}

/// The agent reports what is wrong and sends no request.
async fn is_refused(stage: &Stage, named: &[&str], command: &mut Command) -> Result<()> {
    let mark = stage.mark()?;
    stage.all_lines(mark).await?;
    // Under load the server logs the end of an earlier agent's watch late; its request came before this.
    let before = stage.cluster.audit().since(mark)?;
    let before = before.into_iter().map(|line| line.received).max();
    let output = command.output().context("failed to start it")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(2),
        "{named:?}: {}: {said}",
        output.status
    );
    ensure!(
        named.iter().all(|word| said.contains(word)) && said.lines().count() == 1,
        "{named:?}: {said}"
    );
    let mut lines = stage.lines(mark).await?;
    lines.retain(|line| Some(&line.received) > before.as_ref());
    ensure!(
        lines.is_empty(),
        "{named:?}: it worked on the server of its pod"
    );
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path is no text")
}

#[test]
fn uses_the_kubeconfig_or_else_the_pod_identity() -> Result<()> {
    on_stage(async |stage| {
        let desk = Desk::new()?;
        let good = desk.put("good", &stage.cluster.kubeconfig(&stage.agent)?)?;
        let broken = desk.put(
            "broken",
            "apiVersion: v1\nkind: Config\nclusters: [{name: hunter2",
        )?;
        let missing = desk.folder.path().join("missing");
        works(stage, "KUBECONFIG", desk.once()?.env("KUBECONFIG", &good)).await?;
        // Without a kubeconfig it looks for the pod's identity.
        let identity = ["there is no kubeconfig", "no service account of a pod"];
        is_refused(stage, &identity, &mut desk.once_in_pod(stage)?).await?;
        is_refused(
            stage,
            &identity,
            desk.once_in_pod(stage)?.env("KUBECONFIG", ""),
        )
        .await?;
        // If something named cannot be used, the pod's identity does not replace it.
        for (bad, why) in [(&missing, "No such file"), (&broken, "well-formed")] {
            let named = ["KUBECONFIG", text(bad)?, why];
            is_refused(
                stage,
                &named,
                desk.once_in_pod(stage)?.env("KUBECONFIG", bad),
            )
            .await?;
        }
        let both = std::env::join_paths([&good, &missing])?;
        is_refused(
            stage,
            &["KUBECONFIG", text(&missing)?],
            desk.once_in_pod(stage)?.env("KUBECONFIG", both),
        )
        .await?;
        let words = ["--context", "nobody"];
        let named = ["KUBECONFIG", text(&good)?, "no context `nobody`"];
        is_refused(
            stage,
            &named,
            desk.once_in_pod(stage)?
                .env("KUBECONFIG", &good)
                .args(words),
        )
        .await?;
        is_refused(
            stage,
            &["context `nobody`", "KUBECONFIG"],
            desk.once_in_pod(stage)?.args(words),
        )
        .await?;
        let flag = ["--kubeconfig", text(&missing)?];
        is_refused(
            stage,
            &[flag[1]],
            desk.once_in_pod(stage)?.env("KUBECONFIG", &good).args(flag),
        )
        .await?;
        is_refused(stage, &identity, &mut desk.once()?).await?;
        let own = desk.put("home/.kube/config", "nonsense")?;
        is_refused(
            stage,
            &[text(&own)?, "well-formed"],
            &mut desk.once_in_pod(stage)?,
        )
        .await?;
        desk.put(
            "home/.kube/config",
            &stage.cluster.kubeconfig(&stage.agent)?,
        )?;
        works(stage, "~/.kube/config", &mut desk.once()?).await?;
        works(
            stage,
            "KUBECONFIG before ~/.kube/config",
            desk.once()?.env("KUBECONFIG", &good),
        )
        .await
    })
}

/// A kubeconfig with a context for each user, named like the user here.
fn contexts(stage: &Stage, users: &[(&str, &User)]) -> Result<String> {
    let mut all: Value = serde_yaml::from_str(&stage.cluster.kubeconfig(&stage.agent)?)?;
    let (mut named, mut contexts) = (Vec::new(), Vec::new());
    for (name, user) in users {
        let one: Value = serde_yaml::from_str(&stage.cluster.kubeconfig(user)?)?;
        named.push(json!({"name": name, "user": one["users"][0]["user"]}));
        contexts.push(json!({"name": name, "context": {"cluster": "test", "user": name}}));
    }
    (all["users"], all["contexts"], all["current-context"]) =
        (json!(named), json!(contexts), Value::Null);
    Ok(serde_yaml::to_string(&all)?)
}

#[test]
fn keeps_the_lease_on_local_or_else_on_the_first_connection() -> Result<()> {
    on_stage(async |stage| {
        let desk = Desk::new()?;
        let other = stage.another_agent("other").await?;
        let kubeconfig = desk.put(
            "two",
            &contexts(stage, &[("mine", &stage.agent), ("others", &other)])?,
        )?;
        for (flags, holder) in [
            (["hub=others", "local=mine"], &stage.agent),
            (["hub=mine", "edge=others"], &stage.agent),
            (["mine", "hub=others"], &stage.agent),
            (["zoo=others", "edge=mine"], &other),
        ] {
            stage.delete(LEASES, Some(HOME), LEASE).await?;
            let mark = stage.mark()?;
            let mut transom = Command::new(program::binary()?);
            transom.args([
                "run",
                "--context",
                flags[0],
                "--context",
                flags[1],
                "--lease-namespace",
                HOME,
            ]);
            let agent = stage.start_command(
                transom
                    .env("KUBECONFIG", &kubeconfig)
                    .env("HOSTNAME", "one"),
            )?;
            stage
                .wait_for_holder("one")
                .await
                .with_context(|| agent.tail())?;
            agent.stop()?;
            let lines = stage.all_lines(mark).await?;
            for user in [&stage.agent, &other] {
                let mut of_user = lines
                    .iter()
                    .filter(|line| line.user == user.name())
                    .peekable();
                ensure!(
                    of_user.peek().is_some(),
                    "{flags:?}: {} asked nothing",
                    user.name()
                );
                let leases = of_user.any(|line| line.resource() == "leases");
                ensure!(
                    leases == (user.name() == holder.name()),
                    "{flags:?}: the Lease is not on one connection"
                );
            }
        }
        Ok(())
    })
}

#[test]
fn uses_a_proxy_unless_the_server_is_exempt() -> Result<()> {
    on_stage(async |stage| {
        let desk = Desk::new()?;
        let server = stage.cluster.server();
        let named = server.replace("127.0.0.1", "localhost");
        let [by_name, by_address] =
            ["localhost", "127.0.0.1"].map(|host| Some(format!("http://{host}:PORT")));
        let (nowhere, none) = (Some("http://127.0.0.1:1".to_owned()), None);
        // The last value says whether the proxy was used.
        for (at, in_kubeconfig, in_environment, exempt, used) in [
            (&server, &by_address, &none, "", true),
            (&server, &by_address, &nowhere, "127.0.0.1", true),
            (&server, &none, &by_address, "", true),
            (&server, &none, &by_address, "127.0.0.1", false),
            (&server, &none, &by_name, "10.0.0.0/8,127.0.0.0/8", false),
            (&server, &none, &by_name, "localhost", true),
            (&named, &none, &by_address, "127.0.0.1", true),
            (&named, &none, &by_address, "example.com, localhost", false),
            (&named, &none, &by_address, "*", false),
        ] {
            // One proxy for each case: under load it counts a connection only after the agent has exited.
            let proxy = Tunnels::start()?;
            let here = |url: &Option<String>| {
                url.as_ref()
                    .map(|url| url.replace("PORT", &proxy.port.to_string()))
            };
            let mut kubeconfig: Value =
                serde_yaml::from_str(&stage.cluster.kubeconfig_at(&stage.agent, at)?)?;
            kubeconfig["clusters"][0]["cluster"]["proxy-url"] = json!(here(in_kubeconfig));
            let path = desk.put("kubeconfig", &serde_yaml::to_string(&kubeconfig)?)?;
            let mut command = desk.once()?;
            command
                .arg("--kubeconfig")
                .arg(path)
                .env("NO_PROXY", exempt);
            command.envs(here(in_environment).map(|proxy| ("HTTPS_PROXY", proxy)));
            let case =
                format!("{at} by {in_kubeconfig:?} or {in_environment:?}, not for `{exempt}`");
            works(stage, &case, &mut command).await?;
            ensure!(
                (proxy.made() > 0) == used,
                "{case}: the proxy was {}used",
                if used { "not " } else { "" }
            );
        }
        let path = desk.put("kubeconfig", &stage.cluster.kubeconfig(&stage.agent)?)?;
        let mut command = desk.once()?;
        command
            .arg("--kubeconfig")
            .arg(&path)
            .env("HTTPS_PROXY", "http://127.0.0.1:1")
            .env("NO_PROXY", "a,,b");
        is_refused(stage, &["NO_PROXY"], &mut command).await
    })
}

/// More data than a slow network carries in five minutes.
async fn much(stage: &Stage) -> Result<()> {
    stage.objects().namespace("much").await?;
    let data = json!({"data": "eHh4".repeat(200_000)});
    for number in 0..8 {
        let metadata = json!({"name": format!("much-{number}"), "namespace": "much"});
        stage
            .objects()
            .create(
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}),
            )
            .await?;
    }
    Ok(())
}

fn status(agent: &Agent, path: &str) -> Option<u16> {
    Some(http::get(agent.admin()?, path).ok()?.status)
}

#[test]
fn does_not_campaign_for_the_lease_before_it_is_ready() -> Result<()> {
    on_stage(async |stage| {
        stage.delete(LEASES, Some(HOME), LEASE).await?;
        much(stage).await?;
        let wire = Wire::to(&stage.cluster.server())?;
        wire.carry(Carries::Slowly(20_000));
        let words = ["--lease-namespace", HOME, "--admin-address", "127.0.0.1:0"];
        let [cold, warm] = [
            stage.another_agent("cold").await?,
            stage.another_agent("warm").await?,
        ];
        let mark = stage.mark()?;
        let mut command = stage.command_of(&cold, &wire.server(), &words)?;
        let slow = stage.start_command(command.env("HOSTNAME", "cold"))?;
        // It is healthy before it is ready.
        slow.wait("health", || {
            (status(&slow, "/healthz")? == 200).then_some(())
        })?;
        let mut command = stage.command_of(&warm, &stage.cluster.server(), &words)?;
        let quick = stage.start_command(command.env("HOSTNAME", "warm"))?;
        stage.wait_for_holder("warm").await?;
        ensure!(
            status(&slow, "/readyz") == Some(503),
            "the test is too slow: everything was listed meanwhile"
        );
        let start = std::time::Instant::now();
        slow.stop()?;
        // The list alone would take five minutes.
        ensure!(
            start.elapsed() < Duration::from_secs(120),
            "it took {:?} to end",
            start.elapsed()
        );
        quick.stop()?;
        let lines = stage.all_lines(mark).await?;
        let asked = lines
            .iter()
            .any(|line| line.user == cold.name() && line.resource() == "leases");
        ensure!(!asked, "it asked for the Lease before it was ready");
        Ok(())
    })
}
