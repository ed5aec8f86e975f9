//! Connects an API server: logs whether it answers, and which statuses could not be written.

use crate::telemetry;
use std::sync::Arc;
use tokio::sync::watch;
use transom_cluster::Cluster;
use transom_cluster::kubernetes::{ConnectError, Kubernetes, Leading, Server, Standing};
use transom_core::outcome::WriteFailure;
use transom_core::signal::Signal;

/// An API server that is written only while this replica leads, under the name `replica`.
pub(crate) fn server(kubernetes: Kubernetes, replica: &str, leading: Leading) -> Arc<dyn Cluster> {
    // Ends when the server answers or is dropped.
    drop(tokio::spawn(tell(kubernetes.standing())));
    Arc::new(Server::new(kubernetes, replica, leading, unwritten))
}

/// Logs that the status of a policy could not be written. Reconciles go on.
fn unwritten(policy: &str, failure: &WriteFailure) {
    let (place, message) = (format!("the status of {policy}"), failure.message.clone());
    telemetry::tell(&Signal::Unreadable {
        place,
        reason: failure.reason,
        message,
    });
}

/// Logs why an API server does not answer, each cause once, and when it answers in the end. Logs nothing for a server
/// that answers at once.
async fn tell(mut standing: watch::Receiver<Standing>) {
    let mut told: Option<ConnectError> = None;
    loop {
        let now = standing.borrow_and_update().clone();
        match (now, &told) {
            (Some(Ok(())), _) => break,
            (Some(Err(error)), before) if before.as_ref() != Some(&error) => {
                telemetry::connection::away(&error.place, error.reason, &error.message);
                told = Some(error);
            }
            _ => {}
        }
        if standing.changed().await.is_err() {
            return;
        }
    }
    if let Some(error) = told {
        telemetry::connection::answers(&error.place);
    }
}
