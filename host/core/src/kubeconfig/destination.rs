//! Where a credential may go: checks every cluster of an answer against the policy's grant. Refuses what is neither
//! granted nor as in the source.

use super::error::{KubeconfigError, Place};
use super::{KubeconfigLimits, Source, servers};
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
    /// The Services among the inputs under a role.
    pub(super) fn services(&self, role: &str) -> impl Iterator<Item = &'a Service> {
        self.inputs
            .iter()
            .filter(move |input| input.role == role)
            .filter_map(|input| match &input.value {
                InputValue::Service(service) => Some(service),
                _ => None,
            })
    }

    /// The declared fields of the objects among the inputs under a role.
    pub(super) fn objects(&self, role: &str) -> impl Iterator<Item = &'a Value> {
        self.inputs
            .iter()
            .filter(move |input| input.role == role)
            .filter_map(|input| match &input.value {
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
    source: &Source,
    answer: &Proposal,
    terms: &Terms<'_>,
) -> Result<(), KubeconfigError> {
    let current = answer
        .contexts
        .iter()
        .find(|context| context.name == answer.current_context);
    for (at, cluster) in answer.clusters.iter().enumerate() {
        let list = Place::ROOT.field("clusters");
        let item = list.item(at);
        let place = item.field("cluster");
        let Some(origin) = source.view.clusters.get(cluster.entry as usize) else {
            return Err(item.proposed(
                KnownReason::UnknownReference,
                "an entry that the source does not have",
                None,
            ));
        };
        let is_current = current.is_some_and(|context| context.cluster == cluster.name);
        if is_current || !is_kept(cluster, origin) {
            granted(source, cluster, origin, terms, &place)?;
        }
    }
    answer
        .users
        .iter()
        .enumerate()
        .try_for_each(|(at, user)| credential(source, at, user, terms.grant))
}

/// Checks that the policy lets the kinds of this credential be written.
fn credential(
    source: &Source,
    at: usize,
    user: &ProposedUser,
    grant: &KubeconfigGrant,
) -> Result<(), KubeconfigError> {
    let list = Place::ROOT.field("users");
    let item = list.item(at);
    let Some(origin) = source.view.users.get(user.entry as usize) else {
        return Err(item.error(
            KnownReason::UnknownReference,
            "based on an entry that the source does not have",
        ));
    };
    let held = &origin.credential;
    let kinds = [
        (
            held.client_certificate,
            CredentialGrant::ClientCertificate,
            "a client certificate",
        ),
        (held.token, CredentialGrant::Token, "a token"),
        (held.basic, CredentialGrant::Basic, "a password"),
        (held.exec, CredentialGrant::Exec, "a program to run"),
        (
            held.auth_provider,
            CredentialGrant::AuthProvider,
            "an auth provider",
        ),
        (held.file, CredentialGrant::File, "a path to a file"),
    ];
    match kinds
        .into_iter()
        .find(|(held, kind, _)| *held && !grant.credentials.contains(kind))
    {
        Some((.., what)) => {
            let granted: Vec<_> = grant
                .credentials
                .iter()
                .map(|kind| format!("{kind:?}"))
                .collect();
            Err(item.field("user").proposed(
                KnownReason::CredentialNotGranted,
                what,
                Some(&granted.join(", ")),
            ))
        }
        None => Ok(()),
    }
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
    source: &Source,
    cluster: &ProposedCluster,
    origin: &ClusterView,
    terms: &Terms<'_>,
    place: &Place<'_>,
) -> Result<(), KubeconfigError> {
    let grant = terms.grant;
    let refuse = |field, word, what: &str, granted: &str| {
        Err(place.field(field).proposed(word, what, Some(granted)))
    };
    if !servers::allowed(&cluster.server, origin, terms) {
        let what = format!("server {}", servers::shown(&cluster.server));
        return refuse(
            "server",
            KnownReason::ServerNotGranted,
            &what,
            &servers::granted(origin, terms),
        );
    }
    let known = |reference: &u32| source.bundles.get(*reference as usize).is_some();
    let authorities = match grant.ca.is_empty() {
        true => "none".to_owned(),
        false => format!("the CA of the inputs {}", grant.ca.join(", ")),
    };
    let from_source = grant.ca.iter().any(|role| role == terms.source_role);
    if cluster
        .authorities
        .iter()
        .any(|reference| known(reference) && !from_source)
    {
        let what = format!("the CA of the input {}", terms.source_role);
        return refuse(
            "certificate-authority-data",
            KnownReason::CANotGranted,
            &what,
            &authorities,
        );
    }
    if cluster.authorities.is_empty()
        && !cluster.insecure
        && matches!(origin.authority, AuthoritySource::Data(_))
    {
        return refuse(
            "certificate-authority-data",
            KnownReason::CANotGranted,
            "to drop the CA",
            &authorities,
        );
    }
    if cluster.insecure && !(grant.insecure == InsecureGrant::AsSource && origin.insecure) {
        let what = "to skip verification of the server";
        return refuse(
            "insecure-skip-tls-verify",
            KnownReason::InsecureNotGranted,
            what,
            insecure(grant.insecure),
        );
    }
    let same_proxy = cluster.proxy == origin.proxy.as_ref().map(|proxy| proxy.reference);
    if cluster.proxy.is_some() && !(grant.proxy == CarryGrant::AsSource && same_proxy) {
        return refuse(
            "proxy-url",
            KnownReason::ProxyNotGranted,
            "a proxy",
            carried(grant.proxy),
        );
    }
    let same_name = cluster.tls_server_name == origin.tls_server_name;
    if cluster.tls_server_name.is_some()
        && !(grant.tls_server_name == CarryGrant::AsSource && same_name)
    {
        let granted = carried(grant.tls_server_name);
        return refuse(
            "tls-server-name",
            KnownReason::ServerNameNotGranted,
            "a TLS server name",
            granted,
        );
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
