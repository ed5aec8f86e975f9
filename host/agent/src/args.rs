//! The command line: flags to values. The only place that reads arguments; never acts on them.

mod author;
mod call;
mod component;
mod form;
mod name;
pub(crate) mod plan;
mod policies;
mod reconcile;
pub(crate) mod run;

pub(crate) use author::{
    BenchArgs, BuildArgs, ComponentizeArgs, InspectArgs, NewArgs, NewGuest, PolicyCommand,
    PolicyInitArgs, TestArgs,
};
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use component::component_file;
pub(crate) use component::{
    ClusterArgs, DigestArgs, FetchArgs, PlaceArgs, PullArgs, PushArgs, RegistryArgs, VerifyArgs,
};
pub(crate) use form::{OutputFormat, Reveal, TableFormat};
use plan::PlanArgs;
pub(crate) use policies::{ExplainArgs, RbacArgs, RbacFormat, ValidateArgs};
pub(crate) use reconcile::{ReconcileArgs, RenderArgs};
pub(crate) use run::SecretReadsArg;
use run::{ApproveArgs, HistoryArgs, RollbackArgs, RunArgs, StatusArgs};
use std::ffi::OsString;

/// Watches cluster objects, asks sandboxed guests for the desired state, and applies their answers.
#[derive(Debug, Parser)]
#[command(
    name = "transom",
    version,
    max_term_width = 120,
    arg_required_else_help = true,
    after_help = "Environment:\n  RUST_LOG  filter of the log lines, such as `debug` or `info,transom::guest=debug` (lines of guests). Default: `info`;\n            commands that end by themselves show only errors, and `run --once`, `render`,\n            `test` and `bench` the lines of guests and connections"
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
        after_help = "Examples:\n  transom run --kubeconfig kubeconfig\n  transom run --context hosting --read-only\n  transom run --dir fleet\n  transom run --dir fleet --once --now 2026-11-21T08:00:00Z\n  transom run --dir fleet --dir hosting=hosting-fleet --policies policies --log-format json\n\nOne connection has the name `local`: `--dir fleet` and `--context hub` are short for `--dir local=fleet` and `--context local=hub`. Policies in files may name the others.\n\nExit code: 0 on success, also when a policy or an object waits, such as for an approval; 1 when an object failed, a policy was refused, or something could not be read; 2 on a usage error. RUST_LOG filters the log lines."
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
    /// Measure the calls of a guest's cases: their time, and what they use of each budget.
    #[command(
        after_help = "Examples:\n  transom bench target/guests/mine.wasm\n  transom bench target/guests/mine.wasm --cases cases\n  transom bench builtin:taints --cases guest/taints/cases -o json\n\nExit code: 0 when every case passes; 1 when a case fails; 2 on a usage error."
    )]
    Bench(BenchArgs),
    /// Check policies, with their components and settings.
    #[command(
        after_help = "Examples:\n  transom validate\n  transom validate policies/built-in-taints/policy.yaml\n  kubectl get fpol built-in-taints -o yaml | transom validate -f -\n\nExit code: 0 when every policy is valid; 1 when one is refused; 2 when none is found, and on a usage error."
    )]
    Validate(ValidateArgs),
    /// Show the world, description and required capabilities of a component. The objects that it reads are known only
    /// at run time.
    #[command(
        after_help = "Examples:\n  transom inspect builtin:taints\n  transom inspect target/guests/kubeconfig.wasm -o json\n\nExit code: 0 when the component is shown; 1 when its description or its cases cannot be used; 2 when it cannot be read or is none, and on a usage error."
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
    /// Show the state of a primary, why, and what the agent would do next; write nothing. Without a name: a table of
    /// all primaries.
    #[command(
        after_help = "Examples:\n  transom status --context hosting --policy-objects\n  transom status --context hosting HostedCluster clusters/demo\n  transom status --dir fleet ManagedCluster demo -o yaml\n\nExit code: 0 when nothing failed; 1 when a primary or a policy failed, or something could not be read; 2 on a usage error."
    )]
    Status(StatusArgs),
    /// List the kept revisions of a policy, the latest first.
    #[command(
        after_help = "Examples:\n  transom history built-in-taints\n  transom history built-in-taints --dir fleet -o yaml\n\nExit code: 0 when revisions are printed; 1 when there are none, or they cannot be read; 2 on a usage error."
    )]
    History(HistoryArgs),
    /// Put an earlier revision of a policy back to work: its settings and grant, and the digests of its components.
    #[command(
        after_help = "Examples:\n  transom rollback built-in-taints\n  transom rollback built-in-taints --to 7d2d1ffd62\n\nExit code: 0 when the policy is changed; 1 when not; 2 on a usage error."
    )]
    Rollback(RollbackArgs),
    /// Approve the plan of the candidate of a policy, or what its limits withhold. Needs the right to `update`
    /// `fleetpolicies/approval`.
    #[command(
        after_help = "Examples:\n  kubectl get fpol built-in-taints -o jsonpath={.status.candidate}\n  transom approve built-in-taints sha256:1ea7…\n\nExit code: 0 when it is approved; 1 when not; 2 on a usage error."
    )]
    Approve(ApproveArgs),
    /// Show what a changed policy would change on the whole fleet, with read access only; write nothing.
    #[command(
        after_help = "Examples:\n  transom plan built-in-taints --context hub --component target/guests/mine.wasm\n  transom plan new-policy.yaml --context hub\n  transom plan external-managed-kubeconfig --dir fleet --settings settings.yaml -o html > plan.html\n\nExit code: 0 when nothing failed; 1 when a primary failed, the policy was refused, or something could not be read that it depends on; 2 on a usage error; 3 with --exit-code when something would change."
    )]
    Plan(PlanArgs),
    /// Explain what a reason means and what to do about it.
    #[command(
        after_help = "Examples:\n  transom explain OwnedByAnother\n  transom explain Held\n  transom explain --component guest.wasm VersionUnclaimed\n  transom explain --policy-objects --context hub --sources configmap:transom/* VersionUnclaimed\n  transom explain\n\nExit code: 0 when it is explained; 2 when the reason is not known, a guest cannot be loaded, and on a usage error."
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
        after_help = "Examples:\n  transom digest target/guests/mine.wasm\n  transom digest oci:registry.example/team/mine:v1\n\nExit code: 0 when the digest is printed; 1 when the component cannot be read; 2 on a usage error."
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
    /// Compile a component from standard input. The agent runs this in a child process, because a compilation may take
    /// too much time or memory.
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
        after_help = "Examples:\n  transom rbac --policies my-policies --name transom-my-policies | kubectl apply --server-side -f -\n  transom rbac --policies policies --secret-reads strict --namespace my-transom\n  transom rbac -o table\n  transom rbac --policies my-policies -o values > own.yaml; helm upgrade transom host/deploy/chart -f own.yaml\n\nExit code: 0 when the roles are printed; 1 when a policy is refused, so nothing is printed; 2 on a usage error."
    )]
    Rbac(RbacArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use transom_core::reference::LOCAL;

    /// Every example in the help of a command and of those below it.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let parts = help
            .lines()
            .flat_map(|line| line.split(['|', ';', '>', '(', ')']));
        let own = parts
            .map(str::trim)
            .filter(|part| part.starts_with("transom "));
        let below = command.get_subcommands().flat_map(examples);
        own.map(str::to_owned).chain(below).collect()
    }

    #[test]
    fn every_example_of_a_help_text_is_a_command_line() {
        let all = examples(&Cli::command());
        assert!(all.len() > 50, "{all:?}");
        for example in all {
            let cli = Cli::try_parse_from(example.split_whitespace());
            let cli = cli.unwrap_or_else(|error| panic!("{example}: {error}"));
            // The bundled policies need it, and so do those that name no connection.
            if let Command::Run(run) = &cli.command {
                let mut dirs = run.dir.iter();
                let has_local = dirs.any(|dir| dir.name == LOCAL) || run.dir.is_empty();
                assert!(has_local, "{example}");
            }
        }
    }
}
