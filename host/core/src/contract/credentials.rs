//! A kubeconfig by reference: what a guest sees of one, and what it proposes. Holds no credential bytes, only numbers
//! that are valid for one call. Serialisation is for digests and leaves those numbers out.

use serde::{Deserialize, Serialize};

/// Scheme, host, port and path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct Url {
    /// `https`, `http`, `socks5`.
    pub scheme: String,
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// Absent when the URL names none.
    pub port: Option<u16>,
    /// Empty or starting with a slash.
    pub path: String,
}

/// CA data by reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct Authority {
    /// Number that is valid for one call.
    #[serde(skip_serializing)]
    pub reference: u32,
    /// SHA-256 of each certificate in hexadecimal, in order.
    pub fingerprints: Vec<String>,
    /// The earliest end of validity, seconds since 1970.
    pub ends_seconds: Option<i64>,
    /// Whether every certificate is a CA certificate.
    pub is_ca: bool,
}

/// Where a cluster entry takes its CA from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case"))]
pub enum AuthoritySource {
    /// Nowhere.
    #[default]
    None,
    /// Data in the document.
    Data(Authority),
    /// A file path, which stays in the host.
    File,
}

/// A proxy: the part of its URL that a guest may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct Proxy {
    /// Number that is valid for one call.
    #[serde(skip_serializing)]
    pub reference: u32,
    /// Without userinfo, query and fragment; empty when it is not a URL.
    pub url: Url,
}

/// One cluster entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct ClusterView {
    /// Number of the entry in the source.
    pub entry: u32,
    /// Its name.
    pub name: String,
    /// Its server; empty when it is not a URL.
    pub server: Url,
    /// Its CA.
    pub authority: AuthoritySource,
    /// `insecure-skip-tls-verify`.
    pub insecure: bool,
    /// `proxy-url`.
    pub proxy: Option<Proxy>,
    /// `tls-server-name`.
    pub tls_server_name: Option<String>,
}

/// How one user authenticates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the set of kinds, as in wit/credentials.wit"
)]
pub struct Credential {
    /// Number that is valid for one call.
    #[serde(skip_serializing)]
    pub reference: u32,
    /// A client certificate with its key.
    pub client_certificate: bool,
    /// A bearer token.
    pub token: bool,
    /// User name and password.
    pub basic: bool,
    /// A program to run.
    pub exec: bool,
    /// A legacy auth provider.
    pub auth_provider: bool,
    /// A path to a file.
    pub file: bool,
    /// The earliest end of validity, seconds since 1970.
    pub ends_seconds: Option<i64>,
}

/// One user entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct UserView {
    /// Number of the entry in the source.
    pub entry: u32,
    /// Its name.
    pub name: String,
    /// Its credential.
    pub credential: Credential,
}

/// One context entry, in a source or in an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct ContextEntry {
    /// Number of the entry in the source.
    pub entry: u32,
    /// Its name.
    pub name: String,
    /// Name of a cluster entry.
    pub cluster: String,
    /// Name of a user entry.
    pub user: String,
    /// Default namespace.
    pub namespace: Option<String>,
}

/// A source kubeconfig as a guest sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all(deserialize = "kebab-case"))]
pub struct SourceView {
    /// `clusters`.
    pub clusters: Vec<ClusterView>,
    /// `users`.
    pub users: Vec<UserView>,
    /// `contexts`.
    pub contexts: Vec<ContextEntry>,
    /// `current-context`, empty when there is none.
    pub current_context: String,
}

/// A cluster entry of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProposedCluster {
    /// Which source entry it came from.
    pub entry: u32,
    /// Its name.
    pub name: String,
    /// Its server.
    pub server: Url,
    /// CA references, joined in this order.
    pub authorities: Vec<u32>,
    /// `insecure-skip-tls-verify`.
    pub insecure: bool,
    /// A proxy's reference.
    pub proxy: Option<u32>,
    /// `tls-server-name`.
    pub tls_server_name: Option<String>,
}

/// A user entry of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProposedUser {
    /// Which source entry it came from.
    pub entry: u32,
    /// Its name.
    pub name: String,
    /// A credential's reference.
    pub credential: u32,
}

/// A kubeconfig as a guest proposes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Proposal {
    /// `clusters`.
    pub clusters: Vec<ProposedCluster>,
    /// `users`.
    pub users: Vec<ProposedUser>,
    /// `contexts`.
    pub contexts: Vec<ContextEntry>,
    /// `current-context`.
    pub current_context: String,
}
