//! Which warnings become Events: few for each primary, few in total; a repeated warning raises the count of its
//! Event. The caller sends them, and passes the time.

use crate::report::Report;
use crate::work::Key;
use std::collections::BTreeMap;
use std::sync::Arc;
use transom_api::{KIND, State};

/// For each primary: five at once, then one in five minutes.
const OF_PRIMARY: Rate = Rate {
    burst: 5,
    interval_ms: 300_000,
};
/// In total: 25 at once, then one a second.
const IN_ALL: Rate = Rate {
    burst: 25,
    interval_ms: 1_000,
};
/// A warning that was not repeated for so many milliseconds counts as new; an API server keeps Events for an hour.
const FORGOTTEN_MS: u64 = 3_300_000;
/// The interval between two sweeps of old warnings, in milliseconds.
const SWEPT_EVERY_MS: u64 = 60_000;
/// The most primaries that are remembered; others get no warnings until some of these are forgotten.
const MOST: usize = 10_000;

/// What to do with a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAction {
    /// Create an Event, and report the result with [`Warnings::told`]; until then this warning is not sent again.
    New,
    /// Set the count of the Event of this name.
    Again {
        /// The Event.
        name: Arc<str>,
        /// How often the warning occurred by now, at least 2.
        count: u32,
    },
    /// Nothing now; repetitions are counted.
    Nothing,
}

/// The warnings of the last hour. In memory only.
#[derive(Clone, Debug)]
pub struct Warnings {
    in_all: Bucket,
    primaries: BTreeMap<Key, Primary>,
    swept_ms: u64,
}

#[derive(Clone, Debug)]
struct Primary {
    uid: String,
    bucket: Bucket,
    said: BTreeMap<Arc<str>, Said>,
}

#[derive(Clone, Debug)]
struct Said {
    event: Event,
    count: u32,
    last_ms: u64,
}

/// The Event of a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// There is none.
    None,
    /// It is being created; the caller reports the result.
    Asked,
    /// It exists under this name.
    There(Arc<str>),
}

/// Whether a report is worth a warning: a failure, unless it is a first conflict, which is retried at once.
pub fn is_worth(report: &Report) -> bool {
    let conflict = report.is_first_conflict();
    report.state == State::Failed && !conflict
}

impl Default for Warnings {
    fn default() -> Self {
        Self {
            in_all: Bucket::new(IN_ALL),
            primaries: BTreeMap::new(),
            swept_ms: 0,
        }
    }
}

impl Warnings {
    /// A warning about a primary, or a `FleetPolicy` itself, with this uid. Warnings with the same `reason` are the
    /// same, whatever their message. Those of an earlier object of the name do not count: their Events regard that one.
    pub fn say(&mut self, (key, uid): (&Key, &str), reason: &str, now_ms: u64) -> EventAction {
        self.forget(now_ms);
        // Warnings about a policy are few, each said once. They skip the total limit, which others may use up.
        let of_policy = key.primary.kind == KIND;
        if !of_policy && self.primaries.len() >= MOST && !self.primaries.contains_key(key) {
            return EventAction::Nothing;
        }
        let primary = self
            .primaries
            .entry(key.clone())
            .or_insert_with(|| Primary {
                uid: uid.to_owned(),
                bucket: Bucket::new(OF_PRIMARY),
                said: BTreeMap::new(),
            });
        if primary.uid != uid {
            uid.clone_into(&mut primary.uid);
            primary.said.clear();
        }
        let said = primary.said.entry(reason.into()).or_insert(Said {
            event: Event::None,
            count: 0,
            last_ms: now_ms,
        });
        said.count = said.count.saturating_add(1);
        said.last_ms = now_ms;
        // Repeated before the first Event got its name: the next one counts it.
        let asked = said.event == Event::Asked;
        let has = primary.bucket.has(now_ms) && (of_policy || self.in_all.has(now_ms));
        if asked || !has {
            return EventAction::Nothing;
        }
        primary.bucket.take(now_ms);
        if !of_policy {
            self.in_all.take(now_ms);
        }
        match &said.event {
            Event::There(name) => EventAction::Again {
                name: Arc::clone(name),
                count: said.count,
            },
            Event::None | Event::Asked => {
                (said.event, said.count) = (Event::Asked, 1);
                EventAction::New
            }
        }
    }

    /// Records the Event of a warning; `None` when it could not be created, or no longer exists.
    pub fn told(&mut self, key: &Key, reason: &str, name: Option<Arc<str>>) {
        if let Some(said) = self
            .primaries
            .get_mut(key)
            .and_then(|primary| primary.said.get_mut(reason))
        {
            said.event = name.map_or(Event::None, Event::There);
        }
    }

    /// Forgets old warnings, at intervals.
    fn forget(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.swept_ms) < SWEPT_EVERY_MS {
            return;
        }
        self.swept_ms = now_ms;
        self.primaries.retain(|_, primary| {
            primary
                .said
                .retain(|_, said| now_ms.saturating_sub(said.last_ms) < FORGOTTEN_MS);
            !(primary.said.is_empty() && primary.bucket.is_full(now_ms))
        });
    }
}

/// A burst, then one in each interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate {
    /// How many at once.
    burst: u64,
    /// Milliseconds until the next one after those.
    interval_ms: u64,
}

/// A token bucket that starts full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    rate: Rate,
    /// When it is full again: each token that is taken delays this by one interval.
    full_at_ms: u64,
}

impl Bucket {
    /// A full one.
    fn new(rate: Rate) -> Self {
        Self {
            rate,
            full_at_ms: 0,
        }
    }

    /// Whether there is a token.
    fn has(&self, now_ms: u64) -> bool {
        let missing_ms = self.full_at_ms.saturating_sub(now_ms);
        missing_ms
            <= self
                .rate
                .interval_ms
                .saturating_mul(self.rate.burst.saturating_sub(1))
    }

    /// Takes a token, if there is one.
    fn take(&mut self, now_ms: u64) -> bool {
        let has = self.has(now_ms);
        if has {
            self.full_at_ms = self
                .full_at_ms
                .max(now_ms)
                .saturating_add(self.rate.interval_ms);
        }
        has
    }

    /// Whether all tokens are back, so that it may be forgotten.
    fn is_full(&self, now_ms: u64) -> bool {
        self.full_at_ms <= now_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::ObjectRef;
    use crate::sample::key;

    const MINUTE: u64 = 60_000;

    #[test]
    fn an_object_that_was_made_anew_has_warnings_of_its_own() {
        let mut warnings = Warnings::default();
        let (first, second) = (key("a"), key("a"));
        assert_eq!(warnings.say((&first, "u"), "One", 0), EventAction::New);
        warnings.told(&first, "One", Some("e".into()));
        assert_ne!(warnings.say((&first, "u"), "One", 1), EventAction::New);
        assert_eq!(warnings.say((&second, "v"), "One", 2), EventAction::New);
    }

    #[test]
    fn counts_repeated_warnings() {
        let mut warnings = Warnings::default();
        assert_eq!(warnings.say((&key("a"), "u"), "One", 0), EventAction::New);
        warnings.told(&key("a"), "One", Some("a.1".into()));
        assert_eq!(
            warnings.say((&key("a"), "u"), "One", 1),
            EventAction::Again {
                name: "a.1".into(),
                count: 2
            }
        );
        assert_eq!(warnings.say((&key("a"), "u"), "Two", 2), EventAction::New);
        assert_eq!(warnings.say((&key("b"), "u"), "One", 3), EventAction::New);
        warnings.told(&key("a"), "One", None);
        assert_eq!(
            warnings.say((&key("a"), "u"), "One", 4),
            EventAction::New,
            "the Event was gone"
        );
    }

    #[test]
    fn a_repeat_during_its_events_creation_makes_no_second_event() {
        let mut warnings = Warnings::default();
        assert_eq!(warnings.say((&key("a"), "u"), "One", 0), EventAction::New);
        assert_eq!(
            warnings.say((&key("a"), "u"), "One", 2),
            EventAction::Nothing
        );
        assert_eq!(
            warnings.say((&key("a"), "u"), "Two", 2),
            EventAction::New,
            "another reason is another Event"
        );
        warnings.told(&key("a"), "One", Some("a.1".into()));
        assert_eq!(
            warnings.say((&key("a"), "u"), "One", 3),
            EventAction::Again {
                name: "a.1".into(),
                count: 3
            }
        );
        warnings.told(&key("a"), "Two", None);
        assert_eq!(
            warnings.say((&key("a"), "u"), "Two", 4),
            EventAction::New,
            "it could not be made"
        );
    }

    #[test]
    fn one_primary_gets_five_events_then_one_every_five_minutes() {
        let mut warnings = Warnings::default();
        warnings.say((&key("a"), "u"), "One", 0);
        warnings.told(&key("a"), "One", Some("a.1".into()));
        let counts: Vec<u32> = (1..100)
            .filter_map(
                |second| match warnings.say((&key("a"), "u"), "One", second * 10_000) {
                    EventAction::Again { count, .. } => Some(count),
                    _ => None,
                },
            )
            .collect();
        assert_eq!(
            counts,
            [2, 3, 4, 5, 31, 61, 91],
            "the count goes on while nothing is told"
        );
    }

    #[test]
    fn all_primaries_together_get_25_events_then_one_a_second() {
        let mut warnings = Warnings::default();
        let told = |warnings: &mut Warnings, from: usize, now: u64| {
            (from..from + 100)
                .filter(|n| {
                    warnings.say((&key(&n.to_string()), "u"), "One", now) == EventAction::New
                })
                .count()
        };
        assert_eq!(told(&mut warnings, 0, MINUTE), 25);
        assert_eq!(told(&mut warnings, 100, MINUTE + 10_000), 10);
    }

    #[test]
    fn what_is_said_of_a_policy_waits_for_no_primary() {
        let mut warnings = Warnings::default();
        for number in 0..=MOST {
            drop(warnings.say((&key(&number.to_string()), "u"), "One", 0));
        }
        let policy = ObjectRef::local("v", KIND, None, "p");
        let policy = Key::new(&"p".into(), &policy);
        assert_eq!(warnings.say((&policy, "u"), "One", 0), EventAction::New);
        assert_eq!(
            warnings.say((&key("z"), "u"), "One", 0),
            EventAction::Nothing
        );
    }

    #[test]
    fn forgets_old_warnings_and_emits_them_again() {
        let mut warnings = Warnings::default();
        warnings.say((&key("a"), "u"), "One", 0);
        warnings.told(&key("a"), "One", Some("a.1".into()));
        assert_eq!(
            warnings.say((&key("a"), "u"), "One", 60 * MINUTE),
            EventAction::New
        );
        warnings.say((&key("b"), "u"), "One", 200 * MINUTE);
        assert_eq!(warnings.primaries.len(), 1);
    }

    fn taken(bucket: &mut Bucket, now_ms: u64) -> usize {
        (0..100).filter(|_| bucket.take(now_ms)).count()
    }

    #[test]
    fn a_burst_then_one_in_each_interval() {
        let mut bucket = Bucket::new(Rate {
            burst: 5,
            interval_ms: 300_000,
        });
        assert_eq!(taken(&mut bucket, 1_000), 5);
        assert_eq!(taken(&mut bucket, 300_999), 0);
        assert_eq!(taken(&mut bucket, 301_000), 1);
        assert_eq!(taken(&mut bucket, 901_000), 2);
        assert!(!bucket.is_full(2_400_999));
        assert!(bucket.is_full(2_401_000));
        assert_eq!(
            taken(&mut bucket, 100_000_000),
            5,
            "never more than the burst"
        );
    }
}
