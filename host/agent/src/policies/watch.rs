//! Has changed policies, components and `FleetPolicy` objects loaded, and puts the results to work. No policy waits for
//! another one.

use crate::controller::Controller;
use crate::policies::Source;
use crate::policies::active::{Active, Changes};
use crate::policies::follow::Following;
use crate::policies::swap::Swap;
use crate::telemetry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use transom_api::KnownReason;
use transom_artifacts::Base;
use transom_core::catalogue::Change;
use transom_core::signal::Signal;

/// How often to check whether a `FleetPolicy` object changed, and whether a component takes long.
const EVERY: Duration = Duration::from_millis(250);

/// Follows policies until the task is aborted. The component files of `FleetPolicy` objects lie at `base`.
pub(crate) async fn policies(controller: Arc<Controller>, mut swap: Swap, base: Base) {
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
                let told = controller.policies_changed.swap(false, Ordering::AcqRel);
                let given = if told { swap.give(controller.given(&base).await) } else { Changes::new() };
                let slow = swap.narrow_slow();
                if !told && slow.is_empty() {
                    continue;
                }
                [given, slow].concat()
            }
        };
        activate(&controller, swap.active(), changes);
    }
}

/// Puts changes to work. A revision that was loaded or swapped waits, in a task of its own, until what it needs is
/// watched; all other changes count at once.
fn activate(controller: &Arc<Controller>, active: &Active, changes: Changes) {
    let more = |change: &Change| matches!(change, Change::Loaded | Change::Swapped);
    let (later, now): (Changes, Changes) =
        changes.into_iter().partition(|(_, change)| more(change));
    active.publish(controller, &now);
    if !later.is_empty() {
        drop(tokio::spawn(begin(
            Arc::clone(controller),
            active.clone(),
            later,
        )));
    }
}

/// Watches what the active policies need, and puts changes to work: each policy as soon as the connections that it
/// names are ready, so that one that is slow or does not answer holds up no other policy.
pub(crate) async fn begin(controller: Arc<Controller>, active: Active, changes: Changes) {
    controller.connections.watch(|| active.catalogue());
    // Changes that need no connection, such as a refusal. They are published even when there are none.
    let mut by_need = BTreeMap::from([(BTreeSet::new(), Changes::new())]);
    for (policy, change) in changes {
        by_need
            .entry(active.clusters(&policy))
            .or_default()
            .push((policy, change));
    }
    let (controller, active) = (&controller, &active);
    let each = by_need.into_iter().map(|(clusters, changes)| async move {
        controller.connections.ready(&clusters).await;
        active.publish(controller, &changes);
    });
    futures::future::join_all(each).await;
}
