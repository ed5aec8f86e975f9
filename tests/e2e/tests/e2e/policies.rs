//! One policy, component or file blocks no other, and a policy's limits apply whatever its component does.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_e2e::swap::POLICY;

/// A stage whose kubeconfig policy has its component in a file; also returns the path of the policy's file.
fn stage() -> Result<(Stage, PathBuf, PathBuf)> {
    let stage = Stage::new(1, 0)?;
    stage.put_policy(POLICY, &[("builtin:kubeconfig", "decide.wasm")])?;
    let folder = stage.policies.join(POLICY);
    let (policy, component) = (folder.join("policy.yaml"), folder.join("decide.wasm"));
    put(&component, &program::component("kubeconfig")?)?;
    Ok((stage, policy, component))
}

/// Replaces a text, which must exist.
fn edit(path: &Path, from: &str, to: &str) -> Result<()> {
    let text = fs::read_to_string(path)?;
    ensure!(
        text.contains(from),
        "{} does not hold `{from}`",
        path.display()
    );
    put(path, text.replace(from, to).as_bytes())
}

fn suspend(policy: &Path) -> Result<()> {
    edit(policy, "\nspec:", "\nspec:\n  suspend: true")
}

#[test]
fn suspending_and_narrowing_apply_even_if_the_component_fails() -> Result<()> {
    let (stage, policy, component) = stage()?;
    let (agent, status, primary) = (
        stage.watch()?,
        stage.policy_status(POLICY),
        stage.hosted_status(0),
    );
    let first = stage.wait_for_secret(0, "the secret", |_| true)?;
    put(&component, b"no component")?;
    stage.wait_for_text(&status, "reason: ComponentInvalid")?;
    agent.wait_for_lines(1, &["refused: "])?;
    // Suspended, even if the rest of the manifest is invalid.
    for nonsense in ["", "\n  nonsense: 1"] {
        edit(
            &policy,
            "\nspec:",
            &format!("\nspec:\n  suspend: true{nonsense}"),
        )?;
        stage.wait_for_text(&primary, "reason: Suspended")?;
        stage.set_port(0, 7443)?;
        stage.wait_for_text(
            &status,
            "the previous revision stays active within the limits of this manifest",
        )?;
        edit(&policy, &format!("\n  suspend: true{nonsense}"), "")?;
        stage.wait_for_secret(0, "the port of what goes on", |secret| {
            secret.server.ends_with(":7443")
        })?;
        stage.set_port(0, 6443)?;
        stage.wait_for_secret(0, "the first port", |secret| secret.server == first.server)?;
    }
    // Each of these manifests was refused, and each refusal was reported.
    agent.wait_for_lines(5, &["refused: "])?;
    // Narrowed to a name that the previous revision does not write.
    edit(
        &policy,
        "      name: external-managed-kubeconfig\n",
        "      name: other\n",
    )?;
    stage.wait_for_text(&primary, "reason: WriteNotGranted")?;
    ensure!(stage.secret(0).exists(), "what was made was removed");
    ensure!(
        fs::read_to_string(&status)?.contains("reason: ComponentInvalid"),
        "the refusal is told no more"
    );
    // A manifest that is not valid ends that: what it says besides `suspend` does not count.
    edit(&policy, "\nspec:", "\nspec:\n  nonsense: 1")?;
    stage.wait_for_text(&status, "reason: PolicyInvalid")?;
    stage.set_port(0, 7443)?;
    stage.wait_for_secret(0, "the port", |secret| secret.server.ends_with(":7443"))?;
    agent.stop()?;
    Ok(())
}

#[test]
fn what_a_suspended_policy_leaves_of_a_primary_that_is_gone_is_held() -> Result<()> {
    let (stage, policy, _) = stage()?;
    ensure!(stage.once()?.status.success());
    suspend(&policy)?;
    fs::remove_file(stage.hosted(0))?;
    ensure!(stage.once()?.status.success() && stage.secret(0).exists());
    let mut status = stage.transom()?;
    status.arg("status").arg("--dir").arg(&stage.fleet);
    let output = status.arg("--policies").arg(&stage.policies).output()?;
    let shown = String::from_utf8(output.stdout)?;
    ensure!(
        shown.contains("Held") && shown.contains("Suspended"),
        "{shown}"
    );
    ensure!(!shown.contains("SourceDeleted"), "{shown}");
    Ok(())
}

#[test]
fn a_constantly_changing_file_blocks_no_other() -> Result<()> {
    let (stage, policy, _) = stage()?;
    let busy = fs::read_to_string(program::policy("built-in-taints"))?;
    let files = ["busy.yaml", "busy.log", "sub/busy.txt"].map(|name| stage.policies.join(name));
    fs::create_dir_all(stage.policies.join("sub"))?;
    let agent = stage.watch()?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            let mut count = 0_u64;
            while !over.load(Ordering::Relaxed) {
                count += 1;
                files
                    .iter()
                    .try_for_each(|file| fs::write(file, format!("{busy}\n# {count}\n")))?;
            }
            Ok(())
        });
        let suspended = suspend(&policy)
            .and_then(|()| stage.wait_for_text(&stage.hosted_status(0), "reason: Suspended"));
        over.store(true, Ordering::Relaxed);
        writer
            .join()
            .map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        suspended
    })?;
    // The constantly changing file is loaded, too.
    stage.wait_for_text(&stage.policy_status("built-in-taints"), "reason: Loaded")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn detects_a_new_component_of_equal_size_and_time() -> Result<()> {
    let (stage, _, component) = stage()?;
    let agent = stage.watch()?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    let (good, time) = (fs::read(&component)?, fs::metadata(&component)?.modified()?);
    let bad = vec![0; good.len()];
    // Overwritten in place, and replaced.
    for in_place in [true, false] {
        for (bytes, reason) in [(&bad, "ComponentInvalid"), (&good, "Loaded")] {
            let path = if in_place {
                component.clone()
            } else {
                stage.path("other")
            };
            fs::write(&path, bytes)?;
            fs::File::options()
                .write(true)
                .open(&path)?
                .set_modified(time)?;
            fs::rename(&path, &component)?;
            stage.wait_for_text(&stage.policy_status(POLICY), &format!("reason: {reason}"))?;
        }
    }
    agent.stop()?;
    Ok(())
}

#[test]
fn refuses_a_component_outside_the_folder_and_blocks_no_other() -> Result<()> {
    let (stage, policy, _) = stage()?;
    let taints = fs::read_to_string(program::policy("built-in-taints"))?;
    std::os::unix::fs::symlink("/etc/passwd", stage.policies.join("link.wasm"))?;
    let places = [
        "/",
        "/proc/self/environ",
        "../..",
        "../fleet",
        "link.wasm",
        "../../../../../etc/shadow",
    ];
    for (at, place) in places.into_iter().enumerate() {
        let manifest = taints
            .replace("builtin:taints", place)
            .replace("name: built-in-taints", &format!("name: out-{at}"));
        put(
            &stage.policies.join(format!("out-{at}.yaml")),
            manifest.as_bytes(),
        )?;
    }
    let agent = stage.watch()?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    for at in 0..places.len() {
        stage.wait_for_text(
            &stage.policy_status(&format!("out-{at}")),
            "reason: ComponentNotAllowed",
        )?;
    }
    suspend(&policy)?;
    stage.wait_for_text(&stage.hosted_status(0), "reason: Suspended")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn a_budget_is_tried_like_any_revision_and_stays_within_what_the_agent_allows() -> Result<()> {
    let (stage, policy, _) = stage()?;
    let (agent, status) = (stage.watch()?, stage.policy_status(POLICY));
    stage.wait_for_secret(0, "the secret", |_| true)?;
    stage.wait_for_text(&status, "reason: Loaded")?;
    edit(
        &policy,
        "\nspec:",
        "\nspec:\n  budget: {memoryBytes: 16777217}",
    )?;
    stage.wait_for_text(&status, "reason: BudgetNotAllowed")?;
    let message = "`spec.budget.memoryBytes`: 16777217 is more than the agent allows, 16777216";
    stage.wait_for_text(&status, message)?;
    // A budget that is too small for the answers of the guest never becomes active.
    edit(&policy, "memoryBytes: 16777217", "answerBytes: 10")?;
    stage.wait_for_text(&status, "reason: AnswerTooLarge")?;
    stage.wait_for_text(&status, "gate: Answers")?;
    stage.set_port(0, 7443)?;
    stage.wait_for_secret(0, "the new port, by the active revision", |secret| {
        secret.server.ends_with(":7443")
    })?;
    edit(&policy, "answerBytes: 10", "answerBytes: 100000")?;
    stage.wait_for_text(&status, "reason: Loaded")?;
    agent.stop()?;
    Ok(())
}

#[test]
fn folders_that_are_links_to_each_other_end() -> Result<()> {
    let (stage, _, _) = stage()?;
    for (target, link) in [
        (".", "here"),
        (".", "again"),
        ("..", "external-managed-kubeconfig/up"),
    ] {
        std::os::unix::fs::symlink(target, stage.policies.join(link))?;
    }
    let output = stage
        .transom()?
        .arg("validate")
        .arg(&stage.policies)
        .output()?;
    let said = String::from_utf8(output.stdout).context("it is no text")?;
    ensure!(
        said.lines()
            .filter(|line| line.starts_with("valid "))
            .count()
            == 1,
        "{said}"
    );
    let output = stage.once()?;
    ensure!(
        output.status.success() && stage.secret(0).exists(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[test]
fn a_manifest_that_cannot_be_read_leaves_its_policy_active_and_is_told_in_its_status() -> Result<()>
{
    let (stage, policy, _) = stage()?;
    let (agent, status) = (stage.watch()?, stage.policy_status(POLICY));
    stage.wait_for_text(&status, "reason: Loaded")?;
    stage.wait_for_secret(0, "the secret", |_| true)?;
    let good = fs::read_to_string(&policy)?;
    let misspelt = |from: &str, to: &str| good.replace(from, to);
    for (number, bad, why) in [
        (7001, "{".to_owned(), ""),
        (
            7002,
            misspelt("kind: FleetPolicy", "kind: FleetPolcy"),
            "`kind`: is not FleetPolicy",
        ),
        (
            7003,
            misspelt("transom.dev/v1alpha1", "transom.dv/v1alpha1"),
            "`apiVersion`: is not transom.dev/v1alpha1",
        ),
    ] {
        put(&policy, bad.as_bytes())?;
        stage.wait_for_text(&status, "reason: ManifestInvalid")?;
        stage.wait_for_text(&status, why)?;
        let port = format!(":{number}");
        stage.set_port(0, number)?;
        stage.wait_for_secret(0, "the port, by what stays active", |secret| {
            secret.server.ends_with(&port)
        })?;
        put(&policy, good.as_bytes())?;
        stage.wait_for_text(&status, "reason: Loaded")?;
    }
    agent.stop()?;
    Ok(())
}
