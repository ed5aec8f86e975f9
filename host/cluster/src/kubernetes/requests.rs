//! Requests single objects and lists of them. Sends no request for a name that could lead to another path.

use super::cause::{NextAttempt, RequestFailure};
use super::counts::{Purpose, RequestVerb};
use super::decode::{self, Page};
use super::follow;
use super::resources::Unresolved;
use super::shared::{SharedConnection, failure};
use super::stream::{ANSWER, Fetched, RequestedPart, UnfitAnswer, get, page};
use crate::ReadFailure;
use kube::api::ListParams;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::reference::dns::is_path_segment;

impl SharedConnection {
    /// The path of a kind, in a namespace or in all.
    pub(super) async fn path(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Result<String, RequestFailure> {
        let resolve = timeout(ANSWER, self.resources.resolve(api_version, kind)).await;
        let resource = resolve
            .map_err(|_| RequestFailure::late(ANSWER))?
            .map_err(|error| match error {
                Unresolved::Missing => RequestFailure::missing(),
                Unresolved::Elsewhere(version) => RequestFailure::unserved(api_version, &version),
                Unresolved::Failed(error) => RequestFailure::of(&error),
            })?;
        Ok(self
            .resources
            .api(&resource, namespace)
            .resource_url()
            .to_owned())
    }

    /// Requests an object by a GET; `None` when it does not exist or its kind is not served.
    pub(super) async fn ask(&self, reference: &ObjectRef) -> Result<Option<Object>, ReadFailure> {
        if !is_named(reference) {
            return Ok(None);
        }
        let mut answer = self.asked(reference).await;
        let unserved = |cause: &RequestFailure| {
            cause.reason == KnownReason::KindMissing && cause.next == NextAttempt::Relist
        };
        if answer.as_ref().is_err_and(unserved) {
            self.forget(reference);
            answer = self.asked(reference).await;
        }
        let fault = match answer {
            Ok(Ok(bytes)) => match std::str::from_utf8(&bytes) {
                Ok(text) => {
                    let whole = decoded(text, reference)?;
                    return Ok(Some(self.cache().projected(whole)));
                }
                Err(_) => RequestFailure::malformed().into(),
            },
            Ok(Err(UnfitAnswer::TooLarge)) => decode::too_large(),
            Ok(Err(late)) => late.cause().into(),
            Err(cause) if unserved(&cause) => RequestFailure::malformed().into(),
            Err(cause) if cause.is_missing() => return Ok(None),
            Err(cause) => cause.into(),
        };
        Err(failure(reference, &fault))
    }

    /// Requests an object by a LIST of its name. Fails when its kind is not served, because that does not prove that
    /// the object is gone: a CRD may be on its way back, and its objects with it.
    pub(super) async fn confirm(
        &self,
        reference: &ObjectRef,
    ) -> Result<Option<Object>, ReadFailure> {
        let whole = self.list_one(reference).await?;
        Ok(whole.map(|whole| self.cache().projected(whole)))
    }

    /// The same with all its fields.
    pub(super) async fn list_one(
        &self,
        reference: &ObjectRef,
    ) -> Result<Option<Object>, ReadFailure> {
        if !is_named(reference) {
            return Ok(None);
        }
        let params = ListParams::default().fields(&format!("metadata.name={}", reference.name));
        let bytes = self.list(reference, &params).await?;
        let page = objects(&bytes, reference)?;
        let item = page.items.iter().flatten().next();
        item.map(|item| decoded(item.get(), reference)).transpose()
    }

    /// The answer to a LIST.
    async fn list(&self, like: &ObjectRef, params: &ListParams) -> Result<Vec<u8>, ReadFailure> {
        let fail = |cause: RequestFailure| failure(like, &cause.into());
        let path = self.path_of(like).await.map_err(fail)?;
        self.counts.add(RequestVerb::List, Purpose::Work);
        let answer = page(&self.client, &path, params, RequestedPart::Whole).await;
        let answer = answer.map_err(|cause| {
            // The kind may have been removed since its path was resolved.
            self.forget(like);
            fail(cause)
        })?;
        answer.map_err(|unfit| fail(unfit.cause()))
    }

    /// Requests the objects of a kind in a namespace that have a label.
    pub(super) async fn list_whole(
        &self,
        like: &ObjectRef,
        label: Option<(&str, &str)>,
    ) -> Result<Vec<Object>, ReadFailure> {
        let params = match label {
            Some((label, value)) => ListParams::default().labels(&format!("{label}={value}")),
            None => ListParams::default(),
        };
        let bytes = self.list(like, &params).await?;
        let page = objects(&bytes, like)?;
        let items = page.items.iter().flatten();
        let object = |item: &RawValue| {
            let named: Value = serde_json::from_str(item.get()).ok()?;
            let name = named.pointer("/metadata/name")?.as_str()?;
            let reference = ObjectRef {
                name: name.to_owned(),
                ..like.clone()
            };
            decoded(item.get(), &reference).ok()
        };
        Ok(items.filter_map(|item| object(item)).collect())
    }

    /// Requests the metadata of one object, or of all of a kind and namespace, whose labels are selected.
    pub(super) async fn list_metadata(
        &self,
        place: &ObjectRef,
        labels: &Selector,
    ) -> Result<Vec<Object>, ReadFailure> {
        match self.metadata_of(place, labels).await {
            Err(cause) if cause.is_missing() => Ok(Vec::new()),
            Err(cause) => {
                // The kind may have been removed since its path was resolved.
                self.forget(place);
                Err(failure(place, &cause.into()))
            }
            Ok(objects) => Ok(objects),
        }
    }

    async fn metadata_of(
        &self,
        place: &ObjectRef,
        labels: &Selector,
    ) -> Result<Vec<Object>, RequestFailure> {
        let path = self.path_of(place).await?;
        let name = (!place.name.is_empty()).then(|| format!("metadata.name={}", place.name));
        let mut params = ListParams {
            label_selector: (!labels.is_empty()).then(|| labels.to_string()),
            field_selector: name,
            limit: Some(follow::PAGE),
            ..ListParams::default()
        };
        let mut objects = Vec::new();
        loop {
            self.counts.add(RequestVerb::List, Purpose::Work);
            let answer = page(&self.client, &path, &params, RequestedPart::Metadata).await?;
            let bytes = answer.map_err(UnfitAnswer::cause)?;
            let page: Page<'_> =
                serde_json::from_slice(&bytes).map_err(|_| RequestFailure::malformed())?;
            for item in page.items.iter().flatten() {
                objects.push(decode::metadata(item.get(), place)?);
            }
            if page.metadata.next.is_empty() {
                return Ok(objects);
            }
            params.continue_token = Some(page.metadata.next);
        }
    }

    /// The answer to a GET.
    async fn asked(&self, reference: &ObjectRef) -> Result<Fetched, RequestFailure> {
        let path = self.path_of(reference).await?;
        self.counts.add(RequestVerb::Get, Purpose::Work);
        get(&self.client, &path, &reference.name).await
    }

    async fn path_of(&self, object: &ObjectRef) -> Result<String, RequestFailure> {
        self.path(
            &object.api_version,
            &object.kind,
            object.namespace.as_deref(),
        )
        .await
    }

    fn forget(&self, object: &ObjectRef) {
        self.resources.forget(&object.api_version, &object.kind);
    }
}

/// The objects in the answer to a LIST.
fn objects<'a>(bytes: &'a [u8], like: &ObjectRef) -> Result<Page<'a>, ReadFailure> {
    serde_json::from_slice(bytes).map_err(|_| failure(like, &RequestFailure::malformed().into()))
}

/// The object in an answer.
fn decoded(text: &str, reference: &ObjectRef) -> Result<Object, ReadFailure> {
    let answer = decode::answer(text, reference)
        .unwrap_or_else(|malformed| Err(RequestFailure::from(malformed).into()));
    answer.map_err(|fault| failure(reference, &fault))
}

/// Whether namespace and name are possible names.
fn is_named(reference: &ObjectRef) -> bool {
    let mut names = reference.namespace.iter().chain([&reference.name]);
    names.all(|name| is_path_segment(name))
}
