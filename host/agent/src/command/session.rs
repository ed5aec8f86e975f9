//! An agent that works in memory on given objects, for `render` and `test`, with the same code as `run`. Writes no
//! file.

use crate::controller::Controller;
use crate::controller::connections::Connections;
use crate::policies::active::Active;
use crate::policies::first_load::FirstLoad;
use anyhow::bail;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_cluster::Cluster;
use transom_cluster::directory::{Directory, DirectoryObservations};
use transom_core::reference::{LOCAL, ObjectRef};
use transom_core::watches::SecretReads;

/// How often in a row an agent follows its own writes.
const MOST_ROUNDS: usize = 64;

/// One agent on one directory in memory.
pub(crate) struct Session {
    /// The agent.
    pub(crate) controller: Arc<Controller>,
    /// Its policies.
    pub(crate) active: Active,
    /// Its objects.
    pub(crate) directory: Arc<Directory>,
    told: DirectoryObservations,
}

impl Session {
    /// Waits for the policies and works until nothing is left to do now.
    ///
    /// # Errors
    /// When loading them ended by a bug in the agent.
    pub(crate) async fn start(
        loading: FirstLoad,
        directory: Directory,
        controller: impl FnOnce(Connections) -> Controller,
    ) -> anyhow::Result<Self> {
        let directory = Arc::new(directory);
        let told = directory.changes();
        let cluster: Arc<dyn Cluster> = Arc::clone(&directory) as _;
        let connections = Connections::new(
            BTreeMap::from([(LOCAL.to_owned(), Arc::clone(&cluster))]),
            SecretReads::Watch,
        );
        let controller = Arc::new(controller(connections));
        controller.memory.lock().written = Some(BTreeMap::new());
        controller.find_outputs(&*cluster);
        loading.opened(Some(cluster));
        let (swap, changes) = loading.done().await?;
        let active = swap.active().clone();
        controller.activate(&active, &changes);
        controller.idle().await;
        Ok(Self {
            controller,
            active,
            directory,
            told,
        })
    }

    /// Follows what changed in the directory, all at once, until nothing is left to do now. What is written for that is
    /// not followed. False when nothing has changed.
    pub(crate) async fn follow(&mut self) -> bool {
        let observations: Vec<_> = std::iter::from_fn(|| self.told.try_next()).collect();
        let any = !observations.is_empty();
        self.controller.observe_at_once(LOCAL, observations);
        self.controller.idle().await;
        any
    }

    /// Follows what the agent itself writes as well, until nothing changes any more.
    ///
    /// # Errors
    /// When it goes on and on.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        for _ in 0..MOST_ROUNDS {
            if !self.follow().await {
                return Ok(());
            }
        }
        bail!(
            "failed to bring the given objects to rest: what is written for them calls for more, {MOST_ROUNDS} times"
        )
    }

    /// Every object that was written so far, and for which policies. Starts the record anew.
    pub(crate) fn take_written(&self) -> BTreeMap<ObjectRef, BTreeSet<Arc<str>>> {
        let written = &mut self.controller.memory.lock().written;
        written.replace(BTreeMap::new()).unwrap_or_default()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.controller.stop();
    }
}

/// An agent that has reconciled the one primary of the case `G03-available` of a policy, in a folder; and this primary.
#[cfg(test)]
pub(crate) async fn of_case(
    policy: &str,
    clock: crate::clock::Clock,
) -> (tempfile::TempDir, Session, ObjectRef) {
    use crate::command::engine;
    use crate::policies::PolicySource;
    use crate::policies::components::Components;
    use transom_artifacts::Sources;
    use transom_cluster::directory::DirectoryOptions;
    use transom_core::contract::AgentFacts;

    let folder = tempfile::tempdir().unwrap();
    let case = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../policies")
        .join(policy)
        .join("cases/G03-available");
    std::fs::copy(case.join("given.yaml"), folder.path().join("given.yaml")).unwrap();
    let options = DirectoryOptions {
        watch: false,
        ..DirectoryOptions::new(LOCAL, folder.path())
    };
    let engine = engine::of_tests();
    let loading = FirstLoad::start(
        engine,
        PolicySource::Builtin,
        [LOCAL.to_owned()].into(),
        Components::new(&Sources::default()),
        false,
    );
    let directory = Directory::open(options).unwrap();
    let facts = AgentFacts::new("local-cluster", None);
    let controller = |connections| Controller::new(connections, clock, facts).limiting(None);
    let session = Session::start(loading, directory, controller)
        .await
        .unwrap();
    let primary = {
        let memory = session.controller.memory.lock();
        (*memory.results.keys().next().unwrap().primary).clone()
    };
    (folder, session, primary)
}
