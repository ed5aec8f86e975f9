//! Mirrors, with two real registries: one gives what the registry itself cannot give now, the registry gives what its
//! mirror does not give rightly, and no mirror gets a credential of the registry.

use crate::registries::{Reach, digest, use_component};
use crate::signatures::component;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use transom_core::share::lock::MutexExt as _;
use transom_e2e::agent::Agent;
use transom_e2e::stage::{Stage, put};
use transom_e2e::swap::POLICY;
use transom_test_cluster::{Access, Answer, Form, Hostile, Keys, Registry};

const REPOSITORY: &str = "team/kubeconfig";

/// A registry with TLS and a login, a fleet, and how the agent reaches both the registry and its mirrors.
struct Scene {
    registry: Registry,
    stage: Stage,
    reach: Reach,
}

impl Scene {
    fn new() -> Result<Self> {
        let (registry, stage, reach) = Reach::private(1)?;
        Ok(Self {
            registry,
            stage,
            reach,
        })
    }

    /// Also asks this mirror first, which has no TLS and keeps everything below `copy/`.
    fn mirrored_at(self, address: &str) -> Self {
        let registry = self.registry.address();
        self.mirrored(&registry, address)
    }

    /// The same for another registry.
    fn mirrored(mut self, registry: &str, address: &str) -> Self {
        let mirror = format!("{registry}={address}/copy");
        let flags = ["--registry-mirror", &mirror, "--registry-http", address];
        self.reach.add(&flags);
        self
    }

    /// The agent may use what the registry itself calls `team/*`, and nothing by the name of a mirror.
    fn start(&self) -> Result<Agent> {
        self.start_beside(&self.registry.address())
    }

    /// The same also for another registry.
    fn start_beside(&self, other: &str) -> Result<Agent> {
        let own = self.registry.address();
        let sources = format!("builtin,file,oci:{own}/team/*,oci:{other}/team/*");
        self.reach.start_with(&self.stage, &sources, "log")
    }

    fn named(&self, version: &str) -> String {
        format!("oci:{}{version}", self.registry.place(REPOSITORY))
    }

    fn push(&self, tag: &str, component: &[u8]) -> Result<String> {
        self.registry
            .push(&format!("{REPOSITORY}:{tag}"), component)
    }

    /// Gives a mirror all that the registry has, as a mirror would have copied it.
    fn copy_to(&self, mirror: &Registry) -> Result<()> {
        let at = |registry: &Registry| registry.folder().join("content/docker/registry/v2");
        let (from, to) = (at(&self.registry), at(mirror));
        fs::create_dir_all(to.join("repositories/copy"))?;
        let copy = |from: PathBuf, to: PathBuf| {
            let copied = Command::new("cp").arg("-rT").arg(from).arg(to).status()?;
            ensure!(copied.success(), "cp ended with {copied}");
            Ok(())
        };
        copy(from.join("blobs"), to.join("blobs"))?;
        copy(from.join("repositories"), to.join("repositories/copy"))
    }

    /// Waits until a component is active.
    fn wait_for_active(&self, component: &[u8]) -> Result<()> {
        self.wait_for(&format!("decide: {}", digest(component)))
    }

    fn wait_for(&self, text: &str) -> Result<()> {
        let status = self.stage.policy_status(POLICY);
        self.stage.wait_for_text(&status, text)
    }
}

/// The file of a blob in the folder of a registry.
fn blob(registry: &Registry, digest: &str) -> Result<PathBuf> {
    let hex = digest.strip_prefix("sha256:").context("no digest")?;
    let begin = hex.get(..2).context("no digest")?;
    let blobs = "content/docker/registry/v2/blobs/sha256";
    Ok(registry
        .folder()
        .join(format!("{blobs}/{begin}/{hex}/data")))
}

#[test]
fn a_mirror_gives_component_and_signature_while_its_registry_is_silent_or_gone() -> Result<()> {
    let mirror = Registry::start(Access::default())?;
    let silent = Runtime::new()?;
    let never = |_: &_| Answer::slow("x", Duration::from_secs(3_600));
    let silent = (silent.block_on(Hostile::start(never))?, silent);
    let scene = Scene::new()?.mirrored_at(&mirror.address());
    let mut scene = scene.mirrored(&silent.0.address(), &mirror.address());
    scene.reach.add(&["--registry-http", &silent.0.address()]);
    let keys = Keys::generate(&scene.registry, "release")?;
    let public = scene.stage.policies.join(POLICY).join("release.pub");
    put(&public, keys.public()?.as_bytes())?;
    let (first, second, third) = (component(1)?, component(2)?, component(3)?);
    for (tag, component, form) in [
        ("v1", &first, Form::Bundle),
        ("v2", &second, Form::Tag),
        ("v3", &third, Form::Bundle),
    ] {
        let manifest = scene.push(tag, component)?;
        keys.sign(&scene.registry, &format!("{REPOSITORY}@{manifest}"), form)?;
    }
    scene.copy_to(&mirror)?;
    let use_signed = |component: &str| {
        let verify = "  verify: {keys: [{name: release, file: release.pub}]}\n  guests:\n";
        let component = ("builtin:kubeconfig", component);
        scene
            .stage
            .put_policy(POLICY, &[component, ("  guests:\n", verify)])
    };
    // It takes connections and does not answer.
    scene.registry.process().freeze()?;
    use_signed(&scene.named(":v1"))?;
    let agent = scene.start_beside(&silent.0.address())?;
    scene.wait_for(&format!("{} is signed by release", digest(&first)))?;
    scene.wait_for_active(&first)?;
    scene.registry.process().thaw()?;
    scene.registry.stop()?;
    use_signed(&scene.named(":v2"))?;
    scene.wait_for(&format!("{} is signed by release", digest(&second)))?;
    scene.wait_for_active(&second)?;
    // One that takes a request and never answers it.
    use_signed(&format!("oci:{}/{REPOSITORY}:v3", silent.0.address()))?;
    scene.wait_for(&format!("{} is signed by release", digest(&third)))?;
    scene.wait_for_active(&third)?;
    // What counts is the name of the registry itself: that of its mirror is not allowed.
    use_component(
        &scene.stage,
        &format!("oci:{}:v1", mirror.place(&format!("copy/{REPOSITORY}"))),
    )?;
    scene.wait_for("reason: ComponentNotAllowed")?;
    scene.wait_for_active(&third)?;
    agent.stop().map(drop)
}

#[test]
fn the_registry_itself_gives_what_its_mirror_does_not_give_rightly() -> Result<()> {
    let mirror = Registry::start(Access::default())?;
    let scene = Scene::new()?.mirrored_at(&mirror.address());
    let all: Vec<_> = (0..6).map(component).collect::<Result<_>>()?;
    let manifests = all.iter().enumerate();
    let manifests = manifests.map(|(at, one)| scene.push(&format!("v{at}"), one));
    let manifests: Vec<_> = manifests.collect::<Result<_>>()?;
    let asked = |words: &str| {
        let log = mirror.process().log()?;
        ensure!(log.contains(words), "the mirror was not asked for {words}");
        anyhow::Ok(())
    };
    // It does not have it.
    use_component(&scene.stage, &scene.named(":v0"))?;
    let agent = scene.start()?;
    scene.wait_for_active(&all[0])?;
    asked(&format!("/v2/copy/{REPOSITORY}/manifests/v0"))?;
    // It has other bytes for the digest of the layer, as many as there should be.
    scene.copy_to(&mirror)?;
    let layer = digest(&all[1]);
    fs::write(blob(&mirror, &layer)?, vec![0; all[1].len()])?;
    use_component(&scene.stage, &scene.named(":v1"))?;
    scene.wait_for_active(&all[1])?;
    asked(&format!("/v2/copy/{REPOSITORY}/blobs/{layer}"))?;
    // It has another manifest for the digest that the policy names.
    fs::copy(blob(&mirror, &manifests[0])?, blob(&mirror, &manifests[2])?)?;
    use_component(&scene.stage, &scene.named(&format!("@{}", manifests[2])))?;
    scene.wait_for_active(&all[2])?;
    asked(&format!("/v2/copy/{REPOSITORY}/manifests/{}", manifests[2]))?;
    // It ends a layer too early.
    let cut = fs::read(blob(&mirror, &digest(&all[3]))?)?;
    fs::write(blob(&mirror, &digest(&all[3]))?, &cut[..cut.len() / 2])?;
    use_component(&scene.stage, &scene.named(":v3"))?;
    scene.wait_for_active(&all[3])?;
    // It takes connections and does not answer, and then it is down.
    mirror.process().freeze()?;
    use_component(&scene.stage, &scene.named(":v4"))?;
    scene.wait_for_active(&all[4])?;
    mirror.process().thaw()?;
    mirror.stop()?;
    use_component(&scene.stage, &scene.named(":v5"))?;
    scene.wait_for_active(&all[5])?;
    agent.stop().map(drop)
}

#[test]
fn no_mirror_gets_a_credential_of_the_registry() -> Result<()> {
    let (runtime, seen) = (Runtime::new()?, Arc::new(Mutex::new(Vec::new())));
    // One asks for a password, one for a token of its own service.
    let start = |challenge: &'static str| {
        let seen = Arc::clone(&seen);
        Hostile::start(move |asked| {
            let header = |name| asked.headers.get(name).and_then(|one| one.to_str().ok());
            let (host, given) = (header("host"), header("authorization"));
            let path = asked.uri.path().to_owned();
            let given = given.unwrap_or_default().to_owned();
            let mut all = seen.locked();
            all.push((path.clone(), given));
            let challenge = challenge.replace("HERE", host.unwrap_or_default());
            match path.as_str() {
                "/token" => Answer::new(200, r#"{"token": "of-the-mirror"}"#),
                _ => Answer::new(401, "").header("www-authenticate", challenge),
            }
        })
    };
    let bearer = "Bearer realm=\"http://HERE/token\",service=\"mirror\"";
    let mirrors = runtime.block_on(async {
        anyhow::Ok([start("Basic realm=\"mirror\"").await?, start(bearer).await?])
    })?;
    let mut scene = Scene::new()?;
    for mirror in &mirrors {
        scene = scene.mirrored_at(&mirror.address());
    }
    // A real registry that would take the very same login.
    let third = Registry::start(Access {
        tls: false,
        login: true,
    })?;
    let scene = scene.mirrored_at(&third.address());
    let own = component(1)?;
    scene.push("v1", &own)?;
    scene.copy_to(&third)?;
    use_component(&scene.stage, &scene.named(":v1"))?;
    let agent = scene.start()?;
    scene.wait_for_active(&own)?;
    agent.stop()?;
    let seen = seen.locked().clone();
    let paths: Vec<_> = seen.iter().map(|(path, _)| path.as_str()).collect();
    for path in ["/v2/", "/token", "/v2/copy/team/kubeconfig/manifests/v1"] {
        ensure!(paths.contains(&path), "{path} was not asked for: {paths:?}");
    }
    let is_own = |given: &str| given.is_empty() || given == "Bearer of-the-mirror";
    ensure!(seen.iter().all(|(_, given)| is_own(given)), "{paths:?}");
    // As the registry itself tells of the login that it takes.
    let own = scene.registry.process().log()?;
    ensure!(own.contains("authorized request"), "{own}");
    let log = third.process().log()?;
    ensure!(
        log.contains("/v2/") && !log.contains("authorized request"),
        "{log}"
    );
    Ok(())
}
