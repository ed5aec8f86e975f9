//! Writes to the clusters: the steps of plans, statuses and Events.

use super::Connections;
use transom_api::KnownReason;
use transom_api::status::PolicyStatus;
use transom_cluster::{Cluster, KeptStatuses};
use transom_core::failure::Failure;
use transom_core::object::Object;
use transom_core::own_records;
use transom_core::plan::{Outcome, Plan, WriteFailure};
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::report::Report;
use transom_core::rights;

impl Connections {
    /// Performs the steps of a plan in order, each on the cluster of its object, as far as failures permit.
    pub(crate) async fn apply(&self, plan: Plan) -> Outcome {
        let reason = KnownReason::WriteFailed;
        let unknown = |Failure { message, .. }| WriteFailure { reason, message };
        transom_cluster::apply(plan, |target| self.cluster(target).map_err(unknown)).await
    }

    /// Performs a plan of one step on an object that no watch needs to cover; returns the object as it is then.
    pub(in crate::controller) async fn apply_one(
        &self,
        plan: Plan,
    ) -> Result<Object, WriteFailure> {
        let gone = |target: &ObjectRef| WriteFailure {
            reason: KnownReason::WriteFailed,
            message: format!("{target} was written, and is not there"),
        };
        let target = plan.primary.clone();
        if let (Some(server), [step]) = (self.server(&target), plan.steps.as_slice()) {
            let written = server.writer().perform(&plan.policy, step).await?;
            return written.ok_or_else(|| gone(&target));
        }
        let mut outcome = self.apply(plan).await;
        let done = outcome.steps.pop().ok_or_else(|| gone(&target))?;
        done.result?;
        // A directory keeps every object.
        let there = self.read_whole(&target).await.ok().flatten();
        there.ok_or_else(|| gone(&target))
    }

    /// Where the agent records the limits of its policies: with the Lease, or else in a directory.
    pub(crate) fn limits(&self, lease_namespace: Option<&str>) -> Option<ObjectRef> {
        let at = |cluster: &str, namespace: &str| ObjectRef {
            cluster: cluster.to_owned(),
            ..ObjectRef::local("v1", "ConfigMap", Some(namespace), rights::LIMITS)
        };
        if let (Some(home), Some(namespace)) = (&self.home, lease_namespace) {
            return Some(at(home, namespace));
        }
        let is_directory = |name: &&String| {
            let cluster = self.by_name.get(*name);
            cluster.is_some_and(|cluster| cluster.server().is_none())
        };
        let local = self.by_name.keys().find(|name| *name == LOCAL);
        let mut directories = local
            .into_iter()
            .chain(self.by_name.keys())
            .filter(is_directory);
        directories.next().map(|name| at(name, own_records::FOLDER))
    }

    /// Publishes the result of a reconcile on the primary's cluster. `uid` is the primary's, empty when it is gone.
    pub(crate) fn publish(&self, report: &Report, uid: &str) -> std::io::Result<()> {
        let cluster = self.by_name.get(&report.primary.cluster);
        cluster.map_or(Ok(()), |cluster| cluster.publish(report, uid))
    }

    /// Removes every status except these, on every cluster; returns the errors.
    pub(crate) fn retain_status(&self, kept: &KeptStatuses) -> Vec<std::io::Error> {
        let retained = self.all().map(|one| one.retain(kept));
        retained.filter_map(Result::err).collect()
    }

    /// Removes the status of a policy that is gone, and of its primaries, on every cluster; returns the errors.
    pub(crate) fn forget_status(&self, policy: &str) -> Vec<std::io::Error> {
        let forgotten = self.all().map(|one| one.forget(policy));
        forgotten.filter_map(Result::err).collect()
    }

    /// Publishes the status of a policy on every cluster; returns the first error.
    pub(crate) fn publish_policy(
        &self,
        policy: &str,
        status: &PolicyStatus,
    ) -> std::io::Result<()> {
        // Collected first, so that an error on one cluster does not skip the others.
        let told = self.all().map(|one| one.publish_policy(policy, status));
        told.collect::<Vec<_>>().into_iter().collect()
    }

    /// Publishes what is wrong about a policy as a whole, as an Event on its object if there is one.
    pub(crate) fn warn_of_policy(&self, policy: &str, reason: KnownReason, message: &str) {
        let local = self.by_name.get(LOCAL);
        if let Some(server) = local.and_then(|local| local.server()) {
            server.warn_of_policy(policy, reason, message);
        }
    }

    /// Writes every pending policy status, each once. For the end of the process.
    pub(crate) async fn finish_policies(&self) {
        for server in self.all().filter_map(Cluster::server) {
            server.finish().await;
        }
    }

    /// Records the status that a `FleetPolicy` object has now, so that it is not written again.
    pub(crate) fn found_policy_status(&self, policy: &str, status: &PolicyStatus) {
        for server in self.all().filter_map(Cluster::server) {
            server.found(policy, status);
        }
    }
}
