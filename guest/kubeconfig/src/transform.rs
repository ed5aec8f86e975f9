//! Makes the kubeconfig that works inside the cluster from the admin kubeconfig and the Service. Pure function.
//! Entries, CAs and credentials are numbers that refer to the source; the guest cannot invent one.

use crate::require::{SERVICE, SOURCE};
use crate::settings::{Entry, Insecure, Keep, Permission, Settings};
use crate::{port, reasons};
use transom_guest::kubeconfig::{
    AuthoritySource, Cluster, Input, Proposal, ProposedCluster, ProposedUser, Service, Source, Url,
    User, Value,
};
use transom_guest::{Failure, Problem};

/// The source with its entry in use rewired to the Service; everything else is unchanged.
pub(crate) fn transform(settings: &Settings, inputs: Vec<Input>) -> Result<Proposal, Failure> {
    let (mut source, mut service) = (None, None);
    for input in inputs {
        match (input.role.as_str(), input.value) {
            (SOURCE, Value::Kubeconfig(found)) => source = Some(found),
            (SERVICE, Value::Service(found)) => service = Some(found),
            _ => {}
        }
    }
    let source = source.ok_or_else(|| {
        Failure::Missing(reasons::SOURCE_MISSING.problem("there is no admin kubeconfig"))
    })?;
    let service = service.ok_or_else(|| {
        Failure::Missing(reasons::SERVICE_MISSING.problem("there is no Service kube-apiserver"))
    })?;
    propose(settings, source, &service).map_err(Failure::Invalid)
}

fn propose(settings: &Settings, source: Source, service: &Service) -> Result<Proposal, Problem> {
    let in_use = in_use(settings.entry, &source)?;
    check_credentials(settings, &source.users)?;
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
        users: source.users.into_iter().map(ProposedUser::from).collect(),
        contexts: source.contexts,
        current_context: source.current_context,
    })
}

/// The position of the cluster entry in use, which is rewired. Problems contain no name from inside the kubeconfig.
fn in_use(setting: Entry, source: &Source) -> Result<usize, Problem> {
    if source.clusters.is_empty() {
        return Err(reasons::NO_CLUSTERS
            .problem("the kubeconfig has no cluster entry")
            .at("clusters"));
    }
    let at = current(source)?;
    match (setting, source.clusters.get(at)) {
        (Entry::Cluster, Some(cluster)) if cluster.name != "cluster" => {
            let message =
                "current-context leads to another cluster entry than the one named `cluster`";
            Err(reasons::CURRENT_CONTEXT_ELSEWHERE
                .problem(message)
                .at("current-context"))
        }
        _ => Ok(at),
    }
}

/// The cluster entry to which current-context leads. The context must also name an existing user.
fn current(source: &Source) -> Result<usize, Problem> {
    let unresolved = |message: &str, field: &str| {
        reasons::CURRENT_CONTEXT_UNRESOLVED
            .problem(message)
            .at(field)
    };
    if source.current_context.is_empty() {
        return Err(unresolved(
            "the kubeconfig has no current-context",
            "current-context",
        ));
    }
    let Some((at, context)) = source
        .contexts
        .iter()
        .enumerate()
        .find(|(_, context)| context.name == source.current_context)
    else {
        return Err(unresolved(
            "current-context names no context",
            "current-context",
        ));
    };
    let field = |last: &str| ["contexts[", &at.to_string(), "].context.", last].concat();
    let Some(cluster) = source
        .clusters
        .iter()
        .position(|cluster| cluster.name == context.cluster)
    else {
        return Err(unresolved(
            "the current context names no cluster entry",
            &field("cluster"),
        ));
    };
    if !source.users.iter().any(|user| user.name == context.user) {
        return Err(unresolved(
            "the current context names no user entry",
            &field("user"),
        ));
    }
    Ok(cluster)
}

/// Refuses credentials that do not belong into a secret that others read. Checks every user, not only the one in use: a
/// program runs for anyone who selects its context.
fn check_credentials(settings: &Settings, users: &[User]) -> Result<(), Problem> {
    for (at, user) in users.iter().enumerate() {
        let credential = &user.credential;
        let kinds = [
            (
                credential.exec,
                settings.exec,
                &reasons::EXEC_CREDENTIAL,
                "].user.exec",
                "it runs a program",
            ),
            (
                credential.auth_provider,
                settings.auth_provider,
                &reasons::AUTH_PROVIDER_CREDENTIAL,
                "].user.auth-provider",
                "it is one of a legacy auth provider",
            ),
            (
                credential.file,
                settings.file,
                &reasons::FILE_CREDENTIAL,
                "].user",
                "it lies in a file",
            ),
        ];
        for (there, permission, reason, field, message) in kinds {
            if there && permission == Permission::Refuse {
                return Err(reason
                    .problem(message)
                    .at(["users[", &at.to_string(), field].concat()));
            }
        }
    }
    Ok(())
}

/// The URL of the Service: its DNS name and port.
fn server(settings: &Settings, service: &Service) -> Result<Url, Problem> {
    let port = port::choose(&settings.port, service)?;
    let namespace = service.reference.namespace.as_deref().unwrap_or_default();
    let domain = settings.domain();
    let dot = if domain.is_empty() { "" } else { "." };
    let host = [&service.reference.name, ".", namespace, ".svc", dot, domain].concat();
    Ok(Url {
        scheme: "https".into(),
        host,
        port: Some(port),
        path: String::new(),
    })
}

/// The entry in use with another server, and without fields that weaken the connection to it.
fn rewired(
    settings: &Settings,
    at: usize,
    cluster: Cluster,
    server: Url,
) -> Result<ProposedCluster, Problem> {
    let field = |last: &str| ["clusters[", &at.to_string(), "].cluster.", last].concat();
    if cluster.insecure && settings.insecure == Insecure::Refuse {
        let message = "the source does not verify its server";
        return Err(reasons::INSECURE_SERVER
            .problem(message)
            .at(field("insecure-skip-tls-verify")));
    }
    let mut insecure = false;
    let authorities = match cluster.authority {
        AuthoritySource::Data(authority) => vec![authority.reference],
        AuthoritySource::File => {
            let message = "the CA lies in a file";
            return Err(reasons::FILE_AUTHORITY
                .problem(message)
                .at(field("certificate-authority")));
        }
        AuthoritySource::None => {
            insecure = cluster.insecure && settings.insecure == Insecure::Keep;
            if !insecure && settings.missing_authority == Permission::Refuse {
                let message = "the source has no CA, so that its server could not be verified";
                return Err(reasons::NO_CERTIFICATE_AUTHORITY
                    .problem(message)
                    .at(field("certificate-authority-data")));
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
        proxy: cluster
            .proxy
            .filter(|_| keeps_proxy)
            .map(|proxy| proxy.reference),
        tls_server_name: cluster.tls_server_name.filter(|_| keeps_name),
    })
}

/// Any other entry, unchanged.
fn as_it_is(cluster: Cluster) -> ProposedCluster {
    let proxy = cluster.proxy.as_ref().map(|proxy| proxy.reference);
    ProposedCluster {
        proxy,
        ..cluster.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Port, PortChoice};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use transom_guest::kubeconfig::{Authority, ClusterContext, Credential, Proxy, ServicePort};

    fn name() -> impl Strategy<Value = String> {
        // Mostly one name, so that most sources are consistent.
        prop_oneof![6 => Just("cluster"), 1 => Just("other"), 1 => Just("")].prop_map(Into::into)
    }

    fn cluster(entry: u32) -> impl Strategy<Value = Cluster> {
        let authority = prop_oneof![
            Just(AuthoritySource::None),
            Just(AuthoritySource::File),
            Just(AuthoritySource::Data(Authority {
                reference: 100 + entry,
                ..Authority::default()
            })),
        ];
        let proxy = prop::option::of(Just(Proxy {
            reference: 200 + entry,
            url: Url::default(),
        }));
        (
            name(),
            authority,
            any::<bool>(),
            proxy,
            prop::option::of(name()),
        )
            .prop_map(
                move |(name, authority, insecure, proxy, tls_server_name)| Cluster {
                    entry,
                    name,
                    server: Url {
                        scheme: "http".into(),
                        host: "public".into(),
                        port: None,
                        path: "/x".into(),
                    },
                    authority,
                    insecure,
                    proxy,
                    tls_server_name,
                },
            )
    }

    fn source() -> impl Strategy<Value = Source> {
        let user = (name(), any::<[bool; 3]>(), 0..9_u8).prop_map(|(name, kinds, rare)| User {
            entry: 0,
            name,
            credential: Credential {
                reference: 300,
                exec: kinds[0] && rare == 0,
                auth_provider: kinds[1] && rare == 0,
                file: kinds[2] && rare == 0,
                ..Credential::default()
            },
        });
        let context = (name(), name(), name()).prop_map(|(name, cluster, user)| ClusterContext {
            entry: 0,
            name,
            cluster,
            user,
            namespace: None,
        });
        (
            (
                cluster(0),
                cluster(1),
                prop_oneof![1 => Just(0), 9 => 1..3_usize],
            ),
            prop::collection::vec(user, 1..3),
            prop::collection::vec(context, 1..3),
            name(),
        )
            .prop_map(
                |((first, second, count), users, contexts, current_context)| Source {
                    clusters: [first, second].into_iter().take(count).collect(),
                    users,
                    contexts,
                    current_context,
                },
            )
    }

    fn settings() -> impl Strategy<Value = Settings> {
        let permission = || prop_oneof![Just(Permission::Refuse), Just(Permission::Allow)];
        let keep = || prop_oneof![Just(Keep::Drop), Just(Keep::Keep)];
        let insecure = prop_oneof![
            Just(Insecure::Drop),
            Just(Insecure::Refuse),
            Just(Insecure::Keep)
        ];
        let entry = prop_oneof![Just(Entry::CurrentContext), Just(Entry::Cluster)];
        (permission(), permission(), keep(), keep(), insecure, entry).prop_map(
            |(missing_authority, exec, proxy, tls_server_name, insecure, entry)| Settings {
                missing_authority,
                exec,
                proxy,
                tls_server_name,
                insecure,
                entry,
                port: Port {
                    name: None,
                    choice: PortChoice::First,
                },
                ..Settings::default()
            },
        )
    }

    fn service() -> Service {
        let mut service = Service {
            ports: vec![ServicePort {
                port: 6443,
                ..ServicePort::default()
            }],
            ..Service::default()
        };
        service.reference.name = "kube-apiserver".into();
        service.reference.namespace = Some("clusters-demo".into());
        service
    }

    /// All numbers by which an answer or a source refers to an entry, a CA or a credential.
    fn numbers(clusters: &[ProposedCluster], users: &[ProposedUser]) -> BTreeSet<u32> {
        let authorities = clusters
            .iter()
            .flat_map(|cluster| cluster.authorities.iter().copied());
        let proxies = clusters.iter().filter_map(|cluster| cluster.proxy);
        authorities
            .chain(proxies)
            .chain(users.iter().map(|user| user.credential))
            .collect()
    }

    proptest! {
        /// For every source: no panic, and the result differs only in the entry in use, and only in the fields that may
        /// differ.
        #[test]
        fn changes_only_the_current_entry(settings in settings(), source in source()) {
            let Ok(proposal) = propose(&settings, source.clone(), &service()) else { return Ok(()) };
            let same: Vec<_> = source.clusters.iter().cloned().map(as_it_is).collect();
            prop_assert_eq!(proposal.clusters.len(), same.len());
            let in_use = super::in_use(settings.entry, &source).map_err(|problem| TestCaseError::fail(problem.reason))?;
            for (at, (written, same)) in proposal.clusters.iter().zip(&same).enumerate() {
                if at != in_use {
                    prop_assert_eq!(written, same);
                    continue;
                }
                prop_assert_eq!(&written.server.host, "kube-apiserver.clusters-demo.svc.cluster.local");
                prop_assert_eq!((written.server.port, written.server.path.as_str()), (Some(6443), ""));
                prop_assert_eq!(&written.authorities, &same.authorities);
                prop_assert_eq!((written.entry, &written.name), (same.entry, &same.name));
                prop_assert!(!written.insecure || (same.insecure && settings.insecure == Insecure::Keep));
                prop_assert!(!written.insecure || written.authorities.is_empty());
                prop_assert!(written.proxy.is_none() || settings.proxy == Keep::Keep);
            }
            prop_assert_eq!(&proposal.contexts, &source.contexts);
            prop_assert_eq!(&proposal.current_context, &source.current_context);
            let users: Vec<_> = source.users.into_iter().map(ProposedUser::from).collect();
            prop_assert_eq!(&proposal.users, &users);
            prop_assert!(numbers(&proposal.clusters, &proposal.users).is_subset(&numbers(&same, &users)));
        }

        /// By default every written entry in use has a server that a client can verify.
        #[test]
        fn requires_a_ca_and_no_insecure_flag_by_default(source in source()) {
            let Ok(proposal) = propose(&Settings::default(), source.clone(), &service()) else { return Ok(()) };
            let in_use = super::in_use(Entry::CurrentContext, &source).map_err(|problem| TestCaseError::fail(problem.reason))?;
            let written = &proposal.clusters[in_use];
            prop_assert!(!written.authorities.is_empty() && !written.insecure && written.proxy.is_none());
            prop_assert!(source.users.iter().all(|user| !user.credential.exec && !user.credential.file));
        }
    }
}
