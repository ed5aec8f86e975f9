//! Expectations of cases of policies and guests: partly expected objects, and `transom test --update`. Needs built
//! guests (`cargo xtask guests`).
#![cfg(test)]

use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The root of the workspace.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A case of the repository in a temporary folder, below its policy or guest.
struct Copy {
    folder: TempDir,
    case: PathBuf,
}

impl Copy {
    /// `of` is `policies/<policy>` or `guest/<guest>`.
    fn new(of: &str, case: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (top().join(of), folder.path().join(of));
        let copy = to.join("cases").join(case);
        fs::create_dir_all(&copy).unwrap();
        match of.starts_with("guest/") {
            true => fs::write(to.join("Cargo.toml"), "").unwrap(),
            false => drop(fs::copy(from.join("policy.yaml"), to.join("policy.yaml")).unwrap()),
        }
        for entry in fs::read_dir(from.join("cases").join(case)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
        Self { folder, case: copy }
    }

    fn file(&self) -> PathBuf {
        self.case.join("expected.yaml")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap()
    }

    fn change(&self, from: &str, to: &str) {
        let text = self.text();
        assert!(text.contains(from), "`{from}` is not there any more");
        fs::write(self.file(), text.replacen(from, to, 1)).unwrap();
    }

    /// Exit code, and the row of the one case.
    fn test(&self, words: &[&str]) -> (Option<i32>, Value) {
        let mut transom = Command::new(env!("CARGO_BIN_EXE_transom"));
        let output = transom
            .args(["test", "-o", "json"])
            .arg(self.folder.path())
            .args(words)
            .current_dir(top());
        let output = output.output().unwrap();
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
            panic!(
                "expected rows, got {}",
                String::from_utf8_lossy(&output.stderr)
            )
        });
        assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
        (output.status.code(), rows[0].clone())
    }
}

#[test]
fn compares_only_the_named_fields_of_a_partial_object() {
    let copy = Copy::new("policies/built-in-taints", "T08-becomes-unavailable");
    let states = copy
        .text()
        .split_once("\nstates:")
        .map(|(_, states)| format!("states:{states}"))
        .unwrap();
    let expect = |objects: &str| fs::write(copy.file(), format!("{objects}{states}")).unwrap();
    let named = |spec: &str| {
        format!(
            "partialObjects:\n- kind: ManagedCluster\n  metadata: {{name: cluster1}}\n  spec: {spec}\n"
        )
    };
    let key = "cluster.open-cluster-management.io/unavailable";
    expect(&named(&format!("{{taints: [{{key: {key}}}]}}")));
    assert_eq!(copy.test(&[]).0, Some(0));
    let other = format!("expected \\\"other\\\", got \\\"{key}\\\"");
    let two = named("{}") + "- {kind: ManagedCluster, metadata: {name: c2}}\n";
    let misspelt = "partialObject: []\n".to_owned();
    for (objects, difference) in [
        (named("{taints: [{key: other}]}"), &*other),
        (named("{taints: []}"), "`spec.taints`: expected [], got"),
        (named("{taints: null}"), "`spec.taints`: expected null, got"),
        (
            named("{hubAcceptsClient: false}"),
            "expected false, got true",
        ),
        (String::new(), "expected it not to be written, it was"),
        (two, "expected it to be written, it was not"),
        (misspelt, "`partialObject`: unknown field `partialObject`"),
        (
            "removed: [c1]\n".to_owned(),
            "`removed[0]`: is string \\\"c1\\\", expected a mapping",
        ),
    ] {
        expect(&objects);
        let (code, row) = copy.test(&[]);
        assert!(
            code == Some(1) && row["differences"].to_string().contains(difference),
            "{objects}: expected {difference}, got {row}"
        );
    }
    // A difference is updated in the same shape.
    expect(&named("{taints: [{key: other}]}"));
    assert_eq!(copy.test(&["--update"]).0, Some(0));
    assert!(
        copy.text().contains(key) && !copy.text().contains("timeAdded"),
        "{}",
        copy.text()
    );
    assert_eq!(copy.test(&[]).0, Some(0));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a test tells its story in one piece")]
fn an_update_makes_a_case_pass_and_keeps_correct_text() {
    let policy = "policies/built-in-taints";
    // Policy or guest, its case, the expectation, and what replaces it.
    for row in [
        "policies/built-in-taints|T08-becomes-unavailable|effect: NoSelect\n|effect: PreferNoSelect\n",
        "policies/built-in-taints|T08-becomes-unavailable|state: Applied|state: Held",
        "policies/built-in-taints|T08-becomes-unavailable|causes: [Changed]|causes: [Resync]",
        "policies/built-in-taints|T08-becomes-unavailable|reconciled: true|reconciled: false",
        "policies/external-managed-kubeconfig|T01-port-443|svc.cluster.local:443|svc.cluster.local:444",
        "policies/external-managed-kubeconfig|V09|reasons: [|reasons: [Other, ",
        "guest/taints|T14-swap|no-select|prefer-no-select",
        "guest/kubeconfig|T01-port-443|port: 443|port: 444",
        "guest/trigger|V02-becomes-available|BecameAvailable|Other",
    ] {
        let [of, case, from, to] = *row.split('|').collect::<Vec<_>>() else {
            panic!("a row of another length: {row}")
        };
        let case = found(&top().join(of), case);
        let copy = Copy::new(of, &case);
        assert_eq!(
            copy.test(&["--update"]).1["updated"],
            false,
            "{case}: nothing to update"
        );
        copy.change(from, to);
        let wrong = copy.text();
        let (code, row) = copy.test(&[]);
        assert_eq!(
            (code, &row["updated"], copy.text() == wrong),
            (Some(1), &false.into(), true),
            "{case}: {row}"
        );
        let (code, row) = copy.test(&["--update"]);
        assert_eq!(
            (code, &row["updated"]),
            (Some(0), &true.into()),
            "{case}: {row}"
        );
        assert!(
            row["differences"]
                .as_array()
                .is_some_and(|told| !told.is_empty()),
            "{case}: it is not told"
        );
        assert!(
            copy.text().starts_with(wrong.lines().next().unwrap()),
            "{case}: the comment is gone"
        );
        if of == policy && !from.starts_with("effect") {
            let objects = |text: &str| text.split("\nstates:").next().map(str::to_owned);
            assert_eq!(
                objects(&copy.text()),
                objects(&wrong),
                "{case}: more than what differs was written"
            );
        }
        let right = copy.text();
        let (code, row) = copy.test(&["--update"]);
        assert_eq!(
            (code, &row["updated"], copy.text() == right),
            (Some(0), &false.into(), true),
            "{case}: {row}"
        );
        assert_eq!(
            fs::read_dir(&copy.case)
                .unwrap()
                .filter(|file| !["given.yaml", "expected.yaml", "then.yaml"]
                    .contains(&file.as_ref().unwrap().file_name().to_str().unwrap()))
                .count(),
            0
        );
    }
}

/// The case with this beginning of its name.
fn found(of: &Path, beginning: &str) -> String {
    let entries = fs::read_dir(of.join("cases")).unwrap();
    let mut names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.find(|name| name.starts_with(beginning)).unwrap()
}

#[test]
fn a_new_case_gets_its_expectation_unless_it_cannot_run() {
    for (of, case) in [
        ("policies/built-in-taints", "T08-becomes-unavailable"),
        ("guest/taints", "T14-swap"),
    ] {
        let copy = Copy::new(of, case);
        fs::remove_file(copy.file()).unwrap();
        assert_eq!(
            copy.test(&[]).0,
            Some(1),
            "without the flag a file that is missing is a failure"
        );
        assert!(!copy.file().exists());
        let (code, row) = copy.test(&["--update"]);
        assert_eq!((code, &row["updated"]), (Some(0), &true.into()), "{row}");
        assert_eq!(copy.test(&[]).0, Some(0));
        // Unreadable and misspelt files are left alone.
        for (file, text) in [("given.yaml", "a: [\n"), ("then.yml", "")] {
            let before = fs::read_to_string(copy.case.join("given.yaml")).unwrap();
            fs::write(copy.case.join(file), text).unwrap();
            for expected in [Some("states: [wrong]\n"), None] {
                match expected {
                    Some(text) => fs::write(copy.file(), text).unwrap(),
                    None => fs::remove_file(copy.file()).unwrap(),
                }
                let (code, row) = copy.test(&["--update"]);
                assert_eq!(
                    (code, &row["updated"]),
                    (Some(1), &false.into()),
                    "{file}: {row}"
                );
                assert_eq!(
                    fs::read_to_string(copy.file()).ok().as_deref(),
                    expected,
                    "{file}"
                );
            }
            fs::remove_file(copy.case.join("then.yml")).ok();
            fs::write(copy.case.join("given.yaml"), before).unwrap();
        }
    }
}

#[test]
fn never_writes_through_a_link() {
    let copy = Copy::new("guest/taints", "T14-swap");
    let elsewhere = copy.folder.path().join("elsewhere");
    fs::write(&elsewhere, "ok: wrong\n").unwrap();
    for there in [true, false] {
        fs::remove_file(copy.file()).unwrap();
        symlink(&elsewhere, copy.file()).unwrap();
        if !there {
            fs::remove_file(&elsewhere).unwrap();
        }
        let (code, row) = copy.test(&["--update"]);
        assert_eq!((code, &row["updated"]), (Some(1), &false.into()), "{row}");
        assert_eq!(
            fs::read_to_string(&elsewhere).ok().as_deref(),
            there.then_some("ok: wrong\n")
        );
        assert!(copy.file().is_symlink());
    }
}
