//! An account of each reconcile: what it read, decided and would write. Kept for `transom status` and `plan`, which
//! write nothing, and for read-only runs. Of an object that was read it holds the name and version, no content.

mod shared;

use serde_json::Value;
use shared::SharedWrites;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use transom_core::limits::{self, LimitedKinds};
use transom_core::object::Object;
use transom_core::plan::desired::Open;
use transom_core::plan::fleet::Writes;
use transom_core::plan::{Outcome, Step, StepOutcome};
use transom_core::reference::ObjectRef;
use transom_core::rollout::expected::Mark;
use transom_core::share::lock::MutexExt as _;
use transom_core::work::Key;

/// What one reconcile read, decided and would write.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Account {
    /// The objects that it read, with the role of each.
    pub(crate) inputs: Vec<ReadObject>,
    /// What the guest answered, without what may hide a credential.
    pub(crate) decision: Option<Value>,
    /// What would be written.
    pub(crate) steps: Vec<Step>,
    /// The effects of what would be written, for `transom plan`.
    pub(crate) writes: Writes,
    /// Hashes of the question and of what would be written, by which a trial compares plans.
    pub(crate) mark: Option<Mark>,
    /// What of it has a limit.
    pub(crate) limited: LimitedKinds,
    /// When time alone starts the next reconcile, in milliseconds from then.
    pub(crate) again_after_ms: Option<u64>,
}

impl Account {
    fn read(&mut self, read: ReadObject) {
        let same = |known: &ReadObject| (&known.role, &known.object) == (&read.role, &read.object);
        self.inputs.retain(|known| !same(known));
        self.inputs.push(read);
    }
}

/// One object that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadObject {
    /// The role of the need, or `primary` or `target`.
    pub(crate) role: String,
    /// Which object.
    pub(crate) object: ObjectRef,
    /// Its version; `None` when it does not exist.
    pub(crate) version: Option<String>,
    /// Whether it is being deleted.
    pub(crate) deleting: bool,
}

/// The accounts of an agent that runs for `transom status` or `plan`, or once and read-only; any other agent keeps
/// none.
#[derive(Default)]
pub(crate) struct Accounts {
    kept: Option<Mutex<BTreeMap<Key, Account>>>,
    dry_run: bool,
    holds: Holds,
    shared: SharedWrites,
}

/// What accounts hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holds {
    /// What was read and decided, and the steps.
    #[default]
    Steps,
    /// The effects of the steps and nothing else: a whole fleet fits into memory.
    Effects,
    /// What was read and decided, and the effects.
    Trial,
}

impl Accounts {
    /// Keeps accounts; `dry_run` for an agent that writes nothing and publishes nothing, not for one whose clusters
    /// refuse what it writes.
    pub(crate) fn kept(dry_run: bool) -> Self {
        Self {
            kept: Some(Mutex::default()),
            dry_run,
            holds: Holds::Steps,
            shared: SharedWrites::default(),
        }
    }

    /// Keeps the effects of what would be written, for an agent that writes nothing and publishes nothing.
    pub(crate) fn of_effects() -> Self {
        Self {
            holds: Holds::Effects,
            ..Self::kept(true)
        }
    }

    /// Keeps what a trial of a candidate compares, for an agent that writes nothing and publishes nothing.
    pub(crate) fn of_trial() -> Self {
        Self {
            holds: Holds::Trial,
            ..Self::kept(true)
        }
    }

    /// Whether the agent does not even try to write.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Starts the account of a reconcile anew.
    pub(crate) fn begin(&self, key: &Key) {
        self.change(key, |account| *account = Account::default());
    }

    /// Forgets every account.
    pub(crate) fn clear(&self) {
        if let Some(all) = &self.kept {
            all.locked().clear();
        }
        self.shared.clear();
    }

    /// Changes the account of a key, if what was read and decided is kept.
    fn note(&self, key: &Key, take: impl FnOnce(&mut Account)) {
        if self.holds != Holds::Effects {
            self.change(key, take);
        }
    }

    /// Changes the account of a key, if accounts are kept.
    fn change(&self, key: &Key, take: impl FnOnce(&mut Account)) {
        if let Some(all) = &self.kept {
            let mut all = all.locked();
            take(all.entry(key.clone()).or_default());
        }
    }

    /// Records a set that was read; `version` stands for its members.
    pub(crate) fn read_set(&self, key: &Key, role: &str, place: &ObjectRef, version: String) {
        let all = ObjectRef {
            name: "*".to_owned(),
            ..place.clone()
        };
        let read = ReadObject {
            role: role.to_owned(),
            object: all,
            version: Some(version),
            deleting: false,
        };
        self.note(key, |account| account.read(read));
    }

    /// Records an object that was read, or looked for and not found.
    pub(crate) fn read(
        &self,
        key: &Key,
        role: &str,
        reference: &ObjectRef,
        object: Option<&Object>,
    ) {
        self.note(key, |account| {
            account.read(ReadObject {
                role: role.to_owned(),
                object: reference.clone(),
                version: object.map(|object| object.version.clone()),
                deleting: object.is_some_and(Object::deleting),
            });
        });
    }

    /// Records what the guest decided.
    pub(crate) fn decided(&self, key: &Key, decision: impl FnOnce() -> Option<Value>) {
        self.note(key, |account| {
            account.decision = decision().or(account.decision.take());
        });
    }

    /// Records when time alone starts the next reconcile.
    pub(crate) fn asks_again(&self, key: &Key, after_ms: Option<u64>) {
        if after_ms.is_some() {
            self.note(key, |account| account.again_after_ms = after_ms);
        }
    }

    /// Records what would be written; `before` are the primary and the objects that others made, as they were read.
    pub(crate) fn planned(&self, key: &Key, steps: &[Step], before: &[Arc<Object>]) {
        if self.kept.is_none() {
            return;
        }
        // Not under the lock: kubeconfigs are compared.
        let limited = limits::kinds(steps, before);
        self.change(key, |account| {
            account.limited.extend(limited);
            if self.holds == Holds::Steps {
                account.steps.extend(steps.iter().cloned());
            }
        });
    }

    /// What would be written to shared objects, in an agent that keeps accounts.
    pub(crate) fn shared(&self) -> Option<&SharedWrites> {
        self.kept.as_ref().map(|_| &self.shared)
    }

    /// Whether the effects of what would be written are recorded.
    pub(crate) fn keeps_writes(&self) -> bool {
        self.holds != Holds::Steps
    }

    /// Records the effects of what would be written, of [`writes_of`].
    pub(crate) fn would_write(&self, key: &Key, writes: impl FnOnce() -> Writes) {
        if !self.keeps_writes() {
            return;
        }
        // Not under the lock: kubeconfigs are compared.
        let writes = writes();
        if !writes.is_empty() {
            self.change(key, |account| account.writes.append(writes));
        }
    }

    /// Records what stands for the question and for what is desired.
    pub(crate) fn marked(&self, key: &Key, mark: Mark) {
        self.note(key, |account| account.mark = Some(mark));
    }

    /// Takes all accounts away.
    pub(crate) fn take(&self) -> BTreeMap<Key, Account> {
        let all = self.kept.as_ref();
        all.map(|all| std::mem::take(&mut *all.locked()))
            .unwrap_or_default()
    }

    /// All accounts.
    pub(crate) fn all(&self) -> BTreeMap<Key, Account> {
        self.kept
            .as_ref()
            .map(|all| all.locked().clone())
            .unwrap_or_default()
    }
}

/// The effects of steps; `before` are the objects as they were read, `open` what is known of documents that are made.
pub(crate) fn writes_of<'a>(
    steps: &[Step],
    before: impl IntoIterator<Item = &'a Object>,
    open: &Open,
) -> Writes {
    let before: Vec<&Object> = before.into_iter().collect();
    let of = |step: &Step| {
        let mut before = before.iter();
        before.find(|object| object.reference == *step.target())
    };
    let mut writes = Writes::default();
    writes.add(steps.iter().map(|step| (step, of(step).copied())), open);
    writes
}

/// The outcome of a plan that is not carried out. Every step counts as done, so that the steps that would follow, such
/// as pruning, are planned as well.
pub(crate) fn as_if_done(steps: &[Step]) -> Outcome {
    let done = |step: &Step| StepOutcome::of(step.target().clone(), step.kind(), Ok(None));
    Outcome {
        steps: steps.iter().map(done).collect(),
        stopped: None,
    }
}
