//! A wire to an API server on which everything can be held up, as when a network is parted. Never looks into what it carries.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// Whether everything is held up, and the bell that rings when it is not.
type Gate = Arc<(Mutex<bool>, Condvar)>;

/// A wire to an API server.
pub(crate) struct Wire {
    address: SocketAddr,
    gate: Gate,
}

impl Wire {
    /// A wire to a server, `https://127.0.0.1:<port>`; its threads end with the process.
    pub(crate) fn to(server: &str) -> io::Result<Self> {
        let target = server.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let wire = Self { address: listener.local_addr()?, gate: Gate::default() };
        let gate = Arc::clone(&wire.gate);
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                // Whoever cannot be reached behind the wire is as good as held up.
                drop(join(&from, &target, &gate));
            }
        });
        Ok(wire)
    }

    /// The address of this end.
    pub(crate) fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Carries nothing, or everything again: what was held up first.
    pub(crate) fn hold(&self, held: bool) {
        let (state, bell) = &*self.gate;
        *state.lock().unwrap_or_else(PoisonError::into_inner) = held;
        bell.notify_all();
    }
}

fn join(from: &TcpStream, target: &str, gate: &Gate) -> io::Result<()> {
    let to = TcpStream::connect(target)?;
    for (from, to) in [(from.try_clone()?, to.try_clone()?), (to.try_clone()?, from.try_clone()?)] {
        let gate = Arc::clone(gate);
        thread::spawn(move || {
            drop(carry(&from, &to, &gate));
            drop(to.shutdown(Shutdown::Both));
        });
    }
    Ok(())
}

fn carry(mut from: &TcpStream, mut to: &TcpStream, gate: &Gate) -> io::Result<()> {
    let mut bytes = [0; 16 * 1024];
    loop {
        let length = from.read(&mut bytes)?;
        let (state, bell) = &**gate;
        let held = state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(bell.wait_while(held, |held| *held));
        if length == 0 {
            return Ok(());
        }
        to.write_all(&bytes[..length])?;
    }
}
