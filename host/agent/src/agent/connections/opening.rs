//! How connections are opened: each for itself, so that one that is away or slow holds up no other. Never loads a policy.

use super::adapter::Cluster;
use super::{Connections, Told};
use crate::agent::Agent;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::task::JoinSet;
use transom_core::catalogue::Catalogue;
use transom_core::reference::LOCAL;
use transom_core::watches;
use transom_core::work::Why;

impl Connections {
    /// Has every connection watch what the policies of a catalogue need, and returns at once. The catalogue is asked for
    /// here, so that of several calls at a time the last one leaves the watches of the newest.
    pub(crate) fn watch(&self, catalogue: impl FnOnce() -> Catalogue) {
        let _one = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        let catalogue = catalogue();
        for (name, cluster) in &self.by_name {
            cluster.watch(|| {
                let mut wanted = watches::of(&catalogue, name, self.secrets);
                wanted.extend((self.policy_objects && name == LOCAL).then(watches::policies));
                wanted
            });
        }
    }

    /// Waits until these connections were opened, and what they watch now was listed or is known not to be readable.
    pub(crate) async fn ready(&self, names: &BTreeSet<String>) {
        // It fails only when the agent is gone.
        drop(self.opened.subscribe().wait_for(|opened| opened.is_superset(names)).await);
        let clusters = self.by_name.iter().filter(|(name, _)| names.contains(*name));
        futures::future::join_all(clusters.map(|(_, cluster)| cluster.listed())).await;
    }

    /// Waits for the first word of a connection, and for the lists of what it watches. `patiently`: not for the first word,
    /// but for an answer, within bounds.
    pub(crate) async fn first_listed(&self, name: &str, patiently: bool) {
        if let Some(cluster) = self.by_name.get(name) {
            cluster.first_word(patiently).await;
            cluster.listed().await;
        }
    }

    /// Whether no connection can be used, since none has answered since the start.
    pub(crate) fn all_away(&self) -> bool {
        !self.by_name.is_empty() && self.all().all(|cluster| cluster.away().is_some())
    }
}

impl Agent {
    /// Opens every connection. The tasks go on to follow what is told, and end when this is dropped; with `once` they end
    /// when every connection was opened.
    pub(crate) fn open(self: &Arc<Self>, once: bool) -> JoinSet<()> {
        let clusters = self.connections.by_name.iter();
        clusters.map(|(name, cluster)| open(Arc::clone(self), name.clone(), cluster.clone(), once)).collect()
    }

    /// A connection was listed that had not answered when its policies began: their primaries are located before anything
    /// is written for one of them, as at a start.
    fn came(self: &Arc<Self>, name: &str) {
        for lane in self.lanes() {
            if lane.loaded().revision.policy.clusters().any(|(_, cluster)| cluster == name) {
                self.enqueue_all(&lane, &Why::Appeared);
            }
        }
        self.retry_unread();
        self.statuses.changed();
        if self.connections.policy_objects && name == LOCAL {
            self.policies_told.store(true, Ordering::Release);
        }
    }
}

async fn open(agent: Arc<Agent>, name: String, cluster: Cluster, once: bool) {
    agent.connections.first_listed(&name, once).await;
    let away = cluster.away().is_some();
    if away {
        // Its policies begin, and say why they cannot go on.
        agent.connections.opened(&name);
        if once {
            return;
        }
        cluster.answered().await;
        cluster.listed().await;
    }
    // From here on everything is told; what was there before is found in the cache.
    let told = cluster.changes();
    agent.find_outputs(&cluster);
    match away {
        true => agent.came(&name),
        false => agent.connections.opened(&name),
    }
    if !once {
        follow(&agent, told).await;
    }
}

/// Feeds what a cluster tells to the agent.
async fn follow(agent: &Agent, mut told: Told) {
    loop {
        agent.observe(told.next().await);
    }
}
