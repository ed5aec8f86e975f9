//! What is wrong with a kubeconfig, and where. Holds no text of the document and no name from inside it.

use std::borrow::Cow;
use std::fmt;
use transom_api::KnownReason;

/// What is wrong with a kubeconfig, read or proposed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct KubeconfigError {
    /// The reason.
    pub reason: KnownReason,
    /// Such as `users[0].user.client-key-data`; empty for the whole document.
    pub path: String,
    /// Where the parser stopped, counted from 1.
    pub line: Option<usize>,
    /// What is wrong there.
    pub message: Cow<'static, str>,
    /// Whether the fault is in what a guest proposed, not in the document that was read.
    pub proposed: bool,
}

impl fmt::Display for KubeconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.proposed {
            return f.write_str(&self.message);
        }
        f.write_str("failed to use the kubeconfig: ")?;
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match self.line {
            Some(line) => write!(f, " (line {line})"),
            None => Ok(()),
        }
    }
}

/// A place in the document, made of known fields and of numbers.
#[derive(Clone, Copy)]
pub(super) enum Place<'p> {
    Root,
    Field(&'p Place<'p>, &'static str),
    Item(&'p Place<'p>, usize),
}

impl Place<'_> {
    /// The whole document.
    pub(super) const ROOT: Place<'static> = Place::Root;

    /// A field below.
    pub(super) fn field(&self, name: &'static str) -> Place<'_> {
        Place::Field(self, name)
    }

    /// An item below.
    pub(super) fn item(&self, index: usize) -> Place<'_> {
        Place::Item(self, index)
    }

    /// The error for this place.
    pub(super) fn error(&self, reason: KnownReason, message: &'static str) -> KubeconfigError {
        KubeconfigError {
            reason,
            path: self.to_string(),
            line: None,
            message: message.into(),
            proposed: false,
        }
    }

    /// The error for what a guest proposed at this place, with what is granted. Neither holds a name from inside the
    /// document.
    pub(super) fn proposed(
        &self,
        reason: KnownReason,
        what: &str,
        granted: Option<&str>,
    ) -> KubeconfigError {
        let path = self.to_string();
        let at = if path.is_empty() {
            String::new()
        } else {
            format!(" for `{path}`")
        };
        let granted = granted
            .map(|granted| format!("; granted: {granted}"))
            .unwrap_or_default();
        let message = format!("the guest proposed {what}{at}{granted}").into();
        KubeconfigError {
            reason,
            path,
            line: None,
            message,
            proposed: true,
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Item(above, index) => write!(f, "{above}[{index}]"),
            Self::Field(Place::Root, name) => f.write_str(name),
            Self::Field(above, name) => write!(f, "{above}.{name}"),
        }
    }
}
