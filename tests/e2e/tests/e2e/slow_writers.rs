//! Files of policies that are written slowly, or moved, under a running agent: nothing counts half or is lost.

use crate::rollout::{
    self, POLICY, failing, history, put_component, revision, status, wait_for, wait_for_taints,
};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use transom_e2e::agent::DEADLINE;
use transom_e2e::program;
use transom_e2e::stage::{Stage, put};
use transom_support::wait;

/// The manifest with another component, up to the demand of an approval, and that demand.
fn candidate(component: &str) -> Result<[String; 2]> {
    let text = fs::read_to_string(program::policy(POLICY))?;
    let text = program::without_limits(&text).replace("builtin:taints", component);
    Ok([text, "  rollout: {mode: Preview}\n".to_owned()])
}

/// A program that has the file open all the time.
const OPEN: &str = r#"{ sleep 2.5; printf %s "$1"; sleep 2.5; printf %s "$2"; } > "$0""#;
/// Programs that write a piece each.
const PIECES: &str = r#": > "$0"; for piece; do sleep 1; printf %s "$piece" >> "$0"; done"#;
/// A program that removes the file, and writes another text elsewhere.
const MOVED: &str = r#"rm "$0"; sleep 1; printf %s "$2" > "$1.draft"; mv "$1.draft" "$1""#;

/// Runs a slow program of the shell to its end.
fn shell(script: &str, path: &Path, words: &[String; 2]) -> Result<()> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(path).args(words);
    let status = command.status()?;
    ensure!(status.success(), "{script} ended with {status}");
    Ok(())
}

/// Approves the candidate that waits, by a file that replaces the manifest.
fn approve(stage: &Stage, path: &Path) -> Result<()> {
    let digest = || status(stage, "/candidate/approve");
    let digest = wait::until("a plan to approve", DEADLINE, digest)?;
    let digest = digest.as_str().context("it is no text")?;
    let approved = format!("metadata:\n  annotations: {{transom.dev/approved: \"{digest}\"}}\n");
    let text = fs::read_to_string(path)?.replace("metadata:\n", &approved);
    put(path, text.as_bytes())
}

#[test]
fn a_policy_that_is_written_slowly_or_moved_keeps_its_revisions_and_is_never_taken_half()
-> Result<()> {
    let stage = rollout::stage()?;
    let folder = stage.policies.join(POLICY);
    let path = folder.join("policy.yaml");
    put(&folder.join("second.wasm"), &failing()?)?;
    let agent = rollout::watch(&stage, "log")?;
    wait_for_taints(&stage, "a", 1)?;
    let first = revision(&stage)?;
    // Empty, then a whole manifest that demands no approval.
    shell(OPEN, &path, &candidate("second.wasm")?)?;
    wait_for(&stage, "/candidate/reason", "ApprovalRequired")?;
    ensure!(revision(&stage)? == first, "half a manifest became active");
    approve(&stage, &path)?;
    wait_for_taints(&stage, "a", 0)?;
    let second = rollout::another_revision(&stage, &first)?;
    put_component(&stage, &program::variant("taints", b'x')?)?;
    shell(PIECES, &path, &candidate("decide.wasm")?)?;
    wait_for(&stage, "/candidate/reason", "ApprovalRequired")?;
    ensure!(revision(&stage)? == second, "half a manifest became active");
    let moved = folder.join("moved.yaml");
    let words = [
        moved.display().to_string(),
        candidate("none.wasm")?.concat(),
    ];
    shell(MOVED, &path, &words)?;
    wait_for(&stage, "/candidate/reason", "ComponentNotFound")?;
    ensure!(revision(&stage)? == second, "the policy began anew");
    let kept = history(&stage)?;
    ensure!(kept.len() == 2, "{kept:?}");
    // A policy whose file goes for good is removed.
    fs::remove_file(moved)?;
    agent.wait_for_lines(1, &["policy removed"])?;
    agent.stop().map(drop)
}
