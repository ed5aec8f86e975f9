//! An API server as a replica uses it: it writes and publishes only while it leads.

use super::{Events, Kubernetes, Leading, PolicyStatuses, SeenVersion, Task, WatchHealth};
use crate::{AccessVerdict, Cluster, KeptStatuses, Patience, ReadFailure, ReadResult};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use tokio::time::timeout;
use transom_api::status::{PolicyStatus, PrimaryStatus, WatchStatus};
use transom_api::{API_VERSION, KIND, KnownReason};
use transom_core::contract::decide::Review;
use transom_core::failure::{Class, Failure};
use transom_core::inputs::request::Requester;
use transom_core::object::Object;
use transom_core::observation::{Observation, Unreadable, Unwatched};
use transom_core::plan::{Step, StepOutcome, WriteFailure};
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::report::{self, Reconcile, Report, Schedule};
use transom_core::stamp::Stamp;
use transom_core::watches::{Scope, Watches};
use transom_core::work::Key;

/// Called with a policy whose status could not be written, and why.
type Unwritten = dyn Fn(&str, &WriteFailure) + Send + Sync;

/// An API server with the publishers of Events and policy status. Dropping it ends their tasks.
pub struct Server {
    kubernetes: Kubernetes,
    events: Arc<Events>,
    statuses: Arc<PolicyStatuses>,
    leading: Leading,
    unwritten: Arc<Unwritten>,
    _writing: Task,
}

impl Server {
    /// Publishes under the name `replica`; calls `unwritten` for each policy status that could not be written. Must be
    /// called inside a tokio runtime.
    pub fn new(
        kubernetes: Kubernetes,
        replica: &str,
        leading: Leading,
        unwritten: impl Fn(&str, &WriteFailure) + Send + Sync + 'static,
    ) -> Self {
        let writer = kubernetes.writer();
        writer.lead_by(leading.clone());
        let events = Arc::new(writer.events(replica));
        let statuses = Arc::new(writer.policy_statuses());
        let unwritten: Arc<Unwritten> = Arc::new(unwritten);
        let (writes, told) = (Arc::clone(&statuses), Arc::clone(&unwritten));
        let writing = Task::spawn(async move { writes.run(&*told).await });
        Self {
            kubernetes,
            events,
            statuses,
            leading,
            unwritten,
            _writing: writing,
        }
    }

    /// The API server itself.
    pub fn kubernetes(&self) -> &Kubernetes {
        &self.kubernetes
    }

    /// Records the status that a `FleetPolicy` object was observed to have: another replica or a user may have changed
    /// it.
    pub fn found(&self, policy: &str, status: &PolicyStatus) {
        self.statuses.found(policy, json!(status));
    }

    /// Publishes an Event on a `FleetPolicy` object, if there is one. Returns without waiting for the server.
    pub fn warn_of_policy(&self, policy: &str, reason: KnownReason, message: &str) {
        let object = ObjectRef {
            cluster: self.kubernetes.name().to_owned(),
            ..ObjectRef::local(API_VERSION, KIND, None, policy)
        };
        let Some(found) = self.kubernetes.shared.last_heard(&object) else {
            return;
        };
        let uid = found.body.pointer("/metadata/uid").and_then(Value::as_str);
        let reconcile = Reconcile::new(Key::new(&policy.into(), &object));
        let schedule = Schedule {
            now_seconds: 0,
            resync_seconds: 0,
            failures: 0,
            waited: false,
            seed: 0,
        };
        // Of a class that is a failure, whatever the reason: only of failures an Event is made.
        let failure = Failure::new(Class::Invalid, reason.into(), message);
        let report = report::of(reconcile, Err(failure), schedule);
        drop(self.publish(&report, uid.unwrap_or_default()));
    }

    /// Writes every pending policy status, each once. For the end of the process.
    pub async fn finish(&self) {
        self.statuses.finish(&*self.unwritten).await;
    }

    /// Why nothing was read since the start; `None` once the server has answered.
    fn away(&self) -> Option<Unreadable> {
        let trouble = self.kubernetes.trouble()?;
        Some(Unreadable {
            place: format!("connection {}", trouble.place),
            reason: trouble.reason,
            message: trouble.message,
            unwatched: Unwatched::Connection(self.kubernetes.name().to_owned()),
            objects: Vec::new(),
        })
    }
}

impl Cluster for Server {
    fn watch(&self, wanted: Watches) {
        self.kubernetes.watch(wanted);
    }

    fn synced(&self, patience: Patience) -> BoxFuture<'_, Result<(), Unreadable>> {
        let server = &self.kubernetes;
        async move {
            // Each may end without an answer; `away` tells.
            match patience {
                Patience::Short => drop(server.standing().wait_for(Option::is_some).await),
                Patience::Long => drop(timeout(server.patience(), server.answered()).await),
                Patience::Endless => server.answered().await,
            }
            server.synced().await;
            self.away().map_or(Ok(()), Err)
        }
        .boxed()
    }

    fn changes(&self) -> BoxStream<'static, Observation> {
        stream::unfold(self.kubernetes.changes(), |mut changes| async {
            Some((changes.next().await, changes))
        })
        .boxed()
    }

    fn unreadable(&self) -> Vec<Unreadable> {
        self.away()
            .map_or_else(|| self.kubernetes.unreadable(), |away| vec![away])
    }

    fn watch_errors(&self) -> Vec<WatchStatus> {
        let error = |watch: WatchHealth| {
            let (reason, message) = watch.failure?;
            Some(WatchStatus {
                cluster: self.kubernetes.name().to_owned(),
                api_version: watch.scope.api_version,
                kind: watch.scope.kind,
                namespace: watch.scope.namespace,
                reason: reason.as_str().to_owned(),
                message,
            })
        };
        let watches = self.kubernetes.health().watches;
        watches.into_iter().filter_map(error).collect()
    }

    fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        labels: &Selector,
    ) -> Vec<ObjectRef> {
        let cache = self.kubernetes.shared.cache();
        cache.list(api_version, kind, namespace, labels)
    }

    fn complete(&self, scope: &Scope) -> Result<(), ReadFailure> {
        self.kubernetes.shared.cache().complete(scope)
    }

    fn listed<'a>(&'a self, scope: &'a Scope) -> BoxFuture<'a, ()> {
        self.kubernetes.listed(scope).boxed()
    }

    fn made(&self, policy: &str, api_version: &str, kind: &str) -> BTreeSet<ObjectRef> {
        self.kubernetes.made(policy, api_version, kind)
    }

    fn stamped(&self) -> Vec<(ObjectRef, Stamp)> {
        self.kubernetes.stamped()
    }

    fn weigh(&self, reference: &ObjectRef) -> Option<usize> {
        self.kubernetes.shared.weigh(reference)
    }

    fn read<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        self.kubernetes.read(reference).boxed()
    }

    fn read_confirmed<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        self.kubernetes.read_confirmed(reference).boxed()
    }

    fn confirm<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        self.kubernetes.confirm(reference).boxed()
    }

    fn read_whole<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        async move {
            // It fails only if the task that asks was aborted.
            drop(self.kubernetes.standing().wait_for(Option::is_some).await);
            self.kubernetes.read_whole(reference).await
        }
        .boxed()
    }

    fn read_record<'a>(&'a self, reference: &'a ObjectRef) -> BoxFuture<'a, ReadResult> {
        Cluster::read_whole(self, reference)
    }

    fn list_records<'a>(
        &'a self,
        like: &'a ObjectRef,
        label: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Vec<Object>, ReadFailure>> {
        async move {
            // As for `read_whole`.
            drop(self.kubernetes.standing().wait_for(Option::is_some).await);
            self.kubernetes.list_whole(like, Some(label)).await
        }
        .boxed()
    }

    fn list_metadata<'a>(
        &'a self,
        place: &'a ObjectRef,
        labels: &'a Selector,
        wanted: &'a (dyn Fn(&Object) -> bool + Sync),
    ) -> BoxFuture<'a, Result<Vec<Object>, ReadFailure>> {
        let shared = &self.kubernetes.shared;
        shared.list_metadata(place, labels, wanted).boxed()
    }

    fn unread(&self, _object: &ObjectRef) -> Option<String> {
        None
    }

    fn review<'a>(
        &'a self,
        question: &'a Review,
        requester: Option<&'a Requester>,
    ) -> BoxFuture<'a, Result<AccessVerdict, ReadFailure>> {
        self.kubernetes.approvals().ask(question, requester).boxed()
    }

    fn perform<'a>(&'a self, policy: &'a str, step: Step) -> BoxFuture<'a, StepOutcome> {
        async move {
            if self.leading.leads() {
                return self.kubernetes.perform(policy, &step).await;
            }
            let failure = WriteFailure {
                reason: KnownReason::NotLeading,
                message: "this replica is not the leader".to_owned(),
            };
            StepOutcome::failed(&step, failure)
        }
        .boxed()
    }

    fn publish(&self, report: &Report, uid: &str) -> io::Result<()> {
        if self.leading.leads() && self.events.tells(report) {
            // In a task of its own, so that the reconcile does not wait for it. An Event that fails is dropped.
            let (events, report, uid) = (Arc::clone(&self.events), report.clone(), uid.to_owned());
            drop(tokio::spawn(
                async move { events.publish(&report, &uid).await },
            ));
        }
        Ok(())
    }

    fn reported(&self, _policy: &str, _primary: &ObjectRef) -> Option<PrimaryStatus> {
        None
    }

    fn publish_policy(&self, policy: &str, status: &PolicyStatus) -> io::Result<()> {
        let mut policies = self
            .list(API_VERSION, KIND, None, &Selector::default())
            .into_iter();
        if let Some(object) = policies.find(|object| object.name == policy) {
            let seen = self.kubernetes.shared.last_heard(&object);
            let seen = seen.map(|seen| SeenVersion {
                uid: seen.uid().to_owned(),
                version: seen.version,
            });
            // A policy that cannot be decoded has neither, and still gets its status.
            let seen = seen.filter(|seen| !seen.uid.is_empty());
            self.statuses.publish(policy, seen, json!(status));
        }
        Ok(())
    }

    fn policy_status(&self, policy: &str) -> Option<PolicyStatus> {
        let object = ObjectRef {
            cluster: self.kubernetes.name().to_owned(),
            ..ObjectRef::local(API_VERSION, KIND, None, policy)
        };
        let mut object = self.kubernetes.shared.last_heard(&object)?;
        let status = object.body.get_mut("status")?.take();
        serde_json::from_value(status).ok()
    }

    fn retain(&self, kept: &KeptStatuses) -> io::Result<()> {
        self.statuses.retain(|policy| kept.contains_key(policy));
        Ok(())
    }

    fn forget(&self, policy: &str) -> io::Result<()> {
        self.statuses.retain(|other| other != policy);
        Ok(())
    }

    fn server(&self) -> Option<&Server> {
        Some(self)
    }
}
