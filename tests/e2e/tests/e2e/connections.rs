//! Connections that do not answer, beside a working directory: each is reported by name and reason, and none delays the
//! others or the exit.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use transom_e2e::agent::{Agent, DEADLINE, has_ended};
use transom_e2e::program;
use transom_e2e::program::{code, stderr};
use transom_e2e::stage::{Stage, put};
use transom_support::wait;

/// A credential that no output may show.
const TOKEN: &str = "hunter2-hunter2";

/// An API server that does not answer: the name of its context, its address, and the user's fields in its kubeconfig.
struct Away {
    name: &'static str,
    server: String,
    user: String,
    /// The expected reason.
    reason: &'static str,
}

/// Every way in which a server may not answer. The caller must keep the listeners.
fn all_away(folder: &Path) -> Result<(Vec<Away>, Vec<TcpListener>)> {
    let (closed, silent) = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    let at = |listener: &TcpListener| {
        Ok::<_, anyhow::Error>(format!("https://{}", listener.local_addr()?))
    };
    let (closed_at, silent_at) = (at(&closed)?, at(&silent)?);
    drop(closed);
    let token = format!("token: {TOKEN}");
    let away = |name, server: &str, user: &str, reason| Away {
        name,
        server: server.to_owned(),
        user: user.to_owned(),
        reason,
    };
    let all = vec![
        away("refuses", &closed_at, &token, "ServerUnavailable"),
        away("silent", &silent_at, &token, "ServerUnavailable"),
        away("stranger", &stranger()?, &token, "ReadFailed"),
        away(
            "hangs",
            &silent_at,
            &plugin(folder, &hanging(folder))?,
            "ReadFailed",
        ),
        away(
            "fails",
            &silent_at,
            &plugin(folder, "exit 3")?,
            "ReadFailed",
        ),
    ];
    Ok((all, vec![silent]))
}

/// A foreign server that knows none of the requested paths.
fn stranger() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer =
                "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnope";
            // The client may have gone.
            drop(
                stream
                    .read(&mut [0; 4096])
                    .and_then(|_| stream.write_all(answer.as_bytes())),
            );
        }
    });
    Ok(format!("http://{address}"))
}

/// A plugin that never ends; its process id is in the file `pid`.
fn hanging(folder: &Path) -> String {
    format!(
        "echo $$ > '{0}.draft'; mv '{0}.draft' '{0}'; exec sleep 100000",
        folder.join("pid").display()
    )
}

/// The user of a credential plugin that runs a script.
fn plugin(folder: &Path, script: &str) -> Result<String> {
    let path = folder.join(format!("plugin-{}", script.len()));
    put(&path, script.as_bytes())?;
    Ok(format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: ['{}']}}",
        path.display()
    ))
}

/// A kubeconfig with a context for each.
fn kubeconfig(stage: &Stage, all: &[Away]) -> Result<PathBuf> {
    let mut text = "apiVersion: v1\nkind: Config\nclusters:\n".to_owned();
    for Away { name, server, .. } in all {
        text += &format!("- {{name: {name}, cluster: {{server: '{server}'}}}}\n");
    }
    text += "users:\n";
    for Away { name, user, .. } in all {
        text += &format!("- {{name: {name}, user: {{{user}}}}}\n");
    }
    text += "contexts:\n";
    for Away { name, .. } in all {
        text += &format!("- {{name: {name}, context: {{cluster: {name}, user: {name}}}}}\n");
    }
    let path = stage.path("kubeconfig");
    put(&path, text.as_bytes())?;
    Ok(path)
}

/// The bundled policies, and one more for the taints of each connection that does not answer.
fn policies(stage: &Stage, all: &[Away]) -> Result<()> {
    stage.put_policy("external-managed-kubeconfig", &[])?;
    let text = fs::read_to_string(program::policy("built-in-taints"))?;
    for name in all.iter().map(|away| away.name) {
        let (own, there) = (
            format!("name: taints-{name}\n"),
            format!("  primary:\n    cluster: {name}\n"),
        );
        let text = text
            .replace("name: built-in-taints\n", &own)
            .replace("  primary:\n", &there);
        put(
            &stage.policies.join(format!("{name}.yaml")),
            text.as_bytes(),
        )?;
    }
    Ok(())
}

/// `transom run` on the fleet and on all of these connections.
fn command(stage: &Stage, all: &[Away]) -> Result<Command> {
    let mut command = stage.run()?;
    command.arg("--kubeconfig").arg(kubeconfig(stage, all)?);
    for Away { name, .. } in all {
        command.arg("--context").arg(format!("{name}={name}"));
    }
    Ok(command)
}

/// The process of the plugin that hangs.
fn plugin_process(stage: &Stage) -> Result<u32> {
    let path = stage.path("pid");
    let pid = wait::until("the plugin", DEADLINE, || fs::read_to_string(&path).ok())?;
    let pid = pid.trim().parse()?;
    ensure!(!has_ended(pid), "the plugin does not run");
    Ok(pid)
}

#[test]
fn unanswered_connections_are_reported_and_block_neither_others_nor_exit() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    let (all, _kept) = all_away(&stage.path(""))?;
    policies(&stage, &all)?;
    let mut command = command(&stage, &all)?;
    let agent = Agent::start(
        command.args(["--admin-address", "127.0.0.1:0"]),
        stage.path("log"),
    )?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    for Away {
        name,
        reason,
        server,
        ..
    } in &all
    {
        // On the policy that needs the connection, and in the log with name, context and address.
        let status = stage.policy_status(&format!("taints-{name}"));
        stage.wait_for_text(&status, reason)?;
        let told = format!("connection=\"`{name}` (context `{name}`, {server})\" reason={reason}");
        agent.wait_for_lines(1, &[&told])?;
    }
    // The agent works on everything reachable while it retries the rest.
    stage.follows_port(0, 7443)?;
    agent.ready()?;
    let pid = plugin_process(&stage)?;
    let log = agent.stop()?;
    wait::until("the end of the plugin", DEADLINE, || {
        has_ended(pid).then_some(())
    })?;
    ensure!(!log.contains(TOKEN), "it showed a token");
    Ok(())
}

#[test]
fn a_single_run_completes_the_rest_and_names_silent_servers() -> Result<()> {
    let stage = Stage::new(2, 2)?;
    let (all, _kept) = all_away(&stage.path(""))?;
    // A hanging plugin may be waiting for a person: it gets a minute.
    let all: Vec<Away> = all
        .into_iter()
        .filter(|away| !away.user.starts_with("exec"))
        .collect();
    policies(&stage, &all)?;
    let output = command(&stage, &all)?.arg("--once").output()?;
    let said = stderr(&output);
    ensure!(code(&output) == Some(1), "{:?}: {said}", code(&output));
    for Away {
        name,
        reason,
        server,
        ..
    } in &all
    {
        let line = format!("connection `{name}` (context `{name}`, {server}): {reason}: ");
        ensure!(
            said.lines().any(|one| one.starts_with(&line)),
            "`{line}` is missing: {said}"
        );
    }
    ensure!(stage.secret(0).exists() && !said.contains(TOKEN), "{said}");
    // A connection that no policy needs is also named, however soon the rest is done.
    let stage = Stage::new(1, 0)?;
    let silent: Vec<Away> = all
        .into_iter()
        .filter(|away| away.name == "silent")
        .collect();
    policies(&stage, &[])?;
    let output = command(&stage, &silent)?.arg("--once").output()?;
    let said = stderr(&output);
    ensure!(
        code(&output) == Some(1) && said.contains("connection `silent`"),
        "{:?}: {said}",
        code(&output)
    );
    ensure!(stage.secret(0).exists(), "{said}");
    Ok(())
}

/// The program, started with SIGHUP as this option of `env` says: whoever runs the tests may ignore it.
fn with_hangup(stage: &Stage, how: &str) -> Result<Command> {
    let mut command = Command::new("env");
    command.arg(how).arg(program::binary()?);
    command.current_dir(stage.path("")).env_remove("RUST_LOG");
    Ok(command)
}

#[test]
fn an_agent_that_was_started_with_sighup_ignored_goes_on() -> Result<()> {
    let stage = Stage::new(1, 0)?;
    let mut command = with_hangup(&stage, "--ignore-signal=HUP")?;
    command.arg("run").arg("--dir").arg(&stage.fleet);
    let mut agent = Agent::start(&mut command, stage.path("log"))?;
    stage.wait_for_secret(0, "the first secret", |_| true)?;
    agent.signal("-HUP")?;
    // It has not ended when it follows a later change.
    stage.follows_port(0, 7443)?;
    ensure!(agent.ended()?.is_none());
    agent.stop()?;
    Ok(())
}

#[test]
fn an_agent_without_any_server_is_not_ready_and_exits_on_request() -> Result<()> {
    let signals = [
        ("-TERM", "hangs"),
        ("-KILL", "hangs"),
        ("-TERM", "silent"),
        ("-HUP", "silent"),
    ];
    for (signal, name) in signals {
        let stage = Stage::new(0, 0)?;
        let (all, _kept) = all_away(&stage.path(""))?;
        let all: Vec<Away> = all.into_iter().filter(|away| away.name == name).collect();
        let mut command = with_hangup(&stage, "--default-signal=HUP")?;
        command.args(["run", "--admin-address", "127.0.0.1:0", "--context", name]);
        let mut agent = Agent::start(
            command.env("KUBECONFIG", kubeconfig(&stage, &all)?),
            stage.path("log"),
        )?;
        let pid = if name == "hangs" {
            Some(plugin_process(&stage)?)
        } else {
            None
        };
        let told = agent.wait("the first line", || {
            agent.log().ok()?.lines().next().map(str::to_owned)
        })?;
        let named = format!("connection=local context={name} server={}", all[0].server);
        ensure!(told.contains(&named), "the first line is {told}");
        agent.signal(signal)?;
        let ended = wait::until("the end of the agent", DEADLINE, || {
            agent.ended().ok().flatten()
        })?;
        ensure!(ended.success() == (signal != "-KILL"), "{signal}: {ended}");
        if let Some(pid) = pid {
            wait::until("the end of the plugin", DEADLINE, || {
                has_ended(pid).then_some(())
            })
            .with_context(|| format!("after {signal}"))?;
        }
    }
    Ok(())
}

#[test]
fn reports_file_user_and_field_of_a_credential_invalid_as_header() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    for (value, field) in [
        (format!("token: \"{TOKEN}\\n\""), "token"),
        (format!("token: \"a\\u0007{TOKEN}\""), "token"),
        (format!("token: \"{TOKEN}\\u007f\""), "token"),
        (
            format!("username: \"a\\r\\n\", password: {TOKEN}"),
            "username",
        ),
        (
            format!("username: a, password: \"{TOKEN}\\nx\""),
            "password",
        ),
        (format!("as: \"{TOKEN}\\n\", token: a"), "as"),
        (
            format!("as: a, as-groups: [b, \"{TOKEN}\\n\"], token: a"),
            "as-groups",
        ),
    ] {
        let good = Away {
            name: "good",
            server: "https://127.0.0.1:1".to_owned(),
            user: "token: a".to_owned(),
            reason: "",
        };
        let bad = Away {
            name: "bad",
            server: "https://127.0.0.1:1".to_owned(),
            user: value.clone(),
            reason: "",
        };
        let path = kubeconfig(&stage, &[good, bad])?;
        let output = stage
            .transom()?
            .args(["run", "--once", "--context", "bad"])
            .env("KUBECONFIG", &path)
            .output()?;
        let said = stderr(&output);
        ensure!(
            code(&output) == Some(2) && said.lines().count() == 1,
            "{value}: {:?}: {said}",
            code(&output)
        );
        let named = [
            &path.display().to_string(),
            "user `bad`",
            &format!("users[1].user.{field} "),
        ];
        ensure!(
            named.iter().all(|word| said.contains(*word)),
            "{value}: {said}"
        );
        ensure!(
            !said.contains(TOKEN) && !said.contains("panicked"),
            "{value}: {said}"
        );
    }
    Ok(())
}
