//! Bounds what the earlier revision of a policy may do while its newest manifest cannot take over.

use super::{GRACE, Newest, Swap};
use crate::policies::active::Changes;
use crate::policies::load::Loaded;
use std::sync::Arc;
use transom_core::catalogue::{Change, Revision};
use transom_core::policy::{Policy, bound};

impl Swap {
    /// Bounds the earlier revisions of policies whose components take long.
    pub(in crate::policies) fn narrow_slow(&mut self) -> Changes {
        let slow = |newest: &Newest| newest.loading.is_some_and(|since| since.elapsed() > GRACE);
        let slow: Vec<_> = self
            .newest
            .iter()
            .filter(|(_, one)| slow(one))
            .map(|(name, _)| name.clone())
            .collect();
        slow.iter().flat_map(|name| self.narrow(name)).collect()
    }

    /// Bounds the earlier revision of a policy by what its newest manifest says.
    pub(super) fn narrow(&self, name: &str) -> Changes {
        let Some(newest) = self
            .newest
            .get(name)
            .and_then(|newest| newest.policy.as_ref())
        else {
            return Vec::new();
        };
        self.bound(name, |earlier| bound::bounded(earlier, newest))
    }

    /// Activates the last good revision with a bounded policy.
    pub(super) fn bound(&self, name: &str, bounded: impl FnOnce(&Policy) -> Policy) -> Changes {
        let Some(good) = self.good.get(name) else {
            return Vec::new();
        };
        let Revision {
            policy,
            trigger,
            decide,
        } = &*good.revision;
        let revision = Arc::new(Revision {
            policy: bounded(policy),
            trigger: trigger.clone(),
            decide: decide.clone(),
        });
        let loaded = Loaded {
            revision: Arc::clone(&revision),
            trigger: good.trigger.clone(),
            decide: good.decide.clone(),
        };
        let changes = self.change(|known| {
            if known.catalogue.revision(name) != Some(&revision) {
                known.catalogue = known.catalogue.bounding(revision);
                known.loaded.insert(name.into(), Arc::new(loaded));
            }
        });
        changes
            .into_iter()
            .map(|(name, _)| (name, Change::Bounded))
            .collect()
    }
}
