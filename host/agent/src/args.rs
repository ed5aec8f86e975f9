//! The command line: flags to values. The only place that reads arguments; never acts on them.

mod call;
pub(crate) mod component;
pub(crate) mod plan;
pub(crate) mod run;

use call::CallArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
pub(crate) use component::{
    BuildArgs, ClusterArgs, DigestArgs, FetchArgs, InspectArgs, NewArgs, NewGuest, PlaceArgs,
    PolicyCommand, PullArgs, PushArgs, RegistryArgs, VerifyArgs,
};
use plan::PlanArgs;
use run::{
    ApproveArgs, HistoryArgs, NamedContext, Reads, RollbackArgs, RunArgs, StatusArgs, parse_context,
};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use transom_artifacts::Sources;
use transom_core::reference::LOCAL;
use transom_core::reference::dns::is_label;
use transom_core::time::parse_rfc3339;

/// Watches cluster objects, asks sandboxed guests for the desired state, and applies their answers.
#[derive(Debug, Parser)]
#[command(
    name = "transom",
    version,
    max_term_width = 120,
    arg_required_else_help = true,
    after_help = "Environment:\n  RUST_LOG  filter of the log lines, such as `debug` or `info,transom::guest=debug` (lines of guests). Default: `info`;\n            commands that end by themselves show only errors and the lines of guests and\n            connections"
)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the binary can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Reconcile an API server or a directory of manifests, until stopped or once.
    #[command(
        after_help = "Examples:\n  transom run --kubeconfig kubeconfig\n  transom run --context hosting --read-only\n  transom run --dir fleet\n  transom run --dir fleet --once --now 2026-11-21T08:00:00Z\n  transom run --dir hosting=fleet --policies policies --log-format json\n\nExit code: 0 on success; 1 when an object failed, a policy was refused, or something could not be read; 2 on a usage error. RUST_LOG filters the log lines."
    )]
    Run(RunArgs),
    /// Show the pending writes; write nothing.
    #[command(
        after_help = "Examples:\n  transom render fleet -o table\n  transom render given.yaml --policies policies --reveal -o yaml\n  transom render fleet --diff --reveal=names\n  kubectl get hostedclusters,secrets,services,namespaces -A -o yaml | transom render -\n\nExit code: 0 on success; 1 when an object failed; 2 on a usage error; 3 with --exit-code when something would change."
    )]
    Render(RenderArgs),
    /// Run the cases of policies and guests through the built components.
    #[command(
        after_help = "Examples:\n  transom test\n  transom test policies/built-in-taints\n  transom test guest/kubeconfig -o json\n  transom test target/guests/mine.wasm\n  transom test . --component target/guests/mine.wasm\n  transom test policies/mine --update\n\nExit code: 0 when every case passes; 1 when a case fails; 2 on a usage error."
    )]
    Test(TestArgs),
    /// Check policies, with their components and settings.
    #[command(
        after_help = "Examples:\n  transom validate\n  transom validate policies/built-in-taints/policy.yaml\n  kubectl get fpol built-in-taints -o yaml | transom validate -f -"
    )]
    Validate(ValidateArgs),
    /// Show the world, description and required capabilities of a component. The objects that it reads are known only at
    /// run time.
    #[command(
        after_help = "Examples:\n  transom inspect builtin:taints\n  transom inspect target/guests/kubeconfig.wasm -o json"
    )]
    Inspect(InspectArgs),
    /// Make the crate of a new guest, with cases and a policy.
    #[command(
        after_help = "Examples:\n  transom new taints maintenance\n  transom new trigger on-hold --sdk ../transom/guest/sdk\n\nExit code: 0 when the crate is made; 2 when not, and on a usage error."
    )]
    New(NewArgs),
    /// Write the manifest of a policy.
    Policy {
        /// What is written.
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Compile the crate of a guest with cargo, and make its component.
    #[command(
        after_help = "Examples:\n  transom build\n  transom build my-guest -o my-guest.wasm\n\nRuns `cargo build --release --target wasm32-unknown-unknown` in the folder, with its build scripts. Puts the cases of the folder `cases` into the component: a policy takes the component only when they pass.\n\nExit code: 0 when the component is written; 1 when the agent would not load it, so nothing is written; 2 when it cannot be built."
    )]
    Build(BuildArgs),
    /// Turn a core module that was built with the SDK into a component that a policy can name.
    #[command(
        after_help = "Examples:\n  cargo build --release --target wasm32-unknown-unknown\n  transom componentize target/wasm32-unknown-unknown/release/mine.wasm -o target/guests/mine.wasm\n\nExit code: 0 when the component is written; 1 when the agent would not load it, so nothing is written; 2 on a usage error."
    )]
    Componentize(ComponentizeArgs),
    /// Show the state of a primary, why, and what the agent would do next; write nothing. Without a name: a table of all
    /// primaries.
    #[command(
        after_help = "Examples:\n  transom status --context hosting --policy-objects\n  transom status --context hosting HostedCluster clusters/demo\n  transom status --dir fleet ManagedCluster demo -o yaml\n\nExit code: 0 when nothing failed; 1 when a primary or a policy failed; 2 on a usage error."
    )]
    Status(StatusArgs),
    /// List the kept revisions of a policy, the latest first.
    #[command(
        after_help = "Examples:\n  transom history built-in-taints\n  transom history built-in-taints --dir fleet -o yaml"
    )]
    History(HistoryArgs),
    /// Put an earlier revision of a policy back to work: its settings and grant, and the digests of its components.
    #[command(
        after_help = "Examples:\n  transom rollback built-in-taints\n  transom rollback built-in-taints --to 7d2d1ffd62\n\nExit code: 0 when the policy is changed; 1 when not; 2 on a usage error."
    )]
    Rollback(RollbackArgs),
    /// Approve the plan of the candidate of a policy. Needs the right to `update` `fleetpolicies/approval`.
    #[command(
        after_help = "Examples:\n  kubectl get fpol built-in-taints -o jsonpath={.status.candidate}\n  transom approve built-in-taints sha256:1ea7…\n\nExit code: 0 when the plan is approved; 1 when not; 2 on a usage error."
    )]
    Approve(ApproveArgs),
    /// Show what a changed policy would change on the whole fleet, with read access only; write nothing.
    #[command(
        after_help = "Examples:\n  transom plan built-in-taints --context hub --component target/guests/mine.wasm\n  transom plan new-policy.yaml --context hub\n  transom plan external-managed-kubeconfig --dir fleet --settings settings.yaml -o html > plan.html\n\nExit code: 0 when nothing failed; 1 when a primary failed, the policy was refused, or something could not be read; 2 on a usage error; 3 with --exit-code when something would change."
    )]
    Plan(PlanArgs),
    /// Explain what a reason means and what to do about it.
    #[command(
        after_help = "Examples:\n  transom explain OwnedByAnother\n  transom explain Held\n  transom explain --component guest.wasm VersionUnclaimed\n  transom explain --policy-objects --context hub VersionUnclaimed\n  transom explain"
    )]
    Explain(ExplainArgs),
    /// Push a component to a registry, as an artifact of one layer.
    #[command(
        after_help = "Examples:\n  transom push target/guests/mine.wasm oci:registry.example/team/mine:v1\n\nPrints the digests of the component and of the manifest; the same component always has the same digests. Exit code: 0 when it was pushed; 1 when not; 2 on a usage error."
    )]
    Push(PushArgs),
    /// Pull a component from a registry into a file.
    #[command(
        after_help = "Examples:\n  transom pull oci:registry.example/team/mine:v1 -o mine.wasm\n\nPrints the digests of the component and of the manifest. Exit code: 0 when it was pulled; 1 when not; 2 on a usage error."
    )]
    Pull(PullArgs),
    /// Print the digest of a component, for `digest` of a policy.
    #[command(
        after_help = "Examples:\n  transom digest target/guests/mine.wasm\n  transom digest oci:registry.example/team/mine:v1"
    )]
    Digest(DigestArgs),
    /// Tell whether a component is signed by given keys, as policies demand it with `verify`.
    #[command(
        after_help = "Examples:\n  transom verify target/guests/mine.wasm --key release.pub\n  transom verify oci:registry.example/team/mine:v1 --key release.pub --key security.pub --all\n\nA file has its signature beside it, with `.sig` after its name; so has the key of a ConfigMap. In a registry, signatures of cosign are found. Exit code: 0 when it is signed; 1 when not; 2 on a usage error."
    )]
    Verify(VerifyArgs),
    /// Pull a component and write it to standard output. The agent runs this in a child process, because a registry may
    /// answer without end.
    #[command(hide = true)]
    Fetch(FetchArgs),
    /// Print the CustomResourceDefinition of the kind FleetPolicy.
    #[command(after_help = "Examples:\n  transom crd | kubectl apply --server-side -f -")]
    Crd,
    /// Print the shell script that completes commands and flags.
    #[command(
        after_help = "Examples:\n  source <(transom completion bash)\n  transom completion zsh > ~/.zfunc/_transom\n  transom completion fish > ~/.config/fish/completions/transom.fish"
    )]
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Print the version, as `--version` does.
    Version,
    /// Compile a component from standard input. The agent runs this in a child process, because a compilation may take too
    /// much time or memory.
    #[command(hide = true)]
    Compile {
        /// How the agent's engine allocates.
        allocation: String,
    },
    /// Run another program, such as a credential plugin, that ends when the agent ends.
    #[command(hide = true)]
    Child {
        /// The process id of the agent.
        parent: i32,
        /// The program and its arguments.
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    /// Print the least-privilege RBAC of the agent for its policies, with the reason for each rule.
    #[command(
        after_help = "Examples:\n  transom rbac --policies my-policies --name transom-my-policies | kubectl apply --server-side -f -\n  transom rbac --policies policies --secret-reads strict --namespace my-transom\n  transom rbac -o table\n\nExit code: 0 when the roles are printed; 1 when a policy is refused, so nothing is printed; 2 on a usage error."
    )]
    Rbac(RbacArgs),
}

/// Flags of everything that reconciles policies.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReconcileArgs {
    /// Folder or file with policies; `-` reads standard input once. Default: the two bundled policies.
    #[arg(short = 'f', long, value_name = "PATH")]
    pub(crate) policies: Option<PathBuf>,
    /// Folder with the component files that policies name. Default: a policy file names components next to itself, below
    /// the folder of policies; `FleetPolicy` objects name builtin components only.
    #[arg(long, value_name = "DIR")]
    pub(crate) components: Option<PathBuf>,
    /// Where components may come from, whatever policies name: `builtin`, `file`, ConfigMaps of the cluster `local` as
    /// `configmap:NAMESPACE/NAME`, and repositories as `oci:REGISTRY/REPOSITORY`, where `*` matches any text; separated by
    /// commas.
    #[arg(long, value_name = "SOURCES", default_value_t = Sources::default())]
    pub(crate) sources: Sources,
    /// Flags of the calls of guests.
    #[command(flatten)]
    pub(crate) calls: CallArgs,
    /// Flags of registries.
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    /// Fixed time to use instead of the system clock.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) now: Option<i64>,
    /// Name of the cluster that the agent works for.
    #[arg(long, value_name = "NAME", default_value = "local-cluster")]
    pub(crate) cluster_name: String,
    /// Size limit of a kubeconfig that is read or written, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) max_kubeconfig_bytes: usize,
    /// Size limit of an object, in bytes of compact JSON.
    #[arg(long, value_name = "BYTES", default_value_t = 3 << 19)]
    pub(crate) max_object_bytes: usize,
    /// Name of the hub's own cluster. When it is another cluster, guests may use discovery names.
    #[arg(long, value_name = "NAME")]
    pub(crate) self_managed_cluster: Option<String>,
}

impl Default for ReconcileArgs {
    /// Those of a command line that names none.
    fn default() -> Self {
        #[derive(Parser)]
        struct None {
            #[command(flatten)]
            flags: ReconcileArgs,
        }
        None::parse_from(["transom"]).flags
    }
}

/// Flags of `render`.
#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    /// Folder of manifests, or files with all objects; `-` reads standard input.
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
    /// Flags shared with `run`.
    #[command(flatten)]
    pub(crate) reconcile: ReconcileArgs,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Yaml)]
    pub(crate) output: OutputFormat,
    /// Show credentials instead of their kind and size; `--reveal=names` shows only the names of contexts, clusters and
    /// users, no credentials.
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) reveal: Option<Reveal>,
    /// Show the difference from the existing objects.
    #[arg(long)]
    pub(crate) diff: bool,
    /// Exit with code 3 when something would change.
    #[arg(long)]
    pub(crate) exit_code: bool,
}

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
    /// A reason, state, condition or cause. Default: all of them.
    pub(crate) reason: Option<String>,
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
    /// How components and policies are reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
}

/// Flags of `test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Where to search for folders named `cases`; or a component, a file or `builtin:<name>`, whose own cases are run, which
    /// travel with it.
    #[arg(default_value = "policies")]
    pub(crate) path: PathBuf,
    /// The component of the one guest whose cases are run: a file, or `builtin:<name>`. Default:
    /// `guests/<package>.wasm` or `guests/<folder>.wasm` in the target folders that cargo would use.
    #[arg(long, value_name = "COMPONENT")]
    pub(crate) component: Option<String>,
    /// Write the actual result into `expected.yaml` of each failing case, print the differences, and keep the comments of
    /// unchanged parts. A case without an `expected.yaml` gets one.
    #[arg(long)]
    pub(crate) update: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    pub(crate) output: TableFormat,
}

/// Flags of `componentize`.
#[derive(Debug, Args)]
pub(crate) struct ComponentizeArgs {
    /// The core module that cargo built for `wasm32-unknown-unknown`.
    pub(crate) module: PathBuf,
    /// Where to write the component. Missing folders are created; an existing file is replaced atomically.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// Flags of `rbac`.
#[derive(Debug, Args)]
pub(crate) struct RbacArgs {
    /// Folder or file with policies, also those that will be objects; `-` reads standard input. Default: the two bundled
    /// policies.
    #[arg(short = 'f', long, value_name = "PATH")]
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
    /// As given to `run`: where components may come from. A policy that names another cluster object is refused.
    #[arg(long, value_name = "SOURCES", default_value_t = Sources::default())]
    pub(crate) sources: Sources,
    /// As given to `run`: nothing is written.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Yaml)]
    pub(crate) output: OutputFormat,
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

/// Which redacted values to show.
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
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// A time as Kubernetes writes it.
fn parse_time(text: &str) -> Result<i64, String> {
    parse_rfc3339(text).ok_or_else(|| "expected a time like 2026-11-21T08:00:00Z".to_owned())
}

/// A name that a namespace may have.
fn parse_label(text: &str) -> Result<String, String> {
    let fits = is_label(text).then(|| text.to_owned());
    fits.ok_or_else(|| "expected a DNS label: lower-case letters, digits and dashes".to_owned())
}
