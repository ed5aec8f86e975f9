//! Opens connections, each in its own task, so that one that is slow or does not answer holds up no other.

use super::Connections;
use crate::controller::Controller;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::task::JoinSet;
use transom_cluster::kubernetes::Server;
use transom_cluster::{Cluster, Patience};
use transom_core::catalogue::Catalogue;
use transom_core::observation::Observation;
use transom_core::reference::LOCAL;
use transom_core::watches::{self, SecretReads};
use transom_core::work::Cause;

impl Connections {
    /// Has every connection watch what the policies of a catalogue need, and returns at once. The catalogue is fetched
    /// under the lock, so that of several calls at a time the last one sets the watches of the newest catalogue.
    pub(crate) fn watch(&self, catalogue: impl FnOnce() -> Catalogue) {
        let _one = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        let catalogue = catalogue();
        for (name, cluster) in &self.by_name {
            // A directory has read every Secret anyway.
            let secrets = cluster
                .server()
                .map_or(SecretReads::Watch, |_| self.secrets);
            let mut wanted = watches::of(&catalogue, name, secrets);
            wanted.extend((self.policy_objects && name == LOCAL).then(watches::policies));
            cluster.watch(wanted);
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
        let synced = clusters.map(|(_, cluster)| cluster.synced(Patience::Short));
        futures::future::join_all(synced).await;
    }

    /// Waits until a connection answers or is known not to answer, then for the lists of what it watches. `patiently`:
    /// waits for an answer, within a time limit.
    pub(crate) async fn first_listed(&self, name: &str, patiently: bool) {
        if let Some(cluster) = self.by_name.get(name) {
            // What cannot be read is reported by whoever reads it.
            drop(cluster.synced(patience(patiently)).await);
        }
    }

    /// Whether no connection can be used, because all are API servers and none has answered since the start.
    pub(crate) fn all_away(&self) -> bool {
        let away = |server: &Server| server.kubernetes().trouble().is_some();
        !self.by_name.is_empty() && self.all().all(|cluster| cluster.server().is_some_and(away))
    }
}

impl Controller {
    /// Opens every connection in a task. Each task then follows the cluster's changes until the set is dropped; with
    /// `once` it ends when the connection was opened.
    pub(crate) fn open(self: &Arc<Self>, once: bool) -> JoinSet<()> {
        let clusters = self.connections.by_name.iter();
        clusters
            .map(|(name, cluster)| open(Arc::clone(self), name.clone(), Arc::clone(cluster), once))
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

/// How long the first answer is waited for.
fn patience(patiently: bool) -> Patience {
    match patiently {
        true => Patience::Long,
        false => Patience::Short,
    }
}

async fn open(controller: Arc<Controller>, name: String, cluster: Arc<dyn Cluster>, once: bool) {
    let away = cluster.synced(patience(once)).await.is_err();
    if away {
        // Its policies begin anyway, and report why they cannot go on.
        controller.connections.opened(&name);
        if once {
            return;
        }
        drop(cluster.synced(Patience::Endless).await);
    }
    // Subscribes before it looks at the cache: what was there before is in the cache, what comes later is observed.
    let changes = cluster.changes();
    controller.find_outputs(&*cluster);
    match away {
        true => controller.came(&name),
        false => controller.connections.opened(&name),
    }
    if !once {
        follow(&controller, changes).await;
    }
}

/// Passes the observations of a cluster to the agent.
async fn follow(controller: &Controller, mut changes: BoxStream<'static, Observation>) {
    while let Some(observation) = changes.next().await {
        controller.observe(observation);
    }
}
