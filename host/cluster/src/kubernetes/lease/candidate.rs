//! Performs the steps of the election, one request at a time. The decisions are in `core::lease`.
//! A request times out after half of the time that the lease is held.

use super::leading::{Told, Trouble, Until};
use super::{LeaseOptions, Order, spec};
use crate::kubernetes::cause::Cause;
use crate::kubernetes::counts::{Counts, Purpose, Verb};
use k8s_openapi::api::coordination::v1::Lease as Body;
use kube::Api;
use kube::api::PostParams;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::timeout;
use transom_core::lease::{Election, Now, Step, Write};

/// One candidate and its lease.
pub(super) struct Candidate {
    leases: Api<Body>,
    place: String,
    name: String,
    election: Election,
    /// The Lease as last read or written.
    body: Option<Body>,
    start: Instant,
    patience: Duration,
    counts: Arc<Counts>,
    tell: watch::Sender<Told>,
    order: watch::Receiver<Order>,
    trouble: Option<Trouble>,
}

impl Candidate {
    /// A candidate that has not read the Lease yet.
    pub(super) fn new(
        leases: Api<Body>,
        options: &LeaseOptions,
        me: &str,
        counts: Arc<Counts>,
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
        if self
            .order
            .wait_for(|order| *order != Order::Wait)
            .await
            .is_err()
        {
            return;
        }
        loop {
            if *self.order.borrow_and_update() == Order::Stop {
                self.election.stop();
            }
            match self.election.next(self.now()) {
                Step::Look => self.look().await,
                Step::Acquire(write) | Step::Renew(write) | Step::Release(write) => {
                    self.put(&write).await;
                }
                Step::Wait(until) | Step::Follow(until) => self.rest(until).await,
                Step::Released => return,
            }
            self.publish();
        }
    }

    /// Waits until a time or a new order. A closed channel needs no handling: dropping the sender also aborts this
    /// task.
    async fn rest(&mut self, until_ms: u64) {
        let until = self.start + Duration::from_millis(until_ms);
        let _ = tokio::time::timeout_at(until.into(), self.order.changed()).await;
    }

    async fn look(&mut self) {
        self.counts.add(Verb::Get, Purpose::Lease);
        let answer = timeout(self.patience, self.leases.get_opt(&self.name)).await;
        let now = self.now();
        match self.cause("read", answer) {
            Ok(Ok(body)) => self.saw(body, now),
            Ok(Err(_)) | Err(()) => self.election.failed(now),
        }
    }

    fn saw(&mut self, body: Option<Body>, now: Now) {
        self.election.saw(body.as_ref().map(spec::read), now);
        self.body = body;
    }

    /// Replaces the whole Lease by its name. A PUT also creates it, so every right can be bound to the name.
    async fn put(&mut self, write: &Write) {
        let (verb, attempt) = if write.version.is_some() {
            (Verb::Update, "renew")
        } else {
            (Verb::Create, "make")
        };
        let body = spec::write(
            &self.name,
            self.body.as_ref().filter(|_| write.version.is_some()),
            write,
        );
        self.counts.add(verb, Purpose::Lease);
        self.election.sending(write, self.now());
        let answer = timeout(
            self.patience,
            self.leases
                .replace(&self.name, &PostParams::default(), &body),
        )
        .await;
        let now = self.now();
        match self.cause(attempt, answer) {
            Ok(Ok(body)) => {
                self.election.wrote(
                    write,
                    body.metadata
                        .resource_version
                        .as_deref()
                        .unwrap_or_default(),
                    now,
                );
                self.body = Some(body);
            }
            Ok(Err(409)) => self.election.conflicted(now),
            // The Lease was deleted meanwhile.
            Ok(Err(404)) if write.version.is_some() => self.election.conflicted(now),
            Ok(Err(_)) | Err(()) => self.election.failed(now),
        }
    }

    /// The answer, or the status code of a refusal, if there was one. Records the trouble of a failure, except a
    /// conflict, until a request succeeds.
    fn cause<T>(
        &mut self,
        attempt: &str,
        answer: Result<kube::Result<T>, tokio::time::error::Elapsed>,
    ) -> Result<Result<T, u16>, ()> {
        let (cause, code) = match answer {
            Ok(Ok(answer)) => {
                self.trouble = None;
                return Ok(Ok(answer));
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => return Ok(Err(status.code)),
            Ok(Err(error)) => {
                let code = if let kube::Error::Api(status) = &error {
                    Some(status.code)
                } else {
                    None
                };
                (Cause::of(&error), code)
            }
            Err(_) => (Cause::late(self.patience), None),
        };
        let message = format!(
            "failed to {attempt} the Lease {}: {}",
            self.place, cause.message
        );
        self.trouble = Some(Trouble {
            reason: cause.reason,
            message,
        });
        code.map_or(Err(()), |code| Ok(Err(code)))
    }

    fn publish(&self) {
        let until = self
            .election
            .leads_until()
            .zip(self.election.others_from_ms())
            .map(|(until, others_ms)| Until {
                monotonic: self.start + Duration::from_millis(until.monotonic_ms),
                wall: UNIX_EPOCH
                    + Duration::from_micros(u64::try_from(until.wall_us).unwrap_or_default()),
                others_from: self.start + Duration::from_millis(others_ms),
            });
        let holder = self
            .body
            .as_ref()
            .and_then(|body| spec::read(body).record.holder);
        let told = Told {
            until,
            holder,
            trouble: self.trouble.clone(),
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
            monotonic_ms: u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
            wall_us: i64::try_from(wall.as_micros()).unwrap_or(i64::MAX),
        }
    }
}
