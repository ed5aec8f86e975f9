//! Counts the primaries that fail by a fault of a guest, against those that do so under the active revision.

use super::TriedPrimary;
use crate::controller::memory::{LastResult, SharedMemory};
use std::collections::BTreeMap;
use transom_api::KnownReason;
use transom_core::failure::failing;
use transom_core::rollout::Faults;
use transom_core::work::Key;

/// A trial ends early after this many new faults: they are enough to refuse the candidate.
pub(super) const FAULTS: usize = 64;

/// The reason of a result that only a guest can be blamed for.
pub(super) fn fault(result: &LastResult) -> Option<KnownReason> {
    failing::fault(&result.reason)
}

/// For how many primaries the guest fails by its own fault, and that of the active revision does not.
pub(super) fn failures(tried: &BTreeMap<Key, TriedPrimary>, live: &SharedMemory) -> usize {
    let failed = |(_, one): &(&Key, &TriedPrimary)| fault(&one.result).is_some();
    new_faults(tried.iter().filter(failed).map(|(key, _)| key), live)
}

/// How many of these primaries do not fail under the active revision. The lock is taken for each, so that the
/// reconciles of the active revision go on.
pub(super) fn new_faults<'a>(failing: impl Iterator<Item = &'a Key>, live: &SharedMemory) -> usize {
    let is_new = |key: &&Key| {
        let memory = live.lock();
        memory.results.get(*key).and_then(fault).is_none()
    };
    failing.filter(is_new).take(FAULTS).count()
}

pub(super) fn faults_in(memory: &SharedMemory, policy: &str) -> Faults {
    let mut faults = Faults::default();
    memory.each_result(policy, |key, last| {
        faults.primaries += 1;
        if let Some(reason) = failing::counts(&last.reason, last.failures) {
            let fault = ((*key.primary).clone(), reason, last.message.clone());
            faults.now.push(fault);
        }
    });
    faults
}
