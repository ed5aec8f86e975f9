//! Which components policies may name, and how those are read that lie in a cluster or a registry.

use crate::policies::images::Images;
use crate::policies::kept::{Asker, Kept};
use crate::policies::revisions::Revisions;
use futures::FutureExt as _;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use transom_api::KnownReason;
use transom_artifacts::{Contents, Gathered, Location, MAX_BYTES, Sources, Unread};
use transom_cluster::Cluster;
use transom_core::policy::component::Image;
use transom_core::reference::ObjectRef;

/// What is in each object that holds a part of a component, as a digest; `None` when it does not exist or cannot be read.
pub(crate) type Versions = BTreeMap<ObjectRef, Option<String>>;

/// The cluster whose objects hold components.
#[derive(Clone, Default)]
pub(super) enum Local {
    /// Not opened yet.
    #[default]
    Opening,
    /// There is none.
    Nowhere,
    /// This one.
    At(Arc<dyn Cluster>),
}

/// The allowed sources of components, the cluster and the registries that hold some of them, and those that were loaded.
/// Clones share all of it.
#[derive(Clone)]
pub(crate) struct Components {
    sources: Arc<Sources>,
    local: Arc<watch::Sender<Local>>,
    images: Option<Images>,
    kept: Kept,
    /// Where the revisions of policies are kept.
    pub(super) revisions: Option<Arc<Revisions>>,
}

impl Components {
    /// Reads no object before [`Components::opened`] was called, and pulls nothing.
    pub(crate) fn new(sources: &Sources) -> Self {
        Self {
            sources: Arc::new(sources.clone()),
            local: Arc::default(),
            images: None,
            kept: Kept::default(),
            revisions: None,
        }
    }

    /// Also pulls from registries, and keeps what was loaded.
    pub(crate) fn pulling(self, images: Images, kept: Kept) -> Self {
        Self {
            images: Some(images),
            kept,
            ..self
        }
    }

    /// Also keeps the revisions of policies, as objects in this namespace of the local cluster.
    pub(crate) fn remembering(self, namespace: &str) -> Self {
        Self {
            revisions: Some(Arc::new(Revisions::new(namespace))),
            ..self
        }
    }

    /// The components that were loaded.
    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Whether a component has to be pulled from a registry now.
    pub(super) fn must_pull(&self, component: &Location, asker: Asker<'_>) -> bool {
        component.image().is_some() && self.allow(component) && !self.kept.has(component, asker)
    }

    /// Keeps components that were loaded from elsewhere.
    pub(super) fn keep<'d>(
        &self,
        components: &BTreeSet<Location>,
        asker: impl Fn(&Location) -> Asker<'d>,
        gathered: &Gathered,
    ) {
        // What was kept before is as it was.
        let is_new = |one: &&Location| one.is_remote() && !gathered.kept.contains_key(one);
        for component in components.iter().filter(|one| one.file().is_some()) {
            // The source of a file may be written at any time.
            if let Ok(artifact) = component.fetch(None, gathered)
                && self.remembers()
            {
                self.kept.keep_bytes(&artifact);
            }
        }
        for component in components.iter().filter(is_new) {
            let pulled = component
                .image()
                .and_then(|image| gathered.images.get(image));
            let manifest = pulled.and_then(|pulled| Some(pulled.as_ref().ok()?.manifest.as_str()));
            if let Ok(artifact) = component.fetch(None, gathered) {
                self.kept
                    .keep(component, asker(component), &artifact, manifest);
            }
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

    pub(super) async fn local(&self) -> Local {
        let mut local = self.local.subscribe();
        let opened = local.wait_for(|local| !matches!(local, Local::Opening));
        // Fails only without a sender, and `self` holds it.
        opened.await.map_or(Local::Nowhere, |local| local.clone())
    }

    /// Reads components that lie in a cluster or a registry, as far as they are allowed. `asker` tells who names one.
    pub(super) async fn read<'d>(
        &self,
        components: &BTreeSet<Location>,
        asker: impl Fn(&Location) -> Asker<'d>,
    ) -> Gathered {
        let allowed: Vec<_> = components.iter().filter(|one| self.allow(one)).collect();
        let mut gathered = Gathered::default();
        for component in &allowed {
            let (Some(image), Some(images)) = (component.image(), &self.images) else {
                continue;
            };
            let asker = asker(component);
            // A tag means what it meant when it was first pulled.
            if let Some(bytes) = self.kept.find(component, asker) {
                gathered.kept.insert((*component).clone(), bytes);
                continue;
            }
            let record = self.kept.record(component, asker);
            let record = record.filter(|_| asker.digest.is_none());
            let manifest = record.and_then(|record| record.manifest);
            let wanted = Image {
                digest: image.digest.clone().or(manifest),
                ..image.clone()
            };
            let pulled = images.pull(&wanted).await;
            gathered.images.insert(image.clone(), pulled);
        }
        if allowed.iter().any(|one| !one.parts().is_empty()) {
            self.read_objects(&allowed, &mut gathered).await;
        }
        gathered
    }

    /// Reads the objects that hold components. Nothing when there is no cluster.
    async fn read_objects(&self, allowed: &[&Location], gathered: &mut Gathered) {
        let Local::At(cluster) = self.local().await else {
            return;
        };
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
