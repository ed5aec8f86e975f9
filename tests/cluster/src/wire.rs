//! A wire to an API server that can be cut, held up, slowed and silenced, as networks are. Never looks into what it carries.

use anyhow::{Context as _, Result};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that are carried at once.
const CHUNK: usize = 16 * 1024;

/// What a wire does with what it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    /// Carries it.
    #[default]
    All,
    /// Holds everything up, in both directions; it comes later, as it does when a network was parted for a while.
    Nothing,
    /// Holds up what goes to the server; what the server says still comes.
    Answers,
    /// So many bytes per second and connection, in both directions.
    Slowly(u32),
}

/// A wire to an API server.
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
    /// How many connections there were so far.
    made: u64,
    /// Connections before this one carry nothing any more.
    silent_before: u64,
    open: Vec<TcpStream>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    FromServer,
}

impl Wire {
    /// A wire to a server, `https://127.0.0.1:<port>`; its threads end with the process.
    pub fn to(server: &str) -> Result<Self> {
        let target = server.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").context("failed to listen for a wire")?;
        let address = listener.local_addr().context("failed to ask for the address of a wire")?;
        let wire = Self { address, gate: Arc::default() };
        let gate = Arc::clone(&wire.gate);
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                // Whoever cannot be reached behind the wire is as good as cut off.
                drop(join(from, &target, &gate));
            }
        });
        Ok(wire)
    }

    /// The address of this end.
    pub fn server(&self) -> String {
        format!("https://{}", self.address)
    }

    /// What it does from now on with what it is given; what was held up comes first. Mends what was cut.
    pub fn carry(&self, carries: Carries) {
        let mut state = self.gate.state();
        (state.carries, state.cut) = (carries, false);
        self.gate.changed.notify_all();
    }

    /// Ends every connection, and each new one at once.
    pub fn cut(&self) {
        let mut state = self.gate.state();
        state.cut = true;
        for stream in state.open.drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
        self.gate.changed.notify_all();
    }

    /// The connections that are open stay so and carry nothing any more, for good; new ones work.
    pub fn silence(&self) {
        let mut state = self.gate.state();
        state.silent_before = state.made;
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until so many bytes of a connection may go on.
    fn pass(&self, number: u64, way: Way, length: usize) {
        let held = |state: &mut State| {
            let parted = match state.carries {
                Carries::Nothing => true,
                Carries::Answers => way == Way::ToServer,
                Carries::All | Carries::Slowly(_) => false,
            };
            !state.cut && (parted || number < state.silent_before)
        };
        let state = self.changed.wait_while(self.state(), held).unwrap_or_else(PoisonError::into_inner);
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
    let ways =
        [(from.try_clone()?, to.try_clone()?, Way::ToServer), (to.try_clone()?, from.try_clone()?, Way::FromServer)];
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

fn carry(mut from: &TcpStream, mut to: &TcpStream, gate: &Gate, number: u64, way: Way) -> io::Result<()> {
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
