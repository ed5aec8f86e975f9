//! The context of a call, with the settings as the guest's own type.
//! A guest has no clock: the time is in the context.

use crate::bindings::guest::transom::policy::types as wit;
use crate::{Agent, Problem, settings};
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
        crate::panic::tell();
        let settings = settings::read(&raw.settings)?;
        Ok(Self {
            now_seconds: raw.now_seconds,
            agent: raw.agent,
            settings,
        })
    }
}
