//! A generated fleet of HostedClusters and ManagedClusters as manifests in files. Equal numbers give an equal fleet;
//! the agent can work with every object, though some must wait or are suspended.

mod hosted;

use crate::identity::{Identity, IdentityError};
use crate::numbers::Numbers;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The number of CAs in a fleet: generating one for each cluster would take hours.
const IDENTITIES: u64 = 3;

/// What to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Number of HostedClusters, each with secret, Service and namespaces.
    pub clusters: usize,
    /// Number of ManagedClusters.
    pub managed: usize,
    /// Chooses identifiers and keys; one seed gives one fleet.
    pub seed: u64,
}

/// One manifest file.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Path in the fleet's folder.
    pub path: String,
    /// Its text, including credentials.
    pub text: String,
    /// Number of objects in it.
    pub objects: usize,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Files.
    pub files: usize,
    /// Objects in them.
    pub objects: usize,
    /// Bytes in them.
    pub bytes: usize,
}

/// An error while generating a fleet.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// Its keys.
    #[error("failed to generate the identities of the fleet")]
    Identity(#[from] IdentityError),
    /// A file.
    #[error("failed to write `{0}`")]
    Write(PathBuf, #[source] io::Error),
}

impl Fleet {
    /// All files of the fleet, generated one after the other.
    pub fn files(self) -> Result<impl Iterator<Item = File>, IdentityError> {
        let identities: Result<Vec<Identity>, IdentityError> = (0..IDENTITIES
            .min(self.clusters as u64))
            .map(|place| Identity::generate(self.seed, place))
            .collect();
        let identities = identities?;
        let hosted = (0..self.clusters).filter_map(move |index| {
            let identity = identities.get(index % identities.len().max(1))?;
            Some(hosted::file(
                index,
                identity,
                &mut Numbers::new(self.seed, place(1, index)),
            ))
        });
        let managed = (0..self.managed).map(move |index| {
            managed_file(
                index,
                self.clusters,
                &mut Numbers::new(self.seed, place(2, index)),
            )
        });
        Ok(hosted.chain(managed))
    }

    /// Writes all files below a folder, which is created if missing; only the owner may read secrets.
    pub fn write(self, folder: &Path) -> Result<Written, FleetError> {
        for sub in ["hosted", "managed"] {
            let path = folder.join(sub);
            fs::create_dir_all(&path).map_err(|error| FleetError::Write(path, error))?;
        }
        let mut written = Written::default();
        for file in self.files()? {
            let path = folder.join(&file.path);
            fs::write(&path, &file.text).map_err(|error| FleetError::Write(path, error))?;
            written.files += 1;
            written.objects += file.objects;
            written.bytes += file.text.len();
        }
        Ok(written)
    }
}

/// Name of the ManagedCluster of a HostedCluster; its klusterlet runs in `klusterlet-<name>`.
pub fn managed_name(index: usize) -> String {
    hosted::managed_name(index)
}

/// Name of a HostedCluster; all are in the namespace `clusters`.
pub fn hosted_name(index: usize) -> String {
    hosted::name(index)
}

fn place(kind: u64, index: usize) -> u64 {
    kind << 40 | index as u64
}

/// A time in 2026; each index is one minute later.
fn minute(index: usize) -> String {
    let (day, hour, minute) = (index / 1440 % 28 + 1, index / 60 % 24, index % 60);
    format!("2026-02-{day:02}T{hour:02}:{minute:02}:00Z")
}

/// The region of the cluster with this index.
fn region(index: usize) -> &'static str {
    ["us-east-1", "us-west-2", "eu-central-1", "ap-southeast-2"][index % 4]
}

/// The environment of the cluster with this index.
fn environment(index: usize) -> &'static str {
    ["production", "staging", "development"][index % 3]
}

/// The template with each `{{name}}` replaced by its value; a name without a value stays, where the reader of the
/// manifest sees it.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, behind)) = after.split_once("}}") else {
            break;
        };
        filled.push_str(before);
        match values.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => filled.push_str(value),
            None => {
                filled.push_str("{{");
                filled.push_str(name);
                filled.push_str("}}");
            }
        }
        rest = behind;
    }
    filled.push_str(rest);
    filled
}

/// A ManagedCluster.
const OBJECT: &str = include_str!("templates/managed-cluster.yaml");

/// The file of a ManagedCluster; the first ones belong to the HostedClusters.
fn managed_file(index: usize, clusters: usize, numbers: &mut Numbers) -> File {
    let name = if index < clusters {
        hosted::managed_name(index)
    } else {
        format!("edge-{index:05}")
    };
    let values = [
        ("name", name.as_str()),
        (
            "clusterset",
            if index.is_multiple_of(4) {
                "default"
            } else {
                "fleet"
            },
        ),
        ("region", region(index)),
        ("environment", environment(index)),
        ("patch", &(index % 12).to_string()),
        ("version", &(200_000 + index).to_string()),
        ("created", &minute(index)),
        ("cluster_id", &numbers.uuid()),
        ("uid", &numbers.uuid()),
        ("taints", taints(index)),
        ("available", &available(index)),
    ];
    File {
        path: format!("managed/{name}.yaml"),
        text: fill(OBJECT, &values),
        objects: 1,
    }
}

/// Seven of ten are available; one is not, one has not reported, and one has just joined.
fn available(index: usize) -> String {
    let (status, reason, message) = match index % 10 {
        7 => (
            "False",
            "ManagedClusterKubeAPIServerUnavailable",
            "The kube-apiserver is not ok, status code: 503",
        ),
        8 => (
            "Unknown",
            "ManagedClusterLeaseUpdateStopped",
            "Registration agent stopped updating its lease.",
        ),
        9 => return String::new(),
        _ => (
            "True",
            "ManagedClusterAvailable",
            "Managed cluster is available",
        ),
    };
    let time = minute(index + 31);
    format!(
        "\n  - lastTransitionTime: \"{time}\"\n    message: \"{message}\"\n    reason: {reason}\n    status: \"{status}\"\n    type: ManagedClusterConditionAvailable"
    )
}

/// A user's own taint that must stay, or an outdated one that must go.
fn taints(index: usize) -> &'static str {
    match index % 10 {
        4 | 7 => {
            "\n  taints:\n  - effect: NoSelect\n    key: maintenance.example.com/window\n    timeAdded: \"2026-02-01T04:00:00Z\"\n    value: sunday"
        }
        2 => {
            "\n  taints:\n  - effect: NoSelect\n    key: cluster.open-cluster-management.io/unreachable\n    timeAdded: \"2026-02-01T03:00:00Z\""
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_placeholders_and_keeps_unknown_ones() {
        assert_eq!(
            fill("a {{b}}{{b}} {{c}} }} {{", &[("b", "x")]),
            "a xx {{c}} }} {{"
        );
    }
}
