//! `transom test` on a folder that somebody else wrote: it reads the files of its cases, and nothing else.

use anyhow::{Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use transom_e2e::program::{self, code, stderr};

const CANARY: &str = "canary-of-a-credential";
/// The files of a case that passes.
const GIVEN: &str = "cluster:\n  reference: {cluster: local, api-version: cluster.open-cluster-management.io/v1, kind: ManagedCluster, name: c}\n";

/// Ends a command that waits for ever.
fn test(folder: &Path, words: &[&str]) -> Result<Output> {
    let mut command = Command::new("timeout");
    command.args(["--signal", "KILL", "60"]);
    command.arg(program::binary()?).arg("test").arg(folder);
    Ok(command.args(words).output()?)
}

/// A folder with a policy, or with the crate of a guest.
fn folder(is_policy: bool) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    if is_policy {
        let policy = program::policy("built-in-taints");
        fs::copy(policy, folder.path().join("policy.yaml"))?;
    } else {
        fs::write(
            folder.path().join("Cargo.toml"),
            "[package]\nname = \"taints\"\n",
        )?;
    }
    Ok(folder)
}

#[test]
fn a_case_shows_no_file_outside_its_folder_and_waits_for_no_pipe() -> Result<()> {
    let outer = tempfile::tempdir()?;
    let secret = outer.path().join("token");
    fs::write(&secret, CANARY)?;
    for is_policy in [true, false] {
        for name in ["given.yaml", "expected.yaml", "then.yaml"] {
            let folder = folder(is_policy)?;
            let case = folder.path().join("cases/one");
            fs::create_dir_all(&case)?;
            fs::write(case.join("given.yaml"), if is_policy { "" } else { GIVEN })?;
            fs::write(case.join("expected.yaml"), "")?;
            let at = case.join(name);
            drop(fs::remove_file(&at));
            symlink(&secret, &at)?;
            for words in [&[][..], &["--update"], &["-o", "json"]] {
                let output = test(folder.path(), words)?;
                let said = program::stdout(&output);
                let told = said + &stderr(&output);
                let reads = is_policy || name != "then.yaml";
                ensure!(
                    !reads || code(&output) == Some(1) && told.contains("leads out of the folder"),
                    "{name} {words:?}: {told}"
                );
                ensure!(!told.contains(CANARY), "{name} {words:?}: {told}");
            }
            ensure!(fs::read_to_string(&secret)? == CANARY, "it was written");
            fs::remove_file(&at)?;
            let made = Command::new("mkfifo").arg(&at).status()?;
            ensure!(made.success(), "{made}");
            for words in [&[][..], &["--update"]] {
                let output = test(folder.path(), words)?;
                let ended = code(&output).is_some();
                ensure!(ended, "{name} {words:?}: it waits for a pipe");
            }
        }
    }
    Ok(())
}

#[test]
fn links_to_folders_are_not_entered() -> Result<()> {
    let folder = folder(false)?;
    let case = folder.path().join("cases/one");
    fs::create_dir_all(&case)?;
    fs::write(case.join("given.yaml"), GIVEN)?;
    fs::write(case.join("expected.yaml"), "")?;
    for name in ["a", "b"] {
        symlink(".", folder.path().join(name))?;
        symlink("..", folder.path().join("cases").join(name))?;
    }
    let output = test(folder.path(), &["--update"])?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        said.contains("0 passed, 1 updated, 0 failed"),
        "{said}{}",
        stderr(&output)
    );
    Ok(())
}
