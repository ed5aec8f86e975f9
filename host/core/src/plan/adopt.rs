//! Which objects that are there without a stamp a policy takes for its own.

use super::Wanting;
use super::desired::{Content, Whole};
use super::whole::is_right;
use crate::failure::Failure;
use crate::managed_keys::Wanted;
use crate::object::Object;
use crate::ownership::Rivals;
use crate::pattern::TemplateData;
use crate::policy::WriteRule;
use crate::projection::path::{self, Path};
use crate::stamp::Stamp;
use serde_json::Map;
use transom_api::KnownReason;
use transom_api::policy::{AdoptSpec, OwnSpec};

/// Labels and annotations of this group say that an object belongs to a ManifestWork.
const MANIFEST_WORK: &str = "work.open-cluster-management.io/";

/// Checks that an existing object is this policy's, or may be adopted.
pub(super) fn check(
    wanting: &Wanting<'_>,
    whole: &Whole<'_>,
    existing: &Object,
    (rule, rivals): (&WriteRule, Rivals),
) -> Result<(), Failure> {
    ours(wanting, existing, (rule, rivals), || {
        let bounded = whole.data.is_empty() && is_bounded(rule, existing, &wanting.data);
        match bounded {
            true => None,
            false => differs(whole, existing),
        }
    })
}

/// Checks that an existing object is this policy's, or one that it could adopt whatever it wants of it: then it may remove it.
pub(super) fn check_removal(
    wanting: &Wanting<'_>,
    existing: &Object,
    (rule, rivals): (&WriteRule, Rivals),
) -> Result<(), Failure> {
    ours(wanting, existing, (rule, rivals), || {
        let bounded = is_bounded(rule, existing, &wanting.data);
        (!bounded).then_some(OTHER_CONTENT)
    })
}

/// Checks that an existing object is this policy's, or that nothing is against adopting it.
fn ours(
    wanting: &Wanting<'_>,
    existing: &Object,
    (rule, rivals): (&WriteRule, Rivals),
    differs: impl FnOnce() -> Option<&'static str>,
) -> Result<(), Failure> {
    let target = &existing.reference;
    let message = match Stamp::read(existing) {
        Some(stamp) if *stamp.policy == *wanting.key.policy => return Ok(()),
        Some(stamp) => format!(
            "{target} was made by the policy `{}`, which owns it",
            stamp.policy
        ),
        None => {
            let of_others = of_others(wanting, existing, (rule, rivals));
            let Some(why) = of_others.or_else(differs) else {
                return Ok(());
            };
            format!("{target} exists without ownership labels and is not adopted: {why}")
        }
    };
    Err(Failure::known(KnownReason::TargetNotOwned, message).about([target.clone()]))
}

/// Why an object without a stamp is not adopted, whatever it holds. What all primaries of a policy share belongs to none of
/// them more than to the others.
fn of_others(
    wanting: &Wanting<'_>,
    existing: &Object,
    (rule, rivals): (&WriteRule, Rivals),
) -> Option<&'static str> {
    let alone = match rivals {
        Rivals::None => true,
        Rivals::OfPolicy => rule.is_shared(),
        Rivals::OfOthers => false,
    };
    match wanting.policy.own.adopt {
        AdoptSpec::Never => Some("spec.own.adopt is Never"),
        AdoptSpec::SoleOwner if !alone => Some("more than one primary claims it"),
        AdoptSpec::SoleOwner if existing.has_owner() => Some("it has an owner reference"),
        AdoptSpec::SoleOwner if of_manifest_work(existing) => Some("it belongs to a ManifestWork"),
        AdoptSpec::SoleOwner => None,
    }
}

/// Whether an object says in every granted field something that the grant lists: the policy could have written all of it, so
/// nothing of others is lost when it is written over. An object that lacks a field may be one of others with the same name.
fn is_bounded(rule: &WriteRule, existing: &Object, data: &TemplateData<'_>) -> bool {
    let lists = |field: &Path| {
        let mut values = rule.values.iter();
        values.any(|values| values.path.grants(field))
    };
    let has = |field: &Path| {
        let there = path::at(&existing.body, &field.to_string());
        there.is_some_and(|there| !there.is_null())
    };
    let mut values = rule.values.iter();
    rule.holes.is_empty()
        && rule.kubeconfig.is_none()
        && !rule.fields.is_empty()
        && rule.fields.iter().all(|field| lists(field) && has(field))
        && values.all(|values| values.admits(&existing.body, data))
}

/// Why an existing object is not the one that the policy would have made.
fn differs(whole: &Whole<'_>, existing: &Object) -> Option<&'static str> {
    let content = Wanted::of(&OwnSpec::default(), &whole.content, &[]);
    let mut data = whole.data.iter();
    let of_data = data.find_map(|one| differs_in(existing, one));
    of_data.or_else(|| (!content.is_in(existing)).then_some(OTHER_CONTENT))
}

fn differs_in(existing: &Object, (key, content): (&String, &Content<'_>)) -> Option<&'static str> {
    match content {
        Content::Hole(hole) => {
            let bytes = existing.secret_bytes(key);
            let ours = bytes.is_some_and(|bytes| hole.shares_credential(&bytes));
            (!ours).then_some("the credential in it is not the source's")
        }
        Content::Text(_) if is_right(existing, key, content) => None,
        Content::Text(_) => Some(OTHER_CONTENT),
    }
}

const OTHER_CONTENT: &str = "its content is not what the policy would write";

fn of_manifest_work(object: &Object) -> bool {
    ["/metadata/labels", "/metadata/annotations"]
        .iter()
        .filter_map(|pointer| object.body.pointer(pointer)?.as_object())
        .flat_map(Map::keys)
        .any(|key| key.starts_with(MANIFEST_WORK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::Ownership;
    use crate::plan::contention::Contentions;
    use crate::plan::desired::Desired;
    use crate::plan::{self, Claimed, Feasible, Step, TimeAdded};
    use crate::policy::Policy;
    use crate::reference::ObjectRef;
    use crate::sample::{agent, object, objects_manifest, policy, with};
    use crate::stamp::Source;
    use crate::work::Key;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    const HOLD: &str = "example.com/hold";

    fn rule(verbs: &[&str]) -> Value {
        json!({"apiGroups": ["a.b"], "resources": ["things"], "verbs": verbs})
    }

    fn role(name: &str) -> ObjectRef {
        ObjectRef::local(RBAC, "ClusterRole", None, name)
    }

    /// A policy that makes one role for each cluster, with a label and a finalizer, and one that all share.
    fn makes() -> Value {
        let grant = |name: &str, fields: Value, values: Value| {
            json!({"apiVersion": RBAC, "kind": "ClusterRole", "name": name, "verbs": ["create", "update", "delete"],
                "fields": fields, "values": values})
        };
        let rules = json!([rule(&["get", "update"]), rule(&["get"])]);
        let mut own = grant(
            "own-{primary.name}",
            json!(["rules", "metadata.labels.cluster"]),
            json!({"rules": rules, "metadata.labels.cluster": ["{primary.name}"]}),
        );
        own["finalizers"] = json!([HOLD]);
        let shared = grant("shared", json!(["rules"]), json!({"rules": rules}));
        with(
            objects_manifest(),
            &[("/spec/grant/write", json!([own, shared]))],
        )
    }

    /// What becomes of a role that is there: a step, none, or why not.
    fn planned(
        policy: &Policy,
        there: &Object,
        rivals: Rivals,
        desired: Desired<'_>,
    ) -> Result<Option<Step>, String> {
        let cluster = "cluster.open-cluster-management.io/v1";
        let reference = ObjectRef::local(cluster, "ManagedCluster", None, "c1");
        let primary = object(reference, json!({"metadata": {"name": "c1", "uid": "u"}}));
        let wanting = Wanting {
            policy,
            key: &Key::new(&policy.name, &primary.reference),
            data: TemplateData {
                object: &primary,
                agent: &agent("hub", true),
            },
            primary: &primary,
            targets: &[Claimed {
                object: there.reference.clone(),
                existing: Some(Arc::new(there.clone())),
                ownership: Ownership::Owner { rivals },
            }],
            others: &[],
            stamp: &Stamp {
                policy: policy.name.to_string(),
                source: Source {
                    reference: primary.reference.clone(),
                    uid: "u".to_owned(),
                },
                inputs: String::new(),
                component: String::new(),
            },
            time_added: TimeAdded::SetByCluster,
            now_seconds: 0,
        };
        let planned = plan::plan(&wanting, &[desired], &mut Contentions::default());
        let Feasible { mut plan, waits } = planned.map_err(|failure| failure.message)?;
        match waits {
            Some(refused) => Err(refused.message),
            None => Ok(plan.steps.pop()),
        }
    }

    /// A role that wants only to read.
    fn wanted(there: &Object) -> Desired<'static> {
        let content = json!({"rules": [rule(&["get"])], "metadata": {"labels": {"cluster": "c1"}}});
        let mut content = content.as_object().cloned().unwrap_or_default();
        if there.reference.name == "shared" {
            content.remove("metadata");
        }
        Desired::Whole(Whole {
            object: there.reference.clone(),
            fixed: Map::new(),
            content,
            data: BTreeMap::new(),
            ends_seconds: None,
        })
    }

    fn own(metadata: Value, rules: &Value) -> Object {
        let mut there = object(role("own-c1"), json!({"metadata": {}, "rules": rules}));
        there.body["metadata"] = metadata;
        there
    }

    const TWICE: &str = "more than one primary claims it";

    fn adopted(there: &Object, rivals: Rivals) -> Result<(), String> {
        let step = planned(&policy(&makes()), there, rivals, wanted(there));
        let why = |message: String| message.rsplit(": ").next().unwrap_or_default().to_owned();
        match step.map_err(why)? {
            Some(Step::Update { desired, .. }) => {
                assert!(Stamp::read(&desired).is_some(), "{desired:?}");
                assert_eq!(desired.body["rules"], json!([rule(&["get"])]));
                Ok(())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn adopts_what_says_only_what_the_grant_lists() {
        let labelled = |more: Value| {
            let mut metadata = json!({"labels": {"cluster": "c1", "other": "kept"}});
            for (key, value) in more.as_object().into_iter().flatten() {
                metadata[key] = value.clone();
            }
            metadata
        };
        let full = json!([rule(&["get", "update"]), rule(&["get"])]);
        let of = |metadata, rules: &Value| adopted(&own(metadata, rules), Rivals::None);
        assert_eq!(of(labelled(json!({})), &full), Ok(()));
        let other = Err(OTHER_CONTENT.to_owned());
        let beyond = json!([rule(&["get"]), rule(&["delete"])]);
        assert_eq!(of(labelled(json!({})), &beyond), other, "a right beyond");
        let another = json!({"labels": {"cluster": "c2"}});
        assert_eq!(of(another, &full), other, "of another cluster");
        assert_eq!(of(json!({}), &full), other, "it lacks a granted field");
        assert_eq!(of(labelled(json!({})), &Value::Null), other, "no rules");
        let owner = labelled(json!({"ownerReferences": [{"name": "o"}]}));
        assert_eq!(of(owner, &full), Err("it has an owner reference".into()));
        let work = labelled(json!({"annotations": {"work.open-cluster-management.io/x": ""}}));
        assert_eq!(of(work, &full), Err("it belongs to a ManifestWork".into()));
    }

    #[test]
    fn a_field_without_listed_values_is_adopted_only_as_it_is_wanted() {
        let mut free = makes();
        let values = &mut free["spec"]["grant"]["write"][0]["values"];
        values["metadata.labels.cluster"].take();
        drop(
            values
                .as_object_mut()
                .map(|map| map.remove("metadata.labels.cluster")),
        );
        let full = json!([rule(&["get", "update"])]);
        let there = own(json!({"labels": {"cluster": "c1"}}), &full);
        let planned = planned(&policy(&free), &there, Rivals::None, wanted(&there));
        assert!(planned.unwrap_err().ends_with(OTHER_CONTENT));
    }

    #[test]
    fn what_all_primaries_share_is_adopted_by_one_of_them() {
        let full = json!([rule(&["get", "update"])]);
        // The label is none that the policy writes here.
        let body = json!({"metadata": {"labels": {"cluster": ""}}, "rules": full});
        let shared = object(role("shared"), body);
        assert_eq!(adopted(&shared, Rivals::None), Ok(()));
        assert_eq!(adopted(&shared, Rivals::OfPolicy), Ok(()));
        assert_eq!(adopted(&shared, Rivals::OfOthers), Err(TWICE.to_owned()));
        let own = own(json!({"labels": {"cluster": "c1"}}), &full);
        assert_eq!(adopted(&own, Rivals::OfPolicy), Err(TWICE.to_owned()));
    }

    #[test]
    fn a_guest_removes_what_it_could_adopt_and_takes_the_finalizer_off() {
        let removed = |metadata: Value, rules: &Value, rivals| {
            let there = own(metadata, rules);
            let gone = Desired::Gone(there.reference.clone());
            planned(&policy(&makes()), &there, rivals, gone)
        };
        let full = json!([rule(&["get", "update"])]);
        let there = json!({"labels": {"cluster": "c1"}, "finalizers": [HOLD, "a/b"]});
        let step = removed(there.clone(), &full, Rivals::None).unwrap();
        assert!(matches!(step, Some(Step::Delete { .. })), "{step:?}");
        let mut going = there.clone();
        going["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
        let step = removed(going.clone(), &full, Rivals::None).unwrap();
        let Some(Step::Patch { fields, .. }) = step else {
            panic!("{step:?}")
        };
        assert_eq!(fields[0].1, json!(["a/b"]));
        let beyond = json!([rule(&["delete"])]);
        for (metadata, rules, rivals) in [
            (&there, &beyond, Rivals::None),
            (&going, &beyond, Rivals::None),
            (&there, &full, Rivals::OfOthers),
        ] {
            assert!(removed(metadata.clone(), rules, rivals).is_err());
        }
        let mut never = makes();
        never["spec"]["own"] = json!({"prune": "Never"});
        let (there, gone) = (own(there, &full), Desired::Gone(role("own-c1")));
        let kept = planned(&policy(&never), &there, Rivals::None, gone);
        assert_eq!(kept, Ok(None));
    }

    #[test]
    fn what_a_policy_makes_bears_its_finalizers_and_is_held_by_them_while_it_is_wanted() {
        let full = json!([rule(&["get"])]);
        let metadata = json!({"labels": {"cluster": "c1"}, "finalizers": ["a/b"]});
        let there = own(metadata, &full);
        let plan = |there: &Object| {
            let desired = wanted(there);
            planned(&policy(&makes()), there, Rivals::None, desired)
        };
        let Ok(Some(Step::Update { desired, changed })) = plan(&there) else {
            panic!("it lacks the finalizer")
        };
        assert!(changed.contains(&"metadata.finalizers".to_owned()));
        assert_eq!(desired.body["metadata"]["finalizers"], json!(["a/b", HOLD]));
        assert_eq!(plan(&desired), Ok(None), "it is as wanted");
        let mut held = desired;
        held.body["metadata"]["deletionTimestamp"] = json!("2026-03-05T09:00:00Z");
        assert_eq!(plan(&held), Ok(None), "it works on");
        held.body["metadata"]["finalizers"] = json!(["a/b"]);
        assert_eq!(plan(&held), Ok(None), "others hold it");
    }
}
