//! Two replicas of the binary with separate accounts, so that the audit log shows who wrote what and when. The Lease
//! shows who leads; the replicas' own output does not count.

use crate::fleet::{MANY, POLICIES, all_right, fleet, ports};
use crate::stage::{BESIDE, DEADLINE, HOME, Stage, on_stage};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use transom_core::metrics::{
    CAUSE_TO_WRITTEN, EXPIRY, LEADING, PRIMARIES, QUEUE, QUEUE_OLDEST, REQUESTS, WATCH_OBJECTS,
};
use transom_core::rights::LEASE;
use transom_e2e::agent::Agent;
use transom_e2e::http;
use transom_test_cluster::{Carries, Line, Mark, User, Wire, wait};

pub(crate) const LEASES: (&str, &str) = ("coordination.k8s.io/v1", "Lease");

/// One running replica.
struct Replica {
    user: User,
    worker: Agent,
    admin: SocketAddr,
}

impl Replica {
    /// Starts a replica that reaches the API server at an address, and waits until it is ready.
    async fn start(stage: &Stage, name: &str, server: &str) -> Result<Self> {
        let user = stage.another_agent(name).await?;
        let words = ["--lease-namespace", HOME, POLICIES];
        let worker = stage.start_command(
            stage
                .command_of(&user, server, &words)?
                .env("HOSTNAME", name),
        )?;
        let admin = worker.ready()?;
        Ok(Self {
            user,
            worker,
            admin,
        })
    }

    /// The sum of a metric over its labels.
    fn metric(&self, name: &str) -> Result<f64> {
        http::metric(self.admin, name, "")
    }

    /// Waits until it knows whether it leads.
    async fn wait_for_leading(&self, leads: bool) -> Result<()> {
        let wanted = f64::from(u8::from(leads));
        let seen = async || Ok((self.metric(LEADING.name)? == wanted).then_some(()));
        wait::until("a word on who leads", DEADLINE, seen).await
    }
}

/// The requests of replicas, with the times of the API server.
struct Deeds(Vec<Line>);

impl Deeds {
    async fn since(stage: &Stage, mark: Mark) -> Result<Self> {
        Ok(Self(stage.all_lines(mark).await?))
    }

    /// What a replica changed, without the Lease, Events and status.
    fn writes(&self, of: &User) -> Vec<&Line> {
        let other = |line: &&Line| !BESIDE.contains(&line.resource());
        self.done(of).filter(other).collect()
    }

    /// The first time that a replica acquired the Lease.
    fn took(&self, who: &User) -> Result<&Line> {
        let mut leases = self.done(who).filter(|line| line.resource() == "leases");
        leases
            .next()
            .with_context(|| format!("{} never had the Lease", who.name()))
    }

    fn done(&self, who: &User) -> impl Iterator<Item = &Line> {
        let name = who.name().to_owned();
        self.0
            .iter()
            .filter(move |line| line.user == name && line.is_write() && line.code < 300)
    }

    /// Checks that one replica wrote only before the other one acquired the Lease, and the other one only after that.
    fn in_turn(&self, first: &User, second: &User) -> Result<()> {
        let took = self.took(second)?;
        let late: Vec<&Line> = self
            .writes(first)
            .into_iter()
            .filter(|line| line.received >= took.received)
            .collect();
        ensure!(
            late.is_empty(),
            "written after another replica had the Lease: {late:#?}"
        );
        let early: Vec<&Line> = self
            .writes(second)
            .into_iter()
            .filter(|line| line.received < took.reached)
            .collect();
        ensure!(early.is_empty(), "written without the Lease: {early:#?}");
        Ok(())
    }
}

impl Stage {
    /// The holder of the Lease, as a replica's name and an identifier of its process.
    pub(crate) async fn holder(&self) -> Result<String> {
        let lease = self.get(LEASES, Some(HOME), LEASE).await?;
        let holder = lease.unwrap_or_default()["spec"]["holderIdentity"].take();
        Ok(holder.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until a replica of this name holds the Lease.
    pub(crate) async fn wait_for_holder(&self, name: &str) -> Result<()> {
        let (what, holder) = (format!("{name} as the leader"), format!("{name}_"));
        wait::until(&what, DEADLINE, async || {
            Ok(self.holder().await?.starts_with(&holder).then_some(()))
        })
        .await
    }
}

/// Waits until a replica of this name holds the Lease, and prints how long it took.
async fn wait_for_leader(stage: &Stage, name: &str, what: &str) -> Result<()> {
    let start = Instant::now();
    stage.wait_for_holder(name).await?;
    println!(
        "{what}: another replica leads after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The fleet, one replica behind a proxy that has done all the work, and a second one on standby.
async fn two(stage: &Stage) -> Result<(Wire, Replica, Replica)> {
    stage.delete(LEASES, Some(HOME), LEASE).await?;
    fleet(stage, MANY).await?;
    let wire = Wire::to(&stage.cluster.server())?;
    let one = Replica::start(stage, "one", &wire.server()).await?;
    all_right(stage, MANY, 6443).await?;
    let two = Replica::start(stage, "two", &stage.cluster.server()).await?;
    ensure!(two.metric(LEADING.name)? == 0.0, "two lead");
    Ok((wire, one, two))
}

#[test]
fn takes_over_at_once_after_release_and_within_the_lease_after_a_crash() -> Result<()> {
    on_stage(async |stage| {
        let mark = stage.mark()?;
        let (_, one, two) = two(stage).await?;
        // Ready means that its cache contains all that the leader's does.
        let held = [
            one.metric(WATCH_OBJECTS.name)?,
            two.metric(WATCH_OBJECTS.name)?,
        ];
        ensure!(
            held[0] > 0.0 && held[0] == held[1],
            "objects held: {held:?}"
        );
        ports(stage, 0..MANY, 7443).await?;
        let asked = Instant::now();
        one.worker.stop()?;
        println!(
            "the leader was asked to end: gone after {:.1} s",
            asked.elapsed().as_secs_f64()
        );
        wait_for_leader(stage, "two", "the leader ended").await?;
        all_right(stage, MANY, 7443).await?;
        let deeds = Deeds::since(stage, mark).await?;
        deeds.in_turn(&one.user, &two.user)?;
        let last = deeds
            .done(&one.user)
            .last()
            .context("nothing was written")?;
        ensure!(
            last.resource() == "leases",
            "the lease was not the last that it wrote: {last:?}"
        );

        let three = Replica::start(stage, "three", &stage.cluster.server()).await?;
        let mark = stage.mark()?;
        ports(stage, 0..MANY, 8443).await?;
        two.worker.kill()?;
        wait_for_leader(stage, "three", "the leader was killed").await?;
        all_right(stage, MANY, 8443).await?;
        three.worker.stop()?;
        Deeds::since(stage, mark)
            .await?
            .in_turn(&two.user, &three.user)?;
        Ok(())
    })
}

#[test]
fn a_frozen_leader_writes_nothing_after_it_resumes() -> Result<()> {
    on_stage(async |stage| {
        let mark = stage.mark()?;
        let (_, one, two) = two(stage).await?;
        // It is working on these when it is frozen.
        ports(stage, 0..MANY, 7443).await?;
        one.worker.signal("-STOP")?;
        ports(stage, 0..MANY, 8443).await?;
        wait_for_leader(stage, "two", "the leader was frozen").await?;
        all_right(stage, MANY, 8443).await?;
        one.worker.signal("-CONT")?;
        one.wait_for_leading(false).await?;
        // It sees all of this and leaves it to the other one.
        ports(stage, 0..MANY, 9443).await?;
        all_right(stage, MANY, 9443).await?;
        let deeds = Deeds::since(stage, mark).await?;
        deeds.in_turn(&one.user, &two.user)?;
        ensure!(
            !deeds.writes(&one.user).is_empty() && !deeds.writes(&two.user).is_empty(),
            "nothing was written"
        );
        two.worker.stop()?;
        wait_for_leader(stage, "one", "the leader ended").await?;
        ports(stage, 0..MANY, 6443).await?;
        all_right(stage, MANY, 6443).await?;
        one.worker.stop()?;
        Ok(())
    })
}

#[test]
fn a_leader_without_connection_stops_before_its_lease_ends() -> Result<()> {
    on_stage(async |stage| {
        let mark = stage.mark()?;
        let (wire, one, two) = two(stage).await?;
        // It still receives events, but its requests get lost.
        wire.carry(Carries::Answers);
        ports(stage, 0..MANY, 7443).await?;
        let parted = Instant::now();
        one.wait_for_leading(false).await?;
        let told = parted.elapsed();
        ensure!(
            stage.holder().await?.starts_with("one_"),
            "it led until another one did"
        );
        println!(
            "the leader reached nobody: stopped after {:.1} s",
            told.as_secs_f64()
        );
        wait_for_leader(stage, "two", "the leader reached nobody").await?;
        all_right(stage, MANY, 7443).await?;
        // Its late requests arrive after the other one has written.
        wire.carry(Carries::All);
        wait::until("a word of the healed replica", DEADLINE, async || {
            let late = stage.cluster.audit().since(mark)?;
            let took = Deeds(late.clone()).took(&two.user)?.received.clone();
            Ok(late
                .iter()
                .any(|line| line.user == one.user.name() && line.received > took)
                .then_some(()))
        })
        .await?;
        ports(stage, 0..MANY, 8443).await?;
        all_right(stage, MANY, 8443).await?;
        Deeds::since(stage, mark)
            .await?
            .in_turn(&one.user, &two.user)?;
        one.worker.stop()?;
        two.worker.stop()?;
        Ok(())
    })
}

#[test]
fn ignores_clock_skew_of_other_replicas() -> Result<()> {
    on_stage(async |stage| {
        stage.delete(LEASES, Some(HOME), LEASE).await?;
        stage.install_policies().await?;
        stage.ready("clock", true).await?;
        // First its renew time is in the far future although it is dead; then in the far past although it is alive.
        let ghost = |year: u32, micros: u32| json!({"spec": {"holderIdentity": "ghost", "leaseDurationSeconds": 3, "renewTime": format!("{year}-01-01T00:00:00.{micros:06}Z")}});
        let mut lease = json!({"apiVersion": LEASES.0, "kind": LEASES.1, "metadata": {"name": LEASE, "namespace": HOME}});
        lease["spec"] = ghost(2090, 0)["spec"].clone();
        stage.objects().create(lease).await?;
        let one = Replica::start(stage, "one", &stage.cluster.server()).await?;
        wait_for_leader(stage, "one", "the dead leader has a clock of 2090").await?;
        stage.wait_for_right("clock", 6443).await?;
        // A new leader records the revisions of both policies; it may do so after its first Secret.
        wait::until("the recorded revisions", DEADLINE, async || {
            let recorded = stage.list(("apps/v1", "ControllerRevision")).await?;
            Ok((recorded.len() == 2).then_some(()))
        })
        .await?;
        let (mark, start, mut renewals) = (stage.mark()?, Instant::now(), 0);
        stage
            .patch(LEASES, Some(HOME), LEASE, ghost(2000, renewals))
            .await?;
        one.wait_for_leading(false).await?;
        stage.move_port("clock", 7443).await?;
        // Twice the lease duration.
        wait::until("six seconds of renewals", DEADLINE, async || {
            renewals += 1;
            stage
                .patch(LEASES, Some(HOME), LEASE, ghost(2000, renewals))
                .await?;
            Ok((start.elapsed() > Duration::from_secs(6)).then_some(()))
        })
        .await?;
        let deeds = Deeds::since(stage, mark).await?;
        let renewed = deeds
            .done(stage.cluster.admin())
            .filter(|line| line.resource() == "leases")
            .last();
        let renewed = &renewed.context("nothing was renewed")?.received;
        let writes = deeds.writes(&one.user);
        ensure!(
            writes.iter().all(|line| line.received > *renewed),
            "written while another one had the Lease, renewed at {renewed}: {writes:#?}"
        );
        wait_for_leader(stage, "one", "the leader with a clock of 2000 died").await?;
        stage.wait_for_right("clock", 7443).await?;
        one.worker.stop()?;
        Ok(())
    })
}

#[test]
fn only_the_leader_exports_metrics_of_primaries_and_pending_work() -> Result<()> {
    on_stage(async |stage| {
        let (wire, one, two) = two(stage).await?;
        let told = |replica: &Replica| -> Result<Vec<&str>> {
            let text = http::get(replica.admin, "/metrics")?.body;
            let all =
                [&PRIMARIES, &EXPIRY, &QUEUE, &QUEUE_OLDEST, &REQUESTS].map(|metric| metric.name);
            Ok(all
                .into_iter()
                .filter(|name| text.contains(&format!("\n{name}{{")))
                .collect())
        };
        let all = vec![
            PRIMARIES.name,
            EXPIRY.name,
            QUEUE.name,
            QUEUE_OLDEST.name,
            REQUESTS.name,
        ];
        ensure!(
            told(&one)? == all && told(&two)? == [REQUESTS.name],
            "{:?} {:?}",
            told(&one)?,
            told(&two)?
        );
        wire.cut();
        // Changes while no replica leads count from that time at most, whenever the next leader was started.
        let start = Instant::now();
        ports(stage, 0..MANY, 7443).await?;
        wait_for_leader(stage, "two", "the leader was cut off").await?;
        all_right(stage, MANY, 7443).await?;
        let summed = two.metric(&format!("{}_sum", CAUSE_TO_WRITTEN.name))?;
        let written = two.metric(&format!("{}_count", CAUSE_TO_WRITTEN.name))?;
        let most = written * start.elapsed().as_secs_f64();
        ensure!(
            written > 0.0 && summed <= most,
            "{written} writes took {summed} s together, {most} at most"
        );
        one.wait_for_leading(false).await?;
        ensure!(
            told(&one)? == [REQUESTS.name] && told(&two)? == all,
            "{:?} {:?}",
            told(&one)?,
            told(&two)?
        );
        one.worker.kill()?;
        two.worker.stop()?;
        Ok(())
    })
}
