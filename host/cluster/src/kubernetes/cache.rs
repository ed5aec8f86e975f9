//! The cache of a cluster: one store of objects per watch, queried together. Does no I/O.

mod change;
#[cfg(test)]
#[path = "cache/model/tests.rs"]
mod model;
mod succession;

use super::decode;
use super::store::{KeptContent, Moment, ObjectFault, StoredObject, key, newer, parts};
use super::watched::Watched;
use crate::ReadFailure;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::observation::{Unreadable, Unwatched};
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::watches::Scope;

/// What the cache knows of an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum KnownObject {
    /// The object exists, at this version.
    There(Box<str>, KeptContent),
    /// The object does not exist.
    Absent,
    /// The object must be requested.
    Unknown,
}

/// The cache of a cluster.
pub(super) struct Cache {
    /// Name of the connection.
    cluster: String,
    /// Every watch.
    pub(super) watches: Vec<Watched>,
    /// Logical clock: advances with every merged answer and every restore of the server.
    moment: Moment,
    /// The moment at which versions last went back, because the server was restored from a backup.
    restored: Moment,
}

/// The moment at which a request was sent. Its answer is compared with what the cache learnt since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentAt(Moment);

impl Cache {
    /// An empty cache.
    pub(super) fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            watches: Vec::new(),
            moment: 0,
            restored: 0,
        }
    }

    /// The watch with a number.
    pub(super) fn watch(&mut self, number: u64) -> Option<&mut Watched> {
        self.watches
            .iter_mut()
            .find(|watched| watched.number == number)
    }

    /// The watches that are wanted.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &Watched> {
        self.watches.iter().filter(|watched| !watched.retiring)
    }

    /// Whether a watch of before still answers reads of its kind: what that keeps may be less than is needed now.
    pub(super) fn is_served_before(&self, watched: &Watched) -> bool {
        let mut before = self.watches.iter().filter(|one| one.retiring);
        before.any(|one| one.is_of_kind(&watched.scope))
    }

    /// The watches that cover a scope.
    pub(super) fn covering(&self, scope: &Scope) -> impl Iterator<Item = &Watched> {
        let covers = |watched: &&Watched| watched.scope.holds(scope);
        self.watches.iter().filter(covers)
    }

    /// The reference of the object of a scope with a key.
    pub(super) fn reference(&self, scope: &Scope, key: &str) -> ObjectRef {
        let (namespace, name) = parts(key);
        ObjectRef {
            cluster: self.cluster.clone(),
            api_version: scope.api_version.clone(),
            kind: scope.kind.clone(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// What is known of an object for certain: from watches that were listed completely.
    pub(super) fn find(&self, reference: &ObjectRef) -> KnownObject {
        match self.latest(reference, |watched| watched.synced) {
            // It is there; what it says is not kept.
            Some(kept) if kept.content == KeptContent::Name => KnownObject::Unknown,
            // The server was restored: a write at no version would overwrite whatever is there.
            Some(kept) if kept.version.is_empty() => KnownObject::Unknown,
            Some(kept) => KnownObject::There(kept.version.clone(), kept.content.clone()),
            None if self.knows_all(reference) => KnownObject::Absent,
            None => KnownObject::Unknown,
        }
    }

    /// The version of an object that is known to exist, even if only its name is kept.
    pub(super) fn version(&self, reference: &ObjectRef) -> Option<Box<str>> {
        let kept = self.latest(reference, |watched| watched.synced)?;
        Some(kept.version.clone())
    }

    /// Whether an object does not exist if it is in no store.
    fn knows_all(&self, reference: &ObjectRef) -> bool {
        let all = || self.about(reference);
        let with_another = |one: &Watched| all().any(|other| one.know_all(other));
        all().any(|one| one.knows_all() || with_another(one))
    }

    /// The last known state of an object, also from watches that are still being listed.
    pub(super) fn heard(&self, reference: &ObjectRef) -> KnownObject {
        let heard = self.latest(reference, |watched| !watched.keep.names_only);
        heard.map_or(KnownObject::Unknown, |kept| {
            KnownObject::There(kept.version.clone(), kept.content.clone())
        })
    }

    /// Whether an object is there as far as the watches tell that keep only names.
    pub(super) fn has_name(&self, reference: &ObjectRef) -> bool {
        let named = self.latest(reference, |watched| watched.keep.names_only);
        named.is_some()
    }

    fn latest(
        &self,
        reference: &ObjectRef,
        of: impl Fn(&Watched) -> bool,
    ) -> Option<&StoredObject> {
        let key = key(reference.namespace.as_deref(), &reference.name);
        let kept = self
            .about(reference)
            .filter(|watched| of(watched))
            .filter_map(|watched| watched.store.get(&key));
        kept.reduce(later)
    }

    /// Cuts an object to the fields that the watches of its kind keep; leaves it whole if no watch covers it.
    pub(super) fn projected(&self, mut object: Object) -> Object {
        let watched = self
            .about(&object.reference)
            .find(|watched| !watched.retiring);
        if let Some(watched) = watched {
            object.body = watched.keep.project(object.body);
        }
        object
    }

    /// The watches whose scope and wildcards cover an object's name. Selectors are not checked.
    pub(super) fn about<'a, 'b>(
        &'a self,
        reference: &'b ObjectRef,
    ) -> impl Iterator<Item = &'a Watched> + use<'a, 'b> {
        let covers = |watched: &&Watched| watched.covers(reference);
        self.watches.iter().filter(covers)
    }

    /// The objects of a kind in a namespace, or in all, whose labels are selected; without duplicates.
    pub(super) fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        labels: &Selector,
    ) -> Vec<ObjectRef> {
        let asked = Scope {
            namespace: namespace.map(str::to_owned),
            ..Scope::all(api_version, kind)
        };
        // A list that is under way may be older than what a watch has told since.
        let is_listed = self.covering(&asked).any(|one| one.synced);
        let counts = |one: &Watched| one.is_of_kind(&asked) && (one.synced || !is_listed);
        let selected = |kept: &StoredObject| labels.is_empty() || selects(labels, kept);
        self.objects(namespace, counts, selected)
    }

    /// Checks that one of the watches that cover a scope was listed completely.
    pub(super) fn complete(&self, scope: &Scope) -> Result<(), ReadFailure> {
        let failed = |reason, why: &str| {
            let message = format!("failed to list {}: {why}", scope.kind);
            Err(ReadFailure { reason, message })
        };
        let unlisted = KnownReason::ServerUnavailable;
        let listed = |watched: &Watched| match &watched.failure {
            _ if watched.is_missing() => Ok(()),
            Some(fault) if !watched.answered => failed(fault.reason, &fault.message),
            _ if watched.synced => Ok(()),
            _ => failed(unlisted, "the list is not complete yet"),
        };
        self.covering(scope)
            .map(listed)
            .reduce(|first, next| first.or_else(|why| next.map_err(|_| why)))
            .unwrap_or_else(|| failed(unlisted, "it is not watched yet"))
    }

    /// The objects of some watches that carry the agent's label; without duplicates.
    pub(super) fn ours(&self, watched: impl Fn(&Scope) -> bool) -> Vec<ObjectRef> {
        self.objects(None, |one| watched(&one.scope), |kept| kept.ours)
    }

    /// The objects of some watches that pass a test; sorted, without duplicates.
    fn objects(
        &self,
        namespace: Option<&str>,
        watched: impl Fn(&Watched) -> bool,
        pass: impl Fn(&StoredObject) -> bool,
    ) -> Vec<ObjectRef> {
        let mut found = Vec::new();
        let kept = |one: &&Watched| !one.keep.names_only && watched(one);
        for one in self.watches.iter().filter(kept) {
            let objects = one.store.iter(namespace).filter(|(_, kept)| pass(kept));
            found.extend(objects.map(|(key, _)| self.reference(&one.scope, key)));
        }
        found.sort();
        found.dedup();
        found
    }

    /// Every watch that cannot be followed now, and every object that cannot be used now.
    pub(super) fn unreadable(&self) -> Vec<Unreadable> {
        // Each count of a set asks for this: nearly always there is nothing to walk through.
        let failing = self.wanted().filter(|watched| watched.failure.is_some());
        let watches = failing.filter_map(|watched| self.unreadable_watch(&watched.scope));
        let has_faults = |watched: &Watched| watched.store.has_faults();
        let objects = self.objects(None, has_faults, StoredObject::is_faulty);
        let objects = objects.iter().filter_map(|one| self.unreadable_object(one));
        watches.chain(objects).collect()
    }

    /// The failure of a watch that cannot be followed now.
    pub(super) fn unreadable_watch(&self, scope: &Scope) -> Option<Unreadable> {
        let watched = self.wanted().find(|watched| *watched.scope == *scope)?;
        let ObjectFault { reason, message } = watched.failure.clone()?;
        Some(Unreadable {
            place: self.place(scope),
            reason,
            message,
            unwatched: self.unwatched(scope),
            objects: Vec::new(),
        })
    }

    /// What is not watched while the watch of a scope fails.
    pub(super) fn unwatched(&self, scope: &Scope) -> Unwatched {
        Unwatched::Kind {
            cluster: self.cluster.clone(),
            api_version: scope.api_version.clone(),
            kind: scope.kind.clone(),
        }
    }

    /// The fault of an object that cannot be used now.
    pub(super) fn unreadable_object(&self, reference: &ObjectRef) -> Option<Unreadable> {
        let KnownObject::There(_, KeptContent::Fault(fault)) = self.find(reference) else {
            return None;
        };
        let message = format!("failed to read {reference}: {}", fault.message);
        Some(Unreadable {
            place: reference.to_string(),
            reason: fault.reason,
            message,
            unwatched: Unwatched::Part,
            objects: vec![reference.clone().into()],
        })
    }

    /// Name of a watch in messages: its kind and its bounds.
    pub(super) fn place(&self, scope: &Scope) -> String {
        let mut place = match self.cluster.as_str() {
            "" | transom_core::reference::LOCAL => String::new(),
            cluster => format!("{cluster}: "),
        };
        place += &format!("watch of {} ({})", scope.kind, scope.api_version);
        let labels = scope.labels.as_ref().map(ToString::to_string);
        let bounds = [
            ("namespace", &scope.namespace),
            ("name", &scope.name),
            ("fields", &scope.fields),
            ("labels", &labels),
        ];
        for (what, bound) in bounds {
            if let Some(bound) = bound {
                place += &format!(", {what} {bound}");
            }
        }
        place
    }
}

/// Whether the labels of an object are selected; true for one that cannot be used, because they are not known.
fn selects(labels: &Selector, kept: &StoredObject) -> bool {
    let KeptContent::Body(bytes) = &kept.content else {
        return true;
    };
    let there = decode::labels(bytes, |key| labels.has(key));
    labels.selects(|key| there.get(key))
}

/// The newer of two states of an object; at one version, the one that says more.
fn later<'a>(one: &'a StoredObject, other: &'a StoredObject) -> &'a StoredObject {
    // One watch may have room for an object for which another one has none.
    let rank = |state: &StoredObject| match state.content {
        KeptContent::Name => 0,
        KeptContent::Fault(_) => 1,
        KeptContent::Body(_) => 2,
    };
    let says_more = other.version == one.version && rank(other) > rank(one);
    if says_more || newer(&other.version, &one.version) {
        other
    } else {
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::shared::{ServerNews, Topic};
    use crate::kubernetes::store::{Item, Store};
    use serde_json::json;
    use std::sync::Arc;
    use transom_core::watches::Keep;

    const OPAQUE: u64 = 1;
    const EXACT: u64 = 2;
    const NEXT: u64 = 3;

    fn scope(name: Option<&str>, fields: Option<&str>) -> Arc<Scope> {
        let (name, fields) = (name.map(str::to_owned), fields.map(str::to_owned));
        let (api_version, kind) = ("v1".to_owned(), "Secret".to_owned());
        Arc::new(Scope {
            api_version,
            kind,
            namespace: None,
            name,
            fields,
            labels: None,
        })
    }

    /// Watches all Secrets of a type, and one name: both may cover an object.
    fn cache() -> Cache {
        let mut cache = Cache::new("local");
        for (number, scope) in [
            (OPAQUE, scope(None, Some("type=Opaque"))),
            (EXACT, scope(Some("made"), None)),
        ] {
            let keep = Keep {
                namespaces: ["n*"].into(),
                ..Keep::default()
            };
            cache.watches.push(Watched::new(number, scope, keep));
            cache.begin(number);
            cache.listed(number, "1");
        }
        cache.retire();
        cache
    }

    fn event(cache: &mut Cache, number: u64, item: Item) -> String {
        let version = item.version.clone();
        told(&cache.told(number, &version, Some(item)))
    }

    fn answered(cache: &mut Cache, object: &Object) -> String {
        let asked = cache.asked();
        told(&cache.answered(object, asked))
    }

    fn secret(name: &str) -> ObjectRef {
        ObjectRef::local("v1", "Secret", Some("n"), name)
    }

    fn object(name: &str, version: u32, text: &str) -> Object {
        let version = version.to_string();
        let body = json!({"type": "Opaque", "data": {"k": text},
            "metadata": {"name": name, "namespace": "n", "resourceVersion": version}});
        Object {
            reference: secret(name),
            version,
            body,
        }
    }

    fn item(name: &str, version: u32, text: &str) -> Item {
        decode::kept(object(name, version, text), &Keep::default())
    }

    fn faulty_item(name: &str, version: u32) -> Item {
        let fault = ObjectFault {
            reason: KnownReason::ObjectTooLarge,
            message: "m".to_owned(),
        };
        Item {
            content: KeptContent::Fault(fault.into()),
            ..item(name, version, "")
        }
    }

    /// Events as text: `=` changed, `-` gone, `!` usable or not.
    fn told(news: &[ServerNews]) -> String {
        let one = |ServerNews { topic, gone }: &ServerNews| match topic {
            Topic::Object(reference) => {
                format!("{}{}", if *gone { '-' } else { '=' }, reference.name)
            }
            Topic::Name(reference) => format!("={}", reference.name),
            Topic::Fault(reference) => format!("!{}", reference.name),
            Topic::Watch(_) => "watch".to_owned(),
            Topic::Answer(_) => "answer".to_owned(),
        };
        news.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_object_in_two_watches_is_stored_once() {
        let mut cache = cache();
        assert_eq!(event(&mut cache, OPAQUE, item("made", 5, "x")), "=made");
        assert_eq!(event(&mut cache, EXACT, item("made", 5, "x")), "");
        assert_eq!(event(&mut cache, EXACT, item("made", 6, "y")), "=made");
        let KnownObject::There(version, _) = cache.find(&secret("made")) else {
            panic!()
        };
        assert_eq!(
            (
                &*version,
                cache.list("v1", "Secret", None, &Selector::default())
            ),
            ("6", vec![secret("made")])
        );
        // Its type changed, but the watch of its name still covers it.
        assert_eq!(told(&cache.apply_deletion(OPAQUE, "6", Some("n/made"))), "");
        assert_eq!(
            told(&cache.apply_deletion(EXACT, "7", Some("n/made"))),
            "-made"
        );
    }

    #[test]
    fn reports_a_first_list_only_when_complete_even_after_a_failure() {
        let mut cache = Cache::new("local");
        cache.watches.push(Watched::new(
            OPAQUE,
            scope(None, Some("type=Opaque")),
            Keep::default(),
        ));
        cache.begin(OPAQUE);
        assert_eq!(told(&cache.put(OPAQUE, item("a", 5, "x"))), "");
        // The list fails and begins again.
        cache.begin(OPAQUE);
        for name in ["a", "b"] {
            assert_eq!(told(&cache.put(OPAQUE, item(name, 5, "x"))), "");
        }
        assert_eq!(told(&cache.listed(OPAQUE, "9")), "=a =b");
        // `settle` does not wait for a watch that begins later.
        cache
            .watches
            .push(Watched::new(EXACT, scope(Some("a"), None), Keep::default()));
        cache.begin(EXACT);
        assert_eq!(told(&cache.put(EXACT, item("a", 9, "y"))), "=a");
        cache.begin(OPAQUE);
        assert_eq!(told(&cache.put(OPAQUE, item("c", 10, "x"))), "=c");
        assert_eq!(
            told(&cache.listed(OPAQUE, "11")),
            "-b",
            "the other watch still has a"
        );
    }

    #[test]
    fn readiness_of_a_watch_ignores_the_state_before_the_server_answered() {
        let mut watched = Watched::new(OPAQUE, scope(None, None), Keep::default());
        assert!(!watched.is_settled(false) && !watched.is_settled(true));
        let failure = Some(ObjectFault {
            reason: KnownReason::ServerUnavailable,
            message: String::new(),
        });
        (watched.failure, watched.away) = (failure, true);
        assert!(watched.is_settled(false) && !watched.is_settled(true));
        watched.away = false;
        assert!(watched.is_settled(true));
        (watched.failure, watched.synced) = (None, true);
        assert!(watched.is_settled(true));
    }

    #[test]
    fn absence_is_known_only_where_everything_is_watched() {
        let mut cache = cache();
        assert_eq!(cache.find(&secret("made")), KnownObject::Absent);
        assert_eq!(cache.find(&secret("other")), KnownObject::Unknown);
        assert_eq!(
            cache.find(&ObjectRef::local("v1", "Secret", Some("x"), "made")),
            KnownObject::Unknown
        );
        event(&mut cache, EXACT, item("made", 5, "x"));
        let exact = cache.watch(EXACT).unwrap();
        exact.synced = false;
        assert_eq!(cache.find(&secret("made")), KnownObject::Unknown);
        assert!(matches!(
            cache.heard(&secret("made")),
            KnownObject::There(..)
        ));
        let exact = cache.watch(EXACT).unwrap();
        exact.store = Store::default();
        exact.failure = Some(ObjectFault {
            reason: KnownReason::KindMissing,
            message: String::new(),
        });
        assert_eq!(cache.find(&secret("made")), KnownObject::Absent);
    }

    #[test]
    fn of_an_object_whose_name_alone_is_kept_it_is_told_that_it_changes() {
        let mut cache = cache();
        cache.watch(EXACT).unwrap().keep.names_only = true;
        assert_eq!(event(&mut cache, EXACT, item("made", 5, "x")), "");
        assert_eq!(event(&mut cache, EXACT, item("made", 5, "x")), "");
        assert_eq!(event(&mut cache, EXACT, item("made", 6, "y")), "=made");
        assert!(cache.has_name(&secret("made")) && !cache.has_name(&secret("other")));
        // Who asked knows the answer; the others learn it by the watch.
        let mut answer = object("made", 7, "z");
        answer.body["type"] = "kubernetes.io/tls".into();
        assert_eq!(answered(&mut cache, &answer), "");
        assert_eq!(event(&mut cache, EXACT, item("made", 7, "z")), "=made");
        // So does what was missed while nothing was watched.
        cache.begin(EXACT);
        assert_eq!(told(&cache.put(EXACT, item("made", 7, "z"))), "");
        cache.begin(EXACT);
        assert_eq!(told(&cache.put(EXACT, item("made", 9, "z"))), "=made");
        // Of what another watch keeps whole, that one tells.
        assert_eq!(event(&mut cache, OPAQUE, item("made", 9, "z")), "=made");
        assert_eq!(event(&mut cache, EXACT, item("made", 10, "y")), "");
    }

    #[test]
    fn no_change_between_two_watches_of_names_is_lost() {
        let mut cache = Cache::new("local");
        let names = |names: [&str; 2]| Keep {
            names: names.into(),
            names_only: true,
            ..Keep::default()
        };
        let mut lists = |number, keep: &Keep, versions: [u32; 2]| {
            let wanted = [((*scope(None, None)).clone(), keep.clone())];
            drop(cache.wants(wanted.into()));
            let watched = Watched::new(number, scope(None, None), keep.clone());
            cache.watches.push(watched);
            cache.begin(number);
            for (name, version) in ["same", "made"].into_iter().zip(versions) {
                cache.put(number, item(name, version, "x"));
            }
            let news = cache.listed(number, "9");
            told(&news) + &told(&cache.retire())
        };
        assert_eq!(lists(EXACT, &names(["same", "made"]), [5, 6]), "");
        assert_eq!(lists(NEXT, &names(["same", "m*"]), [5, 8]), "=made");
    }

    #[test]
    fn of_an_object_whose_name_alone_is_kept_it_is_told_that_it_goes() {
        let mut cache = cache();
        let exact = cache.watch(EXACT).unwrap();
        exact.keep.names_only = true;
        assert_eq!(event(&mut cache, EXACT, item("made", 5, "x")), "");
        let goes = |cache: &mut Cache, version| {
            let news = cache.apply_deletion(EXACT, version, Some("n/made"));
            told(&news)
        };
        assert_eq!(goes(&mut cache, "7"), "-made");
        // One that is made ours leaves such a watch for another one.
        event(&mut cache, EXACT, item("made", 8, "x"));
        assert_eq!(event(&mut cache, OPAQUE, item("made", 9, "y")), "=made");
        assert_eq!(goes(&mut cache, "9"), "");
        // A list that no longer has it says the same as an event.
        event(&mut cache, EXACT, item("listed", 10, "x"));
        cache.begin(EXACT);
        assert_eq!(told(&cache.listed(EXACT, "11")), "-listed");
    }

    #[test]
    fn own_writes_are_visible_at_once_and_older_events_are_ignored() {
        let mut cache = cache();
        event(&mut cache, OPAQUE, item("a", 5, "x"));
        assert_eq!(answered(&mut cache, &object("a", 8, "ours")), "=a");
        assert_eq!(event(&mut cache, OPAQUE, item("a", 7, "theirs")), "");
        assert_eq!(event(&mut cache, OPAQUE, item("a", 8, "ours")), "");
        assert_eq!(answered(&mut cache, &object("made", 9, "ours")), "=made");
        let asked = cache.asked();
        assert_eq!(
            told(&cache.answered_gone(&secret("made"), "9", asked)),
            "-made"
        );
        assert_eq!(event(&mut cache, EXACT, item("made", 9, "late")), "");
        assert_eq!(cache.find(&secret("made")), KnownObject::Absent);
    }

    #[test]
    fn a_late_write_response_does_not_revive_a_deleted_object() {
        let mut cache = cache();
        let asked = cache.asked();
        event(&mut cache, EXACT, item("made", 8, "ours"));
        assert_eq!(
            told(&cache.apply_deletion(EXACT, "9", Some("n/made"))),
            "-made"
        );
        event(&mut cache, OPAQUE, item("other", 10, "x"));
        assert_eq!(told(&cache.answered(&object("made", 8, "ours"), asked)), "");
        assert_eq!(
            (
                cache.find(&secret("made")),
                cache.is_unconfirmed(&secret("made"))
            ),
            (KnownObject::Absent, false)
        );
    }

    #[test]
    fn an_answer_about_another_kind_takes_no_object_of_its_name_away() {
        let mut cache = cache();
        // As a Namespace that is made for a ManagedCluster of its name, before the watch tells of the latter.
        answered(&mut cache, &object("made", 8, "ours"));
        let other = Object {
            reference: ObjectRef::local("v1", "ConfigMap", Some("n"), "made"),
            ..object("made", 9, "")
        };
        assert_eq!(answered(&mut cache, &other), "");
        let is_there =
            |cache: &Cache| matches!(cache.find(&secret("made")), KnownObject::There(..));
        assert!(is_there(&cache));
        event(&mut cache, OPAQUE, item("made", 8, "ours"));
        event(&mut cache, EXACT, item("made", 8, "ours"));
        assert!(is_there(&cache) && !cache.is_unconfirmed(&secret("made")));
    }

    #[test]
    fn an_object_known_from_a_response_stays_unconfirmed_until_watched() {
        let mut cache = cache();
        answered(&mut cache, &object("made", 8, "ours"));
        assert!(cache.is_unconfirmed(&secret("made")) && !cache.is_unconfirmed(&secret("other")));
        event(&mut cache, OPAQUE, item("made", 8, "ours"));
        event(&mut cache, EXACT, item("made", 8, "ours"));
        assert!(!cache.is_unconfirmed(&secret("made")));
        let asked = cache.asked();
        cache.answered_gone(&secret("made"), "8", asked);
        assert!(cache.is_unconfirmed(&secret("made")));
        // The answer to a later request corrects it.
        answered(&mut cache, &object("made", 8, "ours"));
        assert!(matches!(
            cache.find(&secret("made")),
            KnownObject::There(..)
        ));
        cache.apply_deletion(OPAQUE, "9", Some("n/made"));
        cache.apply_deletion(EXACT, "9", Some("n/made"));
        assert_eq!(
            (
                cache.find(&secret("made")),
                cache.is_unconfirmed(&secret("made"))
            ),
            (KnownObject::Absent, false)
        );
    }

    #[test]
    fn after_a_restore_ignores_responses_to_earlier_requests() {
        let mut cache = cache();
        let asked = cache.asked();
        event(&mut cache, EXACT, item("made", 80, "x"));
        assert!(cache.went_back(EXACT, "80").is_none() && cache.went_back(EXACT, "50").is_some());
        // Nothing is written at the version that it had, nor at none.
        assert_eq!(cache.find(&secret("made")), KnownObject::Unknown);
        cache.begin(EXACT);
        cache.put(EXACT, item("made", 40, "older"));
        cache.listed(EXACT, "50");
        assert_eq!(
            told(&cache.answered(&object("made", 81, "lost"), asked)),
            ""
        );
        assert_eq!(event(&mut cache, EXACT, item("made", 51, "y")), "=made");
    }

    #[test]
    fn a_relist_reports_only_differences() {
        let mut cache = cache();
        for (name, version) in [("same", 1), ("changed", 2), ("gone", 3), ("bad", 4)] {
            event(&mut cache, OPAQUE, item(name, version, "x"));
        }
        cache.begin(OPAQUE);
        let mut news = Vec::new();
        for item in [
            item("same", 1, "x"),
            item("changed", 9, "y"),
            faulty_item("bad", 9),
            item("beat", 9, "z"),
        ] {
            news.extend(cache.put(OPAQUE, item));
        }
        assert!(matches!(
            cache.find(&secret("gone")),
            KnownObject::There(..)
        ));
        news.extend(cache.listed(OPAQUE, "10"));
        assert_eq!(told(&news), "=changed !bad =beat -gone");
        assert_eq!(event(&mut cache, OPAQUE, item("beat", 11, "z")), "");
        assert_eq!(event(&mut cache, OPAQUE, item("bad", 12, "x")), "!bad =bad");
    }

    /// Has the watch of all Secrets of a type, while it has four, make way for another one, which begins.
    fn making_way(scope: &Arc<Scope>, names: &[&str]) -> Cache {
        let mut cache = cache();
        for name in ["stays", "away", "made", "foreign"] {
            event(&mut cache, OPAQUE, item(name, 5, "x"));
        }
        event(&mut cache, EXACT, item("made", 5, "x"));
        let exact = cache.watch(EXACT).unwrap();
        let exact = ((*exact.scope).clone(), exact.keep.clone());
        let keep = Keep {
            names: names.iter().copied().collect(),
            ..Keep::default()
        };
        let (new, news) = cache.wants([exact, ((**scope).clone(), keep.clone())].into());
        assert_eq!((new.len(), told(&news).as_str()), (1, ""));
        cache
            .watches
            .push(Watched::new(NEXT, Arc::clone(scope), keep));
        assert_eq!(told(&cache.retire()), "");
        cache.begin(NEXT);
        cache
    }

    /// The list of that watch has one of these, and tells this.
    fn swapped(scope: Arc<Scope>, names: &[&str]) -> String {
        let mut cache = making_way(&scope, names);
        assert!(!cache.watch(NEXT).unwrap().is_settled(true));
        // What was listed is known until then.
        assert!(matches!(
            cache.find(&secret("away")),
            KnownObject::There(..)
        ));
        assert_eq!(told(&cache.put(NEXT, item("stays", 5, "x"))), "");
        let mut news = cache.listed(NEXT, "9");
        news.extend(cache.retire());
        assert!(cache.watch(OPAQUE).is_none());
        told(&news)
    }

    #[test]
    fn a_deletion_between_two_watches_is_reported() {
        let kept = ["stays", "away", "made"];
        let fields = |fields| scope(None, Some(fields));
        assert_eq!(swapped(scope(None, None), &kept), "-away");
        assert_eq!(swapped(fields("type=Opaque"), &kept), "-away");
        let apart = "type=Opaque,metadata.name!=foreign";
        assert_eq!(swapped(fields(apart), &[]), "-away");
        // An object that the next watch does not ask for is not gone.
        assert_eq!(swapped(fields("type=Other"), &kept), "");
        assert_eq!(swapped(scope(Some("stays"), None), &[]), "");
    }

    #[test]
    fn what_was_listed_is_read_until_the_next_list_is_complete() {
        let all = scope(None, None);
        let mut cache = making_way(&all, &[]);
        let version = |cache: &Cache, name: &str| match cache.find(&secret(name)) {
            KnownObject::There(version, _) => version.to_string(),
            other => format!("{other:?}"),
        };
        let opaque = scope(None, Some("type=Opaque"));
        assert_eq!(cache.complete(&opaque), Ok(()));
        // The list that is under way was read before all of this.
        assert_eq!(event(&mut cache, OPAQUE, item("new", 12, "x")), "=new");
        assert_eq!(answered(&mut cache, &object("stays", 13, "ours")), "=stays");
        for name in ["stays", "away"] {
            cache.put(NEXT, item(name, 5, "x"));
        }
        assert_eq!(version(&cache, "stays"), "13");
        let mut news = cache.listed(NEXT, "9");
        news.extend(cache.retire());
        assert_eq!(told(&news), "-foreign");
        assert_eq!(cache.watches.len(), 2);
        assert_eq!(version(&cache, "stays"), "13");
        assert_eq!(version(&cache, "foreign"), "Absent");
        // What is newer than the list is read once the stream has brought it.
        assert_eq!(version(&cache, "new"), "Absent");
        assert_eq!(event(&mut cache, NEXT, item("new", 12, "x")), "");
        assert_eq!(version(&cache, "new"), "12");
        assert_eq!(
            told(&cache.apply_deletion(NEXT, "14", Some("n/new"))),
            "-new"
        );
    }

    #[test]
    fn one_generation_of_watches_stays_however_often_others_are_wanted() {
        let all = scope(None, None);
        let mut cache = making_way(&all, &[]);
        let exact = cache.watch(EXACT).unwrap();
        let exact = ((*exact.scope).clone(), exact.keep.clone());
        for number in 10..20 {
            let keep = Keep {
                names: [format!("{number}").as_str()].into(),
                ..Keep::default()
            };
            let small = (*scope(Some("made"), Some("type=Opaque"))).clone();
            let (new, _) =
                cache.wants([exact.clone(), ((*all).clone(), keep.clone()), (small, keep)].into());
            for (at, (scope, keep)) in (0..).zip(new) {
                let number = number * 10 + at;
                let is_small = scope.name.is_some();
                cache
                    .watches
                    .push(Watched::new(number, Arc::new(scope), keep));
                cache.retire();
                if is_small {
                    cache.begin(number);
                    cache.listed(number, "9");
                    cache.retire();
                }
            }
            // The first one of all Opaque Secrets, that of the exact name, and the two that are wanted.
            assert_eq!(cache.watches.len(), 4);
            assert!(matches!(
                cache.find(&secret("away")),
                KnownObject::There(..)
            ));
        }
    }

    #[test]
    fn a_watch_that_is_wanted_again_goes_on() {
        let all = scope(None, None);
        let mut cache = making_way(&all, &[]);
        let before = [OPAQUE, EXACT].map(|number| {
            let watched = cache.watch(number).unwrap();
            ((*watched.scope).clone(), watched.keep.clone())
        });
        let (new, news) = cache.wants(before.into());
        assert_eq!((new.len(), told(&news).as_str()), (0, ""));
        assert_eq!(told(&cache.retire()), "");
        assert!(cache.watch(NEXT).is_none() && cache.wanted().count() == 2);
    }

    #[test]
    fn nothing_is_read_of_what_cannot_be_listed_and_a_deletion_meanwhile_is_reported() {
        let all = scope(None, None);
        let mut cache = making_way(&all, &[]);
        cache.watch(NEXT).unwrap().failure = Some(ObjectFault {
            reason: KnownReason::ServerUnavailable,
            message: String::new(),
        });
        assert_eq!(told(&cache.retire()), "");
        assert!(cache.watch(OPAQUE).is_none());
        assert_eq!(cache.find(&secret("away")), KnownObject::Unknown);
        cache.begin(NEXT);
        assert_eq!(told(&cache.put(NEXT, item("stays", 5, "x"))), "");
        assert_eq!(told(&cache.listed(NEXT, "9")), "-away -foreign");
    }

    #[test]
    fn an_unusable_object_counts_as_unreadable_and_not_as_deleted() {
        let mut cache = cache();
        event(&mut cache, EXACT, faulty_item("made", 5));
        let [unreadable] = &cache.unreadable()[..] else {
            panic!()
        };
        assert_eq!(
            (unreadable.place.as_str(), unreadable.reason),
            ("Secret n/made", KnownReason::ObjectTooLarge)
        );
        assert_eq!(unreadable.objects, [secret("made").into()]);
        assert_eq!(
            told(&cache.apply_deletion(EXACT, "6", Some("n/made"))),
            "!made -made"
        );
        assert_eq!(cache.unreadable(), []);
    }

    #[test]
    fn a_watch_is_named_by_its_scope() {
        let local = Cache::new("local");
        assert_eq!(
            local.place(&scope(None, Some("type=Opaque"))),
            "watch of Secret (v1), fields type=Opaque"
        );
        assert_eq!(
            Cache::new("hub").place(&scope(Some("made"), None)),
            "hub: watch of Secret (v1), name made"
        );
    }
}
