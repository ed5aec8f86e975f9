//! From flags and environment to a client of one API server.
//! Messages contain no credential of a kubeconfig.

mod config;
pub(super) mod plugin;
mod renewed;

use super::cause::{Backoff, RequestFailure};
use super::stream;
use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};
use plugin::Plugin;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use transom_api::KnownReason;
use transom_core::digest::Digest;

/// How long opening a connection may take, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// How long one attempt for the first answer may take.
const GREETING: Duration = Duration::from_secs(10);

/// Which API server, and how it is used.
#[derive(Clone, Debug, Default)]
pub struct KubernetesOptions {
    /// Name of the connection; it is the cluster of every reference.
    pub name: String,
    /// Path of a kubeconfig. `None` for the first that exists of `KUBECONFIG`, the user's own kubeconfig, and the pod's
    /// identity. A broken one is an error; the next is not tried.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; `None` for its current one.
    pub context: Option<String>,
    /// Whether writes are only reported, and not sent.
    pub read_only: bool,
    /// A program and its first arguments, run in place of a credential plugin with the plugin's command line appended.
    /// It ends the plugin when the agent ends. Empty to run the plugin itself.
    pub guard: Vec<OsString>,
}

/// Why an API server cannot be used. Displays the connection, its context and its address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to use the API server of connection {place}: {message}")]
pub struct ConnectError {
    /// The connection, as [`ConnectSettings::place`] describes it.
    pub place: String,
    /// Why, in one word.
    pub reason: KnownReason,
    /// What was attempted, and why it failed. Contains no credential.
    pub message: String,
}

/// Whether an API server has answered since the start: `None` during the first attempt, then the failure of the last
/// attempt. `Some(Ok)` is final.
pub type ConnectionStanding = Option<Result<(), ConnectError>>;

/// Why a kubeconfig that was changed while the agent runs is not used. Contains no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigProblem {
    /// It names another address than the one that is used, which counts only after a restart: it may be another
    /// cluster.
    OtherServer {
        /// The connection, as [`ConnectSettings::place`] describes it, with the address that is used.
        place: String,
        /// The kubeconfig.
        kubeconfig: String,
        /// The other address.
        server: String,
    },
    /// It, or a file that it names, cannot be used.
    Unusable(ConnectError),
}

/// Address and credential of a connection; no request was sent yet.
#[derive(Clone)]
pub struct ConnectSettings {
    pub(super) options: KubernetesOptions,
    context: Option<String>,
    config: Config,
    /// Digest of what the kubeconfig says of the context; `None` for the identity of a pod.
    digest: Option<Digest>,
}

impl ConnectSettings {
    /// Reads the kubeconfig, or the pod's identity.
    ///
    /// # Errors
    /// When neither can be used.
    pub async fn read(options: KubernetesOptions) -> Result<Self, ConnectError> {
        match config::of(&options).await {
            Ok((context, config, digest)) => Ok(Self {
                options,
                context,
                config,
                digest,
            }),
            Err(message) => Err(unusable(&options, message)),
        }
    }

    /// The identity of the pod in the cluster that it runs in, whatever a kubeconfig says; `None` outside of pods, and
    /// in a pod without a token.
    ///
    /// # Errors
    /// When the pod has one that cannot be used.
    pub fn of_pod() -> Result<Option<Self>, ConnectError> {
        let options = KubernetesOptions {
            name: "pod".to_owned(),
            ..KubernetesOptions::default()
        };
        match config::of_pod() {
            Ok(config) => Ok(config.map(|config| Self {
                options,
                context: None,
                config,
                digest: None,
            })),
            Err(message) => Err(unusable(&options, message)),
        }
    }

    /// Name of the connection.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The context of the kubeconfig; `None` for the identity of a pod.
    pub fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// The address of the API server, without user, password and query.
    pub fn server(&self) -> String {
        let uri = &self.config.cluster_url;
        let port = uri
            .port()
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        let (scheme, host) = (
            uri.scheme_str().unwrap_or("https"),
            uri.host().unwrap_or_default(),
        );
        format!(
            "{scheme}://{host}{port}{}",
            uri.path().trim_end_matches('/')
        )
    }

    /// Description of the connection in messages: name, context and address.
    pub fn place(&self) -> String {
        place(self.name(), self.context(), Some(&self.server()))
    }

    /// How long the first answer may take. Longer with a credential plugin, because a person may have to sign in.
    pub(super) fn patience(&self) -> Duration {
        if self.config.auth_info.exec.is_some() {
            plugin::PATIENCE
        } else {
            GREETING
        }
    }

    /// The digest as it is now; `None` also if the kubeconfig cannot be used.
    fn digest_now(&self) -> Option<Digest> {
        config::digest(self.options.kubeconfig.as_deref(), self.context.as_ref()?)
    }

    /// What the kubeconfig holds now for the same context.
    async fn again(&self) -> Result<Self, ConnectError> {
        let options = KubernetesOptions {
            context: self.context.clone(),
            ..self.options.clone()
        };
        Self::read(options).await
    }

    /// The address of other settings of this connection, if it is another one. A proxy, or the name that the server has
    /// to prove, tells clusters behind one address apart.
    fn elsewhere(&self, now: &Self) -> Option<KubeconfigProblem> {
        let (before, after) = (&self.config, &now.config);
        let is_other = before.cluster_url != after.cluster_url
            || before.proxy_url != after.proxy_url
            || before.tls_server_name != after.tls_server_name;
        is_other.then(|| KubeconfigProblem::OtherServer {
            place: self.place(),
            kubeconfig: config::place(self.options.kubeconfig.as_deref()),
            server: now.server(),
        })
    }

    fn failed(&self, reason: KnownReason, message: impl Into<String>) -> ConnectError {
        ConnectError {
            place: self.place(),
            reason,
            message: message.into(),
        }
    }
}

fn place(name: &str, context: Option<&str>, server: Option<&str>) -> String {
    let context = context.map(|context| format!("context `{context}`"));
    let about: Vec<String> = context
        .into_iter()
        .chain(server.map(str::to_owned))
        .collect();
    if about.is_empty() {
        format!("`{name}`")
    } else {
        format!("`{name}` ({})", about.join(", "))
    }
}

/// The error for settings that cannot be used, of which no address is known.
fn unusable(options: &KubernetesOptions, message: String) -> ConnectError {
    ConnectError {
        place: place(&options.name, options.context.as_deref(), None),
        reason: KnownReason::ReadFailed,
        message,
    }
}

/// Makes a client, which tells why a changed kubeconfig is not used. Sends no request and runs no credential plugin.
pub(super) fn client(
    settings: &ConnectSettings,
    problem: watch::Sender<Option<KubeconfigProblem>>,
) -> Result<Client, ConnectError> {
    renewed::client(settings, problem)
}

/// Makes a client of these settings of a connection.
fn client_of(settings: &ConnectSettings, mut config: Config) -> Result<Client, ConnectError> {
    let agent = HeaderValue::from_static(concat!("transom/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    // The agent paces and retries its requests itself.
    config.default_retry = false;
    // Finds a server soon after it is back, instead of waiting for the long pauses between TCP's later attempts.
    config.connect_timeout = Some(CONNECT);
    // kube would wait for a plugin without a limit, and block a thread that other tasks need.
    let made = match config.auth_info.exec.take() {
        Some(exec) => Plugin::new(exec, &settings.options.guard).client(config),
        None => Client::try_from(config),
    };
    made.map_err(|error| settings.failed(KnownReason::ReadFailed, cause(&error)))
}

/// Requests the version of the API server until it answers, with back-off, and publishes the outcome of each attempt.
/// So a wrong address or credential is found early, and a server that is away blocks no caller.
pub(super) async fn greet(
    settings: ConnectSettings,
    client: Client,
    tell: watch::Sender<ConnectionStanding>,
) {
    let mut backoff = Backoff::default();
    while let Err(cause) = ask(&client).await {
        let wait = backoff.wait(&cause);
        tell.send_replace(Some(Err(settings.failed(cause.reason, cause.message))));
        sleep(wait).await;
    }
    tell.send_replace(Some(Ok(())));
}

async fn ask(client: &Client) -> Result<(), RequestFailure> {
    let answer = timeout(GREETING, stream::get(client, "", "version")).await;
    match answer.map_err(|_| RequestFailure::late(GREETING))? {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(unfit)) => Err(unfit.cause()),
        // A server that forbids this request has answered.
        Err(cause) if cause.reason == KnownReason::ReadForbidden => Ok(()),
        Err(cause) if cause.reason == KnownReason::KindMissing => Err(RequestFailure::new(
            KnownReason::ReadFailed,
            "its address does not serve the Kubernetes API",
        )),
        Err(cause) => Err(cause),
    }
}

/// Why no client can be made, by the kind of error only.
fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(_) => "its credential cannot be used".to_owned(),
        kube::Error::RustlsTls(_) | kube::Error::TlsRequired => {
            "its certificates cannot be used for TLS".to_owned()
        }
        kube::Error::ProxyProtocolUnsupported { .. }
        | kube::Error::ProxyProtocolDisabled { .. } => {
            "its proxy uses a protocol that is not supported; use http or https".to_owned()
        }
        _ => "its settings are not valid".to_owned(),
    }
}
