//! Keeps the revisions of policies on the cluster where the agent runs, reads them at a start, and has the active one
//! restored.

mod restore;
pub(super) mod writer;

use crate::clock::Clock;
use crate::policies::components::{Components, Local};
pub(super) use restore::{pulled, restore, unkept};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use transom_api::labels::{MANAGED_BY, MANAGER, POLICY};
use transom_api::{API_VERSION, KIND};
use transom_artifacts::{Unread, builtin_digest};
use transom_cluster::{Cluster, ReadFailure};
use transom_core::object::Object;
use transom_core::plan::{Plan, Step, WriteFailure};
use transom_core::reference::ObjectRef;
use transom_core::rollout::history::{
    History, OBJECT_API_VERSION, OBJECT_KIND, RecordPlace, RevisionRecord,
};
use transom_core::share::lock::MutexExt as _;
use transom_core::work::Key;

/// The label of every kept revision.
const ALL: (&str, &str) = (MANAGED_BY, MANAGER);
/// Where revisions are kept, and what is known of them.
pub(super) struct Revisions {
    namespace: String,
    clock: Clock,
    /// Held while they are listed.
    listing: tokio::sync::Mutex<()>,
    /// The cached histories, and how often they were forgotten.
    known: Mutex<(u64, KnownHistories)>,
}

/// The histories as they were listed or written last; listed anew when this agent becomes the leader.
type KnownHistories = Option<BTreeMap<String, History>>;

impl Revisions {
    /// Objects of this namespace.
    pub(super) fn new(namespace: &str, clock: Clock) -> Self {
        Self {
            namespace: namespace.to_owned(),
            clock,
            listing: tokio::sync::Mutex::default(),
            known: Mutex::default(),
        }
    }
}

/// The whole record that the history of one policy should have, not only what changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    /// Name of the policy.
    pub(super) policy: Arc<str>,
    /// Its uid, if it is an object.
    pub(super) uid: Option<String>,
    /// The revision at work, and after it the one that is to become active.
    pub(super) active: Vec<RevisionRecord>,
    /// The revision before, while too many faults of the active one would have it work again.
    pub(super) before: Option<RevisionRecord>,
    /// Revisions that may not become active again, and why.
    pub(super) barred: Vec<(RevisionRecord, String)>,
    /// How many revisions are kept.
    pub(super) keep: u32,
    /// Whether the policy is gone, and all its revisions with it.
    pub(super) gone: bool,
}

impl Note {
    /// Whether a revision is to be recorded as active or barred.
    fn has(&self, record: &RevisionRecord) -> bool {
        let barred = self.barred.iter().map(|(barred, _)| barred);
        let mut all = self.active.iter().chain(barred);
        all.any(|one| one.id == record.id)
    }
}

impl Components {
    /// Whether revisions are kept.
    pub(super) fn remembers(&self) -> bool {
        self.revisions.is_some()
    }

    /// The kept revisions of a policy with this uid, if it is an object; `None` when none are kept anywhere.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(super) async fn history(
        &self,
        policy: &str,
        uid: Option<&str>,
    ) -> Result<Option<History>, Unread> {
        let Some(revisions) = &self.revisions else {
            return Ok(None);
        };
        let _one = revisions.listing.lock().await;
        loop {
            let times = match &*revisions.known.locked() {
                (_, Some(known)) => {
                    let history = known.get(policy).cloned().unwrap_or_default();
                    return Ok(Some(history.for_agent(uid, builtin_digest)));
                }
                (times, None) => *times,
            };
            let Some(objects) = self.kept_objects(&revisions.namespace, ALL).await? else {
                return Ok(None);
            };
            let histories = History::by_policy(&objects);
            let mut known = revisions.known.locked();
            // A list that began before they were forgotten may lack what another agent kept since.
            if known.0 == times {
                let each = histories.clone().into_iter();
                // The objects of the policies are not known yet.
                let here = each.map(|(policy, all)| (policy, all.for_agent(None, builtin_digest)));
                self.kept().use_histories(&here.collect());
                known.1 = Some(histories);
            }
        }
    }

    /// Whether the faults of the active revision are still watched, so that the one before it may have to work again.
    pub(super) fn are_watching(&self, history: &History) -> bool {
        let revisions = self.revisions.as_ref();
        revisions.is_some_and(|one| history.is_watched(one.clock.now_seconds()))
    }

    /// Has the histories listed anew.
    pub(super) fn forget_histories(&self) {
        if let Some(revisions) = &self.revisions {
            let mut known = revisions.known.locked();
            *known = (known.0 + 1, None);
        }
    }

    /// Forgets the history of a policy that is gone: its revisions go with it.
    pub(super) fn forget_history(&self, policy: &str) {
        self.kept().forget(policy);
        if let Some(revisions) = &self.revisions
            && let Some(known) = revisions.known.locked().1.as_mut()
        {
            known.remove(policy);
        }
    }

    /// Every kept object with a label; `None` when there is no cluster.
    async fn kept_objects(
        &self,
        namespace: &str,
        label: (&str, &str),
    ) -> Result<Option<Vec<Object>>, Unread> {
        let local = self.local().await;
        #[cfg(test)]
        if let Local::Refusing(reason) = local {
            return Err(Unread::new(reason, String::new()));
        }
        let Local::At(cluster) = local else {
            return Ok(None);
        };
        let like = ObjectRef::local(OBJECT_API_VERSION, OBJECT_KIND, Some(namespace), "");
        let objects = cluster.list_records(&like, label).await;
        objects.map(Some).map_err(|failure| {
            let why = failure.message;
            let message =
                format!("failed to read the revisions in the namespace `{namespace}`: {why}");
            Unread::new(failure.reason, message)
        })
    }

    /// Writes a note to the history; returns the history after that, or `None` if there is none. Lists the history
    /// first, because another agent or a user may have changed it: what somebody deleted is written again. Does not
    /// overwrite a record that changed since it was read.
    ///
    /// # Errors
    /// When it cannot be read or written; nothing is lost, and it may be tried again.
    pub(crate) async fn keep_note(&self, note: &Note) -> Result<Option<History>, WriteFailure> {
        let (Some(revisions), Local::At(cluster)) = (&self.revisions, self.local().await) else {
            return Ok(None);
        };
        let (times, namespace) = (revisions.known.locked().0, &revisions.namespace);
        let (policy, uid) = (&*note.policy, note.uid.as_deref());
        let objects = self.kept_objects(namespace, (POLICY, policy)).await;
        let objects = objects.map_err(
            |Unread {
                 reason, message, ..
             }| WriteFailure { reason, message },
        )?;
        let mut history = History::of(policy, &objects.unwrap_or_default());
        let place = RecordPlace { namespace, uid };
        // What is left of an earlier object would be in the way of the same revision of this one. Everything else
        // stays: a tool may have taken the owner off the records of a living object.
        if note.gone || uid.is_some() {
            let steps = history.delete(namespace, |record| note.gone || note.has(record));
            write(&*cluster, (policy, uid), steps, &mut history).await?;
        }
        let mut history = history.for_agent(uid, builtin_digest);
        // Bars come first: they must not be lost if the agent is killed in between.
        for (record, why) in &note.barred {
            let steps = history.bar(record, why, place, note.keep);
            write(&*cluster, (policy, uid), steps, &mut history).await?;
        }
        for (before, active) in note.before.iter().zip(note.active.first()) {
            let steps = history.restore(before, active, place);
            write(&*cluster, (policy, uid), steps, &mut history).await?;
        }
        let active = history.active().map(|active| active.id);
        let is_kept = active.is_some() && active == note.active.last().map(|last| last.id);
        for record in note.active.iter().filter(|_| !is_kept) {
            // Somebody may have barred it meanwhile.
            if history.is_barred(&record.id) {
                continue;
            }
            let steps = history.activate(record, place, note.keep);
            write(&*cluster, (policy, uid), steps, &mut history).await?;
        }
        for record in &note.active {
            let steps = history.learn(record, place);
            write(&*cluster, (policy, uid), steps, &mut history).await?;
        }
        let steps = history.forget_expected(revisions.clock.now_seconds(), place);
        write(&*cluster, (policy, uid), steps, &mut history).await?;
        self.kept().use_history(policy, &history);
        if let (now, Some(known)) = &mut *revisions.known.locked()
            && *now == times
        {
            known.insert(policy.to_owned(), history.clone());
        }
        Ok(Some(history))
    }
}

/// Writes revisions of a policy, and takes them into its history as they are then.
async fn write(
    cluster: &dyn Cluster,
    (policy, uid): (&str, Option<&str>),
    steps: Vec<Step>,
    history: &mut History,
) -> Result<(), WriteFailure> {
    if steps.is_empty() {
        return Ok(());
    }
    let targets: Vec<_> = steps.iter().map(|step| step.target().clone()).collect();
    let primary = ObjectRef::local(API_VERSION, KIND, None, policy);
    let plan = Plan::new(&Key::new(&policy.into(), &primary), steps);
    let outcome = transom_cluster::apply(plan, |_| Ok(cluster)).await;
    if let Some((_, failure)) = outcome.failure() {
        return Err(failure.clone());
    }
    for target in targets {
        let object = cluster.read_record(&target).await;
        let object =
            object.map_err(|ReadFailure { reason, message }| WriteFailure { reason, message })?;
        history.put(&target.name, object.as_ref().and_then(RevisionRecord::read));
    }
    *history = std::mem::take(history).for_agent(uid, builtin_digest);
    Ok(())
}
