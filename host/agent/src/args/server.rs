//! Flags that say which API servers are worked on, and how. Never connects to one.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use transom_core::reference::LOCAL;
use transom_core::watches::SecretReads;

/// Flags of API servers that are worked on.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Flags shared with `status`.
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// Write nothing to an API server except the Lease, if `--lease-namespace` is set; report the pending writes. With
    /// `--once` they are printed on standard output as by `render --diff`, with credentials redacted.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Leader election: write only while holding the Lease in this namespace of `local`, or of the first context if none is
    /// named `local`.
    #[arg(long, value_name = "NS", conflicts_with = "once", value_parser = super::rbac::parse_label)]
    pub(crate) lease_namespace: Option<String>,
}

/// Flags that say which API servers are meant, and what is read there.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReachArgs {
    /// Kubeconfig. Default, in order of precedence: KUBECONFIG, ~/.kube/config, the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; prefix it with the name of the connection when it is not `local`. May be repeated.
    #[arg(long, value_name = "[NAME=]CONTEXT", value_parser = parse_context)]
    pub(crate) context: Vec<NamedContext>,
    /// Use the `FleetPolicy` objects of the API server of `local` instead of files; `run` also writes their status.
    #[arg(long, conflicts_with = "policies")]
    pub(crate) policy_objects: bool,
    /// How to read Secrets whose names are not known before a primary exists.
    #[arg(long, value_enum, default_value_t = Reads::Watch)]
    pub(crate) secret_reads: Reads,
}

/// How Secrets are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reads {
    /// Watch Secrets of type Opaque; needs the permission to list Secrets.
    Watch,
    /// Get each Secret by its exact name.
    Strict,
}

impl From<Reads> for SecretReads {
    fn from(reads: Reads) -> Self {
        match reads {
            Reads::Watch => Self::Watch,
            Reads::Strict => Self::Strict,
        }
    }
}

/// A context under the name of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedContext {
    /// Name of the connection.
    pub(crate) name: String,
    /// The context.
    pub(crate) context: String,
}

/// `NAME=CONTEXT`, or `CONTEXT` for the local connection; names of contexts may hold `=`, those of connections may not.
pub(super) fn parse_context(text: &str) -> Result<NamedContext, String> {
    let (name, context) = text.split_once('=').unwrap_or((LOCAL, text));
    if super::is_connection(name) && !context.is_empty() {
        return Ok(NamedContext {
            name: name.to_owned(),
            context: context.to_owned(),
        });
    }
    Err("expected NAME=CONTEXT, NAME of lower-case letters, digits and dashes".to_owned())
}
