//! Flags of `run` and `status`: which objects are worked on, and how.

use super::name::{is_connection, parse_label};
use super::{OutputFormat, ReconcileArgs};
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use transom_core::reference::LOCAL;
use transom_core::share::budget::DEFAULT_MIB;
use transom_core::watches::SecretReads;

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
    /// Seconds between two checks whether the tags of components have moved in their registries, with jitter; 0 for
    /// none. A moved tag is reported, and not followed.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) tag_resync_seconds: u32,
    /// Reconcile everything once, then exit.
    #[arg(long)]
    pub(crate) once: bool,
    /// Flags of the admin server.
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Form of the log lines on standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Set by commands such as `status`, for which the agent writes nothing: never by a flag of `run`.
    #[arg(skip)]
    pub(crate) asked: Option<ReadOnlyTask>,
}

/// What an agent that writes nothing records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOnlyTask {
    /// What each reconcile reads, decides and would write.
    Everything,
    /// The effects of what each reconcile would write.
    Effects,
}

impl RunArgs {
    /// A run that writes nothing, and ends once it has recorded this.
    pub(super) fn asked(
        dir: &[NamedDir],
        server: ServerArgs,
        reconcile: ReconcileArgs,
        asked: ReadOnlyTask,
    ) -> Self {
        Self {
            dir: dir.to_vec(),
            server,
            reconcile,
            memory_budget: DEFAULT_MIB,
            tag_resync_seconds: 0,
            once: true,
            admin: AdminArgs::default(),
            log_format: LogFormat::Text,
            asked: Some(asked),
        }
    }
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

/// Where the policies and their revisions lie.
#[derive(Debug, Args)]
pub(crate) struct WhereArgs {
    /// Folder of manifests instead of an API server.
    #[arg(long, value_name = "[NAME=]DIR", value_parser = parse_dir)]
    pub(crate) dir: Vec<NamedDir>,
    /// Kubeconfig. Default, in order of precedence: KUBECONFIG, ~/.kube/config, the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
    /// Namespace of the revisions: that of the agent.
    #[arg(long, value_name = "NAMESPACE", default_value = "transom")]
    pub(crate) namespace: String,
}

impl WhereArgs {
    /// The flags of a run with the same connections.
    pub(crate) fn as_run(&self) -> RunArgs {
        let context = self.context.iter().map(|context| NamedContext {
            name: LOCAL.to_owned(),
            context: context.clone(),
        });
        let server = ServerArgs {
            reach: ReachArgs {
                kubeconfig: self.kubeconfig.clone(),
                context: context.collect(),
                policy_objects: false,
                secret_reads: SecretReadsArg::Strict,
            },
            read_only: false,
            lease_namespace: None,
        };
        RunArgs::asked(
            &self.dir,
            server,
            ReconcileArgs::default(),
            ReadOnlyTask::Everything,
        )
    }
}

/// Flags of `history`.
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Name of the policy.
    pub(crate) policy: String,
    /// Where it lies.
    #[command(flatten)]
    pub(crate) at: WhereArgs,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// Flags of `rollback`.
#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// Name of the policy.
    pub(crate) policy: String,
    /// The revision to go back to, or the beginning of its digest. Default: the newest one that differs from the active
    /// one by more than the version of the agent.
    #[arg(long, value_name = "REVISION")]
    pub(crate) to: Option<String>,
    /// Where it lies.
    #[command(flatten)]
    pub(crate) at: WhereArgs,
}

/// Flags of `approve`.
#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    /// Name of the policy.
    pub(crate) policy: String,
    /// The digest of the plan or of what is withheld, as `status.candidate.approve` or `status.limits.approve` shows
    /// it.
    pub(crate) digest: String,
    /// Where it lies.
    #[command(flatten)]
    pub(crate) at: WhereArgs,
}

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
        let server = ServerArgs::read_only(self.reach.clone());
        RunArgs::asked(
            &self.dir,
            server,
            self.reconcile.clone(),
            ReadOnlyTask::Everything,
        )
    }
}

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
    /// Leader election: write only while holding the Lease in this namespace of `local`, or of the first context if
    /// none is named `local`.
    #[arg(long, value_name = "NS", conflicts_with = "once", value_parser = parse_label)]
    pub(crate) lease_namespace: Option<String>,
}

impl ServerArgs {
    /// Servers that are only read, without an election.
    pub(super) fn read_only(reach: ReachArgs) -> Self {
        Self {
            reach,
            read_only: true,
            lease_namespace: None,
        }
    }
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
    #[arg(long, value_enum, default_value_t = SecretReadsArg::Watch)]
    pub(crate) secret_reads: SecretReadsArg,
}

/// How Secrets are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SecretReadsArg {
    /// Watch Secrets of type Opaque, or of TLS and pull secrets where a policy reads their keys; needs the permission
    /// to list Secrets.
    Watch,
    /// Get each Secret by its exact name.
    Strict,
}

impl From<SecretReadsArg> for SecretReads {
    fn from(reads: SecretReadsArg) -> Self {
        match reads {
            SecretReadsArg::Watch => Self::Watch,
            SecretReadsArg::Strict => Self::Strict,
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

/// `NAME=CONTEXT`, or `CONTEXT` for the local connection; names of contexts may hold `=`, those of connections may not.
pub(super) fn parse_context(text: &str) -> Result<NamedContext, String> {
    let (name, context) = text.split_once('=').unwrap_or((LOCAL, text));
    if is_connection(name) && !context.is_empty() {
        return Ok(NamedContext {
            name: name.to_owned(),
            context: context.to_owned(),
        });
    }
    Err("expected NAME=CONTEXT, NAME of lower-case letters, digits and dashes".to_owned())
}
