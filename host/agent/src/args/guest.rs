//! Flags of commands about guests and their cases. Never reads a component.

use super::TableFormat;
use clap::Args;
use std::path::PathBuf;

/// Flags of `test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Where to search for folders named `cases`.
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
    /// Where to write the component. Missing folders are created; an existing file is replaced atomically.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}
