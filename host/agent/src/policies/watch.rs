//! Has changed policies, components and `FleetPolicy` objects loaded, and hands over the changes. No policy waits for
//! another one.

use crate::policies::active::Changes;
use crate::policies::components::Versions;
use crate::policies::follow::Following;
use crate::policies::swap::Swap;
use crate::policies::tags::Tags;
use crate::policies::{Found, Source};
use crate::telemetry;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc;
use transom_api::KnownReason;
use transom_core::reference::ObjectRef;
use transom_core::signal::Signal;

/// How often to check whether a `FleetPolicy` object changed, and whether a component takes long.
const EVERY: Duration = Duration::from_millis(250);

/// What changed on the clusters.
pub(crate) struct News {
    /// The `FleetPolicy` objects, when one of them changed.
    pub(crate) policies: Option<Found>,
    /// The objects that hold components and changed.
    pub(crate) components: Versions,
}

/// Follows policies until the task is aborted or nobody takes the changes. `news` tells what changed on the clusters
/// since the last call, and has these objects followed, which hold components. Tags are looked at every so many seconds.
pub(crate) async fn policies(
    mut swap: Swap,
    mut news: impl AsyncFnMut(BTreeSet<ObjectRef>) -> News,
    changed: mpsc::UnboundedSender<Changes>,
    tag_resync_seconds: u32,
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
    let mut tags = Tags::new(swap.loads().components(), tag_resync_seconds);
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
            answers = tags.answered() => swap.tags_answered(&answers),
            _ = looks.tick() => {
                let News { policies, components } = news(swap.objects()).await;
                let changed = policies.is_some();
                let given = policies.map(|found| swap.replace(found)).unwrap_or_default();
                swap.load_changed_objects(&components);
                swap.retry();
                tags.begin(|| swap.tags());
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
