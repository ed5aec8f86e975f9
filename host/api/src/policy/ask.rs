//! What a guest may ask the API server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A question to the API server of the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskGrantSpec {
    /// Whether somebody may do something.
    pub access_review: AccessReviewGrant,
}

/// Whether somebody may do something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessReviewGrant {
    /// What.
    pub verb: String,
    /// With resources of this API group; the core group if it is absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural name of the resource, with the subresource if it is one: `managedclusters/clientcertificates`.
    pub resource: String,
    /// Pattern of the namespace that a question may name. Without it a question names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Pattern of the name that a question may name. Without it a question names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// About whom.
    #[serde(rename = "as")]
    pub of: AskAs,
}

/// About whom the API server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AskAs {
    /// Who made the primary, which is a CertificateSigningRequest.
    Requester,
    /// The agent.
    Agent,
}
