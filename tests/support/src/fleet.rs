//! A generated fleet of HostedClusters and ManagedClusters as manifests in files. Equal numbers give an equal fleet;
//! the agent can work with every object, though some must wait or are suspended.

mod hosted;
mod managed;

use crate::identity::{Identity, IdentityError};
use crate::numbers::Numbers;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
            managed::file(
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
