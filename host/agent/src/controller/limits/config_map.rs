//! What is known of the ConfigMap with the limits, and who wrote its entries since.

use super::{KeptPolicy, failing};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_core::backoff;
use transom_core::failure::{Class, Failure};
use transom_core::limits::LimitRecord;
use transom_core::object::Object;
use transom_core::projection::path;
use transom_core::reference::ObjectRef;

/// How long a failure counts, and an entry that cannot be used: others that wait for the same need not wait for a
/// server that does not answer.
const FAILED: Duration = Duration::from_secs(5);
/// What stands for all entries: a server that does not answer writes none.
pub(super) const ALL: &str = "";
/// How many bytes the records of limits may have together. Beyond that they have no marks: the records of failing
/// guests lie in the same object, and it must have room for the numbers of every policy.
const ROOM: usize = 384 * 1024;
/// For how long after its wait the failures of an entry are remembered.
const FORGOTTEN: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct LimitsConfigMap {
    /// Whether it was read.
    pub(super) known: bool,
    /// When that was.
    pub(super) read: Option<Instant>,
    /// As it was read or written last.
    pub(super) object: Option<Object>,
    /// Why it could not be read, or no server wrote it, and when.
    failed: Option<FailedAt>,
    /// Why entries were not written for a reconcile, and when.
    refused: BTreeMap<String, FailedAt>,
    /// The entry whose writing got no answer: it may be there.
    pub(super) unanswered: Option<(String, Option<String>)>,
    /// Of each entry, or of all, how many writes for which no reconcile waits failed since the last one that did not,
    /// and until when the next one waits. An entry that is refused holds up no other.
    put_off: BTreeMap<String, (u32, Instant)>,
}

/// When something failed, and why.
type FailedAt = (Instant, Failure);

/// Who wrote an entry since it was read or written last.
#[derive(Debug, PartialEq)]
pub(super) enum LastWriter {
    Nobody,
    /// This replica, by a write that got no answer.
    ThisReplica,
    Another,
}

impl LimitsConfigMap {
    pub(super) fn data(&self) -> Map<String, Value> {
        let data = self
            .object
            .as_ref()
            .and_then(|object| object.body.get("data"));
        data.and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// What is recorded for a policy.
    pub(super) fn record(&self, policy: &str) -> Result<Option<LimitRecord>, Failure> {
        let data = self.data();
        let Some(text) = data.get(policy) else {
            return Ok(None);
        };
        let record = LimitRecord::parse(text.as_str().unwrap_or_default());
        record.map(Some).map_err(|_| {
            let place = self.path(policy);
            let message = format!(
                "{place} is not a record of limits, and changes that have a limit wait for that: put the key right, \
                 or remove it"
            );
            Failure::known(KnownReason::ReadFailed, message)
        })
    }

    /// What an entry is called in a message.
    pub(super) fn path(&self, entry: &str) -> String {
        let path = path::of(&["data", entry]);
        let place = self.object.as_ref();
        place.map_or_else(String::new, |object| {
            format!("{}: `{path}`", object.reference)
        })
    }

    /// The text of an entry.
    pub(super) fn text(&self, entry: &str) -> Option<String> {
        self.data().get(entry)?.as_str().map(str::to_owned)
    }

    /// How many bytes these entries have.
    pub(super) fn bytes(&self, is_counted: impl Fn(&str) -> bool) -> usize {
        let data = self.data().into_iter();
        let counted = data.filter(|(entry, _)| is_counted(entry));
        counted
            .map(|(_, text)| text.as_str().map_or(0, str::len))
            .sum()
    }

    /// The text of a record, with as many marks as have room beside the other records.
    pub(super) fn text_of(&self, policy: &str, record: &LimitRecord) -> String {
        let others = self.bytes(|entry| entry != policy && !failing::is_entry(entry));
        record.text_within(ROOM.saturating_sub(others))
    }

    /// A failure to read it that was so recent that it still counts.
    pub(super) fn unread(&self) -> Option<&Failure> {
        let failed = self.failed.as_ref().filter(|one| counts(one))?;
        Some(&failed.1)
    }

    /// The same, also of a write of this entry.
    pub(super) fn failure(&self, entry: &str) -> Option<&Failure> {
        let refused = self.refused.get(entry).filter(|one| counts(one));
        self.unread().or(refused.map(|(_, failure)| failure))
    }

    /// Somebody else may have written it: it is read before the next use.
    pub(super) fn outdate(&mut self) {
        (self.known, self.unanswered) = (false, None);
    }

    /// Reads it again before the next use, unless that was done a moment ago: an entry that cannot be used may have
    /// been removed since, and holds up no other policy meanwhile.
    pub(super) fn outdate_old(&mut self) {
        if self.read.is_none_or(|at| at.elapsed() >= FAILED) {
            self.outdate();
        }
    }

    /// Takes it as it is now. Returns who wrote an entry as it is.
    pub(super) fn found(&mut self, object: Option<Object>) -> impl Fn(&str) -> LastWriter + use<> {
        let (before, unanswered) = (self.data(), self.unanswered.take());
        (self.object, self.known, self.read) = (object, true, Some(Instant::now()));
        let now = self.data();
        move |entry| {
            let now = now.get(entry).and_then(Value::as_str);
            let ours = unanswered.as_ref().filter(|(of, _)| of == entry);
            match ours {
                _ if now == before.get(entry).and_then(Value::as_str) => LastWriter::Nobody,
                Some((_, text)) if now == text.as_deref() => LastWriter::ThisReplica,
                _ => LastWriter::Another,
            }
        }
    }

    /// Whether a write of an entry for which no reconcile waits has to wait, because one failed.
    pub(super) fn is_put_off(&self, entry: &str) -> bool {
        let waits = |entry| {
            self.put_off
                .get(entry)
                .is_some_and(|(_, until)| Instant::now() < *until)
        };
        waits(entry) || waits(ALL)
    }

    /// Has such writes of an entry wait, longer each time; returns whether this is the first failure.
    pub(super) fn put_off(&mut self, entry: &str) -> bool {
        let now = Instant::now();
        // Whoever waits writes again soon after that; the others may be gone.
        (self.put_off).retain(|_, (_, until)| now.duration_since(*until) < FORGOTTEN);
        let (failures, until) = self.put_off.entry(entry.to_owned()).or_insert((0, now));
        // One object, one writer: there is nothing to spread.
        *until = now + Duration::from_millis(backoff::delay_ms(*failures, 0));
        *failures = failures.saturating_add(1);
        *failures == 1
    }

    /// A write of an entry was done.
    pub(super) fn written(&mut self, entry: &str, object: Object) {
        self.object = Some(object);
        self.put_off.remove(ALL);
        self.put_off.remove(entry);
        self.refused.remove(entry);
    }

    /// It could not be read.
    pub(super) fn fail(&mut self, failure: Failure) -> Failure {
        self.known = false;
        self.failed = Some((Instant::now(), failure.clone()));
        failure
    }

    /// An entry could not be written for a reconcile. While no server answers, or none may write, that is so for all.
    pub(super) fn refuse(&mut self, entry: &str, failure: Failure) -> Failure {
        if matches!(failure.class, Class::Unreachable | Class::Standby) {
            return self.fail(failure);
        }
        self.known = false;
        self.refused.retain(|_, one| counts(one));
        let failed = (Instant::now(), failure.clone());
        self.refused.insert(entry.to_owned(), failed);
        failure
    }
}

impl KeptPolicy {
    /// Takes what was recorded by somebody else, or by a write that got no answer. What somebody removed is written
    /// again: after a kill a stop would be lifted, and times would begin anew. What cannot be read stays as it is.
    pub(super) fn learn(
        &mut self,
        policy: &str,
        (config_map, writer): (&LimitsConfigMap, &impl Fn(&str) -> LastWriter),
        now_seconds: i64,
    ) {
        let entry = failing::entry(policy);
        if config_map.text(&entry).is_none() && writer(&entry) == LastWriter::Another {
            self.failing.lost();
        }
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        match (writer(policy), config_map.record(policy)) {
            // The ledger may be ahead of it, and knows for which primaries it counts.
            (LastWriter::Nobody, _) | (_, Err(_)) => {}
            (LastWriter::ThisReplica, Ok(Some(record))) => ledger.recorded(record),
            (_, Ok(Some(record))) => ledger.found_again(record, now_seconds),
            (_, Ok(None)) => self.unsaved = ledger.record().cloned().or(self.unsaved.take()),
        }
    }
}

/// The ConfigMap with this data.
pub(super) fn object(place: &ObjectRef, data: Map<String, Value>) -> Object {
    let mut body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    body["metadata"] = json!({"name": place.name, "namespace": place.namespace, "labels": {"app.kubernetes.io/name": "transom"}});
    Object {
        reference: place.clone(),
        version: String::new(),
        body,
    }
}

/// Whether a failure was so recent that it still counts.
fn counts((at, _): &FailedAt) -> bool {
    at.elapsed() < FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_refused_holds_up_no_other_and_a_server_that_is_away_all() {
        let failure = |class| Failure::new(class, KnownReason::WriteFailed.into(), "no");
        let mut config_map = LimitsConfigMap::default();
        config_map.refuse("one", failure(Class::Missing));
        assert!(config_map.failure("one").is_some() && config_map.failure("two").is_none());
        config_map.written("one", object(&place(), Map::new()));
        assert!(config_map.failure("one").is_none());
        config_map.refuse("one", failure(Class::Unreachable));
        assert!(config_map.failure("two").is_some() && config_map.unread().is_some());
    }

    fn place() -> ObjectRef {
        ObjectRef::local("v1", "ConfigMap", Some("transom"), "transom-limits")
    }

    #[test]
    fn a_write_that_got_no_answer_is_no_change_by_another_replica() {
        let with = |entries: &[(&str, &str)]| {
            let entries = entries.iter();
            let data = entries.map(|(entry, text)| ((*entry).to_owned(), (*text).into()));
            Some(object(&place(), data.collect()))
        };
        let mut config_map = LimitsConfigMap::default();
        drop(config_map.found(with(&[("a", "1"), ("b", "1"), ("c", "1")])));
        config_map.unanswered = Some(("b".to_owned(), Some("2".to_owned())));
        let writer = config_map.found(with(&[("a", "1"), ("b", "2"), ("c", "2")]));
        let all = ["a", "b", "c", "d"].map(&writer);
        let expected = [
            LastWriter::Nobody,
            LastWriter::ThisReplica,
            LastWriter::Another,
            LastWriter::Nobody,
        ];
        assert_eq!(all, expected);
        assert_eq!(
            config_map.found(with(&[]))("b"),
            LastWriter::Another,
            "it is gone"
        );
        // Another replica may have led since, and written the same.
        config_map.unanswered = Some(("b".to_owned(), Some("2".to_owned())));
        config_map.outdate();
        assert_eq!(
            config_map.found(with(&[("b", "2")]))("b"),
            LastWriter::Another
        );
    }

    #[test]
    fn the_records_of_many_policies_have_room_in_one_object() {
        let marks: Vec<String> = (0..100).map(|at| format!("{at:012}")).collect();
        let record = json!({
            "startedSeconds": 1_000, "endsSeconds": 1_600, "primaries": 1_000,
            "reserved": {"elementsAdded": 100, "elementsRemoved": 100},
            "marks": {"elementsAdded": marks.clone(), "elementsRemoved": marks},
        });
        let record = LimitRecord::parse(&record.to_string()).unwrap();
        let mut config_map = LimitsConfigMap::default();
        let mut data = Map::new();
        for at in 0..300 {
            let policy = format!("policy-{at}");
            let text = config_map.text_of(&policy, &record);
            let again = LimitRecord::parse(&text).unwrap();
            assert_eq!(again.reserved, record.reserved, "{policy}");
            data.insert(policy, text.into());
            config_map.object = Some(object(&place(), data.clone()));
        }
        let marked = data
            .values()
            .filter(|text| text.to_string().contains("marks"));
        assert!((100..200).contains(&marked.count()));
        // An object has 1 MiB, and the records of failing guests have a half.
        assert!(config_map.bytes(|_| true) <= 512 * 1024);
        // Those take no room of the others, and the own record is written over.
        config_map.object = Some(object(
            &place(),
            Map::from_iter([
                ("failing_p".to_owned(), "x".repeat(ROOM).into()),
                ("p".to_owned(), "x".repeat(ROOM).into()),
            ]),
        ));
        assert_eq!(config_map.text_of("p", &record), record.text());
    }
}
