//! Credential plugins: programs named in a kubeconfig that give the agent its credential.
//! Every wait for a plugin has a limit, and no message contains its output.

mod clients;
mod running;

use clients::Clients;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use http::header::AUTHORIZATION;
use http::{HeaderValue, StatusCode};
use kube::Config;
use kube::client::{Body, Client};
use kube::config::{ExecConfig, ExecInteractiveMode};
use running::{Bound, RunningPlugin, late};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::IsTerminal as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tower::service_fn;
use transom_core::document::{ParseLimits, parse_one};
use transom_core::share::lock::MutexExt as _;
use transom_core::time::parse_rfc3339;

/// How long one run may take, as a person may have to sign in. A run that takes longer is killed.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long one request waits for a run, and how long a plugin may take to exit after its output.
const WAIT: Duration = Duration::from_secs(8);
/// How long before its end a credential is renewed.
const EARLY: Duration = Duration::from_secs(60);
/// How soon a credential that the API server refuses is replaced again: a plugin may give the same one. Doubled with
/// each refusal in a row, up to the longest.
const REFUSED: Duration = Duration::from_secs(5);
const REFUSED_LONGEST: Duration = Duration::from_secs(300);
const LIMITS: ParseLimits = ParseLimits {
    bytes: 1 << 20,
    nodes: 1_000,
    depth: 16,
};

/// Why a plugin gave no credential. Contains none of its output.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the credential plugin `{command}` {message}")]
pub(in crate::kubernetes) struct PluginError {
    command: String,
    message: String,
}

/// The credential that a plugin gave.
#[derive(Clone)]
struct PluginCredential {
    header: Option<HeaderValue>,
    certificate: Option<PemPair>,
    until: Option<SystemTime>,
}

impl fmt::Debug for PluginCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

impl PluginCredential {
    /// Whether it is still valid after this time.
    fn holds(&self, after: Duration) -> bool {
        self.until
            .is_none_or(|until| SystemTime::now() + after < until)
    }
}

/// A run of a plugin: under way, or ended with this result.
type Run = Shared<BoxFuture<'static, Result<PluginCredential, PluginError>>>;

/// Whether a run has ended with a credential that is still valid after this time.
fn has_valid(run: &Run, after: Duration) -> bool {
    let ended = run.peek();
    ended.is_some_and(|said| said.as_ref().is_ok_and(|said| said.holds(after)))
}

/// The runs that count.
#[derive(Default)]
struct Runs {
    /// The one whose credential is used, or waited for.
    used: Option<Run>,
    /// The one that renews a credential that is still valid.
    next: Option<Run>,
    /// When the last one of these began.
    renewed: Option<Instant>,
}

/// Certificate chain and key, both PEM.
type PemPair = (String, String);

/// One plugin. At most one run is under way at a time, shared by all requests that wait for a credential.
pub(super) struct Plugin {
    exec: ExecConfig,
    /// Program and arguments run in its place, with the plugin's command line appended; empty to run the plugin itself.
    guard: Vec<OsString>,
    runs: Mutex<Runs>,
    /// When a credential was dropped last because the API server refused it, and how many in a row.
    refused: Mutex<Option<(Instant, u32)>>,
}

impl Plugin {
    /// Runs nothing yet.
    pub(super) fn new(exec: ExecConfig, guard: &[OsString]) -> Arc<Self> {
        Arc::new(Self {
            exec,
            guard: guard.to_vec(),
            runs: Mutex::default(),
            refused: Mutex::default(),
        })
    }

    /// A client that adds the plugin's credential to every request: a token as a header, a certificate by a client of
    /// its own.
    ///
    /// # Errors
    /// When no client can be made of the other settings.
    pub(super) fn client(self: Arc<Self>, config: Config) -> Result<Client, kube::Error> {
        let plain = Client::try_from(config.clone())?;
        let namespace = plain.default_namespace().to_owned();
        let clients = Arc::new(Clients::new(config, plain));
        let identified = move |mut request: http::Request<Body>| {
            let (plugin, clients) = (Arc::clone(&self), Arc::clone(&clients));
            async move {
                let late =
                    |_| Err(plugin.error(format!("did not exit within {} s", WAIT.as_secs())));
                let run = plugin.run(Instant::now());
                let said = timeout(WAIT, run.clone()).await.unwrap_or_else(late);
                let client = said.and_then(|said| {
                    if let Some(header) = &said.header {
                        request.headers_mut().insert(AUTHORIZATION, header.clone());
                    }
                    clients.of(&said).map_err(|_| {
                        plugin.error("returned a certificate or key that cannot be used")
                    })
                });
                let client = client.map_err(|error| kube::Error::Service(error.into()))?;
                let answer = client.send(request).await?;
                match answer.status() {
                    StatusCode::UNAUTHORIZED => plugin.refused(&run, Instant::now()),
                    _ => plugin.accepted(),
                }
                Ok::<_, kube::Error>(answer)
            }
        };
        Ok(Client::new(service_fn(identified), namespace))
    }

    /// The run whose credential is still valid, else the one that is under way, else a new run. A valid credential is
    /// used to its end while a run renews it. A run continues when no request waits for it any more.
    fn run(&self, now: Instant) -> Run {
        let mut runs = self.runs.locked();
        let Runs {
            used,
            next,
            renewed,
        } = &mut *runs;
        if let Some(run) = next.take_if(|run| has_valid(run, Duration::ZERO)) {
            *used = Some(run);
        }
        match used.as_ref() {
            Some(run) if has_valid(run, Duration::ZERO) => {
                // A plugin may give what ends soon again.
                let is_due =
                    renewed.is_none_or(|began| now.saturating_duration_since(began) >= REFUSED);
                let is_idle = next.as_ref().is_none_or(|run| run.peek().is_some());
                if is_due && is_idle && !has_valid(run, EARLY) {
                    (*next, *renewed) = (Some(self.begin()), Some(now));
                }
                run.clone()
            }
            Some(run) if run.peek().is_none() => run.clone(),
            _ => {
                let next = next.take().filter(|run| run.peek().is_none());
                used.insert(next.unwrap_or_else(|| self.begin())).clone()
            }
        }
    }

    /// Starts a run.
    fn begin(&self) -> Run {
        let (exec, guard, lost) = (
            self.exec.clone(),
            self.guard.clone(),
            self.error("was aborted"),
        );
        let task = tokio::spawn(async move {
            run(&exec, &guard)
                .await
                .map_err(|message| error(&exec, message))
        });
        let run = async move { task.await.unwrap_or(Err(lost)) }
            .boxed()
            .shared();
        // Nobody may wait for it, and only then it is known that it has ended.
        drop(tokio::spawn(run.clone()));
        run
    }

    /// The API server does not accept the credential of a run: the next request runs the plugin again. Without that a
    /// credential that names no end would be used for ever.
    fn refused(&self, run: &Run, now: Instant) {
        let used = &mut self.runs.locked().used;
        if !used.as_ref().is_some_and(|used| used.ptr_eq(run)) {
            return;
        }
        let mut refused = self.refused.locked();
        let again = match *refused {
            None => 1,
            Some((since, again)) if now.saturating_duration_since(since) >= pause(again) => {
                again.saturating_add(1)
            }
            Some(_) => return,
        };
        (*refused, *used) = (Some((now, again)), None);
    }

    /// The API server gave another answer. The shortest pause stays: a server may refuse only some of the requests.
    fn accepted(&self) {
        if let Some((_, again)) = self.refused.locked().as_mut() {
            *again = 0;
        }
    }

    fn error(&self, message: impl Into<String>) -> PluginError {
        error(&self.exec, message)
    }
}

/// How long a credential is kept after so many refusals in a row.
fn pause(refusals: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(refusals.saturating_sub(1));
    REFUSED.saturating_mul(doubled).min(REFUSED_LONGEST)
}

fn error(exec: &ExecConfig, message: impl Into<String>) -> PluginError {
    PluginError {
        command: exec.command.clone().unwrap_or_default(),
        message: message.into(),
    }
}

async fn run(exec: &ExecConfig, guard: &[OsString]) -> Result<PluginCredential, String> {
    let (running, command) = (Arc::new(RunningPlugin::default()), command(exec, guard)?);
    let (bound, running) = (Bound(Arc::clone(&running)), running);
    let ended = spawn_blocking(move || running.run(command));
    let said = timeout(PATIENCE, ended).await.map_err(|_| late(PATIENCE))?;
    drop(bound);
    read(&said.map_err(|_| "was aborted")??)
}

/// The program with its arguments and variables, and `KUBERNETES_EXEC_INFO`.
fn command(exec: &ExecConfig, guard: &[OsString]) -> Result<Command, String> {
    let program = OsStr::new(
        exec.command
            .as_deref()
            .ok_or("has no command: users[].user.exec.command is missing")?,
    );
    let mut words = guard.iter().map(OsString::as_os_str).chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command.args(words).args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    // A plugin may talk to a person at a terminal. Elsewhere its messages are discarded: in a log they could reveal a
    // credential.
    let person = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let interactive = person && exec.interactive_mode != Some(ExecInteractiveMode::Never);
    if !interactive {
        // An interactive plugin must stay in the foreground process group to use the terminal.
        command.process_group(0);
    }
    let beside = || {
        if interactive {
            Stdio::inherit()
        } else {
            Stdio::null()
        }
    };
    command
        .stdin(beside())
        .stderr(beside())
        .stdout(Stdio::piped());
    let mut spec = json!({"interactive": interactive});
    if exec.provide_cluster_info {
        spec["cluster"] =
            serde_json::to_value(&exec.cluster).map_err(|_| "cannot receive its cluster info")?;
    }
    let asked = json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec});
    command.env("KUBERNETES_EXEC_INFO", asked.to_string());
    Ok(command)
}

/// The credential in the output of a plugin. A parser's error may quote the output, so it is left out.
fn read(said: &[u8]) -> Result<PluginCredential, String> {
    let said = parse_one(said, LIMITS).map_err(|_| "did not print an ExecCredential")?;
    let text = |field: &str| Some(said.get("status")?.get(field)?.as_str()?.to_owned());
    let token = text("token");
    let certificate = text("clientCertificateData").zip(text("clientKeyData"));
    if token.is_none() && certificate.is_none() {
        return Err("returned neither a token nor a certificate with its key".to_owned());
    }
    let header = token.map(|token| bearer(&token)).transpose();
    let header = header
        .map_err(|()| "returned a token with a character that a header must not contain, such as a line break")?;
    let until = match said
        .get("status")
        .and_then(|status| status.get("expirationTimestamp"))
    {
        None | Some(Value::Null) => None,
        Some(at) => {
            let seconds = at
                .as_str()
                .and_then(parse_rfc3339)
                .ok_or("returned an expirationTimestamp that is not a time")?;
            Some(
                SystemTime::UNIX_EPOCH
                    + Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
            )
        }
    };
    Ok(PluginCredential {
        header,
        certificate,
        until,
    })
}

/// The header of a token.
fn bearer(token: &str) -> Result<HeaderValue, ()> {
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(drop)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_test_cluster::{Answer, Hostile};

    fn sh(script: &str) -> ExecConfig {
        serde_json::from_value(json!({"command": "sh", "args": ["-c", script], "interactiveMode": "Never",
            "env": [{"name": "SECRET", "value": "hunter2"}], "apiVersion": "client.authentication.k8s.io/v1"}))
        .unwrap()
    }

    async fn said(script: &str) -> Result<PluginCredential, String> {
        Plugin::new(sh(script), &[])
            .run(Instant::now())
            .await
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_plugin_gives_a_token_or_an_error_without_its_output() {
        let told = said(
            r#"echo "{\"status\": {\"token\": \"$SECRET\", \"expirationTimestamp\": \"2099-01-01T00:00:00Z\"}}""#,
        );
        let told = told.await.unwrap();
        assert!(told.holds(EARLY) && told.header.as_ref().unwrap().as_bytes() == b"Bearer hunter2");
        assert!(!format!("{told:?}").contains("hunter2"));
        assert!(
            said("echo 'status: {clientCertificateData: a, clientKeyData: b}'")
                .await
                .unwrap()
                .certificate
                .is_some()
        );
        for (script, why) in [
            ("echo $SECRET >&2; exit 3", "failed with exit status: 3"),
            ("echo hunter2", "returned neither a token"),
            ("echo '{'", "not print an ExecCredential"),
            (
                r#"printf %s '{"status": {"token": "hunter2\nx"}}'"#,
                "such as a line break",
            ),
            (
                r#"echo "{\"status\": {\"token\": \"hunter2\", \"expirationTimestamp\": \"soon\"}}""#,
                "is not a time",
            ),
        ] {
            let error = said(script).await.unwrap_err();
            assert!(
                error.starts_with("the credential plugin `sh` ") && error.contains(why),
                "{error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
        let missing: ExecConfig =
            serde_json::from_value(json!({"command": "/nowhere/plugin"})).unwrap();
        assert!(
            Plugin::new(missing, &[])
                .run(Instant::now())
                .await
                .unwrap_err()
                .to_string()
                .contains("cannot be run")
        );
    }

    #[tokio::test]
    async fn caches_a_valid_token_but_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let (runs, path) = (
            || {
                std::fs::read_to_string(folder.path().join("runs"))
                    .unwrap()
                    .len()
            },
            folder.path().display(),
        );
        let lasting =
            format!("printf x >>{path}/runs; echo '{{\"status\": {{\"token\": \"t\"}}}}'");
        let plugin = Plugin::new(sh(&lasting), &[]);
        let both =
            futures::future::join(plugin.run(Instant::now()), plugin.run(Instant::now())).await;
        assert!(both.0.is_ok() && both.1.is_ok() && plugin.run(Instant::now()).await.is_ok());
        assert_eq!(runs(), 1);
        let past = "echo '{\"status\": {\"token\": \"t\", \"expirationTimestamp\": \"2001-01-01T00:00:00Z\"}}'";
        for script in [past, "exit 1"] {
            let before = runs();
            let plugin = Plugin::new(sh(&format!("printf x >>{path}/runs; {script}")), &[]);
            drop((
                plugin.run(Instant::now()).await,
                plugin.run(Instant::now()).await,
            ));
            assert_eq!(runs(), before + 2, "{script}");
        }
    }
    /// A client whose plugin gives the tokens `t1`, `t2` and so on without an end, and the folder in which it counts.
    fn counting(address: &str) -> (Client, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let runs = runs.display();
        let script = format!(
            "printf x >>{runs}; echo \"{{\\\"status\\\": {{\\\"token\\\": \\\"t$(wc -c <{runs})\\\"}}}}\""
        );
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let client = Plugin::new(sh(&script), &[]).client(config).unwrap();
        (client, folder)
    }

    #[tokio::test]
    async fn a_credential_that_stays_refused_is_replaced_less_and_less_often() {
        let plugin = Plugin::new(sh("echo '{\"status\": {\"token\": \"t\"}}'"), &[]);
        // Two refusals each second for so many seconds; returns when the credential was replaced.
        let mut now = Instant::now();
        let mut replaced = |seconds: u64| {
            let mut at = Vec::new();
            for second in 0..seconds {
                now += Duration::from_secs(1);
                let run = plugin.run(Instant::now());
                plugin.refused(&run, now);
                plugin.refused(&run, now);
                if plugin.runs.locked().used.is_none() {
                    at.push(second);
                }
            }
            at
        };
        let doubled = [0, 5, 15, 35, 75, 155, 315, 615, 915];
        assert_eq!(replaced(1_000), doubled);
        plugin.accepted();
        assert_eq!(replaced(20), [0, 5, 15]);
        plugin.accepted();
        assert_eq!(replaced(3), [0], "the shortest pause stays");
    }

    #[tokio::test]
    async fn a_valid_credential_is_used_to_its_end_while_it_is_renewed_at_a_pace() {
        // Less than is left when a credential is renewed, and longer than this test takes.
        let soon = "date -u -d '+50 seconds' +%Y-%m-%dT%H:%M:%SZ";
        let script = format!(
            "echo \"{{\\\"status\\\": {{\\\"token\\\": \\\"t\\\", \\\"expirationTimestamp\\\": \\\"$({soon})\\\"}}}}\""
        );
        let plugin = Plugin::new(sh(&script), &[]);
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let began = || plugin.runs.locked().renewed;
        let first = plugin.run(start);
        first.clone().await.unwrap();
        assert_eq!(began(), None);
        // The first request starts the renewal, and none waits for it.
        assert!(plugin.run(at(1)).ptr_eq(&first) && plugin.run(at(2)).ptr_eq(&first));
        let renewal = plugin.runs.locked().next.clone().unwrap();
        assert_eq!(began(), Some(at(1)));
        renewal.clone().await.unwrap();
        // What it gave ends as soon: it is used, and not renewed with every request.
        assert!(plugin.run(at(3)).ptr_eq(&renewal));
        let mut renewals = Vec::new();
        for second in 4..20 {
            let before = began();
            let run = plugin.run(at(second));
            assert!(run.peek().is_some_and(Result::is_ok), "{second}");
            if began() != before {
                renewals.push(second);
            }
            let next = plugin.runs.locked().next.clone();
            if let Some(next) = next {
                next.await.unwrap();
            }
        }
        assert_eq!(renewals, [6, 11, 16]);
    }

    #[tokio::test]
    async fn a_refused_credential_is_replaced_but_not_with_every_request() {
        for (accepted, codes, runs) in [
            ("Bearer t2", [401, 200, 200, 200], 2),
            ("Bearer none", [401; 4], 2),
            ("Bearer t1", [200; 4], 1),
        ] {
            let server = Hostile::start(move |head| {
                let given = head.headers.get("authorization");
                let is_good = given.is_some_and(|given| given == accepted);
                Answer::new(if is_good { 200 } else { 401 }, "{}")
            });
            let server = server.await.unwrap();
            let (client, folder) = counting(&server.address());
            for code in codes {
                let request = http::Request::get("/version").body(Body::empty()).unwrap();
                assert_eq!(
                    client.send(request).await.unwrap().status(),
                    code,
                    "{accepted}"
                );
            }
            let ran = std::fs::read(folder.path().join("runs")).unwrap().len();
            assert_eq!(ran, runs, "{accepted}");
        }
    }
}
