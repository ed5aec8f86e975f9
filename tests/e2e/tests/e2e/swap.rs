//! A component or policy is replaced while the agent runs: completely, or not at all and with a reason. A component
//! that compiles slowly holds up no other policy, and is compiled once.

use crate::exhaust::{
    GOOD, put_bomb, put_hostile, wait_for_status, watch, within_shipped, works_on,
};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use transom_conformance::fixture::good_with;
use transom_e2e::agent::{Agent, DEADLINE, has_ended};
use transom_e2e::program;
use transom_e2e::secret::Secret;
use transom_e2e::size::Size;
use transom_e2e::stage::{Stage, put};
use transom_e2e::swap::{GROWTH_BYTES, POLICY, Swap, Swapped};
use transom_support::wait;

#[test]
fn swaps_under_constant_change_lose_mix_and_repeat_nothing() -> Result<()> {
    let swapped = run(Swap {
        clusters: 12,
        managed: 40,
        resync_seconds: 1,
        reconciles_per_change: 1,
        swaps: 10,
    })?;
    ensure!(swapped.edits > 100 && swapped.read > 100, "{swapped:?}");
    ensure!(swapped.settled > 0.1, "hardly any was settled: {swapped:?}");
    ensure!(swapped.growth() < GROWTH_BYTES, "memory grew: {swapped:?}");
    Ok(())
}

#[test]
#[ignore = "takes minutes: cargo xtask soak swap"]
fn soak() -> Result<()> {
    let size = Size::given(200, 12_000)?;
    let swap = Swap {
        clusters: 60,
        managed: size.clusters,
        resync_seconds: 2,
        reconciles_per_change: 16,
        swaps: size.rounds,
    };
    let swapped = run(swap)?;
    println!("{swap:?}: {}", swapped.told());
    ensure!(swapped.growth() < GROWTH_BYTES, "memory grew: {swapped:?}");
    Ok(())
}

fn run(swap: Swap) -> Result<Swapped> {
    swap.run(&Stage::new(swap.clusters, swap.managed)?)
}

/// A stage whose kubeconfig policy has its component in a file.
fn stage() -> Result<(Stage, PathBuf)> {
    let stage = Stage::new(2, 0)?;
    stage.put_policy(POLICY, &[("builtin:kubeconfig", "decide.wasm")])?;
    let component = stage.policies.join(POLICY).join("decide.wasm");
    put(&component, &program::component("kubeconfig")?)?;
    Ok((stage, component))
}

#[test]
fn a_broken_component_is_refused_and_the_previous_revision_stays_active() -> Result<()> {
    let (stage, component) = stage()?;
    let good = fs::read(&component)?;
    let agent = stage.watch()?;
    let first = stage.wait_for_secret(0, "the secret", |_| true)?;
    let status = stage.policy_status(POLICY);
    stage.wait_for_text(&status, "reason: Loaded")?;
    put(&component, good.get(..good.len() / 2).unwrap_or_default())?;
    stage.wait_for_text(&status, "reason: ComponentInvalid")?;
    let told = fs::read_to_string(&status)?;
    ensure!(
        told.contains("spec.guests.decide"),
        "the field is named: {told}"
    );
    ensure!(
        told.contains(&first.component),
        "the active revision is still named: {told}"
    );
    stage.follows_port(0, 7443)?;
    // A component of another world, a missing one, and the first again.
    put(&component, &program::component("taints")?)?;
    stage.wait_for_text(&status, "reason: WorldMismatch")?;
    fs::remove_file(&component)?;
    stage.wait_for_text(&status, "reason: ComponentNotFound")?;
    stage.follows_port(0, 8443)?;
    put(&component, &good)?;
    stage.wait_for_text(&status, "reason: Loaded")?;
    stage.follows_port(0, 9443)?;
    agent.stop()?;
    Ok(())
}

#[test]
fn loads_a_component_from_another_place_that_appears_later() -> Result<()> {
    let stage = Stage::new(1, 0)?;
    stage.put_policy(POLICY, &[("builtin:kubeconfig", "decide.wasm")])?;
    let mut command = stage.run()?;
    command.arg("--components").arg(stage.path("components"));
    let agent = Agent::start(&mut command, stage.path("log"))?;
    stage.wait_for_text(&stage.policy_status(POLICY), "reason: ComponentNotFound")?;
    put(
        &stage.path("components/decide.wasm"),
        &program::component("kubeconfig")?,
    )?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    stage.wait_for_text(&stage.policy_status(POLICY), "reason: Loaded")?;
    agent.stop()?;
    Ok(())
}

/// Writes a ConfigMap with a component into the folder of manifests.
pub(crate) fn put_config_map(stage: &Stage, component: &[u8]) -> Result<()> {
    put_labelled(stage, component, "a")
}

fn put_labelled(stage: &Stage, component: &[u8], label: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "transom", "name": "mine", "labels": {"label": label}},
        "binaryData": {"k": STANDARD.encode(component), "t": STANDARD.encode(program::component("taints")?)}});
    let text = object.to_string();
    put(&stage.fleet.join("component.json"), text.as_bytes())
}

#[test]
fn a_config_map_of_the_folder_holds_a_component() -> Result<()> {
    let stage = Stage::new(1, 0)?;
    let named = "configmap:transom/mine/k";
    stage.put_policy(POLICY, &[("builtin:kubeconfig", named)])?;
    let run = |log: &str, sources: &str| {
        let mut command = stage.run()?;
        command.args(["--sources", sources]);
        Agent::start(&mut command, stage.path(log))
    };
    let status = stage.policy_status(POLICY);
    let agent = run("log", "builtin,file")?;
    stage.wait_for_text(&status, "reason: ComponentNotAllowed")?;
    agent.stop()?;
    let agent = run("log-2", "configmap:transom/mine,builtin")?;
    stage.wait_for_text(&status, "reason: ComponentNotFound")?;
    put_config_map(&stage, &program::component("kubeconfig")?)?;
    let first = stage.wait_for_secret(0, "the secret", |_| true)?;
    put_config_map(&stage, &program::component("fixture-second")?)?;
    let other = |secret: &Secret| secret.component != first.component;
    stage.wait_for_secret(0, "the secret of the second version", other)?;
    put_config_map(&stage, b"damaged")?;
    stage.wait_for_text(&status, "reason: ComponentInvalid")?;
    // Only the content counts: the same refusal is not reported again.
    for label in ["b", "c"] {
        put_labelled(&stage, b"damaged", label)?;
    }
    fs::remove_file(stage.fleet.join("component.json"))?;
    stage.wait_for_text(&status, "reason: ComponentNotFound")?;
    stage.follows_port(0, 7443)?;
    let log = agent.stop()?;
    ensure!(log.matches("ComponentInvalid").count() == 1, "{log}");
    Ok(())
}

#[test]
fn what_is_put_back_while_another_component_is_compiled_is_loaded_again() -> Result<()> {
    let (good, slow) = (program::component("kubeconfig")?, slow(3)?);
    for named in ["decide.wasm", "configmap:transom/mine/k"] {
        let stage = Stage::new(1, 0)?;
        stage.put_policy(POLICY, &[("builtin:kubeconfig", named)])?;
        let put_component = |component: &[u8]| match named {
            "decide.wasm" => put(&stage.policies.join(POLICY).join(named), component),
            _ => put_config_map(&stage, component),
        };
        put_component(&good)?;
        let agent = stage.run().and_then(|mut command| {
            // Without what an earlier run compiled.
            command.env("XDG_CACHE_HOME", stage.path("cache"));
            command.args(["--sources", "builtin,file,configmap:transom/mine"]);
            Agent::start(&mut command, stage.path("log"))
        })?;
        stage.wait_for_secret(0, "the secret", |_| true)?;
        put_component(&slow)?;
        let compiler = |but: &[u32]| {
            let running = || agent.children().ok().filter(|all| !all.is_empty());
            agent.wait("a compiler", || running().filter(|all| all != but))
        };
        // The first one is ended after two seconds; what it compiled is read again, and given to a second one.
        compiler(&compiler(&[])?)?;
        put_component(&good)?;
        agent.wait_for_lines(1, &["WorldMismatch"])?;
        stage.wait_for_text(&stage.policy_status(POLICY), "reason: Loaded")?;
        agent.stop()?;
    }
    Ok(())
}

#[test]
fn a_policy_and_its_config_map_may_come_together() -> Result<()> {
    let stage = Stage::new(1, 0)?;
    let agent = stage.run().and_then(|mut command| {
        command.args(["--sources", "builtin,configmap:transom/mine"]);
        Agent::start(&mut command, stage.path("log"))
    })?;
    let taints = stage.policy_status("built-in-taints");
    stage.wait_for_text(&taints, "reason: Loaded")?;
    stage.put_policy(
        POLICY,
        &[("builtin:kubeconfig", "configmap:transom/mine/k")],
    )?;
    put_config_map(&stage, &program::component("kubeconfig")?)?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_policy_whose_keys_are_taken_stays_refused_when_its_component_changes() -> Result<()> {
    let stage = Stage::new(1, 1)?;
    put_config_map(&stage, &program::component("kubeconfig")?)?;
    stage.put_policy(
        POLICY,
        &[("builtin:kubeconfig", "configmap:transom/mine/k")],
    )?;
    stage.put_policy("built-in-taints", &[])?;
    let second = fs::read_to_string(program::policy("built-in-taints"))?
        .replace("name: built-in-taints", "name: a-second")
        .replace("builtin:taints", "configmap:transom/mine/t");
    let agent = stage.run().and_then(|mut command| {
        command.args(["--sources", "builtin,configmap:transom/mine"]);
        Agent::start(&mut command, stage.path("log"))
    })?;
    let first = stage.wait_for_secret(0, "the secret", |_| true)?;
    put(
        &stage.policies.join("second/policy.yaml"),
        second.as_bytes(),
    )?;
    let status = stage.policy_status("a-second");
    stage.wait_for_text(&status, "reason: TaintKeyTaken")?;
    // Its component changes, together with that of a policy that swaps.
    put_config_map(&stage, &program::component("fixture-second")?)?;
    let other = |secret: &Secret| secret.component != first.component;
    stage.wait_for_secret(0, "the secret of the second version", other)?;
    put_config_map(&stage, &program::component("kubeconfig")?)?;
    let again = |secret: &Secret| secret.component == first.component;
    stage.wait_for_secret(0, "the secret of the first version", again)?;
    let told = fs::read_to_string(&status)?;
    ensure!(
        told.contains("reason: TaintKeyTaken") && !told.contains("decide: sha256"),
        "{told}"
    );
    let log = agent.stop()?;
    ensure!(!log.contains("a-second: loaded"), "{log}");
    Ok(())
}

#[test]
fn a_removed_policy_leaves_its_objects_in_place() -> Result<()> {
    let (stage, _) = stage()?;
    let agent = stage.watch()?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    fs::remove_file(stage.policies.join(POLICY).join("policy.yaml"))?;
    stage.wait_for_end(&stage.policy_status(POLICY))?;
    stage.wait_for_end(&stage.hosted_status(0))?;
    ensure!(stage.secret(0).exists());
    agent.stop()?;
    Ok(())
}

#[test]
fn refuses_an_invalid_policy_and_names_the_field() -> Result<()> {
    let (stage, _) = stage()?;
    let agent = stage.watch()?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    let (policy, status) = (
        stage.policies.join(POLICY).join("policy.yaml"),
        stage.policy_status(POLICY),
    );
    let good = fs::read_to_string(&policy)?;
    let mistakes = [
        ("  own:", "  owns:", "PolicyInvalid", "spec.owns"),
        (
            "prune: WhenSourceDeleted",
            "prune: SourceGoen",
            "PolicyInvalid",
            "spec.own.prune",
        ),
        (
            "clusterDomain: cluster.local",
            "clusterDomian: cluster.local",
            "SettingsRefused",
            "clusterDomian",
        ),
        (
            "clusterDomain: cluster.local",
            "clusterDomain: Cluster Local",
            "SettingsRefused",
            "clusterDomain",
        ),
    ];
    for (from, to, reason, field) in mistakes {
        ensure!(good.contains(from), "the policy does not hold `{from}`");
        put(&policy, good.replace(from, to).as_bytes())?;
        let look = || {
            let told = fs::read_to_string(&status).ok()?;
            (told.contains(&format!("reason: {reason}")) && told.contains(field)).then_some(())
        };
        wait::until(&format!("{reason} for {field}"), DEADLINE, look)?;
    }
    stage.follows_port(0, 7443)?;
    // A change to valid settings takes effect completely.
    put(
        &policy,
        good.replace("clusterDomain: cluster.local", "clusterDomain: \"\"")
            .as_bytes(),
    )?;
    stage.wait_for_secret(0, "the short host", |secret| {
        secret.server.ends_with(".svc:7443")
    })?;
    stage.wait_for_secret(1, "the short host", |secret| {
        secret.server.contains(".svc:")
    })?;
    stage.wait_for_text(&status, "reason: Loaded")?;
    agent.stop()?;
    Ok(())
}

/// A policy with a slow component.
fn put_slow(stage: &Stage, functions: usize) -> Result<()> {
    put_hostile(stage, "slow", "good", ("good.wasm", "slow.wasm"))?;
    put(&stage.policies.join("slow.wasm"), &slow(functions)?)
}

/// A component that needs 1.5 seconds of compile time for each function, and little memory: nested loops, with as many
/// locals changed in the innermost.
fn slow(functions: usize) -> Result<Vec<u8>> {
    const DEPTH: usize = 120;
    let mut text = format!(
        "(func (local{}){}",
        " i32".repeat(DEPTH),
        "(loop".repeat(DEPTH)
    );
    for local in 0..DEPTH {
        write!(
            text,
            "(local.set {local} (i32.add (local.get {local}) (i32.const 1)))"
        )?;
    }
    (0..DEPTH).try_for_each(|local| write!(text, "(br_if 0 (local.get {local})))"))?;
    text.push(')');
    good_with(&text.repeat(functions))
}

#[test]
fn a_long_compilation_blocks_no_other_policy_and_stops_on_exit() -> Result<()> {
    let stage = Stage::new(0, 60)?;
    stage.put_policy(GOOD, &[])?;
    // Of the three components that the agent compiles at its start, one takes longer than allowed, and one as long as
    // allowed.
    put_bomb(&stage)?;
    put_slow(&stage, 14)?;
    put_hostile(&stage, "small", "good", ("", ""))?;
    let mut agent = watch(&stage)?;
    works_on(&stage)?;
    wait_for_status(&stage, "small", "edge-00008", "InSync")?;
    agent.wait("a compiler", || {
        agent.children().ok().filter(|all| !all.is_empty())
    })?;
    put(
        &stage.policies.join("good.wasm"),
        &good_with("(func (param i64))")?,
    )?;
    agent.wait_for_lines(1, &["swapped", "policy=small"])?;
    put_hostile(&stage, "late", "good", ("good.wasm", "late.wasm"))?;
    put(
        &stage.policies.join("late.wasm"),
        &good_with("(func (param f32))")?,
    )?;
    wait_for_status(&stage, "late", "edge-00008", "InSync")?;
    let suspended = fs::read_to_string(stage.policies.join("small.yaml"))?
        .replace("spec:\n", "spec:\n  suspend: true\n");
    put(&stage.policies.join("small.yaml"), suspended.as_bytes())?;
    wait_for_status(&stage, "small", "edge-00008", "Suspended")?;
    let log = agent.log()?;
    ensure!(
        !log.lines().any(|line| line.contains("policy=slow")),
        "it was compiled too soon to hold up anybody\n{log}"
    );
    let compilers = agent.children()?;
    ensure!(!compilers.is_empty(), "nothing is being compiled");
    within_shipped(&mut agent, "a long compilation")?;
    agent.kill()?;
    Ok(wait::until("the end of the compiler", DEADLINE, || {
        compilers.iter().all(|one| has_ended(*one)).then_some(())
    })?)
}

#[test]
fn caches_a_slow_compilation_across_a_kill() -> Result<()> {
    let stage = Stage::new(0, 10)?;
    stage.put_policy(GOOD, &[])?;
    put_slow(&stage, 3)?;
    // What is written anew is another file; what is used only gets another time.
    let kept = || -> Result<Vec<u64>> {
        let mut all = Vec::new();
        for file in fs::read_dir(stage.path("cache").join("transom/code"))? {
            all.push(file?.metadata()?.ino());
        }
        all.sort_unstable();
        Ok(all)
    };
    let agent = watch(&stage)?;
    wait_for_status(&stage, "slow", "edge-00008", "InSync")?;
    agent.kill()?;
    let before = kept().context("nothing was kept")?;
    // The bundled components, and this one.
    ensure!(before.len() >= 2, "{before:?}");
    fs::remove_dir_all(stage.own().join("status/slow"))?;
    let agent = watch(&stage)?;
    wait_for_status(&stage, "slow", "edge-00008", "InSync")?;
    agent.stop()?;
    ensure!(kept()? == before, "it was compiled again");
    Ok(())
}
