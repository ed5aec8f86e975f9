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
use super::shared::Asking;
use super::taint_times::TaintTimes;
use answer::WebhookChanges;
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
        let target = step.target();
        let asking = self.shared.asking(target);
        let done = |left| StepOutcome::of(target.clone(), step.kind(), Ok(left));
        match self.writer.perform_parts(policy, step).await {
            Ok(Some(object)) => {
                // After a delete the object waits for its finalizers; listeners are told.
                let deleted = step.kind() == WriteKind::Delete;
                match deleted {
                    true => self.shared.took(&object, &asking),
                    false => self.shared.wrote(&object, &asking),
                }
                let left = self.known(target);
                let left = left.filter(|now| deleted || now.version == object.version);
                done(left).keeping(Kept::of(step, &object))
            }
            Ok(None) => {
                if let Step::Delete { version, .. } | Step::Patch { version, .. } = step {
                    self.shared.gone(target, version, &asking);
                }
                done(None)
            }
            Err(FailedStep { failure, part }) => self.failed(step, failure, part, &asking).await,
        }
    }

    /// The outcome of a step that failed, perhaps after a part of it was written.
    async fn failed(
        &self,
        step: &Step,
        failure: WriteFailure,
        part: Option<Box<PartInPlace>>,
        asking: &Asking,
    ) -> StepOutcome {
        let target = step.target();
        if let Some(part) = &part {
            self.shared.wrote(&part.object, asking);
        }
        // The next reconcile requests an unwatched object anyway; none reads the record of a revision.
        let watched = || self.shared.weigh(target).is_some();
        if failure.reason == KnownReason::WriteConflict && watched() {
            // Lets the next reconcile start from the present object, even if the watch lags. If this read fails, that
            // reconcile reads again.
            let _ = self.read_fresh(target).await;
        }
        match part {
            Some(part) => {
                let left = self.known(target);
                let left = left.filter(|now| now.version == part.object.version);
                let kept = Kept::of(&part.step, &part.object);
                StepOutcome::in_part(step, failure, part.step, left).keeping(kept)
            }
            None => StepOutcome::failed(step, failure),
        }
    }

    /// What a read gives of an object now, if no request is needed.
    fn known(&self, target: &ObjectRef) -> Option<Object> {
        self.shared.known(target)?.ok()?
    }
}

/// Why a step failed, and which part of it is in place all the same.
struct FailedStep {
    failure: WriteFailure,
    part: Option<Box<PartInPlace>>,
}

/// What was written of a step before the rest failed.
struct PartInPlace {
    /// A patch of these fields.
    step: Step,
    /// The object in the answer to it.
    object: Object,
}

impl From<WriteFailure> for FailedStep {
    fn from(failure: WriteFailure) -> Self {
        let part = None;
        Self { failure, part }
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
    /// A read-only writer reports what it would write, and writes nothing.
    pub(super) fn new(sender: Sender, resources: Resources, read_only: bool) -> Self {
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
    pub fn taint_left_without_time(&self) {
        self.taint_times.left_without();
    }

    /// Performs one step; returns the object as the server has it now, `None` when it is gone.
    ///
    /// # Errors
    /// `WriteConflict` when the object is not as it was read, `ReadOnly` with what would be written, `AdmissionChanged`
    /// after a write that a webhook changed, and a reason for each way in which a server refuses.
    pub async fn perform(&self, policy: &str, step: &Step) -> Result<Option<Object>, WriteFailure> {
        let done = self.perform_parts(policy, step).await;
        done.map_err(|FailedStep { failure, .. }| failure)
    }

    /// The same; an error also says which part of the step is in place.
    async fn perform_parts(&self, policy: &str, step: &Step) -> Result<Option<Object>, FailedStep> {
        if self.read_only {
            return Err(FailedStep::from(WriteFailure {
                reason: KnownReason::ReadOnly,
                message: would(step),
            }));
        }
        self.standing.check(policy, step)?;
        let parts = request::parts(step);
        let resource = self.resource_for(step, &parts).await?;
        let (mut sent, mut left) = (Vec::new(), None::<Object>);
        for part in parts {
            let part = match &left {
                Some(left) => part.at(&left.version),
                None => part,
            };
            match self.send(policy, &part, &resource).await {
                Ok(Some(answer)) => left = Some(object(step.target(), answer)),
                Ok(None) => return Ok(None),
                Err(failure) => {
                    let in_place = request::joined(sent).zip(left);
                    let part = in_place.map(|(step, object)| PartInPlace { step, object });
                    let part = part.map(Box::new);
                    return Err(FailedStep { failure, part });
                }
            }
            sent.push(part);
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
        let (verb, request) = request::of(policy, part, resource)
            .map_err(|error| invalid(step, &error.to_string()))?;
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

    /// The kind of a step, resolved again if it lacks the subresource of a part; an error if it still does. Checked of
    /// all parts before the first one is sent.
    async fn resource_for(
        &self,
        step: &Step,
        parts: &[WrittenPart<'_>],
    ) -> Result<Arc<Resource>, WriteFailure> {
        let resource = self.resource(step).await?;
        let lacks = |resource: &Resource| {
            let mut subresources = parts.iter().filter_map(|part| part.subresource);
            subresources.find(|name| !resource.has(name))
        };
        let target = step.target();
        let is_doubted = || self.resources.doubt(&target.api_version, &target.kind);
        let resource = match lacks(&resource).is_some() && is_doubted() {
            true => self.resource(step).await?,
            false => resource,
        };
        match lacks(&resource) {
            Some(name) => {
                let why = format!("its kind has no subresource `{name}`");
                Err(invalid(step, &why))
            }
            None => Ok(resource),
        }
    }

    async fn resource(&self, step: &Step) -> Result<Arc<Resource>, WriteFailure> {
        let target = step.target();
        let refused = |refusal| Err(self.refused(step, &refusal));
        match timeout(
            TIMEOUT,
            self.resources
                .resolve_for_write(&target.api_version, &target.kind),
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

/// The failure of a step that no server can take.
fn invalid(step: &Step, why: &str) -> WriteFailure {
    failure::failed(step.kind(), step.target(), KnownReason::WriteInvalid, why)
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
