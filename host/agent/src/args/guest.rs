//! Flags of commands about guests and their cases. Never reads a component.

use super::TableFormat;
use clap::Args;
use std::path::PathBuf;

/// Flags of `test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Where to look for folders named `cases`.
    #[arg(default_value = "policies")]
    pub(crate) path: PathBuf,
    /// The component of the one guest whose cases are run: a file, or `builtin:<name>`. When absent it is looked for as
    /// `guests/<package>.wasm` or `guests/<folder>.wasm` in the target folders that cargo would use.
    #[arg(long, value_name = "COMPONENT")]
    pub(crate) component: Option<String>,
    /// Write what came into `expected.yaml` of each case that fails, print how it differs from what was expected, and
    /// keep the comments of what stays. A case whose `expected.yaml` is missing gets one.
    #[arg(long)]
    pub(crate) update: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    pub(crate) output: TableFormat,
}

/// Flags of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// `builtin:<name>`, or the path of a file.
    pub(crate) component: String,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    pub(crate) output: TableFormat,
}

/// Flags of `componentize`.
#[derive(Debug, Args)]
pub(crate) struct ComponentizeArgs {
    /// The core module that cargo built for `wasm32-unknown-unknown`.
    pub(crate) module: PathBuf,
    /// Where the component is written; folders that are missing are made, a file that is there is replaced at once.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}
