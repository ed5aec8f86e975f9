//! Which package may depend on which: arrows point to core and api, only the agent uses two adapters together, and host
//! and guest share only wit. Direct dependencies only: others cannot be imported.

use serde_json::Value;
use std::path::Path;

/// The cluster's client, which only `host/cluster` knows.
const KUBE: [&str; 3] = ["kube", "kube-client", "kube-runtime"];

/// For a package by its folder: the packages of the workspace that it may use, and the external ones that it must not.
fn border(folder: &str) -> Option<(&'static [&'static str], &'static [&'static str])> {
    Some(match folder {
        "host/api" => (&[], &["tokio", "tracing", "wasmtime"]),
        "host/core" => (
            &["transom-api"],
            &["tokio", "tracing", "wasmtime", "notify", "anyhow"],
        ),
        "host/engine" => (&["transom-core"], &[]),
        "host/cluster" | "host/artifacts" => (&["transom-core", "transom-api"], &["wasmtime"]),
        "host/agent" => (
            &[
                "transom-api",
                "transom-core",
                "transom-engine",
                "transom-cluster",
                "transom-artifacts",
            ],
            &["wasmtime", "wit-bindgen"],
        ),
        "guest/sdk" => (&[], &["tokio", "wasmtime", "anyhow"]),
        _ if folder.starts_with("guest/") || folder.starts_with("tests/fixtures/") => {
            (&["transom-guest"], &["tokio", "wasmtime"])
        }
        _ => return None,
    })
}

/// What a guest that ships may depend on, with the features that the workspace turns on. They are built together: a
/// feature that one of them turns on would change the bytes, and so the digests, of all.
const OF_GUESTS: [(&str, &[&str]); 3] = [
    ("transom-guest", &[]),
    ("serde", &["derive"]),
    ("serde_json", &[]),
];

/// Whether a dependency of a guest changes what others are built with.
fn changes_others(dependency: &Value) -> bool {
    let allowed = OF_GUESTS
        .iter()
        .find(|(name, _)| dependency["name"] == *name);
    let features = dependency["features"].as_array().into_iter().flatten();
    let mut features = features.filter_map(Value::as_str);
    allowed.is_none_or(|(_, allowed)| features.any(|one| !allowed.contains(&one)))
}

/// Dependencies that break a rule, in the output of `cargo metadata --no-deps`. Tools and tests may use everything;
/// nothing that ships may use them.
pub fn check(metadata: &Value) -> Vec<String> {
    let packages = || metadata["packages"].as_array().into_iter().flatten();
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let folder = |package: &Value| -> Option<String> {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let folder = manifest.parent()?.strip_prefix(root).ok()?;
        Some(folder.to_string_lossy().into_owned())
    };
    let mut findings = Vec::new();
    for package in packages() {
        let (own, at) = (&package["name"], folder(package).unwrap_or_default());
        let is_test = at.starts_with("tests/") && !at.starts_with("tests/fixtures/");
        if at == "host/xtask" || is_test {
            continue;
        }
        let Some((ours, never)) = border(&at) else {
            findings.push(format!("{own}: add its folder to `border` in tests/tidy"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let (name, dev) = (
                dependency["name"].as_str().unwrap_or_default(),
                dependency["kind"] == "dev",
            );
            let wrong = match packages().find(|package| package["name"] == name) {
                Some(other) => {
                    let for_tests = dev && folder(other).is_some_and(|at| at.starts_with("tests/"));
                    !ours.contains(&name) && !for_tests && other["name"] != *own
                }
                None => {
                    never.contains(&name) && !dev || KUBE.contains(&name) && at != "host/cluster"
                }
            };
            let is_guest = at.starts_with("guest/") && at != "guest/sdk";
            if wrong {
                findings.push(format!(
                    "{own}: must not depend on `{name}` (host/README.md, Crates)"
                ));
            } else if is_guest && !dev && changes_others(dependency) {
                findings.push(format!(
                    "{own}: `{name}` changes what the other guests are built with; only transom-guest, serde and serde_json \
                     can be used, as the workspace has them"
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A small workspace in which a package in this folder has a dependency (`dev:` in front for tests only).
    fn findings(folder: &str, on: &str) -> usize {
        let dependency = match on.strip_prefix("dev:") {
            Some(name) => json!({"name": name, "kind": "dev"}),
            None => {
                let (name, feature) = on.split_once('/').unzip();
                json!({"name": name.unwrap_or(on), "kind": null, "features": feature.as_slice()})
            }
        };
        let mut packages = vec![
            json!({"name": "probe", "manifest_path": format!("/w/{folder}/Cargo.toml"), "dependencies": [dependency]}),
        ];
        for (name, folder) in [
            ("transom-api", "host/api"),
            ("transom-core", "host/core"),
            ("transom-engine", "host/engine"),
            ("transom-cluster", "host/cluster"),
            ("transom-guest", "guest/sdk"),
            ("transom-taints", "guest/taints"),
            ("transom-support", "tests/support"),
        ] {
            packages.push(json!({"name": name, "manifest_path": format!("/w/{folder}/Cargo.toml"), "dependencies": []}));
        }
        check(&json!({"workspace_root": "/w", "packages": packages})).len()
    }

    #[test]
    fn arrows_point_to_core_and_api_and_each_library_has_its_crate() {
        for (folder, on) in [
            (
                "host/core",
                "transom-api serde dev:transom-support dev:proptest",
            ),
            ("host/agent", "transom-engine transom-cluster tokio"),
            ("host/engine", "transom-core wasmtime tracing"),
            ("host/cluster", "transom-core kube"),
            (
                "guest/new",
                "transom-guest serde/derive serde_json dev:proptest",
            ),
            (
                "tests/conformance",
                "transom-engine wasmtime transom-taints",
            ),
        ] {
            for on in on.split(' ') {
                assert_eq!(findings(folder, on), 0, "{folder} on {on}");
            }
        }
        for (folder, on) in [
            ("host/api", "transom-core kube-runtime"),
            (
                "host/core",
                "transom-engine transom-support tokio tracing wasmtime kube",
            ),
            ("host/engine", "transom-cluster kube"),
            ("host/cluster", "transom-engine wasmtime"),
            ("host/artifacts", "wasmtime"),
            ("host/agent", "transom-taints wasmtime"),
            ("host/new", "serde"),
            ("guest/sdk", "transom-core"),
            (
                "guest/new",
                "transom-core transom-taints dev:transom-core kube-client time serde/rc transom-guest/testing",
            ),
            ("tests/fixtures/loops", "transom-core"),
        ] {
            for on in on.split(' ') {
                assert_eq!(findings(folder, on), 1, "{folder} on {on}");
            }
        }
    }
}
