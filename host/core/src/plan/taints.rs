//! Plans the taints of a primary: those with an owned key become as wanted, every other one keeps place, time and
//! form. An owned taint that is right but has no time gets one, unless the cluster sets times. An owned key occurs at
//! most once in the result.

use super::contention::Contention;
use super::{Plan, Step};
use crate::contract::taints::{Effect, Wanted};
use crate::digest::Digest;
use crate::failure::{Failure, InvalidField};
use crate::object::Object;
use crate::policy::TaintsRule;
use crate::time;
use crate::work::Key;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use transom_api::KnownReason;

/// The most bytes of a taint's value, as Kubernetes has it.
const MAX_VALUE: usize = 1024;

/// Who sets `timeAdded` of a taint that is added or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeAdded {
    /// A webhook of the cluster: the field is left out.
    SetByCluster,
    /// The agent, to this time in seconds since 1970.
    SetByUs(i64),
}

/// Plans `spec.taints` of the primary: no step when the owned ones are as wanted. `contention` is that of the policy
/// and the primary; call [`Contention::written`] after a successful write.
///
/// # Errors
/// `TaintKeyNotGranted`, `ContractBroken` for a key that is wanted twice or an impossible value,
/// `InvalidObject` when `spec.taints` is not a list of taints, `Contended`.
pub fn plan(
    key: &Key,
    primary: &Object,
    rule: &TaintsRule,
    wanted: &[Wanted],
    added: TimeAdded,
    (contention, now_seconds): (&mut Contention, i64),
) -> Result<Plan, Failure> {
    let wanted = checked(wanted, rule)?;
    let current = current(primary).map_err(|invalid| Failure::invalid_object(primary, &invalid))?;
    let merged = merge(&current, rule, &wanted, added);
    if merged == current {
        return Ok(Plan::new(key, None));
    }
    contention.permit(
        &primary.reference,
        fingerprint(&current, rule, added),
        fingerprint(&merged, rule, added),
        now_seconds,
    )?;
    let value = if merged.is_empty() {
        Value::Null
    } else {
        Value::Array(merged)
    };
    let step = Step::Patch {
        reference: primary.reference.clone(),
        version: primary.version.clone(),
        fields: vec![("spec.taints".to_owned(), value)],
    };
    Ok(Plan::new(key, Some(step)))
}

/// A fingerprint of what the policy writes in a list of taints: the owned taints, and, where the agent sets times,
/// whether each has a time. The time itself does not count.
fn fingerprint(taints: &[Value], rule: &TaintsRule, added: TimeAdded) -> Digest {
    let owned = taints
        .iter()
        .filter(|taint| rule.keys.contains(key_of(taint)));
    let text = |taint: &Value, field| {
        taint
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let timed = |taint: &Value| matches!(added, TimeAdded::SetByUs(_)) && has_time(taint);
    let said = owned.map(|taint| {
        json!([
            key_of(taint),
            text(taint, "value"),
            text(taint, "effect"),
            timed(taint)
        ])
    });
    Digest::of(&Value::Array(said.collect()))
}

/// Whether an owned taint has no time: the webhook that should set it did not.
pub fn untimed(primary: &Object, rule: &TaintsRule) -> bool {
    let ours = |taint: &Value| rule.keys.contains(key_of(taint)) && !has_time(taint);
    current(primary).is_ok_and(|taints| taints.iter().any(ours))
}

fn has_time(taint: &Value) -> bool {
    taint.get("timeAdded").is_some_and(|time| !time.is_null())
}

/// The wanted taints, in the guest's order; each key must be granted and occur once.
fn checked<'a>(wanted: &'a [Wanted], rule: &TaintsRule) -> Result<Vec<&'a Wanted>, Failure> {
    let mut checked: Vec<&Wanted> = Vec::with_capacity(wanted.len());
    for taint in wanted {
        let shown: String = taint.key.chars().take(100).collect();
        if !rule.keys.contains(&taint.key) {
            return Err(Failure::known(
                KnownReason::TaintKeyNotGranted,
                format!("the policy does not grant the taint key `{shown}`"),
            ));
        }
        if checked.iter().any(|other| other.key == taint.key) {
            return Err(Failure::known(
                KnownReason::ContractBroken,
                format!("the guest proposed the taint key `{shown}` twice"),
            ));
        }
        if taint.value.len() > MAX_VALUE {
            return Err(Failure::known(
                KnownReason::ContractBroken,
                format!("the guest's value for the taint key `{shown}` is too long"),
            ));
        }
        checked.push(taint);
    }
    Ok(checked)
}

/// `spec.taints` as it is; each must be a map with a key.
fn current(primary: &Object) -> Result<Vec<Value>, InvalidField> {
    let spec = crate::object::field::Place::top(&primary.body).map("spec")?;
    let list = spec.get("taints");
    for taint in list.list()? {
        taint.as_map()?.get("key").required_text()?;
    }
    Ok(list
        .value()
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default())
}

/// The list as it will be. One entry of each wanted owned key stays: the right one if there is one, else the first,
/// replaced.
fn merge(current: &[Value], rule: &TaintsRule, wanted: &[&Wanted], added: TimeAdded) -> Vec<Value> {
    let mut place: BTreeMap<&str, usize> = BTreeMap::new();
    for want in wanted {
        let of_key = |taint: &&Value| key_of(taint) == want.key;
        let right = current
            .iter()
            .position(|taint| of_key(&taint) && is(taint, want));
        if let Some(index) = right.or_else(|| current.iter().position(|taint| of_key(&taint))) {
            place.insert(&want.key, index);
        }
    }
    let mut merged = Vec::with_capacity(current.len() + wanted.len());
    for (index, taint) in current.iter().enumerate() {
        let key = key_of(taint);
        if !rule.keys.contains(key) {
            merged.push(taint.clone());
        } else if place.get(key) == Some(&index) {
            let want = wanted
                .iter()
                .find(|want| want.key == key && !is(taint, want));
            merged.push(want.map_or_else(|| timed(taint, added), |want| entry(want, added)));
        }
    }
    let new = wanted
        .iter()
        .filter(|want| !place.contains_key(want.key.as_str()));
    merged.extend(new.map(|want| entry(want, added)));
    merged
}

fn key_of(taint: &Value) -> &str {
    taint.get("key").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a taint is the wanted one: same key, value and effect. Its time and other fields do not count.
fn is(taint: &Value, want: &Wanted) -> bool {
    let text = |field| taint.get(field).and_then(Value::as_str).unwrap_or_default();
    key_of(taint) == want.key
        && text("value") == want.value
        && text("effect") == effect(want.effect)
}

/// A taint that is right, with a time if it has none and the agent sets times.
fn timed(taint: &Value, added: TimeAdded) -> Value {
    let mut taint = taint.clone();
    if let (TimeAdded::SetByUs(now_seconds), false, Some(map)) =
        (added, has_time(&taint), taint.as_object_mut())
    {
        map.insert(
            "timeAdded".to_owned(),
            time::format_rfc3339(now_seconds).into(),
        );
    }
    taint
}

/// A taint as it is written: no empty value, and a time only when the agent sets times.
fn entry(want: &Wanted, added: TimeAdded) -> Value {
    let mut entry = Map::new();
    entry.insert("key".to_owned(), want.key.as_str().into());
    if !want.value.is_empty() {
        entry.insert("value".to_owned(), want.value.as_str().into());
    }
    entry.insert("effect".to_owned(), effect(want.effect).into());
    if let TimeAdded::SetByUs(now_seconds) = added {
        entry.insert(
            "timeAdded".to_owned(),
            time::format_rfc3339(now_seconds).into(),
        );
    }
    Value::Object(entry)
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::NoSelect => "NoSelect",
        Effect::PreferNoSelect => "PreferNoSelect",
        Effect::NoSelectIfNew => "NoSelectIfNew",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Writes;
    use crate::reference::ObjectRef;
    use crate::sample::{object, policy, taints_manifest};
    use proptest::prelude::*;

    /// Taints of few keys, two of them owned, so that they collide.
    fn taints() -> impl Strategy<Value = Vec<Value>> {
        let key = prop_oneof!["a/one", "a/two", "user", "other"];
        let effect = prop_oneof![
            Just("NoSelect"),
            Just("PreferNoSelect"),
            Just("NoSelectIfNew")
        ];
        let value = prop_oneof![Just(None), Just(Some("")), Just(Some("v"))];
        let taint = (key, effect, value, 0..100u32).prop_map(|(key, effect, value, n)| {
            let time = (n % 3 > 0).then(|| format!("2020-01-01T00:00:{:02}Z", n % 60));
            json!({"key": key, "effect": effect, "value": value, "timeAdded": time, "n": n})
        });
        proptest::collection::vec(taint, 0..8)
    }

    fn wanted() -> impl Strategy<Value = Vec<Wanted>> {
        let effect = prop_oneof![Just(Effect::NoSelect), Just(Effect::PreferNoSelect)];
        let one = |key: &'static str| {
            let taint = (effect.clone(), prop_oneof![Just(""), Just("v")]).prop_map(
                move |(effect, value)| Wanted {
                    key: key.to_owned(),
                    value: value.to_owned(),
                    effect,
                },
            );
            proptest::option::of(taint)
        };
        (one("a/one"), one("a/two")).prop_map(|(one, two)| one.into_iter().chain(two).collect())
    }

    /// The list after the plan is applied, and whether there was a step.
    fn applied_by(current: &[Value], wanted: &[Wanted], added: TimeAdded) -> (Vec<Value>, bool) {
        let Writes::Taints(rule) = policy(&taints_manifest()).writes else {
            panic!("a policy that taints")
        };
        let reference = ObjectRef::local(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            None,
            "c",
        );
        let key = Key::new(&"taints".into(), &reference);
        let primary = object(reference, json!({"spec": {"taints": current}}));
        let plan = plan(
            &key,
            &primary,
            &rule,
            wanted,
            added,
            (&mut Contention::default(), 0),
        )
        .unwrap();
        match plan.steps.as_slice() {
            [] => (current.to_vec(), false),
            [Step::Patch { fields, .. }] => {
                (fields[0].1.as_array().cloned().unwrap_or_default(), true)
            }
            other => panic!("{other:?}"),
        }
    }

    fn applied(current: &[Value], wanted: &[Wanted]) -> (Vec<Value>, bool) {
        applied_by(current, wanted, TimeAdded::SetByUs(0))
    }

    fn owned(taint: &Value) -> bool {
        key_of(taint).starts_with("a/")
    }

    /// The results of plans while another writer writes `theirs`, each time at another second; ours is written when
    /// permitted.
    fn contended(rule: &TaintsRule, theirs: &[Value], times: i64) -> Vec<Option<i64>> {
        contended_by(rule, theirs, times, TimeAdded::SetByCluster)
    }

    fn contended_by(
        rule: &TaintsRule,
        theirs: &[Value],
        times: i64,
        added: TimeAdded,
    ) -> Vec<Option<i64>> {
        let reference = ObjectRef::local(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            None,
            "c",
        );
        let key = Key::new(&"taints".into(), &reference);
        let wanted = [Wanted {
            key: "a/one".to_owned(),
            value: String::new(),
            effect: Effect::NoSelect,
        }];
        let mut contention = Contention::default();
        let mut plan = |taints: &[Value], at| {
            let primary = object(reference.clone(), json!({"spec": {"taints": taints}}));
            let plan = super::plan(&key, &primary, rule, &wanted, added, (&mut contention, at));
            contention.written();
            plan.err().and_then(|failure| failure.ask_again_at)
        };
        plan(&[], 0);
        (1..=times).map(|at| plan(theirs, at)).collect()
    }

    #[test]
    fn stops_after_owned_taints_were_undone_three_times() {
        let Writes::Taints(rule) = policy(&taints_manifest()).writes else {
            panic!("a policy that taints")
        };
        let user = json!({"key": "user", "effect": "NoSelect"});
        let other = json!({"key": "a/one", "effect": "PreferNoSelect"});
        let ours =
            json!({"key": "a/one", "effect": "NoSelect", "timeAdded": "2020-01-01T00:00:00Z"});
        let stopped = vec![None, None, Some(601)];
        assert_eq!(contended(&rule, &[], 3), stopped, "removed");
        assert_eq!(
            contended(&rule, std::slice::from_ref(&other), 3),
            stopped,
            "given another effect"
        );
        assert_eq!(
            contended(&rule, &[ours.clone(), other], 3),
            stopped,
            "doubled"
        );
        assert_eq!(
            contended(&rule, &[user.clone(), ours.clone(), user], 100),
            vec![None; 100],
            "others come and go"
        );
        let untimed = json!({"key": "a/one", "effect": "NoSelect"});
        assert_eq!(
            contended_by(&rule, &[untimed], 3, TimeAdded::SetByUs(9)),
            stopped,
            "the time was taken away"
        );
        assert_eq!(
            contended(&rule, &[ours], 100),
            vec![None; 100],
            "a webhook set the time"
        );
    }

    #[test]
    fn a_changing_answer_is_no_conflict() {
        let Writes::Taints(rule) = policy(&taints_manifest()).writes else {
            panic!("a policy that taints")
        };
        let reference = ObjectRef::local(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            None,
            "c",
        );
        let key = Key::new(&"taints".into(), &reference);
        let (mut contention, mut taints) = (Contention::default(), json!([]));
        for at in 0..100 {
            let wanted = [Wanted {
                key: "a/one".to_owned(),
                value: at.to_string(),
                effect: Effect::NoSelect,
            }];
            let primary = object(reference.clone(), json!({"spec": {"taints": taints}}));
            let plan = plan(
                &key,
                &primary,
                &rule,
                &wanted,
                TimeAdded::SetByCluster,
                (&mut contention, at),
            )
            .unwrap();
            let [Step::Patch { fields, .. }] = plan.steps.as_slice() else {
                panic!("{plan:?}")
            };
            taints = fields[0].1.clone();
            contention.written();
        }
    }

    proptest! {
        #[test]
        fn leaves_other_taints_alone_and_sets_owned_keys(current in taints(), wanted in wanted()) {
            let (after, _) = applied(&current, &wanted);
            let others = |list: &[Value]| list.iter().filter(|taint| !owned(taint)).cloned().collect::<Vec<_>>();
            prop_assert_eq!(others(&current), others(&after));
            let ours: Vec<&Value> = after.iter().filter(|taint| owned(taint)).collect();
            prop_assert_eq!(ours.len(), wanted.len(), "no key is doubled or missing");
            for want in &wanted {
                prop_assert!(ours.iter().any(|taint| is(taint, want)));
            }
        }

        #[test]
        fn keeps_the_time_of_correct_taints_and_a_second_plan_is_empty(
            current in taints(), wanted in wanted(), ours in any::<bool>(),
        ) {
            let added = if ours { TimeAdded::SetByUs(0) } else { TimeAdded::SetByCluster };
            let (after, _) = applied_by(&current, &wanted, added);
            for want in &wanted {
                let right = current.iter().find(|taint| is(taint, want));
                let there = after.iter().find(|taint| is(taint, want));
                prop_assert!(right.is_none_or(|right| there == Some(&timed(right, added))));
                prop_assert!(right.is_none_or(|right| !has_time(right) || there == Some(right)));
                prop_assert!(!ours || there.is_some_and(has_time));
            }
            prop_assert_eq!(applied_by(&after, &wanted, added), (after.clone(), false));
        }
    }
}
