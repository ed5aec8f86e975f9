//! What a replica knows that takes over from another one.

use super::before::is_watched;
use super::*;
use crate::policies::swap::rollout::untried;
use transom_core::catalogue::PolicyChange;
use transom_core::plan::{Plan, Step};
use transom_core::work::Key;

/// The revision that is active by the history that a replica knows.
fn known(swap: &Swap) -> Option<Digest> {
    swap.active_by_history(&policy()).map(|active| active.id)
}

#[tokio::test]
async fn a_load_that_began_before_a_succession_does_not_bring_back_an_older_history() {
    let (_folder, cluster) = place();
    let (mut before, mut after) = (replica(&cluster).await, replica(&cluster).await);
    before.keep_notes().await;
    let first = works(&before);
    before.exchange(written("b")).await;
    let second = pass(&mut before);
    before.keep_notes().await;
    after.stand_by();
    after.catch_up().await;
    // Loaded, and not taken yet.
    let loaded = after.next().await;
    let record = RevisionRecord::of(&before.good[&policy()].revision);
    before.bar(&policy(), record, "it failed");
    before.keep_notes().await;
    assert_eq!(kept(&cluster).await, first);
    after.stand_by();
    after.catch_up().await;
    after.finish(loaded);
    assert_eq!((known(&after), works(&after)), (first, first));
    assert!(after.barred(&policy(), &second).is_some());
}

#[tokio::test]
async fn a_kept_revision_that_cannot_be_read_stays_active_until_the_next_one_passes() {
    let (folder, cluster) = place();
    let earlier = Arc::clone(&replica(&cluster).await.good[&policy()]);
    let builtin = Location::Builtin("kubeconfig".to_owned());
    let artifact = builtin.fetch(None, &GatheredComponents::default()).unwrap();
    let file = folder.path().join("answer");
    let head = json!({"manifest": format!("sha256:{}", "1".repeat(64))});
    let bytes = [format!("{head}\n").as_bytes(), &artifact.bytes].concat();
    std::fs::write(&file, bytes).unwrap();
    let mut before = asking(&cluster, &format!("cat '{}'", file.display()));
    before
        .exchange(with_component(&policy(), "oci:registry.example/a:v1"))
        .await;
    before.keep_notes().await;
    let active = works(&before);
    assert!(active.is_some() && kept(&cluster).await == active);
    // The other replica knows an earlier revision, and a newer manifest.
    let no = json!({"reason": "RegistryUnavailable", "message": "no"});
    let mut after = asking(&cluster, &format!("echo '{no}'"));
    after.stand_by();
    after.good.insert(policy(), Arc::clone(&earlier));
    after.replace(written("c"));
    after.catch_up().await;
    settle(&mut after).await;
    assert_eq!(
        kept(&cluster).await,
        active,
        "the earlier one became active"
    );
    assert_eq!(works(&after), Some(earlier.revision.id()));
    assert!(
        after.newest[&policy()].retry.is_some(),
        "it is not tried again"
    );
    // That does not try its candidate anew, which may have failed.
    after.pending(&policy()).unwrap().due = None;
    after.load(&policy());
    settle(&mut after).await;
    assert!(after.pending(&policy()).unwrap().due.is_none());
    assert_eq!(kept(&cluster).await, active);
    let next = pass(&mut after);
    after.keep_notes().await;
    assert_eq!(
        (kept(&cluster).await, works(&after)),
        (Some(next), Some(next))
    );
    assert!(after.recalled.is_empty());
}

#[tokio::test]
async fn what_works_is_suspended_while_the_kept_revision_takes_long_to_load() {
    for is_had in [true, false] {
        let (folder, cluster) = place();
        let builtin = Location::Builtin("kubeconfig".to_owned());
        let artifact = builtin.fetch(None, &GatheredComponents::default()).unwrap();
        let [file, may_end] = ["answer", "end"].map(|name| folder.path().join(name));
        let head = json!({"manifest": format!("sha256:{}", "1".repeat(64))});
        let bytes = [format!("{head}\n").as_bytes(), &artifact.bytes].concat();
        std::fs::write(&file, bytes).unwrap();
        let no = json!({"reason": "RegistryUnavailable", "message": "no"});
        let had = format!("cat '{}'", file.display());
        let answer = if is_had {
            &had
        } else {
            &format!("echo '{no}'")
        };
        let waits = format!("until [ -e '{}' ]; do sleep 0.05; done", may_end.display());
        let mut after = asking(&cluster, &format!("{waits}; {answer}"));
        after.exchange(written("a")).await;
        let mut before = asking(&cluster, &had);
        before.exchange(written("a")).await;
        before.keep_notes().await;
        before
            .exchange(with_component(&policy(), "oci:registry.example/a:v1"))
            .await;
        let active = pass(&mut before);
        before.keep_notes().await;
        let earlier = works(&after);
        assert!(earlier.is_some() && works(&before) == Some(active));
        after.stand_by();
        after.catch_up().await;
        assert!(after.narrow_slow().is_empty());
        late(&mut after);
        let change = (policy(), PolicyChange::Bounded);
        assert_eq!(after.narrow_slow(), [change]);
        assert!(is_suspended(&after) && works(&after) == earlier);
        assert!(after.narrow_slow().is_empty());
        std::fs::write(&may_end, "").unwrap();
        settle(&mut after).await;
        assert!(!is_suspended(&after));
        let expected = if is_had { Some(active) } else { earlier };
        assert_eq!(works(&after), expected);
        // What could not be read is tried again, and holds up nothing.
        after.load(&policy());
        late(&mut after);
        after.narrow_slow();
        assert!(!is_suspended(&after));
    }
}

/// A leader that has activated two revisions, and a replica that stood by meanwhile, and has only the second one as a
/// candidate.
async fn two_behind(cluster: &Arc<dyn Cluster>) -> (Swap, Swap) {
    let (mut before, mut after) = (replica(cluster).await, replica(cluster).await);
    before.keep_notes().await;
    for team in ["b", "c"] {
        before.exchange(written(team)).await;
        pass(&mut before);
        tried(&mut before, Expected::default());
        before.keep_notes().await;
    }
    after.stand_by();
    after.exchange(written("c")).await;
    assert_ne!(works(&after), works(&before));
    (before, after)
}

/// Takes what the running load gives.
async fn take_load(swap: &mut Swap) {
    let given = swap.next().await;
    swap.finish(given);
}

#[tokio::test]
async fn what_works_is_suspended_while_a_new_leader_cannot_list_what_is_active() {
    for (is_noted, is_lost) in [(false, false), (true, false), (false, true)] {
        let (_folder, cluster) = place();
        let (before, mut after) = two_behind(&cluster).await;
        let (earlier, active) = (works(&after), works(&before));
        let unavailable = KnownReason::ServerUnavailable;
        after.loads.components().refusing(unavailable);
        let (changes, behind) = after.catch_up().await;
        assert_eq!(changes, [(policy(), PolicyChange::Bounded)]);
        assert!(is_suspended(&after) && after.any_loads(&behind));
        if !is_noted {
            // A load does not know it, either.
            take_load(&mut after).await;
            assert!(is_suspended(&after) && after.pending(&policy()).is_none());
        }
        if is_lost {
            // A manifest that is not valid changes nothing about that.
            let mut broken = written("c");
            broken.policies[0].value["spec"]["resyncSeconds"] = json!("never");
            after.replace(broken);
            assert!(is_suspended(&after) && works(&after) == earlier);
            after.stand_by();
            assert!(!is_suspended(&after), "it writes nothing now");
            continue;
        }
        after.loads.components().opened(Some(Arc::clone(&cluster)));
        if is_noted {
            let note = take_note(&mut after);
            keep(&mut after, note).await;
        } else {
            after.load(&policy());
        }
        settle(&mut after).await;
        assert_eq!((works(&after), kept(&cluster).await), (active, active));
        assert!(!is_suspended(&after) && after.unlisted.is_empty());
    }
}

#[tokio::test]
async fn a_new_leader_that_may_not_list_what_is_active_works_on() {
    for at_first in [KnownReason::ServerUnavailable, KnownReason::ReadForbidden] {
        let (_folder, cluster) = place();
        let (_, mut after) = two_behind(&cluster).await;
        after.loads.components().refusing(at_first);
        after.catch_up().await;
        let is_forbidden = at_first == KnownReason::ReadForbidden;
        assert_eq!(is_suspended(&after), !is_forbidden);
        let forbidden = KnownReason::ReadForbidden;
        after.loads.components().refusing(forbidden);
        after.load(&policy());
        take_load(&mut after).await;
        assert!(!is_suspended(&after));
    }
}

#[tokio::test]
async fn a_replica_that_stands_by_forgets_what_it_found_of_a_candidate() {
    let (_folder, cluster) = place();
    for refuses in [false, true] {
        let mut swap = replica(&cluster).await;
        swap.exchange(written("b")).await;
        let name = policy();
        let pending = swap.pending(&name).unwrap();
        pending.due = None;
        let found = Candidate {
            reason: KnownReason::ApprovalRequired,
            ..untried(&pending.loaded)
        };
        match refuses {
            true => swap.refuse_candidate(&name, found),
            false => swap.waits(&name, found),
        };
        let changes = swap.stand_by();
        assert_eq!(changes, [(name.clone(), PolicyChange::Waiting)]);
        let catalogue = swap.active.catalogue();
        let entry = catalogue.entry(&name).unwrap();
        let reason = entry.candidate.as_ref().map(|one| one.reason);
        assert_eq!(reason, Some(KnownReason::Trying));
        assert!(entry.refused.is_none() && swap.pending(&name).unwrap().due.is_some());
    }
}

#[tokio::test]
async fn a_replica_that_stands_by_goes_on_saying_why_the_newest_manifest_is_refused() {
    let (_folder, cluster) = place();
    replica(&cluster).await.keep_notes().await;
    let mut swap = new_agent(&cluster);
    let mut found = with_component(&policy(), "builtin:no-such");
    found.policies[0].value["spec"]["rollout"] = json!({"mode": "Shadow"});
    swap.exchange(found).await;
    let refused = |swap: &Swap| {
        let catalogue = swap.active.catalogue();
        catalogue.entry(&policy()).unwrap().refused.clone()
    };
    let before = refused(&swap);
    assert!(works(&swap).is_some() && before.is_some());
    // What works is compared.
    swap.pending(&policy()).unwrap().due = None;
    assert_eq!(swap.stand_by(), []);
    assert_eq!(refused(&swap), before);
    assert!(swap.pending(&policy()).unwrap().due.is_some());
}

/// The load of the policy takes long.
fn late(swap: &mut Swap) {
    let newest = swap.newest.get_mut(&policy()).unwrap();
    assert!(newest.loading.is_some());
    newest.loading = Instant::now().checked_sub(SOON);
}

fn is_suspended(swap: &Swap) -> bool {
    let known = swap.active.lock();
    known.catalogue.revision(&policy()).unwrap().policy.suspend
}

/// The same revision, as an agent of another version has it: with other builtin components.
pub(super) fn of_another_version(loaded: &LoadedPolicy) -> Arc<LoadedPolicy> {
    let mut revision = (*loaded.revision).clone();
    revision.decide.digest = "sha256:0".into();
    Arc::new(LoadedPolicy {
        revision: Arc::new(revision),
        ..loaded.clone()
    })
}

#[tokio::test]
async fn an_upgrade_of_the_agent_goes_on_with_its_builtin_components() {
    let (_folder, cluster) = place();
    let mut before = replica(&cluster).await;
    let ours = works(&before);
    let theirs = of_another_version(&before.good[&policy()]);
    let id = theirs.revision.id();
    before.good.insert(policy(), theirs);
    before.note(&policy());
    before.keep_notes().await;
    assert_eq!(kept(&cluster).await, Some(id));
    // With the same manifest, and with one that is a candidate.
    for (team, has_candidate) in [("a", false), ("b", true)] {
        let mut after = new_agent(&cluster);
        after.exchange(written(team)).await;
        assert_eq!(works(&after), ours, "{team}");
        assert_eq!(after.pending(&policy()).is_some(), has_candidate, "{team}");
        assert_ne!(ours, Some(id));
    }
    // A replica that takes over records what works under it, and loads nothing for that.
    let mut after = replica(&cluster).await;
    after.stand_by();
    let (_, behind) = after.catch_up().await;
    assert!(behind.is_empty() && after.loads.count() == 0, "{behind:?}");
    after.keep_notes().await;
    assert_eq!((works(&after), kept(&cluster).await), (ours, ours));
    let history = components(&cluster).history(&policy(), None).await;
    assert_eq!(history.unwrap().unwrap().records().len(), 1);
}

#[tokio::test]
async fn an_agent_that_barred_a_revision_which_is_active_under_another_goes_back_to_the_one_before()
{
    let (_folder, cluster) = place();
    let mut before = replica(&cluster).await;
    before.keep_notes().await;
    let first = Arc::clone(&before.good[&policy()]);
    before.exchange(written("b")).await;
    let failed = pass(&mut before);
    before.keep_notes().await;
    let failing = Arc::clone(&before.good[&policy()]);
    before.bar(
        &policy(),
        RevisionRecord::of(&failing.revision),
        "it failed",
    );
    before.good.insert(policy(), Arc::clone(&first));
    before.keep_notes().await;
    // Another version of the agent tries it again, and it becomes active.
    before.good.insert(policy(), of_another_version(&failing));
    before.note(&policy());
    before.keep_notes().await;
    // Back under the version that barred it.
    let mut after = new_agent(&cluster);
    after.exchange(written("b")).await;
    assert!(after.barred(&policy(), &failed).is_some());
    assert_eq!(works(&after), Some(first.revision.id()));
    after.keep_notes().await;
    assert_eq!(kept(&cluster).await, works(&after));
}

#[tokio::test]
async fn what_is_watched_is_watched_on_after_an_upgrade_of_the_agent() {
    let (_folder, cluster) = place();
    let mut before = replica(&cluster).await;
    let theirs = of_another_version(&before.good[&policy()]);
    before.good.insert(policy(), theirs);
    before.note(&policy());
    before.keep_notes().await;
    before.exchange(written("b")).await;
    let pending = before.pending(&policy()).unwrap();
    pending.loaded = of_another_version(&pending.loaded);
    let theirs = pass(&mut before);
    let passed = before.pending(&policy()).unwrap().passed.as_mut().unwrap();
    let probation = Probation::new(BEGUN, 0, RollbackSpec::default());
    passed.record.probation = Some(probation);
    before.keep_notes().await;
    assert_eq!(kept(&cluster).await, Some(theirs));
    let mut after = new_agent(&cluster);
    after.exchange(written("b")).await;
    settle(&mut after).await;
    assert_ne!(works(&after), Some(theirs));
    let watched = &after.probations[&policy()];
    assert_eq!(watched.terms, Some(probation));
    assert_ne!(Some(watched.before.revision.id()), works(&after));
    let history = components(&cluster).history(&policy(), None).await;
    let history = history.unwrap().unwrap();
    let active = history.active().unwrap();
    assert_eq!(
        (Some(active.id), active.probation),
        (works(&after), Some(probation))
    );
}

#[tokio::test]
async fn what_is_watched_is_watched_on_by_a_leader_that_did_not_work_on_the_revision_before() {
    // One replica has only a candidate that is active by now, the other one works on it.
    for works_on_it in [false, true] {
        let (_folder, cluster) = place();
        let (before, mut after) = two_behind(&cluster).await;
        let (active, previous) = (
            works(&before),
            before.probations[&policy()].before.revision.id(),
        );
        if works_on_it {
            let works = Arc::clone(&before.good[&policy()]);
            after.good.insert(policy(), works);
        }
        after.catch_up().await;
        assert_eq!(works(&after), active);
        assert!(after.probations.is_empty());
        is_watched(&mut after).await;
        let watched = &after.probations[&policy()];
        assert_eq!(watched.before.revision.id(), previous);
        assert_eq!(works(&after), active);
        // Only once.
        after.catch_up().await;
        assert_eq!(after.loads.count(), 0);
    }
}

#[tokio::test]
async fn a_policy_that_is_made_again_has_another_uid() {
    let (_folder, cluster) = place();
    let mut swap = new_agent(&cluster);
    for uid in [None, Some("1"), Some("2")] {
        let mut found = written("a");
        found.policies[0].value["metadata"]["uid"] = json!(uid);
        swap.exchange(found).await;
        assert_eq!(swap.active.uid(&policy()).as_deref(), uid);
    }
}

#[tokio::test]
async fn a_bar_whose_record_somebody_deletes_is_recorded_again() {
    let (_folder, cluster) = place();
    let mut swap = replica(&cluster).await;
    swap.keep_notes().await;
    swap.exchange(written("b")).await;
    let second = pass(&mut swap);
    swap.keep_notes().await;
    let record = RevisionRecord::of(&swap.good[&policy()].revision);
    swap.bar(&policy(), record, "it failed");
    swap.keep_notes().await;
    assert_eq!(delete_all(&swap, &cluster).await, 2);
    swap.stand_by();
    swap.catch_up().await;
    assert!(swap.barred(&policy(), &second).is_some());
    swap.keep_notes().await;
    let listed = components(&cluster).history(&policy(), None).await;
    let listed = listed.unwrap().unwrap();
    let record = listed.find(&second).unwrap();
    assert_eq!(record.barred.as_deref(), Some("it failed"));
    assert_ne!(known(&swap), Some(second));
}

/// Has a user delete records.
async fn delete(cluster: &Arc<dyn Cluster>, steps: Vec<Step>) {
    let key = Key::new(&policy(), &ObjectRef::local("v1", "Thing", None, "p"));
    let deleted = transom_cluster::apply(Plan::new(&key, steps), |_| Ok(&**cluster)).await;
    assert!(deleted.failure().is_none());
}

/// Has a user delete every record; returns how many there were.
async fn delete_all(swap: &Swap, cluster: &Arc<dyn Cluster>) -> usize {
    let steps = swap.histories[&policy()].delete("transom", |_| true);
    let count = steps.len();
    delete(cluster, steps).await;
    assert!(kept(cluster).await.is_none());
    count
}

/// Has the history compared with what should be there, as after a while.
async fn compare(swap: &mut Swap) -> History {
    assert_eq!(swap.take_notes(&BTreeSet::new()), [], "it was just written");
    *swap.notes.get_mut(&policy()).unwrap() = Instant::now();
    let note = take_note(swap);
    keep(swap, note).await;
    swap.histories[&policy()].clone()
}

#[tokio::test]
async fn records_that_somebody_deletes_are_written_again_while_the_agent_runs() {
    let (_folder, cluster) = place();
    let mut swap = replica(&cluster).await;
    let first = works(&swap);
    swap.keep_notes().await;
    swap.exchange(written("b")).await;
    let second = Some(pass(&mut swap));
    swap.keep_notes().await;
    let note = take_note(&mut swap);
    keep(&mut swap, note).await;
    let terms = Probation::new(1_000, 0, RollbackSpec::default());
    swap.probations.get_mut(&policy()).unwrap().terms = Some(terms);
    let ids = |history: &History| {
        let all = history.records().iter();
        all.map(|record| Some(record.id)).collect::<Vec<_>>()
    };
    let written = swap.histories[&policy()].clone();
    assert_eq!(ids(&written), [second, first]);
    assert_eq!(compare(&mut swap).await, written, "nothing is missing");
    assert_eq!(delete_all(&swap, &cluster).await, 2);
    let history = compare(&mut swap).await;
    assert_eq!(ids(&history), [second, first]);
    assert_eq!(history.active().unwrap().probation, Some(terms));
    // Or only the one that a rollback would have work again.
    let mut steps = swap.histories[&policy()].delete("transom", |_| true);
    steps.retain(|step| step.target().name == written.records()[1].name());
    delete(&cluster, steps).await;
    let history = compare(&mut swap).await;
    assert_eq!(ids(&history), [second, first]);
    assert_eq!(history.previous().map(|one| one.id), first);
}
