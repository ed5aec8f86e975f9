//! Reads objects, each on the connection that its reference names. A failure names the object.

use super::Connections;
use transom_api::KnownReason;
use transom_cluster::{AccessVerdict, ReadFailure};
use transom_core::contract::decide::Review;
use transom_core::failure::Failure;
use transom_core::inputs::request::Requester;
use transom_core::object::Object;
use transom_core::policy::Policy;
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::stamp::CLUSTER_NAMESPACE;
use transom_core::watches::{self, Scope};

impl Connections {
    /// Reads one object; `None` when it does not exist.
    ///
    /// # Errors
    /// When it cannot be read, with the reason.
    pub(crate) async fn read(&self, reference: &ObjectRef) -> Result<Option<Object>, Failure> {
        let read = self.cluster(reference)?.read(reference);
        read.await.map_err(unread(reference))
    }

    /// An upper bound of an object's size in bytes; `None` when the size is known only after reading it.
    pub(crate) fn weigh(&self, reference: &ObjectRef) -> Option<usize> {
        self.by_name.get(&reference.cluster)?.weigh(reference)
    }

    /// As [`Connections::read`], for a resync: what the agent knows only from an answer to its own request, and no
    /// watch has confirmed, is requested again.
    ///
    /// # Errors
    /// As for [`Connections::read`].
    pub(crate) async fn read_confirmed(
        &self,
        reference: &ObjectRef,
    ) -> Result<Option<Object>, Failure> {
        let read = self.cluster(reference)?.read_confirmed(reference);
        read.await.map_err(unread(reference))
    }

    /// An object as its cluster has it now, whatever the cache says. For actions that cannot be undone.
    ///
    /// # Errors
    /// When the request fails, with the reason.
    pub(crate) async fn confirm(&self, object: &ObjectRef) -> Result<Option<Object>, Failure> {
        let confirm = self.cluster(object)?.confirm(object);
        confirm.await.map_err(unread(object))
    }

    /// The metadata of an object, or of all of its kind and namespace if `place` has no name, as the cluster has it
    /// now, whatever the cache says; those that are wanted. Nothing when the kind is not served.
    ///
    /// # Errors
    /// When the request fails, with the reason.
    pub(crate) async fn list_metadata(
        &self,
        place: &ObjectRef,
        labels: &Selector,
        wanted: &(dyn Fn(&Object) -> bool + Sync),
    ) -> Result<Vec<Object>, Failure> {
        let list = self.cluster(place)?.list_metadata(place, labels, wanted);
        list.await.map_err(unread(place))
    }

    /// A place that cannot be read, where an object that was not found may be.
    pub(crate) fn unread(&self, object: &ObjectRef) -> Option<String> {
        self.by_name.get(&object.cluster)?.unread(object)
    }

    /// What a cluster says to a question about access.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn review(
        &self,
        cluster: &str,
        review: &Review,
        requester: Option<&Requester>,
    ) -> Result<AccessVerdict, Failure> {
        let asked = self.named(cluster)?.review(review, requester).await;
        asked.map_err(|failure| Failure::known(failure.reason, failure.message))
    }

    /// Checks that every primary of a policy on an API server is known, but for those that the active revision may not
    /// list either.
    ///
    /// # Errors
    /// Why some may be missing.
    pub(in crate::controller) fn primaries_listed(
        &self,
        policy: &Policy,
        active: Option<&Policy>,
    ) -> Result<(), ReadFailure> {
        let cluster = self.by_name.get(&policy.primary.cluster);
        let Some(cluster) = cluster.filter(|cluster| cluster.server().is_some()) else {
            return Ok(());
        };
        let active: Vec<Scope> = active
            .into_iter()
            .flat_map(watches::scopes_of_primaries)
            .collect();
        let mut scopes = watches::scopes_of_primaries(policy);
        scopes.try_for_each(|scope| match cluster.complete(&scope) {
            Err(failure) if is_forbidden(&failure) && active.contains(&scope) => Ok(()),
            listed => listed,
        })
    }

    /// Every object of a scope whose labels are selected, or cannot be read; sorted. Waits for a list that is under
    /// way.
    ///
    /// # Errors
    /// Why objects may be missing.
    pub(crate) async fn every(
        &self,
        scope: &Scope,
        cluster: &str,
        labels: &Selector,
    ) -> Result<Vec<ObjectRef>, Failure> {
        let cluster = self.named(cluster)?;
        let missing = |failure: ReadFailure| Failure::known(failure.reason, failure.message);
        cluster.listed(scope).await;
        cluster.complete(scope).map_err(missing)?;
        let namespace = scope.namespace.as_deref();
        Ok(cluster.list(&scope.api_version, &scope.kind, namespace, labels))
    }

    /// Every object of a scope whose labels are selected; sorted. The labels of all are known.
    ///
    /// # Errors
    /// Why objects may be missing, or one whose labels cannot be read.
    pub(crate) async fn selected(
        &self,
        scope: &Scope,
        cluster: &str,
        labels: &Selector,
    ) -> Result<Vec<ObjectRef>, Failure> {
        let there = self.every(scope, cluster, labels).await?;
        for unreadable in self.named(cluster)?.unreadable() {
            let mut objects = unreadable.objects.iter();
            if objects.any(|one| there.binary_search(one).is_ok()) {
                return Err(Failure::known(unreadable.reason, unreadable.message));
            }
        }
        Ok(there)
    }

    /// The uid of a cluster: that of its namespace `kube-system`, which each API server makes. Empty for a folder
    /// without it.
    ///
    /// # Errors
    /// As for [`Connections::read`]; `ReadFailed` when an API server has no such namespace.
    pub(in crate::controller) async fn uid_of(&self, cluster: &str) -> Result<String, Failure> {
        let namespace = ObjectRef {
            cluster: cluster.to_owned(),
            ..ObjectRef::local("v1", "Namespace", None, CLUSTER_NAMESPACE)
        };
        let uid = (self.read_whole(&namespace).await?).map(|there| there.uid().to_owned());
        if uid.is_none() && self.named(cluster)?.server().is_some() {
            let message =
                format!("{namespace} does not exist; the agent identifies the cluster by its uid");
            return Err(Failure::known(KnownReason::ReadFailed, message).about([namespace]));
        }
        Ok(uid.unwrap_or_default())
    }

    /// The record that agents keep in an object, as its cluster has it now.
    ///
    /// # Errors
    /// As for [`Connections::read`].
    pub(in crate::controller) async fn read_record(
        &self,
        object: &ObjectRef,
    ) -> Result<Option<Object>, Failure> {
        let read = self.cluster(object)?.read_record(object);
        read.await.map_err(unread(object))
    }

    /// An object with all its fields, as its cluster has it now.
    ///
    /// # Errors
    /// As for [`Connections::read`].
    pub(in crate::controller) async fn read_whole(
        &self,
        object: &ObjectRef,
    ) -> Result<Option<Object>, Failure> {
        let read = self.cluster(object)?.read_whole(object);
        read.await.map_err(unread(object))
    }
}

/// Turns a failure to read an object into one that names it.
fn unread(object: &ObjectRef) -> impl FnOnce(ReadFailure) -> Failure {
    move |failure| Failure::known(failure.reason, failure.message).about([object.clone()])
}

/// Whether more rights are needed, which no wait brings.
fn is_forbidden(failure: &ReadFailure) -> bool {
    matches!(failure.reason, KnownReason::ReadForbidden)
}
