//! What a rule found, with one sentence on what to do. Never a bare "no".

use std::fmt;

/// The rules, by the name that `exceptions.rs` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Who may import whom.
    Dependency,
    /// How a manifest of a package looks.
    Manifest,
    /// Lines of a file.
    Size,
    /// The first line of a file.
    FirstLine,
    /// Words that a module or type may not be called by.
    Name,
    /// `unsafe` outside its places.
    Unsafe,
    /// `#[allow]` instead of `#[expect]`.
    Allow,
    /// Sleeping in a test.
    Sleep,
    /// Clock, environment, files or network in the core.
    Pure,
    /// The agent acting by a reason.
    Reason,
    /// A released contract that was changed.
    Frozen,
    /// A name at the top level that does not belong there.
    TopLevel,
    /// What a page names and nobody has.
    Page,
}

/// One place where a rule does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The file or package.
    pub place: String,
    /// How many lines or how many times, for the rules that count; else 1.
    pub amount: usize,
    /// What is wrong and what to do.
    pub sentence: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.sentence)
    }
}
