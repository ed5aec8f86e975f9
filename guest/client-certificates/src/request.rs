//! Decides what becomes of a request for a certificate. Pure functions; nothing is ever denied.

use crate::settings::Bootstrap;
use transom_guest::objects::{CertificateRequest, RequestContent, Requested};

/// What the names of an agent begin with, as a user and as a group.
const PREFIX: &str = "system:open-cluster-management:";
/// The group of all agents, which a request may name beside that of its cluster.
const ALL_AGENTS: &str = "system:open-cluster-management:managed-clusters";
/// The signer of client certificates.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// What a client certificate is for.
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
/// The longest part of a cluster's name in the name of its bootstrap account: the account's name is a DNS label.
const MAX_ACCOUNT: usize = 63 - "-bootstrap-sa".len();

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An agent asks for its own next certificate: the API server says whether it may.
    Renewal,
    /// One that the settings name asks for the first certificate of a cluster.
    Listed,
    /// The bootstrap account of an imported cluster asks: its ManagedCluster must be there.
    Imported,
    /// Somebody else asks for a certificate of an agent.
    Stranger,
    /// It is not what an agent asks for; why.
    Foreign(&'static str),
}

/// What a request with this cluster in its label is.
pub(crate) fn kind(bootstrap: &Bootstrap, cluster: &str, request: &CertificateRequest) -> Kind {
    let requested = match &request.content {
        RequestContent::Readable(requested) => requested,
        RequestContent::Malformed(_) => return Kind::Foreign("The request cannot be read."),
    };
    if let Some(why) = fault(cluster, request, requested) {
        return Kind::Foreign(why);
    }
    if requested.common_name.as_deref() == Some(&request.requester) {
        return Kind::Renewal;
    }
    let mut groups = request.groups.iter();
    if bootstrap.users.contains(&request.requester)
        || groups.any(|group| bootstrap.groups.contains(group))
    {
        return Kind::Listed;
    }
    match bootstrap.imported && request.requester == account(cluster) {
        true => Kind::Imported,
        false => Kind::Stranger,
    }
}

/// What keeps a request from being one of an agent of the cluster, if so. Every name in it must be that of this
/// cluster, whole: with a prefix, or with a name that nobody looks at, an agent gets the certificate of another cluster
/// (CVE-2024-9779, CVE-2026-66795).
fn fault(
    cluster: &str,
    request: &CertificateRequest,
    requested: &Requested,
) -> Option<&'static str> {
    if request.signer != SIGNER {
        return Some("It names another signer.");
    }
    if !request
        .usages
        .iter()
        .all(|usage| USAGES.contains(&&**usage))
    {
        return Some("It asks for another usage.");
    }
    let own = [PREFIX, cluster].concat();
    if own == ALL_AGENTS {
        return Some("The group of a cluster of this name is that of all agents.");
    }
    let mut others = requested.organisations.iter();
    let count = others.clone().filter(|name| **name == own).count();
    if count != 1 || others.any(|name| *name != own && name != ALL_AGENTS) {
        return Some("Its organisations are not those of an agent of the cluster in its label.");
    }
    if !requested.other_subject.is_empty() || !requested.names.is_empty() {
        return Some("It has names beside its common name and its organisations.");
    }
    let name = requested.common_name.as_deref().unwrap_or_default();
    let agent = name
        .strip_prefix(&*own)
        .and_then(|rest| rest.strip_prefix(':'));
    match agent.is_some_and(|agent| !agent.is_empty() && !agent.contains(':')) {
        true => None,
        false => Some("Its common name is not that of an agent of the cluster in its label."),
    }
}

/// The user name of the account with which an imported cluster registers.
fn account(cluster: &str) -> String {
    let short = cluster.get(..MAX_ACCOUNT).unwrap_or(cluster);
    let namespace = ["system:serviceaccount:", cluster, ":"];
    [&namespace.concat(), short, "-bootstrap-sa"].concat()
}
