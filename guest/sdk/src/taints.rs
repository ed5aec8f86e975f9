//! Guests that decide which taints a managed cluster carries.
//! They set no time: `timeAdded` is set by the host or a webhook.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::bindings::taints::exports::transom::policy::taints as wit;
use crate::{Context, Failure, Guest};

pub use wit::{Answer, Condition, Decision, Effect, ManagedCluster, Pair, Status, Taint, Wanted};

/// A guest that decides which taints a managed cluster carries.
pub trait Taints: Guest {
    /// The taints that the cluster should carry, of the keys that the policy owns. All other taints keep their place
    /// and time.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn compute(
        context: &Context<Self::Settings>,
        cluster: &ManagedCluster,
    ) -> Result<Answer, Failure>;
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
