//! etcd forgets its history on demand, so that a watch that was away too long is told so. Never touches what is current.

use crate::cluster::Cluster;
use anyhow::{Context as _, Result};
use kube::api::PostParams;
use kube::core::Request;
use kube::{Client, Config};
use serde_json::{Value, json};

impl Cluster {
    /// Compacts etcd to its present revision: a watch from before gets 410 where the API server has no cache of watches.
    /// One that has keeps recent events of its own until it is restarted; then it refuses what is from before that.
    pub async fn compact(&self) -> Result<()> {
        let about = "failed to compact etcd";
        let address = self.etcd_server().parse().context(about)?;
        let etcd = Client::try_from(Config::new(address)).context(about)?;
        let status = ask(&etcd, "/v3/maintenance/status", &json!({})).await.context(about)?;
        let revision = &status["header"]["revision"];
        ask(&etcd, "/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await.context(about)?;
        Ok(())
    }
}

/// etcd speaks JSON beside its own protocol.
async fn ask(etcd: &Client, path: &str, body: &Value) -> Result<Value> {
    let request = Request::new(path).create(&PostParams::default(), body.to_string().into_bytes())?;
    Ok(etcd.request(request).await?)
}
