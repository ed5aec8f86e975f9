//! Reads watches, pages and single objects of one API server, with limits of time and size. Sends no request for a name
//! that could lead to another path.

use super::cause::{Cause, Next};
use super::counts::{Purpose, Verb};
use super::decode::{self, Page};
use super::follow;
use super::resources::Unresolved;
use super::shared::{Shared, failure};
use crate::ReadFailure;
use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use http::Request;
use kube::Client;
use kube::api::{GetParams, ListParams, WatchParams};
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::time::timeout;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::reference::dns::is_path_segment;

/// How long the API server may take to answer.
const ANSWER: Duration = Duration::from_secs(15);
/// How long a page may take.
const PAGE: Duration = Duration::from_secs(60);
/// How long a watch may be silent before its connection counts as dead: an API server sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(75);
/// The longest line, far above what etcd stores.
const LINE_BYTES: usize = 33_554_432;
/// The largest page; at the start each watch may hold one in memory.
const PAGE_BYTES: usize = 16_777_216;

/// Why an answer was not read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is larger than the limit.
    TooLarge,
    /// It was not complete after this time.
    Late(Duration),
}

impl Unfit {
    /// The cause of the failure.
    pub(super) fn cause(self) -> Cause {
        match self {
            Self::TooLarge => Cause::malformed(),
            Self::Late(after) => Cause::late(after),
        }
    }
}

/// A complete answer.
pub(super) type Fetched = Result<Vec<u8>, Unfit>;

/// The lines of a watch.
pub(super) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
}

/// What is requested of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole object.
    Whole,
    /// Its metadata.
    Metadata,
}

/// Opens a watch that starts after a version.
pub(super) async fn watch(
    client: &Client,
    path: &str,
    params: &WatchParams,
    (part, version): (Part, &str),
) -> Result<Lines<impl AsyncBufRead + Unpin + use<>>, Cause> {
    let request = kube::core::Request::new(path);
    let request = match part {
        Part::Whole => request.watch(params, version),
        Part::Metadata => request.watch_metadata(params, version),
    };
    let request = request.map_err(|error| Cause::of(&kube::Error::BuildRequest(error)))?;
    let answer = timeout(ANSWER, client.request_stream(request)).await;
    let reader = answer
        .map_err(|_| Cause::late(ANSWER))?
        .map_err(|error| Cause::of(&error))?;
    Ok(Lines {
        reader: Box::pin(reader),
        line: Vec::new(),
    })
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// The next line; `None` when the API server ended the watch.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, Cause> {
        let read = timeout(SILENCE, read_line(&mut self.reader, &mut self.line)).await;
        let complete = read
            .map_err(|_| Cause::silent(SILENCE))?
            .map_err(Cause::cut)?;
        Ok(complete.then_some(self.line.as_slice()))
    }
}

/// Reads up to the end of a line. False at the end of the stream; a last line without its end was cut off and does not
/// count.
async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> Result<bool, Cause> {
    line.clear();
    // Frees the memory of a huge line before.
    line.shrink_to(65_536);
    loop {
        let bytes = reader
            .fill_buf()
            .await
            .map_err(|error| Cause::of(&kube::Error::ReadEvents(error)))?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (taken, used) = end.map_or((bytes.len(), bytes.len()), |end| (end, end + 1));
        line.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        reader.consume_unpin(used);
        if end.is_some() {
            return Ok(true);
        }
        if line.len() > LINE_BYTES {
            return Err(Cause::new(
                KnownReason::ReadFailed,
                format!("a line of the watch is longer than {LINE_BYTES} bytes"),
            ));
        }
    }
}

/// Requests one page of a list.
pub(super) async fn page(
    client: &Client,
    path: &str,
    params: &ListParams,
    part: Part,
) -> Result<Fetched, Cause> {
    let request = kube::core::Request::new(path);
    let request = match part {
        Part::Whole => request.list(params),
        Part::Metadata => request.list_metadata(params),
    };
    fetch(client, request, PAGE_BYTES, PAGE).await
}

/// Requests one object.
pub(super) async fn get(client: &Client, path: &str, name: &str) -> Result<Fetched, Cause> {
    let request = kube::core::Request::new(path).get(name, &GetParams::default());
    fetch(client, request, LINE_BYTES, ANSWER).await
}

/// Reads a complete answer. Does not use kube's decoding, which logs what it cannot decode.
async fn fetch(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    limit: usize,
    deadline: Duration,
) -> Result<Fetched, Cause> {
    let request = request.map_err(|error| Cause::of(&kube::Error::BuildRequest(error)))?;
    let read = async {
        let answer = client.request_stream(request).await;
        let mut reader = std::pin::pin!(answer.map_err(|error| Cause::of(&error))?);
        let mut bytes = Vec::new();
        // `read_to_end` would zero all spare capacity at every packet.
        loop {
            let some = reader
                .fill_buf()
                .await
                .map_err(|error| Cause::of(&kube::Error::ReadEvents(error)))?;
            let many = some.len();
            if many == 0 {
                return Ok(Ok(bytes));
            }
            if bytes.len() + many > limit {
                return Ok(Err(Unfit::TooLarge));
            }
            bytes.extend_from_slice(some);
            reader.consume_unpin(many);
        }
    };
    timeout(deadline, read)
        .await
        .unwrap_or(Ok(Err(Unfit::Late(deadline))))
}

impl Shared {
    /// The path of a kind, in a namespace or in all.
    pub(super) async fn path(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> Result<String, Cause> {
        let resolve = timeout(ANSWER, self.resources.resolve(api_version, kind)).await;
        let resource = resolve
            .map_err(|_| Cause::late(ANSWER))?
            .map_err(|error| match error {
                Unresolved::Missing => Cause::missing(),
                Unresolved::Elsewhere(version) => Cause::unserved(api_version, &version),
                Unresolved::Failed(error) => Cause::of(&error),
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
        let unserved =
            |cause: &Cause| cause.reason == KnownReason::KindMissing && cause.next == Next::Relist;
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
                Err(_) => Cause::malformed().into(),
            },
            Ok(Err(Unfit::TooLarge)) => decode::too_large(),
            Ok(Err(late)) => late.cause().into(),
            Err(cause) if unserved(&cause) => Cause::malformed().into(),
            Err(cause) if cause.reason == KnownReason::KindMissing => return Ok(None),
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
        let fail = |cause: Cause| failure(reference, &cause.into());
        let path = self.path_of(reference).await.map_err(fail)?;
        self.counts.add(Verb::List, Purpose::Work);
        let params = ListParams::default().fields(&format!("metadata.name={}", reference.name));
        let answer = page(&self.client, &path, &params, Part::Whole)
            .await
            .map_err(|cause| {
                // The kind may have been removed since its path was resolved.
                self.forget(reference);
                fail(cause)
            })?;
        let bytes = answer.map_err(|unfit| fail(unfit.cause()))?;
        let page: Page<'_> =
            serde_json::from_slice(&bytes).map_err(|_| fail(Cause::malformed()))?;
        let item = page.items.iter().flatten().next();
        item.map(|item| decoded(item.get(), reference)).transpose()
    }

    /// Requests the objects of a kind in a namespace that have a label.
    pub(super) async fn list_whole(
        &self,
        like: &ObjectRef,
        label: Option<(&str, &str)>,
    ) -> Result<Vec<Object>, ReadFailure> {
        let fail = |cause: Cause| failure(like, &cause.into());
        let path = self.path_of(like).await.map_err(fail)?;
        self.counts.add(Verb::List, Purpose::Work);
        let params = match label {
            Some((label, value)) => ListParams::default().labels(&format!("{label}={value}")),
            None => ListParams::default(),
        };
        let answer = page(&self.client, &path, &params, Part::Whole)
            .await
            .map_err(|cause| {
                self.forget(like);
                fail(cause)
            })?;
        let bytes = answer.map_err(|unfit| fail(unfit.cause()))?;
        let page: Page<'_> =
            serde_json::from_slice(&bytes).map_err(|_| fail(Cause::malformed()))?;
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
            Err(cause) if cause.reason == KnownReason::KindMissing => Ok(Vec::new()),
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
    ) -> Result<Vec<Object>, Cause> {
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
            self.counts.add(Verb::List, Purpose::Work);
            let answer = page(&self.client, &path, &params, Part::Metadata).await?;
            let bytes = answer.map_err(Unfit::cause)?;
            let page: Page<'_> = serde_json::from_slice(&bytes).map_err(|_| Cause::malformed())?;
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
    async fn asked(&self, reference: &ObjectRef) -> Result<Fetched, Cause> {
        let path = self.path_of(reference).await?;
        self.counts.add(Verb::Get, Purpose::Work);
        get(&self.client, &path, &reference.name).await
    }

    async fn path_of(&self, object: &ObjectRef) -> Result<String, Cause> {
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

/// The object in an answer.
fn decoded(text: &str, reference: &ObjectRef) -> Result<Object, ReadFailure> {
    let answer = decode::answer(text, reference)
        .unwrap_or_else(|malformed| Err(Cause::from(malformed).into()));
    answer.map_err(|fault| failure(reference, &fault))
}

/// Whether namespace and name are possible names.
fn is_named(reference: &ObjectRef) -> bool {
    let mut names = reference.namespace.iter().chain([&reference.name]);
    names.all(|name| is_path_segment(name))
}
