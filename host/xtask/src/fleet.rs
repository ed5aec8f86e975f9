//! `cargo xtask fleet`: writes a generated fleet of manifests. Files that are already in the folder stay.

use crate::{files, progress};
use anyhow::Result;
use std::path::PathBuf;
use transom_support::fleet::Fleet;

/// What to generate, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to write to; created if it is missing
    #[arg(long)]
    out: PathBuf,
    /// HostedClusters, each with secret, Service and namespaces
    #[arg(long, default_value_t = 20)]
    clusters: usize,
    /// ManagedClusters; the first belong to the HostedClusters
    #[arg(long, default_value_t = 20)]
    managed: usize,
    /// Random seed of identifiers and keys: the same seed writes the same fleet
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Writes the fleet.
pub(crate) fn run(args: &Args) -> Result<()> {
    let fleet = Fleet {
        clusters: args.clusters,
        managed: args.managed,
        seed: args.seed,
    };
    let written = fleet.write(&args.out)?;
    for file in fleet.files()? {
        files::write(&args.out.join(&file.path), for_servers(&file.text))?;
    }
    progress::say(&format!(
        "{}: {} objects in {} files, {:.1} MiB",
        args.out.display(),
        written.objects,
        written.files,
        written.bytes as f64 / 1_048_576.0
    ));
    Ok(())
}

/// Manifests without the metadata that only an API server sets, and without owners, whose uids it sets.
fn for_servers(text: &str) -> String {
    let (mut in_metadata, mut in_owners) = (false, false);
    let mut kept = String::with_capacity(text.len());
    for line in text.lines() {
        if !line.starts_with([' ', '-']) || line == "---" {
            in_metadata = line == "metadata:";
        }
        in_owners = match line.strip_prefix("  ") {
            Some("ownerReferences:") => in_metadata,
            Some(below) => in_owners && below.starts_with([' ', '-']),
            None => false,
        };
        let set = ["  uid:", "  resourceVersion:", "  generation:"];
        if !(in_owners || in_metadata && set.iter().any(|field| line.starts_with(field))) {
            kept.extend([line, "\n"]);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omits_only_the_fields_that_a_server_sets() {
        let given = "# c\nkind: A\nmetadata:\n  name: a\n  uid: 1\n  resourceVersion: \"2\"\n  labels:\n    uid: stays\n  ownerReferences:\n  - kind: B\n    uid: 3\n  generation: 4\n  annotations: {}\nspec:\n  uid: stays\n  generation: 5\n---\nmetadata:\n  ownerReferences:\n  - uid: 1\nspec: {}\n";
        let kept = "# c\nkind: A\nmetadata:\n  name: a\n  labels:\n    uid: stays\n  annotations: {}\nspec:\n  uid: stays\n  generation: 5\n---\nmetadata:\nspec: {}\n";
        assert_eq!(for_servers(given), kept);
        let fleet = Fleet {
            clusters: 2,
            managed: 3,
            seed: 1,
        };
        for file in fleet.files().unwrap() {
            let text = for_servers(&file.text);
            let removed = file.text.lines().count() - text.lines().count();
            assert!(
                !text.contains("\n  uid: ") && !text.contains("ownerReferences") && removed > 2,
                "{text}"
            );
        }
    }
}
