//! Who wants one target, and who of them is the oldest.

use super::Contender;
use crate::work::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// Who wants a target, and who owned it when that was last decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claims {
    pub(super) contenders: BTreeMap<Key, Contender>,
    pub(super) owner: Option<Key>,
    /// Whether others that may want it were not located then.
    pub(super) unsure: bool,
    /// The key that made it and left it to contenders of its policy.
    pub(super) former: Option<Key>,
    /// The contenders that did not want it when they were last reconciled.
    pub(super) idle: BTreeSet<Key>,
    /// Who had its turn with a shared object and could not write it.
    pub(super) passed: BTreeSet<Key>,
    /// The oldest contender, where there are several.
    pub(super) oldest: Oldest,
    /// The oldest one of the owner's policy that has not passed.
    pub(super) first_waiting: Oldest,
}

impl Claims {
    /// Takes a contender, instead of the one with its key.
    pub(super) fn enter(&mut self, contender: Contender) {
        self.oldest.came(&contender);
        self.first_waiting.came(&contender);
        self.contenders.insert(contender.key.clone(), contender);
    }

    /// Removes a contender.
    pub(super) fn leave(&mut self, key: &Key) {
        self.contenders.remove(key);
        self.passed.remove(key);
        self.idle.remove(key);
        self.oldest.went(key);
        self.first_waiting.went(key);
    }

    /// The oldest contender.
    pub(super) fn oldest(&self) -> Option<&Key> {
        match self.contenders.len() {
            1 => self.contenders.keys().next(),
            _ => self.oldest.of(self.contenders.values()),
        }
    }

    /// Takes whom it was decided for.
    pub(super) fn keep(&mut self, owner: Option<Key>) {
        let policy = |owner: &Option<Key>| owner.as_ref().map(|owner| Arc::clone(&owner.policy));
        if policy(&self.owner) != policy(&owner) {
            self.first_waiting = Oldest::default();
        }
        self.owner = owner;
    }
}

/// The oldest of some contenders, looked for once: there may be thousands, and each of them asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Oldest(OnceLock<Option<Box<Contender>>>);

impl Oldest {
    /// The oldest of these, which are the same at each call.
    pub(super) fn of<'c>(&self, all: impl Iterator<Item = &'c Contender>) -> Option<&Key> {
        let find = || all.min_by_key(|one| one.rank()).cloned().map(Box::new);
        let oldest = self.0.get_or_init(find).as_ref();
        oldest.map(|oldest| &oldest.key)
    }

    /// A contender came, or is another one now.
    pub(super) fn came(&mut self, one: &Contender) {
        let stays = |oldest: &Contender| oldest.key != one.key && oldest.rank() < one.rank();
        if !matches!(self.0.get(), Some(Some(oldest)) if stays(oldest)) {
            self.0.take();
        }
    }

    /// A contender went.
    pub(super) fn went(&mut self, key: &Key) {
        if matches!(self.0.get(), Some(Some(oldest)) if oldest.key == *key) {
            self.0.take();
        }
    }
}

/// Whether it was looked for is no difference.
impl PartialEq for Oldest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
