//! What the command line prints, and its exit codes; an error is one line, whatever it quotes. `rbac` and cases have
//! their own files. Needs built guests (`cargo xtask guests`).
#![cfg(test)]

use std::fs;
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

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Exit code and both outputs.
fn said(words: &[&str]) -> (Option<i32>, String, String) {
    texts(&transom(words))
}

/// The same with this text on standard input.
fn said_given(input: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_transom"))
        .args(words)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses a large input ends before it has read all of it.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    texts(&child.wait_with_output().unwrap())
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
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
    let policy_case = case("T01-port-443");
    let flags = "--policies policies/external-managed-kubeconfig --reveal -o json --exit-code";
    let (code, shown, _) = said(&words(&format!("render {policy_case} {flags}")));
    let list: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((code, list["kind"].as_str()), (Some(3), Some("List")));
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
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
            (Some(0), &serde_json::json!(["transom:policy/panic@0.2.0"])),
            "{shown}"
        );
    }
    for word in ["OwnedByAnother", "NoCertificateAuthority", "NotAvailable"] {
        let (code, shown, _) = said(&["explain", word]);
        assert_eq!(code, Some(0));
        assert!(shown.contains("What to do:"), "{shown}");
    }
    let commands = "run render status test validate inspect explain build componentize completion";
    for command in words(commands) {
        let (_, help, _) = said(&[command, "--help"]);
        assert!(help.contains("Examples:"), "{command}");
    }
}

#[test]
fn validates_a_budget_against_what_the_agent_allows() {
    let folder = tempfile::tempdir().unwrap();
    let policy = fs::read_to_string(root().join("policies/built-in-taints/policy.yaml")).unwrap();
    let asking = policy.replacen(
        "\nspec:",
        "\nspec:\n  budget: {timeMilliseconds: 251, logLines: 1}",
        1,
    );
    let file = folder.path().join("policy.yaml");
    fs::write(&file, asking).unwrap();
    let file = file.to_str().unwrap();
    let (code, shown, _) = said(&["validate", file]);
    let why =
        "BudgetNotAllowed: `spec.budget.timeMilliseconds`: 251 is more than the agent allows, 250";
    assert!(code == Some(1) && shown.contains(why), "{shown}");
    let allowing = |limit: &str| said(&["validate", file, "--call-limit", limit]);
    assert_eq!(allowing("timeMilliseconds=251").0, Some(0));
    assert_eq!(allowing("memoryBytes=33554432").0, Some(1));
    for (wrong, expected) in [
        ("patience=1", "NAME one of timeMilliseconds, memoryBytes"),
        ("timeMilliseconds=0", "a number from 1 to 60000"),
        ("timeMilliseconds=60001", "a number from 1 to 60000"),
        ("timeMilliseconds", "expected NAME=NUMBER"),
    ] {
        let (code, _, told) = allowing(wrong);
        assert!(code == Some(2) && told.contains(expected), "{told}");
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
    for guests in ["--component builtin:trigger", "--policies policies"] {
        let (code, shown, told) = said(&words(&format!("explain {guests} NotAvailable")));
        assert!(
            code == Some(0) && shown.contains("What to do:"),
            "{guests}: {told}"
        );
    }
    let two = "--component builtin:taints --component builtin:trigger";
    let (code, _, told) = said(&words(&format!("explain {two} NotAvailable")));
    assert_eq!(code, Some(0), "{told}");
    // With a named component, only its reasons are known.
    assert_eq!(
        said(&["explain", "--component", "builtin:taints", "NotAvailable"]).0,
        Some(2)
    );
    let (code, shown, _) = said(&["inspect", "builtin:trigger"]);
    assert_eq!(code, Some(0));
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
    let text = fs::read_to_string(case).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let documents: Vec<&str> = text.split("\n---\n").collect();
    assert!(documents.len() > 2);
    let files: Vec<String> = (0..2)
        .map(|number| folder.path().join(number.to_string()).display().to_string())
        .collect();
    fs::write(&files[0], documents[0]).unwrap();
    fs::write(&files[1], documents[1..].join("\n---\n")).unwrap();
    let (code, whole, told) = said(&["render", &files[0], &files[1], "-o", "table"]);
    assert!(
        code == Some(0) && whole.contains("klusterlet-demo/external-managed-kubeconfig"),
        "{told}"
    );
    let (_, shown, _) = said_given(&text, &["render", "-", "-o", "table"]);
    assert_eq!(shown, whole);
    // What cannot be read is named by its file and document, not by a file in memory.
    let nameless = "---\napiVersion: v1\nkind: Secret\nmetadata: {}\n";
    fs::write(&files[1], format!("{}\n{nameless}", documents[1])).unwrap();
    let why = ", document 2: ManifestInvalid: `metadata.name` is missing\n";
    let (_, _, told) = said(&["render", &files[0], &files[1]]);
    assert!(told.contains(&format!("{}{why}", files[1])), "{told}");
    let (_, _, told) = said_given(&format!("{}\n{nameless}", documents[1]), &["render", "-"]);
    assert!(told.contains(&format!("standard input{why}")), "{told}");
    let (code, _, told) = said(&["render", &files[0], "policies"]);
    assert!(
        code == Some(2) && told.contains("a folder must be the only path"),
        "{told}"
    );
}

#[test]
fn policies_are_read_from_standard_input() {
    let policy = fs::read_to_string(root().join("policies/built-in-taints/policy.yaml")).unwrap();
    for line in ["validate -", "validate -f -", "validate --policies -"] {
        let (code, shown, told) = said_given(&policy, &words(line));
        assert_eq!(
            (code, shown.as_str()),
            (Some(0), "valid    built-in-taints (standard input)\n"),
            "{line}: {told}"
        );
    }
    let (code, shown, told) = said_given(&policy, &["rbac", "-f", "-", "-o", "table"]);
    assert!(
        code == Some(0) && shown.contains("managedclusters"),
        "{told}"
    );
    assert!(!shown.contains("hostedclusters"), "{shown}");
    let (code, _, told) = said_given(&policy, &["explain", "-f", "-", "PrimaryDeleting"]);
    assert_eq!(code, Some(0), "{told}");
    let case = "policies/built-in-taints/cases/X20-within-the-grace-period/given.yaml";
    let render = ["render", case, "--now", "2026-11-21T09:00:00Z", "-f", "-"];
    let (code, _, told) = said_given(&policy, &render);
    assert_eq!(code, Some(0), "{told}");
    // A component that it names lies beside it: in the current folder.
    let beside = policy.replace("builtin:taints", "target/guests/taints.wasm");
    let (code, shown, told) = said_given(&beside, &["validate", "-"]);
    assert_eq!(code, Some(0), "{shown}{told}");
    let outside = policy.replace("builtin:taints", "../taints.wasm");
    assert_eq!(said_given(&outside, &["validate", "-"]).0, Some(1));
}

#[test]
fn standard_input_that_holds_no_policy_is_refused_by_name() {
    let none = "failed to find a policy in standard input";
    for (input, code, named) in [
        ("", 2, none),
        ("kind: Secret\n", 2, none),
        ("a: [\n", 1, "standard input, document 1"),
        (
            "apiVersion: transom.dev/v1alpha1\nkind: FleetPolicy\nmetadata: {name: p}\nspec: {}\n",
            1,
            "spec",
        ),
    ] {
        let (found, shown, told) = said_given(input, &["validate", "-"]);
        let all = format!("{shown}{told}");
        assert!(found == Some(code) && all.contains(named), "{named}: {all}");
    }
    let large = "#".repeat((1 << 20) + 1);
    for line in [
        "validate -",
        "rbac -f -",
        "plan p -f - --dir policies --settings -",
    ] {
        let (code, _, told) = said_given(&large, &words(line));
        assert!(
            code == Some(2) && told.contains("from standard input: it has more than 1048576 bytes"),
            "{line}: {told}"
        );
    }
    let policy = fs::read_to_string(root().join("policies/built-in-taints/policy.yaml")).unwrap();
    for (input, line, what, first) in [
        ("", "render - -f -", "policies", "manifests"),
        (
            &policy,
            "plan - -f - --dir policies",
            "policies",
            "policies",
        ),
        (
            &policy,
            "plan - --dir policies --settings -",
            "settings",
            "policies",
        ),
    ] {
        let (code, _, told) = said_given(input, &words(line));
        let why = format!("the {what} from standard input: it was read before, as the {first}");
        assert!(code == Some(2) && told.contains(&why), "{line}: {told}");
    }
}

#[test]
fn new_replaces_nothing_and_checks_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let sdk = root().join("guest/sdk").display().to_string();
    let new = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_transom"))
            .arg("new")
            .args(words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        texts(&output)
    };
    let long = "a".repeat(64);
    for name in [
        "", "A", "1a", "a_b", "a.b", "a/b", "..", "/tmp/a", "a-", "serde", "test", &long,
    ] {
        let (code, _, told) = new(&["taints", name, "--sdk", &sdk]);
        assert!(
            code == Some(2) && told.contains("'<NAME>'"),
            "{name}: {told}"
        );
    }
    let (code, _, told) = new(&["taints", "mine"]);
    assert!(
        code == Some(2) && told.contains("`transom/guest/sdk`") && told.contains("--sdk"),
        "{told}"
    );
    assert_eq!(new(&["things", "mine", "--sdk", &sdk]).0, Some(2));
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "something is left"
    );
    let (code, shown, told) = new(&["taints", "mine", "--sdk", &sdk]);
    assert!(
        code == Some(0) && shown.contains("mine/policy.yaml"),
        "{told}"
    );
    let library = folder.path().join("mine/src/lib.rs");
    fs::write(&library, "changed").unwrap();
    fs::write(folder.path().join("file"), "mine").unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
    for name in ["mine", "file", "link"] {
        let (code, _, told) = new(&["trigger", name, "--sdk", &sdk]);
        assert!(
            code == Some(2) && told.contains(&format!("`{name}`: it exists")),
            "{told}"
        );
    }
    assert_eq!(fs::read_to_string(library).unwrap(), "changed");
    assert!(!folder.path().join("nowhere").exists());
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
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("transom.bash");
    fs::write(&script, transom(&["completion", "bash"]).stdout).unwrap();
    // What bash offers for the last word of a line.
    let offered = |line: &str| {
        let words = line.split(' ').map(|word| format!("'{word}'"));
        let words = words.collect::<Vec<_>>();
        let ask = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={}; _transom transom {} {}; echo \"${{COMPREPLY[@]}}\"",
            script.display(),
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        let output = Command::new("bash").args(["-c", &ask]).output().unwrap();
        let (code, shown, told) = texts(&output);
        assert_eq!((code, told.as_str()), (Some(0), ""), "{line}");
        shown.trim().to_owned()
    };
    assert_eq!(offered("transom new k"), "kubeconfig");
    assert_eq!(offered("transom rollb"), "rollback");
    assert_eq!(offered("transom rbac --secret-r"), "--secret-reads");
    assert_eq!(offered("transom rbac --secret-reads s"), "strict");
    let commands = offered("transom ");
    let commands: Vec<_> = commands.split(' ').collect();
    assert!(commands.contains(&"plan"), "{commands:?}");
    for hidden in ["fetch", "compile", "child"] {
        assert!(
            !commands.contains(&hidden),
            "{hidden} is only for the agent"
        );
    }
}

#[test]
fn validate_fails_on_a_policy_that_cannot_be_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.yaml");
    let policy = fs::read_to_string(root().join("policies/built-in-taints/policy.yaml")).unwrap();
    let policy = policy.replace("  primary:\n", "  surplus: 1\n  primary:\n");
    fs::write(&path, policy).unwrap();
    let (code, out, _) = said(&["validate", path.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.contains("refused") && out.contains("spec.surplus"),
        "{out}"
    );
}

#[test]
fn validate_fails_on_a_policy_of_a_misspelt_kind_beside_others() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = |name: &str| {
        fs::read_to_string(root().join(format!("policies/{name}/policy.yaml"))).unwrap()
    };
    fs::write(folder.path().join("a.yaml"), shipped("built-in-taints")).unwrap();
    let kustomization = fs::read_to_string(root().join("policies/kustomization.yaml")).unwrap();
    fs::write(folder.path().join("kustomization.yaml"), kustomization).unwrap();
    let other = folder.path().join("b.yaml");
    for (from, to, code, named) in [
        ("kind: FleetPolicy", "kind: FleetPolicy", 0, "valid "),
        (
            "kind: FleetPolicy",
            "kind: FleetPolcy",
            1,
            "b.yaml, document 1): ManifestInvalid: `kind`: is not FleetPolicy",
        ),
        (
            "transom.dev/",
            "transom.dv/",
            1,
            "b.yaml, document 1): ManifestInvalid: `apiVersion`: is not transom.dev/v1alpha1",
        ),
    ] {
        let text = shipped("external-managed-kubeconfig").replacen(from, to, 1);
        fs::write(&other, text).unwrap();
        let (found, told, error) = said(&["validate", folder.path().to_str().unwrap()]);
        assert!(
            found == Some(code) && told.contains(named),
            "{to}: {told}{error}"
        );
    }
}

#[test]
fn validate_refuses_duplicates_and_shows_what_a_grant_reaches() {
    let folder = tempfile::tempdir().unwrap();
    let shipped =
        fs::read_to_string(root().join("policies/external-managed-kubeconfig/policy.yaml"))
            .unwrap();
    let path = folder.path().join("dup.yaml");
    fs::write(&path, &shipped).unwrap();
    let (code, told, _) = said(&["validate", path.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("every Secret of `local`") && told.contains("spec.grant.read[0] (source)"),
        "{told}"
    );
    fs::write(&path, format!("{shipped}---\n{shipped}")).unwrap();
    let (code, told, _) = said(&["validate", path.to_str().unwrap()]);
    assert_eq!(
        (code, told.matches("is defined in 2 places").count()),
        (Some(1), 2),
        "{told}"
    );
    // An error about a component names the file and the folders that were searched.
    fs::write(folder.path().join("bad.wasm"), "no component").unwrap();
    let no_component = "it is not a WebAssembly component";
    for (component, reason, words) in [
        ("bad.wasm", "ComponentInvalid", ["bad.wasm", no_component]),
        (
            "none.wasm",
            "ComponentNotFound",
            ["none.wasm", "--components"],
        ),
        (
            "../none.wasm",
            "ComponentNotAllowed",
            ["none.wasm", "--components"],
        ),
        (
            "builtin:kubecofnig",
            "ComponentNotFound",
            ["`kubeconfig`", "`taints`"],
        ),
    ] {
        fs::write(&path, shipped.replace("builtin:kubeconfig", component)).unwrap();
        let (code, told, _) = said(&["validate", path.to_str().unwrap()]);
        assert!(
            code == Some(1)
                && told.contains(reason)
                && words.iter().all(|word| told.contains(word)),
            "{component}: {told}"
        );
    }
}

#[test]
fn inspect_shows_what_a_component_asks_a_policy_to_grant() {
    let (code, shown, told) = said(&["inspect", "builtin:kubeconfig"]);
    assert_eq!(code, Some(0), "{told}");
    for line in [
        "asks for    v1 Secret {primary.namespace}/{primary.name}-admin-kubeconfig as `source`, keys kubeconfig\n",
        "  server of service\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let (_, shown, _) = said(&["inspect", "builtin:taints", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let write = &shown["description"]["grant"]["write"][0];
    assert_eq!(write["fields"], serde_json::json!(["spec.taints"]));
    assert_eq!(write["object"], serde_json::Value::Null);
}

#[test]
fn inspect_fails_on_a_component_that_cannot_be_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.wasm");
    // The preamble of a component without content.
    fs::write(&path, b"\0asm\x0d\0\x01\0").unwrap();
    let (code, out, _) = said(&["inspect", path.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("cannot be loaded"), "{out}");
}

#[test]
fn inspect_says_in_one_line_that_a_file_is_not_a_component() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.wasm");
    let path = path.to_str().unwrap();
    let no_component = "it is not a WebAssembly component";
    let module = "it is a core module, not a component (`transom componentize` makes one)";
    let version = "it has an unsupported version of the WebAssembly format";
    for (bytes, why) in [
        (&b""[..], no_component),
        (b"no\ncomponent at all", no_component),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0", no_component),
        (b"\0asm\x01\0\0\0", module),
        (b"\0asm\x0a\0\x01\0", version),
    ] {
        fs::write(path, bytes).unwrap();
        let (code, out, errors) = said(&["inspect", path]);
        let want = format!("failed to inspect `{path}`: failed to compile component: {why}\n");
        assert_eq!((code, out.as_str(), errors), (Some(2), "", want));
    }
}
