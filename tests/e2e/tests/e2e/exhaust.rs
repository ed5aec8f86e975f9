//! Guests, policies, files and clients that use everything allowed, and more: the agent works within the shipped memory
//! limit, enforced by the kernel, and the other policies keep working.

use crate::admin::{crowd, probed};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fs;
use transom_conformance::fixture::{good_with, hostile, taints_component};
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::bound::Bound;
use transom_e2e::stage::{Stage, put};
use transom_e2e::swap::POLICY;
use transom_e2e::{http, program};
use transom_support::wait;

/// The shipped `resources.limits.memory`.
const SHIPPED_BYTES: u64 = 512 << 20;
/// The maximum memory of compilers beside the agent, which watches each: `transom_engine::COMPILING_BYTES`.
const COMPILERS_BYTES: u64 = 128 << 20;
pub(crate) const GOOD: &str = "built-in-taints";

/// Starts the agent within the shipped limit and with an empty cache of compiled code.
pub(crate) fn watch(stage: &Stage) -> Result<Agent> {
    watch_with(stage, &[])
}

fn watch_with(stage: &Stage, words: &[&str]) -> Result<Agent> {
    let mut command = stage.run()?;
    command
        .args(words)
        .env("XDG_CACHE_HOME", stage.path("cache"));
    Agent::bounded(
        &command,
        stage.path("log"),
        Bound::new(SHIPPED_BYTES, COMPILERS_BYTES)?,
    )
}

/// Checks that the limit held with a margin: the agent itself uses less than three quarters.
#[expect(
    clippy::print_stdout,
    reason = "how much it took is for people to read"
)]
pub(crate) fn within_shipped(agent: &mut Agent, what: &str) -> Result<()> {
    let (together, alone) = (agent.held()?, agent.peak_bytes()?);
    println!(
        "{what}: {} MiB, together {:?} MiB",
        alone >> 20,
        together.map(|peak| peak >> 20)
    );
    ensure!(
        alone < SHIPPED_BYTES * 3 / 4,
        "{what}: the agent took {} MiB",
        alone >> 20
    );
    Ok(())
}

/// A policy about every ManagedCluster whose component is a hostile fixture; it owns its own taint.
pub(crate) fn put_hostile(
    stage: &Stage,
    name: &str,
    fixture: &str,
    change: (&str, &str),
) -> Result<()> {
    let component = stage.policies.join(format!("{fixture}.wasm"));
    // A thousand policies name one component.
    if !component.exists() {
        put(&component, &hostile(fixture)?)?;
    }
    let text = fs::read_to_string(program::policy(GOOD))?;
    let (keys, _) = text
        .rsplit_once("      taintKeys:")
        .context("the policy owns no keys")?;
    let text = format!("{keys}      taintKeys: [example.com/{name}]\n");
    let text = text.replace("name: built-in-taints", &format!("name: {name}"));
    let text = text.replace(
        "component: builtin:taints",
        &format!("component: ./{fixture}.wasm"),
    );
    put(
        &stage.policies.join(format!("{name}.yaml")),
        text.replace(change.0, change.1).as_bytes(),
    )
}

/// A policy whose component needs more memory to compile than allowed.
pub(crate) fn put_bomb(stage: &Stage) -> Result<()> {
    put_hostile(stage, "bomb", "good", ("good.wasm", "bomb.wasm"))?;
    let values = " i32".repeat(32);
    let gets: String = (0..32)
        .map(|local| format!("(local.get {local})"))
        .collect();
    let calls = "(call $wide)".repeat(60_000);
    let text = format!(
        "(func $wide (param{values}) (result{values}) {gets}) (func (param{values}) (result{values}) {gets} {calls})"
    );
    put(&stage.policies.join("bomb.wasm"), &good_with(&text)?)
}

/// The bundled policy about HostedClusters with a component that gives the requested answers, and a large token in the
/// source of each.
fn put_answers(stage: &Stage, clusters: usize, ask: &str) -> Result<()> {
    let settings =
        "        clusterDomain: cluster.local\n        naming:\n          precedence: Annotation\n";
    let asked = format!("        ask: {ask}\n");
    stage.put_policy(
        POLICY,
        &[("builtin:kubeconfig", "answers.wasm"), (settings, &asked)],
    )?;
    put(
        &stage.policies.join(POLICY).join("answers.wasm"),
        &program::component("fixture-answers")?,
    )?;
    let large = format!("token: {}\n", "t".repeat(600 << 10));
    for at in 0..clusters {
        let source = String::from_utf8(STANDARD.decode(stage.source(at)?)?)?;
        let (user, certificate) = source
            .split_once("    client-certificate-data:")
            .context("no certificate")?;
        let source = format!("{user}    {large}    client-certificate-data:{certificate}");
        stage.put_source(at, &STANDARD.encode(source))?;
    }
    Ok(())
}

/// Waits until the agent has reported something about a cluster under a policy.
pub(crate) fn wait_for_status(
    stage: &Stage,
    policy: &str,
    cluster: &str,
    text: &str,
) -> Result<()> {
    stage.wait_for_text(
        &stage
            .own()
            .join(format!("status/{policy}/_cluster.{cluster}.yaml")),
        text,
    )
}

/// Checks that the good policy works: an unavailable cluster gets a taint, and a removed taint comes back.
pub(crate) fn works_on(stage: &Stage) -> Result<()> {
    let name = "edge-00008";
    let tainted = || {
        // Cheap to see; what it means is read with the whole fleet.
        let taints = stage.patch(name).exists().then(|| stage.taints(name));
        (taints?.ok()?.len() == 1).then_some(())
    };
    wait::until("the taint of the good policy", DEADLINE, tainted)?;
    fs::remove_file(stage.patch(name))?;
    Ok(wait::until(
        "the taint after its file was removed",
        DEADLINE,
        tainted,
    )?)
}

#[test]
fn the_agent_stays_within_its_memory_when_a_guest_fills_its_own() -> Result<()> {
    let stage = Stage::new(0, 60)?;
    stage.put_policy(GOOD, &[])?;
    put_hostile(&stage, "hog", "hog", ("", ""))?;
    let mut agent = watch(&stage)?;
    works_on(&stage)?;
    wait_for_status(&stage, "hog", "edge-00059", "GuestTimedOut")?;
    works_on(&stage)?;
    within_shipped(&mut agent, "full memories")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn guests_that_time_out_block_no_other_guest() -> Result<()> {
    const CLUSTERS: f64 = 60.0;
    let stage = Stage::new(0, 60)?;
    stage.put_policy(GOOD, &[])?;
    for at in 0..4 {
        put_hostile(&stage, &format!("hog-{at}"), "hog", ("", ""))?;
    }
    let mut agent = watch_with(
        &stage,
        &["--admin-address", "127.0.0.1:0", "--log-format", "json"],
    )?;
    let admin = agent.ready()?;
    let reconciled = |policy: &str| {
        http::metric(
            admin,
            "transom_reconciles_total",
            &format!("policy=\"{policy}"),
        )
    };
    wait::until("the good policy", DEADLINE, || {
        reconciled(GOOD).ok().filter(|count| *count >= CLUSTERS)
    })?;
    let hogs = reconciled("hog-")?;
    // With fair turns each of the four would have got as far as the good one.
    ensure!(
        hogs < CLUSTERS,
        "they were reconciled {hogs} times meanwhile"
    );
    within_shipped(&mut agent, "guests that use up their time")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn loads_runs_and_suspends_a_thousand_policies() -> Result<()> {
    const POLICIES: usize = 1_000;
    let stage = Stage::new(0, 10)?;
    fs::read_dir(stage.fleet.join("managed"))?.try_for_each(|file| {
        let path = file?.path();
        if path.ends_with("edge-00008.yaml") {
            Ok(())
        } else {
            fs::remove_file(path)
        }
    })?;
    stage.put_policy(GOOD, &[])?;
    for at in 0..POLICIES {
        put_hostile(&stage, &format!("p{at:04}"), "good", ("", ""))?;
    }
    let mut agent = watch(&stage)?;
    works_on(&stage)?;
    for at in 0..POLICIES {
        wait_for_status(&stage, &format!("p{at:04}"), "edge-00008", "InSync")?;
    }
    for at in [0, 500, POLICIES - 1] {
        put_hostile(
            &stage,
            &format!("p{at:04}"),
            "good",
            ("spec:\n", "spec:\n  suspend: true\n"),
        )?;
    }
    for at in [0, 500, POLICIES - 1] {
        wait_for_status(&stage, &format!("p{at:04}"), "edge-00008", "Suspended")?;
    }
    works_on(&stage)?;
    within_shipped(&mut agent, "a thousand policies")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn endless_guest_logs_fill_no_disk() -> Result<()> {
    const CLUSTERS: usize = 40;
    let stage = Stage::new(0, CLUSTERS)?;
    stage.put_policy(GOOD, &[])?;
    let granted = (
        "      component: ./log-flood.wasm",
        "      component: ./log-flood.wasm\n      capabilities: [log]",
    );
    put_hostile(&stage, "flood", "log-flood", granted)?;
    let mut agent = watch(&stage)?;
    wait_for_status(
        &stage,
        "flood",
        &format!("edge-{:05}", CLUSTERS - 1),
        "InSync",
    )?;
    works_on(&stage)?;
    within_shipped(&mut agent, "endless logs")?;
    let log = agent.stop()?;
    let flooded: usize = log
        .lines()
        .filter(|line| line.contains("AAAA"))
        .map(str::len)
        .sum();
    // Forty calls each logged 60,000 bytes; the log has one minute's allowance, perhaps with the beginning of a second.
    ensure!(
        (10_000..2 * 100_000).contains(&flooded),
        "{flooded} bytes of the guest's lines"
    );
    Ok(())
}

#[test]
fn an_expensive_compilation_blocks_no_other_policy() -> Result<()> {
    let stage = Stage::new(0, 10)?;
    stage.put_policy(GOOD, &[])?;
    put_bomb(&stage)?;
    let mut agent = watch(&stage)?;
    stage.wait_for_text(&stage.policy_status("bomb"), "ComponentTooLarge")?;
    works_on(&stage)?;
    within_shipped(&mut agent, "a bomb for the compiler")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn an_answer_that_multiplies_its_input_costs_no_more_than_its_text() -> Result<()> {
    for (ask, word) in [
        ("ManyAuthorities", "ContractBroken"),
        ("ManyUsers", "KubeconfigTooLarge"),
    ] {
        let stage = Stage::new(CLUSTERS, 60)?;
        stage.put_policy(GOOD, &[])?;
        put_answers(&stage, CLUSTERS, ask)?;
        let mut agent = watch(&stage)?;
        works_on(&stage)?;
        for at in DECIDED {
            stage.wait_for_text(&stage.hosted_status(at), word)?;
        }
        works_on(&stage)?;
        within_shipped(&mut agent, ask)?;
        agent.stop()?;
    }
    Ok(())
}

#[test]
fn inputs_of_reconciles_are_decoded_within_the_memory_bound() -> Result<()> {
    // Text costs its own size; small maps cost a hundred times their text, and no reconcile may read that much.
    let maps = format!("[{}{{}}]", "{\"a\":1},".repeat(50_000));
    let letters = format!("\"{}\"", "x".repeat(1 << 20));
    for (policies, value, word) in [(12, letters, "reason:"), (1, maps, "ObjectTooLarge")] {
        let stage = Stage::new(4, 60)?;
        stage.put_policy(GOOD, &[])?;
        put_answers(&stage, 4, "ManyReads")?;
        let granted = "    write:\n";
        let many = "    - {role: many, kind: ConfigMap, namespace: \"{primary.namespace}\", name: \"many-*\"}\n";
        let path = stage.policies.join(POLICY).join("policy.yaml");
        stage.edit(&path, granted, &format!("{many}{granted}"))?;
        let text = fs::read_to_string(&path)?;
        for at in 0..policies {
            let text = text.replace(
                &format!("name: {POLICY}\nspec"),
                &format!("name: reads-{at:02}\nspec"),
            );
            put(
                &stage
                    .policies
                    .join(POLICY)
                    .join(format!("reads-{at:02}.yaml")),
                text.as_bytes(),
            )?;
        }
        fs::remove_file(path)?;
        for at in 0..12 {
            let named = format!("{{\"name\":\"many-{at}\",\"namespace\":\"clusters\"}}");
            let map = format!(
                "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{named},\"data\":{value}}}"
            );
            put(&stage.fleet.join(format!("many-{at}.json")), map.as_bytes())?;
        }
        let mut agent = watch(&stage)?;
        works_on(&stage)?;
        for at in 0..policies {
            for cluster in 0..3 {
                let told = stage.hosted_status(cluster);
                let told = told.file_name().context("no name")?;
                stage.wait_for_text(
                    &stage.own().join(format!("status/reads-{at:02}")).join(told),
                    word,
                )?;
            }
        }
        works_on(&stage)?;
        within_shipped(&mut agent, word)?;
        agent.stop()?;
    }
    Ok(())
}

/// HostedClusters of a fleet, including some that wait for nothing.
const CLUSTERS: usize = 7;
const DECIDED: [usize; 5] = [0, 1, 2, 4, 6];

/// The size of a file of the fleet that an attacker wrote.
const FILE_BYTES: usize = 152 << 20;

#[test]
fn refuses_an_expensive_fleet_file_within_the_memory_bound() -> Result<()> {
    let stage = Stage::new(0, 60)?;
    stage.put_policy(GOOD, &[])?;
    let mut agent = watch(&stage)?;
    works_on(&stage)?;
    put(
        &stage.fleet.join("lines.yaml"),
        "- a\n".repeat(FILE_BYTES / 4).as_bytes(),
    )?;
    agent.wait_for_lines(1, &["lines.yaml", "ManifestInvalid"])?;
    works_on(&stage)?;
    within_shipped(&mut agent, "a file of 152 MiB")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn every_command_shows_guest_logs_at_their_level() -> Result<()> {
    let stage = Stage::new(0, 1)?;
    let granted = (
        "      component: ./log-lines.wasm",
        "      component: ./log-lines.wasm\n      capabilities: [log]",
    );
    put_hostile(&stage, "lines", "log-lines", granted)?;
    let guest = fs::read_to_string(program::root().join("tests/fixtures/hostile/log-lines.wat"))?
        .replace("500", "3");
    let (fleet, policies) = (
        stage.fleet.display().to_string(),
        stage.policies.display().to_string(),
    );
    let commands: [&[&str]; 2] = [
        &["render", &fleet, "--policies", &policies],
        &["run", "--once", "--dir", &fleet, "--policies", &policies],
    ];
    for (number, level) in ["DEBUG", "INFO", "WARN"].into_iter().enumerate() {
        let said = guest.replace(
            "(call $log (i32.const 1)",
            &format!("(call $log (i32.const {number})"),
        );
        put(
            &stage.policies.join("log-lines.wasm"),
            &taints_component(&said)?,
        )?;
        for words in commands {
            // Otherwise the revision of the run before works until the new one was tried.
            let _ = fs::remove_dir_all(stage.own());
            let output = stage.transom()?.args(words).output()?;
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let lines: Vec<&str> = told
                .lines()
                .filter(|line| line.contains("guest: Seen"))
                .collect();
            let right =
                |line: &&str| line.contains(&format!(" {level} ")) && line.contains("policy=lines");
            ensure!(
                lines.len() == 3 && lines.iter().all(right),
                "{level}: {words:?}: {told}"
            );
        }
    }
    Ok(())
}

#[test]
fn survives_all_attacks_at_once() -> Result<()> {
    let stage = Stage::new(CLUSTERS, 60)?;
    stage.put_policy(GOOD, &[])?;
    put_answers(&stage, CLUSTERS, "ManyUsers")?;
    put_hostile(&stage, "hog", "hog", ("", ""))?;
    let granted = (
        "      component: ./log-flood.wasm",
        "      component: ./log-flood.wasm\n      capabilities: [log]",
    );
    put_hostile(&stage, "flood", "log-flood", granted)?;
    put_bomb(&stage)?;
    let mut agent = watch_with(
        &stage,
        &["--admin-address", "127.0.0.1:0", "--log-format", "json"],
    )?;
    let address = agent.ready()?;
    let peers = crowd(address)?;
    put(
        &stage.fleet.join("lines.yaml"),
        "- a\n".repeat(FILE_BYTES / 4).as_bytes(),
    )?;
    stage.wait_for_text(&stage.policy_status("bomb"), "ComponentTooLarge")?;
    wait_for_status(&stage, "hog", "edge-00059", "GuestTimedOut")?;
    for at in DECIDED {
        stage.wait_for_text(&stage.hosted_status(at), "KubeconfigTooLarge")?;
    }
    works_on(&stage)?;
    probed(address)?;
    drop(peers);
    within_shipped(&mut agent, "all at once")?;
    agent.stop()?;
    Ok(())
}
