//! Manifests that are given to a command in a pipe, on standard input, in several files or in a case: they are read as
//! those of a folder are.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use transom_e2e::program::{self, code, stderr};
use transom_e2e::stage::NOW;

/// Without a condition it gets a taint.
const CLUSTER: &str = "apiVersion: cluster.open-cluster-management.io/v1\nkind: ManagedCluster\nmetadata: {name: a}\nspec: {hubAcceptsClient: true}\n";
/// An API server leaves kind and version out of these items.
const TYPED: &str = r#"{"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedClusterList", "items": [{"metadata": {"name": "a"}, "spec": {"hubAcceptsClient": true}}]}"#;

/// Ends a command that waits for ever.
fn transom(words: &[&str], input: &str) -> Result<Output> {
    let mut command = Command::new("timeout");
    command.args(["--signal", "KILL", "60"]);
    command.arg(program::binary()?).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    Ok(child.wait_with_output()?)
}

fn render(paths: &[&str], input: &str) -> Result<Output> {
    transom(&[&["render", "--now", NOW][..], paths].concat(), input)
}

#[test]
fn a_pipe_and_a_typed_list_are_rendered() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let pipe = folder.path().join("pipe").display().to_string();
    let made = Command::new("mkfifo").arg(&pipe).status()?;
    ensure!(made.success(), "{made}");
    for text in [CLUSTER, TYPED] {
        let to = pipe.clone();
        // It ends once the pipe is opened for reading, or with the process.
        std::thread::spawn(move || fs::write(to, text));
        for (path, input) in [(&*pipe, ""), ("-", text)] {
            let output = render(&[path], input)?;
            let told = stderr(&output);
            ensure!(
                code(&output) == Some(0) && told.contains("1  would be Applied"),
                "{path} {text}: {told}"
            );
        }
    }
    Ok(())
}

#[test]
fn an_object_that_is_given_twice_is_told() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let case = folder.path().join("cases/one");
    fs::create_dir_all(&case)?;
    let twice = format!("{CLUSTER}---\n{CLUSTER}");
    fs::write(case.join("given.yaml"), &twice)?;
    fs::write(case.join("expected.yaml"), "")?;
    let policy = program::policy("built-in-taints");
    fs::copy(policy, folder.path().join("policy.yaml"))?;
    let [one, other] = ["one.yaml", "other.yaml"].map(|name| folder.path().join(name));
    for path in [&one, &other] {
        fs::write(path, CLUSTER)?;
    }
    let [one, other] = [one, other].map(|path| path.display().to_string());
    let case = case.display().to_string();
    for output in [
        render(&["-"], &twice)?,
        render(&[&one, &other], "")?,
        transom(&["test", &case], "")?,
    ] {
        let said = program::stdout(&output) + &stderr(&output);
        ensure!(
            code(&output) == Some(1) && said.contains("DuplicateObject"),
            "{said}"
        );
    }
    Ok(())
}
