//! Compiled code on disk, so that the next start need not compile. Runs only code that no other user could have
//! written; when anything is wrong with a file, the component is compiled instead.

use crate::private::PrivateFolder;
use sha2::{Digest as _, Sha256};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use wasmtime::component::Component;

/// How many files are kept, and how many bytes; beyond that those are removed that were not used for longest. The chart
/// gives 256 MiB to all caches.
const FILES: usize = 256;
const BYTES: u64 = 128 << 20;
/// Bytes of the checksum in front of the code.
const CHECKSUM: usize = 32;

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

/// A folder of compiled code.
pub(crate) struct CodeCache(PrivateFolder);

impl CodeCache {
    /// The cache in a folder; `None` when it cannot be used or other users have access.
    pub(crate) fn open(folder: &Path) -> Option<Self> {
        PrivateFolder::open(folder).ok().map(Self)
    }

    /// The code of the component with this digest, if an engine with the same version and settings kept it.
    pub(crate) fn read(&self, wasm: &wasmtime::Engine, digest: &str) -> Option<Component> {
        let name = name(wasm, digest);
        let bytes = self.0.read(&name, u64::MAX).ok()?;
        self.0.touch(&name);
        let (kept, code) = bytes.split_at_checked(CHECKSUM)?;
        if checksum(digest, code) != kept {
            return None;
        }
        believe(wasm, code).ok()
    }

    /// Keeps the code of a component. Code that cannot be kept is compiled again the next time.
    pub(crate) fn write(&self, wasm: &wasmtime::Engine, digest: &str, code: &[u8]) {
        let (name, checksum) = (name(wasm, digest), checksum(digest, code));
        let _ = self.0.write(&name, &[&checksum, code]);
        self.0.prune(FILES, BYTES, |_| false);
    }
}

/// One file per component and engine: another version or other settings of wasmtime have their own.
fn name(wasm: &wasmtime::Engine, digest: &str) -> String {
    let mut hasher = DefaultHasher::new();
    wasm.precompile_compatibility_hash().hash(&mut hasher);
    let digest = digest.trim_start_matches("sha256:");
    format!("{digest}-{:016x}.code", hasher.finish())
}
