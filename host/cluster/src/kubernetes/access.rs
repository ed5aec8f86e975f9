//! Whether the holder of a token may get a path: asks the API server, and caches the answer for a minute.
//! Keeps only a digest of the token.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use transom_core::share::lock::MutexExt as _;

/// How long an answer stays in the cache.
const BELIEVED: Duration = Duration::from_secs(60);
/// The most answers in the cache.
const REMEMBERED: usize = 256;
/// How long the API server may take for one question.
const PATIENCE: Duration = Duration::from_secs(10);
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

    /// Whether the holder of a token may `get` a path of the agent (nonResourceURLs).
    pub async fn may(&self, token: &str, path: &str) -> Access {
        let question = question(token, path);
        if let Some(access) = self.remembered(&question) {
            return access;
        }
        let asked = async {
            let _room = self.room.acquire().await.ok()?;
            // A concurrent call may have got the answer meanwhile.
            match self.remembered(&question) {
                Some(access) => Some(access),
                None => self.ask(token, path).await.ok(),
            }
        };
        let access = tokio::time::timeout(PATIENCE, asked).await.ok().flatten();
        let Some(access) = access else {
            return Access::Unknown;
        };
        let answers = &mut self.answers.locked();
        remember(answers, question, access, Instant::now());
        access
    }

    fn remembered(&self, question: &AccessDigest) -> Option<Access> {
        let answer = self.answers.locked().get(question).copied();
        answer
            .filter(|(since, _)| since.elapsed() < BELIEVED)
            .map(|(_, access)| access)
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

/// Caches an answer; removes expired answers, and then the oldest ones.
fn remember(
    answers: &mut BTreeMap<AccessDigest, (Instant, Access)>,
    question: AccessDigest,
    access: Access,
    now: Instant,
) {
    answers.retain(|_, (since, _)| now.saturating_duration_since(*since) < BELIEVED);
    while answers.len() >= REMEMBERED {
        let oldest = answers
            .iter()
            .min_by_key(|(_, (since, _))| *since)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_answers_for_a_while_and_up_to_a_bound() {
        let (mut answers, start) = (BTreeMap::new(), Instant::now());
        for number in 0..1_000u64 {
            let now = start + Duration::from_millis(number);
            remember(
                &mut answers,
                question(&number.to_string(), "/metrics"),
                Access::Allowed,
                now,
            );
        }
        assert_eq!(answers.len(), REMEMBERED);
        assert!(
            answers.contains_key(&question("999", "/metrics"))
                && !answers.contains_key(&question("0", "/metrics"))
        );
        remember(
            &mut answers,
            question("late", "/metrics"),
            Access::Forbidden,
            start + 2 * BELIEVED,
        );
        assert_eq!(answers.len(), 1);
    }

    #[test]
    fn the_cache_key_is_token_and_path() {
        assert_ne!(question("a", "/metrics"), question("a", "/debug/state"));
        assert_ne!(question("a", "/metrics"), question("b", "/metrics"));
        assert_ne!(question("", "/metricsa"), question("a", "/metrics"));
    }
}
