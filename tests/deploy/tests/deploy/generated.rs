//! Generated files match their sources, and all places name one version. Repairs nothing.

use anyhow::{Context as _, Result};
use serde_json::Value;
use transom_test_deploy::{generated, rendered};

#[test]
fn generated_files_match_their_sources() -> Result<()> {
    let all = generated::all()?;
    let old: Vec<&str> = all
        .iter()
        .filter(|file| !file.is_current())
        .map(|file| file.path.as_str())
        .collect();
    assert!(
        old.is_empty(),
        "not up to date: {}; run `cargo xtask deploy`",
        old.join(", ")
    );
    Ok(())
}

#[test]
fn chart_and_base_have_the_current_version() -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let chart: Value = serde_yaml::from_str(&std::fs::read_to_string(
        rendered::folder("chart").join("Chart.yaml"),
    )?)?;
    assert_eq!([&chart["version"], &chart["appVersion"]], [version; 2]);
    let base = rendered::kustomization("base")?;
    let deployment = base
        .iter()
        .find(|object| object["kind"] == "Deployment")
        .context("the base has no Deployment")?;
    assert_eq!(
        deployment.pointer("/spec/template/spec/containers/0/image"),
        Some(&format!("transom:{version}").into())
    );
    Ok(())
}
