//! The part of a write grant that says where a credential may go. The shape only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a credential may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubeconfigGrant {
    /// Allowed servers: a role of a Service allows the DNS names of the Service, `source` allows the server of the
    /// source, and a value with `://` allows exactly that URL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<String>,
    /// Allowed servers that the cluster's DNS does not name: node ports, load balancers, fields of objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<AddressGrant>,
    /// Roles of kubeconfigs whose certificate authorities may be used.
    pub ca: Vec<String>,
    /// Kinds of credentials that may be written.
    #[serde(default = "harmless_credentials")]
    pub credentials: Vec<CredentialGrant>,
    /// Whether verification of the server may be skipped, or use the trust store of the client's machine.
    #[serde(default)]
    pub insecure: InsecureGrant,
    /// Whether a proxy of the source may be kept.
    #[serde(default)]
    pub proxy: CarryGrant,
    /// Whether a tls-server-name of the source may be kept.
    #[serde(default = "as_source")]
    pub tls_server_name: CarryGrant,
    /// The cluster domain: the end of the fully qualified DNS name of a Service.
    #[serde(default = "cluster_domain")]
    pub cluster_domain: String,
}

/// An allowed server in one of four forms: `role`, `nodePort` and `host`; `role` and `loadBalancer`; `role` and
/// `field`; `primaryField`. Always https.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressGrant {
    /// Role of a Service, or of another object that has the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Allow `host` with the node port of one of the Service's TCP ports.
    #[serde(skip_serializing_if = "is_false")]
    pub node_port: bool,
    /// The host of a node port: a name, an address, or `*.` and a domain, which matches every name below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Allow a host name or address of the Service's load balancer, with one of the Service's TCP ports.
    #[serde(skip_serializing_if = "is_false")]
    pub load_balancer: bool,
    /// A field of the role's object that the guest declares: a host with or without a port, a URL, or a mapping with
    /// `host` and `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A field of the primary with such a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_field: Option<String>,
    /// The port if the field has none; 443 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// Credentials that are only bytes.
fn harmless_credentials() -> Vec<CredentialGrant> {
    vec![
        CredentialGrant::ClientCertificate,
        CredentialGrant::Token,
        CredentialGrant::Basic,
    ]
}

/// A server name only narrows what is trusted.
fn as_source() -> CarryGrant {
    CarryGrant::AsSource
}

/// The domain of nearly every cluster.
fn cluster_domain() -> String {
    "cluster.local".to_owned()
}

/// A kind of credential.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum CredentialGrant {
    /// A client certificate with its key.
    ClientCertificate,
    /// A bearer token.
    Token,
    /// User name and password.
    Basic,
    /// An exec credential plugin: a program that the user of the kubeconfig runs.
    Exec,
    /// A legacy auth provider.
    AuthProvider,
    /// The path of a file on the machine of the kubeconfig's user.
    File,
}

/// Whether verification of the server may be skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InsecureGrant {
    /// Never.
    #[default]
    Never,
    /// Only where the source already skips it.
    AsSource,
}

/// Whether a value of the source may be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CarryGrant {
    /// It must be removed.
    #[default]
    Drop,
    /// It may be kept as it is in the source.
    AsSource,
}
