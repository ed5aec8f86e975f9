//! What a user is told beside the results of a command: errors of a case, wrong use, log lines.
#![cfg(test)]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

fn transom(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command.args(words).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_case_with_a_misspelt_field_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("given.yaml");
    let case = "apiVersion: transom.dev/v1alpha1\nkind: Case\nspec: {setings: {}}\n";
    let two = case.replace("{setings: {}}", "{}");
    for (text, wanted) in [
        (case.to_owned(), "unknown field `setings`"),
        (format!("{two}---\n{two}"), "it contains two cases"),
    ] {
        fs::write(&path, text).unwrap();
        let output = transom(&["render", path.to_str().unwrap()]);
        let told = told(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(wanted), "{told}");
    }
    // A document beside the case is the folder's to report.
    fs::write(&path, format!("{two}---\nkind: [\n")).unwrap();
    let output = transom(&["render", path.to_str().unwrap()]);
    let told = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("ManifestInvalid"), "{told}");
}

#[test]
fn a_difference_has_one_form() {
    let output = transom(&["render", "fleet", "--diff", "-o", "json"]);
    let told = told(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("cannot be used with"), "{told}");
}

#[test]
fn the_log_filter_counts_for_commands_that_end_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let line = |filter: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
        command
            .args(["history", "mine", "--dir"])
            .arg(folder.path());
        let told = told(&command.env("RUST_LOG", filter).output().unwrap());
        assert!(told.contains("failed to find a revision of mine"), "{told}");
        told.contains("using the directory")
    };
    assert_eq!([line("info"), line("")], [true, false]);
}

#[test]
fn wrong_usage_exits_with_2_and_names_the_attempt_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.wasm");
    fs::write(&text, "no\ncomponent").unwrap();
    let (empty, text) = (folder.path().join("empty"), text.to_str().unwrap());
    fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    for line in [
        "run --dir no/such/folder --once".to_owned(),
        format!("run --dir {empty} --dir {empty} --once"),
        "render no/such/folder".to_owned(),
        format!("render {empty} --policies no/such/folder"),
        "test no/such/folder".to_owned(),
        format!("test {empty}"),
        "validate no/such/folder".to_owned(),
        format!("validate {empty}"),
        "inspect no/such/file".to_owned(),
        "build no/such/folder".to_owned(),
        format!("build {empty}"),
        "inspect builtin:nobody".to_owned(),
        format!("inspect {text}"),
        "explain Nonsense".to_owned(),
    ] {
        let output = transom(&line.split(' ').collect::<Vec<_>>());
        let errors = told(&output);
        assert_eq!(output.status.code(), Some(2), "{line}\n{errors}");
        assert_eq!(errors.lines().count(), 1, "{line}\n{errors}");
        assert!(errors.starts_with("failed to "), "{line}\n{errors}");
        assert!(output.stdout.is_empty(), "{line}");
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
        &["render", ".", "--cluster-name", "My_Cluster"],
        &["render", ".", "--self-managed-cluster", "hub.example"],
    ] {
        assert_eq!(transom(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn explain_notes_the_manifests_that_it_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let explain = || {
        let output = transom(&["explain", "--policies", path, "NotAvailable"]);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), shown, told(&output))
    };
    let (code, _, said) = explain();
    let named = format!("failed to find a policy in `{path}`");
    assert!(code == Some(2) && said.contains(&named), "{said}");
    fs::write(folder.path().join("broken.yaml"), "a: [\n").unwrap();
    let (code, _, said) = explain();
    assert!(code == Some(2) && said.contains("broken.yaml"), "{said}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let policy = root.join("policies/external-managed-kubeconfig/policy.yaml");
    fs::copy(policy, folder.path().join("policy.yaml")).unwrap();
    let (code, shown, said) = explain();
    assert!(code == Some(0) && shown.contains("What to do:"), "{said}");
    assert!(said.contains("broken.yaml"), "{said}");
}

#[test]
fn each_of_many_manifests_of_one_policy_is_told_in_a_short_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.yaml");
    let one = "apiVersion: transom.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: p}\n---\n";
    fs::write(&path, one.repeat(1_000)).unwrap();
    let output = transom(&["validate", path.to_str().unwrap()]);
    let shown = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!((output.status.code(), lines.len()), (Some(1), 1_000));
    for line in lines {
        assert!(
            line.contains("is defined in 1000 places: ") && line.len() < 1_000,
            "{line}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_not_said_to_be_absent() {
    let folder = tempfile::tempdir().unwrap();
    let asked = |path: &Path| {
        let path = path.to_str().unwrap();
        let output = transom(&["status", "--dir", path, "ManagedCluster", "mine"]);
        (output.status.code(), told(&output))
    };
    let (code, said) = asked(folder.path());
    assert!(
        code == Some(2) && said.contains("no policy has such a primary"),
        "{said}"
    );
    fs::write(folder.path().join("broken.yaml"), "a: [\n").unwrap();
    let (code, said) = asked(folder.path());
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("it may exist") && !said.contains("no policy has such"),
        "{said}"
    );
}

#[test]
fn a_history_that_cannot_be_read_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = r#"{
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c"
    }"#;
    fs::write(&kubeconfig, text).unwrap();
    let output = transom(&[
        "history",
        "mine",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
}

#[test]
fn explain_asks_no_server_that_only_a_policy_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.yaml");
    let registry = TcpListener::bind("127.0.0.1:0").unwrap();
    registry.set_nonblocking(true).unwrap();
    let image = format!("oci:{}/team/guest:v1", registry.local_addr().unwrap());
    let policy = format!(
        "apiVersion: transom.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {{name: p}}\nspec:\n  guests:\n    \
         decide: {{component: \"{image}\"}}\n"
    );
    fs::write(&path, policy).unwrap();
    let explain = |words: &[&str]| {
        let given = ["explain", "--policies", path.to_str().unwrap()];
        told(&transom(&[&given[..], words].concat()))
    };
    let said = explain(&["Word"]);
    assert!(
        said.contains(&image) && said.contains("--sources"),
        "{said}"
    );
    assert!(registry.accept().is_err(), "the registry was asked");
    // With its source allowed it is asked, and named when it gives nothing.
    drop(registry);
    let said = explain(&["--sources", "oci:*", "Word"]);
    assert!(
        said.contains(&image) && !said.contains("--sources"),
        "{said}"
    );
}

#[test]
fn what_would_be_deleted_is_told_although_the_primary_waits_for_its_end() {
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/detach");
    let folder = tempfile::tempdir().unwrap();
    let given = policies.join("cases/H08-hosted/given.yaml");
    let path = folder.path().join("given.yaml");
    fs::copy(given, &path).unwrap();
    let policy = policies.join("policy.yaml");
    let words = ["--policies", policy.to_str().unwrap()];
    let render = [&["render", path.to_str().unwrap()], &words[..]].concat();
    let told = told(&transom(&render));
    assert!(told.contains("would delete ManagedCluster demo"), "{told}");
    let folder = folder.path().to_str().unwrap();
    let status = transom(&[&["status", "--dir", folder], &words[..]].concat());
    let shown = String::from_utf8_lossy(&status.stdout);
    let row = shown.lines().last().unwrap_or_default();
    assert!(row.starts_with("WouldApply"), "{shown}");
    let message = "delete ManagedCluster demo: its guest removes it; waits until";
    assert!(row.contains(message), "{shown}");
}

#[test]
fn a_component_that_a_person_names_is_told_without_flags_of_policies() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.wasm");
    fs::write(&text, "no component at all").unwrap();
    let (none, text) = ("no/such.wasm", text.to_str().unwrap());
    let (to, out) = ("oci:localhost:1/x:v1", folder.path().join("out"));
    let (missing, no_component) = ("No such file", "it is not a WebAssembly component");
    for (words, code, why) in [
        (vec!["digest", none], 1, missing),
        (vec!["inspect", none], 2, missing),
        (vec!["push", none, to], 1, missing),
        (vec!["policy", "init", none], 2, missing),
        (vec!["push", text, to], 1, no_component),
        (vec!["test", text], 2, no_component),
        (vec!["bench", text], 2, no_component),
        (vec!["digest", to], 1, "failed to connect to the registry"),
        (vec!["digest", "oci:x"], 2, "REGISTRY/REPOSITORY:TAG"),
        (vec!["push", text, "oci:x"], 2, "REGISTRY/REPOSITORY:TAG"),
        (vec!["push", text, "x"], 2, "is not in a registry"),
        (
            vec!["pull", "oci:x", "-o", out.to_str().unwrap()],
            2,
            "REGISTRY/REPOSITORY:TAG",
        ),
        (
            vec!["componentize", text, "-o", out.to_str().unwrap()],
            1,
            "not a WebAssembly module",
        ),
        (
            vec!["history", "mine", "--dir", text],
            1,
            "it is not a folder",
        ),
    ] {
        let output = transom(&words);
        let told = told(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
        assert!(
            told.contains(why) && !told.contains("--components"),
            "{words:?}: {told}"
        );
    }
}

/// The policy `built-in-taints` as it is shipped.
fn shipped() -> String {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../policies/built-in-taints/policy.yaml"
    );
    fs::read_to_string(path).unwrap()
}

#[test]
fn validate_names_the_field_and_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.yaml");
    let one = shipped();
    let (name, component) = ("name: built-in-taints", "builtin:taints");
    let key = "spec:\n  verify: {keys: [{name: k, file: k.pub}]}\n";
    let (first, nameless) = (format!("{one}---\n"), one.replace(name, "name: 5"));
    for (text, told) in [
        (
            one.replace(component, "configmap:a/b/c"),
            "spec.guests.decide: component `configmap:a/b/c` is not allowed",
        ),
        (
            one.replace("spec:\n", key),
            "k.pub` (paths are relative to the policy's own file",
        ),
        (one.replace("spec:\n", key), "): No such file or directory"),
        (format!("{first}{one}"), "p.yaml, document 1; "),
        (
            format!("{first}{one}"),
            "p.yaml, document 2): PolicyInvalid",
        ),
        (
            format!("{first}{nameless}"),
            "p.yaml, document 2): PolicyInvalid",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let output = transom(&[
            "validate",
            "--sources",
            "builtin,file",
            path.to_str().unwrap(),
        ]);
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains(told), "{told}: {shown}");
    }
}

#[test]
fn a_file_that_is_given_twice_is_named_as_the_user_named_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    fs::write(
        &path,
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n",
    )
    .unwrap();
    let place = path.to_str().unwrap();
    let told = told(&transom(&["render", place, place]));
    let both = format!("{place}, document 1, {place}, document 1 (copy 2): DuplicateObject");
    assert!(told.contains(&both), "{told}");
}

#[test]
fn validate_reads_a_policy_as_an_api_server_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.yaml");
    let one = shipped();
    let name = |instead: &str| one.replace("name: built-in-taints", instead);
    let spec = |more: &str| one.replace("spec:\n", &format!("spec:\n{more}"));
    for (text, told) in [
        // A null is as good as absent.
        (
            spec("  verify: {mode: null, keys: [{name: k, configMap: trust/keys/c.pub}]}\n"),
            "the components and settings are not checked: this command does not read `configmap:trust",
        ),
        (name("nam: a"), "`metadata.name`: is missing"),
        (
            name("name: a\n  annotations: {a: 1}"),
            "PolicyInvalid: `metadata.annotations.a`: is integer",
        ),
        (
            spec("  resyncSeconds: 1\n  resyncSeconds: 1\n"),
            "`spec.resyncSeconds`: a duplicate key",
        ),
        (
            spec("  rollout: {mode: {Shadow: null}}\n"),
            "`spec.rollout.mode`: is a mapping, expected a string",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let sources = ["--sources", "builtin,configmap:trust/keys"];
        let output = transom(&[&["validate", path.to_str().unwrap()], &sources[..]].concat());
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains(told), "{told}: {shown}");
    }
}

#[test]
fn what_could_only_fail_later_is_wrong_use() {
    let to = "oci:localhost:1/x:v1";
    for (words, why) in [
        (vec!["pull", to, "-o", "-"], "written to a file"),
        (vec!["componentize", "a", "-o", "-"], "written to a file"),
        (vec!["build", "-o", "-"], "written to a file"),
        (
            vec!["digest", to, "--registry-http", "10.0.0.1:80"],
            "`10.0.0.1:80` is not on this machine",
        ),
    ] {
        let output = transom(&words);
        let told = told(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
        assert!(told.contains(why), "{words:?}: {told}");
    }
}
