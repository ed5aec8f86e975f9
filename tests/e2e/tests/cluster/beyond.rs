//! Hostile guests of the objects world on a real API server: what each wants beyond its grant is refused with its
//! reason, and nothing is written. And a guest that only observes, with rights to read.

use crate::inputs::reconciles_of;
use crate::others::wait_for_refusal;
use crate::stage::{KLUSTERLET, MANAGED, SECRET, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;
use transom_e2e::fixture;

const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");
const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// The label that selects the cluster of a policy.
const CASE: &str = "example.com/beyond";
/// The Secret whose bytes may go into the data of another one.
const SOURCE: &str = "beyond-source";

/// A guest: its name, its settings, what its policy lets it write, and how its cluster ends.
struct Hostile {
    name: &'static str,
    settings: Value,
    write: Value,
    ends: &'static str,
}

fn of(name: &'static str, settings: Value, write: Value, ends: &'static str) -> Hostile {
    Hostile {
        name,
        settings,
        write,
        ends,
    }
}

/// Those that want objects and fields beyond the grant.
fn of_objects() -> Vec<Hostile> {
    let verbs = json!(["create", "update", "delete"]);
    let map = |name: &str| json!([{"kind": "ConfigMap", "namespace": "default", "name": name, "verbs": verbs, "fields": ["data"]}]);
    let makes = |name: &str, content: Value| {
        json!({"makes": [{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default",
        "name": name, "content": content.to_string()}]})
    };
    let ours = json!({"data": {"a": "ours"}});
    let label = |value: &str| {
        let content = json!({"metadata": {"labels": {"example.com/x": value}}});
        json!({"content": content.to_string()})
    };
    let field = r#"metadata.labels["example.com/x"]"#;
    let good = json!([{"target": "primary", "verbs": ["patch"], "fields": [field], "values": {field: ["good"]}}]);
    let rules = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let role = json!({"makes": [{"apiVersion": RBAC, "kind": "ClusterRole", "name": "beyond", "content": rules.to_string()}]});
    let harmless = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]});
    let roles = json!([{"apiVersion": RBAC, "kind": "ClusterRole", "name": "beyond", "verbs": verbs, "fields": ["rules"],
        "values": {"rules": [harmless]}}]);
    let status = json!({"status": {"conditions": [{"type": "Ours", "status": "True", "reason": "R", "message": "m"}]}});
    let status = json!({"makes": [{"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "name": "beyond", "content": status.to_string(),
        "others": true}]});
    let labels = json!([{"apiVersion": KLUSTERLET.0, "kind": KLUSTERLET.1, "name": "beyond", "verbs": ["patch"], "fields": [field]}]);
    let refused = "Failed WriteNotGranted";
    let mut many = label("good");
    many["more"] = json!(10_000);
    vec![
        of(
            "other-object",
            makes("other", ours.clone()),
            map("granted"),
            refused,
        ),
        of(
            "other-field",
            makes("granted", json!({"binaryData": {"a": "eA=="}})),
            map("granted"),
            refused,
        ),
        of(
            "other-value",
            label("bad"),
            good.clone(),
            "Failed ValueNotGranted",
        ),
        of("more-rights", role, roles, "Failed ValueNotGranted"),
        of("other-status", status, labels, refused),
        of(
            "of-another",
            makes("theirs", ours),
            map("theirs"),
            "Failed TargetNotOwned",
        ),
        of(
            "no-finalizer",
            json!({"finalizer": "Keep"}),
            good.clone(),
            refused,
        ),
        of("many", many, good, "Failed AnswerTooLarge"),
    ]
}

/// Those that want bytes where they may not go.
fn of_bytes() -> Vec<Hostile> {
    let asks = json!([{"role": "source", "namespace": "default", "name": SOURCE, "keys": ["a"]}]);
    let fills = |kind: &str, path: &str| {
        json!({"asks": asks, "makes": [{"apiVersion": "v1", "kind": kind, "namespace": "default", "name": "granted",
            "content": "{}", "holes": [{"path": path, "role": "source", "key": "a"}]}]})
    };
    let verbs = json!(["create", "update", "delete"]);
    let secret = json!([{"kind": "Secret", "namespace": "default", "name": "granted", "verbs": verbs,
        "fields": ["metadata.annotations.x"], "holes": {"data.a": {"bytes": ["source"]}}}]);
    let map = json!([{"kind": "ConfigMap", "namespace": "default", "name": "granted", "verbs": verbs, "fields": ["data", "metadata.annotations.x"]}]);
    let refused = "Failed CredentialNotGranted";
    vec![
        of(
            "other-hole",
            fills("Secret", "data.b"),
            secret.clone(),
            refused,
        ),
        of(
            "annotation",
            fills("Secret", "metadata.annotations.x"),
            secret,
            refused,
        ),
        of(
            "into-map",
            fills("ConfigMap", "data.a"),
            map.clone(),
            refused,
        ),
        of(
            "annotation-of-map",
            fills("ConfigMap", "metadata.annotations.x"),
            map,
            refused,
        ),
    ]
}

/// Those of a policy that only observes.
fn of_observers() -> Vec<Hostile> {
    let content = json!({"metadata": {"labels": {"example.com/x": "y"}}}).to_string();
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "theirs"});
    let mut made = map.clone();
    made["content"] = json!("{}");
    let refused = "Failed WriteNotGranted";
    vec![
        of(
            "observer-writes",
            json!({"content": content}),
            json!([]),
            refused,
        ),
        of(
            "observer-makes",
            json!({"makes": [made]}),
            json!([]),
            refused,
        ),
        of(
            "observer-removes",
            json!({"removes": [map]}),
            json!([]),
            refused,
        ),
        of(
            "observer-holds",
            json!({"finalizer": "Keep"}),
            json!([]),
            refused,
        ),
    ]
}

fn all() -> Vec<Hostile> {
    let mut all = of_objects();
    all.extend(of_bytes());
    all.extend(of_observers());
    all
}

/// Writes the policy of a guest, for the clusters with its label.
fn put_policy(folder: &Path, name: &str, settings: &Value, grant: &Value) -> Result<()> {
    let selected = json!({"matchLabels": {CASE: name}});
    let spec = json!({
        "primary": {"apiVersion": MANAGED.0, "kind": MANAGED.1, "labels": selected},
        "grant": grant,
    });
    fixture::put_policy(folder, name, "fixture-desired", settings, spec).map(drop)
}

#[test]
fn a_guest_writes_nothing_beyond_its_grant() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-beyond-grant");
        let read = json!([{"role": "source", "kind": "Secret", "namespace": "default", "name": SOURCE, "keys": ["a"]}]);
        for one in all() {
            let grant = json!({"read": read, "write": one.write});
            put_policy(&folder.join(one.name), one.name, &one.settings, &grant)?;
        }
        let words = policies_at(&folder)?;
        stage.grant_exactly(&words).await?;
        let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "default"},
            "data": {"a": "theirs"}});
        let canary = STANDARD.encode(stage.guard.plant("bytes that go nowhere"));
        let source = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SOURCE, "namespace": "default"},
            "data": {"a": canary}});
        for object in [theirs, source] {
            stage.objects().create(object).await?;
        }
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        for Hostile { name, .. } in all() {
            stage.managed(name).await?;
            let label = json!({"metadata": {"labels": {CASE: name}}});
            stage.patch(MANAGED, None, name, label).await?;
        }
        for Hostile { name, ends, .. } in all() {
            agent.wait_for(&format!("ManagedCluster {name}"), ends)?;
        }
        agent.stop()?;
        // Nobody but this test wrote anything; the end of it looks for other requests.
        let found = stage.get(CONFIG_MAP, Some("default"), "theirs").await?;
        let found = found.context("it is gone")?;
        ensure!(found["data"]["a"] == "theirs", "{found}");
        for (kind, name) in [
            (CONFIG_MAP, "granted"),
            (CONFIG_MAP, "other"),
            (SECRET, "granted"),
        ] {
            ensure!(stage.get(kind, Some("default"), name).await?.is_none());
        }
        for Hostile { name, .. } in all() {
            let cluster = stage.get(MANAGED, None, name).await?.context("gone")?;
            let metadata = cluster["metadata"].to_string();
            ensure!(
                !metadata.contains("example.com/x") && !metadata.contains("finalizers"),
                "{metadata}"
            );
        }
        stage.delete(CONFIG_MAP, Some("default"), "theirs").await?;
        stage.delete(SECRET, Some("default"), SOURCE).await?;
        stage.nothing_denied(mark).await
    })
}

#[test]
fn a_guest_that_only_observes_has_rights_to_read_and_tells_what_it_finds() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-observes");
        let silent = json!([{"hidden": true}]);
        let settings = json!({"waitsFor": ["observed"], "makes": silent});
        let grant =
            json!({"read": [{"role": "observed", "kind": "Namespace", "name": "observed"}]});
        put_policy(&folder, "observes", &settings, &grant)?;
        let words = policies_at(&folder)?;
        let rights = stage.grant_exactly(&words).await?;
        let writes = |resource: &str| {
            let verbs = ["create", "update", "patch", "delete"];
            let one = |verb: &&str| {
                rights
                    .iter()
                    .any(|right| right.is_one_of(&[(resource, *verb)]))
            };
            verbs.iter().any(one)
        };
        for resource in ["managedclusters", "managedclusters/status", "namespaces"] {
            ensure!(!writes(resource), "{resource}: {rights:#?}");
        }
        stage.managed("seen").await?;
        let label = json!({"metadata": {"labels": {CASE: "observes"}}});
        stage.patch(MANAGED, None, "seen", label).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        let primary = "ManagedCluster seen";
        agent.wait_for(primary, "Waiting Waits")?;
        // An answer that writes never becomes active.
        let content = json!({"metadata": {"labels": {"example.com/x": "y"}}}).to_string();
        put_policy(&folder, "observes", &json!({"content": content}), &grant)?;
        wait_for_refusal(&agent, "WriteNotGranted", "its primary")?;
        put_policy(&folder, "observes", &settings, &grant)?;
        ensure!(reconciles_of(&agent, "observes")? > 0.0);
        let content = json!({"waitsFor": [], "makes": silent});
        put_policy(&folder, "observes", &content, &grant)?;
        agent.wait_for(primary, "Applied InSync")?;
        agent.stop()?;
        stage.nothing_denied(mark).await
    })
}
