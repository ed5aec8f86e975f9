//! A proxy in front of an API server that gives wrong responses on demand.

use crate::certificates::{self, User};
use crate::cluster::Cluster;
use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// What happens to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It gets a status code and a text, and a Retry-After time if seconds are given.
    Code(u16, Option<u32>),
    /// It gets status 200 and an HTML page.
    NoJson,
    /// The server handles it, but half of the response is lost: the client gets well-formed HTTP and invalid JSON.
    Half,
}

/// A forwarded body.
type Counted = UnsyncBoxBody<Bytes, <Body as hyper::body::Body>::Error>;
/// When requests met the current fault.
type Met = Arc<Mutex<Vec<Instant>>>;

/// A running proxy; its connections end when the value is dropped.
pub struct Proxy {
    address: SocketAddr,
    fault: Arc<Mutex<Option<Fault>>>,
    stops: watch::Sender<Option<&'static str>>,
    late: watch::Sender<Option<Duration>>,
    cuts: watch::Sender<()>,
    met: Met,
    gone: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

/// The data that every connection needs.
#[derive(Clone)]
struct Behind {
    client: Client,
    fault: Arc<Mutex<Option<Fault>>>,
    stops: watch::Receiver<Option<&'static str>>,
    late: watch::Receiver<Option<Duration>>,
    cuts: watch::Receiver<()>,
    met: Met,
    gone: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts one that forwards everything unchanged. Clients need a token to authenticate: the proxy terminates their
    /// TLS.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("failed to listen for a proxy")?;
        let address = listener
            .local_addr()
            .context("failed to ask for the address of a proxy")?;
        let client = certificates::client(&cluster.kubeconfig(&User::nobody())?).await?;
        let (cuts, cut) = watch::channel(());
        let (stops, stop) = watch::channel(None);
        let (late, delay) = watch::channel(None);
        let (fault, met, gone) = (Arc::default(), Met::default(), Arc::default());
        let behind = Behind {
            client,
            fault: Arc::clone(&fault),
            stops: stop,
            late: delay,
            cuts: cut,
            met: Arc::clone(&met),
            gone: Arc::clone(&gone),
        };
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, behind.clone()));
            }
        });
        Ok(Self {
            address,
            fault,
            stops,
            late,
            cuts,
            met,
            gone,
            serving,
        })
    }

    /// Its address; plain HTTP, so that its responses need no certificate.
    pub fn server(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Applies a fault to every request from now on, or none; open watches continue.
    pub fn fail(&self, fault: Option<Fault>) {
        held(&self.met).clear();
        *held(&self.fault) = fault;
    }

    /// Holds back requests whose path and query contain a text, or releases all of them.
    pub fn hold(&self, path: Option<&'static str>) {
        held(&self.met).clear();
        self.stops.send_replace(path);
    }

    /// Forwards every write at once but delays its response by this time, or releases all responses; reads and watches
    /// are not delayed.
    pub fn answer_writes_late(&self, by: Option<Duration>) {
        self.late.send_replace(by);
    }

    /// Closes open connections, so that clients watch again.
    pub fn cut(&self) {
        self.cuts.send_replace(());
    }

    /// How many requests met the current fault, or were held back since.
    pub fn met(&self) -> usize {
        held(&self.met).len()
    }

    /// When each of them did so.
    pub fn times(&self) -> Vec<Instant> {
        held(&self.met).clone()
    }

    /// How many responses had code 410: the requested revision is older than what the API server keeps.
    pub fn gone(&self) -> usize {
        self.gone.load(Ordering::SeqCst)
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Answers the requests of a connection until it is cut.
async fn serve(stream: TcpStream, mut behind: Behind) {
    behind.cuts.mark_unchanged();
    let asked = behind.clone();
    let service = service_fn(move |request| answer(asked.clone(), request));
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // The client has noticed when its connection breaks.
        _ = connection => {}
        _ = behind.cuts.changed() => {}
    }
}

async fn answer(mut behind: Behind, request: Request<Incoming>) -> Result<Response<Counted>> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("", |path| path.as_str());
    let stopped = |stop: &Option<&str>| stop.is_some_and(|text| path.contains(text));
    if stopped(&behind.stops.borrow()) {
        held(&behind.met).push(Instant::now());
    }
    behind
        .stops
        .wait_for(|stop| !stopped(stop))
        .await
        .context("the proxy is gone")?;
    let writes = request.method() != Method::GET;
    let fault = *held(&behind.fault);
    if fault.is_some() {
        held(&behind.met).push(Instant::now());
    }
    let answer = match fault {
        None => carried(&behind.client, request).await,
        Some(Fault::Half) => half(carried(&behind.client, request).await?).await,
        Some(Fault::NoJson) => said(
            Response::builder(),
            "<html><body>Please sign in.</body></html>",
        ),
        Some(Fault::Code(code, seconds)) => {
            let head = Response::builder().status(code);
            let head = seconds
                .into_iter()
                .fold(head, |head, seconds| head.header(RETRY_AFTER, seconds));
            said(head, "something is wrong; please try again later\n")
        }
    }?;
    let late = *behind.late.borrow();
    if let Some(late) = late.filter(|_| writes) {
        // Delayed responses are released when the delay is removed.
        drop(timeout(late, behind.late.wait_for(Option::is_none)).await);
    }
    Ok(answer.map(|body| counted(body, behind.gone)))
}

async fn carried(client: &Client, request: Request<Incoming>) -> Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    head.headers.remove(HOST);
    let bytes = body
        .collect()
        .await
        .context("failed to read a request")?
        .to_bytes();
    Ok(client
        .send(Request::from_parts(head, Body::from(bytes)))
        .await?)
}

/// The same body; counts an expiry that the server reports inside the stream of an older watch.
fn counted(body: Body, gone: Arc<AtomicUsize>) -> Counted {
    const TOLD: &[u8] = br#""code":410"#;
    let told = |data: &Bytes| data.windows(TOLD.len()).any(|part| part == TOLD);
    let look = move |frame: Frame<Bytes>| {
        if frame.data_ref().is_some_and(told) {
            gone.fetch_add(1, Ordering::SeqCst);
        }
        frame
    };
    body.map_frame(look).boxed_unsync()
}

/// The first half of the first chunk; for a watch this ends within an event.
async fn half(answer: Response<Body>) -> Result<Response<Body>> {
    let (mut head, mut body) = answer.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    head.headers.remove(TRANSFER_ENCODING);
    let first = body
        .frame()
        .await
        .transpose()?
        .and_then(|frame| frame.into_data().ok())
        .unwrap_or_default();
    Ok(Response::from_parts(
        head,
        Body::from(first.slice(..first.len() / 2)),
    ))
}

fn said(head: hyper::http::response::Builder, text: &'static str) -> Result<Response<Body>> {
    let body = Body::from(Bytes::from_static(text.as_bytes()));
    head.header(CONTENT_TYPE, "text/html")
        .body(body)
        .context("failed to make an answer")
}
