//! The objects world: a guest makes objects and says what fields of the primary, and of objects that others made, hold:
//! within the granted paths and values.

mod fill;
mod granted;
mod holes;
mod manifests;
mod removal;
mod status;
mod taints;

use self::fill::Filler;
use self::granted::{beside, fields, patterns, unownable, unwritable};
use super::{Answer, Granted, Lowering, World};
use crate::contract::objects::{Apply, MAX_OBJECTS, MAX_PATHS, ObjectOwnership, ObjectsAnswer};
use crate::failure::Failure;
use crate::plan::desired::{Desired, Field, Fields, Whole};
use crate::policy::manifest::PolicyError;
use crate::policy::values::{self, ValueRule};
use crate::policy::{Target, WriteRule, rbac};
use crate::projection::path::Path;
use crate::reference::ObjectRef;
use crate::requirements;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use transom_api::KnownReason;
use transom_api::policy::{WriteGrantSpec, WriteVerb};

type Checked<T> = Result<T, PolicyError>;

/// The objects world.
pub const OBJECTS: &dyn World = &ObjectsWorld;

#[derive(Debug)]
struct ObjectsWorld;

impl World for ObjectsWorld {
    fn name(&self) -> &'static str {
        "objects-guest"
    }

    fn takes(&self, grants: &[WriteGrantSpec]) -> bool {
        let any_field = |grant: &WriteGrantSpec| {
            let named = grant.target.is_some() || grant.kind.is_some();
            let of_kubeconfig = grant.kubeconfig.is_some() && grant.holes.is_empty();
            named && !of_kubeconfig && grant.taint_keys.is_empty()
        };
        grants.iter().any(any_field)
    }

    fn rule(&self, granted: &Granted<'_>) -> Checked<WriteRule> {
        let Granted { field, grant, .. } = *granted;
        let target = match grant.target {
            Some(_) => {
                granted.patches_primary()?;
                Target::Primary
            }
            None if grant.verbs.iter().any(WriteVerb::is_of_others) => {
                return removal::check(granted);
            }
            None => beside(granted)?,
        };
        let rule = granted.rule(target);
        let (api_version, kind) = (&rule.api_version, &rule.kind);
        let holes = holes::granted(granted)?;
        if let Some(why) = unwritable(&rule.target, api_version, kind, !holes.is_empty()) {
            let field = match rule.target {
                Target::Primary => "spec.primary.kind".to_owned(),
                Target::Named { .. } | Target::Others { .. } => format!("{field}.kind"),
            };
            return Err(PolicyError::new(field, why));
        }
        let (taint_keys, named) = taints::split(granted, &rule.target)?;
        let mut fields = match named.is_empty() && (!holes.is_empty() || !taint_keys.is_empty()) {
            true => Vec::new(),
            false => fields(granted, &named, &rule.target)?,
        };
        if !taint_keys.is_empty() {
            fields.push(super::taints::path(field)?);
        }
        if !holes.is_empty() {
            holes::check_fields(field, grant, &fields)?;
        }
        status::check(field, grant, (api_version, kind), &fields)?;
        let hands_on = match rbac::gives_rights(api_version) {
            true => rbac::check(field, grant, &fields, granted.grants)?,
            false => Vec::new(),
        };
        Ok(WriteRule {
            values: ValueRule::parse(field, &grant.values, &fields, granted.names)?,
            fields,
            holes,
            taint_keys,
            conditions: grant.conditions.iter().cloned().collect(),
            signers: grant.signers.iter().cloned().collect(),
            kubeconfig: grant.kubeconfig.clone(),
            hands_on,
            ..rule
        })
    }

    fn requires(&self) -> bool {
        true
    }

    fn finalizes(&self) -> bool {
        true
    }

    fn withdraws(&self) -> bool {
        // Any field of a granted one may have been written by others before.
        false
    }
}

impl Answer for ObjectsAnswer {
    fn lower<'a>(&'a self, given: &Lowering<'a>) -> Result<Vec<Desired<'a>>, Failure> {
        let broken = |message| Err(Failure::known(KnownReason::ContractBroken, message));
        for (what, count) in [("wants", self.apply.len()), ("removes", self.remove.len())] {
            if count > MAX_OBJECTS {
                let message =
                    format!("the guest {what} {count} objects; the limit is {MAX_OBJECTS}");
                return broken(message);
            }
        }
        let mut seen = BTreeSet::new();
        let applied = self.apply.iter().map(|apply| &apply.object);
        let mut all = applied.chain(&self.remove);
        // The name of the primary is that of an object which is there.
        let mut others = all
            .clone()
            .filter(|object| **object != given.data.object.reference);
        others.try_for_each(requirements::possible)?;
        if let Some(twice) = all.find(|object| !seen.insert(*object)) {
            return broken(format!("the guest wants {twice} twice"));
        }
        let mut desired = Vec::new();
        if self.keep_finalizer {
            if given.policy.finalizer.is_none() {
                let message = "the policy does not grant a finalizer";
                return Err(Failure::known(KnownReason::WriteNotGranted, message));
            }
            desired.push(Desired::Finalizer);
        }
        let (mut filler, mut paths) = (Filler::new(given), 0);
        for apply in &self.apply {
            let one = wanted(apply, given, &mut filler)?;
            if let Desired::Fields(named) = &one {
                let fields = named.fields.iter();
                paths += fields
                    .map(|(path, _)| path.to_string().len())
                    .sum::<usize>();
            }
            if paths > MAX_PATHS {
                return broken(format!(
                    "the guest writes too many fields of objects that the policy does not make, the primary among \
                     them: the paths of all have more than {MAX_PATHS} bytes"
                ));
            }
            desired.push(one);
        }
        desired.extend(self.remove.iter().cloned().map(Desired::Gone));
        Ok(desired)
    }

    fn waits(&self, given: &Lowering<'_>) -> Result<Option<Failure>, Failure> {
        let waiting = |(problem, objects): &(_, Vec<_>)| {
            requirements::waits(given.policy, &given.data, given.guest, problem, objects)
        };
        self.wait.as_ref().map(waiting).transpose()
    }

    fn shown(&self) -> Option<Value> {
        let shown = |apply: &Apply| {
            let fields = apply.fields().map(Value::Object).unwrap_or_default();
            let mut shown = json!({"object": apply.object.to_string(), "content": fields});
            if !apply.holes.is_empty() {
                let paths = apply.holes.iter().map(|hole| hole.path.as_str());
                shown["holes"] = paths.collect();
            }
            shown
        };
        let mut all: Vec<Value> = self.apply.iter().map(shown).collect();
        let removed = |object: &ObjectRef| json!({"remove": object.to_string()});
        all.extend(self.remove.iter().map(removed));
        if self.keep_finalizer {
            all.push(json!({"keepFinalizer": true}));
        }
        Some(all.into())
    }
}

/// What a guest wants of one object, each field granted with its value.
fn wanted<'a>(
    apply: &Apply,
    given: &Lowering<'a>,
    filler: &mut Filler<'a>,
) -> Result<Desired<'a>, Failure> {
    let object = apply.object.clone();
    let mut content = content(apply)?;
    match apply.ownership {
        ObjectOwnership::Whole => {
            let rule = given.policy.whole(&object, &given.data)?;
            for (path, value) in granted(&object, rule, (&content, true), given)? {
                let is_text = value.is_string() || path.segments().len() < 3;
                let of_metadata = path
                    .keys()
                    .is_some_and(|keys| keys.starts_with(&["metadata"]));
                if value.is_null() || of_metadata && !is_text {
                    let message =
                        format!("the content for {object} has no usable value at `{path}`");
                    return Err(Failure::known(KnownReason::ContractBroken, message));
                }
            }
            let data = filler.data(apply, rule)?;
            Ok(Desired::Whole(Whole {
                fixed: fill::fixed(rule, &mut content),
                object,
                content,
                data: data.content,
                ends_seconds: data.ends_seconds,
            }))
        }
        ObjectOwnership::Fields if !apply.holes.is_empty() => Err(fill::not_granted(apply, None)),
        ObjectOwnership::Fields => {
            let rule = given.policy.fields(&object, &given.data)?;
            let fields = granted(&object, rule, (&content, false), given)?.into_iter();
            let field = |(path, value): (Path, &Value)| {
                if path.is_conditions() {
                    let conditions = status::conditions(&object, rule, value.clone(), given)?;
                    return Ok((path, Field::Conditions(conditions)));
                }
                let elements = taints::elements(apply, rule, (&path, value))?;
                Ok((
                    path,
                    elements.unwrap_or_else(|| Field::Value(value.clone())),
                ))
            };
            let fields = fields.map(field).collect::<Result<_, Failure>>()?;
            Ok(Desired::Fields(Fields { object, fields }))
        }
    }
}

/// The fields of a content, each granted with its value. Maps are merged, so an empty one says nothing, except in the
/// content of a whole object: it is made there.
fn granted<'v>(
    object: &ObjectRef,
    rule: &WriteRule,
    (content, is_whole): (&'v Map<String, Value>, bool),
    given: &Lowering<'_>,
) -> Result<Vec<(Path, &'v Value)>, Failure> {
    let mut fields = values::checked(object, content)?;
    fields.retain(|field| {
        let of_metadata = || matches!(field.0.keys().as_deref(), Some(["metadata", ..]));
        let is_made = || is_whole && !of_metadata() && !values::says_nothing(field, &rule.fields);
        !values::is_empty_map(field.1) || is_made()
    });
    for (path, _) in &fields {
        let granted = rule.fields.iter().any(|field| field.grants(path));
        // All labels or all annotations at once would be those of others as well.
        let all = matches!(path.keys().as_deref(), Some(["metadata", _]));
        // No key of a label has the `*` that stands for keys in a grant.
        let all = all || path.prefix().is_some();
        if !granted || all || unownable(path, &rule.target).is_some() {
            let paths: Vec<String> = rule.fields.iter().map(Path::to_string).collect();
            let paths = paths.join(", ");
            let message =
                format!("the policy does not grant writing `{path}` of {object}; granted: {paths}");
            return Err(Failure::known(KnownReason::WriteNotGranted, message));
        }
    }
    let mut rules = rule.values.iter();
    if let Some(rule) = rules.find(|rule| !rule.admits(content, &given.data)) {
        let (path, allowed) = (&rule.path, rule.shown(&given.data));
        let message = format!(
            "the policy does not grant the value of `{path}` of {object}; granted: {allowed}"
        );
        return Err(Failure::known(KnownReason::ValueNotGranted, message));
    }
    Ok(fields)
}

/// The content without what says which object it is.
fn content(apply: &Apply) -> Result<Map<String, Value>, Failure> {
    let object = &apply.object;
    let broken = |why: &str| {
        let message = format!("the content for {object} {why}");
        Failure::known(KnownReason::ContractBroken, message)
    };
    let fields = apply.fields();
    let mut fields = fields.ok_or_else(|| broken("is not one JSON object"))?;
    let strip = |map: &mut Map<String, Value>, key: &str, own: Option<&str>| {
        let said = map.remove(key);
        match said.is_none_or(|said| said.as_str() == own && own.is_some()) {
            true => Ok(()),
            false => Err(broken(&format!("has another `{key}`"))),
        }
    };
    strip(&mut fields, "apiVersion", Some(&object.api_version))?;
    strip(&mut fields, "kind", Some(&object.kind))?;
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        strip(metadata, "name", Some(&object.name))?;
        strip(metadata, "namespace", object.namespace.as_deref())?;
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Primary, Problem};
    use crate::inputs::kubeconfigs::Kubeconfigs;
    use crate::inputs::secrets::Secrets;
    use crate::kubeconfig::KubeconfigLimits;
    use crate::object::Object;
    use crate::pattern::TemplateData;
    use crate::policy::{Policy, check, manifest};
    use crate::sample::{agent, guest, object, objects_manifest, policy, with};

    fn cluster(name: &str) -> ObjectRef {
        let api_version = "cluster.open-cluster-management.io/v1";
        ObjectRef::local(api_version, "ManagedCluster", None, name)
    }

    fn apply(content: &Value) -> Apply {
        Apply {
            object: cluster("c1"),
            ownership: ObjectOwnership::Fields,
            content: content.to_string(),
            holes: Vec::new(),
        }
    }

    /// What becomes of an answer, or the reason and the message of its refusal.
    fn lowered(objects: &ObjectsAnswer) -> Result<Vec<Fields>, (String, String)> {
        lowered_by(&policy(&objects_manifest()), objects)
    }

    fn lowered_by(
        policy: &Policy,
        objects: &ObjectsAnswer,
    ) -> Result<Vec<Fields>, (String, String)> {
        let primary = object(cluster("c1"), json!({"metadata": {"name": "c1"}}));
        lowered_for(&primary, policy, objects)
    }

    pub(super) fn lowered_for(
        primary: &Object,
        policy: &Policy,
        objects: &ObjectsAnswer,
    ) -> Result<Vec<Fields>, (String, String)> {
        let agent = agent("hub", true);
        let guest = guest(&[], &[]);
        let view = Primary {
            reference: primary.reference.clone(),
            ..Primary::default()
        };
        let given = Lowering {
            policy,
            guest: &guest,
            data: TemplateData {
                object: primary,
                agent: &agent,
            },
            primary: &view,
            target: &primary.reference,
            inputs: &[],
            kubeconfigs: &Kubeconfigs::new(KubeconfigLimits::default()),
            secrets: &Secrets::default(),
            now_seconds: 0,
        };
        let told = |failure: Failure| (failure.reason.to_string(), failure.message);
        objects.waits(&given).map_err(told)?;
        let desired = objects.lower(&given).map_err(told)?;
        let fields = desired.into_iter().filter_map(|one| match one {
            Desired::Fields(fields) => Some(fields),
            _ => None,
        });
        Ok(fields.collect())
    }

    fn one(content: &Value) -> Result<Vec<Fields>, (String, String)> {
        lowered(&ObjectsAnswer {
            apply: vec![apply(content)],
            ..ObjectsAnswer::default()
        })
    }

    fn refused(content: &Value) -> (String, String) {
        one(content).err().unwrap_or_default()
    }

    #[test]
    fn each_value_of_a_content_becomes_a_field() {
        let content = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": "c1", "labels": {"x": "1", "a.b/set": null}},
            "spec": {"hubAcceptsClient": true, "clients": [{"url": "https://a", "ca": ["x"]}]},
        });
        let fields = one(&content).unwrap();
        let fields = fields[0].fields.iter();
        let fields: Vec<_> = fields.map(|(path, _)| path.to_string()).collect();
        assert_eq!(
            fields,
            [
                r#"metadata.labels["a.b/set"]"#,
                "metadata.labels.x",
                "spec.clients",
                "spec.hubAcceptsClient"
            ]
        );
        assert_eq!(one(&json!({"spec": {}})).unwrap()[0].fields, []);
    }

    #[test]
    fn refuses_fields_that_are_not_granted_and_names_them() {
        for (content, named) in [
            (json!({"spec": {"taints": []}}), "`spec.taints`"),
            (json!({"spec": null}), "`spec`"),
            (json!({"metadata": null}), "`metadata`"),
            (json!({"metadata": {"labels": null}}), "`metadata.labels`"),
            (
                json!({"metadata": {"labels": {"a.b/set": {"prod": "prod"}}}}),
                "a.b/set",
            ),
            (json!({"status": {"conditions": []}}), "`status.conditions`"),
            (json!({"metadata": {"finalizers": ["x"]}}), "finalizers"),
            (
                json!({"metadata": {"labels": {"transom.dev/policy": "x"}}}),
                "transom.dev",
            ),
            (
                json!({"metadata": {"annotations": {"a": "b"}}}),
                "annotations",
            ),
            (json!({"data": {"password": "x"}}), "`data.password`"),
        ] {
            let (reason, message) = refused(&content);
            assert_eq!(reason, "WriteNotGranted", "{content}");
            assert!(message.contains(named), "{message}");
        }
    }

    #[test]
    fn all_taints_are_granted_only_with_the_forms_that_they_may_have() {
        let granted = |values: Value| {
            let grant = json!([{"target": "primary", "verbs": ["patch"], "fields": ["spec.taints"], "values": values}]);
            let manifest = with(objects_manifest(), &[("/spec/grant/write", grant)]);
            check::policy(manifest::parse(&manifest).unwrap())
        };
        let field = granted(json!({})).map_err(|error| error.field).err();
        assert_eq!(field.as_deref(), Some("spec.grant.write[0].taintKeys"));
        let form = json!({"key": "*", "effect": "*", "timeAdded": "*"});
        let policy = granted(json!({"spec.taints": [form]})).unwrap();
        assert_eq!(policy.world, OBJECTS);
        let timed = json!({"key": "a", "effect": "NoSelect", "timeAdded": "2026-01-01T00:00:00Z"});
        let untimed = json!({"key": "b", "effect": "NoSelect"});
        for (taints, reason) in [
            (json!([timed]), None),
            (json!([timed, untimed]), Some("ValueNotGranted")),
            (json!(null), Some("ValueNotGranted")),
        ] {
            let objects = ObjectsAnswer {
                apply: vec![apply(&json!({"spec": {"taints": taints}}))],
                ..ObjectsAnswer::default()
            };
            let lowered = lowered_by(&policy, &objects);
            let refused = lowered.err().map(|(reason, _)| reason);
            assert_eq!(refused.as_deref(), reason, "{taints}");
        }
    }

    #[test]
    fn refuses_values_that_are_not_granted_and_names_the_field() {
        let labels = |value: Value| json!({"metadata": {"labels": {"a.b/set": value}}});
        for value in [json!("prod"), json!("c1-eu"), json!(null)] {
            assert!(one(&labels(value)).is_ok());
        }
        let client = |value: Value| json!({"spec": {"clients": value}});
        for content in [
            labels(json!("other")),
            labels(json!("c2-eu")),
            labels(json!("c1")),
            labels(json!(1)),
            json!({"spec": {"hubAcceptsClient": false}}),
            json!({"spec": {"hubAcceptsClient": null}}),
            json!({"spec": {"hubAcceptsClient": "true"}}),
            client(json!(null)),
            client(json!([{"url": "https://a", "ca": ["x"]}, {"url": "http://a", "ca": ["x"]}])),
            client(json!([{"url": "https://a", "ca": ["x", "y"]}])),
            client(json!([{"url": "https://a", "ca": ["x"], "more": 1}])),
            client(json!([{"url": "https://a"}])),
            client(json!([{"url": format!("https://{}", "a".repeat(5000)), "ca": ["x"]}])),
        ] {
            let (reason, message) = refused(&content);
            assert_eq!(reason, "ValueNotGranted", "{content}");
            assert!(message.contains("granted: ["), "{message}");
        }
    }

    #[test]
    fn a_name_that_no_object_has_is_compared_with_no_pattern() {
        let named = |name: &str| ObjectRef::local("v1", "ConfigMap", Some("n"), name);
        let map = json!({"kind": "ConfigMap", "namespace": "*", "name": "*-*-x",
            "verbs": ["create", "update", "delete"], "fields": ["data"]});
        let policy = policy(&with(
            objects_manifest(),
            &[("/spec/grant/write", json!([map]))],
        ));
        let long = "a-".repeat(1 << 19);
        let of = |object: &ObjectRef, ownership| Apply {
            object: object.clone(),
            ownership,
            ..apply(&json!({}))
        };
        let role = ObjectRef::local(rbac::GROUP, "ClusterRole", None, &long);
        let far = ObjectRef::local("v1", "ConfigMap", Some(&long), "a");
        for object in [named(&long), role, far] {
            let apply = |ownership| ObjectsAnswer {
                apply: vec![of(&object, ownership)],
                ..ObjectsAnswer::default()
            };
            let remove = ObjectsAnswer {
                remove: vec![object.clone()],
                ..ObjectsAnswer::default()
            };
            let answers = [ObjectOwnership::Whole, ObjectOwnership::Fields].map(apply);
            for answer in answers.iter().chain([&remove]) {
                let (reason, message) = lowered_by(&policy, answer).err().unwrap_or_default();
                assert_eq!(reason, "InvalidTargetName");
                assert!(message.len() < 2048, "{message}");
            }
        }
    }

    #[test]
    fn the_fields_of_one_answer_are_bounded() {
        let labels = |from: usize| -> Value {
            let keys = (from..from + 6_000).map(|number| (format!("a.b/{number}"), json!("x")));
            json!({"metadata": {"labels": keys.collect::<Map<_, _>>()}})
        };
        let fields = json!([r#"metadata.labels["a.b/*"]"#]);
        let patch = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "name": name, "verbs": ["patch"], "fields": fields});
        let policy = policy(&with(
            objects_manifest(),
            &[("/spec/grant/write", json!([patch("*")]))],
        ));
        let of = |name: &str| Apply {
            object: ObjectRef::local("v1", "Namespace", None, name),
            ..apply(&labels(0))
        };
        let answer = |names: &[&str]| ObjectsAnswer {
            apply: names.iter().map(|name| of(name)).collect(),
            ..ObjectsAnswer::default()
        };
        assert!(lowered_by(&policy, &answer(&["a"])).is_ok());
        let (reason, message) = lowered_by(&policy, &answer(&["a", "b"])).unwrap_err();
        assert_eq!(reason, "ContractBroken");
        assert!(message.contains("the primary among them"), "{message}");
    }

    #[test]
    fn refuses_an_answer_that_breaks_the_contract() {
        let another = |name: &str| Apply {
            object: cluster(name),
            ownership: ObjectOwnership::Fields,
            content: "{}".to_owned(),
            holes: Vec::new(),
        };
        let text = |content: &str| Apply {
            object: cluster("c1"),
            ownership: ObjectOwnership::Fields,
            content: content.to_owned(),
            holes: Vec::new(),
        };
        let deep = (0..20).fold(json!(1), |inner, _| json!({"a": inner}));
        let many = (0..10_000).map(|number| another(&number.to_string()));
        for (apply, reason) in [
            (vec![another("c2")], "WriteNotGranted"),
            (vec![another("c1"), another("c1")], "ContractBroken"),
            (many.collect(), "ContractBroken"),
            (vec![text("")], "ContractBroken"),
            (vec![text("[]")], "ContractBroken"),
            (vec![text(&"[".repeat(100_000))], "ContractBroken"),
            (vec![text(r#"{"kind": "Secret"}"#)], "ContractBroken"),
            (
                vec![text(r#"{"metadata": {"name": "c2"}}"#)],
                "ContractBroken",
            ),
            (
                vec![text(r#"{"metadata": {"namespace": "x"}}"#)],
                "ContractBroken",
            ),
            (
                vec![apply(&json!({"metadata": {"labels": deep}}))],
                "ContractBroken",
            ),
        ] {
            let answer = ObjectsAnswer {
                apply,
                ..ObjectsAnswer::default()
            };
            let refusal = lowered(&answer).err();
            assert_eq!(refusal.map(|(reason, _)| reason).as_deref(), Some(reason));
        }
    }

    #[test]
    fn waits_only_for_objects_that_it_may_read() {
        let problem = Problem {
            reason: "Told".to_owned(),
            message: String::new(),
            field: None,
        };
        let waiting = |objects| ObjectsAnswer {
            wait: Some((problem.clone(), objects)),
            ..ObjectsAnswer::default()
        };
        assert!(lowered(&waiting(Vec::new())).is_ok());
        let (reason, _) = lowered(&waiting(vec![cluster("c2")])).unwrap_err();
        assert_eq!(reason, "ReadNotGranted");
    }

    /// The manifest of a policy that makes a Namespace and a ConfigMap for each cluster.
    fn makes_manifest() -> Value {
        let verbs = json!(["create", "update", "delete"]);
        let grants = json!([
            {"kind": "Namespace", "name": "made-{primary.name}", "verbs": verbs, "fields": ["metadata.labels.x"],
                "values": {"metadata.labels.x": ["{primary.name}"]}},
            {"kind": "ConfigMap", "namespace": "made-{primary.name}", "name": "facts", "verbs": verbs,
                "fields": ["data", "metadata.annotations.y"]},
        ]);
        with(objects_manifest(), &[("/spec/grant/write", grants)])
    }

    fn made(kind: &str, namespace: Option<&str>, name: &str, content: &Value) -> Apply {
        Apply {
            object: ObjectRef::local("v1", kind, namespace, name),
            ownership: ObjectOwnership::Whole,
            content: content.to_string(),
            holes: Vec::new(),
        }
    }

    #[test]
    fn makes_granted_objects_with_granted_fields_and_values() {
        let policy = policy(&makes_manifest());
        let lowered = |apply: Apply| {
            let objects = ObjectsAnswer {
                apply: vec![apply],
                ..ObjectsAnswer::default()
            };
            lowered_by(&policy, &objects).map_err(|(reason, _)| reason)
        };
        let namespace = |name, content| lowered(made("Namespace", None, name, &content));
        let map =
            |namespace, name, content| lowered(made("ConfigMap", Some(namespace), name, &content));
        let labels = |value: Value| json!({"metadata": {"labels": value}});
        assert!(namespace("made-c1", labels(json!({"x": "c1"}))).is_ok());
        assert!(namespace("made-c1", json!({})).is_ok());
        assert!(map("made-c1", "facts", json!({"data": {"a": "b"}})).is_ok());
        for (answer, reason) in [
            (namespace("made-c2", json!({})), "WriteNotGranted"),
            (
                namespace("made-c1", labels(json!({"x": "c2"}))),
                "ValueNotGranted",
            ),
            (
                namespace("made-c1", labels(json!({"z": "c1"}))),
                "WriteNotGranted",
            ),
            (
                namespace("made-c1", labels(json!({"x": null}))),
                "ValueNotGranted",
            ),
            (
                namespace("made-c1", json!({"metadata": {"finalizers": ["x"]}})),
                "WriteNotGranted",
            ),
            (
                namespace("made-c1", json!({"metadata": {"ownerReferences": []}})),
                "WriteNotGranted",
            ),
            (
                namespace("made-c1", labels(json!({"transom.dev/policy": "x"}))),
                "WriteNotGranted",
            ),
            (map("made-c1", "other", json!({})), "WriteNotGranted"),
            (map("kube-system", "facts", json!({})), "WriteNotGranted"),
            (
                map("made-c1", "facts", json!({"binaryData": {"a": "b"}})),
                "WriteNotGranted",
            ),
            (
                map("made-c1", "facts", json!({"data": {"a": null}})),
                "ContractBroken",
            ),
            (
                map(
                    "made-c1",
                    "facts",
                    json!({"metadata": {"annotations": {"y": ["z"]}}}),
                ),
                "ContractBroken",
            ),
            (
                lowered(made("Secret", Some("made-c1"), "facts", &json!({}))),
                "WriteNotGranted",
            ),
        ] {
            assert_eq!(answer.err().as_deref(), Some(reason));
        }
    }

    #[test]
    fn refuses_grants_of_objects_that_no_policy_may_make() {
        let refused = |changes: &[(&str, Value)]| {
            let manifest = changes.iter().fold(makes_manifest(), |manifest, change| {
                let pointer = format!("/spec/grant/write/1{}", change.0);
                with(manifest, &[(&pointer, change.1.clone())])
            });
            let checked = check::policy(manifest::parse(&manifest).unwrap());
            let field = checked.err().map(|error| error.field);
            field.map(|field| field.replace("spec.grant.write[1]", ""))
        };
        assert_eq!(refused(&[]), None);
        for (changes, field) in [
            (vec![("/kind", json!("Secret"))], ".kind"),
            (vec![("/kind", json!("configmap"))], ".kind"),
            (
                vec![
                    ("/apiVersion", json!("transom.dev/v1alpha1")),
                    ("/kind", json!("FleetPolicy")),
                ],
                ".kind",
            ),
            (
                vec![
                    ("/apiVersion", json!("rbac.authorization.k8s.io/v1")),
                    ("/kind", json!("Role")),
                ],
                ".fields[0]",
            ),
            (vec![("/verbs", json!(["patch", "update"]))], ".verbs"),
            (vec![("/verbs", json!([]))], ".verbs"),
            (vec![("/name", json!(null))], ".name"),
            (vec![("/name", json!("{nothing}"))], ".name"),
            (vec![("/fields", json!(["status.x"]))], ".fields[0]"),
            (
                vec![("/fields", json!(["metadata.ownerReferences"]))],
                ".fields[0]",
            ),
            (vec![("/fields", json!([]))], ".fields"),
        ] {
            assert_eq!(refused(&changes).as_deref(), Some(field), "{changes:?}");
        }
    }

    #[test]
    fn refuses_grants_that_no_policy_may_have() {
        let write = "/spec/grant/write/0";
        let refused = |change: (&str, Value)| {
            let pointer = format!("{write}{}", change.0);
            let manifest = with(objects_manifest(), &[(&pointer, change.1)]);
            check::policy(manifest::parse(&manifest).unwrap())
                .err()
                .map(|error| error.field.replace("spec.grant.write[0]", ""))
        };
        for (change, field) in [
            (("/kind", json!("ManagedCluster")), ".kind"),
            (("/name", json!("*")), ".name"),
            (("/verbs", json!(["patch", "delete"])), ".verbs"),
            (("/fields", json!([])), ".fields"),
            (("/fields", json!(["spec.a", "spec.a"])), ".fields"),
            (("/fields", json!(["status"])), ".fields[0]"),
            (("/fields", json!(["status.conditions.x"])), ".fields[0]"),
            (("/fields", json!(["status.conditions"])), ".conditions"),
            (("/conditions", json!(["Ours"])), ".conditions"),
            (("/signers", json!(["a/b"])), ".signers"),
            (("/fields", json!(["metadata"])), ".fields[0]"),
            (("/fields", json!(["metadata.finalizers"])), ".fields[0]"),
            (
                (
                    "/fields",
                    json!([r#"metadata.labels["transom.dev/policy"]"#]),
                ),
                ".fields[0]",
            ),
            (("/fields", json!(["spec.a[b]"])), ".fields[0]"),
            (
                ("/values", json!({"spec.other": ["x"]})),
                ".values[\"spec.other\"]",
            ),
            (("/values", json!({"spec": ["x"]})), ".values[\"spec\"]"),
            (
                ("/values", json!({"spec.clients[x]": ["x"]})),
                ".values[\"spec.clients[x]\"]",
            ),
            (
                ("/values", json!({"spec.clients": ["{nothing}"]})),
                ".values[\"spec.clients\"][0]",
            ),
        ] {
            assert_eq!(
                refused(change.clone()).as_deref(),
                Some(field),
                "{change:?}"
            );
        }
        let role = with(
            objects_manifest(),
            &[(
                "/spec/primary",
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}),
            )],
        );
        assert!(check::policy(manifest::parse(&role).unwrap()).is_err());
    }
}
