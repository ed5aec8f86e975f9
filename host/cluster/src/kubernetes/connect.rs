//! From flags and environment to a client of one API server. Never shows what a kubeconfig holds.

mod config;

use super::cause::Cause;
use super::stream;
use http::header::{HeaderValue, USER_AGENT};
use kube::Client;
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

/// Why an API server cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[error("failed to use the API server of connection `{connection}`: {message}")]
pub struct ConnectError {
    /// Name of the connection.
    pub connection: String,
    /// What was attempted on what, and why it failed; nothing that a kubeconfig holds.
    pub message: String,
}

/// A client; nothing is sent yet.
pub(super) async fn client(options: &KubernetesOptions) -> Result<Client, ConnectError> {
    let failed = |message: String| ConnectError { connection: options.name.clone(), message };
    let mut config = config::of(options).await.map_err(failed)?;
    let agent = HeaderValue::from_static(concat!("transom/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    // Every request of ours is paced and tried again in one place.
    config.default_retry = false;
    // A server that is back is found soon: no connection waits for the long pauses between later attempts of TCP.
    config.connect_timeout = Some(CONNECT);
    Client::try_from(config).map_err(|error| failed(cause(&error)))
}

/// Asks the API server for its version, so that a wrong address or credential is found early.
pub(super) async fn greet(options: &KubernetesOptions, client: &Client) -> Result<(), ConnectError> {
    let failed = |message: String| ConnectError { connection: options.name.clone(), message };
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
