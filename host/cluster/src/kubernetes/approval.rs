//! Questions to the API server about who may do what: who the user of a client is, whether a user may approve a plan,
//! and what guests ask.

use super::cause::RequestFailure;
use crate::{AccessVerdict, ReadFailure, review};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::json;
use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use transom_api::{GROUP, KnownReason};
use transom_core::contract::decide::Review;
use transom_core::inputs::request::Requester;

/// How long the API server may take for one question.
const PATIENCE: Duration = Duration::from_secs(10);

/// A user as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Groups.
    pub groups: Vec<String>,
}

/// Asks one API server.
pub struct Approvals {
    client: Client,
}

impl Approvals {
    /// Asks with this client.
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// The user of the client.
    ///
    /// # Errors
    /// When the API server does not tell, with the cause.
    pub async fn whoami(&self) -> Result<User, String> {
        let api = Api::<SelfSubjectReview>::all(self.client.clone());
        let review = SelfSubjectReview::default();
        let parameters = PostParams::default();
        let asked = timeout(PATIENCE, api.create(&parameters, &review)).await;
        let user = answered(asked)
            .map_err(|cause| cause.message)?
            .status
            .and_then(|status| status.user_info);
        let user = user.unwrap_or_default();
        let name = user.username.unwrap_or_default();
        match name.is_empty() {
            true => Err("the API server does not name the user".to_owned()),
            false => Ok(User {
                name,
                groups: user.groups.unwrap_or_default(),
            }),
        }
    }

    /// Whether a user may `update` the subresource `approval` of a policy.
    ///
    /// # Errors
    /// `ReadForbidden` when the agent may not ask, else `ServerUnavailable` or `ReadFailed`.
    pub async fn may(&self, user: &User, policy: &str) -> Result<bool, ReadFailure> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                groups: Some(user.groups.clone()),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(GROUP.to_owned()),
                    resource: Some("fleetpolicies".to_owned()),
                    subresource: Some("approval".to_owned()),
                    verb: Some("update".to_owned()),
                    name: Some(policy.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let parameters = PostParams::default();
        let asked = timeout(PATIENCE, api.create(&parameters, &review)).await;
        let status = answered(asked).map_err(unanswered)?.status;
        Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

impl Approvals {
    /// The answer of the API server to a question about access.
    ///
    /// # Errors
    /// `ReadForbidden` when the agent may not ask, else `ServerUnavailable` or `ReadFailed`.
    pub(super) async fn ask(
        self,
        question: &Review,
        requester: Option<&Requester>,
    ) -> Result<AccessVerdict, ReadFailure> {
        let (kind, spec) = (review::kind(requester), review::spec(question, requester));
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("authorization.k8s.io", "v1", kind));
        let api = Api::<DynamicObject>::all_with(self.client, &resource);
        let asked = DynamicObject::new("", &resource).data(json!({"spec": spec}));
        let parameters = PostParams::default();
        let failed = |reason, message: String| {
            let message = format!(
                "failed to ask the API server who may `{}`: {message}",
                question.verb
            );
            Err(ReadFailure { reason, message })
        };
        let answer = match answered(timeout(PATIENCE, api.create(&parameters, &asked)).await) {
            Ok(answer) => answer,
            Err(cause) => {
                let ReadFailure { reason, message } = unanswered(cause);
                return failed(reason, message);
            }
        };
        match answer.data.get("status").and_then(review::verdict) {
            Some(verdict) => Ok(verdict),
            None => failed(
                KnownReason::ReadFailed,
                "the answer has no verdict".to_owned(),
            ),
        }
    }
}

/// The answer, or why there is none, without the text of a proxy.
fn answered<T>(asked: Result<kube::Result<T>, Elapsed>) -> Result<T, RequestFailure> {
    asked
        .map_err(|_| RequestFailure::late(PATIENCE))?
        .map_err(|error| RequestFailure::of(&error))
}

/// Why a question has no answer. That the API server does not serve it says nothing about a kind that a policy names.
fn unanswered(cause: RequestFailure) -> ReadFailure {
    let reason = match cause.reason {
        KnownReason::KindMissing => KnownReason::ReadFailed,
        reason => reason,
    };
    ReadFailure {
        reason,
        message: cause.message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use std::convert::Infallible;
    use tower::service_fn;
    use transom_core::contract::decide::Who;

    /// What the page of a proxy holds.
    const CANARY: &str = "c4n4ry-of-a-proxy";

    fn answering(code: u16, body: String) -> Approvals {
        let answer = move |_: Request<Body>| {
            let body = Body::from(body.clone().into_bytes());
            let mut answer = Response::new(body);
            *answer.status_mut() = code.try_into().unwrap();
            async { Ok::<_, Infallible>(answer) }
        };
        Approvals::new(Client::new(service_fn(answer), "default"))
    }

    async fn told(code: u16, body: &str) -> (KnownReason, [String; 3]) {
        let at = || answering(code, body.to_owned());
        let question = Review {
            who: Who::Agent,
            verb: "renew".to_owned(),
            group: String::new(),
            resource: "secrets".to_owned(),
            subresource: None,
            namespace: None,
            name: None,
        };
        let asked = at().ask(&question, None).await.unwrap_err();
        let whoami = at().whoami().await.unwrap_err();
        let may = at().may(&User::default(), "p").await.unwrap_err();
        assert_eq!(may.reason, asked.reason);
        (asked.reason, [asked.message, whoami, may.message])
    }

    #[tokio::test]
    async fn a_failed_question_quotes_an_api_server_and_no_proxy() {
        use KnownReason as R;
        let page = format!("<html>{}</html>", CANARY.repeat(1_000));
        let json = json!({"message": CANARY, "code": 403}).to_string();
        for (code, reason) in [
            (400, R::ReadFailed),
            (403, R::ReadForbidden),
            (404, R::ReadFailed),
            (407, R::ReadFailed),
            (502, R::ServerUnavailable),
        ] {
            for body in [&page, &json] {
                let (told, messages) = told(code, body).await;
                let is_page = *body == page;
                assert!(!is_page || told == reason, "{code}: {told:?}");
                for message in messages {
                    assert!(
                        !message.contains(CANARY) && message.len() < 200,
                        "{message}"
                    );
                }
            }
        }
        let why = "User \"u\" cannot create resource \"subjectaccessreviews\"";
        let status = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": why});
        let (reason, messages) = told(403, &status.to_string()).await;
        assert_eq!(reason, R::ReadForbidden);
        assert!(
            messages.iter().all(|message| message.ends_with(why)),
            "{messages:?}"
        );
    }
}
