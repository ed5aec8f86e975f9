//! The checks at the end of every test: no output contains a credential, and the agent changed no object of others.
//! Reports where a planted text was found, not the text.

use crate::access::{CLUSTERS, PREFIX};
use crate::availability::LEASE_NAME;
use crate::copying::{COPIES, HUB};
use crate::facts::FACTS;
use crate::filling::FILLED;
use crate::importing::IMPORTS;
use crate::leaving::STUCK;
use crate::makes::{ACCESS, MADE};
use crate::objects::OUTPUT;
use crate::others::OTHERS;
use crate::policies::POLICY;
use crate::stage::{HOME, NAMESPACE, SECRET, SERVICE, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::Request;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use transom_core::rights::LIMITS;
use transom_core::share::lock::MutexExt as _;
use transom_e2e::canary::Canaries;
use transom_test_cluster::{Line, Mark, Target, User};

const EVENT: (&str, &str) = ("events.k8s.io/v1", "Event");
/// The label of objects that do not belong to the agent.
const STRANGER: &str = "test/stranger";
/// A name that looks like that of a hosted cluster, but belongs to none.
const NOBODY: &str = "stranger";
/// Characters that control a terminal.
const CONTROL: [char; 3] = ['\u{7}', '\u{1b}', '\u{7f}'];

/// What to look for, and where.
pub(crate) struct Guard {
    /// In the token of every source.
    token: String,
    /// In front of the key of every source.
    key: String,
    /// In every Secret that is not the agent's.
    theirs: String,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    canaries: Canaries,
    /// Objects that are not the agent's, as they were planted.
    strangers: BTreeSet<String>,
    /// Files with the output of agents.
    said: Vec<PathBuf>,
    /// Objects that the agent may write in this test, beside those of all tests, as `secrets namespace/name`; or the
    /// end of their names, with a dash.
    expected: BTreeSet<String>,
    /// Where the test began in the audit log.
    mark: Mark,
}

impl Default for Guard {
    fn default() -> Self {
        let mut canaries = Canaries::default();
        let [token, key, theirs] = [
            "the token of a source",
            "the key of a source",
            "a Secret of somebody else",
        ]
        .map(|place| canaries.plant(place));
        Self {
            token,
            key,
            theirs,
            watched: Mutex::new(Watched {
                canaries,
                ..Watched::default()
            }),
        }
    }
}

impl Guard {
    /// Creates a text that must not be shown from now on.
    pub(crate) fn plant(&self, place: &str) -> String {
        self.watched().canaries.plant(place)
    }

    /// Registers an existing text that must not be shown from now on.
    pub(crate) fn look_for(&self, place: &str, text: &str) {
        self.watched().canaries.look_for(place, text);
    }

    /// Registers an agent's own credential, which must not be shown either.
    pub(crate) fn look_for_token(&self, user: &User) {
        let place = format!("the token of {}", user.name());
        user.token()
            .into_iter()
            .for_each(|token| self.watched().canaries.look_for(&place, token));
    }

    /// Registers a file to search at the end of the test, if it exists.
    pub(crate) fn search(&self, file: PathBuf) {
        self.watched().said.push(file);
    }

    /// Lets the agent write an object (`secrets namespace/name`) in this test, or every object whose name or namespace
    /// has an end (`-l03`).
    pub(crate) fn expect(&self, object: String) {
        self.watched().expected.insert(object);
    }

    /// Puts canaries beside and before the credentials of a source: a token, and a line before the key in its PEM.
    pub(crate) fn plant_source(&self, secret: &mut Value) -> Result<()> {
        let decoded = |value: &Value| {
            STANDARD
                .decode(value.as_str().unwrap_or_default())
                .ok()
                .context("no base64")
        };
        let mut document: Value = serde_yaml::from_slice(&decoded(&secret["data"]["kubeconfig"])?)
            .ok()
            .context("a source is not YAML")?;
        let user = &mut document["users"][0]["user"];
        let key = [
            self.key.as_bytes(),
            b"\n",
            &decoded(&user["client-key-data"])?,
        ]
        .concat();
        user["client-key-data"] = json!(STANDARD.encode(key));
        user["token"] = json!(self.token);
        secret["data"]["kubeconfig"] = json!(STANDARD.encode(serde_yaml::to_string(&document)?));
        Ok(())
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.locked()
    }
}

/// Identifies an object and its version.
fn version(kind: &str, object: &DynamicObject) -> String {
    let metadata = &object.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let [namespace, name] = [&metadata.namespace, &metadata.name].map(text);
    let [uid, version] = [&metadata.uid, &metadata.resource_version].map(text);
    format!("{kind} {namespace}/{name}, uid {uid}, version {version}")
}

impl Stage {
    /// Prepares a new test: plants objects that are not the agent's, under names that the agent knows.
    pub(crate) async fn guard(&self) -> Result<()> {
        {
            let mut watched = self.guard.watched();
            (watched.strangers, watched.said) = (BTreeSet::new(), Vec::new());
            watched.expected = BTreeSet::new();
        }
        let [home, control_plane] =
            ["klusterlet", "clusters"].map(|prefix| format!("{prefix}-{NOBODY}"));
        for name in [&home, &control_plane] {
            self.plant_stranger(
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            )
            .await?;
        }
        self.plant_secret(&home, OUTPUT).await?;
        self.plant_stranger(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kube-apiserver", "namespace": control_plane},
            "spec": {"clusterIP": "None", "ports": [{"port": 6443}]}}))
            .await?;
        self.guard.watched().mark = self.mark()?;
        Ok(())
    }

    /// A Secret of another owner beside the one that the agent creates for a cluster.
    pub(crate) async fn plant_neighbour(&self, namespace: &str) -> Result<()> {
        self.plant_secret(namespace, NOBODY).await
    }

    /// A Secret of another owner.
    pub(crate) async fn plant_secret(&self, namespace: &str, name: &str) -> Result<()> {
        let data = json!({"kubeconfig": STANDARD.encode(&self.guard.theirs)});
        self.plant_stranger(json!({"apiVersion": "v1", "kind": "Secret", "data": data,
            "metadata": {"name": name, "namespace": namespace}}))
            .await
    }

    async fn plant_stranger(&self, mut object: Value) -> Result<()> {
        object["metadata"]["labels"] = json!({STRANGER: "true"});
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let created = self.objects().create(object).await?;
        self.guard
            .watched()
            .strangers
            .insert(version(&kind, &created));
        Ok(())
    }

    /// No credential was shown, no object of others was changed, and every request was one that the agent may make.
    pub(crate) async fn unharmed(&self) -> Result<()> {
        self.silent().await?;
        let mut strangers = BTreeSet::new();
        for kind in [NAMESPACE, SECRET, SERVICE] {
            let labelled = ListParams::default().labels(STRANGER);
            let found = self.api(kind, None).await?.list(&labelled).await?.items;
            strangers.extend(found.iter().map(|object| version(kind.1, object)));
        }
        let (planted, expected, mark) = {
            let watched = self.guard.watched();
            let (planted, expected) = (watched.strangers.clone(), watched.expected.clone());
            (planted, expected, watched.mark)
        };
        let changed: Vec<&String> = planted.symmetric_difference(&strangers).collect();
        ensure!(
            changed.is_empty(),
            "what is none of ours was touched: {changed:#?}"
        );
        let agents = format!("system:serviceaccount:{HOME}:");
        let lines = self.all_lines(mark).await?;
        let is_expected = |target: &Target| {
            let Target {
                resource,
                namespace,
                name,
                ..
            } = target;
            let place = format!("{resource} {namespace}/{name}");
            let fits = |one: &String| {
                place == *one
                    || (one.starts_with('-')
                        && [namespace, name].iter().any(|name| name.contains(&**one)))
            };
            expected.iter().any(fits)
        };
        let foreign = |line: &&Line| {
            let target = line.target.as_ref();
            let ours = is_ours(target) || target.is_some_and(is_expected);
            line.user.starts_with(&agents) && line.is_write() && !ours
        };
        let foreign: Vec<&Line> = lines.iter().filter(foreign).collect();
        ensure!(
            foreign.is_empty(),
            "it wanted to write what is none of its own: {foreign:#?}"
        );
        Ok(())
    }

    /// Checks logs, metrics, the debug state, Events, status, and everything in Secrets except their data.
    async fn silent(&self) -> Result<()> {
        let mut said = Vec::new();
        for file in self
            .guard
            .watched()
            .said
            .iter()
            .filter(|file| file.exists())
        {
            said.push((
                file.display().to_string(),
                String::from_utf8_lossy(&fs::read(file)?).into_owned(),
            ));
        }
        let all = ListParams::default();
        for object in self.api(EVENT, None).await?.list(&all).await?.items {
            said.push((version(EVENT.1, &object), serde_json::to_string(&object)?));
        }
        // The kind exists only if a test has installed it.
        if self.has_policies().await? {
            for object in self.list(POLICY).await? {
                said.push((version(POLICY.1, &object), serde_json::to_string(&object)?));
            }
        }
        for object in self
            .api(SECRET, None)
            .await?
            .list_metadata(&all)
            .await?
            .items
        {
            said.push((
                "the metadata of a Secret".to_owned(),
                serde_json::to_string(&object.metadata)?,
            ));
        }
        let watched = self.guard.watched();
        for (place, text) in &said {
            let found = watched.canaries.found_in(text.as_bytes());
            ensure!(found.is_empty(), "{place} shows {found:?}");
            // In an object the text is escaped.
            let escaped = !place.ends_with(".log") && text.contains("\\u00");
            ensure!(
                !escaped && !text.contains(CONTROL),
                "{place} has a control character"
            );
        }
        Ok(())
    }
}

/// Whether an agent may want to write it: managed objects, fields of primaries, and its reports.
fn is_ours(target: Option<&Target>) -> bool {
    let Some(Target {
        group,
        resource,
        subresource,
        namespace,
        name,
    }) = target
    else {
        return false;
    };
    match (resource.as_str(), subresource.as_str()) {
        // The identity and permissions of others: created, and kept by no test.
        _ if ["authentication.k8s.io", "authorization.k8s.io"].contains(&group.as_str()) => true,
        ("secrets", "") if namespace == HUB => {
            [COPIES, CLUSTERS, FILLED]
                .iter()
                .any(|begin| name.starts_with(begin))
                && !name.starts_with("copied-taken-admin")
        }
        ("secrets", "") => {
            name == OUTPUT && namespace.starts_with("klusterlet-") && !namespace.ends_with(NOBODY)
        }
        // Of the world of tests.
        ("configmaps", "") if namespace == HOME => name == LIMITS,
        ("configmaps", "") if namespace.starts_with(MADE) => name == "facts",
        ("configmaps", "") if namespace == "default" => name == "disposable",
        ("resourcequotas" | "limitranges", "") => namespace == "default",
        ("namespaces", "") if name.starts_with(CLUSTERS) => true,
        ("namespaces", "") => name.starts_with(MADE) && !name.ends_with("-two"),
        ("clusterroles" | "clusterrolebindings" | "rolebindings", "")
            if name.starts_with(PREFIX) =>
        {
            namespace.is_empty() || namespace.starts_with(CLUSTERS)
        }
        ("clusterroles" | "clusterrolebindings", "") => name.starts_with(ACCESS),
        ("configmaps", "") => namespace == FACTS && name != "theirs-facts",
        ("managedclusters" | "certificatesigningrequests" | "events", "") => true,
        ("hostedclusters", "") => {
            [IMPORTS, CLUSTERS]
                .iter()
                .any(|begin| name.starts_with(begin))
                && !name.ends_with("-taken")
        }
        ("managedclusteraddons" | "manifestworks", "") => namespace.starts_with(CLUSTERS),
        ("klusterlets", "") => {
            let of = name.strip_prefix("klusterlet-").unwrap_or_default();
            name == STUCK || name.starts_with(OTHERS) || of.starts_with(CLUSTERS)
        }
        ("klusterletaddonconfigs", "") => name.starts_with(IMPORTS) && namespace == name,
        ("fleetpolicies", "status") => true,
        ("managedclustersets", "") => ["default", "global"].contains(&name.as_str()),
        ("managedclustersets" | "managedclustersetbindings", "status") => true,
        // Of objects that others made, what is granted.
        ("klusterlets", "status") => name.starts_with(OTHERS),
        ("managedclusteraddons", "status") => true,
        // Of the tests that grant a status.
        ("managedclusters", "status") | ("certificatesigningrequests", "approval") => true,
        ("leases", "") => namespace == HOME || name == LEASE_NAME,
        ("controllerrevisions", "") => namespace == HOME,
        _ => false,
    }
}

/// Checks that the search finds harm and does not show the planted text; then cleans the stage.
async fn harmed(stage: &Stage, what: &str, word: &str) -> Result<()> {
    let found = stage
        .unharmed()
        .await
        .err()
        .with_context(|| format!("nobody finds {what}"))?;
    let said = format!("{found:#}");
    ensure!(
        said.contains(word) && !said.contains(&stage.guard.token),
        "{what}: it says {said}"
    );
    stage.clear().await
}

#[test]
fn detects_each_kind_of_harm() -> Result<()> {
    on_stage(async |stage| {
        let token = stage.guard.token.clone();
        for (file, said) in [
            ("raw.log", token.clone()),
            ("base64.pages", STANDARD.encode(format!("ab{token}c"))),
        ] {
            let file = stage.cluster.folder().join(file);
            fs::write(&file, said)?;
            stage.guard.search(file);
            harmed(stage, "a log", "the token of a source").await?;
        }
        let file = stage.cluster.folder().join("bell.log");
        fs::write(&file, "\u{7}")?;
        stage.guard.search(file);
        harmed(stage, "a bell", "has a control character").await?;
        let event = json!({"apiVersion": EVENT.0, "kind": EVENT.1, "metadata": {"name": "harm", "namespace": "default"},
            "eventTime": "2026-11-21T08:00:00.000000Z", "reportingController": "test", "reportingInstance": "test",
            "action": "Test", "reason": "Test", "type": "Normal", "note": token});
        stage.objects().create(event).await?;
        let found = harmed(stage, "an Event", "Event default/harm").await;
        stage.delete(EVENT, Some("default"), "harm").await?;
        found?;
        stage.install_policies().await?;
        let status = json!({"conditions": [{"type": "Loaded", "status": "True", "reason": "Loaded", "message": token,
            "lastTransitionTime": "2026-11-21T08:00:00Z"}]});
        stage.put_status(POLICY, None, OUTPUT, &status).await?;
        harmed(stage, "a status", &format!("FleetPolicy /{OUTPUT}")).await?;
        let home = format!("klusterlet-{NOBODY}");
        stage
            .patch(
                SECRET,
                Some(&home),
                OUTPUT,
                json!({"metadata": {"annotations": {"a": token}}}),
            )
            .await?;
        harmed(stage, "an annotation", "the metadata of a Secret").await?;
        stage
            .patch(
                SECRET,
                Some(&home),
                OUTPUT,
                json!({"data": {"kubeconfig": "eA=="}}),
            )
            .await?;
        harmed(
            stage,
            "a Secret that was touched",
            "what is none of ours was touched",
        )
        .await?;
        // The request fails, but it was sent.
        let agent = stage.cluster.client(&stage.agent).await?;
        let request = Request::new(format!("/api/v1/namespaces/{home}/secrets"));
        let request = request.patch("nobody", &PatchParams::default(), &Patch::Merge(json!({})))?;
        ensure!(
            agent.request::<Value>(request).await.is_err(),
            "there is a Secret `nobody`"
        );
        harmed(stage, "a write that is refused", "it wanted to write").await
    })
}
