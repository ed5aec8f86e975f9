//! Policies that demand signatures: what the real cosign signs is taken, in both of its forms; anything else is
//! refused, and the active revision stays. The same for signatures beside files and ConfigMaps, made with openssl.

use crate::exhaust::{GOOD, put_hostile, works_on};
use crate::registries::{Reach, digest};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio::runtime::Runtime;
use transom_conformance::fixture::hostile;
use transom_e2e::agent::Agent;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_e2e::swap::POLICY;
use transom_test_cluster::{Access, Answer, COMPONENT, Form, Hostile, Keys, Registry, WASM};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const REPOSITORY: &str = "team/kubeconfig";

/// The bundled component with a custom section at its end: other bytes, same behaviour.
pub(crate) fn component(letter: u8) -> Result<Vec<u8>> {
    program::variant("kubeconfig", letter)
}

/// Has the policy use a component, with this demand.
fn use_component(stage: &Stage, component: &str, verify: &str) -> Result<()> {
    let verify = format!("  verify: {verify}\n  guests:\n");
    stage.put_policy(
        POLICY,
        &[
            ("builtin:kubeconfig", component),
            ("  guests:\n", verify.as_str()),
        ],
    )
}

/// A registry, a fleet, and two key pairs whose public keys lie beside the policy as `release.pub` and `second.pub`.
struct Scene {
    registry: Registry,
    stage: Stage,
    reach: Reach,
    release: Keys,
    second: Keys,
}

impl Scene {
    fn new() -> Result<Self> {
        let (registry, stage, reach) = Reach::private(1)?;
        let release = Keys::generate(&registry, "release")?;
        let second = Keys::generate(&registry, "second")?;
        let scene = Self {
            registry,
            stage,
            reach,
            release,
            second,
        };
        scene.trust("release.pub", &scene.release)?;
        scene.trust("second.pub", &scene.second)?;
        Ok(scene)
    }

    /// Puts a public key beside the policy.
    fn trust(&self, file: &str, keys: &Keys) -> Result<()> {
        let path = self.stage.policies.join(POLICY).join(file);
        put(&path, keys.public()?.as_bytes())
    }

    fn start(&self, log: &str) -> Result<Agent> {
        let sources = format!("builtin,file,oci:{}/team/*", self.registry.address());
        self.reach.start_with(&self.stage, &sources, log)
    }

    /// Pushes a component under a tag; returns the place and digest of its manifest.
    fn push(&self, tag: &str, component: &[u8]) -> Result<String> {
        let digest = self
            .registry
            .push(&format!("{REPOSITORY}:{tag}"), component)?;
        Ok(format!("{REPOSITORY}@{digest}"))
    }

    fn named(&self, tag: &str) -> String {
        format!("oci:{}:{tag}", self.registry.place(REPOSITORY))
    }

    fn use_tag(&self, tag: &str, verify: &str) -> Result<()> {
        use_component(&self.stage, &self.named(tag), verify)
    }

    fn wait_for(&self, text: &str) -> Result<()> {
        let status = self.stage.policy_status(POLICY);
        self.stage.wait_for_text(&status, text)
    }

    /// Waits until a component is active and signed by these keys.
    fn wait_for_signed(&self, component: &[u8], by: &str) -> Result<()> {
        self.wait_for(&format!("{} is signed by {by}", digest(component)))?;
        self.wait_for("reason: Verified")
    }
}

const ANY: &str = "{keys: [{name: release, file: release.pub}, {name: second, file: second.pub}]}";
const ALL: &str =
    "{mode: All, keys: [{name: release, file: release.pub}, {name: second, file: second.pub}]}";
const RELEASE: &str = "{keys: [{name: release, file: release.pub}]}";

#[test]
fn takes_what_cosign_signed_in_both_forms_and_nothing_else() -> Result<()> {
    let scene = Scene::new()?;
    let (registry, stage) = (&scene.registry, &scene.stage);
    let all: Vec<_> = (0..5).map(component).collect::<Result<_>>()?;
    let bundled = scene.push("bundled", &all[0])?;
    scene.release.sign(registry, &bundled, Form::Bundle)?;
    let tagged = scene.push("tagged", &all[1])?;
    scene.second.sign(registry, &tagged, Form::Tag)?;
    scene.push("unsigned", &all[2])?;
    let attested = scene.push("attested", &all[3])?;
    scene.release.attest(registry, &attested)?;
    let both = scene.push("both", &all[4])?;
    scene.release.sign(registry, &both, Form::Tag)?;

    scene.use_tag("bundled", ANY)?;
    let agent = scene.start("log")?;
    scene.wait_for_signed(&all[0], "release")?;
    scene.use_tag("tagged", ANY)?;
    scene.wait_for_signed(&all[1], "second")?;
    for (tag, verify, reason, why) in [
        ("unsigned", ANY, "SignatureMissing", "`release` or `second`"),
        ("attested", ANY, "SignatureMissing", "no signature"),
        ("tagged", RELEASE, "SignatureInvalid", "by another key"),
        ("both", ALL, "SignatureMissing", "no signature by `second`"),
    ] {
        scene.use_tag(tag, verify)?;
        scene.wait_for(&format!("reason: {reason}"))?;
        scene.wait_for(why).with_context(|| tag.to_owned())?;
        // The active revision stays.
        scene.wait_for(&format!("decide: {}", digest(&all[1])))?;
        scene.use_tag("tagged", ANY)?;
        scene.wait_for_signed(&all[1], "second")?;
    }
    stage.follows_port(0, 7443)?;
    // A signature that comes later is found, in another form than the first.
    scene.use_tag("both", ALL)?;
    scene.wait_for("no signature by `second`")?;
    scene.second.sign(registry, &both, Form::Bundle)?;
    scene.wait_for_signed(&all[4], "release, second")?;
    agent.stop().map(drop)
}

#[test]
fn a_signature_of_one_artifact_does_not_sign_another() -> Result<()> {
    let scene = Scene::new()?;
    let registry = &scene.registry;
    let (good, evil) = (component(0)?, component(1)?);
    let signed = scene.push("good", &good)?;
    let other = scene.push("evil", &evil)?;
    scene.release.sign(registry, &signed, Form::Tag)?;
    let tag = |place: &str| {
        let digest = place.split_once('@').map_or("", |(_, digest)| digest);
        format!("{}.sig", digest.replace(':', "-"))
    };
    let repository = registry.place(REPOSITORY);
    // Whoever may push moves the signature, and the tag.
    let from = format!("{repository}:{}", tag(&signed));
    registry.oras(&["tag", &from, &tag(&other)])?;
    scene.use_tag("good", RELEASE)?;
    let agent = scene.start("log")?;
    scene.wait_for_signed(&good, "release")?;
    scene.use_tag("evil", RELEASE)?;
    scene.wait_for("reason: SignatureInvalid")?;
    scene.wait_for("about another artifact")?;
    scene.wait_for(&format!("decide: {}", digest(&good)))?;
    agent.stop().map(drop)
}

#[test]
fn a_restart_without_the_registry_verifies_again_with_the_keys_of_now() -> Result<()> {
    let scene = Scene::new()?;
    let (registry, stage) = (&scene.registry, &scene.stage);
    let component = component(0)?;
    let signed = scene.push("v1", &component)?;
    scene.release.sign(registry, &signed, Form::Bundle)?;
    scene.use_tag("v1", RELEASE)?;
    let agent = scene.start("log")?;
    scene.wait_for_signed(&component, "release")?;
    agent.stop()?;
    registry.stop()?;

    let status = stage.policy_status(POLICY);
    fs::remove_file(&status)?;
    let agent = scene.start("log-2")?;
    scene.wait_for_signed(&component, "release")?;
    // The key is taken away from a running agent: the revision stays, and the status says what is wrong.
    scene.trust("release.pub", &scene.second)?;
    scene.wait_for("reason: SignatureInvalid")?;
    scene.wait_for(&format!("decide: {}", digest(&component)))?;
    stage.follows_port(0, 7443)?;
    agent.stop()?;

    // From the next start on it does not run.
    fs::remove_file(&status)?;
    let agent = scene.start("log-3")?;
    scene.wait_for("reason: SignatureInvalid")?;
    let text = fs::read_to_string(&status)?;
    ensure!(!text.contains("decide: sha256"), "{text}");
    scene.trust("release.pub", &scene.release)?;
    scene.wait_for_signed(&component, "release")?;
    put(
        &stage.policies.join(POLICY).join("release.pub"),
        b"no key at all",
    )?;
    scene.wait_for("reason: TrustRootInvalid")?;
    agent.stop().map(drop)
}

/// A key pair of Ed25519 made by openssl; its files lie in the folder.
fn openssl(folder: &Path, words: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("openssl")
        .args(words)
        .current_dir(folder)
        .output()
        .context("failed to start openssl")?;
    ensure!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

/// The signature of a component as the documentation makes it.
pub(crate) fn sign(folder: &Path, component: &[u8]) -> Result<String> {
    put(&folder.join("digest"), digest(component).as_bytes())?;
    let words = ["pkeyutl", "-sign", "-inkey", "key.pem", "-rawin", "-in"];
    let signature = openssl(folder, &[&words[..], &["digest"]].concat())?;
    Ok(STANDARD.encode(signature))
}

/// The folder of a new key pair of openssl, and its public key.
pub(crate) fn key_pair(stage: &Stage, name: &str) -> Result<(PathBuf, Vec<u8>)> {
    let keys = stage.path(name);
    fs::create_dir(&keys)?;
    openssl(
        &keys,
        &["genpkey", "-algorithm", "ed25519", "-out", "key.pem"],
    )?;
    let public = openssl(&keys, &["pkey", "-in", "key.pem", "-pubout"])?;
    Ok((keys, public))
}

#[test]
fn a_signature_beside_a_file_or_a_config_map_verifies_without_a_registry() -> Result<()> {
    let stage = Stage::new(1, 0)?;
    let (keys, public) = key_pair(&stage, "keys")?;
    let public = String::from_utf8(public)?;
    let trust = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "transom", "name": "trust"}, "data": {"release.pub": public}});
    put(
        &stage.fleet.join("trust.yaml"),
        trust.to_string().as_bytes(),
    )?;
    let verify = "{keys: [{name: release, configMap: transom/trust/release.pub}]}";
    let (first, second) = (component(0)?, component(1)?);
    let file = stage.policies.join(POLICY).join("decide.wasm");
    let beside = stage.policies.join(POLICY).join("decide.wasm.sig");
    put(&file, &first)?;
    use_component(&stage, "decide.wasm", verify)?;
    let sources = "builtin,file,configmap:transom/*";
    let mut command = stage.run()?;
    command.args(["--sources", sources]);
    let agent = Agent::start(&mut command, stage.path("log"))?;
    let status = stage.policy_status(POLICY);
    let wait = |text: &str| stage.wait_for_text(&status, text);
    wait("reason: SignatureMissing")?;
    put(&beside, sign(&keys, &first)?.as_bytes())?;
    wait(&format!("{} is signed by release", digest(&first)))?;
    // Other bytes with the signature of the first; then with their own.
    put(&file, &second)?;
    wait("reason: SignatureInvalid")?;
    wait(&format!("decide: {}", digest(&first)))?;
    put(&beside, sign(&keys, &second)?.as_bytes())?;
    wait(&format!("{} is signed by release", digest(&second)))?;
    let mut asked = stage.transom()?;
    asked.args(["status", "--sources", sources, "--dir"]);
    asked
        .arg(&stage.fleet)
        .arg("--policies")
        .arg(&stage.policies);
    let asked = asked.output()?;
    let text = String::from_utf8_lossy(&asked.stdout);
    let line = format!("{} is signed by release", digest(&second));
    ensure!(text.contains(&line), "{asked:?}");

    let config_map = |component: &[u8], signature: Option<&str>| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "transom", "name": "mine"},
            "binaryData": {"k": STANDARD.encode(component)}, "data": {"k.sig": signature.unwrap_or_default()}});
        put(
            &stage.fleet.join("mine.yaml"),
            object.to_string().as_bytes(),
        )
    };
    config_map(&first, Some("AAAA"))?;
    use_component(&stage, "configmap:transom/mine/k", verify)?;
    wait("reason: SignatureInvalid")?;
    config_map(&first, Some(&sign(&keys, &first)?))?;
    wait(&format!("{} is signed by release", digest(&first)))?;
    // A key from a place that the operator does not allow.
    let elsewhere = "{keys: [{name: release, configMap: other/trust/release.pub}]}";
    use_component(&stage, "configmap:transom/mine/k", elsewhere)?;
    wait("reason: ComponentNotAllowed")?;
    use_component(&stage, "configmap:transom/mine/k", verify)?;
    wait("reason: Verified")?;
    fs::remove_file(stage.fleet.join("trust.yaml"))?;
    wait("reason: TrustRootInvalid")?;
    agent.stop().map(drop)
}

#[test]
fn the_command_verifies_as_the_agent_does_wherever_signatures_are_listed() -> Result<()> {
    let stage = Stage::new(0, 0)?;
    for registry in [
        Registry::start(Access::default())?,
        Registry::with_referrers()?,
    ] {
        let release = Keys::generate(&registry, "release")?;
        let second = Keys::generate(&registry, "second")?;
        let signed = registry.push("taints:1", &component(0)?)?;
        let place = format!("taints@{signed}");
        let verify = |keys: &[&Keys], words: &[&str]| -> Result<(Option<i32>, String)> {
            let mut command = stage.transom()?;
            command
                .arg("verify")
                .arg(format!("oci:{}", registry.place("taints:1")));
            command
                .args(["--registry-http", &registry.address()])
                .args(words);
            for key in keys {
                command.arg("--key").arg(key.public_file());
            }
            let output = command.output()?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            Ok((output.status.code(), text))
        };
        let (code, text) = verify(&[&release], &[])?;
        ensure!(
            code == Some(1) && text.contains("SignatureMissing"),
            "{text}"
        );
        release.sign(&registry, &place, Form::Bundle)?;
        let (code, text) = verify(&[&release, &second], &[])?;
        let is_told = text.contains(&digest(&component(0)?)) && text.contains("release.pub");
        ensure!(
            code == Some(0) && is_told && !text.contains("second.pub"),
            "{text}"
        );
        let (code, text) = verify(&[&release, &second], &["--all"])?;
        ensure!(code == Some(1) && text.contains("second.pub"), "{text}");
        second.sign(&registry, &place, Form::Tag)?;
        let (code, text) = verify(&[&release, &second], &["--all"])?;
        ensure!(code == Some(0), "{text}");
        let (code, text) = verify(&[&Keys::generate(&registry, "third")?], &[])?;
        ensure!(
            code == Some(1) && text.contains("SignatureInvalid"),
            "{text}"
        );
    }
    // What is no key is an error of use.
    let mut command = stage.transom()?;
    command.args(["verify", "builtin:taints", "--key", "/etc/hostname"]);
    let output = command.output()?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    Ok(())
}

/// How a hostile registry answers about the signatures of a good component, in each repository.
fn answer(path: &str, component: &[u8]) -> Answer {
    let layer = json!({"mediaType": WASM, "digest": digest(component), "size": component.len()});
    let manifest = json!({"schemaVersion": 2, "layers": [layer],
        "config": {"mediaType": COMPONENT, "digest": digest(component), "size": 2}})
    .to_string();
    let nothing = digest(b"nothing");
    let listed = |count: usize| {
        let entry = json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": nothing,
            "size": 9, "artifactType": BUNDLE});
        let index = json!({"schemaVersion": 2, "manifests": vec![entry; count]});
        Answer::new(200, index.to_string())
    };
    let is_signature = path.contains("/referrers/") || path.contains("/manifests/sha256");
    match path.split('/').nth(2).unwrap_or_default() {
        _ if path.ends_with("/manifests/v1") => Answer::new(200, manifest),
        _ if path.ends_with(&digest(component)) => Answer::new(200, component.to_vec()),
        "endless" if is_signature => Answer::endless(vec![b' '; 64 << 10]),
        "down" if is_signature => Answer::new(503, "canary of the registry"),
        "many" if path.contains("/referrers/") => listed(1_000),
        "nonsense" if path.contains("/referrers/") => Answer::new(200, "canary"),
        // The tag of the older form is the component itself, and so claims nothing.
        "itself" if path.ends_with(".sig") => Answer::new(200, manifest),
        _ => Answer::new(404, "canary"),
    }
}

#[test]
fn a_hostile_registry_cannot_harm_by_its_signatures() -> Result<()> {
    const CASES: [(&str, &str); 5] = [
        ("endless", "RegistryUnavailable"),
        ("down", "RegistryUnavailable"),
        ("many", "SignatureMissing"),
        ("nonsense", "SignatureMissing"),
        ("itself", "SignatureMissing"),
    ];
    let runtime = Runtime::new()?;
    let component = hostile("good")?;
    let started = runtime.block_on(async {
        let own = component.clone();
        Hostile::start(move |asked| answer(asked.uri.path(), &own)).await
    })?;
    let stage = Stage::new(0, 60)?;
    stage.put_policy(GOOD, &[])?;
    let address = started.address();
    let (_, public) = key_pair(&stage, "keys")?;
    put(&stage.policies.join("release.pub"), &public)?;
    for (case, _) in CASES {
        let named = format!("oci:{address}/{case}/guest:v1");
        put_hostile(&stage, case, "good", ("./good.wasm", &named))?;
        let policy = stage.policies.join(format!("{case}.yaml"));
        let text = fs::read_to_string(&policy)?;
        let text = text.replace("spec:\n", &format!("spec:\n  verify: {RELEASE}\n"));
        put(&policy, text.as_bytes())?;
    }
    let mut command = stage.run()?;
    command.args(["--sources", &format!("builtin,file,oci:{address}/*")]);
    command.args(["--registry-http", &address]);
    command.env("XDG_CACHE_HOME", stage.path("cache"));
    let agent = Agent::start(&mut command, stage.path("log"))?;
    works_on(&stage)?;
    for (case, reason) in CASES {
        let status = stage.policy_status(case);
        stage
            .wait_for_text(&status, &format!("reason: {reason}"))
            .with_context(|| format!("the case {case}"))?;
    }
    let asked = started.asked(&format!("/v2/many/guest/manifests/{}", digest(b"nothing")));
    ensure!(asked <= 2 * 16, "{asked} referrers were asked for");
    let log = agent.stop()?;
    ensure!(!log.contains("canary"), "{log}");
    Ok(())
}
