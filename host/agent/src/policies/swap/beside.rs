//! Which policies may work beside each other. Never waits for a component: the manifests decide.

use super::{Newest, Swap};
use crate::policies::Written;
use crate::policies::at_work::Changes;
use std::sync::Arc;
use transom_core::catalogue::overlap::{self, Candidate};
use transom_core::time::parse_rfc3339;

impl Swap {
    /// Refuses manifests that may not work beside others, and has loaded those that may again. It takes no component, so
    /// that the order in which these are loaded does not decide.
    pub(super) fn overlaps(&mut self) -> Changes {
        let mut taken = {
            let known = self.at_work.lock();
            let candidate = |(name, newest)| {
                let (name, newest): (&Arc<str>, &Newest) = (name, newest);
                let at_work = known.catalogue.revision(name).map(|revision| &revision.policy);
                // One that cannot be loaded goes on as it is.
                let newest_or_at_work = newest.policy.as_ref().filter(|_| !newest.failed).or(at_work)?;
                let created_seconds = newest.written.first().and_then(created_seconds);
                Some(Candidate { newest: newest_or_at_work, at_work, created_seconds })
            };
            overlap::refused(&self.newest.iter().filter_map(candidate).collect::<Vec<_>>())
        };
        let mut changes = Changes::new();
        for name in self.newest.keys().cloned().collect::<Vec<_>>() {
            let Some(newest) = self.newest.get_mut(&name) else { continue };
            let before = std::mem::replace(&mut newest.taken, taken.contains_key(&name));
            match taken.remove(&name) {
                Some(refusal) => {
                    // What is being loaded for it counts no more.
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

/// When a policy was made, where an API server says so.
pub(crate) fn created_seconds(written: &Written) -> Option<i64> {
    parse_rfc3339(written.value.pointer("/metadata/creationTimestamp")?.as_str()?)
}
