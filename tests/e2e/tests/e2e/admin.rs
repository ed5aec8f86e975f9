//! The admin server while clients hold its connections open: it still answers probes, and memory stays bounded.

use crate::metrics::start;
use anyhow::{Result, ensure};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use transom_e2e::agent::DEADLINE;
use transom_e2e::http;
use transom_e2e::stage::Stage;
use transom_support::wait;

/// The first bytes of a misbehaving client.
const SILENT: &[u8] = b"";
const HALF: &[u8] = b"GET /healthz HTTP/1.1\r\nX-A: ";
const BODY: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
const METRICS: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// Connections that send a lot until the server accepts no more, and read nothing.
fn held(address: SocketAddr, count: usize, said: &[u8], times: usize) -> Result<Vec<TcpStream>> {
    let text = said.repeat(times);
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_nonblocking(true)?;
        match stream.write(&text) {
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) => {}
            Err(error) => return Err(error.into()),
        }
        all.push(stream);
    }
    Ok(all)
}

/// Misbehaving clients, more than the server has places for, with a text that they send after each kind.
pub(crate) fn crowd(address: SocketAddr) -> Result<Vec<TcpStream>> {
    let mut all = Vec::new();
    for (count, said, times) in [
        (64, HEALTH, 2_000),
        (64, METRICS, 50),
        (700, SILENT, 0),
        (200, HALF, 1),
        (200, BODY, 1),
        (64, METRICS, 1),
    ] {
        all.extend(held(address, count, said, times)?);
        for _ in 0..20 {
            probed(address)?;
        }
    }
    Ok(all)
}

/// Whether both probes are answered; each attempt has the deadline of the test kit.
pub(crate) fn probed(address: SocketAddr) -> Result<()> {
    for path in ["/healthz", "/readyz"] {
        let answer = http::get(address, path)?;
        ensure!(
            answer.status == 200,
            "{path}: {} {}",
            answer.status,
            answer.body
        );
    }
    Ok(())
}

#[test]
fn answers_probes_while_clients_hold_connections_open() -> Result<()> {
    let stage = Stage::new(3, 3)?;
    let (agent, address) = start(&stage, &[])?;
    let all = crowd(address)?;
    // A client that reads still gets the entire response.
    wait::until("the metrics", DEADLINE, || {
        http::get(address, "/metrics")
            .ok()
            .filter(|answer| answer.body.contains("transom_policies"))
    })?;
    ensure!(all.len() == 1_292);
    drop(all);
    probed(address)?;
    agent.stop()?;
    Ok(())
}

#[test]
fn closes_a_connection_after_one_request_even_from_an_idle_peer() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    let (agent, address) = start(&stage, &[])?;
    let mut two = TcpStream::connect_timeout(&address, DEADLINE)?;
    two.write_all(&HEALTH.repeat(2))?;
    let mut text = String::new();
    // The connection may end with a reset: the server never read the second request.
    drop(two.read_to_string(&mut text));
    ensure!(
        text.matches("HTTP/1.1 200").count() == 1 && text.contains("connection: close"),
        "{text}"
    );
    for said in [SILENT, HALF, BODY] {
        let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.write_all(said)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        let ended = wait::until("the end of an idle connection", DEADLINE, || {
            match stream.read(&mut [0; 64]) {
                Ok(0) => Some(()),
                Ok(_) => None,
                Err(error) => {
                    (!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
                        .then_some(())
                }
            }
        });
        ended?;
    }
    agent.stop()?;
    Ok(())
}
