//! Where the limits of all policies are recorded: in one ConfigMap, on an API server or in a directory, or in memory
//! only. It holds numbers and marks, no names of objects.
//!
//! Before a change that has a limit, [`Controller::record_for`] reads the ConfigMap if somebody may have written it
//! (`learn`), opens the ledger of the policy (`open_ledger`), asks it (`admit`), writes what it reserves (`put`), and
//! asks again. What no reconcile waits for is written with back-off (`put_or_put_off`).

use super::config_map::{ALL, LimitsConfigMap, object};
use super::{Controller, KeptPolicy};
use crate::telemetry;
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::sync::Mutex;
use transom_api::KnownReason;
use transom_core::failure::{Class, Failure};
use transom_core::limits::{Ledger, LimitRecord, LimitVerdict};
use transom_core::object::Object;
use transom_core::plan::{Plan, Step, WriteFailure};
use transom_core::projection::path;
use transom_core::reference::ObjectRef;
use transom_core::work::Key;

/// The field manager of the ConfigMap is `transom-limits`.
const MANAGER: &str = "limits";
/// How often to try when somebody else writes the ConfigMap.
const ATTEMPTS: usize = 4;

/// What the place is called in the log.
const PLACE: &str = "the records of limits";

/// The place, and what is there.
pub(super) struct LimitStore {
    place: Option<ObjectRef>,
    /// Held while it is read or written.
    pub(super) config_map: Mutex<LimitsConfigMap>,
}

impl LimitStore {
    pub(super) fn new(place: Option<ObjectRef>) -> Self {
        Self {
            place,
            config_map: Mutex::default(),
        }
    }
}

impl Controller {
    /// Records what `admit` asks for, until it asks for nothing more.
    ///
    /// # Errors
    /// Why it cannot be recorded.
    pub(super) async fn record_for(
        &self,
        key: &Key,
        admit: impl Fn() -> Option<LimitVerdict>,
    ) -> Result<LimitVerdict, Failure> {
        let Some(store) = &self.limits.store else {
            return Ok(LimitVerdict::Admitted(Default::default()));
        };
        let mut config_map = store.config_map.lock().await;
        if let Some(failure) = config_map.failure(&key.policy) {
            return Err(failure.clone());
        }
        let mut conflict = None;
        for _ in 0..ATTEMPTS {
            let found = self.read_entry(store, &mut config_map, &key.policy).await?;
            self.open_ledger(&key.policy, found);
            let record = match admit() {
                Some(LimitVerdict::Reserve(record)) => record,
                Some(verdict) => return Ok(verdict),
                None => continue,
            };
            match self
                .write(store, &mut config_map, &key.policy, &record)
                .await
            {
                Ok(()) => self
                    .limits
                    .ledger(&key.policy, |ledger| ledger.recorded(record)),
                Err(failed) if Class::of(failed.reason) == Class::Conflict => {
                    config_map.known = false;
                    conflict = Some(failed);
                    continue;
                }
                Err(failed) => return Err(config_map.refuse(&key.policy, unrecorded(&failed))),
            };
            if let Some(verdict) =
                admit().filter(|verdict| !matches!(verdict, LimitVerdict::Reserve(_)))
            {
                return Ok(verdict);
            }
        }
        let unknown = || {
            Failure::known(
                KnownReason::WriteConflict,
                "the limits of the policy changed",
            )
        };
        Err(conflict.map_or_else(unknown, |failed| unrecorded(&failed)))
    }

    /// Writes a record that ends a stop. A failure is repeated with the next look.
    pub(super) async fn save(&self, policy: &Arc<str>) {
        let unsaved = |kept: &KeptPolicy| {
            let now = kept.ledger.as_ref().and_then(Ledger::record).cloned();
            now.or(kept.unsaved.clone())
                .filter(|_| kept.unsaved.is_some())
        };
        let record = || self.limits.lock().get(policy).and_then(unsaved);
        let Some(store) = self.limits.store.as_ref().filter(|_| record().is_some()) else {
            return;
        };
        let mut config_map = store.config_map.lock().await;
        if config_map.is_put_off(policy) {
            return;
        }
        let read = self.read_entry(store, &mut config_map, policy).await;
        // Another replica may have recorded more meanwhile, which this one has just learnt.
        let Some(record) = record() else { return };
        if let Err(failure) = read {
            if config_map.known && config_map.put_off(policy) {
                telemetry::unreadable(PLACE, KnownReason::ReadFailed, &failure.message);
            }
            return;
        }
        let text = Some(config_map.text_of(policy, &record));
        let written = self
            .put_or_put_off(store, &mut config_map, policy, text)
            .await;
        config_map.known &= written;
        if written && let Some(kept) = self.limits.lock().get_mut(policy) {
            kept.unsaved = None;
        }
    }

    /// The record of a policy. One that cannot be read is never written over: what the policy changed would be lost. So
    /// it is read again from time to time.
    async fn read_entry(
        &self,
        store: &LimitStore,
        config_map: &mut LimitsConfigMap,
        policy: &str,
    ) -> Result<Option<LimitRecord>, Failure> {
        self.learn(store, config_map).await?;
        if config_map.record(policy).is_err() {
            config_map.outdate_old();
            self.learn(store, config_map).await?;
        }
        config_map.record(policy)
    }

    /// Reads the ConfigMap if it is not known. What another replica recorded counts for all policies.
    pub(super) async fn learn(
        &self,
        store: &LimitStore,
        config_map: &mut LimitsConfigMap,
    ) -> Result<(), Failure> {
        let Some(place) = store.place.as_ref().filter(|_| !config_map.known) else {
            config_map.known = true;
            return Ok(());
        };
        let writer = match self.connections.read_record(place).await {
            Ok(object) => config_map.found(object),
            Err(failure) => {
                let message = format!(
                    "the limits of the policy cannot be read: {}",
                    failure.message
                );
                return Err(config_map.fail(Failure { message, ..failure }));
            }
        };
        let now_seconds = self.clock.now_seconds();
        for (policy, kept) in self.limits.lock().iter_mut() {
            kept.learn(policy, (config_map, &writer), now_seconds);
        }
        // Something may have to be written again.
        self.limits.withheld.notify_one();
        Ok(())
    }

    /// Opens the ledger of a policy, if it has none. What an earlier run withheld is not wanted any more if every
    /// primary was reconciled in this one before anything was asked.
    fn open_ledger(&self, policy: &Arc<str>, found: Option<LimitRecord>) {
        if self.limits.ledger(policy, |_| ()).is_some() {
            return;
        }
        let mut ledger = Ledger::found(found);
        let queue = self.queue(policy);
        if queue.is_some_and(|queue| queue.has_rested() && self.has_results_of_all(&queue)) {
            ledger.complete();
        }
        let mut policies = self.limits.lock();
        let kept = policies.entry(Arc::clone(policy)).or_default();
        kept.ledger.get_or_insert(ledger);
    }

    /// Opens the ledgers of all policies, also of those that changed nothing: what an earlier run withheld may not be
    /// wanted any more.
    pub(super) async fn open_ledgers(&self) {
        let store = self.limits.store.as_ref();
        let Some(store) = store.filter(|store| store.place.is_some()) else {
            return;
        };
        let mut config_map = store.config_map.lock().await;
        if self.learn(store, &mut config_map).await.is_ok() {
            for queue in self.queues() {
                // One that cannot be read is told to whoever needs it.
                if let Ok(found) = config_map.record(&queue.policy) {
                    self.open_ledger(&queue.policy, found);
                }
            }
        }
    }

    async fn write(
        &self,
        store: &LimitStore,
        config_map: &mut LimitsConfigMap,
        policy: &str,
        record: &LimitRecord,
    ) -> Result<(), WriteFailure> {
        let text = config_map.text_of(policy, record);
        self.put(store, config_map, policy, Some(text)).await
    }

    /// Writes an entry, or removes it.
    pub(super) async fn put(
        &self,
        store: &LimitStore,
        config_map: &mut LimitsConfigMap,
        entry: &str,
        text: Option<String>,
    ) -> Result<(), WriteFailure> {
        let mut data = config_map.data();
        if text.as_deref() == data.get(entry).and_then(Value::as_str) {
            return Ok(());
        }
        let mut changed = match store.place {
            Some(_) => self.drop_old(&mut data),
            // In memory a deleted policy that is written again goes on with its record, too.
            None => Vec::new(),
        };
        match text.clone() {
            Some(text) => drop(data.insert(entry.to_owned(), text.into())),
            None => drop(data.remove(entry)),
        }
        changed.push(path::of(&["data", entry]));
        let Some(place) = &store.place else {
            let place = ObjectRef::local("v1", "ConfigMap", None, MANAGER);
            config_map.object = Some(object(&place, data));
            return Ok(());
        };
        let desired = object(place, data);
        let step = match &config_map.object {
            None => Step::Create { desired },
            Some(before) => Step::Update {
                desired: Object {
                    version: before.version.clone(),
                    ..desired
                },
                changed,
            },
        };
        let plan = Plan::new(&Key::new(&MANAGER.into(), place), [step]);
        config_map.unanswered = Some((entry.to_owned(), text));
        let written = self.connections.apply_one(plan).await;
        let unanswered = |failed: &WriteFailure| Class::of(failed.reason) == Class::Unreachable;
        if !written.as_ref().is_err_and(unanswered) {
            config_map.unanswered = None;
        }
        config_map.written(entry, written?);
        Ok(())
    }

    /// Writes an entry for which no reconcile waits, or removes it. A failure is told once, and such a write is tried
    /// again with back-off.
    pub(super) async fn put_or_put_off(
        &self,
        store: &LimitStore,
        config_map: &mut LimitsConfigMap,
        entry: &str,
        text: Option<String>,
    ) -> bool {
        let Err(failed) = self.put(store, config_map, entry, text).await else {
            return true;
        };
        // Another replica wrote, or leads: that is looked at with the next look.
        let (waits, place) = match Class::of(failed.reason) {
            Class::Conflict | Class::Standby => return false,
            Class::Unreachable => (ALL, PLACE),
            _ => (entry, &*format!("the entry {entry} of {PLACE}")),
        };
        if config_map.put_off(waits) {
            telemetry::unreadable(place, failed.reason, &failed.message);
        }
        false
    }

    /// Drops what is recorded for policies that are gone, and over for long; returns the paths.
    fn drop_old(&self, data: &mut Map<String, Value>) -> Vec<String> {
        let (policies, now_seconds) = (self.limits.lock(), self.clock.now_seconds());
        let is_old = |policy: &String, text: &Value| {
            let record = LimitRecord::parse(text.as_str().unwrap_or_default());
            !policies.contains_key(policy.as_str())
                && record.is_ok_and(|record| record.is_old(now_seconds))
        };
        let old: Vec<String> = data
            .iter()
            .filter(|(policy, text)| is_old(policy, text))
            .map(|(policy, _)| policy.clone())
            .collect();
        data.retain(|policy, _| !old.contains(policy));
        old.iter()
            .map(|policy| path::of(&["data", policy]))
            .collect()
    }
}

fn unrecorded(failed: &WriteFailure) -> Failure {
    let message = format!(
        "the limits of the policy cannot be recorded: {}",
        failed.message
    );
    // No input of the primary mends it, so it is tried again.
    let class = match Class::of(failed.reason) {
        class @ (Class::Conflict | Class::Unreachable | Class::Standby) => class,
        _ => Class::Missing,
    };
    Failure::new(class, failed.reason.into(), &message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::controller::connections::Connections;
    use std::collections::BTreeMap;
    use transom_api::policy::{LimitSpec, Limited, LimitsSpec};
    use transom_cluster::Cluster;
    use transom_cluster::directory::{Directory, DirectoryOptions};
    use transom_core::contract::AgentFacts;
    use transom_core::digest::Digest;
    use transom_core::limits::{Ask, LimitCheck};
    use transom_core::plan::{Outcome, StepOutcome};
    use transom_core::reference::LOCAL;
    use transom_core::watches::SecretReads;

    fn place() -> ObjectRef {
        ObjectRef::local("v1", "ConfigMap", Some("transom"), "transom-limits")
    }

    /// Two replicas that record in the same folder.
    fn two() -> (tempfile::TempDir, [Controller; 2]) {
        let folder = tempfile::tempdir().unwrap();
        let options = DirectoryOptions {
            watch: false,
            ..DirectoryOptions::new(LOCAL, folder.path())
        };
        let directory: Arc<dyn Cluster> = Arc::new(Directory::open(options).unwrap());
        let replica = || {
            let by_name = BTreeMap::from([(LOCAL.to_owned(), Arc::clone(&directory))]);
            let connections = Connections::new(by_name, SecretReads::Watch);
            let facts = AgentFacts::new("local-cluster", None);
            Controller::new(connections, Clock::new(None), facts).limiting(Some(place()))
        };
        (folder, [replica(), replica()])
    }

    /// Has a replica write an entry, or remove it.
    async fn set(replica: &Controller, entry: &str, text: Option<&str>) {
        let store = replica.limits.store.as_ref().unwrap();
        let mut config_map = store.config_map.lock().await;
        config_map.outdate();
        replica.learn(store, &mut config_map).await.unwrap();
        let text = text.map(str::to_owned);
        replica
            .put(store, &mut config_map, entry, text)
            .await
            .unwrap();
    }

    /// Asks for a change of one primary of a policy, as a reconcile does.
    async fn change(replica: &Controller, policy: &str) -> Result<LimitVerdict, Failure> {
        let key = Key::new(&policy.into(), &place());
        change_within(replica, &key, &LimitsSpec::default()).await
    }

    /// Asks for a change of this primary within these limits.
    async fn change_within(
        replica: &Controller,
        key: &Key,
        limits: &LimitsSpec,
    ) -> Result<LimitVerdict, Failure> {
        let (policy, kinds) = (&key.policy, [Limited::ElementsAdded].into());
        let ask = Ask {
            primary: &key.primary,
            kinds: &kinds,
            limits: &limits.clone().into(),
            revision: Digest::of_bytes(b"one"),
            primaries: 1_000,
            now_seconds: replica.clock.now_seconds(),
        };
        let admit = || replica.limits.admit(policy, &ask);
        replica.record_for(key, admit).await
    }

    /// As after a while.
    async fn later(replica: &Controller) {
        let store = replica.limits.store.as_ref().unwrap();
        store.config_map.lock().await.read = None;
    }

    async fn recorded(replica: &Controller, entry: &str) -> Option<String> {
        let store = replica.limits.store.as_ref().unwrap();
        store.config_map.lock().await.text(entry)
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_holds_up_its_policy_alone_and_stays_as_it_is() {
        for text in [
            "",
            "nonsense",
            "[]",
            "{}",
            r#"{"startedSeconds":0,"endsSeconds":0,"primaries":1,"reserved":{"elementsAdded":-1}}"#,
            r#"{"startedSeconds":0,"endsSeconds":0,"primaries":99999999999,"reserved":{}}"#,
            r#"{"startedSeconds":0,"endsSeconds":0,"primaries":1,"reserved":{"elementsMoved":1}}"#,
        ] {
            let (_folder, [ours, other]) = two();
            let one: Arc<str> = "one".into();
            assert!(!withheld(&ours, &primary("first")).await);
            let counted = recorded(&ours, "one").await;
            set(&other, "one", Some(text)).await;
            // Neither who knows what was counted writes over it, nor who began after it.
            for replica in [&ours, &other] {
                let store = replica.limits.store.as_ref().unwrap();
                store.config_map.lock().await.outdate();
                let told = change(replica, "one").await.unwrap_err();
                let place = "ConfigMap transom/transom-limits: `data.one` is not a record";
                assert!(told.message.starts_with(place), "{text}: {told:?}");
                assert_eq!(told.reason, KnownReason::ReadFailed.into());
                change(replica, "two").await.unwrap();
                replica.save(&one).await;
                assert_eq!(recorded(replica, "one").await.as_deref(), Some(text));
            }
            // Who knows what was counted goes on from there.
            set(&other, "one", None).await;
            later(&ours).await;
            assert!(withheld(&ours, &primary("second")).await, "{text}");
            ours.save(&one).await;
            let started =
                |text: Option<String>| LimitRecord::parse(&text.unwrap()).unwrap().started_seconds;
            assert_eq!(started(recorded(&ours, "one").await), started(counted));
        }
    }

    #[tokio::test]
    async fn who_knows_of_no_count_begins_anew_when_an_unreadable_record_is_removed() {
        let (_folder, [ours, other]) = two();
        set(&other, "one", Some("nonsense")).await;
        change(&ours, "one").await.unwrap_err();
        set(&other, "one", None).await;
        later(&ours).await;
        change(&ours, "one").await.unwrap();
    }

    #[tokio::test]
    async fn the_end_of_a_stop_is_not_written_over_a_record_that_cannot_be_read() {
        let (_folder, [ours, other]) = two();
        let one: Arc<str> = "one".into();
        assert!(!withheld(&ours, &primary("first")).await);
        let unsaved = || ours.limits.lock().get("one").unwrap().unsaved.is_some();
        let record = ours.limits.ledger("one", |ledger| ledger.record().cloned());
        ours.limits.lock().get_mut("one").unwrap().unsaved = record.unwrap();
        set(&other, "one", Some("nonsense")).await;
        ours.limits
            .store
            .as_ref()
            .unwrap()
            .config_map
            .lock()
            .await
            .outdate();
        ours.save(&one).await;
        assert_eq!(recorded(&ours, "one").await.as_deref(), Some("nonsense"));
        assert!(unsaved());
        let store = ours.limits.store.as_ref().unwrap();
        let mut config_map = store.config_map.lock().await;
        assert!(
            config_map.is_put_off("one") && !config_map.put_off("one"),
            "it was told"
        );
    }

    /// One primary may be changed.
    fn one() -> LimitsSpec {
        let (count, percent) = (1, 0);
        LimitsSpec {
            elements_added: LimitSpec { count, percent },
            ..LimitsSpec::default()
        }
    }

    fn primary(name: &str) -> Key {
        let name = name.to_owned();
        Key::new(&"one".into(), &ObjectRef { name, ..place() })
    }

    /// Whether a change of a primary is withheld.
    async fn withheld(replica: &Controller, key: &Key) -> bool {
        let verdict = change_within(replica, key, &one()).await.unwrap();
        matches!(verdict, LimitVerdict::Withheld(_))
    }

    #[tokio::test]
    async fn what_is_unwanted_is_not_withheld() {
        let (_folder, [ours, _]) = two();
        let second = primary("second");
        assert!(!withheld(&ours, &primary("first")).await && withheld(&ours, &second).await);
        let withholds = || {
            let look = LimitCheck {
                policy: "one",
                limits: &one().into(),
                revision: Digest::of_bytes(b"one"),
                approved: None,
                complete: true,
                primaries: 0,
                listed: false,
                now_seconds: ours.clock.now_seconds(),
            };
            ours.limits.ledger("one", |ledger| {
                ledger.check(&look);
                ledger.status().map_or(0, |status| status.withheld)
            })
        };
        assert_eq!(withholds(), Some(1));
        ours.limits.unwanted(&second);
        assert_eq!(withholds(), Some(0));
    }

    #[tokio::test]
    async fn what_was_certainly_not_written_does_not_count() {
        use KnownReason::{ServerUnavailable, WriteConflict};
        let (_folder, [ours, _]) = two();
        let [first, second] = ["first", "second"].map(primary);
        let verdict = change_within(&ours, &first, &one()).await.unwrap();
        let LimitVerdict::Admitted(counted) = verdict else {
            panic!("one may be changed")
        };
        let step = Step::Create {
            desired: object(&place(), Map::new()),
        };
        let failure = |reason| WriteFailure {
            reason,
            message: String::new(),
        };
        let (unknown, refused) = (failure(ServerUnavailable), failure(WriteConflict));
        for (done, counts) in [
            (StepOutcome::of(place(), step.kind(), Ok(None)), true),
            (StepOutcome::failed(&step, unknown), true),
            (
                StepOutcome::in_part(&step, refused.clone(), step.clone(), None),
                true,
            ),
            (StepOutcome::failed(&step, refused), false),
        ] {
            let outcome = Outcome {
                steps: vec![done],
                stopped: None,
            };
            ours.uncount(&first, &counted, (std::slice::from_ref(&step), &outcome));
            assert_eq!(withheld(&ours, &second).await, counts, "{outcome:?}");
        }
    }

    #[tokio::test]
    async fn an_end_in_order_records_what_counts_and_whom() {
        let (_folder, [ours, other]) = two();
        let reserved = async || {
            let store = other.limits.store.as_ref().unwrap();
            let mut config_map = store.config_map.lock().await;
            config_map.outdate();
            other.learn(store, &mut config_map).await.unwrap();
            let record = config_map.record("one").unwrap().unwrap();
            (
                record.reserved[&Limited::ElementsAdded],
                record.text().contains("marks"),
            )
        };
        change(&ours, "one").await.unwrap();
        assert_eq!(reserved().await, (60, false));
        // Another entry was written since.
        let store = ours.limits.store.as_ref().unwrap();
        set(&other, "two", Some("{}")).await;
        ours.settle_limits().await;
        assert_eq!(reserved().await, (1, true));
        let written = store.config_map.lock().await.object.clone();
        ours.settle_limits().await;
        assert_eq!(store.config_map.lock().await.object, written);
        // The next process has the same limit left, and the same primary counts no second time.
        change(&other, "one").await.unwrap();
        assert_eq!(reserved().await, (1, true));
        // One that does not lead writes nothing.
        change_within(&ours, &primary("second"), &LimitsSpec::default())
            .await
            .unwrap();
        ours.current.send_replace(false);
        ours.settle_limits().await;
        assert_eq!(reserved().await, (61, true));
    }

    #[tokio::test]
    async fn what_vanishes_is_written_again_for_every_policy() {
        let (_folder, [ours, other]) = two();
        let store = ours.limits.store.as_ref().unwrap();
        for policy in ["one", "two"] {
            change(&ours, policy).await.unwrap();
        }
        let one: Arc<str> = "one".into();
        let kept = |take: &dyn Fn(&mut KeptPolicy)| take(ours.limits.lock().get_mut(&one).unwrap());
        kept(&|kept| {
            kept.failing.found(None, 0).unwrap();
            kept.failing.failed(&Arc::new(place()), 7);
        });
        ours.save_failing(&one).await;
        let before = store.config_map.lock().await.data();
        assert_eq!(
            before.keys().collect::<Vec<_>>(),
            ["failing_one", "one", "two"]
        );
        for entry in before.keys() {
            set(&other, entry, None).await;
        }
        store.config_map.lock().await.outdate();
        change(&ours, "three").await.unwrap();
        for policy in ["one", "two"].map(Arc::from) {
            ours.save(&policy).await;
            ours.save_failing(&policy).await;
        }
        set(&other, "three", None).await;
        let config_map = other
            .limits
            .store
            .as_ref()
            .unwrap()
            .config_map
            .lock()
            .await
            .data();
        assert_eq!(config_map, before);
    }
}
