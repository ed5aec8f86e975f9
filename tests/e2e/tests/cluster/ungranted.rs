//! An agent without the rights to its own Lease, or to the policies: it says so once, and waits for policies.

use crate::stage::{DEADLINE, HOME, Stage, on_stage};
use anyhow::{Result, ensure};
use transom_e2e::agent::Agent;
use transom_e2e::http;
use transom_test_cluster::{Mark, wait};

const WORDS: [&str; 3] = ["--policy-objects", "--lease-namespace", HOME];

/// Starts an agent without these verbs on one resource.
async fn start_without(stage: &Stage, resource: &str, verbs: &[&str]) -> Result<Agent> {
    stage.install_policies().await?;
    stage.revoke().await?;
    stage.grant_but(&WORDS, resource, verbs).await?;
    stage.start_agent(&[&WORDS[..], &["--admin-address", "127.0.0.1:0"]].concat())
}

/// Waits until the agent was refused so often on a resource.
async fn refused(stage: &Stage, since: Mark, resource: &str, count: usize) -> Result<()> {
    wait::until("refused requests", DEADLINE, async || {
        let lines = stage.lines(since).await?.into_iter();
        let refused = lines.filter(|line| {
            let target = line.target.as_ref();
            line.code == 403 && target.is_some_and(|target| target.resource == resource)
        });
        Ok((refused.count() >= count).then_some(()))
    })
    .await
}

/// How many warnings contain all of some words.
fn warnings(agent: &Agent, words: &[&str]) -> Result<usize> {
    let log = agent.log()?;
    let says = |line: &&str| line.contains("WARN") && words.iter().all(|one| line.contains(one));
    Ok(log.lines().filter(says).count())
}

#[test]
fn a_refused_lease_is_told_once_for_each_cause_and_when_it_is_granted() -> Result<()> {
    // Without the second of these the Lease can be read, and not be made.
    for verbs in [&["get", "create", "update"][..], &["create", "update"]] {
        on_stage(async |stage| {
            stage
                .delete(
                    crate::leases::LEASES,
                    Some(HOME),
                    transom_core::rights::LEASE,
                )
                .await?;
            let agent = start_without(stage, "leases", verbs).await?;
            agent.wait_for_lines(1, &["the Lease", "is forbidden"])?;
            let mark = stage.mark()?;
            refused(stage, mark, "leases", 3).await?;
            let words =
                ["WriteForbidden", "ReadForbidden"].map(|one| [one, "the Lease", "is forbidden"]);
            let told = words
                .iter()
                .map(|words| warnings(&agent, words))
                .sum::<Result<usize>>()?;
            let log = agent.log()?;
            ensure!(
                told == 1 && !log.contains("readable again"),
                "{told} for {verbs:?}: {log}"
            );
            stage.grant_but(&WORDS, "leases", &[]).await?;
            agent.wait_for_lines(1, &["the Lease", "readable again"])?;
            agent.stop()?;
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn an_agent_that_could_never_read_its_policies_says_so_and_is_not_ready() -> Result<()> {
    on_stage(async |stage| {
        let agent = start_without(stage, "fleetpolicies", &["list", "watch"]).await?;
        let admin = agent.listening()?;
        agent.wait_for_lines(1, &["FleetPolicy", "ReadForbidden"])?;
        let mark = stage.mark()?;
        refused(stage, mark, "fleetpolicies", 3).await?;
        let words = [
            "ReadForbidden",
            "FleetPolicy",
            "fleetpolicies.transom.dev is forbidden",
        ];
        ensure!(warnings(&agent, &words)? == 1, "{}", agent.log()?);
        let ready = http::get(admin, "/readyz")?;
        ensure!(
            ready.status == 503 && ready.body.contains("FleetPolicy"),
            "{ready:?}"
        );
        stage.grant_but(&WORDS, "fleetpolicies", &[]).await?;
        agent.ready()?;
        // What was read once stays known.
        stage.revoke().await?;
        agent.wait_for_lines(2, &["FleetPolicy", "ReadForbidden"])?;
        ensure!(http::get(admin, "/readyz")?.status == 200);
        agent.stop()?;
        Ok(())
    })
}
