//! The admin server: metrics, health and debug state on one port. It is read-only and shows no credential. Everything
//! but health is for authorized peers only.

mod metrics;
mod routes;
mod tls;

use crate::controller::Controller;
use anyhow::Context as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use routes::Authorizer;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tracing::{debug, info};
use transom_cluster::kubernetes::Reviews;
use transom_core::share::lock::MutexExt as _;

/// Maximum number of connections. At the limit a new connection closes the oldest one, so that idle connections cannot
/// shut a health probe out.
const PEERS: usize = 128;
/// Maximum number of large answers (metrics and state) at a time: each stays in memory until its peer has read it.
const READERS: usize = 16;
/// Time limit for the TLS handshake, and for the head of the request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for a whole connection, whatever it does. It carries one request.
const WHOLE: Duration = Duration::from_secs(30);
/// Maximum size of the head of a request, in bytes.
const HEAD_BYTES: usize = 32 << 10;

/// Where the admin server is listening, and with which certificate.
#[derive(Clone, Debug)]
pub(crate) struct AdminOptions {
    /// Address and port.
    pub(crate) address: SocketAddr,
    /// Files with certificate chain and key, both PEM; without them there is no TLS.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}

/// What all connections share.
struct Admin {
    controller: Arc<Controller>,
    authorizer: Authorizer,
    tls: Option<tls::Tls>,
    peers: Arc<ConnectionLimit>,
    readers: Arc<ConnectionLimit>,
}

/// Binds the port and answers requests until the returned task is aborted.
///
/// # Errors
/// When the port cannot be used, or the certificate cannot be read.
pub(crate) async fn start(
    controller: Arc<Controller>,
    options: AdminOptions,
    reviews: Option<Reviews>,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let tls = options
        .certificate
        .map(|(certificate, key)| tls::Tls::open(certificate, key))
        .transpose()?;
    let listener = listen(options.address)
        .await
        .with_context(|| format!("failed to listen on --admin-address {}", options.address))?;
    let address = listener
        .local_addr()
        .context("failed to read the address of the admin server")?;
    info!(%address, tls = tls.is_some(), "the admin server is listening");
    let admin = Arc::new(Admin {
        controller,
        authorizer: Authorizer::new(reviews),
        tls,
        peers: ConnectionLimit::new(PEERS),
        readers: ConnectionLimit::new(READERS),
    });
    Ok(tokio::spawn(accept(admin, listener)))
}

/// Binds the port. `[::]` is every address of both families; on a host without IPv6 it is those of IPv4.
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && lacks_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Whether an address could not be bound because the host has no IPv6: it does not know the family, or has no such
/// address.
fn lacks_ipv6(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    matches!(error, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

async fn accept(admin: Arc<Admin>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => drop(tokio::spawn(converse(Arc::clone(&admin), stream, peer))),
            Err(error) => {
                // The process may be out of file descriptors: closing the oldest connection frees one.
                debug!(%error, "failed to accept a connection to the admin server");
                admin.peers.dismiss();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves one connection from beginning to end.
async fn converse(admin: Arc<Admin>, stream: TcpStream, peer: SocketAddr) {
    let leave = Arc::new(Notify::new());
    let _place = admin.peers.enter(&leave);
    tokio::select! {
        () = meet(&admin, stream, peer, &leave) => {}
        () = leave.notified() => debug!(%peer, "closed a connection to the admin server to make room for a new one"),
        () = tokio::time::sleep(WHOLE) => debug!(%peer, "a client of the admin server took too long"),
    }
}

async fn meet(admin: &Arc<Admin>, stream: TcpStream, peer: SocketAddr, leave: &Arc<Notify>) {
    let Some(tls) = &admin.tls else {
        return answer(admin, stream, peer, leave).await;
    };
    match tokio::time::timeout(PATIENCE, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => answer(admin, stream, peer, leave).await,
        Ok(Err(error)) => {
            debug!(%peer, %error, "a TLS handshake with a client of the admin server failed");
        }
        Err(_) => debug!(%peer, "a client of the admin server took too long for the TLS handshake"),
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    admin: &Arc<Admin>,
    stream: S,
    peer: SocketAddr,
    leave: &Arc<Notify>,
) {
    let reader = OnceLock::new();
    let service = service_fn(|request| {
        let (admin, reader) = (Arc::clone(admin), &reader);
        async move {
            // The place is held until the connection ends, because the answer stays in memory until then.
            let read = || {
                reader.get_or_init(|| admin.readers.enter(leave));
            };
            Ok::<_, std::convert::Infallible>(
                routes::answer(&admin.controller, &admin.authorizer, peer, &request, read).await,
            )
        }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        debug!(%peer, %error, "a connection to the admin server was closed early");
    }
}

/// A limit on the peers that are served at a time, for one purpose. A new peer is never refused: the oldest one has to
/// leave.
struct ConnectionLimit {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    came: u64,
    leave: BTreeMap<u64, Arc<Notify>>,
}

/// One place; given back when this is dropped.
struct Place {
    limit: Arc<ConnectionLimit>,
    came: u64,
}

impl ConnectionLimit {
    /// A limit with `most` places.
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: Mutex::default(),
        })
    }

    /// Takes a place. When all are taken, notifies the `leave` of the oldest peer.
    fn enter(self: &Arc<Self>, leave: &Arc<Notify>) -> Place {
        let mut held = self.held.locked();
        if held.leave.len() >= self.most {
            held.dismiss();
        }
        held.came += 1;
        let came = held.came;
        held.leave.insert(came, Arc::clone(leave));
        Place {
            limit: Arc::clone(self),
            came,
        }
    }

    /// Notifies the oldest peer to leave.
    fn dismiss(&self) {
        self.held.locked().dismiss();
    }
}

impl Held {
    fn dismiss(&mut self) {
        if let Some((_, first)) = self.leave.pop_first() {
            first.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limit.held.locked().leave.remove(&self.came);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::controller::connections::Connections;
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use transom_core::contract::AgentFacts;
    use transom_core::watches::SecretReads;

    /// An agent without connections that is not ready yet.
    pub(super) fn controller() -> Controller {
        let connections = Connections::new(BTreeMap::new(), SecretReads::Watch);
        let facts = AgentFacts::new("local-cluster", None);
        Controller::new(connections, Clock::new(None), facts)
    }

    #[tokio::test]
    async fn one_port_answers_both_families() {
        let listener = listen("[::]:0".parse().unwrap()).await.unwrap();
        let bound = listener.local_addr().unwrap();
        let admin = Arc::new(Admin {
            controller: Arc::new(controller()),
            authorizer: Authorizer::new(None),
            tls: None,
            peers: ConnectionLimit::new(PEERS),
            readers: ConnectionLimit::new(READERS),
        });
        let server = tokio::spawn(accept(admin, listener));
        for host in ["127.0.0.1", "::1"] {
            if host == "::1" && TcpListener::bind((host, 0)).await.is_err() {
                continue; // no IPv6 on this machine
            }
            let mut peer = TcpStream::connect((host, bound.port())).await.unwrap();
            // Only a peer on this machine gets it, so both are recognized as such.
            let request = b"GET /metrics HTTP/1.1\r\nHost: admin\r\n\r\n";
            peer.write_all(request).await.unwrap();
            let mut answer = String::new();
            peer.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
        }
        server.abort();
    }

    #[tokio::test]
    async fn only_a_host_without_ipv6_counts_as_one() {
        let elsewhere = "[2001:db8::1]:0".parse().unwrap();
        let no_address = listen(elsewhere).await.unwrap_err();
        assert!(lacks_ipv6(&no_address), "{no_address}");
        let taken = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let in_use = listen(taken.local_addr().unwrap()).await.unwrap_err();
        assert!(!lacks_ipv6(&in_use), "{in_use}");
    }

    #[test]
    fn only_the_oldest_connection_makes_room() {
        let limit = ConnectionLimit::new(2);
        let peers = [(); 4].map(|()| Arc::new(Notify::new()));
        let told = || {
            peers
                .iter()
                .map(|peer| peer.notified().now_or_never().is_some())
                .collect::<Vec<_>>()
        };
        let first = limit.enter(&peers[0]);
        let _second = limit.enter(&peers[1]);
        assert_eq!(told(), [false; 4]);
        drop(first);
        let _third = limit.enter(&peers[2]);
        assert_eq!(told(), [false; 4], "a place was free");
        let _fourth = limit.enter(&peers[3]);
        assert_eq!(told(), [false, true, false, false]);
        limit.dismiss();
        assert_eq!(told(), [false, false, true, false]);
        assert_eq!(limit.held.locked().leave.len(), 1);
    }
}
