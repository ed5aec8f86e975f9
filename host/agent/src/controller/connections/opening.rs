//! What every connection watches, and which connections have answered.

use super::Connections;
use crate::telemetry;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;
use transom_cluster::kubernetes::{
    ConnectError, ConnectionStanding, KubeconfigProblem, Kubernetes, Leading, Server,
};
use transom_cluster::{Cluster, Patience};
use transom_core::catalogue::{Catalogue, Revision};
use transom_core::plan::WriteFailure;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::share::lock::MutexExt as _;
use transom_core::watches::{self, SecretReads};

/// An API server that is written only while this replica leads, under the name `replica`.
pub(crate) fn server(kubernetes: Kubernetes, replica: &str, leading: Leading) -> Arc<dyn Cluster> {
    // Ends when the server answers or is dropped.
    drop(tokio::spawn(tell(kubernetes.standing())));
    drop(tokio::spawn(tell_problems(kubernetes.problem())));
    Arc::new(Server::new(kubernetes, replica, leading, unwritten))
}

/// Logs that the status of a policy could not be written. Reconciles go on.
fn unwritten(policy: &str, failure: &WriteFailure) {
    let place = format!("the status of {policy}");
    telemetry::unreadable(&place, failure.reason, &failure.message);
}

/// Logs why an API server does not answer, each cause once, and when it answers in the end. Logs nothing for a server
/// that answers at once.
async fn tell(mut standing: watch::Receiver<ConnectionStanding>) {
    let mut told: Option<ConnectError> = None;
    loop {
        let now = standing.borrow_and_update().clone();
        match (now, &told) {
            (Some(Ok(())), _) => break,
            (Some(Err(error)), before) if before.as_ref() != Some(&error) => {
                telemetry::connection::away(&error.place, error.reason, &error.message);
                told = Some(error);
            }
            _ => {}
        }
        if standing.changed().await.is_err() {
            return;
        }
    }
    if let Some(error) = told {
        telemetry::connection::answers(&error.place);
    }
}

/// Logs each cause why a kubeconfig that was changed while the agent runs is not used.
async fn tell_problems(mut problem: watch::Receiver<Option<KubeconfigProblem>>) {
    while problem.changed().await.is_ok() {
        let now = problem.borrow_and_update().clone();
        if let Some(now) = now {
            telemetry::connection::unused(&now);
        }
    }
}

/// Logs when this replica begins to lead, and when it no longer does; why it cannot take part in the election, each
/// cause once, and when it can.
pub(super) async fn tell_election(mut leading: Leading) {
    const LEASE: &str = "the Lease";
    let (mut told, mut led) = (None, false);
    loop {
        let leads = leading.leads();
        if leads != led {
            telemetry::leads(leads, leading.holder().as_deref());
            led = leads;
        }
        let now = leading.trouble();
        if now != told {
            match &now {
                Some(trouble) => telemetry::unreadable(LEASE, trouble.reason, &trouble.message),
                None => telemetry::readable(LEASE),
            }
            told = now;
        }
        leading.changed().await;
    }
}

impl Connections {
    /// Has every connection watch what the policies of a catalogue need, and revisions beside them, and returns at
    /// once. Both are fetched under the lock, so that of several calls at a time the last one sets the newest watches.
    pub(crate) fn watch(&self, needs: impl FnOnce() -> (Catalogue, Vec<Arc<Revision>>)) {
        let _one = self.watching.locked();
        let (catalogue, beside) = needs();
        for (name, cluster) in &self.by_name {
            // A directory has read every Secret anyway.
            let secrets = cluster
                .server()
                .map_or(SecretReads::Watch, |_| self.secrets);
            // The components of policies that are not active yet, too.
            let mut wanted = watches::of(&catalogue, &beside, name, secrets, &self.components());
            wanted.extend((self.policy_objects && name == LOCAL).then(watches::policies));
            cluster.watch(wanted);
        }
    }

    /// Waits until these connections were opened, and everything they watch now was listed or is known to be
    /// unreadable.
    pub(crate) async fn ready(&self, names: &BTreeSet<String>) {
        let mut opened = self.opened.subscribe();
        // Fails only when the agent is dropped.
        drop(opened.wait_for(|opened| opened.is_superset(names)).await);
        let clusters = names.iter().filter_map(|name| self.by_name.get(name));
        let synced = clusters.map(|cluster| cluster.synced(Patience::Short));
        futures::future::join_all(synced).await;
    }

    /// Waits until a connection answers or is known not to answer, then for the lists of what it watches. `patiently`:
    /// waits for an answer, within a time limit.
    pub(crate) async fn first_listed(&self, name: &str, patiently: bool) {
        let patience = if patiently {
            Patience::Long
        } else {
            Patience::Short
        };
        if let Some(cluster) = self.by_name.get(name) {
            // What cannot be read is reported by whoever reads it.
            drop(cluster.synced(patience).await);
        }
    }

    /// Logs why the `FleetPolicy` objects of a connection that was just opened cannot be read: no reconcile reads them,
    /// so nobody else tells.
    pub(crate) fn tell_policies(&self, name: &str) {
        let cluster = self.by_name.get(LOCAL);
        let Some(cluster) = cluster.filter(|_| self.policy_objects && name == LOCAL) else {
            return;
        };
        let policies = ObjectRef::local(transom_api::API_VERSION, transom_api::KIND, None, "");
        let mut unreadable = cluster.unreadable();
        unreadable.retain(|one| one.unwatched.concerns(&policies));
        for one in unreadable {
            telemetry::unreadable(&one.place, one.reason, &one.message);
        }
    }

    /// Whether the `FleetPolicy` objects could never be read since the start, where policies come from an API server.
    pub(crate) fn policies_unread(&self) -> bool {
        if self.policies_listed().is_ok() {
            self.policies_read.store(true, Ordering::Release);
        }
        !self.policies_read.load(Ordering::Acquire)
    }

    /// Records that a connection has answered, or is known not to answer.
    pub(crate) fn opened(&self, name: &str) {
        self.opened.send_modify(|opened| {
            opened.insert(name.to_owned());
        });
    }

    /// Whether no connection can be used, because all are API servers and none has answered since the start.
    pub(crate) fn all_away(&self) -> bool {
        let away = |server: &Server| server.kubernetes().trouble().is_some();
        !self.by_name.is_empty() && self.all().all(|cluster| cluster.server().is_some_and(away))
    }
}
