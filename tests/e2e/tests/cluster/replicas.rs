//! Replicas of the agent on one API server, each with an account of its own, so that the audit log shows who wrote
//! what.

use crate::leases::LEASES;
use crate::stage::{BESIDE, DEADLINE, HOME, Stage, is_main_write};
use anyhow::{Context as _, Result, ensure};
use std::time::{Duration, Instant};
use transom_core::rights::LEASE;
use transom_e2e::agent::Agent;
use transom_test_cluster::{Line, Mark, User, wait};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// Three replicas, of which one leads.
pub(crate) struct Replicas {
    words: Vec<String>,
    users: Vec<User>,
    running: Vec<Option<Agent>>,
    /// When all were ready: a server knows new permissions a moment after they were given.
    ready: Mark,
}

impl Replicas {
    /// Starts them with the same words, once their accounts have the permissions that `transom rbac` prints for some
    /// words.
    pub(crate) async fn start(stage: &Stage, words: &[&str], rights: &[&str]) -> Result<Self> {
        stage.delete(LEASES, Some(HOME), LEASE).await?;
        let mut all = Self {
            words: words.iter().map(|&word| word.to_owned()).collect(),
            users: Vec::new(),
            running: Vec::new(),
            ready: stage.mark()?,
        };
        for name in NAMES {
            all.users.push(stage.account(name, rights).await?);
            all.running.push(None);
        }
        let users: Vec<&User> = all.users.iter().collect();
        stage.allow_components(&users).await?;
        for index in 0..NAMES.len() {
            all.begin(stage, index)?;
        }
        for agent in all.running.iter().flatten() {
            agent.ready()?;
        }
        all.ready = stage.mark()?;
        Ok(all)
    }

    fn begin(&mut self, stage: &Stage, index: usize) -> Result<()> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let (user, server) = (&self.users[index], stage.cluster.server());
        let mut command = stage.command_at_real_time(user, &server, &words)?;
        let agent = stage.start_command(command.env("HOSTNAME", NAMES[index]))?;
        self.running[index] = Some(agent);
        Ok(())
    }

    /// Ends the leader, and starts it anew once another one leads; returns how long that took. One that is asked to end
    /// gives the Lease back.
    pub(crate) async fn end_leader(&mut self, stage: &Stage, asked: bool) -> Result<Duration> {
        let leader = leader(stage).await?;
        let agent = self.running[leader].take().context("the leader is gone")?;
        let start = Instant::now();
        let ending = if asked {
            agent.signal("-TERM")?;
            Some(agent)
        } else {
            agent.kill()?;
            None
        };
        let before = format!("{}_", NAMES[leader]);
        wait::until("another leader", DEADLINE, async || {
            let holder = stage.holder().await?;
            Ok((!holder.is_empty() && !holder.starts_with(&before)).then_some(()))
        })
        .await?;
        let span = start.elapsed();
        ending.map(Agent::end).transpose()?;
        self.begin(stage, leader)?;
        Ok(span)
    }

    /// Whether a request is one of a replica.
    fn sent(&self, line: &Line) -> bool {
        self.users.iter().any(|user| user.name() == line.user)
    }

    /// Whether a request is a write of a replica, other than what an agent writes beside its main task and the
    /// revisions of policies.
    pub(crate) fn wrote(&self, line: &Line) -> bool {
        is_main_write(line) && line.resource() != "controllerrevisions" && self.sent(line)
    }

    /// Checks that nothing was denied, and that whoever wrote something held the Lease then; returns the writes.
    pub(crate) async fn in_turn(&self, stage: &Stage, since: Mark) -> Result<Vec<Line>> {
        let later = stage.all_lines(self.ready).await?;
        let denied = later.iter().find(|line| self.sent(line) && line.denied);
        ensure!(denied.is_none(), "denied: {denied:?}");
        let mut lines = stage.all_lines(since).await?;
        lines.retain(|line| self.sent(line));
        lines.retain(|line| line.is_write() && line.code < 300);
        lines.sort_by(|one, other| one.reached.cmp(&other.reached));
        let (mut writes, mut renewed) = (Vec::new(), None::<Line>);
        for line in lines {
            // The clusters have Leases, too.
            let at_home = || {
                line.target
                    .as_ref()
                    .is_some_and(|target| target.namespace == HOME)
            };
            if line.resource() == "leases" && at_home() {
                renewed = Some(line);
            } else if !BESIDE.contains(&line.resource()) {
                ensure!(
                    renewed
                        .as_ref()
                        .is_none_or(|renewed| renewed.user == line.user),
                    "written beside the leader: {line:?} after {renewed:?}"
                );
                writes.push(line);
            }
        }
        Ok(writes)
    }

    /// Ends them.
    pub(crate) fn stop(self) -> Result<()> {
        self.running
            .into_iter()
            .flatten()
            .try_for_each(|agent| agent.stop().map(drop))
    }
}

/// The number of the replica that leads.
async fn leader(stage: &Stage) -> Result<usize> {
    wait::until("a leader", DEADLINE, async || {
        let holder = stage.holder().await?;
        let is = |name: &&str| holder.starts_with(&format!("{name}_"));
        Ok(NAMES.iter().position(is))
    })
    .await
}
