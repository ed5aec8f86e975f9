//! What a user is told beside the results of a command: log lines.
#![cfg(test)]

use std::process::{Command, Output};

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
