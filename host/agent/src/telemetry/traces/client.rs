//! Sends traces by plain HTTP, with the client that talks to API servers. Logs neither what is in a request nor where
//! it goes: both may hold a credential.

use anyhow::{Context as _, anyhow};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tracing::{info, warn};

/// Time limit for one request.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum size of an answer, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// The exporter runs on a thread of its own; requests are sent on the agent's runtime.
#[derive(Debug)]
pub(super) struct Client {
    runtime: Handle,
    /// Whether the last request failed; only a change is logged.
    failing: AtomicBool,
}

impl Client {
    /// A client that sends on this runtime.
    pub(super) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            failing: AtomicBool::new(false),
        }
    }

    fn tell(&self, answer: &anyhow::Result<Response<Bytes>>) {
        let problem = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the collector answered {}", answer.status())),
            Err(error) => Some(format!("{error:#}")),
        };
        let failed = self.failing.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) if !failed => warn!("failed to send traces: {problem}"),
            None if failed => info!("the collector accepts traces again"),
            _ => {}
        }
    }
}

type Answering<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Client {
    fn send_bytes<'a: 'b, 'b>(&'a self, request: Request<Bytes>) -> Answering<'b>
    where
        Self: 'b,
    {
        Box::pin(async move {
            let sending = self
                .runtime
                .spawn(async move { tokio::time::timeout(LIMIT, send(request)).await });
            let answer = match sending.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(anyhow!(
                    "the collector did not answer within {} s",
                    LIMIT.as_secs()
                )),
                Err(_) => Err(anyhow!("the agent is shutting down")),
            };
            self.tell(&answer);
            Ok(answer?)
        })
    }
}

/// Sends one request on a connection of its own: there is one every few seconds.
async fn send(request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
    let (mut parts, body) = request.into_parts();
    let (host, port) = (
        parts.uri.host().unwrap_or_default(),
        parts.uri.port_u16().unwrap_or(80),
    );
    let place = format!("{host}:{port}");
    let stream = TcpStream::connect(&place)
        .await
        .context("failed to connect to the collector")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender; its errors reach the caller through the answer.
    tokio::spawn(connection);
    parts.headers.insert(HOST, HeaderValue::try_from(place)?);
    parts.uri = parts
        .uri
        .path_and_query()
        .cloned()
        .unwrap_or(PathAndQuery::from_static("/"))
        .into();
    let answer = sender
        .send_request(Request::from_parts(parts, Full::new(body)))
        .await?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER)
        .collect()
        .await
        .map_err(|error| anyhow!(error))?;
    Ok(Response::from_parts(parts, body.to_bytes()))
}
