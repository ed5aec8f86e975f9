//! What an API server made of the values that the agent wrote. It keeps some in a form of its own: that form counts as
//! the value that was wanted, as long as neither of the two changes. In memory only; it must not leave the process.

use super::Step;
use super::contention::{MAX_PLACES, whole};
use super::desired::holds;
use crate::digest::Digest;
use crate::object::Object;
use crate::policy::values;
use crate::projection::path::{self, Path};
use serde_json::Value;
use std::collections::BTreeMap;

/// The fields of an object that are compared in another way, or kept as they are.
const OTHERWISE: [&str; 4] = ["apiVersion", "kind", "metadata", "data"];

/// What a server kept of one write: a form of each field that it keeps otherwise than it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The fields that were written.
    written: Vec<Box<str>>,
    forms: KeptForms,
    /// The fingerprint of an object that the policy makes.
    pub(super) whole: Option<Digest>,
}

impl Kept {
    /// Compares what a step wrote with the object that the server returned for it.
    pub fn of(step: &Step, answer: &Object) -> Self {
        let mut kept = Self::default();
        for (path, wanted) in fields(step) {
            let there = path::at(&answer.body, &path).unwrap_or(&Value::Null);
            let is_right = match step {
                Step::Patch { .. } => *there == wanted,
                _ => holds(there, &wanted),
            };
            let path: Box<str> = path.into();
            if !is_right {
                let form = KeptForm {
                    wanted: Digest::of(&wanted),
                    there: Digest::of(there),
                };
                kept.forms.0.insert(path.clone(), form);
            }
            kept.written.push(path);
        }
        let is_whole = matches!(step, Step::Create { .. } | Step::Update { .. });
        kept.whole = is_whole.then(|| whole(Some(answer)));
        kept
    }

    /// The forms of the fields of a patch, by their places.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, Digest)> {
        let forms = self.forms.0.iter();
        forms.map(|(path, form)| (&**path, form.there))
    }
}

/// The fields of an object's content, with their values.
pub fn content(object: &Object) -> Vec<(Path, &Value)> {
    let content = object.body.as_object().into_iter().flatten();
    let content = content.filter(|(key, _)| !OTHERWISE.contains(&key.as_str()));
    values::fields(content)
}

/// The fields that a step writes, with their values; of a new object all of its content.
fn fields(step: &Step) -> Vec<(String, Value)> {
    match step {
        Step::Create { desired } => {
            let fields = content(desired).into_iter();
            fields
                .map(|(path, value)| (path.to_string(), value.clone()))
                .collect()
        }
        Step::Update { desired, changed } => {
            let of_content = |path: &&String| {
                let first = path::keys(path).into_iter().next();
                first.is_some_and(|first| !OTHERWISE.contains(&&*first))
            };
            let changed = changed.iter().filter(of_content);
            let value = |path: &String| path::at(&desired.body, path).cloned();
            let changed = changed.filter_map(|path| Some((path.clone(), value(path)?)));
            changed.collect()
        }
        Step::Patch { fields, .. } => fields.clone(),
        Step::Delete { .. } => Vec::new(),
    }
}

/// The forms of the fields of one object, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptForms(BTreeMap<Box<str>, KeptForm>);

/// Digests of one field as it was wanted, and as the server keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeptForm {
    wanted: Digest,
    there: Digest,
}

impl KeptForms {
    /// Whether what is there is what the server made of this very value.
    pub(crate) fn has(&self, path: &str, wanted: &Value, there: Option<&Value>) -> bool {
        self.0.get(path).is_some_and(|form| {
            form.wanted == Digest::of(wanted)
                && form.there == Digest::of(there.unwrap_or(&Value::Null))
        })
    }

    /// Takes in what the server made of another write of the object. Of very many forms the later ones are not
    /// remembered: these fields are written again.
    pub(super) fn then(&mut self, kept: &Kept) {
        for path in &kept.written {
            self.0.remove(path);
        }
        let forms = kept.forms.0.iter();
        let forms = forms.map(|(path, form)| (path.clone(), *form));
        self.0
            .extend(forms.take(MAX_PLACES.saturating_sub(self.0.len())));
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|path, _| keep(path));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::{Ownership, Rivals};
    use crate::pattern::TemplateData;
    use crate::plan::contention::Contentions;
    use crate::plan::desired::{Desired, Field, Fields, Whole};
    use crate::plan::{PlanInput, TargetState, TimeAdded, plan};
    use crate::policy::Policy;
    use crate::projection::path::Path;
    use crate::reference::ObjectRef;
    use crate::sample::{agent, object, objects_manifest, policy, with};
    use crate::stamp::{SourceRef, Stamp};
    use crate::work::Key;
    use serde_json::json;
    use std::sync::Arc;

    /// A primary and a quota of it, and what was counted of both.
    struct Stage {
        policy: Policy,
        primary: Object,
        quota: Option<Object>,
        contentions: Contentions,
    }

    fn quota() -> ObjectRef {
        ObjectRef::local("v1", "ResourceQuota", Some("n"), "q")
    }

    /// What a server makes of quantities and lists.
    fn normal(text: &str) -> String {
        text.replace("1000m", "1").replace("2000m", "2")
    }

    impl Stage {
        fn new() -> Self {
            let write = json!([
                {"target": "primary", "verbs": ["patch"], "fields": ["spec.clients"]},
                {"kind": "ResourceQuota", "namespace": "n", "name": "q",
                    "verbs": ["create", "update", "delete"], "fields": ["spec"]},
            ]);
            let policy = policy(&with(objects_manifest(), &[("/spec/grant/write", write)]));
            let of = &policy.primary;
            let reference = ObjectRef::local(&of.api_version, &of.kind, None, "c");
            Self {
                primary: object(reference, json!({"spec": {}, "metadata": {"uid": "u"}})),
                quota: None,
                contentions: Contentions::default(),
                policy,
            }
        }

        /// The steps to what is wanted.
        fn plan(&mut self, cpu: &str) -> Vec<Step> {
            let key = Key::new(&self.policy.name, &self.primary.reference);
            let fields = Fields {
                object: self.primary.reference.clone(),
                fields: vec![(
                    Path::parse("spec.clients").unwrap(),
                    Field::Value(json!([{"cpu": cpu}])),
                )],
            };
            let whole = Whole {
                object: quota(),
                fixed: serde_json::Map::new(),
                content: json!({"spec": {"hard": {"cpu": cpu}}})
                    .as_object()
                    .cloned()
                    .unwrap_or_default(),
                data: BTreeMap::new(),
                ends_seconds: None,
            };
            let targets = [TargetState {
                object: quota(),
                existing: self.quota.clone().map(Arc::new),
                ownership: Ownership::Owner {
                    rivals: Rivals::None,
                },
                withheld: None,
            }];
            let wanting = PlanInput {
                policy: &self.policy,
                key: &key,
                data: TemplateData {
                    object: &self.primary,
                    agent: &agent("hub", true),
                },
                primary: &self.primary,
                targets: &targets,
                others: &[],
                stamp: &Stamp::of(&key, SourceRef::of(&self.primary, ""), "", ""),
                time_added: TimeAdded::SetByCluster,
                now_seconds: 0,
            };
            let desired = [Desired::Fields(fields), Desired::Whole(whole)];
            let planned = plan(&wanting, &desired, &self.contentions);
            planned.map(|planned| planned.plan.steps).unwrap()
        }

        /// Writes what is wanted to a server that keeps it in its own form; returns how many writes that took.
        fn write(&mut self, cpu: &str) -> usize {
            let key = Key::new(&self.policy.name, &self.primary.reference);
            let steps = self.plan(cpu);
            for step in &steps {
                let answer = match step {
                    Step::Patch { fields, .. } => {
                        let text = normal(&fields[0].1.to_string());
                        let mut clients: Value = serde_json::from_str(&text).unwrap();
                        clients[0]["more"] = "default".into();
                        self.primary.body["spec"]["clients"] = clients;
                        self.primary.clone()
                    }
                    Step::Create { desired } | Step::Update { desired, .. } => {
                        let text = normal(&desired.body.to_string());
                        let body = serde_json::from_str(&text).unwrap();
                        let made = object(quota(), body);
                        self.quota = Some(made.clone());
                        made
                    }
                    other => panic!("{other:?}"),
                };
                self.contentions.wrote(&key, step, &Kept::of(step, &answer));
            }
            steps.len()
        }
    }

    #[test]
    fn of_very_many_forms_the_first_are_remembered() {
        let of = |value: &str| {
            let keys = (0..8_000).map(|key| (format!("k{key:04}"), value.into()));
            let keys: serde_json::Map<String, Value> = keys.collect();
            object(quota(), json!({"spec": {"hard": keys}}))
        };
        let step = Step::Create {
            desired: of("1000m"),
        };
        let mut forms = KeptForms::default();
        for _ in 0..2 {
            forms.then(&Kept::of(&step, &of("1")));
            assert_eq!(forms.0.len(), MAX_PLACES);
            assert!(forms.has("spec.hard.k0000", &json!("1000m"), Some(&json!("1"))));
        }
    }

    #[test]
    fn the_form_in_which_a_server_keeps_a_value_is_not_written_again() {
        let mut stage = Stage::new();
        assert_eq!((stage.write("1000m"), stage.write("1000m")), (2, 0));
        // Of another value it is not known that the server keeps it in the same form.
        assert_eq!((stage.write("1001m"), stage.write("1000m")), (2, 2));
        // What others change is put back, also to a value that reads like the wanted one.
        for theirs in ["3", "1.0"] {
            stage.primary.body["spec"]["clients"][0]["cpu"] = theirs.into();
            if let Some(quota) = &mut stage.quota {
                quota.body["spec"]["hard"]["cpu"] = theirs.into();
            }
            assert_eq!(
                (stage.write("1000m"), stage.write("1000m")),
                (2, 0),
                "{theirs}"
            );
        }
    }

    #[test]
    fn the_forms_of_a_policy_can_be_copied_without_what_was_counted() {
        let mut stage = Stage::new();
        assert_eq!(stage.write("1000m"), 2);
        let live = std::mem::take(&mut stage.contentions);
        live.copy_forms(&stage.contentions, "another");
        assert_eq!(stage.plan("1000m").len(), 2, "of another policy");
        stage.contentions = Contentions::default();
        live.copy_forms(&stage.contentions, &stage.policy.name);
        assert_eq!(stage.plan("1000m").len(), 0);
        assert_eq!(stage.plan("1001m").len(), 2);
        // What others change is not known as a change of something that was written.
        for theirs in 3..20 {
            stage.primary.body["spec"]["clients"][0]["cpu"] = theirs.into();
            if let Some(quota) = &mut stage.quota {
                quota.body["spec"]["hard"]["cpu"] = theirs.into();
            }
            assert_eq!(stage.plan("1001m").len(), 2);
        }
    }

    #[test]
    fn the_form_in_which_a_server_keeps_a_value_is_no_change_by_others() {
        let mut stage = Stage::new();
        for _ in 0..20 {
            assert_eq!((stage.write("1000m"), stage.write("2000m")), (2, 2));
        }
    }
}
