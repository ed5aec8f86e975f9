//! Compiled code on disk, so that the next start need not compile. Runs only code that no other user could have
//! written; when anything is wrong with a file, the component is compiled instead.

use sha2::{Digest as _, Sha256};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, process};
use wasmtime::component::Component;

/// How many files are kept; beyond that the oldest are removed.
const KEPT: usize = 64;
/// Bytes of the checksum in front of the code.
const CHECKSUM: usize = 32;
/// The mode bits that give access to other users.
const OTHERS: u32 = 0o077;

/// Loads code that this program compiled: from a file that only this user can have written, complete and of the right
/// component, or just received from a child process.
#[expect(
    unsafe_code,
    reason = "deserialising trusts its bytes: whoever calls this knows that we made them"
)]
pub(crate) fn believe(wasm: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: no other user can have written these bytes, and wasmtime itself compares version and settings.
    unsafe { Component::deserialize(wasm, code) }
}

/// A checksum that binds code to its component.
fn checksum(digest: &str, code: &[u8]) -> Vec<u8> {
    Sha256::new()
        .chain_update(digest)
        .chain_update(code)
        .finalize()
        .to_vec()
}

fn fill(partial: &Path, digest: &str, code: &[u8]) -> io::Result<()> {
    let mut file = anew(partial)?;
    file.write_all(&checksum(digest, code))?;
    file.write_all(code)
}

/// Creates a new file, in place of one that an earlier process with the same id left.
fn anew(path: &Path) -> io::Result<fs::File> {
    let _ = fs::remove_file(path);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// A folder of compiled code.
pub(crate) struct Cache {
    folder: PathBuf,
    /// The user of this process, which must own every file that is loaded.
    user: u32,
}

impl Cache {
    /// The cache in a folder, which is created when it is missing; `None` when it cannot be used or other users have
    /// access.
    pub(crate) fn open(folder: &Path) -> Option<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .ok()?;
        let probe = folder.join(format!(".{}", process::id()));
        let user = anew(&probe).and_then(|file| file.metadata()).ok()?.uid();
        fs::remove_file(&probe).ok()?;
        let about = fs::symlink_metadata(folder).ok()?;
        let ours = about.is_dir() && about.uid() == user && about.mode() & OTHERS == 0;
        ours.then(|| Self {
            folder: folder.to_owned(),
            user,
        })
    }

    /// The code of the component with this digest, if an engine with the same version and settings kept it.
    pub(crate) fn read(&self, wasm: &wasmtime::Engine, digest: &str) -> Option<Component> {
        let bytes = self.bytes(&self.file(wasm, digest)).ok()?;
        let (kept, code) = bytes.split_at_checked(CHECKSUM)?;
        if checksum(digest, code) != kept {
            return None;
        }
        believe(wasm, code).ok()
    }

    /// Keeps the code of a component; a concurrent reader sees all of it or nothing.
    pub(crate) fn write(&self, wasm: &wasmtime::Engine, digest: &str, code: &[u8]) {
        let file = self.file(wasm, digest);
        let partial = file.with_extension(format!("partial-{}", process::id()));
        // Code that cannot be kept is compiled again the next time.
        if fill(&partial, digest, code)
            .and_then(|()| fs::rename(&partial, &file))
            .is_err()
        {
            let _ = fs::remove_file(&partial);
        }
        self.prune();
    }

    fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Open without following or blocking: a link is refused, and a pipe does not wait for a writer.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let about = file.metadata()?;
        if !about.is_file() || about.uid() != self.user || about.mode() & OTHERS != 0 {
            return Err(io::Error::other("not ours alone"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or_default());
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// One file per component and engine: another version or other settings of wasmtime have their own.
    fn file(&self, wasm: &wasmtime::Engine, digest: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        wasm.precompile_compatibility_hash().hash(&mut hasher);
        let digest = digest.trim_start_matches("sha256:");
        self.folder
            .join(format!("{digest}-{:016x}.code", hasher.finish()))
    }

    fn prune(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut all: Vec<_> = entries
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        all.sort();
        let excess = all.len().saturating_sub(KEPT);
        for (_, path) in all.into_iter().take(excess) {
            let _ = fs::remove_file(path);
        }
    }
}
