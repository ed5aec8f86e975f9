//! Why a text is not a pattern. Errors do not repeat the text.

/// Why a text is not a pattern, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {wrong}")]
pub struct PatternError {
    /// The byte at fault, counted from 0; in a template from the template's beginning.
    pub at: usize,
    /// What is wrong there.
    pub wrong: Wrong,
}

/// What is wrong with a pattern or a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The pattern is empty.
    #[error("a pattern is empty")]
    Empty,
    /// Too many stars and templates to understand.
    #[error(
        "a pattern has more than two `*`, more than three `*` and templates together, or two of them in a row"
    )]
    Stars,
    /// A brace or a quotation mark without its other end.
    #[error("a brace or quotation mark is not closed")]
    Unclosed,
    /// Neither a template nor the name of one.
    #[error("`grant.names` does not define this name")]
    Name,
    /// A field that a template may not take.
    #[error(
        "a template may use primary.namespace, primary.name, primary.labels[\"key\"], primary.annotations[\"key\"], \
         agent.remoteCluster, dashed(one of them), or \"text\""
    )]
    Field,
    /// Not the key of a label or an annotation.
    #[error("this is not a valid key of a label or an annotation")]
    Key,
    /// Text that no name can hold.
    #[error("a quoted text may contain only lower-case letters, digits, dashes and dots")]
    Text,
    /// Nothing before or after a bar.
    #[error("an alternative is empty")]
    EmptyChoice,
    /// Too many choices, or parts of one, to understand.
    #[error(
        "a template has more than eight alternatives, or an alternative has more than eight parts"
    )]
    TooMany,
}

impl Wrong {
    pub(super) const fn at(self, at: usize) -> PatternError {
        PatternError { at, wrong: self }
    }
}
