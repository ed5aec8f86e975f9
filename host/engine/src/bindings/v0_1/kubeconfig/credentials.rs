//! Converts a kubeconfig by reference, in both directions. The core passes no credential bytes here.

use super::{wit_credentials, wit_proposals};
use crate::measure::{Lift, Lower};
use transom_core::contract::credentials::{
    Authority, AuthoritySource, ClusterView, ContextEntry, Credential, Proposal, ProposedCluster,
    ProposedUser, Proxy, SourceView, Url, UserView,
};

impl Lower {
    pub(in crate::bindings) fn source(&mut self, view: &SourceView) -> wit_credentials::Kubeconfig {
        wit_credentials::Kubeconfig {
            clusters: self.list(&view.clusters, Self::cluster),
            users: self.list(&view.users, Self::user),
            contexts: self.list(&view.contexts, Self::context_entry),
            current_context: self.text(&view.current_context),
        }
    }

    fn cluster(&mut self, cluster: &ClusterView) -> wit_credentials::Cluster {
        wit_credentials::Cluster {
            entry: cluster.entry,
            name: self.text(&cluster.name),
            server: self.url(&cluster.server),
            authority: match &cluster.authority {
                AuthoritySource::None => wit_credentials::AuthoritySource::None,
                AuthoritySource::Data(data) => {
                    wit_credentials::AuthoritySource::Data(self.authority(data))
                }
                AuthoritySource::File => wit_credentials::AuthoritySource::File,
            },
            insecure: cluster.insecure,
            proxy: cluster.proxy.as_ref().map(|proxy| self.proxy(proxy)),
            tls_server_name: self.maybe(cluster.tls_server_name.as_deref()),
        }
    }

    fn authority(&mut self, authority: &Authority) -> wit_credentials::Authority {
        wit_credentials::Authority {
            reference: authority.reference,
            fingerprints: self.list(&authority.fingerprints, |lower, text| lower.text(text)),
            ends_seconds: authority.ends_seconds,
            is_ca: authority.is_ca,
        }
    }

    fn proxy(&mut self, proxy: &Proxy) -> wit_credentials::Proxy {
        wit_credentials::Proxy {
            reference: proxy.reference,
            url: self.url(&proxy.url),
        }
    }

    fn url(&mut self, url: &Url) -> wit_credentials::Url {
        wit_credentials::Url {
            scheme: self.text(&url.scheme),
            host: self.text(&url.host),
            port: url.port,
            path: self.text(&url.path),
        }
    }

    fn user(&mut self, user: &UserView) -> wit_credentials::User {
        wit_credentials::User {
            entry: user.entry,
            name: self.text(&user.name),
            credential: numbers(&user.credential),
        }
    }

    fn context_entry(&mut self, context: &ContextEntry) -> wit_credentials::ClusterContext {
        wit_credentials::ClusterContext {
            entry: context.entry,
            name: self.text(&context.name),
            cluster: self.text(&context.cluster),
            user: self.text(&context.user),
            namespace: self.maybe(context.namespace.as_deref()),
        }
    }
}

/// A guest sees only the reference, the kinds and the expiry of a credential.
fn numbers(credential: &Credential) -> wit_credentials::Credential {
    wit_credentials::Credential {
        reference: credential.reference,
        client_certificate: credential.client_certificate,
        token: credential.token,
        basic: credential.basic,
        exec: credential.exec,
        auth_provider: credential.auth_provider,
        file: credential.file,
        ends_seconds: credential.ends_seconds,
    }
}

impl Lift<'_> {
    pub(in crate::bindings) fn proposal(&mut self, proposal: wit_proposals::Proposal) -> Proposal {
        Proposal {
            clusters: self.list(proposal.clusters, Self::proposed_cluster),
            users: self.list(proposal.users, Self::proposed_user),
            contexts: self.list(proposal.contexts, Self::context_entry),
            current_context: self.text(proposal.current_context),
        }
    }

    fn proposed_cluster(&mut self, cluster: wit_proposals::ProposedCluster) -> ProposedCluster {
        ProposedCluster {
            entry: cluster.entry,
            name: self.text(cluster.name),
            server: self.url(cluster.server),
            authorities: self.list(cluster.authorities, |_, reference| reference),
            insecure: cluster.insecure,
            proxy: cluster.proxy,
            tls_server_name: self.maybe(cluster.tls_server_name),
        }
    }

    fn proposed_user(&mut self, user: wit_proposals::ProposedUser) -> ProposedUser {
        ProposedUser {
            entry: user.entry,
            name: self.text(user.name),
            credential: user.credential,
        }
    }

    fn url(&mut self, url: wit_credentials::Url) -> Url {
        Url {
            scheme: self.text(url.scheme),
            host: self.text(url.host),
            port: url.port,
            path: self.text(url.path),
        }
    }

    fn context_entry(&mut self, context: wit_credentials::ClusterContext) -> ContextEntry {
        ContextEntry {
            entry: context.entry,
            name: self.text(context.name),
            cluster: self.text(context.cluster),
            user: self.text(context.user),
            namespace: self.maybe(context.namespace),
        }
    }
}
