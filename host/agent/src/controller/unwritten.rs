//! Statuses of primaries that could not be written, as on a full disk: each is written as soon as possible, unless a
//! newer one was written.

use super::Controller;
use crate::telemetry;
use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;
use transom_core::backoff;
use transom_core::report::Report;
use transom_core::work::Key;

/// The longest wait between two attempts, so that free disk space is noticed soon.
const LONGEST: Duration = Duration::from_secs(30);

/// The unwritten statuses, the newest of each primary.
#[derive(Default)]
pub(super) struct Unwritten {
    left: Mutex<BTreeMap<Key, (Report, String)>>,
    changed: Notify,
}

impl Unwritten {
    /// The lock is held during each write, so that no older status is written after a newer one.
    fn left(&self) -> MutexGuard<'_, BTreeMap<Key, (Report, String)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the unwritten statuses of a deleted policy.
    pub(super) fn forget(&self, policy: &str) {
        self.left().retain(|key, _| *key.policy != *policy);
    }
}

impl Controller {
    /// Writes the status of a primary, or removes it when the primary is gone. What cannot be written now is written
    /// later. A primary has only one reconcile at a time.
    pub(super) fn publish_primary(&self, key: &Key, report: &Report, uid: &str) {
        // From here on no older status is written.
        self.unwritten.left().remove(key);
        if let Err(error) = self.connections.publish(report, uid) {
            telemetry::unpublished(report, &error);
            self.unwritten
                .left()
                .insert(key.clone(), (report.clone(), uid.to_owned()));
            self.unwritten.changed.notify_one();
        }
    }

    /// Tries again to write what could not be written; returns how many are left, and the last error.
    pub(crate) fn write_left(&self) -> Option<(usize, io::Error)> {
        let mut last = None;
        let keys: Vec<Key> = self.unwritten.left().keys().cloned().collect();
        for key in keys {
            let mut left = self.unwritten.left();
            let Some((report, uid)) = left.get(&key) else {
                continue;
            };
            match self.connections.publish(report, uid) {
                Ok(()) => drop(left.remove(&key)),
                Err(error) => last = Some(error),
            }
        }
        last.map(|error| (self.unwritten.left().len(), error))
    }

    /// Keeps writing what is left, with back-off, until the task is aborted.
    pub(crate) async fn keep_writing_statuses(&self) {
        let mut failures = 0;
        loop {
            if failures == 0 {
                self.unwritten.changed.notified().await;
            }
            let wait = backoff::delay_ms(failures, self.seeds.hash_one(failures));
            sleep(Duration::from_millis(wait).min(LONGEST)).await;
            failures = if self.write_left().is_none() {
                0
            } else {
                failures + 1
            };
        }
    }
}
