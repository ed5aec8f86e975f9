//! A user with rights on FleetPolicies only, who tries to see a file of the host, a Secret or a ConfigMap of others by
//! each field of a policy that names something.

use crate::components::{PARTS, SOURCES};
use crate::policies::POLICY;
use crate::stage::{DEADLINE, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;
use transom_test_cluster::{User, wait};

const NAME: &str = "external-managed-kubeconfig";
/// The namespace of what the editor wants to see.
const VAULT: &str = "vault";
const EVENT: (&str, &str) = ("events.k8s.io/v1", "Event");

/// A policy of the editor, and where the agent says why nothing comes of it.
struct Attempt {
    what: &'static str,
    /// The change of the `spec`.
    change: Value,
    /// The reason in a condition of the policy, or of its primary.
    reason: &'static str,
}

fn attempt(what: &'static str, reason: &'static str, change: Value) -> Attempt {
    Attempt {
        what,
        change,
        reason,
    }
}

/// The fields that name files and ConfigMaps. `outside` is a file of the host; `canary.wasm` one in the folder of
/// components; `parts/canary/k` a key of a ConfigMap that a policy may name.
fn places(outside: &str) -> Vec<Attempt> {
    let decide = |component: &str| json!({"guests": {"decide": {"component": component}}});
    let trigger = |component: &str| json!({"guests": {"trigger": {"component": component}}});
    let file = |file: &str| json!({"verify": {"keys": [{"name": "k", "file": file}]}});
    let config_map = |key: &str| json!({"verify": {"keys": [{"name": "k", "configMap": key}]}});
    let up = format!("../../../../../../..{outside}");
    let as_file = format!("file:{outside}");
    vec![
        attempt("a file", "ComponentNotAllowed", decide(outside)),
        attempt("a file by its parents", "ComponentNotAllowed", decide(&up)),
        attempt("a file as a URL", "PolicyInvalid", decide(&as_file)),
        attempt(
            "a file for the trigger",
            "ComponentNotAllowed",
            trigger(outside),
        ),
        attempt("a file as a key", "ComponentNotAllowed", file(outside)),
        attempt("an allowed file", "ComponentInvalid", decide("canary.wasm")),
        attempt(
            "an allowed file for the trigger",
            "ComponentInvalid",
            trigger("canary.wasm"),
        ),
        attempt(
            "an allowed file as a key",
            "TrustRootInvalid",
            file("canary.wasm"),
        ),
        attempt(
            "a ConfigMap",
            "ComponentNotAllowed",
            decide("configmap:vault/canary/k"),
        ),
        attempt(
            "a ConfigMap as a key",
            "ComponentNotAllowed",
            config_map("vault/canary/k"),
        ),
        attempt(
            "an allowed ConfigMap",
            "ComponentInvalid",
            decide("configmap:parts/canary/k"),
        ),
        attempt(
            "an allowed ConfigMap as a key",
            "TrustRootInvalid",
            config_map("parts/canary/k"),
        ),
    ]
}

/// The fields by which a guest gets something: settings and grants.
fn grants(outside: &str) -> Vec<Attempt> {
    let secret = |role: &str, keys: Value| json!({"role": role, "kind": "Secret", "namespace": VAULT, "name": "canary", "keys": keys});
    let home = json!({"role": "home", "kind": "Namespace", "name": "klusterlet-{managedCluster}"});
    let service = json!({"role": "service", "kind": "Service", "namespace": "{primary.namespace}-{dashed(primary.name)}", "name": "kube-apiserver"});
    let klusterlet = json!({"role": "klusterlet", "apiVersion": "operator.open-cluster-management.io/v1", "kind": "Klusterlet", "name": "klusterlet-{managedCluster}"});
    let reads = |source: Value| json!({"grant": {"read": [source, service, home, klusterlet]}});
    let settings =
        json!({"guests": {"decide": {"settings": {"clusterDomain": outside, "port": outside}}}});
    let secrets = json!({"primary": {"apiVersion": "v1", "kind": "Secret", "namespaces": [VAULT]}});
    let of = |keys: &[&str]| secret("source", json!(keys));
    vec![
        attempt("settings", "SettingsRefused", settings),
        // The guest asks for the Secret of the cluster, and the grant names another one.
        attempt(
            "a Secret as the source",
            "ReadNotGranted",
            reads(of(&["kubeconfig"])),
        ),
        attempt("another key", "ReadNotGranted", reads(of(&["token"]))),
        attempt("Secrets as primaries", "", secrets),
    ]
}

impl Stage {
    /// Changes the policy as the editor; returns its generation, and what the API server says when it refuses the
    /// change.
    fn edit(&self, editor: &User, change: &Value) -> Result<(Value, String)> {
        let mut command = self.cluster.kubectl(editor)?;
        let patch = json!({"spec": change}).to_string();
        let words = [
            "patch",
            "fleetpolicy",
            NAME,
            "--type=merge",
            "-o=json",
            "-p",
        ];
        let output = command.args(words).arg(patch).output()?;
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        if why.contains("is invalid") {
            return Ok((Value::Null, why));
        }
        ensure!(output.status.success(), "{why}");
        let mut policy: Value = serde_json::from_slice(&output.stdout)?;
        Ok((policy["metadata"]["generation"].take(), why))
    }

    /// Puts the policy as it was. A patch without a version cannot conflict with the agent's status.
    fn put_back(&self, before: &Value) -> Result<()> {
        let patch = json!([{"op": "replace", "path": "/spec", "value": before}]).to_string();
        let mut kubectl = self.cluster.kubectl(self.cluster.admin())?;
        let words = ["patch", "fleetpolicy", NAME, "--type=json", "-p", &patch];
        let output = kubectl.args(words).output()?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{why}");
        Ok(())
    }

    /// All that others may read of what the agent says: policies with their status, Events, and its log.
    async fn said(&self, log: &str) -> Result<String> {
        let mut all = log.to_owned();
        for kind in [POLICY, EVENT] {
            for object in self.list(kind).await? {
                all += &serde_json::to_string(&object)?;
            }
        }
        Ok(all)
    }
}

fn put(folder: &Path, name: &str, text: &str) -> Result<String> {
    let file = folder.join(name);
    std::fs::write(&file, text)?;
    Ok(file.to_str().context("a path that is no text")?.to_owned())
}

#[test]
fn an_editor_of_policies_sees_no_byte_of_a_file_or_of_a_secret() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        stage.ready("one", true).await?;
        for namespace in [PARTS, VAULT] {
            stage.objects().namespace(namespace).await?;
        }
        stage.allow_components(&[&stage.agent]).await?;
        let host = tempfile::tempdir()?;
        let components = tempfile::tempdir()?;
        let planted: Vec<String> = [
            "a file of the host",
            "a file among the components",
            "a ConfigMap",
            "a Secret",
        ]
        .map(|place| stage.guard.plant(place))
        .to_vec();
        let [file, among, config_map, secret] = planted.as_slice() else {
            anyhow::bail!("four canaries");
        };
        let outside = put(host.path(), "canary", file)?;
        put(components.path(), "canary.wasm", among)?;
        stage.put_component("canary", config_map.as_bytes()).await?;
        let data = json!({"k": config_map});
        for object in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": VAULT, "name": "canary"}, "data": data}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": VAULT, "name": "canary"},
                "stringData": {"kubeconfig": secret, "token": format!("apiVersion: {secret}")}}),
        ] {
            stage.objects().create(object).await?;
        }
        let folder = components
            .path()
            .to_str()
            .context("a path that is no text")?;
        let words = [
            "--policy-objects",
            "--sources",
            &format!("{SOURCES},file"),
            "--components",
            folder,
        ];
        let agent = stage.start_agent(&words)?;
        stage.wait_for_right("one", 6443).await?;
        let editor = stage.person("editor", false).await?;
        let before = stage.get(POLICY, None, NAME).await?.context("no policy")?["spec"].take();
        for Attempt {
            what,
            change,
            reason,
        } in places(&outside).into_iter().chain(grants(&outside))
        {
            let (generation, why) = stage.edit(&editor, &change)?;
            let mut last = Value::Null;
            let told = async || {
                last = stage.get(POLICY, None, NAME).await?.context("gone")?["status"].take();
                let is_newest = generation.is_null() || last["observedGeneration"] == generation;
                Ok((is_newest && last.to_string().contains(reason)).then_some(()))
            };
            let told = wait::until(what, DEADLINE, told).await;
            told.with_context(|| format!("{what}: {last}"))?;
            let said = stage.said(&agent.log()?).await? + &why;
            for canary in &planted {
                let encoded = STANDARD.encode(canary);
                ensure!(
                    !said.contains(canary.as_str()) && !said.contains(&encoded),
                    "{what}: a canary was shown"
                );
            }
            stage.put_back(&before)?;
        }
        // What is allowed goes on.
        stage.move_port("one", 7443).await?;
        stage.wait_for_right("one", 7443).await?;
        let kept = stage.get(SECRET, Some(VAULT), "canary").await?;
        ensure!(kept.is_some());
        agent.stop().map(drop)
    })
}
