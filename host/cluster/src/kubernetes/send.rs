//! Sends writes of objects, status and Events: paced, with a time limit, counted, and again if the server asks for it.
//! The caller judges the answer. The Lease and access reviews do not go through here.

mod slow;

use super::cause::RequestFailure;
use super::counts::{Purpose, RequestCounts, RequestVerb};
use super::lease::Leading;
use super::millis;
use http::Request;
use kube::Client;
use kube::core::Status;
use serde_json::Value;
use slow::{SlowKinds, kind_of};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};
use transom_core::share::concurrency::{Admission, ConcurrencyLimit, RequestEnd, Ticket};
use transom_core::share::lock::MutexExt as _;

/// The time limit of one attempt.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// How long new attempts of a request may begin, waits included.
const DEADLINE: Duration = Duration::from_secs(30);
/// The most attempts of a request while the server has no room.
const TRIES: usize = 10;

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum SendError {
    /// The server, or something on the way to it, refused.
    Answered {
        /// The HTTP status.
        code: u16,
        /// The Status in the answer, if there was one.
        status: Option<Box<Status>>,
        /// The pause that it asked for, in milliseconds.
        pause_ms: Option<u64>,
    },
    /// There is no usable answer. The text says why, and contains nothing that was sent or received.
    Silent(String),
    /// The request was not sent: this replica no longer leads.
    NotLeading,
}

impl SendError {
    /// The refusal for an error of kube's client.
    pub(super) fn of(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                // For a body that is no Status, the client makes up a Status with the body as its message.
                let real = status.status.is_some() && status.reason != "Failed to parse error data";
                Self::Answered {
                    code: status.code,
                    status: real.then_some(status),
                    pause_ms: None,
                }
            }
            error => Self::Silent(RequestFailure::of(&error).message),
        }
    }

    /// No answer came in time.
    pub(super) fn late() -> Self {
        Self::Silent(RequestFailure::late(TIMEOUT).message)
    }

    /// The server's message; empty if the answer was no Status.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Answered {
                status: Some(status),
                ..
            } => &status.message,
            _ => "",
        }
    }

    /// Whether a webhook refused in the server's place: the server itself may have room.
    fn of_webhook(&self) -> bool {
        self.message().starts_with("admission webhook ")
    }

    /// What it says about the server as a whole; `path` is that of the request.
    fn ending(&self, path: &str) -> RequestEnd {
        match self {
            Self::Answered { code: 503, .. } if !self.of_webhook() && may_be_aggregated(path) => {
                RequestEnd::Lost
            }
            Self::Answered {
                code: 429 | 503,
                pause_ms,
                ..
            } if !self.of_webhook() => RequestEnd::PushedBack(*pause_ms),
            Self::Answered { .. } | Self::NotLeading => RequestEnd::Answered,
            Self::Silent(_) => RequestEnd::Lost,
        }
    }
}

/// Whether another server than kube-apiserver may answer for a path: an aggregated API has a group with a dot. If it is
/// down, kube-apiserver answers 503 in its place, and that is no reason to pause the writes of everything else.
/// Groups of custom resources and some built-in ones have a dot, too. Their 503 comes at a start or shutdown, when a
/// pause gains little: an overloaded kube-apiserver answers 429, and the back-off of each primary paces the rest.
fn may_be_aggregated(path: &str) -> bool {
    let rest = path.strip_prefix("/apis/").unwrap_or_default();
    let group = rest.split('/').next().unwrap_or_default();
    group.contains('.')
}

/// Sends requests. Cheap to clone; all clones share one rate limit.
#[derive(Clone)]
pub(super) struct Sender {
    client: Client,
    limiter: Arc<RateLimiter>,
    slow: Arc<SlowKinds>,
    counts: Arc<RequestCounts>,
    /// Checked right before each request is sent, where there is an election.
    leading: Arc<OnceLock<Leading>>,
}

impl Sender {
    /// A sender with its own rate limit and counts.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            limiter: Arc::new(RateLimiter::new()),
            slow: Arc::default(),
            counts: Arc::default(),
            leading: Arc::default(),
        }
    }

    /// From now on, sends only while this replica leads. Later calls have no effect.
    pub(super) fn lead_by(&self, leading: Leading) {
        let _ = self.leading.set(leading);
    }

    /// The requests since the start.
    pub(super) fn counts(&self) -> &Arc<RequestCounts> {
        &self.counts
    }

    /// Sends a request and returns the JSON of the answer. Retries only if the server has no room (429), a few times
    /// and not for long. After any other failure the request may have taken effect, so it is not sent again.
    pub(super) async fn send(
        &self,
        verb: RequestVerb,
        purpose: Purpose,
        request: &Request<Vec<u8>>,
    ) -> Result<Value, SendError> {
        let deadline = Instant::now() + DEADLINE;
        let mut refused =
            SendError::Silent("the API server has no capacity for the request".to_owned());
        let kind = kind_of(request.uri().path());
        let Ok(_place) = timeout_at(deadline, self.slow.place(&kind)).await else {
            let why = "requests for this kind take long, and this one could not be sent in time";
            return Err(SendError::Silent(why.to_owned()));
        };
        for _ in 0..TRIES {
            let Some(permit) = self.limiter.enter(deadline).await else {
                break;
            };
            // Waiting for room may have taken longer than the lease lasts.
            if self.leading.get().is_some_and(|leading| !leading.leads()) {
                permit.end(RequestEnd::Answered);
                return Err(SendError::NotLeading);
            }
            self.counts.add(verb, purpose);
            let began = Instant::now();
            let answer = timeout(self.patience(), self.once(request.clone())).await;
            let answer = answer.unwrap_or_else(|_| Err(SendError::late()));
            self.slow.note(&kind, began.elapsed());
            let ending = |refusal: &SendError| refusal.ending(request.uri().path());
            permit.end(
                answer
                    .as_ref()
                    .map_or_else(ending, |_| RequestEnd::Answered),
            );
            match answer {
                Err(refusal @ SendError::Answered { code: 429, .. }) if !refusal.of_webhook() => {
                    refused = refusal;
                }
                answer => return answer,
            }
        }
        Err(refused)
    }

    /// How long one attempt may take: it ends before another replica may lead.
    fn patience(&self) -> Duration {
        self.leading
            .get()
            .map_or(TIMEOUT, |leading| leading.left().min(TIMEOUT))
    }

    async fn once(&self, request: Request<Vec<u8>>) -> Result<Value, SendError> {
        let answer = self
            .client
            .send(request.map(Into::into))
            .await
            .map_err(SendError::of)?;
        let code = answer.status();
        let pause = answer
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
        let body = answer
            .into_body()
            .collect_bytes()
            .await
            .map_err(SendError::of)?;
        if code.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|_| SendError::Silent(RequestFailure::malformed().message));
        }
        let status = serde_json::from_slice::<Status>(&body)
            .ok()
            .filter(|status| status.status.is_some());
        let pause_ms = pause.map(|seconds| seconds.saturating_mul(1_000));
        Err(SendError::Answered {
            code: code.as_u16(),
            status: status.map(Box::new),
            pause_ms,
        })
    }
}

/// The limit on concurrent requests to one API server, shared by all writers: delays a request until there is room, and
/// until a pause has ended (`core::share::concurrency`).
struct RateLimiter {
    limit: Mutex<ConcurrencyLimit>,
    /// Notified when there may be room for one more request.
    freed: Notify,
    start: Instant,
    seeds: RandomState,
    asked: AtomicU64,
}

/// Permission for one request; end it with the outcome of the request.
struct RequestPermit<'a> {
    limiter: &'a RateLimiter,
    ticket: Option<Ticket>,
}

impl RateLimiter {
    /// No request is under way yet.
    fn new() -> Self {
        Self {
            limit: Mutex::default(),
            freed: Notify::new(),
            start: Instant::now(),
            seeds: RandomState::new(),
            asked: AtomicU64::new(0),
        }
    }

    /// Waits until a request may start; `None` if that is not before the deadline.
    async fn enter(&self, deadline: Instant) -> Option<RequestPermit<'_>> {
        loop {
            let asked = self.asked.fetch_add(1, Ordering::Relaxed);
            let seed = self.seeds.hash_one(asked);
            let (admission, room) = {
                let mut limit = self.limit.locked();
                let admission = limit.admit(millis(self.start.elapsed()), seed);
                (admission, limit.has_room())
            };
            // A woken waiter wakes the next one, so that none is left waiting while there is room.
            if room {
                self.freed.notify_one();
            }
            match admission {
                Admission::Go(ticket) => {
                    return Some(RequestPermit {
                        limiter: self,
                        ticket: Some(ticket),
                    });
                }
                Admission::Full => timeout_at(deadline, self.freed.notified()).await.ok()?,
                Admission::Closed(left_ms) => {
                    let left = Duration::from_millis(left_ms);
                    if Instant::now() + left > deadline {
                        return None;
                    }
                    sleep(left).await;
                }
            }
        }
    }
}

impl RequestPermit<'_> {
    /// Ends the request with its outcome.
    fn end(mut self, ending: RequestEnd) {
        self.give_back(ending);
    }

    fn give_back(&mut self, ending: RequestEnd) {
        if let Some(ticket) = self.ticket.take() {
            let RateLimiter { limit, start, .. } = self.limiter;
            limit
                .locked()
                .ended(ticket, ending, millis(start.elapsed()));
            self.limiter.freed.notify_one();
        }
    }
}

/// A dropped permit counts as a request without an answer.
impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        self.give_back(RequestEnd::Lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::atomic::AtomicBool;
    use tower::service_fn;

    const CORE: &str = "/api/v1/namespaces/n/configmaps/c";
    const APPS: &str = "/apis/apps/v1/namespaces/n/deployments/d";
    const AGGREGATED: &str = "/apis/agg.example/v1/namespaces/n/things/t";

    /// A sender to a server that refuses one path, and asks for a minute.
    fn sender(code: u16, refused: &'static str) -> Sender {
        let answer = move |request: Request<Body>| async move {
            let answer = match request.uri().path() == refused {
                true => Response::builder().status(code).header("retry-after", "60"),
                false => Response::builder(),
            };
            let status = json!({"kind": "Status", "status": "Failure", "code": code});
            let body = Body::from(status.to_string().into_bytes());
            Ok::<_, Infallible>(answer.body(body).unwrap())
        };
        Sender::new(Client::new(service_fn(answer), "default"))
    }

    async fn sends(sender: &Sender, path: &str) -> Result<Value, SendError> {
        let request = Request::put(path).body(Vec::new()).unwrap();
        let (verb, purpose) = (RequestVerb::Update, Purpose::Work);
        sender.send(verb, purpose, &request).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_whose_writes_hang_leaves_room_for_the_others() {
        let hangs = Arc::new(AtomicBool::new(true));
        let hanging = Arc::clone(&hangs);
        let answer = move |request: Request<Body>| {
            let waits = request.uri().path() == APPS && hanging.load(Ordering::Relaxed);
            async move {
                if waits {
                    std::future::pending::<()>().await;
                }
                let body = Body::from(b"{}".to_vec());
                Ok::<_, Infallible>(Response::new(body))
            }
        };
        let sender = Sender::new(Client::new(service_fn(answer), "default"));
        let many = || (0..40).map(|_| sends(&sender, APPS));
        assert!(sends(&sender, APPS).await.is_err());
        // Forty requests of the kind that hangs are under way, and none of another kind waits.
        let start = Instant::now();
        let hung = futures::future::join_all(many());
        let others = async {
            for _ in 0..100 {
                sends(&sender, CORE).await.unwrap();
            }
            start.elapsed()
        };
        let (hung, took) = futures::future::join(hung, others).await;
        assert!(hung.iter().all(Result::is_err));
        assert!(took < Duration::from_secs(1), "{took:?}");
        // Once it answers again, it has all places again.
        hangs.store(false, Ordering::Relaxed);
        sends(&sender, APPS).await.unwrap();
        assert!(!sender.slow.has_none(), "others of its requests may hang");
        tokio::time::advance(Duration::from_secs(30)).await;
        sends(&sender, APPS).await.unwrap();
        assert!(sender.slow.has_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_aggregated_api_without_its_server_holds_up_no_other_write() {
        for (code, refused, pauses) in [
            (503, AGGREGATED, false),
            (503, APPS, true),
            (503, CORE, true),
            (429, AGGREGATED, true),
        ] {
            let sender = sender(code, refused);
            let before = sender.limiter.limit.locked().clone();
            let refusal = sends(&sender, refused).await;
            assert!(
                matches!(refusal, Err(SendError::Answered { code: said, .. }) if said == code),
                "{refusal:?}"
            );
            let same = *sender.limiter.limit.locked() == before;
            assert_eq!(same, !pauses, "{code} {refused}");
            let other = if refused == APPS { CORE } else { APPS };
            assert_eq!(
                sends(&sender, other).await.is_err(),
                pauses,
                "{code} {refused}"
            );
        }
    }
}
