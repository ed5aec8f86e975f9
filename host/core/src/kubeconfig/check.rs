//! Whether a result is sound: the entries that current-context leads to must be usable now. Other entries are only
//! checked while parsing: clients do not use them by default.

use super::error::{KubeconfigError, Place};
use super::key::Pair;
use super::{Bundle, Source};
use crate::contract::credentials::{AuthoritySource, Proposal, ProposedCluster, ProposedUser};
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
    let unresolved = |field, message| {
        Place::ROOT
            .field(field)
            .proposed(KnownReason::ContextUnresolved, message, None)
    };
    if answer.current_context.is_empty() {
        return Err(unresolved("current-context", "nothing"));
    }
    let context = answer
        .contexts
        .iter()
        .find(|context| context.name == answer.current_context)
        .ok_or_else(|| unresolved("current-context", "a context that does not exist"))?;
    let cluster = answer
        .clusters
        .iter()
        .enumerate()
        .find(|(_, cluster)| cluster.name == context.cluster)
        .ok_or_else(|| unresolved("contexts", "a current context whose cluster does not exist"))?;
    let user = answer
        .users
        .iter()
        .enumerate()
        .find(|(_, user)| user.name == context.user)
        .ok_or_else(|| unresolved("contexts", "a current context whose user does not exist"))?;
    Ok(Reached { cluster, user })
}

/// Checks the cluster and the user that current-context leads to.
///
/// # Errors
/// `InvalidAuthority`, `KubeconfigInvalid`, `CertificateKeyMismatch`, `CertificateExpired`, `CertificateNotYetValid`.
pub(super) fn soundness(
    source: &Source,
    reached: &Reached<'_>,
    insecure: InsecureGrant,
    now_seconds: i64,
) -> Result<(), KubeconfigError> {
    trust(source, reached.cluster, insecure, now_seconds)?;
    let (at, user) = reached.user;
    let Some(Some(certificate)) = source.certificates.get(user.entry as usize) else {
        return Ok(());
    };
    let list = Place::ROOT.field("users");
    let item = list.item(at);
    let place = item.field("user");
    if certificate.pair == Pair::Differs {
        let message = "not the key of the client certificate";
        return Err(place
            .field("client-key-data")
            .error(KnownReason::CertificateKeyMismatch, message));
    }
    let place = place.field("client-certificate-data");
    if now_seconds < certificate.starts_seconds {
        return Err(place.error(
            KnownReason::CertificateNotYetValid,
            "the certificate is not valid yet",
        ));
    }
    if now_seconds > certificate.ends_seconds {
        return Err(place.error(
            KnownReason::CertificateExpired,
            "the certificate has expired",
        ));
    }
    Ok(())
}

/// Checks the CA data by which clients trust the server: at least one certificate must be a CA's and valid now,
/// because the old CA may stay beside the new one during a rotation. Without CA data the client's machine decides
/// what to trust; that needs the `insecure` grant, and the source must have none either.
fn trust(
    source: &Source,
    (at, cluster): (usize, &ProposedCluster),
    insecure: InsecureGrant,
    now_seconds: i64,
) -> Result<(), KubeconfigError> {
    let list = Place::ROOT.field("clusters");
    let item = list.item(at);
    let place = item.field("cluster");
    if cluster.insecure {
        if cluster.authorities.is_empty() {
            return Ok(());
        }
        let message = "to skip verification despite CA data, which clients reject,";
        return Err(place.field("insecure-skip-tls-verify").proposed(
            KnownReason::KubeconfigInvalid,
            message,
            None,
        ));
    }
    let place = place.field("certificate-authority-data");
    let origin = source.view.clusters.get(cluster.entry as usize);
    let none_there = origin.is_some_and(|origin| origin.authority == AuthoritySource::None);
    if cluster.authorities.is_empty() && none_there && insecure == InsecureGrant::AsSource {
        return Ok(());
    }
    let bundles = cluster
        .authorities
        .iter()
        .filter_map(|reference| source.bundles.get(*reference as usize));
    let authorities: Vec<_> = bundles
        .flat_map(|bundle: &Bundle| &bundle.certificates)
        .filter(|facts| facts.is_ca)
        .collect();
    if authorities.is_empty() {
        return Err(place.error(
            KnownReason::InvalidAuthority,
            "it contains no CA certificate",
        ));
    }
    let starts = |at: i64| at <= now_seconds;
    let ends = |at: i64| now_seconds <= at;
    if authorities
        .iter()
        .any(|facts| starts(facts.starts_seconds) && ends(facts.ends_seconds))
    {
        return Ok(());
    }
    if authorities.iter().all(|facts| !ends(facts.ends_seconds)) {
        return Err(place.error(
            KnownReason::CertificateExpired,
            "every CA certificate in it has expired",
        ));
    }
    Err(place.error(
        KnownReason::CertificateNotYetValid,
        "no CA certificate in it is valid yet",
    ))
}
