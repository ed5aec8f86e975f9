//! The agent's own folder: names of its files, and writes that are there whole or not at all.
//! Never writes outside it; never calls fsync, because all of it can be made again from the manifests.

use super::tree::{OBJECTS, PATCHES, gone};
use sha2::{Digest as _, Sha256};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use transom_core::reference::ObjectRef;

/// Folder of files that are not finished.
const UNFINISHED: &str = "tmp";
/// Folder of status files.
pub(super) const STATUS: &str = "status";
/// Longest part of a file name that is taken from a name as it is, in bytes.
const NAME: usize = 180;
/// Longest name of a file without its ending, in bytes.
const FILE: usize = 245;
/// How often a write is tried when the folder goes away under it.
const TRIES: usize = 4;

/// The agent's own folder, open for writing.
#[derive(Debug)]
pub(super) struct Own {
    folder: PathBuf,
    next: AtomicU64,
    /// Held open: its lock says that an agent is at work here.
    _lock: File,
}

impl Own {
    /// Makes the folder, takes its lock, and removes what a killed agent left unfinished.
    /// An error of kind `WouldBlock` says that another agent is at work in it.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        for part in ["", OBJECTS, PATCHES, STATUS, UNFINISHED] {
            make_folder(&folder.join(part))?;
        }
        let ignore = folder.join(".gitignore");
        if !ignore.exists() {
            // The folder holds credentials, and it can be made again.
            std::fs::write(ignore, "*\n")?;
        }
        std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
        let lock = File::open(folder)?;
        lock.try_lock()?;
        for entry in std::fs::read_dir(folder.join(UNFINISHED))? {
            std::fs::remove_file(entry?.path())?;
        }
        Ok(Self { folder: folder.to_owned(), next: AtomicU64::new(0), _lock: lock })
    }

    /// Where a file of ours lies.
    pub(super) fn path(&self, file: &Path) -> PathBuf {
        self.folder.join(file)
    }

    /// Puts a file in place by atomic rename; only its owner may read it.
    pub(super) fn write(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let unfinished = self.folder.join(UNFINISHED).join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        let target = self.path(file);
        let mut written = finish(&unfinished, &target, bytes);
        if written.as_ref().is_err_and(gone) && self.folder.parent().is_some_and(Path::exists) {
            // Someone removed our folder; a root that is gone is not made again.
            make_folder(&self.folder.join(UNFINISHED))?;
            written = finish(&unfinished, &target, bytes);
        }
        if written.is_err() {
            // The first error is the one to tell; what stays here is removed at the next start.
            drop(std::fs::remove_file(&unfinished));
        }
        written
    }

    /// Removes a file, and its folder when that was the last one in it. Nothing there is no error.
    pub(super) fn remove(&self, file: &Path) -> io::Result<()> {
        match std::fs::remove_file(self.path(file)) {
            Err(error) if !gone(&error) => return Err(error),
            _ => {}
        }
        if let Some(parent) = file.parent().filter(|parent| parent.components().count() > 1) {
            // Not empty is the ordinary case.
            drop(std::fs::remove_dir(self.path(parent)));
        }
        Ok(())
    }
}

/// Writes the unfinished file and renames it to its place.
fn finish(unfinished: &Path, target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    file.write_all(bytes)?;
    drop(file);
    let mut result = std::fs::rename(unfinished, target);
    for _ in 0..TRIES {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                target.parent().map_or(Ok(()), make_folder)?;
                result = std::fs::rename(unfinished, target);
            }
            _ => break,
        }
    }
    result
}

/// Makes a folder that only its owner may enter.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The file of an object below `objects` or `patches`: `<namespace or _cluster>/<Kind>.<name>.yaml`, and
/// `<Kind>.<name>_<group>.yaml` when its kind is of a group. No other part of a name has a `_`.
pub(super) fn object_file(reference: &ObjectRef) -> PathBuf {
    let folder = reference.namespace.as_deref().map_or("_cluster".to_owned(), segment);
    let mut file = format!("{}.{}", segment(&reference.kind), segment(&reference.name));
    if let Some((group, _)) = reference.api_version.split_once('/') {
        file = format!("{file}_{}", segment(group));
    }
    if file.len() > FILE {
        let start = file.get(..FILE - 40).unwrap_or_default();
        file = format!("{start}~{}", digest(file.as_bytes()));
    }
    Path::new(&folder).join(format!("{file}.yaml"))
}

/// The file of a subject's status below `status`: `<policy>/<namespace>.<name>.yaml`.
pub(super) fn status_file(policy: &str, subject: &ObjectRef) -> PathBuf {
    let namespace =
        subject.namespace.as_deref().map_or("_cluster".to_owned(), |name| segment(name).replace('.', "%2E"));
    Path::new(STATUS).join(segment(policy)).join(format!("{namespace}.{}.yaml", segment(&subject.name)))
}

/// The file of a policy's own status.
pub(super) fn policy_file(policy: &str) -> PathBuf {
    Path::new(STATUS).join(format!("{}.yaml", segment(policy)))
}

/// A name as part of a path: what Kubernetes allows stays, the rest becomes `%XX`, what is too long ends in a digest.
/// Two names never become one.
pub(super) fn segment(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => safe.push(char::from(byte)),
            b'.' if index > 0 => safe.push('.'),
            _ => safe.push_str(&format!("%{byte:02X}")),
        }
    }
    if safe.len() <= NAME {
        return safe;
    }
    let start = safe.get(..NAME - 40).unwrap_or_default();
    format!("{start}~{}", digest(name.as_bytes()))
}

/// The first 16 bytes of SHA-256, as hex.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_files() {
        let file = |namespace, name| object_file(&ObjectRef::local("v1", "Secret", namespace, name));
        assert_eq!(file(Some("klusterlet-a"), "x.y"), Path::new("klusterlet-a/Secret.x.y.yaml"));
        assert_eq!(file(None, "a"), Path::new("_cluster/Secret.a.yaml"));
        assert_eq!(file(Some("_cluster"), "a"), Path::new("%5Fcluster/Secret.a.yaml"));
        assert_eq!(file(Some(".."), "../../etc"), Path::new("%2E./Secret.%2E.%2F..%2Fetc.yaml"));
        let cluster = |group: &str| object_file(&ObjectRef::local(group, "Cluster", None, "a.b"));
        assert_eq!(cluster("cluster.x-k8s.io/v1"), Path::new("_cluster/Cluster.a.b_cluster.x-k8s.io.yaml"));
        assert_ne!(cluster("cluster.x-k8s.io/v1"), cluster("other.example.com/v1"));
        let subject = |namespace, name| status_file("p", &ObjectRef::local("v1", "A", namespace, name));
        assert_eq!(subject(Some("clusters"), "a.b"), Path::new("status/p/clusters.a.b.yaml"));
        assert_ne!(subject(Some("a"), "b.c"), subject(Some("a.b"), "c"));
        assert_eq!(policy_file("p"), Path::new("status/p.yaml"));
    }

    #[test]
    fn long_names_stay_apart_and_short_enough() {
        let long = "a".repeat(253);
        let other = format!("{}b", "a".repeat(252));
        assert_ne!(segment(&long), segment(&other));
        assert!(segment(&long).len() <= NAME);
        let file = |name: &str, group: &str| {
            let file = object_file(&ObjectRef::local(&format!("{group}/v1"), &"K".repeat(63), None, name));
            file.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert!(file(&long, &long).len() <= 255);
        assert_ne!(file(&long, &long), file(&long, &other));
        assert_ne!(file(&long, &long), file(&other, &long));
    }

    #[test]
    fn a_second_agent_is_turned_away_and_leftovers_go() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        let first = Own::open(&own).unwrap();
        assert_eq!(Own::open(&own).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(first);
        std::fs::write(own.join("tmp/7"), "half").unwrap();
        let second = Own::open(&own).unwrap();
        assert_eq!(std::fs::read_dir(own.join("tmp")).unwrap().count(), 0);
        assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        let file = Path::new("objects/n/Secret.a.yaml");
        second.write(file, b"x").unwrap();
        assert_eq!(std::fs::metadata(own.join(file)).unwrap().permissions().mode() & 0o777, 0o600);
        second.remove(file).unwrap();
        second.remove(file).unwrap();
        assert!(!own.join("objects/n").exists() && own.join("objects").exists());
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let own = Own::open(folder.path()).unwrap();
        std::fs::create_dir_all(folder.path().join("objects/taken/below")).unwrap();
        assert!(own.write(Path::new("objects/taken"), b"x").is_err());
        assert_eq!(std::fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
    }
}
