//! A replacement for the namespace controller, which does not run here: empties a deleted namespace and finalizes it.

use crate::cluster::Cluster;
use crate::wait;
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::Request;
use kube::discovery::{Discovery, Scope, verbs};
use serde_json::{Value, json};
use std::time::Duration;

/// The deadline for a namespace to be gone.
const DEADLINE: Duration = Duration::from_secs(300);

impl Cluster {
    /// Deletes a namespace, so that it is Terminating and accepts no new objects until it is finalized.
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.objects().client().clone());
        let deleted = namespaces.delete(name, &DeleteParams::default()).await;
        deleted.with_context(|| format!("failed to delete namespace `{name}`"))?;
        Ok(())
    }

    /// Deletes everything in a deleted namespace, finalizes it, and waits until it is gone.
    pub async fn finalize_namespace(&self, name: &str) -> Result<()> {
        self.empty(name).await?;
        let about = || format!("failed to finalise namespace `{name}`");
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
        let request = Request::new("/api/v1/namespaces").replace_subresource(
            "finalize",
            name,
            &PostParams::default(),
            body.to_string().into_bytes(),
        );
        let client = self.objects().client();
        client
            .request::<Value>(request.with_context(about)?)
            .await
            .with_context(about)?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        wait::until(
            &format!("the end of namespace `{name}`"),
            DEADLINE,
            async || {
                Ok(namespaces
                    .get_opt(name)
                    .await
                    .with_context(about)?
                    .is_none()
                    .then_some(()))
            },
        )
        .await
    }

    async fn empty(&self, namespace: &str) -> Result<()> {
        let about = || format!("failed to empty namespace `{namespace}`");
        let client = self.objects().client();
        let discovery = Discovery::new(client.clone())
            .run_aggregated()
            .await
            .with_context(about)?;
        for group in discovery.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                let deletable = capabilities.supports_operation(verbs::DELETE_COLLECTION);
                if capabilities.scope == Scope::Namespaced && deletable {
                    let api: Api<DynamicObject> =
                        Api::namespaced_with(client.clone(), namespace, &resource);
                    let deleted = api
                        .delete_collection(&DeleteParams::default(), &ListParams::default())
                        .await;
                    deleted.with_context(about)?;
                }
            }
        }
        Ok(())
    }
}
