//! A selector of labels: which labels an object must have, as Kubernetes means it.

use crate::contract::decide::LabelTerm;
use crate::object::Object;
use crate::policy::check::{at_most, unique};
use crate::policy::manifest::PolicyError;
use crate::policy::{Policy, WriteRule};
use crate::reference::{ObjectRef, dns};
use crate::stamp::Stamp;
use std::collections::BTreeSet;
use std::fmt;
use transom_api::policy::bounds::{FEW, MANY};
use transom_api::policy::{LabelOperator, LabelSelectorSpec};

/// A checked selector. Its text is that of the API: `a=b,c in (d,e),!f`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector(BTreeSet<Term>);

/// What the label of one key must fulfil.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Term {
    key: Box<str>,
    operator: LabelOperator,
    values: BTreeSet<Box<str>>,
}

impl Selector {
    /// Selects the objects that have a label with a value.
    pub fn equal(key: &str, value: &str) -> Self {
        Self::one(key, LabelOperator::In, value)
    }

    fn one(key: &str, operator: LabelOperator, value: &str) -> Self {
        Self(BTreeSet::from([Term {
            key: key.into(),
            operator,
            values: BTreeSet::from([value.into()]),
        }]))
    }

    /// Checks a selector; `field` is its path.
    ///
    /// # Errors
    /// The first key or value that no label can have, an expression without the values that it needs, or too many.
    pub fn parse(field: &str, spec: &LabelSelectorSpec) -> Result<Self, PolicyError> {
        let labels: Vec<_> = spec.match_labels.iter().collect();
        at_most(&format!("{field}.matchLabels"), &labels, FEW)?;
        let expressions = format!("{field}.matchExpressions");
        at_most(&expressions, &spec.match_expressions, FEW)?;
        let mut terms = BTreeSet::new();
        for (key, value) in labels {
            let field = format!("{field}.matchLabels");
            let values = std::slice::from_ref(value);
            terms.insert(Term::parse(&field, key, LabelOperator::In, values)?);
        }
        for (index, one) in spec.match_expressions.iter().enumerate() {
            let field = format!("{expressions}[{index}]");
            terms.insert(Term::parse(&field, &one.key, one.operator, &one.values)?);
        }
        Ok(Self(terms))
    }

    /// Checks what a guest asks for; `place` names it in an error.
    ///
    /// # Errors
    /// As for [`Selector::parse`].
    pub fn of(place: &str, terms: &[LabelTerm]) -> Result<Self, PolicyError> {
        at_most(place, terms, FEW)?;
        let one = |one: &LabelTerm| Term::parse(place, &one.key, one.operator, &one.values);
        terms.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Selects the objects whose label of a key does not have a value, those without the label included.
    pub fn other(key: &str, value: &str) -> Self {
        Self::one(key, LabelOperator::NotIn, value)
    }

    /// Whether another one selects exactly the objects that this one does not. False when that takes more than one term
    /// to tell.
    pub fn is_opposite(&self, other: &Self) -> bool {
        use LabelOperator::{In, NotIn};
        let terms = self.0.first().zip(other.0.first());
        let single = self.0.len() == 1 && other.0.len() == 1;
        terms.filter(|_| single).is_some_and(|(mine, theirs)| {
            let opposite = matches!((mine.operator, theirs.operator), (In, NotIn) | (NotIn, In));
            opposite && (&mine.key, &mine.values) == (&theirs.key, &theirs.values)
        })
    }

    /// Whether no object is selected by both, because of the label of one key.
    pub fn excludes(&self, other: &Self) -> bool {
        let mut pairs = self
            .0
            .iter()
            .flat_map(|mine| other.0.iter().map(move |theirs| (mine, theirs)));
        pairs.any(|(mine, theirs)| {
            mine.key == theirs.key && (mine.excludes(theirs) || theirs.excludes(mine))
        })
    }

    /// Whether it selects every object.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Selects what both select.
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).cloned().collect())
    }

    /// Whether it says anything about the label of a key.
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|term| *term.key == *key)
    }

    /// Whether it selects an object.
    pub fn matches(&self, object: &Object) -> bool {
        self.selects(|key| object.label(key))
    }

    /// Whether it selects an object by its labels.
    pub fn selects<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|term| {
            let value = label(&term.key);
            match term.operator {
                LabelOperator::In => value.is_some_and(|value| term.values.contains(value)),
                LabelOperator::NotIn => value.is_none_or(|value| !term.values.contains(value)),
                LabelOperator::Exists => value.is_some(),
                LabelOperator::DoesNotExist => value.is_none(),
            }
        })
    }
}

impl Term {
    fn parse(
        field: &str,
        key: &str,
        operator: LabelOperator,
        values: &[String],
    ) -> Result<Self, PolicyError> {
        let wrong = |why: String| Err(PolicyError::new(field, why));
        if !dns::is_qualified_name(key) {
            return wrong(format!("`{key}` is not the key of a label"));
        }
        at_most(&format!("{field}.values"), values, MANY)?;
        unique(&format!("{field}.values"), values.iter())?;
        let fits = |value: &String| value.is_empty() || dns::is_label_value(value);
        if let Some(value) = values.iter().find(|value| !fits(value)) {
            return wrong(format!("`{value}` is not the value of a label"));
        }
        let compares = matches!(operator, LabelOperator::In | LabelOperator::NotIn);
        match (compares, values.is_empty()) {
            (true, true) => wrong(format!("{operator:?} needs at least one value")),
            (false, false) => wrong(format!("{operator:?} has no values")),
            _ => Ok(Self {
                key: key.into(),
                operator,
                values: values.iter().map(|value| value.as_str().into()).collect(),
            }),
        }
    }

    /// Whether no value fulfils both terms. To be asked both ways: it knows two operators only in one order.
    fn excludes(&self, other: &Self) -> bool {
        use LabelOperator::{DoesNotExist, Exists, In, NotIn};
        match (self.operator, other.operator) {
            (In, In) => self.values.is_disjoint(&other.values),
            (In, NotIn) => self.values.is_subset(&other.values),
            (In | Exists, DoesNotExist) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (
            index,
            Term {
                key,
                operator,
                values,
            },
        ) in self.0.iter().enumerate()
        {
            if index > 0 {
                f.write_str(",")?;
            }
            let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
            match (operator, values.as_slice()) {
                (LabelOperator::In, [value]) => write!(f, "{key}={value}")?,
                (LabelOperator::In, values) => write!(f, "{key} in ({})", values.join(","))?,
                (LabelOperator::NotIn, values) => write!(f, "{key} notin ({})", values.join(","))?,
                (LabelOperator::Exists, _) => write!(f, "{key}")?,
                (LabelOperator::DoesNotExist, _) => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}

impl Policy {
    /// Whether an object is a primary of the policy: its rule selects it, and the policy did not make it (see
    /// `adr/0065`).
    pub fn is_about(&self, object: &Object) -> bool {
        self.primary.selects(object) && !self.has_made(object)
    }

    /// Whether an object bears the stamp of the policy, and one of its rules may have made it for the primary that the
    /// stamp names. The stamp alone says nothing: whoever may edit the labels and annotations of an object can write
    /// one, and no policy stamps what it only creates.
    pub fn has_made(&self, object: &Object) -> bool {
        let stamp = Stamp::read(object).filter(|stamp| *stamp.policy == *self.name);
        stamp.is_some_and(|stamp| {
            let may_have = |rule: &WriteRule| {
                // Another connection may lead to the same server, and another version of a kind has the same objects.
                let made = ObjectRef {
                    cluster: rule.cluster.clone(),
                    api_version: rule.api_version.clone(),
                    ..object.reference.clone()
                };
                !rule.creates_only()
                    && made.group() == object.reference.group()
                    && rule.made(&made, &stamp.source.reference)
            };
            self.makes().any(|(_, rule)| may_have(rule))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{hosted, object, objects_manifest, policy, with};
    use crate::stamp::SourceRef;
    use crate::work::Key;
    use serde_json::{Value, json};

    fn selector(spec: Value) -> Result<Selector, String> {
        let spec = serde_json::from_value(spec).unwrap();
        Selector::parse("s", &spec).map_err(|error| error.field)
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn selects_as_kubernetes_does() {
        let labels = |labels: Value| object(hosted("x"), json!({"metadata": {"labels": labels}}));
        let (a, b) = (labels(json!({"k": "a"})), labels(json!({"k": "b"})));
        let none = object(hosted("x"), json!({"metadata": {}}));
        for (spec, text, expected) in [
            (json!({}), "", [true, true, true]),
            (
                json!({"matchLabels": {"k": "a"}}),
                "k=a",
                [true, false, false],
            ),
            (
                expression("k", "In", &["a", "c"]),
                "k in (a,c)",
                [true, false, false],
            ),
            (
                expression("k", "NotIn", &["a"]),
                "k notin (a)",
                [false, true, true],
            ),
            (expression("k", "Exists", &[]), "k", [true, true, false]),
            (
                expression("k", "DoesNotExist", &[]),
                "!k",
                [false, false, true],
            ),
        ] {
            let selector = selector(spec).unwrap();
            assert_eq!(selector.to_string(), text);
            assert_eq!(
                [&a, &b, &none].map(|one| selector.matches(one)),
                expected,
                "{text}"
            );
        }
        let both = Selector::equal("k", "a").and(&Selector::equal("l", ""));
        assert_eq!(both.to_string(), "k=a,l=");
        assert!(!both.matches(&a) && both.matches(&labels(json!({"k": "a", "l": ""}))));
    }

    #[test]
    fn of_opposites_one_selects_each_object() {
        let (ours, others) = (Selector::equal("k", "a"), Selector::other("k", "a"));
        assert!(ours.is_opposite(&others) && others.is_opposite(&ours));
        for label in [Some("a"), Some("b"), None] {
            assert!(ours.selects(|_| label) != others.selects(|_| label));
        }
        for other in [
            ours.clone(),
            Selector::default(),
            Selector::other("k", "b"),
            Selector::other("l", "a"),
            others.and(&Selector::equal("l", "a")),
        ] {
            assert!(!ours.is_opposite(&other), "{other}");
        }
    }

    /// A policy about ManagedClusters that may write these, too.
    fn about_clusters(write: &Value) -> Policy {
        let grants = json!([write]);
        policy(&with(objects_manifest(), &[("/spec/grant/write", grants)]))
    }

    /// Whether a policy is about a ManagedCluster that bears the stamp of a policy, made for another ManagedCluster.
    fn is_about(policy: &Policy, name: &str, stamped: (&str, &str)) -> bool {
        let cluster = |name: &str| {
            let api_version = "cluster.open-cluster-management.io/v1";
            ObjectRef::local(api_version, "ManagedCluster", None, name)
        };
        let key = Key::new(&stamped.0.into(), &cluster(stamped.1));
        let mut body = json!({"metadata": {}});
        Stamp::of(&key, SourceRef::gone(&key.primary, ""), "", "").put(&mut body);
        policy.is_about(&object(cluster(name), body))
    }

    #[test]
    fn what_a_policy_made_is_none_of_its_primaries() {
        // In another version they are the same objects.
        for version in ["v1", "v1beta1"] {
            let copies = about_clusters(
                &json!({"apiVersion": format!("cluster.open-cluster-management.io/{version}"),
                    "kind": "ManagedCluster", "name": "{primary.name}-copy", "verbs": ["create", "update"],
                    "fields": ["spec.a"]}),
            );
            assert!(!is_about(&copies, "a-copy", ("sets", "a")), "{version}");
            assert!(
                is_about(&copies, "a-copy", ("other", "a")),
                "of another policy"
            );
        }
    }

    #[test]
    fn a_stamp_on_what_a_policy_cannot_have_made_hides_no_primary() {
        let made = json!({"kind": "ConfigMap", "namespace": "n", "name": "{primary.name}", "verbs": ["create", "update"],
            "fields": ["data.a"]});
        let cluster = |name: &str, verbs: &[&str]| {
            json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "name": name,
                "verbs": verbs, "fields": ["spec.a"]})
        };
        for write in [
            json!({"target": "primary", "verbs": ["patch"], "fields": ["spec.a"]}),
            made,
            cluster("{primary.name}-copy", &["create", "update"]),
            cluster("c1", &["patch"]),
            // Such an object belongs to others from then on, and bears no stamp.
            cluster("c1", &["create"]),
        ] {
            assert!(
                is_about(&about_clusters(&write), "c1", ("sets", "x")),
                "{write}"
            );
        }
    }

    #[test]
    fn names_what_no_label_can_be() {
        for (spec, field) in [
            (json!({"matchLabels": {"a b": "c"}}), "s.matchLabels"),
            (json!({"matchLabels": {"a": "-"}}), "s.matchLabels"),
            (expression("", "Exists", &[]), "s.matchExpressions[0]"),
            (expression("k", "Exists", &["a"]), "s.matchExpressions[0]"),
            (expression("k", "In", &[]), "s.matchExpressions[0]"),
            (
                expression("k", "In", &["a", "a"]),
                "s.matchExpressions[0].values",
            ),
        ] {
            assert_eq!(selector(spec).unwrap_err(), field);
        }
    }
}
