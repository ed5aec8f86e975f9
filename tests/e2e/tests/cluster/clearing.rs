//! The server of a stage, emptied before each test and repaired if a test left it broken. Does not restart it.

use crate::access::BINDING;
use crate::stage::{
    CRDS, HOME, HOSTED, KLUSTERLET, MANAGED, NAMESPACE, PARALLEL, SECRET, SERVICE, Stage,
};
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};
use transom_api::labels;
use transom_core::rights::LIMITS;
use transom_test_cluster::LOOSE;

/// Kinds of objects that outlive their namespace, because nothing ends namespaces here.
const OUTLIVING: [(&str, &str); 4] = [
    ("v1", "ConfigMap"),
    ("coordination.k8s.io/v1", "Lease"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    BINDING,
];
const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
/// Namespaces that always exist, and the agent's own.
const KEPT: [&str; 5] = [
    "default",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    HOME,
];

impl Stage {
    /// Finalizes a namespace whose content was deleted or does not matter.
    pub(crate) async fn finalise(&self, name: &str) -> Result<()> {
        self.delete(NAMESPACE, None, name).await?;
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
        let request = Request::new("/api/v1/namespaces");
        let request = request.replace_subresource(
            "finalize",
            name,
            &PostParams::default(),
            body.to_string().into_bytes(),
        )?;
        match self.objects().client().request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => done
                .map(drop)
                .with_context(|| format!("failed to finalise namespace `{name}`")),
        }
    }

    /// Removes the CRDs that a test added, and their objects, so that the next test may add them.
    async fn remove_added_crds(&self) -> Result<()> {
        let crds = self.api(CRD, None).await?;
        for crd in crds.list_metadata(&ListParams::default()).await?.items {
            let name = crd.metadata.name.unwrap_or_default();
            if CRDS.contains(&&*name) {
                continue;
            }
            let crd = self.get(CRD, None, &name).await?.context("no CRD")?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let spec = &crd["spec"];
            let versions = spec["versions"].as_array().context("no versions")?;
            let stored = versions.iter().find(|version| version["storage"] == true);
            let version = text(&stored.context("no stored version")?["name"]);
            let api_version = format!("{}/{version}", text(&spec["group"]));
            let kind = text(&spec["names"]["kind"]);
            self.remove_all((&api_version, &kind)).await?;
            self.remove_crd(&name).await?;
        }
        Ok(())
    }

    /// Deletes all objects of a kind, also those with finalizers.
    async fn remove_all(&self, kind: (&str, &str)) -> Result<()> {
        let all = self.list(kind).await?;
        self.remove_these(all.into_iter().map(|object| (kind, object)))
            .await
    }

    /// Deletes objects, also those with finalizers.
    pub(crate) async fn remove_these<'a>(
        &self,
        objects: impl IntoIterator<Item = ((&'a str, &'a str), DynamicObject)>,
    ) -> Result<()> {
        let gone = stream::iter(objects).map(|(kind, object)| async move {
            let (namespace, name) = (
                object.metadata.namespace,
                object.metadata.name.unwrap_or_default(),
            );
            if object.metadata.finalizers.is_some() {
                let free = json!({"metadata": {"finalizers": null}});
                self.patch(kind, namespace.as_deref(), &name, free).await?;
            }
            self.delete(kind, namespace.as_deref(), &name).await
        });
        gone.buffer_unordered(PARALLEL)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    /// Takes the finalizers off the objects of a namespace: nobody can once it is gone.
    async fn free(&self, kind: (&str, &str), namespace: &str) -> Result<()> {
        let api = self.api(kind, Some(namespace)).await?;
        for object in api.list_metadata(&ListParams::default()).await?.items {
            if object.metadata.finalizers.is_some() {
                let name = object.metadata.name.unwrap_or_default();
                let free = json!({"metadata": {"finalizers": null}});
                self.patch(kind, Some(namespace), &name, free).await?;
            }
        }
        Ok(())
    }

    /// Removes everything that a test created, repairs what it left broken, and plants objects that the next test must
    /// not change.
    pub(crate) async fn clear(&self) -> Result<()> {
        self.remove_added_crds().await?;
        for crd in CRDS {
            let there = self.get(CRD, None, crd).await?;
            if there
                .as_ref()
                .is_some_and(|crd| !crd["metadata"]["labels"][LOOSE].is_null())
            {
                self.remove_crd(crd).await?;
            }
            if self.get(CRD, None, crd).await?.is_none() {
                self.cluster.install_crds(&[crd]).await?;
            }
        }
        self.grant().await?;
        for kind in [HOSTED, MANAGED, KLUSTERLET] {
            self.remove_all(kind).await?;
        }
        let namespaces = self
            .api(NAMESPACE, None)
            .await?
            .list(&ListParams::default())
            .await?
            .items;
        let names = namespaces
            .into_iter()
            .filter_map(|namespace| namespace.metadata.name);
        let ours = names.filter(|name| !KEPT.contains(&name.as_str()));
        let gone = stream::iter(ours).map(|name| async move {
            for kind in [SECRET, SERVICE] {
                let api = self.api(kind, Some(&name)).await?;
                // One by one: the server has no verb that deletes all Services.
                for object in api.list_metadata(&ListParams::default()).await?.items {
                    self.delete(kind, Some(&name), &object.metadata.name.unwrap_or_default())
                        .await?;
                }
            }
            self.free(BINDING, &name).await?;
            self.finalise(&name).await
        });
        gone.buffer_unordered(PARALLEL)
            .try_collect::<Vec<()>>()
            .await?;
        for kind in OUTLIVING {
            for object in self.list(kind).await? {
                let name = object.metadata.name.unwrap_or_default();
                let namespace = object.metadata.namespace.unwrap_or_default();
                // Tests put objects into the namespace `default`, too.
                if namespace == "default" || !KEPT.contains(&namespace.as_str()) {
                    self.delete(kind, Some(&namespace), &name).await?;
                }
            }
        }
        let limits = ("v1", "ConfigMap");
        self.delete(limits, Some(HOME), LIMITS).await?;
        let revisions = ("apps/v1", "ControllerRevision");
        for object in self.list(revisions).await? {
            let name = object.metadata.name.unwrap_or_default();
            self.delete(revisions, object.metadata.namespace.as_deref(), &name)
                .await?;
        }
        let made = format!("{}={}", labels::MANAGED_BY, labels::MANAGER);
        for kind in ["ClusterRoleBinding", "ClusterRole"] {
            // A policy made these for clusters that are gone by now.
            let kind = ("rbac.authorization.k8s.io/v1", kind);
            let made = ListParams::default().labels(&made);
            for object in self
                .api(kind, None)
                .await?
                .list_metadata(&made)
                .await?
                .items
            {
                let name = object.metadata.name.unwrap_or_default();
                self.delete(kind, None, &name).await?;
            }
            for name in ["person-editor", "person-owner"] {
                self.delete(kind, None, name).await?;
            }
        }
        for kind in [
            "ValidatingAdmissionPolicyBinding",
            "ValidatingAdmissionPolicy",
        ] {
            let kind = ("admissionregistration.k8s.io/v1", kind);
            self.delete(kind, None, "approval.fleetpolicies.transom.dev")
                .await?;
        }
        self.guard().await
    }
}
