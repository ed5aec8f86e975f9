//! Who sets the times of taints on a cluster: a webhook there, or the agent.

use super::Connections;
use transom_cluster::kubernetes::{Kubernetes, Server};
use transom_core::plan::TimeAdded;
use transom_core::reference::ObjectRef;

impl Connections {
    /// Who sets the time of a taint that is added to an object: a webhook of its API server, or the agent.
    pub(crate) async fn time_added(&self, object: &ObjectRef, now_seconds: i64) -> TimeAdded {
        match self.server(object) {
            Some(server) if server.writer().taint_times_by_webhook().await => {
                TimeAdded::SetByCluster
            }
            _ => TimeAdded::SetByUs(now_seconds),
        }
    }

    /// Records that the webhook left a taint without a time: from now on the agent sets the times there.
    pub(crate) async fn left_without_time(&self, object: &ObjectRef) {
        if let Some(server) = self.server(object) {
            server.writer().taint_left_without_time().await;
        }
    }

    /// The API server of an object.
    fn server(&self, object: &ObjectRef) -> Option<&Kubernetes> {
        let cluster = self.by_name.get(&object.cluster)?;
        cluster.server().map(Server::kubernetes)
    }
}
