//! A registry that answers as a test says: wrong, endless, slow, cut off, or with a place elsewhere. Plain HTTP on
//! loopback.

use anyhow::{Context as _, Result};
use futures::stream::{self, Stream, StreamExt as _};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The pieces of a body.
type Pieces = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

/// An answer to one request.
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Pieces,
}

impl Answer {
    /// A status and a whole body. Without the header `content-length` the body is sent in chunks.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let length = body.len();
        Self::of(status, stream::iter([body])).header("content-length", length)
    }

    /// Elsewhere: a redirect (307).
    pub fn redirect(to: &str) -> Self {
        Self::new(307, "").header("location", to)
    }

    /// A body without an end that repeats these bytes.
    pub fn endless(bytes: impl Into<Bytes>) -> Self {
        Self::of(200, stream::repeat(bytes.into()))
    }

    /// A body without an end, of which this many pieces come at once and then nothing more.
    pub fn stalled(bytes: impl Into<Bytes>, pieces: usize) -> Self {
        let begin = stream::repeat(bytes.into()).take(pieces);
        Self::of(200, begin.chain(stream::pending()))
    }

    /// A body of which one byte comes at a time, with a pause before each.
    pub fn slow(body: impl Into<Bytes>, pause: Duration) -> Self {
        let body = body.into();
        let length = body.len();
        let pieces = stream::unfold(body, move |mut rest| async move {
            let next = (!rest.is_empty()).then(|| rest.split_to(1))?;
            // Nothing comes before the pause is over.
            drop(tokio::time::timeout(pause, std::future::pending::<()>()).await);
            Some((next, rest))
        });
        Self::of(200, pieces).header("content-length", length)
    }

    /// A body that ends, with its connection, before the length that its header says.
    pub fn truncated(body: impl Into<Bytes>, length: u64) -> Self {
        // Without a pause hyper ends the connection before it has sent anything.
        let pause = stream::once(tokio::task::yield_now()).map(|()| Bytes::new());
        let pieces = stream::iter([body.into()]).chain(pause);
        Self::of(200, pieces).header("content-length", length)
    }

    /// The same with a header, which replaces one of this name (in lower case).
    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.retain(|(before, _)| *before != name);
        self.headers.push((name, value.to_string()));
        self
    }

    /// The same with another status.
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    fn of(status: u16, pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Box::pin(pieces.map(|piece| Ok(Frame::data(piece)))),
        }
    }
}

type Script = dyn Fn(&Parts) -> Answer + Send + Sync;
/// How often each path was requested.
type Counts = Arc<Mutex<BTreeMap<String, usize>>>;

/// A registry that answers until the value is dropped.
pub struct Hostile {
    address: SocketAddr,
    counts: Counts,
    serving: JoinHandle<()>,
}

impl Hostile {
    /// Starts to answer; the script gets method, URI and headers of each request.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(script: impl Fn(&Parts) -> Answer + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("failed to listen for a hostile registry")?;
        let address = listener
            .local_addr()
            .context("failed to ask for the address of a hostile registry")?;
        let counts = Counts::default();
        let (script, count): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&counts));
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&script), Arc::clone(&count)));
            }
        });
        Ok(Self {
            address,
            counts,
            serving,
        })
    }

    /// Where it listens, `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// How often a path was requested; its query does not count.
    pub fn asked(&self, path: &str) -> usize {
        held(&self.counts).get(path).copied().unwrap_or_default()
    }

    /// How often each path was requested.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        held(&self.counts).clone()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn held(counts: &Counts) -> MutexGuard<'_, BTreeMap<String, usize>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the requests of a connection; the client notices when it breaks.
async fn serve(stream: TcpStream, script: Arc<Script>, counts: Counts) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (head, _) = request.into_parts();
        *held(&counts).entry(head.uri.path().to_owned()).or_default() += 1;
        let answer = script(&head);
        async move { response(answer) }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    drop(connection.await);
}

fn response(answer: Answer) -> hyper::http::Result<Response<StreamBody<Pieces>>> {
    let head = Response::builder().status(answer.status);
    let head = answer
        .headers
        .into_iter()
        .fold(head, |head, (name, value)| head.header(name, value));
    head.body(StreamBody::new(answer.body))
}
