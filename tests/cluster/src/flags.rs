//! The command lines of the two servers, the files that they name, and their ports.

use crate::certificates::{self, Authority};
use anyhow::{Context as _, Result};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Each request once, when it is answered; a watch also when it begins. All users are included.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n";

/// The ports of the servers, all on loopback.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    /// etcd's client port.
    pub(crate) etcd: u16,
    /// etcd's peer port; there is only one member.
    pub(crate) peer: u16,
    /// The API server.
    pub(crate) apiserver: u16,
}

/// Flags of etcd; without `fsync` it is faster and loses writes when the machine (not the process) fails.
pub(crate) fn etcd(folder: &Path, ports: Ports, fsync: bool) -> Vec<String> {
    let (client, peer) = (
        format!("http://127.0.0.1:{}", ports.etcd),
        format!("http://127.0.0.1:{}", ports.peer),
    );
    let mut flags = vec![
        "--name=test".to_owned(),
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=test={peer}"),
        "--quota-backend-bytes=4294967296".to_owned(),
    ];
    if !fsync {
        flags.push("--unsafe-no-fsync".to_owned());
    }
    flags
}

/// Flags of the API server; writes the files that they name.
pub(crate) fn apiserver(
    folder: &Path,
    ports: Ports,
    authority: &Authority,
    names: &[String],
) -> Result<Vec<String>> {
    let server = authority.server(names)?;
    let (private, public) = certificates::signing_key()?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("failed to write `{}`", path.display()))?;
        Ok(path.display().to_string())
    };
    Ok(vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", ports.apiserver),
        format!(
            "--tls-cert-file={}",
            file("server.crt", &server.certificate)?
        ),
        format!(
            "--tls-private-key-file={}",
            file("server.key", &server.key)?
        ),
        format!("--client-ca-file={}", file("ca.crt", &authority.pem())?),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!(
            "--service-account-key-file={}",
            file("service-accounts.pub", &public)?
        ),
        format!(
            "--service-account-signing-key-file={}",
            file("service-accounts.key", &private)?
        ),
        "--service-cluster-ip-range=172.30.0.0/16".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // The endpoints of the API server's own Service may not be on loopback, and no test needs them.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--audit-policy-file={}", file("audit-policy.yaml", AUDIT)?),
        format!("--audit-log-path={}", folder.join("audit.log").display()),
        // A single file of any length: by default the log rotates at 100 MB.
        "--audit-log-maxsize=1000000".to_owned(),
    ])
}

/// The first port of the first slot.
const FIRST: u32 = 10_000;
/// Ports of one process.
const SLOT: u32 = 150;
/// Slots below the range for outgoing connections, which begins at 32768.
const SLOTS: u32 = 150;

/// Ports given so far in this process.
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// A free loopback port; a different one at each call, and in each concurrent process. Avoids the system's range for
/// outgoing connections: a port of it could be taken while a server is down.
pub(crate) fn free_port() -> Result<u16> {
    let slot = FIRST + std::process::id() % SLOTS * SLOT;
    let next = || u16::try_from(slot + GIVEN.fetch_add(1, Ordering::Relaxed) % SLOT).ok();
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (0..SLOT)
        .filter_map(|_| next())
        .find(is_free)
        .with_context(|| format!("no port from {slot} to {} is free", slot + SLOT))
}
