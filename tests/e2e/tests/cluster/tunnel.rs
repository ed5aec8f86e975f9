//! A proxy that makes tunnels (`CONNECT`) and counts them. Does not inspect the traffic.

use anyhow::{Context as _, Result};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A running proxy; its threads end with the process.
pub(crate) struct Tunnels {
    pub(crate) port: u16,
    made: Arc<AtomicUsize>,
}

impl Tunnels {
    /// Starts one on loopback.
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("failed to listen for a proxy")?;
        let tunnels = Self {
            port: listener.local_addr()?.port(),
            made: Arc::default(),
        };
        let made = Arc::clone(&tunnels.made);
        thread::spawn(move || {
            for from in listener.incoming().flatten() {
                let made = Arc::clone(&made);
                // Closes the connection on any other request.
                thread::spawn(move || drop(tunnel(&from, &made)));
            }
        });
        Ok(tunnels)
    }

    /// How many tunnels were requested since the last call.
    pub(crate) fn made(&self) -> usize {
        self.made.swap(0, Ordering::SeqCst)
    }
}

fn tunnel(from: &TcpStream, made: &AtomicUsize) -> io::Result<()> {
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
    let to = TcpStream::connect(target)?;
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
