//! Has changed policies, components and `FleetPolicy` objects loaded, and hands over the changes. No policy waits for
//! another one.

use crate::policies::active::Changes;
use crate::policies::components::Versions;
use crate::policies::follow::Following;
use crate::policies::revisions::Keeper;
use crate::policies::swap::Swap;
use crate::policies::swap::rollout::{Due, Tried};
use crate::policies::tags::Tags;
use crate::policies::{Found, Source};
use crate::telemetry;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_core::reference::ObjectRef;
use transom_core::rollout::Faults;
use transom_core::signal::Signal;

/// How often to check whether a `FleetPolicy` object changed, and whether a component takes long.
const EVERY: Duration = Duration::from_millis(250);

/// How often the faults of new revisions are counted.
const WATCH: Duration = Duration::from_secs(1);

/// What changed on the clusters.
pub(crate) struct News {
    /// The `FleetPolicy` objects, when one of them changed.
    pub(crate) policies: Option<Found>,
    /// The objects that hold components and changed.
    pub(crate) components: Versions,
}

/// What candidates need of the controller.
pub(crate) struct Rollouts<A, F> {
    /// Tries a candidate.
    pub(crate) attempt: A,
    /// The faults of the guests of a policy.
    pub(crate) faults: F,
    /// Each message is answered once the active revisions are those that are kept.
    pub(crate) succeeds: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
}

/// Follows policies until the task is aborted or nobody takes the changes. `news` tells what changed on the clusters
/// since the last call, and has these objects followed, which hold components. Tags are looked at every so many seconds.
pub(crate) async fn policies<A, F, T>(
    mut swap: Swap,
    mut news: impl AsyncFnMut(BTreeSet<ObjectRef>) -> News,
    rollouts: Rollouts<A, F>,
    changed: mpsc::UnboundedSender<Changes>,
    tag_resync_seconds: u32,
) where
    A: Fn(Due) -> T,
    F: Fn(&str) -> Faults,
    T: Future<Output = Tried> + Send + 'static,
{
    let Rollouts {
        attempt,
        faults,
        mut succeeds,
    } = rollouts;
    let mut trials = JoinSet::new();
    let mut keeper = Keeper::new(swap.loads().components().clone());
    let mut watched = Instant::now();
    // Who waits until these policies were loaded as they are kept.
    let mut caught_up: Option<(oneshot::Sender<()>, BTreeSet<Arc<str>>)> = None;
    let files = match swap.source() {
        Source::Path(files) => Some(files.clone()),
        Source::Builtin | Source::Input(_) | Source::Given(_) => None,
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
    // Whether other manifests are written than those whose components are followed.
    let mut rewritten = true;
    loop {
        if std::mem::take(&mut rewritten)
            && let Some(following) = &mut following
        {
            following.components(swap.components());
        }
        for note in swap.take_notes() {
            keeper.add(note);
        }
        for due in swap.due(trials.len()) {
            trials.spawn(attempt(due));
        }
        if let Some((done, _)) = caught_up.take_if(|(_, behind)| !swap.any_loads(behind)) {
            // Fails when nobody waits any more.
            let _ = done.send(());
        }
        let changes = tokio::select! {
            Some(done) = succeeds.recv() => {
                keeper.forget();
                let (changes, behind) = swap.catch_up().await;
                caught_up = Some((done, behind));
                changes
            }
            // A trial does not panic: `attempt` sees to that.
            Some(Ok(tried)) = trials.join_next() => swap.tried(tried),
            Some(changed) = changes_of_files.recv() => {
                swap.load_changed(&changed.components);
                rewritten = true;
                changed.found.map(|found| swap.update(found)).unwrap_or_default()
            }
            done = swap.next() => swap.finish(done),
            (policy, history) = keeper.next() => {
                match history {
                    Ok(history) => swap.kept(&policy, history),
                    Err(()) => continue,
                }
            }
            answers = tags.answered() => swap.tags_answered(&answers),
            _ = looks.tick() => {
                let News { policies, components } = news(swap.objects()).await;
                let changed = policies.is_some();
                rewritten |= changed;
                let given = policies.map(|found| swap.replace(found)).unwrap_or_default();
                swap.load_changed_objects(&components);
                swap.retry();
                tags.begin(|| swap.tags());
                let slow = swap.narrow_slow();
                let mut failed = Changes::new();
                if watched.elapsed() > WATCH {
                    watched = Instant::now();
                    for policy in swap.on_probation() {
                        failed.extend(swap.observed(&policy, &faults(&policy)));
                    }
                }
                if !changed && slow.is_empty() && failed.is_empty() {
                    continue;
                }
                [given, slow, failed].concat()
            }
        };
        if changed.send(changes).is_err() {
            return;
        }
    }
}
