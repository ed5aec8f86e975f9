//! `RUST_LOG=trace` shows no credential: of no connection, whether it works or not, and of no Secret that is read or
//! written. Every test searches the output at its end; here the log is as verbose as possible, libraries included.

use crate::objects::{CLUSTERS, OUTPUT, rotated};
use crate::stage::{DEADLINE, HOME, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use transom_e2e::program;
use transom_test_cluster::{Fault, Proxy, wait};

/// One way to connect: its name, the user of the kubeconfig, and whether it works, unless that depends on others.
type Way = (&'static str, Value, Option<bool>);

fn talkative(command: &mut Command) -> &mut Command {
    command
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full")
}

/// A program that prints a text to standard output and standard error and exits with a code.
fn plugin(folder: &Path, name: &str, text: &str, code: u8) -> Result<Value> {
    let said = folder.join(format!("{name}.said"));
    fs::write(&said, text)?;
    let script = format!("cat '{0}'; cat '{0}' >&2; exit {code}", said.display());
    Ok(
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "interactiveMode": "Never"}}),
    )
}

/// Every way, each with a credential that the search looks for.
fn ways(stage: &Stage, folder: &Path) -> Result<Vec<Way>> {
    let guard = &stage.guard;
    let token = stage.agent.token().context("the agent has no token")?;
    // RBAC knows an account by its name, however it was authenticated.
    let certified = stage
        .cluster
        .user(stage.agent.name(), &["system:authenticated"])?;
    let certified: Value = serde_yaml::from_str(&stage.cluster.kubeconfig(&certified)?)?;
    let certified = certified["users"][0]["user"].clone();
    let key = STANDARD.decode(certified["client-key-data"].as_str().context("no key")?)?;
    let key = String::from_utf8(key)?;
    key.lines()
        .filter(|line| line.len() > 40)
        .for_each(|line| guard.look_for("the key of a client", line));
    fs::write(folder.join("token"), token)?;
    let credential = |token: &str| {
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}})
            .to_string()
    };
    let broken = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        guard.plant("a broken key")
    );
    let encoded = |text: &str| STANDARD.encode(text);
    Ok(vec![
        ("a token", json!({"token": token}), Some(true)),
        (
            "a file with a token",
            json!({"tokenFile": folder.join("token")}),
            Some(true),
        ),
        ("a certificate", certified.clone(), Some(true)),
        (
            "a plugin",
            plugin(folder, "good", &credential(token), 0)?,
            Some(true),
        ),
        (
            "a token that is refused",
            json!({"token": guard.plant("a refused token")}),
            Some(false),
        ),
        (
            "a password",
            json!({"username": "u", "password": guard.plant("a password")}),
            Some(false),
        ),
        (
            "a plugin's token that is refused",
            plugin(
                folder,
                "refused",
                &credential(&guard.plant("a plugin's token")),
                0,
            )?,
            Some(false),
        ),
        (
            "a plugin that fails",
            plugin(folder, "fails", &guard.plant("what a plugin says"), 1)?,
            Some(false),
        ),
        (
            "a plugin that babbles",
            plugin(
                folder,
                "babbles",
                &format!("{{\"status\": {}", guard.plant("no JSON")),
                0,
            )?,
            Some(false),
        ),
        (
            "a key that is none",
            json!({"client-certificate-data": certified["client-certificate-data"], "client-key-data": encoded(&broken)}),
            Some(false),
        ),
        (
            "a key of another type",
            json!({"client-key-data": {"data": guard.plant("a key that is a mapping")}}),
            Some(false),
        ),
        (
            "a token of two lines",
            json!({"token": format!("{}\nX-Header: y", guard.plant("a token of two lines"))}),
            Some(false),
        ),
    ])
}

/// Runs the agent once with one way to connect, as verbose as possible.
fn once(stage: &Stage, folder: &Path, way: &Way, at: usize, change: &Change) -> Result<()> {
    let (name, user, works) = way;
    let mut document: Value = serde_yaml::from_str(&stage.cluster.kubeconfig(&stage.agent)?)?;
    document["users"][0]["user"] = user.clone();
    let (kubeconfig, said) = (
        folder.join(format!("{at}.kubeconfig")),
        folder.join(format!("{at}.said-by-agent")),
    );
    let mut command = Command::new(program::binary()?);
    let format = ["text", "json"][at % 2];
    command
        .args(["run", "--once", "--log-format", format, "--kubeconfig"])
        .arg(&kubeconfig)
        .current_dir(folder);
    change(&mut document, talkative(&mut command));
    fs::write(&kubeconfig, serde_yaml::to_string(&document)?)?;
    let output = command.output()?;
    ensure!(
        works.is_none_or(|works| output.status.success() == works),
        "{name}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    fs::write(&said, [output.stdout, output.stderr].concat())?;
    stage.guard.search(said);
    Ok(())
}

/// What a way changes in the kubeconfig and in the command.
type Change<'a> = Box<dyn Fn(&mut Value, &mut Command) + Send + Sync + 'a>;

#[test]
fn no_kind_of_connection_leaks_its_credential() -> Result<()> {
    on_stage(async |stage| {
        stage.ready("loud", true).await?;
        let folder = stage.cluster.folder().join("traced");
        fs::create_dir_all(&folder)?;
        let secret = |place: &str| stage.guard.plant(place);
        let proxy = format!(
            "http://user:{}@127.0.0.1:9",
            secret("a password of a proxy")
        );
        let unchanged = |way| -> (Way, Change) { (way, Box::new(|_, _| {})) };
        let mut tries: Vec<(Way, Change)> =
            ways(stage, &folder)?.into_iter().map(unchanged).collect();
        let token = json!({"token": stage.agent.token()});
        // If a URL contains a secret, libraries print it with each request.
        let server = stage.cluster.server();
        tries.push((
            ("a proxy", token.clone(), Some(false)),
            Box::new(|document, _| document["clusters"][0]["cluster"]["proxy-url"] = json!(proxy)),
        ));
        tries.push((
            ("a proxy of the environment", token.clone(), Some(false)),
            Box::new(|_, command| {
                command
                    .env("HTTPS_PROXY", &proxy)
                    .env_remove("NO_PROXY")
                    .env_remove("no_proxy");
            }),
        ));
        for address in [
            server.replace(
                "https://",
                &format!("https://user:{}@", secret("a password of a server")),
            ),
            format!("{server}/?token={}", secret("a query of a server")),
        ] {
            tries.push((
                ("a server with more than a host", token.clone(), None),
                Box::new(move |document, _| {
                    document["clusters"][0]["cluster"]["server"] = json!(address);
                }),
            ));
        }
        // An agent without a connection gives up after seconds, so they run side by side.
        thread::scope(|scope| {
            let folder = &folder;
            let tries = tries.iter().enumerate();
            let tries: Vec<_> = tries
                .map(|(at, (way, change))| {
                    scope.spawn(move || once(stage, folder, way, at, change))
                })
                .collect();
            tries.into_iter().try_for_each(|one| {
                one.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    })
}

#[test]
fn a_running_agent_leaks_nothing_that_it_reads_or_writes() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.ready("loud", true).await?;
        let proxy = Proxy::start(&stage.cluster).await?;
        let words = ["--policy-objects", "--lease-namespace", HOME];
        let mut command = stage.command_of(&stage.agent, &proxy.server(), &words)?;
        let agent = stage.start_command(talkative(&mut command))?;
        agent.wait_for_first_pass()?;
        stage.wait_for_right("loud", 6443).await?;
        // Watched, rotated and overwritten.
        let source = stage
            .get(SECRET, Some(CLUSTERS), "loud-admin-kubeconfig")
            .await?
            .context("no source")?;
        stage
            .patch(
                SECRET,
                Some(CLUSTERS),
                "loud-admin-kubeconfig",
                rotated(&source, 1)?,
            )
            .await?;
        stage.wait_for_right("loud", 6443).await?;
        let other = json!({"data": {"kubeconfig": STANDARD.encode(stage.guard.plant("what somebody else wrote"))}});
        stage
            .patch(SECRET, Some("klusterlet-loud"), OUTPUT, other)
            .await?;
        stage.wait_for_right("loud", 6443).await?;
        // Unreadable answers with half of the real content: lists and objects, including Secrets.
        proxy.fail(Some(Fault::Half));
        proxy.cut();
        stage.move_port("loud", 7443).await?;
        let met = async || Ok((proxy.met() >= 10).then_some(()));
        wait::until("half answers", DEADLINE, met).await?;
        proxy.fail(None);
        stage.wait_for_right("loud", 7443).await?;
        let said = agent.stop()?;
        // As verbose as possible: the agent's own lines below `info` are included.
        ensure!(
            ["TRACE", "DEBUG"].iter().any(|level| said.contains(level)),
            "nothing below info was said"
        );
        Ok(())
    })
}
