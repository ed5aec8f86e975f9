//! What a reconcile saw of an object, to tell which changes need another reconcile: all of the object, some of its
//! fields, whether it exists, or an age.

use crate::contract::decide::{Age, Form, Need, Wake};
use crate::digest::Digest;
use crate::fingerprint;
use crate::inputs::age::Freshness;
use crate::inputs::sightings::Sightings;
use crate::object::Object;
use crate::projection::path::Path;
use std::sync::Arc;

/// What was seen of one object. By default nothing of it counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// It is not known yet what counts, so everything does.
    pending: bool,
    /// Whether the plan cannot go on because of it.
    hinders: bool,
    /// The fingerprint, if every change counts; none inside for an object that was not there, or whose state is not
    /// known.
    content: Option<Option<Digest>>,
    /// The fingerprint without the primary that keeps the object, for one that many share.
    shared: Option<Option<Digest>>,
    /// The fields that count of an object that others made, with their digest; none inside for one that was not there,
    /// or whose state is not known.
    fields: Option<(Arc<[Path]>, Option<Digest>)>,
    /// The data of a Secret under some keys, where only these crossed, with their digest.
    data: Vec<(Arc<[Path]>, Option<Digest>)>,
    /// Whether it was there, if that counts.
    presence: Option<bool>,
    ages: Vec<(Age, Freshness)>,
    /// The same by the changes that the agent saw.
    observed: Vec<(Age, Freshness)>,
}

/// What is observed of an object.
#[derive(Clone, Copy, Debug)]
pub enum Observed<'a> {
    /// It is there.
    Present(&'a Object),
    /// It is gone.
    Gone,
    /// It cannot be read now.
    Unreadable,
}

/// What an observation means to a reconcile that saw the object before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeDecision {
    /// It calls for another reconcile.
    Wakes,
    /// Only a time moved, which calls for one later.
    Moves,
    /// Nothing.
    Nothing,
}

/// The fingerprints of one observed object, each made once, when it is first needed; none when it is gone or
/// unreadable.
#[derive(Debug, Default)]
pub struct Fingerprints {
    whole: Option<Option<Digest>>,
    shared: Option<Option<Digest>>,
}

impl Fingerprints {
    /// That of the whole object.
    pub fn whole(&mut self, observed: Observed<'_>) -> Option<Digest> {
        let make = || observed.object().map(fingerprint::of);
        *self.whole.get_or_insert_with(make)
    }

    /// That without who keeps the object.
    fn shared(&mut self, observed: Observed<'_>) -> Option<Digest> {
        let make = || observed.object().map(fingerprint::of_shared);
        *self.shared.get_or_insert_with(make)
    }
}

impl<'a> Observed<'a> {
    /// The object, if it is there.
    pub fn object(self) -> Option<&'a Object> {
        match self {
            Self::Present(object) => Some(object),
            Self::Gone | Self::Unreadable => None,
        }
    }

    fn living(self) -> Option<&'a Object> {
        self.object().filter(|object| !object.deleting())
    }
}

impl Seen {
    /// An object that is about to be read, or waited for: any change counts.
    pub fn pending() -> Self {
        Self {
            pending: true,
            ..Self::default()
        }
    }

    /// Until it is read again, any change counts. What was seen of it stays.
    pub fn expect(&mut self) {
        self.pending = true;
    }

    /// The plan cannot go on because of it.
    pub fn hinders(&mut self) {
        self.hinders = true;
    }

    /// Whether a change counts that is told without what the object says: only where the plan waits for one.
    pub fn is_awaited(&self) -> bool {
        self.pending || self.hinders
    }

    /// The whole object, or its absence.
    pub fn whole(object: Option<&Object>) -> Self {
        Self {
            content: Some(object.map(fingerprint::of)),
            ..Self::default()
        }
    }

    /// Whether an object is there, even when it is being deleted.
    pub fn presence(object: Option<&Object>) -> Self {
        Self {
            presence: Some(object.is_some()),
            ..Self::default()
        }
    }

    /// An object that many share and another one keeps, or its absence.
    pub fn shared(object: Option<&Object>) -> Self {
        Self {
            shared: Some(object.map(fingerprint::of_shared)),
            ..Self::default()
        }
    }

    /// An object of which a policy writes fields: these, and whether it is there or being deleted.
    pub fn fields(fields: &Arc<[Path]>, object: Option<&Object>) -> Self {
        let digest = object.map(|object| fingerprint::of_fields(fields, object));
        Self {
            fields: Some((Arc::clone(fields), digest)),
            ..Self::default()
        }
    }

    /// The object of a need, as far as the need wakes. A time that cannot be read counts as the whole object does.
    /// `observed` is how long ago the agent saw a field of it change, where the need asks for that.
    pub fn of(
        need: &Need,
        object: Option<&Object>,
        observed: Option<Freshness>,
        now_seconds: i64,
    ) -> Self {
        let there = object.is_some_and(|object| !object.deleting());
        match (need.wake, &need.form) {
            (Wake::Never, _) => Self::default(),
            (Wake::Presence, _) => Self {
                presence: Some(there),
                ..Self::default()
            },
            (Wake::Change, Form::Age(age)) => match Freshness::of(object, age, now_seconds) {
                Ok(freshness) => Self {
                    ages: vec![(age.clone(), freshness)],
                    ..Self::default()
                },
                Err(_) => Self::whole(object),
            },
            (Wake::Change, Form::Observed(age)) => Self {
                observed: observed
                    .map(|seen| (age.clone(), seen))
                    .into_iter()
                    .collect(),
                ..Self::default()
            },
            (Wake::Change, Form::Secret(keys)) => Self::data(keys.iter(), object),
            (Wake::Change, Form::Certificate(keys)) => Self::data(keys.all(), object),
            (Wake::Change, _) => Self::whole(object),
        }
    }

    /// A Secret of which the data under some keys cross, or its absence.
    fn data<'a>(keys: impl Iterator<Item = &'a String>, object: Option<&Object>) -> Self {
        let data = Path::key("data");
        let paths: Arc<[Path]> = keys.map(|key| data.child(key)).collect();
        let digest = object.map(|object| fingerprint::of_fields(&paths, object));
        Self {
            data: vec![(paths, digest)],
            ..Self::default()
        }
    }

    /// Adds what was seen of the same object later.
    pub fn add(&mut self, later: Self) {
        self.pending = false;
        self.hinders |= later.hinders;
        self.content = later.content.or(self.content);
        self.shared = later.shared.or(self.shared);
        self.fields = later.fields.or(self.fields.take());
        self.presence = later.presence.or(self.presence);
        replace(&mut self.data, later.data);
        replace(&mut self.ages, later.ages);
        replace(&mut self.observed, later.observed);
    }

    /// Whether a need asks how long ago a field changed.
    pub fn observes(&self, field: &str) -> bool {
        self.observed.iter().any(|(age, _)| age.field == field)
    }

    /// Whether a change of the object may count.
    pub fn counts(&self) -> bool {
        *self != Self::default()
    }

    /// Takes in an object as it was written since; none when its state is not known: then any later state is a change.
    /// Its fingerprint counts unless only its presence or some fields do.
    pub fn written(&mut self, left: Option<&Object>, fingerprints: &mut Fingerprints) {
        for (keys, digest) in &mut self.data {
            *digest = left.map(|left| fingerprint::of_fields(keys, left));
        }
        match (&mut self.fields, left) {
            (Some((fields, digest)), Some(left)) if self.content.is_none() => {
                *digest = Some(fingerprint::of_fields(fields, left));
            }
            (None, Some(_)) if self.content.is_none() && self.presence.is_some() => {
                self.presence = Some(true);
            }
            (_, left) => {
                let whole = left.map(|left| fingerprints.whole(Observed::Present(left)));
                self.content = Some(whole.flatten());
            }
        }
    }

    /// What an observation means; `fingerprints` are those of the observed object. Takes in times that only moved.
    pub fn observe(
        &mut self,
        observed: Observed<'_>,
        fingerprints: &mut Fingerprints,
        sightings: &mut Sightings,
        now_seconds: i64,
    ) -> WakeDecision {
        if self.pending || matches!(observed, Observed::Unreadable) && self.counts() {
            return WakeDecision::Wakes;
        }
        let same = |seen: Option<Digest>, now: Option<Digest>| now.is_some() && now == seen;
        let differs = |seen| !same(seen, fingerprints.whole(observed));
        if self.content.is_some_and(differs) {
            return WakeDecision::Wakes;
        }
        let differs = |seen| !same(seen, fingerprints.shared(observed));
        if self.shared.is_some_and(differs) {
            return WakeDecision::Wakes;
        }
        let differs = |(fields, seen): &(Arc<[Path]>, _)| {
            let now = observed.object();
            *seen != now.map(|object| fingerprint::of_fields(fields, object))
        };
        if self.fields.iter().chain(&self.data).any(differs) {
            return WakeDecision::Wakes;
        }
        let there = observed.living().is_some();
        if self.presence.is_some_and(|seen| seen != there) {
            return WakeDecision::Wakes;
        }
        let object = observed.object();
        let mut meaning = WakeDecision::Nothing;
        let told = self.ages.iter_mut().map(|(age, seen)| {
            let now = Freshness::of(object, age, now_seconds);
            (seen, now.ok())
        });
        let observed = self.observed.iter_mut().map(|(age, seen)| {
            let now = sightings.freshness(object, age, now_seconds);
            (seen, Some(now))
        });
        for (seen, now) in told.chain(observed) {
            match now {
                Some(now) if !now.is_news(*seen) => {
                    if now != *seen {
                        meaning = WakeDecision::Moves;
                    }
                    *seen = now;
                }
                _ => return WakeDecision::Wakes,
            }
        }
        meaning
    }

    /// When time alone calls for another reconcile, in seconds since 1970.
    pub fn until(&self) -> Option<i64> {
        let ages = self.ages.iter().chain(&self.observed);
        ages.filter_map(|(_, seen)| seen.until()).min()
    }
}

/// Adds later entries, which replace earlier ones with the same key.
fn replace<K: PartialEq, T>(seen: &mut Vec<(K, T)>, later: Vec<(K, T)>) {
    seen.retain(|(one, _)| later.iter().all(|(other, _)| other != one));
    seen.extend(later);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::decide::Absence;
    use crate::contract::secrets::CertificateKeys;
    use crate::reference::ObjectRef;
    use crate::sample::object;
    use serde_json::{Value, json};

    fn lease(renewed: &str) -> Object {
        let reference = ObjectRef::local("coordination.k8s.io/v1", "Lease", Some("n"), "l");
        object(
            reference,
            json!({"spec": {"renewTime": renewed}, "metadata": {}}),
        )
    }

    fn need(form: Form, wake: Wake) -> Need {
        Need {
            role: "lease".to_owned(),
            reference: lease("").reference,
            form,
            absence: Absence::Fine,
            wake,
        }
    }

    fn age() -> Form {
        Form::Age(Age {
            field: "spec.renewTime".to_owned(),
            seconds: 300,
        })
    }

    fn meaning(seen: &mut Seen, observed: Observed<'_>, now_seconds: i64) -> WakeDecision {
        let sightings = &mut Sightings::default();
        seen.observe(
            observed,
            &mut Fingerprints::default(),
            sightings,
            now_seconds,
        )
    }

    fn of(need: &Need, object: Option<&Object>, now_seconds: i64) -> Seen {
        Seen::of(need, object, None, now_seconds)
    }

    #[test]
    fn of_a_shared_object_it_does_not_matter_who_keeps_it() {
        let role = |source: &str, rules: &str| {
            let body = json!({"rules": rules, "metadata": {"annotations": {"transom.dev/source": source}}});
            object(ObjectRef::local("r/v1", "ClusterRole", None, "x"), body)
        };
        let mut seen = Seen::shared(Some(&role("one", "a")));
        for (now, expected) in [
            (role("two", "a"), WakeDecision::Nothing),
            (role("one", "b"), WakeDecision::Wakes),
        ] {
            let there = Observed::Present(&now);
            assert_eq!(meaning(&mut seen, there, 0), expected);
        }
        assert_eq!(meaning(&mut seen, Observed::Gone, 0), WakeDecision::Wakes);
    }

    #[test]
    fn of_an_object_that_is_made_once_only_its_presence_counts() {
        let (now, other) = (lease("1970-01-01T00:00:10Z"), lease("1970-01-01T00:00:20Z"));
        let mut seen = Seen::presence(None);
        seen.written(Some(&now), &mut Fingerprints::default());
        for (observed, expected) in [
            (Observed::Present(&now), WakeDecision::Nothing),
            (Observed::Present(&other), WakeDecision::Nothing),
            (Observed::Gone, WakeDecision::Wakes),
        ] {
            assert_eq!(meaning(&mut seen, observed, 0), expected, "{observed:?}");
        }
        // What the write left is not known.
        seen.written(None, &mut Fingerprints::default());
        assert_eq!(
            meaning(&mut seen, Observed::Present(&now), 0),
            WakeDecision::Wakes
        );
    }

    #[test]
    fn an_own_write_is_news_for_what_a_need_saw() {
        let now = lease("1970-01-01T00:00:10Z");
        let aged = |seen: &Seen, left: &Object, now_seconds| {
            let now = Observed::Present(left);
            meaning(&mut seen.clone(), now, now_seconds) == WakeDecision::Wakes
        };
        let Form::Age(limit) = age() else {
            unreachable!()
        };
        let observed = need(Form::Observed(limit), Wake::Change);
        let observed = Seen::of(&observed, None, Some(Freshness::Absent), 20);
        assert!(aged(&observed, &now, 20));
        let need = need(age(), Wake::Change);
        let seen = of(&need, None, 20);
        assert!(aged(&seen, &now, 20));
        let seen = of(&need, Some(&now), 20);
        assert!(!aged(&seen, &lease("1970-01-01T00:00:20Z"), 20));
        assert!(aged(&seen, &now, 310));
        // A guest that makes an object and asks for it is told that it is there.
        assert!(aged(&Seen::presence(None), &now, 20));
        assert!(!aged(&Seen::presence(Some(&now)), &now, 20));
        assert!(aged(&Seen::whole(None), &now, 20));
        assert!(aged(
            &Seen::whole(Some(&now)),
            &lease("1970-01-01T00:00:20Z"),
            20
        ));
        assert!(!aged(&Seen::whole(Some(&now)), &now, 20));
        // And one that removes what a need saw, that it is gone.
        for mut seen in [Seen::presence(Some(&now)), Seen::whole(Some(&now)), seen] {
            assert_eq!(meaning(&mut seen, Observed::Gone, 20), WakeDecision::Wakes);
        }
        // A target that is made once, with what a need saw of it.
        let mut seen = Seen::presence(None);
        seen.add(of(&need, None, 20));
        assert!(aged(&seen, &now, 20));
        seen.written(Some(&now), &mut Fingerprints::default());
        let beat = lease("1970-01-01T00:00:20Z");
        let there = Observed::Present(&beat);
        assert_eq!(meaning(&mut seen, there, 20), WakeDecision::Wakes);
        assert_eq!(meaning(&mut seen, there, 20), WakeDecision::Wakes);
    }

    #[test]
    fn of_an_object_of_others_only_what_is_written_of_it_counts() {
        let path = |text: &str| Path::parse(text).unwrap();
        let fields: Arc<[Path]> = Arc::new([
            path("spec.x"),
            path("status.conditions[Ours]"),
            path("metadata.labels[\"a.b/c-*\"]"),
        ]);
        let reference = lease("").reference;
        let addon = |x: &str, ours: &str, theirs: &str, labels: Value| {
            let conditions =
                json!([{"type": "Ours", "status": ours}, {"type": "Theirs", "status": theirs}]);
            let body = json!({"spec": {"x": x, "beat": theirs}, "status": {"conditions": conditions},
                "metadata": {"labels": labels}});
            object(reference.clone(), body)
        };
        let before = addon("1", "True", "True", json!({"a.b/c-1": "x"}));
        let mut dying = before.clone();
        dying.body["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:30Z");
        let mut again = before.clone();
        again.body["metadata"]["uid"] = json!("another");
        let mut seen = Seen::fields(&fields, Some(&before));
        for (now, expected) in [
            (
                addon("1", "True", "False", json!({"a.b/c-1": "x", "beat": "2"})),
                WakeDecision::Nothing,
            ),
            (
                addon("2", "True", "True", json!({"a.b/c-1": "x"})),
                WakeDecision::Wakes,
            ),
            (
                addon("1", "False", "True", json!({"a.b/c-1": "x"})),
                WakeDecision::Wakes,
            ),
            (
                addon("1", "True", "True", json!({"a.b/c-1": "y"})),
                WakeDecision::Wakes,
            ),
            (
                addon("1", "True", "True", json!({"a.b/c-1": "x", "a.b/c-2": "y"})),
                WakeDecision::Wakes,
            ),
            (addon("1", "True", "True", json!({})), WakeDecision::Wakes),
            (dying, WakeDecision::Wakes),
            (again, WakeDecision::Wakes),
        ] {
            let there = Observed::Present(&now);
            assert_eq!(meaning(&mut seen, there, 0), expected, "{}", now.body);
        }
        assert_eq!(meaning(&mut seen, Observed::Gone, 0), WakeDecision::Wakes);
        // What the policy wrote itself is no news, and what others wrote since is.
        let after = addon("2", "True", "True", json!({}));
        seen.written(Some(&after), &mut Fingerprints::default());
        let beats = addon("2", "True", "False", json!({}));
        for (now, expected) in [
            (&beats, WakeDecision::Nothing),
            (&before, WakeDecision::Wakes),
        ] {
            assert_eq!(meaning(&mut seen, Observed::Present(now), 0), expected);
        }
        seen.written(None, &mut Fingerprints::default());
        assert_eq!(
            meaning(&mut seen, Observed::Present(&after), 0),
            WakeDecision::Wakes
        );
        let mut absent = Seen::fields(&fields, None);
        assert_eq!(
            meaning(&mut absent, Observed::Gone, 0),
            WakeDecision::Nothing
        );
        assert_eq!(
            meaning(&mut absent, Observed::Present(&after), 0),
            WakeDecision::Wakes
        );
    }

    #[test]
    fn of_a_secret_only_the_keys_that_cross_count() {
        let keys = CertificateKeys {
            certificate: "tls.crt".to_owned(),
            private_key: Some("tls.key".to_owned()),
        };
        let secret = |crt: &str, other: &str| {
            let reference = ObjectRef::local("v1", "Secret", Some("n"), "s");
            let data = json!({"tls.crt": crt, "tls.key": "k", "other": other});
            object(
                reference,
                json!({"metadata": {"labels": {"l": other}}, "data": data}),
            )
        };
        let before = secret("1", "1");
        let mut dying = before.clone();
        dying.body["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:30Z");
        for form in [
            Form::Certificate(keys.clone()),
            Form::Secret(keys.all().cloned().collect()),
        ] {
            let need = need(form, Wake::Change);
            let mut seen = of(&need, Some(&before), 0);
            for (now, expected) in [
                (secret("1", "2"), WakeDecision::Nothing),
                (secret("2", "1"), WakeDecision::Wakes),
                (dying.clone(), WakeDecision::Wakes),
            ] {
                let there = Observed::Present(&now);
                assert_eq!(meaning(&mut seen, there, 0), expected, "{}", now.body);
            }
            assert_eq!(meaning(&mut seen, Observed::Gone, 0), WakeDecision::Wakes);
            // Two needs for different keys of one Secret, and the same need again.
            let other = Form::Secret(vec!["other".to_owned()]);
            seen.add(of(&self::need(other, Wake::Change), Some(&before), 0));
            let now = secret("1", "2");
            assert_eq!(
                meaning(&mut seen, Observed::Present(&now), 0),
                WakeDecision::Wakes
            );
            seen.add(of(&need, Some(&secret("2", "1")), 0));
            let now = secret("2", "1");
            assert_eq!(
                meaning(&mut seen, Observed::Present(&now), 0),
                WakeDecision::Nothing
            );
        }
    }

    #[test]
    fn each_wake_counts_what_it_says() {
        let (one, other) = (lease("1970-01-01T00:00:10Z"), lease("1970-01-01T00:00:20Z"));
        let mut dying = one.clone();
        dying.body["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:30Z");
        for (wake, changed, gone) in [
            (Wake::Change, WakeDecision::Wakes, WakeDecision::Wakes),
            (Wake::Presence, WakeDecision::Nothing, WakeDecision::Wakes),
            (Wake::Never, WakeDecision::Nothing, WakeDecision::Nothing),
        ] {
            let mut seen = of(&need(Form::Object, wake), Some(&one), 0);
            assert_eq!(seen.counts(), wake != Wake::Never);
            for (observed, expected) in [
                (Observed::Present(&one), WakeDecision::Nothing),
                (Observed::Present(&other), changed),
                (Observed::Present(&dying), gone),
                (Observed::Gone, gone),
                (Observed::Unreadable, gone),
            ] {
                assert_eq!(
                    meaning(&mut seen, observed, 0),
                    expected,
                    "{wake:?} {observed:?}"
                );
            }
        }
        let mut absent = of(&need(Form::Presence, Wake::Presence), None, 0);
        assert_eq!(
            meaning(&mut absent, Observed::Gone, 0),
            WakeDecision::Nothing
        );
        assert_eq!(
            meaning(&mut absent, Observed::Present(&one), 0),
            WakeDecision::Wakes
        );
        assert_eq!(
            meaning(&mut Seen::pending(), Observed::Present(&one), 0),
            WakeDecision::Wakes
        );
    }

    #[test]
    fn a_heartbeat_moves_the_time_and_wakes_nobody() {
        let mut seen = of(
            &need(age(), Wake::Change),
            Some(&lease("1970-01-01T00:01:00Z")),
            100,
        );
        assert_eq!(seen.until(), Some(360));
        for (renewed, now, expected, until) in [
            ("1970-01-01T00:02:00Z", 130, WakeDecision::Moves, Some(420)),
            (
                "1970-01-01T00:02:00Z",
                140,
                WakeDecision::Nothing,
                Some(420),
            ),
            ("1970-01-01T00:02:00Z", 420, WakeDecision::Wakes, Some(420)),
            ("never", 140, WakeDecision::Wakes, Some(420)),
        ] {
            let observed = lease(renewed);
            let said = meaning(&mut seen, Observed::Present(&observed), now);
            assert_eq!(
                (said, seen.until()),
                (expected, until),
                "{renewed} at {now}"
            );
        }
        assert_eq!(meaning(&mut seen, Observed::Gone, 140), WakeDecision::Wakes);
    }

    #[test]
    fn a_heartbeat_that_is_observed_moves_the_time_whatever_it_says() {
        let age = Age {
            field: "spec.renewTime".to_owned(),
            seconds: 300,
        };
        let need = need(Form::Observed(age.clone()), Wake::Change);
        let of = |lease: Object, sightings: &mut Sightings, now| {
            let observed = sightings.freshness(Some(&lease), &age, now);
            Seen::of(&need, Some(&lease), Some(observed), now)
        };
        let sightings = &mut Sightings::default();
        let mut seen = of(lease("never"), sightings, 0);
        assert_eq!(seen.until(), Some(300));
        let fingerprints = &mut Fingerprints::default();
        let moved = lease("now");
        let said = seen.observe(Observed::Present(&moved), fingerprints, sightings, 100);
        assert_eq!(said, WakeDecision::Wakes, "it is seen to move");
        let mut seen = of(moved, sightings, 150);
        assert_eq!(seen.until(), Some(400));
        let mut observe = |renewed: &str, now| {
            let there = lease(renewed);
            let fingerprints = &mut Fingerprints::default();
            let said = seen.observe(Observed::Present(&there), fingerprints, sightings, now);
            (said, seen.until())
        };
        for (renewed, now, expected, until) in [
            ("now", 200, WakeDecision::Nothing, Some(400)),
            ("ever", 200, WakeDecision::Moves, Some(500)),
            ("ever", 499, WakeDecision::Nothing, Some(500)),
            ("ever", 500, WakeDecision::Wakes, Some(500)),
        ] {
            assert_eq!(
                observe(renewed, now),
                (expected, until),
                "{renewed} at {now}"
            );
        }
        // A reconcile sees that it is stale, and the next heartbeat wakes.
        let mut seen = of(lease("ever"), sightings, 500);
        assert_eq!(seen.until(), None);
        let fingerprints = &mut Fingerprints::default();
        let beats = lease("again");
        let said = seen.observe(Observed::Present(&beats), fingerprints, sightings, 600);
        assert_eq!(said, WakeDecision::Wakes);
    }

    #[test]
    fn several_needs_of_one_object_count_together() {
        let mut seen = Seen::pending();
        seen.add(of(&need(age(), Wake::Change), None, 0));
        seen.add(of(&need(Form::Presence, Wake::Presence), None, 0));
        assert_eq!(meaning(&mut seen, Observed::Gone, 0), WakeDecision::Nothing);
        seen.add(Seen::whole(Some(&lease(""))));
        assert_eq!(
            meaning(&mut seen, Observed::Present(&lease("x")), 0),
            WakeDecision::Wakes
        );
    }
}
