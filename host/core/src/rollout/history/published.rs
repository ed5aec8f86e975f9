//! Whether a revision is the one that an agent published, which may be of another version than this one.

use super::{RevisionRecord, id};
use crate::rollout::{identity, short};
use transom_api::status::{CandidateStatus, PolicyStatus};

impl RevisionRecord {
    /// Whether a published revision with this short digest and these components is this one, or goes on as it under an
    /// agent of another version. Where its components lay is not published: as those of this one.
    pub fn is_published_as(&self, short_id: &str, decide: &str, trigger: Option<&str>) -> bool {
        let published = Self {
            id: id(&identity(&self.spec), decide, trigger),
            decide: decide.to_owned(),
            trigger: trigger.map(str::to_owned),
            ..self.clone()
        };
        short(&published.id) == short_id && published.continues_as(self)
    }

    /// The candidate that an agent published, if it is this one and not active as well.
    pub fn candidate_in<'p>(&self, published: &'p PolicyStatus) -> Option<&'p CandidateStatus> {
        let active = published.revision.as_ref().map(|active| &active.id);
        let candidate = published.candidate.as_ref()?;
        let is_this = self.is_published_as(
            &candidate.id,
            &candidate.decide,
            candidate.trigger.as_deref(),
        );
        (is_this && active != Some(&candidate.id)).then_some(candidate)
    }

    /// Whether this is the active revision that an agent published, which may be of another version.
    pub fn is_active_in(&self, published: &PolicyStatus) -> bool {
        let Some(active) = &published.revision else {
            return false;
        };
        // A component of another place may have been active under the same manifest: then this one is the candidate.
        let goes_on = || {
            self.candidate_in(published).is_none()
                && self.is_published_as(&active.id, &active.decide, active.trigger.as_deref())
        };
        active.id == short(&self.id) || goes_on()
    }
}
