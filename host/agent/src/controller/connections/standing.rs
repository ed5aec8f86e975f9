//! Whether a connection can be used: what it watches, whether it has answered, and why it does not answer.

use super::adapter::Cluster;
use crate::telemetry;
use tokio::sync::watch;
use tokio::time::timeout;
use transom_cluster::kubernetes::{ConnectError, Standing};
use transom_core::observation::Unreadable;
use transom_core::watches::Watches;

impl Cluster {
    /// Has an API server watch what is wanted; a directory is always watched as a whole.
    pub(super) fn watch(&self, wanted: impl FnOnce() -> Watches) {
        if let Self::Kubernetes(on) = self {
            on.server.watch(wanted());
        }
    }

    /// Waits until everything that is watched was listed, or is known to be unreadable.
    pub(super) async fn listed(&self) {
        if let Self::Kubernetes(on) = self {
            on.server.synced().await;
        }
    }

    /// Waits until an API server has answered, or is known not to answer; `patiently`: until it has answered, within a
    /// time limit.
    pub(super) async fn first_word(&self, patiently: bool) {
        let Self::Kubernetes(on) = self else { return };
        if patiently {
            // `away` gives the result.
            drop(timeout(on.server.patience(), on.server.answered()).await);
        } else {
            drop(on.server.standing().wait_for(Option::is_some).await);
        }
    }

    /// Waits until an API server has answered for the first time.
    pub(super) async fn answered(&self) {
        if let Self::Kubernetes(on) = self {
            on.server.answered().await;
        }
    }

    /// Why an API server has not answered since the start; `None` when it has, and for a directory.
    pub(super) fn away(&self) -> Option<Unreadable> {
        let Self::Kubernetes(on) = self else {
            return None;
        };
        let ConnectError {
            place,
            reason,
            message,
        } = on.server.trouble()?;
        Some(Unreadable {
            place: format!("connection {place}"),
            reason,
            message,
            objects: Vec::new(),
        })
    }
}

/// Logs why an API server does not answer, each cause once, and when it answers in the end. Logs nothing for a server
/// that answers at once.
pub(super) async fn tell(mut standing: watch::Receiver<Standing>) {
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
