//! Flags of `status`. Never one that has anything written.

use super::run::{AdminArgs, LogFormat, NamedDir, RunArgs, parse_dir};
use super::server::{ReachArgs, ServerArgs};
use super::{OutputFormat, ReconcileArgs};
use clap::Args;
use transom_core::share::budget::DEFAULT_MIB;

/// Flags of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Kind of the primary, such as HostedCluster. Default: all primaries.
    #[arg(requires = "name")]
    pub(crate) kind: Option<String>,
    /// Its name, prefixed with the namespace if it has one.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub(crate) name: Option<String>,
    /// Folder or file of manifests instead of an API server.
    #[arg(long, value_name = "[NAME=]DIR", value_parser = parse_dir)]
    pub(crate) dir: Vec<NamedDir>,
    /// Flags of API servers.
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// Flags shared with `run`.
    #[command(flatten)]
    pub(crate) reconcile: ReconcileArgs,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

impl StatusArgs {
    /// The run that would do what is asked about.
    pub(crate) fn as_run(&self) -> RunArgs {
        RunArgs {
            dir: self.dir.clone(),
            server: ServerArgs {
                reach: self.reach.clone(),
                read_only: true,
                lease_namespace: None,
            },
            reconcile: self.reconcile.clone(),
            memory_budget: DEFAULT_MIB,
            once: true,
            admin: AdminArgs::default(),
            log_format: LogFormat::Text,
            asked: true,
        }
    }
}
