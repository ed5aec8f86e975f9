//! The trait of a cluster: what the agent asks of an API server and of a directory of manifests alike.

use crate::ReadFailure;
use crate::kubernetes::Server;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use transom_api::status::{PolicyStatus, PrimaryStatus, WatchStatus};
use transom_core::contract::decide::Review;
use transom_core::inputs::request::Requester;
use transom_core::object::Object;
use transom_core::observation::{Observation, Unreadable};
use transom_core::plan::{Outcome, Plan, Step, StepOutcome, WriteFailure};
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::report::Report;
use transom_core::stamp::Stamp;
use transom_core::watches::{Scope, Watches};

/// The result of a read; `None` when the object does not exist.
pub type ReadResult = Result<Option<Object>, ReadFailure>;

/// Policies and their primaries whose status is kept; `None` for all primaries of a policy.
pub type KeptStatuses = BTreeMap<String, Option<BTreeSet<ObjectRef>>>;

/// The answer to a question about access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessVerdict {
    /// Whether it is allowed.
    pub allowed: bool,
    /// What the cluster says to that.
    pub why: String,
}

/// How long to wait for a cluster that gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Until it is known that it does not answer.
    Short,
    /// As long as a first answer may take.
    Long,
    /// Until it answers.
    Endless,
}

/// A cluster: it is watched, read and written, and keeps what is published about policies and primaries.
pub trait Cluster: Send + Sync {
    /// Sets the kinds whose changes are observed, beside what the agent made. Returns at once. What could be read
    /// before can be read until what replaces it was listed.
    fn watch(&self, wanted: Watches);

    /// Waits until everything that is watched was listed, or is known to be unreadable. The error says why the cluster
    /// gives no answer. A directory does not wait: every file was read when it was opened.
    fn synced(&self, patience: Patience) -> BoxFuture<'_, Result<(), Unreadable>>;

    /// Every change from now on.
    fn changes(&self) -> BoxStream<'static, Observation>;

    /// Everything that cannot be read now; the cluster alone when nothing of it can be read.
    fn unreadable(&self) -> Vec<Unreadable>;

    /// What cannot be followed now, as a policy's status names it: kinds, or files, which may hold any kind.
    fn watch_errors(&self) -> Vec<WatchStatus>;

    /// The objects of a kind, in one namespace or in all, whose labels match, or cannot be read; sorted.
    fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        labels: &Selector,
    ) -> Vec<ObjectRef>;

    /// Checks that every object of a scope is known: only then an object that [`Cluster::list`] lacks does not exist.
    ///
    /// # Errors
    /// Why objects may be missing.
    fn complete(&self, scope: &Scope) -> Result<(), ReadFailure>;

    /// Waits until every object of a scope is known, while that is being listed, but not for long.
    fn listed<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, ()>;

    /// The objects of a kind that bear the stamp of a policy.
    fn made(&self, policy: &str, api_version: &str, kind: &str) -> BTreeSet<ObjectRef>;

    /// The objects that carry the agent's stamp, each with it.
    fn stamped(&self) -> Vec<(ObjectRef, Stamp)>;

    /// Upper bound of the bytes that an object takes once it is parsed; `None` when only a read shows it.
    fn weigh(&self, reference: &ObjectRef) -> Option<usize>;

    /// Reads an object as it was last observed, or requests it.
    fn read<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult>;

    /// Reads an object for a resync. Requests it again if its state is known only from an answer to a request of the
    /// agent, and no watch has confirmed it.
    fn read_confirmed<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult>;

    /// Reads an object from its source, because a watch may lag. For actions that cannot be undone. A directory reads
    /// only the agent's own files again; a user's file that is being written counts as it was last whole. While any
    /// file cannot be read, an object that is in none is an error.
    fn confirm<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult>;

    /// Requests an object with all its fields, also those that no watch keeps. Waits for the first answer of an API
    /// server, or until it is known not to answer.
    fn read_whole<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult>;

    /// Like [`Cluster::read_whole`], for an object in which agents keep a record. In a directory only the agent's own
    /// files count: whoever provides the manifests must not say what was approved, or how much was changed.
    fn read_record<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult>;

    /// Requests such objects of the kind and namespace of `like` that have a label, with all their fields. Those that
    /// cannot be used are left out. Waits as [`Cluster::read_whole`] does.
    fn list_records<'a>(
        &'a self,
        like: &'a ObjectRef,
        label: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Vec<Object>, ReadFailure>>;

    /// Requests the metadata of the object that `place` names, or without a name of all objects of its kind and
    /// namespace, whose labels match; returns those that are wanted. For actions that cannot be undone, because a watch
    /// may lag. Empty when the kind is not served. A directory answers from memory, and fails while a file cannot be
    /// read or several files define an object of the scope.
    fn list_metadata<'a>(
        &'a self,
        place: &'a ObjectRef,
        labels: &'a Selector,
        wanted: &'a (dyn Fn(&Object) -> bool + Sync),
    ) -> BoxFuture<'a, Result<Vec<Object>, ReadFailure>>;

    /// A place that cannot be read now, where an object that was not found may be. Always `None` for an API server,
    /// whose answer to [`Cluster::confirm`] leaves no doubt.
    fn unread(&self, object: &ObjectRef) -> Option<String>;

    /// Asks whether the requester, or without one the agent, may do something. A directory answers with a manifest of
    /// kind SubjectAccessReview or SelfSubjectAccessReview whose spec is this question.
    fn review<'a>(
        &'a self,
        review: &'a Review,
        requester: Option<&'a Requester>,
    ) -> BoxFuture<'a, Result<AccessVerdict, ReadFailure>>;

    /// Performs one step of a policy's plan, only if its object is as it was read.
    fn perform<'a>(&'a self, policy: &'a str, step: Step) -> BoxFuture<'a, StepOutcome>;

    /// Publishes the result of a reconcile: in a status file, which goes with the primary, or for a failure as an
    /// Event. Returns without waiting for a server. `uid` is the primary's, empty when it is gone.
    fn publish(&self, report: &Report, uid: &str) -> io::Result<()>;

    /// The last published status of a primary, by this agent or an earlier one. Always `None` for an API server: an
    /// Event is no state, and the top failures are a part of the policy's status.
    fn reported(&self, policy: &str, primary: &ObjectRef) -> Option<PrimaryStatus>;

    /// Publishes the status of a policy if it differs: in a status file, or in the `FleetPolicy` object if there is
    /// one. Returns without waiting for a server.
    fn publish_policy(&self, policy: &str, status: &PolicyStatus) -> io::Result<()>;

    /// The last published status of a policy, by this agent or an earlier one.
    fn policy_status(&self, policy: &str) -> Option<PolicyStatus>;

    /// Drops what is published, or still to be written, about all policies and primaries except these. What an API
    /// server keeps about them goes with the `FleetPolicy` object, or expires.
    fn retain(&self, kept: &KeptStatuses) -> io::Result<()>;

    /// The same for one policy that is gone, and its primaries.
    fn forget(&self, policy: &str) -> io::Result<()>;

    /// The API server, for what only an API server has: token reviews, webhooks, counts of requests.
    fn server(&self) -> Option<&Server>;
}

/// Performs the steps of a plan in order, each on the cluster of its object, as far as failures permit. `cluster`
/// gives the cluster of an object, or says why there is none.
pub async fn apply<'a>(
    mut plan: Plan,
    cluster: impl Fn(&ObjectRef) -> Result<&'a dyn Cluster, WriteFailure>,
) -> Outcome {
    let mut outcome = Outcome::default();
    for step in std::mem::take(&mut plan.steps) {
        if !outcome.permits(&plan, &step) {
            continue;
        }
        let step = match left(&outcome, step.target()) {
            Some(version) => step.at(version),
            None => step,
        };
        let done = match cluster(step.target()) {
            Ok(cluster) => cluster.perform(&plan.policy, step).await,
            Err(failure) => StepOutcome::failed(&step, failure),
        };
        outcome.steps.push(done);
    }
    outcome
}

/// The version in which an earlier step of the same plan left an object, where that is known.
fn left<'a>(outcome: &'a Outcome, object: &ObjectRef) -> Option<&'a str> {
    let mut steps = outcome.steps.iter().rev();
    let step = steps.find(|step| step.target == *object)?;
    step.left.as_ref().map(|left| left.version.as_str())
}
