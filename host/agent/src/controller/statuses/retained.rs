//! Which published statuses stay: those of policies and primaries that may still be there.

use super::unpublished;
use crate::controller::Controller;
use crate::policies::active::Active;
use std::collections::BTreeSet;
use std::sync::Arc;
use transom_cluster::KeptStatuses;
use transom_core::catalogue::PolicyChange;

impl Controller {
    /// Removes the status of policies and primaries that vanished while no agent was running. For the end of a start.
    /// What belongs to a policy that does not work stays: its primaries were not looked at. While a place of policies
    /// cannot be read, it is not known which those are.
    pub(crate) fn tidy_status(&self, active: &Active) {
        if !active.broken().is_empty() {
            return;
        }
        let mut kept = KeptStatuses::new();
        for policy in active.names() {
            let primaries = self.queue(&policy).map(|_| BTreeSet::new());
            kept.insert(policy, primaries);
        }
        for key in self.memory.lock().results.keys() {
            if let Some(Some(primaries)) = kept.get_mut(&*key.policy) {
                primaries.insert((*key.primary).clone());
            }
        }
        for error in self.connections.retain_status(&kept) {
            unpublished("status", &error);
        }
    }

    /// Removes the statuses of policies that are gone.
    pub(crate) fn forget_removed(&self, active: &Active, changes: &[(Arc<str>, PolicyChange)]) {
        for (policy, change) in changes {
            if *change == PolicyChange::Removed && !active.is_written(policy) {
                self.forget_status(policy);
            }
        }
    }

    /// Removes the status of a policy that is gone, and of its primaries.
    pub(crate) fn forget_status(&self, policy: &str) {
        for error in self.connections.forget_status(policy) {
            unpublished(&format!("status of {policy}"), &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::Clock;
    use crate::command::session::of_case;
    use tempfile::TempDir;

    const POLICY: &str = "external-managed-kubeconfig";

    /// The number of statuses of the policy's primaries.
    fn files(folder: &TempDir) -> usize {
        let folder = folder.path().join(".transom/status").join(POLICY);
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_statuses_of_a_policy_that_does_not_work_stay() {
        let (folder, session, _primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        controller.memory.lock().results.clear();
        session.active.found(&[], &["a.yaml"]);
        controller.tidy_status(&session.active);
        assert_eq!(files(&folder), 1, "its policy may be there");
        session.active.found(&[POLICY], &[]);
        let queue = controller.queue(POLICY).unwrap();
        controller.remove_queue(POLICY);
        controller.tidy_status(&session.active);
        assert_eq!(files(&folder), 1, "its primaries were not looked at");
        controller.add_queue(queue);
        controller.tidy_status(&session.active);
        assert_eq!(files(&folder), 0, "its primary is gone");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_end_of_a_policy_takes_no_status_of_another_one() {
        let (folder, session, _primary) = of_case(POLICY, Clock::new(None)).await;
        let controller = &session.controller;
        controller.memory.lock().results.clear();
        controller.forget_status("another");
        assert_eq!(files(&folder), 1);
        controller.forget_status(POLICY);
        assert_eq!(files(&folder), 0);
    }
}
