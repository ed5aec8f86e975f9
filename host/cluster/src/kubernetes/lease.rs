//! Leader election by a Lease: acquires, renews and releases it. The rules are in `core::lease`.
//! Leadership ends by the clock, so no writer relies on it for longer than the lease allows.

mod candidate;

use super::Kubernetes;
use candidate::LeaderElector;
use kube::Api;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use transom_api::KnownReason;
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
        let (tell, told) = watch::channel(Told::default());
        let leading = Leading {
            told: Some(told),
            stopped: Arc::default(),
        };
        let (order, told) = watch::channel(Order::Wait);
        let counts = Arc::clone(kubernetes.writer().counts());
        let candidate = LeaderElector::new(leases, options, &me, counts, tell, told);
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

/// Until when this replica leads, by two clocks: the monotonic clock may stop while the machine sleeps, and the wall
/// clock may be set.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Until {
    monotonic: Instant,
    wall: SystemTime,
    /// From when another replica may lead.
    others_from: Instant,
}

/// Why the Lease cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In one word.
    pub reason: KnownReason,
    /// What was attempted, and why it failed.
    pub message: String,
}

/// What a candidate publishes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    until: Option<Until>,
    holder: Option<String>,
    trouble: Option<Trouble>,
}

/// Whether this replica leads. Cheap to clone and to query; query it before each write.
#[derive(Clone, Debug)]
pub struct Leading {
    /// `None` where there is no election.
    told: Option<watch::Receiver<Told>>,
    stopped: Arc<AtomicBool>,
}

impl Leading {
    /// Always leads: for an agent without an election.
    pub fn always() -> Self {
        Self {
            told: None,
            stopped: Arc::default(),
        }
    }

    /// Whether there is an election.
    pub fn is_elected(&self) -> bool {
        self.told.is_some()
    }

    /// Whether writing is allowed now.
    pub fn leads(&self) -> bool {
        let Some(told) = &self.told else { return true };
        let until = told.borrow().until;
        let in_time =
            |until: Until| Instant::now() < until.monotonic && SystemTime::now() < until.wall;
        until.is_some_and(in_time) && !self.stopped.load(Ordering::SeqCst)
    }

    /// How long a request that is sent now may take, so that it ends before another replica may lead.
    pub fn left(&self) -> Duration {
        let Some(told) = &self.told else {
            return Duration::MAX;
        };
        let until = told.borrow().until;
        until.map_or(Duration::ZERO, |until| {
            until.others_from.saturating_duration_since(Instant::now())
        })
    }

    /// Waits until this replica leads; forever once its candidate has ended.
    pub async fn gained(&mut self) {
        while !self.leads() {
            self.changed().await;
        }
    }

    /// Waits until this replica does not lead.
    pub async fn lost(&mut self) {
        while self.leads() {
            let until = self.told.as_ref().and_then(|told| told.borrow().until);
            match until {
                None => std::future::pending().await,
                Some(until) => {
                    let end = tokio::time::sleep_until(until.monotonic.into());
                    tokio::select! {
                        () = end => {}
                        () = self.changed() => {}
                    }
                }
            }
        }
    }

    /// Waits until the holder, the end of the leadership or the trouble changes.
    pub async fn changed(&mut self) {
        let ended = match &mut self.told {
            None => true,
            Some(told) => told.changed().await.is_err(),
        };
        if ended {
            std::future::pending::<()>().await;
        }
    }

    /// The holder of the lease as last seen: the name of a replica, `_`, and an identifier of its process.
    pub fn holder(&self) -> Option<String> {
        self.told.as_ref()?.borrow().holder.clone()
    }

    /// Why the Lease cannot be read or written now.
    pub fn trouble(&self) -> Option<Trouble> {
        self.told.as_ref()?.borrow().trouble.clone()
    }

    /// Ends the leadership for all clones at once.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}
