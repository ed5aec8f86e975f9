//! Flags of the commands about policies that reconcile nothing: `validate`, `explain` and `rbac`.

use super::call::CallArgs;
use super::name::parse_label;
use super::run::{NamedContext, SecretReadsArg, parse_context};
use super::{PlaceArgs, TableFormat};
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use transom_artifacts::Sources;
use transom_core::reference::LOCAL;

/// Flags of `validate`.
#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Folder or file with policies; `-` reads standard input.
    #[arg(default_value = "policies")]
    pub(crate) path: PathBuf,
    /// The same, as other commands name it.
    #[arg(short = 'f', long, value_name = "PATH", conflicts_with = "path")]
    pub(crate) policies: Option<PathBuf>,
    /// As given to `run`: the folder with the component files.
    #[arg(long, value_name = "DIR")]
    pub(crate) components: Option<PathBuf>,
    /// As given to `run`: where components may come from.
    #[arg(long, value_name = "SOURCES", default_value_t = Sources::default())]
    pub(crate) sources: Sources,
    /// As given to `run`.
    #[command(flatten)]
    pub(crate) calls: CallArgs,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    pub(crate) output: TableFormat,
}

/// Flags of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Reasons, states, conditions or causes. Default: a line for each of them.
    #[arg(value_name = "REASON")]
    pub(crate) reasons: Vec<String>,
    /// Also explain the reasons of this component instead of those of the builtin ones: a file, `builtin:<name>`,
    /// `oci:REGISTRY/REPOSITORY:TAG`, or `configmap:NAMESPACE/NAME/KEY`. May be repeated.
    #[arg(long, value_name = "COMPONENT")]
    pub(crate) component: Vec<String>,
    /// Folder or file with policies, `-` for standard input; also explain the reasons of their components.
    #[arg(short = 'f', long, value_name = "PATH")]
    pub(crate) policies: Option<PathBuf>,
    /// Also explain the reasons of the components of the `FleetPolicy` objects of an API server.
    #[arg(long, conflicts_with = "policies")]
    pub(crate) policy_objects: bool,
    /// As given to `run`: where the components of policies may come from. A component that you name with `--component`
    /// may come from anywhere.
    #[arg(long, value_name = "SOURCES", default_value_t = Sources::default())]
    pub(crate) sources: Sources,
    /// How components and policies are reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
}

/// Flags of `rbac`.
#[derive(Debug, Args)]
pub(crate) struct RbacArgs {
    /// Folder or file with policies, also those that will be objects; `-` reads standard input. Default: the two
    /// bundled policies.
    #[arg(short = 'f', long, value_name = "PATH")]
    pub(crate) policies: Option<PathBuf>,
    /// How to read Secrets whose exact names the policies do not give.
    #[arg(long, value_enum, default_value_t = SecretReadsArg::Watch)]
    pub(crate) secret_reads: SecretReadsArg,
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
    /// As given to `run`: where components may come from. A policy that names another cluster object is refused.
    #[arg(long, value_name = "SOURCES", default_value_t = Sources::default())]
    pub(crate) sources: Sources,
    /// As given to `run`: nothing is written.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = RbacFormat::Yaml)]
    pub(crate) output: RbacFormat,
}

/// Form of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RbacFormat {
    /// For `kubectl`.
    Yaml,
    /// For programs.
    Json,
    /// For people.
    Table,
    /// Values of the chart: the policies with their permissions, for a release of helm.
    Values,
}
