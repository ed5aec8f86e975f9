//! Log lines about connections: which API servers are used, and which of them do not answer. They contain no
//! credential, and of a URL only the place.

use std::path::Path;
use tracing::{info, warn};
use transom_api::KnownReason;
use transom_cluster::kubernetes::KubeconfigProblem;

/// The target of lines about connections; a run that ends shows them, too.
const CONNECTION: &str = "transom::connection";

/// Logs that an API server is about to be used; a pod's identity has no context.
pub(crate) fn uses(connection: &str, context: Option<&str>, server: &str) {
    info!(target: CONNECTION, connection, context, server, "using the API server");
}

/// Logs that the cluster of the pod reviews the tokens of those who read metrics.
pub(crate) fn reviews(server: &str) {
    info!(target: CONNECTION, server, "the cluster of this pod authorizes the readers of metrics and state");
}

/// Logs that a directory is about to be used.
pub(crate) fn uses_directory(connection: &str, directory: &Path) {
    info!(connection, directory = %directory.display(), "using the directory");
}

/// Logs that an API server has not answered yet; it is asked again.
pub(crate) fn away(place: &str, reason: KnownReason, message: &str) {
    warn!(
        target: CONNECTION, connection = place, reason = reason.as_str(),
        "the API server does not answer; the agent retries and continues with the other connections: {message}"
    );
}

/// Logs that an API server that did not answer at the start has answered.
pub(crate) fn answers(place: &str) {
    info!(target: CONNECTION, connection = place, "the API server answers");
}

/// Logs why a kubeconfig that was changed while the agent runs is not used.
pub(crate) fn unused(problem: &KubeconfigProblem) {
    match problem {
        KubeconfigProblem::OtherServer {
            place,
            kubeconfig,
            server,
        } => warn!(
            target: CONNECTION, connection = place, server,
            "the context of this connection names another API server now, in the {kubeconfig}; restart the agent to use that one: it may be another cluster, and until then nothing that changed in this context counts"
        ),
        KubeconfigProblem::Unusable(error) => warn!(
            target: CONNECTION, connection = error.place, reason = error.reason.as_str(),
            "the kubeconfig of this connection, or a file that it names, cannot be used any more; the agent goes on with what it read before, and looks again: {}", error.message
        ),
    }
}
