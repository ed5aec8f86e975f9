//! A proxy in front of an API server that gives wrong answers when it is told to. Never asks anything by itself.

use crate::cluster::Cluster;
use crate::user::{self, User};
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

/// What becomes of every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with a code and some text, and, where seconds are given, told when to come again.
    Code(u16, Option<u32>),
    /// It is answered with 200 and a page of HTML.
    NoJson,
    /// It is carried out, and half of the answer is lost: what comes is well-formed HTTP and no JSON.
    Half,
}

/// A body on its way through.
type Counted = UnsyncBoxBody<Bytes, <Body as hyper::body::Body>::Error>;
/// When requests met the fault that was told last.
type Met = Arc<Mutex<Vec<Instant>>>;

/// A proxy at work; its connections end with the value.
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

/// What every connection needs.
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
    /// Starts one that carries everything as it is. Callers need a token to be known: it ends their TLS.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("failed to listen for a proxy")?;
        let address = listener.local_addr().context("failed to ask for the address of a proxy")?;
        let client = user::client(&cluster.kubeconfig(&User::nobody())?).await?;
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
        Ok(Self { address, fault, stops, late, cuts, met, gone, serving })
    }

    /// Its address; plain HTTP, so that what it says needs no certificate.
    pub fn server(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Treats every request so from now on, or well again; watches that are open go on.
    pub fn fail(&self, fault: Option<Fault>) {
        held(&self.met).clear();
        *held(&self.fault) = fault;
    }

    /// Holds up requests whose path and query contain a text, or lets all of them go on.
    pub fn hold(&self, path: Option<&'static str>) {
        held(&self.met).clear();
        self.stops.send_replace(path);
    }

    /// Carries out every write at once and gives its answer only so much later, or lets all answers come; what is read or
    /// watched comes at once.
    pub fn answer_writes_late(&self, by: Option<Duration>) {
        self.late.send_replace(by);
    }

    /// Ends what is open, so that watches are asked for again.
    pub fn cut(&self) {
        self.cuts.send_replace(());
    }

    /// How many requests met the fault that was told last, or were held up since.
    pub fn met(&self) -> usize {
        held(&self.met).len()
    }

    /// When each of them did.
    pub fn times(&self) -> Vec<Instant> {
        held(&self.met).clone()
    }

    /// How many answers said 410: what was asked for lies before what the API server remembers.
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
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // Whoever breaks a connection has seen it.
        _ = connection => {}
        _ = behind.cuts.changed() => {}
    }
}

async fn answer(mut behind: Behind, request: Request<Incoming>) -> Result<Response<Counted>> {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let stopped = |stop: &Option<&str>| stop.is_some_and(|text| path.contains(text));
    if stopped(&behind.stops.borrow()) {
        held(&behind.met).push(Instant::now());
    }
    behind.stops.wait_for(|stop| !stopped(stop)).await.context("the proxy is gone")?;
    let writes = request.method() != Method::GET;
    let fault = *held(&behind.fault);
    if fault.is_some() {
        held(&behind.met).push(Instant::now());
    }
    let answer = match fault {
        None => carried(&behind.client, request).await,
        Some(Fault::Half) => half(carried(&behind.client, request).await?).await,
        Some(Fault::NoJson) => said(Response::builder(), "<html><body>Please sign in.</body></html>"),
        Some(Fault::Code(code, seconds)) => {
            let head = Response::builder().status(code);
            let head = seconds.into_iter().fold(head, |head, seconds| head.header(RETRY_AFTER, seconds));
            said(head, "something is wrong; please try again later\n")
        }
    }?;
    let late = *behind.late.borrow();
    if let Some(late) = late.filter(|_| writes) {
        // Answers that are held back come when nothing is late any more.
        drop(timeout(late, behind.late.wait_for(Option::is_none)).await);
    }
    Ok(answer.map(|body| counted(body, behind.gone)))
}

async fn carried(client: &Client, request: Request<Incoming>) -> Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    head.headers.remove(HOST);
    let bytes = body.collect().await.context("failed to read a request")?.to_bytes();
    Ok(client.send(Request::from_parts(head, Body::from(bytes))).await?)
}

/// The same body; it is counted where it says that the past is gone, as it does to a watch from before.
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

/// The first half of the first piece that comes; of a watch that is within an event.
async fn half(answer: Response<Body>) -> Result<Response<Body>> {
    let (mut head, mut body) = answer.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    head.headers.remove(TRANSFER_ENCODING);
    let first = body.frame().await.transpose()?.and_then(|frame| frame.into_data().ok()).unwrap_or_default();
    Ok(Response::from_parts(head, Body::from(first.slice(..first.len() / 2))))
}

fn said(head: hyper::http::response::Builder, text: &'static str) -> Result<Response<Body>> {
    let body = Body::from(Bytes::from_static(text.as_bytes()));
    head.header(CONTENT_TYPE, "text/html").body(body).context("failed to make an answer")
}
