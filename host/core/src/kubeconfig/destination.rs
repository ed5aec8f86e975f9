//! Where a credential may go: every cluster of an answer against the grant of the policy.
//! Never trusts a guest: what is not granted and not as in the source is refused.

use super::error::{KubeconfigError, Place};
use super::{KubeconfigLimits, Source, url};
use crate::contract::credentials::{AuthoritySource, ClusterView, Proposal, ProposedCluster, ProposedUser, Url};
use crate::contract::decide::{Protocol, Service};
use transom_api::Word;
use transom_api::policy::{CarryGrant, CredentialGrant, InsecureGrant, KubeconfigGrant};

/// What an answer is held against.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// What the policy allows.
    pub grant: &'a KubeconfigGrant,
    /// The role under which the source was read.
    pub source_role: &'a str,
    /// The Services among the inputs, by role.
    pub services: &'a [(&'a str, &'a Service)],
    /// Seconds since 1970, for the validity of certificates.
    pub now_seconds: i64,
    /// What the result may cost.
    pub limits: KubeconfigLimits,
}

/// Checks every cluster of an answer. One that is as in the source and not the current one may stay;
/// every other must be granted.
///
/// # Errors
/// At the first thing that is not granted.
pub(super) fn check(source: &Source, answer: &Proposal, terms: &Terms<'_>) -> Result<(), KubeconfigError> {
    let current = answer.contexts.iter().find(|context| context.name == answer.current_context);
    for (at, cluster) in answer.clusters.iter().enumerate() {
        let list = Place::ROOT.field("clusters");
        let item = list.item(at);
        let place = item.field("cluster");
        let Some(origin) = source.view.clusters.get(cluster.entry as usize) else {
            return Err(item.error(Word::UnknownReference, "made from an entry that the source does not have"));
        };
        let is_current = current.is_some_and(|context| context.cluster == cluster.name);
        if is_current || !is_kept(cluster, origin) {
            granted(source, cluster, origin, terms, &place)?;
        }
    }
    answer.users.iter().enumerate().try_for_each(|(at, user)| credential(source, at, user, terms.grant))
}

/// Whether the policy lets a credential of these kinds be written.
fn credential(source: &Source, at: usize, user: &ProposedUser, grant: &KubeconfigGrant) -> Result<(), KubeconfigError> {
    let list = Place::ROOT.field("users");
    let item = list.item(at);
    let Some(origin) = source.view.users.get(user.entry as usize) else {
        return Err(item.error(Word::UnknownReference, "made from an entry that the source does not have"));
    };
    let held = &origin.credential;
    let kinds = [
        (held.client_certificate, CredentialGrant::ClientCertificate, "a client certificate, which is not granted"),
        (held.token, CredentialGrant::Token, "a token, which is not granted"),
        (held.basic, CredentialGrant::Basic, "a password, which is not granted"),
        (held.exec, CredentialGrant::Exec, "a program to run, which is not granted"),
        (held.auth_provider, CredentialGrant::AuthProvider, "an auth provider, which is not granted"),
        (held.file, CredentialGrant::File, "a path to a file, which is not granted"),
    ];
    match kinds.into_iter().find(|(held, kind, _)| *held && !grant.credentials.contains(kind)) {
        Some((.., message)) => Err(item.field("user").error(Word::CredentialNotGranted, message)),
        None => Ok(()),
    }
}

/// Whether a cluster is as in the source, its name aside.
pub(super) fn is_kept(cluster: &ProposedCluster, origin: &ClusterView) -> bool {
    let own: &[u32] = match &origin.authority {
        AuthoritySource::Data(authority) => &[authority.reference],
        AuthoritySource::None | AuthoritySource::File => &[],
    };
    cluster.server == origin.server
        && cluster.authorities == own
        && cluster.insecure == origin.insecure
        && cluster.proxy == origin.proxy.as_ref().map(|proxy| proxy.reference)
        && cluster.tls_server_name == origin.tls_server_name
}

fn granted(
    source: &Source,
    cluster: &ProposedCluster,
    origin: &ClusterView,
    terms: &Terms<'_>,
    place: &Place<'_>,
) -> Result<(), KubeconfigError> {
    let grant = terms.grant;
    let refuse = |field, word| Err(place.field(field).error(word, "not granted"));
    if !grant.server.iter().any(|allowed| server_allowed(allowed, &cluster.server, origin, terms)) {
        return refuse("server", Word::ServerNotGranted);
    }
    let known = |reference: &u32| source.bundles.get(*reference as usize).is_some();
    let from_source = grant.ca.iter().any(|role| role == terms.source_role);
    if cluster.authorities.iter().any(|reference| known(reference) && !from_source) {
        return refuse("certificate-authority-data", Word::AuthorityNotGranted);
    }
    if cluster.authorities.is_empty() && !cluster.insecure && matches!(origin.authority, AuthoritySource::Data(_)) {
        return refuse("certificate-authority-data", Word::AuthorityNotGranted);
    }
    if cluster.insecure && !(grant.insecure == InsecureGrant::AsSource && origin.insecure) {
        return refuse("insecure-skip-tls-verify", Word::InsecureNotGranted);
    }
    let same_proxy = cluster.proxy == origin.proxy.as_ref().map(|proxy| proxy.reference);
    if cluster.proxy.is_some() && !(grant.proxy == CarryGrant::AsSource && same_proxy) {
        return refuse("proxy-url", Word::ProxyNotGranted);
    }
    let same_name = cluster.tls_server_name == origin.tls_server_name;
    if cluster.tls_server_name.is_some() && !(grant.tls_server_name == CarryGrant::AsSource && same_name) {
        return refuse("tls-server-name", Word::ServerNameNotGranted);
    }
    Ok(())
}

fn server_allowed(allowed: &str, server: &Url, origin: &ClusterView, terms: &Terms<'_>) -> bool {
    if allowed.contains("://") {
        return url::server(allowed).is_ok_and(|literal| literal == *server);
    }
    if allowed == "source" {
        return *server == origin.server;
    }
    terms
        .services
        .iter()
        .filter(|(role, _)| *role == allowed)
        .any(|(_, service)| is_form_of(service, server, &terms.grant.cluster_domain))
}

/// Whether a URL is a DNS form of a Service over https, with one of its ports and nothing more.
fn is_form_of(service: &Service, server: &Url, cluster_domain: &str) -> bool {
    let namespace = service.reference.namespace.as_deref().unwrap_or_default();
    let name = format!("{}.{namespace}", service.reference.name);
    let tail = server.host.strip_prefix(&name);
    let form = match tail {
        Some("" | ".svc") => true,
        Some(tail) => tail.strip_prefix(".svc.") == Some(cluster_domain),
        None => false,
    };
    let port = server.port.unwrap_or(443);
    let served = service.ports.iter().any(|found| found.port == port && found.protocol == Protocol::Tcp);
    form && served && server.scheme == "https" && server.path.is_empty()
}
