//! The clusters by name of connection. A connection that fails fails only for the objects on it.

mod components;
mod opening;
mod reading;
mod writing;

pub(crate) use opening::server;

use components::Followed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use transom_api::KnownReason;
use transom_api::status::{PolicyStatus, PrimaryStatus, WatchStatus};
use transom_cluster::kubernetes::{Approvals, Kubernetes, Leadership, Leading, Server};
use transom_cluster::{Cluster, ReadFailure};
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::plan::TimeAdded;
use transom_core::policy::Policy;
use transom_core::policy::selector::Selector;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::share::lock::MutexExt as _;
use transom_core::watches::{self, SecretReads};

/// The connections of an agent.
pub(crate) struct Connections {
    pub(super) by_name: BTreeMap<String, Arc<dyn Cluster>>,
    secrets: SecretReads,
    home: Option<String>,
    leadership: Mutex<Option<Leadership>>,
    policy_objects: bool,
    /// Whether a `FleetPolicy` object changed since the policies were last read.
    pub(super) policies_changed: AtomicBool,
    /// Whether all of them were read once since the start.
    policies_read: AtomicBool,
    /// The objects that hold components.
    followed: Mutex<Followed>,
    /// Held while the watches are set.
    watching: Mutex<()>,
    /// The names of connections that have answered, or are known not to answer.
    opened: watch::Sender<BTreeSet<String>>,
}

impl Connections {
    /// Connections by name, without leader election and `FleetPolicy` objects.
    pub(crate) fn new(by_name: BTreeMap<String, Arc<dyn Cluster>>, secrets: SecretReads) -> Self {
        Self {
            by_name,
            secrets,
            home: None,
            leadership: Mutex::default(),
            policy_objects: false,
            policies_changed: AtomicBool::default(),
            policies_read: AtomicBool::default(),
            followed: Mutex::default(),
            watching: Mutex::default(),
            opened: watch::Sender::default(),
        }
    }

    /// Sets the home connection: its API server holds the lease, and outside of pods reviews the tokens of the admin
    /// server.
    pub(crate) fn at(mut self, home: Option<String>) -> Self {
        self.home = home;
        self
    }

    /// The API server of the home connection.
    pub(crate) fn home(&self) -> Option<&Kubernetes> {
        let name = self.home.as_deref()?;
        self.servers().find(|server| server.name() == name)
    }

    /// Sets the leader election: this replica works only while it holds the lease.
    pub(crate) fn elected(mut self, leadership: Option<Leadership>) -> Self {
        if let Some(leadership) = &leadership {
            // Ends with the process.
            drop(tokio::spawn(opening::tell_election(leadership.leading())));
        }
        self.leadership = Mutex::new(leadership);
        self
    }

    /// Whether this replica leads; without leader election it always does.
    pub(crate) fn leading(&self) -> Leading {
        let leadership = self.leadership.locked();
        let leading = leadership.as_ref().map(Leadership::leading);
        leading.unwrap_or_else(Leading::always)
    }

    /// Joins the leader election and waits until the holder, or a failure to learn it, is known. True when this replica
    /// leads; without leader election it always does.
    pub(crate) async fn stand(&self) -> bool {
        if let Some(leadership) = &*self.leadership.locked() {
            leadership.stand();
        }
        let mut leading = self.leading();
        while !leading.leads() && leading.holder().is_none() && leading.trouble().is_none() {
            leading.changed().await;
        }
        leading.leads()
    }

    /// Releases the lease, so that another replica takes over at once.
    pub(crate) async fn release(&self) {
        let leadership = self.leadership.locked().take();
        if let Some(leadership) = leadership {
            leadership.release().await;
        }
    }

    /// Takes policies from the `FleetPolicy` objects of the API server `local`: watches them and writes their status.
    pub(crate) fn with_policy_objects(mut self) -> Self {
        self.policy_objects = true;
        self
    }

    /// The `FleetPolicy` objects, and those that cannot be read, each with its failure. Empty unless policies come from
    /// an API server.
    pub(crate) async fn policy_objects(&self) -> (Vec<Object>, Vec<(ObjectRef, Failure)>) {
        let (mut objects, mut unread) = (Vec::new(), Vec::new());
        let cluster = self.by_name.get(LOCAL).filter(|_| self.policy_objects);
        let every = Selector::default();
        let all = cluster
            .map(|cluster| cluster.list(transom_api::API_VERSION, transom_api::KIND, None, &every))
            .unwrap_or_default();
        for reference in all {
            match self.read(&reference).await {
                Ok(object) => objects.extend(object),
                Err(failure) => unread.push((reference, failure)),
            }
        }
        (objects, unread)
    }

    /// Checks that every `FleetPolicy` object is known, where policies come from an API server.
    ///
    /// # Errors
    /// Why some may be missing.
    pub(crate) fn policies_listed(&self) -> Result<(), ReadFailure> {
        let cluster = self.by_name.get(LOCAL).filter(|_| self.policy_objects);
        cluster.map_or(Ok(()), |cluster| cluster.complete(&watches::policies().0))
    }

    /// Who may approve plans; `None` unless policies come from an API server.
    pub(crate) fn approvals(&self) -> Option<Approvals> {
        let cluster = self.by_name.get(LOCAL).filter(|_| self.policy_objects)?;
        Some(cluster.server()?.kubernetes().approvals())
    }

    /// Notices when a changed object is one of the `FleetPolicy` objects that policies come from.
    pub(crate) fn policy_changed(&self, object: &ObjectRef) {
        if (&*object.api_version, &*object.kind) == (transom_api::API_VERSION, transom_api::KIND) {
            self.mark_policies_changed(&object.cluster);
        }
    }

    /// Records that policies may have changed, when they come from this connection.
    pub(crate) fn mark_policies_changed(&self, name: &str) {
        if self.policy_objects && name == LOCAL {
            self.policies_changed.store(true, Ordering::Release);
        }
    }

    /// How Secrets are read on API servers; `None` when there is no API server.
    pub(crate) fn secret_reads(&self) -> Option<SecretReads> {
        self.wait().then_some(self.secrets)
    }

    /// Whether there is a connection of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The cluster whose objects hold components.
    pub(crate) fn local(&self) -> Option<Arc<dyn Cluster>> {
        self.by_name.get(LOCAL).cloned()
    }

    /// Every connection.
    pub(crate) fn all(&self) -> impl Iterator<Item = &dyn Cluster> {
        self.by_name.values().map(Arc::as_ref)
    }

    /// Those that are API servers.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Kubernetes> {
        self.all()
            .filter_map(Cluster::server)
            .map(Server::kubernetes)
    }

    /// Whether any connection is an API server. Writes wait for its answer, so more reconciles run at once.
    pub(crate) fn wait(&self) -> bool {
        self.servers().next().is_some()
    }

    /// The primary objects of a policy, on the connection that its rule names. An object that the policy made itself is
    /// never one of them; what another policy made may be (see `adr/0065`).
    pub(crate) fn primaries(&self, policy: &Policy) -> Vec<ObjectRef> {
        let rule = &policy.primary;
        let Some(cluster) = self.by_name.get(&rule.cluster) else {
            return Vec::new();
        };
        let mut primaries = cluster.list(&rule.api_version, &rule.kind, None, &rule.labels);
        let made = cluster.made(&policy.name, &rule.api_version, &rule.kind);
        primaries.retain(|primary| rule.admits(primary) && !made.contains(primary));
        primaries
    }

    /// The objects of a kind on one connection, in all namespaces.
    pub(crate) fn list(&self, connection: &str, kind: (&str, &str)) -> Vec<ObjectRef> {
        let cluster = self.by_name.get(connection);
        let list =
            |cluster: &Arc<dyn Cluster>| cluster.list(kind.0, kind.1, None, &Selector::default());
        cluster.map(list).unwrap_or_default()
    }

    /// The watches of API servers that fail now, and the files of directories that cannot be read.
    pub(crate) fn watch_errors(&self) -> Vec<WatchStatus> {
        self.all().flat_map(Cluster::watch_errors).collect()
    }

    /// The last published status of a policy, by this agent or an earlier one.
    pub(crate) fn policy_status(&self, policy: &str) -> Option<PolicyStatus> {
        self.all().find_map(|cluster| cluster.policy_status(policy))
    }

    /// The last published status of a primary, if its cluster keeps it.
    pub(crate) fn reported(&self, policy: &str, primary: &ObjectRef) -> Option<PrimaryStatus> {
        let cluster = self.by_name.get(&primary.cluster)?;
        cluster.reported(policy, primary)
    }

    /// Who sets the time of a taint that is added to an object: a webhook of its API server, or the agent.
    pub(crate) async fn time_added(&self, object: &ObjectRef, now_seconds: i64) -> TimeAdded {
        match self.server(object) {
            Some(server) if server.writer().taint_times_by_webhook().await => {
                TimeAdded::SetByCluster
            }
            _ => TimeAdded::SetByUs(now_seconds),
        }
    }

    /// Records that the webhook left a taint without a time: from now on the agent sets the times there.
    pub(crate) fn left_without_time(&self, object: &ObjectRef) {
        if let Some(server) = self.server(object) {
            server.writer().taint_left_without_time();
        }
    }

    /// The API server of an object.
    fn server(&self, object: &ObjectRef) -> Option<&Kubernetes> {
        let cluster = self.by_name.get(&object.cluster)?;
        cluster.server().map(Server::kubernetes)
    }

    fn cluster(&self, reference: &ObjectRef) -> Result<&dyn Cluster, Failure> {
        self.named(&reference.cluster)
    }

    fn named(&self, name: &str) -> Result<&dyn Cluster, Failure> {
        let known = self.by_name.get(name).map(Arc::as_ref);
        known.ok_or_else(|| {
            let message = format!("no connection has the name `{name}`");
            Failure::known(KnownReason::ReadFailed, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_may_have_changed_only_where_they_come_from() {
        let policy = ObjectRef::local(transom_api::API_VERSION, transom_api::KIND, None, "p");
        let of_hub = ObjectRef {
            cluster: "hub".to_owned(),
            ..policy.clone()
        };
        let other = ObjectRef::local("v1", "ConfigMap", Some("n"), "p");
        let connections = || Connections::new(BTreeMap::new(), SecretReads::Watch);
        let from_files = connections();
        from_files.policy_changed(&policy);
        from_files.mark_policies_changed(LOCAL);
        assert!(!from_files.policies_changed.load(Ordering::Acquire));
        let from_server = connections().with_policy_objects();
        let marked = || from_server.policies_changed.swap(false, Ordering::AcqRel);
        for elsewhere in [&of_hub, &other] {
            from_server.policy_changed(elsewhere);
        }
        from_server.mark_policies_changed("hub");
        assert!(!marked());
        from_server.policy_changed(&policy);
        assert!(marked());
        from_server.mark_policies_changed(LOCAL);
        assert!(marked());
    }
}
