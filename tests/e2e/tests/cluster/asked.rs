//! `transom status` on a real API server, run by a user with read access only: what it shows, and that it only reads.

use crate::objects::CLUSTERS;
use crate::stage::{HOME, SECRET, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::process::Command;
use transom_e2e::program;
use transom_test_cluster::User;

/// The account that runs the command.
const READER: &str = "reader";

impl Stage {
    /// A user with the permissions that are printed for reading.
    pub(crate) async fn reader(&self) -> Result<User> {
        let rights = self.rights(READER, &["--policy-objects", "--read-only"], "yaml")?;
        self.objects().apply_manifest(&rights).await?;
        let user = self.cluster.service_account(HOME, READER).await?;
        self.guard.look_for_token(&user);
        Ok(user)
    }

    /// The rows that `transom status` shows to a user.
    fn ask(&self, user: &User, words: &[&str]) -> Result<Vec<Value>> {
        let (rows, told) = ask(self, user, "status", words)?;
        ensure!(told.is_empty(), "{told}");
        rows.as_array().cloned().context("no list")
    }
}

/// What a command shows to a user as JSON, and what it says on standard error.
pub(crate) fn ask(
    stage: &Stage,
    user: &User,
    command: &str,
    words: &[&str],
) -> Result<(Value, String)> {
    let kubeconfig = stage.cluster.folder().join("ask");
    let server = stage.cluster.server();
    std::fs::write(&kubeconfig, stage.cluster.kubeconfig_at(user, &server)?)?;
    let mut transom = Command::new(program::binary()?);
    let transom = transom.current_dir(stage.cluster.folder()).arg(command);
    let transom = transom.arg("--kubeconfig").arg(kubeconfig);
    let output = transom.args(["-o", "json"]).args(words).output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let shown = serde_json::from_slice(&output.stdout).with_context(|| told.clone())?;
    Ok((shown, told))
}

#[test]
fn explains_a_missing_secret_with_read_only_access() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        for name in ["one", "sourceless"] {
            stage.ready(name, true).await?;
        }
        stage.ready("late", false).await?;
        stage
            .delete(SECRET, Some(CLUSTERS), "sourceless-admin-kubeconfig")
            .await?;
        let reader = stage.reader().await?;
        let mark = stage.mark()?;
        let rows = stage.ask(&reader, &["--policy-objects"])?;
        let seen: Vec<(&str, &str)> = rows
            .iter()
            .map(|row| {
                (
                    row["primary"]["name"].as_str().unwrap_or("-"),
                    row["state"].as_str().unwrap_or("-"),
                )
            })
            .collect();
        ensure!(
            seen == [
                ("sourceless", "Failed"),
                ("late", "Waiting"),
                ("one", "WouldApply")
            ],
            "{seen:?}"
        );
        // An agent that was running reports since when.
        let once = stage.command(&["--once", "--policy-objects"])?.output()?;
        let told = String::from_utf8_lossy(&once.stderr);
        ensure!(
            once.status.code() == Some(1) && told.contains("every Secret of `local`"),
            "{told}"
        );
        let primary = format!("{CLUSTERS}/sourceless");
        for words in [&["--policy-objects"][..], &[]] {
            let mut row = stage.ask(&reader, &[&["HostedCluster", &primary], words].concat())?;
            let row = row.pop().context("no row")?;
            ensure!(
                row["reason"] == "SourceMissing"
                    && row["remedy"]
                        .as_str()
                        .is_some_and(|remedy| !remedy.is_empty())
            );
            ensure!(row["since"].is_string() != words.is_empty(), "{row:#}");
            let source = row["inputs"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|input| input["role"] == "source");
            ensure!(
                source.is_some_and(|source| source["present"] == false),
                "{row:#}"
            );
        }
        let one = stage
            .ask(&reader, &["HostedCluster", &format!("{CLUSTERS}/one")])?
            .pop()
            .context("no row")?;
        ensure!(
            one["state"] == "Applied" && one["plan"].as_array().is_some_and(Vec::is_empty),
            "{one:#}"
        );
        ensure!(
            one["inputs"][0]["version"]
                .as_str()
                .is_some_and(|version| !version.is_empty()),
            "{one:#}"
        );
        let lines: Vec<_> = stage.cluster.audit().since(mark)?;
        let asked: Vec<_> = lines
            .iter()
            .filter(|line| line.user == reader.name())
            .collect();
        let beyond = |line: &&&transom_test_cluster::Line| {
            !["get", "list", "watch"].contains(&line.verb.as_str())
                || line.code == 403
                || line.denied
        };
        let beyond: Vec<_> = asked.iter().filter(beyond).collect();
        ensure!(
            !asked.is_empty() && beyond.is_empty(),
            "it asked for {beyond:#?}"
        );
        Ok(())
    })
}

#[test]
fn names_a_watch_that_fails_once() -> Result<()> {
    on_stage(async |stage| {
        stage.install_policies().await?;
        let stranger = stage.cluster.service_account(HOME, "stranger").await?;
        let (_, told) = ask(stage, &stranger, "status", &[])?;
        let watches = told.lines().filter(|line| line.contains("HostedCluster"));
        ensure!(watches.count() == 1, "{told}");
        Ok(())
    })
}
