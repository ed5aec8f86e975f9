//! One leader among replicas, by a Lease: takes it, renews it, gives it back. Never judges it: that is `core::lease`;
//! never lets anybody believe longer than the lease allows that this replica leads.

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

/// Which Lease, and who wants it.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease; [`transom_core::rights::LEASE`] is the one that `transom rbac` grants.
    pub name: String,
    /// Name of this replica, as people know it: the pod's.
    pub instance: String,
    /// How long things take.
    pub timing: Timing,
}

/// What a candidate is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Nothing yet: whoever is not ready would hold the lease and do no work.
    Wait,
    /// To stand for the lease.
    Stand,
    /// To give it back, and to end.
    Stop,
}

/// A candidate: a task that ends with this value. When it is dropped without [`Leadership::release`] the lease is left
/// to end by itself.
pub struct Leadership {
    leading: Leading,
    order: watch::Sender<Order>,
    task: JoinHandle<()>,
}

impl Leadership {
    /// One that asks for nothing before [`Leadership::stand`]. Needs the rights to get, create and update that one Lease.
    /// Must be called inside of a tokio runtime.
    pub fn new(kubernetes: &Kubernetes, options: &LeaseOptions) -> Self {
        let leases = Api::namespaced(kubernetes.shared.client.clone(), &options.namespace);
        // Another process may bear the same name: a pod's container that was started again.
        let me = format!("{}_{:016x}", options.instance, RandomState::new().hash_one(&options.instance));
        let (tell, leading) = leading::channel();
        let (order, told) = watch::channel(Order::Wait);
        let counts = Arc::clone(kubernetes.writer().counts());
        let candidate = Candidate::new(leases, options, &me, counts, tell, told);
        Self { leading, order, task: tokio::spawn(candidate.run()) }
    }

    /// Stands for the lease from now on: for when this replica could do the work at once.
    pub fn stand(&self) {
        self.order.send_replace(Order::Stand);
    }

    /// Whether this replica leads, for whoever writes.
    pub fn leading(&self) -> Leading {
        self.leading.clone()
    }

    /// Gives the lease back, if it is ours, so that another replica need not wait for its end: from the call on
    /// [`Leading::leads`] is false, so that everything must have been written before. Bound it in time: it asks again
    /// until the API server answers.
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
