//! Asks API servers, before something is written, for what no watch may have told yet.

use crate::controller::{Controller, Touched};
use transom_api::KnownReason;
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::plan::Plan;
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::work::Key;

impl Controller {
    /// Before a step that cannot be undone: asks the API server whether an object exists that the guest was not shown.
    /// Watches of different kinds lag independently: works may be known before the add-ons that have to go first.
    pub(super) async fn nothing_missed(
        &self,
        ends: bool,
        touched: &Touched,
    ) -> Result<(), Failure> {
        if !ends || self.accounts.is_dry_run() {
            return Ok(());
        }
        let unseen = |object: &ObjectRef| {
            let message = format!("{object} exists, although no watch event has reported it yet");
            Failure::known(KnownReason::ReadFailed, message)
        };
        for set in &touched.shown_sets {
            let question = set.question();
            let (place, labels) = (&question.place, &question.labels);
            let missed = |object: &Object| set.missed(object);
            let list = self.connections.list_metadata(place, labels, &missed);
            if let Some(object) = list.await?.first() {
                return Err(unseen(&object.reference));
            }
        }
        let every = Selector::default();
        for object in &touched.absent {
            // Waits for a watch that is being listed, which may have lagged before. What no watch covers is requested.
            let mut is_there = self.connections.read(object).await?.is_some();
            if !is_there && self.connections.weigh(object).is_some() {
                let list = self.connections.list_metadata(object, &every, &|_| true);
                is_there = !list.await?.is_empty();
            }
            if is_there {
                return Err(unseen(object));
            }
        }
        Ok(())
    }

    /// Before a write on another connection than that of the primary: whether that one still leads to the cluster that
    /// the answer rests on. If there is another one behind its address, what the one before made is not its own.
    pub(super) async fn same_cluster(
        &self,
        key: &Key,
        plan: &Plan,
        touched: &Touched,
    ) -> Result<(), Failure> {
        let (cluster, before) = (&key.primary.cluster, &*touched.cluster_uid);
        let mut steps = plan.steps.iter();
        if before.is_empty() || steps.all(|step| step.target().cluster == *cluster) {
            return Ok(());
        }
        let now = self.connections.uid_of(cluster).await?;
        if now == before {
            return Ok(());
        }
        let message = format!(
            "connection `{cluster}` leads to the cluster with the uid `{now}`; it was `{before}` when the agent began"
        );
        Err(Failure::known(KnownReason::ClusterReplaced, message))
    }
}
