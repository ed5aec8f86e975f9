//! Replicas of an agent that keep revisions of one policy in one folder.

mod approval;
mod before;
mod handover;
mod trials;

use super::*;
use crate::clock::Clock;
use crate::command::engine;
use crate::policies::component_cache::ComponentCache;
use crate::policies::components::Components;
use crate::policies::images::Images;
use crate::policies::load_queue::{JobOutput, LoadQueue};
use crate::policies::{BUILTIN, FoundPolicies};
use serde_json::json;
use std::collections::BTreeMap;
use tempfile::TempDir;
use transom_api::policy::RollbackSpec;
use transom_artifacts::{Base, GatheredComponents, Location, Sources};
use transom_cluster::Cluster;
use transom_cluster::directory::{Directory, DirectoryOptions};
use transom_core::plan::fleet::{FleetPlan, Listed};
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::rollout::expected::{Expected, Expecting, Mark};
use transom_core::rollout::{Faults, Probation};
use transom_engine::{Engine, EngineOptions};

fn policy() -> Arc<str> {
    "external-managed-kubeconfig".into()
}

fn place() -> (TempDir, Arc<dyn Cluster>) {
    let folder = tempfile::tempdir().unwrap();
    let options = DirectoryOptions {
        watch: false,
        ..DirectoryOptions::new(LOCAL, folder.path())
    };
    (folder, Arc::new(Directory::open(options).unwrap()))
}

/// The policy, as a team wrote it.
fn written(team: &str) -> FoundPolicies {
    let mut found = FoundPolicies::default();
    found.take("policy", &Base::Nowhere, BUILTIN[1].1.as_bytes());
    found.policies[0].value["spec"]["own"]["annotations"]["example.com/team"] = json!(team);
    found
}

fn components(cluster: &Arc<dyn Cluster>) -> Components {
    components_at(cluster, BEGUN)
}

/// The components of an agent at a time in seconds since 1970.
fn components_at(cluster: &Arc<dyn Cluster>, now_seconds: i64) -> Components {
    let clock = Clock::new(Some(now_seconds));
    let components = Components::new(&Sources::default()).remembering("transom", clock);
    components.opened(Some(Arc::clone(cluster)));
    components
}

/// A replica that works on the policy as the team `a` wrote it.
async fn replica(cluster: &Arc<dyn Cluster>) -> Swap {
    replica_of(cluster, "a").await
}

async fn replica_of(cluster: &Arc<dyn Cluster>, team: &str) -> Swap {
    let mut swap = new_agent(cluster);
    swap.exchange(written(team)).await;
    assert!(works(&swap).is_some());
    swap
}

/// An agent that has read no policy yet.
fn new_agent(cluster: &Arc<dyn Cluster>) -> Swap {
    let engine = engine::of_tests();
    let loads = LoadQueue::new(engine, components(cluster));
    let source = PolicySource::Given(FoundPolicies::default());
    Swap::new(loads, source, [LOCAL.to_owned()].into(), true)
}

fn works(swap: &Swap) -> Option<Digest> {
    swap.good.get(&policy()).map(|good| good.revision.id())
}

/// The revision that is active by what is kept.
async fn kept(cluster: &Arc<dyn Cluster>) -> Option<Digest> {
    let history = components(cluster).history(&policy(), None).await.unwrap();
    history.unwrap().active().map(|active| active.id)
}

/// Has the candidate pass all gates.
fn pass(swap: &mut Swap) -> Digest {
    swap.note(&policy());
    let pending = swap.pending(&policy()).unwrap();
    pending.passed = Some(PassedCandidate {
        record: RevisionRecord::of(&pending.loaded.revision),
        approved: BTreeMap::new(),
        rehearsed: None,
    });
    pending.loaded.revision.id()
}

fn take_note(swap: &mut Swap) -> Note {
    let mut notes = swap.take_notes(&BTreeSet::new());
    assert_eq!(notes.len(), 1);
    notes.remove(0)
}

/// Writes a note, and takes what became of it.
async fn keep(swap: &mut Swap, note: Note) -> PolicyChanges {
    let components = swap.loads.components().clone();
    keep_by(components, swap, note).await
}

/// The same by other components, of another time.
async fn keep_by(components: Components, swap: &mut Swap, note: Note) -> PolicyChanges {
    let (note, result) = writer::keep(components, note).await;
    let result = result.map_err(|failure| Unkept {
        failure,
        delay: Duration::ZERO,
    });
    swap.kept(KeptNote { note, result })
}

/// An agent whose registries are asked by this script of the shell; what the script does not print is not there.
fn asking(cluster: &Arc<dyn Cluster>, script: &str) -> Swap {
    asking_with(cluster, script, ComponentCache::default())
}

/// The same with a cache of components.
fn asking_with(cluster: &Arc<dyn Cluster>, script: &str, cache: ComponentCache) -> Swap {
    asking_by(engine::of_tests(), cluster, script, cache)
}

/// The same with another engine.
fn asking_by(
    engine: Engine,
    cluster: &Arc<dyn Cluster>,
    script: &str,
    cache: ComponentCache,
) -> Swap {
    let words = ["sh", "-c", script].map(Into::into).to_vec();
    let components = Components::new(&"builtin,oci:*".parse().unwrap())
        .pulling(Images::new(words), cache)
        .remembering("transom", Clock::new(Some(BEGUN)));
    components.opened(Some(Arc::clone(cluster)));
    let source = PolicySource::Given(FoundPolicies::default());
    let loads = LoadQueue::new(engine, components);
    Swap::new(loads, source, [LOCAL.to_owned()].into(), true)
}

/// The policy with another component.
fn with_component(name: &str, component: &str) -> FoundPolicies {
    let mut found = written("b");
    let value = &mut found.policies[0].value;
    value["metadata"]["name"] = json!(name);
    value["spec"]["guests"]["decide"]["component"] = json!(component);
    value["spec"]["own"] = json!({});
    found
}

/// When new revisions became active, in seconds since 1970.
const BEGUN: i64 = 1_000;
/// Less than a registry may take that does not answer.
const SOON: Duration = Duration::from_secs(45);

#[tokio::test]
async fn what_was_active_works_again_before_a_registry_is_asked_for_newer_components() {
    let (_folder, cluster) = place();
    let mut before = replica(&cluster).await;
    before.keep_notes().await;
    let mut after = asking(&cluster, "exec sleep 600");
    after.replace(with_component(&policy(), "oci:silent.example/a:v1"));
    let given = tokio::time::timeout(SOON, after.next()).await;
    let given = given.expect("it waits for the registry");
    assert!(matches!(given, JobOutput::Restored(_)));
    after.finish(given);
    assert_eq!(works(&after), works(&before));
    // The newest manifest is not observed yet, and still being loaded.
    let known = after.active.lock().catalogue.entry(&policy()).cloned();
    let known = known.unwrap();
    assert!(known.place.generation.is_none() && known.refused.is_none());
    assert_eq!(after.loads.count(), 1);
    // Who waits for what the leader before has kept does not wait for the registry, either.
    assert!(!after.any_loads(&[policy()].into()));
}

/// Waits until everything is loaded, and has it kept.
async fn settle(swap: &mut Swap) {
    while swap.loads.count() > 0 {
        let given = swap.next().await;
        swap.finish(given);
    }
    swap.keep_notes().await;
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
async fn a_new_pod_pulls_what_a_tag_meant_when_the_kept_revision_was_pulled() {
    let (folder, cluster) = place();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let builtin = Location::Builtin("kubeconfig".to_owned());
    let first = builtin.fetch(None, &GatheredComponents::default()).unwrap();
    // Another component that does the same: with a section of its own.
    let second = [&*first.bytes, &[0, 2, 1, b'x']].concat();
    let manifests = ["1", "2"].map(|one| format!("sha256:{}", one.repeat(64)));
    for (manifest, bytes) in manifests.iter().zip([&*first.bytes, &second]) {
        let head = format!("{}\n", json!({"manifest": manifest}));
        std::fs::write(file(manifest), [head.as_bytes(), bytes].concat()).unwrap();
    }
    // The tag means the second one by now; the first is there by its digest, until it is removed.
    let script = |now: &str| {
        let by_digest = format!("cat '{}'/\"${{1##*@}}\"", folder.path().display());
        format!(
            "case $1 in *@*) {by_digest};; *) cat '{}';; esac",
            file(now)
        )
    };
    let policies = || with_component(&policy(), "oci:registry.example/a:v1");
    let start = async |now: &str| {
        let mut swap = asking(&cluster, &script(now));
        swap.replace(policies());
        settle(&mut swap).await;
        swap
    };
    let before = start(&manifests[0]).await;
    let decide = |swap: &Swap| swap.good[&policy()].revision.decide.clone();
    assert_eq!(decide(&before).digest.as_ref(), first.digest);
    let after = start(&manifests[1]).await;
    assert_eq!(works(&after), works(&before));
    assert_eq!(decide(&after).manifest.as_ref(), Some(&manifests[0]));
    assert!(
        after.newest[&policy()].pending.is_none(),
        "it follows the tag"
    );
    // The tag is compared with what it meant, whether or not anything is kept in a folder.
    let tags = after.tags();
    assert_eq!(tags[0].pulled.as_ref(), Some(&manifests[0]));
    // When that is gone, the policy says so, and does not follow the tag, either.
    std::fs::remove_file(file(&manifests[0])).unwrap();
    let mut gone = asking(&cluster, &script(&manifests[1]));
    gone.replace(policies());
    let JobOutput::Done(done) = gone.next().await else {
        panic!("it is restored");
    };
    let refused = done.result.as_ref().err().unwrap();
    assert!(
        refused.message.contains("spec.guests.decide"),
        "{}",
        refused.message
    );
    assert!(
        refused.message.contains("is not followed"),
        "{}",
        refused.message
    );
}

#[tokio::test]
async fn what_was_restored_from_its_registry_is_kept_for_the_next_start() {
    let (folder, cluster) = place();
    let answer = folder.path().join("answer");
    let builtin = Location::Builtin("kubeconfig".to_owned());
    let artifact = builtin.fetch(None, &GatheredComponents::default()).unwrap();
    let manifest = format!("sha256:{}", "1".repeat(64));
    let head = format!("{}\n", json!({"manifest": manifest}));
    std::fs::write(&answer, [head.as_bytes(), &artifact.bytes].concat()).unwrap();
    let silent = "exec sleep 600";
    let script = format!(
        "case $1 in *silent*) {silent};; *) cat '{}';; esac",
        answer.display()
    );
    let mut before = asking(&cluster, &script);
    before.replace(with_component(&policy(), "oci:registry.example/a:v1"));
    settle(&mut before).await;
    // The first pod has an empty cache and asks the registry of what was active; the second one finds it there. So does
    // the third one, although an earlier version of the agent wrote the cache: without origins.
    let cache = tempfile::tempdir().unwrap();
    for (script, has_origins) in [(script.as_str(), true), (silent, true), (silent, false)] {
        if !has_origins {
            std::fs::remove_dir_all(cache.path().join("origins")).unwrap();
        }
        let mut after = asking_with(&cluster, script, ComponentCache::new(Some(cache.path())));
        after.replace(with_component(&policy(), "oci:silent.example/a:v1"));
        let given = tokio::time::timeout(SOON, after.next()).await;
        let Ok(given @ JobOutput::Restored(_)) = given else {
            panic!("it is not restored before the newest component is pulled");
        };
        after.finish(given);
        assert_eq!(works(&after), works(&before));
    }
}

/// Keeps with the pending revision what its trial planned.
fn tried(swap: &mut Swap, expected: Expected) -> Expecting {
    let expecting = Expecting {
        expected,
        probation: Probation::new(BEGUN, 0, RollbackSpec::default()),
    };
    let plan = FleetPlan::of(&policy(), [], Listed::default());
    let passed = swap.pending(&policy()).unwrap().passed.as_mut().unwrap();
    passed.record = passed.record.clone().with(&plan, &expecting);
    expecting
}

/// A replica with a candidate that passed, and is kept with the next note.
async fn with_passed(cluster: &Arc<dyn Cluster>, expected: Expected) -> (Swap, Digest, Expecting) {
    let mut swap = replica(cluster).await;
    let note = take_note(&mut swap);
    keep(&mut swap, note).await;
    swap.exchange(written("b")).await;
    let id = pass(&mut swap);
    let expecting = tried(&mut swap, expected);
    (swap, id, expecting)
}

/// A leader that ended once a revision was kept as the active one, and before the swap: that revision, and what its
/// trial planned.
async fn ended_before_swap(cluster: &Arc<dyn Cluster>) -> (Digest, Expecting) {
    let mark = Mark {
        asked: 1,
        planned: 2,
    };
    let expected = Expected::of(BEGUN, [mark].into_iter());
    let (mut swap, id, expecting) = with_passed(cluster, expected).await;
    let note = take_note(&mut swap);
    let components = swap.loads.components().clone();
    let (_, kept) = writer::keep(components, note).await;
    kept.unwrap();
    (id, expecting)
}

/// What is compared with what is planned.
fn compared(swap: &Swap) -> Option<&Expecting> {
    swap.good.get(&policy())?.expecting.as_deref()
}

#[tokio::test]
async fn a_new_leader_that_has_loaded_nothing_yet_forgets_nothing_that_was_planned() {
    let (_folder, cluster) = place();
    let (id, expecting) = ended_before_swap(&cluster).await;
    let mut next = new_agent(&cluster);
    next.replace(written("b"));
    next.catch_up().await;
    let note = take_note(&mut next);
    assert!(works(&next).is_none() && note.active.is_empty());
    keep(&mut next, note).await;
    settle(&mut next).await;
    assert_eq!(works(&next), Some(id));
    assert_eq!(compared(&next), Some(&expecting));
}

#[tokio::test]
async fn what_was_planned_is_compared_by_the_next_leader_and_forgotten_with_the_window() {
    let (_folder, cluster) = place();
    let (id, expecting) = ended_before_swap(&cluster).await;
    let mut next = replica_of(&cluster, "b").await;
    assert_eq!(works(&next), Some(id));
    assert_eq!(compared(&next), Some(&expecting));
    // What is noted until then forgets nothing.
    let note = take_note(&mut next);
    keep(&mut next, note).await;
    let is_kept = |swap: &Swap| {
        let record = swap.histories.get(&policy()).unwrap().find(&id).unwrap();
        (record.expecting().is_some(), record.plan().is_some())
    };
    assert_eq!(is_kept(&next), (true, true));
    let faults = |at_seconds| Faults {
        at_seconds,
        ..Faults::default()
    };
    next.observed(&policy(), &faults(BEGUN + 599));
    assert!(next.take_notes(&BTreeSet::new()).is_empty());
    next.observed(&policy(), &faults(BEGUN + 600));
    let note = take_note(&mut next);
    keep_by(components_at(&cluster, BEGUN + 600), &mut next, note).await;
    assert_eq!(is_kept(&next), (false, true));
}

#[tokio::test]
async fn what_fails_between_a_swap_and_the_first_look_counts_against_the_new_revision() {
    let (_folder, cluster) = place();
    let (mut swap, id, _) = with_passed(&cluster, Expected::default()).await;
    let before = works(&swap);
    let note = take_note(&mut swap);
    keep(&mut swap, note).await;
    assert_eq!(works(&swap), Some(id));
    let primary = ObjectRef::local("v1", "Thing", None, "one");
    let faults = Faults {
        at_seconds: 1_010,
        primaries: 31,
        now: vec![(primary, KnownReason::GuestTrapped, "it trapped".to_owned())],
    };
    swap.observed(&policy(), &faults);
    assert_eq!(works(&swap), before);
}

#[tokio::test]
async fn a_replica_judges_no_revision_while_another_one_may_lead_and_none_by_a_barred_one() {
    let (_folder, cluster) = place();
    let (mut swap, _, _) = with_passed(&cluster, Expected::default()).await;
    let before = Arc::clone(&swap.good[&policy()]);
    let note = take_note(&mut swap);
    keep(&mut swap, note).await;
    assert_eq!(swap.on_probation(), [policy()]);
    swap.stand_by();
    assert!(swap.on_probation().is_empty());
    swap.catch_up().await;
    assert_eq!(swap.on_probation(), [policy()]);
    swap.bar(
        &policy(),
        RevisionRecord::of(&before.revision),
        "another replica did so",
    );
    assert!(swap.on_probation().is_empty());
    // What this one worked on is not watched beside, unless it is the revision before by the history.
    let active = Arc::clone(&swap.good[&policy()]);
    swap.watch_on(&policy(), active);
    assert!(swap.probations.is_empty());
}

#[tokio::test]
async fn a_silent_registry_holds_up_no_other_one() {
    let (_folder, cluster) = place();
    let answer = r#"{"reason": "ComponentNotFound", "message": "it answers"}"#;
    let script = format!("case \"$*\" in *good*) echo '{answer}';; *) exec sleep 600;; esac");
    let mut swap = asking(&cluster, &script);
    let mut all = FoundPolicies::default();
    for (name, registry) in [
        ("a", "one"),
        ("b", "one"),
        ("c", "two"),
        ("d", "two"),
        ("e", "good"),
    ] {
        let component = format!("oci:{registry}.example/x:v1");
        all.policies
            .extend(with_component(name, &component).policies);
    }
    swap.replace(all);
    let given = tokio::time::timeout(SOON, swap.next()).await;
    let Ok(JobOutput::Done(done)) = given else {
        panic!("it waits for a silent registry");
    };
    let refused = done.result.err().unwrap();
    assert!(&*done.policy == "e" && refused.message.contains("it answers"));
}

#[tokio::test]
async fn what_a_registry_answers_about_one_repository_holds_up_no_other_one() {
    let (folder, cluster) = place();
    // One registry does not answer: the first time that is told at once, from then on it takes its time. Another one
    // answers, and refuses one repository.
    let asked = folder.path().join("asked").display().to_string();
    let unavailable = |silent: bool| {
        let answer = json!({"reason": "RegistryUnavailable", "message": "no", "silent": silent});
        format!("echo '{answer}'")
    };
    let (gone, refused) = (unavailable(true), unavailable(false));
    let script = format!(
        "case \"$*\" in *gone*) [ ! -e {asked} ] || exec sleep 600; touch {asked}; {gone};; *) {refused};; esac"
    );
    let mut swap = asking(&cluster, &script);
    let mut both = with_component("a", "oci:gone.example/x:v1").policies;
    both.extend(with_component("b", "oci:one.example/refused:v1").policies);
    swap.replace(FoundPolicies {
        policies: both,
        ..FoundPolicies::default()
    });
    for _ in 0..2 {
        let given = swap.next().await;
        swap.finish(given);
    }
    let mut both = with_component("a", "oci:gone.example/x:v2").policies;
    both.extend(with_component("b", "oci:one.example/other:v1").policies);
    swap.replace(FoundPolicies {
        policies: both,
        ..FoundPolicies::default()
    });
    let given = tokio::time::timeout(SOON, swap.next()).await;
    let Ok(JobOutput::Done(done)) = given else {
        panic!("a repository waits for a registry that is not its own");
    };
    assert_eq!(&*done.policy, "b");
}

#[tokio::test]
async fn a_new_leader_that_cannot_read_the_history_does_not_write_over_it() {
    let (_folder, cluster) = place();
    let (mut before, mut after) = (replica(&cluster).await, replica(&cluster).await);
    before.keep_notes().await;
    before.exchange(written("b")).await;
    after.exchange(written("b")).await;
    let approved = pass(&mut before);
    before.keep_notes().await;
    assert_eq!(works(&before), Some(approved));
    assert_ne!(works(&after), Some(approved));
    after.stand_by();
    assert!(after.take_notes(&BTreeSet::new()).is_empty());
    after.loads.components().opened(None);
    let (_, behind) = after.catch_up().await;
    assert!(after.any_loads(&behind));
    after.loads.components().opened(Some(Arc::clone(&cluster)));
    let note = take_note(&mut after);
    keep(&mut after, note).await;
    assert_eq!(kept(&cluster).await, Some(approved));
    while after.loads.count() > 0 {
        let done = after.next().await;
        after.finish(done);
    }
    after.keep_notes().await;
    assert_eq!(works(&after), Some(approved));
    assert_eq!(kept(&cluster).await, Some(approved));
}

#[tokio::test]
async fn a_policy_that_goes_while_a_note_is_written_takes_its_revisions_with_it() {
    let (_folder, cluster) = place();
    let mut swap = replica(&cluster).await;
    let first = take_note(&mut swap);
    swap.exchange(FoundPolicies::default()).await;
    swap.exchange(written("b")).await;
    keep(&mut swap, first).await;
    let removal = take_note(&mut swap);
    assert!(removal.gone && kept(&cluster).await.is_some());
    // A replica that does not lead at the moment forgets nothing of it.
    let failure = WriteFailure {
        reason: KnownReason::NotLeading,
        message: String::new(),
    };
    let delay = Duration::ZERO;
    let result = Err(Unkept { failure, delay });
    swap.kept(KeptNote {
        note: removal,
        result,
    });
    let removal = take_note(&mut swap);
    assert!(removal.gone);
    keep(&mut swap, removal).await;
    assert_eq!(kept(&cluster).await, None);
    let second = take_note(&mut swap);
    keep(&mut swap, second).await;
    assert_eq!(kept(&cluster).await, works(&swap));
}

#[tokio::test]
async fn a_candidate_that_is_not_active_by_the_history_is_tried_again_or_refused() {
    let (_folder, cluster) = place();
    let mut swap = replica(&cluster).await;
    let before = works(&swap);
    swap.keep_notes().await;
    swap.exchange(written("b")).await;
    for barred in [false, true] {
        let id = pass(&mut swap);
        let note = take_note(&mut swap);
        let mut history = swap.histories[&policy()].clone();
        let mut record = note.active.last().unwrap().clone();
        record.barred = barred.then(|| "a user did so".to_owned());
        record.number = i64::from(barred) * 9;
        history.put(&record.name(), Some(record));
        let pending = swap.pending(&policy()).unwrap();
        (pending.due, pending.unkept) = (None, 0);
        let result = Ok(Some(history));
        let changes = swap.kept(KeptNote { note, result });
        assert!(!changes.is_empty() && works(&swap) == before);
        match swap.pending(&policy()) {
            Some(pending) => assert!(!barred && pending.passed.is_none() && pending.due.is_some()),
            None => assert!(barred && swap.barred(&policy(), &id).is_some()),
        }
    }
}
