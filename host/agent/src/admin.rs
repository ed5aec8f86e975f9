//! The admin server: metrics, health and state on one port. Never changes anything, and never shows a credential;
//! everything but health is shown only to whoever may see it.

mod gate;
mod routes;
mod state;
mod tls;

use crate::agent::Agent;
use anyhow::Context as _;
use gate::Gate;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tracing::{debug, info};
use transom_cluster::kubernetes::Reviews;

/// Connections at a time; more wait to be accepted.
const CONNECTIONS: usize = 64;
/// How long a peer may take for a handshake, or for the head of a request; an idle connection ends after it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the head of a request.
const HEAD_BYTES: usize = 32 << 10;

/// Where the admin server listens, and with which certificate.
#[derive(Clone, Debug)]
pub(crate) struct AdminOptions {
    /// Address and port.
    pub(crate) address: SocketAddr,
    /// Files with certificate chain and key, both PEM; without them there is no TLS.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}

/// What answers requests.
struct Admin {
    agent: Arc<Agent>,
    gate: Gate,
    tls: Option<tls::Tls>,
    room: Arc<Semaphore>,
}

/// Binds the port and answers until the task is ended.
///
/// # Errors
/// When the port cannot be used, or the certificate cannot be read.
pub(crate) async fn start(
    agent: Arc<Agent>,
    options: AdminOptions,
    reviews: Option<Reviews>,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let tls = options.certificate.map(|(certificate, key)| tls::Tls::open(certificate, key)).transpose()?;
    let listener = TcpListener::bind(options.address)
        .await
        .with_context(|| format!("failed to listen on --admin-address {}", options.address))?;
    let address = listener.local_addr().context("failed to learn the address of the admin server")?;
    info!(%address, tls = tls.is_some(), "the admin server listens");
    let gate = Gate::new(reviews);
    let admin = Arc::new(Admin { agent, gate, tls, room: Arc::new(Semaphore::new(CONNECTIONS)) });
    Ok(tokio::spawn(accept(admin, listener)))
}

async fn accept(admin: Arc<Admin>, listener: TcpListener) {
    loop {
        let Ok(room) = Arc::clone(&admin.room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let admin = Arc::clone(&admin);
                tokio::spawn(async move {
                    converse(&admin, stream, peer).await;
                    drop(room);
                });
            }
            Err(error) => {
                // Too many open files, for one: whoever holds them gives some back.
                debug!(%error, "failed to accept a connection of the admin server");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(admin: &Arc<Admin>, stream: TcpStream, peer: SocketAddr) {
    let Some(tls) = &admin.tls else { return answer(admin, stream, peer).await };
    match tokio::time::timeout(PATIENCE, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => answer(admin, stream, peer).await,
        Ok(Err(error)) => debug!(%peer, %error, "a peer of the admin server ended the handshake"),
        Err(_) => debug!(%peer, "a peer of the admin server took too long for the handshake"),
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(admin: &Arc<Admin>, stream: S, peer: SocketAddr) {
    let service = service_fn(|request| {
        let admin = Arc::clone(admin);
        async move { Ok::<_, std::convert::Infallible>(routes::answer(&admin.agent, &admin.gate, peer, &request).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD_BYTES);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        debug!(%peer, %error, "a connection of the admin server ended early");
    }
}
