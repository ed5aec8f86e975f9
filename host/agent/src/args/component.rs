//! How a component is reached, wherever it lies, and the flags of the commands that bring one from place to place.

use clap::Args;
use std::path::PathBuf;
use transom_artifacts::Location;
use transom_artifacts::registry::{Mirror, plain_registry};
use transom_core::policy::component::{ComponentSource, Image};

/// How registries are reached.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RegistryArgs {
    /// Configuration of docker with the credentials of registries, such as a mounted Secret of the type
    /// `kubernetes.io/dockerconfigjson`. Default: `config.json` in DOCKER_CONFIG or ~/.docker, if it exists.
    #[arg(long, value_name = "FILE")]
    pub(crate) registry_config: Option<PathBuf>,
    /// Certificates of private authorities for registries, as PEM.
    #[arg(long, value_name = "FILE")]
    pub(crate) registry_ca: Option<PathBuf>,
    /// Mirror that is asked first. May be repeated.
    #[arg(long, value_name = "REGISTRY[/PATH]=REGISTRY[/PATH]")]
    pub(crate) registry_mirror: Vec<Mirror>,
    /// Registry on this machine that is reached without TLS. May be repeated.
    #[arg(long, value_name = "HOST:PORT", value_parser = plain_registry)]
    pub(crate) registry_http: Vec<String>,
}

/// How a component is reached that a person names.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlaceArgs {
    /// Flags of registries.
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    /// Flags of the API server with the ConfigMaps.
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Which API server has the ConfigMap that holds a component.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig of the API server, such as for a component in a ConfigMap. Default, in order of precedence:
    /// KUBECONFIG, ~/.kube/config, the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
}

/// Flags of `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The component: a file, `oci:REGISTRY/REPOSITORY:TAG`, or `configmap:NAMESPACE/NAME/KEY`.
    #[arg(value_parser = Location::anywhere)]
    pub(crate) component: Location,
    /// PEM file with a public key, ECDSA on P-256 or Ed25519. May be repeated.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) key: Vec<PathBuf>,
    /// Demand a signature by every key instead of by one.
    #[arg(long)]
    pub(crate) all: bool,
    /// How the component is reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
}

/// Flags of `push`.
#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// The component: a file, `builtin:<name>`, or `oci:REGISTRY/REPOSITORY:TAG`.
    #[arg(value_parser = Location::anywhere)]
    pub(crate) component: Location,
    /// Where to: `oci:REGISTRY/REPOSITORY:TAG`.
    #[arg(value_parser = image)]
    pub(crate) image: Image,
    /// How component and registry are reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
}

/// Flags of `pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The artifact: `oci:REGISTRY/REPOSITORY:TAG`, `@sha256:…` or both.
    #[arg(value_parser = image)]
    pub(crate) image: Image,
    /// Where to write the component; an existing file is replaced atomically.
    #[arg(short, long, value_name = "FILE", value_parser = component_file)]
    pub(crate) output: PathBuf,
    /// Flags of registries.
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// Flags of `digest`.
#[derive(Debug, Args)]
pub(crate) struct DigestArgs {
    /// The component: a file, `builtin:<name>`, `oci:REGISTRY/REPOSITORY:TAG`, or `configmap:NAMESPACE/NAME/KEY`.
    #[arg(value_parser = Location::anywhere)]
    pub(crate) component: Location,
    /// How the component is reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
}

/// Flags of `fetch`.
#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// Flags of registries.
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    /// Also print its signatures.
    #[arg(long)]
    pub(crate) signatures: bool,
    /// Print only the digest of its manifest.
    #[arg(long)]
    pub(crate) resolve: bool,
    /// The artifact, without `oci:`.
    pub(crate) image: String,
}

/// The artifact of a text such as `oci:registry.example/taints:v1`.
fn image(text: &str) -> Result<Image, String> {
    match ComponentSource::parse(text)? {
        ComponentSource::Image(image) => Ok(image),
        _ => Err("is not in a registry: expected `oci:REGISTRY/REPOSITORY:TAG`".to_owned()),
    }
}

/// Where to write a component.
pub(super) fn component_file(text: &str) -> Result<PathBuf, String> {
    match text {
        "-" => Err("a component is written to a file; `./-` is one of that name".to_owned()),
        text => Ok(text.into()),
    }
}
