//! Cases of the objects world as rows on a real server: objects of any kind, compared whole. What the server adds to a
//! given object is no difference.

use crate::case::{BY_ITSELF, Row, resource};
use crate::inputs::{ASKS, REQUEST};
use crate::objects::{Identifiers, conditions, identified, kind, merge_patch, named, parse, place};
use crate::stage::{CRDS, NAMESPACE, Stage};
use anyhow::{Context as _, Result};
use kube::api::{DynamicObject, PostParams};
use kube::core::Request;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use transom_e2e::agent::Told;
use transom_e2e::program;
use transom_test_cluster::{SET_BY_SERVER, available_crds};

/// The answer to an access review, as cases give it; on a server it follows from roles.
pub(crate) const REVIEW: (&str, &str) = ("authorization.k8s.io/v1", "SubjectAccessReview");
const CONFIG: (&str, &str) = (
    "agent.open-cluster-management.io/v1",
    "KlusterletAddonConfig",
);
const ROLES: &str = "rbac.authorization.k8s.io/v1";
/// The finalizer of an object that a case gives as being deleted.
const HOLD: &str = "test/hold";

/// Each given object as the server had it before the agent started, by kind and name.
pub(crate) type Before = BTreeMap<String, Value>;

/// What a row uses, by kind and name: as what, or nothing where the row changes it.
pub(crate) type Uses = BTreeMap<String, Option<String>>;

/// Whether a policy reads all objects of a kind, so that two rows see each other.
pub(crate) fn reads_all_of_a_kind(policy: &Value) -> bool {
    let reads = policy["spec"]["grant"]["read"].as_array();
    reads.into_iter().flatten().any(|read| {
        let of_primary = |key: &str| {
            let pattern = read[key].as_str().unwrap_or_default();
            pattern.contains("{primary.")
        };
        !read["every"].is_null() && !of_primary("namespace") && !of_primary("name")
    })
}

/// Rows of the objects world that may run at the same time: an object that two of them use is the same in both, and no
/// row changes it.
pub(crate) fn whole_waves(rows: Vec<Row>, alone: bool) -> Vec<Vec<Row>> {
    let mut waves: Vec<(Uses, Vec<Row>)> = Vec::new();
    for row in rows {
        let uses = row.uses();
        let fits = |all: &Uses| {
            !alone
                && uses.iter().all(|(name, one)| {
                    let other = all.get(name);
                    other.is_none_or(|other| one.is_some() && other == one)
                })
        };
        match waves.iter_mut().find(|(all, _)| fits(all)) {
            Some((all, wave)) => {
                all.extend(uses);
                wave.push(row);
            }
            None => waves.push((uses, vec![row])),
        }
    }
    waves.into_iter().map(|(_, wave)| wave).collect()
}

/// The names that a row may give to its objects: those of clusters and requests. The bytes of a request name its
/// cluster, which keeps its name then.
pub(crate) fn words(policy: &str, case: &str) -> Result<Vec<String>> {
    let folder = program::root().join("policies").join(policy).join("cases");
    let mut objects = Vec::new();
    for file in ["given.yaml", "then.yaml"] {
        let file = folder.join(case).join(file);
        if file.is_file() {
            objects.extend(parse(&fs::read_to_string(file)?)?);
        }
    }
    let of = |kinds: &[&str]| -> BTreeSet<String> {
        let those = objects
            .iter()
            .filter(|object| kinds.contains(&kind(object).1));
        those.map(|object| place(object).1.to_owned()).collect()
    };
    let requests = of(&[REQUEST.1]);
    let words = match requests.is_empty() {
        true => of(&["ManagedCluster", "HostedCluster"]),
        false => requests,
    };
    // A namespace with a label of a cluster is that of a cluster which is gone.
    let mut words: Vec<String> = words.into_iter().collect();
    if words.is_empty() {
        let labelled = objects.iter().filter(|object| {
            kind(object) == NAMESPACE
                && !object["metadata"]["labels"]["open-cluster-management.io/cluster-name"]
                    .is_null()
        });
        words.extend(labelled.map(|object| place(object).1.to_owned()));
    }
    Ok(words)
}

/// The kinds in some rows and in their policy.
fn kinds(policy: &Value, rows: &[Row]) -> BTreeSet<(String, String)> {
    let grant = &policy["spec"]["grant"];
    let rules = ["read", "write"].map(|rules| grant[rules].as_array());
    let rules = rules.into_iter().flatten().flatten();
    let named = rules.filter(|rule| !rule["kind"].is_null());
    let owned = |object| {
        let (version, kind) = kind(object);
        (version.to_owned(), kind.to_owned())
    };
    rows.iter()
        .flat_map(Row::all)
        .chain(named)
        .map(owned)
        .collect()
}

/// Installs the CRDs of every kind in some rows and in their policy.
pub(crate) async fn install(stage: &Stage, policy: &Value, rows: &[Row]) -> Result<()> {
    let kinds = kinds(policy, rows);
    let grant = &policy["spec"]["grant"];
    // The rights in a namespace lie in it.
    for rule in grant["write"].as_array().into_iter().flatten() {
        let namespace = rule["namespace"].as_str();
        if let Some(name) = namespace.filter(|name| !name.contains(['{', '*'])) {
            stage.objects().namespace(name).await?;
        }
    }
    let there = available_crds()?;
    for (version, kind) in &kinds {
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let name = format!("{}s.{group}", kind.to_lowercase());
        match (&**version, &**kind) == CONFIG {
            true => stage.cluster.install_addon_configs().await?,
            false if there.contains(&name) && !CRDS.contains(&&*name) => {
                stage.cluster.install_crds(&[&name]).await?;
            }
            false => {}
        }
    }
    stage.objects().apply_manifest(ASKS).await
}

impl Stage {
    /// Creates a request for a certificate as the requester that it names, with its conditions.
    pub(crate) async fn request(&self, body: Value) -> Result<DynamicObject> {
        let spec = body["spec"].clone();
        let requests = Request::new("/apis/certificates.k8s.io/v1/certificatesigningrequests");
        let mut status = body["status"].clone();
        let name = place(&body).1.to_owned();
        let mut request = requests.create(&PostParams::default(), body.to_string().into_bytes())?;
        let as_user = |key: &'static str, value: &Value| -> Result<_> {
            let value = value.as_str().context("a requester is no text")?;
            Ok((key, value.parse::<http::HeaderValue>()?))
        };
        let (key, user) = as_user("impersonate-user", &spec["username"])?;
        request.headers_mut().insert(key, user);
        for group in spec["groups"].as_array().into_iter().flatten() {
            let (key, group) = as_user("impersonate-group", group)?;
            request.headers_mut().append(key, group);
        }
        let client = self.objects().client();
        let mut made: DynamicObject = client
            .request(request)
            .await
            .with_context(|| format!("failed to ask for the certificate of `{name}`"))?;
        if !status["conditions"].is_null() {
            made.data["status"] = status.take();
            let body = serde_json::to_vec(&made)?;
            let approved =
                requests.replace_subresource("approval", &name, &PostParams::default(), body)?;
            made = client.request(approved).await?;
        }
        Ok(made)
    }

    /// Gives a user the right about which a case has the answer that it is allowed; without it the server denies.
    pub(crate) async fn answer(&self, review: &Value) -> Result<()> {
        if review["status"]["allowed"] != true {
            return Ok(());
        }
        let (spec, name) = (&review["spec"], place(review).1);
        let of = &spec["resourceAttributes"];
        let text = |key: &str| of[key].as_str().unwrap_or_default();
        let resource = [text("resource"), text("subresource")];
        let resource = resource.join("/").trim_end_matches('/').to_owned();
        let rules = json!([{"apiGroups": [text("group")], "resources": [resource], "verbs": [text("verb")]}]);
        let user = spec["user"].as_str().context("no user")?;
        self.objects().allow(&[user], None, name, rules).await
    }

    /// Removes every object of some rows, so that the next rows find nothing of them.
    pub(crate) async fn take(&self, policy: &Value, rows: &[Row]) -> Result<()> {
        let (mut namespaces, mut all) = (BTreeSet::new(), BTreeMap::new());
        for object in rows.iter().flat_map(Row::all) {
            namespaces.extend(place(object).0.map(str::to_owned));
            match kind(object) {
                NAMESPACE => drop(namespaces.insert(place(object).1.to_owned())),
                REVIEW => {
                    for role in ["ClusterRole", "ClusterRoleBinding"] {
                        let role = json!({"apiVersion": ROLES, "kind": role, "metadata": object["metadata"]});
                        all.insert(named(&role), role);
                    }
                }
                _ => drop(all.insert(named(object), object.clone())),
            }
        }
        let mut kinds = kinds(policy, rows);
        kinds.retain(|(version, kind)| ![NAMESPACE, REVIEW].contains(&(&**version, &**kind)));
        kinds.extend(all.values().map(|object| {
            let (version, kind) = kind(object);
            (version.to_owned(), kind.to_owned())
        }));
        let ends: Vec<String> = rows.iter().map(|row| format!("-{}", row.tag)).collect();
        let with_tag = |name: &Option<String>| {
            let name = name.as_deref().unwrap_or_default();
            ends.iter().any(|end| name.contains(&**end))
        };
        let mut gone = Vec::new();
        for (version, kind) in &kinds {
            let kind = (&**version, &**kind);
            for object in self.list(kind).await? {
                let metadata = &object.metadata;
                let name = metadata.name.clone().unwrap_or_default();
                let key = match &metadata.namespace {
                    Some(namespace) => format!("{} {namespace}/{name}", kind.1),
                    None => format!("{} {name}", kind.1),
                };
                if with_tag(&metadata.name)
                    || with_tag(&metadata.namespace)
                    || all.contains_key(&key)
                {
                    gone.push((kind, object));
                }
            }
        }
        self.remove_these(gone).await?;
        for name in namespaces.iter().filter(|name| !name.starts_with("kube-")) {
            self.finalise(name).await?;
        }
        Ok(())
    }
}

/// An object without what the server sets, and without digests.
fn said(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        let of_deletion = ["deletionTimestamp", "deletionGracePeriodSeconds"];
        for key in SET_BY_SERVER.iter().chain(&of_deletion) {
            metadata.remove(*key);
        }
        if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|finalizer| finalizer != HOLD);
        }
        if let Some(map) = metadata
            .get_mut("annotations")
            .and_then(Value::as_object_mut)
        {
            for digest in ["transom.dev/component", "transom.dev/inputs"] {
                map.remove(digest);
            }
            if let Some(source) = map.get_mut("transom.dev/source")
                && let Some(text) = source.as_str()
            {
                *source = serde_json::from_str(text).unwrap_or_default();
            }
        }
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove("kubernetes.io/metadata.name");
        }
        metadata.retain(|_, value| !is_empty(value));
    }
    if kind(&object).1 == REQUEST.1 {
        for condition in object["status"]["conditions"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            condition.remove("lastUpdateTime");
        }
    }
    object
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// A value after a merge patch, in which null removes.
fn patched(value: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut map = value.as_object().cloned().unwrap_or_default();
    for (key, patch) in patch {
        match patch.is_null() {
            true => drop(map.remove(key)),
            false => {
                let before = map.get(key).cloned().unwrap_or_default();
                map.insert(key.clone(), patched(&before, patch));
            }
        }
    }
    Value::Object(map)
}

/// The paths at which an object is not as wanted. A map of which only a part is wanted may have more; below `exact` it
/// may not, and a list never has more elements.
fn differ(want: &Value, have: &Value, exact: bool, path: &str, paths: &mut BTreeSet<String>) {
    match (want, have) {
        (Value::Object(wanted), Value::Object(had)) => {
            let more: Map<String, Value> = had
                .iter()
                .filter(|(key, value)| exact && !wanted.contains_key(*key) && !is_empty(value))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            paths.extend(more.keys().map(|key| format!("{path}.{key}")));
            for (key, want) in wanted {
                let have = had.get(key).unwrap_or(&Value::Null);
                differ(want, have, exact, &format!("{path}.{key}"), paths);
            }
        }
        (Value::Array(wanted), Value::Array(had)) if wanted.len() == had.len() => {
            for (index, (want, have)) in wanted.iter().zip(had).enumerate() {
                differ(want, have, exact, &format!("{path}[{index}]"), paths);
            }
        }
        _ if want == have || (is_empty(want) && is_empty(have)) => {}
        _ => drop(paths.insert(path.to_owned())),
    }
}

impl Row {
    /// Every object of the row.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Value> {
        let expected = ["objects", "partialObjects"].map(|part| self.expected[part].as_array());
        let expected = expected.into_iter().flatten().flatten();
        let all = self.objects.iter().chain(&self.then).chain(expected);
        all.chain(&self.removed)
    }

    /// What no other row may use at the same time: objects that the row changes, or that are not the same in both.
    pub(crate) fn uses(&self) -> Uses {
        let mut uses: Uses = self
            .objects
            .iter()
            .map(|object| (named(object), Some(object.to_string())))
            .collect();
        let expected = ["objects", "partialObjects"].map(|part| self.expected[part].as_array());
        let expected = expected.into_iter().flatten().flatten();
        let expected = expected.chain(&self.removed).map(named);
        // That a cluster is missing counts, too.
        let of = self.objects.iter().filter_map(|object| {
            let cluster =
                object["metadata"]["labels"]["open-cluster-management.io/cluster-name"].as_str()?;
            Some(format!("ManagedCluster {cluster}"))
        });
        for cluster in of {
            uses.entry(cluster).or_insert_with(|| Some(String::new()));
        }
        let changed = self.then.iter().chain(&self.gone).map(named);
        let changes: Vec<String> = expected.chain(changed).collect();
        // Other rows may want or make what has the same name for all.
        let end = format!("-{}", self.tag);
        let of_all = changes.iter().any(|name| !name.contains(&end));
        uses.insert("what all share".to_owned(), (!of_all).then(String::new));
        uses.extend(changes.into_iter().map(|name| (name, None)));
        uses
    }

    /// Whether a write is that of an object with the tag of the row.
    pub(crate) fn is_about(&self, write: &str) -> bool {
        let end = format!("-{}", self.tag);
        write
            .split(['/', ':', ' '])
            .any(|part| part.ends_with(&end) || part.contains(&format!("{end}-")))
    }

    /// What the agent may write for the row at any time: what is expected, and before the change any object of the row.
    pub(crate) fn may_write(&self) -> BTreeSet<String> {
        let mut places = self.written();
        if self.changes() {
            places.extend(self.objects.iter().map(resource));
            places.insert(format!("-{}", self.tag));
            places.extend(self.all().map(resource));
        }
        places
    }

    /// A given object as it is put. One that the agent removes or releases is held, so that what comes after it does
    /// not come: a case ends there.
    pub(crate) fn held(&self, object: &Value) -> Value {
        let mut object = object.clone();
        let here = named(&object);
        let mut removed = self.removed.iter().map(named);
        let mut released = ["objects", "partialObjects"]
            .into_iter()
            .filter_map(|part| self.expected[part].as_array())
            .flatten()
            .filter(|object| released(object))
            .map(named);
        let others = object["metadata"]["labels"]["transom.dev/policy"] != *self.policy;
        if others && (removed.any(|it| it == here) || released.any(|it| it == here)) {
            let finalizers = &mut object["metadata"]["finalizers"];
            match finalizers.as_array_mut() {
                Some(all) => all.push(json!(HOLD)),
                None => *finalizers = json!([HOLD]),
            }
        }
        object
    }

    /// Remembers each given object as the server has it.
    pub(crate) async fn remember(&mut self, stage: &Stage) -> Result<()> {
        let mut before = Before::new();
        for object in self.objects.iter().filter(|object| kind(object) != REVIEW) {
            let (namespace, name) = place(object);
            let there = stage.get(kind(object), namespace, name).await?;
            before.insert(named(object), there.context("it is not there")?);
        }
        self.before = Some(before);
        Ok(())
    }

    /// How the objects of a row of the objects world differ from what is expected.
    pub(crate) async fn whole_differences(
        &self,
        stage: &Stage,
        before: &Before,
    ) -> Result<Vec<String>> {
        let mut differences = Vec::new();
        for (part, exact) in [("objects", true), ("partialObjects", false)] {
            for object in self.expected[part].as_array().into_iter().flatten() {
                let (namespace, name) = place(object);
                let have = stage.get(kind(object), namespace, name).await?;
                let (want, exact) = self.want(object, before, exact);
                let Some(have) = have else {
                    if !released(object) {
                        differences.push(format!("{}: it is not there", named(object)));
                    }
                    continue;
                };
                let (want, have) = (said(&want), said(&have));
                let mut paths = BTreeSet::new();
                if !exact {
                    // Nobody but the agent writes these of an object that it made.
                    let made = !before.contains_key(&named(object)) && part == "objects";
                    let [wanted, had] = [&want, &have].map(|object| object["metadata"].clone());
                    differ(&wanted, &had, made, ".metadata", &mut paths);
                }
                differ(&want, &have, exact, "", &mut paths);
                let differ = |path| format!("{}: `{path}` differs", named(object));
                differences.extend(paths.into_iter().map(differ));
            }
        }
        Ok(differences)
    }

    /// An expected object as the server is to have it, and whether it is to have nothing more.
    fn want(&self, object: &Value, before: &Before, whole: bool) -> (Value, bool) {
        let object = filled(&identified(object, &self.identifiers));
        let same = |other: &&Value| named(other) == named(&object);
        let given = self.objects.iter().find(same).filter(|_| whole);
        match (given, before.get(&named(&object))) {
            (Some(given), Some(there)) => {
                let given = filled(&identified(given, &self.identifiers));
                let patch = merge_patch(&said(&given), &said(&object)).unwrap_or_else(|| json!({}));
                (patched(&said(there), &patch), true)
            }
            _ => (object, false),
        }
    }

    /// The primaries of the row that have a state although the case expects none.
    pub(crate) fn unexpected_states(&self, states: &BTreeMap<String, String>) -> Vec<String> {
        let expected: BTreeSet<String> = self.states().map(|(primary, _)| primary).collect();
        let own: BTreeSet<String> = self.objects.iter().chain(&self.then).map(named).collect();
        states
            .iter()
            // The last word about a primary that is gone is no state.
            .filter(|(primary, _)| !self.gone.iter().any(|gone| named(gone) == **primary))
            .filter(|(primary, _)| own.contains(*primary) && !expected.contains(*primary))
            .map(|(primary, state)| format!("{primary}: expected no state, got {state}"))
            .collect()
    }

    /// Complaints about primaries that the change woke or did not wake, contrary to the case.
    pub(crate) fn wrongly_woken(&self, told: &[Told]) -> Vec<String> {
        let Some(expected) = self.expected["woken"].as_array() else {
            return Vec::new();
        };
        let expected: BTreeSet<String> = expected
            .iter()
            .map(|one| named(&json!({"kind": one["primary"]["kind"], "metadata": one["primary"]})))
            .collect();
        let own: BTreeSet<String> = self.objects.iter().chain(&self.then).map(named).collect();
        // A primary that is gone is among the expected ones only.
        let counts = |told: &&Told| match expected.contains(&told.primary) {
            true => true,
            false => own.contains(&told.primary) && !BY_ITSELF.contains(&&*told.cause),
        };
        let woken: BTreeSet<String> = told
            .iter()
            .filter(|told| told.state.is_some())
            .filter(counts)
            .map(|told| told.primary.clone())
            .collect();
        expected
            .symmetric_difference(&woken)
            .map(|primary| format!("{primary}: `woken` is not as expected"))
            .collect()
    }
}

/// An object with the conditions that the server has.
fn filled(object: &Value) -> Value {
    let mut object = object.clone();
    if kind(&object).1 == "HostedCluster" {
        conditions(&mut object["status"]["conditions"]);
    }
    object
}

/// Whether an object goes when it is as expected: it is being deleted, and nobody holds it.
fn released(object: &Value) -> bool {
    let metadata = &object["metadata"];
    !metadata["deletionTimestamp"].is_null() && is_empty(&metadata["finalizers"])
}

/// The identifier of an object that is there already, because another row gave the same.
pub(crate) async fn shared(
    stage: &Stage,
    object: &Value,
    identifiers: &mut Identifiers,
) -> Result<bool> {
    if [NAMESPACE, REVIEW].contains(&kind(object)) {
        return Ok(false);
    }
    let (namespace, name) = place(object);
    let Some(there) = stage.get(kind(object), namespace, name).await? else {
        return Ok(false);
    };
    let [old, new] = [object, &there].map(|object| object["metadata"]["uid"].as_str());
    if let (Some(old), Some(new)) = (old, new) {
        identifiers.insert(old.to_owned(), new.to_owned());
    }
    Ok(true)
}
