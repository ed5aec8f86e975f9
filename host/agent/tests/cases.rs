//! Runs `transom test` on every case of this repository, and on copies with changed expectations. The tests in
//! `guest/<name>/tests` run guests natively. Needs built guests (`cargo xtask guests`).
#![cfg(test)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// The root of the workspace; components are under its `target/guests`.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The command on a folder, without cargo's variables about build folders.
fn command(path: impl AsRef<Path>, from: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_transom"));
    command
        .args(["test", "-o", "json"])
        .arg(path.as_ref())
        .current_dir(from);
    command
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET_DIR");
    command
}

fn transom_test(path: impl AsRef<Path>, from: &Path) -> Output {
    command(path, from).output().unwrap()
}

/// The rows that the command printed.
fn rows(output: &Output) -> Vec<Value> {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("expected a list of rows, got: {errors}"))
}

/// The folders of cases below a folder, found without the command.
fn cases(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.join("expected.yaml").is_file() {
            found.insert(path.canonicalize().unwrap());
        } else if path.is_dir() {
            cases(&path, found);
        }
    }
}

/// Checks that every case below a folder of the repository runs and passes.
fn all_pass(folder: &str) {
    let output = transom_test(folder, &top());
    let rows = rows(&output);
    let failing: Vec<_> = rows.iter().filter(|row| row["passed"] != true).collect();
    assert!(failing.is_empty(), "{} failed: {failing:#?}", failing.len());
    assert_eq!(output.status.code(), Some(0));
    let run = rows.iter().map(|row| {
        let case = top().join(row["case"].as_str().unwrap());
        case.canonicalize().unwrap()
    });
    let mut there = BTreeSet::new();
    cases(&top().join(folder), &mut there);
    assert!(!there.is_empty());
    assert_eq!(run.collect::<BTreeSet<_>>(), there, "some case was not run");
}

#[test]
fn all_cases_of_policies_pass() {
    all_pass("policies");
}

#[test]
fn all_cases_of_guests_pass_as_components() {
    // A folder without a manifest is no crate: the templates of `transom new` are tested once they are filled in.
    let crates = fs::read_dir(top().join("guest")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().path());
    let guests: Vec<_> = crates
        .filter(|path| path.join("Cargo.toml").is_file() && path.join("cases").is_dir())
        .collect();
    assert!(guests.len() > 3, "{guests:?}");
    for guest in guests {
        let name = guest.file_name().unwrap().to_str().unwrap();
        all_pass(&format!("guest/{name}"));
    }
}

#[test]
fn cases_with_kubeconfigs_and_texts_of_objects_pass_as_a_component() {
    // The folder of a crate has the name of its component.
    let copy = tempfile::tempdir().unwrap();
    let home = copy.path().join("fixture-desired");
    let original = top().join("tests/fixtures/desired/cases");
    let mut there = BTreeSet::new();
    cases(&original, &mut there);
    for case in &there {
        let to = home.join("cases").join(case.file_name().unwrap());
        fs::create_dir_all(&to).unwrap();
        for name in ["given.yaml", "expected.yaml"] {
            fs::copy(case.join(name), to.join(name)).unwrap();
        }
    }
    fs::write(home.join("Cargo.toml"), "").unwrap();
    let output = transom_test(copy.path(), &top());
    let rows = rows(&output);
    let failing: Vec<_> = rows.iter().filter(|row| row["passed"] != true).collect();
    assert!(failing.is_empty(), "{failing:#?}");
    assert_eq!((rows.len(), output.status.code()), (there.len(), Some(0)));
}

/// One case of a guest in its own crate, with some words of its files replaced.
fn changed(guest: &str, case: &str, file: &str, (from, to): (&str, &str)) -> TempDir {
    let temporary = tempfile::tempdir().unwrap();
    let home = temporary.path().join(guest);
    let copy = home.join("cases").join(case);
    fs::create_dir_all(&copy).unwrap();
    fs::write(home.join("Cargo.toml"), "").unwrap();
    let original = top().join("guest").join(guest).join("cases").join(case);
    for name in ["given.yaml", "expected.yaml"] {
        let text = fs::read_to_string(original.join(name)).unwrap();
        let is_changed = name == file;
        assert!(
            !is_changed || text.contains(from),
            "`{from}` is not in {case}/{name} any more"
        );
        let text = if is_changed {
            text.replace(from, to)
        } else {
            text
        };
        fs::write(copy.join(name), text).unwrap();
    }
    temporary
}

/// The case `T14-swap` of the taints guest, as it is.
fn unchanged() -> TempDir {
    changed("taints", "T14-swap", "given.yaml", ("", ""))
}

/// The result of a case that passes.
fn passed() -> (Option<i32>, String) {
    (Some(0), "[]".to_owned())
}

/// The exit code, and the output about the one case.
fn result(temporary: &TempDir, from: &Path) -> (Option<i32>, String) {
    result_of(transom_test(temporary.path(), from))
}

fn result_of(output: Output) -> (Option<i32>, String) {
    let rows = rows(&output);
    assert_eq!(rows.len(), 1, "{rows:?}");
    (output.status.code(), rows[0]["differences"].to_string())
}

#[test]
fn a_changed_expectation_or_argument_fails_and_names_its_place() {
    // Guest and case, its file, the words in it, what replaces them, and the place that is named.
    for row in [
        "taints/T14-swap|expected.yaml|no-select|prefer-no-select|ok.decision.own[0].effect",
        "taints/T14-swap|given.yaml|status: 'no'|status: 'yes'|ok.decision.own",
        "taints/T14-swap|given.yaml|accepted|acepted|cluster.acepted",
        "taints/settings-no-map|expected.yaml|InvalidSettings|Other|[0].reason",
        "trigger/V02-becomes-available|expected.yaml|BecameAvailable|Other|run[0]",
        "trigger/G02-not-available|expected.yaml|not-ready|unready|readiness.not-ready",
        "kubeconfig/T01-port-443|expected.yaml|port: 443|port: 444|ok.kubeconfig.clusters[0].server.port",
        "kubeconfig/T01-port-443|expected.yaml|, authorities: [1]||ok.kubeconfig.clusters[0].authorities",
        "kubeconfig/T01-port-443|given.yaml|port: 443|port: 445|ok.kubeconfig.clusters[0].server.port",
        "kubeconfig/N04-discovery|expected.yaml|wait:|fail:|ok.needs[0].absence",
    ] {
        let [case, file, from, to, place] = *row.split('|').collect::<Vec<_>>() else {
            panic!("a row of another length: {row}")
        };
        let (guest, case) = case.split_once('/').unwrap();
        let (code, differences) = result(&changed(guest, case, file, (from, to)), &top());
        assert_eq!(code, Some(1), "{row}");
        assert!(
            differences.contains(&format!("`{place}")),
            "{row}: got {differences}"
        );
    }
}

#[test]
fn an_unchanged_copy_passes_only_with_the_built_component() {
    let copy = unchanged();
    assert_eq!(result(&copy, &top()), passed());
    // In a folder with another component under the guest's name, the command uses that one.
    let elsewhere = tempfile::tempdir().unwrap();
    let built = elsewhere.path().join("target/guests");
    fs::create_dir_all(&built).unwrap();
    fs::write(built.join("taints.wasm"), "no component").unwrap();
    let (code, differences) = result(&copy, elsewhere.path());
    assert_eq!(code, Some(1));
    assert!(
        differences.contains("failed to load `target/guests/taints.wasm`"),
        "{differences}"
    );
    // Without a built file, the command uses the binary's own.
    fs::remove_file(built.join("taints.wasm")).unwrap();
    assert_eq!(result(&copy, elsewhere.path()), passed());
    // A component built below the crate itself has precedence.
    let own = copy.path().join("taints/target/guests");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("taints.wasm"), "no component").unwrap();
    let (code, differences) = result(&copy, &top());
    assert_eq!(code, Some(1));
    assert!(
        differences.contains("taints/target/guests/taints.wasm`"),
        "{differences}"
    );
}

#[test]
fn names_the_expected_path_of_a_component_that_is_not_built() {
    let copy = unchanged();
    fs::rename(copy.path().join("taints"), copy.path().join("of-my-own")).unwrap();
    let (code, differences) = result(&copy, copy.path());
    assert_eq!(code, Some(1));
    assert!(
        differences.contains("of-my-own/target/guests/of-my-own.wasm`"),
        "{differences}"
    );
}

#[test]
fn files_beside_a_case_folder_hide_no_cases() {
    let copy = unchanged();
    for file in ["given.yaml", "expected.yaml"] {
        // The tutorial has such a file for rendering.
        fs::write(copy.path().join("taints").join(file), "apiVersion: v1\n").unwrap();
        assert_eq!(result(&copy, &top()), passed(), "{file}");
    }
}

#[test]
fn a_case_in_a_folder_whose_name_is_not_utf8_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let name = OsStr::from_bytes(b"x\xff");
    fs::create_dir_all(folder.path().join("cases").join(name)).unwrap();
    let output = transom_test(folder.path(), &top());
    let rows = rows(&output);
    let case = rows[0]["case"].as_str().unwrap();
    assert!(case.ends_with("cases/x\u{fffd}"), "{case}");
    assert_eq!((rows.len(), output.status.code()), (1, Some(1)));
}

#[test]
fn cases_of_a_policy_run_from_every_folder() {
    let home = top().join("policies/built-in-taints");
    let case = fs::read_dir(home.join("cases")).unwrap().next().unwrap();
    let name = case.unwrap().file_name().into_string().unwrap();
    let of_one = format!("cases/{name}");
    for (path, from) in [
        ("cases", ""),
        (&of_one, ""),
        (&name, "cases"),
        (".", &of_one),
        ("..", &of_one),
    ] {
        let output = transom_test(path, &home.join(from));
        let rows = rows(&output);
        let failing: Vec<_> = rows.iter().filter(|row| row["passed"] != true).collect();
        assert!(failing.is_empty(), "{path} in `{from}`: {failing:#?}");
        assert_eq!(output.status.code(), Some(0), "{path} in `{from}`");
    }
    // A case without files is none the less one.
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("cases");
    fs::create_dir_all(home.join("empty")).unwrap();
    let rows = rows(&transom_test(".", &home));
    assert!(rows.len() == 1 && rows[0]["case"] == "./empty", "{rows:?}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
fn finds_a_component_where_cargo_builds_it() {
    // Each file in turn becomes the newest and cannot be loaded, so the error shows which file the command chose.
    let copy = unchanged();
    let elsewhere = tempfile::tempdir().unwrap();
    let home = copy.path().join("renamed");
    fs::rename(copy.path().join("taints"), &home).unwrap();
    let write = |path: PathBuf, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(home.join("Cargo.toml"), "[package]\nname = \"my-guest\"\n");
    let manifest = copy.path().join("Cargo.toml");
    write(manifest, "[workspace]\nmembers = [\"renamed\"]\n");
    let refused = |with: &dyn Fn(&mut Command), built: &Path| {
        write(built.to_owned(), "no component");
        let mut command = command(copy.path(), elsewhere.path());
        // Nor any cargo settings of the user who runs the tests.
        with(command.env("CARGO_HOME", elsewhere.path().join("cargo")));
        let (code, differences) = result_of(command.output().unwrap());
        let wanted = format!("failed to load `{}`", built.display());
        assert!(
            code == Some(1) && differences.contains(&wanted),
            "expected {wanted}, got {differences}"
        );
    };
    let usual = |_: &mut Command| {};
    let canonical = copy.path().canonicalize().unwrap();
    let (home, workspace) = (canonical.join("renamed"), canonical.clone());
    // First from a workspace, then from the crate; by the folder's name, then by the package's.
    refused(&usual, &workspace.join("target/guests/renamed.wasm"));
    refused(&usual, &workspace.join("target/guests/my-guest.wasm"));
    refused(&usual, &home.join("target/guests/my-guest.wasm"));
    // Settings of the user, of a parent folder, and of the crate: the nearest ones apply.
    let of_user = elsewhere.path().join("cargo/config.toml");
    write(of_user, "build.target-dir = \"all\"");
    refused(&usual, &elsewhere.path().join("all/guests/my-guest.wasm"));
    let above = workspace.join(".cargo/config.toml");
    write(above, "[build]\ntarget-dir = \"shared\"");
    refused(&usual, &workspace.join("shared/guests/my-guest.wasm"));
    write(home.join(".cargo/config"), "[build]\ntarget-dir = \"own\"");
    refused(&usual, &home.join("own/guests/my-guest.wasm"));
    // The environment has precedence over settings, and the flag over everything.
    for name in ["CARGO_BUILD_TARGET_DIR", "CARGO_TARGET_DIR"] {
        let folder = elsewhere.path().join(name);
        let by_variable = |command: &mut Command| {
            command.env(name, &folder);
        };
        refused(&by_variable, &folder.join("guests/my-guest.wasm"));
    }
    let named = elsewhere.path().join("named.wasm");
    let by_flag = |command: &mut Command| {
        command.arg("--component").arg(&named);
    };
    refused(&by_flag, &named);
    let builtin = command(copy.path(), elsewhere.path())
        .args(["--component", "builtin:taints"])
        .output()
        .unwrap();
    assert_eq!(result_of(builtin), passed());
}

#[test]
fn settings_in_a_folder_never_start_a_program() {
    let copy = unchanged();
    let home = copy.path().join("taints");
    let started = copy.path().join("started");
    let program = copy.path().join("toolchain/bin/cargo");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    let script = format!("#!/bin/sh\ntouch {}\n", started.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let toolchain = "[toolchain]\npath = \"../toolchain\"\n";
    fs::write(home.join("rust-toolchain.toml"), toolchain).unwrap();
    assert_eq!(result_of(transom_test(&home, &home)), passed());
    assert!(!started.exists(), "a program of the folder was started");
}

#[test]
fn a_component_may_be_given_for_one_guest_only() {
    let of_policy = "policies/built-in-taints/cases/T01-available";
    for (path, wanted) in [
        (of_policy, "no case belongs to a guest"),
        ("guest", "it applies to one guest"),
    ] {
        let output = command(path, &top())
            .args(["--component", "builtin:taints"])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && told.contains(wanted),
            "{path}: {told}"
        );
    }
}

#[test]
fn names_the_newest_source_of_an_outdated_component() {
    let declared = "status.conditions[ManagedClusterConditionAvailable]";
    let (copy, component) = patched(declared, declared);
    let home = copy.path().join("taints");
    let set = |path: &Path, seconds: u64| {
        let mut options = fs::File::options();
        let file = options.append(true).create(true).open(path).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        file.set_modified(time).unwrap();
    };
    fs::create_dir_all(home.join("src/deep")).unwrap();
    let sources = [
        "Cargo.toml",
        "build.rs",
        "settings.schema.json",
        "src/lib.rs",
        "src/deep/decide.rs",
    ];
    // Files from which no component is built.
    let others = [
        "README.md",
        "policy.yaml",
        "cases/T14-swap/given.yaml",
        "target/guests/other.rs",
    ];
    sources.iter().for_each(|file| set(&home.join(file), 100));
    others.iter().for_each(|file| set(&home.join(file), 300));
    set(&component, 100);
    let told = || {
        let output = transom_test(copy.path(), &top());
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(!told().contains("older"), "{}", told());
    for file in sources {
        set(&home.join(file), 200);
        let wanted = format!(
            "taints.wasm` is older than `{}`",
            home.canonicalize().unwrap().join(file).display()
        );
        assert!(told().contains(&wanted), "{file}: {}", told());
        set(&home.join(file), 99);
    }
}

/// The taints guest of this repository in its own crate, with its cases, and with other words in its component.
fn patched(from: &str, to: &str) -> (TempDir, PathBuf) {
    assert_eq!(from.len(), to.len(), "a component keeps its size");
    let mut bytes =
        fs::read(top().join("target/guests/taints.wasm")).expect("run `cargo xtask guests`");
    let found: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(from.as_bytes()))
        .collect();
    assert_eq!(found.len(), 1, "`{from}` at {found:?} in the component");
    bytes[found[0]..found[0] + to.len()].copy_from_slice(to.as_bytes());
    let temporary = unchanged();
    let built = temporary.path().join("taints/target/guests");
    fs::create_dir_all(&built).unwrap();
    fs::write(built.join("taints.wasm"), bytes).unwrap();
    let component = built.join("taints.wasm");
    (temporary, component)
}

#[test]
fn a_guest_that_declares_none_of_its_reads_fails_its_cases() {
    let declared = "status.conditions[ManagedClusterConditionAvailable]";
    let (as_it_is, _) = patched(declared, declared);
    assert_eq!(result(&as_it_is, &top()), passed());
    let other = "status.conditions[ManagedClusterConditionAvailablX]";
    let (code, differences) = result(&patched(declared, other).0, &top());
    // The case gives what the guest does not declare.
    assert_eq!(code, Some(1), "{differences}");
    assert!(differences.contains("`ok.decision"), "{differences}");
}

#[test]
fn every_command_refuses_a_declared_path_that_matches_no_field() {
    let declared = "status.conditions[ManagedClusterConditionAvailable]";
    let misspelt = "status.conditionz[ManagedClusterConditionAvailable]";
    let (temporary, component) = patched(declared, misspelt);
    let wanted = "the nearest path that does is `status.conditions`";
    let (code, differences) = result(&temporary, &top());
    assert!(
        code == Some(1) && differences.contains(wanted),
        "{differences}"
    );
    let policy = fs::read_to_string(top().join("policies/built-in-taints/policy.yaml")).unwrap();
    let below = component.strip_prefix(temporary.path()).unwrap();
    let policy = policy.replace("builtin:taints", below.to_str().unwrap());
    let file = temporary.path().join("policy.yaml");
    fs::write(&file, policy).unwrap();
    for words in [
        ["validate", file.to_str().unwrap()],
        ["inspect", component.to_str().unwrap()],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_transom"))
            .args(words)
            .output()
            .unwrap();
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {told}");
        assert!(
            told.contains("DescriptionInvalid") && told.contains(wanted),
            "{words:?}: {told}"
        );
    }
}

#[test]
fn a_case_with_a_missing_or_misspelt_file_fails_and_names_it() {
    for policy in [false, true] {
        for (missing, instead) in [
            ("given.yaml", None),
            ("expected.yaml", None),
            ("given.yaml", Some("given.yml")),
            ("expected.yaml", Some("expectd.yaml")),
            ("", Some("then.yml")),
        ] {
            let temporary = unchanged();
            let home = temporary.path().join("taints");
            if policy {
                fs::remove_file(home.join("Cargo.toml")).unwrap();
            }
            let case = home.join("cases/T14-swap");
            match (missing, instead) {
                ("", Some(instead)) => fs::write(case.join(instead), "").unwrap(),
                (missing, Some(instead)) => {
                    fs::rename(case.join(missing), case.join(instead)).unwrap();
                }
                (missing, None) => fs::remove_file(case.join(missing)).unwrap(),
            }
            let (code, differences) = result(&temporary, &top());
            assert_eq!(code, Some(1), "{missing} {instead:?}");
            for named in [missing, instead.unwrap_or_default()] {
                assert!(
                    differences.contains(named),
                    "{missing} {instead:?}: {differences}"
                );
            }
        }
    }
    // An empty folder is still a case.
    let temporary = unchanged();
    fs::create_dir(temporary.path().join("taints/cases/forgotten")).unwrap();
    let rows = rows(&transom_test(temporary.path(), &top()));
    assert_eq!(
        rows.iter().filter(|row| row["passed"] == true).count(),
        1,
        "{rows:?}"
    );
    assert!(
        rows.iter().any(|row| row["differences"]
            .to_string()
            .contains("`given.yaml` is missing")),
        "{rows:?}"
    );
}

#[test]
fn what_is_gone_need_not_name_its_version_and_must_be_there() {
    let policy = top().join("policies/built-in-taints");
    let given = fs::read_to_string(policy.join("cases/T05-gone/given.yaml")).unwrap();
    let whole =
        "apiVersion: cluster.open-cluster-management.io/v1, kind: ManagedCluster, name: cluster1";
    assert!(given.contains(whole));
    let no_such = |name: &str| format!("spec.gone[0]: no such object: ManagedCluster {name}");
    for (instead, wanted) in [
        ("kind: ManagedCluster, name: cluster1", None),
        ("kind: ManagedCluster, name: cluster2", Some("cluster2")),
        (
            "apiVersion: v1, kind: ManagedCluster, name: cluster1",
            Some("cluster1"),
        ),
    ] {
        let temporary = tempfile::tempdir().unwrap();
        let case = temporary.path().join("cases/T05-gone");
        fs::create_dir_all(&case).unwrap();
        fs::write(case.join("given.yaml"), given.replace(whole, instead)).unwrap();
        let original = policy.join("cases/T05-gone/expected.yaml");
        fs::copy(original, case.join("expected.yaml")).unwrap();
        let manifest = temporary.path().join("policy.yaml");
        fs::copy(policy.join("policy.yaml"), manifest).unwrap();
        let (code, differences) = result(&temporary, &top());
        match wanted {
            None => assert_eq!((code, differences), passed(), "{instead}"),
            Some(name) => {
                assert_eq!(code, Some(1), "{instead}");
                assert!(differences.contains(&no_such(name)), "{differences}");
            }
        }
    }
}
