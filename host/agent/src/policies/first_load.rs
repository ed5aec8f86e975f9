//! Policies of the start, which are read and loaded while the caller goes on.

use crate::policies::PolicySource;
use crate::policies::active::PolicyChanges;
use crate::policies::components::Components;
use crate::policies::load_queue::LoadQueue;
use crate::policies::places::KnownPlaces;
use crate::policies::swap::{GRACE, Swap};
use anyhow::Context as _;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use transom_cluster::Cluster;
use transom_engine::Engine;

/// Policies that are being read and loaded in the background.
pub(crate) struct FirstLoad {
    reading: JoinHandle<(Swap, PolicyChanges)>,
    components: Components,
}

impl FirstLoad {
    /// Reads policies and begins to load them while the caller goes on: compiling takes a core for a while, and
    /// manifests can be read meanwhile. `rolls_out`: new revisions are candidates first.
    pub(crate) fn start(
        engine: Engine,
        source: PolicySource,
        places: KnownPlaces,
        components: Components,
        rolls_out: bool,
    ) -> Self {
        let loads = LoadQueue::new(engine, components.clone());
        let reading = tokio::spawn(async move {
            let reading = source.clone();
            let read = tokio::task::spawn_blocking(move || {
                reading.read().map_err(|error| error.to_string())
            });
            let mut swap = Swap::new(loads, source, places, rolls_out);
            let found = read.await.unwrap_or_else(|error| Err(error.to_string()));
            let changes = swap.update(found);
            (swap, changes)
        });
        Self {
            reading,
            components,
        }
    }

    /// Sets the cluster whose objects hold components, once it is opened; `None` when there is none.
    pub(crate) fn opened(&self, cluster: Option<Arc<dyn Cluster>>) {
        self.components.opened(cluster);
    }

    /// Waits until all policies are loaded or refused; returns them and their changes, for `Active::publish`.
    ///
    /// # Errors
    /// When loading ended by a bug in the agent.
    pub(crate) async fn done(self) -> anyhow::Result<(Swap, PolicyChanges)> {
        let (mut swap, mut changes) = self.read().await?;
        while swap.loads().count() > 0 {
            let done = swap.next().await;
            changes.extend(swap.finish(done));
        }
        Ok((swap, changes))
    }

    /// The same, without policies whose components take longer than [`GRACE`]: they come later.
    ///
    /// # Errors
    /// As for [`FirstLoad::done`].
    pub(crate) async fn begun(self) -> anyhow::Result<(Swap, PolicyChanges)> {
        let (mut swap, mut changes) = self.read().await?;
        let until = Instant::now() + GRACE;
        while swap.loads().count() > 0 {
            // Builtin guests are trusted to load soon, and nothing should begin without them.
            let done = match tokio::time::timeout_at(until, swap.next()).await {
                Ok(done) => done,
                Err(_) if swap.loads().builtin() => swap.next().await,
                Err(_) => break,
            };
            changes.extend(swap.finish(done));
        }
        Ok((swap, changes))
    }

    async fn read(self) -> anyhow::Result<(Swap, PolicyChanges)> {
        self.reading.await.context("failed to load the policies")
    }
}
