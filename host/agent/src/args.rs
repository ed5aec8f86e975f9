//! The command line: flags to values. The only place that reads arguments; never acts on them.

pub(crate) mod guest;
pub(crate) mod rbac;
pub(crate) mod run;
pub(crate) mod server;
pub(crate) mod status;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use guest::{ComponentizeArgs, InspectArgs, TestArgs};
use rbac::RbacArgs;
use run::RunArgs;
use status::StatusArgs;
use std::ffi::OsString;
use std::path::PathBuf;
use transom_core::time::parse_rfc3339;

/// Watches cluster objects, asks sandboxed guests what should follow, and applies the answer.
#[derive(Debug, Parser)]
#[command(
    name = "transom",
    version,
    max_term_width = 120,
    arg_required_else_help = true,
    after_help = "Environment:\n  RUST_LOG  which log lines are shown, such as `debug` or `info,transom::guest=debug` (lines of guests); `info` when\n            absent, and only errors and lines of guests and connections where a command\n            ends by itself"
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Work on an API server, or on a directory of manifests, until stopped, or once.
    #[command(
        after_help = "Examples:\n  transom run --kubeconfig kubeconfig\n  transom run --context hosting --read-only\n  transom run --dir fleet\n  transom run --dir fleet --once --now 2026-11-21T08:00:00Z\n  transom run --dir hosting=fleet --policies policies --log-format json\n\nEnds with 0 when all is right, 1 when some object failed, some policy was refused, or something could not be read, 2 on wrong use. RUST_LOG says which log lines are shown."
    )]
    Run(RunArgs),
    /// Show what would be written, and write nothing.
    #[command(
        after_help = "Examples:\n  transom render fleet -o table\n  transom render given.yaml --policies policies --reveal -o yaml\n  transom render fleet --diff --reveal=names\n  kubectl get hostedclusters,secrets,services,namespaces -A -o yaml | transom render -\n\nEnds with 0, with 1 when some object failed, 2 on wrong use; with --exit-code 3 when something would change."
    )]
    Render(RenderArgs),
    /// Run the cases of policies and guests through the built components.
    #[command(
        after_help = "Examples:\n  transom test\n  transom test policies/built-in-taints\n  transom test guest/kubeconfig -o json\n  transom test . --component target/guests/mine.wasm\n  transom test policies/mine --update\n\nEnds with 0 when every case passes, 1 when one fails, 2 on wrong use."
    )]
    Test(TestArgs),
    /// Check policies, with their components and settings.
    #[command(after_help = "Examples:\n  transom validate\n  transom validate policies/built-in-taints/policy.yaml")]
    Validate(ValidateArgs),
    /// Show what a component is, and which capabilities it would need; which objects it asks for is known when it runs.
    #[command(
        after_help = "Examples:\n  transom inspect builtin:taints\n  transom inspect target/guests/kubeconfig.wasm -o json"
    )]
    Inspect(InspectArgs),
    /// Make a component of a core module that was built with the SDK: what a policy can name.
    #[command(
        after_help = "Examples:\n  cargo build --release --target wasm32-unknown-unknown\n  transom componentize target/wasm32-unknown-unknown/release/mine.wasm -o target/guests/mine.wasm\n\nEnds with 0 when the component is written, 1 when the agent would not load it and none is written, 2 on wrong use."
    )]
    Componentize(ComponentizeArgs),
    /// Ask why a primary is as it is, and what the agent would do; write nothing. A table of all without a name.
    #[command(
        after_help = "Examples:\n  transom status --context hosting --policy-objects\n  transom status --context hosting HostedCluster clusters/demo\n  transom status --dir fleet ManagedCluster demo -o yaml\n\nEnds with 0 when nothing failed, 1 when some primary or policy did, 2 on wrong use."
    )]
    Status(StatusArgs),
    /// Say what a reason means and what to do about it.
    #[command(
        after_help = "Examples:\n  transom explain OwnedByAnother\n  transom explain Held\n  transom explain --component guest.wasm VersionUnclaimed\n  transom explain"
    )]
    Explain(ExplainArgs),
    /// Print the CustomResourceDefinition of the kind FleetPolicy.
    #[command(after_help = "Examples:\n  transom crd | kubectl apply --server-side -f -")]
    Crd,
    /// Print what a shell needs to complete commands and flags.
    #[command(
        after_help = "Examples:\n  source <(transom completion bash)\n  transom completion zsh > ~/.zfunc/_transom\n  transom completion fish > ~/.config/fish/completions/transom.fish"
    )]
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Print the version, as `--version` does.
    Version,
    /// Compile a component from standard input: what the agent has another process do, because it may take too much.
    #[command(hide = true)]
    Compile {
        /// How the agent's engine allocates.
        allocation: String,
    },
    /// Become another program, such as a credential plugin, that ends with the agent.
    #[command(hide = true)]
    Child {
        /// The process of the agent.
        parent: i32,
        /// The program and its words.
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    /// Print the least RBAC that the agent needs for its policies, with the reason for each rule.
    #[command(
        after_help = "Examples:\n  transom rbac --policies my-policies --name transom-my-policies | kubectl apply --server-side -f -\n  transom rbac --policies policies --secret-reads strict --namespace my-transom\n  transom rbac -o table\n\nEnds with 0 when printed, 1 when a policy is refused and nothing is printed, 2 on wrong use."
    )]
    Rbac(RbacArgs),
}

/// Flags of everything that reconciles policies.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReconcileArgs {
    /// Folder or file with policies; the two that ship with the binary when absent.
    #[arg(long, value_name = "PATH")]
    pub(crate) policies: Option<PathBuf>,
    /// Folder below which the components lie that policies name as files. When absent, they lie beside the policy's own
    /// file, below the folder of policies, and `FleetPolicy` objects name builtin components only.
    #[arg(long, value_name = "DIR")]
    pub(crate) components: Option<PathBuf>,
    /// The time to use instead of the clock's.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) now: Option<i64>,
    /// Name of the cluster that the agent works for.
    #[arg(long, value_name = "NAME", default_value = "local-cluster")]
    pub(crate) cluster_name: String,
    /// Bytes of the largest kubeconfig that is read or written.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) max_kubeconfig_bytes: usize,
    /// Bytes of the largest object, as compact JSON.
    #[arg(long, value_name = "BYTES", default_value_t = 3 << 19)]
    pub(crate) max_object_bytes: usize,
    /// Name of the hub's own cluster; when it is another one, guests may use discovery names.
    #[arg(long, value_name = "NAME")]
    pub(crate) self_managed_cluster: Option<String>,
}

/// Flags of `render`.
#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    /// Folder of manifests, or files with all objects; `-` is standard input.
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
    /// Flags shared with `run`.
    #[command(flatten)]
    pub(crate) reconcile: ReconcileArgs,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Yaml)]
    pub(crate) output: OutputFormat,
    /// Show credentials instead of what kind and size they are; `--reveal=names` shows names of contexts, clusters and
    /// users, and no credential.
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) reveal: Option<Reveal>,
    /// Show the difference from what is there.
    #[arg(long)]
    pub(crate) diff: bool,
    /// End with 3 when something would change.
    #[arg(long)]
    pub(crate) exit_code: bool,
}

/// Flags of `validate`.
#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// Folder or file with policies.
    #[arg(default_value = "policies")]
    pub(crate) path: PathBuf,
    /// As given to `run`: the folder below which components lie.
    #[arg(long, value_name = "DIR")]
    pub(crate) components: Option<PathBuf>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    pub(crate) output: TableFormat,
}

/// Flags of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The reason, or a state, condition or cause; all of them when absent.
    pub(crate) reason: Option<String>,
    /// A component of which the reasons are known, too, in place of the builtin ones: a file, or `builtin:<name>`.
    #[arg(long, value_name = "COMPONENT")]
    pub(crate) component: Option<String>,
    /// Folder or file with policies, of whose components the reasons are known.
    #[arg(long, value_name = "PATH")]
    pub(crate) policies: Option<PathBuf>,
}

/// Form of rendered objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For files and `kubectl`.
    Yaml,
    /// For programs.
    Json,
    /// For people.
    Table,
}

/// What is shown that is hidden otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reveal {
    /// Everything, credentials too.
    All,
    /// Names of contexts, clusters and users in kubeconfigs.
    Names,
}

/// Form of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Whether a connection may have this name.
fn is_connection(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// A time as Kubernetes writes it.
fn parse_time(text: &str) -> Result<i64, String> {
    parse_rfc3339(text).ok_or_else(|| "want a time like 2026-11-21T08:00:00Z".to_owned())
}
