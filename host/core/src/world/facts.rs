//! The world of tests: a guest publishes two facts about a ManagedCluster, as a ConfigMap with two keys that the policy
//! makes, and as a label of the primary. Only with the feature `facts`; `tests/fixtures/facts` has its guest.

use super::{Answer, Granted, Lowering, World};
use crate::failure::Failure;
use crate::plan::desired::{Desired, Field, Fields, KeyContent, Whole};
use crate::policy::check::pattern;
use crate::policy::manifest::PolicyError;
use crate::policy::{Policy, Target, WriteRule};
use crate::projection::path::Path;
use crate::reference::ObjectRef;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use transom_api::KnownReason;
use transom_api::policy::WriteGrantSpec;

/// The world of tests.
pub const FACTS: &dyn World = &FactsWorld;

/// The label that carries a fact.
const LABEL: &str = r#"metadata.labels["facts.example.com/region"]"#;
/// The keys of the ConfigMap.
const KEYS: [&str; 2] = ["data.region", "data.version"];

#[derive(Debug)]
struct FactsWorld;

impl World for FactsWorld {
    fn name(&self) -> &'static str {
        "facts-guest"
    }

    fn takes(&self, grants: &[WriteGrantSpec]) -> bool {
        grants
            .iter()
            .any(|grant| grant.fields == KEYS || grant.fields == [LABEL])
    }

    fn rule(&self, granted: &Granted<'_>) -> Result<WriteRule, PolicyError> {
        let Granted { field, grant, .. } = *granted;
        let target = match grant.target {
            Some(_) => Target::Primary,
            None => {
                let named = |name: &str, given: &Option<String>| {
                    let field = format!("{field}.{name}");
                    let given = given.as_deref();
                    let text = given.ok_or_else(|| PolicyError::new(&field, "is missing"))?;
                    pattern(&field, text, granted.names)
                };
                let (namespace, name) = (
                    named("namespace", &grant.namespace)?,
                    named("name", &grant.name)?,
                );
                Target::Named {
                    namespace: Some(namespace),
                    name,
                    finalizers: BTreeSet::new(),
                }
            }
        };
        let paths = grant.fields.iter().map(|path| Path::parse(path));
        let fields = paths.collect::<Result<_, _>>();
        Ok(WriteRule {
            fields: fields.map_err(|error| PolicyError::new(field, error.to_string()))?,
            ..granted.rule(target)
        })
    }

    fn requires(&self) -> bool {
        true
    }

    fn nothing(&self, _: &Policy, primary: &ObjectRef) -> Vec<Fields> {
        let label = Path::parse(LABEL).into_iter();
        let fields = label.map(|path| (path, Field::Value(Value::Null)));
        vec![Fields {
            object: primary.clone(),
            fields: fields.collect(),
        }]
    }
}

/// What a guest of this world answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The value of the first key, and of the label.
    pub region: String,
    /// The value of the second key.
    pub version: String,
}

impl Answer for Facts {
    fn lower<'a>(&'a self, given: &Lowering<'a>) -> Result<Vec<Desired<'a>>, Failure> {
        given.policy.whole(given.target, &given.data)?;
        let label = Path::parse(LABEL)
            .map_err(|error| Failure::known(KnownReason::ContractBroken, error.to_string()))?;
        let text = |text: &str| KeyContent::Text(text.to_owned());
        Ok(vec![
            Desired::Whole(Whole {
                object: given.target.clone(),
                fixed: Map::new(),
                content: Map::new(),
                data: BTreeMap::from([
                    ("region".to_owned(), text(&self.region)),
                    ("version".to_owned(), text(&self.version)),
                ]),
                ends_seconds: None,
            }),
            Desired::Fields(Fields {
                object: given.primary.reference.clone(),
                fields: vec![(label, Field::Value(self.region.as_str().into()))],
            }),
        ])
    }

    fn shown(&self) -> Option<Value> {
        Some(json!({"region": self.region, "version": self.version}))
    }
}
