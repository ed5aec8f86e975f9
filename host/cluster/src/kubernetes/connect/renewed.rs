//! Kubeconfigs, and the client certificates, keys and tokens that a kubeconfig or a pod's identity names by path.
//! Others renew these files while the agent runs, so they are read again. Keeps only a digest of them beside the
//! client.

use super::super::stream::LINE_BYTES;
use super::{ConnectError, ConnectSettings, KubeconfigProblem, client_of};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode, Uri};
use http_body_util::Limited;
use kube::Config;
use kube::client::{Body, Client};
use kube::config::AuthInfo;
use secrecy::{ExposeSecret as _, SecretString};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tower::service_fn;
use transom_api::KnownReason;
use transom_core::digest::Digest;
use transom_core::share::lock::MutexExt as _;

/// How often the files are read again while requests are sent.
const LOOK: Duration = Duration::from_secs(10);

/// The most bytes of an answer to a write: etcd stores no larger object.
const WRITTEN_BYTES: usize = 8 << 20;
/// The most bytes of an error.
const ERROR_BYTES: usize = 1 << 20;

/// Digests of the certificate, of the key and of the token, where they are files.
type Digests = [Option<Digest>; 3];

/// A client for what the files hold.
struct MadeClient {
    client: Client,
    /// The settings, with the paths of files.
    settings: ConnectSettings,
    files: Digests,
    looked: Instant,
}

/// The client of one connection.
struct RenewedClient {
    made: Mutex<MadeClient>,
    problem: watch::Sender<Option<KubeconfigProblem>>,
}

fn is_watch(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| pair == "watch=true")
}

/// The most bytes of an answer. kube collects errors, and answers to writes, as long as they are; a server that sends
/// without an end would take all memory of the agent.
fn most_bytes(status: StatusCode, method: &Method, is_watch: bool) -> usize {
    match status.is_success() {
        // Its lines have a limit of their own.
        true if is_watch => usize::MAX,
        // Whoever reads it has a smaller limit, and says so.
        true if method == Method::GET => LINE_BYTES + ERROR_BYTES,
        true => WRITTEN_BYTES,
        false => ERROR_BYTES,
    }
}

fn certificate(user: &AuthInfo) -> Option<&str> {
    let path = user.client_certificate.as_deref();
    path.filter(|_| user.client_certificate_data.is_none())
}

fn key(user: &AuthInfo) -> Option<&str> {
    let path = user.client_key.as_deref();
    path.filter(|_| user.client_key_data.is_none())
}

fn token(user: &AuthInfo) -> Option<&str> {
    // In the order of kube, so that a file that is not used need not be there.
    let has_password = user.username.is_some() && user.password.is_some();
    let has_other = user.token.is_some() || user.auth_provider.is_some() || has_password;
    user.token_file.as_deref().filter(|_| !has_other)
}

/// A client that uses what the kubeconfig and the files hold at each request. Tells while what they hold is not used.
///
/// # Errors
/// When no client can be made of the settings and the files.
pub(super) fn client(
    settings: &ConnectSettings,
    problem: watch::Sender<Option<KubeconfigProblem>>,
) -> Result<Client, ConnectError> {
    let (files, now) = read(settings)?;
    let client = client_of(settings, now)?;
    let namespace = client.default_namespace().to_owned();
    let made = Mutex::new(MadeClient {
        client,
        settings: settings.clone(),
        files,
        looked: Instant::now(),
    });
    let renewed = Arc::new(RenewedClient { made, problem });
    let send = move |request: http::Request<Body>| {
        let renewed = Arc::clone(&renewed);
        async move {
            let (method, is_watch) = (request.method().clone(), is_watch(request.uri()));
            let answer = renewed.current().await.send(request).await?;
            let most = most_bytes(answer.status(), &method, is_watch);
            Ok::<_, kube::Error>(answer.map(|body| Limited::new(body, most)))
        }
    };
    Ok(Client::new(service_fn(send), namespace))
}

impl RenewedClient {
    /// The client for what the files hold; the one before, if they cannot be used: a certificate may be written before
    /// its key, and a token may be half written.
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
        self.renewed().await.unwrap_or(client)
    }

    /// The client after one look at the files; `None` if they have not changed, or cannot be used.
    async fn renewed(self: Arc<Self>) -> Option<Client> {
        let (settings, before) = {
            let made = self.made.locked();
            (made.settings.clone(), (made.settings.digest, made.files))
        };
        let looked = settings.clone();
        let digest = spawn_blocking(move || looked.digest_now()).await.ok()?;
        let again = match digest == before.0 {
            true => Ok(settings.clone()),
            false => settings.again().await,
        };
        let (settings, unusable) = match again {
            Ok(again) => {
                // What is known of one cluster must not be compared with another, nor may that get its credentials.
                if let Some(other) = settings.elsewhere(&again) {
                    self.tell(Some(other));
                    return None;
                }
                (again, None)
            }
            // The files that the kubeconfig of before names are renewed as ever.
            Err(unusable) => (settings, Some(unusable)),
        };
        let renewed = Arc::clone(&self);
        let made = spawn_blocking(move || renewed.made_of(settings, before));
        let (client, unmade) = match made.await.ok()? {
            Ok(client) => (client, None),
            Err(unmade) => (None, Some(unmade)),
        };
        self.tell(unusable.or(unmade).map(KubeconfigProblem::Unusable));
        client
    }

    /// A client of these settings and what the files hold; `None` if both are as before.
    fn made_of(
        &self,
        settings: ConnectSettings,
        before: (Option<Digest>, Digests),
    ) -> Result<Option<Client>, ConnectError> {
        let (files, now) = read(&settings)?;
        if (settings.digest, files) == before {
            return Ok(None);
        }
        let client = client_of(&settings, now)?;
        *self.made.locked() = MadeClient {
            client: client.clone(),
            settings,
            files,
            looked: Instant::now(),
        };
        Ok(Some(client))
    }

    fn tell(&self, problem: Option<KubeconfigProblem>) {
        self.problem.send_if_modified(|told| {
            let changes = *told != problem;
            *told = problem;
            changes
        });
    }
}

/// Digests of the files, and the settings with their content in place of their paths.
fn read(settings: &ConnectSettings) -> Result<(Digests, Config), ConnectError> {
    let mut config = settings.config.clone();
    let user = &mut config.auth_info;
    let unusable = |what: &str, path: &str, why: &io::Error| {
        let message = format!("its {what} `{path}` cannot be used: {why}");
        settings.failed(KnownReason::ReadFailed, message)
    };
    let file = |what, path| std::fs::read(path).map_err(|why| unusable(what, path, &why));
    let certificate = certificate(user).map(|path| file("client certificate", path));
    let certificate = certificate.transpose()?;
    let key = key(user).map(|path| file("client key", path)).transpose()?;
    let token = token(user)
        .map(|path| read_token(path.as_ref()).map_err(|why| unusable("token file", path, &why)));
    let token = token.transpose()?;
    let digests = [
        certificate.as_deref(),
        key.as_deref(),
        token.as_ref().map(|token| token.expose_secret().as_bytes()),
    ]
    .map(|file| file.map(Digest::of_bytes));
    if let Some(certificate) = certificate {
        user.client_certificate_data = Some(STANDARD.encode(certificate));
    }
    if let Some(key) = key {
        user.client_key_data = Some(STANDARD.encode(key).into());
    }
    if token.is_some() {
        user.token = token;
    }
    Ok((digests, config))
}

/// The token in a file, without white space around it, such as the line break that an editor adds. kube would send
/// that as a part of the token, which no header may hold. Errors quote nothing of the file.
fn read_token(path: &Path) -> io::Result<SecretString> {
    let broken = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    let text = SecretString::from(std::fs::read_to_string(path)?);
    match text.expose_secret().trim() {
        "" => broken("it is empty"),
        token if token.chars().any(char::is_control) => {
            broken("it holds a control character, such as a line break, within the token")
        }
        token => Ok(token.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Config;
    use transom_test_cluster::{Answer, Hostile};

    #[tokio::test]
    async fn an_answer_without_an_end_is_not_collected() {
        let server = Hostile::start(|head| match head.method {
            Method::GET => Answer::new(500, vec![b' '; ERROR_BYTES + 1]),
            _ => Answer::endless(vec![b' '; 65_536]),
        });
        let server = server.await.unwrap();
        let address = format!("http://{}", server.address());
        let config = Config::new(address.parse().unwrap());
        let (options, context, digest) = (Default::default(), None, None);
        let settings = ConnectSettings {
            options,
            context,
            config,
            digest,
        };
        let client = client(&settings, watch::channel(None).0).unwrap();
        for method in [Method::GET, Method::PATCH, Method::POST] {
            let request = http::Request::builder().method(method.clone()).uri("/x");
            let request = request.body(Vec::new()).unwrap();
            let answer = client.request::<serde_json::Value>(request).await;
            let error = format!("{:?}", answer.unwrap_err());
            assert!(error.contains("LengthLimitError"), "{method}: {error}");
        }
        assert_eq!(most_bytes(StatusCode::OK, &Method::GET, true), usize::MAX);
        assert!(is_watch(&"/api/v1/pods?a=b&watch=true".parse().unwrap()));
        assert!(!is_watch(&"/api/v1/pods?limit=1".parse().unwrap()));
    }

    #[test]
    fn a_token_in_a_file_is_used_without_the_white_space_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for text in ["canary.x-y", "canary.x-y\n", " \tcanary.x-y \r\n\n"] {
            std::fs::write(&path, text).unwrap();
            let token = read_token(&path).unwrap();
            assert_eq!(token.expose_secret(), "canary.x-y", "{text:?}");
        }
        for text in ["", "\n", "canary\ncanary", "canary\u{7f}"] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:?}", read_token(&path).unwrap_err());
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
