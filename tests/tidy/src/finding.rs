//! A violation of a rule, with one sentence on what to do.

use std::fmt;

/// The rules, by the name that `exceptions.rs` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Which package may depend on which.
    Dependency,
    /// The form of a package's manifest.
    Manifest,
    /// Lines of a file.
    Size,
    /// The first line of a file.
    FirstLine,
    /// Forbidden words in names of modules and types.
    Name,
    /// `unsafe` outside the allowed places.
    Unsafe,
    /// `#[allow]` instead of `#[expect]`.
    Allow,
    /// Sleeping in a test.
    Sleep,
    /// Clock, environment, files or network in the core.
    Pure,
    /// The agent's code depends on a reason.
    Reason,
    /// A released contract that was changed.
    Frozen,
    /// A name at the top level that does not belong there.
    TopLevel,
    /// A page names something that does not exist.
    Page,
}

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The file or package.
    pub place: String,
    /// Number of lines or occurrences, for the rules that count; else 1.
    pub amount: usize,
    /// What is wrong and what to do.
    pub sentence: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.sentence)
    }
}
