//! A wire between the agent and the API server that can be cut. Never looks into what it carries.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A wire to an API server.
pub(crate) struct Relay {
    address: SocketAddr,
    cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// A wire to a server, `https://127.0.0.1:<port>`; its thread ends with the process.
    pub(crate) fn to(server: &str) -> io::Result<Self> {
        let target = server.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let relay = Self { address: listener.local_addr()?, cut: Arc::default(), open: Arc::default() };
        let (cut, open) = (Arc::clone(&relay.cut), Arc::clone(&relay.open));
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                if !cut.load(Ordering::SeqCst) {
                    // Whoever cannot be reached behind the wire is as good as cut off.
                    drop(join(from, &target, &open));
                }
            }
        });
        Ok(relay)
    }

    /// The address of this end.
    pub(crate) fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Ends every connection, and each new one at once.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// Carries new connections again.
    pub(crate) fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

fn join(from: TcpStream, target: &str, open: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let to = TcpStream::connect(target)?;
    open.lock().unwrap_or_else(PoisonError::into_inner).extend([from.try_clone()?, to.try_clone()?]);
    for (mut from, mut to) in [(from.try_clone()?, to.try_clone()?), (to, from)] {
        thread::spawn(move || {
            drop(io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Both));
        });
    }
    Ok(())
}
