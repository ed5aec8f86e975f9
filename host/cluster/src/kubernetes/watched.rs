//! One watch as the cache holds it: what it covers, its objects, and its state.

use super::Task;
use super::shared::ServerNews;
use super::store::{ObjectFault, Store};
use std::sync::Arc;
use std::time::Instant;
use transom_api::KnownReason;
use transom_core::object::Object;
use transom_core::policy::selector::Selector;
use transom_core::reference::ObjectRef;
use transom_core::watches::{Keep, Scope};

/// One watch and its objects.
pub(super) struct Watched {
    /// Number of the watch. Events of an earlier watch with the same scope are ignored.
    pub(super) number: u64,
    /// What is requested.
    pub(super) scope: Arc<Scope>,
    /// What is kept of each object.
    pub(super) keep: Keep,
    /// The objects.
    pub(super) store: Store,
    /// Whether it was listed completely, with what is kept now.
    pub(super) synced: bool,
    /// News of its first list, held back until the list ends, so that a listener that is told of one object finds all
    /// of them in the cache.
    pub(super) untold: Vec<ServerNews>,
    /// Why it cannot be followed now.
    pub(super) failure: Option<ObjectFault>,
    /// Whether `failure` only says that the API server has not answered since the start. Void once it has answered.
    pub(super) away: bool,
    /// Whether `failure` stays until a stream works, because streams opened and then failed.
    pub(super) in_doubt: bool,
    /// Whether it was listed, or a stream was opened, since it ended last, while it is in doubt.
    pub(super) answered: bool,
    /// Whether a page of the list that is under way came too late, so that nobody waits for it.
    pub(super) late: bool,
    /// How often it ended early.
    pub(super) restarts: u64,
    /// When the API server last sent something.
    pub(super) last_word: Instant,
    /// Whether it is not wanted any more, and only answers reads until the watches of its kind that are wanted were
    /// listed.
    pub(super) retiring: bool,
    /// Whether all wanted watches of its kind were listed, or found unreadable, while it was wanted: then revisions
    /// that need it may work.
    pub(super) is_read: bool,
    /// What follows it; ends with it.
    pub(super) task: Option<Task>,
}

impl Watched {
    /// A watch that was not listed yet.
    pub(super) fn new(number: u64, scope: Arc<Scope>, keep: Keep) -> Self {
        Self {
            number,
            scope,
            keep,
            store: Store::default(),
            synced: false,
            untold: Vec::new(),
            failure: None,
            away: false,
            in_doubt: false,
            answered: false,
            late: false,
            restarts: 0,
            last_word: Instant::now(),
            retiring: false,
            is_read: false,
            task: None,
        }
    }

    /// Whether it is of the same kind as a scope.
    pub(super) fn is_of_kind(&self, scope: &Scope) -> bool {
        (&self.scope.api_version, &self.scope.kind) == (&scope.api_version, &scope.kind)
    }

    /// Whether it was listed completely, or is known to be unreadable; `answers` if the API server has answered since
    /// the start.
    pub(super) fn is_settled(&self, answers: bool) -> bool {
        self.synced || self.failure.is_some() && !(answers && self.away)
    }

    /// Whether its list is under way, as far as is known.
    pub(super) fn is_listing(&self) -> bool {
        !self.synced && (self.failure.is_none() || self.answered)
    }

    /// Whether its scope has no selector, so that it covers every object with a name of its scope.
    pub(super) fn is_whole(&self) -> bool {
        self.scope.fields.is_none() && self.scope.labels.is_none()
    }

    /// Whether an object of the scope does not exist if it is not in the store.
    pub(super) fn knows_all(&self) -> bool {
        self.synced && self.is_whole() || self.is_missing()
    }

    /// Whether an object that both cover does not exist if it is in neither store: the selector of one is the opposite
    /// of the other's.
    pub(super) fn know_all(&self, other: &Self) -> bool {
        let listed = |one: &Self| one.synced && one.scope.fields.is_none();
        let labels = self.scope.labels.as_ref().zip(other.scope.labels.as_ref());
        let opposite = |(mine, theirs): (&Selector, &Selector)| mine.is_opposite(theirs);
        listed(self) && listed(other) && labels.is_some_and(opposite)
    }

    /// Whether its kind is not served and the store is empty: then there are no objects.
    pub(super) fn is_missing(&self) -> bool {
        let missing = |fault: &ObjectFault| fault.reason == KnownReason::KindMissing;
        self.failure.as_ref().is_some_and(missing) && self.store.len() == 0
    }

    /// Whether it covers a name. Its selectors are not checked.
    pub(super) fn covers(&self, reference: &ObjectRef) -> bool {
        self.scope.covers(reference) && self.keep.admits(reference)
    }
}

/// Whether an object that the agent wrote certainly lies in a scope; if that is uncertain, the watch will report it.
pub(super) fn holds(scope: &Scope, object: &Object) -> bool {
    let field = |path: &str| {
        let path = format!("/{}", path.replace('.', "/"));
        Some(object.body.pointer(&path)?.as_str()?.to_owned())
    };
    let labels = scope.labels.as_ref();
    let fields = scope.fields.as_deref();
    scope.covers(&object.reference)
        && labels.is_none_or(|labels| labels.matches(object))
        && fields.is_none_or(|terms| matches(terms, field))
}

/// Whether the fields of an object match the terms `a=b` and `a!=b`; false if one is not known.
fn matches(terms: &str, value: impl Fn(&str) -> Option<String>) -> bool {
    terms.split(',').all(|term| match term.split_once("!=") {
        Some((name, other)) => value(name).is_some_and(|value| value != other),
        None => term
            .split_once('=')
            .is_some_and(|(name, wanted)| value(name).as_deref() == Some(wanted)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_matches_only_when_certain() {
        let body =
            json!({"type": "Opaque", "metadata": {"name": "x", "labels": {"a": "b", "c/d": ""}}});
        let object = Object {
            reference: ObjectRef::local("v1", "Secret", Some("n"), "x"),
            version: String::new(),
            body,
        };
        let scope = |name: Option<&str>, fields: Option<&str>, labels: Option<Selector>| Scope {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: None,
            name: name.map(str::to_owned),
            fields: fields.map(str::to_owned),
            labels,
        };
        let equal = Selector::equal;
        assert!(holds(&scope(None, None, None), &object));
        assert!(holds(
            &scope(
                Some("x"),
                Some("type=Opaque"),
                Some(equal("a", "b").and(&equal("c/d", "")))
            ),
            &object
        ));
        assert!(!holds(&scope(Some("y"), None, None), &object));
        assert!(!holds(&scope(None, Some("type!=Opaque"), None), &object));
        assert!(!holds(&scope(None, Some("type=Other"), None), &object));
        assert!(!holds(&scope(None, None, Some(equal("a", "c"))), &object));
        assert!(!holds(&scope(None, Some("spec.a!=b"), None), &object));
        let apart = |name: &str| {
            scope(
                None,
                Some(&format!("type=Opaque,metadata.name!={name}")),
                None,
            )
        };
        assert!(holds(&apart("y"), &object) && !holds(&apart("x"), &object));
    }
}
