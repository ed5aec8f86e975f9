//! Which objects a connection must watch for the loaded policies, and which parts of them are kept.

mod bound;
mod cover;
mod names;
pub(crate) mod plan;
#[cfg(test)]
mod same;

pub use names::KeptNames;
pub use plan::{of, places_of_primaries, scopes_of_primaries};

use crate::digest::Digest;
use crate::object::Object;
use crate::policy::selector::Selector;
use crate::projection::Paths;
use crate::reference::ObjectRef;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// How Secrets are read whose exact names are unknown until there is a primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecretReads {
    /// They are watched by type (`Opaque`, and types that have a granted key): one list each at the start, no request
    /// for a read; needs the right to list Secrets.
    #[default]
    Watch,
    /// Each is read by exact name when it is needed; a change is noticed at the next reconcile.
    Strict,
}

/// Everything that one connection watches: each scope once, with what is kept of its objects.
pub type Watches = BTreeMap<Scope, Keep>;

/// What one watch asks the API server for; selectors limit it where the API allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// Group and version, `v1` for the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Exact namespace; `None` for all of them, or for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Exact name; `None` for all.
    pub name: Option<String>,
    /// Further field selector, as `type=Opaque`.
    pub fields: Option<String>,
    /// Label selector.
    pub labels: Option<Selector>,
}

impl Scope {
    /// All objects of a kind.
    pub fn all(api_version: &str, kind: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: None,
            fields: None,
            labels: None,
        }
    }

    /// All objects of a kind, in a namespace if the place has one.
    pub fn of(place: &ObjectRef) -> Self {
        Self {
            namespace: place.namespace.clone(),
            ..Self::all(&place.api_version, &place.kind)
        }
    }

    /// Whether it covers a name, apart from its selectors.
    pub fn covers(&self, object: &ObjectRef) -> bool {
        let is = |only: &Option<String>, it: Option<&str>| only.is_none() || only.as_deref() == it;
        self.kind == object.kind
            && self.api_version == object.api_version
            && is(&self.name, Some(&object.name))
            && is(&self.namespace, object.namespace.as_deref())
    }

    /// Whether it covers another scope: the other has every bound of this one, and perhaps more.
    pub fn holds(&self, other: &Self) -> bool {
        let within = |mine: &Option<String>, other| mine.is_none() || mine == other;
        let selected = self.labels.is_none() || self.labels == other.labels;
        (&self.api_version, &self.kind) == (&other.api_version, &other.kind)
            && within(&self.namespace, &other.namespace)
            && within(&self.name, &other.name)
            && within(&self.fields, &other.fields)
            && selected
    }
}

/// Which parts of the objects of a scope are kept in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Keep {
    /// Which names; other objects are dropped.
    pub names: KeptNames,
    /// Which namespaces, likewise.
    pub namespaces: KeptNames,
    /// Declared fields; `None` for the whole object. Metadata without `managedFields` always stays.
    pub fields: Option<Paths>,
    /// Whether a digest of the whole content is kept in place of dropped fields, so that every change of the content is
    /// seen.
    pub digest: bool,
    /// Whether only the name of each object is kept: it tells which objects are not there.
    pub names_only: bool,
}

/// What is kept of the objects of each API version and kind, whichever watch covers them.
pub fn by_kind(watches: &Watches) -> BTreeMap<(String, String), Keep> {
    let mut kinds = BTreeMap::<_, Keep>::new();
    for (scope, keep) in watches {
        match kinds.entry((scope.api_version.clone(), scope.kind.clone())) {
            Entry::Vacant(kind) => drop(kind.insert(keep.clone())),
            Entry::Occupied(mut kind) => kind.get_mut().widen(keep),
        }
    }
    kinds
}

/// The field of that digest.
const DIGEST: &str = "contentDigest";
/// The fields that are not content.
const NO_CONTENT: [&str; 4] = ["apiVersion", "kind", "metadata", DIGEST];

/// The digest of an object's content: all fields but metadata. It is the same for an object that [`Keep::digest`] cut.
pub fn content(object: &Object) -> String {
    let fields = object.body.as_object();
    let content = fields.into_iter().flatten().filter(is_content);
    let kept = object.body.get(DIGEST).and_then(Value::as_str);
    kept.map_or_else(|| Digest::of_entries(content).to_string(), str::to_owned)
}

fn is_content((field, _): &(&String, &Value)) -> bool {
    !NO_CONTENT.contains(&field.as_str())
}

impl Keep {
    /// Whether an object of the scope is kept.
    pub fn admits(&self, object: &ObjectRef) -> bool {
        let namespace = object.namespace.as_deref();
        let is_there = namespace.is_none_or(|name| self.namespaces.admits(name));
        is_there && self.names.admits(&object.name)
    }

    /// Also keeps what another one keeps.
    fn widen(&mut self, other: &Self) {
        self.names.widen(&other.names);
        self.namespaces.widen(&other.namespaces);
        self.digest |= other.digest;
        self.names_only &= other.names_only;
        let both = self.fields.take().zip(other.fields.as_ref());
        self.fields = both.map(|(mut mine, theirs)| {
            mine.extend(theirs);
            mine
        });
    }

    /// Whether nothing but metadata is kept, so that nothing else has to be requested.
    pub fn is_metadata(&self) -> bool {
        let empty = |fields: &Paths| fields.list().is_empty();
        self.names_only || self.decoded().is_some_and(empty)
    }

    /// The fields that must be decoded for [`Keep::project`]; `None` for all.
    pub fn decoded(&self) -> Option<&Paths> {
        self.fields.as_ref().filter(|_| !self.digest)
    }

    /// The part of an object's body that is kept.
    pub fn project(&self, mut body: Value) -> Value {
        let Some(map) = body.as_object_mut() else {
            return body;
        };
        let mut metadata = map.remove("metadata").unwrap_or_default();
        let content = || map.iter().filter(is_content);
        let digest = self.digest.then(|| Digest::of_entries(content()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("managedFields");
        }
        if let Some(fields) = &self.fields {
            let (api_version, kind) = (map.remove("apiVersion"), map.remove("kind"));
            let mut kept = fields.retain(&body);
            if let Some(map) = kept.as_object_mut() {
                map.extend(api_version.map(|value| ("apiVersion".to_owned(), value)));
                map.extend(kind.map(|value| ("kind".to_owned(), value)));
                map.insert("metadata".to_owned(), metadata);
                map.extend(digest.map(|digest| (DIGEST.to_owned(), digest.to_string().into())));
            }
            return kept;
        }
        map.insert("metadata".to_owned(), metadata);
        body
    }
}

/// The watch of the policies themselves.
pub fn policies() -> (Scope, Keep) {
    let scope = Scope::all(transom_api::API_VERSION, transom_api::KIND);
    (scope, Keep::default())
}

/// Whether a name matches a wildcard.
pub fn matches(wildcard: &str, name: &str) -> bool {
    let Some((first, others)) = wildcard.split_once('*') else {
        return wildcard == name;
    };
    let (middle, last) = others.rsplit_once('*').unwrap_or(("", others));
    let inner = name
        .strip_prefix(first)
        .and_then(|rest| rest.strip_suffix(last));
    let found = |rest: &mut &str, piece: &str| {
        rest.split_once(piece)
            .map(|(_, after)| *rest = after)
            .is_some()
    };
    inner.is_some_and(|mut rest| middle.split('*').all(|piece| found(&mut rest, piece)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wildcards_match_whole_names() {
        let hostile = "a".repeat(253);
        for (wildcard, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*-x-*-x", "1-x-2-x", true),
            ("*-x-*-x", "1-x-x", false),
            ("ab*bc", "abc", false),
            ("*b*", "abc", true),
            ("a*a*a*a*a*b", &hostile, false),
            ("*ä", "ä", true),
        ] {
            assert_eq!(matches(wildcard, name), expected, "{wildcard} on {name}");
        }
    }

    #[test]
    fn stores_only_declared_fields_and_metadata() {
        let body = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n", "managedFields": [1]},
            "spec": {"a": 1, "b": 2}});
        let fields = Some(Paths::parse(&["spec.a"]).unwrap());
        let kept = Keep {
            fields,
            ..Keep::default()
        }
        .project(body.clone());
        assert_eq!(
            kept,
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "spec": {"a": 1}})
        );
        let object = |body: &Value| Object {
            reference: ObjectRef::local("v1", "X", None, "n"),
            version: String::new(),
            body: body.clone(),
        };
        let digested = |spec: &Value| {
            let mut body = body.clone();
            body["spec"] = spec.clone();
            let keep = |fields| Keep {
                fields: Some(fields),
                digest: true,
                ..Keep::default()
            };
            let beside = keep(Paths::parse(&["spec.a"]).unwrap()).project(body.clone());
            let alone = keep(Paths::default()).project(body);
            assert_eq!(content(&object(&beside)), content(&object(&alone)));
            alone
        };
        assert_eq!(
            content(&object(&digested(&body["spec"]))),
            content(&object(&body))
        );
        let (one, other) = (digested(&json!({"a": 1})), digested(&json!({"a": 2})));
        assert!(
            one != other && one.pointer("/spec").is_none(),
            "{one} {other}"
        );
        let whole = Keep::default().project(body);
        assert_eq!(whole.pointer("/spec/b"), Some(&json!(2)));
        assert_eq!(whole.pointer("/metadata"), Some(&json!({"name": "n"})));
    }
}
