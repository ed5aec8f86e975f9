//! Which objects a connection must watch for the loaded policies, and what of them is kept. Never watches anything itself.

use crate::projection::Paths;
use crate::reference::ObjectRef;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that one connection watches: each scope once, with what is kept of its objects.
pub type Watches = BTreeMap<Scope, Keep>;

/// What one watch asks the API server for; selectors bound it where the API allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// Group and version, `v1` for the core group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Exact namespace; nothing for all of them, or for what is cluster-scoped.
    pub namespace: Option<String>,
    /// Exact name; nothing for all.
    pub name: Option<String>,
    /// Further field selector, as `type=Opaque`.
    pub fields: Option<String>,
    /// Label selector.
    pub labels: Option<String>,
}

/// What of the objects of a scope is kept in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Keep {
    /// Wildcards of names, `*` for any text; an object that matches none is not kept. Empty: all are.
    pub names: Vec<Arc<str>>,
    /// Wildcards of namespaces, in the same way.
    pub namespaces: Vec<Arc<str>>,
    /// Declared fields; nothing for the whole object. Metadata without `managedFields` always stays.
    pub fields: Option<Paths>,
}

impl Keep {
    /// Whether an object of the scope is kept.
    pub fn admits(&self, object: &ObjectRef) -> bool {
        let any = |wildcards: &[Arc<str>], name: &str| {
            wildcards.is_empty() || wildcards.iter().any(|wildcard| matches(wildcard, name))
        };
        any(&self.names, &object.name) && object.namespace.as_deref().is_none_or(|name| any(&self.namespaces, name))
    }

    /// What is kept of an object's body.
    pub fn project(&self, mut body: Value) -> Value {
        let Some(map) = body.as_object_mut() else { return body };
        let mut metadata = map.remove("metadata").unwrap_or_default();
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("managedFields");
        }
        if let Some(fields) = &self.fields {
            let (api_version, kind) = (map.remove("apiVersion"), map.remove("kind"));
            let mut kept = fields.project(&body);
            if let Some(map) = kept.as_object_mut() {
                map.extend(api_version.map(|value| ("apiVersion".to_owned(), value)));
                map.extend(kind.map(|value| ("kind".to_owned(), value)));
                map.insert("metadata".to_owned(), metadata);
            }
            return kept;
        }
        map.insert("metadata".to_owned(), metadata);
        body
    }
}

/// Whether a name matches a wildcard, each `*` as short as possible.
fn matches(wildcard: &str, name: &str) -> bool {
    match wildcard.split_once('*') {
        None => wildcard == name,
        Some((before, after)) => {
            let Some(rest) = name.strip_prefix(before) else { return false };
            (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| matches(after, rest)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_kept_by_name_and_namespace() {
        let keep = Keep {
            names: vec!["*-admin-kubeconfig".into()],
            namespaces: vec!["clusters".into(), "team-*".into()],
            fields: None,
        };
        let admits =
            |namespace: &str, name: &str| keep.admits(&ObjectRef::local("v1", "Secret", Some(namespace), name));
        assert!(admits("clusters", "a-admin-kubeconfig") && admits("team-1", "-admin-kubeconfig"));
        assert!(!admits("clusters", "a-admin-kubeconfig-2") && !admits("other", "a-admin-kubeconfig"));
        assert!(Keep::default().admits(&ObjectRef::local("v1", "Namespace", None, "x")));
    }

    #[test]
    fn only_declared_fields_and_metadata_are_kept() {
        let body = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n", "managedFields": [1]},
            "spec": {"a": 1, "b": 2}});
        let fields = Some(Paths::parse(&["spec.a"]).unwrap());
        let kept = Keep { fields, ..Keep::default() }.project(body.clone());
        assert_eq!(kept, json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}, "spec": {"a": 1}}));
        let whole = Keep::default().project(body);
        assert_eq!(whole.pointer("/spec/b"), Some(&json!(2)));
        assert_eq!(whole.pointer("/metadata"), Some(&json!({"name": "n"})));
    }
}
