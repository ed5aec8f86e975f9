//! What tests run against comes from Go modules: programs, built from `tests/servers`, and CRDs, copied as they were
//! published. No binary is downloaded, and Go is not installed from here.

use super::{is_current, keep};
use crate::{files, process, progress};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that are built from one `go.mod`.
struct Recipe {
    /// Its folder below `tests/servers`.
    folder: &'static str,
    /// What the build depends on, in that folder; first the `go.mod`.
    files: &'static [&'static str],
    /// The file that holds what the programs were built from, word for word.
    key: &'static str,
    /// Name, package, and how long a build takes on two cores.
    programs: &'static [(&'static str, &'static str, &'static str)],
    /// The flags of the linker, which say the version; from the `go.mod`.
    flags: fn(&str) -> Option<String>,
}

/// The servers, and their client.
const KUBERNETES: Recipe = Recipe {
    folder: "",
    files: &["go.mod", "go.sum", "etcd/main.go"],
    key: "binaries.key",
    programs: &[
        ("etcd", "./etcd", "half a minute"),
        (
            "kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-apiserver",
            "four minutes",
        ),
        ("kubectl", "k8s.io/kubernetes/cmd/kubectl", "a minute"),
    ],
    flags: kubernetes_flags,
};

/// The signer of certificates, of the same module. The assets of others hold none.
const MANAGER: Recipe = Recipe {
    folder: "",
    files: &["go.mod", "go.sum"],
    key: "manager.key",
    programs: &[(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "three minutes",
    )],
    flags: kubernetes_flags,
};

/// A module of its own, because its Kubernetes libraries are newer than those of the servers.
const HELM: Recipe = Recipe {
    folder: "helm",
    files: &["go.mod", "go.sum"],
    key: "helm.key",
    programs: &[("helm", "helm.sh/helm/v3/cmd/helm", "three minutes")],
    flags: helm_flags,
};

/// Programs of Open Cluster Management: the registration controller and agent, and the operators. A module of its own,
/// because it brings its own Kubernetes libraries.
const OCM: Recipe = Recipe {
    folder: "ocm",
    files: &["go.mod", "go.sum"],
    key: "ocm.key",
    programs: &[
        (
            "registration",
            "open-cluster-management.io/ocm/cmd/registration",
            "four minutes",
        ),
        // Nearly all of it is compiled by then.
        (
            "registration-operator",
            "open-cluster-management.io/ocm/cmd/registration-operator",
            "half a minute",
        ),
    ],
    flags: |_| Some("-s -w".to_owned()),
};

/// Registries, and the clients that push to them and sign: a module of its own, because it brings the libraries of many
/// clouds.
const OCI: Recipe = Recipe {
    folder: "oci",
    files: &["go.mod", "go.sum", "referrers/main.go"],
    key: "oci.key",
    programs: &[
        (
            "registry",
            "github.com/distribution/distribution/v3/cmd/registry",
            "a minute",
        ),
        ("referrers", "./referrers", "five seconds"),
        ("oras", "oras.land/oras/cmd/oras", "ten seconds"),
        (
            "cosign",
            "github.com/sigstore/cosign/v3/cmd/cosign",
            "three minutes",
        ),
    ],
    flags: |_| Some("-s -w".to_owned()),
};

/// Builds the programs that are missing or old, and copies the CRDs. kube-apiserver, kubectl and etcd are those of
/// `KUBEBUILDER_ASSETS` if it is set.
pub(super) fn prepare(recipes: &Path, folder: &Path) -> Result<()> {
    match std::env::var_os("KUBEBUILDER_ASSETS") {
        Some(assets) => check_assets(Path::new(&assets))?,
        None => KUBERNETES.prepare(recipes, folder)?,
    }
    MANAGER.prepare(recipes, folder)?;
    HELM.prepare(recipes, folder)?;
    OCM.prepare(recipes, folder)?;
    OCI.prepare(recipes, folder)?;
    copy_crds(folder)
}

fn check_assets(assets: &Path) -> Result<()> {
    for (name, ..) in KUBERNETES.programs {
        ensure!(
            assets.join(name).is_file(),
            "KUBEBUILDER_ASSETS is `{}`, which does not contain `{name}`; add it, or unset the variable to build all",
            assets.display()
        );
    }
    progress::say(&format!(
        "    servers of KUBEBUILDER_ASSETS: {}",
        assets.display()
    ));
    Ok(())
}

impl Recipe {
    /// Builds the programs if one is missing or old.
    fn prepare(&self, recipes: &Path, folder: &Path) -> Result<()> {
        let recipe = recipes.join(self.folder);
        let (key, flags) = self.read(&recipe)?;
        let is_there = |(name, ..): &(&str, _, _)| folder.join(name).is_file();
        if is_current(folder, self.key, &key) && self.programs.iter().all(is_there) {
            return Ok(());
        }
        for (name, package, duration) in self.programs {
            let mut go = command(&recipe)?;
            progress::say(&format!(
                "    building {name} from its Go module; this takes about {duration}, once"
            ));
            // A new file, renamed: a running server keeps the old one.
            let path = folder.join(name);
            let fresh = path.with_extension("new");
            go.args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath"])
                .args(["-ldflags", &flags, "-o"])
                .arg(&fresh)
                .arg(package);
            process::run(&mut go).with_context(|| format!("failed to build {name}"))?;
            files::rename(&fresh, &path)?;
        }
        keep(folder, self.key, &key)
    }

    /// All that the build depends on, as one text, and the flags of the linker.
    fn read(&self, recipe: &Path) -> Result<(String, String)> {
        let texts = self
            .files
            .iter()
            .map(|name| files::text(&recipe.join(name)))
            .collect::<Result<Vec<_>>>()?;
        let flags = texts.first().and_then(|module| (self.flags)(module));
        let flags = flags.with_context(|| {
            format!(
                "`{}/go.mod` does not require the modules whose versions {} has",
                recipe.display(),
                self.programs[0].0
            )
        })?;
        Ok((texts.concat(), flags))
    }
}

/// A `go` command in a folder; fails with one sentence when there is no Go.
fn command(folder: &Path) -> Result<Command> {
    ensure!(
        process::probe(Command::new("go").arg("version")).is_some(),
        "Go not found; it builds the kube-apiserver, kube-controller-manager, etcd, kubectl, helm, programs of OCM, registries, oras and cosign of the tests and fetches the CRDs; install Go 1.26 or later (https://go.dev/dl)"
    );
    let mut go = Command::new("go");
    // Makes settings of the user, or of folders above, ineffective.
    go.current_dir(folder)
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        .env("CGO_ENABLED", "0");
    Ok(go)
}

/// Without these flags the server calls itself v0.0.0-master.
fn kubernetes_flags(module: &str) -> Option<String> {
    let version = required(module, "k8s.io/kubernetes")?;
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    let at = "k8s.io/component-base/version";
    Some(format!(
        "-s -w -X {at}.gitVersion={version} -X {at}.gitMajor={major} -X {at}.gitMinor={minor}"
    ))
}

/// Without these flags helm calls itself unknown, and renders for Kubernetes 1.20.
fn helm_flags(module: &str) -> Option<String> {
    let at = "helm.sh/helm/v3";
    let version = required(module, at)?;
    let minor = required(module, "k8s.io/client-go")?
        .strip_prefix("v0.")?
        .split('.')
        .next()?;
    let kubernetes = ["chartutil", "lint/rules"].map(|package| {
        format!(
            "-X {at}/pkg/{package}.k8sVersionMajor=1 -X {at}/pkg/{package}.k8sVersionMinor={minor}"
        )
    });
    Some(format!(
        "-s -w -X {at}/internal/version.version={version} {}",
        kubernetes.join(" ")
    ))
}

/// The version of a module that a `go.mod` requires, such as `v3.22.0`.
fn required<'a>(module: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = module
        .lines()
        .filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(' '));
    lines.next()?.split_whitespace().next()
}

/// A module with CRDs in it.
#[derive(Debug)]
struct Module {
    /// Path and exact version.
    name: &'static str,
    /// Its checksum, as `go.sum` has it.
    sum: &'static str,
    /// The folder of the files in the module.
    folder: &'static str,
    files: &'static [&'static str],
}

/// The file that says which CRDs lie there.
const CRDS_KEY: &str = "crds.key";

const CRDS: [Module; 3] = [
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

/// Copies the CRDs into `crds/`, each under its name, unedited.
fn copy_crds(folder: &Path) -> Result<()> {
    let key = format!("{CRDS:?}");
    let crds = folder.join("crds");
    if is_current(folder, CRDS_KEY, &key) && crds.is_dir() {
        return Ok(());
    }
    progress::say("    fetching CRDs from their Go modules");
    let fresh = folder.join("crds.new");
    files::remove_folder(&fresh)?;
    for module in &CRDS {
        let from = fetch(module, folder)?.join(module.folder);
        for file in module.files {
            let from = from.join(file);
            let text = files::text(&from)?;
            let name = name(&text).with_context(|| format!("`{}` is not a CRD", from.display()))?;
            files::write(&fresh.join(format!("{name}.yaml")), &text)?;
        }
    }
    files::remove_folder(&crds)?;
    files::rename(&fresh, &crds)?;
    keep(folder, CRDS_KEY, &key)
}

/// The folder in which Go keeps the module; fails when its checksum is not the expected one.
fn fetch(module: &Module, folder: &Path) -> Result<PathBuf> {
    let text = process::output(command(folder)?.args(["mod", "download", "-json", module.name]))?;
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
    fn the_server_reports_the_required_version() {
        let module = "require (\n\tgo.etcd.io/etcd/server/v3 v3.6.5\n\tk8s.io/kubernetes v1.34.4 // indirect\n)\n";
        assert_eq!(required(module, "k8s.io/kubernetes"), Some("v1.34.4"));
        assert!(kubernetes_flags(module).unwrap().ends_with(
            ".gitVersion=v1.34.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
        ));
    }

    #[test]
    fn the_committed_recipes_are_complete() {
        let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers");
        let read = |recipe: Recipe| recipe.read(&recipes.join(recipe.folder)).unwrap();
        let (_, flags) = read(KUBERNETES);
        assert!(flags.contains(".gitVersion=v1."), "{flags}");
        let (_, flags) = read(HELM);
        assert!(flags.contains("/internal/version.version=v3."), "{flags}");
        assert!(
            flags.contains("/pkg/chartutil.k8sVersionMajor=1"),
            "{flags}"
        );
        for recipe in [OCM, OCI] {
            let packages = recipe.programs.iter().map(|(_, package, _)| package);
            let (text, _) = read(recipe);
            for package in packages.filter(|package| !package.starts_with('.')) {
                let tool = format!("\n\t{package}\n");
                assert!(text.contains(&tool), "go.mod does not name {package}");
            }
        }
    }

    #[test]
    fn names_what_is_missing_in_incomplete_assets() {
        let folder = tempfile::tempdir().unwrap();
        files::write(&folder.path().join("etcd"), "").unwrap();
        let error = check_assets(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("does not contain `kube-apiserver`"),
            "{error}"
        );
    }

    #[test]
    fn reads_the_name_of_a_crd_from_its_metadata() {
        let text = "kind: CustomResourceDefinition\nmetadata:\n  annotations:\n    name: no\n  name: as.b.c\nspec:\n  name: no\n";
        assert_eq!(name(text), Some("as.b.c"));
        assert_eq!(name("kind: x\nspec:\n  name: no\n"), None);
    }
}
