//! The life cycle of a watch: wanted, listed, resumed, stopped; and its health, for readiness and metrics.

use super::Task;
use super::cache::Cache;
use super::cause::RequestFailure;
use super::follow::Follow;
use super::shared::{ServerNews, SharedConnection, Topic};
use super::store::ObjectFault;
use super::watched::Watched;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use transom_api::KnownReason;
use transom_core::reference::ObjectRef;
use transom_core::watches::{self, Scope, Watches};

/// Health of the watches of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Health of each watch.
    pub watches: Vec<WatchHealth>,
}

/// Health of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchHealth {
    /// What it requests.
    pub scope: Scope,
    /// Whether it was listed completely, with what is kept now.
    pub synced: bool,
    /// Why it cannot be followed now: reason and message.
    pub failure: Option<(KnownReason, String)>,
    /// How many objects it keeps.
    pub objects: usize,
    /// How often it ended early, since it is wanted.
    pub restarts: u64,
    /// Seconds since the last message of the API server, which sends one every minute.
    pub silent_seconds: u64,
}

impl SharedConnection {
    /// Follows these watches, and no others once these were listed.
    pub(super) fn wants(self: &Arc<Self>, wanted: Watches) {
        self.change(|cache| {
            let (new, mut news) = cache.wants(wanted);
            for (scope, keep) in new {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let mut watched = Watched::new(number, Arc::new(scope), keep);
                let follow = Follow {
                    shared: Arc::clone(self),
                    number,
                    scope: Arc::clone(&watched.scope),
                    keep: watched.keep.clone(),
                };
                watched.task = Some(Task::spawn(follow.run()));
                cache.watches.push(watched);
            }
            news.extend(cache.retire());
            news
        });
        self.settled.notify_waiters();
    }

    /// A list begins.
    pub(super) fn begin(&self, number: u64) {
        self.change(|cache| {
            cache.begin(number);
            Vec::new()
        });
    }

    /// A page of the list came too late. Smaller ones are requested, which may take minutes: a kind that its server
    /// does not list must not hold up the policies that need other kinds.
    pub(super) fn late(&self, number: u64) {
        self.with(number, |watched| {
            watched.late = true;
            Vec::new()
        });
        self.settled.notify_waiters();
    }

    /// The list is complete, at a version.
    pub(super) fn listed(&self, number: u64, version: &str) {
        self.change(|cache| {
            let mut watched = cache.watch(number);
            if let Some(watched) = &mut watched {
                watched.late = false;
            }
            let was_partial = watched.as_ref().is_some_and(|watched| !watched.synced);
            let mut news = watched.map(answered).unwrap_or_default();
            let untold = news.is_empty();
            news.extend(cache.listed(number, version));
            // Reads failed while the list was incomplete: this has their reconciles retried.
            if was_partial && untold {
                news.extend(cache.watch(number).map(|watched| answer(watched)));
            }
            news.extend(cache.retire());
            news
        });
        self.settled.notify_waiters();
    }

    /// The API server opened the stream of a watch.
    pub(super) fn heard(&self, number: u64) {
        self.with(number, answered);
    }

    /// The stream of a watch works.
    pub(super) fn proved(&self, number: u64) {
        self.with(number, cleared);
    }

    /// Whether a version is older than one that a stream reported. If so, the versions of the watch are forgotten.
    pub(super) fn went_back(&self, number: u64, version: &str) -> bool {
        let mut back = false;
        self.change(|cache| {
            let news = cache.went_back(number, version);
            back = news.is_some();
            news.unwrap_or_default()
        });
        back
    }

    /// A watch ended early; `told` if its failure is reported, `opened` if its stream was open.
    pub(super) fn stopped(&self, number: u64, cause: &RequestFailure, told: bool, opened: bool) {
        self.with(number, |watched| {
            watched.restarts += 1;
            watched.answered = false;
            if told {
                watched.in_doubt = opened;
                failed(watched, cause.reason, &cause.message)
            } else {
                Vec::new()
            }
        });
        self.settled.notify_waiters();
    }

    /// Waits until the API server has answered for the first time. Until then, its last failure is the failure of the
    /// watch.
    pub(super) async fn reached(&self, number: u64) {
        let mut standing = self.standing.clone();
        loop {
            match standing.borrow_and_update().clone() {
                Some(Ok(())) => return,
                Some(Err(error)) => {
                    self.with(number, |watched| {
                        let news = failed(watched, error.reason, &error.message);
                        watched.away = true;
                        news
                    });
                    self.settled.notify_waiters();
                }
                None => {}
            }
            if standing.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until every watch was listed completely or is found unreadable, or slow where nothing is read instead.
    pub(super) async fn settle(&self) {
        let answers = || matches!(*self.standing.borrow(), Some(Ok(())));
        let is_awaited = |cache: &Cache, one: &Watched| {
            let is_late = one.late && !cache.is_served_before(one);
            !is_late && !one.is_settled(answers())
        };
        self.wait_while(|cache| cache.wanted().any(|one| is_awaited(cache, one)))
            .await;
    }

    /// Waits until every watch that certainly covers an object was listed completely or is found unreadable.
    pub(super) async fn listed_about(&self, reference: &ObjectRef) {
        let listing = |one: &Watched| one.is_whole() && one.is_listing();
        self.wait_while(|cache| cache.about(reference).any(listing))
            .await;
    }

    /// Waits until a watch that covers a scope was listed completely, or each is found unreadable.
    pub(super) async fn listed_all(&self, scope: &Scope) {
        let listing = |cache: &Cache| cache.covering(scope).any(Watched::is_listing);
        self.wait_while(|cache| cache.complete(scope).is_err() && listing(cache))
            .await;
    }

    async fn wait_while(&self, is_so: impl Fn(&Cache) -> bool) {
        loop {
            let changed = self.settled.notified();
            if !is_so(&self.cache()) {
                return;
            }
            changed.await;
        }
    }

    /// Health of the watches.
    pub(super) fn health(&self) -> Health {
        let cache = self.cache();
        let watches = cache.wanted().map(|watched| WatchHealth {
            scope: watched.scope.as_ref().clone(),
            synced: watched.synced,
            failure: watched
                .failure
                .as_ref()
                .map(|fault| (fault.reason, fault.message.clone())),
            objects: watched.store.len(),
            restarts: watched.restarts,
            silent_seconds: watched.last_word.elapsed().as_secs(),
        });
        Health {
            watches: watches.collect(),
        }
    }

    fn with(&self, number: u64, change: impl FnOnce(&mut Watched) -> Vec<ServerNews>) {
        self.change(|cache| {
            let mut news = cache.watch(number).map(change).unwrap_or_default();
            news.extend(cache.retire());
            news
        });
    }
}

/// Marks a watch as failed; returns news if the reason is new.
fn failed(watched: &mut Watched, reason: KnownReason, message: &str) -> Vec<ServerNews> {
    let message = format!("failed to watch {}: {message}", watched.scope.kind);
    let known = watched
        .failure
        .as_ref()
        .is_some_and(|fault| fault.reason == reason);
    (watched.failure, watched.away) = (Some(ObjectFault { reason, message }), false);
    if known || watched.retiring {
        Vec::new()
    } else {
        vec![about(watched)]
    }
}

/// The API server answered to a watch. That ends its failure, unless its streams open and then fail: that would clear
/// the report with every attempt. Reconciles that failed to read are retried even then: it may take minutes until the
/// stream counts as working.
fn answered(watched: &mut Watched) -> Vec<ServerNews> {
    if !watched.in_doubt {
        return cleared(watched);
    }
    watched.last_word = Instant::now();
    let is_new = !std::mem::replace(&mut watched.answered, true);
    is_new.then(|| answer(watched)).into_iter().collect()
}

fn answer(watched: &Watched) -> ServerNews {
    ServerNews {
        topic: Topic::Answer(Arc::clone(&watched.scope)),
        gone: false,
    }
}

/// Marks a watch as healthy; returns news if it had failed.
fn cleared(watched: &mut Watched) -> Vec<ServerNews> {
    watched.last_word = Instant::now();
    (watched.in_doubt, watched.answered) = (false, false);
    let failed = watched.failure.take().is_some();
    if failed && !watched.retiring {
        vec![about(watched)]
    } else {
        Vec::new()
    }
}

/// That a watch can be followed, or cannot.
pub(super) fn about(watched: &Watched) -> ServerNews {
    ServerNews {
        topic: Topic::Watch(Arc::clone(&watched.scope)),
        gone: false,
    }
}

/// The same watches, all of one kind with the same fields: an object that several of them cover is the same in all.
pub(super) fn aligned(mut wanted: Watches) -> Watches {
    let kinds = watches::by_kind(&wanted);
    for (scope, keep) in &mut wanted {
        let kind = (scope.api_version.clone(), scope.kind.clone());
        if let Some(all) = kinds.get(&kind) {
            (keep.fields, keep.digest) = (all.fields.clone(), all.digest);
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::projection::Paths;
    use transom_core::watches::Keep;

    #[test]
    fn watches_of_one_kind_store_the_same_fields() {
        let scope = |kind: &str, name: &str| Scope {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: Some(name.to_owned()),
            fields: None,
            labels: None,
        };
        let keep = |fields: &[&str]| Keep {
            fields: Some(Paths::parse(fields).unwrap()),
            ..Keep::default()
        };
        let wanted = Watches::from([
            (scope("A", "x"), keep(&["spec.a"])),
            (scope("A", "y"), keep(&["spec.b"])),
            (scope("B", "x"), keep(&["spec.c"])),
            (scope("B", "y"), Keep::default()),
            (scope("C", "x"), keep(&["spec.d"])),
            (
                scope("C", "y"),
                Keep {
                    digest: true,
                    ..keep(&[])
                },
            ),
        ]);
        let aligned = aligned(wanted);
        let both = Some(Paths::parse(&["spec.a", "spec.b"]).unwrap());
        assert!(
            aligned[&scope("A", "x")].fields == both && aligned[&scope("A", "y")].fields == both
        );
        assert_eq!(aligned[&scope("B", "x")].fields, None);
        let [one, other] = ["x", "y"].map(|name| &aligned[&scope("C", name)]);
        assert!(one == other && one.digest);
    }
}
