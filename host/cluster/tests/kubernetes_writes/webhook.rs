//! An admission webhook on loopback, over TLS as an API server wants it. Never decides: a test gives its answers.

use crate::support::{CANARY, DEADLINE, Scene};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// What a webhook says to a request.
pub(crate) enum Say {
    /// Allowed, with these JSON patch operations.
    Patch(Vec<Value>),
    /// Denied, with a code and a message.
    Deny(u16, String),
}

type Answer = dyn Fn(&Value) -> Say + Send + Sync;

/// A webhook that answers as long as its test runs.
pub(crate) struct Webhook {
    url: String,
    authority: String,
    /// How often it was asked.
    pub(crate) asked: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Webhook {
    /// Starts to answer.
    pub(crate) async fn start(answer: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Result<Self> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(|error| anyhow::anyhow!(error))?;
        let config =
            ServerConfig::builder().with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}/", listener.local_addr()?);
        let asked = Arc::new(AtomicUsize::new(0));
        let (answer, count): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&asked));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, count) = (acceptor.clone(), Arc::clone(&answer), Arc::clone(&count));
                connections.spawn(async move { serve(acceptor, stream, &*answer, &count).await });
            }
        });
        Ok(Self { url, authority: own.cert.pem(), asked, serving })
    }

    /// Answers no more, and ends its connections.
    pub(crate) async fn stop(self) {
        self.serving.abort();
        assert!(self.serving.await.is_err());
    }

    /// The configuration that has the API server ask it about updates and creations of one resource.
    pub(crate) fn configuration(&self, name: &str, group: &str, resource: &str, scope: &Value) -> Value {
        let mut webhook = json!({
            "name": format!("{name}.example.org"),
            "clientConfig": {"url": self.url, "caBundle": STANDARD.encode(&self.authority)},
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 5,
        });
        webhook.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name}, "webhooks": [webhook],
        })
    }

    /// Has the Secrets of a scene's namespace go through it, and waits until they do.
    pub(crate) async fn install(&self, scene: &Scene) -> Result<()> {
        let here = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}}});
        scene.objects.create(self.configuration(&scene.namespace, "", "secrets", &here)).await?;
        let probe = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "probe", "namespace": scene.namespace},
            "data": {"probe": STANDARD.encode(CANARY)}});
        transom_test_cluster::wait::until("the webhook", DEADLINE, async || {
            // Whether it is allowed is the webhook's business.
            drop(scene.objects.apply(probe.clone()).await);
            Ok((self.asked.load(Ordering::SeqCst) > 0).then_some(()))
        })
        .await
    }
}

/// Answers the requests of one connection; one that breaks is the API server's to try again.
async fn serve(acceptor: TlsAcceptor, stream: TcpStream, answer: &Answer, asked: &AtomicUsize) -> Result<()> {
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            anyhow::ensure!(stream.read_line(&mut line).await? > 0, "the connection ended");
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        asked.fetch_add(1, Ordering::SeqCst);
        let review: Value = serde_json::from_slice(&body)?;
        let answer = review_of(&review["request"], answer(&review["request"])).to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", answer.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(answer.as_bytes()).await.context("failed to answer")?;
        stream.flush().await?;
    }
}

fn review_of(request: &Value, say: Say) -> Value {
    let mut response = json!({"uid": request["uid"], "allowed": true});
    match say {
        Say::Patch(operations) if operations.is_empty() => {}
        Say::Patch(operations) => {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(json!(operations).to_string()));
        }
        Say::Deny(code, message) => {
            response["allowed"] = json!(false);
            response["status"] = json!({"code": code, "message": message});
        }
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
