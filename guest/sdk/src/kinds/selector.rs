//! Label selectors as Kubernetes has them in objects: which labels an object must have.

use crate::objects::{LabelTerm, Operator};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The most terms that a guest may ask for.
const MAX_TERMS: usize = 16;
/// The most values in one of them.
const MAX_VALUES: usize = 64;

/// A selector. An empty one selects every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that an object must have, each with this value.
    pub match_labels: BTreeMap<String, String>,
    /// What else its labels must fulfil.
    pub match_expressions: Vec<Expression>,
}

/// What the label of one key must fulfil.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Expression {
    /// Key of the label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values of `In` and `NotIn`.
    pub values: Vec<String>,
}

impl LabelSelector {
    /// What it asks for, for a need.
    ///
    /// # Errors
    /// Why no label can be selected so, or not by a need; the text names the part at fault.
    pub fn terms(&self) -> Result<Vec<LabelTerm>, String> {
        let mut terms = Vec::new();
        for (at, term) in self.all_terms()?.into_iter().enumerate() {
            match term.operator {
                // Whoever has none of the values has none of each part of them.
                Operator::NotIn => terms.extend(split(&term)),
                Operator::In if term.values.len() > MAX_VALUES => {
                    let at = (at - self.match_labels.len()).to_string();
                    return Err(["matchExpressions[", &at, "] has more than 64 values"].concat());
                }
                _ => terms.push(term),
            }
        }
        match terms.len() > MAX_TERMS {
            true => Err("has more than 16 terms".to_owned()),
            false => Ok(terms),
        }
    }

    fn all_terms(&self) -> Result<Vec<LabelTerm>, String> {
        let labels = self.match_labels.iter();
        let labels = labels.map(|(key, value)| LabelTerm {
            key: key.clone(),
            operator: Operator::In,
            values: vec![value.clone()],
        });
        let mut terms: Vec<_> = labels.collect();
        for (at, one) in self.match_expressions.iter().enumerate() {
            let wrong = |why: &str| Err(["matchExpressions[", &at.to_string(), "] ", why].concat());
            let operator = match one.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return wrong("has an unknown operator"),
            };
            let compares = matches!(operator, Operator::In | Operator::NotIn);
            if compares == one.values.is_empty() {
                return wrong("must have values exactly with In and NotIn");
            }
            let values: BTreeSet<_> = one.values.iter().cloned().collect();
            terms.push(LabelTerm {
                key: one.key.clone(),
                operator,
                values: values.into_iter().collect(),
            });
        }
        let fits = |value: &String| value.is_empty() || is_label_value(value);
        let is_possible = |one: &LabelTerm| is_label_key(&one.key) && one.values.iter().all(fits);
        if let Some(term) = terms.iter().find(|one| !is_possible(one)) {
            let found = [
                "has a key or value that no label can have: `",
                &term.key,
                "`",
            ];
            return Err(found.concat());
        }
        Ok(terms)
    }

    /// Whether it selects an object with these labels; an impossible selector selects none.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let terms = self.all_terms().ok();
        terms.is_some_and(|terms| {
            terms.iter().all(|term| {
                let value = labels.get(&term.key);
                let listed = value.is_some_and(|value| term.values.contains(value));
                match term.operator {
                    Operator::In => listed,
                    Operator::NotIn => !listed,
                    Operator::Exists => value.is_some(),
                    Operator::DoesNotExist => value.is_none(),
                }
            })
        })
    }
}

/// The term with no more values in each part than a term may have.
fn split(term: &LabelTerm) -> impl Iterator<Item = LabelTerm> + '_ {
    let parts = term.values.chunks(MAX_VALUES);
    parts.map(|values| LabelTerm {
        key: term.key.clone(),
        operator: term.operator,
        values: values.to_vec(),
    })
}

/// Whether a text is a value that a label can have, and not empty.
pub fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_end = |end: &Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= 63 && ends.iter().all(is_end) && bytes.iter().all(inside)
}

/// Whether a text is the key of a label: a name, or a DNS subdomain, a slash and a name.
pub fn is_label_key(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| {
        let trimmed = part.trim_matches('-');
        !part.is_empty() && trimmed == part && part.bytes().all(inside)
    };
    match text.split_once('/') {
        None => is_label_value(text),
        Some((domain, name)) => {
            domain.len() <= 253 && domain.split('.').all(is_part) && is_label_value(name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn selector(value: Value) -> LabelSelector {
        serde_json::from_value(value).unwrap()
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
        selector(
            json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}),
        )
    }

    #[test]
    fn selects_as_kubernetes_does() {
        let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
        for (selects, wanted) in [
            (selector(json!({})), true),
            (selector(json!({"matchLabels": {"env": "prod"}})), true),
            (selector(json!({"matchLabels": {"env": "test"}})), false),
            (
                selector(json!({"matchLabels": {"env": "prod", "a": "b"}})),
                false,
            ),
            (expression("env", "In", &["prod", "test"]), true),
            (expression("env", "NotIn", &["prod"]), false),
            (expression("other", "NotIn", &["prod"]), true),
            (expression("env", "Exists", &[]), true),
            (expression("env", "DoesNotExist", &[]), false),
            (expression("other", "DoesNotExist", &[]), true),
        ] {
            assert_eq!(selects.matches(&labels), wanted, "{selects:?}");
        }
    }

    #[test]
    fn refuses_what_no_label_can_fulfil() {
        let many: BTreeMap<_, _> = (0..17).map(|at| (format!("k{at}"), "v")).collect();
        for wrong in [
            expression("env", "Like", &["x"]),
            expression("env", "In", &[]),
            expression("env", "Exists", &["x"]),
            expression("", "Exists", &[]),
            expression("a/b/c", "Exists", &[]),
            expression("-a.b/c", "Exists", &[]),
            expression("env", "In", &["a b"]),
            selector(json!({"matchLabels": {"env": "-"}})),
            selector(json!({"matchLabels": many})),
        ] {
            assert!(wrong.terms().is_err(), "{wrong:?}");
            assert!(!wrong.matches(&BTreeMap::new()));
        }
        let labels = many
            .iter()
            .map(|(key, value)| (key.clone(), (*value).to_owned()));
        assert!(selector(json!({"matchLabels": many})).matches(&labels.collect()));
        assert!(
            expression("a.b-c/D_e.f", "In", &["", "A_b.c", "A_b.c"])
                .terms()
                .is_ok()
        );
    }

    #[test]
    fn a_term_has_at_most_64_values() {
        let values: Vec<_> = (0..130).map(|at| format!("v{at}")).collect();
        let first = |number: usize, operator: &str| {
            let values: Vec<_> = values[..number].iter().map(String::as_str).collect();
            expression("env", operator, &values)
        };
        let sizes = |selector: &LabelSelector| -> Vec<_> {
            let terms = selector.terms().unwrap();
            terms.iter().map(|term| term.values.len()).collect()
        };
        assert_eq!(sizes(&first(64, "In")), [64]);
        assert_eq!(sizes(&first(64, "NotIn")), [64]);
        assert_eq!(sizes(&first(130, "NotIn")), [64, 64, 2]);
        let mut long = first(65, "In");
        long.match_labels.insert("a".into(), "b".into());
        assert_eq!(
            long.terms().unwrap_err(),
            "matchExpressions[0] has more than 64 values"
        );
        let labels = [("a", "b"), ("env", "v64")].map(|(key, value)| (key.into(), value.into()));
        assert!(long.matches(&labels.into()));
    }
}
