//! From flags and environment to a client of one API server. Never shows what a kubeconfig holds.

mod config;
pub(super) mod plugin;

use super::cause::Cause;
use super::stream;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};
use plugin::Plugin;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;
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
}

/// Why an API server cannot be used. Shown with the connection, its context and the address.
#[derive(Clone, Debug, thiserror::Error)]
#[error("failed to use the API server of connection {place}: {message}")]
pub struct ConnectError {
    /// The connection, as [`Settings::place`] calls it.
    pub place: String,
    /// What was attempted on what, and why it failed; nothing that a kubeconfig holds.
    pub message: String,
    /// Whether it is the server that is at fault, or what lies before it: another try may succeed without a change of the
    /// kubeconfig.
    pub passing: bool,
}

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
                Err(ConnectError { place, message, passing: false })
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

    fn failed(&self, message: impl Into<String>, passing: bool) -> ConnectError {
        ConnectError { place: self.place(), message: message.into(), passing }
    }
}

fn place(name: &str, context: Option<&str>, server: Option<&str>) -> String {
    let context = context.map(|context| format!("context `{context}`"));
    let about: Vec<String> = context.into_iter().chain(server.map(str::to_owned)).collect();
    if about.is_empty() { format!("`{name}`") } else { format!("`{name}` ({})", about.join(", ")) }
}

/// A client; nothing is sent to the server yet. A credential plugin is run for its certificate or its first token.
pub(super) async fn client(settings: &Settings) -> Result<Client, ConnectError> {
    let mut config = settings.config.clone();
    let agent = HeaderValue::from_static(concat!("transom/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    // Every request of ours is paced and tried again in one place.
    config.default_retry = false;
    // A server that is back is found soon: no connection waits for the long pauses between later attempts of TCP.
    config.connect_timeout = Some(CONNECT);
    // kube would wait for a plugin without an end, on a thread that others need.
    let plugin = config.auth_info.exec.take().map(Plugin::new);
    if let Some(plugin) = &plugin {
        let said = plugin.credential().await.map_err(|error| settings.failed(error.to_string(), true))?;
        if let Some((certificate, key)) = said.certificate {
            config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate));
            config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
        }
    }
    let client = Client::try_from(config).map_err(|error| settings.failed(cause(&error), false))?;
    Ok(plugin.map_or_else(|| client.clone(), |plugin| plugin.on(client.clone())))
}

/// Asks the API server for its version, so that a wrong address or credential is found early.
pub(super) async fn greet(settings: &Settings, client: &Client) -> Result<(), ConnectError> {
    let failed = |message: String| settings.failed(message, true);
    let answer = timeout(GREETING, stream::get(client, "", "version")).await;
    match answer.map_err(|_| failed(Cause::late(GREETING).message))? {
        Ok(_) => Ok(()),
        // Whoever refuses to tell its version is there.
        Err(cause) if cause.reason == Word::ReadForbidden => Ok(()),
        Err(cause) if cause.reason == Word::KindMissing => {
            Err(failed("there is no API server at its address".to_owned()))
        }
        Err(cause) => Err(failed(cause.message)),
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
