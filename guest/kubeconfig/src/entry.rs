//! Finds the cluster entry of a kubeconfig that is in use.
//! Problems contain no name from inside the kubeconfig.

use crate::reasons;
use crate::settings::Entry;
use transom_guest::Problem;
use transom_guest::kubeconfig::Source;

/// The position of the cluster entry to rewire.
pub(crate) fn choose(setting: Entry, source: &Source) -> Result<usize, Problem> {
    if source.clusters.is_empty() {
        return Err(reasons::NO_CLUSTERS
            .problem("the kubeconfig has no cluster entry")
            .at("clusters"));
    }
    let in_use = current(source)?;
    match (setting, source.clusters.get(in_use)) {
        (Entry::Cluster, Some(cluster)) if cluster.name != "cluster" => {
            let message =
                "current-context leads to another cluster entry than the one named `cluster`";
            Err(reasons::CURRENT_CONTEXT_ELSEWHERE
                .problem(message)
                .at("current-context"))
        }
        _ => Ok(in_use),
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
