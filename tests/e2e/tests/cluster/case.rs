//! One bundled case as a row on the real server: what to create, what to change, and how to compare the result.
//! Differences are shown as paths, without values.

use crate::objects::{
    Identifiers, case_text, case_text_with, encode, identified, kind, merge_patch, named, parse,
    place,
};
use crate::stage::{DEADLINE, NAMESPACE, Stage};
use crate::whole::{Before, shared, words};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use transom_e2e::agent::Told;
use transom_e2e::program;
use transom_test_cluster::wait;

/// One case.
pub(crate) struct Row {
    /// The folder.
    pub(crate) name: String,
    /// The suffix of all names in this row.
    pub(crate) tag: String,
    /// Facts about the agent, and the guest's settings by role.
    pub(crate) given: Value,
    pub(crate) objects: Vec<Value>,
    pub(crate) then: Vec<Value>,
    pub(crate) gone: Vec<Value>,
    /// The policy of the case.
    pub(crate) policy: String,
    /// What the policy removes.
    pub(crate) removed: Vec<Value>,
    /// What is expected.
    pub(crate) expected: Value,
    /// The identifiers that the server gave the objects.
    pub(crate) identifiers: Identifiers,
    /// Whether objects are compared whole.
    pub(crate) whole: bool,
    /// The given objects as the server had them, once they are there; of a row that is compared whole.
    pub(crate) before: Option<Before>,
}

/// Every case of a policy, in order.
pub(crate) fn rows(policy: &str, prefix: &str, whole: bool) -> Result<Vec<Row>> {
    let folder = program::root().join("policies").join(policy).join("cases");
    let mut names: Vec<String> = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("failed to read `{}`", folder.display()))?
    {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    names
        .iter()
        .map(|name| {
            row(policy, name, prefix, whole)
                .with_context(|| format!("failed to read the case {name}"))
        })
        .collect()
}

fn row(policy: &str, name: &str, prefix: &str, whole: bool) -> Result<Row> {
    only_its_files(
        &program::root()
            .join("policies")
            .join(policy)
            .join("cases")
            .join(name),
    )?;
    let tag = format!(
        "{prefix}{}",
        name.split('-').next().unwrap_or(name).to_lowercase()
    );
    let with_tag = |word: &str| format!("{word}-{tag}");
    let words = match whole {
        true => Some(words(policy, name)?),
        false => None,
    };
    let text = |file: &str| match &words {
        Some(words) => case_text_with(policy, name, file, words, with_tag),
        None => case_text(policy, name, file, with_tag),
    };
    let mut objects = parse(&text("given.yaml")?.context("there is no given.yaml")?)?;
    let case = objects
        .iter()
        .position(|object| object["kind"] == "Case")
        .map(|at| objects.remove(at));
    let given = case
        .map(|case| case["spec"].clone())
        .unwrap_or_else(|| json!({}));
    let gone = given["gone"].as_array().cloned().unwrap_or_default();
    let gone = gone.iter().map(referred);
    let mut expected = parse(&text("expected.yaml")?.context("there is no expected.yaml")?)?
        .pop()
        .unwrap_or_default();
    if expected.is_null() {
        expected = json!({});
    }
    for part in ["objects", "partialObjects"] {
        let objects = expected.get_mut(part).and_then(Value::as_array_mut);
        objects.into_iter().flatten().for_each(encode);
    }
    let then = text("then.yaml")?
        .map(|text| parse(&text))
        .transpose()?
        .unwrap_or_default();
    let identifiers = Identifiers::new();
    let removed = expected["removed"].as_array().cloned().unwrap_or_default();
    // A case names the version only where the kind does not say enough.
    let manifest = program::manifest(policy)?;
    let rules = manifest["spec"]["grant"]["write"].as_array();
    let rules: Vec<&Value> = rules.into_iter().flatten().collect();
    let removed = removed.iter().map(|it| {
        let mut object = referred(it);
        let rule = rules.iter().find(|rule| rule["kind"] == object["kind"]);
        if let (Some(rule), true) = (rule, object["apiVersion"].is_null()) {
            object["apiVersion"] = rule["apiVersion"].clone();
        }
        object
    });
    let removed: Vec<Value> = removed.collect();
    Ok(Row {
        name: name.to_owned(),
        tag,
        gone: gone.collect(),
        given,
        objects,
        then,
        policy: policy.to_owned(),
        removed,
        expected,
        identifiers,
        whole,
        before: None,
    })
}

/// An object of which a case says only which one it is.
fn referred(it: &Value) -> Value {
    json!({"apiVersion": it["apiVersion"], "kind": it["kind"], "metadata": it})
}

/// Without this check a misspelt file would be ignored silently.
fn only_its_files(case: &Path) -> Result<()> {
    for entry in
        fs::read_dir(case).with_context(|| format!("failed to read `{}`", case.display()))?
    {
        let name = entry?.file_name();
        let known = ["given.yaml", "then.yaml", "expected.yaml"]
            .iter()
            .any(|file| name == *file);
        ensure!(known, "`{}` is no file of a case", name.display());
    }
    Ok(())
}

#[test]
fn rejects_a_case_with_a_misspelt_file_name() -> Result<()> {
    let case = tempfile::tempdir()?;
    fs::write(case.path().join("given.yaml"), "")?;
    only_its_files(case.path())?;
    fs::write(case.path().join("then.yml"), "")?;
    ensure!(
        only_its_files(case.path()).is_err(),
        "`then.yml` is taken for a file of a case"
    );
    Ok(())
}

impl Row {
    /// Whether something changes while the agent is running.
    pub(crate) fn changes(&self) -> bool {
        !self.then.is_empty() || !self.gone.is_empty()
    }

    /// What no other row may use at the same time.
    pub(crate) fn holds(&self) -> BTreeSet<String> {
        let all = self.objects.iter().chain(&self.then);
        let mut held: BTreeSet<String> = all.clone().map(named).collect();
        for object in all.chain(self.expected["objects"].as_array().into_iter().flatten()) {
            let wanted = &object["metadata"]["annotations"]["cluster.open-cluster-management.io/managedcluster-name"];
            held.extend(
                wanted
                    .as_str()
                    .map(|name| format!("Namespace klusterlet-{name}")),
            );
            held.extend(
                place(object)
                    .0
                    .filter(|name| name.starts_with("klusterlet-"))
                    .map(|name| format!("Namespace {name}")),
            );
        }
        held
    }

    /// Creates the given objects: primaries first, in the order of their age, because all others may refer to them.
    pub(crate) async fn put(&mut self, stage: &Stage) -> Result<()> {
        let is_primary =
            |object: &&Value| ["HostedCluster", "ManagedCluster"].contains(&kind(object).1);
        let mut primaries: Vec<&Value> = self.objects.iter().filter(is_primary).collect();
        primaries.sort_by_key(|object| {
            object["metadata"]["creationTimestamp"]
                .as_str()
                .map(str::to_owned)
        });
        let mut age = primaries
            .first()
            .map(|object| object["metadata"]["creationTimestamp"].clone());
        for object in primaries {
            let own = &object["metadata"]["creationTimestamp"];
            if age.as_ref() != Some(own) {
                next_second().await?;
                age = Some(own.clone());
            }
            self.identifiers = self.put_one(stage, object).await?;
        }
        for object in self.objects.iter().filter(|object| !is_primary(object)) {
            self.identifiers = self.put_one(stage, object).await?;
        }
        match self.whole {
            true => self.remember(stage).await,
            false => Ok(()),
        }
    }

    /// Creates a given object, unless a row that gives the same has created it; gives the identifiers known then.
    async fn put_one(&self, stage: &Stage, object: &Value) -> Result<Identifiers> {
        let mut identifiers = self.identifiers.clone();
        if self.whole && shared(stage, object, &mut identifiers).await? {
            return Ok(identifiers);
        }
        let put = match self.whole {
            true => stage.put(&self.held(object), &mut identifiers).await,
            false => stage.put(object, &mut identifiers).await,
        };
        // Another row may have put the same at the same time.
        if put.is_err() && self.whole && shared(stage, object, &mut identifiers).await? {
            return Ok(identifiers);
        }
        put.map(|()| identifiers)
    }

    /// Makes the change.
    pub(crate) async fn change(&mut self, stage: &Stage) -> Result<()> {
        // A cluster says what came of its inputs, so its inputs change first.
        let mut then: Vec<&Value> = self.then.iter().collect();
        if self.whole {
            then.sort_by_key(|object| kind(object).1 == "ManagedCluster");
        }
        for after in then {
            match self
                .objects
                .iter()
                .find(|before| named(before) == named(after))
            {
                Some(before) => stage.change(before, after, &self.identifiers).await?,
                None => stage.put(after, &mut self.identifiers).await?,
            }
        }
        for gone in &self.gone {
            let (namespace, name) = place(gone);
            if gone["kind"] == "Namespace" {
                stage.finalise(name).await?;
                continue;
            }
            let kind = kind(gone);
            if self.whole {
                // Its policy may have a finalizer on it, and takes it off.
                stage.delete(kind, namespace, name).await?;
                if let Some(there) = stage.get(kind, namespace, name).await? {
                    let all = there["metadata"]["finalizers"].as_array();
                    let mut kept: Vec<Value> = all.cloned().unwrap_or_default();
                    let given = self.objects.iter().find(|it| named(it) == named(gone));
                    let given = given.map(|it| it["metadata"]["finalizers"].clone());
                    let given = given.unwrap_or_default();
                    kept.retain(|one| !given.as_array().is_some_and(|all| all.contains(one)));
                    let patch = json!({"metadata": {"finalizers": kept}});
                    stage.patch(kind, namespace, name, patch).await?;
                }
                continue;
            }
            if self
                .objects
                .iter()
                .any(|it| named(it) == named(gone) && !it["metadata"]["finalizers"].is_null())
            {
                stage
                    .patch(
                        kind,
                        namespace,
                        name,
                        json!({"metadata": {"finalizers": null}}),
                    )
                    .await?;
            }
            stage.delete(kind, namespace, name).await?;
        }
        Ok(())
    }

    /// What the agent may write, as `secrets namespace/name`.
    pub(crate) fn written(&self) -> BTreeSet<String> {
        let objects = ["objects", "partialObjects"].map(|part| self.expected[part].as_array());
        let objects = objects.into_iter().flatten().flatten().cloned();
        objects
            .chain(self.removed.iter().cloned())
            .map(|object| resource(&object))
            .collect()
    }

    /// The primaries with the state that they should have.
    pub(crate) fn states(&self) -> impl Iterator<Item = (String, String)> {
        let states = self.expected["states"].as_array().into_iter().flatten();
        states.map(|it| {
            let primary = named(&json!({"kind": it["primary"]["kind"], "metadata": it["primary"]}));
            (
                primary,
                format!(
                    "{} {}",
                    it["state"].as_str().unwrap_or("-"),
                    it["reason"].as_str().unwrap_or("-")
                ),
            )
        })
    }

    /// What is not as expected yet; `states` holds the latest state of each primary.
    pub(crate) async fn differences(
        &self,
        stage: &Stage,
        states: &BTreeMap<String, String>,
    ) -> Result<Vec<String>> {
        let mut differences = Vec::new();
        for (primary, want) in self.states() {
            let have = states.get(&primary).map_or("none", String::as_str);
            if have != want {
                differences.push(format!("{primary}: expected {want}, got {have}"));
            }
        }
        if let Some(before) = &self.before {
            differences.extend(self.unexpected_states(states));
            differences.extend(self.whole_differences(stage, before).await?);
        } else {
            differences.extend(self.narrow_differences(stage).await?);
        }
        for object in &self.removed {
            let (namespace, name) = place(object);
            let there = stage.get(kind(object), namespace, name).await?;
            // It may be held by the finalizer of somebody else.
            if there.is_some_and(|there| there["metadata"]["deletionTimestamp"].is_null()) {
                differences.push(format!(
                    "{}: expected it to be removed, it exists",
                    named(object)
                ));
            }
        }
        Ok(differences)
    }

    /// How the part of the objects that counts differs.
    async fn narrow_differences(&self, stage: &Stage) -> Result<Vec<String>> {
        let mut differences = Vec::new();
        for object in self.expected["objects"].as_array().into_iter().flatten() {
            let (namespace, name) = place(object);
            let want = said(&identified(object, &self.identifiers));
            match stage.get(kind(object), namespace, name).await? {
                Some(have) => {
                    let mut paths = BTreeSet::new();
                    differ(&want, &said(&have), "", &mut paths);
                    differences.extend(
                        paths
                            .into_iter()
                            .map(|path| format!("{}: `{path}` differs", named(object))),
                    );
                }
                None => differences.push(format!(
                    "{}: expected it to be written, it was not",
                    named(object)
                )),
            }
        }
        Ok(differences)
    }

    /// A complaint if the change did or did not lead to a reconcile, contrary to the expectation.
    pub(crate) fn woken(&self, told: &[Told]) -> Option<String> {
        let by_whom = self.wrongly_woken(told);
        if !by_whom.is_empty() {
            return Some(by_whom.join(", "));
        }
        let expected = self.expected["reconciled"].as_bool()?;
        let ours = |told: &&Told| {
            told.state.is_some()
                && told
                    .primary
                    .split(['/', ' '])
                    .any(|part| part.ends_with(&self.tag))
        };
        let why: Vec<&str> = told
            .iter()
            .filter(ours)
            .map(|told| told.cause.as_str())
            .filter(|why| !BY_ITSELF.contains(why))
            .collect();
        (why.is_empty() == expected)
            .then(|| format!("reconciled: expected {expected}, got {why:?}"))
    }
}

/// Causes that come with time. In a case none passes, but on a server it does.
pub(crate) const BY_ITSELF: [&str; 5] = ["Expired", "Retry", "Timer", "Resync", ""];

/// The resource of an object as the audit log names it.
pub(crate) fn resource(object: &Value) -> String {
    let (namespace, name) = place(object);
    let namespace = match kind(object) == NAMESPACE {
        true => name,
        false => namespace.unwrap_or_default(),
    };
    format!("{}s {namespace}/{name}", kind(object).1.to_lowercase())
}

/// Waits until the next object gets a later creation time.
async fn next_second() -> Result<()> {
    let second = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map(|time| time.as_secs())
    };
    let first = second()?;
    wait::until("the next second", DEADLINE, async || {
        Ok((second()? > first).then_some(()))
    })
    .await
}

/// The part of an object that a case checks.
fn said(object: &Value) -> Value {
    if kind(object).1 == "ManagedCluster" {
        return json!({"taints": object["spec"]["taints"].as_array().cloned().unwrap_or_default()});
    }
    let mut annotations = object["metadata"]["annotations"].clone();
    if let Some(map) = annotations.as_object_mut() {
        ["transom.dev/component", "transom.dev/inputs"]
            .iter()
            .for_each(|key| drop(map.remove(*key)));
        if let Some(source) = map.get_mut("transom.dev/source") {
            *source = source
                .as_str()
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or(Value::Null);
        }
    }
    let data: Map<String, Value> = object["data"]
        .as_object()
        .into_iter()
        .flatten()
        .map(decoded)
        .collect();
    json!({"labels": object["metadata"]["labels"], "annotations": annotations, "type": object["type"], "data": data})
}

fn decoded((key, value): (&String, &Value)) -> (String, Value) {
    let bytes = value
        .as_str()
        .and_then(|text| STANDARD.decode(text).ok())
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (
        key.clone(),
        serde_yaml::from_str(&text).unwrap_or(Value::String(text)),
    )
}

/// The paths at which two values differ; for a list, the path of the list.
fn differ(want: &Value, have: &Value, path: &str, paths: &mut BTreeSet<String>) {
    match (want, have) {
        (Value::Object(wanted), Value::Object(had)) => {
            for key in wanted.keys().chain(had.keys()) {
                differ(
                    &want[key.as_str()],
                    &have[key.as_str()],
                    &format!("{path}.{key}"),
                    paths,
                );
            }
        }
        _ if merge_patch(want, have).is_none() => {}
        _ => drop(paths.insert(path.to_owned())),
    }
}
