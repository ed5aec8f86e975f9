//! The output of helm and kustomize for the files: objects as JSON. Applies nothing.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize as _;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use transom_e2e::program;
use transom_test_cluster::{helm, kubectl};

/// A folder of `host/deploy`.
pub fn folder(name: &str) -> PathBuf {
    program::root().join("host/deploy").join(name)
}

/// The objects of the chart with these arguments.
///
/// # Errors
/// With helm's error.
pub fn chart(arguments: &[&str]) -> Result<Vec<Value>> {
    let mut helm = helm()?;
    helm.args(["template", "transom"])
        .arg(folder("chart"))
        .args(["--namespace", "transom", "--include-crds"]);
    objects(&said(helm.args(arguments))?)
}

/// The objects of a folder for kustomize.
///
/// # Errors
/// With kubectl's error.
pub fn kustomization(name: &str) -> Result<Vec<Value>> {
    let mut kubectl = kubectl()?;
    objects(&said(kubectl.arg("kustomize").arg(folder(name)))?)
}

/// A kustomization of an operator: the base with components on top. It is removed when the value is dropped.
///
/// # Errors
/// When it cannot be written.
pub fn overlay(components: &[&str]) -> Result<TempDir> {
    let overlay = tempfile::Builder::new()
        .prefix("overlay-")
        .tempdir()
        .context("failed to make a folder")?;
    let deploy = folder(".")
        .canonicalize()
        .context("failed to find host/deploy")?;
    let link = overlay.path().join("deploy");
    std::os::unix::fs::symlink(&deploy, &link)
        .with_context(|| format!("failed to write `{}`", link.display()))?;
    let list = components
        .iter()
        .map(|name| format!("deploy/{name}"))
        .collect::<Vec<_>>()
        .join(", ");
    let path = overlay.path().join("kustomization.yaml");
    let text = format!("resources: [deploy/base]\ncomponents: [{list}]\n");
    fs::write(&path, text).with_context(|| format!("failed to write `{}`", path.display()))?;
    Ok(overlay)
}

/// The standard output of a command; on failure its standard error is the error.
///
/// # Errors
/// When it cannot be started, or fails.
pub fn said(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("failed to start {:?}", command.get_program()))?;
    if !output.status.success() {
        let program = PathBuf::from(command.get_program());
        let name = program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        bail!(
            "{name} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).context("a command printed something else than text")
}

/// The objects of a YAML text; documents with only comments do not count.
///
/// # Errors
/// When it is not well-formed.
pub fn objects(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let value =
            Value::deserialize(document).context("what was rendered is not well-formed YAML")?;
        if !value.is_null() {
            objects.push(value);
        }
    }
    Ok(objects)
}

/// `Kind namespace/name`, which identifies an object.
pub fn name(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let place = match text("/metadata/namespace") {
        namespace if namespace.is_empty() => String::new(),
        namespace => format!("{namespace}/"),
    };
    format!("{} {place}{}", text("/kind"), text("/metadata/name"))
}
