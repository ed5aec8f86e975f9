//! Opens the connections that the flags name: directories, API servers, or both.

use crate::args::run::{NamedContext, ReachArgs, ServerArgs};
use crate::args::run::{NamedDir, RunArgs};
use crate::command::child;
use crate::controller::connections::{self, Connections};
use crate::telemetry;
use anyhow::bail;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_cluster::Cluster;
use transom_cluster::directory::{Directory, DirectoryOptions, SizeLimits};
use transom_cluster::kubernetes::{
    ConnectSettings, Kubernetes, KubernetesOptions, Leadership, Leading, LeaseOptions,
};
use transom_core::lease::Timing;
use transom_core::reference::LOCAL;
use transom_core::rights::{self, LEASE};

/// Opens every connection that the flags name; without a directory, the API server of the kubeconfig or of the pod. The
/// name and address of an API server are logged before the first request to it. Does not wait for an answer.
///
/// # Errors
/// When one cannot be opened, or two have one name.
pub(crate) async fn open(args: &RunArgs) -> anyhow::Result<Connections> {
    check(args)?;
    let mut by_name = BTreeMap::new();
    for named in &args.dir {
        telemetry::connection::uses_directory(&named.name, &named.dir);
        let directory = Arc::new(Directory::open(directory(named, args))?);
        insert(&mut by_name, &named.name, &named.dir.display(), directory)?;
    }
    let mut opened = Vec::new();
    for options in servers(args) {
        let what = options
            .context
            .clone()
            .unwrap_or_else(|| "the API server".to_owned());
        let settings = ConnectSettings::read(options).await?;
        telemetry::connection::uses(settings.name(), settings.context(), &settings.server());
        opened.push((what, Kubernetes::start(settings)?));
    }
    // There is one lease for all connections, on the cluster where the agent itself runs.
    let home = rights::home(opened.iter().map(|(_, server)| server.name())).map(str::to_owned);
    let at_home = opened
        .iter()
        .find(|(_, server)| Some(server.name()) == home.as_deref());
    let leadership = args.server.lease_namespace.as_ref().zip(at_home);
    let leadership =
        leadership.map(|(namespace, (_, server))| Leadership::new(server, &lease(namespace)));
    let leading = leadership
        .as_ref()
        .map_or_else(Leading::always, Leadership::leading);
    for (what, server) in opened {
        let name = server.name().to_owned();
        let cluster = connections::server(server, &replica(), leading.clone());
        insert(&mut by_name, &name, &what, cluster)?;
    }
    let connections = Connections::new(by_name, args.server.reach.secret_reads.into())
        .at(home)
        .elected(leadership);
    Ok(if args.server.reach.policy_objects {
        connections.with_policy_objects()
    } else {
        connections
    })
}

fn directory(NamedDir { name, dir }: &NamedDir, args: &RunArgs) -> DirectoryOptions {
    DirectoryOptions {
        watch: !args.once,
        writable: args.asked.is_none(),
        limits: limits(args.reconcile.max_object_bytes),
        now: args.reconcile.now,
        ..DirectoryOptions::new(name, dir)
    }
}

/// The names of all connections.
pub(crate) fn names(args: &RunArgs) -> BTreeSet<String> {
    args.dir
        .iter()
        .map(|dir| dir.name.clone())
        .chain(servers(args).into_iter().map(|server| server.name))
        .collect()
}

/// Refuses flags that a directory cannot follow, and policies of an API server that is not connected.
fn check(args: &RunArgs) -> anyhow::Result<()> {
    for NamedDir { name, dir } in &args.dir {
        let at = dir.display();
        if dir.exists() && !dir.is_dir() && args.asked.is_none() {
            bail!(
                "failed to watch `{at}`: it is not a folder; `transom render {at}` shows the result for a file"
            );
        }
        if args.server.read_only && args.asked.is_none() {
            bail!(
                "failed to use `--read-only` on `{at}`: it is for API servers; `transom render {at} --diff` writes nothing"
            );
        }
        if args.server.reach.policy_objects && name == LOCAL {
            bail!(
                "failed to use `--policy-objects` on `{at}`: they are objects of an API server; name a folder by `--policies`"
            );
        }
    }
    if args.server.reach.policy_objects && !servers(args).iter().any(|server| server.name == LOCAL)
    {
        bail!(
            "failed to use `--policy-objects`: they are objects of the API server `{LOCAL}`, and none is connected"
        );
    }
    Ok(())
}

/// The size limits of a directory.
pub(crate) fn limits(max_object_bytes: usize) -> SizeLimits {
    SizeLimits {
        object_bytes: max_object_bytes,
        ..SizeLimits::default()
    }
}

/// The lease that replicas compete for.
fn lease(namespace: &str) -> LeaseOptions {
    LeaseOptions {
        namespace: namespace.to_owned(),
        name: LEASE.to_owned(),
        instance: replica(),
        timing: Timing::default(),
    }
}

/// The API servers that are wanted.
fn servers(args: &RunArgs) -> Vec<KubernetesOptions> {
    let ServerArgs {
        reach: ReachArgs {
            kubeconfig,
            context,
            ..
        },
        read_only,
        ..
    } = &args.server;
    let options = |name: &str, context: Option<&str>| KubernetesOptions {
        name: name.to_owned(),
        kubeconfig: kubeconfig.clone(),
        context: context.map(str::to_owned),
        read_only: *read_only,
        guard: child::guard(),
    };
    if !context.is_empty() {
        return context
            .iter()
            .map(|NamedContext { name, context }| options(name, Some(context)))
            .collect();
    }
    let wanted = args.dir.is_empty() || kubeconfig.is_some();
    wanted.then(|| options(LOCAL, None)).into_iter().collect()
}

fn insert(
    by_name: &mut BTreeMap<String, Arc<dyn Cluster>>,
    name: &str,
    what: &dyn std::fmt::Display,
    cluster: Arc<dyn Cluster>,
) -> anyhow::Result<()> {
    if by_name.insert(name.to_owned(), cluster).is_some() {
        bail!(
            "failed to open `{what}`: two connections have the name `{name}`; prefix one with NAME="
        );
    }
    Ok(())
}

/// The name of this process in leases and Events: the pod's, which is its host name.
fn replica() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty());
    host.unwrap_or_else(|| format!("transom-{}", std::process::id()))
}
