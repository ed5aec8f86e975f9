//! One interface to the two adapters: a directory of manifests, or an API server.

use super::standing;
use crate::telemetry;
use serde_json::json;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use tokio::task::AbortHandle;
use transom_api::status::{PolicyStatus, PrimaryStatus, WatchStatus};
use transom_api::{API_VERSION, KIND, KnownReason};
use transom_cluster::ReadFailure;
use transom_cluster::directory::{self, Directory};
use transom_cluster::kubernetes::{self, Events, Kubernetes, Leading, PolicyStatuses, WatchHealth};
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::observation::{Observation, Unreadable};
use transom_core::outcome::{Outcome, StepOutcome, WriteFailure};
use transom_core::plan::{Plan, Step};
use transom_core::reference::ObjectRef;
use transom_core::report::Report;
use transom_core::signal::Signal;
use transom_core::watches::Scope;

/// Maximum number of unreadable files in a status.
const FILES: usize = 1_000;

/// One cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Cluster {
    /// A directory of manifests.
    Directory(Arc<Directory>),
    /// An API server.
    Kubernetes(Arc<OnServer>),
}

/// An API server with the publishers of Events and policy status.
pub(crate) struct OnServer {
    pub(crate) server: Kubernetes,
    pub(crate) events: Arc<Events>,
    /// Whether this replica may write now.
    pub(crate) leading: Leading,
    statuses: Arc<PolicyStatuses>,
    writing: AbortHandle,
    telling: AbortHandle,
}

impl Drop for OnServer {
    fn drop(&mut self) {
        self.writing.abort();
        self.telling.abort();
    }
}

impl OnServer {
    /// Writes and publishes only while this replica leads, under the name `replica`.
    pub(crate) fn new(server: Kubernetes, replica: &str, leading: Leading) -> Self {
        server.writer().lead_by(leading.clone());
        let events = Arc::new(server.writer().events(replica));
        let statuses = Arc::new(server.writer().policy_statuses());
        let writes = Arc::clone(&statuses);
        let writing = tokio::spawn(async move { writes.run(unwritten).await }).abort_handle();
        let telling = tokio::spawn(standing::tell(server.standing())).abort_handle();
        Self {
            server,
            events,
            leading,
            statuses,
            writing,
            telling,
        }
    }
}

/// The stream of changes of a cluster.
pub(crate) enum Told {
    Directory(directory::Observations),
    Kubernetes(kubernetes::Observations),
}

impl Told {
    /// Waits for the next observation.
    pub(crate) async fn next(&mut self) -> Observation {
        match self {
            Self::Directory(told) => told.next().await,
            Self::Kubernetes(told) => told.next().await,
        }
    }
}

impl Cluster {
    /// Subscribes to every change from now on.
    pub(crate) fn changes(&self) -> Told {
        match self {
            Self::Directory(directory) => Told::Directory(directory.changes()),
            Self::Kubernetes(on) => Told::Kubernetes(on.server.changes()),
        }
    }

    pub(super) async fn read(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        match self {
            Self::Directory(directory) => directory
                .read(std::slice::from_ref(reference))
                .pop()
                .unwrap_or(Ok(None)),
            Self::Kubernetes(on) => on.server.read(reference).await,
        }
    }

    pub(super) fn weigh(&self, reference: &ObjectRef) -> Option<usize> {
        match self {
            Self::Directory(directory) => Some(directory.weigh(reference)),
            Self::Kubernetes(on) => on.server.weigh(reference),
        }
    }

    pub(super) fn list(&self, api_version: &str, kind: &str) -> Vec<ObjectRef> {
        match self {
            Self::Directory(directory) => directory.list(api_version, kind, None),
            Self::Kubernetes(on) => on.server.list(api_version, kind, None),
        }
    }

    /// The Secrets that bear a stamp, in whatever namespace.
    pub(crate) fn stamped(&self) -> Vec<Object> {
        match self {
            Self::Directory(directory) => directory.stamped("v1", "Secret"),
            Self::Kubernetes(on) => on.server.stamped(),
        }
    }

    /// The objects of a kind that the agent created.
    pub(super) fn made(&self, api_version: &str, kind: &str) -> BTreeSet<ObjectRef> {
        match self {
            Self::Directory(directory) => {
                let objects = directory.list(api_version, kind, None).into_iter();
                objects.filter(|object| directory.made(object)).collect()
            }
            Self::Kubernetes(on) => on.server.made(api_version, kind),
        }
    }

    pub(super) async fn apply(&self, plan: Plan) -> Outcome {
        match self {
            Self::Directory(directory) => directory.apply(plan),
            Self::Kubernetes(on) if !on.leading.leads() => not_leading(&plan),
            Self::Kubernetes(on) => on.server.apply(plan).await,
        }
    }

    /// Publishes the result of a reconcile: a directory keeps it in a file; an API server gets an Event if it is a
    /// failure. The Event is written in a task of its own, so that the reconcile does not wait for it.
    pub(super) fn publish(&self, report: &Report, uid: &str) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.publish(report),
            Self::Kubernetes(on) if !on.leading.leads() => Ok(()),
            Self::Kubernetes(on) => {
                let (events, report, uid) =
                    (Arc::clone(&on.events), report.clone(), uid.to_owned());
                drop(tokio::spawn(
                    async move { events.publish(&report, &uid).await },
                ));
                Ok(())
            }
        }
    }

    pub(super) fn forget(&self, policy: &str, primary: &ObjectRef) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.forget(policy, primary),
            Self::Kubernetes(_) => Ok(()),
        }
    }

    pub(super) fn retain_status(
        &self,
        policies: &BTreeSet<String>,
        primaries: &BTreeSet<(String, ObjectRef)>,
    ) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.retain_status(policies, primaries),
            Self::Kubernetes(_) => Ok(()),
        }
    }

    pub(super) fn publish_policy(&self, policy: &str, status: &PolicyStatus) -> io::Result<()> {
        match self {
            Self::Directory(directory) => directory.publish_policy(policy, status),
            Self::Kubernetes(on) => {
                // The status is part of the `FleetPolicy` object.
                let there = on
                    .server
                    .list(API_VERSION, KIND, None)
                    .iter()
                    .any(|object| object.name == policy);
                if there {
                    on.statuses.publish(policy, json!(status));
                }
                Ok(())
            }
        }
    }

    /// Writes every pending policy status.
    pub(super) async fn finish_policies(&self) {
        if let Self::Kubernetes(on) = self {
            on.statuses.finish(unwritten).await;
        }
    }

    /// Records the status that a `FleetPolicy` object already has, so that it is not written again.
    pub(super) fn found_policy_status(&self, policy: &str, status: &PolicyStatus) {
        if let Self::Kubernetes(on) = self {
            on.statuses.found(policy, json!(status));
        }
    }

    /// Forgets the status of a deleted policy.
    pub(super) fn forget_policy(&self, policy: &str) {
        if let Self::Kubernetes(on) = self {
            on.statuses.forget(policy);
        }
    }

    /// The last published status of a policy. Only a directory can read it back.
    pub(super) fn policy_status(&self, policy: &str) -> io::Result<Option<PolicyStatus>> {
        match self {
            Self::Directory(directory) => directory.policy_status(policy),
            Self::Kubernetes(_) => Ok(None),
        }
    }

    /// The last published status of a primary. Only a directory keeps it, in a file.
    pub(super) fn reported(&self, policy: &str, primary: &ObjectRef) -> Option<PrimaryStatus> {
        match self {
            Self::Directory(directory) => directory.reported(policy, primary).ok().flatten(),
            Self::Kubernetes(_) => None,
        }
    }

    /// Everything that cannot be read now. For a server that does not answer this is the only entry.
    pub(crate) fn unreadable(&self) -> Vec<Unreadable> {
        if let Some(away) = self.away() {
            return vec![away];
        }
        match self {
            Self::Directory(directory) => directory.unreadable(),
            Self::Kubernetes(on) => on.server.unreadable(),
        }
    }

    /// What cannot be followed now: kinds of an API server, or files, which may hold any kind.
    pub(super) fn watch_errors(&self, name: &str) -> Vec<WatchStatus> {
        let file = |one: Unreadable| WatchStatus {
            cluster: name.to_owned(),
            api_version: String::new(),
            kind: String::new(),
            namespace: None,
            reason: one.reason.as_str().to_owned(),
            message: one.message,
        };
        let kind = |watch: WatchHealth| {
            let (reason, message) = watch.failure?;
            let Scope {
                api_version,
                kind,
                namespace,
                ..
            } = watch.scope;
            let (cluster, reason) = (name.to_owned(), reason.as_str().to_owned());
            Some(WatchStatus {
                cluster,
                api_version,
                kind,
                namespace,
                reason,
                message,
            })
        };
        match self {
            Self::Directory(directory) => directory
                .unreadable()
                .into_iter()
                .take(FILES)
                .map(file)
                .collect(),
            Self::Kubernetes(on) => on
                .server
                .health()
                .watches
                .into_iter()
                .filter_map(kind)
                .collect(),
        }
    }

    /// Whether a webhook of the cluster sets the times of taints.
    pub(super) async fn sets_taint_times(&self) -> bool {
        match self {
            Self::Directory(_) => false,
            Self::Kubernetes(on) => on.server.writer().taint_times_by_webhook().await,
        }
    }

    /// Records that the webhook left a taint without a time.
    pub(super) async fn left_without_time(&self) {
        if let Self::Kubernetes(on) = self {
            on.server.writer().taint_left_without_time().await;
        }
    }
}

/// The outcome of a step on a cluster that is not connected.
pub(super) fn refused(step: &Step, failure: &Failure) -> StepOutcome {
    let failure = WriteFailure {
        reason: KnownReason::WriteFailed,
        message: failure.message.clone(),
    };
    StepOutcome::failed(step, failure)
}

/// Turns a failure to read an object into one that names it.
pub(super) fn unread(object: &ObjectRef) -> impl FnOnce(ReadFailure) -> Failure {
    move |failure| Failure::known(failure.reason, failure.message).about([object.clone()])
}

/// The outcome of a plan on a replica that does not lead: no step is tried.
fn not_leading(plan: &Plan) -> Outcome {
    let message = "another replica is the leader and does the writes".to_owned();
    let failure = WriteFailure {
        reason: KnownReason::NotLeading,
        message,
    };
    let first = plan
        .steps
        .first()
        .map(|step| StepOutcome::failed(step, failure));
    Outcome {
        steps: first.into_iter().collect(),
        stopped: None,
    }
}

/// Logs that the status of a policy could not be written. Reconciles go on.
fn unwritten(policy: &str, failure: &WriteFailure) {
    let (place, message) = (format!("the status of {policy}"), failure.message.clone());
    telemetry::tell(&Signal::Unreadable {
        place,
        reason: failure.reason,
        message,
    });
}
