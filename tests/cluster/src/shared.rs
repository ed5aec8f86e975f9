//! One cluster for all tests of a program: each brings its own namespaces and users. Not for a test that kills a server,
//! or changes what the others see.

use crate::cluster::{Cluster, Options};
use anyhow::{Result, anyhow};
use std::sync::OnceLock;
use std::thread;
use tokio::runtime::{Builder, Runtime};

/// A cluster that the first test starts; it ends with the process.
pub struct Shared(OnceLock<Result<(Runtime, Cluster), String>>);

impl Shared {
    /// Not started yet.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The cluster; at the first call it is started and prepared. It uses a runtime of its own, which outlives those of the
    /// tests. A test makes its own client: the connections of [`Cluster::objects`] would end with the test that made them.
    pub fn cluster(
        &self,
        prepare: impl AsyncFnOnce(&Cluster) -> Result<()> + Send,
    ) -> Result<&Cluster> {
        let start = || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?;
            let cluster = runtime.block_on(async {
                let cluster = Cluster::start(&Options::default()).await?;
                prepare(&cluster).await?;
                anyhow::Ok(cluster)
            })?;
            Ok((runtime, cluster))
        };
        // A test already runs inside a runtime and cannot block on another one.
        let started = self.0.get_or_init(|| {
            thread::scope(|scope| scope.spawn(start).join())
                .unwrap_or_else(|_| Err(anyhow!("the thread that started it panicked")))
                .map_err(|error: anyhow::Error| format!("{error:#}"))
        });
        match started {
            Ok((_, cluster)) => Ok(cluster),
            Err(error) => Err(anyhow!("failed to start the shared cluster: {error}")),
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}
