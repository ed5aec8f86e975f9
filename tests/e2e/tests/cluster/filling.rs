//! A guest of the objects world that fills Secrets with kubeconfigs and with texts of objects that no guest sees, on a
//! real API server, with exactly the permissions that `transom rbac` prints.

use crate::copying::HUB;
use crate::objects::{CLUSTERS, primary};
use crate::others::wait_for_refusal;
use crate::stage::{DEADLINE, HOSTED, SECRET, Stage, on_stage, policies_at};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use transom_e2e::fixture;
use transom_test_cluster::wait;

/// What the names of the Secrets begin with that the policy makes.
pub(crate) const FILLED: &str = "filled-";
const TEXT: &str = r#"data["import.yaml"]"#;

/// A kubeconfig, and a text with a namespace and a Secret that holds it as well.
fn holes() -> Value {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "imported-{name}"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "imported-{name}"}});
    json!([
        {"path": "data.kubeconfig", "source": "admin"},
        {"path": TEXT, "manifests": [
            {"content": namespace.to_string()},
            {"content": secret.to_string(), "holes": [
                {"path": "data.made", "source": "admin"},
                {"path": "data.raw", "role": "raw", "key": "kubeconfig"},
            ]},
        ]},
    ])
}

/// Writes the policy of a guest that fills a Secret of each HostedCluster so.
fn put_policy(folder: &Path, holes: &Value) -> Result<PathBuf> {
    let asks = |role: &str, rest: Value| {
        let mut asked =
            json!({"role": role, "namespace": CLUSTERS, "name": "{name}-admin-kubeconfig"});
        if let (Some(all), Some(rest)) = (asked.as_object_mut(), rest.as_object()) {
            all.extend(rest.clone());
        }
        asked
    };
    let asks = [
        asks("admin", json!({"kubeconfig": "kubeconfig"})),
        asks("raw", json!({"keys": ["kubeconfig"]})),
    ];
    let makes = json!([{"apiVersion": "v1", "kind": "Secret", "namespace": HUB, "name": format!("{FILLED}{{name}}"),
        "content": "{}", "holes": holes}]);
    let read = |role: &str| {
        json!({"role": role, "kind": "Secret", "namespace": "{primary.namespace}",
            "name": "{primary.name}-admin-kubeconfig", "keys": ["kubeconfig"]})
    };
    let spec = json!({
        "primary": {"apiVersion": HOSTED.0, "kind": HOSTED.1},
        "grant": {"read": [read("admin"), read("raw")], "write": [
            {"kind": "Secret", "namespace": HUB, "name": format!("{FILLED}{{primary.name}}"),
                "verbs": ["create", "update", "delete"],
                "holes": {
                    "data.kubeconfig": {"kubeconfig": ["admin"]},
                    TEXT: {"bytes": ["raw"], "kubeconfig": ["admin"], "manifests": [{"kind": "Namespace"}, {"kind": "Secret"}]},
                },
                "kubeconfig": {"server": ["source"], "ca": ["admin"]}},
        ]},
    });
    let settings = json!({"asks": asks, "makes": makes});
    fixture::put_policy(folder, "filling", "fixture-desired", &settings, spec)
}

/// The bytes under a key.
fn bytes(data: &Value, key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(data[key].as_str()?).ok()
}

/// The text under a key as YAML.
fn document(data: &Value, key: &str) -> Option<Value> {
    serde_yaml::from_slice(&bytes(data, key)?).ok()
}

/// Whether a Secret is filled from this source.
fn is_filled(made: &Value, source: &Value) -> Option<bool> {
    let (made, from) = (&made["data"], &source["data"]);
    let (kubeconfig, of_source) = (document(made, "kubeconfig")?, document(from, "kubeconfig")?);
    let same = |field: &str| kubeconfig[field] == of_source[field];
    let text = String::from_utf8(bytes(made, "import.yaml")?).ok()?;
    let (first, second) = text.split_once("---\n")?;
    let secret: Value = serde_yaml::from_str(second).ok()?;
    let held = &secret["data"];
    Some(
        ["users", "clusters", "contexts"].into_iter().all(same)
            && first.contains("kind: Namespace")
            && bytes(held, "raw") == bytes(from, "kubeconfig")
            && bytes(held, "made") == bytes(made, "kubeconfig"),
    )
}

/// Waits until the Secret of a HostedCluster is filled from its source; gives its version.
async fn wait_for(stage: &Stage, name: &str) -> Result<Value> {
    wait::until("a filled Secret", DEADLINE, async || {
        let source = format!("{name}-admin-kubeconfig");
        let source = stage.get(SECRET, Some(CLUSTERS), &source).await?;
        let made = format!("{FILLED}{name}");
        let made = stage.get(SECRET, Some(HUB), &made).await?;
        let (Some(source), Some(mut made)) = (source, made) else {
            return Ok(None);
        };
        let filled = is_filled(&made, &source).unwrap_or_default();
        Ok(filled.then(|| made["metadata"]["resourceVersion"].take()))
    })
    .await
}

/// Holes of a hostile guest, with the reason and the words of their refusal.
fn hostile() -> Vec<(Value, &'static str, &'static str)> {
    let of = |hole: Value| json!([hole]);
    let text = |manifests: Value| of(json!({"path": TEXT, "manifests": manifests}));
    let one = |kind: (&str, &str), holes: Value| {
        let content = json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": "x"}});
        json!([{"content": content.to_string(), "holes": holes}])
    };
    let raw = |path: &str| json!([{"path": path, "role": "raw", "key": "kubeconfig"}]);
    let refused = "CredentialNotGranted";
    vec![
        (
            of(json!({"path": "data.kubeconfig", "source": "admin", "host": "evil.example.com"})),
            "ServerNotGranted",
            "evil.example.com",
        ),
        (
            of(json!({"path": "data.kubeconfig", "role": "raw", "key": "kubeconfig"})),
            refused,
            "bytes of `raw`",
        ),
        (
            of(json!({"path": "data.kubeconfig", "source": "nobody"})),
            refused,
            "`nobody`",
        ),
        (
            text(one(("rbac.authorization.k8s.io/v1", "Role"), json!([]))),
            "WriteNotGranted",
            "Role of rbac",
        ),
        (
            text(one(SECRET, raw("metadata.annotations.x"))),
            refused,
            "`metadata.annotations.x`",
        ),
        (
            text(one(("v1", "Namespace"), raw("data.x"))),
            refused,
            "`data.x`",
        ),
        (
            of(json!({"path": TEXT, "times": 10_000, "manifests": [{"content": "{}"}]})),
            "ContractBroken",
            "10000 objects",
        ),
    ]
}

#[test]
fn kubeconfigs_and_texts_are_made_kept_and_rotated_and_go_nowhere_else() -> Result<()> {
    on_stage(async |stage| {
        let folder = stage.cluster.folder().join("policies-filling");
        let file = put_policy(&folder, &holes())?;
        let words = policies_at(&file)?;
        stage.objects().namespace(HUB).await?;
        let rights = stage.grant_exactly(&words).await?;
        stage.ready("shop", false).await?;
        let mark = stage.mark()?;
        let agent = stage.start_agent(&words)?;
        wait_for(stage, "shop").await?;
        agent.wait_for(&primary("shop"), "Applied InSync")?;
        // What others change of it is put back, and a rotated source is followed.
        let made = format!("{FILLED}shop");
        for body in [
            json!({"data": {"import.yaml": "eA=="}}),
            json!({"data": {"more": "eA=="}}),
        ] {
            stage.patch(SECRET, Some(HUB), &made, body).await?;
            wait::until("the Secret as it was", DEADLINE, async || {
                let found = stage.get(SECRET, Some(HUB), &made).await?;
                let data = found.unwrap_or_default()["data"].take();
                let right = data["more"].is_null() && data["import.yaml"] != "eA==";
                Ok(right.then_some(()))
            })
            .await?;
        }
        let source = "shop-admin-kubeconfig";
        let found = stage.get(SECRET, Some(CLUSTERS), source).await?;
        let data = found.context("no source")?["data"].take();
        let mut rotated = document(&data, "kubeconfig").context("no YAML")?;
        rotated["contexts"][0]["context"]["namespace"] = json!("rotated");
        let body = json!({"data": {"kubeconfig": STANDARD.encode(rotated.to_string())}});
        stage.patch(SECRET, Some(CLUSTERS), source, body).await?;
        let version = wait_for(stage, "shop").await?;
        // Hostile answers never become active.
        for (holes, reason, what) in hostile() {
            put_policy(&folder, &holes)?;
            wait_for_refusal(&agent, reason, what)?;
        }
        ensure!(wait_for(stage, "shop").await? == version);
        agent.stop()?;
        stage.nothing_denied(mark).await?;
        // It is not deleted here, and only a write that comes too late is read again.
        stage.all_used(&rights, mark, |right| {
            right.is_one_of(&[("secrets", "get"), ("secrets", "delete")])
                || right.is_of(&["events"])
        })?;
        Ok(())
    })
}
