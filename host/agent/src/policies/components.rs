//! Which components policies may name, and how the objects are read that hold them.

use futures::FutureExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use transom_artifacts::{Location, Objects, Sources, Unread, keep};
use transom_cluster::Cluster;
use transom_core::fingerprint;
use transom_core::object::Object;
use transom_core::reference::ObjectRef;

/// The version of each object that holds a part of a component; `None` when it does not exist or was not read.
pub(crate) type Versions = BTreeMap<ObjectRef, Option<String>>;

/// The cluster whose objects hold components.
#[derive(Clone, Default)]
enum Home {
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
    home: Arc<watch::Sender<Home>>,
}

impl Components {
    /// Reads no object before [`Components::opened`] was called.
    pub(crate) fn new(sources: &Sources) -> Self {
        Self {
            sources: Arc::new(sources.clone()),
            home: Arc::default(),
        }
    }

    /// Sets the cluster whose objects hold components; `None` when there is none.
    pub(crate) fn opened(&self, cluster: Option<Arc<dyn Cluster>>) {
        self.home
            .send_replace(cluster.map_or(Home::Nowhere, Home::At));
    }

    /// The allowed sources.
    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Whether a policy may name a component.
    pub(super) fn allow(&self, component: &Location) -> bool {
        self.sources.allow(component)
    }

    async fn home(&self) -> Home {
        let mut home = self.home.subscribe();
        let opened = home.wait_for(|home| !matches!(home, Home::Opening)).await;
        // Fails only without a sender, and `self` holds it.
        opened.map_or(Home::Nowhere, |home| home.clone())
    }

    /// Reads the objects that hold some components, as far as they are allowed. Empty when there is no cluster.
    pub(super) async fn read(&self, components: &BTreeSet<Location>) -> Objects {
        let Home::At(cluster) = self.home().await else {
            return Objects::new();
        };
        let allowed = components.iter().filter(|one| self.allow(one));
        let mut keys: BTreeMap<&ObjectRef, BTreeSet<&str>> = BTreeMap::new();
        for part in allowed.flat_map(Location::parts) {
            keys.entry(&part.object).or_default().insert(&part.key);
        }
        let mut objects = Objects::new();
        for (reference, keys) in keys {
            let read = AssertUnwindSafe(cluster.read_whole(reference))
                .catch_unwind()
                .await;
            // Without an entry the component is refused, which is all that is left to do after a bug.
            if let Ok(read) = read {
                let unread = |failure: transom_cluster::ReadFailure| Unread {
                    reason: failure.reason,
                    message: failure.message,
                };
                let mut read = read.map_err(unread);
                if let Ok(Some(object)) = &mut read {
                    object.version = version(object);
                    keep(object, &keys);
                }
                objects.insert(reference.clone(), read);
            }
        }
        objects
    }
}

/// The version of an object; the digest of its content where the cluster has no versions.
pub(crate) fn version(object: &Object) -> String {
    match object.version.is_empty() {
        true => fingerprint::of(object).to_string(),
        false => object.version.clone(),
    }
}

/// The versions of objects that were read.
pub(super) fn versions(objects: &Objects) -> Versions {
    let version =
        |read: &Result<Option<Object>, Unread>| Some(read.as_ref().ok()?.as_ref()?.version.clone());
    objects
        .iter()
        .map(|(reference, read)| (reference.clone(), version(read)))
        .collect()
}
