//! Loopback ports for servers that must get the same port after a restart. Avoids the system's range for outgoing
//! connections: such a port could be taken while a server is down.

use anyhow::{Context as _, Result};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port of the first slot.
const FIRST: u32 = 10_000;
/// Ports of one process.
const SLOT: u32 = 150;
/// Slots below the range for outgoing connections, which begins at 32768.
const SLOTS: u32 = 150;

/// Ports given so far in this process.
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// A free port; a different one at each call, and in each concurrent process.
pub(crate) fn free() -> Result<u16> {
    let slot = FIRST + std::process::id() % SLOTS * SLOT;
    let next = || u16::try_from(slot + GIVEN.fetch_add(1, Ordering::Relaxed) % SLOT).ok();
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (0..SLOT)
        .filter_map(|_| next())
        .find(is_free)
        .with_context(|| format!("no port from {slot} to {} is free", slot + SLOT))
}
