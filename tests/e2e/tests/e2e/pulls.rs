//! As many pulls as run at a time, each of the largest component, and each of an answer without an end: the agent and
//! its processes stay within the shipped memory limit, enforced by the kernel.

use crate::exhaust::{GOOD, put_hostile, within_shipped, works_on};
use anyhow::Result;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;
use transom_conformance::fixture::hostile;
use transom_core::digest::Digest;
use transom_core::share::lock::MutexExt as _;
use transom_e2e::agent::Agent;
use transom_e2e::bound::Bound;
use transom_e2e::stage::Stage;
use transom_test_cluster::{Access, Answer, COMPONENT, Hostile, Registry, WASM};

/// The most bytes of a component: `transom_artifacts::MAX_BYTES`.
const MAX_BYTES: usize = 8 << 20;
/// The shipped `resources.limits.memory`.
const SHIPPED_BYTES: u64 = 512 << 20;
/// The most memory of the processes beside the agent, if only each of them can be bounded.
const CHILDREN_BYTES: u64 = 256 << 20;
/// How many policies pull from each registry: more than may pull at a time.
const POLICIES: usize = 4;

/// A component of the largest size; each letter is one of its own.
fn largest(letter: u8) -> Result<Vec<u8>> {
    let mut bytes = hostile("good")?;
    // A custom section: its kind, its size in five bytes, its name, and what fills it.
    let size = MAX_BYTES - bytes.len() - 6;
    bytes.push(0);
    let digit = |at: usize| (size >> (7 * at) & 0x7f) as u8 | if at < 4 { 0x80 } else { 0 };
    bytes.extend((0..5).map(digit));
    bytes.extend([1, letter]);
    bytes.resize(MAX_BYTES, letter);
    Ok(bytes)
}

/// Starts an agent within the shipped limit that reaches these registries.
fn start(stage: &Stage, registries: &[String]) -> Result<Agent> {
    let mut command = stage.run()?;
    let oci = registries.iter().map(|one| format!(",oci:{one}/*"));
    command.args(["--sources", &format!("builtin{}", oci.collect::<String>())]);
    for registry in registries {
        command.args(["--registry-http", registry]);
    }
    command.args(["--tag-resync-seconds", "1"]);
    command.env("XDG_CACHE_HOME", stage.path("cache"));
    let bound = Bound::new(SHIPPED_BYTES, CHILDREN_BYTES)?;
    Agent::bounded(&command, stage.path("log"), bound)
}

/// Has policies pull from registries; returns their names.
fn put_policies(stage: &Stage, registries: &[String]) -> Result<Vec<String>> {
    stage.put_policy(GOOD, &[])?;
    let mut names = Vec::new();
    for (at, registry) in registries.iter().enumerate() {
        for own in 0..POLICIES {
            let name = format!("pulls-{at}-{own}");
            let component = format!("oci:{registry}/{name}:v1");
            put_hostile(stage, &name, "good", ("./good.wasm", &component))?;
            names.push(name);
        }
    }
    Ok(names)
}

#[test]
fn pulls_of_the_largest_components_fit_into_the_shipped_memory() -> Result<()> {
    let registries = [
        Registry::start(Access::default())?,
        Registry::start(Access::default())?,
    ];
    let stage = Stage::new(0, 60)?;
    let addresses = registries.each_ref().map(Registry::address);
    let names = put_policies(&stage, &addresses)?;
    for (name, letter) in names.iter().zip(b'a'..) {
        let at = usize::from(name.starts_with("pulls-1"));
        registries[at].push(&format!("{name}:v1"), &largest(letter)?)?;
    }
    let mut agent = start(&stage, &addresses)?;
    works_on(&stage)?;
    for name in &names {
        stage.wait_for_text(&stage.policy_status(name), "reason: Loaded")?;
    }
    within_shipped(&mut agent, "pulls of the largest components")?;
    agent.stop().map(drop)
}

/// Less than what a pull may take, so that it is not ended at once.
const ALLOWED: usize = 34 << 20;
/// The bytes of a piece of an answer.
const PIECE: usize = 64 << 10;

#[test]
fn answers_that_stop_below_the_limit_of_a_pull_fit_into_the_shipped_memory() -> Result<()> {
    let runtime = Runtime::new()?;
    let component = hostile("good")?;
    let digest = Digest::of_bytes(&component).to_string();
    let layer = json!({"mediaType": WASM, "digest": digest, "size": component.len()});
    let manifest = json!({"schemaVersion": 2, "layers": [layer],
        "config": {"mediaType": COMPONENT, "digest": digest, "size": 2}})
    .to_string();
    // The first answer about a manifest is right, so that its tag is looked at from then on.
    let given = Arc::new(Mutex::new(BTreeSet::new()));
    let start_one = || {
        let (component, manifest, given) =
            (component.clone(), manifest.clone(), Arc::clone(&given));
        let (digest, most) = (digest.clone(), ALLOWED);
        Hostile::start(move |asked| match asked.uri.path() {
            "/v2/" => Answer::new(200, ""),
            path if path.ends_with(&digest) => Answer::new(200, component.clone()),
            path => {
                let mut given = given.locked();
                let is_tag = path.starts_with("/v2/tags-");
                match is_tag && given.insert(path.to_owned()) {
                    true => Answer::new(200, manifest.clone()),
                    false => Answer::stalled(vec![b' '; PIECE], most / PIECE),
                }
            }
        })
    };
    let registries = runtime.block_on(async {
        anyhow::Ok([start_one().await?, start_one().await?, start_one().await?])
    })?;
    let stage = Stage::new(0, 60)?;
    let addresses = registries.each_ref().map(Hostile::address);
    stage.put_policy(GOOD, &[])?;
    let put = |name: &str, registry: &str| {
        let component = format!("oci:{registry}/{name}:v1");
        put_hostile(&stage, name, "good", ("./good.wasm", &component))
    };
    let tags = ["tags-0", "tags-1"];
    for name in tags {
        put(name, &addresses[2])?;
    }
    let mut agent = start(&stage, &addresses)?;
    for name in tags {
        stage.wait_for_text(&stage.policy_status(name), "reason: Loaded")?;
    }
    let pulls = ["pulls-0", "pulls-1", "pulls-2", "pulls-3"];
    for (at, name) in pulls.iter().enumerate() {
        put(name, &addresses[at % 2])?;
    }
    works_on(&stage)?;
    for name in pulls {
        let status = stage.policy_status(name);
        stage.wait_for_text(&status, "reason: RegistryUnavailable")?;
    }
    within_shipped(&mut agent, "answers that stop below the limit of a pull")?;
    agent.stop().map(drop)
}

#[test]
fn answers_without_an_end_fit_into_the_shipped_memory() -> Result<()> {
    let runtime = Runtime::new()?;
    let endless = |asked: &http::request::Parts| match asked.uri.path() {
        "/v2/" => Answer::new(200, ""),
        _ => Answer::endless(vec![b' '; 64 << 10]),
    };
    let registries = runtime.block_on(async {
        anyhow::Ok([
            Hostile::start(endless).await?,
            Hostile::start(endless).await?,
        ])
    })?;
    let stage = Stage::new(0, 60)?;
    let addresses = registries.each_ref().map(Hostile::address);
    let names = put_policies(&stage, &addresses)?;
    let mut agent = start(&stage, &addresses)?;
    works_on(&stage)?;
    for name in &names {
        let status = stage.policy_status(name);
        stage.wait_for_text(&status, "takes more than")?;
    }
    within_shipped(&mut agent, "answers without an end")?;
    agent.stop().map(drop)
}
