//! What is known of the ConfigMap with the limits, and who wrote its entries since.

use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::Instant;
use transom_api::KnownReason;
use transom_core::backoff;
use transom_core::failure::Failure;
use transom_core::limits::LimitRecord;
use transom_core::object::Object;
use transom_core::projection::path;

/// How long a failure counts, and an entry that cannot be used: others that wait for the same need not wait for a
/// server that does not answer.
const FAILED: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct There {
    /// Whether it was read.
    pub(super) known: bool,
    /// When that was.
    pub(super) read: Option<Instant>,
    /// As it was read or written last.
    pub(super) object: Option<Object>,
    pub(super) failed: Option<(Instant, Failure)>,
    /// The entry whose writing got no answer: it may be there.
    pub(super) unanswered: Option<(String, Option<String>)>,
    /// How many writes for which no reconcile waits failed since the last one that did not, and until when the next one
    /// waits.
    put_off: Option<(u32, Instant)>,
}

/// Who wrote an entry since it was read or written last.
#[derive(Debug, PartialEq)]
pub(super) enum LastWriter {
    Nobody,
    /// This replica, by a write that got no answer.
    ThisReplica,
    Another,
}

impl There {
    pub(super) fn data(&self) -> Map<String, Value> {
        let data = self
            .object
            .as_ref()
            .and_then(|object| object.body.get("data"));
        data.and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// What is recorded for a policy.
    pub(super) fn record(&self, policy: &str) -> Result<Option<LimitRecord>, Failure> {
        let (Some(object), data) = (&self.object, self.data()) else {
            return Ok(None);
        };
        let Some(text) = data.get(policy) else {
            return Ok(None);
        };
        LimitRecord::parse(text.as_str().unwrap_or_default())
            .map(Some)
            .map_err(|_| {
                let message = format!(
                    "{}: `{}` is not a record of limits; the agent made it, so remove it",
                    object.reference,
                    path::of(&["data", policy])
                );
                Failure::known(KnownReason::ReadFailed, message)
            })
    }

    /// The text of an entry.
    pub(super) fn text(&self, entry: &str) -> Option<String> {
        self.data().get(entry)?.as_str().map(str::to_owned)
    }

    /// How many bytes the entries with this prefix have, without one of them.
    pub(super) fn bytes(&self, prefix: &str, without: &str) -> usize {
        let data = self.data().into_iter();
        let others = data.filter(|(entry, _)| entry.starts_with(prefix) && entry != without);
        others
            .map(|(_, text)| text.as_str().map_or(0, str::len))
            .sum()
    }

    /// A failure that was so recent that it still counts.
    pub(super) fn failure(&self) -> Option<&Failure> {
        let (at, failure) = self.failed.as_ref()?;
        (at.elapsed() < FAILED).then_some(failure)
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

    /// Whether a write for which no reconcile waits has to wait, because one failed.
    pub(super) fn is_put_off(&self) -> bool {
        self.put_off
            .is_some_and(|(_, until)| Instant::now() < until)
    }

    /// Has such writes wait, longer each time; returns whether this is the first failure.
    pub(super) fn put_off(&mut self) -> bool {
        let failures = self.put_off.map_or(0, |(failures, _)| failures);
        // One object, one writer: there is nothing to spread.
        let wait = Duration::from_millis(backoff::delay_ms(failures, 0));
        self.put_off = Some((failures.saturating_add(1), Instant::now() + wait));
        failures == 0
    }

    /// A write was done.
    pub(super) fn written(&mut self, object: Object) {
        (self.object, self.put_off) = (Some(object), None);
    }

    pub(super) fn fail(&mut self, failure: Failure) -> Failure {
        self.known = false;
        self.failed = Some((Instant::now(), failure.clone()));
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::limits::store::object;
    use transom_core::reference::ObjectRef;

    #[test]
    fn a_write_that_got_no_answer_is_no_change_by_another_replica() {
        let place = ObjectRef::local("v1", "ConfigMap", Some("transom"), "transom-limits");
        let with = |entries: &[(&str, &str)]| {
            let entries = entries.iter();
            let data = entries.map(|(entry, text)| ((*entry).to_owned(), (*text).into()));
            Some(object(&place, data.collect()))
        };
        let mut there = There::default();
        drop(there.found(with(&[("a", "1"), ("b", "1"), ("c", "1")])));
        there.unanswered = Some(("b".to_owned(), Some("2".to_owned())));
        let writer = there.found(with(&[("a", "1"), ("b", "2"), ("c", "2")]));
        let all = ["a", "b", "c", "d"].map(&writer);
        let expected = [
            LastWriter::Nobody,
            LastWriter::ThisReplica,
            LastWriter::Another,
            LastWriter::Nobody,
        ];
        assert_eq!(all, expected);
        assert_eq!(
            there.found(with(&[]))("b"),
            LastWriter::Another,
            "it is gone"
        );
        // Another replica may have led since, and written the same.
        there.unanswered = Some(("b".to_owned(), Some("2".to_owned())));
        there.outdate();
        assert_eq!(there.found(with(&[("b", "2")]))("b"), LastWriter::Another);
    }
}
