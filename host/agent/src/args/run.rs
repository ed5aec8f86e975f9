//! Flags of `run`.

use super::server::ServerArgs;
use super::{ReconcileArgs, is_connection};
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use transom_core::reference::LOCAL;
use transom_core::share::budget::DEFAULT_MIB;

/// Flags of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Folder of manifests instead of an API server; prefix it with the name of the connection when it is not `local`.
    #[arg(long, value_name = "[NAME=]DIR", value_parser = parse_dir)]
    pub(crate) dir: Vec<NamedDir>,
    /// Flags of API servers.
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Flags shared with `render`.
    #[command(flatten)]
    pub(crate) reconcile: ReconcileArgs,
    /// Memory limit in MiB of guests, compilations and documents together, in addition to the watched objects.
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_MIB)]
    pub(crate) memory_budget: u64,
    /// Reconcile everything once, then exit.
    #[arg(long)]
    pub(crate) once: bool,
    /// Flags of the admin server.
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Form of the log lines on standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Whether the agent is only asked, and writes nothing anywhere: never a flag of `run`.
    #[arg(skip)]
    pub(crate) asked: bool,
}

/// Flags of the admin server.
#[derive(Debug, Default, Args)]
pub(crate) struct AdminArgs {
    /// Address that serves /metrics, /healthz, /readyz and /debug/state. Default: none.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
    pub(crate) admin_address: Option<SocketAddr>,
    /// PEM file with the certificate of the admin server; read again when it changes.
    #[arg(long, value_name = "FILE", requires_all = ["admin_address", "admin_tls_key"])]
    pub(crate) admin_tls_cert: Option<PathBuf>,
    /// PEM file with the key of this certificate.
    #[arg(long, value_name = "FILE", requires = "admin_tls_cert")]
    pub(crate) admin_tls_key: Option<PathBuf>,
    /// Also export the kubeconfig copy counters under the names of the hypershift-addon agent.
    #[arg(long)]
    pub(crate) compatibility_metrics: bool,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A folder of manifests under the name of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedDir {
    /// Name of the connection.
    pub(crate) name: String,
    /// The folder.
    pub(crate) dir: PathBuf,
}

/// `NAME=DIR`, or `DIR` for the local connection; a path that exists as it stands is never split.
pub(super) fn parse_dir(text: &str) -> Result<NamedDir, String> {
    let named = |name: &str, dir: &str| NamedDir {
        name: name.to_owned(),
        dir: PathBuf::from(dir),
    };
    match text.split_once('=') {
        Some((name, dir)) if !PathBuf::from(text).is_dir() => {
            if is_connection(name) && !dir.is_empty() {
                Ok(named(name, dir))
            } else {
                Err("expected NAME=DIR, NAME of lower-case letters, digits and dashes".to_owned())
            }
        }
        _ => Ok(named(LOCAL, text)),
    }
}
