//! What a user is told beside the results of a command: errors of a case, flags that exclude each other, log lines.
#![cfg(test)]

use std::fs;
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
