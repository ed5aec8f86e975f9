//! Writes the status of FleetPolicy objects: the newest one, only if it differs, at most once in 5 s for each policy.

use super::counts::{Purpose, Verb};
use super::send::{Refusal, Sender};
use super::write::failure;
use super::{locked, millis};
use http::Request;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};
use transom_api::{API_VERSION, KIND, KnownReason};
use transom_core::failure::Class;
use transom_core::latest::{Latest, Next};
use transom_core::plan::{WriteFailure, WriteKind};
use transom_core::reference::ObjectRef;

/// Field manager of the status.
const FIELD_MANAGER: &str = "transom";
/// The least time between two writes for one policy.
const INTERVAL_MS: u64 = 5_000;
/// One day: how long to wait when there is nothing to write.
const LONG: Duration = Duration::from_secs(86_400);

/// Writes the status of the policies of one API server.
pub struct PolicyStatuses {
    sender: Sender,
    read_only: bool,
    by_policy: Mutex<BTreeMap<String, Latest<Value>>>,
    /// Held during writes, so that only one task writes.
    turn: tokio::sync::Mutex<()>,
    news: Notify,
    start: Instant,
}

impl PolicyStatuses {
    /// Knows no status yet; never writes if `read_only`.
    pub(super) fn new(sender: Sender, read_only: bool) -> Self {
        let (by_policy, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self {
            sender,
            read_only,
            by_policy,
            turn,
            news: Notify::new(),
            start: Instant::now(),
        }
    }

    /// The status that a policy has on the server; the same one is not written again.
    pub fn found(&self, policy: &str, status: Value) {
        self.latest(|all| of(all, policy).found(status));
    }

    /// Publishes the value of a policy's field `status`; [`Self::run`] writes it.
    pub fn publish(&self, policy: &str, status: Value) {
        if self.read_only {
            return;
        }
        self.latest(|all| of(all, policy).want(status));
        self.news.notify_one();
    }

    /// Every other policy was deleted. What is still to be written stays: a policy may be newer than the list, and the
    /// write to a deleted one ends by itself.
    pub fn retain(&self, policies: &BTreeSet<String>) {
        self.latest(|all| {
            all.retain(|policy, latest| policies.contains(policy) || latest.left().is_some());
        });
    }

    /// Writes published statuses as long as it is polled, and calls `told` for each failed write. A failed write is
    /// repeated with back-off, unless the policy is gone or the status is invalid.
    pub async fn run(&self, told: impl Fn(&str, &WriteFailure)) {
        loop {
            let wake_at = self.flush(&told).await;
            tokio::select! {
                () = self.news.notified() => {}
                () = sleep_until(wake_at) => {}
            }
        }
    }

    /// Writes every pending status once, without waiting for the interval; for the end of the process.
    pub async fn finish(&self, told: impl Fn(&str, &WriteFailure)) {
        let _turn = self.turn.lock().await;
        let left = |(policy, latest): (&String, &Latest<Value>)| {
            Some((policy.clone(), latest.left()?.clone()))
        };
        let left: Vec<(String, Value)> = self.latest(|all| all.iter().filter_map(left).collect());
        for (policy, status) in left {
            self.write(&policy, status, &told).await;
        }
    }

    /// Writes what is due; returns when to call this again.
    async fn flush(&self, told: &impl Fn(&str, &WriteFailure)) -> Instant {
        let _turn = self.turn.lock().await;
        let mut wake_at = Instant::now() + LONG;
        let next: Vec<(String, Next<Value>)> = {
            let now_ms = self.now_ms();
            self.latest(|all| {
                all.iter()
                    .map(|(policy, latest)| (policy.clone(), latest.next(now_ms)))
                    .collect()
            })
        };
        for (policy, next) in next {
            match next {
                Next::Nothing => {}
                Next::At(ms) => wake_at = wake_at.min(self.start + Duration::from_millis(ms)),
                Next::Write(status) => {
                    self.write(&policy, status, told).await;
                    wake_at = wake_at.min(Instant::now() + Duration::from_millis(INTERVAL_MS));
                }
            }
        }
        wake_at
    }

    async fn write(&self, policy: &str, status: Value, told: &impl Fn(&str, &WriteFailure)) {
        let sent = match request(policy, &status) {
            Ok(request) => {
                self.sender
                    .send(Verb::Patch, Purpose::Status, &request)
                    .await
            }
            Err(error) => Err(Refusal::Silent(error.to_string())),
        };
        let now_ms = self.now_ms();
        let target = ObjectRef::local(API_VERSION, KIND, None, policy);
        let failed = sent
            .err()
            .map(|refusal| failure::of(WriteKind::Patch, &target, &refusal));
        if let Some(failed) = &failed {
            told(policy, failed);
        }
        let class = failed.as_ref().map(|failed| Class::of(failed.reason));
        let kind_missing = failed.is_some_and(|failed| failed.reason == KnownReason::KindMissing);
        self.latest(|all| match (all.get_mut(policy), class) {
            // The policy is gone. If it is created again, its status is published again.
            (Some(_), Some(Class::Conflict)) => drop(all.remove(policy)),
            (Some(_), Some(_)) if kind_missing => drop(all.remove(policy)),
            // The server would refuse the same status again; the next one may be valid.
            (Some(latest), None | Some(Class::Invalid)) => latest.done(status, true, now_ms),
            (Some(latest), Some(_)) => latest.done(status, false, now_ms),
            (None, _) => {}
        });
    }

    fn latest<R>(&self, change: impl FnOnce(&mut BTreeMap<String, Latest<Value>>) -> R) -> R {
        change(&mut locked(&self.by_policy))
    }

    fn now_ms(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

/// The entry of a policy.
fn of<'a>(all: &'a mut BTreeMap<String, Latest<Value>>, policy: &str) -> &'a mut Latest<Value> {
    all.entry(policy.to_owned())
        .or_insert_with(|| Latest::new(INTERVAL_MS))
}

/// A server-side apply of the whole status, so that fields of an earlier agent are removed.
fn request(policy: &str, status: &Value) -> Result<Request<Vec<u8>>, kube::core::request::Error> {
    let requests = kube::core::Request::new(format!("/apis/{API_VERSION}/fleetpolicies"));
    let body = json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": policy}, "status": status});
    requests.patch_subresource(
        "status",
        policy,
        &PatchParams::apply(FIELD_MANAGER).force(),
        &Patch::Apply(body),
    )
}
