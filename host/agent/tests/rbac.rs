//! What `transom rbac` prints for the bundled policies, and when it prints nothing.
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rbac(words: &[&str]) -> (Option<i32>, String, String) {
    transom("rbac", words)
}

/// Exit code and both outputs.
fn transom(command: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let mut transom = Command::new(env!("CARGO_BIN_EXE_transom"));
    let output = transom
        .arg(command)
        .args(words)
        .current_dir(root())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Compares the output with a file of this test's folder; `UPDATE=1` writes the file.
fn is_as_kept(name: &str, words: &[&str]) {
    let (code, shown, error) = rbac(words);
    assert_eq!(code, Some(0), "{shown}");
    // The output mentions what RBAC cannot bind, and nothing else.
    let secrets = shown.contains("external-managed-kubeconfig");
    let mut lines = error.lines();
    let said = !error.is_empty() && lines.all(|line| line.contains("every Secret of `local`"));
    assert!(said == secrets && (secrets || error.is_empty()), "{error}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/rbac")
        .join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &shown).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap() == shown,
        "{name} differs; look at it and run this test with UPDATE=1"
    );
    assert!(!shown.contains("\"*\""), "a wildcard");
}

#[test]
fn permissions_of_bundled_policies_match_the_agreed_ones() {
    let all = [
        "--policy-objects",
        "--lease-namespace",
        "agents",
        "--admin-address",
        "0.0.0.0:8080",
    ];
    let strict = [
        "--policies",
        "policies",
        "--secret-reads",
        "strict",
        "--namespace",
        "agents",
    ];
    is_as_kept("watch.yaml", &[]);
    is_as_kept("strict.yaml", &[&all[..], &strict].concat());
    is_as_kept("all.txt", &[&all[..], &["-o", "table"]].concat());
    is_as_kept("read-only.txt", &["--read-only", "-o", "table"]);
    is_as_kept(
        "taints.json",
        &[
            "--policies",
            "policies/built-in-taints",
            "-o",
            "json",
            "--service-account",
            "agent",
        ],
    );
    is_as_kept("table.txt", &["-o", "table"]);
}

#[test]
fn exact_namespaces_get_roles_and_other_connections_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let shipped =
        fs::read_to_string(root().join("policies/external-managed-kubeconfig/policy.yaml"))
            .unwrap();
    let exact = shipped
        .replace(r#"namespaces: ["*"]"#, "namespaces: [clusters]")
        .replace("{role: klusterlet, ", "{role: klusterlet, cluster: hub, ");
    fs::write(folder.path().join("policy.yaml"), exact).unwrap();
    let policies = folder.path().to_str().unwrap();
    let (code, shown, told) = rbac(&["--policies", policies]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        shown.contains(
            "kind: Role\nmetadata:\n  name: \"transom-policies\"\n  namespace: \"clusters\"\n"
        ),
        "{shown}"
    );
    assert!(
        !shown.contains("klusterlets") && told.contains("--connection hub"),
        "{told}"
    );
    let (_, shown, _) = rbac(&["--policies", policies, "--connection", "hub", "-o", "table"]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert!(
        shown.contains("klusterlets.operator.open-cluster-management.io"),
        "{shown}"
    );
    // The Lease is on `local` or, without a connection of this name, on the first one.
    let lease = [
        "--policies",
        policies,
        "-o",
        "table",
        "--lease-namespace",
        "agents",
        "--context",
        "hub=there",
    ];
    for (more, has) in [
        (vec!["--connection", "hub"], true),
        (vec!["--connection", "hub", "--context", "here"], false),
        (vec!["--connection", "local", "--context", "here"], true),
        (vec!["--connection", "local"], false),
    ] {
        let (_, shown, _) = rbac(&[&lease[..], &more].concat());
        assert_eq!(
            shown.contains("leases.coordination.k8s.io"),
            has,
            "{more:?}: {shown}"
        );
    }
}

#[test]
fn a_refused_policy_prints_nothing_to_apply() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = fs::read_to_string(root().join("policies/built-in-taints/policy.yaml")).unwrap();
    fs::write(folder.path().join("a.yaml"), &shipped).unwrap();
    for (text, why) in [
        (shipped.clone(), "is defined in two places"),
        (shipped.replace("spec:", "spek:"), "spek"),
    ] {
        fs::write(folder.path().join("b.yaml"), text).unwrap();
        let (code, shown, told) = rbac(&["--policies", folder.path().to_str().unwrap()]);
        assert_eq!((code, shown.as_str()), (Some(1), ""));
        assert!(
            told.starts_with("refused: ") && told.contains(why),
            "{told}"
        );
    }
    let (code, _, told) = rbac(&["--policies", "no-such-folder"]);
    assert!(code == Some(2) && told.contains("no-such-folder"), "{told}");
    assert_eq!(rbac(&["--namespace", "Not-A-Label"]).0, Some(2));
}

#[test]
fn a_policy_that_names_a_record_of_the_agent_is_refused_offline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.yaml");
    let shipped = fs::read_to_string(root().join("policies/detach/policy.yaml")).unwrap();
    let file = path.to_str().unwrap();
    let (rbac, validate) = ("rbac", "validate");
    for (command, namespace, more, refused) in [
        (rbac, "transom", &[][..], true),
        (rbac, "agents", &["--lease-namespace", "agents"], true),
        (rbac, "agents", &[], false),
        (validate, "transom", &[], true),
        (validate, "agents", &[], false),
    ] {
        let record = format!(
            "write:\n    - {{apiVersion: v1, kind: ConfigMap, namespace: {namespace}, name: transom-limits, verbs: [remove]}}"
        );
        fs::write(&path, shipped.replacen("write:", &record, 1)).unwrap();
        let (code, shown, told) = transom(command, &[&["--policies", file], more].concat());
        let why = format!(
            "`spec.grant.write[0].name`: ConfigMap {namespace}/transom-limits belongs to the agent itself"
        );
        assert_eq!(code, Some(i32::from(refused)), "{command}: {shown}{told}");
        assert_eq!(format!("{shown}{told}").contains(&why), refused, "{told}");
    }
}

#[test]
fn a_place_without_a_policy_prints_nothing_to_apply() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for format in ["yaml", "values", "json", "table"] {
        // The test gives no standard input.
        let folder = format!("`{path}`");
        for (place, named) in [(path, folder.as_str()), ("-", "standard input")] {
            let (code, shown, told) = rbac(&["--policies", place, "-o", format]);
            assert_eq!((code, shown.as_str()), (Some(2), ""), "{format}");
            let why = format!("failed to find a policy in {named}");
            assert!(told.contains(&why), "{told}");
        }
        // Of an agent without policies.
        let alone = ["--policies", path, "-o", format, "--lease-namespace", "a"];
        let (code, shown, _) = rbac(&alone);
        assert_eq!(
            (code, shown.is_empty()),
            if format == "values" {
                (Some(2), true)
            } else {
                (Some(0), false)
            }
        );
    }
    fs::write(folder.path().join("a.yaml"), "a: [\n").unwrap();
    let (code, shown, told) = rbac(&["--policies", path]);
    assert_eq!((code, shown.as_str()), (Some(1), ""));
    assert!(told.contains("a.yaml"), "{told}");
}
