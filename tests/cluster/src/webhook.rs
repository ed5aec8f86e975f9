//! An admission webhook on loopback, over TLS as an API server requires. The test provides its responses; one of them
//! is that of Open Cluster Management.

use crate::objects::Objects;
use crate::wait;
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const KIND: &str = "MutatingWebhookConfiguration";
/// The deadline for the API server to use a configuration; far longer than needed on a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// A webhook's response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Allowed, with these JSON patch operations.
    Patch(Vec<Value>),
    /// Denied, with a code and a message.
    Deny(u16, String),
}

type Answer = dyn Fn(&Value) -> Say + Send + Sync;

/// What the API server sends to a webhook: creations and updates of one resource.
#[derive(Clone, Copy, Debug)]
pub struct Asks<'a> {
    /// Name of the configuration, and the first part of the webhook's name: `<name>.example.org`.
    pub name: &'a str,
    /// Group of the resource, which has version `v1`.
    pub group: &'a str,
    /// The resource.
    pub resource: &'a str,
    /// Further fields of the configuration, such as a selector.
    pub scope: &'a Value,
}

/// A webhook that answers until its handle is dropped.
pub struct Webhook {
    url: String,
    authority: String,
    asked: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Webhook {
    /// Starts to answer.
    pub async fn start(answer: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Result<Self> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der())
            .map_err(|error| anyhow::anyhow!(error))?;
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}/", listener.local_addr()?);
        let asked = Arc::new(AtomicUsize::new(0));
        let (answer, count): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&asked));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, count) =
                    (acceptor.clone(), Arc::clone(&answer), Arc::clone(&count));
                connections.spawn(async move { serve(acceptor, stream, &*answer, &count).await });
            }
        });
        Ok(Self {
            url,
            authority: own.cert.pem(),
            asked,
            serving,
        })
    }

    /// How often it was called.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Stops answering and closes its connections.
    pub async fn stop(mut self) -> Result<()> {
        self.serving.abort();
        ensure!(
            (&mut self.serving).await.is_err(),
            "a webhook had ended before it was stopped"
        );
        Ok(())
    }

    /// Makes the API server call it, and waits until it does: applies `probe` until then, whatever the result.
    pub async fn install(&self, objects: &Objects, asks: Asks<'_>, probe: Value) -> Result<()> {
        objects.apply(self.configuration(asks)).await?;
        wait::until("a webhook that is asked", DEADLINE, async || {
            // The webhook decides whether it is allowed.
            drop(objects.apply(probe.clone()).await);
            Ok((self.asked() > 0).then_some(()))
        })
        .await
    }

    /// Removes a configuration; the API server notices soon.
    pub async fn uninstall(objects: &Objects, name: &str) -> Result<()> {
        let configurations = objects.api(ADMISSION, KIND, None).await?;
        configurations
            .delete(name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    fn configuration(&self, asks: Asks<'_>) -> Value {
        let Asks {
            name,
            group,
            resource,
            scope,
        } = asks;
        let mut webhook = json!({
            "name": format!("{name}.example.org"),
            "clientConfig": {"url": self.url, "caBundle": STANDARD.encode(&self.authority)},
            "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 5,
        });
        if let (Some(webhook), Some(scope)) = (webhook.as_object_mut(), scope.as_object()) {
            webhook.extend(scope.clone());
        }
        json!({"apiVersion": ADMISSION, "kind": KIND, "metadata": {"name": name}, "webhooks": [webhook]})
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers the requests of one connection; if the connection breaks, the API server retries.
async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    answer: &Answer,
    asked: &AtomicUsize,
) -> Result<()> {
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            ensure!(
                stream.read_line(&mut line).await? > 0,
                "the connection ended"
            );
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
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream
            .write_all(answer.as_bytes())
            .await
            .context("failed to answer")?;
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

/// The time that [`set_taint_times`] sets.
pub const TAINTED_AT: &str = "2026-11-21T09:00:00Z";

/// What the webhook of Open Cluster Management answers, as measured: it refuses a time that the client sets and a
/// missing time in an unchanged taint, compares with the first old taint of the same key, sets the other times, and
/// drops empty values.
pub fn set_taint_times(request: &Value) -> Say {
    let list = |object: &str| {
        request[object]["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let (old, mut new) = (list("oldObject"), list("object"));
    let mut refused = Vec::new();
    for taint in &mut new {
        let before = old.iter().find(|old| old["key"] == taint["key"]);
        let text =
            |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let same = before.filter(|old| {
            ["value", "effect"]
                .iter()
                .all(|field| text(old, field) == text(taint, field))
        });
        let set = !taint["timeAdded"].is_null();
        match same {
            Some(old) if old["timeAdded"] != taint["timeAdded"] => refused.push(text(taint, "key")),
            Some(_) => {}
            None if set && request["operation"] == "UPDATE" => refused.push(text(taint, "key")),
            None => taint["timeAdded"] = json!(TAINTED_AT),
        }
        if taint["value"] == "" {
            taint
                .as_object_mut()
                .and_then(|taint| taint.remove("value"));
        }
    }
    match refused.is_empty() {
        false => Say::Deny(
            400,
            format!(
                "It is not allowed to set TimeAdded of Taint {}.",
                refused.join(", ")
            ),
        ),
        true if new.is_empty() => Say::Patch(Vec::new()),
        true => Say::Patch(vec![
            json!({"op": "replace", "path": "/spec/taints", "value": new}),
        ]),
    }
}
