//! What an earlier run loaded, for a policy that has nothing active yet.

use super::Job;
use crate::policies::components::Components;
use crate::policies::load::{self, Loaded, Unloaded};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use transom_artifacts::Gathered;
use transom_engine::Engine;

/// The policy with the components that an earlier run loaded, if nothing is active yet.
pub(super) fn earlier(
    engine: &Engine,
    components: &Components,
    job: &Job,
    gathered: &Gathered,
) -> Result<Option<Loaded>, Unloaded> {
    if !job.first {
        return Ok(None);
    }
    let remote = job.wanted.components.iter().filter(|one| one.is_remote());
    let kept: Option<BTreeMap<_, _>> = remote
        .map(|one| {
            let held = components.kept().find(one, job.wanted.asker(one))?;
            Some((one.clone(), held))
        })
        .collect();
    let Some(kept) = kept.filter(|kept| !kept.is_empty()) else {
        return Ok(None);
    };
    // The trusted keys are those of now.
    let gathered = Gathered {
        kept,
        objects: gathered.objects.clone(),
        ..Gathered::default()
    };
    let inputs = load::Inputs {
        sources: components.sources(),
        base: &job.wanted.base,
        gathered: &gathered,
    };
    let load = || load::assemble(engine, job.policy.clone(), inputs);
    match catch_unwind(AssertUnwindSafe(load)) {
        Ok(loaded) => loaded.map(Some),
        Err(_) => Ok(None),
    }
}
