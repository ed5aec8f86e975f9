//! Why a text is no pattern. Never the text itself: whoever wrote it has it.

/// Why a text is no pattern, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {wrong}")]
pub struct PatternError {
    /// The byte at fault, counted from 0; in a template from its beginning.
    pub at: usize,
    /// What is wrong there.
    pub wrong: Wrong,
}

/// What is wrong with a pattern or a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Nothing at all.
    #[error("a pattern is empty")]
    Empty,
    /// More than anyone can follow.
    #[error("a pattern has more than two stars, more than three stars and templates, or two of them in a row")]
    Stars,
    /// A brace or a quotation mark without its other end.
    #[error("what is opened here is not closed")]
    Unclosed,
    /// Neither a template nor the name of one.
    #[error("`grant.names` has no such name")]
    Name,
    /// Not a field that a template may take.
    #[error(
        "a template takes primary.namespace, primary.name, primary.labels[\"key\"], primary.annotations[\"key\"], \
         agent.remoteCluster, dashed(one of them), or \"text\""
    )]
    Field,
    /// Not the key of a label or an annotation.
    #[error("this is no key of a label or an annotation")]
    Key,
    /// Text that no name could hold.
    #[error("a text holds only lower-case letters, digits, dashes and dots")]
    Text,
    /// Nothing before or after a bar.
    #[error("a choice is empty")]
    EmptyChoice,
    /// More choices, or parts of one, than anyone can follow.
    #[error("a template has more than eight choices, or a choice more than eight parts")]
    TooMany,
}

impl Wrong {
    pub(super) const fn at(self, at: usize) -> PatternError {
        PatternError { at, wrong: self }
    }
}
