//! From the admin kubeconfig and the Service to the kubeconfig that works inside the cluster, as a pure function.
//! Never invents an entry, a CA or a credential: all of them are numbers from the source.

use crate::require::{SERVICE, SOURCE};
use crate::settings::{Insecure, Keep, Permission, Settings};
use crate::{credentials, entry, port, reasons};
use transom_guest::kubeconfig::{
    AuthoritySource, Cluster, Input, Proposal, ProposedCluster, ProposedUser, Service, Source, Url, User, Value,
};
use transom_guest::{Failure, Problem};

/// The source with the entry in use rewired to the Service; everything else stays.
pub(crate) fn transform(settings: &Settings, inputs: Vec<Input>) -> Result<Proposal, Failure> {
    let (mut source, mut service) = (None, None);
    for input in inputs {
        match (input.role.as_str(), input.value) {
            (SOURCE, Value::Kubeconfig(found)) => source = Some(found),
            (SERVICE, Value::Service(found)) => service = Some(found),
            _ => {}
        }
    }
    let source =
        source.ok_or_else(|| Failure::Missing(reasons::SOURCE_MISSING.problem("there is no admin kubeconfig")))?;
    let service = service
        .ok_or_else(|| Failure::Missing(reasons::SERVICE_MISSING.problem("there is no Service kube-apiserver")))?;
    propose(settings, source, &service).map_err(Failure::Invalid)
}

fn propose(settings: &Settings, source: Source, service: &Service) -> Result<Proposal, Problem> {
    let in_use = entry::choose(settings.entry, &source)?;
    credentials::check(settings, &source.users)?;
    let server = server(settings, service)?;
    let mut clusters = Vec::with_capacity(source.clusters.len());
    let mut server = Some(server);
    for (at, cluster) in source.clusters.into_iter().enumerate() {
        clusters.push(match server.take_if(|_| at == in_use) {
            Some(server) => rewired(settings, at, cluster, server)?,
            None => as_it_is(cluster),
        });
    }
    Ok(Proposal {
        clusters,
        users: source.users.into_iter().map(same_user).collect(),
        contexts: source.contexts,
        current_context: source.current_context,
    })
}

/// The DNS form of the Service with its port.
fn server(settings: &Settings, service: &Service) -> Result<Url, Problem> {
    let port = port::choose(&settings.port, service)?;
    let namespace = service.reference.namespace.as_deref().unwrap_or_default();
    let domain = settings.domain();
    let dot = if domain.is_empty() { "" } else { "." };
    let host = [&service.reference.name, ".", namespace, ".svc", dot, domain].concat();
    Ok(Url { scheme: "https".into(), host, port: Some(port), path: String::new() })
}

/// The entry in use: another server, and nothing that weakens the way to it.
fn rewired(settings: &Settings, at: usize, cluster: Cluster, server: Url) -> Result<ProposedCluster, Problem> {
    let field = |last: &str| ["clusters[", &at.to_string(), "].cluster.", last].concat();
    if cluster.insecure && settings.insecure == Insecure::Refuse {
        let message = "the source does not verify its server";
        return Err(reasons::INSECURE_SERVER.problem(message).at(field("insecure-skip-tls-verify")));
    }
    let mut insecure = false;
    let authorities = match cluster.authority {
        AuthoritySource::Data(authority) => vec![authority.reference],
        AuthoritySource::File => {
            let message = "the CA lies in a file";
            return Err(reasons::FILE_AUTHORITY.problem(message).at(field("certificate-authority")));
        }
        AuthoritySource::None => {
            insecure = cluster.insecure && settings.insecure == Insecure::Keep;
            if !insecure && settings.missing_authority == Permission::Refuse {
                let message = "the source has no CA, so that its server could not be verified";
                return Err(reasons::NO_CERTIFICATE_AUTHORITY.problem(message).at(field("certificate-authority-data")));
            }
            Vec::new()
        }
    };
    let keeps_proxy = settings.proxy == Keep::Keep;
    let keeps_name = settings.tls_server_name == Keep::Keep;
    Ok(ProposedCluster {
        entry: cluster.entry,
        name: cluster.name,
        server,
        authorities,
        insecure,
        proxy: cluster.proxy.filter(|_| keeps_proxy).map(|proxy| proxy.reference),
        tls_server_name: cluster.tls_server_name.filter(|_| keeps_name),
    })
}

/// Any other entry, as in the source.
fn as_it_is(cluster: Cluster) -> ProposedCluster {
    let authorities = match cluster.authority {
        AuthoritySource::Data(authority) => vec![authority.reference],
        AuthoritySource::None | AuthoritySource::File => Vec::new(),
    };
    ProposedCluster {
        entry: cluster.entry,
        name: cluster.name,
        server: cluster.server,
        authorities,
        insecure: cluster.insecure,
        proxy: cluster.proxy.map(|proxy| proxy.reference),
        tls_server_name: cluster.tls_server_name,
    }
}

fn same_user(user: User) -> ProposedUser {
    ProposedUser { entry: user.entry, name: user.name, credential: user.credential.reference }
}
