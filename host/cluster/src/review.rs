//! Questions about access in the form of the API: what is sent to a server, and what a manifest in a directory answers.

use crate::AccessVerdict;
use serde_json::{Value, json};
use transom_core::contract::decide::Review;
use transom_core::inputs::request::Requester;

/// Group and version of the questions.
pub(crate) const API: &str = "authorization.k8s.io/v1";

/// The kind of a question: about a requester, or about whoever asks.
pub(crate) fn kind(requester: Option<&Requester>) -> &'static str {
    match requester {
        Some(_) => "SubjectAccessReview",
        None => "SelfSubjectAccessReview",
    }
}

/// The question.
pub(crate) fn spec(review: &Review, requester: Option<&Requester>) -> Value {
    let attributes = json!({
        "verb": review.verb,
        "group": review.group,
        "resource": review.resource,
        "subresource": review.subresource,
        "namespace": review.namespace,
        "name": review.name,
    });
    let mut spec = json!({"resourceAttributes": attributes});
    if let Some(Requester {
        name,
        uid,
        groups,
        extra,
    }) = requester
    {
        spec["user"] = json!(name);
        spec["uid"] = json!(uid);
        spec["groups"] = json!(groups);
        spec["extra"] = json!(extra);
    }
    without_empty(spec)
}

/// Whether the `spec` of a manifest is a question. A field that is empty is as good as absent, as on an API server.
pub(crate) fn is_of(spec: &Value, question: &Value) -> bool {
    without_empty(spec.clone()) == without_empty(question.clone())
}

fn without_empty(value: Value) -> Value {
    let Value::Object(fields) = value else {
        return value;
    };
    let empty = [json!(null), json!(""), json!([]), json!({})];
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name, without_empty(value)));
    fields.filter(|(_, value)| !empty.contains(value)).collect()
}

/// The answer in a status; none when it has none.
pub(crate) fn verdict(status: &Value) -> Option<AccessVerdict> {
    let allowed = status.get("allowed")?.as_bool()?;
    let denied = status.get("denied").and_then(Value::as_bool) == Some(true);
    let text = |name: &str| status.get(name).and_then(Value::as_str);
    let why = ["reason", "evaluationError"].into_iter().find_map(text);
    Some(AccessVerdict {
        allowed: allowed && !denied,
        why: why.unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use transom_core::contract::decide::Who;

    #[test]
    fn a_question_names_only_what_it_is_about() {
        let mut review = Review {
            who: Who::Requester,
            verb: "renew".to_owned(),
            group: "g".to_owned(),
            resource: "managedclusters".to_owned(),
            subresource: Some("clientcertificates".to_owned()),
            namespace: None,
            name: None,
        };
        let requester = Requester {
            name: "u".to_owned(),
            groups: vec!["a".to_owned()],
            ..Requester::default()
        };
        let attributes = json!({"verb": "renew", "group": "g", "resource": "managedclusters", "subresource": "clientcertificates"});
        let expected = json!({"user": "u", "groups": ["a"], "resourceAttributes": attributes});
        assert_eq!(spec(&review, Some(&requester)), expected);
        (review.group, review.subresource) = (String::new(), None);
        let expected =
            json!({"resourceAttributes": {"verb": "renew", "resource": "managedclusters"}});
        assert_eq!(spec(&review, None), expected);
    }

    #[test]
    fn a_manifest_answers_a_question_whether_it_leaves_out_what_is_empty_or_not() {
        let question = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
        for (attributes, is_it) in [
            (json!({"verb": "get", "resource": "pods"}), true),
            (
                json!({"verb": "get", "resource": "pods", "group": "", "namespace": "", "name": null}),
                true,
            ),
            (
                json!({"verb": "get", "resource": "pods", "group": "g"}),
                false,
            ),
            (json!({"verb": "get"}), false),
        ] {
            let spec = json!({"resourceAttributes": attributes, "groups": []});
            assert_eq!(is_of(&spec, &question), is_it, "{spec}");
        }
        let other = json!({"user": "u", "resourceAttributes": question["resourceAttributes"]});
        assert!(!is_of(&other, &question));
    }

    #[test]
    fn a_denial_wins() {
        let allowed = |status: Value| verdict(&status).map(|verdict| verdict.allowed);
        assert_eq!(allowed(json!({"allowed": true})), Some(true));
        assert_eq!(
            allowed(json!({"allowed": true, "denied": true})),
            Some(false)
        );
        assert_eq!(allowed(json!({"allowed": false})), Some(false));
        assert_eq!(allowed(json!({})), None);
    }
}
