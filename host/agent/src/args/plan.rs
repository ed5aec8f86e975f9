//! Flags of `plan`: which policy is planned, what is different about it, and on which fleet.

use super::ReconcileArgs;
use super::run::{NamedDir, ReachArgs, ReadOnlyTask, RunArgs, ServerArgs, parse_dir};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use transom_core::reference::LOCAL;

/// Flags of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// What is planned.
    #[command(flatten)]
    pub(crate) candidate: PlannedPolicy,
    /// Folder or file of manifests instead of an API server.
    #[arg(long, value_name = "[NAME=]DIR", value_parser = parse_dir)]
    pub(crate) dir: Vec<NamedDir>,
    /// Flags of API servers.
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
    /// Flags shared with `run`.
    #[command(flatten)]
    pub(crate) reconcile: ReconcileArgs,
    /// Form of the output; `html` is one page for a browser, without scripts and without anything from elsewhere.
    #[arg(short, long, value_enum, default_value_t = PlanFormat::Table)]
    pub(crate) output: PlanFormat,
    /// How many primaries of each group are named.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) limit: usize,
    /// Exit with code 3 when something would change.
    #[arg(long)]
    pub(crate) exit_code: bool,
}

/// What is planned: a policy, and what is different about it.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlannedPolicy {
    /// Name of a policy: a `FleetPolicy` object of the API server `local`, or one among `--policies`. Or a file with
    /// the manifest of one policy, which takes the place of the one with its name; `-` reads standard input.
    #[arg(value_name = "POLICY|FILE")]
    pub(crate) policy: String,
    /// Component that decides, instead of the one of the policy and without its digest: a path, or as in a policy.
    #[arg(long, value_name = "COMPONENT")]
    pub(crate) component: Option<String>,
    /// Component of the trigger guest, in the same way.
    #[arg(long, value_name = "COMPONENT")]
    pub(crate) trigger_component: Option<String>,
    /// File with the settings of the guest that decides, as YAML, instead of those of the policy; `-` reads standard
    /// input.
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
}

/// Form of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For files and people.
    Yaml,
    /// For a browser.
    Html,
}

impl PlanArgs {
    /// The run that would do what is planned. Policies are objects where the fleet is an API server, unless they are
    /// named.
    pub(crate) fn as_run(&self) -> RunArgs {
        let mut reach = self.reach.clone();
        reach.policy_objects |= self.is_served() && self.reconcile.policies.is_none();
        let server = ServerArgs::read_only(reach);
        RunArgs::asked(
            &self.dir,
            server,
            self.reconcile.clone(),
            ReadOnlyTask::Effects,
        )
    }

    /// Whether the connection `local` is an API server.
    fn is_served(&self) -> bool {
        let ReachArgs {
            context,
            kubeconfig,
            ..
        } = &self.reach;
        let by_default = self.dir.is_empty() || kubeconfig.is_some();
        let named = context.iter().any(|context| context.name == LOCAL);
        !self.dir.iter().any(|dir| dir.name == LOCAL) && (named || context.is_empty() && by_default)
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    #[test]
    fn policies_are_objects_where_the_local_connection_is_a_server() {
        for (words, objects) in [
            ("p", true),
            ("p --context hub", true),
            ("p --context local=hub --dir other=fleet", true),
            ("p --kubeconfig k --dir other=fleet", true),
            ("p --context hub=hub", false),
            ("p --dir fleet", false),
            ("p --dir other=fleet", false),
            ("p --context hub --policies folder", false),
        ] {
            let words = ["transom", "plan"].into_iter().chain(words.split(' '));
            let Command::Plan(args) = Cli::parse_from(words.clone()).command else {
                panic!("another command")
            };
            let run = args.as_run();
            let policy_objects = run.server.reach.policy_objects;
            assert_eq!(policy_objects, objects, "{:?}", words.collect::<Vec<_>>());
        }
    }
}
