//! Has changed policies, components and `FleetPolicy` objects loaded, and hands over the changes. No policy waits for
//! another one.

use crate::policies::active::PolicyChanges;
use crate::policies::components::PartVersions;
use crate::policies::follow::{Following, SourceChanges};
use crate::policies::revisions::writer::RevisionWriter;
use crate::policies::swap::Swap;
use crate::policies::swap::trial::{DueTrial, TriedCandidate};
use crate::policies::tags::Tags;
use crate::policies::{FoundPolicies, PolicySource};
use crate::telemetry;
use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_core::reference::ObjectRef;
use transom_core::rollout::Faults;

/// How often to check whether a `FleetPolicy` object changed, and whether a component takes long.
const EVERY: Duration = Duration::from_millis(250);

/// How often the faults of new revisions are counted.
const WATCH: Duration = Duration::from_secs(1);

/// What changed on the clusters.
pub(crate) struct PolicyNews {
    /// The `FleetPolicy` objects, when one of them changed.
    pub(crate) policies: Option<FoundPolicies>,
    /// The objects that hold components and changed.
    pub(crate) components: PartVersions,
}

/// What candidates need of the controller.
pub(crate) struct Rollouts<A, F> {
    /// Tries a candidate.
    pub(crate) attempt: A,
    /// The faults of the guests of a policy.
    pub(crate) faults: F,
    /// `Some` if this replica leads: answered once its active revisions match the history. `None`: another may lead.
    pub(crate) succeeds: mpsc::UnboundedReceiver<Option<oneshot::Sender<()>>>,
}

/// Loads changed policies, and sends the changes, until the task is aborted or the receiver is dropped. `news` returns
/// what changed on the clusters since its last call, and follows the given objects, which hold components. Tags are
/// checked every `tag_resync_seconds`.
pub(crate) async fn policies<A, F, T>(
    mut swap: Swap,
    mut news: impl AsyncFnMut(BTreeSet<ObjectRef>) -> PolicyNews,
    rollouts: Rollouts<A, F>,
    changed: mpsc::UnboundedSender<PolicyChanges>,
    tag_resync_seconds: u32,
) where
    A: Fn(DueTrial) -> T,
    F: Fn(&str) -> Faults,
    T: Future<Output = TriedCandidate> + Send + 'static,
{
    let mut succeeds = rollouts.succeeds;
    let (mut trials, mut counted) = (JoinSet::new(), Instant::now());
    let mut keeper = RevisionWriter::new(swap.loads().components().clone());
    let mut catching_up = None;
    let (mut following, mut changes_of_files) = follow(swap.source());
    let mut tags = Tags::new(swap.loads().components(), tag_resync_seconds);
    let mut looks = tokio::time::interval(EVERY);
    // Whether the set of component files to follow may have changed.
    let mut rewritten = true;
    loop {
        if let Some(following) = following.as_mut().filter(|_| take(&mut rewritten)) {
            following.components(swap.components());
        }
        keeper.keep(swap.take_notes(keeper.busy()));
        for due in swap.due(trials.len()) {
            trials.spawn((rollouts.attempt)(due));
        }
        answer(&mut catching_up, &swap);
        let changes = tokio::select! {
            Some(gained) = succeeds.recv() => {
                keeper.forget();
                let changes;
                (catching_up, changes) = succeed(&mut swap, gained).await;
                changes
            }
            // A trial does not panic: `attempt` sees to that.
            Some(Ok(tried)) = trials.join_next() => swap.tried(tried),
            Some(changed) = changes_of_files.recv() => {
                rewritten = true;
                swap.load_changed(&changed.components);
                changed.found.map(|found| swap.update(found)).unwrap_or_default()
            }
            done = swap.next() => swap.finish(done),
            kept = keeper.next() => swap.kept(kept),
            answers = tags.answered() => swap.tags_answered(&answers),
            _ = looks.tick() => {
                let news = news(swap.objects()).await;
                rewritten = news.policies.is_some();
                let faults = count_faults(&mut swap, &mut counted, &rollouts.faults);
                let changes = [take_changes(&mut swap, news, &mut tags), faults].concat();
                if !rewritten && changes.is_empty() {
                    continue;
                }
                changes
            }
        };
        if changed.send(changes).is_err() {
            return;
        }
    }
}

/// The caller that waits until the revisions of the history are loaded, and the policies that still lack theirs.
type CatchingUp = (oneshot::Sender<()>, BTreeSet<Arc<str>>);

/// Takes over from the previous leader, or stands by because another replica may lead.
async fn succeed(
    swap: &mut Swap,
    gained: Option<oneshot::Sender<()>>,
) -> (Option<CatchingUp>, PolicyChanges) {
    let Some(done) = gained else {
        return (None, swap.stand_by());
    };
    let (changes, behind) = swap.catch_up().await;
    (Some((done, behind)), changes)
}

/// Answers the waiting caller once the policies were loaded.
fn answer(waiting: &mut Option<CatchingUp>, swap: &Swap) {
    if let Some((done, _)) = waiting.take_if(|(_, behind)| !swap.any_loads(behind)) {
        // Fails when nobody waits any more.
        let _ = done.send(());
    }
}

/// Follows the files in which policies are written; a failure is logged.
fn follow(source: &PolicySource) -> (Option<Following>, mpsc::UnboundedReceiver<SourceChanges>) {
    let files = match source {
        PolicySource::Path(files) => Some(files.clone()),
        PolicySource::Builtin | PolicySource::Input(_) | PolicySource::Given(_) => None,
    };
    let (sender, changes) = mpsc::unbounded_channel();
    let following = Following::start(files, sender).inspect_err(|error| {
        let message = format!("failed to follow files: {error}");
        telemetry::unreadable(&source.place(), KnownReason::ReadFailed, &message);
    });
    (following.ok(), changes)
}

/// Takes what changed on the clusters, and begins what is due.
fn take_changes(swap: &mut Swap, news: PolicyNews, tags: &mut Tags) -> PolicyChanges {
    let policies = news.policies;
    let mut changes = policies.map_or_else(PolicyChanges::new, |found| swap.replace(found));
    swap.load_changed_objects(&news.components);
    swap.retry();
    tags.begin(|| swap.tags());
    changes.extend(swap.narrow_slow());
    changes
}

/// Counts the faults of new revisions, unless that was done a moment ago.
fn count_faults(
    swap: &mut Swap,
    counted: &mut Instant,
    faults: impl Fn(&str) -> Faults,
) -> PolicyChanges {
    if counted.elapsed() <= WATCH {
        return PolicyChanges::new();
    }
    *counted = Instant::now();
    let policies = swap.on_probation().into_iter();
    let observed = policies.map(|policy| swap.observed(&policy, &faults(&policy)));
    observed.flatten().collect()
}
