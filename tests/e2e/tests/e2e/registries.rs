//! Components in registries: pulled once by tag, kept for a restart without the registry, pushed and pulled with
//! clients of others; and registries that answer wrongly, which harm no other policy.

use crate::exhaust::{GOOD, put_hostile, works_on};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use transom_conformance::fixture::{good_with, hostile};
use transom_core::digest::Digest;
use transom_core::share::lock::MutexExt as _;
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::program;
use transom_e2e::secret::Secret;
use transom_e2e::stage::{Stage, put};
use transom_e2e::swap::POLICY;
use transom_test_cluster::{Access, Answer, COMPONENT, Hostile, LOGIN, Registry, WASM};

/// The flags for a registry with TLS and a login.
pub(crate) struct Reach {
    flags: Vec<String>,
}

impl Reach {
    pub(crate) fn to(registry: &Registry, stage: &Stage) -> Result<Self> {
        let (user, password) = LOGIN;
        let auths = serde_json::json!({"auths": {registry.address(): {"username": user, "password": password}}});
        let (config, ca) = (stage.path("docker.json"), stage.path("registry-ca.crt"));
        put(&config, auths.to_string().as_bytes())?;
        put(&ca, registry.authority().context("no CA")?.as_bytes())?;
        let file = |path: std::path::PathBuf| path.display().to_string();
        let flags = [
            "--registry-config",
            &file(config),
            "--registry-ca",
            &file(ca),
        ];
        Ok(Self {
            flags: flags.map(str::to_owned).to_vec(),
        })
    }

    /// A registry with TLS and a login, a fleet of some HostedClusters, and how the agent reaches the registry.
    pub(crate) fn private(clusters: usize) -> Result<(Registry, Stage, Self)> {
        let registry = Registry::start(Access::PRIVATE)?;
        let stage = Stage::new(clusters, 0)?;
        let reach = Self::to(&registry, &stage)?;
        Ok((registry, stage, reach))
    }

    /// Also gives the agent these flags.
    pub(crate) fn add(&mut self, flags: &[&str]) {
        self.flags.extend(flags.iter().copied().map(str::to_owned));
    }

    pub(crate) fn start(&self, stage: &Stage, registry: &Registry, log: &str) -> Result<Agent> {
        let sources = format!("builtin,oci:{}/team/*", registry.address());
        self.start_with(stage, &sources, log)
    }

    pub(crate) fn start_with(&self, stage: &Stage, sources: &str, log: &str) -> Result<Agent> {
        let mut command = stage.run()?;
        command.args(["--sources", sources]).args(&self.flags);
        command.env("XDG_CACHE_HOME", stage.path("cache"));
        Agent::start(&mut command, stage.path(log))
    }

    fn run(&self, stage: &Stage, words: &[&str]) -> Result<Output> {
        Ok(stage.transom()?.args(words).args(&self.flags).output()?)
    }
}

pub(crate) fn digest(component: &[u8]) -> String {
    Digest::of_bytes(component).to_string()
}

pub(crate) fn use_component(stage: &Stage, component: &str) -> Result<()> {
    stage.put_policy(POLICY, &[("builtin:kubeconfig", component)])
}

#[test]
fn a_tag_is_pulled_once_and_a_restart_needs_no_registry() -> Result<()> {
    let (registry, stage, reach) = Reach::private(1)?;
    let (first, second) = (
        program::component("kubeconfig")?,
        program::component("fixture-second")?,
    );
    registry.push("team/kubeconfig:v1", &first)?;
    registry.push("team/kubeconfig:v2", &second)?;
    let named = |tag: &str| format!("oci:{}:{tag}", registry.place("team/kubeconfig"));
    use_component(&stage, &named("v1"))?;
    let agent = reach.start(&stage, &registry, "log")?;
    let is = |component: &[u8]| {
        let digest = digest(component);
        move |secret: &Secret| secret.component == digest
    };
    stage.wait_for_secret(0, "the first component", is(&first))?;
    // Another tag is another component.
    use_component(&stage, &named("v2"))?;
    stage.wait_for_secret(0, "the second component", is(&second))?;
    // The first tag moves, and still means what it meant.
    registry.push("team/kubeconfig:v1", &second)?;
    use_component(&stage, &named("v1"))?;
    stage.wait_for_secret(0, "the first component again", is(&first))?;
    let status = stage.policy_status(POLICY);
    use_component(&stage, &named("none"))?;
    stage.wait_for_text(&status, "reason: ComponentNotFound")?;
    use_component(&stage, &named("v1"))?;
    stage.wait_for_text(&status, "reason: Loaded")?;
    let log = agent.stop()?;
    ensure!(!log.contains(LOGIN.1), "the log shows the password");

    registry.stop()?;
    let agent = reach.start(&stage, &registry, "log-2")?;
    stage.follows_port(0, 7443)?;
    stage.wait_for_text(&status, "reason: Loaded")?;
    agent.stop()?;

    fs::remove_dir_all(stage.path("cache"))?;
    let agent = reach.start(&stage, &registry, "log-3")?;
    stage.wait_for_text(&status, "reason: RegistryUnavailable")?;
    registry.start_again()?;
    // The tag has moved, and the kept revision says what it meant.
    stage.wait_for_text(&status, "reason: Loaded")?;
    stage.follows_port(0, 8443)?;
    stage.wait_for_secret(0, "what the tag meant", is(&first))?;
    agent.stop().map(drop)
}

#[test]
fn a_moved_tag_is_reported_and_never_followed() -> Result<()> {
    let (registry, stage, reach) = Reach::private(1)?;
    let (first, second) = (
        program::component("kubeconfig")?,
        program::component("fixture-second")?,
    );
    let pulled = registry.push("team/kubeconfig:v1", &first)?;
    let place = registry.place("team/kubeconfig");
    use_component(&stage, &format!("oci:{place}:v1"))?;
    let mut command = stage.run()?;
    let sources = format!("builtin,oci:{}/team/*", registry.address());
    command.args(["--sources", &sources]).args(&reach.flags);
    command.args(["--tag-resync-seconds", "1"]);
    command.env("XDG_CACHE_HOME", stage.path("cache"));
    let agent = Agent::start(&mut command, stage.path("log"))?;
    let status = stage.policy_status(POLICY);
    stage.wait_for_text(&status, "reason: Loaded")?;
    let moved = registry.push("team/kubeconfig:v1", &second)?;
    stage.wait_for_text(&status, "type: TagMoved")?;
    let text = fs::read_to_string(&status)?;
    ensure!(text.contains(&pulled) && text.contains(&moved), "{text}");
    ensure!(
        text.contains(&format!("decide: {}", digest(&first))),
        "{text}"
    );
    // It is ready all the same, and works on with what it has.
    let ready = text.contains("type: Ready") && !text.contains("status: 'False'");
    ensure!(ready, "{text}");
    stage.follows_port(0, 7443)?;
    let secret = stage.wait_for_secret(0, "the secret", |_| true)?;
    ensure!(secret.component == digest(&first));
    // Neither does an outage end the report, nor is it one.
    registry.stop()?;
    stage.follows_port(0, 8443)?;
    registry.start_again()?;
    registry.oras(&["tag", &format!("{place}@{pulled}"), "v1"])?;
    let ended = || {
        let text = fs::read_to_string(&status).ok()?;
        (!text.contains("TagMoved")).then_some(())
    };
    transom_support::wait::until("the end of the report", DEADLINE, ended)?;
    let log = agent.stop()?;
    let told = log.lines().filter(|line| line.contains("TagMoved"));
    ensure!(told.count() == 1, "{log}");
    ensure!(!log.contains("RegistryUnavailable"), "{log}");
    Ok(())
}

#[test]
fn components_go_to_a_registry_and_back_with_clients_of_others() -> Result<()> {
    let (registry, stage, reach) = Reach::private(0)?;
    let component = program::component("taints")?;
    let place = format!("oci:{}:v1", registry.place("team/taints"));
    let said = |words: &[&str]| {
        let output = reach.run(&stage, words)?;
        let text = program::stdout(&output);
        ensure!(
            output.status.success(),
            "{words:?}: {text} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(text)
    };
    let pushed = said(&["push", "builtin:taints", &place])?;
    ensure!(pushed.contains(&digest(&component)), "{pushed}");
    // The same component has the same manifest.
    ensure!(said(&["push", "builtin:taints", &place])? == pushed);
    ensure!(said(&["digest", &place])?.trim() == digest(&component));
    ensure!(said(&["inspect", &place])?.contains("taints"));
    let file = stage.path("ours.wasm").display().to_string();
    ensure!(said(&["pull", &place, "-o", &file])? == pushed);
    ensure!(fs::read(&file)? == component);
    // By oras: its layer, and the media types that the CNCF names.
    let theirs = stage.path("theirs");
    fs::create_dir(&theirs)?;
    let manifest = registry.oras(&["manifest", "fetch", &registry.place("team/taints:v1")])?;
    ensure!(
        manifest.contains(COMPONENT) && manifest.contains(WASM),
        "{manifest}"
    );
    let blob = format!("{}@{}", registry.place("team/taints"), digest(&component));
    let layer = theirs.join("layer").display().to_string();
    registry.oras(&["blob", "fetch", &blob, "--output", &layer])?;
    ensure!(fs::read(&layer)? == component);
    // A wrong password and no password; neither is shown.
    put(&stage.path("docker.json"), br#"{"auths": {}}"#)?;
    let refused = reach.run(&stage, &["pull", &place, "-o", &file])?;
    let text = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        !refused.status.success() && text.contains("refuses access"),
        "{text}"
    );
    // A program that would give it is not run: the message names the field.
    let program = stage.path("ran");
    put(
        &stage.path("docker.json"),
        serde_json::json!({"credsStore": format!("x; touch {}", program.display())})
            .to_string()
            .as_bytes(),
    )?;
    let refused = reach.run(&stage, &["pull", &place, "-o", &file])?;
    let text = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        text.contains("refuses access") && text.contains("`credsStore`") && !program.exists(),
        "{text}"
    );
    Ok(())
}

/// How a hostile registry answers about each repository.
fn answer(path: &str, component: &[u8], elsewhere: &str) -> Answer {
    let manifest = |digest: &str, size: usize, layers: usize| {
        let layer = serde_json::json!({"mediaType": WASM, "digest": digest, "size": size});
        let manifest = serde_json::json!({"schemaVersion": 2, "layers": vec![layer; layers],
            "config": {"mediaType": COMPONENT, "digest": digest, "size": size}});
        Answer::new(200, manifest.to_string())
    };
    let is_manifest = path.contains("/manifests/");
    let (right, size) = (digest(component), component.len());
    match path.split('/').nth(2).unwrap_or_default() {
        "" => Answer::new(200, ""),
        "silent" => Answer::slow("x", Duration::from_secs(3_600)),
        "slow" if is_manifest => Answer::slow(vec![b' '; 3_600], Duration::from_secs(1)),
        "denied" => Answer::new(401, "").header("www-authenticate", "Basic realm=\"x\""),
        // A token for each request, and none of them is enough.
        "again" => Answer::new(401, "").header(
            "www-authenticate",
            format!("Bearer realm=\"{elsewhere}/v2/token/x\",service=\"x\""),
        ),
        "token" => Answer::new(200, r#"{"token": "canary"}"#),
        "loop" => Answer::redirect(&format!("{elsewhere}{path}")),
        "down" => Answer::new(503, "canary of the registry"),
        "busy" => Answer::new(
            429,
            r#"{"errors": [{"code": "TOOMANYREQUESTS", "message": "canary"}]}"#,
        ),
        "endless" if is_manifest => Answer::endless(vec![b' '; 64 << 10]),
        "twolayers" if is_manifest => manifest(&right, size, 2),
        "huge" if is_manifest => manifest(&right, 1 << 40, 1),
        _ if is_manifest => manifest(&right, size, 1),
        "endlesslayer" => Answer::endless(component.to_vec()),
        "otherbytes" => Answer::new(200, vec![0; size]),
        "truncated" => Answer::truncated(component[..size / 2].to_vec(), size as u64),
        _ => Answer::new(404, "canary"),
    }
}

#[test]
fn a_redirect_elsewhere_gets_no_credential_and_its_bytes_count_by_digest() -> Result<()> {
    let (runtime, component) = (Runtime::new()?, hostile("good")?);
    let (right, size) = (digest(&component), component.len());
    // What the other places were asked with.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (elsewhere, registry) = runtime.block_on(async {
        let (own, seen) = (component.clone(), Arc::clone(&seen));
        let elsewhere = Hostile::start(move |parts| {
            let named = parts.headers.contains_key("authorization");
            seen.locked().push(named);
            match parts.uri.path().contains("/moved/") {
                true => Answer::new(200, own.clone()),
                false => Answer::new(200, vec![0; own.len()]),
            }
        })
        .await?;
        let (there, digest) = (elsewhere.address(), right.clone());
        let registry = Hostile::start(move |parts| {
            let path = parts.uri.path();
            let layer = serde_json::json!({"mediaType": WASM, "digest": digest, "size": size});
            let manifest = serde_json::json!({"schemaVersion": 2, "layers": [layer],
                "config": {"mediaType": COMPONENT, "digest": digest, "size": size}});
            match path.contains("/blobs/") {
                _ if path == "/v2/" => {
                    Answer::new(401, "").header("www-authenticate", "Basic realm=\"x\"")
                }
                true => Answer::redirect(&format!("http://{there}{path}")),
                false => Answer::new(200, manifest.to_string()),
            }
        })
        .await?;
        anyhow::Ok((elsewhere, registry))
    })?;
    let stage = Stage::new(0, 0)?;
    let address = registry.address();
    let config = stage.path("docker.json");
    let login = serde_json::json!({"auths": {&address: {"username": "u", "password": "canary"}}});
    put(&config, login.to_string().as_bytes())?;
    let pull = |repository: &str| -> Result<(bool, String)> {
        let image = format!("oci:{address}/{repository}/guest:v1");
        let mut command = stage.transom()?;
        command.args([
            "pull",
            &image,
            "--registry-http",
            &address,
            "--registry-config",
        ]);
        let output = command
            .arg(&config)
            .arg("-o")
            .arg(stage.path(repository))
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.success(), said))
    };
    let (pulled, said) = pull("moved")?;
    ensure!(
        pulled && fs::read(stage.path("moved"))? == component,
        "{said}"
    );
    let (pulled, said) = pull("swapped")?;
    ensure!(
        !pulled && said.contains("sent a layer with the digest"),
        "{said}"
    );
    ensure!(!stage.path("swapped").exists());
    let seen = seen.locked().clone();
    ensure!(seen.len() >= 2 && !seen.contains(&true), "{seen:?}");
    drop((elsewhere, registry));
    Ok(())
}

/// The active revision of a policy.
fn revision_of(stage: &Stage, policy: &str) -> Result<String> {
    let text = fs::read_to_string(stage.policy_status(policy))?;
    let status: serde_json::Value = serde_yaml::from_str(&text)?;
    let id = status["revision"]["id"].as_str();
    Ok(id
        .with_context(|| format!("nothing is active: {text}"))?
        .to_owned())
}

#[test]
fn a_hostile_registry_gives_a_reason_and_harms_neither_what_is_active_nor_another_policy()
-> Result<()> {
    const CASES: [(&str, &str); 14] = [
        ("denied", "RegistryForbidden"),
        ("again", "RegistryForbidden"),
        ("loop", "RegistryUnavailable"),
        ("down", "RegistryUnavailable"),
        ("busy", "RegistryUnavailable"),
        ("endless", "RegistryUnavailable"),
        ("twolayers", "ComponentInvalid"),
        ("huge", "ComponentTooLarge"),
        ("endlesslayer", "ComponentTooLarge"),
        ("otherbytes", "DigestMismatch"),
        ("truncated", "RegistryUnavailable"),
        ("absent", "ComponentNotFound"),
        // They hold up neither each other nor what is near.
        ("silent", "RegistryUnavailable"),
        ("slow", "RegistryUnavailable"),
    ];
    let runtime = Runtime::new()?;
    let component = hostile("good")?;
    let (started, theirs) = runtime.block_on(async {
        let own = component.clone();
        let theirs = Hostile::start(|_| Answer::new(200, "never asked")).await?;
        let script = move |parts: &http::request::Parts| {
            // A redirect to the same path, without end.
            let here = parts
                .headers
                .get("host")
                .and_then(|host| host.to_str().ok());
            let here = format!("http://{}", here.unwrap_or_default());
            answer(parts.uri.path(), &own, &here)
        };
        anyhow::Ok((Hostile::start(script).await?, theirs))
    })?;
    let stage = Stage::new(0, 60)?;
    stage.put_policy(GOOD, &[])?;
    let address = started.address();
    // Each of them is active with another component first.
    crate::swap::put_config_map(&stage, &good_with("(func)")?)?;
    let near = ("./good.wasm", "configmap:transom/mine/k");
    let outside = ("outside", "ComponentNotAllowed");
    let cases = || CASES.into_iter().chain([outside]);
    for (case, _) in cases().chain([("near", "")]) {
        put_hostile(&stage, case, "good", near)?;
    }
    let mut command = stage.run()?;
    command.args([
        "--sources",
        &format!("builtin,configmap:transom/*,oci:{address}/*"),
    ]);
    command.args([
        "--registry-http",
        &address,
        "--registry-http",
        &theirs.address(),
    ]);
    command.env("XDG_CACHE_HOME", stage.path("cache"));
    let agent = Agent::start(&mut command, stage.path("log"))?;
    let mut active = Vec::new();
    for (case, _) in cases() {
        stage.wait_for_text(&stage.policy_status(case), "reason: Loaded")?;
        active.push(revision_of(&stage, case)?);
    }
    for (case, _) in cases() {
        let host = match case {
            "outside" => theirs.address(),
            _ => address.clone(),
        };
        let named = format!("oci:{host}/{case}/guest:v1");
        put_hostile(&stage, case, "good", ("./good.wasm", &named))?;
    }
    works_on(&stage)?;
    stage.wait_for_text(&stage.policy_status("near"), "reason: Loaded")?;
    for (case, reason) in cases() {
        let status = stage.policy_status(case);
        stage
            .wait_for_text(&status, &format!("reason: {reason}"))
            .with_context(|| format!("the case {case}"))?;
    }
    // What was active is active, and works on a cluster that comes now.
    let name = "newcomer";
    crate::rollout::put_cluster(&stage, name)?;
    for ((case, _), before) in cases().zip(active) {
        ensure!(
            revision_of(&stage, case)? == before,
            "{case}: another revision"
        );
        crate::exhaust::wait_for_status(&stage, case, name, "state: Applied")?;
    }
    ensure!(
        agent.peak_bytes()? < 512 << 20,
        "{} bytes",
        agent.peak_bytes()?
    );
    let log = agent.stop()?;
    ensure!(!log.contains("canary"), "{log}");
    ensure!(theirs.counts().is_empty(), "{:?}", theirs.counts());
    Ok(())
}
