//! Policies whose guest is a component of `tests/fixtures`.

use crate::program;
use crate::stage::put;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Puts a policy without limits and its component into a folder, and returns the file of the policy. `spec` has
/// everything but the guest and the limits.
///
/// # Errors
/// When the component is not built, or the folder cannot be written.
pub fn put_policy(
    folder: &Path,
    name: &str,
    fixture: &str,
    settings: &Value,
    mut spec: Value,
) -> Result<PathBuf> {
    ensure!(
        spec.get("guests").is_none() && spec.get("limits").is_none(),
        "the spec of `{name}` has a guest or limits of its own"
    );
    let (component, bytes) = (format!("{fixture}.wasm"), program::component(fixture)?);
    let path = folder.join(&component);
    // What is the same is not written again: an agent may be running.
    if fs::read(&path).ok().as_ref() != Some(&bytes) {
        put(&path, &bytes)?;
    }
    spec["guests"] = json!({"decide": {"component": component, "settings": settings}});
    spec["limits"] = program::unlimited();
    let policy = json!({"apiVersion": "transom.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": name}, "spec": spec});
    let file = folder.join("policy.yaml");
    put(&file, policy.to_string().as_bytes())?;
    Ok(file)
}
