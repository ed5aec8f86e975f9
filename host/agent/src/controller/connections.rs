//! The clusters by name of connection. A connection that fails fails only for the objects on it.

mod components;
mod opening;
mod reading;

pub(crate) use opening::server;

use components::Followed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use transom_api::KnownReason;
use transom_api::status::{PolicyStatus, PrimaryStatus, WatchStatus};
use transom_cluster::Cluster;
use transom_cluster::kubernetes::{Approvals, Kubernetes, Leadership, Leading, Server};
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::plan::{Outcome, Plan, StepOutcome, TimeAdded, WriteFailure};
use transom_core::policy::Policy;
use transom_core::policy::selector::Selector;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::report::Report;
use transom_core::rights;
use transom_core::watches::SecretReads;

/// The connections of an agent.
pub(crate) struct Connections {
    pub(super) by_name: BTreeMap<String, Arc<dyn Cluster>>,
    secrets: SecretReads,
    home: Option<String>,
    leadership: Mutex<Option<Leadership>>,
    policy_objects: bool,
    /// Whether a `FleetPolicy` object changed since the policies were last read.
    pub(super) policies_changed: AtomicBool,
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
            followed: Mutex::default(),
            watching: Mutex::default(),
            opened: watch::Sender::default(),
        }
    }

    /// Sets the home connection: its API server holds the lease and reviews the tokens of the admin server.
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
        self.leadership = Mutex::new(leadership);
        self
    }

    fn leadership(&self) -> MutexGuard<'_, Option<Leadership>> {
        let leadership = self.leadership.lock();
        leadership.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this replica leads; without leader election it always does.
    pub(crate) fn leading(&self) -> Leading {
        let leadership = self.leadership();
        let leading = leadership.as_ref().map(Leadership::leading);
        leading.unwrap_or_else(Leading::always)
    }

    /// Joins the leader election and waits until the holder, or a failure to learn it, is known. True when this replica
    /// leads; without leader election it always does.
    pub(crate) async fn stand(&self) -> bool {
        if let Some(leadership) = &*self.leadership() {
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
        let leadership = self.leadership().take();
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
            .map(|cluster| cluster.list(transom_api::API_VERSION, transom_api::KIND, &every))
            .unwrap_or_default();
        for reference in all {
            match self.read(&reference).await {
                Ok(object) => objects.extend(object),
                Err(failure) => unread.push((reference, failure)),
            }
        }
        (objects, unread)
    }

    /// Who may approve plans; `None` unless policies come from an API server.
    pub(crate) fn approvals(&self) -> Option<Approvals> {
        let cluster = self.by_name.get(LOCAL).filter(|_| self.policy_objects)?;
        Some(cluster.server()?.kubernetes().approvals())
    }

    /// Notices when a changed object is one of the `FleetPolicy` objects that policies come from.
    pub(crate) fn policy_changed(&self, object: &ObjectRef) {
        if (&*object.api_version, &*object.kind) == (transom_api::API_VERSION, transom_api::KIND) {
            self.policies_came(&object.cluster);
        }
    }

    /// Records that policies may have changed, when they come from this connection.
    pub(crate) fn policies_came(&self, name: &str) {
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
        let mut primaries = cluster.list(&rule.api_version, &rule.kind, &rule.labels);
        let made = cluster.made(&policy.name, &rule.api_version, &rule.kind);
        primaries.retain(|primary| rule.admits(primary) && !made.contains(primary));
        primaries
    }

    /// Performs the steps of a plan in order, each on the cluster of its object; stops at the first failure.
    pub(crate) async fn apply(&self, plan: Plan) -> Outcome {
        let Plan {
            policy,
            primary,
            steps,
        } = plan;
        let mut outcome = Outcome::default();
        for step in steps {
            let step = match left(&outcome, step.target()) {
                Some(version) => step.at(version),
                None => step,
            };
            let done = match self.cluster(step.target()) {
                Ok(cluster) => {
                    let single = Plan {
                        policy: policy.clone(),
                        primary: primary.clone(),
                        steps: vec![step],
                    };
                    cluster.apply(single).await.steps
                }
                Err(Failure { message, .. }) => {
                    let reason = KnownReason::WriteFailed;
                    vec![StepOutcome::failed(&step, WriteFailure { reason, message })]
                }
            };
            let failed = done.iter().any(|step| step.result.is_err());
            outcome.steps.extend(done);
            if failed {
                break;
            }
        }
        outcome
    }

    /// Performs a plan of one step on an object that no watch needs to cover; returns the object as it is then.
    pub(super) async fn apply_one(&self, plan: Plan) -> Result<Object, WriteFailure> {
        let gone = |target: &ObjectRef| WriteFailure {
            reason: KnownReason::WriteFailed,
            message: format!("{target} was written, and is not there"),
        };
        let target = plan.primary.clone();
        if let (Some(server), [step]) = (self.server(&target), plan.steps.as_slice()) {
            let written = server.writer().perform(&plan.policy, step).await?;
            return written.ok_or_else(|| gone(&target));
        }
        let mut outcome = self.apply(plan).await;
        let done = outcome.steps.pop().ok_or_else(|| gone(&target))?;
        done.result?;
        // A directory keeps every object.
        let there = self.read_whole(&target).await.ok().flatten();
        there.ok_or_else(|| gone(&target))
    }

    /// Where the agent records the limits of its policies: with the Lease, or else in a directory.
    pub(crate) fn limits(&self, lease_namespace: Option<&str>) -> Option<ObjectRef> {
        let at = |cluster: &str, namespace: &str| ObjectRef {
            cluster: cluster.to_owned(),
            ..ObjectRef::local("v1", "ConfigMap", Some(namespace), rights::LIMITS)
        };
        if let (Some(home), Some(namespace)) = (&self.home, lease_namespace) {
            return Some(at(home, namespace));
        }
        let is_directory = |name: &&String| {
            let cluster = self.by_name.get(*name);
            cluster.is_some_and(|cluster| cluster.server().is_none())
        };
        let local = self.by_name.keys().find(|name| *name == LOCAL);
        let mut directories = local
            .into_iter()
            .chain(self.by_name.keys())
            .filter(is_directory);
        directories.next().map(|name| at(name, rights::LEASE))
    }

    /// Publishes the result of a reconcile on the primary's cluster. `uid` is the primary's, empty when it is gone.
    pub(crate) fn publish(&self, report: &Report, uid: &str) -> std::io::Result<()> {
        let cluster = self.by_name.get(&report.primary.cluster);
        cluster.map_or(Ok(()), |cluster| cluster.publish(report, uid))
    }

    /// Removes every status except these, on every cluster; returns the errors.
    pub(crate) fn retain_status(
        &self,
        policies: &BTreeSet<String>,
        primaries: &BTreeSet<(String, ObjectRef)>,
    ) -> Vec<std::io::Error> {
        let retained = self.all().map(|one| one.retain(policies, primaries));
        retained.filter_map(Result::err).collect()
    }

    /// Publishes the status of a policy on every cluster; returns the first error.
    pub(crate) fn publish_policy(
        &self,
        policy: &str,
        status: &PolicyStatus,
    ) -> std::io::Result<()> {
        // Collected first, so that an error on one cluster does not skip the others.
        let told = self.all().map(|one| one.publish_policy(policy, status));
        told.collect::<Vec<_>>().into_iter().collect()
    }

    /// Publishes that a tag of a policy moved, as an Event on its object if there is one.
    pub(crate) fn warn_of_policy(&self, policy: &str, message: &str) {
        let local = self.by_name.get(LOCAL);
        if let Some(server) = local.and_then(|local| local.server()) {
            server.warn_of_policy(policy, KnownReason::TagMoved, message);
        }
    }

    /// Writes every pending policy status, each once. For the end of the process.
    pub(crate) async fn finish_policies(&self) {
        for server in self.all().filter_map(Cluster::server) {
            server.finish().await;
        }
    }

    /// Records the status that a `FleetPolicy` object has now, so that it is not written again.
    pub(crate) fn found_policy_status(&self, policy: &str, status: &PolicyStatus) {
        for server in self.all().filter_map(Cluster::server) {
            server.found(policy, status);
        }
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
    pub(crate) async fn left_without_time(&self, object: &ObjectRef) {
        if let Some(server) = self.server(object) {
            server.writer().taint_left_without_time().await;
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

/// The version in which an earlier step of the same plan left an object, where that is known.
fn left<'a>(outcome: &'a Outcome, object: &ObjectRef) -> Option<&'a str> {
    let mut steps = outcome.steps.iter().rev();
    let step = steps.find(|step| step.target == *object)?;
    step.left.as_ref().map(|left| left.version.as_str())
}
