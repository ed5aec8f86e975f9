//! How commands end when they refuse something: exit codes, and a one-line error, whatever it quotes. `cli.rs` covers
//! successful commands. Needs built guests (`cargo xtask guests`).
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Exit code, standard output and standard error of the binary.
fn transom(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_transom"))
        .args(args)
        .current_dir(top())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn ends(args: &[&str], code: i32) {
    let (found, out, errors) = transom(args);
    assert_eq!(found, Some(code), "{args:?}\n{out}{errors}");
}

const TAINTS: &str = "policies/built-in-taints";

#[test]
fn validate_fails_on_a_policy_that_cannot_be_loaded() {
    ends(&["validate"], 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.yaml");
    let policy = fs::read_to_string(top().join(TAINTS).join("policy.yaml")).unwrap();
    fs::write(
        &path,
        policy.replace("  primary:\n", "  surplus: 1\n  primary:\n"),
    )
    .unwrap();
    let (code, out, _) = transom(&["validate", path.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.contains("refused") && out.contains("spec.surplus"),
        "{out}"
    );
}

#[test]
fn validate_refuses_duplicates_and_shows_what_a_grant_reaches() {
    let folder = tempfile::tempdir().unwrap();
    let shipped =
        std::fs::read_to_string(top().join("policies/external-managed-kubeconfig/policy.yaml"))
            .unwrap();
    let path = folder.path().join("dup.yaml");
    std::fs::write(&path, &shipped).unwrap();
    let (code, said, _) = transom(&["validate", path.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("every Secret of `local`") && said.contains("spec.grant.read[0] (source)"),
        "{said}"
    );
    std::fs::write(&path, format!("{shipped}---\n{shipped}")).unwrap();
    let (code, said, _) = transom(&["validate", path.to_str().unwrap()]);
    assert_eq!(
        (code, said.matches("is defined in 2 places").count()),
        (Some(1), 2),
        "{said}"
    );
    // An error about a component names the file and the folders that were searched.
    std::fs::write(folder.path().join("bad.wasm"), "no component").unwrap();
    for (component, words) in [
        (
            "bad.wasm",
            [
                "ComponentInvalid",
                "bad.wasm",
                "it is not a WebAssembly component",
            ],
        ),
        (
            "none.wasm",
            ["ComponentNotFound", "none.wasm", "--components"],
        ),
        (
            "../none.wasm",
            ["ComponentNotAllowed", "none.wasm", "--components"],
        ),
        (
            "builtin:kubecofnig",
            ["ComponentNotFound", "`kubeconfig`", "`taints`"],
        ),
    ] {
        std::fs::write(&path, shipped.replace("builtin:kubeconfig", component)).unwrap();
        let (code, said, _) = transom(&["validate", path.to_str().unwrap()]);
        assert!(
            code == Some(1) && words.iter().all(|word| said.contains(word)),
            "{component}: {said}"
        );
    }
}

#[test]
fn inspect_fails_on_a_component_that_cannot_be_loaded() {
    ends(&["inspect", "builtin:taints"], 0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.wasm");
    // The preamble of a component without content.
    fs::write(&path, b"\0asm\x0d\0\x01\0").unwrap();
    let (code, out, _) = transom(&["inspect", path.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("cannot be loaded"), "{out}");
}

#[test]
fn inspect_says_in_one_line_that_a_file_is_not_a_component() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.wasm");
    let path = path.to_str().unwrap();
    for (bytes, why) in [
        (&b""[..], "it is not a WebAssembly component"),
        (b"no\ncomponent at all", "it is not a WebAssembly component"),
        (
            b"\x7fELF\x02\x01\x01\0\0\0\0\0",
            "it is not a WebAssembly component",
        ),
        (
            b"\0asm\x01\0\0\0",
            "it is a core module, not a component (`transom componentize` makes one)",
        ),
        (
            b"\0asm\x0a\0\x01\0",
            "it has an unsupported version of the WebAssembly format",
        ),
    ] {
        fs::write(path, bytes).unwrap();
        let (code, out, errors) = transom(&["inspect", path]);
        let want = format!("failed to inspect `{path}`: failed to compile component: {why}\n");
        assert_eq!((code, out.as_str(), errors), (Some(2), "", want));
    }
}

#[test]
fn wrong_usage_exits_with_2_and_names_the_attempt_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.wasm");
    fs::write(&text, "no\ncomponent").unwrap();
    let (empty, text) = (folder.path().join("empty"), text.to_str().unwrap());
    fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    for args in [
        &["run", "--dir", "no/such/folder", "--once"][..],
        &["run", "--dir", empty, "--dir", empty, "--once"],
        &["render", "no/such/folder"],
        &["render", empty, "--policies", "no/such/folder"],
        &["test", "no/such/folder"],
        &["test", empty],
        &["validate", "no/such/folder"],
        &["validate", empty],
        &["inspect", "no/such/file"],
        &["inspect", "builtin:nobody"],
        &["inspect", text],
        &["explain", "Nonsense"],
    ] {
        let (code, out, errors) = transom(args);
        assert_eq!(code, Some(2), "{args:?}\n{out}{errors}");
        assert_eq!(errors.lines().count(), 1, "{args:?}\n{errors}");
        assert!(errors.starts_with("failed to "), "{args:?}\n{errors}");
        assert_eq!(out, "", "{args:?}");
    }
}

#[test]
fn unknown_flags_exit_with_2() {
    for args in [
        &["nonsense"][..],
        &["render"],
        &["run"],
        &["test", "--nonsense"],
        &["render", ".", "--now", "noon"],
    ] {
        ends(args, 2);
    }
}
