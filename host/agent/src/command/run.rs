//! `transom run`: wires the parts, and drives them until the work is done or the process is told to stop.

mod once;

use crate::admin::{self, AdminOptions};
use crate::args::ReconcileArgs;
use crate::args::run::{AdminArgs, LogFormat, RunArgs};
use crate::command::summary::Done;
use crate::command::{block_on, child};
use crate::controller::Clock;
use crate::controller::Controller;
use crate::controller::connections::Connections;
use crate::input;
use crate::output::{Ending, Screen};
use crate::policies::Source;
use crate::policies::active::Active;
use crate::policies::loading::Loading;
use crate::policies::swap::Swap;
use crate::{
    command::connect, command::summary, command::would, metrics, policies::watch, telemetry,
};
use anyhow::Context as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use transom_artifacts::{Base, Gathered, Location, builtin_names};
use transom_cluster::directory::Limits;
use transom_cluster::kubernetes::{Kubernetes, Reviews};
use transom_core::catalogue::Catalogue;
use transom_core::contract::AgentFacts;
use transom_core::kubeconfig::COST;
use transom_core::reference::LOCAL;
use transom_core::share::budget::{Budget, Costs};
use transom_engine::{COMPILING_BYTES, Compiler, Engine, EngineOptions};

/// How long each step of the shutdown may take, such as the end of reconciles under way.
const GRACE: Duration = Duration::from_secs(10);
/// Maximum processor time for compiling one component, in seconds.
const COMPILING_SECONDS: u64 = 30;
/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;
/// The namespace of the revisions that are kept in a folder.
const HISTORY: &str = "transom";
/// How often the progress line moves.
const PROGRESS: Duration = Duration::from_millis(200);

/// Works on API servers and directories until stopped, or once.
///
/// # Errors
/// When a cluster, the policies or the engine cannot be used at all.
pub(crate) fn run(args: &RunArgs, screen: &Screen) -> anyhow::Result<Ending> {
    telemetry::start(args.log_format, args.once);
    if args.log_format == LogFormat::Json {
        screen.notes_as_json();
    }
    metrics::start(args.admin.compatibility_metrics)?;
    block_on(work(args, screen))?
}

async fn work(args: &RunArgs, screen: &Screen) -> anyhow::Result<Ending> {
    check_policies(&args.reconcile)?;
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
        ended = &mut ending => return ended.map(|()| Ending::Right),
        prepared = prepare(args) => prepared?,
    };
    let active = swap.active().clone();
    let (telling, policies) = (Arc::clone(&controller), active.clone());
    let telling = tokio::spawn(async move {
        tokio::join!(
            telling.keep_publishing_policies(),
            telling.keep_writing_statuses(),
            telling.keep_limits(&policies)
        );
    });
    // Started now, since a policy may change before everything was reconciled under it.
    let (changed, changes) = mpsc::unbounded_channel();
    let (source, base) = (Arc::clone(&controller), base(args));
    let following = active.clone();
    let news = async move |components| source.news(&base, &following, components).await;
    let (trying, tried) = (Arc::clone(&controller), active.clone());
    let attempt = move |due| Arc::clone(&trying).try_candidate(tried.clone(), due);
    let (asks, asked) = mpsc::unbounded_channel();
    let succeeding = tokio::spawn(Arc::clone(&controller).succeed(active.clone(), asks));
    let failing = Arc::clone(&controller);
    let faults = move |policy: &str| failing.faults(policy);
    let rollouts = watch::Rollouts {
        attempt,
        faults,
        succeeds: asked,
    };
    let swapping = tokio::spawn(watch::policies(
        swap,
        news,
        rollouts,
        changed,
        args.tag_resync_seconds,
    ));
    let taking = Arc::clone(&controller).follow_policies(active.clone(), changes);
    let taking = tokio::spawn(taking);
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
    controller.stop();
    for task in [swapping, taking, telling, succeeding] {
        task.abort();
    }
    // Reconciles under way may end; the next start finds what hangs longer.
    let _ = tokio::time::timeout(GRACE, controller.rested()).await;
    let _ = tokio::time::timeout(GRACE, controller.connections.release()).await;
    drop(opening);
    serving.iter().for_each(JoinHandle::abort);
    Ok(Ending::Right)
}

/// An agent whose connections are being opened. Each policy begins as soon as what it needs was listed.
pub(crate) struct Prepared {
    pub(crate) controller: Arc<Controller>,
    pub(crate) swap: Swap,
    /// Ends when all that was loaded was put to work.
    pub(crate) begun: JoinHandle<()>,
    /// The tasks that open or follow connections; they end when this is dropped.
    pub(crate) opening: JoinSet<()>,
    serving: Option<JoinHandle<()>>,
}

/// Opens the clusters, loads the policies and puts them to work.
///
/// # Errors
/// When a cluster, the policies or the engine cannot be used at all.
pub(crate) async fn prepare(args: &RunArgs) -> anyhow::Result<Prepared> {
    let budget = budget(args)?;
    let engine = engine_within(&budget, args.reconcile.calls.limits())?;
    if args.asked.is_none() {
        check_limits(&engine, &Engine::STRICT)?;
    }
    // Policies in files are loaded while the clusters are opened; those in objects can be read only after that.
    let files = (!args.server.reach.policy_objects).then(|| {
        Source::new(
            args.reconcile.policies.as_deref(),
            args.reconcile.components.as_deref(),
        )
    });
    let files = files.transpose()?;
    let names = connect::names(args);
    // Revisions are kept where the agent itself runs.
    let namespace = match args.dir.iter().any(|dir| dir.name == LOCAL) {
        true => Some(HISTORY),
        false => args.server.lease_namespace.as_deref(),
    };
    let components = || match namespace.filter(|_| args.asked.is_none()) {
        Some(namespace) => args.reconcile.reading().remembering(namespace),
        None => args.reconcile.reading(),
    };
    let files = files.map(|files| {
        Loading::start(
            engine.clone(),
            files,
            names.clone(),
            components(),
            args.asked.is_none(),
        )
    });
    let controller = controller(connect::open(args).await?, &args.reconcile);
    let controller = controller.within(&budget).ending(args.once);
    let place = controller
        .connections
        .limits(args.server.lease_namespace.as_deref());
    let controller = Arc::new(match args {
        RunArgs {
            asked: Some(asked), ..
        } => controller.only_asked(*asked),
        _ if would::is_asked_for(args) => controller.read_only(),
        _ if args.server.read_only => controller,
        _ => controller.limiting(place),
    });
    // Health is answered before anything is ready.
    let serving = match admin_options(&args.admin) {
        Some(options) => {
            Some(admin::start(Arc::clone(&controller) as _, options, reviews(&controller)).await?)
        }
        None => None,
    };
    let loading = match files {
        Some(files) => files,
        None => {
            controller.connections.watch(Catalogue::default);
            controller.connections.first_listed(LOCAL, args.once).await;
            let given = controller.given(&base(args)).await;
            // Another look finds what changes from here to the start of the watch.
            controller.connections.policies_came(LOCAL);
            Loading::start(
                engine,
                Source::Given(given),
                names,
                components(),
                args.asked.is_none(),
            )
        }
    };
    loading.opened(controller.connections.local());
    let (swap, changes) = if args.once {
        loading.done().await?
    } else {
        loading.begun().await?
    };
    if args.once {
        check_found(swap.active(), &args.reconcile)?;
    }
    let beginning = Arc::clone(&controller).begin_policies(swap.active().clone(), changes);
    controller.connections.watch(|| swap.active().catalogue());
    let (opening, started) = (controller.open(args.once), Arc::clone(&controller));
    let begun = tokio::spawn(async move {
        beginning.await;
        started.queues.complete();
    });
    Ok(Prepared {
        controller,
        swap,
        begun,
        opening,
        serving,
    })
}

/// Waits until everything was reconciled, and prints the summary for the policies of the start.
async fn first(controller: &Arc<Controller>, active: &Active, screen: &Screen) {
    drive(controller, screen).await;
    controller.publish_policies();
    summary::tell(controller, active, Done::Written, screen);
    // Waits for policies that are still being loaded: the statuses of their primaries must not be removed.
    active.settled().await;
    controller.idle().await;
    controller.tidy_status(&active.names());
    controller.publish_policies();
}

/// Where the component files of `FleetPolicy` objects lie.
fn base(args: &RunArgs) -> Base {
    args.reconcile
        .components
        .clone()
        .map_or(Base::Nowhere, Base::Components)
}

/// Where the admin server is listening, if it is wanted.
fn admin_options(args: &AdminArgs) -> Option<AdminOptions> {
    let certificate = args.admin_tls_cert.clone().zip(args.admin_tls_key.clone());
    Some(AdminOptions {
        address: args.admin_address?,
        certificate,
    })
}

/// The API server that authorizes access to metrics and state.
fn reviews(controller: &Controller) -> Option<Reviews> {
    controller.connections.home().map(Kubernetes::reviews)
}

/// The size limits of a directory.
pub(crate) fn limits(max_object_bytes: usize) -> Limits {
    Limits {
        object_bytes: max_object_bytes,
        ..Limits::default()
    }
}

/// An agent with the facts and the clock of the command line.
fn controller(connections: Connections, args: &ReconcileArgs) -> Controller {
    let facts = AgentFacts::new(&args.cluster_name, args.self_managed_cluster.as_deref());
    Controller::new(connections, Clock::new(args.now), facts).limited(args.max_kubeconfig_bytes)
}

/// Sees that every limit stops a hostile guest before any other guest runs.
///
/// # Errors
/// The limit that does not.
fn check_limits(engine: &Engine, strict: &transom_engine::Limits) -> anyhow::Result<()> {
    engine
        .self_check(strict)
        .context("failed to start: guests cannot be run safely on this machine")
}

/// Shares out the memory budget.
///
/// # Errors
/// When it is too little.
fn budget(args: &RunArgs) -> anyhow::Result<Budget> {
    let document = (args.reconcile.max_kubeconfig_bytes as u64).saturating_mul(COST as u64);
    let costs = Costs {
        call: args.reconcile.calls.limits().bytes(),
        compilation: COMPILING_BYTES,
        document,
    };
    let wanted = args.memory_budget;
    Budget::share(wanted.saturating_mul(MIB), &costs).map_err(|least| {
        anyhow::anyhow!(
            "failed to use --memory-budget {wanted}: the minimum is {} MiB",
            least.div_ceil(MIB)
        )
    })
}

/// An engine with the usual options, which allows no call more than these limits.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn engine(limits: transom_engine::Limits) -> anyhow::Result<Engine> {
    engine_within(&Budget::default(), limits)
}

fn engine_within(budget: &Budget, limits: transom_engine::Limits) -> anyhow::Result<Engine> {
    let concurrency = u32::try_from(budget.calls).unwrap_or(u32::MAX);
    let compiler = Some(Compiler {
        program: child::PROGRAM.into(),
        words: vec!["compile".into()],
        seconds: COMPILING_SECONDS,
    });
    let trusted = builtin_names().filter_map(|name| {
        Location::Builtin(name.to_owned())
            .fetch(None, &Gathered::default())
            .ok()
    });
    let trusted = trusted
        .map(|artifact| transom_engine::digest(&artifact.bytes))
        .collect();
    let options = EngineOptions {
        concurrency,
        limits,
        code_cache: cache("code"),
        compiler,
        trusted,
        ..EngineOptions::default()
    };
    Ok(Engine::new(options)?)
}

/// Where something is kept between runs: below the user's cache folder, if there is one.
pub(crate) fn cache(what: &str) -> Option<PathBuf> {
    let named = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")));
    caches.map(|caches| caches.join("transom").join(what))
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
        Some(path) => anyhow::bail!("failed to find a policy in `{}`", path.display()),
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
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_does_not_stop_a_guest_stops_the_start() {
        let engine = Engine::new(EngineOptions::default()).unwrap();
        assert!(check_limits(&engine, &Engine::STRICT).is_ok());
        let loose = transom_engine::Limits {
            memory_bytes: 16 << 20,
            ..Engine::STRICT
        };
        let error = check_limits(&engine, &loose).unwrap_err();
        let told = format!("{error:#}");
        assert!(
            told.contains("the limit of memory does not stop a guest: it answered"),
            "{told}"
        );
    }
}
