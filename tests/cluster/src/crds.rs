//! The real CRDs, installed as published. Applied on the server side only: some are too large for client-side apply.

use crate::cluster::Cluster;
use crate::{servers, wait};
use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::core::{GroupVersionKind, Request};
use kube::discovery;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// The deadline for a CRD to be served; far longer than needed.
const DEADLINE: Duration = Duration::from_secs(300);
/// The label of a CRD that accepts any field of any type.
pub const LOOSE: &str = "test/loose";
/// The path of CRDs.
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl Cluster {
    /// Installs CRDs by their names (`hostedclusters.hypershift.openshift.io`), and waits until they are served.
    pub async fn install_crds(&self, names: &[&str]) -> Result<()> {
        try_join_all(names.iter().map(|name| self.install_crd(name))).await?;
        Ok(())
    }

    /// Installs every CRD that `cargo xtask servers` prepared.
    pub async fn install_all_crds(&self) -> Result<()> {
        let names = available_crds()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.install_crds(&names).await
    }

    /// Installs the kind `FleetPolicy`, so that `transom run --policy-objects` works.
    pub async fn install_policy_crd(&self) -> Result<()> {
        self.install(
            "fleetpolicies.transom.dev",
            transom_api::crd::policy().to_string().into_bytes(),
        )
        .await
    }

    /// Installs the kind KlusterletAddonConfig. Its own CRD belongs to another product; this one has its name and takes
    /// any `spec`.
    pub async fn install_addon_configs(&self) -> Result<()> {
        let group = "agent.open-cluster-management.io";
        let name = format!("klusterletaddonconfigs.{group}");
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {"group": group, "scope": "Namespaced", "versions": [version],
                "names": {"kind": "KlusterletAddonConfig", "plural": "klusterletaddonconfigs"}},
        });
        self.objects().create(crd).await?;
        self.wait_for_crd(&name).await
    }

    /// Installs a CRD that accepts any field of any type, as older CRDs did; a label marks it.
    pub async fn install_loose_crd(&self, name: &str) -> Result<()> {
        let mut crd: Value = serde_yaml::from_slice(&published(name)?)?;
        crd["metadata"]["labels"] = json!({LOOSE: "true"});
        for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
            version["schema"] = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        }
        self.install(name, serde_yaml::to_string(&crd)?.into_bytes())
            .await
    }

    async fn install_crd(&self, name: &str) -> Result<()> {
        self.install(name, published(name)?).await
    }

    async fn install(&self, name: &str, text: Vec<u8>) -> Result<()> {
        let about = || format!("failed to install the CRD `{name}`");
        let mut request = Request::new(PATH)
            .create(&PostParams::default(), text)
            .with_context(about)?;
        // The API server parses YAML itself, so it gets exactly the published text.
        request.headers_mut().insert(
            "content-type",
            "application/yaml".parse().with_context(about)?,
        );
        self.objects()
            .client()
            .request::<Value>(request)
            .await
            .with_context(about)?;
        self.wait_for_crd(name).await
    }

    /// Waits until a CRD is established, and the API server names its kind in each served version: it may do so later.
    pub async fn wait_for_crd(&self, name: &str) -> Result<()> {
        let client = self.objects().client().clone();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        wait::until(&format!("a served CRD `{name}`"), DEADLINE, async || {
            let crd = crds
                .get(name)
                .await
                .with_context(|| format!("failed to read the CRD `{name}`"))?;
            let conditions = crd.status.and_then(|status| status.conditions);
            let mut conditions = conditions.into_iter().flatten();
            if !conditions.any(|one| one.type_ == "Established" && one.status == "True") {
                return Ok(None);
            }
            let (group, kind) = (&crd.spec.group, &crd.spec.names.kind);
            for version in crd.spec.versions.iter().filter(|version| version.served) {
                let kind = GroupVersionKind::gvk(group, &version.name, kind);
                if discovery::pinned_kind(&client, &kind).await.is_err() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await
    }
}

/// The text of a CRD.
fn published(name: &str) -> Result<Vec<u8>> {
    let path = servers::folder()?.join("crds").join(format!("{name}.yaml"));
    fs::read(&path).with_context(|| {
        format!(
            "failed to read `{}`; run `cargo xtask servers`",
            path.display()
        )
    })
}

/// Names of the CRDs that `cargo xtask servers` prepared, in order.
pub fn available_crds() -> Result<Vec<String>> {
    let folder = servers::folder()?.join("crds");
    let about = || {
        format!(
            "failed to read `{}`; run `cargo xtask servers`",
            folder.display()
        )
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(about)? {
        let name = entry
            .with_context(about)?
            .file_name()
            .to_string_lossy()
            .into_owned();
        names.extend(name.strip_suffix(".yaml").map(str::to_owned));
    }
    names.sort();
    ensure!(
        !names.is_empty(),
        "`{}` holds no CRD; run `cargo xtask servers`",
        folder.display()
    );
    Ok(names)
}
