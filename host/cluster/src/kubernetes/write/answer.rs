//! Compares the answer to a write with what was sent, in the fields that the step owns. A difference is reported as a
//! path, without its value, and the same write is not sent again for a while: a webhook would change it again.

use super::failure;
use super::request::is_content;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tokio::time::{Duration, Instant};
use transom_api::{KnownReason, labels};
use transom_core::digest::Digest;
use transom_core::object::Object;
use transom_core::plan::conditions::said;
use transom_core::plan::form::is_kept;
use transom_core::plan::{Step, WriteFailure, kept};
use transom_core::projection::path::{self, at};
use transom_core::reference::ObjectRef;
use transom_core::share::lock::MutexExt as _;

/// The labels and annotations of the stamp.
const STAMP: [(&str, &str); 6] = [
    ("labels", labels::MANAGED_BY),
    ("labels", labels::POLICY),
    ("annotations", labels::SOURCE),
    ("annotations", labels::INPUTS),
    ("annotations", labels::COMPONENT),
    ("annotations", labels::MANAGED_KEYS),
];

/// The owned fields by path.
type View = BTreeMap<String, Value>;

/// The paths whose values differ from what was sent.
pub(super) fn changed(step: &Step, answer: &Value) -> Vec<String> {
    let (sent, got) = (sent(step), got(step, answer));
    let paths: BTreeSet<&String> = sent.keys().chain(got.keys()).collect();
    paths
        .into_iter()
        .filter(|path| sent.get(*path) != got.get(*path))
        .cloned()
        .collect()
}

/// A digest of what a step writes, regardless of version and time. It never leaves the process.
fn fingerprint(step: &Step) -> Digest {
    Digest::of(&json!([step.kind().past(), sent(step)]))
}

fn sent(step: &Step) -> View {
    match step {
        Step::Create { desired } | Step::Update { desired, .. } => {
            of_object(step, desired, &desired.body)
        }
        Step::Patch { fields, .. } => fields
            .iter()
            .filter_map(|(path, value)| field(path, Some(value)))
            .collect(),
        Step::Delete { .. } => View::new(),
    }
}

fn got(step: &Step, answer: &Value) -> View {
    match step {
        Step::Create { desired } | Step::Update { desired, .. } => of_object(step, desired, answer),
        Step::Patch { fields, .. } => fields
            .iter()
            .filter_map(|(path, wanted)| field(path, kept(at(answer, path), wanted)))
            .collect(),
        Step::Delete { .. } => View::new(),
    }
}

/// All of `data`, the other fields that the step writes, and of the metadata: the stamp, the fields that an update
/// changes, and for a new object all labels and annotations that it was created with.
fn of_object(step: &Step, desired: &Object, body: &Value) -> View {
    let mut view = View::new();
    let map =
        |body: &Value, pointer: &str| body.pointer(pointer).and_then(Value::as_object).cloned();
    if desired.body.get("data").is_some() {
        view.extend(
            map(body, "/data")
                .unwrap_or_default()
                .into_iter()
                .map(|(key, value)| (path::of(&["data", &key]), value)),
        );
    }
    for path in content(step, desired) {
        // The defaults that the server adds, and the form in which it keeps a value, are no difference.
        let value = match (at(&desired.body, &path), at(body, &path)) {
            (Some(wanted), there) if is_kept(there, wanted) => Some(wanted),
            (_, there) => there,
        };
        let value = value.cloned();
        view.extend(value.map(|value| (path, value)));
    }
    for field in ["labels", "annotations"] {
        let pointer = format!("/metadata/{field}");
        let (wanted, there) = (
            map(&desired.body, &pointer).unwrap_or_default(),
            map(body, &pointer),
        );
        for key in owned(step, field, &wanted) {
            let value = there.as_ref().and_then(|there| there.get(&key));
            let path = path::of(&["metadata", field, &key]);
            view.extend(value.map(|value| (path, value.clone())));
        }
    }
    view
}

/// The paths of the fields that a step writes, but for data and metadata.
fn content(step: &Step, desired: &Object) -> Vec<String> {
    match step {
        Step::Update { changed, .. } => {
            let paths = changed.iter().filter(|path| is_content(path));
            paths.cloned().collect()
        }
        _ => {
            let fields = kept::content(desired).into_iter();
            fields.map(|(path, _)| path.to_string()).collect()
        }
    }
}

/// The labels or annotations to compare.
fn owned(step: &Step, field: &str, wanted: &Map<String, Value>) -> BTreeSet<String> {
    let stamp = STAMP
        .iter()
        .filter(|(of, _)| *of == field)
        .map(|(_, key)| (*key).to_owned());
    match step {
        Step::Update { changed, .. } => {
            let place = ["metadata", field];
            let changed = changed.iter();
            let changed = changed.filter_map(|path| path::key_below(&place, path));
            stamp.chain(changed).collect()
        }
        _ => wanted.keys().cloned().collect(),
    }
}

/// The value of a field in an answer: what was sent, if it is kept in another form.
fn kept<'a>(there: Option<&'a Value>, wanted: &'a Value) -> Option<&'a Value> {
    match is_kept(there, wanted) {
        true => Some(wanted),
        false => there,
    }
}

/// A field of a patch in comparable form; `None` when it is absent. The times of taints and conditions do not count,
/// because the cluster may set them.
fn field(path: &str, value: Option<&Value>) -> Option<(String, Value)> {
    let value = match (path, value?) {
        (_, Value::Null) => return None,
        ("spec.taints", Value::Array(taints)) if taints.is_empty() => return None,
        ("spec.taints", Value::Array(taints)) => Value::Array(taints.iter().map(taint).collect()),
        ("status.conditions", Value::Array(list)) => list.iter().map(said).collect(),
        (_, value) => value.clone(),
    };
    Some((path.to_owned(), value))
}

fn taint(taint: &Value) -> Value {
    let text = |field| taint.get(field).and_then(Value::as_str).unwrap_or_default();
    json!([text("key"), text("value"), text("effect")])
}

/// After this time the write is tried again, because the webhook may have been fixed.
const STANDS: Duration = Duration::from_secs(600);

/// The writes that a webhook changed, by policy and target. Keeps only a digest of each.
#[derive(Default)]
pub(super) struct WebhookChanges(Mutex<BTreeMap<(String, ObjectRef), Changed>>);

struct Changed {
    fingerprint: Digest,
    paths: Vec<String>,
    at: Instant,
}

impl WebhookChanges {
    /// Fails if a webhook changed the same write within `STANDS`.
    pub(super) fn check(&self, policy: &str, step: &Step) -> Result<(), WriteFailure> {
        let changed = self.0.locked();
        match changed.get(&of(policy, step)) {
            Some(before)
                if before.at.elapsed() < STANDS && before.fingerprint == fingerprint(step) =>
            {
                Err(failed(step, &before.paths))
            }
            _ => Ok(()),
        }
    }

    /// Records the outcome of a write; fails if a webhook changed it.
    pub(super) fn note(
        &self,
        policy: &str,
        step: &Step,
        paths: &[String],
    ) -> Result<(), WriteFailure> {
        let mut changed = self.0.locked();
        if paths.is_empty() {
            changed.remove(&of(policy, step));
            return Ok(());
        }
        changed.retain(|_, before| before.at.elapsed() < STANDS);
        let now = Changed {
            fingerprint: fingerprint(step),
            paths: paths.to_vec(),
            at: Instant::now(),
        };
        changed.insert(of(policy, step), now);
        Err(failed(step, paths))
    }
}

fn of(policy: &str, step: &Step) -> (String, ObjectRef) {
    (policy.to_owned(), step.target().clone())
}

fn failed(step: &Step, paths: &[String]) -> WriteFailure {
    let why = format!(
        "the API server stored something else in {}: an admission webhook changed that, or the CRD does not have the \
         field; so it is not written again",
        paths.join(", ")
    );
    failure::failed(
        step.kind(),
        step.target(),
        KnownReason::AdmissionChanged,
        &why,
    )
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

    fn whole() -> Value {
        json!({"data": {"kubeconfig": "eA=="}, "metadata": {
            "labels": {labels::MANAGED_BY: "transom", labels::POLICY: "p", "theirs": "1"},
            "annotations": {labels::SOURCE: "{}", labels::INPUTS: "i", labels::COMPONENT: "c"},
        }})
    }

    /// The differences when the server returns the object with these places changed.
    fn differs(step: &Step, places: &[(&str, Value)]) -> Vec<String> {
        let mut answer = whole();
        answer["type"] = json!("Opaque");
        answer["metadata"]["creationTimestamp"] = json!("2026-11-21T08:15:30Z");
        for (pointer, value) in places {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let key = key.replace("~1", "/");
            answer.pointer_mut(parent).unwrap()[key] = value.clone();
        }
        changed(step, &answer)
    }

    #[test]
    fn only_managed_fields_count() {
        let update = Step::Update {
            desired: object(whole()),
            changed: vec!["data.kubeconfig".to_owned()],
        };
        let create = Step::Create {
            desired: object(whole()),
        };
        for step in [&update, &create] {
            assert!(differs(step, &[]).is_empty());
            assert!(differs(step, &[("/metadata/labels/new", json!("x"))]).is_empty());
            assert_eq!(
                differs(step, &[("/data/kubeconfig", json!("eQ=="))]),
                ["data.kubeconfig"]
            );
            assert_eq!(
                differs(step, &[("/data/stray", json!("eQ=="))]),
                ["data.stray"]
            );
            assert_eq!(
                differs(
                    step,
                    &[("/metadata/labels/transom.dev~1policy", json!("q"))]
                ),
                [r#"metadata.labels["transom.dev/policy"]"#]
            );
        }
        let theirs = [("/metadata/labels/theirs", json!("2"))];
        assert!(
            differs(&update, &theirs).is_empty(),
            "somebody else's label"
        );
        assert_eq!(
            differs(&create, &theirs),
            ["metadata.labels.theirs"],
            "a label that it was made with"
        );
    }

    fn taints(taints: Value) -> Step {
        let reference = ObjectRef::local(
            "cluster.open-cluster-management.io/v1",
            "ManagedCluster",
            None,
            "c",
        );
        Step::Patch {
            reference,
            version: "7".to_owned(),
            fields: vec![("spec.taints".to_owned(), taints)],
        }
    }

    #[test]
    fn a_pruned_field_is_not_blamed_on_a_webhook_alone() {
        let reference = ObjectRef::local("example.com/v1", "Thing", Some("n"), "t");
        let step = Step::Patch {
            reference,
            version: "7".to_owned(),
            fields: vec![("spec.size".to_owned(), json!(3))],
        };
        // The API server prunes what the schema does not have, and says so in a warning only.
        let paths = changed(&step, &json!({"spec": {}}));
        assert_eq!(
            failed(&step, &paths).message,
            "failed to patch Thing n/t: the API server stored something else in spec.size: an admission webhook changed \
             that, or the CRD does not have the field; so it is not written again"
        );
    }

    #[test]
    fn taint_times_and_empty_values_do_not_count() {
        let sent = taints(
            json!([{"key": "a", "effect": "NoSelect"}, {"key": "b", "value": "", "effect": "NoSelect"}]),
        );
        let at = "2026-11-21T08:15:30Z";
        let as_sent = json!([{"key": "a", "effect": "NoSelect", "timeAdded": at}, {"key": "b", "effect": "NoSelect", "timeAdded": at}]);
        assert!(changed(&sent, &json!({"spec": {"taints": as_sent}})).is_empty());
        for other in [
            json!([{"key": "a", "effect": "NoSelect"}]),
            json!([]),
            Value::Null,
        ] {
            assert_eq!(
                changed(&sent, &json!({"spec": {"taints": other}})),
                ["spec.taints"]
            );
        }
        assert!(changed(&taints(Value::Null), &json!({"spec": {}})).is_empty());
        assert!(changed(&taints(Value::Null), &json!({})).is_empty());
    }

    #[test]
    fn the_fingerprint_covers_owned_fields_only() {
        let one = |at: &str| {
            fingerprint(&taints(
                json!([{"key": "a", "effect": "NoSelect", "timeAdded": at}]),
            ))
        };
        assert_eq!(one("2026-11-21T08:15:30Z"), one("2026-11-21T08:15:31Z"));
        assert_ne!(one("x"), fingerprint(&taints(Value::Null)));
    }
}
