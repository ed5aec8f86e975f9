//! A network link to an API server that can be cut, held back, slowed and silenced, and a proxy that makes tunnels.
//! Neither inspects the traffic.

use anyhow::{Context as _, Result};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that are forwarded at once.
const CHUNK: usize = 16 * 1024;

/// What a link does with its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    /// Carries it.
    #[default]
    All,
    /// Holds back everything, in both directions; it arrives later, as after a network partition.
    Nothing,
    /// Holds back data to the server; data from the server still arrives.
    Answers,
    /// This many bytes per second and connection, in both directions.
    Slowly(u32),
}

/// A link to an API server.
pub struct Wire {
    address: SocketAddr,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    carries: Carries,
    cut: bool,
    /// Number of connections so far.
    made: u64,
    /// Connections before this number carry nothing any more.
    silent_before: u64,
    open: Vec<TcpStream>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    FromServer,
}

impl Wire {
    /// A link to a server, `https://127.0.0.1:<port>`; its threads end with the process.
    pub fn to(server: &str) -> Result<Self> {
        let target = server.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").context("failed to listen for a wire")?;
        let address = listener
            .local_addr()
            .context("failed to ask for the address of a wire")?;
        let wire = Self {
            address,
            gate: Arc::default(),
        };
        let gate = Arc::clone(&wire.gate);
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                // If the server behind the link is unreachable, the connection counts as cut.
                drop(join(from, &target, &gate));
            }
        });
        Ok(wire)
    }

    /// The address of this end.
    pub fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    /// What it does with data from now on; held-back data comes first. Repairs a cut.
    pub fn carry(&self, carries: Carries) {
        let mut state = self.gate.state();
        (state.carries, state.cut) = (carries, false);
        self.gate.changed.notify_all();
    }

    /// Closes every connection, and each new one at once.
    pub fn cut(&self) {
        let mut state = self.gate.state();
        state.cut = true;
        for stream in state.open.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
        self.gate.changed.notify_all();
    }

    /// Open connections stay open but carry nothing any more, permanently; new ones work.
    pub fn silence(&self) {
        let mut state = self.gate.state();
        state.silent_before = state.made;
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this many bytes of a connection may pass.
    fn pass(&self, number: u64, way: Way, length: usize) {
        let held = |state: &mut State| {
            let parted = match state.carries {
                Carries::Nothing => true,
                Carries::Answers => way == Way::ToServer,
                Carries::All | Carries::Slowly(_) => false,
            };
            !state.cut && (parted || number < state.silent_before)
        };
        let state = self
            .changed
            .wait_while(self.state(), held)
            .unwrap_or_else(PoisonError::into_inner);
        if let Carries::Slowly(bytes) = state.carries {
            let pause = Duration::from_secs(1).mul_f64(length as f64 / f64::from(bytes.max(1)));
            let slow = |state: &mut State| state.carries == Carries::Slowly(bytes) && !state.cut;
            drop(self.changed.wait_timeout_while(state, pause, slow));
        }
    }
}

fn join(from: TcpStream, target: &str, gate: &Arc<Gate>) -> Result<()> {
    if gate.state().cut {
        return Ok(());
    }
    let to = TcpStream::connect(target)?;
    let ways = [
        (from.try_clone()?, to.try_clone()?, Way::ToServer),
        (to.try_clone()?, from.try_clone()?, Way::FromServer),
    ];
    let number = {
        let mut state = gate.state();
        state.open.extend([from, to]);
        state.made += 1;
        state.made - 1
    };
    for (from, to, way) in ways {
        let gate = Arc::clone(gate);
        thread::spawn(move || {
            drop(carry(&from, &to, &gate, number, way));
            drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
        });
    }
    Ok(())
}

fn carry(
    mut from: &TcpStream,
    mut to: &TcpStream,
    gate: &Gate,
    number: u64,
    way: Way,
) -> io::Result<()> {
    let mut bytes = [0; CHUNK];
    loop {
        let length = from.read(&mut bytes)?;
        gate.pass(number, way, length);
        if length == 0 {
            return Ok(());
        }
        to.write_all(&bytes[..length])?;
    }
}

/// A proxy that makes tunnels (`CONNECT`) and counts them. Does not inspect the traffic; its threads end with the
/// process.
pub struct Tunnels {
    /// Its port on loopback.
    pub port: u16,
    made: Arc<AtomicUsize>,
}

impl Tunnels {
    /// Starts one on loopback.
    pub fn start() -> Result<Self> {
        Self::listen(None)
    }

    /// One whose tunnels all end at a server, `https://127.0.0.1:<port>`, whatever name they are asked for: it takes
    /// the place of the DNS of a cluster.
    pub fn to(server: &str) -> Result<Self> {
        Self::listen(Some(server.trim_start_matches("https://").to_owned()))
    }

    fn listen(end: Option<String>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("failed to listen for a proxy")?;
        let tunnels = Self {
            port: listener.local_addr()?.port(),
            made: Arc::default(),
        };
        let made = Arc::clone(&tunnels.made);
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let (made, end) = (Arc::clone(&made), end.clone());
                // Closes the connection on any other request.
                thread::spawn(move || drop(tunnel(&from, end.as_deref(), &made)));
            }
        });
        Ok(tunnels)
    }

    /// How many tunnels were requested since the last call.
    pub fn made(&self) -> usize {
        self.made.swap(0, Ordering::SeqCst)
    }
}

fn tunnel(from: &TcpStream, end: Option<&str>, made: &AtomicUsize) -> io::Result<()> {
    let mut head = BufReader::new(from);
    let mut first = String::new();
    head.read_line(&mut first)?;
    let Some(target) = first
        .strip_prefix("CONNECT ")
        .and_then(|rest| rest.split(' ').next())
    else {
        return Ok(());
    };
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    made.fetch_add(1, Ordering::SeqCst);
    let to = TcpStream::connect(end.unwrap_or(target))?;
    (&*from).write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (mut back, mut out) = (to.try_clone()?, from.try_clone()?);
    thread::spawn(move || {
        drop(io::copy(&mut back, &mut out));
        drop(out.shutdown(Shutdown::Both));
    });
    // The client sends nothing before it has the response, so nothing is left in the buffer.
    io::copy(&mut &*from, &mut &to)?;
    to.shutdown(Shutdown::Both)
}
