//! Runs one job: reads components, loads the newest manifest, and restores what was active when the agent ended.

use super::restored::{EarlierRevisions, earlier, restored, still_watched_before, watched_before};
use super::{Job, JobResult, Ran, Restored, Restoring, previous_revision};
use crate::policies::cases::PassedCases;
use crate::policies::components::{self, Components};
use crate::policies::load::{self, LoadedPolicy, Unloaded};
use crate::policies::revisions;
use crate::policies::wanted::RecordedComponent;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::Notify;
use transom_api::KnownReason;
use transom_artifacts::folder::FileIdentity;
use transom_artifacts::{GatheredComponents, Location, Unread};
use transom_core::catalogue::Refusal;
use transom_core::policy::Policy;
use transom_core::rollout::history::History;
use transom_engine::Engine;

/// Reads what a job needs, and queues it again, also when it is to give way to others before that.
pub(super) async fn read(components: Components, mut job: Job, gives_way: Arc<Notify>) -> Ran {
    let read = tokio::select! {
        read = read_all(&components, &mut job) => read,
        () = gives_way.notified() => Ok(()),
    };
    match read {
        Ok(()) => Ran::Again(Box::new(job)),
        // Without the history it is not known what may be active.
        Err(unread) => unrecalled(job, Refusal::new(unread.reason, unread.message)),
    }
}

/// Reads from a cluster and from registries; if it needs a registry, it is to be queued again to pull. The revision
/// that was active is pulled first: the registry of newer components may be slow or gone.
async fn read_all(components: &Components, job: &mut Job) -> Result<(), Unread> {
    if job.follows() {
        previous_revision::read(components, job).await;
        return Ok(());
    }
    let waits = job.recalls && (job.pulls || job.pulls_earlier);
    if !waits {
        job.gathered = components.read(&job.wanted, job.pulls).await;
        job.pulls |= job.gathered.is_none();
    }
    match job.recalls {
        true => recall(components, job).await,
        false => Ok(()),
    }
}

/// Reads the kept revisions of a policy, and the components of those that are to be restored.
async fn recall(components: &Components, job: &mut Job) -> Result<(), Unread> {
    job.history = components.history(&job.name, job.wanted.uid()).await?;
    if let Some(history) = &job.history {
        job.wanted.keep_meanings(history);
    }
    job.recalls = !read_earlier(components, job).await;
    if job.lacks_before {
        // What is active is restored first.
        job.gathered = None;
    }
    if !job.recalls && job.gathered.is_none() && job.active().is_some() {
        job.restoring = Restoring::Next;
    }
    Ok(())
}

/// Reads the components of the revisions to restore from their original places, unless the cache has them: it may be
/// gone with an earlier pod. Returns false if a registry has to be asked for the active revision.
async fn read_earlier(components: &Components, job: &mut Job) -> bool {
    let both = job.wanted.of_earlier(unkept(components, job));
    // The newest manifest trusts the same keys, which may have been read for it.
    let keys_read = job.gathered.is_some() || both.companions.is_empty();
    if job.active().is_none() || both.components.is_empty() && keys_read {
        return true;
    }
    job.earlier = components.read(&both, false).await;
    if job.earlier.is_some() {
        job.asks_newest();
        return true;
    }
    let active = job
        .active()
        .map(|record| revisions::unkept(components, &job.wanted, record));
    let earlier = job.wanted.of_earlier(active.unwrap_or_default());
    job.lacks_before = !unkept_before(components, job).is_empty();
    job.earlier = components.read(&earlier, job.pulls_earlier).await;
    if job.earlier.is_some() {
        job.asks_newest();
        return true;
    }
    // Queued once more, as one that asks registries.
    (job.gathered, job.pulls_earlier) = (None, true);
    job.asks(&earlier.components);
    false
}

/// The components of the revisions to restore that the cache lacks. If both revisions name one place, the component of
/// the active one counts.
fn unkept(components: &Components, job: &Job) -> BTreeMap<Location, RecordedComponent> {
    let history = job.history.iter();
    // The active revision comes last, so its components replace those of the previous one.
    let records =
        history.flat_map(|history| watched_before(history).into_iter().chain(history.active()));
    let unkept = records.flat_map(|record| revisions::unkept(components, &job.wanted, record));
    unkept.collect()
}

/// The components of the revision before the active one, if they were not kept and it may still have to work again.
pub(super) fn unkept_before(
    components: &Components,
    job: &Job,
) -> BTreeMap<Location, RecordedComponent> {
    let before = still_watched_before(components, job);
    let unkept = before.map(|record| revisions::unkept(components, &job.wanted, record));
    unkept.unwrap_or_default()
}

/// Puts the components that were read at their original places into the cache, so that the next start does not need
/// them there.
pub(super) fn keep_earlier(components: &Components, job: &Job) {
    if let Some(earlier) = &job.earlier {
        let wanted = job.wanted.of_earlier(unkept(components, job));
        // Does not fail for lack of room, because the history uses these components.
        drop(components.keep(&wanted, earlier, &wanted.digests().collect()));
    }
}

/// The component files as they are now.
fn fingerprints(job: &Job) -> BTreeMap<Location, Option<FileIdentity>> {
    let fingerprint = |component: &Location| (component.clone(), component.fingerprint());
    job.wanted.all().map(fingerprint).collect()
}

/// A policy whose history cannot be read, or not be restored now: it is loaded again later.
fn unrecalled(job: Job, refusal: Refusal) -> Ran {
    let fingerprints = fingerprints(&job);
    Ran::Done(Box::new(JobResult {
        policy: Arc::clone(&job.name),
        number: job.number,
        result: Err(job.refusal.unwrap_or(refusal)),
        refused: None,
        history: None,
        unrestored: false,
        restored: None,
        before: None,
        fingerprints,
        versions: components::versions(&job.gathered.unwrap_or_default()),
        incomplete: true,
    }))
}

/// Restores what was active, before the newest components are read.
fn restore_first(engine: &Engine, components: &Components, mut job: Job) -> Ran {
    let nothing = GatheredComponents::default();
    let read = job.earlier.as_ref().unwrap_or(&nothing);
    let earlier = match restored(engine, components, &job, read, None) {
        Ok(earlier) => earlier,
        Err(Unloaded::Slow) => return again(job),
        Err(Unloaded::Refused(busy)) => return unrecalled(job, busy),
    };
    let is_unread = read.is_incomplete();
    if earlier.active.is_some() {
        keep_earlier(components, &job);
    }
    (job.earlier, job.slow) = (None, false);
    job.lacks_before |= earlier.lacks_before;
    let (Some(restored), Some(history)) = (earlier.active, job.history.clone()) else {
        job.restoring = Restoring::Failed(is_unread);
        return Ran::Again(Box::new(job));
    };
    job.restoring = Restoring::Done;
    job.first = false;
    let restored = Restored {
        policy: Arc::clone(&job.name),
        number: job.number,
        history,
        restored,
        before: earlier.before,
    };
    Ran::Restored(Box::new(restored), Box::new(job))
}

/// Runs a job; it is to be queued again when it takes longer than the engine waits.
pub(super) fn run(engine: &Engine, components: &Components, job: Job) -> Ran {
    match job.restoring {
        Restoring::Next => restore_first(engine, components, job),
        Restoring::PreviousRevision => previous_revision::restore(engine, components, job),
        _ => load(engine, components, job),
    }
}

/// Loads the newest manifest, and restores what was active where that is another.
fn load(engine: &Engine, components: &Components, mut job: Job) -> Ran {
    let fingerprints = fingerprints(&job);
    let mut gathered = job.gathered.take().unwrap_or_default();
    take_demanded(components, &job, &mut gathered);
    let newest = match (&job.policy, &job.refusal) {
        (Some(policy), None) => load_newest(engine, components, (&job, policy), &gathered),
        (_, refusal) => Ok((Err(refusal.clone().unwrap_or_else(bug)), None)),
    };
    let Ok((result, refused)) = newest else {
        return again(job);
    };
    let earlier = restored_with(engine, components, &job, &gathered, result.as_ref().ok());
    let earlier = match earlier {
        Ok(earlier) => earlier,
        Err(Unloaded::Slow) => return again(job),
        Err(Unloaded::Refused(busy)) => {
            job.gathered = Some(gathered);
            return unrecalled(job, busy);
        }
    };
    job.lacks_before |= earlier.lacks_before;
    // The revision that was active takes precedence over the newest manifest with components of an earlier run.
    let (result, refused) = match (refused, &earlier.active) {
        (Some(refusal), Some(_)) => (Err(refusal), None),
        (refused, _) => (result, refused),
    };
    let is_unread = job
        .earlier
        .as_ref()
        .is_some_and(GatheredComponents::is_incomplete);
    let unread = match job.restoring {
        Restoring::Done => false,
        restoring => is_unread || restoring == Restoring::Failed(true),
    };
    let refusal = refused.as_ref().or(result.as_ref().err());
    let incomplete = gathered.is_incomplete()
        || gathered.has_tags()
        || refusal.is_some_and(|refusal| may_pass(&job, refusal));
    let done = Box::new(JobResult {
        policy: Arc::clone(&job.name),
        number: job.number,
        result,
        refused,
        // It was handed over before, and may have been written since.
        history: (job.history.clone()).filter(|_| job.restoring != Restoring::Done),
        unrestored: unread && earlier.active.is_none(),
        restored: earlier.active,
        before: earlier.before,
        fingerprints,
        versions: components::versions(&gathered),
        incomplete,
    });
    previous_revision::after(components, job, done)
}

/// Restores the active revision of the history, if it is not the newest, and the one before it; unless that was done.
fn restored_with(
    engine: &Engine,
    components: &Components,
    job: &Job,
    gathered: &GatheredComponents,
    newest: Option<&LoadedPolicy>,
) -> Result<EarlierRevisions, Unloaded> {
    if job.restoring != Restoring::WithNewest {
        return Ok(EarlierRevisions::default());
    }
    // What lies in a cluster is read again: it may be long until its turn.
    let read = job.earlier.as_ref().unwrap_or(gathered);
    let earlier = restored(engine, components, job, read, newest)?;
    if earlier.active.is_some() {
        keep_earlier(components, job);
    }
    Ok(earlier)
}

/// Takes components from the cache if the policy demands a digest and other bytes lie at their places now, as after a
/// rollback.
fn take_demanded(components: &Components, job: &Job, gathered: &mut GatheredComponents) {
    for component in &job.wanted.components {
        let asker = job.wanted.asker(component);
        let demanded = asker.digest;
        let absent = |digest: &&str| component.fetch(Some(digest), gathered).is_err();
        if let Some(digest) = demanded.filter(absent)
            && let Some(held) = components.kept().by_digest(component, asker, digest)
        {
            gathered.kept.insert(component.clone(), held);
        }
    }
}

/// A job that takes longer than the engine waited.
fn again(mut job: Job) -> Ran {
    job.slow = true;
    // Read again as well; what was restored is not restored once more.
    let is_read = job.earlier.take().is_some();
    job.recalls |= is_read && job.restoring != Restoring::Done;
    Ran::Again(Box::new(job))
}

/// The result of loading the newest manifest: its revision; or a revision with components of an earlier run, and why
/// the newest ones are refused; or only a refusal.
type NewestManifest = (Result<LoadedPolicy, Refusal>, Option<Refusal>);

/// Loads the newest manifest.
///
/// # Errors
/// When it takes longer than the engine waits.
fn load_newest(
    engine: &Engine,
    components: &Components,
    (job, policy): (&Job, &Policy),
    gathered: &GatheredComponents,
) -> Result<NewestManifest, Unloaded> {
    let active = job.history.as_ref().and_then(History::active);
    let inputs = load::Inputs {
        sources: components.sources(),
        base: &job.wanted.base,
        gathered,
        passed: active.map_or(PassedCases::Nothing, PassedCases::Of),
    };
    let load = || load::assemble(engine, policy.clone(), inputs);
    let refusal = match catch_unwind(AssertUnwindSafe(load)) {
        Ok(Ok(loaded)) => match components.keep(&job.wanted, gathered, &loaded.digests()) {
            Ok(()) => return Ok((Ok(loaded), None)),
            Err(refusal) => refusal,
        },
        Ok(Err(Unloaded::Refused(refusal))) => refusal,
        Ok(Err(Unloaded::Slow)) => return Err(Unloaded::Slow),
        Err(_) => return Ok((Err(bug()), None)),
    };
    match earlier(engine, components, (job, policy), gathered) {
        Ok(Some(loaded)) => Ok((Ok(loaded), Some(refusal))),
        Ok(None) | Err(Unloaded::Refused(_)) => Ok((Err(refusal), None)),
        Err(Unloaded::Slow) => Err(Unloaded::Slow),
    }
}

pub(super) fn bug() -> Refusal {
    Refusal::new(
        KnownReason::AgentFailed,
        "a bug in the agent made loading the policy fail",
    )
}

/// Whether a retry may succeed without a change that is reported: the machine was busy, the cache was full, or a
/// registry may still get a signature.
fn may_pass(job: &Job, refusal: &Refusal) -> bool {
    let mut images = job.wanted.components.iter().filter_map(Location::image);
    match refusal.reason {
        KnownReason::EngineBusy | KnownReason::CacheFull => true,
        KnownReason::SignatureMissing | KnownReason::SignatureInvalid => images.next().is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::engine;
    use crate::policies::component_cache::{ComponentCache, ComponentRequest};
    use crate::policies::images::Images;
    use crate::policies::wanted::WantedReads;
    use crate::policies::{BUILTIN, FoundPolicies, Written};
    use serde_json::json;
    use transom_api::policy::RollbackSpec;
    use transom_artifacts::{Base, Sources};
    use transom_core::digest::Digest;
    use transom_core::rollout::Probation;
    use transom_core::rollout::history::RevisionRecord;
    use transom_engine::{Compiler, EngineOptions};

    /// A policy with a builtin guest.
    fn written() -> Written {
        let mut found = FoundPolicies::default();
        found.take("a", &Base::Nowhere, BUILTIN[0].1.as_bytes());
        found.policies.remove(0)
    }

    /// A job that has read everything.
    fn to_restore(written: &Written) -> WantedReads {
        let name = written.name().unwrap();
        WantedReads::to_restore(name, std::slice::from_ref(written), false).unwrap()
    }

    fn job(name: &Arc<str>, wanted: WantedReads) -> Job {
        Job {
            refusal: Some(Refusal::new(KnownReason::ManifestInvalid, "")),
            first: true,
            restoring: Restoring::WithNewest,
            ..Job::new(1, name, wanted)
        }
    }

    fn done(ran: Ran) -> JobResult {
        match ran {
            Ran::Done(done) => *done,
            _ => panic!("it waits"),
        }
    }

    #[test]
    fn a_revision_that_a_busy_machine_cannot_restore_is_tried_again() {
        let written = written();
        let sources = Sources::default();
        let engine = engine::of_tests();
        let loaded = load::load(&engine, &written, &sources).ok().unwrap();
        let mut record = RevisionRecord::of(&loaded.revision);
        record.number = 1;
        let mut history = History::default();
        history.put(&record.name(), Some(record));
        let compiler = Compiler {
            program: "/no/such/program".into(),
            words: Vec::new(),
            seconds: 60,
        };
        let busy = Engine::new(EngineOptions {
            compiler: Some(compiler),
            ..EngineOptions::default()
        });
        let wanted = to_restore(&written);
        let job = Job {
            history: Some(history),
            ..job(&loaded.revision.policy.name, wanted)
        };
        let done = done(run(&busy.unwrap(), &Components::new(&sources), job));
        // Without a history the policy goes on to count as one whose revision is still to be restored.
        assert!(done.incomplete && done.result.is_err() && done.history.is_none());
    }

    #[test]
    fn a_digest_brings_no_component_from_a_source_that_the_policy_does_not_name() {
        let mut written = written();
        let folder = tempfile::tempdir().unwrap();
        let kept = ComponentCache::new(Some(folder.path()));
        let sources: Sources = "builtin,configmap:transom/*".parse().unwrap();
        let images = Images::new(Vec::new());
        let components = Components::new(&sources).pulling(images, kept.clone());
        let builtin = written.components().next().unwrap();
        let artifact = builtin.fetch(None, &GatheredComponents::default()).unwrap();
        let guest = &mut written.value["spec"]["guests"]["decide"];
        guest["component"] = json!("configmap:transom/a/k");
        guest["digest"] = json!(artifact.digest);
        let policy = load::check(&written.value).ok().unwrap();
        let at = written.components().next().unwrap();
        let load = || {
            let wanted = WantedReads::new(&policy, &written, false);
            let object = at.parts()[0].object.clone();
            let gathered = GatheredComponents {
                objects: BTreeMap::from([(object, Ok(None))]),
                ..GatheredComponents::default()
            };
            let job = Job {
                policy: Some(policy.clone()),
                refusal: None,
                gathered: Some(gathered),
                ..job(&policy.name, wanted)
            };
            let engine = engine::of_tests();
            done(run(&engine, &components, job)).result
        };
        // Another policy has loaded it, from where this agent takes nothing any more.
        let elsewhere = Location::parse("oci:registry.example/a:v1", &Base::Nowhere).unwrap();
        let other = ComponentRequest {
            policy: "other",
            ..ComponentRequest::default()
        };
        kept.keep_digest(&elsewhere, other, &artifact, None)
            .unwrap();
        let refused = load().err().expect("it is loaded from elsewhere");
        assert_eq!(refused.reason, KnownReason::ComponentNotFound);
        // What lay at its own place is there for a rollback.
        kept.keep_digest(&at, other, &artifact, None).unwrap();
        assert!(load().is_ok());
    }

    #[test]
    fn of_two_revisions_at_one_place_the_active_one_is_read() {
        let written = written();
        let sources = Sources::default();
        let engine = engine::of_tests();
        let loaded = load::load(&engine, &written, &sources).ok().unwrap();
        let sample = RevisionRecord::of(&loaded.revision);
        let mut history = History::default();
        for (number, digest) in [(1, "sha256:before"), (2, "sha256:active")] {
            let mut record = sample.clone();
            let mut spec = (*record.spec).clone();
            spec.guests.decide.component = "oci:registry.example/a:v1".to_owned();
            record.spec = Arc::new(spec);
            record.id = Digest::of_bytes(digest.as_bytes());
            (record.number, record.decide) = (number, digest.to_owned());
            record.probation = Some(Probation::new(0, 0, RollbackSpec::default()));
            history.put(&record.name(), Some(record));
        }
        let wanted = to_restore(&written);
        let job = Job {
            history: Some(history),
            ..job(&loaded.revision.policy.name, wanted)
        };
        let read = unkept(&Components::new(&sources), &job);
        let digests: Vec<_> = read.values().map(|one| one.digest.as_str()).collect();
        assert_eq!(digests, ["sha256:active"]);
    }
}
