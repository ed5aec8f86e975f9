//! What crosses of Secrets. Holds no credential bytes, only numbers that are valid for one call, which are left out of
//! digests.

use serde::{Deserialize, Serialize};

/// The bytes under one key of a Secret, by reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SecretBytes {
    /// The key.
    pub key: String,
    /// Number that is valid for one call.
    #[serde(skip_serializing)]
    pub reference: u32,
    /// How many bytes.
    pub size: u32,
}

/// Where in a Secret a certificate is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CertificateKeys {
    /// The key with certificates in PEM.
    pub certificate: String,
    /// The key with the private key.
    pub private_key: Option<String>,
}

impl CertificateKeys {
    /// Every key.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.certificate).chain(&self.private_key)
    }
}

/// A certificate, or why it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case"))]
pub enum CertificateContent {
    /// What it says.
    Readable(Certificate),
    /// Why it cannot be read.
    Malformed(String),
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Certificate {
    /// Whose it is, as in RFC 4514.
    pub subject: String,
    /// Who signed it.
    pub issuer: String,
    /// Begin of its validity, in seconds since 1970.
    pub starts_seconds: i64,
    /// End of its validity, in seconds since 1970.
    pub ends_seconds: i64,
    /// SHA-256 in hexadecimal.
    pub fingerprint: String,
    /// Whether the private key belongs to it.
    pub private_key: PrivateKey,
}

/// Whether a private key belongs to a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Default, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case"))]
pub enum PrivateKey {
    /// It was not asked for.
    #[default]
    NotAsked,
    /// Its key is not there.
    Missing,
    /// It does.
    Belongs,
    /// It belongs to another one, or is none.
    Other,
    /// Its file does not say.
    Untold,
}
