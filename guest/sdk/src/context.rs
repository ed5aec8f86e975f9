//! What a call knows beside its arguments, with the settings as the guest's own type.
//! Never a clock: the time is an argument.

use crate::bindings::guest::transom::policy::types as wit;
use crate::{Agent, Problem, settings};
use serde::de::DeserializeOwned;

/// What a call knows beside its arguments. Same context, same arguments, same answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context<S> {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub now_seconds: i64,
    /// Facts about the agent that calls.
    pub agent: Agent,
    /// The policy's settings for this guest.
    pub settings: S,
}

impl<S: DeserializeOwned + Default> Context<S> {
    /// Reads the settings of a call, with which every one of a world begins. The problem is there only if the host did not ask `validate`.
    pub(crate) fn read(raw: wit::Context) -> Result<Self, Problem> {
        crate::panic::tell();
        let settings = settings::read(&raw.settings)?;
        Ok(Self { now_seconds: raw.now_seconds, agent: raw.agent, settings })
    }
}
