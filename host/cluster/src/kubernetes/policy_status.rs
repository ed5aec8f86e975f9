//! Writes the status of FleetPolicy objects: the newest one, only if it differs, at most once in 5 s for each policy.
//! Each only to the object as it was observed: a replica that was paused must not overwrite what the next leader wrote.

use super::counts::{Purpose, RequestVerb};
use super::millis;
use super::send::{SendError, Sender};
use super::write::{as_yaml, failure};
use http::Request;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::request::Error;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};
use transom_api::{API_VERSION, KIND};
use transom_core::failure::Class;
use transom_core::latest::{Latest, NextTask};
use transom_core::plan::{WriteFailure, WriteKind};
use transom_core::reference::ObjectRef;
use transom_core::share::lock::MutexExt as _;

/// Field manager of the status.
const FIELD_MANAGER: &str = "transom";
/// The least time between two writes for one policy.
const INTERVAL_MS: u64 = 5_000;
/// One day: how long to wait when there is nothing to write.
const LONG: Duration = Duration::from_secs(86_400);

/// An object in one of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenVersion {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub version: String,
}

impl SeenVersion {
    /// An object in JSON; `None` if it has no uid or no version.
    fn of(object: &Value) -> Option<Self> {
        let text = |field: &str| Some(object.get("metadata")?.get(field)?.as_str()?.to_owned());
        Some(Self {
            uid: text("uid")?,
            version: text("resourceVersion")?,
        })
    }
}

/// The status of one policy.
struct StatusEntry {
    latest: Latest<Value>,
    /// The object that the wanted status is about; `None` if it was not observed.
    seen: Option<SeenVersion>,
}

impl StatusEntry {
    fn new() -> Self {
        Self {
            latest: Latest::new(INTERVAL_MS),
            seen: None,
        }
    }
}

/// Why a status was not written.
enum Unwritten {
    /// Its object is gone, or another one has its name.
    Gone,
    /// The API server refused.
    Refused(SendError),
}

/// Writes the status of the policies of one API server.
pub struct PolicyStatuses {
    sender: Sender,
    read_only: bool,
    by_policy: Mutex<BTreeMap<String, StatusEntry>>,
    /// Held during writes, so that only one task writes.
    turn: tokio::sync::Mutex<()>,
    news: Notify,
    start: Instant,
}

impl PolicyStatuses {
    /// Knows no status yet; never writes if `read_only`.
    pub(super) fn new(sender: Sender, read_only: bool) -> Self {
        let (by_policy, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self {
            sender,
            read_only,
            by_policy,
            turn,
            news: Notify::new(),
            start: Instant::now(),
        }
    }

    /// The status that a policy has on the server; the same one is not written again.
    pub fn found(&self, policy: &str, status: Value) {
        self.entries(|all| of(all, policy).latest.found(status));
    }

    /// Publishes the value of a policy's field `status`, for the object that was observed; [`Self::run`] writes it. An
    /// object that was not observed is looked up first.
    pub fn publish(&self, policy: &str, seen: Option<SeenVersion>, status: Value) {
        if self.read_only {
            return;
        }
        self.entries(|all| {
            let entry = of(all, policy);
            // What was written to an earlier object of this name is not on this one.
            if is_another(entry.seen.as_ref(), seen.as_ref()) {
                *entry = StatusEntry::new();
            }
            entry.latest.want(status);
            entry.seen = seen;
        });
        self.news.notify_one();
    }

    /// Every policy that is not kept was deleted. What is still to be written stays: a policy may be newer than the
    /// list, and the write to a deleted one ends by itself.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.entries(|all| {
            all.retain(|policy, entry| is_kept(policy) || entry.latest.left().is_some());
        });
    }

    /// Writes published statuses as long as it is polled, and calls `told` for each failed write. A failed write is
    /// repeated with back-off, unless the policy is gone or the status is invalid.
    pub async fn run(&self, told: impl Fn(&str, &WriteFailure)) {
        loop {
            let wake_at = self.flush(&told).await;
            tokio::select! {
                () = self.news.notified() => {}
                () = sleep_until(wake_at) => {}
            }
        }
    }

    /// Writes every pending status once, without waiting for the interval; for the end of the process.
    pub async fn finish(&self, told: impl Fn(&str, &WriteFailure)) {
        let _turn = self.turn.lock().await;
        for policy in self.policies() {
            let left = |entry: &StatusEntry| entry.latest.left().cloned();
            if let Some((Some(status), seen)) = self.now(&policy, left) {
                self.write(&policy, (status, seen), &told).await;
            }
        }
    }

    /// Writes what is due; returns when to call this again.
    async fn flush(&self, told: &impl Fn(&str, &WriteFailure)) -> Instant {
        let _turn = self.turn.lock().await;
        let mut wake_at = Instant::now() + LONG;
        for policy in self.policies() {
            let now_ms = self.now_ms();
            match self.now(&policy, |entry| entry.latest.next(now_ms)) {
                None | Some((NextTask::Nothing, _)) => {}
                Some((NextTask::At(ms), _)) => {
                    wake_at = wake_at.min(self.start + Duration::from_millis(ms));
                }
                Some((NextTask::Write(status), seen)) => {
                    self.write(&policy, (status, seen), told).await;
                    wake_at = wake_at.min(Instant::now() + Duration::from_millis(INTERVAL_MS));
                }
            }
        }
        wake_at
    }

    fn policies(&self) -> Vec<String> {
        self.entries(|all| all.keys().cloned().collect())
    }

    /// What an entry says now, and the object that it is about; `None` if there is none. The writes before this one may
    /// have taken long: the policy may have been deleted since, and made anew.
    fn now<T>(
        &self,
        policy: &str,
        look: impl FnOnce(&StatusEntry) -> T,
    ) -> Option<(T, Option<SeenVersion>)> {
        self.entries(|all| {
            let entry = all.get(policy)?;
            Some((look(entry), entry.seen.clone()))
        })
    }

    /// Writes a status of the object that was observed.
    async fn write(
        &self,
        policy: &str,
        (status, seen): (Value, Option<SeenVersion>),
        told: &impl Fn(&str, &WriteFailure),
    ) {
        let target = ObjectRef::local(API_VERSION, KIND, None, policy);
        let (failed, is_gone) = match self.sent(policy, seen.as_ref(), &status).await {
            Ok(()) => (None, false),
            Err(Unwritten::Gone) => (Some(failure::gone(WriteKind::Patch, &target)), true),
            // Also a 404 that names no object: a proxy may have answered, and the policy is still there.
            Err(Unwritten::Refused(refusal)) => (
                Some(failure::of(WriteKind::Patch, &target, &refusal)),
                false,
            ),
        };
        if let Some(failed) = &failed {
            told(policy, failed);
        }
        let now_ms = self.now_ms();
        let class = failed.map(|failed| Class::of(failed.reason));
        self.entries(|all| match (all.get_mut(policy), class) {
            // If the policy is created again, its status is published again; it may have been meanwhile.
            (Some(entry), _) if is_gone && entry.seen == seen => drop(all.remove(policy)),
            (Some(_), _) if is_gone => {}
            // It is the entry of another object, to which nothing was written.
            (Some(entry), _) if is_another(entry.seen.as_ref(), seen.as_ref()) => {}
            // The server would refuse the same status again; the next one may be valid.
            (Some(entry), None | Some(Class::Invalid)) => entry.latest.done(status, true, now_ms),
            (Some(entry), Some(_)) => entry.latest.done(status, false, now_ms),
            (None, _) => {}
        });
    }

    /// Sends a status for the object that was observed; after a conflict for the same object as it is now, because each
    /// edit of the policy makes a new version of it. The sender checks before each request whether this replica still
    /// leads.
    async fn sent(
        &self,
        policy: &str,
        seen: Option<&SeenVersion>,
        status: &Value,
    ) -> Result<(), Unwritten> {
        if let Some(seen) = seen {
            match self.send(policy, seen, status).await {
                Err(Unwritten::Refused(SendError::Answered { code: 409, .. })) => {}
                sent => return sent,
            }
        }
        let same = |now: &SeenVersion| seen.is_none_or(|seen| seen.uid == now.uid);
        match self.list_one(policy).await?.filter(same) {
            Some(now) => self.send(policy, &now, status).await,
            None => Err(Unwritten::Gone),
        }
    }

    async fn send(
        &self,
        policy: &str,
        seen: &SeenVersion,
        status: &Value,
    ) -> Result<(), Unwritten> {
        match self
            .ask(RequestVerb::Patch, request(policy, seen, status))
            .await
        {
            Ok(_) => Ok(()),
            Err(refusal) if failure::is_gone(&refusal) => Err(Unwritten::Gone),
            Err(refusal) => Err(Unwritten::Refused(refusal)),
        }
    }

    /// The object of a policy as it is now. Sends a LIST of the one name, for which the rights of the watch suffice.
    async fn list_one(&self, policy: &str) -> Result<Option<SeenVersion>, Unwritten> {
        let one = ListParams::default().fields(&format!("metadata.name={policy}"));
        let found = self.ask(RequestVerb::List, requests().list(&one)).await;
        let found = found.map_err(Unwritten::Refused)?;
        Ok(found.pointer("/items/0").and_then(SeenVersion::of))
    }

    async fn ask(
        &self,
        verb: RequestVerb,
        request: Result<Request<Vec<u8>>, Error>,
    ) -> Result<Value, SendError> {
        let request = request.map_err(|error| SendError::Silent(error.to_string()))?;
        self.sender.send(verb, Purpose::Status, &request).await
    }

    fn entries<R>(&self, change: impl FnOnce(&mut BTreeMap<String, StatusEntry>) -> R) -> R {
        change(&mut self.by_policy.locked())
    }

    fn now_ms(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

/// Whether two observations are of different objects.
fn is_another(one: Option<&SeenVersion>, other: Option<&SeenVersion>) -> bool {
    let both = one.zip(other);
    both.is_some_and(|(one, other)| one.uid != other.uid)
}

/// The entry of a policy.
fn of<'a>(all: &'a mut BTreeMap<String, StatusEntry>, policy: &str) -> &'a mut StatusEntry {
    all.entry(policy.to_owned())
        .or_insert_with(StatusEntry::new)
}

fn requests() -> kube::core::Request {
    kube::core::Request::new(format!("/apis/{API_VERSION}/fleetpolicies"))
}

/// A server-side apply of the whole status, so that fields of an earlier agent are removed; only to this object in this
/// version.
fn request(policy: &str, seen: &SeenVersion, status: &Value) -> Result<Request<Vec<u8>>, Error> {
    let metadata = json!({"name": policy, "uid": seen.uid, "resourceVersion": seen.version});
    let body =
        json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status});
    let how = PatchParams::apply(FIELD_MANAGER).force();
    let request = requests().patch_subresource("status", policy, &how, &Patch::Apply(body))?;
    Ok(request.map(as_yaml))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use kube::Client;
    use kube::client::Body;
    use std::convert::Infallible;
    use std::sync::Arc;
    use tokio::sync::Semaphore;
    use tower::service_fn;
    use transom_api::KnownReason;

    /// A server whose policy has these uid and version, and the version of each status that it is sent, with its
    /// verdict.
    fn server(
        uid: &'static str,
        version: &'static str,
    ) -> (PolicyStatuses, Arc<Mutex<Vec<String>>>) {
        server_behind_proxy(0, (uid, version))
    }

    /// The same behind a proxy that answers the first requests itself, with a 404 that is no Status.
    fn server_behind_proxy(
        by_proxy: usize,
        (uid, version): (&'static str, &'static str),
    ) -> (PolicyStatuses, Arc<Mutex<Vec<String>>>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&sent);
        let answer = move |request: Request<Body>| {
            let noted = Arc::clone(&noted);
            async move {
                if noted.lock().unwrap().len() < by_proxy {
                    noted.lock().unwrap().push("proxy".to_owned());
                    let mut answer = Response::new(Body::from(b"404 page not found".to_vec()));
                    *answer.status_mut() = http::StatusCode::NOT_FOUND;
                    return Ok(answer);
                }
                let metadata = json!({"name": "p", "uid": uid, "resourceVersion": version});
                let (code, body) = if request.method() == "GET" {
                    noted.lock().unwrap().push("list".to_owned());
                    (200, json!({"items": [{"metadata": metadata}]}))
                } else {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    let fits = body["metadata"] == metadata;
                    noted
                        .lock()
                        .unwrap()
                        .push(body["metadata"]["resourceVersion"].to_string());
                    let failure = json!({"status": "Failure", "code": 409, "reason": "Conflict"});
                    if fits { (200, body) } else { (409, failure) }
                };
                let mut answer = Response::new(Body::from(body.to_string().into_bytes()));
                *answer.status_mut() = u16::try_into(code).unwrap();
                Ok::<_, Infallible>(answer)
            }
        };
        let client = Client::new(service_fn(answer), "default");
        (PolicyStatuses::new(Sender::new(client), false), sent)
    }

    fn seen(uid: &str, version: &str) -> Option<SeenVersion> {
        let (uid, version) = (uid.to_owned(), version.to_owned());
        Some(SeenVersion { uid, version })
    }

    #[tokio::test]
    async fn a_status_names_the_observed_object_and_is_decided_again_after_a_conflict() {
        for (observed, expected) in [
            (seen("u", "7"), &["\"7\""][..]),
            (seen("u", "5"), &["\"5\"", "list", "\"7\""]),
            (seen("before", "5"), &["\"5\"", "list"]),
            (None, &["list", "\"7\""]),
        ] {
            let (statuses, sent) = server("u", "7");
            statuses.publish("p", observed.clone(), json!({}));
            let failures = Mutex::new(Vec::new());
            statuses
                .finish(|_, failure| failures.lock().unwrap().push(failure.reason))
                .await;
            assert_eq!(*sent.lock().unwrap(), expected, "{observed:?}");
            let is_another = expected == ["\"5\"", "list"];
            assert_eq!(failures.lock().unwrap().len(), usize::from(is_another));
            assert!(statuses.entries(|all| all.contains_key("p") != is_another));
        }
    }

    /// Policy, uid and status of each request.
    type Sent = Arc<Mutex<Vec<[String; 3]>>>;

    /// A server that takes every status. It answers after a turn of the second semaphore; the first one counts the
    /// requests that came.
    fn slow_server() -> (PolicyStatuses, Sent, [Arc<Semaphore>; 2]) {
        let sent = Sent::default();
        let turns = [0, 0].map(|turns| Arc::new(Semaphore::new(turns)));
        let (noted, [came, answers]) = (Arc::clone(&sent), turns.clone());
        let answer = move |request: Request<Body>| {
            let (noted, came, answers) = (noted.clone(), came.clone(), answers.clone());
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let said = ["/metadata/name", "/metadata/uid", "/status/of"];
                let said = said.map(|at| body.pointer(at).unwrap().as_str().unwrap().to_owned());
                noted.lock().unwrap().push(said);
                came.add_permits(1);
                answers.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Response::new(Body::from(body.to_string().into_bytes())))
            }
        };
        let client = Client::new(service_fn(answer), "default");
        let statuses = PolicyStatuses::new(Sender::new(client), false);
        (statuses, sent, turns)
    }

    #[tokio::test]
    async fn a_policy_that_is_made_anew_during_a_slow_round_gets_no_status_of_the_former_one() {
        for is_end in [false, true] {
            let (statuses, sent, [came, answers]) = slow_server();
            let publish = |policy: &str, uid: &str, of: &str| {
                statuses.publish(policy, seen(uid, "1"), json!({"of": of}));
            };
            for policy in ["a", "gone", "z"] {
                publish(policy, policy, "the former one");
            }
            let round = async {
                match is_end {
                    true => statuses.finish(|_, _| ()).await,
                    false => drop(statuses.flush(&|_: &str, _: &WriteFailure| ()).await),
                }
            };
            let meanwhile = async {
                came.acquire().await.unwrap().forget();
                // The write of `a` is under way.
                statuses.entries(|all| all.remove("gone"));
                publish("z", "made anew", "the new one");
                answers.add_permits(1);
                came.acquire().await.unwrap().forget();
                // Now that of `z` is, and the policy is made anew once more, with the same status.
                publish("z", "once more", "the new one");
                answers.add_permits(1);
            };
            let both = async { tokio::join!(round, meanwhile) };
            tokio::time::timeout(Duration::from_secs(30), both)
                .await
                .unwrap();
            answers.add_permits(1);
            statuses.finish(|_, _| ()).await;
            let expected = [
                ["a", "a", "the former one"],
                ["z", "made anew", "the new one"],
                ["z", "once more", "the new one"],
            ];
            assert_eq!(*sent.lock().unwrap(), expected, "{is_end}");
        }
    }

    #[tokio::test]
    async fn a_404_that_names_no_object_does_not_end_a_status() {
        for (observed, last) in [(seen("u", "7"), &["\"7\""][..]), (None, &["list", "\"7\""])] {
            let (statuses, sent) = server_behind_proxy(1, ("u", "7"));
            statuses.publish("p", observed, json!({}));
            let failures = Mutex::new(Vec::new());
            let told = |_: &str, failure: &WriteFailure| {
                failures.lock().unwrap().push(failure.reason);
            };
            statuses.finish(told).await;
            assert_eq!(*failures.lock().unwrap(), [KnownReason::KindMissing]);
            let waits = |all: &mut BTreeMap<String, StatusEntry>| {
                let entry = all.get("p").unwrap();
                matches!(entry.latest.next(0), NextTask::At(_))
            };
            assert!(statuses.entries(waits), "it is sent again, after a while");
            statuses.finish(told).await;
            assert_eq!(sent.lock().unwrap()[1..], *last);
            assert_eq!(failures.lock().unwrap().len(), 1);
            let left = |all: &mut BTreeMap<String, StatusEntry>| all["p"].latest.left().cloned();
            assert_eq!(statuses.entries(left), None);
        }
    }
}
