//! From flags and environment to a client of one API server. Never shows what a kubeconfig holds.

mod config;
pub(super) mod plugin;

use super::cause::Cause;
use super::pace::Pace;
use super::stream;
use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};
use plugin::Plugin;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use transom_api::Word;

/// How long a connection may take to be made, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the API server may take to answer for the first time.
const GREETING: Duration = Duration::from_secs(10);

/// Which API server, and how it is used.
#[derive(Clone, Debug, Default)]
pub struct KubernetesOptions {
    /// Name of the connection; the cluster of every reference.
    pub name: String,
    /// A kubeconfig; nothing for `KUBECONFIG`, the user's own, or the pod's identity: the first that there is, and no other
    /// one when it is broken.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; nothing for its current one.
    pub context: Option<String>,
    /// Whether nothing may be written: what would be written is told instead.
    pub read_only: bool,
    /// A program and its first words, run in place of a credential plugin with the plugin's own words behind: it binds the
    /// plugin to end with the agent. Empty for the plugin itself.
    pub guard: Vec<OsString>,
}

/// Why an API server cannot be used. Shown with the connection, its context and the address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to use the API server of connection {place}: {message}")]
pub struct ConnectError {
    /// The connection, as [`Settings::place`] calls it.
    pub place: String,
    /// Why, in one word.
    pub reason: Word,
    /// What was attempted on what, and why it failed; nothing that a kubeconfig holds.
    pub message: String,
}

/// Whether an API server has answered since the start: nothing while the first answer is waited for, then why it has not
/// answered yet, as of the last attempt. Once it has answered, this says so for good.
pub type Standing = Option<Result<(), ConnectError>>;

/// Where a connection leads, and as whom; nothing was sent yet.
#[derive(Clone)]
pub struct Settings {
    pub(super) options: KubernetesOptions,
    context: Option<String>,
    config: Config,
}

impl Settings {
    /// Reads the kubeconfig, or the pod's identity.
    ///
    /// # Errors
    /// When there is none that can be used.
    pub async fn read(options: KubernetesOptions) -> Result<Self, ConnectError> {
        match config::of(&options).await {
            Ok((context, config)) => Ok(Self { options, context, config }),
            Err(message) => {
                let place = place(&options.name, options.context.as_deref(), None);
                Err(ConnectError { place, reason: Word::ReadFailed, message })
            }
        }
    }

    /// Name of the connection.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The context of the kubeconfig; nothing for the identity of a pod.
    pub fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// The address of the API server, without what is no part of a place: user, password and query.
    pub fn server(&self) -> String {
        let uri = &self.config.cluster_url;
        let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
        let (scheme, host) = (uri.scheme_str().unwrap_or("https"), uri.host().unwrap_or_default());
        format!("{scheme}://{host}{port}{}", uri.path().trim_end_matches('/'))
    }

    /// What the connection is called in messages: name, context and address.
    pub fn place(&self) -> String {
        place(self.name(), self.context(), Some(&self.server()))
    }

    /// How long a first answer may take: a person may have to sign in before it.
    pub(super) fn patience(&self) -> Duration {
        if self.config.auth_info.exec.is_some() { plugin::PATIENCE } else { GREETING }
    }

    fn failed(&self, reason: Word, message: impl Into<String>) -> ConnectError {
        ConnectError { place: self.place(), reason, message: message.into() }
    }
}

fn place(name: &str, context: Option<&str>, server: Option<&str>) -> String {
    let context = context.map(|context| format!("context `{context}`"));
    let about: Vec<String> = context.into_iter().chain(server.map(str::to_owned)).collect();
    if about.is_empty() { format!("`{name}`") } else { format!("`{name}` ({})", about.join(", ")) }
}

/// A client; nothing is sent to the server yet, and no credential plugin is run.
pub(super) fn client(settings: &Settings) -> Result<Client, ConnectError> {
    let mut config = settings.config.clone();
    let agent = HeaderValue::from_static(concat!("transom/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    // Every request of ours is paced and tried again in one place.
    config.default_retry = false;
    // A server that is back is found soon: no connection waits for the long pauses between later attempts of TCP.
    config.connect_timeout = Some(CONNECT);
    // kube would wait for a plugin without an end, on a thread that others need.
    let made = match config.auth_info.exec.take() {
        Some(exec) => Plugin::new(exec, &settings.options.guard).client(config),
        None => Client::try_from(config),
    };
    made.map_err(|error| settings.failed(Word::ReadFailed, cause(&error)))
}

/// Asks the API server for its version until it answers, with back-off, and tells how that went: a wrong address or
/// credential is found early, and a server that is away holds up nobody.
pub(super) async fn greet(settings: Settings, client: Client, tell: watch::Sender<Standing>) {
    let mut pace = Pace::default();
    while let Err(cause) = ask(&client).await {
        let wait = pace.wait(&cause);
        tell.send_replace(Some(Err(settings.failed(cause.reason, cause.message))));
        sleep(wait).await;
    }
    tell.send_replace(Some(Ok(())));
}

async fn ask(client: &Client) -> Result<(), Cause> {
    let answer = timeout(GREETING, stream::get(client, "", "version")).await;
    match answer.map_err(|_| Cause::late(GREETING))? {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(unfit)) => Err(unfit.cause()),
        // Whoever refuses to tell its version is there.
        Err(cause) if cause.reason == Word::ReadForbidden => Ok(()),
        Err(cause) if cause.reason == Word::KindMissing => {
            Err(Cause::new(Word::ReadFailed, "there is no API server at its address"))
        }
        Err(cause) => Err(cause),
    }
}

/// Why no client can be made, by kind only.
fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(_) => "its credential cannot be used".to_owned(),
        kube::Error::RustlsTls(_) | kube::Error::TlsRequired => "its certificates cannot be used for TLS".to_owned(),
        kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. } => {
            "its proxy uses a protocol that is not supported; use http or https".to_owned()
        }
        _ => "no client can be made of its settings".to_owned(),
    }
}
