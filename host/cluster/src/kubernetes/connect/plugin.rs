//! Credential plugins: programs named in a kubeconfig that say who the agent is. Never waits for one without an end, and
//! never shows what one says.

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use kube::client::{Body, Client};
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde_json::{Value, json};
use std::fmt;
use std::io::{IsTerminal as _, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tower::service_fn;
use transom_core::document::{Limits, parse_one};
use transom_core::time::parse_rfc3339;

/// How long one run may take; a person may have to sign in meanwhile. What runs longer is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one request waits for a run that is under way.
const WAIT: Duration = Duration::from_secs(8);
/// A token is renewed so long before its end.
const EARLY: Duration = Duration::from_secs(60);
/// The most bytes that a plugin may say.
const SAID_BYTES: u64 = 1 << 20;
const LIMITS: Limits = Limits { bytes: 1 << 20, nodes: 1_000, depth: 16 };

/// Why a plugin gave no credential, without a word of what it said.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the credential plugin `{command}` {message}")]
pub(in crate::kubernetes) struct PluginError {
    command: String,
    message: String,
}

/// What a plugin said.
#[derive(Clone)]
pub(super) struct Credential {
    header: Option<HeaderValue>,
    /// Certificate chain and key, both PEM.
    pub(super) certificate: Option<(String, String)>,
    until: Option<SystemTime>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

impl Credential {
    fn holds(&self) -> bool {
        self.until.is_none_or(|until| SystemTime::now() + EARLY < until)
    }
}

/// A run that was begun, or ended with this.
type Run = Shared<BoxFuture<'static, Result<Credential, PluginError>>>;

/// One plugin. At any time at most one run of it is under way, whoever waits for it.
pub(super) struct Plugin {
    exec: ExecConfig,
    run: Mutex<Option<Run>>,
}

impl Plugin {
    /// Nothing is run yet.
    pub(super) fn new(exec: ExecConfig) -> Arc<Self> {
        Arc::new(Self { exec, run: Mutex::default() })
    }

    /// The credential, from a run that may take its time.
    pub(super) async fn credential(&self) -> Result<Credential, PluginError> {
        self.run().await
    }

    /// The same client, with the plugin's token on every request.
    pub(super) fn on(self: Arc<Self>, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let with_token = move |mut request: http::Request<Body>| {
            let (plugin, client) = (Arc::clone(&self), client.clone());
            async move {
                let soon = timeout(WAIT, plugin.run()).await;
                let soon =
                    soon.unwrap_or_else(|_| Err(plugin.error(format!("has not ended within {} s", WAIT.as_secs()))));
                if let Some(header) = soon.map_err(|error| kube::Error::Service(error.into()))?.header {
                    request.headers_mut().insert(AUTHORIZATION, header);
                }
                client.send(request).await
            }
        };
        Client::new(service_fn(with_token), namespace)
    }

    /// The run whose credential still holds, or that is under way, or a new one. It goes on when nobody waits any more.
    fn run(&self) -> Run {
        let mut last = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = |run: &&Run| match run.peek() {
            None => true,
            Some(said) => said.as_ref().is_ok_and(Credential::holds),
        };
        if let Some(run) = last.as_ref().filter(usable) {
            return run.clone();
        }
        let (exec, lost) = (self.exec.clone(), self.error("was given up"));
        let task = tokio::spawn(async move { run(&exec).await.map_err(|message| error(&exec, message)) });
        let run = async move { task.await.unwrap_or(Err(lost)) }.boxed().shared();
        *last = Some(run.clone());
        run
    }

    fn error(&self, message: impl Into<String>) -> PluginError {
        error(&self.exec, message)
    }
}

fn error(exec: &ExecConfig, message: impl Into<String>) -> PluginError {
    PluginError { command: exec.command.clone().unwrap_or_default(), message: message.into() }
}

/// A program at work; it ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is only taken note of.
        drop((self.0.kill(), self.0.wait()));
    }
}

async fn run(exec: &ExecConfig) -> Result<Credential, String> {
    let mut running = command(exec)?.spawn().map(Running).map_err(|error| format!("cannot be run: {error}"))?;
    let stdout = running.0.stdout.take().ok_or("has no output")?;
    let ended = spawn_blocking(move || {
        let mut said = Vec::new();
        stdout.take(SAID_BYTES).read_to_end(&mut said).map(|_| said)
    });
    let late = || format!("has not ended within {} s", PATIENCE.as_secs());
    let said = timeout(PATIENCE, ended).await.map_err(|_| late())?;
    let said = said.ok().and_then(Result::ok).ok_or("cannot be heard")?;
    // Whoever has said everything ends at once, or is ended.
    let ended = async {
        loop {
            match running.0.try_wait() {
                Ok(None) => sleep(Duration::from_millis(10)).await,
                ended => return ended,
            }
        }
    };
    match timeout(WAIT, ended).await {
        Ok(Ok(Some(status))) if status.success() => read(&said),
        Ok(Ok(Some(status))) => Err(format!("failed with {status}")),
        _ => Err(late()),
    }
}

/// The program with its arguments and variables, and what it is told about the question.
fn command(exec: &ExecConfig) -> Result<Command, String> {
    let mut command =
        Command::new(exec.command.as_deref().ok_or("is not named: users[].user.exec.command is missing")?);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    // It asks and tells a person where there is one; in a log its words might be a credential.
    let person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let interactive = person && exec.interactive_mode != Some(ExecInteractiveMode::Never);
    let beside = || if interactive { Stdio::inherit() } else { Stdio::null() };
    command.stdin(beside()).stderr(beside()).stdout(Stdio::piped());
    let mut spec = json!({"interactive": interactive});
    if exec.provide_cluster_info {
        spec["cluster"] = serde_json::to_value(&exec.cluster).map_err(|_| "cannot be told of its cluster")?;
    }
    let asked = json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec});
    command.env("KUBERNETES_EXEC_INFO", asked.to_string());
    Ok(command)
}

/// The credential in what a plugin said; a parser's error may quote it, so it is not told.
fn read(said: &[u8]) -> Result<Credential, String> {
    let said = parse_one(said, LIMITS).map_err(|_| "said nothing that is an ExecCredential")?;
    let text = |field: &str| Some(said.get("status")?.get(field)?.as_str()?.to_owned());
    let token = text("token");
    let certificate = text("clientCertificateData").zip(text("clientKeyData"));
    if token.is_none() && certificate.is_none() {
        return Err("gave neither a token nor a certificate with its key".to_owned());
    }
    let header = token.map(|token| bearer(&token)).transpose();
    let header = header.map_err(|()| "gave a token with a character that no header may hold, such as a line break")?;
    let until = match said.get("status").and_then(|status| status.get("expirationTimestamp")) {
        None | Some(Value::Null) => None,
        Some(at) => {
            let seconds = at.as_str().and_then(parse_rfc3339).ok_or("gave an expirationTimestamp that is no time")?;
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
        }
    };
    Ok(Credential { header, certificate, until })
}

/// The header of a token.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, ()> {
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(drop)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> ExecConfig {
        serde_json::from_value(json!({"command": "sh", "args": ["-c", script], "interactiveMode": "Never",
            "env": [{"name": "SECRET", "value": "hunter2"}], "apiVersion": "client.authentication.k8s.io/v1"}))
        .unwrap()
    }

    async fn said(script: &str) -> Result<Credential, String> {
        Plugin::new(sh(script)).credential().await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_plugin_says_a_token_or_why_not_and_never_what_it_said() {
        let told =
            said(r#"echo "{\"status\": {\"token\": \"$SECRET\", \"expirationTimestamp\": \"2099-01-01T00:00:00Z\"}}""#);
        let told = told.await.unwrap();
        assert!(told.holds() && told.header.as_ref().unwrap().as_bytes() == b"Bearer hunter2");
        assert!(!format!("{told:?}").contains("hunter2"));
        assert!(
            said("echo 'status: {clientCertificateData: a, clientKeyData: b}'").await.unwrap().certificate.is_some()
        );
        for (script, why) in [
            ("echo $SECRET >&2; exit 3", "failed with exit status: 3"),
            ("echo hunter2", "gave neither a token"),
            ("echo '{'", "is an ExecCredential"),
            (r#"printf %s '{"status": {"token": "hunter2\nx"}}'"#, "such as a line break"),
            (r#"echo "{\"status\": {\"token\": \"hunter2\", \"expirationTimestamp\": \"soon\"}}""#, "is no time"),
        ] {
            let error = said(script).await.unwrap_err();
            assert!(error.starts_with("the credential plugin `sh` ") && error.contains(why), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let missing: ExecConfig = serde_json::from_value(json!({"command": "/nowhere/plugin"})).unwrap();
        assert!(Plugin::new(missing).credential().await.unwrap_err().to_string().contains("cannot be run"));
    }

    #[tokio::test]
    async fn a_token_is_asked_for_once_while_it_holds_and_a_failure_is_not_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let (runs, path) =
            (|| std::fs::read_to_string(folder.path().join("runs")).unwrap().len(), folder.path().display());
        let lasting = format!("printf x >>{path}/runs; echo '{{\"status\": {{\"token\": \"t\"}}}}'");
        let plugin = Plugin::new(sh(&lasting));
        let both = futures::future::join(plugin.credential(), plugin.credential()).await;
        assert!(both.0.is_ok() && both.1.is_ok() && plugin.credential().await.is_ok());
        assert_eq!(runs(), 1);
        let past = "echo '{\"status\": {\"token\": \"t\", \"expirationTimestamp\": \"2001-01-01T00:00:00Z\"}}'";
        for script in [past, "exit 1"] {
            let before = runs();
            let plugin = Plugin::new(sh(&format!("printf x >>{path}/runs; {script}")));
            drop((plugin.credential().await, plugin.credential().await));
            assert_eq!(runs(), before + 2, "{script}");
        }
    }
}
