//! Performs the steps of the election, one request at a time. The decisions are in `core::lease`.
//! A request times out after half of the time that the lease is held. Fields that other programs set are kept.

use super::{LeaseOptions, Order, Told, Trouble, Until};
use crate::kubernetes::cause::RequestFailure;
use crate::kubernetes::counts::{Purpose, RequestCounts, RequestVerb};
use crate::kubernetes::millis;
use k8s_openapi::api::coordination::v1::{Lease as Body, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::timeout;
use transom_api::KnownReason;
use transom_core::lease::{Election, LeaderElectionRecord, Lease, LeaseStep, Now, Write};

/// The attempt after which nothing is known of the right to write.
const READ: &str = "read";

/// One candidate and its lease.
pub(super) struct LeaderElector {
    leases: Api<Body>,
    place: String,
    name: String,
    election: Election,
    /// The Lease as last read or written.
    body: Option<Body>,
    start: Instant,
    patience: Duration,
    counts: Arc<RequestCounts>,
    tell: watch::Sender<Told>,
    order: watch::Receiver<Order>,
    /// What was attempted in vain, and why.
    trouble: Option<(&'static str, Trouble)>,
}

impl LeaderElector {
    /// A candidate that has not read the Lease yet.
    pub(super) fn new(
        leases: Api<Body>,
        options: &LeaseOptions,
        me: &str,
        counts: Arc<RequestCounts>,
        tell: watch::Sender<Told>,
        order: watch::Receiver<Order>,
    ) -> Self {
        Self {
            leases,
            place: format!("{}/{}", options.namespace, options.name),
            name: options.name.clone(),
            election: Election::new(me, options.timing),
            body: None,
            start: Instant::now(),
            patience: Duration::from_millis(options.timing.hold_ms / 2),
            counts,
            tell,
            order,
            trouble: None,
        }
    }

    /// Tries to hold the lease from `Order::Stand` until `Order::Stop`, then releases it.
    pub(super) async fn run(mut self) {
        let ordered = |order: &Order| *order != Order::Wait;
        if self.order.wait_for(ordered).await.is_err() {
            return;
        }
        loop {
            if *self.order.borrow_and_update() == Order::Stop {
                self.election.stop();
            }
            match self.election.next(self.now()) {
                LeaseStep::Look => self.read_lease().await,
                LeaseStep::Acquire(write) | LeaseStep::Renew(write) | LeaseStep::Release(write) => {
                    self.put(&write).await;
                }
                LeaseStep::Wait(until) => self.wait_until(until).await,
                LeaseStep::Follow(until) => {
                    // Another one leads: nothing is to be written.
                    self.trouble.take_if(|(attempt, _)| *attempt != READ);
                    self.publish();
                    self.wait_until(until).await;
                }
                LeaseStep::Released => return,
            }
            self.publish();
        }
    }

    /// Waits until a time or a new order. A closed channel needs no handling: dropping the sender also aborts this
    /// task.
    async fn wait_until(&mut self, until_ms: u64) {
        let until = self.start + Duration::from_millis(until_ms);
        let _ = tokio::time::timeout_at(until.into(), self.order.changed()).await;
    }

    async fn read_lease(&mut self) {
        self.counts.add(RequestVerb::Get, Purpose::Lease);
        let answer = timeout(self.patience, self.leases.get_opt(&self.name)).await;
        let now = self.now();
        match self.cause(READ, answer) {
            Ok(body) => {
                self.election.saw(body.as_ref().map(lease_of), now);
                self.body = body;
            }
            Err(_) => self.election.failed(now),
        }
    }

    /// Replaces the whole Lease by its name. A PUT also creates it, so every right can be bound to the name.
    async fn put(&mut self, write: &Write) {
        let (verb, attempt) = if write.version.is_some() {
            (RequestVerb::Update, "renew")
        } else {
            (RequestVerb::Create, "make")
        };
        let before = self.body.as_ref().filter(|_| write.version.is_some());
        let body = body_of(&self.name, before, write);
        self.counts.add(verb, Purpose::Lease);
        self.election.sending(write, self.now());
        let how = PostParams::default();
        let sent = self.leases.replace(&self.name, &how, &body);
        let answer = timeout(self.patience, sent).await;
        let now = self.now();
        match self.cause(attempt, answer) {
            Ok(body) => {
                let version = body.metadata.resource_version.as_deref();
                self.election.wrote(write, version.unwrap_or_default(), now);
                self.body = Some(body);
            }
            Err(Some(409)) => self.election.conflicted(now),
            // The Lease was deleted meanwhile.
            Err(Some(404)) if write.version.is_some() => self.election.conflicted(now),
            Err(_) => self.election.failed(now),
        }
    }

    /// The answer, or the status code of a refusal, if there was one. Records the trouble of a failure, except a
    /// conflict, until such a request succeeds: that the Lease can be read says nothing about a write.
    fn cause<T>(
        &mut self,
        attempt: &'static str,
        answer: Result<kube::Result<T>, tokio::time::error::Elapsed>,
    ) -> Result<T, Option<u16>> {
        let (cause, code) = match answer {
            Ok(Ok(answer)) => {
                self.trouble
                    .take_if(|(failed, _)| attempt != READ || *failed == READ);
                return Ok(answer);
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                return Err(Some(status.code));
            }
            Ok(Err(error)) => {
                let code = match &error {
                    kube::Error::Api(status) => Some(status.code),
                    _ => None,
                };
                (RequestFailure::of(&error), code)
            }
            Err(_) => (RequestFailure::late(self.patience), None),
        };
        let message = format!(
            "failed to {attempt} the Lease {}: {}",
            self.place, cause.message
        );
        let reason = match cause.reason {
            KnownReason::ReadForbidden if attempt != READ => KnownReason::WriteForbidden,
            KnownReason::ReadFailed if attempt != READ => KnownReason::WriteFailed,
            reason => reason,
        };
        self.trouble = Some((attempt, Trouble { reason, message }));
        Err(code)
    }

    fn publish(&self) {
        let micros = |wall_us: i64| u64::try_from(wall_us).unwrap_or_default();
        let until = self.election.leads_until();
        let until = until.zip(self.election.others_from_ms());
        let until = until.map(|(until, others_ms)| Until {
            monotonic: self.start + Duration::from_millis(until.monotonic_ms),
            wall: UNIX_EPOCH + Duration::from_micros(micros(until.wall_us)),
            others_from: self.start + Duration::from_millis(others_ms),
        });
        let holder = self.body.as_ref().map(lease_of);
        let holder = holder.and_then(|lease| lease.record.holder);
        let told = Told {
            until,
            holder,
            trouble: self.trouble.as_ref().map(|(_, trouble)| trouble.clone()),
        };
        self.tell.send_if_modified(|before| {
            let changed = *before != told;
            *before = told;
            changed
        });
    }

    fn now(&self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            monotonic_ms: millis(self.start.elapsed()),
            wall_us: i64::try_from(wall.as_micros()).unwrap_or(i64::MAX),
        }
    }
}

/// The fields of a Lease that the election uses.
fn lease_of(body: &Body) -> Lease {
    let spec = body.spec.clone().unwrap_or_default();
    let micros = |time: Option<MicroTime>| time.map(|MicroTime(time)| time.as_microsecond());
    let record = LeaderElectionRecord {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        acquired_us: micros(spec.acquire_time),
        renewed_us: micros(spec.renew_time),
        seconds: spec.lease_duration_seconds,
        transitions: spec.lease_transitions,
    };
    Lease {
        version: body.metadata.resource_version.clone().unwrap_or_default(),
        record,
    }
}

/// The whole Lease to write, based on the one that was read; `before` is `None` if there is no Lease.
fn body_of(name: &str, before: Option<&Body>, write: &Write) -> Body {
    let mut body = before.cloned().unwrap_or_default();
    let time = |micros: Option<i64>| {
        micros
            .and_then(|micros| Timestamp::from_microsecond(micros).ok())
            .map(MicroTime)
    };
    body.metadata.name = Some(name.to_owned());
    body.metadata.resource_version.clone_from(&write.version);
    let LeaderElectionRecord {
        holder,
        acquired_us,
        renewed_us,
        seconds,
        transitions,
    } = write.record.clone();
    body.spec = Some(LeaseSpec {
        holder_identity: holder,
        acquire_time: time(acquired_us),
        renew_time: time(renewed_us),
        lease_duration_seconds: seconds,
        lease_transitions: transitions,
        ..body.spec.unwrap_or_default()
    });
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn reads_back_what_it_writes_and_keeps_fields_of_others() {
        let before: Body = serde_json::from_value(json!({
            "metadata": {"name": "n", "namespace": "ns", "resourceVersion": "6", "labels": {"a": "b"}},
            "spec": {"holderIdentity": "other", "strategy": "OldestEmulationVersion"},
        }))
        .unwrap();
        let record = LeaderElectionRecord {
            holder: Some("me".to_owned()),
            acquired_us: Some(1_000_001),
            renewed_us: Some(-1),
            seconds: Some(15),
            transitions: Some(4),
        };
        let wanted = Write {
            version: Some("7".to_owned()),
            record: record.clone(),
        };
        let sent: Value = serde_json::to_value(body_of("n", Some(&before), &wanted)).unwrap();
        assert_eq!(sent["metadata"]["labels"]["a"], "b");
        assert_eq!(sent["spec"]["strategy"], "OldestEmulationVersion");
        assert_eq!(sent["spec"]["acquireTime"], "1970-01-01T00:00:01.000001Z");
        let back: Body = serde_json::from_value(sent).unwrap();
        assert_eq!(
            lease_of(&back),
            Lease {
                version: "7".to_owned(),
                record
            }
        );
    }

    #[test]
    fn a_new_or_released_lease_has_no_holder() {
        for body in [
            json!({}),
            json!({"spec": {}}),
            json!({"spec": {"holderIdentity": ""}}),
        ] {
            let body: Body = serde_json::from_value(body).unwrap();
            assert_eq!(lease_of(&body).record, LeaderElectionRecord::default());
        }
        let released = Write {
            version: None,
            record: LeaderElectionRecord {
                seconds: Some(1),
                ..LeaderElectionRecord::default()
            },
        };
        let sent = serde_json::to_value(body_of("n", None, &released)).unwrap();
        assert_eq!(sent["spec"], json!({"leaseDurationSeconds": 1}));
    }
}
