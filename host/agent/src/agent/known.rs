//! What the agent knows beside the clusters. All of it is in memory only and can be found again;
//! never held across an `await`.

use crate::agent::queue::Cause;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use transom_api::{Reason, State};
use transom_core::claims::Claims;
use transom_core::digest::Digest;
use transom_core::interest::Interest;
use transom_core::metrics::{self, Attempt, Counted};
use transom_core::outputs::Outputs;
use transom_core::plan::Step;
use transom_core::plan::brake::Brake;
use transom_core::plan::contention::Contention;
use transom_core::policy::Writes;
use transom_core::reference::ObjectRef;
use transom_core::report::{End, Report};
use transom_core::share::often::Often;
use transom_core::trigger::Judged;
use transom_core::work::{Key, Why};

/// What news of an object said: its mark, or nothing where it is gone or unreadable.
pub(crate) type News = Option<Digest>;

/// Claims, interest, own outputs, and what was judged and told last.
#[derive(Default)]
pub(crate) struct Known {
    /// Who wants which target.
    pub(crate) claims: Claims,
    /// Which reconcile depends on which object.
    pub(crate) interest: Interest,
    /// What each reconcile depends on looked like when it was read.
    pub(crate) marks: HashMap<Key, BTreeMap<ObjectRef, Option<Digest>>>,
    /// Which objects bear our stamp.
    pub(crate) outputs: Outputs,
    /// What was judged last of each primary.
    pub(crate) judged: HashMap<Key, Judged>,
    /// How often others overwrote what each policy wrote of each object.
    pub(crate) contention: HashMap<(Arc<str>, ObjectRef), Contention>,
    /// How often was written in the last minute.
    pub(crate) brake: Brake,
    /// How often each primary was reconciled in the last minute.
    pub(crate) often: Often,
    /// Who writes which object now, and what the last news of it said meanwhile.
    writing: HashMap<ObjectRef, (Key, Option<News>)>,
    /// Which objects were written, and for which policies.
    pub(crate) written: BTreeMap<ObjectRef, BTreeSet<Arc<str>>>,
    /// What was reconciled and why, where somebody asked for it.
    pub(crate) journal: Option<Vec<Entry>>,
    /// When the first client certificate ends in what was made for each primary, in seconds since 1970.
    pub(crate) ends: BTreeMap<Key, i64>,
    /// What each primary's last reconcile came to.
    pub(crate) told: BTreeMap<Key, Told>,
    /// What counted last as an attempt for each primary.
    pub(crate) counted: HashMap<Key, Counted>,
}

impl Known {
    /// A reconcile is about to write: of its targets it hears afterwards, when it knows what it wrote itself.
    pub(crate) fn about_to_write(&mut self, key: &Key, steps: &[Step]) {
        for step in steps {
            self.writing.entry(step.target().clone()).or_insert_with(|| (key.clone(), None));
        }
    }

    /// Whether a key is just writing an object; it will be told that there was news, and what that said: the mark of the
    /// object, or nothing where there is none any more.
    pub(crate) fn is_writing(&mut self, key: &Key, object: &ObjectRef, news: News) -> bool {
        let writer = self.writing.get_mut(object).filter(|(writer, _)| writer == key);
        writer.map(|(_, last)| *last = Some(news)).is_some()
    }

    /// A key has written an object, or failed to: its mark now, where it is known. Whether there was news of it meanwhile
    /// that says otherwise.
    pub(crate) fn end_of_write(&mut self, key: &Key, object: &ObjectRef, mark: Option<Digest>) -> bool {
        if let Some(marks) = self.marks.get_mut(key).filter(|_| mark.is_some()) {
            marks.insert(object.clone(), mark);
        }
        let ours = self.writing.get(object).is_some_and(|(writer, _)| writer == key);
        let news = if ours { self.writing.remove(object).and_then(|(_, news)| news) } else { None };
        news.is_some_and(|news| mark.is_none() || news != mark)
    }

    /// A step was done for a policy: what it left there is what it planned.
    pub(crate) fn wrote(&mut self, policy: &Arc<str>, step: &Step) {
        let written = (Arc::clone(policy), step.target().clone());
        if let Step::Delete { .. } = step {
            self.contention.remove(&written);
        } else if let Some(contention) = self.contention.get_mut(&written) {
            contention.written();
        }
    }

    /// A reconcile is about to read objects: a change from then on is news to it, also one that makes an object again
    /// what it was at the reconcile before.
    pub(crate) fn about_to_read(&mut self, key: &Key, objects: &[ObjectRef]) {
        self.interest.add(key, objects.iter().cloned());
        if let Some(marks) = self.marks.get_mut(key) {
            marks.retain(|object, _| !objects.contains(object));
        }
    }
}

impl Known {
    /// What a reconcile counts as, by what counted before; `timed` when time alone called for it.
    pub(crate) fn attempt(
        &mut self,
        writes: &Writes,
        (key, primary_read): (&Key, bool),
        timed: bool,
        report: &Report,
    ) -> Option<Attempt> {
        if !primary_read {
            self.counted.remove(key);
        }
        let counted = metrics::attempt(writes, primary_read, timed, self.counted.get(key).copied(), report)?;
        self.counted.insert(key.clone(), counted);
        Some(counted.attempt)
    }
}

/// One reconcile, or one that a trigger guest ignored.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// What was reconciled.
    pub(crate) key: Key,
    /// The causes, as they were taken from the queue.
    pub(crate) causes: Vec<Cause>,
    /// Why it was reconciled; nothing when it was not.
    pub(crate) why: Option<Why>,
}

/// What a reconcile came to, as far as the next one and the summary need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// How it ended.
    pub(crate) end: End,
    /// The state.
    pub(crate) state: State,
    /// Why.
    pub(crate) reason: Reason,
    /// For people.
    pub(crate) message: String,
    /// How many reconciles in a row failed.
    pub(crate) failures: u32,
    /// Since when it is in this state for this reason, in seconds since 1970.
    pub(crate) since_seconds: i64,
    /// Whether this reconcile wrote something, or an earlier one of this process.
    pub(crate) wrote: bool,
}

impl Told {
    /// Whether it is news after an earlier one: another state, or another reason to show.
    pub(crate) fn differs(&self, before: &Self) -> bool {
        (self.state, &self.reason) != (before.state, &before.reason)
    }

    /// The same, in its state since the time that an earlier one of the same state and reason had.
    pub(crate) fn after(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| !self.differs(before)) {
            self.since_seconds = before.since_seconds;
        }
        self.wrote |= before.is_some_and(|before| before.wrote);
        self
    }
}

/// The knowledge behind its lock; a panic while it was held leaves every index whole.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Known>);

impl Shared {
    /// Takes the lock for a short while.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
