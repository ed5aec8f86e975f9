//! The CRDs of the real projects, copied unedited out of their Go modules: tests run against what was published.

use super::{go, is_current, keep};
use crate::{process, progress};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The file that says which CRDs lie there.
const KEY: &str = "crds.key";

/// A module with CRDs in it.
#[derive(Debug)]
struct Module {
    /// Path and exact version.
    name: &'static str,
    /// Its checksum, as `go.sum` has it.
    sum: &'static str,
    /// The folder of the files in the module.
    folder: &'static str,
    /// The files.
    files: &'static [&'static str],
}

const MODULES: [Module; 3] = [
    Module {
        name: "github.com/openshift/hypershift@v0.1.70",
        sum: "h1:wXKWR3NqhzkBACNaJYrsgw3a0fHIUiABLHv0vIGY4HM=",
        folder: "cmd/install/assets/hypershift-operator/zz_generated.crd-manifests",
        files: &[
            "hostedclusters-Default.crd.yaml",
            "hostedcontrolplanes-Default.crd.yaml",
            "nodepools-Default.crd.yaml",
        ],
    },
    Module {
        name: "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        sum: "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        folder: "example/prometheus-operator-crd",
        files: &[
            "monitoring.coreos.com_prometheusrules.yaml",
            "monitoring.coreos.com_servicemonitors.yaml",
        ],
    },
    Module {
        name: "open-cluster-management.io/api@v1.2.0",
        sum: "h1:+yeQgJiErrur5S4s205UM37EcZ2XbC9pFSm0xgV5/hU=",
        folder: "",
        files: &[
            "addon/v1alpha1/0000_00_addon.open-cluster-management.io_clustermanagementaddons.crd.yaml",
            "addon/v1alpha1/0000_01_addon.open-cluster-management.io_managedclusteraddons.crd.yaml",
            "addon/v1alpha1/0000_02_addon.open-cluster-management.io_addondeploymentconfigs.crd.yaml",
            "addon/v1alpha1/0000_03_addon.open-cluster-management.io_addontemplates.crd.yaml",
            "cluster/v1/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml",
            "cluster/v1alpha1/0000_02_clusters.open-cluster-management.io_clusterclaims.crd.yaml",
            "cluster/v1beta1/0000_02_clusters.open-cluster-management.io_placements.crd.yaml",
            "cluster/v1beta1/0000_03_clusters.open-cluster-management.io_placementdecisions.crd.yaml",
            "cluster/v1beta2/0000_00_clusters.open-cluster-management.io_managedclustersets.crd.yaml",
            "cluster/v1beta2/0000_01_clusters.open-cluster-management.io_managedclustersetbindings.crd.yaml",
            "operator/v1/0000_00_operator.open-cluster-management.io_klusterlets.crd.yaml",
            "work/v1/0000_00_work.open-cluster-management.io_manifestworks.crd.yaml",
            "work/v1/0000_01_work.open-cluster-management.io_appliedmanifestworks.crd.yaml",
        ],
    },
];

/// Copies all into `crds/`, each under the name of its CRD.
pub(super) fn prepare(folder: &Path) -> Result<()> {
    let key = format!("{MODULES:?}");
    let crds = folder.join("crds");
    if is_current(folder, KEY, &key) && crds.is_dir() {
        return Ok(());
    }
    progress::say("    fetching CRDs from their Go modules");
    let fresh = folder.join("crds.new");
    clear(&fresh)?;
    fs::create_dir_all(&fresh)
        .with_context(|| format!("failed to create `{}`", fresh.display()))?;
    for module in &MODULES {
        let from = fetch(module, folder)?.join(module.folder);
        for file in module.files {
            copy(&from.join(file), &fresh)?;
        }
    }
    clear(&crds)?;
    fs::rename(&fresh, &crds).with_context(|| format!("failed to write `{}`", crds.display()))?;
    keep(folder, KEY, &key)
}

fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("failed to remove `{}`", folder.display()))?;
    }
    Ok(())
}

/// The folder in which Go keeps the module; fails when its checksum is not the expected one.
fn fetch(module: &Module, folder: &Path) -> Result<PathBuf> {
    let text =
        process::output(go::command(folder)?.args(["mod", "download", "-json", module.name]))?;
    let told: Value =
        serde_json::from_str(&text).context("failed to read the output of `go mod download`")?;
    ensure!(
        told["Sum"] == module.sum,
        "`{}` has checksum {}, not {}",
        module.name,
        told["Sum"],
        module.sum
    );
    told["Dir"]
        .as_str()
        .map(PathBuf::from)
        .context("`go mod download` names no folder")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let text =
        fs::read_to_string(from).with_context(|| format!("failed to read `{}`", from.display()))?;
    let name = name(&text).with_context(|| format!("`{}` is not a CRD", from.display()))?;
    let path = to.join(format!("{name}.yaml"));
    fs::write(&path, &text).with_context(|| format!("failed to write `{}`", path.display()))
}

/// The name of a CRD: the first one at the depth of its metadata.
fn name(text: &str) -> Option<&str> {
    let (_, metadata) = text.split_once("\nmetadata:\n")?;
    let line = metadata
        .lines()
        .take_while(|line| line.starts_with(' '))
        .find_map(|line| line.strip_prefix("  name: "))?;
    Some(line.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_name_of_a_crd_from_its_metadata() {
        let text = "kind: CustomResourceDefinition\nmetadata:\n  annotations:\n    name: no\n  name: as.b.c\nspec:\n  name: no\n";
        assert_eq!(name(text), Some("as.b.c"));
        assert_eq!(name("kind: x\nspec:\n  name: no\n"), None);
    }
}
