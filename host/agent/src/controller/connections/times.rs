//! Who sets the times of taints on a cluster: a webhook there, or the agent.

use super::Connections;
use transom_core::plan::TimeAdded;
use transom_core::reference::ObjectRef;

impl Connections {
    /// Who sets the time of a taint that is added to an object.
    pub(crate) async fn time_added(&self, object: &ObjectRef, now_seconds: i64) -> TimeAdded {
        match self.by_name.get(&object.cluster) {
            Some(cluster) if cluster.sets_taint_times().await => TimeAdded::SetByCluster,
            _ => TimeAdded::SetByUs(now_seconds),
        }
    }

    /// Records that the cluster left a taint without a time: from now on the agent sets the times there.
    pub(crate) async fn left_without_time(&self, object: &ObjectRef) {
        if let Some(cluster) = self.by_name.get(&object.cluster) {
            cluster.left_without_time().await;
        }
    }
}
