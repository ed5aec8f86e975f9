//! Whether an object that the agent wrote lies in a scope; false if uncertain, because the watch will report it.

use serde_json::Value;
use transom_core::object::Object;
use transom_core::watches::Scope;

/// Whether an object certainly lies in a scope.
pub(super) fn holds(scope: &Scope, object: &Object) -> bool {
    let reference = &object.reference;
    names(
        scope,
        &reference.api_version,
        &reference.kind,
        reference.namespace.as_deref(),
        &reference.name,
    ) && scope
        .labels
        .as_deref()
        .is_none_or(|selector| labels(selector, object))
        && scope
            .fields
            .as_deref()
            .is_none_or(|selector| fields(selector, &object.body))
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

/// Supports `a=b`, `a==b` and `a`, separated by commas; false for every other selector.
fn labels(selector: &str, object: &Object) -> bool {
    if selector.contains(['(', '!', ' ']) {
        return false;
    }
    selector.split(',').all(|term| match term.split_once('=') {
        Some((key, value)) => object.label(key) == Some(value.trim_start_matches('=')),
        None => object.label(term).is_some(),
    })
}

/// Supports `a.b=c` and `a.b==c`, separated by commas; false for every other selector.
fn fields(selector: &str, body: &Value) -> bool {
    selector.split(',').all(|term| {
        let Some((path, value)) = term.split_once('=') else {
            return false;
        };
        let found = path
            .split('.')
            .try_fold(body, |value, field| value.get(field))
            .and_then(Value::as_str);
        found == Some(value.trim_start_matches('='))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use transom_core::reference::ObjectRef;

    #[test]
    fn an_object_matches_only_when_certain() {
        let body = json!({"type": "Opaque", "metadata": {"labels": {"a": "b", "c/d": ""}}});
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
    }
}
