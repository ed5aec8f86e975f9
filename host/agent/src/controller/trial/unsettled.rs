//! Whether a candidate comes to rest: it is tried as if it had written what it would write.

use super::{ASKED_AGAIN, TriedPrimary};
use crate::controller::Controller;
use crate::controller::memory::SharedMemory;
use crate::controller::workqueue::Workqueue;
use std::collections::BTreeMap;
use transom_core::reference::ObjectRef;
use transom_core::rollout::rest::{Pace, Rest};
use transom_core::work::Key;

/// How often a primary has to be written again and again to count.
const TWICE: usize = 2;
/// For how many passes it is waited until all come to rest: those that go on removing are not to blame.
const PASSES: usize = 100;

impl Controller {
    /// The primaries for which a candidate never comes to rest when it sees what it wrote. An object that changes
    /// meanwhile may look like one, so only those count that do it twice, given the same inputs.
    pub(super) async fn unsettled(
        &self,
        queue: &Workqueue,
        live: Option<&SharedMemory>,
        first: &BTreeMap<Key, TriedPrimary>,
    ) -> Vec<ObjectRef> {
        let Some(overlay) = &self.trial else {
            return Vec::new();
        };
        let mut writes = first
            .iter()
            .filter(|(_, tried)| tried.writes() && !tried.is_gone())
            .map(|(key, _)| key.clone())
            .take(ASKED_AGAIN)
            .collect::<Vec<_>>();
        for _ in 0..TWICE {
            if writes.is_empty() {
                break;
            }
            overlay.begin();
            let mut tried = self.again(queue, live, writes.iter()).await;
            tried.retain(|key, tried| {
                let first = first.get(key).map(|first| &first.account.inputs);
                first == Some(&tried.account.inputs)
            });
            overlay.show();
            writes = self.restless(queue, live, tried).await;
        }
        writes.iter().map(|key| (*key.primary).clone()).collect()
    }

    /// Those of some primaries that write again and again when they see what they wrote.
    async fn restless(
        &self,
        queue: &Workqueue,
        live: Option<&SharedMemory>,
        mut tried: BTreeMap<Key, TriedPrimary>,
    ) -> Vec<Key> {
        let (mut rest, mut restless) = (Rest::default(), Vec::new());
        for _ in 0..PASSES {
            let mut go_on = Vec::new();
            for (key, tried) in tried {
                match rest.count(&key, &tried.account.writes) {
                    Pace::AtRest => {}
                    Pace::GoesOn => go_on.push(key),
                    Pace::Restless => restless.push(key),
                }
            }
            if go_on.is_empty() {
                break;
            }
            tried = self.again(queue, live, go_on.iter()).await;
        }
        restless
    }
}
