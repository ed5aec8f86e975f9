//! The conditions of a policy that tell of its revisions: what is active, what becomes of the newest, and who signed
//! it.

use super::{holds, said};
use crate::catalogue::guest::GuestFacts;
use crate::catalogue::{CatalogueEntry, Revision};
use transom_api::KnownReason;
use transom_api::status::{Condition, ConditionStatus, ConditionType};

/// Whether the newest revision is active.
pub(super) fn loaded(entry: &CatalogueEntry) -> Condition {
    let candidate = entry.candidate.as_ref();
    let (reason, message) = match (&entry.refused, candidate) {
        (None, None) => (KnownReason::Loaded, KnownReason::Loaded.meaning()),
        (None, Some(candidate)) => (candidate.reason, candidate.message.as_str()),
        (Some(refused), _) => (refused.reason, refused.message.as_str()),
    };
    let status = holds(entry.refused.is_none() && candidate.is_none());
    said(
        ConditionType::Loaded,
        status,
        reason.as_str(),
        message.to_owned(),
    )
}

/// The condition `TagMoved`, when tags name other artifacts by now; `None` when no tag does.
pub(super) fn tag_moved(entry: &CatalogueEntry) -> Option<Condition> {
    let all: Vec<_> = entry.moved.iter().map(ToString::to_string).collect();
    let reason = KnownReason::TagMoved.as_str();
    let kind = ConditionType::TagMoved;
    (!all.is_empty()).then(|| said(kind, ConditionStatus::True, reason, all.join("; ")))
}

/// `Reconciling` or `Stalled`, while the newest revision is not active: generic tools that wait for an object know
/// these conditions. `None` when it is active.
pub(super) fn unfinished(entry: &CatalogueEntry) -> Option<Condition> {
    let (kind, reason, message) = match (&entry.refused, &entry.candidate) {
        (Some(refused), _) => {
            let kind = match refused.retried {
                true => ConditionType::Reconciling,
                false => ConditionType::Stalled,
            };
            (kind, refused.reason, &refused.message)
        }
        (None, Some(candidate)) => {
            let kind = ConditionType::Reconciling;
            (kind, candidate.reason, &candidate.message)
        }
        (None, None) => return None,
    };
    let (status, reason) = (ConditionStatus::True, reason.as_str());
    Some(said(kind, status, reason, message.clone()))
}

/// Whether the components are signed as the policy demands; nothing when it demands nothing.
pub(super) fn verified(entry: &CatalogueEntry) -> Option<Condition> {
    use KnownReason::{SignatureInvalid, SignatureMissing, TrustRootInvalid};
    let condition = |status, reason: KnownReason, message| {
        said(ConditionType::Verified, status, reason.as_str(), message)
    };
    let unsigned = [SignatureMissing, SignatureInvalid, TrustRootInvalid];
    let refused = entry.refused.as_ref();
    if let Some(refused) = refused.filter(|refused| unsigned.contains(&refused.reason)) {
        let message = refused.message.clone();
        return Some(condition(ConditionStatus::False, refused.reason, message));
    }
    let message = signers(entry.revision.as_ref()?)?;
    Some(condition(
        ConditionStatus::True,
        KnownReason::Verified,
        message,
    ))
}

/// Who signed the components of a revision, for people; `None` when its policy demands no signatures.
pub fn signers(revision: &Revision) -> Option<String> {
    revision.policy.verify.as_ref()?;
    let guests = std::iter::once(&revision.decide).chain(&revision.trigger);
    let shown = |guest: &GuestFacts| match guest.signers.as_slice() {
        [] => format!("{} is part of the agent", guest.digest),
        signers => format!("{} is signed by {}", guest.digest, signers.join(", ")),
    };
    Some(guests.map(shown).collect::<Vec<_>>().join("; "))
}
