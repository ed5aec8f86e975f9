//! Components from a registry that cosign signed, on a real API server, with the agent as the chart installs it: what
//! is signed becomes active, anything else is refused with its reason, and what is active stays.

use crate::applied::{install_chart, with_fleet};
use crate::deployed::{DEADLINE, Deployed, kubectl};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use transom_core::digest::Digest;
use transom_e2e::program;
use transom_support::fleet::Fleet;
use transom_test_cluster::{Access, Cluster, Form, Keys, LOGIN, Registry, wait};
use transom_test_deploy::rendered::said;

const FLEET: Fleet = Fleet {
    clusters: 0,
    managed: 3,
    seed: 17,
};
const POLICY: &str = "fleetpolicies.transom.dev/built-in-taints";
const REPOSITORY: &str = "team/taints";
/// Where the trusted key lies.
const KEY: &str = "configmap:transom-trust/keys";

/// A component that behaves as the bundled one does: each letter is one of its own.
fn component(letter: u8) -> Result<Vec<u8>> {
    program::variant("taints", letter)
}

fn digest(letter: u8) -> Result<String> {
    Ok(Digest::of_bytes(&component(letter)?).to_string())
}

/// An API server, a registry, and two key pairs of cosign.
struct Scene {
    cluster: Cluster,
    registry: Registry,
    release: Keys,
    other: Keys,
}

impl Scene {
    async fn new() -> Result<Self> {
        let cluster = with_fleet(FLEET).await?;
        let registry = Registry::start(Access::PRIVATE)?;
        let release = Keys::generate(&registry, "release")?;
        let other = Keys::generate(&registry, "other")?;
        Ok(Self {
            cluster,
            registry,
            release,
            other,
        })
    }

    fn kubectl(&self, words: &[&str]) -> Result<String> {
        said(kubectl(&self.cluster)?.args(words))
    }

    /// Puts a public key where the policy says that the trusted one lies.
    fn trust(&self, keys: &Keys) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "transom-trust", "name": "keys"}, "data": {"release.pub": keys.public()?}});
        self.apply(&object.to_string())
    }

    fn apply(&self, objects: &str) -> Result<()> {
        let file = self.cluster.folder().join("objects");
        fs::write(&file, objects)?;
        let file = file.display().to_string();
        let words = ["apply", "--server-side", "--force-conflicts", "--filename"];
        self.kubectl(&[&words[..], &[&file]].concat()).map(drop)
    }

    /// Installs the chart as an operator would who uses this registry and trusts a key, with the rights that follow.
    fn install(&self) -> Result<()> {
        let sources = [
            "builtin".to_owned(),
            KEY.to_owned(),
            format!("oci:{}/team/*", self.registry.address()),
        ];
        let volume = |name: &str, source: Value| {
            let mut volume = json!({"name": name});
            volume[source["kind"].as_str().unwrap_or_default()] = source["of"].clone();
            volume
        };
        let values = json!({
            "sources": sources,
            "extraVolumes": [
                volume("pull", json!({"kind": "secret", "of": {"secretName": "pull"}})),
                volume("ca", json!({"kind": "configMap", "of": {"name": "ca"}})),
            ],
            "extraVolumeMounts": [{"name": "pull", "mountPath": "/pull"}, {"name": "ca", "mountPath": "/ca"}],
            "args": ["--registry-config=/pull/.dockerconfigjson", "--registry-ca=/ca/ca.crt"],
        });
        let file = self.cluster.folder().join("values.json");
        fs::write(&file, values.to_string())?;
        let file = file.display().to_string();
        install_chart(&self.cluster, &["--values", &file])?;
        let (user, password) = LOGIN;
        let login = [
            format!("--docker-server={}", self.registry.address()),
            format!("--docker-username={user}"),
            format!("--docker-password={password}"),
        ];
        let words = ["create", "secret", "docker-registry", "pull"];
        let login: Vec<_> = login.iter().map(String::as_str).collect();
        self.kubectl(&[&words[..], &login, &["--namespace=transom"]].concat())?;
        let authority = self.registry.authority().context("no CA")?;
        let authority = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "transom", "name": "ca"}, "data": {"ca.crt": authority}});
        self.apply(&authority.to_string())?;
        self.kubectl(&["create", "namespace", "transom-trust"])?;
        self.trust(&self.release)?;
        let mut rights = Command::new(program::binary()?);
        rights.args(["rbac", "--policy-objects", "--namespace=transom"]);
        rights.args(["--name=transom-trust", "--sources", &sources.join(",")]);
        self.apply(&said(&mut rights)?)
    }

    /// Pushes a component under a tag of its letter; returns its place with its digest.
    fn push(&self, letter: u8) -> Result<String> {
        let name = format!("{REPOSITORY}:v{letter}");
        let manifest = self.registry.push(&name, &component(letter)?)?;
        Ok(format!("{REPOSITORY}@{manifest}"))
    }

    /// Has the policy use what lies at a place, if the trusted key signed it.
    fn use_signed(&self, place: &str) -> Result<()> {
        let component = format!("oci:{}", self.registry.place(place));
        let keys = json!([{"name": "release", "configMap": "transom-trust/keys/release.pub"}]);
        let spec = json!({"spec": {"verify": {"keys": keys},
            "guests": {"decide": {"component": component}}}});
        let patch = format!("--patch={spec}");
        let patched = self.kubectl(&["patch", POLICY, "--type=merge", &patch]);
        patched.map(drop)
    }

    fn status(&self) -> Result<Value> {
        let policy = self.kubectl(&["get", POLICY, "--output=json"])?;
        let policy: Value = serde_json::from_str(&policy)?;
        Ok(policy["status"].clone())
    }

    /// Waits until the condition `Verified` of the policy has a status, a reason and a message.
    async fn wait_for(&self, status: &str, reason: &str, message: &str) -> Result<Value> {
        let what = format!("Verified={status}, {reason}: {message}");
        let waited = wait::until(&what, DEADLINE, async || {
            let found = self.status()?;
            let mut all = found["conditions"].as_array().into_iter().flatten();
            let told = all.find(|one| one["type"] == "Verified");
            let is_told = told.is_some_and(|one| {
                let text = one["message"].as_str().unwrap_or_default();
                one["status"] == status && one["reason"] == reason && text.contains(message)
            });
            Ok(is_told.then_some(found))
        });
        let waited = waited.await;
        waited.with_context(|| self.status().unwrap_or_default().to_string())
    }

    /// Waits until a component is active, and the condition names its digest and who signed it.
    async fn wait_for_signed(&self, letter: u8) -> Result<()> {
        let digest = digest(letter)?;
        let message = format!("{digest} is signed by release");
        let status = self.wait_for("True", "Verified", &message).await?;
        ensure!(status["revision"]["decide"] == *digest, "{status}");
        Ok(())
    }

    /// Waits until a component is refused with this reason, and the active one stays.
    async fn wait_for_refused(&self, reason: &str, message: &str, active: u8) -> Result<()> {
        let status = self.wait_for("False", reason, message).await?;
        ensure!(status["revision"]["decide"] == *digest(active)?, "{status}");
        let candidate = &status["candidate"];
        ensure!(
            candidate["gate"] == "Signature" && candidate["reason"] == reason,
            "{status}"
        );
        Ok(())
    }
}

#[tokio::test]
async fn the_installed_agent_runs_only_what_cosign_signed_with_a_trusted_key() -> Result<()> {
    let scene = Scene::new().await?;
    scene.install()?;
    let agent = Deployed::start(&scene.cluster).await?;
    let registry = &scene.registry;
    let all = [1, 2, 3, 4, 5].map(|letter| scene.push(letter));
    let [bundled, unsigned, other, tagged, attested] = all;
    let (bundled, unsigned, other, tagged, attested) =
        (bundled?, unsigned?, other?, tagged?, attested?);
    scene.release.sign(registry, &bundled, Form::Bundle)?;
    scene.release.sign(registry, &tagged, Form::Tag)?;
    scene.other.sign(registry, &other, Form::Bundle)?;
    scene.release.attest(registry, &attested)?;

    scene.use_signed(&bundled)?;
    scene.wait_for_signed(1).await?;
    for (place, reason, message) in [
        (&unsigned, "SignatureMissing", digest(2)?),
        (&other, "SignatureInvalid", digest(3)?),
        (&attested, "SignatureMissing", digest(5)?),
    ] {
        scene.use_signed(place)?;
        scene.wait_for_refused(reason, &message, 1).await?;
    }
    scene.use_signed(&tagged)?;
    scene.wait_for_signed(4).await?;
    // Who may write the trusted key decides: what was signed by the key before is no longer.
    scene.trust(&scene.other)?;
    scene
        .wait_for("False", "SignatureInvalid", &digest(4)?)
        .await?;
    ensure!(scene.status()?["revision"]["decide"] == *digest(4)?);
    scene.use_signed(&other)?;
    scene.wait_for_signed(3).await?;
    // Nothing that anybody could read tells the password.
    let log = agent.log()?;
    let policy = scene.kubectl(&["get", POLICY, "--output=yaml"])?;
    ensure!(!log.contains(LOGIN.1) && !policy.contains(LOGIN.1));
    agent.stop(&scene.cluster).map(drop)
}
