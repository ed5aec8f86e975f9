//! The program behind `cargo xtask cluster` and `cargo xtask demo --cluster`, run to its end as users run it. Builds
//! only the demonstrated agent.

use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::Command;
use transom_e2e::agent::Agent;
use transom_e2e::program;

fn start(words: &[&str], log: &Path) -> Result<Agent> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_transom-test-cluster"));
    Agent::start(program.args(words), log.to_owned())
}

#[test]
fn shows_the_main_task_and_the_second_run_writes_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let transom = program::binary()?.display().to_string();
    let words = ["--hosted", "3", "--managed", "8", "--show", &transom];
    let said = start(&words, &log)?.end()?;
    // Three secrets, and a taint on the one ManagedCluster that is not available; one has a taint that it should not
    // have.
    let last = said
        .lines()
        .rfind(|line| line.contains("writes of the first run"))
        .context("it shows no writes")?;
    ensure!(
        last.trim() == "writes of the first run: 5; of the second: 0",
        "{last}"
    );
    let secrets = said
        .lines()
        .filter(|line| line.starts_with("klusterlet-hosted-"))
        .count();
    ensure!(
        secrets == 3 && said.contains("cluster.open-cluster-management.io/unavailable"),
        "{said}"
    );
    ensure!(
        !said.contains("PRIVATE KEY") && !said.contains("client-key-data"),
        "it shows a credential"
    );
    Ok(())
}

#[test]
fn a_playground_cluster_runs_until_stopped() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let playing = start(&["--hosted", "2", "--managed", "3"], &log)?;
    playing.wait_for_lines(1, &["audit log: "])?;
    let said = playing.log()?;
    let after = |word: &str| {
        said.lines()
            .find_map(|line| Some(line.split_once(word)?.1.trim().to_owned()))
    };
    let kubeconfig = after("export KUBECONFIG=").with_context(|| said.clone())?;
    // The commands that it suggests.
    let line = said
        .lines()
        .find(|line| line.contains(" get hostedclusters"))
        .context("it tells no command")?;
    let mut words = line.split_whitespace();
    let mut kubectl = Command::new(words.next().context("no command")?);
    let output = kubectl
        .args(words)
        .args(["-o", "name"])
        .env("KUBECONFIG", &kubeconfig)
        .output()?;
    let shown = String::from_utf8(output.stdout)?;
    ensure!(
        shown.lines().count() == 5,
        "it shows {shown}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Our own kind is installed, too: it accepts the bundled policies.
    let program = line.split_whitespace().next().context("no command")?;
    let policy = program::policy("built-in-taints");
    let applied = Command::new(program)
        .args(["apply", "-f"])
        .arg(policy)
        .env("KUBECONFIG", &kubeconfig)
        .output()?;
    ensure!(
        applied.status.success(),
        "{}",
        String::from_utf8_lossy(&applied.stderr)
    );
    playing.signal("-INT")?;
    playing.end()?;
    ensure!(
        !Path::new(&kubeconfig).exists(),
        "its folder was left behind"
    );
    Ok(())
}
