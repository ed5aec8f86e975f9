//! Constructors for the types of the contract.

use crate::{Failure, ObjectRef, Problem, Waiting};

impl Problem {
    /// A reason with a sentence; guests use [`Reason::problem`](crate::Reason::problem).
    pub(crate) fn new(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
            field: None,
        }
    }

    /// A setting that has the right form but cannot be used; for [`Guest::check`](crate::Guest::check).
    pub fn in_settings(field: &str, message: impl Into<String>) -> Self {
        Self::new(crate::settings::INVALID_SETTINGS, message).at(field)
    }

    /// Names the field at fault.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Waits instead of failing: the guest is asked again when one of these objects appears or changes.
    #[must_use]
    pub fn waiting_for(self, objects: Vec<ObjectRef>) -> Failure {
        Failure::Waiting(Waiting {
            problem: self,
            objects,
        })
    }
}

impl ObjectRef {
    /// An object without a namespace, on the connection `cluster` (`local`, or that of the primary).
    pub fn new(cluster: &str, api_version: &str, kind: &str, name: impl Into<String>) -> Self {
        Self {
            cluster: cluster.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: name.into(),
        }
    }

    /// The same in a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
}
