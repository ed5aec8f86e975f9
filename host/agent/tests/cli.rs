//! What the command line prints and its exit codes on correct use. Refusals and cases have their own files.
#![cfg(test)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn transom(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_transom"))
        .args(words)
        .current_dir(root())
        .output()
        .unwrap()
}

/// Exit code and both outputs.
fn said(words: &[&str]) -> (Option<i32>, String, String) {
    let output = transom(words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn render_signals_changes_by_exit_code_if_asked() {
    let case = |name: &str| format!("policies/external-managed-kubeconfig/cases/{name}/given.yaml");
    let (code, shown, _) = said(&[
        "render",
        &case("T01-port-443"),
        "--policies",
        "policies",
        "--reveal",
        "-o",
        "json",
        "--exit-code",
    ]);
    let list: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (
            code,
            list["kind"].as_str(),
            list["items"].as_array().map(Vec::len)
        ),
        (Some(3), Some("List"), Some(1))
    );
    let (code, shown, told) = said(&["render", &case("T01-port-443")]);
    assert_eq!(code, Some(0));
    assert!(told.contains("1  would be Applied  InSync"), "{told}");
    assert!(shown.contains("<redacted client-key"), "{shown}");
    let (code, _, told) = said(&["render", &case("T20-second-run"), "--exit-code"]);
    assert_eq!(code, Some(0));
    assert!(
        told.contains("1  Applied ") && !told.contains("would be"),
        "{told}"
    );
    let (_, _, told) = said(&["render", &case("G02-not-available")]);
    assert!(
        told.contains("HostedCluster clusters/demo [external-managed-kubeconfig]: NotAvailable"),
        "{told}"
    );
    // The case's own settings apply, even over the bundled policies: without its grace period a taint would be added.
    let graceful = "policies/built-in-taints/cases/X20-within-the-grace-period/given.yaml";
    assert_eq!(
        said(&["render", graceful, "--now", "2026-11-21T08:00:00Z"]).0,
        Some(0)
    );
    let (code, _, error) = said(&["render", &case("E12-no-clusters")]);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("NoClusters"), "{error}");
}

#[test]
fn reveals_names_but_no_credentials() {
    let case = "policies/external-managed-kubeconfig/cases/T01-port-443/given.yaml";
    let config = |words: &[&str]| {
        let (code, shown, told) = said(&[&["render", case, "-o", "json"], words].concat());
        assert_eq!(code, Some(0), "{told}");
        let list: serde_json::Value = serde_json::from_str(&shown).unwrap();
        (list["items"][0]["data"]["kubeconfig"].clone(), shown)
    };
    let (hidden, _) = config(&[]);
    assert!(
        hidden["contexts"][0]["name"]
            .as_str()
            .unwrap()
            .starts_with("<redacted name"),
        "{hidden}"
    );
    let (named, shown) = config(&["--reveal=names"]);
    for (pointer, name) in [
        ("/contexts/0/name", "admin"),
        ("/clusters/0/name", "cluster"),
        ("/current-context", "admin"),
    ] {
        assert_eq!(
            named.pointer(pointer).and_then(serde_json::Value::as_str),
            Some(name),
            "{named}"
        );
    }
    assert!(
        shown.contains("<redacted client-key") && !shown.contains("LS0tLS1"),
        "{shown}"
    );
    let (_, diff, _) = said(&["render", case, "--diff", "--reveal=names"]);
    assert!(
        diff.contains("current-context: admin") && !diff.contains("LS0tLS1"),
        "{diff}"
    );
    // Without a value, everything is revealed.
    let (_, everything, _) = said(&["render", "--reveal", case]);
    assert!(!everything.contains("<redacted"), "{everything}");
    assert_eq!(said(&["render", case, "--reveal=nonsense"]).0, Some(2));
}

#[test]
fn bundled_policies_are_valid_and_explained() {
    assert_eq!(said(&["validate"]).0, Some(0));
    for guest in ["builtin:kubeconfig", "builtin:taints", "builtin:trigger"] {
        let (code, shown, _) = said(&["inspect", guest, "-o", "json"]);
        let about: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(
            (code, &about["imports"]),
            (Some(0), &serde_json::json!(["transom:policy/panic@0.1.0"])),
            "{shown}"
        );
    }
    for word in ["OwnedByAnother", "NoCertificateAuthority", "NotAvailable"] {
        let (code, shown, _) = said(&["explain", word]);
        assert_eq!(code, Some(0));
        assert!(shown.contains("What to do:"), "{shown}");
    }
    for command in [
        "run",
        "render",
        "status",
        "test",
        "validate",
        "inspect",
        "explain",
        "componentize",
        "completion",
    ] {
        assert!(
            said(&[command, "--help"]).1.contains("Examples:"),
            "{command}"
        );
    }
}

#[test]
fn explains_states_and_reasons_of_other_guests() {
    for word in ["Held", "wouldapply", "Healthy", "Swapped"] {
        let (code, shown, _) = said(&["explain", word]);
        assert!(
            code == Some(0) && shown.contains("What it means:"),
            "{word}: {shown}"
        );
    }
    for words in [
        ["--component", "builtin:trigger"],
        ["--policies", "policies"],
    ] {
        let (code, shown, told) = said(&["explain", words[0], words[1], "NotAvailable"]);
        assert!(
            code == Some(0) && shown.contains("What to do:"),
            "{words:?}: {told}"
        );
    }
    // With a named component, only its reasons are known.
    assert_eq!(
        said(&["explain", "--component", "builtin:taints", "NotAvailable"]).0,
        Some(2)
    );
    let (_, shown, _) = said(&["inspect", "builtin:trigger"]);
    assert!(shown.contains("  to do     "), "{shown}");
    let (code, _, told) = said(&["inspect", "taints"]);
    assert!(
        code == Some(2) && told.contains("`builtin:taints`"),
        "{told}"
    );
    let (code, _, told) = said(&["test", "no-such-folder"]);
    assert!(
        code == Some(2) && told.contains("transom test PATH"),
        "{told}"
    );
}

#[test]
fn renders_standard_input_and_several_files_as_one() {
    let case = root().join("policies/external-managed-kubeconfig/cases/G03-available/given.yaml");
    let text = std::fs::read_to_string(case).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let documents: Vec<&str> = text.split("\n---\n").collect();
    assert!(documents.len() > 2);
    let files: Vec<String> = (0..2)
        .map(|number| folder.path().join(number.to_string()).display().to_string())
        .collect();
    std::fs::write(&files[0], documents[0]).unwrap();
    std::fs::write(&files[1], documents[1..].join("\n---\n")).unwrap();
    let (code, whole, told) = said(&["render", &files[0], &files[1], "-o", "table"]);
    assert!(
        code == Some(0) && whole.contains("klusterlet-demo/external-managed-kubeconfig"),
        "{told}"
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_transom"))
        .args(["render", "-", "-o", "table"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout),
        whole
    );
    let (code, _, told) = said(&["render", &files[0], "policies"]);
    assert!(
        code == Some(2) && told.contains("a folder must be the only path"),
        "{told}"
    );
}

#[test]
fn prints_the_version_and_shell_completions() {
    let (code, version, _) = said(&["version"]);
    assert_eq!((code, version), (Some(0), said(&["--version"]).1));
    for (shell, words) in [
        ("bash", ["complete", "--secret-reads"]),
        ("zsh", ["#compdef transom", "--secret-reads"]),
        ("fish", ["complete -c transom", "secret-reads"]),
    ] {
        let (code, script, told) = said(&["completion", shell]);
        assert!(
            code == Some(0) && words.iter().all(|word| script.contains(word)),
            "{shell}: {script}{told}"
        );
    }
    assert_eq!(said(&["completion", "tcsh"]).0, Some(2));
    let script = transom(&["completion", "bash"]).stdout;
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin.take().unwrap().write_all(&script).unwrap();
    assert!(bash.wait().unwrap().success());
}
