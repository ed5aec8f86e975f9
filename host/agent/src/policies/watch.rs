//! Has changed policies, components and `FleetPolicy` objects loaded, and hands over the changes. No policy waits for
//! another one.

use crate::policies::active::Changes;
use crate::policies::follow::Following;
use crate::policies::swap::Swap;
use crate::policies::{Found, Source};
use crate::telemetry;
use std::time::Duration;
use tokio::sync::mpsc;
use transom_api::KnownReason;
use transom_core::signal::Signal;

/// How often to check whether a `FleetPolicy` object changed, and whether a component takes long.
const EVERY: Duration = Duration::from_millis(250);

/// Follows policies until the task is aborted or nobody takes the changes. `objects` returns the `FleetPolicy` objects
/// when they changed since the last call.
pub(crate) async fn policies(
    mut swap: Swap,
    mut objects: impl AsyncFnMut() -> Option<Found>,
    changed: mpsc::UnboundedSender<Changes>,
) {
    let files = match swap.source() {
        Source::Path(files) => Some(files.clone()),
        Source::Builtin | Source::Given(_) => None,
    };
    let (tell, mut told) = mpsc::unbounded_channel();
    let mut following = match Following::start(files, tell) {
        Ok(following) => Some(following),
        Err(error) => {
            let (place, message) = (
                swap.source().place(),
                format!("failed to follow files: {error}"),
            );
            telemetry::tell(&Signal::Unreadable {
                place,
                reason: KnownReason::ReadFailed,
                message,
            });
            None
        }
    };
    let mut looks = tokio::time::interval(EVERY);
    loop {
        if let Some(following) = &mut following {
            following.components(swap.components());
        }
        let changes = tokio::select! {
            Some(seen) = told.recv() => {
                swap.see_components(&seen.components);
                seen.found.map(|found| swap.see(found)).unwrap_or_default()
            }
            done = swap.next() => swap.finish(done),
            _ = looks.tick() => {
                let objects = objects().await;
                let told = objects.is_some();
                let given = objects.map(|found| swap.give(found)).unwrap_or_default();
                let slow = swap.narrow_slow();
                if !told && slow.is_empty() {
                    continue;
                }
                [given, slow].concat()
            }
        };
        if changed.send(changes).is_err() {
            return;
        }
    }
}
