//! Opens connections, each in its own task, so that one that is slow or does not answer holds up no other.

use super::adapter::Cluster;
use super::{Connections, Told};
use crate::controller::Controller;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::task::JoinSet;
use transom_core::catalogue::Catalogue;
use transom_core::reference::LOCAL;
use transom_core::watches;
use transom_core::work::Cause;

impl Connections {
    /// Has every connection watch what the policies of a catalogue need, and returns at once. The catalogue is fetched
    /// under the lock, so that of several calls at a time the last one sets the watches of the newest catalogue.
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

    /// Waits until these connections were opened, and everything they watch now was listed or is known to be
    /// unreadable.
    pub(crate) async fn ready(&self, names: &BTreeSet<String>) {
        // Fails only when the agent is dropped.
        drop(
            self.opened
                .subscribe()
                .wait_for(|opened| opened.is_superset(names))
                .await,
        );
        let clusters = self
            .by_name
            .iter()
            .filter(|(name, _)| names.contains(*name));
        futures::future::join_all(clusters.map(|(_, cluster)| cluster.listed())).await;
    }

    /// Waits until a connection answers or is known not to answer, then for the lists of what it watches. `patiently`:
    /// waits for an answer, within a time limit.
    pub(crate) async fn first_listed(&self, name: &str, patiently: bool) {
        if let Some(cluster) = self.by_name.get(name) {
            cluster.first_word(patiently).await;
            cluster.listed().await;
        }
    }

    /// Whether no connection can be used, because none has answered since the start.
    pub(crate) fn all_away(&self) -> bool {
        !self.by_name.is_empty() && self.all().all(|cluster| cluster.away().is_some())
    }
}

impl Controller {
    /// Opens every connection in a task. Each task then follows the cluster's changes until the set is dropped; with
    /// `once` it ends when the connection was opened.
    pub(crate) fn open(self: &Arc<Self>, once: bool) -> JoinSet<()> {
        let clusters = self.connections.by_name.iter();
        clusters
            .map(|(name, cluster)| open(Arc::clone(self), name.clone(), cluster.clone(), once))
            .collect()
    }

    /// Handles the first answer of a connection that did not answer when its policies began: their primaries are
    /// located before anything is written for one of them, as at a start.
    fn came(self: &Arc<Self>, name: &str) {
        for queue in self.queues() {
            if queue
                .loaded()
                .revision
                .policy
                .clusters()
                .any(|(_, cluster)| cluster == name)
            {
                self.enqueue_all(&queue, &Cause::Added);
            }
        }
        self.retry_unread();
        self.statuses.changed();
        if self.connections.policy_objects && name == LOCAL {
            self.policies_changed.store(true, Ordering::Release);
        }
    }
}

async fn open(agent: Arc<Controller>, name: String, cluster: Cluster, once: bool) {
    agent.connections.first_listed(&name, once).await;
    let away = cluster.away().is_some();
    if away {
        // Its policies begin anyway, and report why they cannot go on.
        agent.connections.opened(&name);
        if once {
            return;
        }
        cluster.answered().await;
        cluster.listed().await;
    }
    // Subscribes before it looks at the cache: what was there before is in the cache, what comes later is observed.
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

/// Passes the observations of a cluster to the agent.
async fn follow(agent: &Controller, mut told: Told) {
    loop {
        agent.observe(told.next().await);
    }
}
