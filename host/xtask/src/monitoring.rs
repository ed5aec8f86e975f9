//! `cargo xtask monitoring`: writes rules, dashboards and documentation from the one list of metrics. A test compares
//! what is committed with what would be written.

mod alert;
mod dashboards;
mod document;
mod health;
mod objective;
mod rules;
mod slo;

use crate::{progress, workspace};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs;

/// One install is one job in one namespace.
const INSTALL: &str = "namespace, job";

/// Writes every file.
pub(crate) fn run() -> Result<()> {
    let root = workspace::read()?.root;
    for (path, text) in files() {
        let file = root.join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("failed to create `{}`", folder.display()))?;
        }
        fs::write(&file, text).with_context(|| format!("failed to write `{}`", file.display()))?;
        progress::say(&format!("    {path}"));
    }
    Ok(())
}

/// Paths below the root of the workspace, and the text of each file.
fn files() -> [(&'static str, String); 5] {
    [
        ("host/deploy/monitoring/rules.yaml", rules::text()),
        (
            "host/deploy/monitoring/dashboards/service-level.json",
            json(&dashboards::objectives()),
        ),
        (
            "host/deploy/monitoring/dashboards/generation.json",
            json(&dashboards::indicators()),
        ),
        (
            "host/deploy/monitoring/dashboards/agent.json",
            json(&dashboards::agent()),
        ),
        ("host/docs/metrics.md", document::text()),
    ]
}

fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn value(text: &str) -> Option<Value> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn committed_files_match_the_generated_ones() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (path, text) in files() {
            let committed = fs::read_to_string(root.join(path)).unwrap_or_default();
            // The order of keys in JSON depends on enabled features of other crates.
            let same = match path.ends_with(".json") {
                true => value(&committed) == value(&text),
                false => committed == text,
            };
            assert!(
                same,
                "{path} is not up to date: run `cargo xtask monitoring`"
            );
        }
    }
}
