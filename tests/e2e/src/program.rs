//! The paths of the binary and the built components, and how a command ended. The binary is always built from these
//! sources.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

/// The binary `transom` with the features that it has in the whole workspace, built once per process: `cargo test`
/// builds it only for the tests of its own package.
///
/// # Errors
/// When it cannot be built.
pub fn binary() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BINARY.get_or_init(|| build().map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(error) => bail!("{error}; run `cargo build --workspace --bin transom`"),
    }
}

/// Names the binary that was built with the tests, so that it is not built again with other features.
const GIVEN: &str = "TRANSOM_BINARY";

fn build() -> Result<PathBuf> {
    if let Some(given) = env::var_os(GIVEN) {
        return PathBuf::from(&given)
            .canonicalize()
            .with_context(|| format!("failed to find the binary that {GIVEN} names"));
    }
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--workspace",
            "--bin",
            "transom",
            "--message-format=json-render-diagnostics",
        ])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .context("failed to start cargo")?;
    if !output.status.success() {
        bail!("failed to build `transom`: {}", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let executable = messages.lines().filter_map(executable_of).next_back();
    executable.context("cargo built `transom` and named no executable")
}

/// The executable that a cargo message names.
fn executable_of(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_ours = message.pointer("/target/name")?.as_str()? == "transom";
    message
        .get("executable")?
        .as_str()
        .filter(|_| is_ours)
        .map(PathBuf::from)
}

/// The file of a bundled policy.
pub fn policy(name: &str) -> PathBuf {
    root().join("policies").join(name).join("policy.yaml")
}

/// A bundled policy.
///
/// # Errors
/// When its file cannot be read.
pub fn manifest(name: &str) -> Result<Value> {
    Ok(serde_yaml::from_slice(&fs::read(policy(name))?)?)
}

/// A bundled policy without limits.
///
/// # Errors
/// As for [`manifest`].
pub fn unlimited_manifest(name: &str) -> Result<Value> {
    let mut manifest = manifest(name)?;
    manifest["spec"]["limits"] = unlimited();
    Ok(manifest)
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A built component.
///
/// # Errors
/// When it has not been built; the message says how.
pub fn component(name: &str) -> Result<Vec<u8>> {
    let target = binary()?
        .parent()
        .and_then(Path::parent)
        .context("the binary lies in no target folder")?;
    let path = target.join("guests").join(name).with_extension("wasm");
    fs::read(&path)
        .with_context(|| format!("component `{name}` is not built: run `cargo xtask guests`"))
}

/// A built component with a custom section at its end: each letter gives other bytes with the same behaviour.
///
/// # Errors
/// As for [`component`].
pub fn variant(name: &str, letter: u8) -> Result<Vec<u8>> {
    let mut bytes = component(name)?;
    bytes.extend([0, 2, 1, letter]);
    Ok(bytes)
}

/// The exit code of a command.
pub fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

/// The standard output of a command.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The standard error of a command.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The text of a bundled policy without limits.
pub fn without_limits(text: &str) -> String {
    let spec = format!("\nspec:\n  limits: {}\n", unlimited());
    let own = |line: &&str| !line.starts_with("  limits: ");
    let text: String = text.split_inclusive('\n').filter(own).collect();
    text.replacen("\nspec:\n", &spec, 1)
}

/// `spec.limits` of a policy for tests that change many objects on purpose.
pub fn unlimited() -> Value {
    let off = json!({"percent": 100});
    json!({"elementsAdded": off, "elementsRemoved": off, "objectsChanged": off, "objectsPruned": off})
}
