//! Guests that decide which taints a managed cluster carries.
//! Never sets a time: `timeAdded` is the host's or the webhook's.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::bindings::taints::exports::transom::policy::taints as wit;
use crate::{Context, Failure, Guest};

pub use wit::{Answer, Condition, Decision, Effect, ManagedCluster, Pair, Status, Taint, Wanted};

/// A guest that decides which taints a managed cluster carries.
pub trait Taints: Guest {
    /// Of the keys that the policy owns, which taints the cluster should carry; all others keep place and time.
    ///
    /// # Errors
    /// Why there is no answer, by how the host should react.
    fn compute(context: &Context<Self::Settings>, cluster: &ManagedCluster) -> Result<Answer, Failure>;
}

impl<T: Taints> wit::Guest for T {
    fn compute(context: RawContext, cluster: ManagedCluster) -> Result<Answer, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::compute(&context, &cluster)
    }
}

impl Default for Effect {
    fn default() -> Self {
        Self::NoSelect
    }
}

impl Default for Status {
    fn default() -> Self {
        Self::Unknown
    }
}
