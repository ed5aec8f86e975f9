//! A kubeconfig in the host: parsed whole, shown to guests by reference, assembled again from their answer. Errors
//! hold no credential and no text of the document, only a path, a line and a kind.

mod assemble;
pub(crate) mod certificate;
mod check;
mod destination;
pub(crate) mod difference;
mod equal;
mod facts;
mod login;
mod servers;
mod shape;
mod structure;
pub(crate) mod url;

pub use assemble::Assembled;
pub use destination::Terms;

use crate::contract::credentials::{Proposal, SourceView};
use crate::document::{self, DocumentFault, ParseLimits};
use certificate::{CertificateFacts, Pair};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use transom_api::KnownReason;

/// The most values in a kubeconfig. Each may take 640 bytes once it is parsed, which [`COST`] does not count.
const NODES: usize = 4_000;

/// What the tag `!!binary` may be written with: short, or spelled out after `!<` or `%TAG`.
const BINARY: [&[u8]; 2] = [b"!!bin", b"tag:yaml.org,"];

/// Bytes of memory that one byte of a kubeconfig takes at most while it is parsed, shown, assembled and compared.
pub const COST: usize = 16;

/// What one kubeconfig may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeconfigLimits {
    /// Bytes of its text, read or written.
    pub bytes: usize,
}

impl Default for KubeconfigLimits {
    /// One mebibyte.
    fn default() -> Self {
        Self { bytes: 1 << 20 }
    }
}

/// A kubeconfig with its credentials.
pub struct SourceKubeconfig {
    document: Map<String, Value>,
    view: SourceView,
    bundles: Vec<Bundle>,
    /// For each proxy reference, the cluster entry that it comes from.
    proxies: Vec<u32>,
    /// For each user entry, its client certificate.
    certificates: Vec<Option<ClientCertificate>>,
    /// For each cluster entry, what makes it unusable.
    cluster_faults: Vec<Option<KubeconfigError>>,
    /// For each user entry, what makes it unusable.
    user_faults: Vec<Option<KubeconfigError>>,
}

/// The CA data of one cluster entry.
#[derive(Clone)]
struct Bundle {
    cluster: u32,
    certificates: Vec<CertificateFacts>,
}

/// The client certificate of one user entry.
#[derive(Clone, Copy)]
struct ClientCertificate {
    starts_seconds: i64,
    ends_seconds: i64,
    pair: Pair,
}

impl SourceKubeconfig {
    /// Reads a kubeconfig. As in clientcmd, `apiVersion` and `kind` may be absent or empty; a field that is null counts
    /// as absent, and a user without fields is one without a credential. An entry that is null is refused.
    ///
    /// # Errors
    /// When clients could not read it, when a server may hide a credential, or when current-context leads to an entry
    /// that is unusable.
    pub fn parse(bytes: &[u8], limits: &KubeconfigLimits) -> Result<Self, KubeconfigError> {
        let budget = ParseLimits {
            bytes: limits.bytes,
            nodes: NODES,
            depth: 64,
        };
        // The parser does not decode what has this tag, and clients do: another credential would be written.
        let has = |tag: &[u8]| bytes.windows(tag.len()).any(|part| part == tag);
        if BINARY.into_iter().any(has) {
            let message = "it may have the tag !!binary, which is not supported";
            return Err(DocumentPlace::ROOT.error(KnownReason::KubeconfigUnparsable, message));
        }
        let mut document = match document::parse_one(bytes, budget)? {
            Value::Object(map) => map,
            Value::Null => {
                return Err(DocumentPlace::ROOT.error(KnownReason::KubeconfigEmpty, "it is empty"));
            }
            _ => return Err(DocumentPlace::ROOT.error(KnownReason::NotAKubeconfig, "not a map")),
        };
        for (key, wanted) in [("apiVersion", "v1"), ("kind", "Config")] {
            let found = document.get(key);
            let found = found.filter(|found| !found.is_null() && *found != "");
            if found.is_some_and(|found| found != wanted) {
                let message = "not the value of a kubeconfig";
                return Err(DocumentPlace::ROOT
                    .field(key)
                    .error(KnownReason::NotAKubeconfig, message));
            }
        }
        shape::fill_users(&mut document);
        shape::check(&document)?;
        facts::read(document)
    }

    /// The guest's view. Its numbers are valid for one call, and are the same for the same document.
    pub fn view(&self) -> SourceView {
        self.view.clone()
    }

    /// The next end of the client certificates that an answer takes over, and of the last CA certificate of each
    /// cluster, in seconds since 1970; the first of all if none is to come.
    pub fn ends_seconds(&self, answer: &Proposal, now_seconds: i64) -> Option<i64> {
        let authorities = answer.clusters.iter().filter_map(|cluster| {
            let bundles = cluster.authorities.iter();
            let bundles = bundles.filter_map(|bundle| self.bundles.get(*bundle as usize));
            let certificates = bundles.flat_map(|bundle| &bundle.certificates);
            let authorities = certificates.filter(|certificate| certificate.is_ca);
            authorities
                .map(|certificate| certificate.ends_seconds)
                .max()
        });
        // The first of a chain, and that of the client itself.
        let users = answer.users.iter().flat_map(|user| {
            let entry = user.entry as usize;
            let chain = self.view.users.get(entry);
            let leaf = self.certificates.get(entry).copied().flatten();
            let leaf = leaf.map(|leaf| leaf.ends_seconds);
            [chain.and_then(|user| user.credential.ends_seconds), leaf]
        });
        let ends: Vec<i64> = users.flatten().chain(authorities).collect();
        let to_come = ends.iter().filter(|ends| **ends >= now_seconds);
        to_come.min().or_else(|| ends.iter().min()).copied()
    }
}

impl fmt::Debug for SourceKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Source({} clusters, {} users)",
            self.view.clusters.len(),
            self.view.users.len()
        )
    }
}

impl From<document::DocumentError> for KubeconfigError {
    fn from(error: document::DocumentError) -> Self {
        let reason = match error.fault {
            DocumentFault::TooLarge | DocumentFault::TooManyValues => {
                KnownReason::KubeconfigTooLarge
            }
            DocumentFault::DuplicateKey => KnownReason::DuplicateEntry,
            _ => KnownReason::KubeconfigUnparsable,
        };
        Self {
            reason,
            path: error.path,
            line: error.line,
            message: error.fault.as_str().into(),
            proposed: false,
        }
    }
}

/// What is wrong with a kubeconfig, read or proposed. Holds no text of the document and no name from inside it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct KubeconfigError {
    /// The reason.
    pub reason: KnownReason,
    /// Such as `users[0].user.client-key-data`; empty for the whole document.
    pub path: String,
    /// Where the parser stopped, counted from 1.
    pub line: Option<usize>,
    /// What is wrong there.
    pub message: Cow<'static, str>,
    /// Whether the fault is in what a guest proposed, not in the document that was read.
    pub proposed: bool,
}

impl fmt::Display for KubeconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.proposed {
            return f.write_str(&self.message);
        }
        f.write_str("failed to use the kubeconfig: ")?;
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match self.line {
            Some(line) => write!(f, " (line {line})"),
            None => Ok(()),
        }
    }
}

/// A place in the document, made of known fields and of numbers: `users[0].user`.
struct DocumentPlace(String);

impl DocumentPlace {
    /// The whole document.
    const ROOT: Self = Self(String::new());

    /// A field below.
    fn field(&self, name: &'static str) -> Self {
        match self.0.as_str() {
            "" => Self(name.to_owned()),
            above => Self(format!("{above}.{name}")),
        }
    }

    /// An item below.
    fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The error for this place.
    fn error(&self, reason: KnownReason, message: &'static str) -> KubeconfigError {
        KubeconfigError {
            reason,
            path: self.0.clone(),
            line: None,
            message: message.into(),
            proposed: false,
        }
    }

    /// The error for what a guest proposed at this place.
    fn proposed(&self, reason: KnownReason, what: &str) -> KubeconfigError {
        let message = match self.0.as_str() {
            "" => format!("the guest proposed {what}"),
            path => format!("the guest proposed {what} for `{path}`"),
        };
        KubeconfigError {
            message: message.into(),
            proposed: true,
            ..self.error(reason, "")
        }
    }

    /// The same with what is granted. Neither holds a name from inside the document.
    fn refused(&self, reason: KnownReason, what: &str, granted: &str) -> KubeconfigError {
        let error = self.proposed(reason, what);
        KubeconfigError {
            message: format!("{}; granted: {granted}", error.message).into(),
            ..error
        }
    }
}
