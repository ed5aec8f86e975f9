//! Guests that decide where a kubeconfig is written, and its content.
//! They get no byte of a credential, only numbers that are valid for one call.

use crate::bindings::guest::transom::policy::types::Context as RawContext;
use crate::bindings::kubeconfig::exports::transom::policy::kubeconfig as wit;
use crate::bindings::kubeconfig::transom::policy::{credentials, proposals};
use crate::{Context, Failure, Guest, Primary};

pub use credentials::Kubeconfig as Source;
pub use credentials::{
    Authority, AuthoritySource, Cluster, ClusterContext, Credential, Proxy, Url, User,
};
pub use proposals::{Proposal, ProposedCluster, ProposedUser};
pub use wit::{
    Absence, Answer, Form, Input, Need, Protocol, Requirement, Service, ServicePort, Value,
};

/// A guest that decides where a kubeconfig is written, and its content.
pub trait Kubeconfig: Guest {
    /// The object to write, and the objects to read for it. The host calls this again with what it found until there
    /// are no new needs: at most three rounds.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn require(
        context: &Context<Self::Settings>,
        primary: &Primary,
        found: &[Input],
    ) -> Result<Requirement, Failure>;

    /// The kubeconfig to write, made of the inputs by role.
    ///
    /// # Errors
    /// Why there is no answer; the kind of failure says how the host should react.
    fn transform(
        context: &Context<Self::Settings>,
        primary: &Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure>;
}

impl<T: Kubeconfig> wit::Guest for T {
    fn require(
        context: RawContext,
        primary: Primary,
        found: Vec<Input>,
    ) -> Result<Requirement, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::require(&context, &primary, &found)
    }

    fn transform(
        context: RawContext,
        primary: Primary,
        inputs: Vec<Input>,
    ) -> Result<Answer, Failure> {
        let context = Context::read(context).map_err(Failure::Invalid)?;
        T::transform(&context, &primary, inputs)
    }
}

impl Default for AuthoritySource {
    fn default() -> Self {
        Self::None
    }
}

/// The default of Kubernetes.
impl Default for Protocol {
    fn default() -> Self {
        Self::Tcp
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::Absent
    }
}
