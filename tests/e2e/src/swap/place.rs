//! What the swaps need of the place where the fleet and the policies are.

use crate::agent::Agent;
use crate::http::Meter;
use crate::secret::Secret;
use anyhow::Result;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

/// A component of a policy.
#[derive(Clone, Copy)]
pub struct Component<'a> {
    /// Which of the two versions: each keeps its own place, so that both are there at any time.
    pub version: usize,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// What the agent wrote for each primary, in order: a line for each write.
#[derive(Debug, Default)]
pub struct Writes {
    /// The secret of a HostedCluster, by its number.
    pub hosted: BTreeMap<usize, Vec<String>>,
    /// A ManagedCluster, by its name.
    pub managed: BTreeMap<String, Vec<String>>,
}

/// A generated fleet with two policies: a folder, or an API server.
pub trait Place: Sync {
    /// Starts the agent with a log in JSON and an admin server.
    ///
    /// # Errors
    /// When it cannot be started.
    fn agent(&self) -> Result<Agent>;

    /// Writes a revision of a policy: its component, and a merge patch of its `spec`.
    ///
    /// # Errors
    /// When it cannot be written.
    fn put_revision(&self, policy: &str, component: Component<'_>, spec: &Value) -> Result<()>;

    /// The active revision of a policy; none before its first status.
    ///
    /// # Errors
    /// When the place cannot be read.
    fn revision(&self, policy: &str) -> Result<Option<String>>;

    /// The manifest of the managed secret of a HostedCluster; none if it is not there.
    ///
    /// # Errors
    /// When the place cannot be read.
    fn made(&self, index: usize) -> Result<Option<String>>;

    /// The source of that secret, and the port of the Service.
    ///
    /// # Errors
    /// When one of them is missing.
    fn source(&self, index: usize) -> Result<(Secret, u64)>;

    /// Gives the Service of a HostedCluster another port.
    ///
    /// # Errors
    /// When it cannot be written.
    fn set_port(&self, index: usize, port: u64) -> Result<()>;

    /// Changes what counts of that Service and does not change the answer: one of two states.
    ///
    /// # Errors
    /// When it cannot be written.
    fn touch_service(&self, index: usize, state: bool) -> Result<()>;

    /// Says of a ManagedCluster whether it is available or unknown, with one of two messages.
    ///
    /// # Errors
    /// When it cannot be written.
    fn say_available(&self, name: &str, available: bool, message: bool) -> Result<()>;

    /// The ManagedClusters that the agent has tainted as unreachable.
    ///
    /// # Errors
    /// When the place cannot be read.
    fn unreachable(&self) -> Result<BTreeSet<String>>;

    /// Calls `each` with name and manifest of managed secrets while they change, until it is over; versions of one
    /// secret come in the order in which they were written.
    ///
    /// # Errors
    /// When the place cannot be read, or `each` fails.
    fn follow(
        &self,
        meter: &Meter,
        over: &AtomicBool,
        each: &mut dyn FnMut(&str, &str) -> Result<()>,
    ) -> Result<()>;

    /// What the agent wrote since its start, given its log.
    ///
    /// # Errors
    /// When the place cannot be read, or does not agree with itself.
    fn writes(&self, log: &str) -> Result<Writes>;
}
