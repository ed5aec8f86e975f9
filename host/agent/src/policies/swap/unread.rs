//! Policies that no manifest defines any more: they are removed, unless a manifest cannot be read that may define them.
//! At a start that is each policy of the history, because a file that cannot be parsed names none.

use super::{ManifestState, Swap};
use crate::policies::active::PolicyChanges;
use crate::policies::revisions;
use crate::policies::wanted::WantedReads;
use crate::policies::{FoundPolicies, PolicySource, Written};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use transom_api::KnownReason;
use transom_core::catalogue::{PolicyPlace, Refusal};
use transom_core::rollout::history::History;

/// How long after a failure the history is listed again.
const AGAIN: Duration = Duration::from_secs(10);

/// The files that could not be read when the agent started, until the history was listed.
pub(super) struct UnreadFiles {
    /// A manifest of which nothing is known at each of them.
    manifests: Vec<Written>,
    due: Instant,
}

impl Swap {
    /// Takes the policies as they are written when the agent starts.
    pub(in crate::policies) fn begin(
        &mut self,
        found: Result<FoundPolicies, String>,
    ) -> PolicyChanges {
        let unread = found.as_ref().map(|found| found.unread.iter());
        let manifests: Vec<_> = match &self.source {
            PolicySource::Path(files) if self.rolls_out => {
                let unread = unread.into_iter().flatten();
                let unknown = unread.map(|place| Written {
                    place: place.clone(),
                    base: files.base(Path::new(place)),
                    value: Value::Null,
                });
                unknown.collect()
            }
            _ => Vec::new(),
        };
        let due = Instant::now();
        self.unread = (!manifests.is_empty()).then_some(UnreadFiles { manifests, due });
        self.update(found)
    }

    /// Removes the policies that are no longer written. A policy at a place that cannot be read now is not gone.
    pub(super) fn remove_unwritten(
        &mut self,
        found: &FoundPolicies,
        by_name: &BTreeMap<Arc<str>, Vec<Written>>,
    ) -> PolicyChanges {
        let mut changes = PolicyChanges::new();
        // An object that was made anew is another policy.
        let is_gone = |_: &Arc<str>, newest: &ManifestState, now: Option<&Vec<Written>>| {
            now.is_none_or(|now| self.uid(now) != self.uid(&newest.written))
        };
        for name in self.names(|name, newest| is_gone(name, newest, by_name.get(name))) {
            let uid = self.newest.get(&name);
            let uid = uid.and_then(|newest| self.uid(&newest.written).map(str::to_owned));
            let Some(newest) = self.newest.get_mut(&name) else {
                continue;
            };
            let mut places = newest.written.iter().map(|one| one.place.clone());
            let Some(place) = places.find(|place| found.unread_at(place).is_some()) else {
                self.newest.remove(&name);
                self.good.remove(&name);
                self.forget_kept(&name, uid.as_deref());
                self.probations.remove(&name);
                self.loads.cancel(&name);
                changes.extend(self.change(|known| {
                    known.loaded.remove(&name);
                    known.rehearsed.remove(&name);
                    known.catalogue = known.catalogue.without(&name);
                }));
                continue;
            };
            if let Some(why) = found.why(&place) {
                // Whatever is read there next counts as new, even the same content.
                for written in &mut newest.written {
                    written.value.take();
                }
                let refusal = Refusal::new(KnownReason::ManifestInvalid, format!("{place}: {why}"));
                changes.extend(self.refuse(&name, refusal, false));
            }
        }
        changes
    }

    /// Forgets the files that can be read by now.
    pub(super) fn forget_read(&mut self, found: &FoundPolicies) {
        let Some(unread) = &mut self.unread else {
            return;
        };
        let is_unread = |one: &Written| found.unread_at(&one.place).is_some();
        unread.manifests.retain(is_unread);
        if unread.manifests.is_empty() {
            self.unread = None;
        }
    }

    /// Has the active revision of each policy restored that no manifest has, while one of them cannot be read.
    pub(in crate::policies) async fn recall_unread(&mut self, within: Duration) -> PolicyChanges {
        let is_due = |unread: &&mut UnreadFiles| unread.due <= Instant::now();
        let Some(unread) = self.unread.as_mut().filter(is_due) else {
            return PolicyChanges::new();
        };
        let Ok(Ok(histories)) = timeout(within, self.loads.components().histories()).await else {
            unread.due = Instant::now() + AGAIN;
            return PolicyChanges::new();
        };
        let manifests = self.unread.take().map(|unread| unread.manifests);
        let mut changes = PolicyChanges::new();
        for (name, history) in histories {
            let name: Arc<str> = name.into();
            if !self.newest.contains_key(&name) && !self.gone.contains(&name) {
                let manifests = manifests.clone().unwrap_or_default();
                changes.extend(self.take_unread(&name, manifests, &history));
            }
        }
        self.tell_written();
        changes
    }

    /// Takes a policy that may be written in one of these files.
    fn take_unread(
        &mut self,
        name: &Arc<str>,
        mut written: Vec<Written>,
        history: &History,
    ) -> PolicyChanges {
        let Some(active) = history.active() else {
            return PolicyChanges::new();
        };
        // Its components lie beside its manifest.
        let has_components = |one: &Written| {
            let wanted = WantedReads::to_restore(name, std::slice::from_ref(one), false);
            let components = self.loads.components();
            wanted.is_some_and(|wanted| revisions::unkept(components, &wanted, active).is_empty())
        };
        if let Some(at) = written.iter().position(has_components) {
            written.swap(0, at);
        }
        let places: Vec<_> = written.iter().map(|one| one.place.as_str()).collect();
        let text = places.join(", ");
        let message = format!("{text}: cannot be read, and may define the policy");
        let refusal = Refusal::new(KnownReason::ManifestInvalid, message);
        let newest = ManifestState {
            place: PolicyPlace {
                text,
                generation: None,
            },
            refusal: Some(refusal.clone()),
            written,
            ..ManifestState::default()
        };
        self.newest.insert(Arc::clone(name), newest);
        let changes = self.refuse(name, refusal, true);
        self.load(name);
        changes
    }
}
