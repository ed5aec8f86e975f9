//! Leader election by a Lease: acquires, renews and releases it. The rules are in `core::lease`.
//! Leadership ends by the clock, so no writer relies on it for longer than the lease allows.

mod candidate;
mod leading;
mod spec;

pub use leading::{Leading, Trouble};

use super::Kubernetes;
use candidate::Candidate;
use kube::Api;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use transom_core::lease::Timing;

/// Which Lease, and the replica that wants it.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease; [`transom_core::rights::LEASE`] is the one that `transom rbac` grants.
    pub name: String,
    /// Name of this replica for people: the pod's name.
    pub instance: String,
    /// The durations of the election.
    pub timing: Timing,
}

/// An order to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Do nothing yet: a replica that is not ready would hold the lease and do no work.
    Wait,
    /// Try to hold the lease.
    Stand,
    /// Release the lease and end.
    Stop,
}

/// A candidate; dropping this value ends its task. Without [`Leadership::release`] the lease is not released, but
/// expires.
pub struct Leadership {
    leading: Leading,
    order: watch::Sender<Order>,
    task: JoinHandle<()>,
}

impl Leadership {
    /// A candidate that sends no request before [`Leadership::stand`]. Needs the rights to get, create and update that
    /// one Lease. Must be called inside a tokio runtime.
    pub fn new(kubernetes: &Kubernetes, options: &LeaseOptions) -> Self {
        let leases = Api::namespaced(kubernetes.shared.client.clone(), &options.namespace);
        // Another process may have the same name: a restarted container of the pod.
        let me = format!(
            "{}_{:016x}",
            options.instance,
            RandomState::new().hash_one(&options.instance)
        );
        let (tell, leading) = leading::channel();
        let (order, told) = watch::channel(Order::Wait);
        let counts = Arc::clone(kubernetes.writer().counts());
        let candidate = Candidate::new(leases, options, &me, counts, tell, told);
        Self {
            leading,
            order,
            task: tokio::spawn(candidate.run()),
        }
    }

    /// Tries to hold the lease from now on. Call this once this replica could begin to work at once.
    pub fn stand(&self) {
        self.order.send_replace(Order::Stand);
    }

    /// Whether this replica leads: a handle for writers.
    pub fn leading(&self) -> Leading {
        self.leading.clone()
    }

    /// Releases the lease, if this replica holds it, so that another replica need not wait until it expires.
    /// [`Leading::leads`] is false from the call on, so finish all writes before. Add a timeout: it retries until the
    /// API server answers.
    pub async fn release(mut self) {
        self.leading.stop();
        self.order.send_replace(Order::Stop);
        let _ = (&mut self.task).await;
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.task.abort();
    }
}
