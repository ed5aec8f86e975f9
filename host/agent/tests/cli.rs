//! What the command line shows and how it ends when it is used right. Refusals and cases have files of their own.
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn transom(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_transom")).args(words).current_dir(root()).output().unwrap()
}

/// Exit code and both outputs.
fn said(words: &[&str]) -> (Option<i32>, String, String) {
    let output = transom(words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn rendering_says_by_its_code_whether_something_would_change() {
    let case = |name: &str| format!("policies/external-managed-kubeconfig/cases/{name}/given.yaml");
    let (code, shown, _) = said(&["render", &case("T01-port-443"), "--policies", "policies", "--reveal", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, list["kind"].as_str(), list["items"].as_array().map(Vec::len)), (Some(3), Some("List"), Some(1)));
    let (code, shown, _) = said(&["render", &case("T01-port-443")]);
    assert_eq!(code, Some(3));
    assert!(shown.contains("<redacted client-key"), "{shown}");
    assert_eq!(said(&["render", &case("T20-second-run")]).0, Some(0));
    // The case's own settings count, also over the policies that ship: without its grace period a taint would be added.
    let graceful = "policies/built-in-taints/cases/X20-within-the-grace-period/given.yaml";
    assert_eq!(said(&["render", graceful, "--now", "2026-11-21T08:00:00Z"]).0, Some(0));
    let (code, _, error) = said(&["render", &case("E12-no-clusters")]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("NoClusters"), "{error}");
}

#[test]
fn what_ships_is_valid_and_explains_itself() {
    assert_eq!(said(&["validate"]).0, Some(0));
    for guest in ["builtin:kubeconfig", "builtin:taints", "builtin:trigger"] {
        let (code, shown, _) = said(&["inspect", guest, "-o", "json"]);
        let about: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((code, about["imports"].as_array().map(Vec::len)), (Some(0), Some(0)), "{shown}");
    }
    for word in ["TargetClaimed", "NoCertificateAuthority", "NotAvailable"] {
        let (code, shown, _) = said(&["explain", word]);
        assert_eq!(code, Some(0));
        assert!(shown.contains("What to do:"), "{shown}");
    }
    for command in ["run", "render", "test", "validate", "inspect", "explain"] {
        assert!(said(&[command, "--help"]).1.contains("Examples:"), "{command}");
    }
}
