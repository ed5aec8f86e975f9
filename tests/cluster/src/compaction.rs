//! Compacts etcd's history on demand, so that an old watch expires. Current data stays.

use crate::cluster::Cluster;
use anyhow::{Context as _, Result};
use kube::api::PostParams;
use kube::core::Request;
use kube::{Client, Config};
use serde_json::{Value, json};

impl Cluster {
    /// Compacts etcd to its current revision: an older watch gets 410 if the API server has no watch cache. A server
    /// with a watch cache keeps recent events until it restarts; after that it refuses older revisions.
    pub async fn compact(&self) -> Result<()> {
        let about = "failed to compact etcd";
        let address = self.etcd_server().parse().context(about)?;
        let etcd = Client::try_from(Config::new(address)).context(about)?;
        let status = ask(&etcd, "/v3/maintenance/status", &json!({}))
            .await
            .context(about)?;
        let revision = &status["header"]["revision"];
        ask(
            &etcd,
            "/v3/kv/compaction",
            &json!({"revision": revision, "physical": true}),
        )
        .await
        .context(about)?;
        Ok(())
    }
}

/// etcd accepts JSON beside its own protocol.
async fn ask(etcd: &Client, path: &str, body: &Value) -> Result<Value> {
    let request =
        Request::new(path).create(&PostParams::default(), body.to_string().into_bytes())?;
    Ok(etcd.request(request).await?)
}
