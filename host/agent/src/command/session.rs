//! An agent that works in memory on given objects: what `render` and `test` run, with the same code as `run`.
//! Never writes a file.

use crate::agent::Agent;
use crate::agent::clock::Clock;
use crate::agent::connections::Connections;
use crate::policies::Source;
use crate::policies::swap::Swap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use transom_cluster::directory::{Directory, Observations};
use transom_core::contract::AgentFacts;
use transom_core::reference::{LOCAL, ObjectRef};
use transom_engine::Engine;

/// One agent on one directory in memory.
pub(crate) struct Session {
    /// The agent.
    pub(crate) agent: Arc<Agent>,
    /// Its policies.
    pub(crate) swap: Swap,
    /// Its objects.
    pub(crate) directory: Arc<Directory>,
    told: Observations,
}

impl Session {
    /// Loads the policies and works until nothing is left to do now.
    pub(crate) async fn start(
        engine: Engine,
        source: Source,
        directory: Directory,
        clock: Clock,
        facts: AgentFacts,
    ) -> Self {
        let directory = Arc::new(directory);
        let told = directory.changes();
        let connections = Connections::new(BTreeMap::from([(LOCAL.to_owned(), Arc::clone(&directory))]));
        let agent = Arc::new(Agent::new(connections, clock, facts));
        agent.find_outputs();
        let mut swap = Swap::new(engine, source);
        let changes = swap.load();
        swap.publish(&agent, &changes);
        agent.idle().await;
        Self { agent, swap, directory, told }
    }

    /// Follows what changed in the directory until nothing is left to do now.
    pub(crate) async fn follow(&mut self) {
        while let Some(observation) = self.told.try_next() {
            self.agent.observe(observation);
        }
        self.agent.idle().await;
    }

    /// Every object that was written so far, and for which policies; the record starts anew.
    pub(crate) fn take_written(&self) -> BTreeMap<ObjectRef, BTreeSet<Arc<str>>> {
        std::mem::take(&mut self.agent.known.lock().written)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.agent.stop();
    }
}
