//! The immutable set of loaded policies: each one's last good revision, and why a newer one was refused. A swap makes
//! a new catalogue.

pub mod guest;
pub mod overlap;

use crate::policy::Policy;
use crate::rollout::{Candidate, Gate};
use crate::trigger::{Evaluator, Predicate};
use guest::GuestFacts;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use transom_api::{KnownReason, reason::Class};

/// One policy with its guests. A reconcile holds one revision and never mixes two.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// The checked policy.
    pub policy: Policy,
    /// The trigger guest, which decides when to reconcile, if there is one.
    pub trigger: Option<GuestFacts>,
    /// The guest that decides what to write.
    pub decide: GuestFacts,
}

impl Revision {
    /// Whether both are the same revision, even if newer manifests narrow them differently.
    pub fn is(&self, other: &Self) -> bool {
        let (ours, others) = (self.guests(), other.guests());
        let ours = ours.map(|guest| &guest.digest);
        let same = ours.eq(others.map(|guest| &guest.digest));
        same && self.policy.identity == other.policy.identity
    }

    /// Its guests, that of the trigger first.
    pub fn guests(&self) -> impl Iterator<Item = &GuestFacts> {
        self.trigger.iter().chain([&self.decide])
    }

    /// What counts as a change of a primary.
    pub fn predicate(&self) -> Predicate<'_> {
        let primary = &self.policy.primary;
        let (evaluator, guest) = match &self.trigger {
            Some(guest) => (Evaluator::Guest, guest),
            None => (Evaluator::AnyChange, &self.decide),
        };
        Predicate {
            evaluator,
            declared: guest.declared(&primary.api_version, &primary.kind),
            written: self.policy.primary_fields(),
            finalizer: self.policy.finalizer.as_deref(),
        }
    }
}

/// Why a revision was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The gate that the revision did not pass.
    pub gate: Gate,
    /// The reason.
    pub reason: KnownReason,
    /// What is wrong, and where.
    pub message: String,
    /// Whether the policy is loaded again although it does not change.
    pub retried: bool,
}

impl Refusal {
    /// A refusal at the gate that the reason belongs to.
    pub fn new(reason: KnownReason, message: impl Into<String>) -> Self {
        let gate = Gate::of(reason);
        // A missing component or signature may still appear.
        let retried = matches!(gate, Gate::Source | Gate::Signature)
            && !matches!(Class::of(reason), Class::Invalid | Class::Held);
        Self {
            gate,
            reason,
            message: message.into(),
            retried,
        }
    }

    /// The same, but not waited for if what is missing cannot come, such as a builtin component of that name.
    pub fn lasting(self, lasts: bool) -> Self {
        Self {
            retried: self.retried && !lasts,
            ..self
        }
    }

    /// Moves the refusal to another gate: a guest may exceed a limit at any gate.
    pub fn at(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }
}

/// Where a policy is written, and which generation of it this is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyPlace {
    /// A file, or an object's name.
    pub text: String,
    /// `metadata.generation`, where an API server counts.
    pub generation: Option<i64>,
}

impl From<&str> for PolicyPlace {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            generation: None,
        }
    }
}

/// What the catalogue knows of one policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogueEntry {
    /// The last good revision, if there ever was one.
    pub revision: Option<Arc<Revision>>,
    /// Why the newest revision was refused, if it was.
    pub refused: Option<Refusal>,
    /// Where the policy is written.
    pub place: PolicyPlace,
    /// Generation of the active revision.
    pub active: Option<i64>,
    /// The newest revision while it is neither active nor refused.
    pub candidate: Option<Candidate>,
    /// The tags of its components that mean something else by now.
    pub moved: Vec<MovedTag>,
}

/// A tag that now names another artifact than the pulled one. The policy keeps the pulled one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedTag {
    /// The component, as the policy names it.
    pub component: String,
    /// Digest of the manifest that was pulled.
    pub pulled: String,
    /// Digest of the manifest that the tag names now.
    pub now: String,
}

impl fmt::Display for MovedTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            component,
            pulled,
            now,
        } = self;
        write!(
            f,
            "the registry now has {now} for `{component}`; the policy keeps {pulled}, the manifest that was pulled"
        )
    }
}

/// Policies by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    /// Shared between catalogues: most entries stay the same from one to the next.
    entries: BTreeMap<Arc<str>, Arc<CatalogueEntry>>,
}

/// How a policy changed between two catalogues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyChange {
    /// It has its first good revision: enqueue every primary.
    Loaded,
    /// It has another revision: drop every primary's *before* state, enqueue every primary.
    Swapped,
    /// A newer revision is a candidate, or has come to another gate: nothing of it is written.
    Waiting,
    /// A newer revision was refused, for another reason than before.
    Refused,
    /// The newest manifest narrows what the last good revision may do, or widens it again: enqueue every primary.
    Bounded,
    /// A tag of its components now names another artifact; the policy keeps the pulled one.
    TagMoved,
    /// No tag of its components means something else any more.
    TagReturned,
    /// A newer revision had been refused or was a candidate; now the active revision is the newest again.
    Mended,
    /// It is gone: forget its ownership and dependencies; the objects that it made stay.
    Removed,
}

impl Catalogue {
    /// The catalogue with a good revision of a policy; drops an earlier refusal.
    #[must_use]
    pub fn with(&self, revision: Revision, place: impl Into<PolicyPlace>) -> Self {
        let (name, place) = (Arc::clone(&revision.policy.name), place.into());
        self.update(&name, |entry| {
            if entry.revision.as_deref() != Some(&revision) {
                entry.moved = Vec::new();
            }
            entry.revision = Some(Arc::new(revision));
            entry.refused = None;
            entry.active = place.generation;
            entry.place = place;
            entry.candidate = None;
        })
    }

    /// The catalogue in which these tags of a known policy mean something else by now.
    #[must_use]
    pub fn moving(&self, name: &str, moved: Vec<MovedTag>) -> Self {
        match self.entry(name) {
            Some(_) => self.update(name, |entry| entry.moved = moved),
            None => self.clone(),
        }
    }

    /// The catalogue with another entry for a policy. Nothing is known yet of a policy without an entry.
    #[must_use]
    pub fn update(&self, name: &str, change: impl FnOnce(&mut CatalogueEntry)) -> Self {
        let mut entries = self.entries.clone();
        change(Arc::make_mut(entries.entry(name.into()).or_default()));
        Self { entries }
    }

    /// The catalogue without a policy.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut entries = self.entries.clone();
        entries.remove(name);
        Self { entries }
    }

    /// Every policy in order of name.
    pub fn entries(&self) -> impl Iterator<Item = (&Arc<str>, &CatalogueEntry)> {
        self.entries.iter().map(|(name, entry)| (name, &**entry))
    }

    /// What is known of a policy.
    pub fn entry(&self, name: &str) -> Option<&CatalogueEntry> {
        self.entries.get(name).map(|entry| &**entry)
    }

    /// The last good revision of a policy.
    pub fn revision(&self, name: &str) -> Option<&Arc<Revision>> {
        self.entries.get(name)?.revision.as_ref()
    }

    /// How each policy changed since an earlier catalogue, in order of name; unchanged ones are left out.
    pub fn since(&self, earlier: &Self) -> Vec<(Arc<str>, PolicyChange)> {
        let names: BTreeSet<_> = earlier.entries.keys().chain(self.entries.keys()).collect();
        let change = |name: &Arc<str>| {
            let (before, after) = (earlier.entries.get(name), self.entries.get(name));
            let is_shared = |(one, other)| Arc::ptr_eq(one, other);
            if before.zip(after).is_some_and(is_shared) {
                return None;
            }
            let change = difference(earlier.entry(name), self.entry(name))?;
            Some((Arc::clone(name), change))
        };
        names.into_iter().filter_map(change).collect()
    }
}

fn difference(old: Option<&CatalogueEntry>, new: Option<&CatalogueEntry>) -> Option<PolicyChange> {
    let Some(new) = new else {
        return old.map(|_| PolicyChange::Removed);
    };
    let before = old.and_then(|entry| entry.revision.as_ref());
    let refused = old.and_then(|entry| entry.refused.as_ref());
    match (before, &new.revision) {
        (None, Some(_)) => Some(PolicyChange::Loaded),
        (Some(before), Some(after)) if before != after => Some(PolicyChange::Swapped),
        _ if new.candidate.is_some() && new.refused.is_none() => {
            let before = old.and_then(|entry| entry.candidate.as_ref());
            (before != new.candidate.as_ref()).then_some(PolicyChange::Waiting)
        }
        // Its candidate was taken back.
        _ if new.refused.is_none() && old.is_some_and(|old| old.candidate.is_some()) => {
            Some(PolicyChange::Mended)
        }
        _ if refused == new.refused.as_ref() => moved(old?, new),
        _ if new.refused.is_some() => Some(PolicyChange::Refused),
        _ => Some(PolicyChange::Mended),
    }
}

/// Whether other tags mean something else than before.
fn moved(old: &CatalogueEntry, new: &CatalogueEntry) -> Option<PolicyChange> {
    match new.moved.as_slice() {
        same if *same == old.moved => None,
        [] => Some(PolicyChange::TagReturned),
        _ => Some(PolicyChange::TagMoved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{guest, kubeconfig_manifest, policy};

    fn revision(digest: &str) -> Revision {
        let mut decide = guest(&["spec"], &[]);
        decide.digest = digest.into();
        Revision {
            policy: policy(&kubeconfig_manifest()),
            trigger: Some(guest(&["status"], &[])),
            decide,
        }
    }

    fn refusal(message: &str) -> Refusal {
        Refusal::new(KnownReason::PolicyInvalid, message)
    }

    fn refused(catalogue: &Catalogue, message: &str) -> Catalogue {
        catalogue.update("external", |entry| entry.refused = Some(refusal(message)))
    }

    #[test]
    fn keeps_the_last_good_revision_active() {
        let empty = Catalogue::default();
        let never = refused(&empty, "a");
        let first = never.with(revision("sha256:1"), "file");
        let again = first.with(revision("sha256:1"), "other file");
        let second = again.with(revision("sha256:2"), "file");
        let newer = refused(&second, "b");
        let mended = newer.with(revision("sha256:2"), "file");
        let change =
            |new: &Catalogue, old: &Catalogue| new.since(old).pop().map(|(_, change)| change);
        let again_never = refused(&never, "a");
        for (old, new, expected) in [
            (&empty, &never, Some(PolicyChange::Refused)),
            (&never, &again_never, None),
            (&never, &first, Some(PolicyChange::Loaded)),
            (&first, &again, None),
            (&again, &second, Some(PolicyChange::Swapped)),
            (&second, &newer, Some(PolicyChange::Refused)),
            (&newer, &mended, Some(PolicyChange::Mended)),
            (&mended, &mended.clone(), None),
            (
                &mended,
                &mended.without("external"),
                Some(PolicyChange::Removed),
            ),
        ] {
            assert_eq!(change(new, old), expected);
        }
        assert_eq!(newer.revision("external"), second.revision("external"));
        assert_eq!(never.revision("external"), None);
    }

    #[test]
    fn a_candidate_that_is_taken_back_is_a_change() {
        let active = Catalogue::default().with(revision("sha256:1"), "file");
        let candidate = |revision| Candidate {
            revision: Arc::new(revision),
            gate: Gate::Approval,
            reason: KnownReason::ApprovalRequired,
            message: String::new(),
            trial: None,
        };
        let waits = active.update("external", |entry| {
            entry.candidate = Some(candidate(revision("sha256:2")));
        });
        let change =
            |new: &Catalogue, old: &Catalogue| new.since(old).pop().map(|(_, change)| change);
        assert_eq!(change(&waits, &active), Some(PolicyChange::Waiting));
        let back = waits.with(revision("sha256:1"), "file");
        assert_eq!(change(&back, &waits), Some(PolicyChange::Mended));
        let passed = waits.with(revision("sha256:2"), "file");
        assert_eq!(change(&passed, &waits), Some(PolicyChange::Swapped));
    }

    #[test]
    fn a_moved_tag_is_told_once_and_ends_with_the_revision() {
        let tag = |now: &str| MovedTag {
            component: "oci:registry.example/a:v1".to_owned(),
            pulled: "sha256:1".to_owned(),
            now: now.to_owned(),
        };
        let change =
            |new: &Catalogue, old: &Catalogue| new.since(old).pop().map(|(_, change)| change);
        let first = Catalogue::default().with(revision("sha256:1"), "file");
        let moved = first.moving("external", vec![tag("sha256:2")]);
        assert_eq!(change(&moved, &first), Some(PolicyChange::TagMoved));
        let again = moved.moving("external", vec![tag("sha256:2")]);
        assert_eq!(change(&again, &moved), None);
        let further = moved.moving("external", vec![tag("sha256:3")]);
        assert_eq!(change(&further, &moved), Some(PolicyChange::TagMoved));
        let back = moved.moving("external", vec![]);
        assert_eq!(change(&back, &moved), Some(PolicyChange::TagReturned));
        // A load of the same revision keeps it; another revision, and a policy that is unknown, have none.
        let of = |catalogue: &Catalogue| {
            let mut entries = catalogue.entries();
            entries.next().map_or(0, |(_, entry)| entry.moved.len())
        };
        assert_eq!(of(&moved.with(revision("sha256:1"), "file")), 1);
        assert_eq!(of(&moved.with(revision("sha256:2"), "file")), 0);
        let unknown = Catalogue::default().moving("external", vec![tag("sha256:2")]);
        assert_eq!(unknown, Catalogue::default());
    }

    #[test]
    fn asks_the_trigger_guest_if_there_is_one() {
        let mut revision = revision("sha256:1");
        let asked = |revision: &Revision| {
            let predicate = revision.predicate();
            let fields = predicate.declared.fields.list().iter();
            (
                predicate.evaluator,
                fields.map(ToString::to_string).collect::<Vec<_>>(),
            )
        };
        let status = vec!["status".to_owned()];
        assert_eq!(asked(&revision), (Evaluator::Guest, status));
        revision.trigger = None;
        let spec = vec!["spec".to_owned()];
        assert_eq!(asked(&revision), (Evaluator::AnyChange, spec));
    }
}
