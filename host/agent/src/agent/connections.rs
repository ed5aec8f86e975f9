//! The clusters by name of connection: the one file that knows which adapters there are.
//! Never decides anything; a connection that fails fails only for the objects on it.

mod adapter;
mod opening;
mod standing;
mod times;

pub(crate) use adapter::{Cluster, OnServer, Told};
use adapter::{refused, unread};

use crate::telemetry::traces;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;
use transom_api::Word;
use transom_api::status::{PolicyStatus, PrimaryStatus, WatchStatus};
use transom_cluster::kubernetes::{Kubernetes, Leadership, Leading};
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::outcome::Outcome;
use transom_core::plan::Plan;
use transom_core::policy::PrimaryRule;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::report::Report;
use transom_core::watches::SecretReads;

/// The connections of an agent.
pub(crate) struct Connections {
    by_name: BTreeMap<String, Cluster>,
    secrets: SecretReads,
    home: Option<String>,
    leadership: Mutex<Option<Leadership>>,
    policy_objects: bool,
    /// Held while it is said what is watched.
    watching: Mutex<()>,
    /// Those that were opened: their first word was heard.
    opened: watch::Sender<BTreeSet<String>>,
}

impl Connections {
    /// These connections by name.
    pub(crate) fn new(by_name: BTreeMap<String, Cluster>, secrets: SecretReads) -> Self {
        Self {
            by_name,
            secrets,
            home: None,
            leadership: Mutex::default(),
            policy_objects: false,
            watching: Mutex::default(),
            opened: watch::Sender::default(),
        }
    }

    /// The same with a connection on which the agent does what is its own.
    pub(crate) fn at(mut self, home: Option<String>) -> Self {
        self.home = home;
        self
    }

    /// The API server on which the agent does what is its own.
    pub(crate) fn home(&self) -> Option<&Kubernetes> {
        let name = self.home.as_deref()?;
        self.servers().find(|server| server.name() == name)
    }

    /// The same for one of several replicas, which works while it holds the lease.
    pub(crate) fn elected(mut self, leadership: Option<Leadership>) -> Self {
        self.leadership = Mutex::new(leadership);
        self
    }

    /// Whether this replica works; where there is no election, it does.
    pub(crate) fn leading(&self) -> Leading {
        let leadership = self.leadership.lock().unwrap_or_else(PoisonError::into_inner);
        leadership.as_ref().map_or_else(Leading::always, Leadership::leading)
    }

    /// Stands for the lease from now on, and waits for the first word on who has it: true when this replica does the
    /// work, also where there is no election.
    pub(crate) async fn stand(&self) -> bool {
        if let Some(leadership) = &*self.leadership.lock().unwrap_or_else(PoisonError::into_inner) {
            leadership.stand();
        }
        let mut leading = self.leading();
        while !leading.leads() && leading.holder().is_none() && leading.trouble().is_none() {
            leading.changed().await;
        }
        leading.leads()
    }

    /// Gives the lease back, so that another replica takes over at once.
    pub(crate) async fn release(&self) {
        let leadership = self.leadership.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(leadership) = leadership {
            leadership.release().await;
        }
    }

    /// The same, with the `FleetPolicy` objects of the API server of `local` watched, and their status written.
    pub(crate) fn with_policy_objects(mut self) -> Self {
        self.policy_objects = true;
        self
    }

    /// The `FleetPolicy` objects that are there, where policies come from an API server; and those that cannot be read, with
    /// the reason.
    pub(crate) async fn policy_objects(&self) -> (Vec<Object>, Vec<(ObjectRef, Failure)>) {
        let (mut objects, mut unread) = (Vec::new(), Vec::new());
        let cluster = self.by_name.get(LOCAL).filter(|_| self.policy_objects);
        let all = cluster.map(|cluster| cluster.list(transom_api::API_VERSION, transom_api::KIND)).unwrap_or_default();
        for reference in all {
            match self.read(&reference).await {
                Ok(object) => objects.extend(object),
                Err(failure) => unread.push((reference, failure)),
            }
        }
        (objects, unread)
    }

    /// Whether an object is one of the `FleetPolicy` objects that policies come from.
    pub(crate) fn gives_policies(&self, object: &ObjectRef) -> bool {
        let is_policy = object.api_version == transom_api::API_VERSION && object.kind == transom_api::KIND;
        self.policy_objects && is_policy && object.cluster == LOCAL
    }

    /// How Secrets are read on API servers; nothing where there is none.
    pub(crate) fn secret_reads(&self) -> Option<SecretReads> {
        self.wait().then_some(self.secrets)
    }

    /// Whether there is a connection of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Every connection.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Cluster> {
        self.by_name.values()
    }

    /// Those that are API servers.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Kubernetes> {
        self.all().filter_map(|cluster| match cluster {
            Cluster::Kubernetes(on) => Some(&on.server),
            Cluster::Directory(_) => None,
        })
    }

    /// Whether any of them is an API server: writes wait for it, so more reconciles go on at once.
    pub(crate) fn wait(&self) -> bool {
        self.servers().next().is_some()
    }

    /// A connection was opened, or is known to be away.
    fn opened(&self, name: &str) {
        self.opened.send_modify(|opened| {
            opened.insert(name.to_owned());
        });
    }

    /// Reads one object; nothing when there is none.
    ///
    /// # Errors
    /// When it cannot be read, with the reason.
    pub(crate) async fn read(&self, reference: &ObjectRef) -> Result<Option<Object>, Failure> {
        let read = async { self.cluster(reference)?.read(reference).await.map_err(unread(reference)) };
        traces::gather(&reference.kind, read).await
    }

    /// Bytes that an object takes at most once it is read; nothing where that is known only then.
    pub(crate) fn weigh(&self, reference: &ObjectRef) -> Option<usize> {
        self.by_name.get(&reference.cluster)?.weigh(reference)
    }

    /// As [`Connections::read`] for a resync: what only an answer to us has told is asked for anew.
    ///
    /// # Errors
    /// As of [`Connections::read`].
    pub(crate) async fn read_confirmed(&self, reference: &ObjectRef) -> Result<Option<Object>, Failure> {
        let Cluster::Kubernetes(on) = self.cluster(reference)? else { return self.read(reference).await };
        on.server.read_confirmed(reference).await.map_err(unread(reference))
    }

    /// An object as it is now, whatever is known of it: for what cannot be taken back.
    ///
    /// # Errors
    /// When it cannot be asked for, with the reason.
    pub(crate) async fn confirm(&self, object: &ObjectRef) -> Result<Option<Object>, Failure> {
        let Cluster::Kubernetes(on) = self.cluster(object)? else { return self.read(object).await };
        on.server.confirm(object).await.map_err(unread(object))
    }

    /// A place that cannot be read and may hold an object that is not found.
    pub(crate) fn unread(&self, object: &ObjectRef) -> Option<String> {
        match self.by_name.get(&object.cluster)? {
            Cluster::Directory(directory) => directory.unread(),
            // An absence that is known of an API server is confirmed by the server.
            Cluster::Kubernetes(_) => None,
        }
    }

    /// The objects that a policy is about, on every connection; what the agent made itself is never a primary.
    pub(crate) fn primaries(&self, rule: &PrimaryRule) -> Vec<ObjectRef> {
        let Some(cluster) = self.by_name.get(&rule.cluster) else { return Vec::new() };
        let mut primaries = cluster.list(&rule.api_version, &rule.kind);
        let made = cluster.made(&rule.api_version, &rule.kind);
        primaries.retain(|primary| rule.admits(primary) && !made.contains(primary));
        primaries
    }

    /// Performs the steps of a plan in order, each on the cluster of its object; stops at the first failure.
    pub(crate) async fn apply(&self, plan: Plan) -> Outcome {
        let Plan { policy, primary, steps } = plan;
        let mut outcome = Outcome::default();
        for step in steps {
            let done = match self.cluster(step.target()) {
                Ok(cluster) => {
                    let single = Plan { policy: policy.clone(), primary: primary.clone(), steps: vec![step] };
                    cluster.apply(single).await.steps
                }
                Err(failure) => vec![refused(&step, &failure)],
            };
            let failed = done.iter().any(|step| step.result.is_err());
            outcome.steps.extend(done);
            if failed {
                break;
            }
        }
        outcome
    }

    /// Tells the primary's cluster what its reconcile came to; the uid is the primary's, empty when it is gone.
    pub(crate) fn publish(&self, report: &Report, uid: &str) -> std::io::Result<()> {
        self.by_name.get(&report.primary.cluster).map_or(Ok(()), |cluster| cluster.publish(report, uid))
    }

    /// Removes what was told of a primary that is gone.
    pub(crate) fn forget(&self, policy: &str, primary: &ObjectRef) -> std::io::Result<()> {
        self.by_name.get(&primary.cluster).map_or(Ok(()), |cluster| cluster.forget(policy, primary))
    }

    /// Removes every status but these, on every cluster; gives what went wrong.
    pub(crate) fn retain_status(
        &self,
        policies: &BTreeSet<String>,
        primaries: &BTreeSet<(String, ObjectRef)>,
    ) -> Vec<std::io::Error> {
        self.all().filter_map(|cluster| cluster.retain_status(policies, primaries).err()).collect()
    }

    /// Tells every cluster about a policy; fails as the first of those that cannot be told.
    pub(crate) fn publish_policy(&self, policy: &str, status: &PolicyStatus) -> std::io::Result<()> {
        // All are told before the first failure counts.
        let told: Vec<_> = self.all().map(|cluster| cluster.publish_policy(policy, status)).collect();
        told.into_iter().collect()
    }

    /// Writes what was told of policies and is not written yet, each once; for before the end.
    pub(crate) async fn finish_policies(&self) {
        for cluster in self.all() {
            cluster.finish_policies().await;
        }
    }

    /// A `FleetPolicy` object has this status already.
    pub(crate) fn found_policy_status(&self, policy: &str, status: &PolicyStatus) {
        self.all().for_each(|cluster| cluster.found_policy_status(policy, status));
    }

    /// A policy is gone.
    pub(crate) fn forget_policy(&self, policy: &str) {
        self.all().for_each(|cluster| cluster.forget_policy(policy));
    }

    /// Watches of API servers that cannot be followed now, and files of directories that cannot be read.
    pub(crate) fn unwatched(&self) -> Vec<WatchStatus> {
        self.by_name.iter().flat_map(|(name, cluster)| cluster.unwatched(name)).collect()
    }

    /// What was told of a policy before, by this agent or an earlier one.
    pub(crate) fn policy_status(&self, policy: &str) -> Option<PolicyStatus> {
        self.all().find_map(|cluster| cluster.policy_status(policy).ok().flatten())
    }

    /// What was told of a primary last, where its cluster keeps that.
    pub(crate) fn reported(&self, policy: &str, primary: &ObjectRef) -> Option<PrimaryStatus> {
        self.by_name.get(&primary.cluster)?.reported(policy, primary)
    }

    fn cluster(&self, reference: &ObjectRef) -> Result<&Cluster, Failure> {
        let known = self.by_name.get(&reference.cluster);
        known.ok_or_else(|| Failure::known(Word::ReadFailed, format!("there is no connection `{}`", reference.cluster)))
    }
}
