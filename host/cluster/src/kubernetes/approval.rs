//! Questions to the API server about who may do what: who the user of a client is, whether a user may approve a plan, and
//! what guests ask.

use crate::{ReadFailure, Verdict, review};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::json;
use std::time::Duration;
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
        let user = answered(asked)?.status.and_then(|status| status.user_info);
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
    /// When the API server does not tell, with the cause.
    pub async fn may(&self, user: &User, policy: &str) -> Result<bool, String> {
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
        let status = answered(asked)?.status;
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
    ) -> Result<Verdict, ReadFailure> {
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
        let answer = match timeout(PATIENCE, api.create(&parameters, &asked)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                return failed(KnownReason::ReadForbidden, status.message);
            }
            Ok(Err(kube::Error::Api(status))) if status.code < 500 => {
                return failed(KnownReason::ReadFailed, status.message);
            }
            Ok(Err(error)) => return failed(KnownReason::ServerUnavailable, error.to_string()),
            Err(_) => {
                let late = "it did not answer in time".to_owned();
                return failed(KnownReason::ServerUnavailable, late);
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

fn answered<T>(asked: Result<kube::Result<T>, tokio::time::error::Elapsed>) -> Result<T, String> {
    match asked {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(status.message),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the API server did not answer in time".to_owned()),
    }
}
