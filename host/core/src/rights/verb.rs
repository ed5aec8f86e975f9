//! What may be done with objects.

use std::sync::Arc;

/// What may be done, in the order in which it is shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read one by name.
    Get,
    /// Read all.
    List,
    /// Follow changes.
    Watch,
    /// Make.
    Create,
    /// Replace.
    Update,
    /// Change fields.
    Patch,
    /// Remove.
    Delete,
    /// What the agent itself never does, and hands on: `renew`.
    Other(Arc<str>),
}

impl Verb {
    /// As RBAC spells it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Other(verb) => verb,
        }
    }

    pub(super) fn of(text: &str) -> Self {
        use Verb::{Create, Delete, Get, List, Patch, Update, Watch};
        let known = [Get, List, Watch, Create, Update, Patch, Delete];
        let known = known.into_iter().find(|verb| verb.as_str() == text);
        known.unwrap_or_else(|| Self::Other(text.into()))
    }
}
