//! Reads objects: from the cache where a watch covers them, else from the API server.

use super::store::ObjectFault;
use super::{Kubernetes, shared};
use crate::ReadFailure;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::timeout;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::stamp::Stamp;
use transom_core::watches::Scope;

/// How long a read waits for the list of a watch that covers its object.
const LISTING: Duration = Duration::from_secs(30);

impl Kubernetes {
    /// Reads an object: from the cache where a completely listed watch covers it, else from the API server. While a
    /// covering watch is being listed, the read waits for it instead of sending a GET: a GET needs a right that the
    /// watch does not. `None` when the object does not exist or its kind is not served.
    ///
    /// # Errors
    /// `InvalidObject` or `ObjectTooLarge` when the object cannot be used; `ReadForbidden`, `ServerUnavailable` or
    /// `ReadFailed` when the API server gives no usable answer.
    pub async fn read(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        if let Some(known) = self.shared.known(reference) {
            return known;
        }
        let listed = timeout(LISTING, self.shared.listed_about(reference)).await;
        if let Some(known) = self.shared.known(reference) {
            return known;
        }
        match self.shared.unlisted(reference) {
            Some(failure) => Err(failure),
            None if listed.is_err() => {
                let message = format!("its kind was not listed within {} s", LISTING.as_secs());
                let reason = KnownReason::ServerUnavailable;
                Err(shared::failure(reference, &ObjectFault { reason, message }))
            }
            None => self.shared.ask(reference).await,
        }
    }

    /// Waits until every object of a scope is known, as long as [`Kubernetes::read`] waits for one.
    pub(super) async fn listed(&self, scope: &Scope) {
        // Whoever reads it then is told whether it was listed.
        drop(timeout(LISTING, self.shared.listed_all(scope)).await);
    }

    /// Requests an object and merges the answer into the cache.
    ///
    /// # Errors
    /// The errors of [`Kubernetes::read`].
    pub async fn read_fresh(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        let asking = self.shared.asking(reference);
        let read = self.shared.ask(reference).await?;
        self.shared.learnt(reference, read.as_ref(), &asking);
        Ok(read)
    }

    /// Requests an object before an action that cannot be undone, because a watch may lag. Where a watch covers it,
    /// sends a LIST of the one name, for which the rights of the watch suffice; else a GET, as [`Kubernetes::read`]
    /// does. Merges the answer into the cache.
    ///
    /// # Errors
    /// The errors of [`Kubernetes::read`], and `KindMissing` when its kind is not served now: that does not prove that
    /// the object is gone.
    pub async fn confirm(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        let asking = self.shared.asking(reference);
        let read = self.shared.confirm(reference).await?;
        self.shared.learnt(reference, read.as_ref(), &asking);
        Ok(read)
    }

    /// Requests an object with all its fields, and leaves the cache as it is. Sends a LIST of the one name, for which
    /// the rights of a watch suffice.
    ///
    /// # Errors
    /// The errors of [`Kubernetes::confirm`].
    pub async fn read_whole(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        self.shared.list_one(reference).await
    }

    /// Requests the objects of the kind and namespace of `like`, or only those that have a label, and leaves the cache
    /// as it is. Objects that cannot be used are left out.
    ///
    /// # Errors
    /// The errors of [`Kubernetes::confirm`].
    pub async fn list_whole(
        &self,
        like: &ObjectRef,
        label: Option<(&str, &str)>,
    ) -> Result<Vec<Object>, ReadFailure> {
        self.shared.list_whole(like, label).await
    }

    /// Reads an object for a resync: requests it when only an answer reported its state, and no watch has confirmed it.
    ///
    /// # Errors
    /// The errors of [`Kubernetes::read`].
    pub async fn read_confirmed(
        &self,
        reference: &ObjectRef,
    ) -> Result<Option<Object>, ReadFailure> {
        let unconfirmed = self.shared.cache().is_unconfirmed(reference);
        match unconfirmed {
            true => self.confirm(reference).await,
            false => self.read(reference).await,
        }
    }

    /// The watched objects of a kind, in a namespace or in all; sorted.
    pub fn list(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Vec<ObjectRef> {
        let every = Selector::default();
        let cache = self.shared.cache();
        cache.list(api_version, kind, namespace, &every)
    }

    /// The watched objects that carry the agent's stamp. There may be very many: of each only the stamp is decoded.
    pub fn stamped(&self) -> Vec<(ObjectRef, Stamp)> {
        let ours = self.shared.cache().ours(|_| true).into_iter();
        ours.filter_map(|reference| {
            self.shared
                .stamp(&reference)
                .map(|stamp| (reference, stamp))
        })
        .collect()
    }

    /// The watched objects of a kind that carry the stamp of a policy.
    pub fn made(&self, policy: &str, api_version: &str, kind: &str) -> BTreeSet<ObjectRef> {
        let of_kind = |scope: &Scope| scope.api_version == api_version && scope.kind == kind;
        let ours = self.shared.cache().ours(of_kind);
        let of_policy = |reference: &ObjectRef| {
            let stamp = self.shared.stamp(reference);
            stamp.is_some_and(|stamp| stamp.policy == policy)
        };
        ours.into_iter().filter(of_policy).collect()
    }
}
