//! Checks an answer before it is assembled. Its size: a lower bound, because an answer names source entries by number,
//! and a number is much shorter than its entry. Whether it is sound: the entries that current-context leads to must be
//! usable now; clients do not use others by default, so a fault of those stays with them.

use super::assemble::text_of;
use super::certificate::{CertificateFacts, Pair};
use super::{Bundle, DocumentPlace, KubeconfigError, NODES, SourceKubeconfig, login};
use crate::contract::credentials::{AuthoritySource, Proposal, ProposedCluster, ProposedUser};
use serde_json::Value;
use std::iter::Sum;
use std::net::IpAddr;
use transom_api::KnownReason;
use transom_api::policy::InsecureGrant;

/// The entries that current-context leads to in an answer.
pub(super) struct Reached<'a> {
    cluster: (usize, &'a ProposedCluster),
    user: (usize, &'a ProposedUser),
}

/// Follows current-context.
///
/// # Errors
/// `ContextUnresolved`.
pub(super) fn reached(answer: &Proposal) -> Result<Reached<'_>, KubeconfigError> {
    let unresolved = |field, what| {
        let place = DocumentPlace::ROOT.field(field);
        place.proposed(KnownReason::ContextUnresolved, what)
    };
    if answer.current_context.is_empty() {
        return Err(unresolved("current-context", "nothing"));
    }
    let mut contexts = answer.contexts.iter();
    let context = contexts
        .find(|context| context.name == answer.current_context)
        .ok_or_else(|| unresolved("current-context", "a context that does not exist"))?;
    let mut clusters = answer.clusters.iter().enumerate();
    let cluster = clusters
        .find(|(_, cluster)| cluster.name == context.cluster)
        .ok_or_else(|| unresolved("contexts", "a current context whose cluster does not exist"))?;
    let mut users = answer.users.iter().enumerate();
    let user = users
        .find(|(_, user)| user.name == context.user)
        .ok_or_else(|| unresolved("contexts", "a current context whose user does not exist"))?;
    Ok(Reached { cluster, user })
}

/// Checks the cluster and the user that current-context leads to.
///
/// # Errors
/// `InvalidAuthority`, `InvalidCertificate`, `KubeconfigInvalid`, `CertificateKeyMismatch`, `CertificateExpired`,
/// `CertificateNotYetValid`.
pub(super) fn soundness(
    source: &SourceKubeconfig,
    reached: &Reached<'_>,
    insecure: InsecureGrant,
    now_seconds: i64,
) -> Result<(), KubeconfigError> {
    trust(source, reached.cluster, insecure, now_seconds)?;
    verified_name(reached.cluster)?;
    let (at, user) = reached.user;
    if let Some(Some(fault)) = source.user_faults.get(user.entry as usize) {
        return Err(fault.clone());
    }
    let place = DocumentPlace::ROOT.field("users").item(at).field("user");
    let users = source.document.get("users");
    let fields = users.and_then(|users| users.get(user.entry as usize)?.get("user")?.as_object());
    if let Some(fields) = fields {
        login::usable(fields, &place)?;
    }
    let Some(Some(certificate)) = source.certificates.get(user.entry as usize) else {
        return Ok(());
    };
    if certificate.pair == Pair::Differs {
        let message = "not the key of the client certificate";
        let place = place.field("client-key-data");
        return Err(place.error(KnownReason::CertificateKeyMismatch, message));
    }
    let place = place.field("client-certificate-data");
    if now_seconds < certificate.starts_seconds {
        let message = "the certificate is not valid yet";
        return Err(place.error(KnownReason::CertificateNotYetValid, message));
    }
    if now_seconds > certificate.ends_seconds {
        let message = "the certificate has expired";
        return Err(place.error(KnownReason::CertificateExpired, message));
    }
    Ok(())
}

/// Checks the CA data by which clients trust the server: at least one certificate must be a CA's and valid now,
/// because the old CA may stay beside the new one during a rotation. Without CA data the client's machine decides
/// what to trust; that needs the `insecure` grant, and the source must have none either.
fn trust(
    source: &SourceKubeconfig,
    (at, cluster): (usize, &ProposedCluster),
    insecure: InsecureGrant,
    now_seconds: i64,
) -> Result<(), KubeconfigError> {
    let place = DocumentPlace::ROOT
        .field("clusters")
        .item(at)
        .field("cluster");
    if cluster.insecure {
        if cluster.authorities.is_empty() {
            return Ok(());
        }
        let what = "to skip verification despite CA data, which clients reject,";
        let place = place.field("insecure-skip-tls-verify");
        return Err(place.proposed(KnownReason::KubeconfigInvalid, what));
    }
    let place = place.field("certificate-authority-data");
    let origin = source.view.clusters.get(cluster.entry as usize);
    let none_there = origin.is_some_and(|origin| origin.authority == AuthoritySource::None);
    if cluster.authorities.is_empty() && none_there && insecure == InsecureGrant::AsSource {
        return Ok(());
    }
    let bundles = cluster.authorities.iter();
    let bundles = bundles.filter_map(|reference| source.bundles.get(*reference as usize));
    let authorities: Vec<_> = bundles
        .flat_map(|bundle: &Bundle| &bundle.certificates)
        .filter(|facts| facts.is_ca)
        .collect();
    let started = |facts: &&CertificateFacts| facts.starts_seconds <= now_seconds;
    let lasts = |facts: &&CertificateFacts| now_seconds <= facts.ends_seconds;
    let (reason, message) = if authorities.is_empty() {
        (
            KnownReason::InvalidAuthority,
            "it contains no CA certificate",
        )
    } else if authorities
        .iter()
        .any(|facts| started(facts) && lasts(facts))
    {
        return Ok(());
    } else if authorities.iter().any(lasts) {
        (
            KnownReason::CertificateNotYetValid,
            "no CA certificate in it is valid yet",
        )
    } else {
        (
            KnownReason::CertificateExpired,
            "every CA certificate in it has expired",
        )
    };
    Err(place.error(reason, message))
}

/// Checks the name for which the server's certificate must be valid.
fn verified_name((at, cluster): (usize, &ProposedCluster)) -> Result<(), KubeconfigError> {
    let named = cluster.tls_server_name.as_deref();
    if named.is_none_or(is_name_or_address) {
        return Ok(());
    }
    let list = DocumentPlace::ROOT.field("clusters");
    let place = list.item(at).field("cluster").field("tls-server-name");
    let message = "neither a DNS name nor an IP address";
    Err(place.error(KnownReason::KubeconfigInvalid, message))
}

/// Whether clients can compare it with a certificate: Go takes capitals, `_`, a dot at the end, and brackets around an
/// address.
fn is_name_or_address(text: &str) -> bool {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let label = |part: &str| !part.is_empty() && !part.starts_with('-') && part.bytes().all(byte);
    let name = text.strip_suffix('.').unwrap_or(text);
    inner.unwrap_or(text).parse::<IpAddr>().is_ok() || name.split('.').all(label)
}

/// Bytes of text, and the number of values.
#[derive(Clone, Copy, Default)]
struct Size {
    bytes: usize,
    values: usize,
}

/// Whether the kubeconfig of an answer is certain to have more than so many bytes, or more values than a kubeconfig
/// may have.
pub(super) fn exceeds(source: &SourceKubeconfig, answer: &Proposal, bytes: usize) -> bool {
    let bundles = source.bundles.iter();
    let authorities: Vec<Size> = bundles
        .map(|bundle| text(text_of(source, bundle)))
        .collect();
    let [clusters, users, contexts] =
        ["clusters", "users", "contexts"].map(|list| entries(source, list));
    let one = |sizes: &[Size], at: u32| sizes.get(at as usize).copied().unwrap_or_default();
    let of_cluster = |wanted: &ProposedCluster| {
        let joined = wanted.authorities.iter();
        let joined = joined.map(|reference| one(&authorities, *reference));
        joined.chain([one(&clusters, wanted.entry)]).sum()
    };
    let of_users = answer.users.iter().map(|wanted| one(&users, wanted.entry));
    let of_contexts = answer.contexts.iter();
    let of_contexts = of_contexts.map(|wanted| one(&contexts, wanted.entry));
    let of_clusters = answer.clusters.iter().map(of_cluster);
    let all: Size = of_clusters.chain(of_users).chain(of_contexts).sum();
    all.bytes > bytes || all.values > NODES
}

/// The size of each entry of a list.
fn entries(source: &SourceKubeconfig, list: &str) -> Vec<Size> {
    let entries = source.document.get(list).and_then(Value::as_array);
    entries.into_iter().flatten().map(entry).collect()
}

/// The fields of a cluster and of a context that an answer replaces or leaves out; their size in the source does not
/// count.
const REPLACED: [(&str, &[&str]); 2] = [
    (
        "cluster",
        &[
            "server",
            "proxy-url",
            "tls-server-name",
            "certificate-authority-data",
        ],
    ),
    ("context", &["cluster", "user", "namespace"]),
];

/// The size of an entry, without its name and what an answer replaces in it.
fn entry(value: &Value) -> Size {
    let of = |(key, value): (&String, &Value)| {
        let replaced = REPLACED.into_iter().find(|(name, _)| key == name);
        match (replaced, value) {
            _ if key == "name" => Size::default(),
            (Some((_, replaced)), Value::Object(fields)) => {
                let kept = fields
                    .iter()
                    .filter(|(key, _)| !replaced.contains(&key.as_str()));
                kept.map(|(key, value)| field(key, value)).sum()
            }
            _ => field(key, value),
        }
    };
    value.as_object().into_iter().flatten().map(of).sum()
}

fn size(value: &Value) -> Size {
    let inner: Size = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| field(key, value)).sum(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::String(held) => return text(Some(held)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Size {
            bytes: 1,
            values: 0,
        },
    };
    Size {
        values: inner.values + 1,
        ..inner
    }
}

fn field(key: &str, value: &Value) -> Size {
    let size = size(value);
    Size {
        bytes: size.bytes.saturating_add(key.len()),
        ..size
    }
}

fn text(held: Option<&str>) -> Size {
    Size {
        bytes: held.map_or(0, str::len),
        values: 1,
    }
}

impl Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), |sum, size| Self {
            bytes: sum.bytes.saturating_add(size.bytes),
            values: sum.values.saturating_add(size.values),
        })
    }
}
