//! Client certificates and keys that a kubeconfig names by path. Others renew these files while the agent runs, so they
//! are read again. Keeps only a digest of them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::client::{Body, Client};
use kube::config::AuthInfo;
use kube::{Config, Error};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tower::service_fn;
use transom_core::digest::Digest;
use transom_core::share::lock::MutexExt as _;

/// How often the files are read again while requests are sent.
const LOOK: Duration = Duration::from_secs(10);

/// Digests of the certificate and of the key, where they are files.
type Digests = [Option<Digest>; 2];

/// A client for what the files hold.
struct MadeClient {
    client: Client,
    digest: Digests,
    looked: Instant,
}

/// The files of one connection.
struct ConnectionFiles {
    config: Config,
    made: Mutex<MadeClient>,
}

/// Whether a user has a certificate or key in a file; data in the kubeconfig itself comes first.
pub(super) fn are_named(user: &AuthInfo) -> bool {
    certificate(user).or(key(user)).is_some()
}

fn certificate(user: &AuthInfo) -> Option<&str> {
    let path = user.client_certificate.as_deref();
    path.filter(|_| user.client_certificate_data.is_none())
}

fn key(user: &AuthInfo) -> Option<&str> {
    let path = user.client_key.as_deref();
    path.filter(|_| user.client_key_data.is_none())
}

/// A client that uses the certificate that the files hold at each request.
///
/// # Errors
/// When no client can be made of the settings and the files.
pub(super) fn client(config: Config) -> Result<Client, Error> {
    let Ok((digest, now)) = read(&config) else {
        // Fails for the same cause, and names it.
        return Client::try_from(config);
    };
    let client = Client::try_from(now)?;
    let namespace = client.default_namespace().to_owned();
    let made = Mutex::new(MadeClient {
        client,
        digest,
        looked: Instant::now(),
    });
    let files = Arc::new(ConnectionFiles { config, made });
    let certified = move |request: http::Request<Body>| {
        let files = Arc::clone(&files);
        async move { files.current().await.send(request).await }
    };
    Ok(Client::new(service_fn(certified), namespace))
}

impl ConnectionFiles {
    /// The client for what the files hold.
    async fn current(self: Arc<Self>) -> Client {
        let (client, is_due) = {
            let mut made = self.made.locked();
            let is_due = made.looked.elapsed() >= LOOK;
            if is_due {
                made.looked = Instant::now();
            }
            (made.client.clone(), is_due)
        };
        if !is_due {
            return client;
        }
        spawn_blocking(move || self.renewed())
            .await
            .unwrap_or(client)
    }

    /// The client after one look at the files; the one before, if they cannot be used: a certificate may be written
    /// before its key.
    fn renewed(&self) -> Client {
        let read = read(&self.config).ok();
        let digest = self.made.locked().digest;
        let changed = read.filter(|(now, _)| *now != digest);
        let renewed = changed.and_then(|(now, config)| Some((now, Client::try_from(config).ok()?)));
        let mut made = self.made.locked();
        if let Some((digest, client)) = renewed {
            (made.digest, made.client) = (digest, client);
        }
        made.client.clone()
    }
}

/// Digests of the files, and the settings with their content in place of their paths.
fn read(config: &Config) -> std::io::Result<(Digests, Config)> {
    let mut config = config.clone();
    let user = &mut config.auth_info;
    let certificate = certificate(user).map(std::fs::read).transpose()?;
    let key = key(user).map(std::fs::read).transpose()?;
    let digests = [&certificate, &key].map(|file| file.as_deref().map(Digest::of_bytes));
    if let Some(certificate) = certificate {
        user.client_certificate_data = Some(STANDARD.encode(certificate));
    }
    if let Some(key) = key {
        user.client_key_data = Some(STANDARD.encode(key).into());
    }
    Ok((digests, config))
}
