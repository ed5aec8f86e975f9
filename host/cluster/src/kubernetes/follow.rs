//! Follows one watch while it is wanted: lists, takes event by event, and resumes or relists after a failure.
//! A failed request removes no object from the cache.

use super::cause::{Backoff, LONGEST, NextAttempt, RequestFailure, SHORT, watch_seconds};
use super::counts::{Purpose, RequestVerb};
use super::decode::{self, Identity, WatchLine};
use super::shared::SharedConnection;
use super::store::Item;
use super::stream::{self, RequestedPart, WatchLines};
use futures::io::AsyncBufRead;
use kube::api::{ListParams, WatchParams};
use kube::core::Status;
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_core::watches::{Keep, Scope};

/// Objects per page.
pub(super) const PAGE: u32 = 500;

/// The task of one watch.
pub(super) struct Follow {
    /// The state of the connection.
    pub(super) shared: Arc<SharedConnection>,
    /// Its number in the cache.
    pub(super) number: u64,
    /// What it requests.
    pub(super) scope: Arc<Scope>,
    /// What it keeps of each object.
    pub(super) keep: Keep,
}

/// How far a watch has come.
#[derive(Default)]
struct Progress {
    /// The version from which events are requested; `None` when everything must be listed.
    position: Option<String>,
    /// Since when the stream of this turn is open.
    since: Option<Instant>,
    /// Whether the stream of this turn delivered an event.
    heard: bool,
    /// Objects per page of the next list, after pages of the last one were too large or too slow.
    page: Option<u32>,
    /// Whether the stream of this turn was found to work.
    proved: bool,
}

impl Progress {
    /// Why a turn failed; `None` if the API server ended its watch in order, as it ends every watch after its timeout.
    fn failure(&self, ended: Result<(), RequestFailure>) -> Option<RequestFailure> {
        let lasted = |since: Instant| self.heard || since.elapsed() > SHORT;
        match ended {
            Ok(()) if self.since.is_some_and(lasted) => None,
            Ok(()) => {
                let why = "the API server closed the watch immediately";
                Some(RequestFailure::new(KnownReason::ServerUnavailable, why).cut())
            }
            Err(cause) => Some(cause),
        }
    }

    /// Whether the stream of this turn was open for longer than the longest back-off.
    fn endured(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > LONGEST)
    }

    /// Whether it also delivered events.
    fn works(&self) -> bool {
        self.heard && self.endured()
    }

    /// Whether the stream of this turn worked until it failed. One that always ends silent or with gaps does not work,
    /// however long it lasts. One that broke need not have delivered an event: a proxy may cut every connection that is
    /// idle for less than the minute between two bookmarks.
    fn worked(&self, until: NextAttempt) -> bool {
        match until {
            NextAttempt::Silent | NextAttempt::Relist => false,
            NextAttempt::Resume => self.endured(),
            NextAttempt::Again => self.works(),
        }
    }
}

impl Follow {
    /// Follows the watch until its task is aborted.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::default();
        let mut progress = Progress::default();
        self.shared.reached(self.number).await;
        loop {
            let before = progress.position.clone();
            (progress.since, progress.heard, progress.proved) = (None, false, false);
            let ended = self.turn(&mut progress).await;
            let Some(cause) = progress.failure(ended) else {
                backoff.reset();
                self.shared.proved(self.number);
                continue;
            };
            if progress.worked(cause.next) {
                backoff.reset();
                self.shared.proved(self.number);
            }
            // A silent turn that did not advance the version: the server may not reach that version for a long time.
            let stuck = cause.next == NextAttempt::Silent && progress.position == before;
            if stuck
                || cause.next == NextAttempt::Relist
                || cause.reason == KnownReason::KindMissing
            {
                progress.position = None;
            }
            if cause.reason == KnownReason::KindMissing {
                self.shared
                    .resources
                    .forget(&self.scope.api_version, &self.scope.kind);
            }
            let wait = backoff.wait(&cause);
            // An expired version only shows that the watch was away for long. A failure of the next list is reported.
            let told = backoff.tells(&cause) && !(cause.expired && before.is_some());
            self.shared.stopped(
                self.number,
                &cause.certain(),
                told,
                progress.since.is_some(),
            );
            tokio::time::sleep(wait).await;
        }
    }

    /// One turn, from the request to the end of the stream.
    async fn turn(&self, progress: &mut Progress) -> Result<(), RequestFailure> {
        let Scope {
            api_version,
            kind,
            namespace,
            ..
        } = &*self.scope;
        let path = self
            .shared
            .path(api_version, kind, namespace.as_deref())
            .await?;
        let client = &self.shared.client;
        let from = match progress.position.clone() {
            Some(from) => from,
            None => self.list(&path, &mut progress.page).await?,
        };
        progress.position = Some(from.clone());
        self.shared.counts.add(RequestVerb::Watch, Purpose::Work);
        let from = (self.part(), from.as_str());
        let mut lines = stream::watch(client, &path, &self.params(), from).await?;
        progress.since = Some(Instant::now());
        self.shared.heard(self.number);
        self.read(&mut lines, progress).await
    }

    fn part(&self) -> RequestedPart {
        match self.keep.is_metadata() {
            true => RequestedPart::Metadata,
            false => RequestedPart::Whole,
        }
    }

    fn params(&self) -> WatchParams {
        WatchParams {
            label_selector: self.labels(),
            field_selector: self.fields(),
            timeout: Some(watch_seconds()),
            bookmarks: true,
            send_initial_events: false,
        }
    }

    fn labels(&self) -> Option<String> {
        self.scope.labels.as_ref().map(ToString::to_string)
    }

    fn fields(&self) -> Option<String> {
        let name = self
            .scope
            .name
            .as_ref()
            .map(|name| format!("metadata.name={name}"));
        let terms: Vec<String> = name.into_iter().chain(self.scope.fields.clone()).collect();
        (!terms.is_empty()).then(|| terms.join(","))
    }

    /// Lists page by page; returns the version of the list.
    async fn list(
        &self,
        path: &str,
        next_size: &mut Option<u32>,
    ) -> Result<String, RequestFailure> {
        let mut params = ListParams {
            label_selector: self.labels(),
            field_selector: self.fields(),
            limit: Some(next_size.unwrap_or(PAGE)),
            ..ListParams::default()
        };
        self.shared.begin(self.number);
        let take = |item: &RawValue| {
            let read = decode::object(item.get(), &self.shared.name, &self.scope, &self.keep)?;
            self.put(read.item);
            Ok(())
        };
        let listed = self
            .shared
            .pages(path, &mut params, self.part(), take, || {
                self.shared.late(self.number);
            })
            .await;
        let version = listed.map_err(|cause| {
            *next_size = params.limit;
            // A list that fails after its first page has gaps: it is made anew before its failure is reported.
            match params.continue_token.is_some() && !cause.is_refusal() {
                true => cause.in_stream(),
                false => cause,
            }
        })?;
        self.listed(&version)?;
        // The server may have been slow for a while only: each list tries larger pages again.
        *next_size = params.limit.map(|limit| (limit * 2).min(PAGE));
        Ok(version)
    }

    /// Reads a stream to its end.
    async fn read(
        &self,
        lines: &mut WatchLines<impl AsyncBufRead + Unpin>,
        progress: &mut Progress,
    ) -> Result<(), RequestFailure> {
        while let Some(line) = lines.next().await? {
            let line: WatchLine<'_> =
                serde_json::from_slice(line).map_err(|_| RequestFailure::malformed())?;
            progress.position = Some(self.event(&line)?);
            progress.heard = true;
            if !progress.proved && progress.works() {
                progress.proved = true;
                self.shared.proved(self.number);
            }
        }
        Ok(())
    }

    /// Takes one event; returns the version that the watch has reached. The object and the version change in one step:
    /// an answer merged in between would cause news.
    fn event(&self, line: &WatchLine<'_>) -> Result<String, RequestFailure> {
        let text = line.object.get();
        match &*line.kind {
            "ADDED" | "MODIFIED" => {
                let read = decode::object(text, &self.shared.name, &self.scope, &self.keep)?;
                self.forward(&read.version)?;
                self.shared
                    .change(|cache| cache.told(self.number, &read.version, read.item));
                Ok(read.version.into())
            }
            "DELETED" => {
                let identity = Identity::of(text)?;
                let version = identity.version()?.to_owned();
                self.forward(&version)?;
                let key = identity.key().ok();
                self.shared
                    .change(|cache| cache.apply_deletion(self.number, &version, key.as_deref()));
                Ok(version)
            }
            "BOOKMARK" => {
                let version = Identity::of(text)?.version()?.to_owned();
                self.forward(&version)?;
                self.shared
                    .change(|cache| cache.told(self.number, &version, None));
                Ok(version)
            }
            _ => {
                let status: Status =
                    serde_json::from_str(text).map_err(|_| RequestFailure::malformed())?;
                Err(RequestFailure::of_status(&status).in_stream())
            }
        }
    }

    fn put(&self, item: Option<Item>) {
        if let Some(item) = item {
            self.shared.change(|cache| cache.put(self.number, item));
        }
    }

    /// The list is complete, at a version.
    fn listed(&self, version: &str) -> Result<(), RequestFailure> {
        self.forward(version)?;
        self.shared.listed(self.number, version);
        Ok(())
    }

    /// Refuses a version older than one that was already reported: the server was restored, and everything is listed
    /// anew.
    fn forward(&self, version: &str) -> Result<(), RequestFailure> {
        if self.shared.went_back(self.number, version) {
            Err(RequestFailure::restored())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
