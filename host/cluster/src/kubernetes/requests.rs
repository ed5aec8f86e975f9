//! Requests single objects and lists of them. Sends no request for a name that could lead to another path.

use super::cause::{NextAttempt, RequestFailure};
use super::counts::{Purpose, RequestVerb};
use super::decode::{self, Page};
use super::follow::PAGE;
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
        if answer.as_ref().is_err_and(is_unserved) {
            self.forget(reference);
            answer = self.asked(reference).await;
        }
        self.answered(reference, answer)
    }

    /// The object in an answer to a GET; `None` when the answer says that there is none.
    fn answered(
        &self,
        reference: &ObjectRef,
        answer: Result<Fetched, RequestFailure>,
    ) -> Result<Option<Object>, ReadFailure> {
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
            Err(cause) if is_unserved(&cause) => RequestFailure::malformed().into(),
            Err(cause) if cause.is_missing() => return Ok(None),
            Err(cause) => cause.into(),
        };
        Err(failure(reference, &fault))
    }

    /// Requests an object with the right that the agent has: by a LIST of its name where a watch covers it, else by a
    /// GET, as it is read. Fails when its kind is not served, because that does not prove that the object is gone: a
    /// CRD may be on its way back, and its objects with it.
    pub(super) async fn confirm(
        &self,
        reference: &ObjectRef,
    ) -> Result<Option<Object>, ReadFailure> {
        let is_watched = self.cache().about(reference).next().is_some();
        if is_watched || !is_named(reference) {
            let whole = self.list_one(reference).await?;
            return Ok(whole.map(|whole| self.cache().projected(whole)));
        }
        let path = self.path_of(reference).await;
        let path = path.map_err(|cause| failure(reference, &cause.into()))?;
        let answer = self.got(&path, reference).await;
        if answer.as_ref().is_err_and(is_unserved) {
            self.forget(reference);
        }
        self.answered(reference, answer)
    }

    /// Requests an object with all its fields by a LIST of its name.
    pub(super) async fn list_one(
        &self,
        reference: &ObjectRef,
    ) -> Result<Option<Object>, ReadFailure> {
        if !is_named(reference) {
            return Ok(None);
        }
        let params = ListParams::default().fields(&format!("metadata.name={}", reference.name));
        let mut found = None;
        let take = |item: &RawValue| {
            found.get_or_insert_with(|| decoded(item.get(), reference));
            Ok(())
        };
        let listed = self
            .list(reference, params, RequestedPart::Whole, take)
            .await;
        listed.map_err(|cause| failure(reference, &cause.into()))?;
        found.transpose()
    }

    /// Requests a list, page by page if `params` have a limit, and smaller pages after one that is too large or, which
    /// `late` is told, too slow. Returns the version of the list. After a failure, `params` say how far it came.
    pub(super) async fn pages(
        &self,
        path: &str,
        params: &mut ListParams,
        part: RequestedPart,
        mut take: impl FnMut(&RawValue) -> Result<(), RequestFailure>,
        late: impl Fn(),
    ) -> Result<String, RequestFailure> {
        loop {
            self.counts.add(RequestVerb::List, Purpose::Work);
            let bytes = match page(&self.client, path, params, part).await? {
                Ok(bytes) => bytes,
                Err(unfit) => {
                    // Neither a page of one object nor a list of one name can be made smaller.
                    let limit = params.limit.filter(|limit| *limit > 1);
                    let limit = limit.ok_or_else(|| unfit.cause())?;
                    params.limit = Some((limit / 8).max(1));
                    if matches!(unfit, UnfitAnswer::Late(_)) {
                        late();
                    }
                    continue;
                }
            };
            let page: Page<'_> =
                serde_json::from_slice(&bytes).map_err(|_| RequestFailure::malformed())?;
            for item in page.items.iter().flatten() {
                take(item)?;
            }
            // Whatever else may stand before the API server, such as an error page in JSON, proves no absence.
            if page.metadata.resource_version.is_empty() {
                return Err(RequestFailure::malformed());
            }
            // What was requested without a limit, such as one name, has one page.
            if page.metadata.next.is_empty() || params.limit.is_none() {
                return Ok(page.metadata.resource_version);
            }
            let next = Some(page.metadata.next);
            // No API server does that; the list would never end.
            if params.continue_token == next {
                return Err(RequestFailure::malformed());
            }
            params.continue_token = next;
        }
    }

    /// The same for the objects of the kind and namespace of `like`.
    async fn list(
        &self,
        like: &ObjectRef,
        mut params: ListParams,
        part: RequestedPart,
        take: impl FnMut(&RawValue) -> Result<(), RequestFailure>,
    ) -> Result<(), RequestFailure> {
        let path = self.path_of(like).await?;
        let listed = self.pages(&path, &mut params, part, take, || ()).await;
        if listed.is_err() {
            // The kind may have been removed since its path was resolved.
            self.forget(like);
        }
        listed.map(drop)
    }

    /// Requests the objects of a kind in a namespace that have a label.
    pub(super) async fn list_whole(
        &self,
        like: &ObjectRef,
        label: Option<(&str, &str)>,
    ) -> Result<Vec<Object>, ReadFailure> {
        let params = ListParams {
            label_selector: label.map(|(label, value)| format!("{label}={value}")),
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let object = |item: &RawValue| {
            let named: Value = serde_json::from_str(item.get()).ok()?;
            let name = named.pointer("/metadata/name")?.as_str()?;
            let reference = ObjectRef {
                name: name.to_owned(),
                ..like.clone()
            };
            decoded(item.get(), &reference).ok()
        };
        let mut objects = Vec::new();
        let take = |item: &RawValue| {
            objects.extend(object(item));
            Ok(())
        };
        let listed = self.list(like, params, RequestedPart::Whole, take).await;
        listed.map_err(|cause| failure(like, &cause.into()))?;
        Ok(objects)
    }

    /// Requests the metadata of one object, or of all of a kind and namespace, whose labels are selected; keeps those
    /// that are wanted.
    pub(super) async fn list_metadata(
        &self,
        place: &ObjectRef,
        labels: &Selector,
        wanted: &(dyn Fn(&Object) -> bool + Sync),
    ) -> Result<Vec<Object>, ReadFailure> {
        let name = (!place.name.is_empty()).then(|| format!("metadata.name={}", place.name));
        let params = ListParams {
            label_selector: (!labels.is_empty()).then(|| labels.to_string()),
            limit: name.is_none().then_some(PAGE),
            field_selector: name,
            ..ListParams::default()
        };
        let mut objects = Vec::new();
        let take = |item: &RawValue| {
            let object = decode::metadata(item.get(), place)?;
            objects.extend(Some(object).filter(wanted));
            Ok(())
        };
        let listed = self.list(place, params, RequestedPart::Metadata, take);
        match listed.await {
            Err(cause) if cause.is_missing() => Ok(Vec::new()),
            Err(cause) => Err(failure(place, &cause.into())),
            Ok(()) => Ok(objects),
        }
    }

    /// The answer to a GET.
    async fn asked(&self, reference: &ObjectRef) -> Result<Fetched, RequestFailure> {
        let path = self.path_of(reference).await?;
        self.got(&path, reference).await
    }

    async fn got(&self, path: &str, reference: &ObjectRef) -> Result<Fetched, RequestFailure> {
        self.counts.add(RequestVerb::Get, Purpose::Work);
        get(&self.client, path, &reference.name).await
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

/// Whether the path may have led to no kind: it is resolved again.
fn is_unserved(cause: &RequestFailure) -> bool {
    cause.reason == KnownReason::KindMissing && cause.next == NextAttempt::Relist
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
