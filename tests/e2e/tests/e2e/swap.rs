//! A component or policy is replaced while the agent runs: completely, or not at all and with a reason.

use anyhow::{Result, ensure};
use std::fs;
use std::path::PathBuf;
use transom_e2e::agent::{Agent, DEADLINE};
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_e2e::swap::{POLICY, Swap};
use transom_support::wait;

/// The maximum growth of memory from one half of the swaps to the other.
const GROWTH_BYTES: u64 = 8 << 20;

#[test]
fn swaps_under_constant_change_lose_and_mix_nothing() -> Result<()> {
    let swapped = Swap {
        clusters: 8,
        swaps: 10,
    }
    .run()?;
    ensure!(swapped.edits > 10 && swapped.read > 100, "{swapped:?}");
    ensure!(swapped.growth() < GROWTH_BYTES, "memory grew: {swapped:?}");
    Ok(())
}

#[test]
#[ignore = "takes minutes: cargo xtask soak"]
fn soak() -> Result<()> {
    let swap = Swap {
        clusters: 20,
        swaps: 100,
    };
    let swapped = swap.run()?;
    println!("{swap:?}: {swapped:?}");
    ensure!(swapped.growth() < GROWTH_BYTES, "memory grew");
    Ok(())
}

/// A stage whose kubeconfig policy has its component in a file.
fn stage() -> Result<(Stage, PathBuf)> {
    let stage = Stage::new(2, 0)?;
    stage.put_policy(POLICY, &[("builtin:kubeconfig", "decide.wasm")])?;
    let component = stage.policies.join(POLICY).join("decide.wasm");
    put(&component, &program::component("kubeconfig")?)?;
    Ok((stage, component))
}

/// Whether the agent still follows changes of the user.
fn goes_on(stage: &Stage, from: &str, to: &str) -> Result<()> {
    stage.edit(
        &stage.hosted(0),
        &format!("port: {from}\n    protocol"),
        &format!("port: {to}\n    protocol"),
    )?;
    stage.wait_for_secret(0, "the new port", |secret| {
        secret.server.ends_with(&format!(":{to}"))
    })?;
    Ok(())
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
    goes_on(&stage, "6443", "7443")?;
    // A component of another world, a missing one, and the first again.
    put(&component, &program::component("taints")?)?;
    stage.wait_for_text(&status, "reason: WorldMismatch")?;
    fs::remove_file(&component)?;
    stage.wait_for_text(&status, "reason: ComponentNotFound")?;
    goes_on(&stage, "7443", "8443")?;
    put(&component, &good)?;
    stage.wait_for_text(&status, "reason: Loaded")?;
    goes_on(&stage, "8443", "9443")?;
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
    goes_on(&stage, "6443", "7443")?;
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
