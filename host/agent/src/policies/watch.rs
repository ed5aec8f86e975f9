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
    let (sender, mut changes_of_files) = mpsc::unbounded_channel();
    let following = Following::start(files, sender).inspect_err(|error| {
        telemetry::tell(&Signal::Unreadable {
            place: swap.source().place(),
            reason: KnownReason::ReadFailed,
            message: format!("failed to follow files: {error}"),
        });
    });
    let mut following = following.ok();
    let mut looks = tokio::time::interval(EVERY);
    loop {
        if let Some(following) = &mut following {
            following.components(swap.components());
        }
        let changes = tokio::select! {
            Some(changed) = changes_of_files.recv() => {
                swap.load_changed(&changed.components);
                changed.found.map(|found| swap.update(found)).unwrap_or_default()
            }
            done = swap.next() => swap.finish(done),
            _ = looks.tick() => {
                let objects = objects().await;
                let changed = objects.is_some();
                let given = objects.map(|found| swap.replace(found)).unwrap_or_default();
                let slow = swap.narrow_slow();
                if !changed && slow.is_empty() {
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
