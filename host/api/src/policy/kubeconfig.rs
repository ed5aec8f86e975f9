//! The part of a write grant that says where a credential may go. Never more than its shape.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a credential may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeconfigGrant {
    /// Roles of Services whose DNS forms are allowed as server; `source` allows the source's own server;
    /// anything with `://` is that server exactly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<String>,
    /// Servers that the DNS of the cluster does not name: node ports, load balancers, fields of objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<AddressGrant>,
    /// Roles of kubeconfigs from which CA references may come.
    pub ca: Vec<String>,
    /// Kinds of credentials that may be written.
    #[serde(default = "harmless_credentials")]
    pub credentials: Vec<CredentialGrant>,
    /// Whether the verification of the server may be skipped, or be left to what the client's machine trusts.
    #[serde(default)]
    pub insecure: InsecureGrant,
    /// Whether a proxy may stay.
    #[serde(default)]
    pub proxy: CarryGrant,
    /// Whether a tls-server-name may stay.
    #[serde(default = "as_source")]
    pub tls_server_name: CarryGrant,
    /// The domain that closes the longest DNS form of a Service.
    #[serde(default = "cluster_domain")]
    pub cluster_domain: String,
}

/// A server by one of four forms: `role`, `nodePort` and `host`; `role` and `loadBalancer`; `role` and `field`;
/// `primaryField`. Always https.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressGrant {
    /// Role of a Service, or of another object that has the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// A host with the node port of one of the Service's TCP ports.
    #[serde(skip_serializing_if = "is_false")]
    pub node_port: bool,
    /// The host of a node port: a name, an address, or `*.` and a domain for every name below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// A host name or address of the Service's load balancer, with one of the Service's TCP ports.
    #[serde(skip_serializing_if = "is_false")]
    pub load_balancer: bool,
    /// A field of the role's object that its guest declares: a host with or without a port, a URL, or a map of `host`
    /// and `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Such a field of the primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_field: Option<String>,
    /// The port where the field says none; 443 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Those that are bytes and nothing else.
fn harmless_credentials() -> Vec<CredentialGrant> {
    vec![CredentialGrant::ClientCertificate, CredentialGrant::Token, CredentialGrant::Basic]
}

/// A name only narrows what is trusted.
fn as_source() -> CarryGrant {
    CarryGrant::AsSource
}

/// The domain of nearly every cluster.
fn cluster_domain() -> String {
    "cluster.local".to_owned()
}

/// A kind of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum CredentialGrant {
    /// A client certificate with its key.
    ClientCertificate,
    /// A bearer token.
    Token,
    /// User name and password.
    Basic,
    /// A program that whoever uses the kubeconfig runs.
    Exec,
    /// A legacy auth provider.
    AuthProvider,
    /// A path on the machine of whoever uses the kubeconfig.
    File,
}

/// Whether the verification of the server may be skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InsecureGrant {
    /// Never.
    #[default]
    Never,
    /// Where the source already does.
    AsSource,
}

/// Whether something that the source carries may stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CarryGrant {
    /// It must go.
    #[default]
    Drop,
    /// It may stay as it is in the source.
    AsSource,
}
