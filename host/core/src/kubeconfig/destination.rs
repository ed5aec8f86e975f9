//! Where a credential may go: checks every cluster of an answer against the policy's grant. Refuses what is neither
//! granted nor as in the source.

use super::{DocumentPlace, KubeconfigError, KubeconfigLimits, SourceKubeconfig};
use super::{assemble, servers, url};
use crate::contract::credentials::{
    AuthoritySource, ClusterView, Proposal, ProposedCluster, ProposedUser,
};
use crate::contract::decide::{Input, InputValue, Service};
use serde_json::Value;
use transom_api::KnownReason;
use transom_api::policy::{CarryGrant, CredentialGrant, InsecureGrant, KubeconfigGrant};

/// What an answer is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// What the policy allows.
    pub grant: &'a KubeconfigGrant,
    /// The role under which the source was read.
    pub source_role: &'a str,
    /// The inputs.
    pub inputs: &'a [Input],
    /// The declared fields of the primary.
    pub primary: &'a Value,
    /// Seconds since 1970, for the validity of certificates.
    pub now_seconds: i64,
    /// How large the result may be.
    pub limits: KubeconfigLimits,
}

impl<'a> Terms<'a> {
    /// The inputs under a role.
    fn values(&self, role: &str) -> impl Iterator<Item = &'a InputValue> {
        let inputs = self.inputs.iter().filter(move |input| input.role == role);
        inputs.map(|input| &input.value)
    }

    /// The Services among the inputs under a role.
    pub(super) fn services(&self, role: &str) -> impl Iterator<Item = &'a Service> {
        self.values(role).filter_map(|value| match value {
            InputValue::Service(service) => Some(service),
            _ => None,
        })
    }

    /// The declared fields of the objects among the inputs under a role.
    pub(super) fn objects(&self, role: &str) -> impl Iterator<Item = &'a Value> {
        self.values(role).filter_map(|value| match value {
            InputValue::Object(fields) => Some(fields),
            _ => None,
        })
    }
}

/// Checks every cluster and user of an answer. A cluster may stay when it is as in the source and not current; any
/// other must be granted.
///
/// # Errors
/// The first thing that is not granted.
pub(super) fn check(
    source: &SourceKubeconfig,
    answer: &Proposal,
    terms: &Terms<'_>,
) -> Result<(), KubeconfigError> {
    let mut contexts = answer.contexts.iter();
    let current = contexts.find(|context| context.name == answer.current_context);
    for (at, cluster) in answer.clusters.iter().enumerate() {
        let item = DocumentPlace::ROOT.field("clusters").item(at);
        let Some(origin) = source.view.clusters.get(cluster.entry as usize) else {
            let what = "an entry that the source does not have";
            return Err(item.proposed(KnownReason::UnknownReference, what));
        };
        let is_current = current.is_some_and(|context| context.cluster == cluster.name);
        if is_current || !is_kept(cluster, origin) {
            granted(source, cluster, origin, terms, &item.field("cluster"))?;
        }
    }
    let mut users = answer.users.iter().enumerate();
    users.try_for_each(|(at, user)| credential(source, at, user, terms.grant))
}

/// Checks that the policy lets the kinds of this credential be written.
fn credential(
    source: &SourceKubeconfig,
    at: usize,
    user: &ProposedUser,
    grant: &KubeconfigGrant,
) -> Result<(), KubeconfigError> {
    let item = DocumentPlace::ROOT.field("users").item(at);
    let Some(origin) = source.view.users.get(user.entry as usize) else {
        let message = "based on an entry that the source does not have";
        return Err(item.error(KnownReason::UnknownReference, message));
    };
    use CredentialGrant::{AuthProvider, Basic, ClientCertificate, Exec, File, Token};
    let held = &origin.credential;
    let kinds = [
        (
            held.client_certificate,
            ClientCertificate,
            "a client certificate",
        ),
        (held.token, Token, "a token"),
        (held.basic, Basic, "a password"),
        (held.exec, Exec, "a program to run"),
        (held.auth_provider, AuthProvider, "an auth provider"),
        (held.file, File, "a path to a file"),
    ];
    let refused = |(held, kind, _): &(bool, _, _)| *held && !grant.credentials.contains(kind);
    let Some((.., what)) = kinds.into_iter().find(refused) else {
        return Ok(());
    };
    let granted = grant.credentials.iter().map(|kind| format!("{kind:?}"));
    let granted = granted.collect::<Vec<_>>().join(", ");
    let place = item.field("user");
    Err(place.refused(KnownReason::CredentialNotGranted, what, &granted))
}

/// Whether a cluster equals its source entry, its name aside.
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
    source: &SourceKubeconfig,
    cluster: &ProposedCluster,
    origin: &ClusterView,
    terms: &Terms<'_>,
    place: &DocumentPlace,
) -> Result<(), KubeconfigError> {
    unusable(source, cluster)?;
    kept_urls(source, cluster, origin, place)?;
    let grant = terms.grant;
    let refuse = |field, word, what: &str, granted: &str| {
        Err(place.field(field).refused(word, what, granted))
    };
    if !servers::allowed(&cluster.server, origin, terms) {
        let what = format!("server {}", servers::shown(&cluster.server));
        let granted = servers::granted(origin, terms);
        return refuse("server", KnownReason::ServerNotGranted, &what, &granted);
    }
    authorities(source, cluster, origin, terms, place)?;
    if cluster.insecure && !(grant.insecure == InsecureGrant::AsSource && origin.insecure) {
        let (what, granted) = (
            "to skip verification of the server",
            insecure(grant.insecure),
        );
        return refuse(
            "insecure-skip-tls-verify",
            KnownReason::InsecureNotGranted,
            what,
            granted,
        );
    }
    let same_proxy = cluster.proxy == origin.proxy.as_ref().map(|proxy| proxy.reference);
    if cluster.proxy.is_some() && !(grant.proxy == CarryGrant::AsSource && same_proxy) {
        let granted = carried(grant.proxy);
        return refuse(
            "proxy-url",
            KnownReason::ProxyNotGranted,
            "a proxy",
            granted,
        );
    }
    let same_name = cluster.tls_server_name == origin.tls_server_name;
    let carries_name = grant.tls_server_name == CarryGrant::AsSource && same_name;
    if cluster.tls_server_name.is_some() && !carries_name {
        let granted = carried(grant.tls_server_name);
        let word = KnownReason::ServerNameNotGranted;
        return refuse("tls-server-name", word, "a TLS server name", granted);
    }
    Ok(())
}

/// Refuses an entry of the source whose CA data clients cannot use, and such data in another entry.
fn unusable(source: &SourceKubeconfig, cluster: &ProposedCluster) -> Result<(), KubeconfigError> {
    let bundles = cluster.authorities.iter();
    let bundles = bundles.filter_map(|reference| source.bundles.get(*reference as usize));
    let mut entries = bundles.map(|bundle| bundle.cluster).chain([cluster.entry]);
    let fault = |entry| source.cluster_faults.get(entry as usize)?.clone();
    match entries.find_map(fault) {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}

/// Refuses a server or proxy of the source that an answer keeps although it is not a URL: one that is replaced or
/// dropped harms nobody.
fn kept_urls(
    source: &SourceKubeconfig,
    cluster: &ProposedCluster,
    origin: &ClusterView,
    place: &DocumentPlace,
) -> Result<(), KubeconfigError> {
    let of = |entry, field| assemble::field_of_cluster(source, entry, field).unwrap_or_default();
    let keeps_server = cluster.server == origin.server;
    let server = keeps_server.then(|| url::server(of(cluster.entry, "server")));
    let owner = cluster
        .proxy
        .and_then(|proxy| source.proxies.get(proxy as usize));
    let proxy = owner.map(|owner| url::proxy(of(*owner, "proxy-url")));
    for (field, read) in [("server", server), ("proxy-url", proxy)] {
        if let Some(Err(message)) = read {
            return Err(place.field(field).error(KnownReason::InvalidUrl, message));
        }
    }
    Ok(())
}

/// Whether the certificate authorities of a cluster are granted.
fn authorities(
    source: &SourceKubeconfig,
    cluster: &ProposedCluster,
    origin: &ClusterView,
    terms: &Terms<'_>,
    place: &DocumentPlace,
) -> Result<(), KubeconfigError> {
    let grant = terms.grant;
    let refuse = |what: &str| {
        let granted = match grant.ca.is_empty() {
            true => "none".to_owned(),
            false => format!("the CA of the inputs {}", grant.ca.join(", ")),
        };
        let field = place.field("certificate-authority-data");
        Err(field.refused(KnownReason::CANotGranted, what, &granted))
    };
    let known = |reference: &u32| (*reference as usize) < source.bundles.len();
    let from_source = grant.ca.iter().any(|role| role == terms.source_role);
    if !from_source && cluster.authorities.iter().any(known) {
        return refuse(&format!("the CA of the input {}", terms.source_role));
    }
    let had_one = matches!(origin.authority, AuthoritySource::Data(_));
    if had_one && cluster.authorities.is_empty() && !cluster.insecure {
        return refuse("to drop the CA");
    }
    Ok(())
}

fn insecure(grant: InsecureGrant) -> &'static str {
    match grant {
        InsecureGrant::Never => "never",
        InsecureGrant::AsSource => "only where the source skips it",
    }
}

fn carried(grant: CarryGrant) -> &'static str {
    match grant {
        CarryGrant::Drop => "none",
        CarryGrant::AsSource => "the one of this entry in the source",
    }
}
