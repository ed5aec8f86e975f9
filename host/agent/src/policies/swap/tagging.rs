//! The tags of active policies, and which of them have moved.

use super::Swap;
use crate::policies::active::PolicyChanges;
use crate::policies::tags::{Tag, TagAnswer, TagAnswers};
use std::collections::BTreeSet;
use transom_api::policy::GuestSpec;
use transom_artifacts::{Base, Location};
use transom_core::catalogue::guest::GuestFacts;
use transom_core::catalogue::{MovedTag, Revision};

impl Swap {
    /// The tags of active policies, each once.
    pub(in crate::policies) fn tags(&self) -> Vec<Tag> {
        let revisions = self.good.values().map(|good| &*good.revision);
        let tags: BTreeSet<_> = revisions.flat_map(tags).collect();
        let components = self.loads().components();
        let allowed = tags.into_iter();
        allowed
            .filter(|tag| components.allow(&tag.component))
            .collect()
    }

    /// Records which tags mean something else by now. What is not known stays as it was.
    pub(in crate::policies) fn tags_answered(&mut self, answers: &TagAnswers) -> PolicyChanges {
        self.change(|known| {
            for (name, good) in &self.good {
                let entry = known.catalogue.entry(name);
                let before = entry.map(|entry| entry.moved.clone()).unwrap_or_default();
                let one = |tag: Tag| -> Option<MovedTag> {
                    match answers.get(&tag) {
                        Some(TagAnswer::Moved(moved)) => Some(moved.clone()),
                        Some(TagAnswer::Same) => None,
                        None => {
                            let text = tag.component.to_string();
                            before.iter().find(|one| one.component == text).cloned()
                        }
                    }
                };
                let moved = tags(&good.revision).into_iter().filter_map(one);
                known.catalogue = known.catalogue.moving(name, moved.collect());
            }
        })
    }
}

/// The components of a revision that its policy names by a tag alone.
fn tags(revision: &Revision) -> BTreeSet<Tag> {
    let policy = &revision.policy;
    let specs = policy.trigger.iter().chain([&policy.decide]);
    let tag = |(spec, guest): (&GuestSpec, &GuestFacts)| {
        let component = Location::parse(&spec.component, &Base::Nowhere).ok()?;
        let image = component.image()?;
        image.digest.is_none().then(|| Tag {
            component: component.clone(),
            digest: spec.digest.clone(),
            pulled: guest.manifest.clone(),
        })
    };
    specs.zip(revision.guests()).filter_map(tag).collect()
}
