//! Flags of `status`. Never one that has anything written.

use super::server::{NamedContext, Reads, ServerArgs, parse_context};
use super::{AdminArgs, EvaluateArgs, LogFormat, NamedDir, OutputFormat, RunArgs, parse_dir};
use clap::Args;
use std::path::PathBuf;
use transom_core::share::budget::DEFAULT_MIB;

/// Flags of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Kind of the subject, such as HostedCluster; all subjects when absent.
    #[arg(requires = "name")]
    pub(crate) kind: Option<String>,
    /// Its name, with the namespace in front where it has one.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub(crate) name: Option<String>,
    /// Folder or file of manifests in place of an API server.
    #[arg(long, value_name = "[NAME=]DIR", value_parser = parse_dir)]
    pub(crate) dir: Vec<NamedDir>,
    /// Kubeconfig; when absent KUBECONFIG, ~/.kube/config or the pod's identity, the first that there is.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, with the name of the connection in front when it is not `local`; may be repeated.
    #[arg(long, value_name = "[NAME=]CONTEXT", value_parser = parse_context)]
    pub(crate) context: Vec<NamedContext>,
    /// Ask by the `Policy` objects of the API server of `local`, as the agent there does.
    #[arg(long, conflicts_with = "policies")]
    pub(crate) policy_objects: bool,
    /// How Secrets are read whose names are not known before there is a subject.
    #[arg(long, value_enum, default_value_t = Reads::Watch)]
    pub(crate) secret_reads: Reads,
    /// Flags shared with `run`.
    #[command(flatten)]
    pub(crate) evaluate: EvaluateArgs,
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
                kubeconfig: self.kubeconfig.clone(),
                context: self.context.clone(),
                policy_objects: self.policy_objects,
                read_only: true,
                lease_namespace: None,
                secret_reads: self.secret_reads,
            },
            evaluate: self.evaluate.clone(),
            memory_budget: DEFAULT_MIB,
            once: true,
            admin: AdminArgs::default(),
            log_format: LogFormat::Text,
            asked: true,
        }
    }
}
