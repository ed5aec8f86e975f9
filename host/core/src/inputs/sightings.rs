//! When the agent itself saw fields of objects change, by its own clock. For a heartbeat, this is more reliable than
//! the time in the field, which comes from a clock that may be wrong.

use super::age::{Freshness, Sight, field};
use super::seen::Observed;
use crate::contract::decide::Age;
use crate::digest::Digest;
use crate::object::Object;
use crate::observation::Unwatched;
use crate::reference::ObjectRef;
use crate::time::WholeSeconds;
use serde_json::Value;
use std::collections::HashMap;

/// Fields of one object that are kept; guests ask for one or two.
pub const MOST: usize = 16;

/// What was seen of the fields that guests ask for, by object. The time runs only while the agent looks: it begins when
/// a field is first seen, and anew when the object comes back or can be read again.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    objects: HashMap<ObjectRef, Vec<Sighting>>,
}

/// One field: what it says, and since when.
#[derive(Clone, Debug)]
struct Sighting {
    field: String,
    value: Digest,
    sight: Sight,
}

impl Sightings {
    /// Whether one more field of an object can be kept. A field that a guest still asks for is never dropped: if two
    /// fields replaced each other in turns, neither would ever be stale.
    pub fn has_room(
        &mut self,
        object: &ObjectRef,
        field: &str,
        is_asked: impl Fn(&str) -> bool,
    ) -> bool {
        let Some(fields) = self.objects.get_mut(object) else {
            return true;
        };
        if fields.len() < MOST || fields.iter().any(|kept| kept.field == field) {
            return true;
        }
        fields.retain(|kept| is_asked(&kept.field));
        fields.len() < MOST
    }

    /// How long ago a field changed; from now on its changes are kept.
    pub fn freshness(&mut self, object: Option<&Object>, age: &Age, now_seconds: i64) -> Freshness {
        let value = object.and_then(|object| Some((object, field(object, &age.field)?)));
        let Some((object, value)) = value else {
            return Freshness::Absent;
        };
        let fields = self.objects.entry(object.reference.clone()).or_default();
        let kept = fields.iter_mut().find(|kept| kept.field == age.field);
        let sight = match kept {
            Some(kept) => kept.see(value, now_seconds),
            None => {
                let first = Sighting::first(age.field.clone(), value, now_seconds);
                let sight = first.sight;
                fields.push(first);
                sight
            }
        };
        Freshness::observed(sight, age, now_seconds)
    }

    /// Takes in what is observed of an object. One that is gone or cannot be read is forgotten.
    pub fn observe(&mut self, object: &ObjectRef, observed: Observed<'_>, now_seconds: i64) {
        let Some(fields) = self.objects.get_mut(object) else {
            return;
        };
        fields.retain_mut(|kept| {
            let value = observed.object().and_then(|now| field(now, &kept.field));
            value.map(|value| kept.see(value, now_seconds)).is_some()
        });
        if fields.is_empty() {
            self.objects.remove(object);
        }
    }

    /// Restarts the time of all fields of these objects, because the agent could not watch them for a while, or cannot
    /// from now on. A field may then become stale too late, never too early.
    pub fn restart(&mut self, unwatched: &Unwatched, now_seconds: i64) {
        let concerned = |(object, _): &(&ObjectRef, _)| unwatched.concerns(object);
        let concerned = self.objects.iter_mut().filter(concerned);
        for kept in concerned.flat_map(|(_, kept)| kept) {
            (kept.sight.at_seconds, kept.sight.moved) = (now_seconds, false);
        }
    }

    /// What was seen of some objects.
    #[must_use]
    pub fn of<'a>(&self, objects: impl Iterator<Item = &'a ObjectRef>) -> Self {
        let kept = |object: &ObjectRef| Some((object.clone(), self.objects.get(object)?.clone()));
        Self {
            objects: objects.filter_map(kept).collect(),
        }
    }

    /// Takes in what another agent of this process saw of fields that are not known here.
    pub fn adopt(&mut self, others: Self) {
        for (object, fields) in others.objects {
            let known = self.objects.entry(object).or_default();
            for one in fields {
                if known.len() < MOST && known.iter().all(|kept| kept.field != one.field) {
                    known.push(one);
                }
            }
        }
    }

    /// Keeps only these objects.
    pub fn keep(&mut self, is_kept: impl Fn(&ObjectRef) -> bool) {
        self.objects.retain(|object, _| is_kept(object));
    }
}

impl Sighting {
    fn first(field: String, value: &Value, now_seconds: i64) -> Self {
        Self {
            field,
            value: Digest::of(value),
            sight: Sight {
                told: value.as_str().and_then(WholeSeconds::of),
                at_seconds: now_seconds,
                moved: false,
            },
        }
    }

    /// What was seen of it, and of what it says now.
    fn see(&mut self, value: &Value, now_seconds: i64) -> Sight {
        // A clock that was set back does not put a change into the future.
        self.sight.at_seconds = self.sight.at_seconds.min(now_seconds);
        let now = Self::first(String::new(), value, now_seconds);
        if self.value != now.value {
            self.value = now.value;
            self.sight = Sight {
                moved: true,
                ..now.sight
            };
        }
        self.sight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{hosted, object};
    use serde_json::json;

    fn limit(field: &str) -> Age {
        Age {
            field: field.to_owned(),
            seconds: 300,
        }
    }

    fn lease(renewed: Value) -> Object {
        object(
            hosted("x"),
            json!({"spec": {"renewTime": renewed}, "metadata": {}}),
        )
    }

    #[test]
    fn what_could_not_be_looked_at_is_never_stale() {
        let (object, age) = (
            lease(json!("1970-01-01T00:00:00Z")),
            limit("spec.renewTime"),
        );
        let mut sightings = Sightings::default();
        let at = |sightings: &mut Sightings, now| sightings.freshness(Some(&object), &age, now);
        at(&mut sightings, 10_000);
        let watch_of = |kind: &str| Unwatched::Kind {
            cluster: object.reference.cluster.clone(),
            api_version: object.reference.api_version.clone(),
            kind: kind.to_owned(),
        };
        // What is watched meanwhile goes on.
        for other in [watch_of("Other"), Unwatched::Part] {
            sightings.restart(&other, 20_000);
            let mut there = sightings.clone();
            assert!(matches!(at(&mut there, 20_000), Freshness::Stale { .. }));
        }
        sightings.restart(&watch_of(&object.reference.kind), 20_000);
        assert!(matches!(
            at(&mut sightings, 20_100),
            Freshness::Unsure { until: 20_300 }
        ));
        assert!(matches!(
            at(&mut sightings, 20_300),
            Freshness::Stale { .. }
        ));
    }

    #[test]
    fn another_agent_hands_over_what_it_saw() {
        let (object, age) = (
            lease(json!("1970-01-01T00:00:00Z")),
            limit("spec.renewTime"),
        );
        let mut trial = Sightings::default();
        trial.freshness(Some(&object), &age, 10_000);
        let mut live = Sightings::default();
        live.adopt(trial.of([&object.reference].into_iter()));
        let seen = live.freshness(Some(&object), &age, 10_300);
        assert!(matches!(seen, Freshness::Stale { .. }), "{seen:?}");
        // What is known here stays.
        let mut live = Sightings::default();
        live.freshness(Some(&object), &age, 10_200);
        live.adopt(trial);
        let seen = live.freshness(Some(&object), &age, 10_300);
        assert!(matches!(seen, Freshness::Unsure { .. }), "{seen:?}");
    }

    #[test]
    fn the_time_begins_with_the_first_sight_and_with_each_change() {
        use Freshness::{Absent, Ahead, Behind, Fresh, Stale, Unsure};
        let (mut sightings, age) = (Sightings::default(), limit("spec.renewTime"));
        // The agent starts at 10,000, which is 02:46:40.
        for (said, now, expected) in [
            // It stopped, or its clock is behind.
            (
                json!("1970-01-01T02:41:40Z"),
                10_000,
                Unsure { until: 10_300 },
            ),
            (
                json!("1970-01-01T02:41:40Z"),
                10_299,
                Unsure { until: 10_300 },
            ),
            (
                json!("1970-01-01T02:41:40Z"),
                10_300,
                Stale { since: 10_300 },
            ),
            (
                json!("1970-01-01T02:41:41Z"),
                10_400,
                Behind { until: 10_700 },
            ),
            (
                json!("1970-01-01T02:42:00Z"),
                10_500,
                Behind { until: 10_800 },
            ),
            (
                json!("1970-01-01T02:42:00Z"),
                10_800,
                Stale { since: 10_800 },
            ),
            // It lies 299 s back, then 300 s ahead.
            (
                json!("1970-01-01T02:55:01Z"),
                10_800,
                Fresh { until: 11_100 },
            ),
            (
                json!("1970-01-01T02:55:01Z"),
                11_099,
                Fresh { until: 11_100 },
            ),
            (
                json!("1970-01-01T03:10:00Z"),
                11_100,
                Ahead { until: 11_400 },
            ),
            (
                json!("1970-01-01T03:10:00Z"),
                11_400,
                Stale { since: 11_400 },
            ),
            // It need not be a time.
            (json!(7), 11_500, Fresh { until: 11_800 }),
            // The clock of the agent was set back.
            (json!(7), 10_000, Fresh { until: 10_300 }),
            (json!(7), 10_299, Fresh { until: 10_300 }),
            (json!(7), 10_300, Stale { since: 10_300 }),
            (json!(null), 10_700, Absent),
        ] {
            let lease = lease(said.clone());
            let found = sightings.freshness(Some(&lease), &age, now);
            assert_eq!(found, expected, "{said} at {now}");
        }
        for (said, expected) in [
            (json!("1970-01-01T02:46:40Z"), Fresh { until: 10_300 }),
            (json!("1970-01-01T02:51:40Z"), Ahead { until: 10_300 }),
            (json!("1970-01-01T02:51:40.9Z"), Ahead { until: 10_300 }),
            (json!("1970-01-01T02:51:39.9Z"), Fresh { until: 10_300 }),
            (json!("1970-01-01T02:41:40.1Z"), Fresh { until: 10_300 }),
            (json!(7), Unsure { until: 10_300 }),
        ] {
            let first = lease(said.clone());
            let found = Sightings::default().freshness(Some(&first), &age, 10_000);
            assert_eq!(found, expected, "{said}");
        }
        assert_eq!(sightings.freshness(None, &age, 0), Absent);
        let mut dying = lease(json!(7));
        dying.body["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:30Z");
        let found = Sightings::default().freshness(Some(&dying), &age, 10_000);
        assert_eq!(found, Unsure { until: 10_300 }, "it counts as it stands");
    }

    #[test]
    fn changes_count_from_their_observation_and_not_while_nothing_can_be_seen() {
        use Freshness::{Fresh, Unsure};
        let age = limit("spec.renewTime");
        let (one, other) = (lease(json!(1)), lease(json!(2)));
        for (observed, read, expected) in [
            (Observed::Present(&one), &one, Unsure { until: 300 }),
            (Observed::Present(&other), &other, Fresh { until: 400 }),
            // Read before the observation arrived.
            (Observed::Present(&one), &other, Fresh { until: 500 }),
            (Observed::Gone, &one, Unsure { until: 500 }),
            (Observed::Unreadable, &one, Unsure { until: 500 }),
        ] {
            let mut sightings = Sightings::default();
            sightings.observe(&one.reference, observed, 0);
            assert!(sightings.objects.is_empty(), "nobody asked for it");
            sightings.freshness(Some(&one), &age, 0);
            sightings.observe(&one.reference, observed, 100);
            let found = sightings.freshness(Some(read), &age, 200);
            assert_eq!(found, expected, "{observed:?}");
        }
    }

    #[test]
    fn only_so_many_fields_are_kept_and_only_of_objects_that_count() {
        let names: Vec<_> = (0..=MOST).map(|at| format!("spec.f{at}")).collect();
        let fields: Value = (0..=MOST).map(|at| (format!("f{at}"), json!(at))).collect();
        let asked = object(hosted("x"), json!({"spec": fields, "metadata": {}}));
        let (mut sightings, all) = (Sightings::default(), &asked.reference);
        for name in &names[..MOST] {
            assert!(sightings.has_room(all, name, |_| true));
            sightings.freshness(Some(&asked), &limit(name), 0);
        }
        // One more has no room, and takes none.
        assert!(!sightings.has_room(all, &names[MOST], |_| true));
        for name in &names[..MOST] {
            assert!(sightings.has_room(all, name, |_| false), "{name} is kept");
            let found = sightings.freshness(Some(&asked), &limit(name), 300);
            assert_eq!(found, Freshness::Stale { since: 300 }, "{name}");
        }
        // One that nobody asks for makes room.
        assert!(sightings.has_room(all, &names[MOST], |field| field != names[3]));
        assert_eq!(sightings.objects[all].len(), MOST - 1);
        sightings.keep(|object| *object == asked.reference);
        assert_eq!(sightings.objects.len(), 1);
        sightings.keep(|_| false);
        assert!(sightings.objects.is_empty());
    }
}
