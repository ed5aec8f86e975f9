//! Whether an object that the agent wrote lies in a scope; false if uncertain, because the watch will report it.

use kube::core::{Expression, Selector, SelectorExt as _};
use std::collections::BTreeMap;
use transom_core::object::Object;
use transom_core::watches::Scope;

/// Whether an object certainly lies in a scope.
pub(super) fn holds(scope: &Scope, object: &Object) -> bool {
    let reference = &object.reference;
    let label = |key: &str| object.label(key).map(str::to_owned);
    let field = |path: &str| {
        let path = format!("/{}", path.replace('.', "/"));
        Some(object.body.pointer(&path)?.as_str()?.to_owned())
    };
    names(
        scope,
        &reference.api_version,
        &reference.kind,
        reference.namespace.as_deref(),
        &reference.name,
    ) && scope
        .labels
        .as_deref()
        .is_none_or(|terms| matches(terms, label))
        && scope
            .fields
            .as_deref()
            .is_none_or(|terms| matches(terms, field))
}

/// Whether a scope covers a name, apart from its selectors.
pub(super) fn names(
    scope: &Scope,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> bool {
    scope.kind == kind
        && scope.api_version == api_version
        && scope.name.as_deref().is_none_or(|only| only == name)
        && scope
            .namespace
            .as_deref()
            .is_none_or(|only| Some(only) == namespace)
}

/// Whether values match a selector; false if one is not known. kube matches selectors, but does not parse them: this reads
/// the terms `a=b`, `a==b`, `a!=b` and `a`.
fn matches(selector: &str, value: impl Fn(&str) -> Option<String>) -> bool {
    let mut values = BTreeMap::new();
    let terms = selector.split(',').map(|term| {
        let (key, wanted) = term.split_once('=').unzip();
        let name = key.map_or(term, |key| key.trim_end_matches('!')).to_owned();
        values.insert(name.clone(), value(&name)?);
        Some(match wanted.map(|wanted| wanted.trim_start_matches('=')) {
            Some(other) if term.contains("!=") => Expression::NotEqual(name, other.to_owned()),
            Some(wanted) => Expression::Equal(name, wanted.to_owned()),
            None => Expression::Exists(name),
        })
    });
    let selector: Option<Selector> = terms.collect();
    selector.is_some_and(|selector| selector.matches(&values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use transom_core::reference::ObjectRef;

    #[test]
    fn an_object_matches_only_when_certain() {
        let body =
            json!({"type": "Opaque", "metadata": {"name": "x", "labels": {"a": "b", "c/d": ""}}});
        let object = Object {
            reference: ObjectRef::local("v1", "Secret", Some("n"), "x"),
            version: String::new(),
            body,
        };
        let scope = |name: Option<&str>, fields: Option<&str>, labels: Option<&str>| Scope {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: None,
            name: name.map(str::to_owned),
            fields: fields.map(str::to_owned),
            labels: labels.map(str::to_owned),
        };
        assert!(holds(&scope(None, None, None), &object));
        assert!(holds(
            &scope(Some("x"), Some("type=Opaque"), Some("a=b,c/d")),
            &object
        ));
        assert!(!holds(&scope(Some("y"), None, None), &object));
        assert!(!holds(&scope(None, Some("type!=Opaque"), None), &object));
        assert!(!holds(&scope(None, Some("type=Other"), None), &object));
        assert!(
            !holds(&scope(None, None, Some("a=c")), &object)
                && !holds(&scope(None, None, Some("a!=b")), &object)
        );
        assert!(!holds(&scope(None, None, Some("a in (b)")), &object));
        assert!(!holds(&scope(None, None, Some("!z")), &object));
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
