//! Prepares an agent: opens its clusters, loads its policies and puts them to work.

use crate::admin::{self, AdminOptions};
use crate::args::ReconcileArgs;
use crate::args::run::{AdminArgs, RunArgs};
use crate::clock::Clock;
use crate::command::{connect, engine, would};
use crate::controller::Controller;
use crate::controller::connections::Connections;
use crate::policies::components::Components;
use crate::policies::first_load::FirstLoad;
use crate::policies::places::KnownPlaces;
use crate::policies::swap::Swap;
use crate::policies::{FoundPolicies, PolicySource};
use crate::telemetry;
use std::sync::Arc;
use tokio::task::{JoinHandle, JoinSet};
use transom_artifacts::Base;
use transom_cluster::kubernetes::{ConnectSettings, Kubernetes, Reviews};
use transom_core::contract::AgentFacts;
use transom_core::own_records::{self, OwnRecords};
use transom_core::reference::LOCAL;
use transom_core::share::budget::Budget;
use transom_engine::Engine;

/// An agent whose connections are being opened. Each policy begins as soon as what it needs was listed.
pub(crate) struct Prepared {
    pub(crate) controller: Arc<Controller>,
    pub(crate) swap: Swap,
    /// Ends when all that was loaded was put to work.
    pub(crate) begun: JoinHandle<()>,
    /// The tasks that open or follow connections; they end when this is dropped.
    pub(crate) opening: JoinSet<()>,
    /// The admin server.
    pub(super) serving: Option<JoinHandle<()>>,
}

/// Opens the clusters, loads the policies and puts them to work.
///
/// # Errors
/// When a cluster, the policies or the engine cannot be used at all.
pub(crate) async fn prepare(args: &RunArgs) -> anyhow::Result<Prepared> {
    let budget = engine::budget(args)?;
    let engine = engine::within(&budget, args.reconcile.calls.limits())?;
    if args.asked.is_none() {
        engine::check_limits(&engine, &Engine::STRICT)?;
    }
    let load = |policies| {
        let places = KnownPlaces::new(connect::names(args), records(args));
        FirstLoad::start(
            engine.clone(),
            policies,
            places,
            components(args),
            args.asked.is_none(),
        )
    };
    // Policies in files are loaded while the clusters are opened; those in objects can be read only after that.
    let files = files(args)?.map(load);
    let controller = Arc::new(controller(connect::open(args).await?, args, &budget));
    // Health is answered before anything is ready.
    let serving = serve(&controller, &args.admin).await?;
    let loading = match files {
        Some(files) => files,
        None => load(PolicySource::Given(objects(&controller, args).await)),
    };
    loading.opened(controller.connections.local());
    let (swap, changes) = if args.once {
        loading.done().await?
    } else {
        loading.begun().await?
    };
    if args.once {
        super::check_found(swap.active(), &args.reconcile)?;
    }
    let beginning = Arc::clone(&controller).begin_policies(swap.active().clone(), changes);
    controller.watch(swap.active());
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

/// The policies of files; `None` when policies are objects.
fn files(args: &RunArgs) -> anyhow::Result<Option<PolicySource>> {
    let ReconcileArgs {
        policies,
        components,
        ..
    } = &args.reconcile;
    let files = || PolicySource::new(policies.as_deref(), components.as_deref());
    let are_files = !args.server.reach.policy_objects;
    are_files.then(files).transpose()
}

/// The policies that are objects of the API server.
async fn objects(controller: &Controller, args: &RunArgs) -> FoundPolicies {
    controller.connections.watch(Default::default);
    controller.connections.first_listed(LOCAL, args.once).await;
    let given = controller.given(&base(args)).await;
    // Another look finds what changes from here to the start of the watch.
    controller.connections.mark_policies_changed(LOCAL);
    given
}

/// The components that policies may name. Revisions are kept where the agent itself runs.
fn components(args: &RunArgs) -> Components {
    let namespace = match args.dir.iter().any(|dir| dir.name == LOCAL) {
        true => Some(own_records::FOLDER),
        false => args.server.lease_namespace.as_deref(),
    };
    let reading = args.reconcile.reading();
    if args.asked.is_none() {
        reading.tell_unusable();
    }
    match namespace.filter(|_| args.asked.is_none()) {
        Some(namespace) => reading.remembering(namespace, Clock::new(args.reconcile.now)),
        None => reading,
    }
}

/// Where the component files of `FleetPolicy` objects lie.
pub(super) fn base(args: &RunArgs) -> Base {
    args.reconcile
        .components
        .clone()
        .map_or(Base::Nowhere, Base::Components)
}

/// What the agent itself keeps beside its Lease, which no policy writes.
fn records(args: &RunArgs) -> OwnRecords {
    OwnRecords::beside_lease(args.server.lease_namespace.as_deref())
}

/// An agent with the facts, the clock and the limits of the command line.
fn controller(connections: Connections, args: &RunArgs, budget: &Budget) -> Controller {
    let ReconcileArgs {
        cluster_name,
        self_managed_cluster,
        now,
        max_kubeconfig_bytes,
        ..
    } = &args.reconcile;
    let facts =
        AgentFacts::new(cluster_name, self_managed_cluster.as_deref()).keeping(records(args));
    let controller = Controller::new(connections, Clock::new(*now), facts)
        .limited(*max_kubeconfig_bytes)
        .within(budget)
        .ending(args.once);
    match args.asked {
        Some(asked) => controller.dry_run(asked),
        None if would::is_asked_for(args) => controller.read_only(),
        None if args.server.read_only => controller,
        None => {
            let namespace = args.server.lease_namespace.as_deref();
            let place = controller.connections.limits(namespace);
            controller.limiting(place)
        }
    }
}

/// Starts the admin server, if it is wanted. Access to metrics and state is authorized by the API server.
///
/// # Errors
/// When the port cannot be used, or the identity of the pod.
async fn serve(
    controller: &Arc<Controller>,
    args: &AdminArgs,
) -> anyhow::Result<Option<JoinHandle<()>>> {
    let Some(address) = args.admin_address else {
        return Ok(None);
    };
    let options = AdminOptions {
        address,
        certificate: args.admin_tls_cert.clone().zip(args.admin_tls_key.clone()),
    };
    let reviews = controller.connections.home().map(reviews).transpose()?;
    let served = admin::start(Arc::clone(controller), options, reviews).await?;
    Ok(Some(served))
}

/// Who reviews the tokens of those who read metrics and state: the cluster that the agent runs in, because they are of
/// that cluster, and no other may see them. Outside of pods it is the home connection.
fn reviews(home: &Kubernetes) -> anyhow::Result<Reviews> {
    let Some(pod) = ConnectSettings::of_pod()? else {
        return Ok(home.reviews());
    };
    telemetry::connection::reviews(&pod.server());
    Ok(Reviews::of(&pod)?)
}
