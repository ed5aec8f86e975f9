//! Whether a candidate gives two answers to the same question.

use super::faults::fault;
use super::{ASKED_AGAIN, TriedPrimary};
use crate::controller::Controller;
use crate::controller::memory::SharedMemory;
use crate::controller::workqueue::Workqueue;
use std::collections::BTreeMap;
use transom_core::reference::ObjectRef;
use transom_core::work::Key;

/// The primaries for which two passes contradict each other, and how. A guest that fails in one of them is not to blame
/// for that: it may only be slow now and then.
pub(super) fn contradictions(
    one: &BTreeMap<Key, TriedPrimary>,
    other: &BTreeMap<Key, TriedPrimary>,
) -> BTreeMap<Key, String> {
    let pairs = one
        .iter()
        .filter_map(|(key, tried)| Some((key, [tried, other.get(key)?])));
    let answers = pairs.filter(|(_, both)| both.iter().all(|tried| fault(&tried.result).is_none()));
    answers
        .filter_map(|(key, [one, other])| Some((key.clone(), one.contradiction(other)?)))
        .collect()
}

impl Controller {
    /// Of the primaries for which two passes contradicted each other: those for which two more passes do so as well,
    /// and how. Something may have changed between two passes that no version of an object tells, and a server that
    /// stalls may show an old state once more; a guest that contradicts itself does it most of the time.
    pub(super) async fn unstable(
        &self,
        queue: &Workqueue,
        live: Option<&SharedMemory>,
        suspects: &BTreeMap<Key, String>,
    ) -> Vec<(ObjectRef, String)> {
        if suspects.is_empty() {
            return Vec::new();
        }
        // Some of them tell enough of a guest that contradicts itself everywhere.
        let some = || suspects.keys().take(ASKED_AGAIN);
        let third = self.again(queue, live, some()).await;
        let fourth = self.again(queue, live, some()).await;
        let unstable = contradictions(&third, &fourth).into_iter();
        unstable
            .map(|(key, how)| ((*key.primary).clone(), how))
            .collect()
    }
}
