//! Flags of the commands for the authors of guests, from a new crate to a policy.

use super::{OutputFormat, PlaceArgs, TableFormat, component_file};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use transom_core::reference::dns::is_label;

/// Flags of `new`.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// What the guest decides: the taints of a ManagedCluster, a kubeconfig, any objects, or when to reconcile.
    #[arg(value_enum)]
    pub(crate) guest: NewGuest,
    /// Name of the guest, of its crate, of its policy and of the new folder.
    #[arg(value_parser = parse_crate)]
    pub(crate) name: String,
    /// Folder of the SDK: `guest/sdk` in a clone of the repository of Transom.
    #[arg(long, value_name = "DIR", default_value = "transom/guest/sdk")]
    pub(crate) sdk: PathBuf,
}

/// What a new guest decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NewGuest {
    /// Which taints a ManagedCluster has.
    Taints,
    /// Where a kubeconfig is written, and its content.
    Kubeconfig,
    /// When a primary is reconciled.
    Trigger,
    /// Which objects are made for a primary.
    Objects,
}

/// What `policy` writes.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print a policy for a component, which grants what the component asks for and nothing else. Read it before you
    /// apply it.
    #[command(
        after_help = "Examples:\n  transom policy init target/guests/mine.wasm > policy.yaml\n  transom policy init builtin:taints --name tainted | transom validate -f -\n\nExit code: 0 when the policy is printed; 2 when the component cannot be read or does not say what it needs, and on a usage error."
    )]
    Init(PolicyInitArgs),
}

/// Flags of `policy init`.
#[derive(Debug, Args)]
pub(crate) struct PolicyInitArgs {
    /// A file, `builtin:<name>`, `oci:REGISTRY/REPOSITORY:TAG`, or `configmap:NAMESPACE/NAME/KEY`.
    pub(crate) component: String,
    /// Name of the policy. Default: the name of the guest.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How the component is reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
}

/// Flags of `build`.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The folder of the crate.
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Where to write the component; an existing file is replaced atomically. Default: `guests/<package>.wasm` in
    /// cargo's target folder, where `transom test` looks for it.
    #[arg(short, long, value_name = "FILE", value_parser = component_file)]
    pub(crate) output: Option<PathBuf>,
}

/// Flags of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A file, `builtin:<name>`, `oci:REGISTRY/REPOSITORY:TAG`, or `configmap:NAMESPACE/NAME/KEY`.
    pub(crate) component: String,
    /// How the component is reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    pub(crate) output: TableFormat,
}

/// Flags of `test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Where to search for folders named `cases`; or a component, a file or `builtin:<name>`, whose own cases are run,
    /// which travel with it.
    #[arg(default_value = "policies")]
    pub(crate) path: PathBuf,
    /// The component of the one guest whose cases are run: a file, or `builtin:<name>`. Default:
    /// `guests/<package>.wasm` or `guests/<folder>.wasm` in the target folders that cargo would use.
    #[arg(long, value_name = "COMPONENT")]
    pub(crate) component: Option<String>,
    /// Write the actual result into `expected.yaml` of each failing case, print the differences, and keep the comments
    /// of unchanged parts. A case without an `expected.yaml` gets one.
    #[arg(long)]
    pub(crate) update: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    pub(crate) output: TableFormat,
}

/// Flags of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The component: a file, `builtin:<name>`, `oci:REGISTRY/REPOSITORY:TAG`, or `configmap:NAMESPACE/NAME/KEY`.
    pub(crate) component: String,
    /// Folder with cases of the guest. Default: the cases that travel with the component.
    #[arg(long, value_name = "DIR")]
    pub(crate) cases: Option<PathBuf>,
    /// How the component is reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(crate) output: OutputFormat,
}

/// Flags of `componentize`.
#[derive(Debug, Args)]
pub(crate) struct ComponentizeArgs {
    /// The core module that cargo built for `wasm32-unknown-unknown`.
    pub(crate) module: PathBuf,
    /// Where to write the component. Missing folders are created; an existing file is replaced atomically.
    #[arg(short, long, value_name = "FILE", value_parser = component_file)]
    pub(crate) output: PathBuf,
}

/// Names that Rust or a dependency of every guest has taken.
const TAKEN: [&str; 7] = [
    "alloc",
    "core",
    "proc-macro",
    "serde",
    "std",
    "test",
    "transom-guest",
];

/// A name that a guest, its crate and its policy may have.
fn parse_crate(text: &str) -> Result<String, String> {
    if !is_label(text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err(
            "expected lower-case letters, digits and dashes, at most 63, with a letter first"
                .to_owned(),
        );
    }
    match TAKEN.contains(&text) {
        true => Err("another crate has this name".to_owned()),
        false => Ok(text.to_owned()),
    }
}
