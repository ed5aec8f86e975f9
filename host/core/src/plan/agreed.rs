//! Finds fields that others changed after the policy wrote them, where the policy accepts the change: that is no
//! contention, and a later write is a new decision.

use super::contention::Contentions;
use super::desired::{Desired, Field, Fields};
use super::{PlanInput, fields};
use std::collections::BTreeSet;

/// Forgets the places that the answer no longer names and that are not as the policy left them. A place that is as the
/// policy left it stays: an answer may omit what is right already. All places of an object that is not among the
/// targets now stay: its state is unknown.
pub(super) fn note(wanting: &PlanInput<'_>, desired: &[Desired<'_>], contentions: &Contentions) {
    contentions.of_key(wanting.key, |object, contention| {
        let Ok(Some(there)) = fields::existing(wanting, object) else {
            return;
        };
        let of_it = desired.iter().filter_map(|one| match one {
            Desired::Fields(fields) if fields.object == *object => Some(fields),
            _ => None,
        });
        let named: BTreeSet<String> = of_it.flat_map(places).collect();
        contention.forget(|place, left| {
            !named.contains(place)
                && fields::said(wanting, there, place).is_some_and(|now| now != left)
        });
    });
}

/// The places of the fields that an answer names.
fn places(desired: &Fields) -> Vec<String> {
    let mut places = Vec::new();
    for (path, field) in &desired.fields {
        match field {
            Field::Value(_) => places.push(path.to_string()),
            Field::Elements(_) => places.push(fields::of_elements(path)),
            Field::Conditions(conditions) => places.extend(conditions.places()),
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::AgentFacts;
    use crate::object::Object;
    use crate::pattern::TemplateData;
    use crate::plan::conditions::Conditions;
    use crate::plan::desired::Elements;
    use crate::plan::kept::Kept;
    use crate::plan::{Step, TimeAdded, plan};
    use crate::projection::path::Path;
    use crate::reference::ObjectRef;
    use crate::sample::{object, objects_manifest, policy, with};
    use crate::stamp::{SourceRef, Stamp};
    use crate::work::Key;
    use serde_json::{Value, json};

    /// A cluster with conditions that agent and policy write, and what was counted of it.
    struct Stage {
        policy: crate::policy::Policy,
        cluster: Object,
        contentions: Contentions,
        now_seconds: i64,
    }

    impl Stage {
        fn new() -> Self {
            let write = json!([{"target": "primary", "verbs": ["patch"],
                "fields": ["status.conditions", "spec.size", "spec.taints[key=a/one]"], "conditions": ["One", "Two"]}]);
            let manifest = with(objects_manifest(), &[("/spec/grant/write", write)]);
            let policy = policy(&manifest);
            let of = &policy.primary;
            let reference = ObjectRef::local(&of.api_version, &of.kind, Some("n"), "c");
            Self {
                cluster: object(
                    reference,
                    json!({"spec": {"size": 0, "taints": []}, "metadata": {}, "status": {}}),
                ),
                contentions: Contentions::default(),
                policy,
                now_seconds: 0,
            }
        }

        /// Another writer gives conditions a status.
        fn others(&mut self, statuses: &[(&str, &str)]) {
            let said = statuses
                .iter()
                .map(|(kind, status)| condition(kind, status));
            self.cluster.body["status"]["conditions"] = said.collect();
        }

        /// The policy wants these statuses, and nothing of the others; whether it may.
        fn wants(&mut self, statuses: &[(&str, &str)]) -> bool {
            let said = statuses
                .iter()
                .map(|(kind, status)| condition(kind, status));
            let conditions = Field::Conditions(Conditions::parse(said.collect()).unwrap());
            self.wants_all(match statuses {
                [] => Vec::new(),
                _ => vec![("status.conditions", conditions)],
            })
        }

        fn wants_all(&mut self, fields: Vec<(&str, Field)>) -> bool {
            self.now_seconds += 1;
            let fields = fields.into_iter();
            let fields = fields.map(|(path, field)| (Path::parse(path).unwrap(), field));
            let desired = [Desired::Fields(Fields {
                object: self.cluster.reference.clone(),
                fields: fields.collect(),
            })];
            let key = Key::new(&self.policy.name, &self.cluster.reference);
            let cluster = self.cluster.clone();
            let wanting = PlanInput {
                policy: &self.policy,
                key: &key,
                data: TemplateData {
                    object: &cluster,
                    agent: &AgentFacts::new("local-cluster", None),
                },
                primary: &cluster,
                targets: &[],
                others: &[],
                stamp: &Stamp::of(&key, SourceRef::of(&cluster, ""), "", ""),
                time_added: TimeAdded::SetByCluster,
                now_seconds: self.now_seconds,
            };
            let planned = plan(&wanting, &desired, &self.contentions).unwrap();
            if planned.waits.is_some() {
                return false;
            }
            for step in &planned.plan.steps {
                let Step::Patch { fields, .. } = step else {
                    panic!("{step:?}")
                };
                for (path, value) in fields {
                    let place = ["/", &path.replace('.', "/")].concat();
                    match self.cluster.body.pointer_mut(&place) {
                        Some(there) => *there = value.clone(),
                        None => self.cluster.body["status"]["conditions"] = value.clone(),
                    }
                }
                self.contentions.wrote(&key, step, &Kept::default());
            }
            true
        }
    }

    fn condition(kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status, "reason": "R", "message": "m"})
    }

    #[test]
    fn what_the_policy_agrees_with_is_no_fight() {
        // It no longer names the place, or names it with the value of the other.
        for names in [&[][..], &[("One", "True")]] {
            let mut stage = Stage::new();
            for _ in 0..20 {
                assert!(stage.wants(&[("One", "Unknown")]), "{names:?}");
                stage.others(&[("One", "True")]);
                assert!(stage.wants(names));
            }
        }
        let mut stage = Stage::new();
        for _ in 0..20 {
            let size = |size: u32| vec![("spec.size", Field::Value(json!(size)))];
            assert!(stage.wants_all(size(1)));
            stage.cluster.body["spec"]["size"] = json!(2);
            assert!(stage.wants_all(Vec::new()));
        }
    }

    /// The policy wants its taint.
    fn taint() -> Vec<(&'static str, Field)> {
        let taint = json!({"key": "a/one", "effect": "NoSelect"});
        let wanted = taint.as_object().cloned().into_iter().collect();
        let elements = Elements::of_taints(["a/one".to_owned()].into(), wanted);
        vec![("spec.taints", Field::Elements(elements))]
    }

    #[test]
    fn a_taint_that_others_remove_while_the_policy_leaves_it_out_is_no_fight() {
        let mut stage = Stage::new();
        for _ in 0..20 {
            assert!(stage.wants_all(taint()));
            assert!(stage.wants_all(Vec::new()), "it is right");
            stage.cluster.body["spec"]["taints"] = json!([{"key": "b", "effect": "NoSelect"}]);
            assert!(stage.wants_all(Vec::new()));
        }
        let mut stage = Stage::new();
        let fights = (0..20).take_while(|_| {
            let permitted = stage.wants_all(taint());
            assert!(stage.wants_all(Vec::new()) || !permitted);
            stage.cluster.body["spec"]["taints"] = json!([]);
            permitted
        });
        assert_eq!(fights.count(), 3, "it never agreed that the taint is gone");
    }

    #[test]
    fn a_fight_stops_also_if_the_policy_leaves_out_what_is_right() {
        for leaves_out in [true, false] {
            let mut stage = Stage::new();
            let ours = [("One", "Unknown"), ("Two", "False")];
            let fights = (0..20).take_while(|_| {
                let permitted = stage.wants(&ours);
                assert!(stage.wants(if leaves_out { &[] } else { &ours }) || !permitted);
                stage.others(&[("One", "True"), ("Two", "False")]);
                permitted
            });
            assert_eq!(fights.count(), 3, "{leaves_out}");
        }
    }

    #[test]
    fn a_fight_about_one_place_stops_although_there_is_none_about_another() {
        let mut stage = Stage::new();
        let fights = (0..20).take_while(|_| {
            let permitted = stage.wants(&[("One", "Unknown"), ("Two", "False")]);
            // The other writer means both, and the policy agrees with one of them.
            stage.others(&[("One", "True"), ("Two", "True")]);
            permitted && stage.wants(&[("One", "Unknown")])
        });
        assert!(fights.count() <= 3);
    }
}
