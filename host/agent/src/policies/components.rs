//! Which components policies may name, and how the objects are read that hold them.

use futures::FutureExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use transom_api::KnownReason;
use transom_artifacts::{Contents, Gathered, Location, MAX_BYTES, Sources, Unread};
use transom_cluster::Cluster;
use transom_core::reference::ObjectRef;

/// What is in each object that holds a part of a component, as a digest; `None` when it does not exist or cannot be read.
pub(crate) type Versions = BTreeMap<ObjectRef, Option<String>>;

/// The cluster whose objects hold components.
#[derive(Clone, Default)]
enum Local {
    /// Not opened yet.
    #[default]
    Opening,
    /// There is none.
    Nowhere,
    /// This one.
    At(Arc<dyn Cluster>),
}

/// The allowed sources of components, and the cluster whose objects hold some of them. Clones share the cluster.
#[derive(Clone)]
pub(crate) struct Components {
    sources: Arc<Sources>,
    local: Arc<watch::Sender<Local>>,
}

impl Components {
    /// Reads no object before [`Components::opened`] was called.
    pub(crate) fn new(sources: &Sources) -> Self {
        Self {
            sources: Arc::new(sources.clone()),
            local: Arc::default(),
        }
    }

    /// Sets the cluster whose objects hold components; `None` when there is none.
    pub(crate) fn opened(&self, cluster: Option<Arc<dyn Cluster>>) {
        self.local
            .send_replace(cluster.map_or(Local::Nowhere, Local::At));
    }

    /// The allowed sources.
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Whether a policy may name a component.
    pub(super) fn allow(&self, component: &Location) -> bool {
        self.sources.allow(component)
    }

    async fn local(&self) -> Local {
        let mut local = self.local.subscribe();
        let opened = local.wait_for(|local| !matches!(local, Local::Opening));
        // Fails only without a sender, and `self` holds it.
        opened.await.map_or(Local::Nowhere, |local| local.clone())
    }

    /// Reads the objects that hold some components, as far as they are allowed. Nothing when there is no cluster.
    pub(super) async fn read(&self, components: &BTreeSet<Location>) -> Gathered {
        let mut gathered = Gathered::default();
        let Local::At(cluster) = self.local().await else {
            return gathered;
        };
        let allowed: Vec<_> = components.iter().filter(|one| self.allow(one)).collect();
        let mut keys: BTreeMap<&ObjectRef, BTreeSet<&str>> = BTreeMap::new();
        for part in allowed.iter().copied().flat_map(Location::parts) {
            keys.entry(&part.object).or_default().insert(&part.key);
        }
        // More can be of no use.
        let most = MAX_BYTES * allowed.len() as u64;
        for (reference, keys) in keys {
            let left = most.saturating_sub(gathered.bytes() as u64);
            let read = AssertUnwindSafe(cluster.read_whole(reference));
            let read = match read.catch_unwind().await {
                Ok(Ok(object)) => {
                    let contents = object.map(|object| Contents::of(&object, &keys, left));
                    Ok(contents)
                }
                Ok(Err(failure)) => Err(Unread {
                    reason: failure.reason,
                    message: failure.message,
                }),
                Err(_) => Err(Unread {
                    reason: KnownReason::AgentFailed,
                    message: format!("a bug in the agent made reading {reference} fail"),
                }),
            };
            gathered.objects.insert(reference.clone(), read);
        }
        gathered
    }
}

/// The versions of objects that were read.
pub(super) fn versions(gathered: &Gathered) -> Versions {
    let version = |read: &Result<Option<Contents>, Unread>| {
        Some(read.as_ref().ok()?.as_ref()?.version.clone())
    };
    let objects = gathered.objects.iter();
    objects
        .map(|(reference, read)| (reference.clone(), version(read)))
        .collect()
}
