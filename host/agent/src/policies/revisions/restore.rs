//! Restores a kept revision: where its components lay, by which manifests they were pulled, and what bounds it now.

use crate::policies::cases::PassedCases;
use crate::policies::components::Components;
use crate::policies::load::{self, LoadedPolicy, Unloaded};
use crate::policies::wanted::{RecordedComponent, WantedReads};
use std::collections::BTreeMap;
use std::fmt::Display;
use transom_api::KnownReason;
use transom_api::policy::GuestSpec;
use transom_artifacts::{GatheredComponents, HeldComponent, Location};
use transom_core::catalogue::Refusal;
use transom_core::policy::Policy;
use transom_core::rollout::history::{History, Manifests, RevisionRecord};
use transom_engine::Engine;

/// The components of a kept revision that were not kept, where they were loaded from, each as it was pulled.
pub(in crate::policies) fn unkept(
    components: &Components,
    wanted: &WantedReads,
    record: &RevisionRecord,
) -> BTreeMap<Location, RecordedComponent> {
    let Ok(policy) = record.policy() else {
        return BTreeMap::new();
    };
    let at = guests(&policy, record).filter_map(|(spec, earlier)| {
        let at = Location::parse(&spec.component, &wanted.base).ok()?;
        let kept = components.kept();
        let is_kept = kept.has_from(&at, wanted.asker(&at), &earlier.digest);
        (!is_kept).then_some((at, earlier))
    });
    at.filter(|(at, _)| !matches!(at, Location::Builtin(_)))
        .collect()
}

/// The guests of a kept revision, each as it was.
fn guests<'a>(
    policy: &'a Policy,
    record: &'a RevisionRecord,
) -> impl Iterator<Item = (&'a GuestSpec, RecordedComponent)> {
    let Manifests { decide, trigger } = &record.manifests;
    let both = [
        (Some(&policy.decide), Some(&record.decide), decide),
        (policy.trigger.as_ref(), record.trigger.as_ref(), trigger),
    ];
    both.into_iter().filter_map(|(spec, digest, manifest)| {
        let (digest, manifest) = (digest?.clone(), manifest.clone());
        Some((spec?, RecordedComponent { digest, manifest }))
    })
}

/// What a component of a kept revision that lies here was when it was pulled; that of the active revision first.
pub(in crate::policies) fn pulled(
    history: &History,
    wanted: &WantedReads,
    component: &Location,
) -> Option<RecordedComponent> {
    let active = history.active().into_iter();
    let mut records = active.chain(history.records());
    records.find_map(|record| {
        let policy = record.policy().ok()?;
        let here = |spec: &GuestSpec| {
            let at = Location::parse(&spec.component, &wanted.base);
            at.as_ref() == Ok(component)
        };
        let mut guests = guests(&policy, record);
        guests.find_map(|(spec, earlier)| {
            let is_pulled = here(spec) && earlier.manifest.is_some();
            is_pulled.then_some(earlier)
        })
    })
}

/// Loads the revision that was active when the agent ended. Its components come from the binary, or, each with the
/// digest that it had, from what was kept of earlier loads or from where they lay. `newest` is the newest manifest, if
/// it is valid.
///
/// # Errors
/// When a component is not there any more, or the revision may not be loaded any more.
pub(in crate::policies) fn restore(
    engine: &Engine,
    components: &Components,
    (newest, wanted): (Option<&Policy>, &WantedReads),
    read: &GatheredComponents,
    record: &RevisionRecord,
) -> Result<LoadedPolicy, Unloaded> {
    let policy = record.policy();
    let policy = policy.map_err(|error| refused(&error))?;
    let policy = bound(policy, newest, wanted);
    let mut gathered = GatheredComponents {
        objects: read.objects.clone(),
        ..GatheredComponents::default()
    };
    for (spec, RecordedComponent { digest, manifest }) in guests(&policy, record) {
        let digest = &digest;
        let location = Location::parse(&spec.component, &wanted.base);
        let location = location.map_err(|why| refused(&why))?;
        // The agent has only its own builtin components: after an upgrade the revision goes on with these.
        if matches!(location, Location::Builtin(_)) {
            continue;
        }
        let asker = wanted.asker(&location);
        if let Some(held) = components.kept().by_digest(&location, asker, digest) {
            gathered
                .kept
                .insert(location, HeldComponent { manifest, ..held });
            continue;
        }
        let lies_there = location.fetch(Some(digest), read);
        lies_there.map_err(|error| {
            let component = &spec.component;
            refused(&format_args!(
                "the component {component} with the digest {digest} is gone: {error}"
            ))
        })?;
        if let Some(held) = read.kept.get(&location) {
            gathered.kept.insert(location, held.clone());
        } else if let Some((image, pulled)) = location
            .image()
            .zip(location.image().and_then(|image| read.images.get(image)))
        {
            gathered.images.insert(image.clone(), pulled.clone());
        }
    }
    let inputs = load::Inputs {
        sources: components.sources(),
        base: &wanted.base,
        gathered: &gathered,
        passed: PassedCases::All,
    };
    let loaded = load::assemble(engine, policy, inputs)?;
    match record.goes_on_in(&loaded.revision) {
        true => Ok(loaded),
        false => Err(refused(&"it is another revision now")),
    }
}

fn refused(why: &dyn Display) -> Unloaded {
    let reason = KnownReason::ComponentNotFound;
    Unloaded::Refused(Refusal::new(reason, why.to_string()))
}

/// The policy of a kept revision, with the settings of the newest manifest that are no part of a revision, such as the
/// trusted keys.
fn bound(policy: Policy, newest: Option<&Policy>, wanted: &WantedReads) -> Policy {
    match newest {
        Some(newest) => Policy {
            verify: wanted.verify.clone(),
            suspend: newest.suspend,
            limits: newest.limits.clone(),
            on_failure: newest.on_failure,
            resync_seconds: newest.resync_seconds,
            ..policy
        },
        // A manifest that is not valid may lack the demand by mistake.
        None => Policy {
            verify: wanted.verify.clone().or(policy.verify.clone()),
            ..policy
        },
    }
}
