//! Warning Events on primary objects. Their rate is limited, and a repeat is counted in the existing Event.
//! An Event that cannot be written is dropped.

use super::counts::{Purpose, RequestVerb};
use super::millis;
use super::send::{SendError, Sender};
use super::write::failure;
use http::Request;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use transom_core::plan::{WriteFailure, WriteKind};
use transom_core::reference::ObjectRef;
use transom_core::report::Report;
use transom_core::share::lock::MutexExt as _;
use transom_core::warnings::{EventAction, Warnings, is_worth};
use transom_core::work::Key;

/// `reportingController` of every Event.
const CONTROLLER: &str = "transom.dev/agent";
/// `action` of every Event.
const ACTION: &str = "Reconcile";
/// The most bytes of a note, below the API's 1,024.
const MAX_NOTE: usize = 1_000;
/// The most bytes of the primary's name in the name of an Event.
const MAX_NAME: usize = 200;
/// Namespace of the Events on cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

/// Reports failures as Events on the primary objects.
pub struct Events {
    sender: Sender,
    /// Name of this replica.
    instance: String,
    read_only: bool,
    warnings: Mutex<Warnings>,
    start: Instant,
    names: RandomState,
}

impl Events {
    /// Has reported nothing yet; `instance` is the name of this replica, of at most 128 bytes.
    pub(super) fn new(sender: Sender, instance: &str, read_only: bool) -> Self {
        let (warnings, start, names) = (Mutex::default(), Instant::now(), RandomState::new());
        Self {
            sender,
            instance: instance.to_owned(),
            read_only,
            warnings,
            start,
            names,
        }
    }

    /// Whether a report becomes an Event, unless too many were reported.
    pub(super) fn tells(&self, report: &Report) -> bool {
        !self.read_only && is_worth(report)
    }

    /// Reports a failure as an Event on its primary object, unless too many were reported. `uid` is the primary's:
    /// without it `kubectl describe` does not show the Event.
    ///
    /// # Errors
    /// When the Event cannot be written; the caller need not retry.
    pub async fn publish(&self, report: &Report, uid: &str) -> Result<(), WriteFailure> {
        if !self.tells(report) {
            return Ok(());
        }
        let key = Key::new(&report.policy.as_str().into(), &report.primary);
        let reason = report.reason.as_str();
        let about = (&key, uid);
        let telling = self
            .warnings
            .locked()
            .say(about, reason, millis(self.start.elapsed()));
        match telling {
            EventAction::Nothing => Ok(()),
            EventAction::New => {
                let name: Arc<str> = self.name(&report.primary).into();
                let body = event(report, uid, &name, &self.instance);
                let sent = self
                    .send(RequestVerb::Create, &report.primary, &name, &body)
                    .await;
                let written = sent.is_ok().then_some(name);
                self.warnings.locked().told(&key, reason, written);
                sent
            }
            EventAction::Again { name, count } => {
                let series = json!({"series": {"count": count, "lastObservedTime": now()}});
                let sent = self
                    .send(RequestVerb::Patch, &report.primary, &name, &series)
                    .await;
                if sent.is_err() {
                    self.warnings.locked().told(&key, reason, None);
                }
                sent
            }
        }
    }

    async fn send(
        &self,
        verb: RequestVerb,
        primary: &ObjectRef,
        name: &str,
        body: &Value,
    ) -> Result<(), WriteFailure> {
        let target = ObjectRef {
            cluster: primary.cluster.clone(),
            namespace: Some(namespace(primary).to_owned()),
            ..ObjectRef::local("events.k8s.io/v1", "Event", None, name)
        };
        let sent = match request(verb, &target, body) {
            Ok(request) => self
                .sender
                .send(verb, Purpose::Event, &request)
                .await
                .map(drop),
            Err(error) => Err(SendError::Silent(error.to_string())),
        };
        let kind = if verb == RequestVerb::Create {
            WriteKind::Create
        } else {
            WriteKind::Patch
        };
        sent.map_err(|refusal| failure::of(kind, &target, &refusal))
    }

    /// A unique name for an Event.
    fn name(&self, primary: &ObjectRef) -> String {
        let cut = primary
            .name
            .get(..MAX_NAME)
            .unwrap_or(&primary.name)
            .trim_end_matches(['.', '-']);
        format!(
            "{cut}.{:016x}",
            self.names.hash_one((self.start.elapsed(), &primary.name))
        )
    }
}

fn request(
    verb: RequestVerb,
    target: &ObjectRef,
    body: &Value,
) -> Result<Request<Vec<u8>>, kube::core::request::Error> {
    let requests = kube::core::Request::new(Event::url_path(&(), target.namespace.as_deref()));
    if verb == RequestVerb::Create {
        return requests.create(&PostParams::default(), body.to_string().into_bytes());
    }
    requests.patch(&target.name, &PatchParams::default(), &Patch::Merge(body))
}

fn namespace(primary: &ObjectRef) -> &str {
    primary.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
}

fn event(report: &Report, uid: &str, name: &str, instance: &str) -> Value {
    let primary = &report.primary;
    let mut note = format!("policy `{}`: {}", report.policy, report.message);
    note.truncate(note.floor_char_boundary(MAX_NOTE));
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace(primary)},
        "eventTime": now(),
        "type": "Warning",
        "reason": report.reason.as_str(),
        "action": ACTION,
        "note": note,
        "regarding": {
            "apiVersion": primary.api_version,
            "kind": primary.kind,
            "namespace": primary.namespace,
            "name": primary.name,
            "uid": uid,
        },
        "related": {"apiVersion": transom_api::API_VERSION, "kind": "FleetPolicy", "name": report.policy},
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
    })
}

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}
