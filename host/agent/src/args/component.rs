//! Flags of the commands about one component, wherever it lies.

use super::TableFormat;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use transom_artifacts::registry::Mirror;
use transom_core::reference::dns::is_label;

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
    #[arg(long, value_name = "HOST:PORT")]
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
    /// Kubeconfig of the API server, such as for a component in a ConfigMap. Default, in order of precedence: KUBECONFIG, ~/.kube/config, the pod's
    /// service account.
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
    pub(crate) component: String,
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
    pub(crate) component: String,
    /// Where to: `oci:REGISTRY/REPOSITORY:TAG`.
    pub(crate) image: String,
    /// How component and registry are reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
}

/// Flags of `pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The artifact: `oci:REGISTRY/REPOSITORY:TAG`, `@sha256:…` or both.
    pub(crate) image: String,
    /// Where to write the component; an existing file is replaced atomically.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Flags of registries.
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
}

/// Flags of `digest`.
#[derive(Debug, Args)]
pub(crate) struct DigestArgs {
    /// The component: a file, `builtin:<name>`, `oci:REGISTRY/REPOSITORY:TAG`, or `configmap:NAMESPACE/NAME/KEY`.
    pub(crate) component: String,
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

/// Flags of `new`.
#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// What the guest decides: the taints of a ManagedCluster, a kubeconfig, or when to reconcile.
    #[arg(value_enum)]
    pub(crate) guest: NewGuest,
    /// Name of the guest, of its crate, of its policy and of the new folder.
    #[arg(value_parser = parse_crate)]
    pub(crate) name: String,
    /// Folder of the SDK: `guest/sdk` in a clone of the repository of Transom.
    #[arg(long, value_name = "DIR", default_value = "transom/guest/sdk")]
    pub(crate) sdk: PathBuf,
}

/// What a new guest decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NewGuest {
    /// Which taints a ManagedCluster has.
    Taints,
    /// Where a kubeconfig is written, and its content.
    Kubeconfig,
    /// When a primary is reconciled.
    Trigger,
}

/// What `policy` writes.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print a policy for a component, which grants what the component asks for and nothing else. Read it before you apply
    /// it.
    #[command(
        after_help = "Examples:\n  transom policy init target/guests/mine.wasm > policy.yaml\n  transom policy init builtin:taints --name tainted | transom validate -f -\n\nExit code: 0 when the policy is printed; 2 when the component cannot be read or does not say what it needs, and on a usage error."
    )]
    Init(PolicyInitArgs),
}

/// Flags of `policy init`.
#[derive(Debug, Args)]
pub(crate) struct PolicyInitArgs {
    /// A file, `builtin:<name>`, `oci:REGISTRY/REPOSITORY:TAG`, or `configmap:NAMESPACE/NAME/KEY`.
    pub(crate) component: String,
    /// Name of the policy. Default: the name of the guest.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How the component is reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
}

/// Flags of `build`.
#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The folder of the crate.
    #[arg(default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Where to write the component; an existing file is replaced atomically. Default: `guests/<package>.wasm` in cargo's
    /// target folder, where `transom test` looks for it.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Flags of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A file, `builtin:<name>`, `oci:REGISTRY/REPOSITORY:TAG`, or `configmap:NAMESPACE/NAME/KEY`.
    pub(crate) component: String,
    /// How the component is reached.
    #[command(flatten)]
    pub(crate) from: PlaceArgs,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = TableFormat::Table)]
    pub(crate) output: TableFormat,
}

/// Names that Rust or a dependency of every guest has taken.
const TAKEN: [&str; 7] = [
    "alloc",
    "core",
    "proc-macro",
    "serde",
    "std",
    "test",
    "transom-guest",
];

/// A name that a guest, its crate and its policy may have.
fn parse_crate(text: &str) -> Result<String, String> {
    if !is_label(text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err(
            "expected lower-case letters, digits and dashes, at most 63, with a letter first"
                .to_owned(),
        );
    }
    match TAKEN.contains(&text) {
        true => Err("another crate has this name".to_owned()),
        false => Ok(text.to_owned()),
    }
}
