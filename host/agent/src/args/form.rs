//! Forms of the output.

use clap::ValueEnum;

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
