//! The context of a call, with the settings as the guest's own type, and constructors for what an answer names.
//! A guest has no clock: the time is in the context.

use crate::bindings::guest::transom::policy::types as wit;
use crate::{Agent, Failure, ObjectRef, Problem, Waiting, log, settings};
use serde::de::DeserializeOwned;

/// The context of a call. The same context and the same arguments must give the same answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context<S> {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub now_seconds: i64,
    /// Facts about the calling agent.
    pub agent: Agent,
    /// The policy's settings for this guest.
    pub settings: S,
}

impl<S: DeserializeOwned + Default> Context<S> {
    /// Reads the context of a call; every exported function starts with this. It fails only if the host did not call
    /// `validate` before.
    pub(crate) fn read(raw: wit::Context) -> Result<Self, Problem> {
        log::report_panic();
        let settings = settings::read(&raw.settings)?;
        Ok(Self {
            now_seconds: raw.now_seconds,
            agent: raw.agent,
            settings,
        })
    }
}

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
        Self::new(settings::INVALID_SETTINGS, message).at(field)
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
        Failure::Waiting(self.waiting(objects))
    }

    /// What an answer waits for after it is applied. Without objects it waits for something that no object shows.
    pub fn waiting(self, objects: Vec<ObjectRef>) -> Waiting {
        Waiting {
            problem: self,
            objects,
        }
    }
}

/// What cannot be used is final until an input changes.
impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Invalid(problem)
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
