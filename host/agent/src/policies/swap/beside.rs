//! Applies the rules on which policies may work beside each other.

use super::{Newest, Swap};
use crate::policies::Written;
use crate::policies::active::Changes;
use std::sync::Arc;
use transom_core::catalogue::overlap::{self, Candidate};
use transom_core::time::parse_rfc3339;

impl Swap {
    /// Refuses manifests that may not work beside others, and loads those again that now may. Needs only the manifests,
    /// so that the order in which components are loaded does not decide.
    pub(super) fn overlaps(&mut self) -> Changes {
        let mut taken = {
            let known = self.active.lock();
            let candidate = |(name, newest)| {
                let (name, newest): (&Arc<str>, &Newest) = (name, newest);
                let active = known
                    .catalogue
                    .revision(name)
                    .map(|revision| &revision.policy);
                // A policy that cannot be loaded counts with its active revision.
                let newest_or_active = newest
                    .policy
                    .as_ref()
                    .filter(|_| !newest.failed)
                    .or(active)?;
                let created_seconds = newest.written.first().and_then(created_seconds);
                Some(Candidate {
                    newest: newest_or_active,
                    active,
                    created_seconds,
                })
            };
            overlap::refused(&self.newest.iter().filter_map(candidate).collect::<Vec<_>>())
        };
        let mut changes = Changes::new();
        for name in self.newest.keys().cloned().collect::<Vec<_>>() {
            let Some(newest) = self.newest.get_mut(&name) else {
                continue;
            };
            let before = std::mem::replace(&mut newest.taken, taken.contains_key(&name));
            match taken.remove(&name) {
                Some(refusal) => {
                    // The result of its running load no longer counts.
                    newest.number += 1;
                    newest.loading = None;
                    changes.extend(self.narrow(&name));
                    changes.extend(self.refuse(&name, refusal, !before));
                }
                None if before => self.load(&name),
                None => {}
            }
        }
        changes
    }
}

/// When a policy was created, if it comes from an API server.
pub(crate) fn created_seconds(written: &Written) -> Option<i64> {
    parse_rfc3339(
        written
            .value
            .pointer("/metadata/creationTimestamp")?
            .as_str()?,
    )
}
