//! Performs steps of plans on an API server: sends one request, compares the answer with it, merges the answer into the
//! cache at once, and maps a refusal to a reason. A create fails if the object exists.

mod answer;
pub(super) mod failure;
mod request;

use super::Kubernetes;
use super::counts::{Purpose, RequestCounts};
use super::events::Events;
use super::lease::Leading;
use super::policy_status::PolicyStatuses;
use super::resources::{Resource, Resources, Unresolved};
use super::send::{SendError, Sender, TIMEOUT};
use super::taint_times::TaintTimes;
use answer::WebhookChanges;
use kube::Client;
use request::WrittenPart;
pub(super) use request::as_yaml;
use serde_json::Value;
use std::sync::Arc;
use tokio::time::timeout;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::plan::kept::Kept;
use transom_core::plan::{Step, StepOutcome, WriteFailure, WriteKind};
use transom_core::reference::ObjectRef;

impl Kubernetes {
    /// Performs one step of a policy's plan, only if its object is as it was read.
    pub async fn perform(&self, policy: &str, step: &Step) -> StepOutcome {
        let mut kept = Kept::default();
        let result = self.write(policy, step, &mut kept).await;
        StepOutcome::of(step.target().clone(), step.kind(), result).keeping(kept)
    }

    /// Writes one step; `kept` becomes what the server made of the values.
    async fn write(
        &self,
        policy: &str,
        step: &Step,
        kept: &mut Kept,
    ) -> Result<Option<Object>, WriteFailure> {
        let target = step.target();
        let asking = self.shared.asking(target);
        match self.writer.perform(policy, step).await {
            Ok(Some(object)) => {
                *kept = Kept::of(step, &object);
                // After a delete the object waits for its finalizers; listeners are told.
                let deleted = step.kind() == WriteKind::Delete;
                match deleted {
                    true => self.shared.took(&object, &asking),
                    false => self.shared.wrote(&object, &asking),
                }
                let now = self.shared.known(target).and_then(Result::ok).flatten();
                Ok(now.filter(|now| deleted || now.version == object.version))
            }
            Ok(None) => {
                if let Step::Delete { version, .. } | Step::Patch { version, .. } = step {
                    self.shared.gone(target, version, &asking);
                }
                Ok(None)
            }
            Err(failure) => {
                // The next reconcile requests an unwatched object anyway; none reads the record of a revision.
                let watched = || self.shared.weigh(target).is_some();
                if failure.reason == KnownReason::WriteConflict && watched() {
                    // Lets the next reconcile start from the present object, even if the watch lags. If this read
                    // fails, that reconcile reads again.
                    let _ = self.read_fresh(target).await;
                }
                Err(failure)
            }
        }
    }
}

/// Writes to one API server.
pub struct Writer {
    sender: Sender,
    resources: Resources,
    standing: WebhookChanges,
    taint_times: TaintTimes,
    read_only: bool,
}

impl Writer {
    /// `client` may be shared. A read-only writer reports what it would write, and writes nothing.
    pub(super) fn new(client: Client, resources: Resources, read_only: bool) -> Self {
        let sender = Sender::new(client);
        Self {
            taint_times: TaintTimes::new(sender.clone()),
            sender,
            resources,
            standing: WebhookChanges::default(),
            read_only,
        }
    }

    /// From now on, sends only while this replica leads.
    pub fn lead_by(&self, leading: Leading) {
        self.sender.lead_by(leading);
    }

    /// The requests since the start, of this writer and of all that share its sender.
    pub fn counts(&self) -> &Arc<RequestCounts> {
        self.sender.counts()
    }

    /// Publishes Events within the same rate limit, or none if this writer is read-only; `instance` is the name of this
    /// replica, of at most 128 bytes.
    pub fn events(&self, instance: &str) -> Events {
        Events::new(self.sender.clone(), instance, self.read_only)
    }

    /// Publishes the status of policies within the same rate limit, or nothing if this writer is read-only.
    pub fn policy_statuses(&self) -> PolicyStatuses {
        PolicyStatuses::new(self.sender.clone(), self.read_only)
    }

    /// Whether a webhook of the cluster sets the times of taints: true for `SetByCluster`, false for `SetByUs`.
    pub async fn taint_times_by_webhook(&self) -> bool {
        self.taint_times.by_webhook().await
    }

    /// A taint was written without a time for a webhook to set, and still has none: no installed webhook sets it.
    pub async fn taint_left_without_time(&self) {
        self.taint_times.left_without().await;
    }

    /// Performs one step; returns the object as the server has it now, `None` when it is gone.
    ///
    /// # Errors
    /// `WriteConflict` when the object is not as it was read, `ReadOnly` with what would be written, `AdmissionChanged`
    /// after a write that a webhook changed, and a reason for each way in which a server refuses.
    pub async fn perform(&self, policy: &str, step: &Step) -> Result<Option<Object>, WriteFailure> {
        if self.read_only {
            return Err(WriteFailure {
                reason: KnownReason::ReadOnly,
                message: would(step),
            });
        }
        self.standing.check(policy, step)?;
        let parts = request::parts(step);
        let resource = self.resource_for(step, &parts).await?;
        let mut left: Option<Object> = None;
        for part in parts {
            let part = match &left {
                Some(left) => part.at(&left.version),
                None => part,
            };
            let Some(answer) = self.send(policy, &part, &resource).await? else {
                return Ok(None);
            };
            left = Some(object(step.target(), answer));
        }
        // An object that is being deleted is gone with its last finalizer.
        let ends = left.as_ref().is_some_and(Object::deleting) && step.is_of_finalizers();
        if ends || step.kind() == WriteKind::Delete {
            return Ok(left.filter(held));
        }
        if let Some(left) = &left {
            let changed = answer::changed(step, &left.body);
            self.standing.note(policy, step, &changed)?;
        }
        Ok(left)
    }

    /// Sends the request of one part of a step; `None` when the object to delete is gone already.
    async fn send(
        &self,
        policy: &str,
        part: &WrittenPart<'_>,
        resource: &Resource,
    ) -> Result<Option<Value>, WriteFailure> {
        let step = &*part.step;
        let invalid = |why: &str| {
            let reason = KnownReason::WriteInvalid;
            failure::failed(step.kind(), step.target(), reason, why)
        };
        let missing = part.subresource.filter(|name| !resource.has(name));
        if let Some(name) = missing {
            return Err(invalid(&format!("its kind has no subresource `{name}`")));
        }
        let (verb, request) =
            request::of(policy, part, resource).map_err(|error| invalid(&error.to_string()))?;
        match self.sender.send(verb, Purpose::Work, &request).await {
            Ok(answer) => Ok(Some(answer)),
            Err(refusal) if step.kind() == WriteKind::Delete && failure::is_gone(&refusal) => {
                Ok(None)
            }
            Err(refusal) => {
                // Either the object is gone, or its kind no longer has the subresource: the answer is the same.
                if part.subresource.is_some() && failure::is_gone(&refusal) {
                    let target = step.target();
                    self.resources.doubt(&target.api_version, &target.kind);
                }
                Err(self.refused(step, &refusal))
            }
        }
    }

    /// The kind of a step, resolved again if it lacks the subresource of a part.
    async fn resource_for(
        &self,
        step: &Step,
        parts: &[WrittenPart<'_>],
    ) -> Result<Arc<Resource>, WriteFailure> {
        let resource = self.resource(step).await?;
        let mut subresources = parts.iter().filter_map(|part| part.subresource);
        let target = step.target();
        let lacks = subresources.any(|name| !resource.has(name));
        match lacks && self.resources.doubt(&target.api_version, &target.kind) {
            true => self.resource(step).await,
            false => Ok(resource),
        }
    }

    async fn resource(&self, step: &Step) -> Result<Arc<Resource>, WriteFailure> {
        let target = step.target();
        let refused = |refusal| Err(self.refused(step, &refusal));
        match timeout(
            TIMEOUT,
            self.resources.resolve(&target.api_version, &target.kind),
        )
        .await
        {
            Ok(Ok(resource)) => Ok(resource),
            Ok(Err(Unresolved::Missing | Unresolved::Elsewhere(_))) => {
                refused(SendError::Answered {
                    code: 404,
                    status: None,
                    pause_ms: None,
                })
            }
            Ok(Err(Unresolved::Failed(error))) => refused(SendError::of(error)),
            Err(_) => refused(SendError::late()),
        }
    }

    fn refused(&self, step: &Step, refusal: &SendError) -> WriteFailure {
        let target = step.target();
        if failure::of_kind(refusal) {
            self.resources.forget(&target.api_version, &target.kind);
        }
        failure::of(step.kind(), target, refusal)
    }
}

/// Describes what a step would do.
fn would(step: &Step) -> String {
    let target = step.target();
    match step {
        Step::Create { .. } => format!("would create {target}"),
        Step::Update { changed, .. } => format!("would update {target}: {}", changed.join(", ")),
        Step::Patch { fields, .. } => {
            let paths: Vec<&str> = fields.iter().map(|(path, _)| path.as_str()).collect();
            format!("would patch {target}: {}", paths.join(", "))
        }
        Step::Delete { why, .. } => format!("would delete {target}: {why}"),
    }
}

/// Whether finalizers keep an object after its delete.
fn held(left: &Object) -> bool {
    let finalizers = left.body.pointer("/metadata/finalizers");
    let finalizers = finalizers.and_then(Value::as_array);
    left.deleting() && finalizers.is_some_and(|held| !held.is_empty())
}

/// The object in an answer, without `managedFields`.
fn object(target: &ObjectRef, mut body: Value) -> Object {
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let mut object = Object {
        reference: target.clone(),
        version: String::new(),
        body,
    };
    object.version = object
        .meta("resourceVersion")
        .unwrap_or_default()
        .to_owned();
    object
}
