//! Flags of `rbac`. Never reads a policy.

use super::OutputFormat;
use super::server::{NamedContext, Reads, parse_context};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use transom_core::reference::LOCAL;
use transom_core::reference::dns::is_label;

/// Flags of `rbac`.
#[derive(Debug, Args)]
pub(crate) struct RbacArgs {
    /// Folder or file with policies, also those that will be objects. Default: the two bundled policies.
    #[arg(long, value_name = "PATH")]
    pub(crate) policies: Option<PathBuf>,
    /// How to read Secrets whose exact names the policies do not give.
    #[arg(long, value_enum, default_value_t = Reads::Watch)]
    pub(crate) secret_reads: Reads,
    /// Namespace that the agent runs in.
    #[arg(long, value_name = "NS", default_value = "transom", value_parser = parse_label)]
    pub(crate) namespace: String,
    /// Name of the roles and bindings. Default: `<service account>-policies`, so that those of the chart are not
    /// overwritten.
    #[arg(long, value_name = "NAME", value_parser = parse_label)]
    pub(crate) name: Option<String>,
    /// The agent's service account.
    #[arg(long, value_name = "NAME", default_value = "transom", value_parser = parse_label)]
    pub(crate) service_account: String,
    /// The connection to whose cluster the permissions apply.
    #[arg(long, value_name = "NAME", default_value = LOCAL)]
    pub(crate) connection: String,
    /// As given to `run`: the agent keeps its own objects on the one named `local`, else on the first.
    #[arg(long, value_name = "[NAME=]CONTEXT", value_parser = parse_context)]
    pub(crate) context: Vec<NamedContext>,
    /// As given to `run`: the policies are objects, and their status is written.
    #[arg(long)]
    pub(crate) policy_objects: bool,
    /// As given to `run`: the namespace of the Lease.
    #[arg(long, value_name = "NS", value_parser = parse_label)]
    pub(crate) lease_namespace: Option<String>,
    /// As given to `run`: requests from other machines need a bearer token, which the API server authenticates.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) admin_address: Option<SocketAddr>,
    /// As given to `run`: nothing is written.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Yaml)]
    pub(crate) output: OutputFormat,
}

/// A name that a namespace may have.
pub(super) fn parse_label(text: &str) -> Result<String, String> {
    let fits = is_label(text).then(|| text.to_owned());
    fits.ok_or_else(|| "expected a DNS label: lower-case letters, digits and dashes".to_owned())
}
