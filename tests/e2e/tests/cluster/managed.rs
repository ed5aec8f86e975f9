//! ManagedClusters for tests that flip them. Does not decide which taints are correct.

use crate::objects::{Identifiers, case_text, parse};
use crate::stage::{DEADLINE, MANAGED, Stage};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use transom_test_cluster::wait;

impl Stage {
    /// Creates a ManagedCluster that is available and has no taint.
    pub(crate) async fn managed(&self, name: &str) -> Result<()> {
        let text = case_text("built-in-taints", "T01-available", "given.yaml", |_| {
            name.to_owned()
        })?;
        for object in parse(&text.context("the case T01 is not there")?)? {
            self.put(&object, &mut Identifiers::new()).await?;
        }
        Ok(())
    }

    /// Sets whether a ManagedCluster is available: True, False or Unknown.
    pub(crate) async fn set_available(&self, name: &str, status: &str) -> Result<()> {
        let mut cluster = self
            .get(MANAGED, None, name)
            .await?
            .context("no ManagedCluster")?;
        for condition in cluster["status"]["conditions"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if condition["type"] == "ManagedClusterConditionAvailable" {
                condition["status"] = json!(status);
            }
        }
        self.put_status(MANAGED, None, name, &cluster["status"])
            .await
    }

    /// Waits until a ManagedCluster has this many taints, and returns their times.
    pub(crate) async fn taint_times(&self, name: &str, taints: usize) -> Result<Vec<String>> {
        let of = |taint: &Value| Some(taint["timeAdded"].as_str()?.to_owned());
        wait::until(
            &format!("{taints} taints of {name}"),
            DEADLINE,
            async || {
                let cluster = self.get(MANAGED, None, name).await?.unwrap_or_default();
                let all = cluster["spec"]["taints"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                Ok((all.len() == taints).then(|| all.iter().filter_map(of).collect()))
            },
        )
        .await
    }
}
