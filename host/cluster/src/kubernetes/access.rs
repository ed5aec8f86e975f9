//! Whether the holder of a token may get a path: asks the API server, and caches the answer for a minute. While the
//! API server does not answer, who was allowed stays so for a quarter of an hour: an outage of it must not end the
//! metrics that report it. Keeps only a digest of the token.

use super::connect::{self, ConnectError, ConnectSettings};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use transom_core::share::lock::MutexExt as _;

/// How long an answer stays in the cache.
const BELIEVED: Duration = Duration::from_secs(60);
/// For how long the last answer counts while the API server gives none, if it was `Allowed`.
const ALLOWED: Duration = Duration::from_secs(15 * 60);
/// The most answers in the cache.
const REMEMBERED: usize = 256;
/// How long the API server may take for one question.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same where the last answer counts: Prometheus waits for ten seconds for all.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// How many questions are sent at a time, so that a client with unknown tokens does not burden the API server.
const AT_ONCE: usize = 4;

/// What the API server says about a token and a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The holder of the token may get the path.
    Allowed,
    /// The token belongs to no known user.
    Unauthenticated,
    /// The holder of the token may not get the path.
    Forbidden,
    /// The API server gave no answer.
    Unknown,
}

/// Asks an API server who may get a path that the agent serves.
pub struct Reviews {
    client: Client,
    answers: Mutex<BTreeMap<AccessDigest, (Instant, Access)>>,
    room: Semaphore,
}

/// Digest of a token and a path.
type AccessDigest = [u8; 32];

impl Reviews {
    /// Asks one API server; the client needs the rights of `system:auth-delegator`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            answers: Mutex::default(),
            room: Semaphore::new(AT_ONCE),
        }
    }

    /// Asks the API server of these settings.
    ///
    /// # Errors
    /// When no client can be made of the settings.
    pub fn of(settings: &ConnectSettings) -> Result<Self, ConnectError> {
        connect::client(settings, watch::Sender::default()).map(Self::new)
    }

    /// Whether the holder of a token may `get` a path of the agent (nonResourceURLs).
    pub async fn may(&self, token: &str, path: &str) -> Access {
        let question = question(token, path);
        if let Some(access) = self.remembered(&question) {
            return access;
        }
        let patience = match self.was_allowed(&question) {
            true => SHORT_PATIENCE,
            false => PATIENCE,
        };
        let asked = async {
            let _room = self.room.acquire().await.ok()?;
            // A concurrent call may have got the answer meanwhile.
            match self.remembered(&question) {
                Some(access) => Some(access),
                None => match self.ask(token, path).await {
                    Ok(access) => Some(access),
                    Err(error) => is_refusal(&error).then_some(Access::Unknown),
                },
            }
        };
        let access = timeout(patience, asked).await.ok().flatten();
        match access {
            Some(Access::Unknown) => {
                self.answers.locked().remove(&question);
                Access::Unknown
            }
            Some(access) => {
                let answers = &mut self.answers.locked();
                remember(answers, question, access, Instant::now());
                access
            }
            // Meanwhile a concurrent call may have heard that it is denied.
            None if self.was_allowed(&question) => Access::Allowed,
            None => Access::Unknown,
        }
    }

    fn remembered(&self, question: &AccessDigest) -> Option<Access> {
        let answer = self.answers.locked().get(question).copied();
        answer
            .filter(|(since, _)| since.elapsed() < BELIEVED)
            .map(|(_, access)| access)
    }

    /// Whether the last answer counts while the API server gives none.
    fn was_allowed(&self, question: &AccessDigest) -> bool {
        let answers = self.answers.locked();
        let last = answers.get(question);
        last.is_some_and(|(since, access)| *access == Access::Allowed && since.elapsed() < ALLOWED)
    }

    async fn ask(&self, token: &str, path: &str) -> kube::Result<Access> {
        let spec = TokenReviewSpec {
            token: Some(token.to_owned()),
            ..TokenReviewSpec::default()
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let reviewed = Api::<TokenReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        let status = reviewed.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Access::Unauthenticated);
        };
        let review = SubjectAccessReview {
            spec: may_get(user, path),
            ..SubjectAccessReview::default()
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let reviewed = api.create(&PostParams::default(), &review).await?;
        let allowed = reviewed
            .status
            .is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if allowed {
            Access::Allowed
        } else {
            Access::Forbidden
        })
    }
}

fn question(token: &str, path: &str) -> AccessDigest {
    Sha256::new()
        .chain_update(path)
        .chain_update([0])
        .chain_update(token)
        .finalize()
        .into()
}

/// Caches an answer instead of the one before; removes expired answers, and then the oldest ones, first those of who
/// may not get anything.
fn remember(
    answers: &mut BTreeMap<AccessDigest, (Instant, Access)>,
    question: AccessDigest,
    access: Access,
    now: Instant,
) {
    answers.retain(|_, (since, access)| {
        let lasts = match access {
            Access::Allowed => ALLOWED,
            _ => BELIEVED,
        };
        now.saturating_duration_since(*since) < lasts
    });
    while answers.len() >= REMEMBERED {
        let oldest = answers
            .iter()
            .min_by_key(|(_, (since, access))| (*access == Access::Allowed, *since))
            .map(|(question, _)| *question);
        oldest.map(|question| answers.remove(&question));
    }
    answers.insert(question, (now, access));
}

fn may_get(user: UserInfo, path: &str) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(path.to_owned()),
            verb: Some("get".to_owned()),
        }),
        ..SubjectAccessReviewSpec::default()
    }
}

/// Whether the API server answered, and refused the question itself.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::Arc;
    use tokio::time::advance;
    use tower::service_fn;

    #[test]
    fn caches_answers_for_a_while_and_up_to_a_bound() {
        let (mut answers, start) = (BTreeMap::new(), Instant::now());
        let mut heard = |token: &str, access, at: Duration| {
            let (question, now) = (question(token, "/metrics"), start + at);
            remember(&mut answers, question, access, now);
            answers.clone()
        };
        let has =
            |answers: &BTreeMap<_, _>, token| answers.contains_key(&question(token, "/metrics"));
        heard("allowed", Access::Allowed, Duration::ZERO);
        let mut all = BTreeMap::new();
        for number in 1..1_000 {
            let at = Duration::from_millis(number);
            all = heard(&number.to_string(), Access::Forbidden, at);
        }
        assert_eq!(all.len(), REMEMBERED);
        assert!(has(&all, "999") && !has(&all, "1"));
        assert!(
            has(&all, "allowed"),
            "others end no answer that may be needed"
        );
        let all = heard("late", Access::Unauthenticated, 2 * BELIEVED);
        assert!(all.len() == 2 && has(&all, "allowed"));
        let all = heard("later", Access::Allowed, ALLOWED);
        assert_eq!(all.len(), 1);
    }

    /// What the API server says about every token, or that it does not answer. By `Unknown` it refuses the questions.
    #[derive(Clone)]
    struct Said(Arc<Mutex<Option<Access>>>);

    impl Said {
        fn reviews(&self) -> Reviews {
            let said = self.clone();
            let answer = move |request: Request<Body>| {
                let said = said.clone();
                async move {
                    let Some(access) = *said.0.locked() else {
                        return std::future::pending().await;
                    };
                    if access == Access::Unknown {
                        let refused = json!({"kind": "Status", "code": 403, "reason": "Forbidden"});
                        let refused = Body::from(refused.to_string().into_bytes());
                        return Ok(Response::builder().status(403).body(refused).unwrap());
                    }
                    let body = match request.uri().path().ends_with("tokenreviews") {
                        true => {
                            json!({"authenticated": access != Access::Unauthenticated, "user": {}})
                        }
                        false => json!({"allowed": access == Access::Allowed}),
                    };
                    let body = json!({"spec": {}, "status": body}).to_string();
                    Ok::<_, Infallible>(Response::new(Body::from(body.into_bytes())))
                }
            };
            Reviews::new(Client::new(service_fn(answer), "default"))
        }

        fn says(&self, access: Option<Access>) {
            *self.0.locked() = access;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_allowed_stays_so_for_a_quarter_of_an_hour_without_an_answer() {
        let said = Said(Arc::default());
        let reviews = said.reviews();
        let asked = async |token: &str| {
            let began = Instant::now();
            (reviews.may(token, "/metrics").await, began.elapsed())
        };
        said.says(Some(Access::Allowed));
        assert_eq!(asked("a").await.0, Access::Allowed);
        let since = Instant::now();
        said.says(Some(Access::Forbidden));
        assert_eq!(asked("b").await.0, Access::Forbidden);
        said.says(None);
        advance(BELIEVED).await;
        assert_eq!(asked("a").await, (Access::Allowed, SHORT_PATIENCE));
        assert_eq!(asked("b").await, (Access::Unknown, PATIENCE), "was denied");
        assert_eq!(
            asked("c").await,
            (Access::Unknown, PATIENCE),
            "was never allowed"
        );
        advance(ALLOWED - since.elapsed() - 2 * SHORT_PATIENCE).await;
        assert_eq!(asked("a").await.0, Access::Allowed);
        // It ends while the API server is waited for.
        advance(Duration::from_millis(1)).await;
        assert_eq!(asked("a").await.0, Access::Unknown);
        // A denial ends it at once, however long ago the token was allowed.
        said.says(Some(Access::Allowed));
        assert_eq!(asked("a").await.0, Access::Allowed);
        advance(BELIEVED).await;
        said.says(Some(Access::Unauthenticated));
        assert_eq!(asked("a").await.0, Access::Unauthenticated);
        said.says(None);
        advance(BELIEVED).await;
        assert_eq!(asked("a").await.0, Access::Unknown);
        // A refusal of the question is an answer.
        said.says(Some(Access::Allowed));
        assert_eq!(asked("a").await.0, Access::Allowed);
        advance(BELIEVED).await;
        said.says(Some(Access::Unknown));
        assert_eq!(asked("a").await.0, Access::Unknown);
    }

    #[test]
    fn the_cache_key_is_token_and_path() {
        assert_ne!(question("a", "/metrics"), question("a", "/debug/state"));
        assert_ne!(question("a", "/metrics"), question("b", "/metrics"));
        assert_ne!(question("", "/metricsa"), question("a", "/metrics"));
    }
}
