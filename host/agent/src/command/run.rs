//! `transom run`: wires the parts, and drives them until the work is done or the process is told to stop.

mod once;
mod prepare;

use crate::args::ReconcileArgs;
use crate::args::run::{LogFormat, RunArgs};
use crate::command::summary::WrittenTo;
use crate::command::{block_on, summary};
use crate::controller::Controller;
use crate::output::{CommandEnd, Screen};
use crate::policies::active::Active;
use crate::policies::swap::Swap;
use crate::policies::watch;
use crate::{input, metrics, telemetry};
use anyhow::Context as _;
use prepare::base;
pub(crate) use prepare::{Prepared, prepare};
use std::fs;
use std::future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How long each step of the shutdown may take, such as the end of reconciles under way.
const GRACE: Duration = Duration::from_secs(10);
/// How long the records of the limits may take of that.
const SETTLE: Duration = Duration::from_secs(3);
/// How often the progress line moves.
const PROGRESS: Duration = Duration::from_millis(200);

/// Works on API servers and directories until stopped, or once.
///
/// # Errors
/// When a cluster, the policies or the engine cannot be used at all.
pub(crate) fn run(args: &RunArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    let usual = if args.once {
        telemetry::USUAL_ONCE
    } else {
        telemetry::USUAL
    };
    telemetry::start(args.log_format, usual);
    if args.log_format == LogFormat::Json {
        screen.notes_as_json();
    }
    metrics::start(args.admin.compatibility_metrics)?;
    block_on(work(args, screen))?
}

async fn work(args: &RunArgs, screen: &Screen) -> anyhow::Result<CommandEnd> {
    check_policies(&args.reconcile)?;
    if let Some(overlong) = args.reconcile.overlong_name() {
        screen.warn(format_args!("{overlong}"));
    }
    if args.once {
        return once::once(args, screen).await;
    }
    // From here on a signal ends the process in order, even during the first lists.
    let mut ending = pin!(stopped()?);
    let Prepared {
        controller,
        swap,
        opening,
        begun,
        serving,
    } = tokio::select! {
        ended = &mut ending => return ended.map(|()| CommandEnd::Right),
        prepared = prepare(args) => prepared?,
    };
    let active = swap.active().clone();
    // From now on, since a policy may change before everything was reconciled under it.
    let tasks = follow(&controller, swap, args);
    let work = async {
        // Fails only by a bug in the agent, which was logged.
        drop(begun.await);
        // Joins the election only now that it could work at once, so that no replica leads while it is still listing.
        if controller.connections.stand().await {
            first(&controller, &active, screen).await;
        }
    };
    tokio::select! {
        () = work => ending.await?,
        ended = &mut ending => ended?,
    }
    // A release forgets that this replica leads, whether it succeeds or not.
    let is_elected = controller.connections.leading().is_elected();
    controller.stop();
    tasks.iter().for_each(JoinHandle::abort);
    // Reconciles under way may end; the next start finds what hangs longer.
    let rested = tokio::time::timeout(GRACE, controller.rested()).await;
    let end = async {
        // A record that hangs keeps no other replica waiting: it is written at its version.
        drop(tokio::time::timeout(SETTLE, controller.settle_limits()).await);
        controller.connections.release().await;
    };
    // What is still sent may take effect after the next leader began: then the Lease expires instead.
    let ended = match rested {
        Ok(()) => tokio::time::timeout(GRACE, end).await,
        Err(late) => Err(late),
    };
    if ended.is_err() {
        telemetry::cut_off(is_elected);
    }
    drop(opening);
    serving.iter().for_each(JoinHandle::abort);
    Ok(CommandEnd::Right)
}

/// Follows policies and publishes, until the tasks are aborted.
fn follow(controller: &Arc<Controller>, swap: Swap, args: &RunArgs) -> [JoinHandle<()>; 4] {
    let active = swap.active().clone();
    let (publishing, limited) = (Arc::clone(controller), active.clone());
    let publishing = async move {
        tokio::join!(
            publishing.keep_publishing_policies(),
            publishing.keep_writing_statuses(),
            publishing.keep_limits(&limited),
            publishing.follow_clock()
        );
    };
    let (asks, succeeds) = mpsc::unbounded_channel();
    let succeeding = Arc::clone(controller).succeed(active.clone(), asks);
    let (trying, tried) = (Arc::clone(controller), active.clone());
    let failing = Arc::clone(controller);
    let rollouts = watch::Rollouts {
        attempt: move |due| Arc::clone(&trying).try_candidate(tried.clone(), due),
        faults: move |policy: &str| failing.faults(policy),
        succeeds,
    };
    let (source, base, following) = (Arc::clone(controller), base(args), active.clone());
    let news = async move |components| source.news(&base, &following, components).await;
    let (changed, changes) = mpsc::unbounded_channel();
    let swapping = watch::policies(swap, news, rollouts, changed, args.tag_resync_seconds);
    let taking = Arc::clone(controller).follow_policies(active, changes);
    [
        tokio::spawn(publishing),
        tokio::spawn(succeeding),
        tokio::spawn(swapping),
        tokio::spawn(taking),
    ]
}

/// Waits until everything was reconciled, and prints the summary for the policies of the start.
async fn first(controller: &Arc<Controller>, active: &Active, screen: &Screen) {
    drive(controller, screen).await;
    controller.publish_policies();
    summary::tell(controller, active, WrittenTo::Written, screen);
    // Waits for policies that are still being loaded: the statuses of their primaries must not be removed.
    active.settled().await;
    controller.idle().await;
    controller.tidy_status(active);
    controller.publish_policies();
}

/// Refuses a path of policies that does not exist.
///
/// # Errors
/// When there is nothing at the path.
pub(crate) fn check_policies(args: &ReconcileArgs) -> anyhow::Result<()> {
    let missing = |path: &&PathBuf| !input::is_meant(path) && !path.exists();
    match args.policies.as_ref().filter(missing) {
        Some(path) => {
            anyhow::bail!(
                "failed to read the policies `{}`: no such file or folder",
                path.display()
            )
        }
        None => Ok(()),
    }
}

/// Refuses a folder or file of policies that holds none: otherwise a single run would seem to have nothing to do.
///
/// # Errors
/// When no policy was found, good or bad.
pub(crate) fn check_found(active: &Active, args: &ReconcileArgs) -> anyhow::Result<()> {
    match args
        .policies
        .as_ref()
        .filter(|_| active.names().is_empty() && active.broken().is_empty())
    {
        Some(path) => anyhow::bail!("failed to find a policy in {}", input::shown(path)),
        None => Ok(()),
    }
}

/// Waits until nothing is left to do now, with a progress line.
pub(crate) async fn drive(controller: &Arc<Controller>, screen: &Screen) {
    let idle = controller.idle();
    tokio::pin!(idle);
    while tokio::time::timeout(PROGRESS, &mut idle).await.is_err() {
        screen.progress(format_args!("{} left to reconcile", controller.left()));
    }
    screen.end_progress();
}

/// Takes over the signals to stop; the returned future waits for one.
fn stopped() -> anyhow::Result<impl Future<Output = anyhow::Result<()>>> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to handle SIGINT")?;
    // A terminal that closes sends it. Whoever started the agent with `nohup` wants it to go on.
    let mut hangup = match ignores_hangup() {
        true => None,
        false => Some(signal(SignalKind::hangup()).context("failed to handle SIGHUP")?),
    };
    Ok(async move {
        let hangup = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            _ = hangup => Ok(()),
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })
}

/// Whether the process was started with SIGHUP ignored.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
    // Its number is 1.
    ignored.is_some_and(|signals| signals & 1 == 1)
}
