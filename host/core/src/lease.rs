//! Leader election over one Lease, without I/O: what to do next, and until when the holder may write. The clocks of
//! other replicas do not count: a lease is judged by when this replica last saw it change, as client-go does.

pub mod replaced;

/// The longest that another holder's lease counts as valid, in milliseconds.
const LONGEST_MS: u64 = 600_000;
/// How many of this replica's unanswered writes are remembered.
const MAX_ATTEMPTS: usize = 16;

/// Both clocks at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a monotonic clock, from any start.
    pub monotonic_ms: u64,
    /// Microseconds since 1970.
    pub wall_us: i64,
}

/// The durations of the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease lasts for other candidates, in milliseconds.
    pub lease_ms: u64,
    /// How long its holder writes without a renewal, in milliseconds. The rest of the lease is for requests in
    /// flight, and for clocks of different speed.
    pub hold_ms: u64,
    /// The time between two reads of the lease, or two renewals, in milliseconds.
    pub retry_ms: u64,
}

impl Default for Timing {
    /// As client-go: 15, 10 and 2 seconds.
    fn default() -> Self {
        Self {
            lease_ms: 15_000,
            hold_ms: 10_000,
            retry_ms: 2_000,
        }
    }
}

/// `spec` of a Lease; `None` for an absent field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderElectionRecord {
    /// Identity of the holder; the lease is free when it is absent or empty.
    pub holder: Option<String>,
    /// When it was acquired, in microseconds since 1970 by its holder's clock.
    pub acquired_us: Option<i64>,
    /// When it was renewed last, likewise.
    pub renewed_us: Option<i64>,
    /// How long it lasts, in seconds.
    pub seconds: Option<i32>,
    /// How often the holder changed.
    pub transitions: Option<i32>,
}

/// A Lease as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `metadata.resourceVersion`.
    pub version: String,
    /// Its `spec`.
    pub record: LeaderElectionRecord,
}

/// A write of the Lease, with the version that was read as precondition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The version that must be there; `None` when there must be no Lease.
    pub version: Option<String>,
    /// Its new `spec`.
    pub record: LeaderElectionRecord,
}

/// What to do next. Times are of the monotonic clock, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Read the Lease.
    Look,
    /// Acquire it: it is free, or its holder is dead.
    Acquire(Write),
    /// Renew it.
    Renew(Write),
    /// This replica holds it, or a request failed; nothing to do before this time.
    Wait(u64),
    /// Another replica holds it; nothing to do before this time.
    Follow(u64),
    /// Release it.
    Release(Write),
    /// It is released, or this replica did not hold it.
    Released,
}

/// A write that was sent.
#[derive(Clone, Debug)]
struct LeaseWrite {
    write: Write,
    sent: Now,
}

/// The Lease as it was read last.
#[derive(Clone, Debug)]
struct ObservedLease {
    /// `None` when there is no Lease.
    lease: Option<Lease>,
    /// When it was read, in monotonic milliseconds.
    read_ms: u64,
    /// When its record was first seen as it is, in monotonic milliseconds.
    changed_ms: u64,
}

/// One candidate's view of the election. Sans-IO: the caller reports what was read and written, and gets the next
/// step.
#[derive(Clone, Debug)]
pub struct Election {
    me: String,
    timing: Timing,
    seen: Option<ObservedLease>,
    /// Whether `seen` is known to be out of date.
    stale: bool,
    /// This replica's writes that are in place or may still arrive, in the order in which they were sent.
    attempts: Vec<LeaseWrite>,
    /// The write by which this replica leads.
    held: Option<LeaseWrite>,
    not_before_ms: u64,
    stopping: bool,
}

impl Election {
    /// A candidate that knows nothing yet. Its identity must be unique to this process; another candidate with the
    /// same identity counts as another one.
    pub fn new(me: &str, timing: Timing) -> Self {
        Self {
            me: me.to_owned(),
            timing,
            seen: None,
            stale: true,
            attempts: Vec::new(),
            held: None,
            not_before_ms: 0,
            stopping: false,
        }
    }

    /// Records the Lease as it was read, and when the answer came.
    pub fn saw(&mut self, lease: Option<Lease>, now: Now) {
        let (version, record) = lease
            .as_ref()
            .map(|lease| (&lease.version, &lease.record))
            .unzip();
        let same = self
            .seen
            .as_ref()
            .filter(|seen| seen.lease.as_ref().map(|lease| &lease.record) == record);
        let changed_ms = same.map_or(now.monotonic_ms, |seen| seen.changed_ms);
        // A write that names another version than the current one can no longer succeed.
        let there = |attempt: &LeaseWrite| record == Some(&attempt.write.record);
        self.attempts
            .retain(|attempt| there(attempt) || attempt.write.version.as_ref() == version);
        self.held = self.attempts.iter().find(|attempt| there(attempt)).cloned();
        self.seen = Some(ObservedLease {
            lease,
            read_ms: now.monotonic_ms,
            changed_ms,
        });
        (self.stale, self.not_before_ms) = (false, 0);
    }

    /// Records a write just before it is sent: the time to lead by it counts from now.
    pub fn sending(&mut self, write: &Write, now: Now) {
        if write.record.holder.is_some() {
            self.attempts.push(LeaseWrite {
                write: write.clone(),
                sent: now,
            });
            let over = self.attempts.len().saturating_sub(MAX_ATTEMPTS);
            self.attempts.drain(..over);
        }
    }

    /// Records that a write succeeded and gave this version.
    pub fn wrote(&mut self, write: &Write, version: &str, now: Now) {
        self.saw(
            Some(Lease {
                version: version.to_owned(),
                record: write.record.clone(),
            }),
            now,
        );
    }

    /// Records that a write conflicted with another version: read again soon.
    pub fn conflicted(&mut self, now: Now) {
        (self.stale, self.not_before_ms) = (true, now.monotonic_ms + self.timing.retry_ms / 10);
    }

    /// Records that a request failed with an unknown outcome: read again after a while.
    pub fn failed(&mut self, now: Now) {
        (self.stale, self.not_before_ms) = (true, now.monotonic_ms + self.timing.retry_ms);
    }

    /// Stops leading at once; `next` then releases the lease if this replica holds it.
    pub fn stop(&mut self) {
        (self.stopping, self.not_before_ms) = (true, 0);
    }

    /// What to do now.
    pub fn next(&self, now: Now) -> LeaseStep {
        let retry = self.timing.retry_ms;
        if self.stopping && self.attempts.is_empty() {
            return LeaseStep::Released;
        }
        if now.monotonic_ms < self.not_before_ms {
            return LeaseStep::Wait(self.not_before_ms);
        }
        let Some(seen) = self.seen.as_ref().filter(|_| !self.stale) else {
            return LeaseStep::Look;
        };
        let version = seen.lease.as_ref().map(|lease| lease.version.clone());
        match (&self.held, &seen.lease) {
            (Some(held), _) if self.stopping => LeaseStep::Release(Write {
                version,
                record: self.released(held, now),
            }),
            _ if self.stopping => LeaseStep::Released,
            (Some(held), _) => match held.sent.monotonic_ms + retry {
                due if due > now.monotonic_ms => LeaseStep::Wait(due),
                _ => LeaseStep::Renew(Write {
                    version,
                    record: self.renewed(held, now),
                }),
            },
            (None, lease) => match lease
                .as_ref()
                .and_then(|lease| self.ends_ms(&lease.record, seen.changed_ms))
            {
                Some(ends)
                    if ends > now.monotonic_ms && seen.read_ms + retry <= now.monotonic_ms =>
                {
                    LeaseStep::Look
                }
                Some(ends) if ends > now.monotonic_ms => {
                    LeaseStep::Follow(ends.min(seen.read_ms + retry))
                }
                _ => LeaseStep::Acquire(Write {
                    version,
                    record: self.acquired(lease.as_ref(), now),
                }),
            },
        }
    }

    /// Until when writing is allowed; `None` when this replica does not lead. Both clocks count: the monotonic one
    /// may stand still while the machine sleeps, the wall clock may be set.
    pub fn leads_until(&self) -> Option<Now> {
        let LeaseWrite { sent, .. } = self.held.as_ref().filter(|_| !self.stopping)?;
        let hold_us = i64::try_from(self.hold_ms())
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000);
        Some(Now {
            monotonic_ms: sent.monotonic_ms + self.hold_ms(),
            wall_us: sent.wall_us.saturating_add(hold_us),
        })
    }

    /// From when another replica may lead, in monotonic milliseconds; `None` when this replica does not lead.
    /// Requests that were sent while it led must end before.
    pub fn others_from_ms(&self) -> Option<u64> {
        self.held
            .as_ref()
            .map(|held| held.sent.monotonic_ms + self.timing.lease_ms)
    }

    /// Whether writing is allowed now.
    pub fn leads(&self, now: Now) -> bool {
        self.leads_until().is_some_and(|until| {
            now.monotonic_ms < until.monotonic_ms && now.wall_us < until.wall_us
        })
    }

    /// Always shorter than the lease, whatever the timing says.
    fn hold_ms(&self) -> u64 {
        self.timing.hold_ms.min(self.timing.lease_ms * 4 / 5)
    }

    /// When a held lease ends, counted from when its last change was seen; `None` when it is free.
    fn ends_ms(&self, record: &LeaderElectionRecord, changed_ms: u64) -> Option<u64> {
        record.holder.as_ref().filter(|holder| !holder.is_empty())?;
        let said = record
            .seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0);
        let lasts = said.map_or(self.timing.lease_ms, |seconds| {
            (seconds * 1_000).min(LONGEST_MS)
        });
        Some(changed_ms + lasts)
    }

    /// The time to write: later than in any earlier write of this replica, so that others see each renewal as a
    /// change.
    fn later_us(&self, now: Now) -> i64 {
        let written = self
            .attempts
            .iter()
            .filter_map(|attempt| attempt.write.record.renewed_us)
            .max();
        written.map_or(now.wall_us, |last| now.wall_us.max(last.saturating_add(1)))
    }

    fn seconds(&self) -> Option<i32> {
        i32::try_from(self.timing.lease_ms.div_ceil(1_000)).ok()
    }

    fn acquired(&self, lease: Option<&Lease>, now: Now) -> LeaderElectionRecord {
        let at = Some(self.later_us(now));
        let before = lease.map(|lease| lease.record.transitions.unwrap_or_default().max(0));
        let transitions = before.map_or(0, |before| before.saturating_add(1));
        LeaderElectionRecord {
            holder: Some(self.me.clone()),
            acquired_us: at,
            renewed_us: at,
            seconds: self.seconds(),
            transitions: Some(transitions),
        }
    }

    fn renewed(&self, held: &LeaseWrite, now: Now) -> LeaderElectionRecord {
        LeaderElectionRecord {
            renewed_us: Some(self.later_us(now)),
            ..held.write.record.clone()
        }
    }

    /// The record without a holder; its duration of one second ends the lease for readers that look only at times,
    /// too.
    fn released(&self, held: &LeaseWrite, now: Now) -> LeaderElectionRecord {
        LeaderElectionRecord {
            holder: None,
            seconds: Some(1),
            ..self.renewed(held, now)
        }
    }
}

#[cfg(test)]
mod tests;
