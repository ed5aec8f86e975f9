//! The answer of a guest that changes nothing. Also used by the comparison with client-go in `tests/cluster`.

use transom_core::contract::credentials::{
    AuthoritySource, Proposal, ProposedCluster, ProposedUser, SourceView,
};

/// Everything as in the source.
pub(crate) fn unchanged(view: &SourceView) -> Proposal {
    let clusters = view.clusters.iter().map(|cluster| ProposedCluster {
        entry: cluster.entry,
        name: cluster.name.clone(),
        server: cluster.server.clone(),
        authorities: match &cluster.authority {
            AuthoritySource::Data(authority) => vec![authority.reference],
            AuthoritySource::None | AuthoritySource::File => Vec::new(),
        },
        insecure: cluster.insecure,
        proxy: cluster.proxy.as_ref().map(|proxy| proxy.reference),
        tls_server_name: cluster.tls_server_name.clone(),
    });
    let users = view.users.iter().map(|user| ProposedUser {
        entry: user.entry,
        name: user.name.clone(),
        credential: user.credential.reference,
    });
    Proposal {
        clusters: clusters.collect(),
        users: users.collect(),
        contexts: view.contexts.clone(),
        current_context: view.current_context.clone(),
    }
}
