//! Builds the one request of a step, with only the fields that the step owns.

use super::super::counts::RequestVerb;
use super::super::resources::Resource;
use http::Request;
use kube::Resource as _;
use kube::api::{
    DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, ValidationDirective,
};
use kube::core::request::Error;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use transom_core::object::Object;
use transom_core::plan::conditions::subresource;
use transom_core::plan::{Step, field_manager};
use transom_core::projection::path::{at, key_below, keys};
use transom_core::reference::ObjectRef;
use transom_core::reference::dns::is_path_segment;

/// A version that no object ever has: the first write to a store makes version 2. A server-side apply at this version
/// creates an absent object, and fails if the object exists (see `adr/0009`).
const NOTHING_THERE: &str = "1";

/// A list of the metadata, of which the step has the whole.
const FINALIZERS: &str = "metadata.finalizers";

/// What one request writes of a step.
pub(super) struct WrittenPart<'a> {
    /// The step, of a patch with the fields of this part only.
    pub(super) step: Cow<'a, Step>,
    /// The subresource that has these fields; `None` for the object itself.
    pub(super) subresource: Option<&'static str>,
}

impl WrittenPart<'_> {
    /// The same at another version of the object.
    pub(super) fn at(mut self, now: &str) -> Self {
        if let Step::Patch { version, .. } = self.step.to_mut() {
            now.clone_into(version);
        }
        self
    }
}

/// The parts of a step: of a patch the object itself first, then its subresources.
pub(super) fn parts(step: &Step) -> Vec<WrittenPart<'_>> {
    let Step::Patch {
        reference,
        version,
        fields,
    } = step
    else {
        return vec![WrittenPart {
            step: Cow::Borrowed(step),
            subresource: None,
        }];
    };
    let mut parts: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for field in fields {
        let part = subresource(&reference.api_version, &reference.kind, &keys(&field.0));
        parts.entry(part).or_default().push(field.clone());
    }
    let part = |(subresource, fields)| WrittenPart {
        step: Cow::Owned(Step::Patch {
            reference: reference.clone(),
            version: version.clone(),
            fields,
        }),
        subresource,
    };
    parts.into_iter().map(part).collect()
}

/// Parts of one step as one step; `None` if there are none.
pub(super) fn joined(parts: Vec<WrittenPart<'_>>) -> Option<Step> {
    let mut steps = parts.into_iter().map(|part| part.step.into_owned());
    let mut joined = steps.next()?;
    for step in steps {
        if let (Step::Patch { fields, .. }, Step::Patch { fields: more, .. }) = (&mut joined, step)
        {
            fields.extend(more);
        }
    }
    Some(joined)
}

/// The request of a part of a step, and its verb for the counts.
pub(super) fn of(
    policy: &str,
    part: &WrittenPart<'_>,
    resource: &Resource,
) -> Result<(RequestVerb, Request<Vec<u8>>), Error> {
    let WrittenPart { step, subresource } = part;
    let target = step.target();
    let namespace = target.namespace.as_deref().filter(|_| resource.namespaced);
    let mut names = namespace.into_iter().chain([target.name.as_str()]);
    if !names.all(is_path_segment) {
        let why = "its name is not a valid object name";
        return Err(Error::Validation(why.to_owned()));
    }
    let requests = kube::core::Request::new(DynamicObject::url_path(&resource.api, namespace));
    let how = PatchParams {
        field_manager: Some(field_manager(policy)),
        // The agent compares the stored object itself. To warn, the server would decode every apply twice.
        field_validation: Some(ValidationDirective::Ignore),
        ..PatchParams::default()
    };
    let name = &target.name;
    Ok(match &**step {
        Step::Create { desired } => (
            RequestVerb::Create,
            requests
                .patch(name, &how, &Patch::Apply(created(desired)))?
                .map(as_yaml),
        ),
        Step::Update { desired, changed } => (
            RequestVerb::Update,
            requests.patch(name, &how, &Patch::Merge(updated(desired, changed)?))?,
        ),
        Step::Patch {
            version, fields, ..
        } => {
            let patch = Patch::Merge(patched(target, version, fields)?);
            let request = match subresource {
                Some(subresource) => requests.patch_subresource(subresource, name, &how, &patch)?,
                None => requests.patch(name, &how, &patch)?,
            };
            (RequestVerb::Patch, request)
        }
        Step::Delete { version, uid, .. } => (
            RequestVerb::Delete,
            requests.delete(name, &removal(version, uid))?,
        ),
    })
}

/// Removes the object that was read, and with it what it made, as kubectl does. Unless a request says so, the API
/// server leaves the Pods of a Job.
fn removal(version: &str, uid: &str) -> DeleteParams {
    DeleteParams::background().preconditions(Preconditions {
        resource_version: Some(version.to_owned()),
        uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()),
    })
}

/// The whole object, created only if it does not exist.
fn created(desired: &Object) -> Value {
    let mut body = desired.body.clone();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), NOTHING_THERE.into());
    }
    body
}

/// Escapes what YAML does not allow in a text, or takes for a line break: the API server reads an apply as YAML.
pub(in crate::kubernetes) fn as_yaml(json: Vec<u8>) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(&json) else {
        return json;
    };
    let differs = |letter: char| {
        matches!(
            letter,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
    };
    if !text.contains(differs) {
        return json;
    }
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match differs(letter) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => escaped.push(letter),
        }
    }
    escaped.into_bytes()
}

/// The merge patch of an update: content, labels and annotations as desired, and null for each changed field that is
/// not desired.
fn updated(desired: &Object, changed: &[String]) -> Result<Value, Error> {
    let mut body = json!({"metadata": {"resourceVersion": desired.version}});
    for field in [
        &["data"][..],
        &["metadata", "labels"],
        &["metadata", "annotations"],
    ] {
        let wanted = field
            .iter()
            .try_fold(&desired.body, |value, key| value.get(key))
            .and_then(Value::as_object);
        let mut map = wanted.cloned().unwrap_or_default();
        for key in changed.iter().filter_map(|path| key_below(field, path)) {
            map.entry(key).or_insert(Value::Null);
        }
        if !map.is_empty() {
            put(&mut body, field, map.into());
        }
    }
    let fields = |path: &&String| is_content(path) || *path == FINALIZERS;
    for path in changed.iter().filter(fields) {
        let value = at(&desired.body, path).cloned();
        put(&mut body, &known(path)?, value.unwrap_or_default());
    }
    Ok(body)
}

/// Whether a path of an update leads neither into the metadata nor to a key of the data.
pub(super) fn is_content(path: &str) -> bool {
    let is_metadata = keys(path).first().is_some_and(|first| first == "metadata");
    !is_metadata && key_below(&["data"], path).is_none()
}

/// The body of a patch: each field with its whole value.
fn patched(target: &ObjectRef, version: &str, fields: &[(String, Value)]) -> Result<Value, Error> {
    let mut body = json!({"metadata": {"resourceVersion": version}});
    body["apiVersion"] = target.api_version.as_str().into();
    body["kind"] = target.kind.as_str().into();
    for (path, value) in fields {
        put(&mut body, &known(path)?, value.clone());
    }
    Ok(body)
}

/// The keys of a path; a text that is none would be left out of the request.
fn known(path: &str) -> Result<Vec<String>, Error> {
    match keys(path) {
        keys if keys.is_empty() => {
            let why = format!("`{path}` is not the path of a field");
            Err(Error::Validation(why))
        }
        keys => Ok(keys),
    }
}

fn put<K: AsRef<str>>(body: &mut Value, path: &[K], value: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut map = body;
    for key in parents {
        if !map.get(key.as_ref()).is_some_and(Value::is_object) {
            map[key.as_ref()] = Map::new().into();
        }
        map = &mut map[key.as_ref()];
    }
    map[last.as_ref()] = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(body: Value) -> Object {
        Object {
            reference: ObjectRef::local("v1", "Secret", Some("n"), "s"),
            version: "7".to_owned(),
            body,
        }
    }

    #[test]
    fn an_update_sets_managed_fields_and_removes_undesired_ones() {
        let desired = object(json!({
            "metadata": {"name": "s", "labels": {"a": "1"}, "finalizers": ["x"]},
            "type": "Opaque", "data": {"kubeconfig": "eA=="},
        }));
        let changed = [
            "data.kubeconfig",
            r#"data["ca.crt"]"#,
            "metadata",
            r#"metadata.labels["example.com/old"]"#,
        ]
        .map(str::to_owned);
        assert_eq!(
            updated(&desired, &changed).unwrap(),
            json!({
                "metadata": {"resourceVersion": "7", "labels": {"a": "1", "example.com/old": null}},
                "data": {"kubeconfig": "eA==", "ca.crt": null},
            })
        );
    }

    #[test]
    fn a_removal_takes_what_the_object_made_with_it_and_only_the_object_that_was_read() {
        for (uid, conditions) in [
            ("u", json!({"resourceVersion": "7", "uid": "u"})),
            ("", json!({"resourceVersion": "7"})),
        ] {
            assert_eq!(
                serde_json::to_value(removal("7", uid)).unwrap(),
                json!({"propagationPolicy": "Background", "preconditions": conditions})
            );
        }
    }

    #[test]
    fn what_yaml_reads_otherwise_than_json_is_escaped() {
        let text = "a\u{7f}\u{85}\u{9f}\u{a0}\u{2028}\u{2029}\u{feff}\u{ffff}\u{1f600}\n";
        let json = as_yaml(json!({"a": text}).to_string().into_bytes());
        let sent = String::from_utf8(json).unwrap();
        assert_eq!(
            sent,
            "{\"a\":\"a\\u007f\\u0085\\u009f\u{a0}\\u2028\\u2029\\ufeff\\uffff\u{1f600}\\n\"}"
        );
        assert_eq!(
            serde_json::from_str::<Value>(&sent).unwrap(),
            json!({"a": text})
        );
    }

    #[test]
    fn a_patch_replaces_its_fields_entirely() {
        let target = ObjectRef::local(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            None,
            "c",
        );
        let fields = [
            ("spec.taints".to_owned(), json!([{"key": "k"}])),
            ("spec.x".to_owned(), Value::Null),
        ];
        assert_eq!(
            patched(&target, "9", &fields).unwrap(),
            json!({
                "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
                "metadata": {"resourceVersion": "9"}, "spec": {"taints": [{"key": "k"}], "x": null},
            })
        );
    }

    #[test]
    fn what_is_no_path_of_a_field_is_refused_by_name() {
        let desired = object(json!({"data": {}}));
        let deep = "a.".repeat(16) + "a";
        for path in [r#"spec["a"b"]"#, &deep, "", "status.conditions[Ready]"] {
            let fields = [(path.to_owned(), json!(1))];
            let patched = patched(&desired.reference, "9", &fields);
            for refused in [patched, updated(&desired, &[path.to_owned()])] {
                let why = refused.unwrap_err().to_string();
                assert!(why.contains(&format!("`{path}` is not the path")), "{why}");
            }
        }
    }
}
