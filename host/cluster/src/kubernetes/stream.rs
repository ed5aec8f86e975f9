//! Reads watches, pages and single answers of one API server, with limits of time and size.

use super::cause::RequestFailure;
use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use http::Request;
use kube::Client;
use kube::api::{GetParams, ListParams, WatchParams};
use std::time::Duration;
use tokio::time::timeout;
use transom_api::KnownReason;

/// How long the API server may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(15);
/// How long a page may take.
const PAGE: Duration = Duration::from_secs(60);
/// How long a watch may be silent before its connection counts as dead: an API server sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(75);
/// The longest line, far above what etcd stores.
pub(super) const LINE_BYTES: usize = 33_554_432;
/// The largest page; at the start each watch may hold one in memory.
const PAGE_BYTES: usize = 16_777_216;

/// Why an answer was not read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnfitAnswer {
    /// It is larger than the limit.
    TooLarge,
    /// It was not complete after this time.
    Late(Duration),
}

impl UnfitAnswer {
    /// The cause of the failure.
    pub(super) fn cause(self) -> RequestFailure {
        match self {
            Self::TooLarge => RequestFailure::malformed(),
            Self::Late(after) => RequestFailure::late(after),
        }
    }
}

/// A complete answer.
pub(super) type Fetched = Result<Vec<u8>, UnfitAnswer>;

/// The lines of a watch.
pub(super) struct WatchLines<R> {
    reader: R,
    line: Vec<u8>,
}

/// What is requested of each object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestedPart {
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
    (part, version): (RequestedPart, &str),
) -> Result<WatchLines<impl AsyncBufRead + Unpin + use<>>, RequestFailure> {
    let request = kube::core::Request::new(path);
    let request = match part {
        RequestedPart::Whole => request.watch(params, version),
        RequestedPart::Metadata => request.watch_metadata(params, version),
    };
    let request = request.map_err(|error| RequestFailure::of(&kube::Error::BuildRequest(error)))?;
    let answer = timeout(ANSWER, client.request_stream(request)).await;
    let reader = answer
        .map_err(|_| RequestFailure::late(ANSWER))?
        .map_err(|error| RequestFailure::of(&error))?;
    Ok(WatchLines {
        reader: Box::pin(reader),
        line: Vec::new(),
    })
}

impl<R: AsyncBufRead + Unpin> WatchLines<R> {
    /// The next line; `None` when the API server ended the watch.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, RequestFailure> {
        let read = timeout(SILENCE, read_line(&mut self.reader, &mut self.line)).await;
        let complete = read
            .map_err(|_| RequestFailure::silent(SILENCE))?
            .map_err(RequestFailure::cut)?;
        Ok(complete.then_some(self.line.as_slice()))
    }
}

/// Reads up to the end of a line. False at the end of the stream; a last line without its end was cut off and does not
/// count.
async fn read_line(
    reader: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> Result<bool, RequestFailure> {
    line.clear();
    // Frees the memory of a huge line before.
    line.shrink_to(65_536);
    loop {
        let bytes = reader
            .fill_buf()
            .await
            .map_err(|error| RequestFailure::of(&kube::Error::ReadEvents(error)))?;
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
            return Err(RequestFailure::new(
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
    part: RequestedPart,
) -> Result<Fetched, RequestFailure> {
    let request = kube::core::Request::new(path);
    let request = match part {
        RequestedPart::Whole => request.list(params),
        RequestedPart::Metadata => request.list_metadata(params),
    };
    fetch(client, request, PAGE_BYTES, PAGE).await
}

/// Requests one object.
pub(super) async fn get(
    client: &Client,
    path: &str,
    name: &str,
) -> Result<Fetched, RequestFailure> {
    let request = kube::core::Request::new(path).get(name, &GetParams::default());
    fetch(client, request, LINE_BYTES, ANSWER).await
}

/// Reads a complete answer. Does not use kube's decoding, which logs what it cannot decode.
async fn fetch(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    limit: usize,
    deadline: Duration,
) -> Result<Fetched, RequestFailure> {
    let request = request.map_err(|error| RequestFailure::of(&kube::Error::BuildRequest(error)))?;
    let read = async {
        let answer = client.request_stream(request).await;
        let mut reader = std::pin::pin!(answer.map_err(|error| RequestFailure::of(&error))?);
        let mut bytes = Vec::new();
        // `read_to_end` would zero all spare capacity at every packet.
        loop {
            let some = reader
                .fill_buf()
                .await
                .map_err(|error| RequestFailure::of(&kube::Error::ReadEvents(error)))?;
            let many = some.len();
            if many == 0 {
                return Ok(Ok(bytes));
            }
            if bytes.len() + many > limit {
                return Ok(Err(UnfitAnswer::TooLarge));
            }
            bytes.extend_from_slice(some);
            reader.consume_unpin(many);
        }
    };
    timeout(deadline, read)
        .await
        .unwrap_or(Ok(Err(UnfitAnswer::Late(deadline))))
}
