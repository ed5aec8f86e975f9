//! Flags of everything that reconciles policies, and of `render`, which only shows what a reconcile would write.

use super::call::CallArgs;
use super::name::parse_cluster;
use super::{OutputFormat, RegistryArgs, Reveal};
use clap::{Args, Parser};
use std::path::PathBuf;
use transom_artifacts::Sources;
use transom_core::time::parse_rfc3339;

/// Flags of everything that reconciles policies.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReconcileArgs {
    /// Folder or file with policies; `-` reads standard input once. Default: the two bundled policies.
    #[arg(short = 'f', long, value_name = "PATH")]
    pub(crate) policies: Option<PathBuf>,
    /// Folder with the component files that policies name. Default: a policy file names components next to itself,
    /// below the folder of policies; `FleetPolicy` objects cannot name files.
    #[arg(long, value_name = "DIR")]
    pub(crate) components: Option<PathBuf>,
    /// Where components may come from, whatever policies name: `builtin`, `file`, ConfigMaps of the cluster `local` as
    /// `configmap:NAMESPACE/NAME`, and repositories as `oci:REGISTRY/REPOSITORY`, where `*` matches any text; separated
    /// by commas.
    #[arg(long, value_name = "SOURCES", default_value_t = Sources::default())]
    pub(crate) sources: Sources,
    /// Flags of the calls of guests.
    #[command(flatten)]
    pub(crate) calls: CallArgs,
    /// Flags of registries.
    #[command(flatten)]
    pub(crate) registry: RegistryArgs,
    /// Fixed time to use instead of the system clock.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) now: Option<i64>,
    /// Name of the cluster that the agent works for.
    #[arg(long, value_name = "NAME", default_value = "local-cluster", value_parser = parse_cluster)]
    pub(crate) cluster_name: String,
    /// Size limit of a kubeconfig that is read or written, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) max_kubeconfig_bytes: usize,
    /// Size limit of an object, in bytes of compact JSON.
    #[arg(long, value_name = "BYTES", default_value_t = 3 << 19)]
    pub(crate) max_object_bytes: usize,
    /// Name of the hub's own cluster. When it is another cluster, guests may use discovery names.
    #[arg(long, value_name = "NAME", value_parser = parse_cluster)]
    pub(crate) self_managed_cluster: Option<String>,
}

/// The longest name of a hosting cluster with which the name of a managed cluster can begin: `klusterlet-<name>-x` is
/// the name of a namespace then.
const LONGEST_PREFIX: usize = 63 - "klusterlet-".len() - "-x".len();

impl ReconcileArgs {
    /// What to know of a `--cluster-name` that is too long to begin the names of managed clusters, as it does when the
    /// agent works for another cluster than the hub's own. It is not refused: an annotation or a setting may name them.
    pub(crate) fn overlong_name(&self) -> Option<String> {
        let (name, own) = (&self.cluster_name, self.self_managed_cluster.as_deref()?);
        let is_prefix = !own.eq_ignore_ascii_case(name);
        (is_prefix && name.len() > LONGEST_PREFIX).then(|| {
            format!(
                "--cluster-name has {} characters, and no managed cluster can have a name that begins with more than \
                 {LONGEST_PREFIX}: each HostedCluster must have the annotation \
                 cluster.open-cluster-management.io/managedcluster-name, or else fails with InvalidTargetName",
                name.len()
            )
        })
    }
}

impl Default for ReconcileArgs {
    /// Those of a command line that names none.
    fn default() -> Self {
        #[derive(Parser)]
        struct None {
            #[command(flatten)]
            flags: ReconcileArgs,
        }
        None::parse_from(["transom"]).flags
    }
}

/// Flags of `render`.
#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    /// Folder of manifests, or files with all objects; `-` reads standard input.
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
    /// Flags shared with `run`.
    #[command(flatten)]
    pub(crate) reconcile: ReconcileArgs,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Yaml)]
    pub(crate) output: OutputFormat,
    /// Show credentials instead of their kind and size; `--reveal=names` shows only the names of contexts, clusters and
    /// users, no credentials.
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) reveal: Option<Reveal>,
    /// Show the difference from the existing objects.
    #[arg(long, conflicts_with = "output")]
    pub(crate) diff: bool,
    /// Exit with code 3 when something would change.
    #[arg(long)]
    pub(crate) exit_code: bool,
}

/// A time as Kubernetes writes it.
fn parse_time(text: &str) -> Result<i64, String> {
    parse_rfc3339(text).ok_or_else(|| "expected a time like 2026-11-21T08:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_to_begin_others_is_told_where_it_would() {
        let told = |length: usize, own: Option<&str>| {
            let args = ReconcileArgs {
                cluster_name: "A".repeat(length),
                self_managed_cluster: own.map(str::to_owned),
                ..ReconcileArgs::default()
            };
            args.overlong_name()
        };
        assert_eq!(told(50, Some("hub")), None);
        assert!(told(51, Some("hub")).unwrap().contains("51 characters"));
        assert_eq!(told(51, None), None, "it begins no name");
        assert_eq!(told(51, Some(&"a".repeat(51))), None, "it is the hub's own");
    }

    #[test]
    fn the_name_of_a_cluster_has_at_most_63_characters() {
        assert!(parse_cluster(&"A".repeat(63)).is_ok());
        assert!(parse_cluster(&"A".repeat(64)).unwrap_err().contains("63"));
    }
}
